//! Who runs when. Guest code runs on threads of its own, at most `permits` of them at a time, and a call that has used
//! its slice makes room for calls that wait.
//!
//! - A call that waits for its first turn is *fresh*. Fresh calls queue in the lane of their plugin; lanes take turns.
//! - A call that has run for [`SLICE`] of CPU time is *slow*. At each tick it gives its permit to a waiting call and
//!   is *parked*: its thread and its instance wait, at the end of the queue of parked calls.
//! - Fresh calls go first, but after [`FRESH_IN_A_ROW_MAX`] of them one parked call gets its turn.
//! - Parked calls keep their instance slot, so slow plugins may not take them all: a plugin whose last call was slow
//!   has at most `permits` started calls, and such plugins together at most half of the slots. The other half is
//!   always there for the quick ones.
//!
//! So ten looping plugins cost a neighbour's call about one tick, and share the processors among themselves. Time is
//! counted apart: CPU time by the thread's own clock, waiting by the wall clock; a neighbour's CPU time is neither.
//!
//! Nothing here knows wasmtime: the engine is told of a tick by a closure.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How often running calls are looked at. Short, as ten plugins that nobody knows yet each hold a permit for up to two
/// of them before their neighbour's turn comes; a look costs a microsecond.
pub(crate) const TICK: Duration = Duration::from_millis(2);
/// CPU time after which a call counts as slow: twenty times an ordinary pass. To be slow costs nothing while nobody
/// else waits.
const SLICE: Duration = Duration::from_millis(2);
/// Fresh calls that may overtake a parked one, so that many quick plugins do not starve a slow one.
const FRESH_IN_A_ROW_MAX: u32 = 4;
/// Calls that may be parked, besides `permits` running ones. Each holds an instance and a thread.
const PARKED_MAX: usize = 24;
/// How often a parked call looks whether its caller is gone.
const ABANDONED_CHECK: Duration = Duration::from_millis(100);
/// Time after which a thread beyond `permits` ends.
const THREAD_IDLE: Duration = Duration::from_secs(10);
/// 512 KiB for the guest, the rest for the host's functions above and below it.
const THREAD_STACK_BYTES: usize = 2 << 20;

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
}

impl Lane {
    fn is_slow(&self) -> bool {
        self.last_slow.load(Ordering::Relaxed) || self.started_slow.load(Ordering::Relaxed) > 0
    }
}

struct Waiting {
    job: Box<dyn Job>,
    terms: Terms,
    since: Instant,
}

struct LaneQueue {
    lane: Arc<Lane>,
    waiting: VecDeque<Waiting>,
}

/// A parked call's place in the queue.
#[derive(Debug, Default)]
struct Seat {
    granted: AtomicBool,
    called: Condvar,
}

/// A job that has a permit, for the next thread.
struct Handed {
    job: Box<dyn Job>,
    turn: Turn,
}

#[derive(Default)]
struct State {
    /// Calls that hold a permit.
    running: usize,
    /// Calls that hold an instance slot: running or parked.
    started: usize,
    /// Of these, calls of slow plugins.
    started_slow: usize,
    fresh: VecDeque<LaneQueue>,
    fresh_in_a_row: u32,
    parked: VecDeque<Arc<Seat>>,
    handed: VecDeque<Handed>,
    threads: usize,
    threads_idle: usize,
    ticker_idle: bool,
    closed: bool,
}

struct Shared {
    permits: usize,
    state: Mutex<State>,
    /// Threads without work wait here.
    work: Condvar,
    /// The ticker waits here.
    tick: Condvar,
    /// [`Turns::drop`] waits here for the last thread.
    ended: Condvar,
}

/// The threads and the queue. Dropping it stops all calls within a tick and ends the threads.
pub(crate) struct Turns {
    shared: Arc<Shared>,
    ticker: Option<thread::JoinHandle<()>>,
}

impl Turns {
    /// Calls that are started at the same time at most: the number of instance slots that are needed.
    pub(crate) fn slots(permits: usize) -> usize {
        permits + PARKED_MAX
    }

    /// Starts `permits` threads, and the one that calls `tick` each [`TICK`] while a call is running.
    pub(crate) fn new(permits: usize, tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            permits,
            state: Mutex::default(),
            work: Condvar::new(),
            tick: Condvar::new(),
            ended: Condvar::new(),
        });
        // Made before the first thread, so that an error below ends those that run already.
        let mut turns = Self { shared: Arc::clone(&shared), ticker: None };
        for _ in 0..permits {
            shared.lock().threads += 1;
            start_worker(&shared).inspect_err(|_| shared.lock().threads -= 1)?;
        }
        let ticker = thread::Builder::new().name("sandbox-tick".to_owned());
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
            None => state.fresh.push_back(LaneQueue { lane: Arc::clone(lane), waiting: VecDeque::from([waiting]) }),
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

impl Shared {
    /// The state is consistent at every unlock, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out free permits. `spare` threads will look for work by themselves, without being woken.
    fn dispatch(self: &Arc<Self>, state: &mut State, spare: usize) {
        while state.running < self.permits {
            let parked_first = state.fresh_in_a_row >= FRESH_IN_A_ROW_MAX && !state.parked.is_empty();
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
        for _ in 0..state.fresh.len() {
            let mut queue = state.fresh.pop_front()?;
            let next = if self.may_start(state, &queue.lane) { queue.waiting.pop_front() } else { None };
            let lane = Arc::clone(&queue.lane);
            if !queue.waiting.is_empty() {
                state.fresh.push_back(queue);
            }
            let Some(Waiting { job, terms, since }) = next else { continue };
            let slow = lane.is_slow();
            state.started += 1;
            state.started_slow += usize::from(slow);
            lane.started.fetch_add(1, Ordering::Relaxed);
            let turn = Turn {
                shared: Arc::clone(self),
                lane,
                terms,
                waited: since.elapsed(),
                cpu_before: Duration::ZERO,
                from_slow_lane: slow,
                is_slow: false,
            };
            return Some(Handed { job, turn });
        }
        None
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
    fn someone_waits(&self, state: &State) -> bool {
        !state.parked.is_empty() || state.fresh.iter().any(|queue| self.may_start(state, &queue.lane))
    }

    fn wake_thread(self: &Arc<Self>, state: &mut State, spare: usize) {
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
        self.lock().threads -= 1;
        self.ended.notify_one();
    }

    /// None when the thread shall end.
    fn next_work(&self) -> Option<Handed> {
        let mut state = self.lock();
        loop {
            if let Some(handed) = state.handed.pop_front() {
                return Some(handed);
            }
            if state.closed {
                return None;
            }
            state.threads_idle += 1;
            let (guard, timeout) =
                self.work.wait_timeout(state, THREAD_IDLE).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.threads_idle -= 1;
            if timeout.timed_out() && state.handed.is_empty() && state.threads > self.permits {
                return None;
            }
        }
    }

    /// The ticker's loop. It sleeps for good while no call is running, so an idle host never wakes for it.
    fn tick_while_open(&self, tick: &impl Fn()) {
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

/// Takes fresh calls that waited too long, or that nobody waits for, out of the queue. A lane's calls have the same
/// limits, so the first in it expires first.
fn expired(state: &mut State) -> Vec<Waiting> {
    let now = Instant::now();
    let over = |waiting: &mut Waiting| {
        waiting.terms.abandoned.load(Ordering::Relaxed) || now.duration_since(waiting.since) > waiting.terms.wait
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

fn start_worker(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("sandbox-call".to_owned()).stack_size(THREAD_STACK_BYTES);
    thread.spawn(move || shared.work()).map(drop)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock is never negative.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
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
    /// Called on the thread that runs the call, first of all.
    fn begin(mut self) -> Self {
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
        // This thread looks for work next.
        shared.dispatch(&mut state, 1);
    }
}
