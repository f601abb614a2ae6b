//! What every operator must bear: a restart of the host, and a new version of itself, between two edits; that its kind
//! explains itself, and that it is small.

use std::{ffi::OsStr, fs};

use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    stamped::{LOAD_FAILURES, count, generation},
    support::{
        CHAOS_POD, DEADLINE, DEPLOYMENT, EG_APP, Kind, POD_REPLICA, World, pilothouse, plugin, run, sample,
    },
};

/// Our plugins in Rust.
const PLUGINS: [&str; 5] = ["chaos-pod", "config-map", "egapp", "pod-replica", "postgres-cluster"];
/// Of a plugin in a ConfigMap, which holds 1 MiB: more than this is a dependency that was taken in by accident.
const PACKED_KIB_MAX: usize = 150;

/// A plugin, a sample, and an edit whose effect can be seen.
struct Operator {
    plugin: &'static str,
    kind: Kind,
    name: &'static str,
    /// The edit with a number in it.
    edit: fn(u32) -> Value,
    /// Where its effect shows: an object and a JSON pointer, and what stands there.
    shows: (Kind, &'static str, &'static str, fn(u32) -> Value),
}

const APPLICATION: Operator = Operator {
    plugin: "egapp",
    kind: EG_APP,
    name: "storefront",
    edit: |count| json!({"spec": {"replicaCount": count}}),
    shows: (DEPLOYMENT, "storefront", "/spec/replicas", |count| json!(count)),
};

const CHAOS: Operator = Operator {
    plugin: "chaos-pod",
    kind: CHAOS_POD,
    name: "monkey",
    edit: |minutes| json!({"spec": {"interval": format!("{minutes}m")}}),
    shows: (CHAOS_POD, "monkey", "/status/timer", |minutes| json!(format!("every {minutes}m"))),
};

const PODS: Operator = Operator {
    plugin: "pod-replica",
    kind: POD_REPLICA,
    name: "workers",
    edit: |size| json!({"spec": {"size": size}}),
    shows: (POD_REPLICA, "workers", "/status/replicas", |size| json!(size)),
};

/// The same component with another digest, as a version that behaves the same has: with a custom section at its end.
fn another_version(component: &[u8]) -> Vec<u8> {
    const SECTION: &[u8] = b"\x00\x05\x04next";
    [component, SECTION].concat()
}

impl Operator {
    async fn edited(&self, world: &World, number: u32) {
        world.edit(self.kind, self.name, &(self.edit)(number)).await;
    }

    async fn follows(&self, world: &World, number: u32) {
        let (kind, name, pointer, value) = self.shows;
        eventually(DEADLINE, &format!("{pointer} of {} {name} to follow", kind.1), || async {
            let object = world.get(kind, name).await.unwrap_or_default();
            anyhow::ensure!(object.pointer(pointer) == Some(&value(number)), "it is {object}");
            Ok(())
        })
        .await;
        world.ready(self.kind, self.name).await;
    }

    /// Nothing is written by a host that begins anew, nor by a version that takes over; edits made meanwhile are done.
    async fn bears_a_restart_and_a_new_version(&self) {
        let world = World::granted(&format!("{}-life", self.plugin), &[plugin(self.plugin)]).await;
        let host: Host = world.host().await;
        world.apply(&sample(self.plugin, "default", &world.namespace)).await;
        world.ready(self.kind, self.name).await;
        self.edited(&world, 2).await;
        self.follows(&world, 2).await;

        let ended = host.terminate().await.unwrap();
        assert_eq!(ended, "exit status: 0");
        self.edited(&world, 3).await;
        host.restart().await.unwrap();
        self.follows(&world, 3).await;

        let file = world.plugins.path().join(self.plugin).with_extension("wasm");
        let before = generation(&host, self.plugin).await;
        let process = host.process();
        let next = file.with_extension("next");
        fs::write(&next, another_version(&fs::read(&file).unwrap())).unwrap();
        fs::rename(&next, &file).unwrap();
        eventually(DEADLINE, "the new version to serve", || async {
            Ok(generation(&host, self.plugin).await > before)
        })
        .await;
        self.edited(&world, 4).await;
        self.follows(&world, 4).await;
        assert_eq!(host.process(), process, "the host was restarted");
        assert_eq!(count(&host, LOAD_FAILURES, &[]).await, 0);
    }
}

#[tokio::test]
async fn egapp_bears_a_restart_and_a_new_version() {
    APPLICATION.bears_a_restart_and_a_new_version().await;
}

#[tokio::test]
async fn chaos_pod_bears_a_restart_and_a_new_version() {
    CHAOS.bears_a_restart_and_a_new_version().await;
}

#[tokio::test]
async fn pod_replica_bears_a_restart_and_a_new_version() {
    PODS.bears_a_restart_and_a_new_version().await;
}

/// Paths of a field and of all below it, and what is said of each.
fn fields(path: &str, schema: &Value, all: &mut Vec<(String, String)>) {
    all.push((path.to_owned(), schema["description"].as_str().unwrap_or_default().to_owned()));
    for part in [schema, &schema["items"]] {
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            fields(&format!("{path}.{name}"), field, all);
        }
    }
}

#[tokio::test]
async fn every_field_of_every_kind_is_explained() {
    let world = World::granted("explain", &PLUGINS.map(plugin)).await;
    for name in PLUGINS {
        let printed = run(&pilothouse(), ["crds".as_ref(), plugin(name).as_os_str()]).await;
        let crd: Value = serde_saphyr::from_str(&printed).unwrap();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let mut all = Vec::new();
        for part in ["spec", "status"] {
            fields(&format!("{plural}.{part}"), &schema[part], &mut all);
        }
        let listed = world.kubectl(&format!("explain {plural} --recursive")).await;
        for (path, description) in &all {
            let field = path.rsplit('.').next().unwrap();
            assert!(listed.contains(&format!("{field}\t<")), "{path} is not in {listed}");
            assert!(!description.is_empty(), "{path} has no description");
        }
        // The spec and one field of it as their user reads them; lines are broken anywhere.
        for (path, description) in &all[..2] {
            let words = world.kubectl(&format!("explain {path}")).await;
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&description.split_whitespace().collect::<Vec<_>>().join(" ")), "{words}");
        }
    }
}

#[tokio::test]
async fn each_plugin_stays_small() {
    for name in PLUGINS {
        let wasm = plugin(name);
        let flags = ["package", "--configmap", name].map(OsStr::new);
        let printed = run(&pilothouse(), flags.into_iter().chain([wasm.as_os_str()])).await;
        let packed: Value = serde_saphyr::from_str(&printed).unwrap();
        let data = packed["binaryData"][format!("{name}.wasm.zst")].as_str().unwrap();
        // Base64: four characters for three bytes.
        let kib = data.len() * 3 / 4 / 1024;
        assert!((1..=PACKED_KIB_MAX).contains(&kib), "{name}: {kib} KiB");
    }
}
