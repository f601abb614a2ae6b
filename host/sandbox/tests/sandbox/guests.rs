//! A sandbox with guests, as the tests use it.

use std::sync::Arc;

use pilothouse_model::action::Request;
use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{Compiler, Prepared, Reply, Sandbox, SandboxOptions};

/// A sandbox that compiles in this process.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions::new(Compiler::InProcess)).unwrap()
}

/// A guest, ready to be called.
pub(crate) fn prepare(sandbox: &Sandbox, component: &[u8]) -> Arc<Prepared> {
    Arc::new(sandbox.prepare(component, &Limits::default()).unwrap())
}

/// A request whose object has this behaviour and amount in its spec.
pub(crate) fn request(behaviour: &str, amount: u64) -> Request {
    let primary = serde_json::json!({
        "apiVersion": "test.pilothouse.dev/v1",
        "kind": "Hostile",
        "metadata": { "name": "one", "namespace": "tests" },
        "spec": { "behaviour": behaviour, "amount": amount },
    });
    Request {
        primary: primary.to_string(),
        deleting: false,
        config: "{}".to_owned(),
        now: "2026-01-02T03:04:05Z".to_owned(),
        seed: 7,
        children: Vec::new(),
        related: Vec::new(),
        last: Vec::new(),
    }
}

/// The sandbox with the hostile guest.
pub(crate) struct Hostile {
    pub(crate) sandbox: Sandbox,
    pub(crate) plugin: Arc<Prepared>,
    pub(crate) limits: Limits,
}

impl Hostile {
    pub(crate) fn new() -> Self {
        let sandbox = sandbox();
        let plugin = prepare(&sandbox, pilothouse_guests::hostile());
        Self { sandbox, plugin, limits: Limits::default() }
    }

    pub(crate) fn with(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    pub(crate) fn call(&self, behaviour: &str, amount: u64) -> Reply {
        self.sandbox.reconcile_blocking(&self.plugin, &self.limits, Arc::new(request(behaviour, amount)))
    }
}
