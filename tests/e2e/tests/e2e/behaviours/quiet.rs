//! Quiet after convergence: no write to any object for five resyncs, whatever the API server drops, fills in or
//! normalises; and where there can be no convergence, no more than one attempt in each.
//!
//! All reports share one host, so that they share the waiting.

use std::collections::BTreeMap;

use pilothouse_e2e::rest::{RESYNC, resyncs};
use pilothouse_guests::Scripted;
use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    scripted::{FINALIZER, SCRIPTED, comes_to, config_map, perform, scripted},
    stamped::{put, reconciled, write},
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, SECRET, STATEFUL_SET, World, condition},
};

const ROUNDS: usize = 5;
/// As [`SCRIPTED`], for what cannot converge: counted apart, as such keys keep no round.
const HOPELESS: Kind = Kind("test.pilothouse.dev/v1", "Hopeless", "hopelesss");
/// As [`SCRIPTED`], of a CRD without a status subresource.
const BARE: Kind = Kind("test.pilothouse.dev/v1", "Bare", "bares");
const DEPLOYMENT: Kind = Kind("apps/v1", "Deployment", "deployments");
const INGRESS: Kind = Kind("networking.k8s.io/v1", "Ingress", "ingresses");
const ROLE_BINDING: Kind = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");

/// A pod template with this in its only container.
pub(super) fn pod_template(name: &str, container: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "main"}]}
    });
    let fields = container.as_object().unwrap().clone();
    template["spec"]["containers"][0].as_object_mut().unwrap().extend(fields);
    template
}

/// A Deployment without pods, and this in its only container.
pub(super) fn deployment(name: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": pod_template(name, container)
        }
    })
}

/// MC#281: the server drops an empty `value`. MC#443: it fills in `apiVersion` of a `fieldRef`. openclaw-operator#403:
/// `updateStrategy: {}` and the defaults of probes. java-operator-sdk#2290, K8s#95460, K8s#124605: `stringData`, empty
/// strings, `subjects: []`, `volumeClaimTemplates`.
fn normalised() -> Vec<(&'static str, Kind, Value)> {
    let stateful_set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "openclaw-403"},
        "spec": {
            "replicas": 0, "serviceName": "none", "updateStrategy": {},
            "selector": {"matchLabels": {"app": "openclaw-403"}},
            "template": pod_template("openclaw-403", &json!({
                "ports": [{"containerPort": 80}],
                "readinessProbe": {"httpGet": {"port": 80}}, "livenessProbe": {"tcpSocket": {"port": 80}},
                "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
            })),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
            }]
        }
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "josdk-2290", "annotations": {}},
        "stringData": {"user": "app", "empty": ""}, "data": {"key": "a2V5"}
    });
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "k8s-95460"},
        "spec": {"tls": [], "rules": [{"host": "", "http": {"paths": [{
            "path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "a", "port": {"number": 80, "name": ""}}}
        }]}}]}
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "k8s-124605"},
        "subjects": [], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "nothing"}
    });
    let env = |env: Value| json!({"env": [env]});
    let field_ref = json!({"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    vec![
        ("mc-281", DEPLOYMENT, deployment("mc-281", &env(json!({"name": "EMPTY", "value": ""})))),
        ("mc-443", DEPLOYMENT, deployment("mc-443", &env(field_ref))),
        ("openclaw-403", STATEFUL_SET, stateful_set),
        ("josdk-2290", SECRET, secret),
        ("k8s-95460", INGRESS, ingress),
        ("k8s-124605", ROLE_BINDING, binding),
    ]
}

/// Scripts that can never come to their end, each with the reason and words of the condition.
///
/// K8s#113482: keys of a list that are there twice. MC#1139, K8s#85840: more than the API server stores. CR#675,
/// K8s#65200: a child in another namespace, which cannot have an owner reference.
fn hopeless() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let ports = json!([{"containerPort": 80}, {"containerPort": 80}]);
    let child = |child: Value| json!({"children": [child]});
    let mut elsewhere = config_map("cr-675", "v");
    elsewhere["metadata"]["namespace"] = json!("default");
    let mut cluster_scoped = config_map("k8s-65200", "v");
    cluster_scoped["kind"] = json!("Namespace");
    vec![
        ("k8s-113482-env", child(deployment("k8s-113482", &json!({"env": twice}))), "WriteFailed", "env"),
        (
            "k8s-113482-ports",
            child(deployment("k8s-113482", &json!({"ports": ports}))),
            "WriteFailed",
            "ports",
        ),
        ("mc-1139", child(config_map("mc-1139", "$(fill:1060000)")), "WriteFailed", "TooLarge"),
        ("cr-675", child(elsewhere), "OutcomeRefused", "default"),
        ("k8s-65200", child(cluster_scoped), "OutcomeRefused", "Namespace"),
    ]
}

async fn start() -> (World, Host) {
    let files = tempfile::tempdir().unwrap();
    let bare = Scripted {
        name: "bare",
        kind: BARE.1,
        version: "1",
        manifest: json!({"statusSubresource": false, "controller": {"finalizer": null, "children": []}}),
    };
    let hopeless = Scripted { name: "hopeless", kind: HOPELESS.1, version: "1", manifest: json!({}) };
    let (group, plural) = ("rbac.authorization.k8s.io", ROLE_BINDING.2);
    let binding = json!({"group": group, "version": "v1", "kind": ROLE_BINDING.1, "plural": plural});
    write(files.path(), "scripted.yaml", format!("grants: [{{kind: {}.{group}}}]", ROLE_BINDING.1));
    let plugins = [
        write(files.path(), "scripted.wasm", scripted("1", &json!({"alsoOwns": [{"resource": binding}]}))),
        write(files.path(), "hopeless.wasm", hopeless.component()),
        write(files.path(), "bare.wasm", bare.component()),
    ];
    let world = World::granted("quiet", &plugins).await;
    // What the RoleBinding binds. It allows nothing, as nobody may bind more than he has.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "nothing"}, "rules": []
    });
    world.apply(&role.to_string()).await;
    let host = Host::start(HostOptions { resync: Some(RESYNC), ..world.options() }).await.unwrap();
    (world, host)
}

fn count(keys: usize) -> f64 {
    f64::from(u32::try_from(keys).unwrap())
}

/// Writes by the name of their object.
fn by_name(writes: Vec<AuditEvent>) -> BTreeMap<String, Vec<AuditEvent>> {
    let mut all: BTreeMap<String, Vec<AuditEvent>> = BTreeMap::new();
    for write in writes {
        all.entry(write.name.clone()).or_default().push(write);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn five_resyncs_after_convergence_write_nothing_and_what_cannot_converge_is_no_storm() {
    let (world, host) = start().await;
    let (normalised, hopeless) = (normalised(), hopeless());
    let begun = world.mark().await;
    for (name, _, child) in &normalised {
        perform(&world, name, json!({"children": [child]})).await;
    }
    for (name, script, ..) in &hopeless {
        put(&world, HOPELESS, name, script.clone()).await;
    }
    // strimzi#13079, knative#1181: a fresh timestamp in each pass, where the host keeps the old one …
    let ready = json!({"type": "Ready", "status": "True", "reason": "Up", "message": "up", "lastTransitionTime": "$(now)"});
    perform(&world, "strimzi-13079", json!({"status": {"conditions": [ready]}})).await;
    // … and where it cannot know better.
    perform(&world, "knative-1181", json!({"status": {"checkedAt": "$(now)"}})).await;
    // GMC#171
    put(&world, BARE, "gmc-171", json!({"status": {"ready": true}})).await;

    for (name, _, _) in &normalised {
        comes_to(&world, name, "Succeeded").await;
    }
    for (name, _, reason, words) in &hopeless {
        let condition = reconciled(&world, HOPELESS, name, reason).await;
        assert!(condition["message"].as_str().unwrap().contains(words), "{name}: {condition}");
    }
    comes_to(&world, "strimzi-13079", "Succeeded").await;
    comes_to(&world, "knative-1181", "Succeeded").await;
    let event = eventually(DEADLINE, "an event about the missing subresource", || async {
        let events = world.list(EVENT).await;
        Ok(events.into_iter().find(|event| event["regarding"]["name"] == "gmc-171"))
    })
    .await;
    let note = event["note"].as_str().unwrap_or_default();
    assert!(note.contains("bares.test.pilothouse.dev") && note.contains("subresources"), "{event}");

    let keys = normalised.len() + 2;
    // The controllers of Kubernetes write their statuses, and each wakes a pass.
    resyncs(&host, &[("scripted/Scripted.test.pilothouse.dev", keys)], 1).await;
    let controllers = [
        ("scripted/Scripted.test.pilothouse.dev", keys),
        ("hopeless/Hopeless.test.pilothouse.dev", hopeless.len()),
        ("bare/Bare.test.pilothouse.dev", 1),
    ];
    let all_passes = async |host: &Host| {
        let metrics = host.metrics().await.unwrap();
        controllers.map(|(controller, _)| {
            metrics.sum("controller_runtime_reconcile_total", &[("controller", controller)])
        })
    };
    let snapshot = async || {
        let mut versions = BTreeMap::new();
        for (name, kind, _) in &normalised {
            let child = world.get(*kind, name).await.unwrap();
            let primary = world.get(SCRIPTED, name).await.unwrap();
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            versions.insert(*name, (version(&child), version(&primary)));
        }
        versions
    };
    let versions = snapshot().await;
    let since = condition(&world.get(SCRIPTED, "strimzi-13079").await.unwrap(), "Ready");
    let (mark, before) = (world.mark().await, all_passes(&host).await);
    resyncs(&host, &[("scripted/Scripted.test.pilothouse.dev", keys)], ROUNDS).await;
    let after = all_passes(&host).await;
    // Nothing goes round: what cannot converge is tried once in a resync, at most.
    for ((before, after), (controller, keys)) in before.into_iter().zip(after).zip(controllers) {
        let (made, most) = (after - before, count((ROUNDS + 2) * keys));
        assert!(made <= most, "{made} passes of {controller}, {most} would be right");
    }

    assert_eq!(snapshot().await, versions, "a resourceVersion has climbed");
    let mut writes = world.writes_since(mark).await;
    writes.retain(|write| write.resource != "events");
    let mut writes = by_name(writes);
    for (name, _, _) in &normalised {
        assert_eq!(writes.remove(*name).unwrap_or_default(), [], "{name}");
    }
    assert_eq!(writes.remove("strimzi-13079").unwrap_or_default(), [], "a timestamp is no change");
    let now = condition(&world.get(SCRIPTED, "strimzi-13079").await.unwrap(), "Ready");
    assert_eq!(now["lastTransitionTime"], since["lastTransitionTime"]);
    // One for each resync: the write itself wakes nothing.
    let checked = writes.remove("knative-1181").unwrap_or_default().len();
    assert!((1..=ROUNDS + 2).contains(&checked), "{checked} writes of a status that is new in each pass");
    // From the first attempt on, which a backoff that begins with milliseconds would follow with a dozen. Two of the
    // scripts share their child.
    let mut attempts = world.writes_since(begun).await;
    attempts.retain(|write| write.resource != "events");
    let attempts = by_name(attempts);
    let hopeless_names = hopeless.iter().map(|(name, ..)| *name).chain(["k8s-113482", "gmc-171"]);
    for name in hopeless_names {
        writes.remove(name);
        let made = attempts.get(name).map_or(0, Vec::len);
        assert!(made <= 2 * (ROUNDS + 2), "{name}: {made} attempts");
    }
    assert_eq!(writes, BTreeMap::new(), "of objects that no test asked for");
    assert_eq!(world.get(CONFIG_MAP, "mc-1139").await, None);

    // A host that has just started remembers nothing, and writes nothing either.
    let mark = world.mark().await;
    host.restart().await.unwrap();
    resyncs(&host, &[("scripted/Scripted.test.pilothouse.dev", keys)], 1).await;
    let mut writes = world.writes_since(mark).await;
    writes.retain(|write| !write.is_dry_run() && write.resource != "events");
    let writes = by_name(writes);
    for (name, _, _) in &normalised {
        assert_eq!(writes.get(*name), None, "{name} after a restart");
    }
    assert_eq!(world.get(SCRIPTED, "mc-281").await.unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
}
