//! The plugin, run natively.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;
use pod_replica::PodReplica;

fn cluster(size: usize) -> Cluster<PodReplica> {
    Cluster::new("shop", "web", json!({"size": size}))
}

/// Numbers of the pods in the status, whose count must agree.
fn numbers(cluster: &Cluster<PodReplica>) -> Vec<usize> {
    let status = cluster.primary()["status"].clone();
    let names = status["podNames"].as_array().unwrap();
    assert_eq!(status["replicas"], names.len());
    let number = |name: &Value| name.as_str().unwrap().strip_prefix("web-").unwrap().parse().unwrap();
    names.iter().map(number).collect()
}

/// The pod with its uid and this status, as a look-up or a subset shows it.
fn seen(cluster: &Cluster<PodReplica>, number: usize, ready: bool) -> Value {
    let mut pod = cluster.child(POD, &format!("web-{number}")).unwrap().clone();
    let state = if ready { "True" } else { "False" };
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": state}]});
    pod
}

fn scale(cluster: &mut Cluster<PodReplica>, size: usize) -> Vec<String> {
    cluster.edit(|spec| spec["size"] = json!(size));
    cluster.pass()
}

#[test]
fn pods_and_status_come_of_one_pass_and_then_nothing_changes() {
    let mut cluster = cluster(12);
    let changes = cluster.pass();
    assert_eq!(changes.len(), 13, "{changes:?}");
    assert_eq!(changes[11..], ["create Pod web-11", "status"]);
    assert_eq!(numbers(&cluster), (0..12).collect::<Vec<_>>(), "by number, and not by text");
    assert_eq!(cluster.pass(), [""; 0]);

    let pod = cluster.child(POD, "web-0").unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], "busybox");
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["command"], json!(["sleep", "3600"]));
    let selector = cluster.primary()["status"]["selector"].as_str().unwrap().to_owned();
    let (key, value) = selector.split_once('=').unwrap();
    assert_eq!(pod["metadata"]["labels"][key], value);
}

#[test]
fn the_lowest_free_numbers_are_taken() {
    let mut cluster = cluster(4);
    cluster.settle();
    for number in [0, 2] {
        cluster.remove_child(POD, &format!("web-{number}"));
    }
    assert_eq!(
        scale(&mut cluster, 5),
        ["create Pod web-0", "create Pod web-2", "create Pod web-4", "status"]
    );
    assert_eq!(numbers(&cluster), [0, 1, 2, 3, 4]);
}

#[test]
fn a_pod_that_is_being_deleted_keeps_its_number_until_it_is_gone() {
    let mut cluster = cluster(2);
    cluster.settle();
    cluster.child_mut(POD, "web-0")["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    assert_eq!(cluster.pass(), ["status"]);
    assert_eq!(numbers(&cluster), [1]);
    assert_eq!(scale(&mut cluster, 3), ["create Pod web-2", "status"], "others do not wait for it");
    cluster.remove_child(POD, "web-0");
    assert_eq!(cluster.pass(), ["create Pod web-0", "status"]);
}

#[test]
fn those_that_are_not_ready_go_first_and_then_the_highest_numbers() {
    let mut cluster = cluster(5);
    cluster.settle();
    let shown = (0..5).map(|number| seen(&cluster, number, number != 1)).collect();
    cluster.answer("conditions", shown);
    assert_eq!(scale(&mut cluster, 3), ["delete Pod web-1", "delete Pod web-4", "status"]);
    assert_eq!(numbers(&cluster), [0, 2, 3]);
    assert_eq!(scale(&mut cluster, 4), ["create Pod web-1", "status"]);
}

#[test]
fn nobody_is_asked_where_there_is_no_choice() {
    let mut cluster = cluster(2);
    cluster.settle();
    // No answer would be a pass without end.
    cluster.edit(|spec| spec["size"] = json!(0));
    let outcome = cluster.reconcile();
    assert!(
        !outcome.actions.as_slice().iter().any(|action| matches!(action, pilothouse_sdk::Action::LookUp(_)))
    );
    assert_eq!(cluster.apply(&outcome), ["delete Pod web-0", "delete Pod web-1", "status"]);
    assert_eq!(numbers(&cluster), [0; 0]);
}

#[test]
fn a_finished_pod_goes_and_comes_again_under_its_number() {
    let mut cluster = cluster(2);
    cluster.settle();
    let finished = cluster.child(POD, "web-0").unwrap().clone();
    cluster.answer("finished", vec![finished]);
    assert_eq!(cluster.pass(), ["delete Pod web-0", "status"]);
    assert_eq!(numbers(&cluster), [1]);
    let outcome = cluster.reconcile();
    assert_eq!(outcome.condition("Ready").unwrap().state, State::True);
    cluster.apply(&outcome);
    // The subset may be a moment behind: the new pod has another uid.
    cluster.child_mut(POD, "web-0")["metadata"]["uid"] = json!("another");
    assert_eq!(cluster.pass(), [""; 0]);
    assert_eq!(numbers(&cluster), [0, 1]);
}

#[test]
fn a_pod_that_was_refused_is_not_said_to_be_there() {
    let mut cluster = cluster(2);
    cluster.reject(1, POD, "web-1", "Forbidden", "exceeded quota");
    let outcome = cluster.reconcile();
    assert!(outcome.applied(POD, "web-1").is_some(), "it is tried again");
    assert_eq!(outcome.status().unwrap()["podNames"], json!(["web-0"]));
    let ready = outcome.condition("Ready").unwrap();
    assert_eq!((ready.state, ready.message.as_str()), (State::False, "1 of 2 pods are there"));
}

#[test]
fn pods_that_are_numbered_otherwise_are_left_alone() {
    let mut cluster = cluster(1);
    cluster.settle();
    for name in ["web-01", "web-+1", "web-x", "webs-1"] {
        let mut pod = POD.object(name);
        pod["metadata"]["uid"] = json!(name);
        cluster.insert_child(pod);
    }
    assert_eq!(cluster.pass(), [""; 0]);
}

#[test]
fn a_wrong_size_is_the_users_to_change() {
    let outcome = Cluster::<PodReplica>::new("shop", "web", json!({"size": -1})).reconcile();
    let Some(Failure::Invalid(text)) = outcome.failure else { panic!("{outcome:?}") };
    assert!(text.starts_with("spec.size: "), "{text}");
}
