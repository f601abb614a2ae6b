//! Load, fairness and failure. Plugins that loop, allocate and trap (GMC#54) are in `hostile`, leaders that lose the API
//! server (cilium#42920, kyverno#14984) in the tests of leader election, and the large sizes in `tests/faults`.

use pilothouse_e2e::{crowd::Crowd, foreign::memory_does_not_depend_on_foreign_objects, rest::passes};
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    scripted::{SCRIPTED, comes_to, config_map, config_maps_only, perform, scripted, world},
    stamped::{count, counts, shows, write},
    support::{CONFIG_MAP, DEADLINE, EVENT, World},
};

const CONTROLLER: &str = "scripted/Scripted.test.pilothouse.dev";
const FAILURES: &str = "pilothouse_pass_failures_total";

async fn configured(prefix: &str, controller: Value, settings: &str) -> (World, Host) {
    let world = world(prefix, &json!({"controller": controller})).await;
    write(world.plugins.path(), "scripted.yaml", settings);
    let host = world.host().await;
    (world, host)
}

/// A webhook that answers nobody, in front of all ConfigMaps of the test's namespace.
async fn break_config_maps(world: &World) {
    let namespace = &world.namespace;
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    });
    let webhook = json!({
        "name": "away.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
        "failurePolicy": "Fail", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace}, "webhooks": [webhook],
    });
    world.apply(&configuration.to_string()).await;
    // The API server learns of it by a watch of its own.
    eventually(DEADLINE, "the webhook to be asked", || async {
        let probe = config_map("probe", "v").to_string();
        !world.try_kubectl("create --dry-run=server -f -", &probe).await.status.success()
    })
    .await;
}

/// baremetal-operator#3163: what the writes of an object depend on is away for long and comes back, and nothing tells
/// of it. Retries have not become so rare that the object waits: without the cap the eighteenth would come after minutes.
#[tokio::test(flavor = "multi_thread")]
async fn baremetal_3163_a_dependency_that_comes_back_is_noticed_within_the_cap() {
    let (world, host) = configured("away", config_maps_only(), "backoff: {baseMs: 5, capMs: 500}").await;
    break_config_maps(&world).await;
    perform(&world, "needy", json!({"children": [config_map("made", "v")]})).await;
    let failed = [("controller", CONTROLLER), ("reason", "WriteFailed")];
    counts(&host, FAILURES, &failed, 18).await;
    let message = comes_to(&world, "needy", "WriteFailed").await;
    assert!(message.contains("away.example.com"), "{message}");
    world.kubectl(&format!("delete validatingwebhookconfiguration {}", world.namespace)).await;
    comes_to(&world, "needy", "Succeeded").await;
    world.present(CONFIG_MAP, "made").await;
}

/// baremetal-operator#3163: the user edits what waits for its backoff. It is looked at again before anything that waits.
#[tokio::test(flavor = "multi_thread")]
async fn baremetal_3163_an_edit_during_a_long_backoff_is_tried_at_once() {
    let settings = "backoff: {baseMs: 60000, capMs: 3600000}";
    let (world, host) = configured("backoff", config_maps_only(), settings).await;
    for name in ["edited", "left-alone"] {
        perform(&world, name, json!({"failure": {"retry": "it is away"}})).await;
    }
    for name in ["edited", "left-alone"] {
        comes_to(&world, name, "PluginFailed").await;
    }
    perform(&world, "edited", json!({"children": [config_map("made", "v")]})).await;
    comes_to(&world, "edited", "Succeeded").await;
    assert_eq!(count(&host, FAILURES, &[("controller", CONTROLLER)]).await, 2, "the backoff was over");
}

/// kube#1322, #1167: more objects than passes at the same time, and some are gone before their pass.
#[tokio::test(flavor = "multi_thread")]
async fn kube_1322_at_the_limit_no_object_is_lost_and_none_that_is_gone_comes_back() {
    const OBJECTS: usize = 60;
    let mut controller = config_maps_only();
    controller["finalizer"] = Value::Null;
    let (world, host) = configured("limit", controller, "concurrency: 1").await;
    let name = |at: usize| format!("o-{at}");
    // A pass takes a few milliseconds, so that they queue up.
    let script = |text: &str| json!({"work": 5_000_000, "children": [config_map("$(name)", text)]});
    let mut most = 0.0_f64;
    for at in 0..OBJECTS {
        perform(&world, &name(at), script("first")).await;
        if at % 2 == 1 {
            world.delete(SCRIPTED, &name(at)).await;
        }
        most = most.max(active(&host).await);
    }
    for at in (0..OBJECTS).step_by(2) {
        perform(&world, &name(at), script("last")).await;
        most = most.max(active(&host).await);
    }
    for at in (0..OBJECTS).step_by(2) {
        shows(&world, &name(at), &[("k", "last")]).await;
        comes_to(&world, &name(at), "Succeeded").await;
    }
    assert!(most <= 1.0, "{most} passes at the same time");
    let nothing_waits = || async {
        let depth = host.metrics().await?.sum("workqueue_depth", &[("controller", CONTROLLER)]);
        anyhow::ensure!(depth == 0.0 && active(&host).await == 0.0, "{depth} keys wait");
        Ok(())
    };
    eventually(DEADLINE, "all keys to be served", nothing_waits).await;
    // A pass that its object left in the middle fails, and has no successor.
    let failed = count(&host, FAILURES, &[("controller", CONTROLLER)]).await;
    assert!(failed <= OBJECTS as u64 / 2, "{failed} passes have failed");
}

async fn active(host: &Host) -> f64 {
    let metrics = host.metrics().await.unwrap();
    metrics.sum("controller_runtime_active_workers", &[("controller", CONTROLLER)])
}

/// MC#195: the same event in each pass, and another one in each pass.
#[tokio::test(flavor = "multi_thread")]
async fn mc_195_events_of_each_pass_are_counted_and_cut() {
    const PASSES: f64 = 60.0;
    /// client-go's: so many of one object at once, then one in five minutes.
    const BUCKET: usize = 25;
    let (world, host) = configured("chatter", config_maps_only(), "").await;
    let event = |message: &str| {
        json!({"actions": [{"recordEvent": {"severity": "Warning", "reason": "Chatter", "message": message}}],
            "requeueAfterMs": 100})
    };
    let mark = world.mark().await;
    perform(&world, "same", event("the same")).await;
    perform(&world, "another", event("another: $(seed)")).await;
    eventually(DEADLINE, "enough passes", || async { Ok(passes(&host, CONTROLLER).await? >= 2.0 * PASSES) })
        .await;
    let about = |events: &[Value], name: &str| {
        events.iter().filter(|event| event["regarding"]["name"] == name).count()
    };
    let events = world.list(EVENT).await;
    assert_eq!(about(&events, "same"), 1, "{events:?}");
    assert!(about(&events, "another") <= BUCKET, "{events:?}");
    let mut writes = world.writes_since(mark).await;
    writes.retain(|write| write.resource == "events");
    // Of the same ones the first and its series.
    assert!(writes.len() <= 2 + BUCKET, "{} writes", writes.len());
}

/// CR#2374, datadog-operator#2816: a host starts beside 6,000 objects, and then comes a new one. MC#417, GMC#190: they
/// are due all at once, and no client holds them back to twenty requests in a second, which would take five minutes.
#[tokio::test(flavor = "multi_thread")]
async fn cr_2374_a_new_object_does_not_wait_behind_six_thousand() {
    const OBJECTS: usize = 6_000;
    /// Passes that may begin between the creation of the new object and its own, on a machine whose processors are
    /// busy. In the order of the queue it would be thousands.
    const AHEAD_MAX: f64 = 1_500.0;
    let files = tempfile::tempdir().unwrap();
    let mut controller = config_maps_only();
    controller["finalizer"] = Value::Null;
    let plugin = write(files.path(), "scripted.wasm", scripted("1", &json!({"controller": controller})));
    let crowd = Crowd::new(&plugin).await;
    // For the CRD.
    crowd.host().await.terminate().await.unwrap();
    let object = |name: &str, spec: Value| json!({"apiVersion": SCRIPTED.0, "kind": SCRIPTED.1, "metadata": {"name": name}, "spec": spec});
    crowd.create_all(SCRIPTED, (0..OBJECTS).map(|at| object(&format!("old-{at}"), json!({})))).await;

    let host = crowd.host().await;
    let done = async |at_least: f64| {
        let look = || async {
            let now = passes(&host, CONTROLLER).await?;
            Ok((now >= at_least).then_some(now))
        };
        eventually(DEADLINE, &format!("{at_least} passes"), look).await
    };
    let before = done(1.0).await;
    let script = json!({"children": [config_map("new", "v")]});
    crowd.create_all(SCRIPTED, [object("new", script)]).await;
    crowd.present(CONFIG_MAP, "new").await;
    let ahead = passes(&host, CONTROLLER).await.unwrap() - before;
    println!("{ahead} passes ahead of a new object, {before} before it came");
    assert!(ahead < AHEAD_MAX, "{ahead} passes were ahead of the new object");
    done(6_001.0).await;
}

/// prometheus-operator#5410, bpfman-operator#56, in small; `make test-faults` has the sizes of the reports.
#[tokio::test(flavor = "multi_thread")]
async fn prometheus_operator_5410_memory_does_not_depend_on_objects_of_others() {
    let files = tempfile::tempdir().unwrap();
    let plugin = write(files.path(), "scripted.wasm", scripted("1", &json!({})));
    memory_does_not_depend_on_foreign_objects(&plugin, SCRIPTED, 1_000, 40).await;
}
