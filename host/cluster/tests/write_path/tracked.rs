//! Children where no owner reference reaches: in another namespace than their primary, or cluster-scoped.

use pilothouse_harness::ControlPlane;
use pilothouse_model::action::RejectReason;
use pilothouse_model::names::{MANAGED_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL};
use serde_json::{Value, json};

use crate::world::{PLUGIN, World, apply, apply_with, config_map, delete, message, none, short};

/// A world in which ConfigMaps may be in a second namespace, and its name.
async fn with_neighbour() -> (World, String) {
    let mut world = World::new("tracked").await;
    let far = ControlPlane::shared().await.namespace("tracked-far").await.unwrap();
    world.declare("namespaces", &json!("any"));
    world.declare_of("ClusterRole", "namespaces", &json!("own"));
    world.grants = serde_json::from_value(json!([
        {"kind": "ConfigMap", "namespaces": [far]}, {"kind": "ClusterRole.rbac.authorization.k8s.io"},
        {"kind": "RoleBinding.rbac.authorization.k8s.io"}
    ]))
    .unwrap();
    (world, far)
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn role(name: &str, verb: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
}

fn tie(world: &World) -> (String, String) {
    (world.primary.meta().uid.to_string(), format!("ConfigMap/{}/primary", world.namespace))
}

#[tokio::test]
async fn cr_675_they_bear_a_label_and_no_owner_reference_and_are_quiet_after_a_restart() {
    let (mut world, far) = with_neighbour().await;
    let name = world.namespace.clone();
    let plan = || {
        vec![
            apply(&in_namespace(config_map("a", &json!({"k": "v"})), &far)),
            apply(&role(&name, "get")),
            apply(&config_map("a", &json!({"k": "v"}))),
        ]
    };
    assert_eq!(short(&world.pass(plan()).await), ["Written"; 3]);
    let (uid, owner) = tie(&world);
    for live in
        [world.get_in(&far, "ConfigMap", "a").await.unwrap(), world.get("ClusterRole", &name).await.unwrap()]
    {
        let metadata = &live["metadata"];
        assert_eq!(metadata.get("ownerReferences"), None, "{metadata}");
        assert_eq!(
            (&metadata["labels"][MANAGED_LABEL], &metadata["labels"][OWNER_UID_LABEL]),
            (&json!(PLUGIN), &json!(uid))
        );
        assert_eq!(metadata["annotations"][OWNER_ANNOTATION], *owner);
    }
    assert_eq!(world.children().await.len(), 3);
    world.restart();
    let before = world.spent();
    assert_eq!(short(&world.pass(plan()).await), ["NoOp"; 3]);
    assert_eq!(world.spent_since(&before), none());
    // Drift is drift wherever it is; so is a tie that somebody cut.
    world.edit("ClusterRole", &name, &json!({"rules": []})).await;
    world.edit("ClusterRole", &name, &json!({"metadata": {"labels": {OWNER_UID_LABEL: null}}})).await;
    assert_eq!(short(&world.pass(plan()).await), ["NoOp", "Written", "NoOp"]);
    let live = world.get("ClusterRole", &name).await.unwrap();
    assert_eq!(
        (&live["rules"][0]["verbs"], &live["metadata"]["labels"][OWNER_UID_LABEL]),
        (&json!(["get"]), &json!(uid))
    );

    assert_eq!(short(&world.pass(vec![delete("ClusterRole", &name)]).await), ["Deleted"]);
    assert!(world.get("ClusterRole", &name).await.is_none());
}

#[tokio::test]
async fn what_is_tied_to_another_is_left_alone_and_what_a_predecessor_left_is_taken() {
    let (world, far) = with_neighbour().await;
    let wanted = in_namespace(config_map("a", &json!({"k": "v"})), &far);
    let (uid, owner) = tie(&world);
    let tied = |owner: &str| {
        let mut object = wanted.clone();
        object["metadata"]["labels"] = json!({MANAGED_LABEL: PLUGIN, OWNER_UID_LABEL: "0000"});
        object["metadata"]["annotations"] = json!({OWNER_ANNOTATION: owner});
        object
    };
    let other = world.create_in(&far, &tied(&format!("ConfigMap/{}/other", world.namespace))).await;
    let report = world.pass(vec![apply(&wanted)]).await;
    let (reason, text) = message(&report);
    assert_eq!(reason, RejectReason::NotOwned);
    assert!(text.contains("is controlled by ConfigMap other"), "{text}");
    assert_eq!(world.get_in(&far, "ConfigMap", "a").await.unwrap(), other);
    world.delete_in(&far, "ConfigMap", "a").await;

    world.create_in(&far, &tied(&owner)).await;
    assert_eq!(
        short(&world.pass(vec![apply(&wanted)]).await),
        ["Conflict"],
        "its label is still the maker's"
    );
    world.delete_in(&far, "ConfigMap", "a").await;
    let mut mine = wanted.clone();
    mine["metadata"]["labels"] = json!({"x": "y"});
    assert_eq!(short(&world.pass(vec![apply(&mine)]).await), ["Written"]);
    let path = json!({"metadata": {"labels": {OWNER_UID_LABEL: "0000"}}});
    world.edit_in(&far, "ConfigMap", "a", &path).await;
    assert_eq!(short(&world.pass(vec![apply(&mine)]).await), ["Written"]);
    let live = world.get_in(&far, "ConfigMap", "a").await.unwrap();
    assert_eq!(live["metadata"]["labels"][OWNER_UID_LABEL], *uid);
}

/// Of kinds that are not changed in place, an object that lost its tie is tied again and left as it is.
#[tokio::test]
async fn a_child_that_is_never_touched_again_is_tied_once() {
    let (world, far) = with_neighbour().await;
    for namespace in [far.as_str(), world.namespace.as_str()] {
        let once = |text: &str| {
            let object = in_namespace(config_map("once", &json!({"k": text})), namespace);
            vec![apply_with(&object, &json!({"createOnly": true}))]
        };
        assert_eq!(short(&world.pass(once("one")).await), ["Written"]);
        let cut = json!({"metadata": {"ownerReferences": null, "labels": {OWNER_UID_LABEL: null}}});
        world.edit_in(namespace, "ConfigMap", "once", &cut).await;
        assert_eq!(short(&world.pass(once("two")).await), ["Written"]);
        let before = world.spent();
        assert_eq!(short(&world.pass(once("two")).await), ["NoOp"]);
        assert_eq!(world.spent_since(&before), none(), "it is in the snapshot again");
        assert_eq!(world.get_in(namespace, "ConfigMap", "once").await.unwrap()["data"]["k"], "one");
    }
}

/// `kubectl delete --cascade=orphan` takes the owner references off. A pass that has not heard yet that the primary goes
/// must not put one back: the garbage collector would take the child after all.
#[tokio::test]
async fn an_orphan_is_not_adopted_by_a_primary_that_goes() {
    let world = World::new("tracked").await;
    let wanted = || vec![apply(&config_map("a", &json!({"k": "v"})))];
    world.pass(wanted()).await;
    world.edit("ConfigMap", "a", &json!({"metadata": {"ownerReferences": null}})).await;
    let orphan = world.get("ConfigMap", "a").await.unwrap();
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.edit("ConfigMap", "primary", &hold).await;
    world.delete_of("ConfigMap", "primary").await;
    assert_eq!(short(&world.pass(wanted()).await), ["Gone"], "it is being deleted");
    world.edit("ConfigMap", "primary", &json!({"metadata": {"finalizers": null}})).await;
    world.create(&config_map("primary", &json!({}))).await;
    assert_eq!(short(&world.pass(wanted()).await), ["Gone"], "it is another one");
    assert_eq!(world.get("ConfigMap", "a").await.unwrap(), orphan);
}

/// An owner that does not control, as `kubectl` users write it, is no controller: ours is added beside it.
#[tokio::test]
async fn other_owners_stay_owners() {
    let world = World::new("tracked").await;
    let other = world.create(&config_map("other", &json!({}))).await;
    let once = || vec![apply_with(&config_map("a", &json!({})), &json!({"createOnly": true}))];
    world.pass(once()).await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]});
    world.edit("ConfigMap", "a", &json!({"metadata": {"ownerReferences": [theirs]}})).await;
    assert_eq!(short(&world.pass(once()).await), ["Written"]);
    let owners = &world.get("ConfigMap", "a").await.unwrap()["metadata"]["ownerReferences"];
    let uids: Vec<_> = owners.as_array().unwrap().iter().map(|owner| owner["uid"].clone()).collect();
    assert_eq!(uids, [other["metadata"]["uid"].clone(), json!(&*world.primary.meta().uid)]);
}
