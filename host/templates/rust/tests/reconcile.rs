//! The plugin's function with plain values: no cluster, no host, no Wasm.

use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;

use {{crate}}::{{kind}}Spec;

fn cluster(message: &str) -> Cluster<{{kind}}Spec> {
    Cluster::new("default", "hello", json!({"message": message}))
}

#[test]
fn a_message_becomes_a_config_map_and_a_second_pass_changes_nothing() {
    let mut cluster = cluster("hello");
    assert_eq!(cluster.pass()[0], "create ConfigMap hello-message");
    let outcome = cluster.settle();
    let ready = outcome.condition("Ready").expect("it is set");
    assert_eq!(ready.state, State::True);

    cluster.edit(|spec| spec["message"] = json!("good bye"));
    assert_eq!(cluster.pass()[0], "ConfigMap hello-message: data.message");
}

#[test]
fn a_blank_message_is_the_users_to_change() {
    let outcome = cluster(" ").reconcile();
    let expected = Failure::invalid("spec.message", "is blank, a text would be right");
    assert_eq!(outcome.failure, Some(expected));
}
