//! Webhooks of plugins, on a real API server.

mod bad_calls;
mod configuration;
mod conversion;
mod egapp;
mod hot_swap;
mod languages;
mod mutating;
mod restart;
mod rotation;
mod validating;

use pilothouse_e2e::webhooks::free_port;
use pilothouse_harness::Host;
use serde_json::{Value, json};

use crate::{
    scripted::{self, SCRIPTED},
    support::World,
};

/// A world whose plugin `scripted` guards its own kind, with these fields of its guard.
pub(crate) async fn guarded(prefix: &str, guard: &Value) -> World {
    let manifest = json!({ "admission": guard, "controller": scripted::config_maps_only() });
    scripted::world(prefix, &manifest).await
}

/// Its host, ready.
pub(crate) async fn host(world: &World) -> Host {
    let port = free_port();
    Host::start(world.guarding(port, port)).await.unwrap()
}

/// An object whose webhooks do this.
pub(crate) fn object(name: &str, admission: Value) -> Value {
    json!({
        "apiVersion": SCRIPTED.0, "kind": SCRIPTED.1, "metadata": {"name": name},
        "spec": {"admission": admission},
    })
}

/// One cause against an object.
pub(crate) fn deny(field: &str, message: &str) -> Value {
    json!({"deny": [{"field": field, "message": message}]})
}
