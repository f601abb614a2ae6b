//! `generate-secret`: drawn once, kept, completed, never shown.

use std::sync::Arc;

use pilothouse_cluster::apply::Applier;
use pilothouse_model::action::{Action, Alphabet, KeyValue, RandomKey, SecretTemplate};
use pilothouse_model::names::MANAGED_LABEL;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::world::{PLUGIN, World, apply, message, none, plugin, short};

fn template(host: &str, options: &Value) -> SecretTemplate {
    let entry = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
    SecretTemplate {
        name: "app".to_owned(),
        literals: vec![entry("username", "app"), entry("host", host)],
        random: vec![RandomKey { key: "password".to_owned(), length: 24, alphabet: Alphabet::Alphanumeric }],
        composed: vec![entry("uri", "postgresql://$(username):$(password)@$(host)")],
        options: options.to_string(),
    }
}

fn generate(host: &str, options: &Value) -> Vec<Action> {
    vec![Action::GenerateSecret(template(host, options))]
}

async fn secret(world: &World) -> Value {
    world.get("Secret", "app").await.unwrap()
}

fn decoded(secret: &Value, key: &str) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"][key].clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

#[tokio::test]
async fn made_by_one_request_then_quiet_whatever_is_remembered() {
    let mut world = World::new("secret").await;
    let before = world.spent();
    assert_eq!(short(&world.pass(generate("db", &json!({}))).await), ["Written"]);
    assert_eq!(world.spent_since(&before), [("create", 1)].into());
    let first = secret(&world).await;
    let password = decoded(&first, "password");
    assert_eq!(password.len(), 24);
    assert_eq!(decoded(&first, "uri"), format!("postgresql://app:{password}@db"));
    assert_eq!(first["metadata"]["labels"][MANAGED_LABEL], PLUGIN);
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], *world.primary.meta().uid);

    world.restart();
    let before = world.spent();
    assert_eq!(short(&world.pass(generate("db", &json!({}))).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), none());
    assert_eq!(secret(&world).await, first);
}

#[tokio::test]
async fn two_that_race_draw_once() {
    let world = World::new("secret").await;
    for _ in 0..10 {
        let appliers: Vec<Applier> = (0..4).map(|_| Applier::new(&world.writer, plugin())).collect();
        // Both looked before anything was there.
        let passes = appliers.iter().map(|applier| world.pass_with(applier, generate("db", &json!({})), &[]));
        let reports = futures::future::join_all(passes).await;
        let mut words: Vec<_> = reports.iter().flat_map(short).collect();
        words.sort_unstable();
        assert_eq!(words, ["NoOp", "NoOp", "NoOp", "Written"], "{reports:?}");
        let versions = secret(&world).await["metadata"]["managedFields"].as_array().unwrap().len();
        assert_eq!(versions, 1, "written once");
        world.delete("Secret", "app").await;
    }
}

#[tokio::test]
async fn completed_without_touching_what_was_drawn() {
    let world = World::new("secret").await;
    world.pass(generate("db", &json!({}))).await;
    let password = decoded(&secret(&world).await, "password");

    let options = json!({"labels": {"app": "x"}, "annotations": {"note": "y"}});
    let before = world.spent();
    assert_eq!(short(&world.pass(generate("other", &options)).await), ["Written"]);
    assert_eq!(world.spent_since(&before), [("merge-patch", 1)].into());
    let now = secret(&world).await;
    assert_eq!(decoded(&now, "uri"), format!("postgresql://app:{password}@other"));
    assert_eq!(
        (&now["metadata"]["labels"]["app"], &now["metadata"]["annotations"]["note"]),
        (&json!("x"), &json!("y"))
    );

    // A user's own password is kept, and followed; a literal of ours is put back.
    let edit = json!({"stringData": {"password": "mine", "username": "root"}});
    world.edit("Secret", "app", &edit).await;
    assert_eq!(short(&world.pass(generate("other", &options)).await), ["Written"]);
    assert_eq!(decoded(&secret(&world).await, "uri"), "postgresql://app:mine@other");

    // A key that is gone is drawn again.
    world.edit("Secret", "app", &json!({"data": {"password": null}})).await;
    assert_eq!(short(&world.pass(generate("other", &options)).await), ["Written"]);
    assert_eq!(decoded(&secret(&world).await, "password").len(), 24);
    let before = world.spent();
    assert_eq!(short(&world.pass(generate("other", &options)).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), none());
}

#[tokio::test]
async fn a_snapshot_without_values_never_draws_again() {
    let world = World::new("secret").await;
    world.pass(generate("db", &json!({}))).await;
    let first = secret(&world).await;
    let full = world.children().await.remove(0);
    let part = |projection: Value| {
        let mut part = (*full).clone();
        part.project(&serde_json::from_value(projection).unwrap());
        part
    };
    let blanked = Object::parse(&full.guest_json()).unwrap();
    for seen in [part(json!("metadata")), part(json!({"fields": [".data.username"]})), blanked] {
        assert_eq!(short(&world.pass_on(generate("db", &json!({})), &[Arc::new(seen)]).await), ["NoOp"]);
    }
    assert_eq!(secret(&world).await, first);
}

#[tokio::test]
async fn a_secret_changed_in_between_is_read_again() {
    let world = World::new("secret").await;
    world.pass(generate("db", &json!({}))).await;
    let stale = world.children().await;
    world.edit("Secret", "app", &json!({"stringData": {"password": "mine"}})).await;
    let before = world.spent();
    assert_eq!(short(&world.pass_on(generate("other", &json!({})), &stale).await), ["Written"]);
    assert_eq!(world.spent_since(&before), [("merge-patch", 2), ("get", 1)].into());
    assert_eq!(decoded(&secret(&world).await, "uri"), "postgresql://app:mine@other");
}

#[tokio::test]
async fn foreign_secrets_other_types_and_lost_labels() {
    let world = World::new("secret").await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}, "stringData": {"a": "b"}});
    world.create(&theirs).await;
    assert_eq!(short(&world.pass(generate("db", &json!({}))).await), ["NotOwned"]);
    assert_eq!(secret(&world).await["data"], json!({"a": "Yg=="}));
    world.delete("Secret", "app").await;

    world.pass(generate("db", &json!({}))).await;
    let password = decoded(&secret(&world).await, "password");
    let report = world.pass(generate("db", &json!({"type": "example.com/other"}))).await;
    assert_eq!(short(&report), ["Immutable"]);
    assert!(message(&report).1.contains("example.com/other"));

    for lost in [json!({"labels": {MANAGED_LABEL: null}}), json!({"ownerReferences": null})] {
        world.edit("Secret", "app", &json!({"metadata": lost})).await;
        assert_eq!(short(&world.pass(generate("db", &json!({}))).await), ["Written"]);
        assert_eq!(world.children().await.len(), 1);
    }
    assert_eq!(decoded(&secret(&world).await, "password"), password);
}

#[tokio::test]
async fn errors_about_secrets_show_no_value() {
    let world = World::new("secret").await;
    let wrong = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "hunter2", "a b": "hunter2"}
    });
    let report = world.pass(vec![apply(&wrong)]).await;
    let (_, message) = message(&report);
    assert!(message.contains("data") && !message.contains("hunter2"), "{message}");
    let wrong = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}, "data": {"a": "no base64: hunter2"}
    });
    let report = world.pass(vec![apply(&wrong)]).await;
    assert_eq!(short(&report), ["Invalid"], "{report:?}");
    assert!(!format!("{report:?}").contains("hunter2"), "{report:?}");
}
