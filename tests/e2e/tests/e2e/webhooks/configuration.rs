//! The API server's configuration follows the plugins, and nothing else.

use kube::api::{DeleteParams, Patch, PatchParams};
use pilothouse_e2e::{MUTATING, VALIDATING, webhooks::free_port};
use pilothouse_harness::{Host, eventually};
use serde_json::json;

use super::{deny, guarded, host, object};
use crate::{
    scripted::{SCRIPTED, comes_to},
    stamped::serves,
    support::{DEADLINE, Kind},
};

#[tokio::test]
async fn what_somebody_changes_is_put_back_and_at_rest_nothing_is_written() {
    let world = guarded("drift", &json!({"defaults": true})).await;
    let host = host(&world).await;
    let name = world.namespace.clone();
    assert!(world.try_apply(&object("a", json!({}))).await.0);
    comes_to(&world, "a", "Succeeded").await;

    let before = world.get_cluster(VALIDATING, &name).await.unwrap();
    for (kind, path) in [
        (VALIDATING, "/webhooks/0/failurePolicy"),
        (MUTATING, "/webhooks/0/failurePolicy"),
        (VALIDATING, "/webhooks/0/clientConfig/caBundle"),
    ] {
        let value = if path.ends_with("Policy") { json!("Ignore") } else { json!("") };
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        kind.cluster_api(&world.client).patch(&name, &PatchParams::default(), &patch).await.unwrap();
        eventually(DEADLINE, &format!("{path} of {} to be put back", kind.1), || async {
            let now = world.get_cluster(kind, &name).await.unwrap();
            Ok(now.pointer(path) != Some(&value) && now.pointer(path).is_some())
        })
        .await;
    }
    VALIDATING.cluster_api(&world.client).delete(&name, &DeleteParams::default()).await.unwrap();
    let after = eventually(DEADLINE, "the configuration to be there again", || async {
        Ok(world.get_cluster(VALIDATING, &name).await)
    })
    .await;
    assert_eq!(after["webhooks"], before["webhooks"]);
    drop(host);
}

#[tokio::test]
async fn a_plugin_that_goes_takes_its_webhooks_along_and_applies_pass() {
    let world = guarded("gone", &json!({"defaults": true})).await;
    let host = host(&world).await;
    let wrong = object("a", deny("spec", "never"));
    assert!(!world.try_apply(&wrong).await.0);

    std::fs::remove_file(world.plugins.path().join("scripted.wasm")).unwrap();
    serves(&host, &[]).await;
    for kind in [VALIDATING, MUTATING] {
        eventually(DEADLINE, &format!("{} to be gone", kind.1), || async {
            Ok(world.get_cluster(kind, &world.namespace).await.is_none())
        })
        .await;
    }
    let (accepted, said) = world.try_apply(&wrong).await;
    assert!(accepted, "{said}");
}

#[tokio::test]
async fn a_configuration_of_another_host_is_left_alone_and_named() {
    let world = guarded("foreign", &json!({})).await;
    let host = host(&world).await;
    let name = world.namespace.clone();
    let patch = json!({"metadata": {"annotations": {"pilothouse.dev/host": "elsewhere/pilothouse"}}});
    let patch = Patch::Merge(&patch);
    VALIDATING.cluster_api(&world.client).patch(&name, &PatchParams::default(), &patch).await.unwrap();
    crate::stamped::logs(&host, &["ValidatingWebhookConfiguration", "is of another host", "--webhook-name"])
        .await;
    let live = world.get_cluster(VALIDATING, &name).await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["pilothouse.dev/host"], "elsewhere/pilothouse");
    // It serves, and stays ready: taking it away would take the answers with it.
    let (status, body) = host.get("/readyz").await.unwrap();
    assert!(status == 200 && body.contains("is of another host"), "{status}: {body}");
}

#[tokio::test]
async fn a_restart_changes_nothing_and_a_plugin_that_cannot_be_loaded_stays_guarded() {
    let world = guarded("stays", &json!({"defaults": true})).await;
    let name = world.namespace.clone();
    let port = free_port();
    let first = Host::start(world.guarding(port, port)).await.unwrap();
    let metadata = |kind: Kind| {
        let (world, name) = (&world, &name);
        async move { world.get_cluster(kind, name).await.unwrap()["metadata"].clone() }
    };
    let before = (metadata(VALIDATING).await, metadata(MUTATING).await);
    assert_eq!(first.terminate().await.unwrap(), "exit status: 0");
    // It has its certificate long before it has compiled the plugin, and must not take that for a plugin that is gone.
    let empty = tempfile::tempdir().unwrap();
    let mut options = world.guarding(port, port);
    options.environment.insert("XDG_CACHE_HOME".to_owned(), empty.path().display().to_string());
    let second = Host::start(options).await.unwrap();
    assert_eq!((metadata(VALIDATING).await, metadata(MUTATING).await), before, "not even written again");
    assert_eq!(second.terminate().await.unwrap(), "exit status: 0");

    // What cannot be loaded might be what guarded: its kind stays closed.
    std::fs::write(world.plugins.path().join("scripted.wasm"), "junk").unwrap();
    let third = Host::start(world.guarding(port, port)).await.unwrap();
    let status = world.server_apply(SCRIPTED, &object("a", json!({}))).await.unwrap_err();
    assert!(status.message.contains("plugin `scripted` is not loaded"), "{}", status.message);
    assert_eq!((metadata(VALIDATING).await, metadata(MUTATING).await), before);
    drop(third);
}
