//! The sample cluster, and the part of the StatefulSet controller that its tests play.

use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;
use postgres_cluster::PostgresCluster;

/// `fixtures/orders-db.yaml` in a cluster that has nothing else.
pub(crate) fn orders_db() -> Cluster<PostgresCluster> {
    let object: Value =
        serde_saphyr::from_str(include_str!("../../fixtures/orders-db.yaml")).expect("the sample is YAML");
    Cluster::from_object(object)
}

/// Plays the StatefulSet controller: so many instances exist and are ready.
pub(crate) fn ready(cluster: &mut Cluster<PostgresCluster>, count: i32) {
    cluster.child_mut(STATEFUL_SET, "orders-db")["status"] =
        json!({"replicas": count, "readyReplicas": count, "observedGeneration": 1});
}
