//! Which key is reconciled next, and when.
//!
//! - `keys`: the keys of one controller. Pure: time is an argument.
//! - `turns`: whose turn it is among plugins. Pure as well.
//! - here: the two behind a lock, with waiting.
//!
//! Our own rather than `kube::runtime`'s applier, which has one order for all keys, counts no attempts and has no
//! place where plugins take turns.
//!
//! ```
//! # use std::time::Duration;
//! use pilothouse_cluster::queue::{Outcome, QueueSettings, Scheduler, Wake};
//! # use pilothouse_model::{names::Key, settings::BackoffSettings};
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let scheduler = Scheduler::new(64);
//! let plugin = scheduler.plugin(10);
//! let queue = plugin.queue(QueueSettings { backoff: BackoffSettings::default(), resync: Duration::from_secs(600) });
//! queue.add(Key::namespaced("shop", "orders"), Wake::change());
//! let pass = queue.next().await;
//! assert_eq!(pass.key(), &Key::namespaced("shop", "orders"));
//! // … reconcile …
//! let versions_written = [4711];
//! pass.finish(Outcome::Success { requeue_after: None }, &versions_written);
//! # });
//! ```

mod keys;
mod turns;

use std::future::pending;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pilothouse_model::names::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::keys::Started;
pub use self::keys::{Lane, Outcome, QueueSettings, QueueStats, Wake};
use self::turns::{PluginId, QueueId, Turns};

/// Starts the passes of all plugins: no more than so many at the same time, and by turns between plugins. Cheap to
/// clone.
#[derive(Clone)]
pub struct Scheduler(Arc<Mutex<Turns>>);

impl Scheduler {
    /// At most `passes_max` passes at the same time, over all plugins. A pass waits for the API server most of its
    /// life, so this is a bound on memory and on requests in flight rather than on processors.
    pub fn new(passes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(passes_max))))
    }

    /// A plugin, with at most `concurrency` passes of all its queues at the same time.
    pub fn plugin(&self, concurrency: u32) -> PluginTurns {
        let id = self.lock().add_plugin(concurrency);
        PluginTurns(Arc::new(PluginPlace { scheduler: self.clone(), id }))
    }

    /// Passes at this moment.
    pub fn running(&self) -> usize {
        self.lock().running()
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A plugin's place among the others. It ends with the last clone and the last of its queues.
#[derive(Clone)]
pub struct PluginTurns(Arc<PluginPlace>);

struct PluginPlace {
    scheduler: Scheduler,
    id: PluginId,
}

impl Drop for PluginPlace {
    fn drop(&mut self) {
        self.scheduler.lock().remove_plugin(self.id);
    }
}

impl PluginTurns {
    /// Another bound. Passes that run are not ended.
    pub fn set_concurrency(&self, concurrency: u32) {
        self.0.scheduler.lock().set_concurrency(self.0.id, concurrency, now());
    }

    /// A queue of keys of this plugin, one for each of its controllers.
    pub fn queue(&self, settings: QueueSettings) -> Queue {
        let wake = Arc::new(Notify::new());
        let id = self.0.scheduler.lock().add_queue(self.0.id, settings, Arc::clone(&wake));
        Queue(Arc::new(QueuePlace { plugin: Arc::clone(&self.0), id, wake }))
    }
}

/// The keys of one controller. Cheap to clone; ends with its last clone and the last of its passes.
#[derive(Clone)]
pub struct Queue(Arc<QueuePlace>);

struct QueuePlace {
    plugin: Arc<PluginPlace>,
    id: QueueId,
    /// Told when a pass was granted to one who waits in [`Queue::next`].
    wake: Arc<Notify>,
}

impl QueuePlace {
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.plugin.scheduler.lock()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.lock().remove_queue(self.id);
    }
}

impl Queue {
    /// This key is to be reconciled. Neither blocks nor fails.
    pub fn add(&self, key: Key, wake: Wake) {
        self.0.lock().add(self.0.id, key, wake, now());
    }

    /// As [`Queue::add`] for many keys.
    pub fn add_all(&self, keys: impl IntoIterator<Item = Key>, wake: Wake) {
        let (mut turns, now) = (self.0.lock(), now());
        keys.into_iter().for_each(|key| turns.add(self.0.id, key, wake, now));
    }

    /// The object is gone: its key is reconciled no more, unless it is added again.
    pub fn forget(&self, key: &Key) {
        if let Some(keys) = self.0.lock().keys(self.0.id) {
            keys.forget(key);
        }
    }

    /// Other settings, from the next outcome of each key on.
    pub fn configure(&self, settings: QueueSettings) {
        if let Some(keys) = self.0.lock().keys(self.0.id) {
            keys.configure(settings);
        }
    }

    /// How many keys wait for their turn. Costs nothing.
    pub fn due(&self) -> usize {
        self.0.lock().keys(self.0.id).map_or(0, |keys| keys.due())
    }

    /// How many keys there are, in which state. Looks at every key.
    pub fn stats(&self) -> QueueStats {
        let now = now();
        self.0.lock().keys(self.0.id).map(|keys| keys.stats(now)).unwrap_or_default()
    }

    /// The next pass: as soon as a key is due and it is this plugin's turn. A queue that nobody waits on takes no turn.
    ///
    /// Cancel safe: a pass that was granted to a dropped future goes to the next who waits.
    pub async fn next(&self) -> Pass {
        let waiting = Waiting::new(self);
        loop {
            let mut granted = pin!(self.0.wake.notified());
            // From here on a grant finds this one, even before it sleeps.
            granted.as_mut().enable();
            let due = {
                let mut turns = self.0.lock();
                let now = now();
                turns.dispatch(now);
                if let Some(started) = turns.take(self.0.id) {
                    drop(turns);
                    waiting.done();
                    return Pass { queue: Arc::clone(&self.0), started, finished: false };
                }
                turns.keys(self.0.id).and_then(|keys| keys.next_due(now))
            };
            let is_due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(Instant::from_std(due)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = granted => {}
                () = is_due => {}
            }
        }
    }
}

/// One who waits in [`Queue::next`].
struct Waiting<'a>(&'a Queue);

impl<'a> Waiting<'a> {
    fn new(queue: &'a Queue) -> Self {
        queue.0.lock().begin_wait(queue.0.id);
        Self(queue)
    }

    /// It has got what it waited for.
    fn done(self) {
        mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().give_up_wait(self.0.0.id, now());
    }
}

/// One pass over one key. No other runs for this key until it is finished.
pub struct Pass {
    queue: Arc<QueuePlace>,
    started: Started,
    finished: bool,
}

impl Pass {
    /// What to reconcile.
    pub fn key(&self) -> &Key {
        &self.started.key
    }

    /// Passes over this key that failed in a row before this one.
    pub fn failures(&self) -> u32 {
        self.started.failures
    }

    /// How long the key was due before its turn came.
    pub fn waited(&self) -> Duration {
        self.started.waited
    }

    /// Why it runs.
    pub fn lane(&self) -> Lane {
        self.started.lane
    }

    /// The pass is over. `written` are the versions that its own writes gave to objects: changes up to now that are
    /// all among them do not wake the key again.
    pub fn finish(mut self, outcome: Outcome, written: &[u64]) {
        self.end(outcome, written);
    }

    fn end(&mut self, outcome: Outcome, written: &[u64]) {
        self.finished = true;
        let PluginPlace { scheduler, id } = &*self.queue.plugin;
        scheduler.lock().finish(*id, self.queue.id, &self.started.key, outcome, written, now());
    }
}

impl Drop for Pass {
    /// A pass that panicked or was dropped counts as failed.
    fn drop(&mut self) {
        if !self.finished {
            self.end(Outcome::Failed { not_before: None }, &[]);
        }
    }
}

fn now() -> std::time::Instant {
    // tokio's clock, which tests can stop.
    Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use pilothouse_model::settings::BackoffSettings;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    fn settings() -> QueueSettings {
        QueueSettings { backoff: BackoffSettings::default(), resync: Duration::from_mins(10) }
    }

    fn key(name: impl ToString) -> Key {
        Key::namespaced("n", &name.to_string())
    }

    async fn idle(queue: &Queue) -> bool {
        timeout(Duration::from_millis(1), queue.next()).await.is_err()
    }

    const DONE: Outcome = Outcome::Success { requeue_after: None };

    #[tokio::test(start_paused = true)]
    async fn one_who_waits_is_woken_by_a_key_by_time_and_by_a_free_place() {
        let scheduler = Scheduler::new(8);
        let plugin = scheduler.plugin(1);
        let queue = plugin.queue(settings());
        let waits = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        queue.add(key("a"), Wake::change());
        let pass = waits.await.unwrap();

        queue.add(key("b"), Wake::change());
        assert!(idle(&queue).await, "the plugin has one pass at a time");
        let begun = Instant::now();
        let (next, ()) = tokio::join!(queue.next(), async {
            pass.finish(Outcome::Success { requeue_after: Some(Duration::from_secs(5)) }, &[]);
        });
        assert_eq!((next.key(), begun.elapsed()), (&key("b"), Duration::ZERO));
        next.finish(Outcome::Rest, &[]);
        let again = queue.next().await;
        assert_eq!((again.key(), begun.elapsed().as_secs()), (&key("a"), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_with_thousands_due_does_not_hold_up_another() {
        let scheduler = Scheduler::new(4);
        let (busy, quiet) = (scheduler.plugin(10), scheduler.plugin(10));
        let (busy, quiet) = (busy.queue(settings()), quiet.queue(settings()));
        busy.add_all((0..10_000).map(key), Wake::change());
        let mut passes = Vec::new();
        for _ in 0..4 {
            passes.push(busy.next().await);
        }
        quiet.add(key("q"), Wake::change());
        let mut busy_next = pin!(busy.next());
        let mut quiet_next = pin!(quiet.next());
        assert!(futures::poll!(&mut busy_next).is_pending() && futures::poll!(&mut quiet_next).is_pending());
        passes.pop().unwrap().finish(DONE, &[]);
        let quiet = futures::poll!(&mut quiet_next);
        assert!(quiet.is_ready(), "its turn comes with the first free place");
        assert!(futures::poll!(&mut busy_next).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn the_bounds_hold_and_plugins_share_what_there_is() {
        let scheduler = Scheduler::new(6);
        let plugins = [scheduler.plugin(3), scheduler.plugin(10), scheduler.plugin(10)];
        // The last plugin has two queues, which share its turns.
        let queues = [0, 1, 2, 2].map(|at: usize| plugins[at].queue(settings()));
        let (done, begun) = (Arc::new(Mutex::new([0; 4])), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for (at, queue) in queues.into_iter().enumerate() {
            queue.add_all((0..1_000).map(key), Wake::resync());
            let (scheduler, done, begun) = (scheduler.clone(), Arc::clone(&done), Arc::clone(&begun));
            tasks.spawn(async move {
                let mut passes = JoinSet::new();
                loop {
                    let pass = queue.next().await;
                    assert!(scheduler.running() <= 6);
                    let done = Arc::clone(&done);
                    // 10 s each on average, and no two at the same instant.
                    let lasts_ms = 7_000 + begun.fetch_add(997, Ordering::Relaxed) % 6_000;
                    passes.spawn(async move {
                        tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
                        done.lock().unwrap()[at] += 1;
                        pass.finish(DONE, &[]);
                    });
                    assert!(at != 0 || queue.stats().running <= 3, "the first plugin has three at a time");
                }
            });
        }
        let ended = timeout(Duration::from_secs(2_000), tasks.join_next()).await;
        assert!(ended.is_err(), "{ended:?}");
        // Six places for 10 s each make 1,200 passes in 2,000 s.
        let done = *done.lock().unwrap();
        for (done_by_one, fair) in done.into_iter().zip([400, 400, 200, 200]) {
            assert!(
                (fair * 9 / 10..=fair * 11 / 10).contains(&done_by_one),
                "{done:?}, {fair} would be fair"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_to_a_dropped_future_and_a_dropped_pass_are_not_lost() {
        let scheduler = Scheduler::new(1);
        let plugin = scheduler.plugin(1);
        let queue = plugin.queue(settings());
        {
            let mut dropped = Box::pin(queue.next());
            assert!(futures::poll!(&mut dropped).is_pending());
            queue.add(key("a"), Wake::change());
            assert_eq!(scheduler.running(), 1, "granted");
        }
        assert_eq!(scheduler.running(), 0);
        let pass = queue.next().await;
        assert_eq!((pass.key(), pass.failures()), (&key("a"), 0));
        let panics = tokio::spawn(async move {
            let _pass = pass;
            panic!("as a bug of ours would");
        });
        assert!(panics.await.is_err());
        assert_eq!(queue.next().await.failures(), 1);
        assert_eq!(scheduler.running(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn six_thousand_resyncs_do_not_delay_a_new_object() {
        let scheduler = Scheduler::new(64);
        let plugin = scheduler.plugin(10);
        let queue = plugin.queue(settings());
        queue.add_all((0..6_000).map(key), Wake::resync());
        for _ in 0..100 {
            queue.next().await.finish(DONE, &[]);
        }
        queue.add(key("new"), Wake::change());
        let mut passes = 1;
        while *queue.next().await.key() != key("new") {
            passes += 1;
        }
        assert!(passes <= 2, "{passes}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_leaves_nothing() {
        let scheduler = Scheduler::new(64);
        for _ in 0..1_000 {
            let plugin = scheduler.plugin(10);
            let queue = plugin.queue(settings());
            queue.add_all((0..10).map(key), Wake::change());
            let pass = queue.next().await;
            drop((plugin, queue));
            pass.finish(DONE, &[]);
        }
        assert_eq!((scheduler.running(), scheduler.lock().len()), (0, (0, 0)));
    }
}
