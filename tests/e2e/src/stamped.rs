//! What the tests of the plugins' life cycle have in common: plugins that show in a ConfigMap who made it last (the
//! guest `stamp`), and questions to the host about what it serves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kube::api::{Patch, PatchParams};
use pilothouse_guests::Stamp;
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{CONFIG_MAP, DEADLINE, Kind, World, condition};

/// `pilothouse_plugin_load_failures_total`
pub const LOAD_FAILURES: &str = "pilothouse_plugin_load_failures_total";

/// A version of the plugin `name`, which serves `kind`.
pub fn stamp(name: &str, kind: Kind, version: &str) -> Vec<u8> {
    Stamp { name, kind: kind.1, version, wide: false }.component()
}

/// Writes `directory/file` and returns its path.
pub fn write(directory: &Path, file: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(file);
    fs::write(&path, content).unwrap();
    path
}

/// A world for the plugins `(NAME, kind)`, and in its directory their version 1 as `NAME.wasm`.
pub async fn world(prefix: &str, plugins: &[(&str, Kind)]) -> World {
    let files = tempfile::tempdir().unwrap();
    let write =
        |(name, kind): &(&str, Kind)| write(files.path(), &format!("{name}.wasm"), stamp(name, *kind, "1"));
    World::granted(prefix, &plugins.iter().map(write).collect::<Vec<_>>()).await
}

/// Applies one object as a user would, new or not.
pub async fn put(world: &World, kind: Kind, name: &str, spec: Value) {
    let object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name}, "spec": spec});
    let objects = kind.api(&world.client, &world.namespace);
    objects.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
}

/// Waits until the ConfigMap of this name has all of this in its data.
pub async fn shows(world: &World, name: &str, wanted: &[(&str, &str)]) {
    eventually(DEADLINE, &format!("ConfigMap {name} with {wanted:?}"), || async {
        let made = world.get(CONFIG_MAP, name).await.unwrap_or_default();
        let has = |(key, value): &(&str, &str)| made["data"][*key] == *value;
        anyhow::ensure!(wanted.iter().all(has), "it has {}", made["data"]);
        Ok(())
    })
    .await;
}

/// Waits until the condition Reconciled of an object has this reason, and returns the condition.
pub async fn reconciled(world: &World, kind: Kind, name: &str, reason: &str) -> Value {
    eventually(DEADLINE, &format!("{} {name} to be Reconciled for reason {reason}", kind.1), || async {
        let object = world.get(kind, name).await.unwrap_or_default();
        let condition = condition(&object, "Reconciled");
        let current = condition["observedGeneration"] == object["metadata"]["generation"];
        anyhow::ensure!(current && condition["reason"] == reason, "it is {condition}");
        Ok(Some(condition))
    })
    .await
}

/// Waits until the host serves exactly these plugins, as name and version in the order of names.
pub async fn serves(host: &Host, wanted: &[(&str, &str)]) {
    eventually(DEADLINE, &format!("the host to serve {wanted:?}"), || async {
        let served = served(host).await?;
        let pairs = served.iter().map(|(name, version)| (name.as_str(), version.as_str()));
        anyhow::ensure!(pairs.eq(wanted.iter().copied()), "it serves {served:?}");
        Ok(())
    })
    .await;
}

/// The generation of a plugin that serves.
pub async fn generation(host: &Host, name: &str) -> Option<u64> {
    let plugins = plugins(host).await.unwrap();
    plugins.iter().find(|plugin| plugin["name"] == name).and_then(|plugin| plugin["generation"].as_u64())
}

/// What the host says at `/plugins`.
async fn plugins(host: &Host) -> anyhow::Result<Vec<Value>> {
    Ok(serde_json::from_str(&host.get("/plugins").await?.1)?)
}

async fn served(host: &Host) -> anyhow::Result<Vec<(String, String)>> {
    let plugins = plugins(host).await?;
    let text = |plugin: &Value, field: &str| plugin[field].as_str().unwrap_or_default().to_owned();
    Ok(plugins.iter().map(|plugin| (text(plugin, "name"), text(plugin, "version"))).collect())
}

/// One of the host's counters now, summed over its series with these labels.
pub async fn count(host: &Host, name: &str, labels: &[(&str, &str)]) -> u64 {
    whole(host.metrics().await.unwrap().sum(name, labels))
}

/// Waits until one of the host's counters is at least this.
pub async fn counts(host: &Host, name: &str, labels: &[(&str, &str)], at_least: u64) {
    eventually(DEADLINE, &format!("{name} {labels:?} to be {at_least}"), || async {
        let value = whole(host.metrics().await?.sum(name, labels));
        anyhow::ensure!(value >= at_least, "it is {value}");
        Ok(())
    })
    .await;
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters of tests are small and whole"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// Waits until a line of the host's log has all of these words.
pub async fn logs(host: &Host, words: &[&str]) {
    eventually(DEADLINE, &format!("a line in the log with {words:?}"), || async {
        host.log().lines().any(|line| words.iter().all(|word| line.contains(word)))
    })
    .await;
}

/// Asserts that the host is ready.
pub async fn assert_ready(host: &Host) {
    assert_eq!(host.get("/readyz").await.unwrap(), (200, "ok\n".to_owned()));
}
