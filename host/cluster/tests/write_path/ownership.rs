//! Whose an object is: nothing foreign is taken, nothing of ours is lost, and no write meant for one object reaches
//! another.

use std::collections::HashSet;
use std::sync::Arc;

use pilothouse_cluster::apply::Applier;
use pilothouse_cluster::write::{AlwaysOpen, Conflicts, Endpoint, Mode, Writer};
use pilothouse_cluster::{Cluster, ConnectOptions};
use pilothouse_harness::{Answer, Asked, ControlPlane, eventually};
use pilothouse_model::action::RejectReason;
use pilothouse_model::names::MANAGED_LABEL;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::world::{
    DEADLINE, PLUGIN, World, apply, apply_with, by_kind, config_map, delete, message, none, short,
};

fn wanted() -> Value {
    config_map("a", &json!({"k": "v"}))
}

#[tokio::test]
async fn an_object_of_that_name_that_is_not_ours_is_left_alone() {
    let world = World::new("owner").await;
    let other = world.create(&config_map("other", &json!({}))).await;
    let controlled = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"], "controller": true
    }]);
    let mut theirs = config_map("a", &json!({"k": "theirs"}));
    for (owners, part) in [(json!([]), "no controller"), (controlled, "controlled by ConfigMap other")] {
        theirs["metadata"]["ownerReferences"] = owners;
        let before = world.create(&theirs).await;
        for create_only in [false, true] {
            let action = apply_with(&wanted(), &json!({"createOnly": create_only}));
            let report = world.pass(vec![action, apply(&config_map("b", &json!({})))]).await;
            assert_eq!(short(&report)[0], "NotOwned");
            assert_ne!(short(&report)[1], "NotOwned");
            let (_, message) = message(&report);
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(world.get("ConfigMap", "a").await.unwrap(), before);
        world.delete("ConfigMap", "a").await;
    }
}

#[tokio::test]
async fn an_orphan_with_our_label_is_adopted_and_nothing_in_it_taken_from_others() {
    let world = World::new("owner").await;
    let mut orphan = config_map("a", &json!({"k": "old"}));
    orphan["metadata"]["labels"] = json!({MANAGED_LABEL: PLUGIN});
    let before = world.create(&orphan).await;
    for _ in 0..2 {
        let report = world.pass(vec![apply(&wanted())]).await;
        let (reason, text) = message(&report);
        assert_eq!(reason, RejectReason::Conflict);
        assert!(text.contains(".data.k") && text.contains("kubectl-create"), "{text}");
    }
    assert_eq!(world.get("ConfigMap", "a").await.unwrap(), before);
    world.edit("ConfigMap", "a", &json!({"data": {"k": null}})).await;
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
    let live = world.get("ConfigMap", "a").await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"][0]["uid"], *world.primary.meta().uid);
    assert_eq!(live["data"]["k"], "v");
    // Ours from now on.
    world.edit("ConfigMap", "a", &json!({"data": {"k": "drift"}})).await;
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
}

#[tokio::test]
async fn a_label_or_owner_reference_taken_off_is_put_back() {
    let world = World::new("owner").await;
    world.pass(vec![apply(&wanted())]).await;
    for edit in [
        json!({"metadata": {"labels": {MANAGED_LABEL: null}}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"metadata": {"ownerReferences": [], "annotations": {"x": "y"}}}),
    ] {
        world.edit("ConfigMap", "a", &edit).await;
        assert_eq!(world.children().await.len(), 0, "a watch does not show it any more");
        assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
        assert_eq!(world.children().await.len(), 1);
    }
    // Both: nothing tells any more that it is ours.
    world.edit("ConfigMap", "a", &json!({"metadata": {"labels": null, "ownerReferences": null}})).await;
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["NotOwned"]);
}

#[tokio::test]
async fn casskop_316_a_stale_snapshot_neither_creates_nor_deletes() {
    let world = World::new("owner").await;
    world.pass(vec![apply(&wanted())]).await;
    let stale = world.children().await;
    world.delete("ConfigMap", "a").await;

    // The name is free: an apply meant for the old object does not create one.
    let changed = config_map("a", &json!({"k": "changed"}));
    let report = world.pass_on(vec![apply(&changed)], &stale).await;
    assert_eq!(message(&report).0, RejectReason::Gone, "{report:?}");
    assert_eq!(world.get("ConfigMap", "a").await, None);

    // Another object bears it: neither an apply nor a delete reaches it.
    let other = world.create(&wanted()).await;
    let report = world.pass_on(vec![apply(&changed)], &stale).await;
    assert_eq!(message(&report).0, RejectReason::Gone, "{report:?}");
    assert_eq!(short(&world.pass_on(vec![delete("ConfigMap", "a")], &stale).await), ["Deleted"]);
    assert_eq!(world.get("ConfigMap", "a").await.unwrap(), other);
    let gone = world.responses.deleted.lock().unwrap().clone();
    assert_eq!(gone[0].uid.as_deref(), Some(&*stale[0].meta().uid));
}

#[tokio::test]
async fn kuberay_715_a_pass_on_an_empty_store_makes_no_second_child() {
    let world = World::new("owner").await;
    assert_eq!(short(&world.pass_on(vec![apply(&wanted())], &[]).await), ["Written"]);
    let first = world.get("ConfigMap", "a").await.unwrap();
    let writes = world.writer.counters().writes();
    assert_eq!(short(&world.pass_on(vec![apply(&wanted())], &[]).await), ["NoOp"]);
    assert_eq!(world.writer.counters().writes(), writes);
    assert_eq!(world.get("ConfigMap", "a").await.unwrap(), first);
    // The store learns of both, at once.
    assert_eq!(world.responses.written.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_create_only_child_is_posted_once_and_never_touched_again() {
    let mut world = World::new("owner").await;
    let once = |data: &str| apply_with(&config_map("a", &json!({"k": data})), &json!({"createOnly": true}));
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![once("v")]).await), ["Written"]);
    assert_eq!(world.spent_since(&before), [("create", 1)].into());
    world.edit("ConfigMap", "a", &json!({"data": {"k": "edited"}})).await;
    world.restart();
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![once("changed")]).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), none());
    // A store that lags behind costs a refused POST and a look.
    assert_eq!(short(&world.pass_on(vec![once("changed")], &[]).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), [("create", 1), ("get", 1)].into());
    assert_eq!(world.get("ConfigMap", "a").await.unwrap()["data"]["k"], "edited");
}

#[tokio::test]
async fn k8s_99003_fields_of_a_client_side_apply_vanish_when_left_out() {
    let mut world = World::new("owner").await;
    let mut before = config_map("a", &json!({"k": "v", "old": "v"}));
    before["metadata"]["labels"] = json!({MANAGED_LABEL: PLUGIN, "old": "label"});
    before["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    world.create_as("kubectl-client-side-apply", &before).await;
    world.edit("ConfigMap", "a", &json!({"data": {"theirs": "stays"}})).await;
    let spent = world.spent();
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
    assert_eq!(world.spent_since(&spent)["json-patch"], 1);
    let live = world.get("ConfigMap", "a").await.unwrap();
    assert_eq!(live["data"], json!({"k": "v", "theirs": "stays"}));
    assert_eq!(live["metadata"]["labels"], json!({MANAGED_LABEL: PLUGIN}));
    assert_eq!(live["metadata"]["annotations"], Value::Null, "the last applied configuration too");

    // A child that was create-only until now has the same history.
    let both = config_map("b", &json!({"k": "v", "old": "v"}));
    world.pass(vec![apply_with(&both, &json!({"createOnly": true}))]).await;
    world.restart();
    let now = config_map("b", &json!({"k": "v"}));
    assert_eq!(short(&world.pass(vec![apply(&wanted()), apply(&now)]).await), ["NoOp", "Written"]);
    assert_eq!(world.get("ConfigMap", "b").await.unwrap()["data"], json!({"k": "v"}));
    world.restart();
    let writes = world.writer.counters().writes();
    assert_eq!(short(&world.pass(vec![apply(&wanted()), apply(&now)]).await), ["NoOp", "NoOp"]);
    assert_eq!(world.writer.counters().writes(), writes);
}

#[tokio::test]
async fn redpanda_1043_creations_in_a_terminating_namespace_are_recognised_and_not_repeated() {
    let world = World::new("owner").await;
    let mut held = config_map("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(&held).await;
    world.pass(vec![apply(&wanted())]).await;
    let path = format!("/api/v1/namespaces/{}", world.namespace);
    world.request("DELETE", &path, &Value::Null).await.unwrap();
    eventually(DEADLINE, "the child to go with its namespace", || async {
        world.get("ConfigMap", "a").await.is_none()
    })
    .await;

    let actions = (0..5).map(|at| apply(&config_map(&format!("n{at}"), &json!({})))).collect();
    let before = world.spent();
    let report = world.pass(actions).await;
    assert_eq!(short(&report), ["Terminating"; 5]);
    assert!(report.rejected().all(|rejected| rejected.reason.is_transient()));
    assert_eq!(world.spent_since(&before)["apply"], 1, "the first refusal answers for the others");
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Terminating"]);
    assert_eq!(world.spent_since(&before), [("get", 1)].into(), "and for all passes that follow");
    world.applier.forget(&world.primary.meta().uid);
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Terminating"]);
    assert_eq!(world.spent_since(&before)["apply"], 1, "it is not remembered longer than the primary lives");
    world.edit("ConfigMap", "held", &json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn a_child_that_is_being_deleted_is_left_alone_but_for_our_own_finalizer() {
    let world = World::new("owner").await;
    let mut held = wanted();
    held["metadata"]["finalizers"] = json!(["example.com/ours"]);
    world.pass(vec![apply(&held)]).await;
    assert_eq!(short(&world.pass(vec![delete("ConfigMap", "a")]).await), ["Deleted"]);
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![delete("ConfigMap", "a")]).await), ["Deleted"]);
    assert_eq!(world.spent_since(&before), none(), "deleted once");
    held["data"] = json!({"k": "changed"});
    assert_eq!(short(&world.pass(vec![apply(&held)]).await), ["Terminating"]);
    assert_eq!(world.spent_since(&before), none());
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
    assert_eq!(world.get("ConfigMap", "a").await, None, "it was the last finalizer");
}

#[tokio::test]
async fn writes_of_one_plan_see_each_other() {
    let world = World::new("owner").await;
    world.pass(vec![apply(&wanted())]).await;
    let first = world.get("ConfigMap", "a").await.unwrap();
    let report = world.pass(vec![delete("ConfigMap", "a"), apply(&wanted())]).await;
    assert_eq!(short(&report), ["Deleted", "Written"]);
    let second = world.get("ConfigMap", "a").await.unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(world.applier.remembered_children(), 1, "nothing is remembered of what is gone");
    let uid: Arc<str> = second["metadata"]["uid"].as_str().unwrap().into();
    world.applier.retain(&HashSet::from([Arc::clone(&uid)]));
    assert_eq!(world.applier.remembered_children(), 1);
    world.applier.forget(&uid);
    assert_eq!(world.applier.remembered_children(), 0);
}

#[tokio::test]
async fn a_name_that_another_took_is_not_adopted_by_a_plan_that_deleted_first() {
    let world = World::new("owner").await;
    world.pass(vec![apply(&wanted())]).await;
    let stale = world.children().await;
    world.delete("ConfigMap", "a").await;
    let other = world.create(&config_map("a", &json!({"k": "theirs"}))).await;
    let report = world.pass_on(vec![delete("ConfigMap", "a"), apply(&wanted())], &stale).await;
    assert_eq!(short(&report), ["Deleted", "NotOwned"]);
    assert_eq!(world.get("ConfigMap", "a").await.unwrap(), other);
}

/// A plugin under another name is another plugin. What its predecessor applied to the same primary's children must not
/// hold on to fields that nobody wants any more.
#[tokio::test]
async fn children_of_a_plugin_that_has_been_renamed_are_taken_over() {
    let world = World::new("owner").await;
    let mut theirs = config_map("a", &json!({"k": "v", "dropped": "v"}));
    theirs["metadata"]["namespace"] = json!(world.namespace);
    theirs["metadata"]["labels"] = json!({MANAGED_LABEL: "former"});
    theirs["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "primary", "uid": &*world.primary.meta().uid,
        "controller": true, "blockOwnerDeletion": true
    }]);
    let object = Object::from_value(&theirs).unwrap();
    let resource = by_kind("ConfigMap");
    let at = Endpoint::of_object(&resource, &object);
    let former = world.writer.with_manager("pilothouse-former");
    former.apply(&at, &theirs, Conflicts::Report, Mode::Store).await.unwrap();
    assert_eq!(short(&world.pass(vec![apply(&wanted())]).await), ["Written"]);
    let live = world.get("ConfigMap", "a").await.unwrap();
    assert_eq!(
        (&live["data"], &live["metadata"]["labels"]),
        (&json!({"k": "v"}), &json!({MANAGED_LABEL: PLUGIN}))
    );
}

/// The look before the first apply shows nothing, and then something is there.
#[tokio::test]
async fn what_somebody_creates_between_look_and_apply_is_left_alone() {
    let world = World::new("owner").await;
    let server = ControlPlane::shared().await.fault_server().await.unwrap();
    let kubeconfig = Some(server.kubeconfig().to_owned());
    let cluster =
        Cluster::connect(&ConnectOptions { kubeconfig, ..ConnectOptions::default() }).await.unwrap();
    let writer = Writer::new(cluster.writer().clone(), "test", Arc::new(AlwaysOpen));
    let applier = Applier::new(&writer, PLUGIN.parse().unwrap());
    let before = world.create(&config_map("a", &json!({"other": "theirs"}))).await;
    let missing = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "configmaps \"a\" not found", "details": {"name": "a", "kind": "configmaps"}
    });
    let is_look = |asked: &Asked| asked.method == "GET" && asked.uri.contains("/configmaps/a");
    server.answer(1, Answer::text(404, &missing.to_string()), is_look);
    for reason in ["Unavailable", "NotOwned"] {
        assert_eq!(short(&world.pass_with(&applier, vec![apply(&wanted())], &[]).await), [reason]);
        assert_eq!(world.get("ConfigMap", "a").await.unwrap(), before);
    }
}
