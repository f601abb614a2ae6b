//! Carries out the writes of a plan, in order, and decides nothing: what is wanted stands in the plan, whether a
//! write is needed is [`pilothouse_model::diff`]'s to say, and what failed is reported for the next pass.
//!
//! - One write that fails does not stop the others, unless the API server is away or in trouble, or the fence is shut.
//!   Only a write that says so waits for an earlier one (`after`).
//! - What is updated a few at a time is held back by [`crate::rollout`]; what is missing is never.
//! - A write to an object that the snapshot showed carries its UID: applied to a name that has vanished since, it
//!   would create that object anew.
//! - A name that the snapshot did not show is looked up before it is applied to, as server-side apply would silently
//!   adopt whatever bears it. What somebody creates between the look and the apply is of another version than the apply
//!   says.
//! - Each response is handed to the [`Sink`] before the next write begins, so that no pass acts on a store older than
//!   the host's own writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pilothouse_model::action::Rejected;
use pilothouse_model::diff::{Memory, Print};
use pilothouse_model::kind::Reference;
use pilothouse_model::manifest::Resource;
use pilothouse_model::names::PluginName;
use pilothouse_model::object::Object;
use pilothouse_model::plan::{OnImmutable, Operation, Plan, Write};
use pilothouse_model::update::Method;
use serde_json::Value;

use crate::desired;
use crate::rehearsal::Rehearsal;
use crate::rollout::Rolling;
use crate::seen::Seen;
use crate::write::{Conflicts, Endpoint, Fence, Writer};
use crate::write_error::{Fault, WriteError};

/// Writes of one pass that may end in the API server's trouble before the others are left to the next pass. One may be
/// due to a hanging webhook of one kind; 2,000 that each wait 5 s would hold the key for hours.
const TROUBLES_MAX: u32 = 3;

/// Takes each response of the API server as soon as it is there. Must not block.
pub trait Sink: Send + Sync {
    /// The object as it is now. An older version must not replace a newer one.
    fn written(&self, object: Arc<Object>);
    /// The object with this UID is gone.
    fn deleted(&self, reference: &Reference);
}

/// The snapshot that the plan was made from, and where responses go.
#[derive(Clone, Copy)]
pub struct ApplyContext<'a> {
    /// The owner of the children.
    pub primary: &'a Object,
    /// What it is.
    pub primary_resource: &'a Resource,
    /// Objects that it controlled then. Secrets with their values.
    pub children: &'a [Arc<Object>],
    /// Other objects that were read.
    pub related: &'a [Arc<Object>],
    /// Takes responses.
    pub sink: &'a dyn Sink,
}

/// What became of a plan's writes.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One entry for each write, in the plan's order.
    pub entries: Vec<Entry>,
    /// The longest that the API server asked to be left alone.
    pub retry_after: Option<Duration>,
}

/// What became of one write.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Position of its action in the outcome.
    pub index: u32,
    /// What happened.
    pub result: WriteResult,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum WriteResult {
    /// Nothing had to.
    NoOp,
    /// The object is now as it was asked for.
    Written(Arc<Object>),
    /// The object with this UID is gone, or goes when its finalizers and its grace period let it.
    Deleted {
        /// Its UID.
        uid: String,
        /// It does not exist any more.
        gone: bool,
    },
    /// Its time has not come: it waits for other children, or for its predecessor to go. Nothing is wrong, and a change
    /// of what it waits for brings the next pass. The text says what that is.
    Held(String),
    /// It did not happen.
    Rejected(Rejected),
}

impl Report {
    /// The writes that did not happen.
    pub fn rejected(&self) -> impl Iterator<Item = &Rejected> {
        self.entries.iter().filter_map(|entry| match &entry.result {
            WriteResult::Rejected(rejected) => Some(rejected),
            _ => None,
        })
    }

    /// Why writes were held back, in the plan's order.
    pub fn held(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match &entry.result {
            WriteResult::Held(why) => Some(why.as_str()),
            _ => None,
        })
    }

    /// Resource versions of the responses: a store that has seen them all is no older than this pass.
    pub fn written_versions(&self) -> Vec<u64> {
        let versions = self.entries.iter().filter_map(|entry| match &entry.result {
            WriteResult::Written(object) => Some(object.meta().resource_version),
            _ => None,
        });
        versions.collect()
    }

    /// Whether the API server was asked to change anything and did.
    pub fn changed(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.result, WriteResult::Written(_) | WriteResult::Deleted { .. }))
    }
}

/// Writes one plugin's children. Remembers of each what makes the next look at it cheap; see [`pilothouse_model::diff`].
#[derive(Debug)]
pub struct Applier {
    writer: Writer,
    plugin: PluginName,
    /// By UID of the child. Shared by all fences: what is remembered is checked against what is there.
    memory: Arc<Mutex<HashMap<Arc<str>, Memory>>>,
    /// UIDs of primaries whose namespace is being deleted. Nothing takes that back while they live, so that nothing is
    /// created for them again and they only finalize. Shared as well.
    doomed: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl Applier {
    /// An applier for this plugin, under the plugin's field manager.
    pub fn new(writer: &Writer, plugin: PluginName) -> Self {
        let writer = writer.with_manager(&plugin.field_manager());
        Self { writer, plugin, memory: Arc::default(), doomed: Arc::default() }
    }

    /// The same, but nothing is stored: what would be changed is recorded. It knows what is remembered of these
    /// children; what it learns itself is its own until [`Applier::adopt`].
    #[must_use]
    pub fn rehearsing(&self, rehearsal: &Arc<Rehearsal>, children: &[Arc<Object>]) -> Self {
        let memory = self.remembered();
        let known = children.iter().filter_map(|child| memory.get_key_value(&child.meta().uid));
        let known = known.map(|(uid, memory)| (Arc::clone(uid), *memory)).collect();
        drop(memory);
        Self {
            writer: self.writer.rehearsing(rehearsal),
            plugin: self.plugin.clone(),
            memory: Arc::new(Mutex::new(known)),
            doomed: Arc::new(Mutex::new(self.doomed().clone())),
        }
    }

    /// Remembers what a rehearsal without a single write has learnt: all of it is true.
    pub fn adopt(&self, rehearsed: &Self) {
        let learnt: Vec<_> =
            rehearsed.remembered().iter().map(|(uid, memory)| (uid.clone(), *memory)).collect();
        self.remembered().extend(learnt);
    }

    /// The plugin's name.
    pub(crate) fn name(&self) -> &str {
        self.plugin.as_str()
    }

    /// The same behind another fence, with the same memory.
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self {
            writer: self.writer.with_fence(fence),
            plugin: self.plugin.clone(),
            memory: Arc::clone(&self.memory),
            doomed: Arc::clone(&self.doomed),
        }
    }

    /// The writer with the plugin's field manager.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Carries out the writes of this plan. When the future is dropped the write under way may or may not happen, and those
    /// behind it do not; the next pass finds out.
    pub async fn apply(&self, plan: &Plan, cx: ApplyContext<'_>) -> Report {
        let primary = cx.primary.meta();
        let own = primary.namespace.as_deref().map(str::to_owned);
        let doomed = self.doomed().contains(&primary.uid).then(|| own.clone());
        let mut run = Run {
            applier: self,
            cx,
            seen: Seen::new(cx.children.iter().chain(cx.related)),
            troubles: 0,
            stopped: None,
            terminating: doomed.into_iter().collect(),
            unfinished: BTreeMap::new(),
        };
        // A rehearsal shows all that a roll-out will change, whatever waits for what: one approval is for all of it.
        let mut rolling = if run.writer().is_rehearsing() { Vec::new() } else { Rolling::all(plan) };
        let mut report = Report::default();
        for (at, write) in plan.writes.iter().enumerate() {
            let done = if let Some(not_yet) = run.waits_for_earlier(write) {
                not_yet
            } else {
                let done = match Rolling::of_write(&mut rolling, at) {
                    Some((rolling, place)) => run.roll(rolling, place).await,
                    None => run.carry_out(write).await,
                };
                done.inspect_err(|error| run.note_error(error, write))
            };
            if matches!(done, Ok(WriteResult::Held(_)) | Err(_)) {
                run.unfinished.insert(write.index, done.clone());
            }
            let result = done.unwrap_or_else(|error| {
                report.retry_after = report.retry_after.max(error.retry_after);
                let (reason, target) = (error.reason(), Some(write.target.clone()));
                WriteResult::Rejected(Rejected { index: write.index, target, reason, message: error.message })
            });
            report.entries.push(Entry { index: write.index, result });
        }
        if own.is_some() && run.terminating.contains(&own) {
            self.doomed().insert(primary.uid.clone());
        }
        report
    }

    /// Drops what is remembered of a child or primary that is gone. Without it the memory would grow with each that
    /// ever was.
    pub fn forget(&self, uid: &str) {
        self.remembered().remove(uid);
        self.doomed().remove(uid);
    }

    /// Drops what is remembered of all but these. A write may be answered after the event that its object is gone, and
    /// what is remembered then nobody forgets by name.
    pub fn retain(&self, alive: &HashSet<Arc<str>>) {
        self.remembered().retain(|uid, _| alive.contains(uid));
        self.doomed().retain(|uid| alive.contains(uid));
    }

    /// Children that something is remembered of.
    pub fn remembered_children(&self) -> usize {
        self.remembered().len()
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Memory>> {
        // Nothing panics while it holds the lock; and a memory is true or gone.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doomed(&self) -> std::sync::MutexGuard<'_, HashSet<Arc<str>>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recall(&self, object: &Object) -> Option<Memory> {
        self.remembered().get(&object.meta().uid).copied()
    }

    pub(crate) fn remember(&self, object: &Object, memory: Memory) {
        self.remembered().insert(object.meta().uid.clone(), memory);
    }
}

/// One plan being carried out.
pub(crate) struct Run<'a> {
    pub(crate) applier: &'a Applier,
    pub(crate) cx: ApplyContext<'a>,
    pub(crate) seen: Seen<'a>,
    /// Writes that ended in the API server's trouble.
    troubles: u32,
    /// Why the remaining writes are not tried.
    stopped: Option<WriteError>,
    /// Namespaces that are being deleted: each creation there would be refused as the first was.
    terminating: BTreeSet<Option<String>>,
    /// Writes that were held back or failed, by the position of their action: others may wait for them.
    unfinished: BTreeMap<u32, Done>,
}

/// A child as the plan wants it.
pub(crate) struct Wanted<'a> {
    pub(crate) write: &'a Write,
    pub(crate) at: Endpoint<'a>,
    pub(crate) object: &'a Value,
    print: OnceLock<Print>,
    pub(crate) conflicts: Conflicts,
    pub(crate) on_immutable: OnImmutable,
    pub(crate) method: Method,
    pub(crate) metadata_only: bool,
}

impl<'a> Wanted<'a> {
    /// The child of an apply in canonical form.
    pub(crate) fn new(write: &'a Write, object: &'a Value) -> Self {
        let mut wanted = Self {
            write,
            at: Endpoint::of_write(write),
            print: OnceLock::new(),
            object,
            conflicts: Conflicts::Report,
            on_immutable: OnImmutable::Refuse,
            method: Method::InPlace,
            metadata_only: false,
        };
        if let Operation::Apply { method, on_immutable, force_conflicts, metadata_only, .. } =
            &write.operation
        {
            wanted.conflicts = if *force_conflicts { Conflicts::Force } else { Conflicts::Report };
            (wanted.on_immutable, wanted.method) = (*on_immutable, *method);
            wanted.metadata_only = *metadata_only;
        }
        wanted
    }

    /// Of the whole object; what is only created is never compared.
    pub(crate) fn print(&self) -> Print {
        *self.print.get_or_init(|| Print::of(self.object))
    }
}

pub(crate) type Done = Result<WriteResult, WriteError>;

impl Run<'_> {
    pub(crate) fn writer(&self) -> &Writer {
        &self.applier.writer
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(crate) async fn carry_out(&mut self, write: &Write) -> Done {
        if let Some(cause) = &self.stopped {
            let message = format!("not tried after an earlier write of this pass failed: {}", cause.message);
            return Err(WriteError { message, ..cause.clone() });
        }

        match &write.operation {
            Operation::Apply { object, create_only, .. } => {
                let object = desired::canonical(object);
                let wanted = Wanted::new(write, &object);
                let done = if *create_only {
                    self.create_once(&wanted).await
                } else {
                    self.apply_child(&wanted).await
                };
                match done {
                    // It was this strategy that deleted it, or it would have.
                    Err(error)
                        if error.fault == Fault::ObjectTerminating && wanted.method != Method::InPlace =>
                    {
                        Ok(WriteResult::Held(error.message))
                    }
                    done => done,
                }
            }
            Operation::GenerateSecret { object, template } => {
                self.generate_secret(write, object, template).await
            }
            Operation::Delete { propagation, grace_period_seconds } => {
                let uid = write.target.uid.clone().unwrap_or_default();
                self.delete(write, &uid, *propagation, *grace_period_seconds).await
            }
            Operation::Patch { patch, subresource } => self.patch_target(write, patch, *subresource).await,
        }
    }

    /// The answer for a write that waits for an earlier one which is not done.
    fn waits_for_earlier(&self, write: &Write) -> Option<Done> {
        let (after, done) = write.after.iter().find_map(|after| self.unfinished.get_key_value(after))?;
        Some(match done {
            Err(cause) => {
                let message = format!("not tried, as action {after} failed before it: {}", cause.message);
                Err(WriteError { message, ..cause.clone() })
            }
            Ok(_) => Ok(WriteResult::Held(format!("{} waits for action {after}", write.target))),
        })
    }

    /// Counts what the API server is in trouble about, and stops where going on would not help.
    pub(crate) fn note_error(&mut self, error: &WriteError, write: &Write) {
        if error.fault == Fault::NamespaceTerminating {
            self.terminating.insert(write.target.namespace.clone());
        }
        if self.stopped.is_some() {
            return;
        }
        self.troubles += u32::from(error.is_trouble());
        if error.stops_all() || self.troubles == TROUBLES_MAX {
            self.stopped = Some(error.clone());
        }
    }

    /// Reads the whole of an object that the snapshot showed in part.
    pub(crate) async fn look_again(
        &self,
        at: &Endpoint<'_>,
        known: &Object,
    ) -> Result<Arc<Object>, WriteError> {
        let found = self.writer().get(at).await?.filter(|found| found.meta().uid == known.meta().uid);
        let gone = || WriteError::here(Fault::Precondition, format!("{at} went while it was looked at"));
        found.map(Arc::new).ok_or_else(gone)
    }

    pub(crate) fn refuse_in_terminating_namespace(&self, write: &Write) -> Result<(), WriteError> {
        match &write.target.namespace {
            Some(namespace) if self.terminating.contains(&write.target.namespace) => {
                let message = format!("namespace {namespace} is being deleted");
                Err(WriteError::here(Fault::NamespaceTerminating, message))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn was_last_applied(&self, live: &Object, print: Print) -> bool {
        self.applier.recall(live).is_some_and(|memory| memory.is_of(print))
    }

    /// Remembers the response to an apply, and hands it on.
    pub(crate) fn applied(&mut self, wanted: &Wanted<'_>, response: Object) -> WriteResult {
        self.applier.remember(&response, Memory::after(wanted.print(), &response));
        self.written(response)
    }

    /// Hands a response on.
    pub(crate) fn written(&mut self, response: Object) -> WriteResult {
        let object = Arc::new(response);
        self.seen.written(object.clone());
        self.cx.sink.written(object.clone());
        WriteResult::Written(object)
    }

    /// Hands on that an object is gone.
    pub(crate) fn gone(&mut self, reference: &Reference) {
        self.applier.forget(reference.uid.as_deref().unwrap_or_default());
        self.seen.gone(reference);
        self.cx.sink.deleted(reference);
    }

    /// Nothing had to be done. An object that the snapshot did not show is handed on: the store lags behind.
    pub(crate) fn unchanged(&mut self, live: Arc<Object>) -> WriteResult {
        if !self.seen.was_in_snapshot(&live) {
            self.cx.sink.written(live);
        }
        WriteResult::NoOp
    }
}

pub(crate) fn going(at: &Endpoint<'_>) -> WriteError {
    WriteError::here(
        Fault::ObjectTerminating,
        format!("{at} is being deleted, and is created again when it is gone"),
    )
}
