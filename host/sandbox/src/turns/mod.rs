//! Who runs when. Guest code runs on threads of its own, at most `permits` of them at a time, and a call that has used
//! its slice makes room for calls that wait.
//!
//! - A call that waits for its first turn is *fresh*. Fresh calls queue in the lane of their plugin; lanes take turns.
//! - A call that has run for [`turn::SLICE`] of CPU time is *slow*. At each tick it gives its permit to a waiting call
//!   and is *parked*: its thread and its instance wait, at the end of the queue of parked calls.
//! - Fresh calls go before parked ones, and of the fresh ones those of plugins that are known to be quick; but after
//!   [`schedule::IN_A_ROW_MAX`] such favours it is the others' turn.
//! - Parked calls keep their instance slot, so slow plugins may not take them all: a plugin whose last call was slow
//!   has at most `permits` started calls, and such plugins together at most half of the slots. The other half is
//!   always there for the quick ones.
//!
//! So looping plugins cost a neighbour's call about one tick, and share the processors among themselves. Time is
//! counted apart: CPU time by the thread's own clock, waiting by the wall clock; a neighbour's CPU time is neither.
//!
//! Nothing here knows wasmtime: the engine is told of a tick by a closure.

mod schedule;
#[cfg(test)]
mod tests;
mod threads;
mod turn;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use schedule::{LaneQueue, Shared, Waiting};
use threads::start_worker;

pub(crate) use turn::Turn;

/// Calls that may be parked, besides `permits` running ones. Each holds an instance and a thread.
const PARKED_MAX: usize = 24;

/// Why a call is stopped by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// It used up its CPU time.
    #[error("CPU limit")]
    Cpu,
    /// It waited too long for its turn.
    #[error("wait limit")]
    Wait,
    /// Nobody wants the answer any more, or the host is closing.
    #[error("closed")]
    Closed,
}

/// What a call may use and how it is told that nobody waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// CPU time.
    pub(crate) cpu: Duration,
    /// Waiting, before and between turns.
    pub(crate) wait: Duration,
    /// Set when the caller is gone.
    pub(crate) abandoned: Arc<AtomicBool>,
}

/// A call to be run.
pub(crate) trait Job: Send {
    /// Runs it on the current thread, which holds a permit until `turn` is dropped.
    fn run(self: Box<Self>, turn: Turn);
    /// It never ran, having waited this long.
    fn refuse(self: Box<Self>, stop: Stop, waited: Duration);
}

/// The queue of one plugin, and what its calls have been like.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Calls that are running or parked. Changed under the state's lock only.
    started: AtomicUsize,
    /// Of these, slow ones. Changed under the state's lock only.
    started_slow: AtomicUsize,
    /// The last call that ended was slow. Changed under the state's lock only.
    last_slow: AtomicBool,
    /// The last call that ended was not. Changed under the state's lock only.
    last_quick: AtomicBool,
}

impl Lane {
    fn is_slow(&self) -> bool {
        self.last_slow.load(Ordering::Relaxed) || self.started_slow.load(Ordering::Relaxed) > 0
    }

    /// Not the opposite: of a new plugin nothing is known.
    fn is_quick(&self) -> bool {
        self.last_quick.load(Ordering::Relaxed) && !self.is_slow()
    }
}

/// The threads and the queue. Dropping it stops all calls within a tick and ends the threads.
pub(crate) struct Turns {
    shared: Arc<Shared>,
    ticker: Option<std::thread::JoinHandle<()>>,
}

impl Turns {
    /// Calls that are started at the same time at most: the number of instance slots that are needed.
    pub(crate) fn slots(permits: usize) -> usize {
        permits + PARKED_MAX
    }

    /// Starts `permits` threads, and the one that calls `tick` each [`threads::TICK`] while a call is running.
    pub(crate) fn new(permits: usize, tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { permits, ..Shared::default() });
        // Made before the first thread, so that an error below ends those that run already.
        let mut turns = Self { shared: Arc::clone(&shared), ticker: None };
        for _ in 0..permits {
            shared.lock().threads += 1;
            start_worker(&shared).inspect_err(|_| shared.lock().threads -= 1)?;
        }
        let ticker = std::thread::Builder::new().name("sandbox-tick".to_owned());
        turns.ticker = Some(ticker.spawn(move || shared.tick_while_open(&tick))?);
        Ok(turns)
    }

    /// Queues a call. Exactly one of its methods will be called, on another thread or, when closed, on this one.
    pub(crate) fn submit(&self, lane: &Arc<Lane>, terms: Terms, job: Box<dyn Job>) {
        let mut state = self.shared.lock();
        if state.closed {
            drop(state);
            return job.refuse(Stop::Closed, Duration::ZERO);
        }
        let waiting = Waiting { job, terms, since: Instant::now() };
        match state.fresh.iter_mut().find(|queue| Arc::ptr_eq(&queue.lane, lane)) {
            Some(queue) => queue.waiting.push_back(waiting),
            None => state
                .fresh
                .push_back(LaneQueue { lane: Arc::clone(lane), waiting: VecDeque::from([waiting]) }),
        }
        self.shared.dispatch(&mut state, 0);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let refused: Vec<Waiting> = state.fresh.drain(..).flat_map(|queue| queue.waiting).collect();
        for seat in &state.parked {
            seat.called.notify_one();
        }
        self.shared.work.notify_all();
        drop(state);
        for waiting in refused {
            waiting.job.refuse(Stop::Closed, waiting.since.elapsed());
        }
        // The ticker still runs, so running calls are stopped at their next tick.
        let mut state = self.shared.lock();
        while state.threads > 0 {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.shared.tick.notify_one();
        if let Some(ticker) = self.ticker.take() {
            // It cannot panic but by a bug, which its own message told already.
            let _ = ticker.join();
        }
    }
}
