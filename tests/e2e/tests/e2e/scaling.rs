//! A change of `spec.replicas` is one write of one field.

use pilothouse_harness::{AuditEvent, eventually};
use serde_json::{Value, json};

use crate::support::{DEADLINE, POSTGRES_CLUSTER, STATEFUL_SET, World};

const CLUSTER: &str = "orders-db";

/// The object without what the API server and the StatefulSet controller write by themselves.
fn written_by_us(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "generation", "managedFields"] {
        metadata.remove(field);
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Writes of children, dry runs included: all but those of the primary and of Events.
fn of_children(writes: &[AuditEvent]) -> Vec<(&str, &str, &str)> {
    let children =
        writes.iter().filter(|write| !matches!(write.resource.as_str(), "postgresclusters" | "events"));
    children.map(|write| (write.verb.as_str(), write.resource.as_str(), write.subresource.as_str())).collect()
}

#[tokio::test]
async fn each_edit_of_replicas_is_one_write_of_one_field() {
    let world = World::deployed("scaling").await;
    let _host = world.host().await;
    world.cluster(CLUSTER, 3).await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;

    for replicas in [5, 2] {
        let mark = world.mark().await;
        let mut before = written_by_us(world.get(STATEFUL_SET, CLUSTER).await.unwrap());
        world.edit(POSTGRES_CLUSTER, CLUSTER, &json!({"spec": {"replicas": replicas}})).await;
        // All that follows from the edit: the StatefulSet controller's work, and the status that tells of it.
        eventually(DEADLINE, &format!("{replicas} replicas to be ready"), || async {
            let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
            anyhow::ensure!(cluster["status"]["readyReplicas"] == replicas, "{}", cluster["status"]);
            Ok(true)
        })
        .await;

        let after = written_by_us(world.get(STATEFUL_SET, CLUSTER).await.unwrap());
        before["spec"]["replicas"] = json!(replicas);
        assert_eq!(after, before, "more than spec.replicas has changed");

        let writes = world.writes_since(mark).await;
        assert_eq!(of_children(&writes), [("patch", "statefulsets", "")], "to {replicas} replicas");
        let of_primary = writes.iter().filter(|write| write.resource == "postgresclusters");
        for write in of_primary {
            assert_eq!((write.verb.as_str(), write.subresource.as_str()), ("patch", "status"), "{write:?}");
        }
        let statuses = writes.iter().filter(|write| write.subresource == "status").count();
        eprintln!("to {replicas} replicas: 1 patch of the StatefulSet, {statuses} of the status");
    }
}
