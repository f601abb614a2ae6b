//! One controller: the view, the queue and the passes of one primary kind of one plugin. A single task owns all of
//! it; passes run in tasks of their own and report back.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilothouse_cluster::Change;
use pilothouse_cluster::apply::Applier;
use pilothouse_cluster::crd;
use pilothouse_cluster::discovery::Discovered;
use pilothouse_cluster::lease::{Shards, Term};
use pilothouse_cluster::queue::{self, Outcome, PluginTurns, Queue, QueueSettings, Wake};
use pilothouse_cluster::status::StatusWriter;
use pilothouse_cluster::write::Fence as _;
use pilothouse_model::action::Rejected;
use pilothouse_model::backoff;
use pilothouse_model::condition::Reason;
use pilothouse_model::kind::Kind;
use pilothouse_model::names::{Key, PluginName};
use pilothouse_model::settings::{BackoffSettings, Mode};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::abandoned::Abandoned;
use crate::metrics::controller::{ControllerMetrics, PassResult};
use crate::plugins::LivePlugin;
use crate::reconcile::{Ended, Ending, Pass};
use crate::serve::Gate;
use crate::supervisor::Shared;
use crate::view::{Listener, News, View};

/// Pace at which CRDs that could not be applied, or kinds that the API server does not know, are tried again.
const SETUP_BACKOFF: BackoffSettings = BackoffSettings { base_ms: 200, cap_ms: 30_000 };

/// Time until a pass that changed children is followed by one that sees them: soon, for the status may depend on it.
/// Doubled with each further one that changes something, for a plugin that does so each time must not go round as fast
/// as it can.
const LOOK_AGAIN: BackoffSettings = BackoffSettings { base_ms: 100, cap_ms: 60_000 };

/// Objects that may be remembered before it is looked whether all are still there. Twice those that are is the next
/// mark, so that the look costs each write little.
const SWEEP_MIN: usize = 1_024;

/// Until a pass that could write nothing is tried again: a quarter of the time between two renewals.
const FENCE_PAUSE: Duration = Duration::from_millis(500);

/// Runs the controller of `kind` until `stop`, then lets its passes end, and says which objects hold its finalizer
/// then, if it has one. Versions are swapped as they come. `turns` are those of the plugin, for all of its controllers
/// together.
pub(crate) async fn run(
    shared: Arc<Shared>,
    turns: PluginTurns,
    kind: Kind,
    mut versions: watch::Receiver<Arc<LivePlugin>>,
    stop: CancellationToken,
) -> Option<Abandoned> {
    let plugin = Arc::clone(&versions.borrow_and_update());
    let name = &plugin.prepared.manifest().name;
    let gate = shared.health.gate(gate_name(name, &kind), "setting up");
    // Watches begin when there is something to watch.
    let ready = loop {
        let version = Arc::clone(&versions.borrow_and_update());
        // From before: what is taken while it is set up may need more to be done.
        let terms = shared.shards.clone().terms();
        let wrong = |problem| gate.set(Err(problem));
        tokio::select! {
            () = set_up(&shared, &version, &kind, wrong) => break (version, terms),
            () = stop.cancelled() => return None,
            changed = versions.changed() => if changed.is_err() { return None },
        }
    };
    ControllerLoop::new(shared, turns, kind, ready, gate).run(versions, stop).await
}

/// Names the gate of one controller: the same for the controller that opens it and for whoever waits for it.
pub(crate) fn gate_name(plugin: &PluginName, kind: &Kind) -> String {
    format!("plugin {plugin}, {kind}")
}

/// Applies the CRD if the host was told to, and checks that the API server has the kinds as the manifest says. Tried
/// until it succeeds; each problem is said once.
async fn set_up(shared: &Shared, plugin: &LivePlugin, kind: &Kind, wrong: impl Fn(String)) {
    let (mut said, mut shards) = (String::new(), shared.shards.clone());
    for failures in 1_u32.. {
        let Err(Obstacle { problem, retry_after }) = try_set_up(shared, plugin, kind).await else { return };
        if problem != said {
            tracing::warn!(plugin = %plugin.prepared.manifest().name, %kind, "not set up yet: {problem}");
            wrong(problem.clone());
            said = problem;
        }
        let delay = backoff::delay(&SETUP_BACKOFF, failures, 0);
        tokio::select! {
            () = tokio::time::sleep(delay.max(retry_after.unwrap_or_default())) => {}
            // A CRD that is missing may have become this host's to apply.
            () = shards.changed() => {}
        }
    }
}

/// What keeps a controller from being set up.
struct Obstacle {
    problem: String,
    /// The API server asks to be left alone for so long.
    retry_after: Option<Duration>,
}

async fn try_set_up(shared: &Shared, plugin: &LivePlugin, kind: &Kind) -> Result<(), Obstacle> {
    let manifest = plugin.prepared.manifest();
    if shared.apply_crds
        && let Some(crd) = manifest.crd(kind)
        // Who stands by waits for the CRD of the one who does not.
        && let Some(work) = shared.shards.begin_work(shared.shards.of(&manifest.name, None))
    {
        // Stored without its conversion, objects would be taken for what they are not.
        let complete = shared
            .webhooks
            .as_ref()
            .map_or_else(|| Some(crd.clone()), |webhooks| webhooks.complete(manifest, crd));
        let Some(crd) = complete else {
            let problem =
                "its definition waits for the certificate of the webhooks that convert it".to_owned();
            return Err(Obstacle { problem, retry_after: None });
        };
        crd::apply_crds(&shared.writer.with_fence(work.fence()), std::slice::from_ref(&crd))
            .await
            .map_err(|error| Obstacle { retry_after: error.retry_after(), problem: error.to_string() })?;
    }
    let Some((_, controller)) = manifest.controller(kind) else { return Ok(()) };
    let children = controller.children.iter().map(|child| &child.resource);
    let related = controller.related.iter().map(|rule| &rule.resource);
    let targets = controller.targets.iter().map(|target| &target.resource);
    for resource in std::iter::once(&controller.primary).chain(children).chain(related).chain(targets) {
        match shared.cluster.discover(resource).await {
            Ok(Discovered::Present(_)) => {}
            Ok(Discovered::Absent(text) | Discovered::Contradicted(text)) => {
                let problem = format!("{}: {text}", resource.kind());
                return Err(Obstacle { problem, retry_after: None });
            }
            Err(error) => {
                let problem = format!("{}: {error}", resource.kind());
                return Err(Obstacle { problem, retry_after: error.retry_after() });
            }
        }
    }
    Ok(())
}

/// News that wait to be looked at. Filled by listeners, which may not block; emptied by the loop.
struct Inbox {
    queue: Queue,
    plugin: PluginName,
    shards: Shards,
    /// UIDs of primaries and children that are gone.
    buried: Mutex<Vec<Arc<str>>>,
    /// Keys of primaries that are gone and that no pass will look at, as their shard is another host's.
    unqueued: Mutex<Vec<Key>>,
    /// A watch changed its state.
    state: AtomicBool,
    woken: Notify,
}

impl Inbox {
    /// Whether this host holds the key's shard. Others' keys are not queued: when their shard is taken, all of its keys
    /// are looked at.
    fn is_ours(&self, key: &Key) -> bool {
        self.shards.term(self.shard(key)).is_some()
    }

    fn shard(&self, key: &Key) -> usize {
        self.shards.of_key(&self.plugin, key)
    }

    fn take(&self, news: News) {
        match news {
            // The queue wakes the loop itself.
            News::Primary(delta) => {
                let wake = if delta.change == Change::Initial {
                    Wake::resync()
                } else {
                    Wake::changed(delta.resource_version).resetting(delta.edited)
                };
                let gone = delta.change == Change::Deleted;
                if self.is_ours(&delta.key) {
                    self.queue.add(delta.key, wake);
                } else if gone {
                    lock(&self.unqueued).push(delta.key);
                }
                if !gone {
                    return;
                }
                lock(&self.buried).push(delta.uid);
            }
            News::Child { owner, uid, change, resource_version } => {
                // At the start every primary is looked at anyway.
                if change != Change::Initial && self.is_ours(&owner) {
                    self.queue.add(owner, Wake::changed(resource_version));
                }
                if change != Change::Deleted {
                    return;
                }
                lock(&self.buried).push(uid);
            }
            News::State => self.state.store(true, Ordering::Release),
            News::Related { keys } => {
                self.queue.add_all(keys.into_iter().filter(|key| self.is_ours(key)), Wake::change());
                return;
            }
        }
        self.woken.notify_one();
    }
}

/// Maps and lists of plain values are whole whenever their lock is free, also after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one pass of a key leaves to the next.
#[derive(Default, Clone)]
struct Left {
    /// What was refused or failed.
    rejected: Vec<Rejected>,
    /// Passes in a row that changed children.
    changing: u32,
}

/// A version whose watches are not all complete yet. Until they are, the version before it serves.
struct Next {
    plugin: Arc<LivePlugin>,
    at: usize,
    view: Arc<View>,
}

struct ControllerLoop {
    shared: Arc<Shared>,
    kind: Kind,
    plugin: Arc<LivePlugin>,
    /// Position in the manifest of `plugin`.
    at: usize,
    inbox: Arc<Inbox>,
    turns: PluginTurns,
    view: Arc<View>,
    applier: Applier,
    statuses: StatusWriter,
    metrics: Arc<ControllerMetrics>,
    gate: Gate,
    shards: Shards,
    /// The terms by shard, as the loop saw them last.
    terms: Vec<Option<Term>>,
    passes: JoinSet<(queue::Pass, Ended)>,
    /// What a new version needs done; ends with the controller.
    chores: JoinSet<()>,
    next: Option<Next>,
    /// Only of keys whose last pass left something.
    left: HashMap<Key, Left>,
    /// Keys that somebody holds, and why.
    held: HashMap<Key, Reason>,
    /// Objects remembered at which those that are gone are dropped.
    sweep_at: usize,
}

impl ControllerLoop {
    fn new(
        shared: Arc<Shared>,
        turns: PluginTurns,
        kind: Kind,
        (plugin, terms): (Arc<LivePlugin>, Vec<Option<Term>>),
        gate: Gate,
    ) -> Self {
        let manifest = plugin.prepared.manifest();
        let name = &manifest.name;
        let at = position(&plugin, &kind);
        turns.set_concurrency(plugin.settings.concurrency);
        let inbox = Arc::new(Inbox {
            queue: turns.queue(queue_settings(&shared, &plugin, at)),
            plugin: name.clone(),
            shards: shared.shards.clone(),
            buried: Mutex::default(),
            unqueued: Mutex::default(),
            state: AtomicBool::new(true),
            woken: Notify::new(),
        });
        let view = open_view(&shared, &plugin, at, &inbox);
        let applier = Applier::new(&shared.writer, name.clone());
        let statuses = StatusWriter::new(applier.writer().clone());
        let metrics = Arc::new(shared.metrics.controller(name, &kind, &inbox.queue));
        metrics.concurrency(plugin.settings.concurrency);
        Self {
            shards: shared.shards.clone(),
            shared,
            kind,
            plugin,
            at,
            inbox,
            turns,
            view,
            applier,
            statuses,
            metrics,
            gate,
            terms,
            passes: JoinSet::new(),
            chores: JoinSet::new(),
            next: None,
            left: HashMap::new(),
            held: HashMap::new(),
            sweep_at: SWEEP_MIN,
        }
    }

    async fn run(
        mut self,
        mut versions: watch::Receiver<Arc<LivePlugin>>,
        stop: CancellationToken,
    ) -> Option<Abandoned> {
        loop {
            self.follow_shards();
            self.take_in();
            self.take_over();
            self.say_ready();
            let queue = self.inbox.queue.clone();
            let may_start = self.may_start();
            tokio::select! {
                () = stop.cancelled() => break,
                next = queue.next(), if may_start => self.start(next),
                Some(ended) = self.passes.join_next(), if !self.passes.is_empty() => self.finish(ended),
                () = self.inbox.woken.notified() => {}
                () = self.shards.changed() => {}
                changed = versions.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let version = Arc::clone(&versions.borrow_and_update());
                    self.swap(version);
                }
            }
        }
        while let Some(ended) = self.passes.join_next().await {
            self.finish(ended);
        }
        self.abandoned()
    }

    /// What this controller leaves behind.
    fn abandoned(&self) -> Option<Abandoned> {
        let finalizer = self.plugin.prepared.manifest().controllers[self.at].guard()?.to_owned();
        let objects = self.view.primaries_with(&finalizer);
        Some(Abandoned { plugin: self.plugin_name().clone(), kind: self.kind.clone(), finalizer, objects })
    }

    /// Queues the keys of shards that were taken and drops those of shards that were lost. Passes that run under a term
    /// that is over write nothing more and end by themselves.
    fn follow_shards(&mut self) {
        let (before, now) = (std::mem::take(&mut self.terms), self.shards.terms());
        let differs = |shard: &usize| before.get(*shard) != now.get(*shard);
        let changed: HashSet<usize> = (0..now.len()).filter(differs).collect();
        self.terms = now;
        if changed.is_empty() {
            return;
        }
        let inbox = &self.inbox;
        let is_of = |key: &Key| changed.contains(&inbox.shard(key));
        self.left.retain(|key, _| !is_of(key));
        self.held.retain(|key, _| !is_of(key));
        let (ours, others): (Vec<Key>, Vec<Key>) =
            self.view.primary_keys().into_iter().filter(is_of).partition(|key| inbox.is_ours(key));
        for key in others {
            inbox.queue.forget(&key);
            self.view.look_ups().forget(&key);
        }
        inbox.queue.add_all(ours, Wake::resync().resetting(true));
        self.count_held();
        let of_crds = self.shards.of(self.plugin_name(), None);
        if changed.contains(&of_crds) && self.terms[of_crds].is_some() {
            self.spawn_set_up(Arc::clone(&self.plugin));
        }
    }

    /// Sets up once more, beside what works.
    fn spawn_set_up(&mut self, plugin: Arc<LivePlugin>) {
        self.chores.abort_all();
        let (shared, kind) = (Arc::clone(&self.shared), self.kind.clone());
        self.chores.spawn(async move { set_up(&shared, &plugin, &kind, |_| {}).await });
    }

    /// Forgets what is remembered of objects that are gone.
    fn take_in(&mut self) {
        for uid in std::mem::take(&mut *lock(&self.inbox.buried)) {
            self.applier.forget(&uid);
            self.statuses.forget(&uid);
        }
        if self.remembered() >= self.sweep_at {
            let alive = self.view.uids();
            self.applier.retain(&alive);
            self.statuses.retain(&alive);
            self.sweep_at = SWEEP_MIN.max(2 * self.remembered());
        }
        for key in std::mem::take(&mut *lock(&self.inbox.unqueued)) {
            self.view.forget(&key);
            // Created again in between, it would have been forgotten with its predecessor.
            self.view.find(&key);
        }
    }

    fn remembered(&self) -> usize {
        self.applier.remembered_children() + self.statuses.remembered_primaries()
    }

    /// Passes may begin: the plugin is not paused, and what is not in the stores is not there.
    fn may_start(&self) -> bool {
        self.plugin.settings.mode != Mode::Paused && self.view.is_complete()
    }

    fn start(&mut self, next: queue::Pass) {
        let key = next.key().clone();
        let Some(work) = self.shards.begin_work(self.inbox.shard(&key)) else {
            // Its shard was lost since it was queued.
            next.finish(Outcome::Rest, &[]);
            self.inbox.queue.forget(&key);
            return;
        };
        if !work.term().admits() {
            // Without a renewal for a while the host can only calculate. Either one comes or the term ends.
            next.finish(Outcome::Success { requeue_after: Some(FENCE_PAUSE) }, &[]);
            return;
        }
        let pass = Pass {
            plugin: Arc::clone(&self.plugin),
            controller: self.at,
            view: Arc::clone(&self.view),
            sandbox: Arc::clone(&self.shared.sandbox),
            applier: self.applier.with_fence(work.fence()),
            statuses: self.statuses.with_fence(work.fence()),
            events: self.shared.events.with_fence(work.fence()),
            metrics: Arc::clone(&self.metrics),
            namespaces: Arc::clone(&self.shared.namespaces),
            has_conditions: self.plugin.prepared.manifest().holds_conditions(&self.kind),
        };
        let last = self.left.get(&key).map(|left| left.rejected.clone()).unwrap_or_default();
        let span = tracing::info_span!(
            "pass",
            plugin = %self.plugin_name(),
            kind = %self.kind.kind,
            %key,
            generation = %self.plugin.generation
        );
        let metrics = Arc::clone(&self.metrics);
        let run = async move {
            let begun = Instant::now();
            metrics.pass_begins(next.waited());
            let ended = pass.run(&key, &last).await;
            metrics.pass_ends(begun.elapsed(), result(&ended));
            drop(work);
            (next, ended)
        };
        self.passes.spawn(run.instrument(span));
    }

    /// Here and not in the pass's own task: the key's next pass must not begin before what this one leaves is kept.
    fn finish(&mut self, ended: Result<(queue::Pass, Ended), tokio::task::JoinError>) {
        let (pass, ended) = match ended {
            Ok(ended) => ended,
            // Our own bug, and its key's alone: the others go on, and this one is tried again with backoff.
            Err(error) => {
                self.metrics.pass_panicked();
                tracing::error!(kind = %self.kind, %error, "a pass ended by a panic, which is a bug of the host");
                return;
            }
        };
        let key = pass.key().clone();
        let before = self.left.remove(&key).map_or(0, |left| left.changing);
        let changing = if ended.changed_children { before.saturating_add(1) } else { 0 };
        if ended.ending != Ending::Gone && (changing > 0 || !ended.rejected.is_empty()) {
            self.left.insert(key.clone(), Left { rejected: ended.rejected, changing });
        }
        self.note_held(&key, ended.held);
        let slowest = Duration::from_millis(self.plugin.settings.backoff.cap_ms);
        pass.finish(outcome(ended.ending, changing, slowest), &ended.written);
        if !self.inbox.is_ours(&key) {
            // Its shard was lost while it ran.
            self.left.remove(&key);
            self.note_held(&key, None);
            self.inbox.queue.forget(&key);
            return;
        }
        if ended.ending == Ending::Gone && self.view.primary(&key).is_none() {
            self.inbox.queue.forget(&key);
            self.view.forget(&key);
            // Created again in between, it would have been forgotten with its predecessor.
            if self.view.primary(&key).is_some() {
                self.view.find(&key);
                self.inbox.queue.add(key, Wake::change());
            }
        }
    }

    fn note_held(&mut self, key: &Key, held: Option<Reason>) {
        let before = match held {
            Some(reason) => self.held.insert(key.clone(), reason),
            None => self.held.remove(key),
        };
        if before != held {
            self.count_held();
        }
    }

    fn count_held(&self) {
        let count = |reason| self.held.values().filter(|held| **held == reason).count();
        let [paused, awaiting, updating] =
            [Reason::Paused, Reason::AwaitingApproval, Reason::Updating].map(count);
        self.metrics.held(paused, awaiting, updating);
    }

    /// A new version is there. It serves at once if it watches what the one before it watches, else when its own
    /// watches are complete: a right or a kind that is missing must not stop what works.
    fn swap(&mut self, version: Arc<LivePlugin>) {
        let at = position(&version, &self.kind);
        let (new, old) = (version.prepared.manifest(), self.plugin.prepared.manifest());
        let same_controller = new.controllers[at] == old.controllers[self.at];
        if !same_controller || new.crd(&self.kind) != old.crd(&self.kind) {
            self.spawn_set_up(Arc::clone(&version));
        }
        // Watches that both need are shared, so they stay filled.
        let view = if same_controller {
            Arc::clone(&self.view)
        } else {
            open_view(&self.shared, &version, at, &self.inbox)
        };
        self.next = Some(Next { plugin: version, at, view });
        self.inbox.state.store(true, Ordering::Release);
    }

    /// Lets the next version serve once it can: passes that run end on the old one, then every key is looked at with
    /// the new one at once, whatever it waits for.
    fn take_over(&mut self) {
        let Some(Next { plugin, at, view }) = self.next.take_if(|next| {
            // The same view may not be complete either, at the start; there is nothing to wait for then.
            Arc::ptr_eq(&next.view, &self.view) || next.view.is_complete()
        }) else {
            return;
        };
        (self.plugin, self.at, self.view) = (plugin, at, view);
        self.inbox.state.store(true, Ordering::Release);
        self.turns.set_concurrency(self.plugin.settings.concurrency);
        self.metrics.concurrency(self.plugin.settings.concurrency);
        self.inbox.queue.configure(queue_settings(&self.shared, &self.plugin, self.at));
        let keys = self.view.primary_keys().into_iter().filter(|key| self.inbox.is_ours(key));
        self.inbox.queue.add_all(keys, Wake::resync().resetting(true));
    }

    fn say_ready(&self) {
        if !self.inbox.state.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut unready = self.view.unready();
        if let Some(next) = &self.next {
            let waits = |problem| format!("generation {} waits: {problem}", next.plugin.generation);
            unready.extend(next.view.unready().into_iter().map(waits));
        }
        self.gate.set(if unready.is_empty() { Ok(()) } else { Err(unready.join("; ")) });
    }

    fn plugin_name(&self) -> &PluginName {
        &self.plugin.prepared.manifest().name
    }
}

fn position(plugin: &LivePlugin, kind: &Kind) -> usize {
    // The supervisor runs a controller for the kinds of the manifest alone.
    plugin.prepared.manifest().controller(kind).map_or(0, |(at, _)| at)
}

fn open_view(shared: &Shared, plugin: &LivePlugin, at: usize, inbox: &Arc<Inbox>) -> Arc<View> {
    let manifest = plugin.prepared.manifest();
    let inbox = Arc::clone(inbox);
    let listener: Listener = Arc::new(move |news| inbox.take(news));
    let controller = &manifest.controllers[at];
    let (cluster, watches) = (&shared.cluster, &shared.watches);
    Arc::new(View::open(cluster, watches, &manifest.name, controller, &shared.namespaces, &listener))
}

fn queue_settings(shared: &Shared, plugin: &LivePlugin, at: usize) -> QueueSettings {
    let of_manifest = plugin.prepared.manifest().controllers[at].resync_seconds;
    let seconds = plugin.settings.resync_seconds.or(of_manifest);
    QueueSettings {
        backoff: plugin.settings.backoff,
        resync: seconds.map_or(shared.resync, Duration::from_secs),
    }
}

/// How a pass ended, in the words of the metric.
fn result(ended: &Ended) -> PassResult {
    match ended.failure {
        Some(reason) => {
            PassResult::Error { reason: reason.as_str(), terminal: ended.ending == Ending::Stuck }
        }
        None if ended.changed_children || matches!(ended.ending, Ending::Settled(Some(_))) => {
            PassResult::RequeueAfter
        }
        None => PassResult::Success,
    }
}

/// `changing`: passes in a row, this one included, that changed children.
fn outcome(ending: Ending, changing: u32, slowest: Duration) -> Outcome {
    let look_again = (changing > 0).then(|| backoff::delay(&LOOK_AGAIN, changing, 0));
    match ending {
        Ending::Gone => Outcome::Success { requeue_after: None },
        Ending::Settled(asked) => {
            let sooner = [asked, look_again].into_iter().flatten().min();
            Outcome::Success { requeue_after: sooner }
        }
        Ending::Stuck => Outcome::Rest,
        Ending::Failed(not_before) => Outcome::Failed { not_before },
        Ending::Refused => Outcome::Failed { not_before: Some(slowest) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_changes_a_child_each_time_goes_round_ever_slower() {
        let asked = Some(Duration::from_secs(5));
        let after = |changing| match outcome(Ending::Settled(asked), changing, Duration::ZERO) {
            Outcome::Success { requeue_after } => requeue_after.unwrap().as_millis(),
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 1, 2, 6, 7, 50].map(after), [5_000, 100, 200, 3_200, 5_000, 5_000]);
    }
}
