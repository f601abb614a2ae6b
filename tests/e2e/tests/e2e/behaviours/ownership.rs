//! Ownership and drift: what is ours is put back, what is others' stays, nothing is made twice and nothing is deleted
//! that only bears the name.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pilothouse_e2e::late::LateWatch;
use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::{Value, json};

use super::quiet::{deployment, pod_template};
use crate::{
    scripted::{SCRIPTED, comes_to, config_map, config_maps_only, perform, world},
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, POD, SECRET, SERVICE, STATEFUL_SET, World},
};

const DEPLOYMENT: Kind = Kind("apps/v1", "Deployment", "deployments");
const AUTOSCALER: Kind = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
const CLAIM: Kind = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
const ACCOUNT: Kind = Kind("v1", "ServiceAccount", "serviceaccounts");

/// MC#1177: a user edits a child, of a kind that has a `generation` or none. One event is enough: the resync is ten
/// minutes away.
#[tokio::test(flavor = "multi_thread")]
async fn mc_1177_an_edit_of_a_child_of_any_kind_is_reverted_by_its_event() {
    let world = world("drift", &json!({})).await;
    let _host = world.host().await;
    let metadata = json!({"name": "a", "labels": {"app": "a"}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"});
    let request = json!({"requests": {"storage": "1Gi"}});
    let children = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"user": "app"}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata,
            "automountServiceAccountToken": false}),
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
            "spec": {"maxReplicas": 3, "scaleTargetRef": target}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": request}}),
    ];
    perform(&world, "mc-1177", json!({"children": children})).await;
    comes_to(&world, "mc-1177", "Succeeded").await;
    let edits = [
        (CONFIG_MAP, json!({"data": {"k": "x"}}), "/data/k"),
        (SECRET, json!({"stringData": {"user": "x"}}), "/data/user"),
        (SERVICE, json!({"spec": {"selector": {"app": "x"}}}), "/spec/selector/app"),
        (ACCOUNT, json!({"automountServiceAccountToken": true}), "/automountServiceAccountToken"),
        (AUTOSCALER, json!({"spec": {"maxReplicas": 9}}), "/spec/maxReplicas"),
        (CLAIM, json!({"metadata": {"labels": {"app": "x"}}}), "/metadata/labels/app"),
    ];
    for (kind, edit, path) in edits {
        let right = world.get(kind, "a").await.unwrap().pointer(path).cloned();
        let mark = world.mark().await;
        assert_ne!(world.edit(kind, "a", &edit).await.pointer(path).cloned(), right, "{}", kind.1);
        eventually(DEADLINE, &format!("{} to be as it was", kind.1), || async {
            Ok(world.get(kind, "a").await.unwrap().pointer(path).cloned() == right)
        })
        .await;
        let writes = world.writes_since(mark).await;
        let on_it = writes.iter().filter(|write| write.resource == kind.2 && !write.is_dry_run());
        assert_eq!(on_it.count(), 1, "{}: {writes:?}", kind.1);
    }
}

/// LLMKube#484, jaeger#963: an autoscaler sets the replicas that the plugin leaves out.
#[tokio::test(flavor = "multi_thread")]
async fn llmkube_484_replicas_that_the_plugin_leaves_out_are_never_touched() {
    let world = world("replicas", &json!({})).await;
    let host = world.host().await;
    let script = |image: &str| {
        let mut child = deployment("llm", &json!({"image": image}));
        child["spec"].as_object_mut().unwrap().remove("replicas");
        json!({"children": [child]})
    };
    perform(&world, "llmkube-484", script("one")).await;
    comes_to(&world, "llmkube-484", "Succeeded").await;
    world.kubectl("scale deployment llm --replicas=3").await;
    let replicas = async || world.get(DEPLOYMENT, "llm").await.unwrap()["spec"]["replicas"].clone();
    for image in ["two", "three"] {
        perform(&world, "llmkube-484", script(image)).await;
        comes_to(&world, "llmkube-484", "Succeeded").await;
        let live = world.get(DEPLOYMENT, "llm").await.unwrap();
        assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], image);
        assert_eq!(replicas().await, 3, "after an edit to {image}");
        // The next edit meets a host that remembers nothing.
        host.restart().await.unwrap();
    }
}

/// K8s#99003: fields that a client-side apply once set belong to it for ever, unless they are taken over.
#[tokio::test(flavor = "multi_thread")]
async fn k8s_99003_a_field_of_an_earlier_client_side_apply_goes_when_it_is_left_out() {
    let world = world("takeover", &json!({"controller": config_maps_only()})).await;
    let _host = world.host().await;
    let mut before = config_map("app", "v");
    before["data"]["old"] = json!("v");
    before["metadata"]["labels"] = json!({"pilothouse.dev/managed": "scripted", "old": "v"});
    world.apply(&before.to_string()).await;
    world.edit(CONFIG_MAP, "app", &json!({"data": {"theirs": "stays"}})).await;
    perform(&world, "k8s-99003", json!({"children": [config_map("app", "v")]})).await;
    comes_to(&world, "k8s-99003", "Succeeded").await;
    let after = world.get(CONFIG_MAP, "app").await.unwrap();
    assert_eq!(after["data"], json!({"k": "v", "theirs": "stays"}));
    assert_eq!(after["metadata"]["labels"], json!({"pilothouse.dev/managed": "scripted"}));
    assert_eq!(after["metadata"]["ownerReferences"][0]["name"], "k8s-99003");
}

/// MC#1139, K8s#85840: annotations and requests that grow with the object. What is above the limit is in `quiet`.
#[tokio::test(flavor = "multi_thread")]
async fn mc_1139_objects_up_to_the_size_limit_are_applied_and_edited() {
    const SIZES: [usize; 3] = [(1 << 20) / 10 * 3, (1 << 20) / 10 * 6, (1 << 20) / 100 * 99];
    let world = world("large", &json!({"controller": config_maps_only()})).await;
    let _host = world.host().await;
    for size in SIZES {
        let name = format!("mc-1139-{size}");
        for edited in ["no", "yes"] {
            let mut child = config_map(&name, &format!("$(fill:{size})"));
            child["data"]["edited"] = json!(edited);
            perform(&world, &name, json!({"children": [child]})).await;
            comes_to(&world, &name, "Succeeded").await;
            let made = world.get(CONFIG_MAP, &name).await.unwrap();
            assert_eq!(made["data"]["k"].as_str().map(str::len), Some(size));
            assert_eq!(made["data"]["edited"], edited);
        }
    }
}

/// Changes of a StatefulSet that the API server refuses: each as what to write over the one before it.
fn immutable_changes() -> [(&'static str, Value); 3] {
    let claims = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    }]);
    [
        ("claims", json!({"volumeClaimTemplates": claims})),
        ("policy", json!({"podManagementPolicy": "OrderedReady"})),
        ("selector", json!({"selector": {"matchLabels": {"app": "db", "tier": "new"}}})),
    ]
}

fn stateful_set(name: &str, change: &Value) -> Value {
    let mut template = pod_template("db", &json!({}));
    template["metadata"]["labels"]["tier"] = json!("new");
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "none",
            "selector": {"matchLabels": {"app": "db"}}, "template": template,
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            }]
        }
    });
    let fields = change.as_object().unwrap().clone();
    set["spec"].as_object_mut().unwrap().extend(fields);
    // All three may have pods at the same time.
    let text = set.to_string().replace("\"db\"", &format!("\"{name}\""));
    serde_json::from_str(&text).unwrap()
}

fn script(name: &str, change: &Value, policy: &str) -> Value {
    let apply = json!({"object": stateful_set(name, change), "options": {"onImmutable": policy}});
    json!({"actions": [{"apply": apply}]})
}

/// UIDs of the pods and claims of a StatefulSet by name.
async fn alive(world: &World, name: &str) -> BTreeMap<String, String> {
    let mut all = world.list(POD).await;
    all.extend(world.list(CLAIM).await);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let named =
        all.iter().map(|object| (text(&object["metadata"]["name"]), text(&object["metadata"]["uid"])));
    named.filter(|(object, _)| object.contains(name)).collect()
}

/// opentelemetry-operator#1491, #1492, clickhouse-operator#133: fields of a StatefulSet that may not change. Refused, it
/// is said and asked for no more than the backoff allows; re-created, once, with pods and claims alive.
#[tokio::test(flavor = "multi_thread")]
async fn otel_1491_an_immutable_change_is_refused_aloud_or_carried_out_once() {
    let world = world("immutable", &json!({})).await;
    let _host = world.host().await;
    let mut before = BTreeMap::new();
    for (name, _) in immutable_changes() {
        perform(&world, name, script(name, &json!({}), "refuse")).await;
    }
    for (name, _) in immutable_changes() {
        comes_to(&world, name, "Succeeded").await;
        let grown = eventually(DEADLINE, "two pods with their claims", || async {
            Some(alive(&world, name).await).filter(|alive| alive.len() == 4)
        })
        .await;
        before.insert(name, (world.get(STATEFUL_SET, name).await.unwrap(), grown));
    }

    let mark = world.mark().await;
    for (name, change) in immutable_changes() {
        perform(&world, name, script(name, &change, "refuse")).await;
        let message = comes_to(&world, name, "WriteFailed").await;
        assert!(message.contains("Immutable") && message.contains("spec"), "{message}");
        eventually(DEADLINE, &format!("an event about {name}"), || async {
            let events = world.list(EVENT).await;
            events.iter().any(|event| {
                let note = event["note"].as_str().unwrap_or_default();
                event["regarding"]["name"] == name && note.contains("Immutable")
            })
        })
        .await;
        let live = world.get(STATEFUL_SET, name).await.unwrap();
        assert_eq!(live["metadata"]["uid"], before[name].0["metadata"]["uid"]);
    }
    let writes = world.writes_since(mark).await;
    let asked = writes.iter().filter(|write| write.resource == "statefulsets").count();
    // One apply each, and at most another for an event of the pods' controller.
    assert!(asked <= 6, "{writes:?}");

    let mark = world.mark().await;
    for (name, change) in immutable_changes() {
        perform(&world, name, script(name, &change, "recreate-orphan")).await;
    }
    for (name, _) in immutable_changes() {
        comes_to(&world, name, "Succeeded").await;
        let live = world.get(STATEFUL_SET, name).await.unwrap();
        assert_ne!(live["metadata"]["uid"], before[name].0["metadata"]["uid"], "{name} is not another");
        assert_eq!(alive(&world, name).await, before[name].1, "{name}: a pod or claim was replaced");
    }
    let writes = world.writes_since(mark).await;
    for (name, _) in immutable_changes() {
        let deletions = writes.iter().filter(|write| write.name == name && write.verb == "delete");
        assert_eq!(deletions.count(), 1, "{name}: {writes:?}");
    }
}

/// kuberay#715, tekton#4358: a pass that runs before the child of the pass before it is in the cache makes another one.
/// Here the watch of the children is seconds late, and names are new in each pass, so that no name hides a duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn kuberay_715_a_watch_that_is_late_makes_no_child_twice() {
    const CHILDREN: usize = 5;
    /// The passes that make them follow each other after 100, 200, 400 and 800 ms.
    const LATE: Duration = Duration::from_secs(3);
    let world = world("late", &json!({"controller": config_maps_only()})).await;
    let late = LateWatch::start(world.client.clone(), CONFIG_MAP.2, LATE).await;
    let options = HostOptions { kubeconfig: late.kubeconfig(), ..world.options() };
    let host = Host::start(options).await.unwrap();
    let mark = world.mark().await;
    let child = config_map("$(name)-$(seed)", "v");
    let script = json!({"grow": {"to": CHILDREN, "child": child}, "report": true});
    perform(&world, "kuberay-715", script).await;
    eventually(DEADLINE, "a pass that was shown all children", || async {
        let object = world.get(SCRIPTED, "kuberay-715").await.unwrap_or_default();
        let shown = object["status"]["observed"]["children"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(shown >= CHILDREN, "{shown} were shown");
        Ok(())
    })
    .await;
    let mut events = world.events_since(mark).await;
    events.retain(|event| event.is_write() && event.name.starts_with("kuberay-715-"));
    let names: BTreeSet<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.len(), CHILDREN, "{names:?}");
    drop(host);
}

/// cassandra-operator#402, casskop#316: the volume of a member that was deleted by an old list of members.
#[tokio::test(flavor = "multi_thread")]
async fn cassandra_402_an_old_uid_deletes_nothing_that_has_taken_the_name() {
    let world = world("stale", &json!({})).await;
    let _host = world.host().await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    });
    perform(&world, "cassandra-402", json!({"children": [claim]})).await;
    comes_to(&world, "cassandra-402", "Succeeded").await;
    let old = world.get(CLAIM, "data").await.unwrap()["metadata"]["uid"].clone();
    world.delete(CLAIM, "data").await;
    let live = eventually(DEADLINE, "another claim of the name", || async {
        let found = world.get(CLAIM, "data").await.map(|claim| claim["metadata"]["uid"].clone());
        Ok(found.filter(|uid| *uid != old))
    })
    .await;
    let deletion = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": old});
    perform(&world, "cassandra-402", json!({"actions": [{"delete": deletion}], "report": true})).await;
    comes_to(&world, "cassandra-402", "Succeeded").await;
    let now = world.get(CLAIM, "data").await.unwrap();
    assert_eq!(now["metadata"]["uid"], live);
    assert_eq!(now["metadata"]["deletionTimestamp"], Value::Null, "{now}");
}

/// CR#243: what was deleted and edited while nobody watched is found at the start.
#[tokio::test(flavor = "multi_thread")]
async fn cr_243_what_happened_while_the_host_was_down_is_found_at_its_start() {
    let world = world("down", &json!({"controller": config_maps_only()})).await;
    let host = world.host().await;
    let script = |value: &str| json!({"children": [config_map("$(name)", value)]});
    for name in ["child-goes", "child-edited", "parent-goes", "parent-edited"] {
        perform(&world, name, script("v")).await;
    }
    for name in ["child-goes", "child-edited", "parent-goes", "parent-edited"] {
        comes_to(&world, name, "Succeeded").await;
    }
    assert_eq!(host.terminate().await.unwrap(), "exit status: 0");
    world.delete(CONFIG_MAP, "child-goes").await;
    world.edit(CONFIG_MAP, "child-edited", &json!({"data": {"k": "theirs"}})).await;
    world.delete(SCRIPTED, "parent-goes").await;
    perform(&world, "parent-edited", script("new")).await;
    perform(&world, "parent-comes", script("v")).await;

    host.restart().await.unwrap();
    for (name, value) in
        [("child-goes", "v"), ("child-edited", "v"), ("parent-edited", "new"), ("parent-comes", "v")]
    {
        crate::stamped::shows(&world, name, &[("k", value)]).await;
    }
    world.gone(SCRIPTED, "parent-goes").await;
    world.gone(CONFIG_MAP, "parent-goes").await;
}
