//! What a started call holds, and how it is charged and lets others go first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::schedule::{Shared, State};
use super::{Lane, Stop, Terms};

/// CPU time after which a call counts as slow: twenty times an ordinary pass. To be slow costs nothing while nobody
/// else waits.
pub(super) const SLICE: Duration = Duration::from_millis(2);
/// How often a parked call looks whether its caller is gone.
const ABANDONED_CHECK: Duration = Duration::from_millis(100);

/// A parked call's place in the queue.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) granted: AtomicBool,
    pub(super) called: Condvar,
}

/// A started call's permit and instance slot. Drop it after the instance: the next call takes the slot at once.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    terms: Terms,
    waited: Duration,
    /// The thread's clock when the call began.
    cpu_before: Duration,
    /// It was started as a call of a slow plugin.
    from_slow_lane: bool,
    /// It has used more than its slice.
    is_slow: bool,
}

impl Turn {
    /// Counts a call as started. The caller counts it as running.
    pub(super) fn start(
        shared: Arc<Shared>,
        state: &mut State,
        lane: Arc<Lane>,
        terms: Terms,
        waited: Duration,
    ) -> Self {
        let from_slow_lane = lane.is_slow();
        state.started += 1;
        state.started_slow += usize::from(from_slow_lane);
        lane.started.fetch_add(1, Ordering::Relaxed);
        Self { shared, lane, terms, waited, cpu_before: Duration::ZERO, from_slow_lane, is_slow: false }
    }

    /// Called on the thread that runs the call, first of all.
    pub(super) fn begin(mut self) -> Self {
        self.cpu_before = thread_cpu();
        self
    }

    /// CPU time used so far.
    pub(crate) fn cpu(&self) -> Duration {
        thread_cpu().saturating_sub(self.cpu_before)
    }

    /// Time spent waiting so far.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// The call's limits.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// To be called on each tick, from within the call: charges it, and lets others go first when it has been slow.
    /// An error stops the call.
    pub(crate) fn tick(&mut self) -> Result<(), Stop> {
        let cpu = self.cpu();
        if cpu > self.terms.cpu {
            return Err(Stop::Cpu);
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if state.closed || self.terms.abandoned.load(Ordering::Relaxed) {
            return Err(Stop::Closed);
        }
        if cpu >= SLICE && !self.is_slow {
            self.is_slow = true;
            state.started_slow += usize::from(!self.from_slow_lane);
            self.lane.started_slow.fetch_add(1, Ordering::Relaxed);
        }
        if (self.is_slow || self.from_slow_lane) && shared.someone_waits(&state) {
            return self.park(&shared, state);
        }
        Ok(())
    }

    /// Gives the permit away and waits for another one.
    fn park(&mut self, shared: &Arc<Shared>, mut state: MutexGuard<'_, State>) -> Result<(), Stop> {
        let seat = Arc::new(Seat::default());
        let since = Instant::now();
        let left = self.terms.wait.saturating_sub(self.waited);
        state.parked.push_back(Arc::clone(&seat));
        state.running -= 1;
        shared.dispatch(&mut state, 0);
        let stop = loop {
            if seat.granted.load(Ordering::Relaxed) {
                break None;
            }
            if state.closed || self.terms.abandoned.load(Ordering::Relaxed) {
                break Some(Stop::Closed);
            }
            let Some(left) = left.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else {
                break Some(Stop::Wait);
            };
            // In steps, as an abandoned call is not woken.
            let step = left.min(ABANDONED_CHECK);
            state = seat.called.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waited += since.elapsed();
        match stop {
            None => Ok(()),
            Some(stop) => {
                // It ends at once, so it counts as running beyond the permits for that moment.
                state.parked.retain(|other| !Arc::ptr_eq(other, &seat));
                state.running += 1;
                Err(stop)
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        state.running -= 1;
        state.started -= 1;
        state.started_slow -= usize::from(self.is_slow || self.from_slow_lane);
        self.lane.started.fetch_sub(1, Ordering::Relaxed);
        self.lane.started_slow.fetch_sub(usize::from(self.is_slow), Ordering::Relaxed);
        self.lane.last_slow.store(self.is_slow, Ordering::Relaxed);
        self.lane.last_quick.store(!self.is_slow, Ordering::Relaxed);
        // This thread looks for work next.
        shared.dispatch(&mut state, 1);
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock is never negative.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
