//! Webhooks of plugins in Python and JavaScript. Both guests guard a kind in the same ways, each in the manner of its SDK.

use pilothouse_harness::{eventually, workspace};
use serde_json::{Value, json};

use super::host;
use crate::{
    stamped::logs,
    support::{DEADLINE, Kind, POSTGRES_CLUSTER, World, plugin},
};

const PYTHON: (&str, Kind) = ("python", Kind("python.pilothouse.dev/v1", "Booking", "bookings"));
const JAVASCRIPT: (&str, Kind) = ("javascript", Kind("javascript.pilothouse.dev/v1", "Booking", "bookings"));

async fn world(language: &str) -> World {
    let guest = workspace::target_directory().join(format!("guests/guarding-{language}.wasm"));
    assert!(guest.is_file(), "{}: `make plugins-{language}` builds it", guest.display());
    World::granted(&format!("guards-{language}"), &[guest]).await
}

fn booking(kind: Kind, name: &str, change: &Value) -> Value {
    let mut spec = json!({"room": "red", "seats": 4});
    for (field, value) in change.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_python_plugin_guards_its_kind() {
    guards(PYTHON).await;
}

#[tokio::test]
async fn a_javascript_plugin_guards_its_kind() {
    guards(JAVASCRIPT).await;
}

async fn guards((language, kind): (&str, Kind)) {
    let world = world(language).await;
    let host = host(&world).await;
    refuses_with_fields(&world, kind).await;
    fills_in(&world, kind).await;
    checks_scales_and_deletions(&world, kind).await;

    // A mistake is no refusal, and its traceback is for whoever runs the host.
    for (behaviour, part) in [("raise", "words of a mistake"), ("rename", "metadata")] {
        let wrong = booking(kind, "mistaken", &json!({"behaviour": behaviour}));
        let status = world.server_apply(kind, &wrong).await.unwrap_err();
        assert!(status.code == 500 && status.message.contains(part), "{language}: {}", status.message);
    }
    logs(&host, &["words of a mistake", "guarding-"]).await;
    assert!(world.get(kind, "mistaken").await.is_none());
}

/// In kubectl, as the API server's own checks are told.
async fn refuses_with_fields(world: &World, kind: Kind) {
    let (accepted, said) = world.try_apply(&booking(kind, "none", &json!({"seats": 0}))).await;
    let expected = r#"The Booking "none" is invalid: spec.seats: Invalid value: 0: 1 or more would be right"#;
    assert!(!accepted && said.contains(expected), "{said}");
    assert!(said.contains("Warning: CREATE, dry run: false"), "{said}");
    assert!(world.get(kind, "none").await.is_none());

    // The schema's own words, though what is filled in comes before it.
    let (accepted, said) = world.try_apply(&booking(kind, "none", &json!({"seats": "four"}))).await;
    assert!(!accepted && said.contains("spec.seats: Invalid value: \"string\""), "{said}");

    let (accepted, said) = world.try_apply(&booking(kind, "kept", &json!({}))).await;
    assert!(accepted, "{said}");
    let moved = booking(kind, "kept", &json!({"room": "blue", "seats": 0}));
    let status = world.server_apply(kind, &moved).await.unwrap_err();
    assert_eq!((status.code, &*status.reason), (422, "Invalid"), "{status:?}");
    let causes = status.details.unwrap().causes;
    let mut told: Vec<_> = causes.iter().map(|cause| (&*cause.field, &*cause.reason)).collect();
    told.sort_unstable();
    assert_eq!(told, [("spec.room", "FieldValueForbidden"), ("spec.seats", "FieldValueInvalid")]);
}

async fn fills_in(world: &World, kind: Kind) {
    let stored = world.get(kind, "kept").await.unwrap();
    assert_eq!(stored["spec"], json!({"room": "red", "seats": 4, "title": "kept for admin"}));
    eventually(DEADLINE, "a pass over the object", || async {
        let status = world.get(kind, "kept").await.unwrap_or_default()["status"].clone();
        anyhow::ensure!(status["seats"] == 4, "{status}");
        Ok(())
    })
    .await;
    let named = booking(kind, "named", &json!({"title": "mine"}));
    assert_eq!(world.server_apply(kind, &named).await.unwrap()["spec"]["title"], "mine");
}

async fn checks_scales_and_deletions(world: &World, kind: Kind) {
    let said = |output: std::process::Output| {
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let plural = format!("{}.{}", kind.2, kind.0.split('/').next().unwrap());
    let scale = |count: u32| format!("scale {plural} kept --replicas={count}");
    let (accepted, text) = said(world.try_kubectl(&scale(101), "").await);
    assert!(!accepted && text.contains("spec.replicas: Invalid value: 101: at most 100"), "{text}");
    let (accepted, text) = said(world.try_kubectl(&scale(100), "").await);
    assert!(accepted, "{text}");

    world.edit(kind, "kept", &json!({"spec": {"held": true}})).await;
    let (accepted, text) = said(world.try_kubectl(&format!("delete {plural} kept"), "").await);
    assert!(!accepted && text.contains("spec.held: Forbidden: the booking is held"), "{text}");
    world.edit(kind, "kept", &json!({"spec": {"held": false}})).await;
    let (accepted, text) = said(world.try_kubectl(&format!("delete {plural} kept"), "").await);
    assert!(accepted, "{text}");
    world.gone(kind, "kept").await;
}

#[tokio::test]
async fn volumes_of_a_python_cluster_do_not_shrink() {
    let world = World::granted("python-shrinks", &[plugin("postgres-cluster-python")]).await;
    let _host = host(&world).await;
    let cluster = |storage: &str| {
        let Kind(api_version, kind, _) = POSTGRES_CLUSTER;
        json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "orders"},
            "spec": {"replicas": 1, "version": "16", "storage": storage},
        })
    };
    let (accepted, said) = world.try_apply(&cluster("0Gi")).await;
    let expected = r#"spec.storage: Invalid value: "0Gi": 0Gi is no size, at least 1Gi would be right"#;
    assert!(!accepted && said.contains(expected), "{said}");
    let (accepted, said) = world.try_apply(&cluster("2Gi")).await;
    assert!(accepted, "{said}");
    world.ready(POSTGRES_CLUSTER, "orders").await;
    let (accepted, said) = world.try_apply(&cluster("1Gi")).await;
    let expected = "spec.storage: Forbidden: volumes cannot shrink, 2Gi or more would be right";
    assert!(!accepted && said.contains(expected), "{said}");
    assert_eq!(world.get(POSTGRES_CLUSTER, "orders").await.unwrap()["spec"]["storage"], "2Gi");
}
