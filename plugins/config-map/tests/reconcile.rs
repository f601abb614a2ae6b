//! The example plugin, run natively.

use config_map::Greeting;
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;

#[test]
fn a_greeting_becomes_a_config_map_and_then_nothing_changes() {
    let mut cluster = Cluster::<Greeting>::new("shop", "hello", json!({"text": "good day"}));
    assert_eq!(cluster.pass(), ["create ConfigMap hello", "status"]);
    assert_eq!(cluster.child(CONFIG_MAP, "hello").unwrap()["data"], json!({"text": "good day"}));

    let settled = cluster.settle();
    assert_eq!(settled.condition("Ready").unwrap().state, State::True);

    cluster.edit(|spec| spec["text"] = json!("good night"));
    assert_eq!(cluster.pass(), ["ConfigMap hello: data.text", "status"]);
}

#[test]
fn drift_is_repaired() {
    let mut cluster = Cluster::<Greeting>::new("shop", "hello", json!({"text": "good day"}));
    cluster.settle();
    cluster.child_mut(CONFIG_MAP, "hello")["data"]["text"] = json!("edited");
    assert_eq!(cluster.pass(), ["ConfigMap hello: data.text"]);
}

#[test]
fn a_wrong_spec_is_the_users_to_change() {
    let outcome = Cluster::<Greeting>::new("shop", "hello", json!({"text": 5})).reconcile();
    let Some(Failure::Invalid(text)) = outcome.failure else { panic!("{outcome:?}") };
    assert_eq!(text, "spec.text: invalid type: integer `5`, expected a string");
}
