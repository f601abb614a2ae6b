//! Resources that somebody holds: paused, or in plan mode until a plan is approved. Until then the host writes no more
//! than what says so, by the API server's own audit log.

use std::time::Duration;

use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    rest::passes,
    scripted::{FINALIZER, SCRIPTED, comes_to, config_map, perform, scripted},
    stamped::{counts, write},
    support::{CONFIG_MAP, DEADLINE, EVENT, GREETING, Mark, SECRET, World, condition, plugin},
};

const CONTROLLER: &str = "scripted/Scripted.test.pilothouse.dev";
/// The shortest that `--resync` takes.
const RESYNC: Duration = Duration::from_secs(10);

/// A world for the guest `scripted`, with these settings.
async fn world(prefix: &str, settings: &str) -> World {
    let files = tempfile::tempdir().unwrap();
    let component = write(files.path(), "scripted.wasm", scripted("1", &json!({})));
    let world = World::granted(prefix, &[component]).await;
    write(world.plugins.path(), "scripted.yaml", settings);
    world
}

async fn host(world: &World) -> Host {
    Host::start(HostOptions { resync: Some(RESYNC), ..world.options() }).await.unwrap()
}

/// What the host wrote: verb, resource with subresource, and name.
fn told(writes: &[AuditEvent]) -> Vec<String> {
    let stored = writes.iter().filter(|write| !write.is_dry_run());
    let words =
        stored.map(|write| format!("{} {}/{} {}", write.verb, write.resource, write.subresource, write.name));
    words.filter(|words| !words.contains(" events/")).collect()
}

/// Sets or takes off (null) annotations of an object.
async fn annotate(world: &World, name: &str, annotations: Value) {
    world.edit(SCRIPTED, name, &json!({"metadata": {"annotations": annotations}})).await;
}

/// Waits until an object's plan waits for approval, and returns its hash and its text.
async fn awaits(world: &World, name: &str, words: &[&str]) -> (String, String) {
    eventually(DEADLINE, &format!("the plan of {name} with {words:?}"), || async {
        let object = world.get(SCRIPTED, name).await.unwrap_or_default();
        let plan = object["metadata"]["annotations"]["pilothouse.dev/plan"].as_str().unwrap_or_default();
        let condition = condition(&object, "Reconciled");
        anyhow::ensure!(words.iter().all(|word| plan.contains(word)), "it is {plan}");
        anyhow::ensure!(condition["reason"] == "AwaitingApproval", "it is {condition}");
        let hash = plan.lines().next().unwrap_or_default().trim_start_matches("plan ").to_owned();
        let message = condition["message"].as_str().unwrap_or_default();
        anyhow::ensure!(message.contains(&hash), "{hash} is not in {message}");
        Ok(Some((hash, plan.to_owned())))
    })
    .await
}

async fn approve(world: &World, name: &str, hash: &str) {
    annotate(world, name, json!({"pilothouse.dev/approve": hash})).await;
}

/// Waits for so many passes more.
async fn looks_again(host: &Host, times: f64) {
    let before = passes(host, CONTROLLER).await.unwrap();
    eventually(DEADLINE, "more passes", || async { Ok(passes(host, CONTROLLER).await? >= before + times) })
        .await;
}

async fn writes(world: &World, mark: Mark) -> Vec<String> {
    told(&world.writes_since(mark).await)
}

#[tokio::test]
async fn a_paused_resource_is_left_alone_also_when_it_is_deleted_and_goes_on_at_once() {
    let world = world("paused", "").await;
    let host = host(&world).await;
    let mark = world.mark().await;
    let object = |name: &str, annotations: Value| {
        json!({"apiVersion": SCRIPTED.0, "kind": SCRIPTED.1, "metadata": {"name": name, "annotations": annotations},
            "spec": {"children": [config_map(name, "1")]}})
    };
    world.create(SCRIPTED, &object("new", json!({"pilothouse.dev/paused": "true"}))).await;
    assert!(comes_to(&world, "new", "Paused").await.contains("pilothouse.dev/paused"));
    looks_again(&host, 2.0).await;
    assert_eq!(writes(&world, mark).await, ["patch scripteds/status new"], "one write, and no finalizer");
    counts(&host, "pilothouse_held_keys", &[("reason", "Paused")], 1).await;

    annotate(&world, "new", json!({"pilothouse.dev/paused": null})).await;
    world.present(CONFIG_MAP, "new").await;
    comes_to(&world, "new", "Succeeded").await;

    // What is there stays as it is: neither drift nor the deletion is answered.
    annotate(&world, "new", json!({"pilothouse.dev/paused": "true"})).await;
    comes_to(&world, "new", "Paused").await;
    let mark = world.mark().await;
    world.edit(CONFIG_MAP, "new", &json!({"data": {"k": "drifted"}})).await;
    world.delete(SCRIPTED, "new").await;
    looks_again(&host, 3.0).await;
    // Its deletion is another generation, and the condition says of which one it is.
    assert_eq!(writes(&world, mark).await, ["patch scripteds/status new"]);
    assert_eq!(world.get(CONFIG_MAP, "new").await.unwrap()["data"]["k"], "drifted");
    annotate(&world, "new", json!({"pilothouse.dev/paused": "false"})).await;
    world.gone(SCRIPTED, "new").await;
}

#[tokio::test]
async fn a_paused_resource_that_failed_for_long_goes_on_at_once() {
    // The second failure waits longer than the test does.
    let world = world("unpaused", "backoff: {baseMs: 60000, capMs: 3600000}").await;
    let _host = host(&world).await;
    let failing = json!({"failure": {"retry": "not yet"}});
    perform(&world, "slow", failing).await;
    comes_to(&world, "slow", "PluginFailed").await;
    annotate(&world, "slow", json!({"pilothouse.dev/paused": "true"})).await;
    comes_to(&world, "slow", "Paused").await;
    annotate(&world, "slow", json!({"pilothouse.dev/paused": null})).await;
    comes_to(&world, "slow", "PluginFailed").await;
}

#[tokio::test]
async fn a_plan_is_shown_and_nothing_is_written_until_its_hash_is_approved() {
    let world = world("planned", "mode: plan").await;
    let host = host(&world).await;
    let mark = world.mark().await;
    let secret =
        json!({"generateSecret": {"name": "db", "random": {"password": 24}, "literals": {"user": "app"}}});
    let event = json!({"recordEvent": {"severity": "Normal", "reason": "Made", "message": "made"}});
    let script = json!({"children": [config_map("one", "1")], "actions": [secret, event], "status": {"phase": "Made"}});
    perform(&world, "web", script).await;
    let (hash, plan) = awaits(&world, "web", &["create ConfigMap one", "data.k = \"1\""]).await;
    assert!(
        plan.contains("create Secret db: data.password = (not shown), data.user = (not shown)"),
        "{plan}"
    );
    assert!(plan.contains(&format!("metadata.finalizers = [\"{FINALIZER}\"]")), "{plan}");
    assert_eq!(plan.lines().count(), 4, "{plan}");
    // Random values are drawn in each pass and the hash stays.
    looks_again(&host, 3.0).await;
    assert_eq!(awaits(&world, "web", &[]).await.0, hash);
    assert_eq!(writes(&world, mark).await, ["patch scripteds/ web", "patch scripteds/status web"]);
    assert!(world.get(CONFIG_MAP, "one").await.is_none() && world.get(SECRET, "db").await.is_none());
    let web = world.get(SCRIPTED, "web").await.unwrap();
    assert_eq!((&web["status"]["phase"], &web["metadata"]["finalizers"]), (&Value::Null, &Value::Null));
    let events = eventually(DEADLINE, "the event", || async {
        let events = world.list(EVENT).await;
        Ok(events.iter().any(|event| event["reason"] == "AwaitingApproval").then_some(events))
    })
    .await;
    let says = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count();
    assert_eq!((says("AwaitingApproval"), says("Made")), (1, 0));
    counts(&host, "pilothouse_held_keys", &[("reason", "AwaitingApproval")], 1).await;

    approve(&world, "web", "0123456789abcdef").await;
    eventually(DEADLINE, "the stale approval to be named", || async {
        let message = comes_to(&world, "web", "AwaitingApproval").await;
        Ok(message.contains("`0123456789abcdef` was approved") && message.contains(&hash))
    })
    .await;
    assert!(world.get(CONFIG_MAP, "one").await.is_none());

    approve(&world, "web", &hash).await;
    comes_to(&world, "web", "Succeeded").await;
    assert!(world.get(CONFIG_MAP, "one").await.is_some() && world.get(SECRET, "db").await.is_some());
    let web = eventually(DEADLINE, "plan and approval to be taken off", || async {
        let web = world.get(SCRIPTED, "web").await.unwrap();
        let ours = web["metadata"]["annotations"].as_object().into_iter().flatten();
        Ok((ours.filter(|(name, _)| name.starts_with("pilothouse.dev/")).count() == 0).then_some(web))
    })
    .await;
    assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(web["status"]["phase"], "Made");

    // The same drift another time is another decision.
    let mark = world.mark().await;
    world.delete(CONFIG_MAP, "one").await;
    let (again, _) = awaits(&world, "web", &["create ConfigMap one"]).await;
    assert_ne!(again, hash, "the first plan had more in it");
    looks_again(&host, 2.0).await;
    assert!(world.get(CONFIG_MAP, "one").await.is_none());
    assert_eq!(writes(&world, mark).await, ["patch scripteds/ web", "patch scripteds/status web"]);
    // Settled by somebody else: there is nothing to approve any more.
    perform(&world, "web", json!({"children": [], "status": {"phase": "Made"}})).await;
    comes_to(&world, "web", "Succeeded").await;
}

#[tokio::test]
async fn updates_and_deletions_wait_for_approval_and_a_plan_that_changed_for_another() {
    let world = world("replanned", "").await;
    let host = host(&world).await;
    perform(&world, "web", json!({"children": [config_map("kept", "1"), config_map("goes", "1")]})).await;
    comes_to(&world, "web", "Succeeded").await;
    annotate(&world, "web", json!({"pilothouse.dev/mode": "plan"})).await;
    let mark = world.mark().await;
    let delete = json!({"delete": {"apiVersion": "v1", "kind": "ConfigMap", "name": "goes"}});
    let script = |value: &str| json!({"children": [config_map("kept", value)], "actions": [delete]});
    perform(&world, "web", script("2")).await;
    let lines = ["update ConfigMap kept: data.k \"1\" -> \"2\"", "delete ConfigMap goes"];
    let (stale, _) = awaits(&world, "web", &lines).await;
    // What was approved is not what would be done now.
    perform(&world, "web", script("3")).await;
    let (hash, _) = awaits(&world, "web", &["data.k \"1\" -> \"3\""]).await;
    assert_ne!(stale, hash);
    approve(&world, "web", &stale).await;
    looks_again(&host, 2.0).await;
    assert!(comes_to(&world, "web", "AwaitingApproval").await.contains(&format!("`{stale}` was approved")));
    assert!(world.get(CONFIG_MAP, "goes").await.is_some(), "a rehearsed deletion deletes nothing");
    let stored = writes(&world, mark).await;
    assert!(stored.iter().all(|write| write.contains(" scripteds/")), "{stored:?}");
    approve(&world, "web", &hash).await;
    world.gone(CONFIG_MAP, "goes").await;
    comes_to(&world, "web", "Succeeded").await;
    assert_eq!(world.get(CONFIG_MAP, "kept").await.unwrap()["data"]["k"], "3");

    // Drift is put right on approval alone.
    world.edit(CONFIG_MAP, "kept", &json!({"data": {"k": "drifted"}})).await;
    let (hash, _) = awaits(&world, "web", &["data.k \"drifted\" -> \"3\""]).await;
    approve(&world, "web", &hash).await;
    comes_to(&world, "web", "Succeeded").await;

    // So does the deletion of the resource itself: its finalizer goes when the plan is approved.
    world.delete(SCRIPTED, "web").await;
    let (hash, _) = awaits(&world, "web", &["metadata.finalizers removed"]).await;
    looks_again(&host, 2.0).await;
    assert!(world.get(SCRIPTED, "web").await.is_some());
    approve(&world, "web", &hash).await;
    world.gone(SCRIPTED, "web").await;
}

#[tokio::test]
async fn a_host_that_is_killed_amid_an_approved_plan_finishes_it_without_another_approval() {
    let world = world("killed-plan", "mode: plan").await;
    let host = host(&world).await;
    let names: Vec<String> = (0..40).map(|at| format!("child-{at}")).collect();
    let children: Vec<Value> = names.iter().map(|name| config_map(name, "1")).collect();
    perform(&world, "web", json!({"children": children})).await;
    let (hash, plan) = awaits(&world, "web", &["create ConfigMap child-39"]).await;
    assert_eq!(plan.lines().count(), 42, "{plan}");
    approve(&world, "web", &hash).await;
    eventually(DEADLINE, "the first children", || async { Ok(world.list(CONFIG_MAP).await.len() > 3) }).await;
    host.kill_9().unwrap();
    let made = world.list(CONFIG_MAP).await.len();
    eprintln!("killed after {made} of 41 ConfigMaps (one is the namespace's own)");
    host.restart().await.unwrap();
    comes_to(&world, "web", "Succeeded").await;
    for name in &names {
        assert!(world.get(CONFIG_MAP, name).await.is_some(), "{name}");
    }
    // The approval is used up.
    world.delete(CONFIG_MAP, &names[0]).await;
    awaits(&world, "web", &["create ConfigMap child-0"]).await;
    looks_again(&host, 2.0).await;
    assert!(world.get(CONFIG_MAP, &names[0]).await.is_none());
}

#[tokio::test]
async fn a_session_with_kubectl_reads_well() {
    let world = World::granted("kubectl-plan", &[plugin("config-map")]).await;
    let _host = world.host().await;
    world.apply(&crate::support::sample("greeting", "default", &world.namespace)).await;
    let name = world.list(GREETING).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    world.kubectl(&format!("wait --for=condition=Reconciled greeting {name} --timeout=120s")).await;
    world.kubectl(&format!("annotate greeting {name} pilothouse.dev/mode=plan")).await;
    world.kubectl(&format!("delete configmap {name}")).await;
    let command = eventually(DEADLINE, "a command that approves", || async {
        let jsonpath = "-o jsonpath={.status.conditions[?(@.type==\"Reconciled\")].message}";
        let message = world.kubectl(&format!("get greeting {name} {jsonpath}")).await;
        Ok(message.split_once("kubectl ").map(|(_, command)| command.to_owned()))
    })
    .await;
    let yaml = world.kubectl(&format!("get greeting {name} -o yaml")).await;
    assert!(yaml.contains(&format!("create ConfigMap {name}:")), "{yaml}");
    world.kubectl(&command).await;
    world.present(CONFIG_MAP, &name).await;
}
