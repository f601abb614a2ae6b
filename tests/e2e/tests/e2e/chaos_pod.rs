//! The plugin `chaos-pod`: pods of a Deployment go and come back, each run once.

use std::{collections::BTreeSet, ffi::OsStr};

use kube::api::ListParams;
use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    lax::applied_without_rules,
    stamped::reconciled,
    support::{CHAOS_POD, DEADLINE, DEPLOYMENT, Mark, POD, World, condition, pilothouse, plugin, run},
};

const NAME: &str = "monkey";

fn monkey(spec: Value) -> String {
    let mut object = json!({"apiVersion": CHAOS_POD.0, "kind": CHAOS_POD.1, "metadata": {"name": NAME}});
    object["spec"] = json!({"prefix": "web-", "interval": "5s"});
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object.to_string()
}

/// A namespace with a Deployment of three pods, one of which is protected, and one pod of another name.
async fn world(prefix: &str) -> (World, Value) {
    let world = World::granted(prefix, &[plugin("chaos-pod")]).await;
    world.kubectl("create deployment web --image=nginx --replicas=3").await;
    world.kubectl("run other --image=nginx").await;
    world.kubectl("rollout status deployment/web --timeout=120s").await;
    let pods = world.list(POD).await;
    let kept = pods.into_iter().find(|pod| pod["metadata"]["name"] != "other").unwrap();
    let name = kept["metadata"]["name"].as_str().unwrap();
    world.kubectl(&format!("label pod {name} spare=yes")).await;
    (world, kept)
}

/// UIDs of the pods in these runs.
fn victims(runs: &Value) -> Vec<&str> {
    let runs = runs.as_array().into_iter().flatten();
    let pods = runs.flat_map(|run| run["pods"].as_array().into_iter().flatten());
    pods.map(|pod| pod["uid"].as_str().unwrap()).collect()
}

/// Waits until so many runs have deleted something.
async fn runs(world: &World, count: usize) -> Value {
    eventually(DEADLINE, &format!("{count} runs"), || async {
        let status = world.get(CHAOS_POD, NAME).await.unwrap()["status"].clone();
        let done = status["history"].as_array().into_iter().flatten();
        let done = done.filter(|run| run["pods"] != json!([])).count();
        anyhow::ensure!(done >= count, "it is {status}");
        Ok(Some(status))
    })
    .await
}

/// Deletions of pods by the host that succeeded.
async fn deletions(world: &World, mark: Mark) -> Vec<AuditEvent> {
    let mut writes = world.writes_since(mark).await;
    writes.retain(|event| event.resource == "pods" && event.verb == "delete" && event.code < 300);
    writes
}

async fn stops(world: &World) -> Value {
    world.edit(CHAOS_POD, NAME, &json!({"spec": {"paused": true}})).await;
    eventually(DEADLINE, "it to be paused", || async {
        let object = world.get(CHAOS_POD, NAME).await.unwrap();
        let ready = condition(&object, "Ready");
        anyhow::ensure!(
            ready["reason"] == "Paused" && object["status"]["running"].is_null(),
            "it is {object}"
        );
        Ok(Some(object["status"].clone()))
    })
    .await
}

#[tokio::test]
async fn pods_of_a_deployment_are_deleted_now_and_then_and_come_back() {
    let (world, kept) = world("chaos").await;
    let _host = world.host().await;
    let mark = world.mark().await;
    world.apply(&monkey(json!({"protectedLabel": "spare", "maxPods": 2}))).await;
    world.kubectl("wait --for=condition=Ready --timeout=120s chaospod/monkey").await;
    runs(&world, 2).await;
    let status = stops(&world).await;
    world.kubectl("rollout status deployment/web --timeout=120s").await;

    let deleted = victims(&status["history"]);
    assert!(deleted.len() >= 3, "{status}");
    assert_eq!(deleted.iter().collect::<BTreeSet<_>>().len(), deleted.len(), "nobody twice: {status}");
    assert_eq!(deletions(&world, mark).await.len(), deleted.len(), "{status}");
    let pods = world.list(POD).await;
    let there: Vec<&str> = pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap()).collect();
    assert!(deleted.iter().all(|uid| !there.contains(uid)), "{status}");
    assert!(there.contains(&kept["metadata"]["uid"].as_str().unwrap()), "the protected one");
    assert!(pods.iter().any(|pod| pod["metadata"]["name"] == "other"));
    assert_eq!(there.len(), 4);

    let table = world.kubectl("get chaospods").await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "PREFIX", "TIMER", "READY", "LAST", "NEXT", "AGE"]);
    assert_eq!(rows[1][..5], [NAME, "web-", "every", "5s", "Paused"]);
    let events = world.kubectl("events --for chaospod/monkey").await;
    assert!(events.contains("deleted web-"), "{events}");

    world.kubectl("delete chaospod monkey --timeout=120s").await;
    world.gone(CHAOS_POD, NAME).await;
    assert!(world.get(DEPLOYMENT, "web").await.is_some());
}

/// The host ends at whatever instant it may: what is deleted is what was chosen, and that is no more than may be.
#[tokio::test]
async fn a_host_that_is_killed_again_and_again_deletes_nobody_for_nothing() {
    let (world, _) = world("chaos-kill").await;
    let host = world.host().await;
    let mark = world.mark().await;
    world.apply(&monkey(json!({}))).await;
    for count in 1..=3 {
        // A run may be anywhere between its choice and its record.
        eventually(DEADLINE, "a choice", || async {
            let status = world.get(CHAOS_POD, NAME).await.unwrap()["status"].clone();
            let begun = victims(&status["history"]).len() + victims(&json!([status["running"]])).len();
            Ok(begun >= count)
        })
        .await;
        host.kill_9().unwrap();
        host.restart().await.unwrap();
    }
    runs(&world, 3).await;
    let status = stops(&world).await;
    let recorded: BTreeSet<&str> = victims(&status["history"]).into_iter().collect();
    let runs = status["history"].as_array().unwrap();
    assert!(runs.len() < 10, "some are not recorded any more");
    assert!(runs.iter().all(|run| run["pods"].as_array().unwrap().len() <= 1), "{status}");
    assert_eq!(recorded.len(), deletions(&world, mark).await.len(), "{status}");
    let times: BTreeSet<&str> = runs.iter().map(|run| run["time"].as_str().unwrap()).collect();
    assert_eq!(times.len(), runs.len(), "two runs at one time: {status}");
}

#[tokio::test]
async fn a_dry_run_records_and_deletes_nobody() {
    let (world, _) = world("chaos-dry").await;
    let _host = world.host().await;
    let mark = world.mark().await;
    world.apply(&monkey(json!({"dryRun": true, "maxPods": 9}))).await;
    let status = runs(&world, 1).await;
    assert_eq!(status["history"][0]["pods"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(deletions(&world, mark).await.len(), 0);
}

/// Without a grant the question for namespaces is refused, by name. With one, pods of the namespaces that are selected
/// go, and no others.
#[tokio::test]
async fn other_namespaces_take_a_grant() {
    let (world, _) = world("chaos-grant").await;
    let other = world.plane.namespace("chaos-other").await.unwrap();
    // The rights, which a grant is not; those for its Leases the host has.
    let account = format!("{0}/{0}", world.namespace);
    let wasm = plugin("chaos-pod");
    let flags = ["rbac", "--namespace", &other, "--service-account", &account, "--role", "chaos-other"];
    let flags = flags.into_iter().chain(["--leases", "off"]);
    let rights = run(&pilothouse(), flags.map(OsStr::new).chain([wasm.as_os_str()])).await;
    world.kubectl(&format!("label namespace {other} chaos={other}")).await;
    let output = world.try_kubectl(&format!("-n {other} apply --server-side -f -"), &rights).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.kubectl(&format!("-n {other} run web-far --image=nginx")).await;
    world.kubectl(&format!("-n {other} run other --image=nginx")).await;

    let namespaces = vec![world.namespace.clone(), other.clone()];
    let _host = Host::start(HostOptions { namespaces, ..world.options() }).await.unwrap();
    let mark = world.mark().await;
    world.apply(&monkey(json!({"maxPods": 9, "namespaceSelector": {"matchLabels": {"chaos": other}}}))).await;
    let said = reconciled(&world, CHAOS_POD, NAME, "OutcomeRefused").await;
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("look-up") && message.contains("Namespace.v1 is cluster-scoped"), "{said}");
    assert!(message.contains("`grants` in the plugin's settings"), "{said}");

    let grants = json!({"grants": [{"kind": "Namespace"}, {"kind": "Pod", "namespaces": [other]}]});
    std::fs::write(world.plugins.path().join("chaos-pod.yaml"), grants.to_string()).unwrap();
    let status = runs(&world, 1).await;
    let pods = status["history"].as_array().unwrap().iter().flat_map(|run| run["pods"].as_array().unwrap());
    let taken: Vec<_> = pods.map(|pod| (pod["namespace"].clone(), pod["name"].clone())).collect();
    assert_eq!(taken, [(json!(other), json!("web-far"))]);
    let left = POD.api(&world.client, &other).list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left.items.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    assert_eq!(left, ["other"]);
    assert_eq!(deletions(&world, mark).await, [], "none of its own");
}

/// First by the schema; then, where the schema has no rules, by the pass. One test, as it takes the rules away.
#[tokio::test]
async fn what_is_wrong_is_refused_at_each_level_by_field() {
    let (world, _) = world("chaos-invalid").await;
    let _host = world.host().await;
    for (change, words) in [
        (json!({"prefix": ""}), "spec.prefix: Invalid value"),
        (json!({"prefix": null}), "spec.prefix: Required value"),
        (json!({"interval": null}), "set exactly one of interval and schedule"),
        (json!({"schedule": "* * * * *"}), "set exactly one of interval and schedule"),
        (json!({"interval": "4s"}), "use 5s or more"),
        (json!({"interval": "soon"}), "spec.interval: Invalid value"),
        (json!({"maxPods": 0}), "spec.maxPods: Invalid value"),
        (json!({"protectedLabel": "a==b"}), "spec.protectedLabel: Invalid value"),
    ] {
        // A rule that another test has just brought back may be a moment away.
        eventually(DEADLINE, &format!("{change} to be refused"), || async {
            let output = world.try_kubectl("apply -f -", &monkey(change.clone())).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                world.delete(CHAOS_POD, NAME).await;
            }
            anyhow::ensure!(!output.status.success() && said.contains(words), "{said}");
            Ok(())
        })
        .await;
    }
    // What a schema cannot say is said by the pass.
    world.apply(&monkey(json!({"interval": null, "schedule": "61 * * * *"}))).await;
    let said = reconciled(&world, CHAOS_POD, NAME, "InvalidResource").await;
    assert!(
        said["message"].as_str().unwrap().starts_with("spec.schedule: minute: `61` is not of 0 to 59"),
        "{said}"
    );
    let ready = condition(&world.get(CHAOS_POD, NAME).await.unwrap(), "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("InvalidSpec")));
    world.kubectl("delete chaospod monkey --timeout=120s").await;

    for (change, words) in [
        (json!({"prefix": ""}), "spec.prefix: is empty"),
        (json!({"interval": "1s"}), "spec.interval: use hours"),
        (json!({"schedule": "* * * * *"}), "spec: set exactly one"),
    ] {
        applied_without_rules(&world, "chaos-pod", &monkey(change)).await;
        let said = reconciled(&world, CHAOS_POD, NAME, "InvalidResource").await;
        assert!(said["message"].as_str().unwrap().starts_with(words), "{said}");
        assert_eq!(world.get(CHAOS_POD, NAME).await.unwrap()["status"]["nextTime"], Value::Null);
        world.kubectl("delete chaospod monkey --timeout=120s").await;
    }
    assert_eq!(world.list(POD).await.len(), 4);
}
