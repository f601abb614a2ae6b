//! One pass over one key: snapshot, call, admit, apply, status, events. Level-triggered: it looks at state alone and
//! never at what woke it, so a pass that is cut short anywhere is finished by the next.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pilothouse_cluster::apply::{Applier, ApplyContext, Report, WriteResult};
use pilothouse_cluster::event::Recorder;
use pilothouse_cluster::status::{Status, StatusWriter};
use pilothouse_cluster::write_error::WriteError;
use pilothouse_cluster::{ReadError, finalizer};
use pilothouse_model::action::{Event, Rejected, Severity};
use pilothouse_model::condition::{Reason, Reconciled};
use pilothouse_model::manifest::Controller;
use pilothouse_model::names::{Key, PAUSED_ANNOTATION};
use pilothouse_model::object::Object;
use pilothouse_model::plan::{self, LOOK_UP_ROUNDS_MAX, Plan};
use pilothouse_model::settings::Mode;
use pilothouse_sandbox::{CallError, Level, LogLine, Sandbox};
use tracing::Instrument as _;

use crate::metrics::controller::ControllerMetrics;
use crate::plugins::LivePlugin;
use crate::snapshot::{self, Snapshot};
use crate::view::View;

use self::verdict::{Verdict, call_failed, changed_children, judge, releases, write_failed};

mod cleanup;
mod planned;
mod verdict;

/// What a pass needs. Never changed while it runs; whatever writes does so under the term that it began in.
pub(crate) struct Pass {
    /// The version that this pass began with and ends on.
    pub plugin: Arc<LivePlugin>,
    /// Position of the controller in its manifest.
    pub controller: usize,
    /// Watched objects.
    pub view: Arc<View>,
    /// Calls into the guest.
    pub sandbox: Arc<Sandbox>,
    /// Writes of the children.
    pub applier: Applier,
    /// Writes of the primaries' statuses.
    pub statuses: StatusWriter,
    /// Events about the primary.
    pub events: Recorder,
    /// Counts.
    pub metrics: Arc<ControllerMetrics>,
    /// Namespaces that the host serves; empty: all.
    pub namespaces: Arc<[String]>,
    /// The primary is of a CRD that can hold the host's condition.
    pub has_conditions: bool,
}

/// How a pass ended, for the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The object is gone, or not ours any more: forget the key.
    Gone,
    /// All is done. Again after this time, or at the resync.
    Settled(Option<Duration>),
    /// Only a change can help: at the resync.
    Stuck,
    /// Again with backoff, but not before this time.
    Failed(Option<Duration>),
    /// Again at the slowest pace: trying soon would not help.
    Refused,
}

/// What a pass leaves behind.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How.
    pub ending: Ending,
    /// For the next pass's `observed.last`.
    pub rejected: Vec<Rejected>,
    /// Resource versions that this pass itself wrote: their events are no news.
    pub written: Vec<u64>,
    /// Why it failed, for the metric.
    pub failure: Option<Reason>,
    /// Children are not as the pass saw them any more, by its own hand.
    pub changed_children: bool,
    /// Nothing is wrong, and not all is done: somebody holds the resource, or children wait for others.
    pub held: Option<Reason>,
}

impl Pass {
    /// Runs the pass. When the future is dropped the write under way may or may not happen; nothing else is left.
    pub(crate) async fn run(&self, key: &Key, last: &[Rejected]) -> Ended {
        let mut ended = Ended {
            ending: Ending::Gone,
            rejected: Vec::new(),
            written: Vec::new(),
            failure: None,
            changed_children: false,
            held: None,
        };
        let Some(primary) = self.view.primary(key) else { return ended };
        let controller = self.manifest_controller();
        let deleting = primary.meta().deleting;
        if deleting && !self.holds_finalizer(&primary) {
            // Others' finalizers keep it; garbage collection does the rest.
            return ended;
        }
        match self.mode(&primary) {
            Mode::Paused => {
                self.pause(&primary, &mut ended).await;
                return ended;
            }
            _ if deleting && !self.holds_own_finalizer(&primary) => {
                self.release(&primary, &mut ended).await;
                return ended;
            }
            Mode::Plan => {
                self.run_planned(primary, last, &mut ended).await;
                return ended;
            }
            Mode::Apply => {}
        }
        // Left over from plan mode.
        let primary = match self.clear_plan(&primary, &mut ended).await {
            Ok(primary) => primary,
            Err(error) => {
                self.conclude(&primary, None, write_failed(&error), &mut ended).await;
                return ended;
            }
        };
        let primary = match controller.guard() {
            Some(finalizer) if !deleting => {
                let writer = self.applier.writer();
                match finalizer::ensure(writer, &controller.primary, &primary, finalizer).await {
                    Ok(Some(object)) => self.take_response(object, &mut ended),
                    Ok(None) => primary,
                    Err(error) => {
                        self.conclude(&primary, None, write_failed(&error), &mut ended).await;
                        return ended;
                    }
                }
            }
            _ => primary,
        };
        if primary.meta().deleting != deleting {
            // Its deletion began meanwhile. What was read is no write of ours: its event brings the pass that looks
            // whether a finalizer of ours was there before.
            ended.written.pop();
            ended.ending = Ending::Gone;
            return ended;
        }

        let now = snapshot::time(Timestamp::now());
        let snapshot = self.view.snapshot(primary);
        match self.decide(snapshot, deleting, &now, last).await {
            Ok((snapshot, plan)) => self.carry_out(&snapshot, plan, &mut ended).await,
            Err((primary, verdict)) => self.conclude(&primary, None, verdict, &mut ended).await,
        }
        ended
    }

    fn mode(&self, primary: &Object) -> Mode {
        let settings = self.plugin.settings.mode;
        primary.meta().steering.as_ref().map_or(settings, |steering| steering.mode(settings))
    }

    /// Nothing is done, and nothing but that is said: not even the finalizer is put on or taken off, so that a paused
    /// resource that somebody deletes stays until it goes on, as in Cluster API.
    async fn pause(&self, primary: &Arc<Object>, ended: &mut Ended) {
        let message = format!("nothing is done while the annotation {PAUSED_ANNOTATION} is there");
        let verdict = Verdict::held(Reason::Paused, Ending::Stuck, &message);
        self.conclude(primary, None, verdict, ended).await;
    }

    /// Calls the guest until it asks no more, and admits what it decided. What it asked is remembered.
    async fn decide(
        &self,
        snapshot: Snapshot,
        deleting: bool,
        now: &str,
        last: &[Rejected],
    ) -> Result<(Snapshot, Plan), (Arc<Object>, Verdict)> {
        let key = snapshot.primary.key();
        self.view.look_ups().begin(&key);
        let decided = self.call(&key, snapshot, deleting, now, last).await;
        self.view.look_ups().end(&key, decided.is_err());
        decided
    }

    async fn call(
        &self,
        key: &Key,
        mut snapshot: Snapshot,
        deleting: bool,
        now: &str,
        last: &[Rejected],
    ) -> Result<(Snapshot, Plan), (Arc<Object>, Verdict)> {
        let limits = &self.plugin.settings.limits;
        let seed = seed();
        for _ in 0..=LOOK_UP_ROUNDS_MAX {
            let request = Arc::new(snapshot.request(deleting, &self.plugin.config, now, seed, last));
            let call = self.sandbox.reconcile(&self.plugin.prepared, limits, request);
            let reply = call.instrument(tracing::debug_span!("call")).await;
            self.metrics.call(&reply.usage);
            log_lines(&reply.logs, reply.usage.log_lines_dropped);
            let outcome = match reply.result {
                Ok(outcome) => outcome,
                Err(error) => return Err((Arc::clone(&snapshot.primary), self.call_failed(&error))),
            };
            let related = snapshot.related_objects();
            let cx = plan::Context {
                plugin: &self.plugin.prepared.manifest().name,
                controller: self.manifest_controller(),
                primary: &snapshot.primary,
                children: &snapshot.children,
                related: &related,
                deleting,
                limits,
                grants: &self.plugin.settings.grants,
                namespaces: &self.namespaces,
            };
            let plan = match plan::admit(outcome, &cx) {
                Ok(plan) => plan,
                Err(refusal) => {
                    self.metrics.plugin_fault(refusal.reason.as_str());
                    let verdict =
                        Verdict::failed(Reason::OutcomeRefused, Ending::Refused, &refusal.to_string());
                    return Err((Arc::clone(&snapshot.primary), verdict));
                }
            };
            if plan.look_ups.is_empty() {
                return Ok((snapshot, plan));
            }
            for look_up in &plan.look_ups {
                let room = limits.memory_bytes.saturating_sub(snapshot.related_bytes());
                let answered = self.view.look_up(key, look_up, room).await;
                let verdict = match answered.map(|found| snapshot.answer(found)) {
                    Ok(()) if snapshot.related_bytes() <= limits.memory_bytes => continue,
                    Ok(()) | Err(ReadError::TooLarge { .. }) => {
                        let message = format!(
                            "look-up `{}`: all answers together are more than the plugin's memory of {} bytes can hold: ask for fewer objects",
                            look_up.id, limits.memory_bytes
                        );
                        Verdict::failed(Reason::LimitExceeded, Ending::Failed(None), &message)
                    }
                    Err(error) => {
                        let message = format!("look-up `{}`: {error}", look_up.id);
                        Verdict::failed(Reason::WriteFailed, Ending::Failed(error.retry_after()), &message)
                    }
                };
                return Err((Arc::clone(&snapshot.primary), verdict));
            }
        }
        self.metrics.plugin_fault("TooManyLookUps");
        let message =
            format!("the plugin asked for more objects after {LOOK_UP_ROUNDS_MAX} rounds of look-ups");
        Err((snapshot.primary, Verdict::failed(Reason::OutcomeRefused, Ending::Refused, &message)))
    }

    async fn carry_out(&self, snapshot: &Snapshot, plan: Plan, ended: &mut Ended) {
        let related = snapshot.related_objects();
        let cx = ApplyContext {
            primary: &snapshot.primary,
            primary_resource: &self.manifest_controller().primary,
            children: &snapshot.children,
            related: &related,
            sink: &*self.view,
        };
        let apply = self.applier.apply(&plan, cx);
        let report = apply.instrument(tracing::debug_span!("apply", writes = plan.writes.len())).await;
        ended.written.extend(report.written_versions());
        ended.rejected = report.rejected().cloned().collect();
        self.count_writes(&report);
        ended.changed_children = changed_children(&report);
        let verdict = judge(&plan, &report);
        let primary = &snapshot.primary;
        for event in &plan.events {
            self.events.record(primary, event);
        }
        if releases(&plan, &report) {
            self.release(primary, ended).await;
        } else {
            self.conclude(primary, plan.status.as_ref(), verdict, ended).await;
        }
    }

    /// Writes the status, says transitions in an event, and sets the ending.
    async fn conclude(
        &self,
        primary: &Arc<Object>,
        wanted: Option<&serde_json::Map<String, serde_json::Value>>,
        verdict: Verdict,
        ended: &mut Ended,
    ) {
        let Verdict { reconciled, ending } = verdict;
        ended.ending = ending;
        let failed = reconciled.reason.is_failure();
        if !failed && reconciled.reason != Reason::Succeeded {
            ended.held = Some(reconciled.reason);
        }
        if failed {
            ended.failure = Some(reconciled.reason);
            tracing::debug!(reason = reconciled.reason.as_str(), message = reconciled.message, "pass failed");
            self.say_failure(primary, &reconciled);
        }
        let host = self.has_conditions.then_some(&reconciled);
        if wanted.is_none() && host.is_none() {
            return;
        }
        let Err(error) = self.write_status(primary, wanted, host, ended).await else { return };
        tracing::debug!(%error, "status not written");
        if failed {
            return;
        }
        let verdict = write_failed(&error);
        ended.failure = Some(Reason::WriteFailed);
        ended.ending = verdict.ending;
        self.say_failure(primary, &verdict.reconciled);
        // A status that the schema refuses must not keep from the resource why.
        if wanted.is_some()
            && self.has_conditions
            && !error.reason().is_transient()
            && let Err(error) = self.write_status(primary, None, Some(&verdict.reconciled), ended).await
        {
            tracing::debug!(%error, "condition not written");
        }
    }

    async fn write_status(
        &self,
        primary: &Arc<Object>,
        wanted: Option<&serde_json::Map<String, serde_json::Value>>,
        host: Option<&Reconciled>,
        ended: &mut Ended,
    ) -> Result<(), WriteError> {
        let now = snapshot::time(Timestamp::now());
        let status = Status { wanted, host, generation: primary.meta().generation, now: &now };
        let written = self.statuses.write(&self.manifest_controller().primary, primary, &status).await?;
        if let Some(object) = written {
            let object = self.take_response(object, ended);
            if !is_same_but_for_status(primary, &object) {
                // The writer found a change in between, which this pass has not seen and the watch may tell no more:
                // the response is the news.
                ended.written.pop();
            }
        }
        Ok(())
    }

    /// A Warning event when the condition's reason changes. The recorder counts repeats of the same message.
    fn say_failure(&self, primary: &Arc<Object>, reconciled: &Reconciled) {
        let event = Event {
            severity: Severity::Warning,
            reason: reconciled.reason.as_str().to_owned(),
            message: reconciled.message.clone(),
        };
        self.events.record(primary, &event);
    }

    fn call_failed(&self, error: &CallError) -> Verdict {
        self.metrics.plugin_fault(error.reason());
        let verdict = call_failed(error);
        if verdict.reconciled.reason == Reason::PluginTrapped {
            self.metrics.trapped();
        }
        verdict
    }

    fn count_writes(&self, report: &Report) {
        for entry in &report.entries {
            self.metrics.write(match &entry.result {
                WriteResult::NoOp => "NoOp",
                WriteResult::Written(_) => "Written",
                WriteResult::Deleted { .. } => "Deleted",
                WriteResult::Held(_) => "Held",
                WriteResult::Rejected(rejected) => rejected.reason.as_str(),
            });
        }
    }

    /// Puts a response about the primary into the store and remembers that it is our own.
    fn take_response(&self, object: Object, ended: &mut Ended) -> Arc<Object> {
        let object = Arc::new(object);
        ended.written.push(object.meta().resource_version);
        self.view.written_primary(&object);
        object
    }

    fn manifest_controller(&self) -> &Controller {
        &self.plugin.prepared.manifest().controllers[self.controller]
    }
}

fn is_same_but_for_status(before: &Object, after: &Object) -> bool {
    let metadata = |object: &Object| {
        let mut metadata = object.field("metadata");
        if let Some(fields) = metadata.as_object_mut() {
            fields.remove("resourceVersion");
        }
        metadata
    };
    before.meta().generation == after.meta().generation && metadata(before) == metadata(after)
}

pub(crate) fn log_lines(lines: &[LogLine], dropped: u32) {
    for line in lines {
        match line.level {
            Level::Debug => tracing::debug!(target: "plugin", "{}", line.message),
            Level::Info => tracing::info!(target: "plugin", "{}", line.message),
            Level::Warn => tracing::warn!(target: "plugin", "{}", line.message),
            Level::Error => tracing::error!(target: "plugin", "{}", line.message),
        }
    }
    if dropped > 0 {
        tracing::warn!("{dropped} log lines over the limit are not shown");
    }
}

/// Fresh randomness for one pass.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_that_a_status_write_ran_into_is_no_write_of_ours() {
        let object = |version: &str, generation: u64, labels: serde_json::Value, ready: u64| {
            let value = json!({"apiVersion": "example.com/v1", "kind": "Web", "status": {"ready": ready},
                "metadata": {"name": "a", "resourceVersion": version, "generation": generation, "labels": labels}});
            Object::from_value(&value).unwrap()
        };
        let before = object("1", 1, json!({}), 0);
        assert!(is_same_but_for_status(&before, &object("2", 1, json!({}), 1)));
        assert!(!is_same_but_for_status(&before, &object("3", 2, json!({}), 1)), "an edit of the spec");
        assert!(
            !is_same_but_for_status(&before, &object("3", 1, json!({"a": "b"}), 1)),
            "an edit of a label"
        );
    }
}
