//! What every operator must bear: a restart of the host, and a new version of itself, between two edits.

use std::fs;

use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    stamped::{LOAD_FAILURES, count, generation},
    support::{DEADLINE, EG_APP, Kind, World, plugin, sample},
};

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

const EGAPP: Operator = Operator {
    plugin: "egapp",
    kind: EG_APP,
    name: "storefront",
    edit: |count| json!({"spec": {"replicaCount": count}}),
    shows: (crate::support::DEPLOYMENT, "storefront", "/spec/replicas", |count| json!(count)),
};

const CHAOS_POD: Operator = Operator {
    plugin: "chaos-pod",
    kind: crate::support::CHAOS_POD,
    name: "monkey",
    edit: |minutes| json!({"spec": {"interval": format!("{minutes}m")}}),
    shows: (crate::support::CHAOS_POD, "monkey", "/status/timer", |minutes| {
        json!(format!("every {minutes}m"))
    }),
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
    EGAPP.bears_a_restart_and_a_new_version().await;
}

#[tokio::test]
async fn chaos_pod_bears_a_restart_and_a_new_version() {
    CHAOS_POD.bears_a_restart_and_a_new_version().await;
}
