//! Deletion: finalizers that nobody takes off, plugins that fail while they finalize, namespaces that go.

use std::fs;

use pilothouse_harness::{Host, HostOptions, eventually, workspace};
use serde_json::{Value, json};

use crate::{
    scripted::{FINALIZER, SCRIPTED, comes_to, config_map, config_maps_only, perform, scripted, world},
    stamped::{count, counts, logs, serves, write},
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, World, condition},
};

const LEFT: &str = "pilothouse_finalizers_left";

/// What the README says lets an object go without its plugin, for one object.
fn recovery(name: &str) -> String {
    let readme = fs::read_to_string(workspace::root().join("README.md")).unwrap();
    let line = readme.lines().find_map(|line| line.trim().strip_prefix("kubectl patch KIND NAME "));
    let rest = line.expect("README.md says how an object is let go").replace('\'', "");
    format!("patch scripteds {name} {rest}")
}

/// Asks for the deletion of the namespace; it goes when all in it is gone.
async fn delete_namespace(world: &World) {
    world.kubectl(&format!("delete namespace {} --wait=false", world.namespace)).await;
}

async fn namespace_is_gone(world: &World) {
    eventually(DEADLINE, "the namespace to be gone", || async {
        let found = world.try_kubectl(&format!("get namespace {}", world.namespace), "").await;
        String::from_utf8_lossy(&found.stderr).contains("NotFound")
    })
    .await;
}

/// The object is being deleted and its finalizer holds it.
async fn waits(world: &World, name: &str) {
    eventually(DEADLINE, &format!("{name} to wait for its finalizer"), || async {
        let object = world.get(SCRIPTED, name).await.unwrap_or_default();
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        anyhow::ensure!(deleting && object["metadata"]["finalizers"] == json!([FINALIZER]), "{object}");
        Ok(())
    })
    .await;
}

/// MC#1062, pixie#1917: the plugin is taken away while resources hold its finalizer, and they can never be deleted. It is
/// said how many there are; the plugin's return or the documented command lets them go; and their namespace with them.
#[tokio::test(flavor = "multi_thread")]
async fn mc_1062_what_a_plugin_leaves_behind_is_counted_and_can_be_let_go() {
    let world = world("uninstall", &json!({"controller": config_maps_only()})).await;
    let host = world.host().await;
    let file = world.plugins.path().join("scripted.wasm");
    for name in ["a", "b", "c"] {
        perform(&world, name, json!({"children": [config_map("$(name)", "v")]})).await;
    }
    for name in ["a", "b", "c"] {
        comes_to(&world, name, "Succeeded").await;
    }
    let plugin = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    serves(&host, &[]).await;
    counts(&host, LEFT, &[("kind", "Scripted.test.pilothouse.dev")], 3).await;
    logs(&host, &["Scripted.v1.test.pilothouse.dev", "objects=3", FINALIZER]).await;
    world.delete(SCRIPTED, "a").await;
    waits(&world, "a").await;

    write(world.plugins.path(), "scripted.wasm", plugin);
    world.gone(SCRIPTED, "a").await;
    assert_eq!(count(&host, LEFT, &[]).await, 0);

    fs::remove_file(&file).unwrap();
    serves(&host, &[]).await;
    counts(&host, LEFT, &[("kind", "Scripted.test.pilothouse.dev")], 2).await;
    world.delete(SCRIPTED, "b").await;
    waits(&world, "b").await;
    world.kubectl(&recovery("b")).await;
    world.gone(SCRIPTED, "b").await;
    world.gone(CONFIG_MAP, "b").await;

    // The host is uninstalled, too.
    assert_eq!(host.terminate().await.unwrap(), "exit status: 0");
    delete_namespace(&world).await;
    waits(&world, "c").await;
    world.kubectl(&recovery("c")).await;
    namespace_is_gone(&world).await;
}

/// MC#948: a plugin that does nothing but finalize, with nothing to own.
#[tokio::test(flavor = "multi_thread")]
async fn mc_948_a_plugin_that_only_finalizes_serves() {
    let world = world("finalize", &json!({"controller": {"children": [], "related": []}})).await;
    let host = world.host().await;
    let event = json!({"recordEvent": {"severity": "Normal", "reason": "Undone", "message": "all of it"}});
    perform(&world, "mc-948", json!({"deleting": {"actions": [event, {"release": true}]}})).await;
    comes_to(&world, "mc-948", "Succeeded").await;
    world.delete(SCRIPTED, "mc-948").await;
    world.gone(SCRIPTED, "mc-948").await;
    says(&world, "mc-948", "Undone").await;
    assert_eq!(count(&host, "pilothouse_pass_failures_total", &[]).await, 0);
}

/// Waits for an event about an object, and returns it.
async fn says(world: &World, name: &str, reason: &str) -> Value {
    eventually(DEADLINE, &format!("an event {reason} about {name}"), || async {
        let events = world.list(EVENT).await;
        Ok(events.into_iter().find(|event| event["regarding"]["name"] == name && event["reason"] == reason))
    })
    .await
}

/// node-readiness-controller#213: a deletion that only sets `deletionTimestamp` passes a filter on the generation. A
/// LimitRange has none.
#[tokio::test(flavor = "multi_thread")]
async fn node_readiness_213_a_deletion_without_a_new_generation_is_seen() {
    const LIMIT_RANGE: Kind = Kind("v1", "LimitRange", "limitranges");
    let manifest = json!({
        "crds": [],
        "controller": {
            "primary": {"version": "v1", "kind": "LimitRange", "plural": "limitranges"},
            "children": [{"resource": {"version": "v1", "kind": "ConfigMap", "plural": "configmaps"}}],
        },
    });
    let world = world("generation", &manifest).await;
    let _host = world.host().await;
    let undo = json!({"recordEvent": {"severity": "Normal", "reason": "Undone", "message": "all of it"}});
    let script = json!({
        "children": [config_map("$(name)", "v")], "deleting": {"actions": [undo, {"release": true}]},
    });
    let metadata =
        json!({"name": "node-213", "annotations": {"test.pilothouse.dev/script": script.to_string()}});
    let limits = json!([{"type": "Container", "default": {"cpu": "1"}}]);
    let object =
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}});
    world.create(LIMIT_RANGE, &object).await;
    world.present(CONFIG_MAP, "node-213").await;
    let held = world.get(LIMIT_RANGE, "node-213").await.unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(held["metadata"]["generation"], Value::Null, "it has a generation, so the test shows nothing");
    world.delete(LIMIT_RANGE, "node-213").await;
    world.gone(LIMIT_RANGE, "node-213").await;
    says(&world, "node-213", "Undone").await;
}

/// The plugin traps in each pass that finalizes: with backoff up to its cap, in the condition and in one event that is
/// counted; others go on; and the next version does it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_traps_while_it_finalizes_holds_up_nobody_else() {
    const TRAPS: u64 = 50;
    let manifest = json!({"controller": config_maps_only()});
    let world = world("traps", &manifest).await;
    write(world.plugins.path(), "scripted.yaml", "backoff: {baseMs: 5, capMs: 100}");
    let host: Host = world.host().await;
    let trapping = json!({"onVersion": {"1": {"behaviour": "trap"}}, "actions": [{"release": true}]});
    perform(&world, "traps", json!({"children": [config_map("$(name)", "v")], "deleting": trapping})).await;
    comes_to(&world, "traps", "Succeeded").await;
    world.delete(SCRIPTED, "traps").await;
    counts(&host, "pilothouse_plugin_faults_total", &[("reason", "Trap")], TRAPS).await;
    let held = world.get(SCRIPTED, "traps").await.unwrap();
    assert_eq!(condition(&held, "Reconciled")["reason"], "PluginTrapped", "{held}");
    says(&world, "traps", "PluginTrapped").await;
    let events = world.list(EVENT).await;
    let about = events.iter().filter(|event| event["reason"] == "PluginTrapped").count();
    assert_eq!(about, 1, "{events:?}");
    for value in ["v", "edited"] {
        perform(&world, "other", json!({"children": [config_map("$(name)", value)]})).await;
        comes_to(&world, "other", "Succeeded").await;
    }

    write(world.plugins.path(), "scripted.wasm", scripted("2", &manifest));
    world.gone(SCRIPTED, "traps").await;
    world.gone(CONFIG_MAP, "traps").await;
}

/// redpanda#1043, mcp-lifecycle-operator#300: a finalizing pass wants to create something in a namespace that is being
/// deleted. The plugin is told, and the API server is not asked again; what needs no creation goes on.
#[tokio::test(flavor = "multi_thread")]
async fn redpanda_1043_creations_in_a_namespace_that_goes_are_asked_for_once() {
    let world = world("terminating", &json!({"controller": config_maps_only()})).await;
    write(world.plugins.path(), "scripted.yaml", "backoff: {baseMs: 5, capMs: 100}");
    // The rights of the test's account go with the namespace, and its Lease would.
    let lease_namespace = Some(world.plane.namespace("lease").await.unwrap());
    let user = &world.namespace;
    let kubeconfig = world.plane.kubeconfig_for_user(user, Some("system:masters")).unwrap();
    let host = Host::start(HostOptions { kubeconfig, lease_namespace, ..world.options() }).await.unwrap();
    let tomb = |name: &str, wiser: Value| {
        json!({
            "children": [config_map(name, "v")],
            "deleting": {"children": [config_map(&format!("tomb-{name}"), "v")], "actions": [{"release": true}], "onLast": wiser},
        })
    };
    perform(&world, "wise", tomb("wise", json!({"Terminating": {"children": []}}))).await;
    perform(&world, "stubborn", tomb("stubborn", json!({}))).await;
    for name in ["wise", "stubborn"] {
        comes_to(&world, name, "Succeeded").await;
    }
    let mark = world.mark().await;
    delete_namespace(&world).await;
    world.gone(SCRIPTED, "wise").await;
    // As many passes as would be a storm of requests.
    counts(&host, "pilothouse_pass_failures_total", &[("reason", "WriteFailed")], 20).await;
    let stubborn = world.get(SCRIPTED, "stubborn").await.unwrap();
    let message = condition(&stubborn, "Reconciled")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("Terminating"), "{stubborn}");
    world.edit(SCRIPTED, "stubborn", &json!({"spec": {"deleting": null}})).await;
    namespace_is_gone(&world).await;

    // The child that went with the namespace, or what the finalizing pass wants: whichever came first.
    for name in ["wise", "stubborn"] {
        let mut events = world.events_between(mark, None);
        events.retain(|event| event.user == *user && event.is_write() && event.resource == "configmaps");
        events.retain(|event| event.name.ends_with(name));
        assert_eq!(events.iter().map(|event| event.code).collect::<Vec<_>>(), [403], "{name}: {events:#?}");
    }
}
