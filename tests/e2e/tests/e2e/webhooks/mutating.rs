//! What a plugin fills in.

use serde_json::{Value, json};

use super::{guarded, host, object};
use crate::scripted::SCRIPTED;

fn filling(name: &str, defaults: Value) -> Value {
    object(name, json!({"defaults": defaults}))
}

#[tokio::test]
async fn defaults_are_stored_and_then_checked() {
    let world = guarded("defaults", &json!({"defaults": true})).await;
    let _host = host(&world).await;

    let stored = world.server_apply(SCRIPTED, &filling("a", json!({"spec": {"size": 3}}))).await.unwrap();
    assert_eq!(stored["spec"]["size"], 3);
    // The same once more: what has its defaults keeps its generation.
    let again = world.server_apply(SCRIPTED, &filling("a", json!({"spec": {"size": 3}}))).await.unwrap();
    assert_eq!(again["metadata"]["generation"], stored["metadata"]["generation"]);

    let dry = filling("dry", json!({"spec": {"size": 4}})).to_string();
    let output = world.try_kubectl("apply --dry-run=server -o json -f -", &dry).await;
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["spec"]["size"], 4);
    assert!(world.get(SCRIPTED, "dry").await.is_none());

    let denies = json!({"spec": {"admission": {"deny": [{"field": "spec.size", "message": "never"}]}}});
    let status = world.server_apply(SCRIPTED, &filling("b", denies)).await.unwrap_err();
    assert!(status.message.contains("spec.size: Invalid value: never"), "{}", status.message);
}

#[tokio::test]
async fn what_is_not_the_plugins_to_fill_in_is_refused_by_name() {
    let world = guarded("metadata", &json!({"defaults": true, "validates": false})).await;
    let _host = host(&world).await;
    for (admission, part) in [
        (
            json!({"defaults": {"metadata": {"labels": {"a": "b"}}}}),
            "changes metadata.labels, which a plugin may not",
        ),
        (json!({"defaults": {"metadata": {"name": "other"}}}), "changes metadata.name, which"),
        (json!({"defaults": {"kind": "Other"}}), "changes kind, which"),
        (json!({"defaults": {"status": {"a": 1}}}), "changes status, which"),
        (json!({"raw": "{"}), "`default-fields` returned no JSON"),
        (json!({"raw": "[]"}), "the result is no object"),
        (json!({"behaviour": "trap"}), "plugin `scripted` trapped"),
    ] {
        let status = world.server_apply(SCRIPTED, &object("a", admission)).await.unwrap_err();
        assert!(status.code == 500 && status.message.contains(part), "{part}: {}", status.message);
    }
    assert!(world.get(SCRIPTED, "a").await.is_none());
}
