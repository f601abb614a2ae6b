//! The API server's audit log: who asked for what, and when. This is how tests count writes.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

/// Whose requests the API server logs, at level Metadata: everything but the bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audit {
    /// Nobody's.
    Off,
    /// These users'. The components of the control plane make most requests; leaving them out keeps a benchmark's
    /// log small and its API server fast.
    Users(Vec<String>),
    /// Everybody's.
    All,
}

impl Audit {
    /// Writes the policy file and returns its path; nothing to write if auditing is off.
    pub(crate) fn write_policy(&self, directory: &Path) -> Result<Option<PathBuf>> {
        let rules = match self {
            Self::Off => return Ok(None),
            Self::Users(users) => json!([{"level": "Metadata", "users": users}, {"level": "None"}]),
            Self::All => json!([{"level": "Metadata"}]),
        };
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": rules,
        });
        let path = directory.join("audit-policy.json");
        fs::write(&path, policy.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(path))
    }
}

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The request has arrived. The policy leaves these out.
    RequestReceived,
    /// The headers of a long-running response (a watch) were sent.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The server failed while it answered.
    Panic,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The same in all events of one request.
    pub id: String,
    /// A watch has a `ResponseStarted` and, when it ends, a `ResponseComplete`; all else has the latter only.
    pub stage: Stage,
    /// Who was authenticated.
    pub user: String,
    /// Whom it impersonated, if anyone.
    pub impersonated_user: Option<String>,
    /// Empty if the client sent none.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the HTTP method in
    /// lower case for paths that are no resources.
    pub verb: String,
    /// Path and query as they were sent.
    pub uri: String,
    /// Empty for the core group and for paths that are no resources.
    pub api_group: String,
    /// The plural; empty for paths that are no resources.
    pub resource: String,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-scoped resources and requests to all namespaces.
    pub namespace: String,
    /// Empty for requests to collections; on `create`, the name in the URL, if any.
    pub name: String,
    /// The HTTP status; 0 if there was none.
    pub code: u16,
    /// When the request came in.
    pub received: Timestamp,
    /// When this stage was reached.
    pub reached: Timestamp,
}

impl AuditEvent {
    /// Whether the request asked for a change (including dry runs and requests that were refused).
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the request was a dry run, which changes nothing.
    pub fn is_dry_run(&self) -> bool {
        self.uri
            .split_once('?')
            .is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("dryRun=")))
    }

    /// Reads a whole log. A last line that is still being written is left out.
    ///
    /// The server writes an event just after the response, so an answered request may not be here yet: wait for
    /// it with [`eventually`](crate::eventually).
    pub fn read_log(path: &Path) -> Result<Vec<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            // The server creates the file with its first event.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
        };
        let mut reader = BufReader::new(file);
        let (mut events, mut line) = (Vec::new(), String::new());
        loop {
            line.clear();
            reader.read_line(&mut line).with_context(|| format!("cannot read {}", path.display()))?;
            if !line.ends_with('\n') {
                return Ok(events);
            }
            let event = Self::parse(&line);
            events.push(event.with_context(|| format!("{}, line {}", path.display(), events.len() + 1))?);
        }
    }

    fn parse(line: &str) -> Result<Self> {
        let wire: wire::Event = serde_json::from_str(line)?;
        let object = wire.object_ref.unwrap_or_default();
        Ok(Self {
            id: wire.audit_id,
            stage: wire.stage,
            user: wire.user.username,
            impersonated_user: wire.impersonated_user.map(|user| user.username),
            user_agent: wire.user_agent,
            verb: wire.verb,
            uri: wire.request_uri,
            api_group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            code: wire.response_status.map_or(0, |status| status.code),
            received: wire.request_received_timestamp,
            reached: wire.stage_timestamp,
        })
    }
}

/// The parts of `audit.k8s.io/v1` Event that are read.
mod wire {
    use jiff::Timestamp;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Event {
        #[serde(rename = "auditID")]
        pub(super) audit_id: String,
        pub(super) stage: super::Stage,
        #[serde(rename = "requestURI")]
        pub(super) request_uri: String,
        pub(super) verb: String,
        pub(super) user: User,
        pub(super) impersonated_user: Option<User>,
        #[serde(default)]
        pub(super) user_agent: String,
        pub(super) object_ref: Option<ObjectRef>,
        pub(super) response_status: Option<Status>,
        pub(super) request_received_timestamp: Timestamp,
        pub(super) stage_timestamp: Timestamp,
    }

    #[derive(Deserialize)]
    pub(super) struct User {
        #[serde(default)]
        pub(super) username: String,
    }

    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct ObjectRef {
        pub(super) api_group: String,
        pub(super) resource: String,
        pub(super) subresource: String,
        pub(super) namespace: String,
        pub(super) name: String,
    }

    #[derive(Deserialize)]
    pub(super) struct Status {
        #[serde(default)]
        pub(super) code: u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7b1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods/a/status?dryRun=All&fieldManager=x","verb":"patch","user":{"username":"operator","groups":["system:masters"]},"sourceIPs":["127.0.0.1"],"userAgent":"pilothouse/0.1","objectRef":{"resource":"pods","namespace":"shop","name":"a","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2025-01-02T03:04:05.123456Z","stageTimestamp":"2025-01-02T03:04:05.223456Z"}"#;

    #[test]
    fn a_line_becomes_a_typed_event() {
        let event = AuditEvent::parse(PATCH).unwrap();
        assert_eq!((event.user.as_str(), event.user_agent.as_str()), ("operator", "pilothouse/0.1"));
        assert_eq!(
            (event.resource.as_str(), event.subresource.as_str(), event.code),
            ("pods", "status", 200)
        );
        assert!(event.is_write() && event.is_dry_run());
        assert_eq!(event.reached.duration_since(event.received).as_millis(), 100);
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        assert_eq!(AuditEvent::read_log(&path).unwrap(), []);
        fs::write(&path, format!("{PATCH}\n{}", &PATCH[..100])).unwrap();
        assert_eq!(AuditEvent::read_log(&path).unwrap().len(), 1);
    }
}
