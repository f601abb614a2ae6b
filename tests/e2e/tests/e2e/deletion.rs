//! From `kubectl delete` to nothing: the finalizer, then garbage collection.

use pilothouse_harness::eventually;
use serde_json::{Value, json};

use crate::lax::written_without_rules;
use crate::stamped::reconciled;
use crate::support::{
    DEADLINE, POD_DISRUPTION_BUDGET, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, World,
};

const CLUSTER: &str = "orders-db";
const FINALIZER: &str = "db.example.com/cleanup";
const KINDS: [crate::support::Kind; 4] = [STATEFUL_SET, SERVICE, SECRET, POD_DISRUPTION_BUDGET];

async fn nothing_is_left(world: &World) {
    world.gone(POSTGRES_CLUSTER, CLUSTER).await;
    for kind in KINDS {
        eventually(DEADLINE, &format!("every {} to be gone", kind.1), || async {
            let left = world.list(kind).await;
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(true)
        })
        .await;
    }
}

#[tokio::test]
async fn deleting_a_cluster_runs_its_finalizer_and_leaves_nothing() {
    let world = World::deployed("delete").await;
    let _host = world.host().await;
    world.cluster(CLUSTER, 3).await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["metadata"]["finalizers"], json!([FINALIZER]));
    let mark = world.mark().await;
    world.kubectl("delete pgc orders-db --timeout=120s").await;
    nothing_is_left(&world).await;

    let writes = world.writes_since(mark).await;
    let of_primary = writes.iter().filter(|write| write.resource == "postgresclusters");
    let of_primary: Vec<_> =
        of_primary.map(|write| (write.verb.as_str(), write.subresource.as_str())).collect();
    assert_eq!(of_primary, [("patch", "")], "one patch, which removes the finalizer");
}

/// Its spec went wrong while its CRD had no rules, as one that is older than a rule. Nobody can read it and its finalizer
/// is there: it must go all the same, with what was made for it.
#[tokio::test]
async fn a_cluster_that_cannot_be_read_any_more_can_be_deleted() {
    // While a CRD changes, the API server has no answer about its objects.
    let world = World::deployed_alone("delete-unreadable").await;
    let _host = world.host().await;
    world.cluster(CLUSTER, 1).await;
    let mut cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    cluster["spec"].as_object_mut().unwrap().remove("version").expect("it is required");
    cluster["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    written_without_rules(&world, "postgres-cluster", "replace -f -", &cluster.to_string()).await;
    let told = reconciled(&world, POSTGRES_CLUSTER, CLUSTER, "InvalidResource").await;
    assert!(told["message"].as_str().unwrap().starts_with("spec: missing field `version`"), "{told}");

    world.kubectl("delete pgc orders-db --timeout=120s").await;
    nothing_is_left(&world).await;
}

/// CR#243
#[tokio::test]
async fn a_deletion_while_the_host_is_down_is_finished_after_its_start() {
    let world = World::deployed("delete-down").await;
    let host = world.host().await;
    world.cluster(CLUSTER, 1).await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    let ended = host.terminate().await.unwrap();
    assert_eq!(ended, "exit status: 0");

    let mark = world.mark().await;
    world.delete(POSTGRES_CLUSTER, CLUSTER).await;
    let waiting = world.get(POSTGRES_CLUSTER, CLUSTER).await.expect("the finalizer holds it");
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    assert_eq!(waiting["metadata"]["finalizers"], json!([FINALIZER]));
    assert!(world.get(STATEFUL_SET, CLUSTER).await.is_some(), "children go after their owner, not before");

    host.restart().await.unwrap();
    nothing_is_left(&world).await;
    let others: Vec<_> = world.events_since(mark).await;
    let patches = others.iter().filter(|event| event.resource == "postgresclusters" && event.verb == "patch");
    let users: Vec<_> = patches.map(|event| event.user.as_str()).collect();
    assert_eq!(users, [world.user.as_str()], "only the host takes its finalizer off");
}

#[tokio::test]
async fn a_finalizer_of_somebody_else_is_waited_for_and_kept() {
    const OTHER: &str = "example.com/audit";
    let world = World::deployed("delete-other").await;
    let _host = world.host().await;
    world.cluster(CLUSTER, 1).await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    world.edit(POSTGRES_CLUSTER, CLUSTER, &json!({"metadata": {"finalizers": [OTHER, FINALIZER]}})).await;
    world.delete(POSTGRES_CLUSTER, CLUSTER).await;
    eventually(DEADLINE, "the host's finalizer to go", || async {
        let cluster = world.get(POSTGRES_CLUSTER, CLUSTER).await.expect("the other finalizer holds it");
        anyhow::ensure!(cluster["metadata"]["finalizers"] == json!([OTHER]), "{}", cluster["metadata"]);
        Ok(true)
    })
    .await;
    world.edit(POSTGRES_CLUSTER, CLUSTER, &json!({"metadata": {"finalizers": Value::Null}})).await;
    nothing_is_left(&world).await;
}
