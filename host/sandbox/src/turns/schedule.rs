//! The queue: which call gets the next permit.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::turn::{Seat, Turn};
use super::{Job, Lane, Terms, Turns};

/// Calls that may overtake others of less favour, one after another, so that these do not starve.
pub(super) const IN_A_ROW_MAX: u32 = 4;

/// A fresh call.
pub(super) struct Waiting {
    pub(super) job: Box<dyn Job>,
    pub(super) terms: Terms,
    pub(super) since: Instant,
}

/// The fresh calls of one plugin; never empty.
pub(super) struct LaneQueue {
    pub(super) lane: Arc<Lane>,
    pub(super) waiting: VecDeque<Waiting>,
}

/// A job that has a permit, for the next thread.
pub(super) struct Handed {
    pub(super) job: Box<dyn Job>,
    pub(super) turn: Turn,
}

/// Changed under one lock, a few times for each call.
#[derive(Default)]
pub(super) struct State {
    /// Calls that hold a permit.
    pub(super) running: usize,
    /// Calls that hold an instance slot: running or parked.
    pub(super) started: usize,
    /// Of these, calls of slow plugins.
    pub(super) started_slow: usize,
    pub(super) fresh: VecDeque<LaneQueue>,
    pub(super) fresh_in_a_row: u32,
    pub(super) quick_in_a_row: u32,
    pub(super) parked: VecDeque<Arc<Seat>>,
    /// They count as running already.
    pub(super) handed: VecDeque<Handed>,
    pub(super) threads: usize,
    pub(super) threads_idle: usize,
    pub(super) ticker_idle: bool,
    pub(super) closed: bool,
}

/// What all threads share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) permits: usize,
    pub(super) state: Mutex<State>,
    /// Threads without work wait here.
    pub(super) work: Condvar,
    /// The ticker waits here.
    pub(super) tick: Condvar,
    /// Dropping [`Turns`] waits here for the last thread.
    pub(super) ended: Condvar,
}

impl Shared {
    /// The state is consistent at every unlock, so a panic elsewhere does not spoil it.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out free permits. `spare` threads will look for work by themselves, without being woken.
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut State, spare: usize) {
        while state.running < self.permits {
            let parked_first = state.fresh_in_a_row >= IN_A_ROW_MAX && !state.parked.is_empty();
            let fresh = if parked_first { None } else { self.take_fresh(state) };
            if let Some(handed) = fresh {
                state.fresh_in_a_row += 1;
                state.handed.push_back(handed);
                self.wake_thread(state, spare);
            } else if let Some(seat) = state.parked.pop_front() {
                state.fresh_in_a_row = 0;
                seat.granted.store(true, Ordering::Relaxed);
                seat.called.notify_one();
            } else {
                break;
            }
            state.running += 1;
        }
        if state.running > 0 && state.ticker_idle {
            state.ticker_idle = false;
            self.tick.notify_one();
        }
    }

    /// The next fresh call that may start, and its turn. The caller counts it as running.
    fn take_fresh(self: &Arc<Self>, state: &mut State) -> Option<Handed> {
        let favour_quick = state.quick_in_a_row < IN_A_ROW_MAX;
        let may_start = |queue: &LaneQueue| self.may_start(state, &queue.lane);
        let favoured = |queue: &LaneQueue| queue.lane.is_quick() == favour_quick && may_start(queue);
        let fresh = &state.fresh;
        let at = fresh.iter().position(favoured).or_else(|| fresh.iter().position(may_start))?;
        let mut queue = state.fresh.remove(at)?;
        let lane = Arc::clone(&queue.lane);
        state.quick_in_a_row = if lane.is_quick() { state.quick_in_a_row + 1 } else { 0 };
        let Waiting { job, terms, since } = queue.waiting.pop_front()?;
        if !queue.waiting.is_empty() {
            state.fresh.push_back(queue);
        }
        let turn = Turn::start(Arc::clone(self), state, lane, terms, since.elapsed());
        Some(Handed { job, turn })
    }

    fn may_start(&self, state: &State, lane: &Lane) -> bool {
        let slots = Turns::slots(self.permits);
        if lane.is_slow() {
            lane.started.load(Ordering::Relaxed) < self.permits && state.started_slow < slots / 2
        } else {
            state.started < slots
        }
    }

    /// True if a slow call should make room.
    pub(super) fn someone_waits(&self, state: &State) -> bool {
        !state.parked.is_empty() || state.fresh.iter().any(|queue| self.may_start(state, &queue.lane))
    }
}

/// Takes fresh calls that waited too long, or that nobody waits for, out of the queue. A lane's calls have the same
/// limits, so the first in it expires first.
pub(super) fn expired(state: &mut State) -> Vec<Waiting> {
    let now = Instant::now();
    let over = |waiting: &mut Waiting| {
        waiting.terms.abandoned.load(Ordering::Relaxed)
            || now.duration_since(waiting.since) > waiting.terms.wait
    };
    let mut refused = Vec::new();
    for queue in &mut state.fresh {
        while let Some(waiting) = queue.waiting.pop_front_if(over) {
            refused.push(waiting);
        }
    }
    state.fresh.retain(|queue| !queue.waiting.is_empty());
    refused
}
