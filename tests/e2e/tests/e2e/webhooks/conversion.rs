//! Objects in another version than the one that is stored.

use pilothouse_e2e::webhooks::free_port;
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use super::host;
use crate::{
    stamped::{serves, write},
    support::{CONFIG_MAP, DEADLINE, Kind, World, plugin, sample},
};

const V1: Kind = Kind("example.com/v1", "Website", "websites");
const V1ALPHA1: Kind = Kind("example.com/v1alpha1", "Website", "websites");
const DEFINITION: Kind =
    Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");

/// One test, as the definition is everybody's.
#[tokio::test]
async fn both_versions_show_the_same_object_and_lose_nothing() {
    let world = World::granted("website", &[plugin("website")]).await;
    let first = host(&world).await;

    world.apply(&sample("website", "default", &world.namespace)).await;
    let new = world.ready(V1, "shop").await;
    assert_eq!(new["spec"], json!({"host": "shop.example.com", "port": 8443, "title": "shop"}));
    let map = world.get(CONFIG_MAP, "shop").await.unwrap();
    assert_eq!(map["data"]["url"], "https://shop.example.com:8443/");

    world.edit(V1, "shop", &json!({"spec": {"path": "/spring", "title": "Spring"}})).await;
    let old = world.get(V1ALPHA1, "shop").await.unwrap();
    assert_eq!(old["spec"], json!({"address": "shop.example.com:8443"}));
    assert_eq!(
        old["metadata"]["annotations"]["example.com/website-v1"],
        r#"{"path":"/spring","title":"Spring"}"#
    );
    // Who knows the old version only, changes it and keeps what he does not know.
    world.edit(V1ALPHA1, "shop", &json!({"spec": {"address": "www.example.com"}})).await;
    let new = world.get(V1, "shop").await.unwrap();
    assert_eq!(new["spec"], json!({"host": "www.example.com", "path": "/spring", "title": "Spring"}));
    assert!(new["metadata"]["annotations"].get("example.com/website-v1").is_none(), "{new}");
    // Checks of the new version hold for the old one.
    let mut wrong = json!({"apiVersion": V1ALPHA1.0, "kind": "Website", "metadata": {"name": "wrong"},
                           "spec": {"address": "a.invalid"}});
    let (accepted, said) = world.try_apply(&wrong).await;
    assert!(!accepted && said.contains("spec.host: Invalid value: \"a.invalid\""), "{said}");
    wrong["spec"]["address"] = json!("a:99999");
    let (accepted, said) = world.try_apply(&wrong).await;
    assert!(!accepted && said.contains("spec.address: `99999` is no port"), "{said}");

    // Another host has another address: the definition follows.
    drop(first);
    let second = host(&world).await;
    eventually(DEADLINE, "the other host to convert", || async {
        let shown = V1ALPHA1.api(&world.client, &world.namespace).get("shop").await?;
        anyhow::ensure!(shown.data["spec"]["address"] == "www.example.com");
        Ok(())
    })
    .await;

    // Without the plugin, objects of the version that is not stored cannot be shown, and are not shown wrongly.
    std::fs::remove_file(world.plugins.path().join("website.wasm")).unwrap();
    serves(&second, &[]).await;
    let output = world.try_kubectl("get websites.v1alpha1.example.com shop", "").await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("plugin `website` is not loaded"), "{said}");
    assert!(world.get(V1, "shop").await.is_some());
    let definition = world.get_cluster(DEFINITION, "websites.example.com").await.unwrap();
    assert_eq!(definition["spec"]["conversion"]["strategy"], "Webhook");

    // A host without webhooks does not load it, and says why.
    write(world.plugins.path(), "website.wasm", std::fs::read(plugin("website")).unwrap());
    serves(&second, &[("website", env!("CARGO_PKG_VERSION"))]).await;
    assert_eq!(second.terminate().await.unwrap(), "exit status: 0");
    let deaf = Host::start(world.options()).await.unwrap();
    crate::stamped::logs(&deaf, &["website.wasm", "NoWebhooks", "--webhook-listen"]).await;
}

const VERSIONED: [Kind; 2] = [
    Kind("test.pilothouse.dev/v1", "Versioned", "versioneds"),
    Kind("test.pilothouse.dev/v2", "Versioned", "versioneds"),
];

#[tokio::test]
async fn a_plugin_that_converts_wrongly_is_an_error_that_says_so() {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties":
        {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema, "subresources": {"status": {}}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "versioneds.test.pilothouse.dev"},
        "spec": {"group": "test.pilothouse.dev", "scope": "Namespaced",
                 "names": {"kind": "Versioned", "plural": "versioneds"},
                 "versions": [version("v1", true), version("v2", false)]},
    });
    let controller = json!({"children": [], "related": [], "finalizer": null});
    let manifest = json!({"crds": [crd], "controller": controller});
    let files = tempfile::tempdir().unwrap();
    let scripted =
        pilothouse_guests::Scripted { name: "versioned", kind: "Versioned", version: "1", manifest };
    let path = write(files.path(), "versioned.wasm", scripted.component());
    let world = World::granted("converts", &[path]).await;
    let port = free_port();
    let _host = Host::start(world.guarding(port, port)).await.unwrap();

    let put = |name: &str, conversion: Value| {
        let object = json!({"apiVersion": VERSIONED[0].0, "kind": "Versioned", "metadata": {"name": name},
                            "spec": {"conversion": conversion}});
        let world = &world;
        async move { world.server_apply(VERSIONED[0], &object).await.unwrap() }
    };
    put("right", json!({"set": {"metadata": {"labels": {"a": "b"}}}})).await;
    eventually(DEADLINE, "a converted object", || async {
        let shown = VERSIONED[1].api(&world.client, &world.namespace).get("right").await?;
        anyhow::ensure!(shown.metadata.labels.is_some_and(|labels| labels["a"] == "b"));
        Ok(())
    })
    .await;
    for (at, (conversion, part)) in [
        (json!({"error": "not today"}), "cannot convert to test.pilothouse.dev/v2: not today"),
        (json!({"drop": true}), "returned 0 objects for 1"),
        (json!({"set": {"metadata": {"uid": "x"}}}), "objects[0]: changes metadata.uid, and conversion may"),
        (json!({"set": {"metadata": {"finalizers": ["a.b/c"]}}}), "changes metadata.finalizers,"),
        (
            json!({"set": {"apiVersion": "test.pilothouse.dev/v3"}}),
            "apiVersion is \"test.pilothouse.dev/v3\"",
        ),
        (json!({"set": {"kind": "Other"}}), "kind is \"Other\""),
        (json!({"behaviour": "trap"}), "plugin `versioned` trapped"),
        (json!({"behaviour": "loop"}), "of CPU time"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("wrong-{at}");
        put(&name, conversion).await;
        let shown = VERSIONED[1].api(&world.client, &world.namespace).get(&name).await;
        let said = shown.unwrap_err().to_string();
        assert!(said.contains("conversion webhook") && said.contains(part), "{part}: {said}");
        world.delete(VERSIONED[0], &name).await;
    }
}
