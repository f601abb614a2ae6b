//! Writes of the host, counted by the API server.

use kube::api::{DeleteParams, PostParams};
use pilothouse_harness::{AuditEvent, eventually};
use serde_json::json;

use crate::{CONFIG_MAP, DEADLINE, World};

/// A point in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl World {
    /// The point behind everything that was answered until now.
    ///
    /// The log trails the answers a little: an object that an administrator creates last shows how far it has come.
    pub async fn mark(&self) -> Mark {
        let config_maps = CONFIG_MAP.api(&self.client, &self.namespace);
        let marker =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "audit-mark-"}});
        let marker = serde_json::from_value(marker).unwrap();
        let created = config_maps.create(&PostParams::default(), &marker).await.unwrap();
        let name = created.metadata.name.unwrap();
        config_maps.delete(&name, &DeleteParams::default()).await.unwrap();
        let end = eventually(DEADLINE, "the audit log to catch up", || async {
            let events = self.plane.audit_events()?;
            let found = events.iter().rposition(|event| event.verb == "delete" && event.name == name);
            anyhow::Ok(found)
        });
        Mark(end.await)
    }

    /// Everybody's requests in the test's namespace, answered after this mark and before now.
    pub async fn events_since(&self, mark: Mark) -> Vec<AuditEvent> {
        let end = self.mark().await;
        self.events_between(mark, Some(end))
    }

    /// Those after `begin` and before `end`, or as far as the log has come: for namespaces in which nothing can be
    /// created any more to mark the end.
    pub fn events_between(&self, begin: Mark, end: Option<Mark>) -> Vec<AuditEvent> {
        let mut events = self.plane.audit_events().unwrap();
        events.truncate(end.map_or(usize::MAX, |Mark(end)| end));
        events.drain(..=begin.0);
        events.retain(|event| event.namespace == self.namespace);
        events
    }

    /// Those of this test's host that asked for a change, dry runs and refused ones included. Leases are left out:
    /// renewing them is what a host at rest does.
    pub async fn writes_since(&self, mark: Mark) -> Vec<AuditEvent> {
        let mut events = self.events_since(mark).await;
        events.retain(|event| event.user == self.user && event.is_write() && event.resource != "leases");
        events
    }
}
