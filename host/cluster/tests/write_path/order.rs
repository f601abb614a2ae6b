//! Writes go out in the plan's order; one that fails stops those alone that say that they come after it.

use pilothouse_model::action::RejectReason;
use serde_json::{Value, json};

use crate::world::{World, apply, apply_with, config_map, message, none, short};

fn map(name: &str, after: &Value) -> pilothouse_model::action::Action {
    apply_with(&config_map(name, &json!({"k": "v"})), &json!({"after": after}))
}

#[tokio::test]
async fn what_comes_after_a_failure_is_not_tried_and_the_rest_is() {
    let world = World::new("order").await;
    world.create(&config_map("theirs", &json!({}))).await;
    let actions = || {
        vec![
            map("a", &json!([])),
            map("theirs", &json!([])),
            map("b", &json!([0, 1])),
            map("c", &json!([2])),
            map("d", &json!([0])),
        ]
    };
    let report = world.pass(actions()).await;
    assert_eq!(short(&report), ["Written", "NotOwned", "NotOwned", "NotOwned", "Written"]);
    let why: Vec<_> = report.rejected().map(|rejected| rejected.message.as_str()).collect();
    assert!(why[1].starts_with("not tried, as action 1 failed before it: "), "{why:?}");
    assert!(why[2].starts_with("not tried, as action 2 failed before it: "), "{why:?}");
    assert!(world.get("ConfigMap", "b").await.is_none() && world.get("ConfigMap", "c").await.is_none());

    world.delete("ConfigMap", "theirs").await;
    assert_eq!(short(&world.pass(actions()).await), ["NoOp", "Written", "Written", "Written", "NoOp"]);
    let before = world.spent();
    assert_eq!(short(&world.pass(actions()).await), ["NoOp"; 5]);
    assert_eq!(world.spent_since(&before), none());
}

#[tokio::test]
async fn what_comes_after_a_child_that_waits_waits_too() {
    let mut world = World::new("order").await;
    world.declare("updateStrategy", &json!({"method": "Recreate"}));
    let mut held = config_map("a", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.pass(vec![apply(&held)]).await;
    held["data"] = json!({"k": "v"});
    let report = world.pass(vec![apply(&held), map("b", &json!([0]))]).await;
    assert_eq!(short(&report), ["Held", "Held"]);
    assert!(report.held().last().unwrap().contains("waits for action 0"), "{report:?}");
    world.edit("ConfigMap", "a", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(
        short(&world.pass(vec![apply(&config_map("a", &json!({}))), map("b", &json!([0]))]).await),
        ["Written"; 2]
    );
}

#[tokio::test]
async fn a_failure_of_one_child_is_its_own() {
    let world = World::new("order").await;
    world.create(&config_map("theirs", &json!({}))).await;
    let report =
        world.pass(vec![map("theirs", &json!([])), map("a", &json!([])), map("b", &json!([]))]).await;
    assert_eq!(short(&report), ["NotOwned", "Written", "Written"]);
    assert_eq!(message(&report).0, RejectReason::NotOwned);
}
