//! Watches and the API server, as a whole host meets them; what one watch does is in `host/cluster/tests`.

use std::time::Duration;

use kube::{
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    core::DynamicObject,
};
use pilothouse_e2e::{crowd::Crowd, rest::passes};
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    scripted::{SCRIPTED, comes_to, config_map, config_maps_only, perform, scripted, world},
    stamped::write,
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, World, condition},
};

const CONTROLLER: &str = "scripted/Scripted.test.pilothouse.dev";
const CRD: Kind = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");

/// What a resource was shown, once it is as it should be.
async fn sees(world: &World, name: &str, related: &[&str]) {
    eventually(DEADLINE, &format!("{name} to see {related:?}"), || async {
        let object = world.get(SCRIPTED, name).await.unwrap_or_default();
        let seen = &object["status"]["observed"]["related"]["mine"];
        anyhow::ensure!(*seen == json!(related), "it sees {seen}");
        Ok(())
    })
    .await;
}

/// Passes so far, when each of these has had its own.
async fn settled(world: &World, host: &Host, names: &[String]) -> f64 {
    for name in names {
        comes_to(world, name, "Succeeded").await;
    }
    passes(host, CONTROLLER).await.unwrap()
}

/// A change of a related object wakes those whose selector matches it, before or after, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_related_object_wakes_those_whom_it_concerns_and_no_other() {
    const OTHERS: usize = 30;
    let mut controller = config_maps_only();
    let resource = json!({"version": "v1", "kind": "ConfigMap", "plural": "configmaps"});
    controller["related"] =
        json!([{"name": "mine", "resource": resource, "selector": "tier=front,app=$(name)"}]);
    let world = world("related", &json!({"controller": controller})).await;
    let host = world.host().await;
    let names: Vec<String> = (0..OTHERS).map(|n| format!("o{n}")).chain(["a".into(), "b".into()]).collect();
    for name in &names {
        perform(&world, name, json!({"report": true})).await;
    }
    let before = settled(&world, &host, &names).await;
    let labelled = |app: Value| {
        let mut related = config_map("related", "v");
        related["metadata"]["labels"] = json!({"tier": "front", "app": app});
        related
    };
    world.create(CONFIG_MAP, &labelled(json!("a"))).await;
    sees(&world, "a", &["ConfigMap/related"]).await;
    // Given to another, taken away, and gone.
    world.edit(CONFIG_MAP, "related", &json!({"metadata": {"labels": {"app": "b"}}})).await;
    sees(&world, "b", &["ConfigMap/related"]).await;
    sees(&world, "a", &[]).await;
    world.edit(CONFIG_MAP, "related", &json!({"metadata": {"labels": {"tier": null}}})).await;
    sees(&world, "b", &[]).await;
    world.edit(CONFIG_MAP, "related", &json!({"metadata": {"labels": {"tier": "front"}}})).await;
    sees(&world, "b", &["ConfigMap/related"]).await;
    world.delete(CONFIG_MAP, "related").await;
    sees(&world, "b", &[]).await;
    // Six states to see. A pass may be cut in two by an event of its own status, and no other resource had any.
    let woken = passes(&host, CONTROLLER).await.unwrap() - before;
    assert!((6.0..=12.0).contains(&woken), "{woken} passes");
}

/// A look-up is answered again when what it asked for comes or goes, and not when the backoff is over.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_looked_up_wakes_who_asked() {
    let world = world("looked-up", &json!({"controller": config_maps_only()})).await;
    write(world.plugins.path(), "scripted.yaml", "backoff: {baseMs: 60000, capMs: 3600000}");
    let host = world.host().await;
    let needs = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "dependency"});
    perform(&world, "needy", json!({"needs": needs, "children": [config_map("made", "v")]})).await;
    perform(&world, "other", json!({"needs": {"apiVersion": "v1", "kind": "ConfigMap", "name": "another"}}))
        .await;
    for name in ["needy", "other"] {
        comes_to(&world, name, "PluginFailed").await;
    }
    world.create(CONFIG_MAP, &config_map("nobodys", "v")).await;
    world.create(CONFIG_MAP, &config_map("dependency", "v")).await;
    let sooner = async {
        comes_to(&world, "needy", "Succeeded").await;
        world.delete(CONFIG_MAP, "dependency").await;
        comes_to(&world, "needy", "PluginFailed").await;
    };
    tokio::time::timeout(Duration::from_secs(45), sooner).await.expect("only the backoff or nothing woke it");
    let other = world.get(SCRIPTED, "other").await.unwrap();
    assert_eq!(condition(&other, "Reconciled")["reason"], "PluginFailed");
    // The primaries, the children, and the metadata of what is looked up, shared by both objects; and the host's Lease.
    let watched = host.metrics().await.unwrap().sum("pilothouse_watches", &[]);
    assert!((watched - 4.0).abs() < 0.5, "{watched} watches");
}

/// kube#774, CR#2591: objects that were stored under an older schema, or under none, do not hide the others.
#[tokio::test(flavor = "multi_thread")]
async fn kube_774_one_object_with_fields_of_the_wrong_type_does_not_stop_a_thousand() {
    const GOOD: usize = 1_000;
    let files = tempfile::tempdir().unwrap();
    let plugin = scripted("1", &json!({"controller": config_maps_only()}));
    let crowd = Crowd::new(&write(files.path(), "scripted.wasm", plugin)).await;
    // Before there was a schema, and a subresource: anything went.
    let lax = json!({"apiVersion": CRD.0, "kind": CRD.1, "metadata": {"name": "scripteds.test.pilothouse.dev"}, "spec": {
        "group": "test.pilothouse.dev", "scope": "Namespaced",
        "names": {"kind": "Scripted", "listKind": "ScriptedList", "plural": "scripteds", "singular": "scripted"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let crds = CRD.cluster_api(&crowd.client);
    crds.create(&PostParams::default(), &serde_json::from_value(lax).unwrap()).await.unwrap();
    let object = |name: &str, spec: Value, status: Value| json!({"apiVersion": SCRIPTED.0, "kind": SCRIPTED.1, "metadata": {"name": name}, "spec": spec, "status": status});
    let served = || async {
        let objects = SCRIPTED.api(&crowd.client, &crowd.namespace);
        Ok(objects.list(&ListParams::default()).await.is_ok())
    };
    eventually(DEADLINE, "the kind to be served", served).await;
    let good = (0..GOOD).map(|n| object(&format!("good-{n}"), json!({"status": {"seen": n}}), Value::Null));
    let bad = [
        object("spec-no-object", json!("a text"), Value::Null),
        object("actions-no-objects", json!({"actions": [7]}), Value::Null),
        object("status-no-object", json!({}), json!("a text")),
        object(
            "conditions-no-list",
            json!({}),
            json!({"conditions": {"Reconciled": true}, "observedGeneration": "one"}),
        ),
    ];
    crowd.create_all(SCRIPTED, good.chain(bad)).await;

    let _host = crowd.host().await;
    let objects = SCRIPTED.api(&crowd.client, &crowd.namespace);
    eventually(DEADLINE, "all that are right to be reconciled", || async {
        let all = objects.list(&ListParams::default()).await?.items;
        let all: Vec<Value> = all.iter().map(|object| serde_json::to_value(object).unwrap()).collect();
        let done = |object: &&Value| {
            condition(object, "Reconciled")["reason"] == "Succeeded" && object["status"]["seen"].is_u64()
        };
        let count = all.iter().filter(done).count();
        anyhow::ensure!(count == GOOD, "{count} are");
        Ok(())
    })
    .await;
    // Each of the others has a condition or an event that says what is wrong, or is right after all.
    let events = EVENT.api(&crowd.client, &crowd.namespace);
    for name in ["spec-no-object", "actions-no-objects", "status-no-object", "conditions-no-list"] {
        eventually(DEADLINE, &format!("a word about {name}"), || async {
            let object = serde_json::to_value(objects.get(name).await?)?;
            let condition = condition(&object, "Reconciled");
            let about = |event: &DynamicObject| event.data["regarding"]["name"] == name;
            let said = events.list(&ListParams::default()).await?.items.iter().any(about);
            anyhow::ensure!(condition.is_object() || said, "nothing is said: {}", object["status"]);
            Ok(())
        })
        .await;
    }
}

/// K8s#74105, CR#2983, kro#1029: the CRD goes while the host runs, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn kro_1029_a_crd_that_goes_and_comes_back_is_served_again_without_a_restart() {
    let files = tempfile::tempdir().unwrap();
    let plugin = scripted("1", &json!({"controller": config_maps_only()}));
    let crowd = Crowd::new(&write(files.path(), "scripted.wasm", plugin)).await;
    let host = crowd.host().await;
    let crds = CRD.cluster_api(&crowd.client);
    let name = "scripteds.test.pilothouse.dev";
    let crd = crds.get(name).await.unwrap();
    let object = |name: &str| {
        let children = json!([config_map(name, "v")]);
        json!({"apiVersion": SCRIPTED.0, "kind": SCRIPTED.1, "metadata": {"name": name}, "spec": {"children": children}})
    };
    crowd.create_all(SCRIPTED, [object("before")]).await;
    crowd.present(CONFIG_MAP, "before").await;
    // Its finalizer would keep the object, and with it the CRD, until the host lets go: it does.
    crds.delete(name, &DeleteParams::default()).await.unwrap();
    eventually(DEADLINE, "the CRD to go", || async { Ok(crds.get_opt(name).await?.is_none()) }).await;
    eventually(DEADLINE, "/readyz to say that the kind is not there", || async {
        let (status, body) = host.get("/readyz").await?;
        anyhow::ensure!(
            status == 503 && body.contains("Scripted.v1.test.pilothouse.dev"),
            "{status}: {body}"
        );
        Ok(())
    })
    .await;
    let process = host.process();
    let mut again = crd.clone();
    again.metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    crds.create(&PostParams::default(), &again).await.unwrap();
    eventually(DEADLINE, "the kind to be served", || async {
        let objects = SCRIPTED.api(&crowd.client, &crowd.namespace);
        Ok(objects.list(&ListParams::default()).await.is_ok())
    })
    .await;
    crowd.create_all(SCRIPTED, [object("after")]).await;
    crowd.present(CONFIG_MAP, "after").await;
    host.ready().await.unwrap();
    assert_eq!(host.process(), process, "the same process");
    let lines = host
        .log()
        .lines()
        .filter(|line| line.contains("not watching") || line.contains("watching again"))
        .count();
    assert!((2..=6).contains(&lines), "{lines} lines about the watch of one kind:\n{}", host.log());
}
