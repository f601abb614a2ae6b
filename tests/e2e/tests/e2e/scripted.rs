//! Objects that say in their spec what their plugin shall do (the guest `scripted`): what the tests of behaviours stand
//! on.

use pilothouse_guests::Scripted;
use serde_json::{Value, json};

use crate::{
    stamped::{put, write},
    support::{Kind, World},
};

/// Its primary kind, unless a test has one of its own. Tests see only the objects of their namespace.
pub(crate) const SCRIPTED: Kind = Kind("test.pilothouse.dev/v1", "Scripted", "scripteds");

/// Its finalizer, unless a test writes another into the manifest.
pub(crate) const FINALIZER: &str = "test.pilothouse.dev/scripted";

/// A version of the plugin `scripted` for the kind [`SCRIPTED`].
pub(crate) fn scripted(version: &str, manifest: &Value) -> Vec<u8> {
    Scripted { name: "scripted", kind: SCRIPTED.1, version, manifest: manifest.clone() }.component()
}

/// A world for that plugin, as version 1 in its directory. `manifest` as in [`Scripted`].
pub(crate) async fn world(prefix: &str, manifest: &Value) -> World {
    let files = tempfile::tempdir().unwrap();
    World::granted(prefix, &[write(files.path(), "scripted.wasm", scripted("1", manifest))]).await
}

/// Only ConfigMaps: for tests that need no other children, and no watches of them.
pub(crate) fn config_maps_only() -> Value {
    json!({"children": [{"resource": {"version": "v1", "kind": "ConfigMap", "plural": "configmaps"}}]})
}

/// A ConfigMap with this under `k`.
pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

/// Gives an object its script, new or not.
pub(crate) async fn perform(world: &World, name: &str, script: Value) {
    put(world, SCRIPTED, name, script).await;
}

/// Waits until the last edit of an object came to this reason, and returns the condition's message.
pub(crate) async fn comes_to(world: &World, name: &str, reason: &str) -> String {
    let condition = crate::stamped::reconciled(world, SCRIPTED, name, reason).await;
    condition["message"].as_str().unwrap_or_default().to_owned()
}
