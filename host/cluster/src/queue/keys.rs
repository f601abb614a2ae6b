//! The keys of one controller: which of them is due, in what order, and when those that are not will be. A state
//! machine without a clock.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use pilothouse_model::backoff;
use pilothouse_model::names::Key;
use pilothouse_model::settings::BackoffSettings;

/// Versions of changes remembered while a pass runs. As many as an outcome may have actions by default: each write of
/// a pass comes back as one change. Beyond that the key is simply reconciled again.
const CAUSES_MAX: usize = 2_000;
/// Of so many keys taken, one is the one that has waited longest, whatever its lane: changes without end must not
/// hold up resyncs for ever.
const OLDEST_EACH: u64 = 8;

/// A plugin that asks to be called again sooner is a loop: it is woken by changes anyway.
const REQUEUE_AFTER_MIN: Duration = Duration::from_millis(100);

/// Why a key is to be reconciled. The order is that in which keys are taken: a new object is served within seconds
/// of a restart with thousands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Something changed.
    Change,
    /// Time is up: a retry, or what a plugin asked for.
    Requeue,
    /// It was there already when the host began to look, or nothing happened for a while.
    Resync,
}

impl Lane {
    /// All of them, in the order in which they are taken.
    pub const ALL: [Self; 3] = [Self::Change, Self::Requeue, Self::Resync];
}

/// What wakes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Why.
    pub lane: Lane,
    /// `metadata.resourceVersion` of the change, to tell a pass's own writes from those of others. None: whatever
    /// the pass wrote, it must run again.
    pub cause: Option<u64>,
    /// Forget failed attempts: the user changed what is wanted, or another version of the plugin was loaded.
    pub reset: bool,
}

impl Wake {
    /// Something changed.
    pub fn change() -> Self {
        Self { lane: Lane::Change, cause: None, reset: false }
    }

    /// An object changed, and now has this version.
    pub fn changed(resource_version: u64) -> Self {
        Self { lane: Lane::Change, cause: Some(resource_version), reset: false }
    }

    /// The object was there when the host began to look, or it is time to look again.
    pub fn resync() -> Self {
        Self { lane: Lane::Resync, cause: None, reset: false }
    }

    /// The same, and failed attempts are forgotten if `edited` is true.
    #[must_use]
    pub fn resetting(self, edited: bool) -> Self {
        Self { reset: self.reset || edited, ..self }
    }
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was to do.
    Success {
        /// When the plugin wants to look again, if nothing happens before. At least 100 ms, and no later than the
        /// resync.
        requeue_after: Option<Duration>,
    },
    /// It did not. It is tried again, each time later.
    Failed {
        /// Not before this, if the API server said so.
        not_before: Option<Duration>,
    },
    /// It cannot succeed until somebody changes something.
    Rest,
}

/// The pace of one controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Pace of retries.
    pub backoff: BackoffSettings,
    /// After which time without a pass a key is reconciled again, shortened by up to a tenth, which differs between
    /// keys, so that they do not all come at once.
    pub resync: Duration,
}

/// How many keys there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Due, and waiting for their turn.
    pub due: usize,
    /// The same by lane, in the order of [`Lane`].
    pub due_by_lane: [usize; 3],
    /// Not due yet.
    pub later: usize,
    /// Being reconciled.
    pub running: usize,
    /// How long the one that has waited longest is due.
    pub oldest_due: Duration,
    /// For how long those that are being reconciled have been so, together.
    pub running_for: Duration,
    /// For how long the first of them.
    pub longest_running: Duration,
    /// Times that a key became due, since the queue was made.
    pub added: u64,
    /// Times that a key was put off to be tried or looked at again, resyncs apart, since the queue was made.
    pub retried: u64,
}

/// A key whose pass begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) key: Key,
    pub(crate) failures: u32,
    pub(crate) waited: Duration,
    pub(crate) lane: Lane,
}

/// See the module's documentation. A key that is in no state is not remembered at all.
#[derive(Debug)]
pub(crate) struct Keys {
    settings: QueueSettings,
    entries: HashMap<Key, Entry>,
    /// Invariant: has exactly the keys in [`State::Due`], each under its ticket and in its lane.
    due: [BTreeMap<u64, Key>; 3],
    /// Invariant: has exactly the keys in [`State::Later`], each under its time and ticket.
    later: BTreeMap<(Instant, u64), Key>,
    tickets: u64,
    taken: u64,
    added: u64,
    retried: u64,
}

#[derive(Debug)]
struct Entry {
    /// Failed passes in a row.
    failures: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Due { lane: Lane, ticket: u64, since: Instant },
    Later { lane: Lane, ticket: u64, at: Instant },
    Running { again: Option<Again>, forgotten: bool, reset: bool, since: Instant },
}

/// What woke a key while its pass was running.
#[derive(Debug)]
struct Again {
    lane: Lane,
    /// None: unconditional.
    causes: Option<Vec<u64>>,
}

impl Again {
    fn of(wake: Wake) -> Self {
        Self { lane: wake.lane, causes: wake.cause.map(|cause| vec![cause]) }
    }

    fn add(&mut self, wake: Wake) {
        self.lane = self.lane.min(wake.lane);
        match (&mut self.causes, wake.cause) {
            (Some(causes), Some(cause)) if causes.len() < CAUSES_MAX => causes.push(cause),
            (causes, _) => *causes = None,
        }
    }

    fn is_of(&self, written: &[u64]) -> bool {
        let Some(causes) = &self.causes else { return false };
        let mut written = written.to_vec();
        written.sort_unstable();
        causes.iter().all(|cause| written.binary_search(cause).is_ok())
    }
}

impl Keys {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            due: Default::default(),
            later: BTreeMap::new(),
            tickets: 0,
            taken: 0,
            added: 0,
            retried: 0,
        }
    }

    pub(crate) fn configure(&mut self, settings: QueueSettings) {
        self.settings = settings;
    }

    /// This key is due now, or again as soon as its pass is over.
    pub(crate) fn add(&mut self, key: Key, wake: Wake, now: Instant) {
        self.tickets += 1;
        let due = |since| State::Due { lane: wake.lane, ticket: self.tickets, since };
        let entry = match self.entries.entry(key.clone()) {
            Slot::Vacant(slot) => {
                self.added += 1;
                slot.insert(Entry { failures: 0, state: due(now) });
                self.due[wake.lane as usize].insert(self.tickets, key);
                return;
            }
            Slot::Occupied(slot) => slot.into_mut(),
        };
        if wake.reset {
            entry.failures = 0;
        }
        match &mut entry.state {
            State::Due { lane, .. } if *lane <= wake.lane => {}
            State::Due { lane, ticket, since } => {
                self.due[*lane as usize].remove(ticket);
                entry.state = due(*since);
                self.due[wake.lane as usize].insert(self.tickets, key);
            }
            State::Later { ticket, at, .. } => {
                self.added += 1;
                self.later.remove(&(*at, *ticket));
                entry.state = due(now);
                self.due[wake.lane as usize].insert(self.tickets, key);
            }
            State::Running { again, forgotten, reset, .. } => {
                *forgotten = false;
                *reset |= wake.reset;
                match again {
                    Some(again) => again.add(wake),
                    None => *again = Some(Again::of(wake)),
                }
            }
        }
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        match self.entries.get_mut(key).map(|entry| &mut entry.state) {
            None => return,
            Some(State::Running { again, forgotten, .. }) => {
                (*again, *forgotten) = (None, true);
                return;
            }
            Some(State::Due { lane, ticket, .. }) => drop(self.due[*lane as usize].remove(ticket)),
            Some(State::Later { ticket, at, .. }) => drop(self.later.remove(&(*at, *ticket))),
        }
        self.entries.remove(key);
    }

    /// Makes due what has become so.
    fn advance(&mut self, now: Instant) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, ticket), key) = first.remove_entry();
            if let Some(Entry { state, .. }) = self.entries.get_mut(&key)
                && let State::Later { lane, .. } = *state
            {
                self.added += 1;
                *state = State::Due { lane, ticket, since: at };
                self.due[lane as usize].insert(ticket, key);
            }
        }
    }

    /// Whether [`Keys::start`] would give a key.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.due.iter().any(|lane| !lane.is_empty())
    }

    /// Takes the next key that is due; its pass runs until [`Keys::finish`].
    pub(crate) fn start(&mut self, now: Instant) -> Option<Started> {
        self.advance(now);
        let heads =
            Lane::ALL.into_iter().filter_map(|lane| Some((lane, *self.due[lane as usize].keys().next()?)));
        let by_age = self.taken % OLDEST_EACH == OLDEST_EACH - 1;
        let (lane, ticket) =
            heads.min_by_key(|(lane, ticket)| if by_age { (0, *ticket) } else { (*lane as usize, 0) })?;
        let key = self.due[lane as usize].remove(&ticket)?;
        self.taken += 1;
        let entry = self.entries.get_mut(&key)?;
        let running = State::Running { again: None, forgotten: false, reset: false, since: now };
        let State::Due { since, .. } = std::mem::replace(&mut entry.state, running) else { return None };
        Some(Started { key, failures: entry.failures, waited: now.saturating_duration_since(since), lane })
    }

    /// The pass of a key did not begin after all: it is due as before.
    pub(crate) fn put_back(&mut self, started: Started, now: Instant) {
        let Some(entry) = self.entries.get_mut(&started.key) else { return };
        let State::Running { again, forgotten, .. } = &entry.state else { return };
        if *forgotten {
            self.entries.remove(&started.key);
            return;
        }
        let lane = again.as_ref().map_or(started.lane, |again| again.lane.min(started.lane));
        self.tickets += 1;
        let since = now.checked_sub(started.waited).unwrap_or(now);
        entry.state = State::Due { lane, ticket: self.tickets, since };
        self.due[lane as usize].insert(self.tickets, started.key);
    }

    /// The pass of a key is over; see [`super::Pass::finish`].
    pub(crate) fn finish(&mut self, key: &Key, outcome: Outcome, written: &[u64], now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let State::Running { again, forgotten, reset, .. } = &mut entry.state else { return };
        entry.failures = match outcome {
            Outcome::Failed { .. } if !*reset => entry.failures.saturating_add(1),
            _ => 0,
        };
        if let Some(again) = again.take().filter(|again| !again.is_of(written)) {
            self.tickets += 1;
            self.added += 1;
            entry.state = State::Due { lane: again.lane, ticket: self.tickets, since: now };
            self.due[again.lane as usize].insert(self.tickets, key.clone());
            return;
        }
        if *forgotten {
            self.entries.remove(key);
            return;
        }
        let spread = spread(key);
        let resync = self.settings.resync;
        let resync = (resync.saturating_sub(resync / 10 * spread_part(spread) / 1_024), Lane::Resync);
        let (after, lane) = match outcome {
            Outcome::Success { requeue_after: Some(after) } => {
                resync.min((after.max(REQUEUE_AFTER_MIN), Lane::Requeue))
            }
            Outcome::Success { requeue_after: None } | Outcome::Rest => resync,
            Outcome::Failed { not_before } => {
                // A reset came while it failed: what failed is not what is wanted now.
                let delay = backoff::delay(&self.settings.backoff, entry.failures.max(1), spread);
                (delay.max(not_before.unwrap_or_default()), Lane::Requeue)
            }
        };
        self.tickets += 1;
        self.retried += u64::from(lane == Lane::Requeue);
        let at = now + after;
        entry.state = State::Later { lane, ticket: self.tickets, at };
        self.later.insert((at, self.tickets), key.clone());
    }

    /// When the next key that is not due becomes so.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        // What is due and cannot start yet must not make anybody look again and again.
        self.advance(now);
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Keys that wait for their turn. Costs nothing, unlike the rest of [`Keys::stats`], which looks at every key.
    pub(crate) fn due(&self) -> usize {
        self.due.iter().map(BTreeMap::len).sum()
    }

    pub(crate) fn stats(&self, now: Instant) -> QueueStats {
        let due = self.due();
        let mut stats = QueueStats {
            due,
            due_by_lane: Lane::ALL.map(|lane| self.due[lane as usize].len()),
            later: self.later.len(),
            running: self.entries.len() - due - self.later.len(),
            added: self.added,
            retried: self.retried,
            ..QueueStats::default()
        };
        for entry in self.entries.values() {
            match entry.state {
                State::Due { since, .. } => {
                    stats.oldest_due = stats.oldest_due.max(now.saturating_duration_since(since));
                }
                State::Running { since, .. } => {
                    let lasts = now.saturating_duration_since(since);
                    stats.running_for += lasts;
                    stats.longest_running = stats.longest_running.max(lasts);
                }
                State::Later { .. } => {}
            }
        }
        stats
    }
}

/// A number that differs between keys and stays the same for one.
fn spread(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn spread_part(spread: u64) -> u32 {
    u32::try_from(spread % 1_024).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn settings() -> QueueSettings {
        QueueSettings { backoff: BackoffSettings::default(), resync: 600 * SECOND }
    }

    fn key(name: &str) -> Key {
        Key::namespaced("n", name)
    }

    fn success() -> Outcome {
        Outcome::Success { requeue_after: None }
    }

    fn start(keys: &mut Keys, now: Instant) -> Option<String> {
        keys.start(now).map(|started| started.key.name.to_string())
    }

    #[test]
    fn changes_are_taken_before_requeues_before_resyncs_and_a_change_lifts_a_resync() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        keys.add(key("resync"), Wake::resync(), now);
        keys.add(key("lifted"), Wake::resync(), now);
        keys.add(key("requeue"), Wake { lane: Lane::Requeue, ..Wake::change() }, now);
        keys.add(key("change"), Wake::change(), now);
        keys.add(key("lifted"), Wake::change(), now);
        let order: Vec<_> = std::iter::from_fn(|| start(&mut keys, now)).collect();
        assert_eq!(order, ["change", "lifted", "requeue", "resync"]);
    }

    #[test]
    fn adds_retries_and_running_passes_are_counted_as_in_client_go() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        for _ in 0..3 {
            keys.add(key("a"), Wake::change(), now);
        }
        keys.add(key("b"), Wake::resync(), now);
        let stats = keys.stats(now);
        assert_eq!((stats.added, stats.retried, stats.due_by_lane), (2, 0, [1, 0, 1]));
        let a = keys.start(now).unwrap();
        keys.start(now).unwrap();
        let stats = keys.stats(now + 3 * SECOND);
        assert_eq!((stats.running_for, stats.longest_running), (6 * SECOND, 3 * SECOND));
        keys.finish(&a.key, Outcome::Failed { not_before: None }, &[], now);
        keys.finish(&key("b"), success(), &[], now);
        assert_eq!((keys.stats(now).added, keys.stats(now).retried), (2, 1), "a resync is no retry");
        assert_eq!(start(&mut keys, now + SECOND), Some("a".to_owned()));
        assert_eq!(keys.stats(now).added, 3);
    }

    #[test]
    fn changes_without_end_do_not_hold_up_a_resync() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        keys.add(key("resync"), Wake::resync(), now);
        let mut passes = 0;
        loop {
            keys.add(key("busy"), Wake::change(), now);
            passes += 1;
            let name = start(&mut keys, now).unwrap();
            keys.finish(&key(&name), success(), &[], now);
            if name == "resync" {
                break;
            }
        }
        assert!(passes <= OLDEST_EACH, "{passes}");
    }

    #[test]
    fn what_a_pass_wrote_itself_does_not_wake_its_key() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        for (causes, written, again) in [
            (&[Some(7), Some(9)][..], &[9, 7, 8][..], false),
            (&[Some(7), Some(10)], &[9, 7, 8], true),
            (&[Some(7), None], &[7], true),
            (&[], &[7], false),
        ] {
            keys.add(key("a"), Wake::change(), now);
            assert!(start(&mut keys, now).is_some());
            for cause in causes {
                keys.add(key("a"), Wake { cause: *cause, ..Wake::change() }, now);
                assert_eq!(start(&mut keys, now), None, "two passes on one key");
            }
            keys.finish(&key("a"), success(), written, now);
            assert_eq!(start(&mut keys, now).is_some(), again, "{causes:?} {written:?}");
            keys.finish(&key("a"), success(), &[], now);
        }
    }

    #[test]
    fn more_causes_than_are_remembered_wake_the_key() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        keys.add(key("a"), Wake::change(), now);
        start(&mut keys, now).unwrap();
        let written: Vec<u64> = (0..=CAUSES_MAX as u64).collect();
        for version in &written {
            keys.add(key("a"), Wake::changed(*version), now);
        }
        keys.finish(&key("a"), success(), &written, now);
        assert!(keys.is_due(now));
    }

    #[test]
    fn failures_back_off_until_a_success_or_an_edit() {
        let (mut keys, mut now) = (Keys::new(settings()), Instant::now());
        keys.add(key("a"), Wake::change(), now);
        let mut delays = Vec::new();
        for failures in 0..16 {
            assert_eq!(keys.start(now).unwrap().failures, failures);
            keys.finish(&key("a"), Outcome::Failed { not_before: None }, &[], now);
            let due = keys.next_due(now).unwrap();
            delays.push(due - now);
            now = due;
        }
        assert!(delays[0] <= Duration::from_millis(5) && delays[0] > Duration::from_millis(4));
        assert!(delays[3] <= Duration::from_millis(40) && delays[3] > Duration::from_millis(35));
        assert!(delays[15] <= 60 * SECOND && delays[15] > 53 * SECOND);

        assert!(keys.start(now).is_some());
        keys.finish(&key("a"), Outcome::Failed { not_before: None }, &[], now);
        keys.add(key("a"), Wake::change(), now);
        assert_eq!(keys.start(now).unwrap().failures, 17, "a change of something else is no edit");
        keys.finish(&key("a"), Outcome::Failed { not_before: None }, &[], now);
        keys.add(key("a"), Wake::change().resetting(true), now);
        assert_eq!(keys.start(now).unwrap().failures, 0);
        keys.finish(&key("a"), Outcome::Failed { not_before: Some(7 * SECOND) }, &[], now);
        assert_eq!(keys.next_due(now).unwrap() - now, 7 * SECOND);
        now += 7 * SECOND;
        assert_eq!(keys.start(now).unwrap().failures, 1);
        keys.finish(&key("a"), success(), &[], now);
        keys.add(key("a"), Wake::change(), now);
        assert_eq!(keys.start(now).unwrap().failures, 0);
    }

    #[test]
    fn the_earlier_of_requeue_and_resync_wins_and_a_loop_is_slowed_down() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        for (requeue, from, to) in [
            (None, 540 * SECOND, 600 * SECOND),
            (Some(30 * SECOND), 30 * SECOND, 30 * SECOND),
            (Some(Duration::MAX), 540 * SECOND, 600 * SECOND),
            (Some(Duration::ZERO), REQUEUE_AFTER_MIN, REQUEUE_AFTER_MIN),
        ] {
            keys.add(key("a"), Wake::change(), now);
            keys.start(now).unwrap();
            keys.finish(&key("a"), Outcome::Success { requeue_after: requeue }, &[], now);
            let after = keys.next_due(now).unwrap() - now;
            assert!((from..=to).contains(&after), "{requeue:?}: {after:?}");
        }
        keys.start(now + SECOND).unwrap();
        keys.finish(&key("a"), Outcome::Rest, &[], now);
        assert!(
            keys.next_due(now).unwrap() >= now + 540 * SECOND,
            "what cannot succeed is not tried again soon"
        );
    }

    #[test]
    fn a_forgotten_key_leaves_nothing_whatever_its_state() {
        let (mut keys, now) = (Keys::new(settings()), Instant::now());
        keys.add(key("due"), Wake::change(), now);
        keys.forget(&key("due"));
        keys.add(key("later"), Wake::change(), now);
        keys.start(now).unwrap();
        keys.finish(&key("later"), success(), &[], now);
        keys.forget(&key("later"));
        keys.add(key("running"), Wake::change(), now);
        keys.start(now).unwrap();
        keys.add(key("running"), Wake::change(), now);
        keys.forget(&key("running"));
        assert_eq!(keys.stats(now).running, 1);
        keys.finish(&key("running"), Outcome::Failed { not_before: None }, &[], now);
        assert!(keys.entries.is_empty() && keys.later.is_empty() && keys.due.iter().all(BTreeMap::is_empty));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add { name: usize, lane: Lane, cause: Option<u64>, reset: bool },
        Start,
        Finish { nth: usize, outcome: Outcome, written: Vec<u64> },
        PutBack { nth: usize },
        Forget { name: usize },
        Pass(Duration),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let lane = prop_oneof![Just(Lane::Change), Just(Lane::Requeue), Just(Lane::Resync)];
        let outcome = prop_oneof![
            Just(Outcome::Success { requeue_after: None }),
            Just(Outcome::Success { requeue_after: Some(SECOND) }),
            Just(Outcome::Failed { not_before: None }),
            Just(Outcome::Rest),
        ];
        let step = prop_oneof![
            6 => (0..4_usize, lane, prop::option::weighted(0.8, 0..6_u64), any::<bool>())
                .prop_map(|(name, lane, cause, reset)| Step::Add { name, lane, cause, reset }),
            6 => Just(Step::Start),
            5 => (0..4_usize, outcome, prop::collection::vec(0..6_u64, 0..4))
                .prop_map(|(nth, outcome, written)| Step::Finish { nth, outcome, written }),
            1 => (0..4_usize).prop_map(|nth| Step::PutBack { nth }),
            1 => (0..4_usize).prop_map(|name| Step::Forget { name }),
            1 => (0..700_u64).prop_map(|seconds| Step::Pass(Duration::from_secs(seconds))),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// No key runs twice at a time, none that was woken is lost, none runs because of its own writes alone, and
        /// the parts of the state agree.
        #[test]
        fn nothing_is_lost_and_nothing_runs_twice(steps in steps()) {
            let (mut keys, mut now) = (Keys::new(settings()), Instant::now());
            let mut running: Vec<Started> = Vec::new();
            // What must run: keys woken and not started since. What woke a key during its pass.
            let mut owed: BTreeSet<Key> = BTreeSet::new();
            let mut during: BTreeMap<Key, Vec<Option<u64>>> = BTreeMap::new();
            let begin = |keys: &mut Keys, now, running: &mut Vec<Started>, owed: &mut BTreeSet<Key>| {
                let started = keys.start(now);
                if let Some(started) = &started {
                    assert!(running.iter().all(|other| other.key != started.key), "two passes on one key");
                    owed.remove(&started.key);
                    running.push(started.clone());
                }
                started.is_some()
            };
            for step in steps {
                match step {
                    Step::Add { name, lane, cause, reset } => {
                        let key = key(&name.to_string());
                        keys.add(key.clone(), Wake { lane, cause, reset }, now);
                        if running.iter().any(|started| started.key == key) {
                            during.entry(key).or_default().push(cause);
                        } else {
                            owed.insert(key);
                        }
                    }
                    Step::Start => {
                        let due = keys.is_due(now);
                        prop_assert_eq!(begin(&mut keys, now, &mut running, &mut owed), due);
                    }
                    Step::Finish { nth, outcome, written } => if nth < running.len() {
                        let key = running.remove(nth).key;
                        keys.finish(&key, outcome, &written, now);
                        let causes = during.remove(&key).unwrap_or_default();
                        let foreign = |cause: &Option<u64>| cause.is_none_or(|cause| !written.contains(&cause));
                        if causes.iter().any(foreign) {
                            owed.insert(key);
                        } else {
                            let due = keys.entries.get(&key).map(|entry| matches!(entry.state, State::Due { .. }));
                            prop_assert_ne!(due, Some(true), "woken by its own writes");
                        }
                    },
                    Step::PutBack { nth } => if nth < running.len() {
                        let started = running.remove(nth);
                        during.remove(&started.key);
                        if keys.entries.get(&started.key).is_some_and(|entry| {
                            !matches!(entry.state, State::Running { forgotten: true, .. })
                        }) {
                            owed.insert(started.key.clone());
                        }
                        keys.put_back(started, now);
                    },
                    Step::Forget { name } => {
                        let key = key(&name.to_string());
                        keys.forget(&key);
                        owed.remove(&key);
                        during.remove(&key);
                    }
                    Step::Pass(time) => now += time,
                }
                let in_state = |wanted: fn(&State) -> bool| {
                    keys.entries.values().filter(|entry| wanted(&entry.state)).count()
                };
                prop_assert_eq!(in_state(|state| matches!(state, State::Running { .. })), running.len());
                let due = keys.due.iter().map(BTreeMap::len).sum::<usize>();
                prop_assert_eq!(in_state(|state| matches!(state, State::Due { .. })), due);
                prop_assert_eq!(in_state(|state| matches!(state, State::Later { .. })), keys.later.len());
                prop_assert!(keys.due.iter().flat_map(BTreeMap::values).chain(keys.later.values())
                    .all(|key| keys.entries.contains_key(key)));
            }
            for started in std::mem::take(&mut running) {
                keys.finish(&started.key, success(), &[], now);
                if during.remove(&started.key).is_some_and(|causes| !causes.is_empty()) {
                    owed.insert(started.key);
                }
            }
            while begin(&mut keys, now, &mut running, &mut owed) {
                let started = running.remove(0);
                keys.finish(&started.key, success(), &[], now);
            }
            prop_assert_eq!(owed, BTreeSet::new(), "lost");
        }
    }
}
