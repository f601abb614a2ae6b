//! What the API server refuses before the host ever sees it, by the CRD that the plugin's types became.

use serde_json::{Value, json};

use crate::support::{Kind, POSTGRES_CLUSTER, World};

fn cluster(spec: &Value) -> String {
    let Kind(api_version, kind, _) = POSTGRES_CLUSTER;
    let metadata = json!({"name": "orders-db"});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}).to_string()
}

/// `kubectl apply` of this spec is refused, and each part is in what it says.
async fn refused(world: &World, spec: &Value, parts: &[&str]) {
    let output = world.try_kubectl("apply -f -", &cluster(spec)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{spec} was accepted");
    for part in parts {
        assert!(said.contains(part), "{spec}: {part:?} is not in {said}");
    }
}

#[tokio::test]
async fn a_wrong_spec_is_refused_by_the_name_of_its_field() {
    let world = World::deployed("refused").await;
    let spec = |field: &str, value: Value| {
        let mut spec = json!({"replicas": 3, "version": "16", "storage": "20Gi"});
        spec[field] = value;
        spec
    };
    for (field, value, parts) in [
        ("replicas", json!(9), &["spec.replicas", "less than or equal to 5"][..]),
        ("replicas", json!(0), &["spec.replicas", "greater than or equal to 1"]),
        ("replicas", json!("3"), &["spec.replicas", "must be of type integer"]),
        ("version", json!("14"), &["spec.version", "\"15\", \"16\""]),
        ("version", json!(16), &["spec.version", "must be of type string"]),
        ("storage", json!(10), &["spec.storage", "must be of type string"]),
        ("storage", json!("10"), &["spec.storage", "^[0-9]+Gi$"]),
        ("storage", json!("10GB"), &["spec.storage", "^[0-9]+Gi$"]),
        ("image", json!(""), &["spec.image", "at least 1"]),
        ("replicaCount", json!(3), &["unknown field \"spec.replicaCount\""]),
    ] {
        refused(&world, &spec(field, value), parts).await;
    }
    for field in ["replicas", "version", "storage"] {
        let mut spec = spec("replicas", json!(3));
        spec.as_object_mut().unwrap().remove(field);
        refused(&world, &spec, &[&format!("spec.{field}"), "Required value"]).await;
    }
    assert_eq!(world.list(POSTGRES_CLUSTER).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_change_of_the_major_version_is_refused_with_what_to_do_instead() {
    let world = World::deployed("upgrade").await;
    let spec = |version: &str| json!({"replicas": 1, "version": version, "storage": "1Gi"});
    world.apply(&cluster(&spec("16"))).await;
    refused(&world, &spec("15"), &["spec.version", "pg_dump", "spec.image"]).await;
    world
        .apply(&cluster(&json!({"replicas": 1, "version": "16", "storage": "1Gi", "image": "postgres:16.4"})))
        .await;
}

#[tokio::test]
async fn a_name_that_its_objects_could_not_bear_is_refused() {
    let world = World::deployed("names").await;
    for name in ["9lives", "orders.db", &"a".repeat(53)] {
        let manifest = cluster(&json!({"replicas": 1, "version": "16", "storage": "1Gi"}));
        let manifest = manifest.replace("\"orders-db\"", &format!("\"{name}\""));
        let output = world.try_kubectl("apply -f -", &manifest).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("name"), "{name}: {said}");
    }
}
