//! opentelemetry-operator#1491, #1492 and clickhouse-operator#133: a changed field that may not change is refused or
//! the object is made anew, by policy, once, with what it manages alive where that was asked for.

use std::collections::BTreeMap;

use pilothouse_cluster::apply::WriteResult;
use pilothouse_harness::eventually;
use pilothouse_model::action::RejectReason;
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, apply_with, message, pod_template, short};

fn statefulset(service: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": service,
            "selector": {"matchLabels": {"app": "db"}}, "template": pod_template("db"),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            }]
        }
    })
}

async fn list(world: &World, plural: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{}/{plural}?labelSelector=app%3Ddb", world.namespace);
    let list = world.request("GET", &path, &Value::Null).await.unwrap();
    list["items"].as_array().unwrap().clone()
}

/// UIDs of pods and claims by name.
async fn alive(world: &World) -> BTreeMap<String, String> {
    let mut all = list(world, "pods").await;
    all.extend(list(world, "persistentvolumeclaims").await);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.iter().map(|o| (text(&o["metadata"]["name"]), text(&o["metadata"]["uid"]))).collect()
}

async fn grown(world: &World) -> BTreeMap<String, String> {
    let what = "two pods with their claims";
    eventually(DEADLINE, what, || async { Some(alive(world).await).filter(|alive| alive.len() == 4) }).await
}

/// Passes until the change is in, as the queue would: each event of the child brings another one.
async fn carried_out(world: &World, policy: &str) {
    eventually(DEADLINE, "the object to be made anew", || async {
        let report = world.pass(vec![apply_with(&statefulset("new"), &json!({"onImmutable": policy}))]).await;
        match &report.entries[0].result {
            WriteResult::Written(object) => object.field("spec")["serviceName"] == "new",
            WriteResult::Rejected(rejected) => {
                assert_eq!(rejected.reason, RejectReason::Terminating, "{}", rejected.message);
                false
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn refused_it_is_reported_and_the_object_stays_as_it_is() {
    let mut world = World::new("immutable").await;
    world.pass(vec![apply_with(&statefulset("old"), &json!({}))]).await;
    let before = world.get("StatefulSet", "db").await.unwrap();
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        let report = world.pass(vec![apply_with(&statefulset("new"), &json!({}))]).await;
        let (reason, message) = message(&report);
        assert_eq!(reason, RejectReason::Immutable, "{message}");
        assert!(!reason.is_transient() && message.contains("spec"), "{message}");
    }
    let after = world.get("StatefulSet", "db").await.unwrap();
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test]
async fn recreated_once_with_pods_and_claims_alive() {
    let mut world = World::new("immutable").await;
    world.pass(vec![apply_with(&statefulset("old"), &json!({}))]).await;
    let before = grown(&world).await;
    let old = world.get("StatefulSet", "db").await.unwrap();
    // A crash between deletion and creation: the next pass is another process's.
    let first =
        world.pass(vec![apply_with(&statefulset("new"), &json!({"onImmutable": "recreate-orphan"}))]).await;
    assert!(["Terminating", "Written"].contains(&short(&first)[0]), "{first:?}");
    world.restart();
    if short(&first) != ["Written"] {
        carried_out(&world, "recreate-orphan").await;
    }
    let new = world.get("StatefulSet", "db").await.unwrap();
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    assert_eq!(world.spent()["delete"], 1, "exactly once");
    eventually(DEADLINE, "the pods to be adopted", || async {
        let pods = list(&world, "pods").await;
        pods.iter().all(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"])
    })
    .await;
    assert_eq!(alive(&world).await, before, "not one of them was replaced");
    let writes = world.writer.counters().writes();
    let again =
        world.pass(vec![apply_with(&statefulset("new"), &json!({"onImmutable": "recreate-orphan"}))]).await;
    assert_eq!((short(&again), world.writer.counters().writes()), (vec!["NoOp"], writes));
}

#[tokio::test]
async fn recreated_with_its_pods_when_that_was_asked_for() {
    let world = World::new("immutable").await;
    world.pass(vec![apply_with(&statefulset("old"), &json!({}))]).await;
    let before = grown(&world).await;
    carried_out(&world, "recreate").await;
    assert_eq!(world.spent()["delete"], 1, "exactly once");
    eventually(DEADLINE, "new pods on the old claims", || async {
        let now = alive(&world).await;
        now.len() == 4
            && now.iter().all(|(name, uid)| name.starts_with("data-") == (before.get(name) == Some(uid)))
    })
    .await;
}

#[tokio::test]
async fn what_could_not_be_created_again_is_not_deleted() {
    let world = World::new("immutable").await;
    let sound = json!({"replicas": 0});
    let mut first = statefulset("old");
    first["spec"]["replicas"] = sound["replicas"].clone();
    world.pass(vec![apply_with(&first, &json!({}))]).await;
    // An update of other fields is refused before the rest is validated; a creation is not.
    let mut wrong = first.clone();
    wrong["spec"]["serviceName"] = json!("new");
    wrong["spec"]["volumeClaimTemplates"][0]["spec"]["resources"] = json!({});
    let report = world.pass(vec![apply_with(&wrong, &json!({"onImmutable": "recreate"}))]).await;
    let (reason, message) = message(&report);
    assert!(!reason.is_transient(), "{message}");
    assert!(message.contains("could not be created again") && message.contains("storage"), "{message}");
    assert_eq!(world.spent()["delete"], 0, "{message}");
    assert_eq!(world.get("StatefulSet", "db").await.unwrap()["spec"]["serviceName"], "old");
}

#[tokio::test]
async fn other_kinds_say_it_in_their_own_words() {
    let world = World::new("immutable").await;
    let service = |ip: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}
        })
    };
    let deployment = |app: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": app}}, "template": pod_template(app)}
        })
    };
    let secret = |kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": kind, "stringData": {"a": "b"}
        })
    };
    let claim = |mode: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        })
    };
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        })
    };
    let frozen = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "immutable": true, "data": {"k": text}
        })
    };
    let pairs = [
        (service(""), service("None")),
        (deployment("a"), deployment("b")),
        (secret("Opaque"), secret("example.com/other")),
        (claim("ReadWriteOnce"), claim("ReadOnlyMany")),
        (binding("a"), binding("b")),
        (frozen("a"), frozen("b")),
    ];
    for (old, new) in &pairs {
        let kind = old["kind"].as_str().unwrap();
        assert_eq!(short(&world.pass(vec![apply_with(old, &json!({}))]).await), ["Written"], "{kind}");
        let report = world.pass(vec![apply_with(new, &json!({}))]).await;
        assert_eq!(short(&report), ["Immutable"], "{kind}: {report:?}");
        assert_eq!(world.spent()["delete"], 0);
    }
    // These have nothing below them: gone at once, and back in the same pass.
    for (_, new) in pairs
        .iter()
        .filter(|(old, _)| ["Secret", "RoleBinding", "ConfigMap"].contains(&old["kind"].as_str().unwrap()))
    {
        let kind = new["kind"].as_str().unwrap();
        let report = world.pass(vec![apply_with(new, &json!({"onImmutable": "recreate"}))]).await;
        assert_eq!(short(&report), ["Written"], "{kind}: {report:?}");
    }
}
