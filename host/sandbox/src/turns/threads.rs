//! The threads: those that run calls, and the one that ticks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::Stop;
use super::schedule::{Handed, Shared, State, expired};

/// How often running calls are looked at. Short, as ten plugins that nobody knows yet each hold a permit for up to two
/// of them before their neighbour's turn comes; a look costs a microsecond.
pub(crate) const TICK: Duration = Duration::from_millis(2);
/// Time after which a thread beyond `permits` ends.
const THREAD_IDLE: Duration = Duration::from_secs(10);
/// 512 KiB for the guest, the rest for the host's functions above and below it.
const THREAD_STACK_BYTES: usize = 2 << 20;

impl Shared {
    pub(super) fn wake_thread(self: &Arc<Self>, state: &mut State, spare: usize) {
        let available = state.threads_idle + spare;
        if state.handed.len() <= available {
            if state.handed.len() > spare {
                self.work.notify_one();
            }
            return;
        }
        state.threads += 1;
        if let Err(error) = start_worker(self) {
            // The call is run by the next thread that becomes free.
            state.threads -= 1;
            tracing::warn!(%error, threads = state.threads, "cannot start a thread for a plugin call");
        }
    }

    fn work(self: &Arc<Self>) {
        while let Some(Handed { job, turn }) = self.next_work() {
            // A panic here is our bug. The turn is given back and the caller told by what unwinding drops.
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run(turn.begin())));
            if ran.is_err() {
                tracing::error!("a plugin call panicked inside the host");
            }
        }
        self.ended.notify_one();
    }

    /// None when the thread shall end, which it then counts as having done.
    fn next_work(&self) -> Option<Handed> {
        let mut state = self.lock();
        loop {
            if let Some(handed) = state.handed.pop_front() {
                return Some(handed);
            }
            // Only threads beyond the permitted calls wait with a time-out: an idle host is never woken.
            let is_extra = state.threads > self.permits;
            if state.closed {
                break;
            }
            state.threads_idle += 1;
            let timed_out;
            (state, timed_out) = if is_extra {
                let waited =
                    self.work.wait_timeout(state, THREAD_IDLE).unwrap_or_else(PoisonError::into_inner);
                (waited.0, waited.1.timed_out())
            } else {
                (self.work.wait(state).unwrap_or_else(PoisonError::into_inner), false)
            };
            state.threads_idle -= 1;
            if timed_out && state.handed.is_empty() && state.threads > self.permits {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// The ticker's loop. It sleeps for good while no call is running, so an idle host never wakes for it.
    pub(super) fn tick_while_open(&self, tick: &impl Fn()) {
        let mut state = self.lock();
        loop {
            if state.closed && state.threads == 0 {
                return;
            }
            state.ticker_idle = state.running == 0;
            state = if state.ticker_idle {
                self.tick.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.tick.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
            };
            let refused = expired(&mut state);
            drop(state);
            for waiting in refused {
                let abandoned = waiting.terms.abandoned.load(Ordering::Relaxed);
                let stop = if abandoned { Stop::Closed } else { Stop::Wait };
                waiting.job.refuse(stop, waiting.since.elapsed());
            }
            tick();
            state = self.lock();
        }
    }
}

pub(super) fn start_worker(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("sandbox-call".to_owned()).stack_size(THREAD_STACK_BYTES);
    thread.spawn(move || shared.work()).map(drop)
}
