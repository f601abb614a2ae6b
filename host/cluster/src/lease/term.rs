//! A term: the time from taking a Lease to losing it, as those see it who write under it.
//!
//! A term that is over never begins again. A host that loses a Lease and takes it once more has another term, so that a
//! pass from before cannot write behind the back of whoever held the Lease in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::clock::Moment;
use super::timing::Timing;
use crate::write::{Fence, WRITE_TIME_MAX};

/// A term under which this host writes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Term(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Nanoseconds of [`Moment`] until which writes are covered. 0: the term is over; [`FOREVER`]: it never is.
    covered_until: AtomicU64,
    /// What must be left when a write begins.
    reserve: Duration,
    write_time: Duration,
    /// What must be left when its bytes leave.
    time_to_settle: Duration,
    /// Nanoseconds of [`Moment`] until which a write without an answer may still happen.
    unsettled_until: AtomicU64,
    work: Mutex<Work>,
    /// Told of each change of the above, but for renewals.
    changed: watch::Sender<()>,
    /// A term that this one lies in: both must be good.
    within: Option<Term>,
    /// The last look at the time before bytes leave.
    gate: Gate,
}

const FOREVER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Work {
    passes: usize,
    /// No more passes may begin: the Lease is about to be handed over.
    closing: bool,
}

impl Inner {
    /// Of a host that is alone, but for its end.
    fn until(covered_until: u64) -> Self {
        Self {
            covered_until: AtomicU64::new(covered_until),
            reserve: Duration::ZERO,
            write_time: WRITE_TIME_MAX,
            time_to_settle: Duration::ZERO,
            unsettled_until: AtomicU64::new(0),
            work: Mutex::default(),
            changed: watch::channel(()).0,
            within: None,
            gate: Gate::default(),
        }
    }
}

impl Term {
    /// A term that begins now and covers writes until `until`.
    pub(crate) fn begin(timing: &Timing, until: Moment, within: Option<Term>, gate: Gate) -> Self {
        let inner = Inner {
            reserve: timing.reserve(),
            write_time: timing.write_time(),
            time_to_settle: timing.time_to_settle(),
            within,
            gate,
            ..Inner::until(until.nanoseconds())
        };
        let term = Self(Arc::new(inner));
        term.extend(until);
        term
    }

    /// The term of a host that is alone. It never ends.
    pub(crate) fn endless() -> Self {
        Self(Arc::new(Inner::until(FOREVER)))
    }

    /// The Lease was renewed. Without effect on a term that is over.
    pub(crate) fn extend(&self, until: Moment) {
        let until = until.nanoseconds();
        let extended = self.0.covered_until.try_update(Ordering::AcqRel, Ordering::Acquire, |before| {
            (before != 0).then_some(before.max(until))
        });
        if extended.is_ok() {
            // What is under way may use up the second that is left over for its way to the kernel, and no more: then its
            // bytes travel, and then the API server takes its time.
            self.0.gate.open_until(until, self.0.time_to_settle);
        }
    }

    /// The Lease is lost or given up: nothing is written any more.
    pub(crate) fn end(&self) {
        self.0.covered_until.store(0, Ordering::Release);
        self.0.changed.send_replace(());
    }

    /// No more passes begin; those that run may end.
    pub(crate) fn close(&self) {
        self.work().closing = true;
        self.0.changed.send_replace(());
    }

    /// Waits until all passes have ended, and until what was written without an answer has happened or never will.
    /// Cancel safe.
    pub(crate) async fn settled(&self) {
        let mut changed = self.0.changed.subscribe();
        while self.work().passes > 0 {
            // The sender lives as long as the term.
            let _ = changed.changed().await;
        }
        loop {
            let left = self.0.unsettled_until.load(Ordering::Acquire);
            let left = Duration::from_nanos(left.saturating_sub(Moment::now().nanoseconds()));
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Whether the term has been ended. One whose Lease has run out is not: it can only not write.
    pub fn is_over(&self) -> bool {
        self.0.covered_until.load(Ordering::Acquire) == 0 || self.0.within.as_ref().is_some_and(Self::is_over)
    }

    /// Whether a pass may begin.
    pub fn takes_work(&self) -> bool {
        !self.work().closing && !self.is_over()
    }

    /// A pass begins, and ends with the guard. None: it may not begin under this term.
    pub fn begin_work(&self) -> Option<WorkGuard> {
        let mut work = self.work();
        if work.closing || self.is_over() {
            return None;
        }
        work.passes += 1;
        Some(WorkGuard(self.clone()))
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // Two plain values, whole whenever the lock is free.
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The term that this one lies in.
    pub(crate) fn within(&self) -> Option<&Self> {
        self.0.within.as_ref()
    }
}

/// A term is the same as itself alone.
impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Fence for Term {
    fn admits(&self) -> bool {
        if self.0.within.as_ref().is_some_and(|within| !within.admits()) {
            return false;
        }
        match self.0.covered_until.load(Ordering::Acquire) {
            FOREVER => true,
            until => (Moment::now() + self.0.reserve).nanoseconds() < until,
        }
    }

    fn write_time(&self) -> Duration {
        self.0.write_time
    }

    fn unanswered(&self) {
        // As long as one that began this moment: it began earlier.
        let until = (Moment::now() + self.0.reserve).nanoseconds();
        self.0.unsettled_until.fetch_max(until, Ordering::AcqRel);
    }
}

/// One pass that runs. A term whose Lease is handed over waits for it.
#[derive(Debug)]
pub struct WorkGuard(Term);

impl WorkGuard {
    /// The term that it runs under.
    pub fn term(&self) -> &Term {
        &self.0
    }

    /// The term, for those who write in this work.
    pub fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(self.0.clone())
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.0.work().passes -= 1;
        self.0.0.changed.send_replace(());
    }
}

/// The last look at the time, made by the connection for writes just before bytes enter the kernel: between the fence
/// and this a whole process may have been stopped, or a request have waited for its turn on the connection. It knows of
/// no single Lease; as long as this host holds any, it is open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    /// Nanoseconds of [`Moment`]; 0: nobody uses Leases, so it is always open.
    open_until: AtomicU64,
}

impl Gate {
    /// From now on it is open only as long as somebody says so.
    pub(crate) fn arm(&self) {
        self.0.open_until.fetch_max(1, Ordering::AcqRel);
    }

    fn open_until(&self, covered_until: u64, time_to_settle: Duration) {
        let needed = u64::try_from(time_to_settle.as_nanos()).unwrap_or(u64::MAX);
        self.0.open_until.fetch_max(covered_until.saturating_sub(needed).max(1), Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        match self.0.open_until.load(Ordering::Acquire) {
            0 => true,
            until => Moment::now().nanoseconds() < until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(left: Duration) -> Term {
        Term::begin(&Timing::default(), Moment::now() + left, None, Gate::default())
    }

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn a_write_begins_only_with_its_own_time_and_a_second_left() {
        let reserve = Timing::default().reserve();
        assert!(term(reserve + LONG).admits());
        assert!(!term(reserve).admits() && !term(Duration::ZERO).admits());
        let renewed = term(Duration::ZERO);
        renewed.extend(Moment::now() + LONG);
        assert!(renewed.admits());
        renewed.extend(Moment::now() + reserve);
        assert!(renewed.admits(), "an answer that came late takes nothing back");
    }

    #[test]
    fn a_term_that_is_over_stays_so() {
        let term = term(LONG);
        let work = term.begin_work().unwrap();
        term.end();
        term.extend(Moment::now() + LONG);
        assert!(!work.term().admits() && term.is_over() && term.begin_work().is_none());
    }

    #[test]
    fn a_term_within_another_is_no_better_than_it() {
        let group = term(LONG);
        let shard =
            Term::begin(&Timing::default(), Moment::now() + LONG, Some(group.clone()), Gate::default());
        assert!(shard.admits() && !shard.is_over());
        group.end();
        assert!(!shard.admits() && shard.is_over());
    }

    #[test]
    fn the_gate_is_open_while_any_lease_is_good() {
        let gate = Gate::default();
        assert!(gate.is_open(), "nobody uses Leases");
        gate.arm();
        assert!(!gate.is_open());
        let timing = Timing::default();
        Term::begin(&timing, Moment::now() + timing.write_time(), None, gate.clone());
        assert!(!gate.is_open(), "no time for a write");
        Term::begin(&timing, Moment::now() + LONG, None, gate.clone());
        gate.arm();
        assert!(gate.is_open());
    }

    #[test]
    fn the_gate_shuts_while_bytes_may_still_travel_and_be_carried_out() {
        let timing = Timing::default();
        let needs = timing.travel_time() + timing.write_time();
        let gate = Gate::default();
        Term::begin(&timing, Moment::now() + needs, None, gate.clone());
        assert!(!gate.is_open(), "carried out after the end of the Lease");
        Term::begin(&timing, Moment::now() + timing.reserve(), None, gate.clone());
        assert!(gate.is_open(), "what the fence has just let pass has a moment to leave");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_term_is_settled_when_its_passes_have_ended() {
        let term = term(LONG);
        let work = term.begin_work().unwrap();
        term.close();
        assert!(term.begin_work().is_none() && work.term().admits());
        let mut settled = Box::pin(term.settled());
        assert!(futures::poll!(&mut settled).is_pending());
        drop(work);
        settled.await;
    }

    #[tokio::test]
    async fn a_write_without_an_answer_keeps_a_term_unsettled() {
        let timing =
            Timing::new(Duration::from_secs(3), Duration::from_secs(1), Duration::from_millis(200)).unwrap();
        let term = Term::begin(&timing, Moment::now() + LONG, None, Gate::default());
        let begun = Moment::now();
        term.unanswered();
        term.settled().await;
        assert!(Moment::now().since(begun) >= timing.reserve());
    }
}
