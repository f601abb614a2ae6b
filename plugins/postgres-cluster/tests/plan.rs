//! Plans for observed states: whole plans as goldens in `fixtures/`, and what must hold in words.

mod cluster;

use cluster::{orders_db, ready};
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::{Cluster, Outcome};
use postgres_cluster::PostgresCluster;

/// Compares a whole plan with `fixtures/NAME.snap`.
fn golden(name: &str, outcome: &Outcome) {
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../fixtures");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings
    };
    let plan = pilothouse_sdk::serde_json::to_string_pretty(&outcome.to_json()).expect("JSON");
    settings.bind(|| insta::assert_snapshot!(name, plan));
}

#[test]
fn new_cluster() {
    golden("new-cluster", &orders_db().reconcile());
}

#[test]
fn running_cluster() {
    let mut cluster = orders_db();
    cluster.settle();
    ready(&mut cluster, 3);
    golden("running-cluster", &cluster.settle());
}

#[test]
fn everything_that_can_be_said() {
    let mut cluster = orders_db();
    cluster.edit(|spec| {
        *spec = json!({
            "replicas": 1, "version": "15", "storage": "2048Gi", "image": "registry.example.com/postgres:15.9",
            "storageClass": "fast",
            "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "2000m", "memory": "2Gi"}},
        });
    });
    golden("everything-said", &cluster.reconcile());
}

#[test]
fn deletion_releases_and_touches_nothing() {
    let mut cluster = orders_db();
    cluster.settle();
    cluster.delete();
    assert_eq!(cluster.pass(), ["release"]);
    assert!(cluster.is_gone());
}

#[test]
fn replicas_are_one_write_of_one_field() {
    let mut cluster = orders_db();
    cluster.settle();
    ready(&mut cluster, 3);
    cluster.settle();
    for replicas in [5, 2] {
        cluster.edit(|spec| spec["replicas"] = json!(replicas));
        assert_eq!(cluster.pass(), ["StatefulSet orders-db: spec.replicas", "status"]);
        ready(&mut cluster, replicas);
        assert_eq!(cluster.pass(), ["status"]);
        assert!(cluster.pass().is_empty());
    }
}

#[test]
fn what_was_said_of_replication_goes_with_the_last_standby() {
    let mut cluster = orders_db();
    cluster.settle();
    let replicating =
        |cluster: &Cluster<PostgresCluster>| cluster.primary().condition("Replicating").is_some();
    assert!(replicating(&cluster));
    cluster.edit(|spec| spec["replicas"] = json!(1));
    cluster.settle();
    assert!(!replicating(&cluster));
    assert!(cluster.pass().is_empty());
}

#[test]
fn ready_follows_the_instances() {
    let mut cluster = orders_db();
    let mut seen = Vec::new();
    let mut look = |cluster: &mut Cluster<PostgresCluster>| {
        let ready = cluster.settle().condition("Ready").unwrap();
        seen.push(format!("{} {}: {}", ready.state.as_str(), ready.reason, ready.message));
    };
    look(&mut cluster);
    for count in [1, 3, 2] {
        ready(&mut cluster, count);
        look(&mut cluster);
    }
    assert_eq!(
        seen,
        [
            "False Provisioning: 0/3 replicas ready",
            "False Provisioning: 1/3 replicas ready",
            "True AllReplicasReady: 3/3 replicas ready",
            "False Provisioning: 2/3 replicas ready",
        ]
    );
}

#[test]
fn each_transition_is_one_event() {
    let mut cluster = orders_db();
    cluster.settle();
    ready(&mut cluster, 3);
    cluster.settle();
    cluster.edit(|spec| spec["storage"] = json!("40Gi"));
    cluster.settle();
    cluster.edit(|spec| spec["storage"] = json!("20Gi"));
    cluster.settle();
    let events: Vec<_> =
        cluster.events().iter().map(|event| (event.warning, event.reason.as_str())).collect();
    assert_eq!(
        events,
        [
            (false, "Provisioning"),
            (true, "NoReplication"),
            (false, "AllReplicasReady"),
            (true, "GrowNotSupported"),
            (false, "ResizeSettled"),
        ]
    );
}

#[test]
fn one_instance_says_nothing_of_replication() {
    let mut cluster = orders_db();
    cluster.edit(|spec| spec["replicas"] = json!(1));
    assert_eq!(cluster.settle().condition("Replicating"), None);
    cluster.edit(|spec| spec["replicas"] = json!(2));
    assert_eq!(cluster.settle().condition("Replicating").unwrap().state, State::False);
}

#[test]
fn volumes_stay_as_they_are_and_the_status_says_so() {
    let cases = [
        (json!({"storage": "40Gi"}), "GrowNotSupported"),
        (json!({"storage": "10Gi"}), "ShrinkRefused"),
        (json!({"storageClass": "fast"}), "StorageClassFixed"),
    ];
    for (change, reason) in cases {
        let mut cluster = orders_db();
        cluster.settle();
        let before = cluster.child(STATEFUL_SET, "orders-db").unwrap().clone();
        cluster.edit(|spec| spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        assert_eq!(cluster.pass(), ["status"], "{change}");
        assert_eq!(cluster.child(STATEFUL_SET, "orders-db"), Some(&before), "{change}");
        let condition = cluster.settle().condition("ResizePending").unwrap();
        assert_eq!((condition.state, condition.reason.as_str()), (State::True, reason), "{change}");
    }
}

#[test]
fn a_larger_unit_for_the_same_size_is_no_change() {
    let mut cluster = orders_db();
    cluster.edit(|spec| spec["storage"] = json!("1024Gi"));
    cluster.settle();
    let claim = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage";
    assert_eq!(cluster.child(STATEFUL_SET, "orders-db").unwrap().pointer(claim), Some(&json!("1Ti")));
    assert_eq!(cluster.settle().condition("ResizePending").unwrap().state, State::False);
}

#[test]
fn what_the_api_server_fills_in_is_left_alone() {
    let mut cluster = orders_db();
    cluster.settle();
    let set = cluster.child_mut(STATEFUL_SET, "orders-db");
    set["spec"]["revisionHistoryLimit"] = json!(10);
    set["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
    set["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    set["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["successThreshold"] = json!(1);
    set["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = json!("Filesystem");
    assert!(cluster.pass().is_empty());
}

#[test]
fn a_deleted_or_edited_child_comes_back() {
    let mut cluster = orders_db();
    cluster.settle();
    cluster.remove_child(SERVICE, "orders-db-rw");
    cluster.child_mut(POD_DISRUPTION_BUDGET, "orders-db")["spec"]["maxUnavailable"] = json!(2);
    assert_eq!(
        cluster.pass(),
        ["create Service orders-db-rw", "PodDisruptionBudget orders-db: spec.maxUnavailable"]
    );
}

#[test]
fn a_name_that_children_could_not_bear_is_refused_before_anything_is_made() {
    let spec = json!({"replicas": 1, "version": "16", "storage": "1Gi"});
    let mut cluster = Cluster::<PostgresCluster>::new("shop", &"a".repeat(53), spec);
    let outcome = cluster.reconcile();
    assert!(matches!(&outcome.failure, Some(Failure::Invalid(text)) if text.starts_with("metadata.name: ")));
    assert_eq!(outcome.condition("Ready").unwrap().reason, "InvalidSpec");
    assert_eq!(cluster.apply(&outcome), ["status"]);
}

#[test]
fn the_crd_says_what_a_user_may_write() {
    let crd = postgres_cluster::manifest().to_json()["crds"][0].clone();
    assert_eq!(crd["metadata"]["name"], "postgresclusters.db.example.com");
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["pgc"]));
    let version = &crd["spec"]["versions"][0];
    let columns: Vec<_> =
        version["additionalPrinterColumns"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(columns, ["Replicas", "Ready", "Primary", "Version", "Age"]);

    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["required"], json!(["replicas", "version", "storage"]));
    let replicas = &spec["properties"]["replicas"];
    assert_eq!((&replicas["minimum"], &replicas["maximum"]), (&json!(1), &json!(5)));
    assert_eq!(spec["properties"]["storage"]["pattern"], "^[0-9]+Gi$");
    assert_eq!(spec["properties"]["version"]["enum"], json!(["15", "16"]));
    let rule = &spec["properties"]["version"]["x-kubernetes-validations"][0];
    assert_eq!(rule["rule"], "self == oldSelf");
    assert!(rule["message"].as_str().unwrap().contains("change spec.image"));
}
