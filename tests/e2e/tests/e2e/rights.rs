//! A right that is missing is named, hurts nothing else, and may be granted at any time.

use pilothouse_harness::{Host, eventually};
use serde_json::json;

use crate::support::{DEADLINE, GREETING, Kind, POSTGRES_CLUSTER, World, plugin};

#[tokio::test]
async fn a_missing_right_is_named_and_heals_when_it_is_granted() {
    let world = World::granted("rights", &[plugin("postgres-cluster"), plugin("config-map")]).await;
    let role = format!("role {}", world.namespace);
    let rules = world.kubectl(&format!("get {role} -o json")).await;
    let rules: serde_json::Value = serde_json::from_str(&rules).unwrap();
    let budgets = |rule: &&serde_json::Value| rule["apiGroups"] == json!(["policy"]);
    let fewer: Vec<_> = rules["rules"].as_array().unwrap().iter().filter(|rule| !budgets(rule)).collect();
    assert_eq!(fewer.len() + 1, rules["rules"].as_array().unwrap().len(), "{rules}");
    let patch = |rules: serde_json::Value| {
        let (world, namespace) = (&world, world.namespace.clone());
        async move {
            const ROLE: Kind = Kind("rbac.authorization.k8s.io/v1", "Role", "roles");
            world.edit(ROLE, &namespace, &json!({"rules": rules})).await;
        }
    };
    patch(json!(fewer)).await;

    let host = Host::spawn(&world.options()).unwrap();
    let unready = eventually(DEADLINE, "/readyz to name what is forbidden, and no other plugin", || async {
        let (status, body) = host.get("/readyz").await?;
        let said = body.contains("PodDisruptionBudget")
            && body.contains("forbidden")
            && !body.contains("config-map");
        anyhow::ensure!(status == 503 && said, "{status}: {body}");
        Ok(Some(body))
    })
    .await;
    eprintln!("/readyz: {unready}");
    assert!(unready.contains("plugin postgres-cluster"), "{unready}");

    // The other plugin works meanwhile.
    let Kind(api_version, kind, _) = GREETING;
    let spec = json!({"text": "Good morning"});
    let greeting =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "hello"}, "spec": spec});
    world.create(GREETING, &greeting).await;
    world.ready(GREETING, "hello").await;
    // This one does not begin what it could not finish.
    let cluster = world.cluster("orders-db", 1).await;
    assert_eq!(cluster["status"], serde_json::Value::Null);

    patch(rules["rules"].clone()).await;
    host.ready().await.unwrap();
    world.ready(POSTGRES_CLUSTER, "orders-db").await;
}
