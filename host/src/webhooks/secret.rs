//! The certificates of the host's own making, in a Secret that its replicas share. All show what it says; the one that
//! leads makes it, and rotates it by the rules of [`super::kept`].
//!
//! Deleting the Secret is how people have the certificate replaced at once: the next pair is prepared then.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pilothouse_cluster::lease::Shards;
use pilothouse_cluster::watches::{Query, Subscription};
use pilothouse_cluster::write::{Answer, Endpoint, Mode, Writer};
use pilothouse_cluster::write_error::{Fault, WriteError};
use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::names::Key;
use serde_json::json;
use tokio::sync::{Notify, watch};

use super::InStep;
use super::kept::{Kept, Step};
use super::pair::Pair;
use super::serving::Serving;
use crate::supervisor::Shared;

/// After a write that failed, and at the latest when nothing happens: clocks may be set.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_mins(10);

/// Keeps the Secret and shows what it says.
pub(super) struct SecretKeeper {
    watch: Subscription,
    woken: Arc<Notify>,
    writer: Writer,
    shards: Shards,
    namespace: String,
    name: String,
    names: Vec<String>,
    lifetime: Duration,
}

impl SecretKeeper {
    /// Begins to watch.
    pub(super) fn new(
        shared: &Shared,
        namespace: &str,
        name: String,
        names: Vec<String>,
        lifetime: Duration,
    ) -> Self {
        let resource = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            plural: "secrets".to_owned(),
            scope: Scope::Namespaced,
        };
        let query =
            Query::new(resource).in_namespace(namespace).with_fields(&format!("metadata.name={name}"));
        let woken = Arc::new(Notify::new());
        let wakes = Arc::clone(&woken);
        let watch = shared.watches.subscribe(query, move |_| wakes.notify_one());
        let (writer, shards) = (shared.writer.clone(), shared.shards.clone());
        Self { watch, woken, writer, shards, namespace: namespace.to_owned(), name, names, lifetime }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(
        mut self,
        serving: Serving,
        bundles: watch::Sender<Option<String>>,
        mut in_step: watch::Receiver<Option<InStep>>,
    ) {
        let mut state = self.watch.state();
        let mut known: Option<Kept> = None;
        let mut said = String::new();
        loop {
            state.borrow_and_update();
            let told = in_step.borrow_and_update().clone();
            let found = self.found();
            if let Some(kept) = &found
                && known.as_ref() != Some(kept)
            {
                show(kept, known.as_ref(), &serving, &bundles);
                known = Some(kept.clone());
            }
            let rest = match self.keep(found.as_ref(), known.as_ref(), told).await {
                Ok(rest) => rest,
                Err(problem) => {
                    if problem != said {
                        tracing::warn!(
                            secret = self.name,
                            "the webhooks' certificate cannot be kept: {problem}"
                        );
                        said = problem;
                    }
                    LOOK_AGAIN
                }
            };
            tokio::select! {
                () = self.woken.notified() => {}
                () = self.shards.changed() => {}
                Ok(()) = state.changed() => {}
                Ok(()) = in_step.changed() => {}
                () = tokio::time::sleep(rest.min(REST_MAX)) => {}
            }
        }
    }

    fn found(&self) -> Option<Kept> {
        let secret = self.watch.store().get(&Key::namespaced(&self.namespace, &self.name))?;
        Kept::read(&secret)
    }

    /// Does what is to be done now, and says for how long nothing will be.
    async fn keep(
        &self,
        found: Option<&Kept>,
        known: Option<&Kept>,
        told: Option<InStep>,
    ) -> Result<Duration, String> {
        // Until then, what is not in the store may be there all the same.
        if !self.watch.store().is_complete() {
            return Ok(REST_MAX);
        }
        let Some(work) = self.shards.begin_work(0) else { return Ok(REST_MAX) };
        let writer = self.writer.with_fence(work.fence());
        let now = now();
        let issue = || Pair::issue(&self.names, now, self.lifetime).map_err(|error| format!("{error:#}"));
        let Some(kept) = found else {
            let kept = match known {
                // Deleted while it was shown: the API server knows the old one and not yet the new one.
                Some(known) => Kept { next: Some(issue()?), ..known.clone() },
                None => Kept::new(issue()?),
            };
            self.write(&writer, &kept).await?;
            return Ok(Duration::ZERO);
        };
        let told = told.filter(|told| told.bundle == kept.bundle()).map(|told| told.since.elapsed());
        match kept.step(&self.names, now, self.lifetime, told) {
            Step::Rest(rest) => Ok(rest),
            Step::Prepare => {
                tracing::info!(secret = self.name, "preparing another certificate for the webhooks");
                self.write(&writer, &Kept { next: Some(issue()?), ..kept.clone() }).await?;
                Ok(Duration::ZERO)
            }
            Step::Promote => {
                tracing::info!(secret = self.name, "the webhooks' certificate is replaced");
                self.write(&writer, &kept.clone().promoted()).await?;
                Ok(Duration::ZERO)
            }
        }
    }

    async fn write(&self, writer: &Writer, kept: &Kept) -> Result<(), String> {
        let kind = Kind::new("", "v1", "Secret");
        let at = Endpoint::new(&kind, "secrets", Some(&self.namespace), &self.name);
        let mut secret = kept.written();
        let key = Key::namespaced(&self.namespace, &self.name);
        let written = if let Some(present) = self.watch.store().get(&key) {
            // Nobody else's write in between gets lost.
            secret["metadata"]["resourceVersion"] = json!(present.meta().resource_version.to_string());
            secret["metadata"]["uid"] = json!(present.meta().uid);
            writer.merge_patch(&at, None, &secret).await
        } else {
            secret["apiVersion"] = json!("v1");
            secret["kind"] = json!("Secret");
            secret["type"] = json!("kubernetes.io/tls");
            secret["metadata"]["name"] = json!(self.name);
            secret["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "pilothouse"});
            without_nulls(&mut secret);
            writer.create(&at, &secret, Mode::Store, Answer::Whole).await
        };
        match written {
            Ok(object) => {
                self.watch.store().upsert_response(object);
                Ok(())
            }
            // Another host was faster: its Secret is on its way here.
            Err(WriteError {
                fault: Fault::AlreadyExists | Fault::Precondition | Fault::Stale | Fault::NotFound,
                ..
            }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn show(kept: &Kept, before: Option<&Kept>, serving: &Serving, bundles: &watch::Sender<Option<String>>) {
    if before.is_none_or(|before| before.current != kept.current) {
        match serving.show(&kept.current.certificate, &kept.current.key) {
            Ok(()) => tracing::info!(names = ?kept.current.names, "the webhooks have a certificate"),
            Err(error) => {
                tracing::error!("the webhooks' certificate cannot be used, delete its Secret: {error:#}");
            }
        }
    }
    bundles.send_replace(Some(kept.bundle()));
}

fn without_nulls(value: &mut serde_json::Value) {
    if let serde_json::Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or(0)
}
