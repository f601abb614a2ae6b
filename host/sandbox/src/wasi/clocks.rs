//! Clocks that stand still, and waits that move them on at once.
//!
//! wasmtime's own WASI waits in real time, in the host, where neither the epoch nor a time-out around the call ends
//! it; and two runs would see two times.

use jiff::Timestamp;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, LinkerInstance, Lower, Resource};

use super::{Denied, InputStream, OutputStream, Pollable};
use crate::call::CallState;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Both clocks of one call, and what it may wait for.
#[derive(Debug)]
pub(super) struct Clock {
    /// Nanoseconds of Unix time. The monotonic clock shows it too, as its zero is anybody's choice.
    now: u64,
    /// Instants at which pollables are ready, by their numbers. `None`: dropped.
    ready: Vec<Option<u64>>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl Clock {
    /// A text that is no time means the beginning of Unix time: the host writes `now`, a guest cannot be blamed.
    pub(super) fn at(now: &str) -> Self {
        let nanoseconds = now.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond);
        Self { now: u64::try_from(nanoseconds).unwrap_or(0), ready: Vec::new() }
    }

    fn datetime(&self) -> Datetime {
        let nanoseconds = u32::try_from(self.now % NANOS_PER_SECOND).unwrap_or(0);
        Datetime { seconds: self.now / NANOS_PER_SECOND, nanoseconds }
    }

    /// A pollable that is ready from this instant on. Their number is bounded by that of handles.
    fn subscribe(&mut self, instant: u64) -> Resource<Pollable> {
        let place = self.ready.iter().position(Option::is_none).unwrap_or_else(|| {
            self.ready.push(None);
            self.ready.len() - 1
        });
        self.ready[place] = Some(instant);
        Resource::new_own(u32::try_from(place).unwrap_or(u32::MAX))
    }

    pub(super) fn forget(&mut self, place: u32) {
        if let Some(entry) = self.ready.get_mut(place as usize) {
            *entry = None;
        }
    }

    fn ready_at(&self, pollable: &Resource<Pollable>) -> Result<u64, Denied> {
        self.ready.get(pollable.rep() as usize).copied().flatten().ok_or(Denied::Handle)
    }

    fn wait_until(&mut self, instant: u64) {
        self.now = self.now.max(instant);
    }

    /// Positions of those that are ready, after moving on to the first that will be.
    fn poll(&mut self, pollables: &[Resource<Pollable>]) -> Result<Vec<u32>, Denied> {
        let instants =
            pollables.iter().map(|pollable| self.ready_at(pollable)).collect::<Result<Vec<u64>, _>>()?;
        let first = instants.iter().min().ok_or(Denied::EmptyPoll)?;
        self.wait_until(*first);
        Ok((0_u32..).zip(instants).filter(|(_, instant)| *instant <= self.now).map(|(at, _)| at).collect())
    }
}

type Store<'a> = StoreContextMut<'a, CallState>;

fn clock<'a>(store: &'a mut Store<'_>) -> &'a mut Clock {
    &mut store.data_mut().wasi.clock
}

pub(super) fn define(
    at: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<bool> {
    match (interface, name) {
        ("clocks/wall-clock", "now") => {
            at.func_wrap(name, |mut store, ()| Ok((clock(&mut store).datetime(),)))?;
        }
        ("clocks/wall-clock", "resolution") => {
            at.func_wrap(name, |_, ()| Ok((Datetime { seconds: 0, nanoseconds: 1 },)))?;
        }
        ("clocks/monotonic-clock", "now") => {
            at.func_wrap(name, |mut store, ()| Ok((clock(&mut store).now,)))?;
        }
        ("clocks/monotonic-clock", "resolution") => at.func_wrap(name, |_, ()| Ok((1_u64,)))?,
        ("clocks/monotonic-clock", "subscribe-instant") => {
            at.func_wrap(name, |mut store, (instant,): (u64,)| Ok((clock(&mut store).subscribe(instant),)))?;
        }
        ("clocks/monotonic-clock", "subscribe-duration") => {
            at.func_wrap(name, |mut store, (duration,): (u64,)| {
                let clock = clock(&mut store);
                Ok((clock.subscribe(clock.now.saturating_add(duration)),))
            })?;
        }
        // Streams are always ready.
        ("io/streams", "[method]input-stream.subscribe") => {
            at.func_wrap(name, |mut store, (_stream,): (Resource<InputStream>,)| {
                Ok((clock(&mut store).subscribe(0),))
            })?;
        }
        ("io/streams", "[method]output-stream.subscribe") => {
            at.func_wrap(name, |mut store, (_stream,): (Resource<OutputStream>,)| {
                Ok((clock(&mut store).subscribe(0),))
            })?;
        }
        ("io/poll", "[method]pollable.ready") => {
            at.func_wrap(name, |mut store, (pollable,): (Resource<Pollable>,)| {
                let clock = clock(&mut store);
                Ok((clock.ready_at(&pollable)? <= clock.now,))
            })?;
        }
        ("io/poll", "[method]pollable.block") => {
            at.func_wrap(name, |mut store, (pollable,): (Resource<Pollable>,)| {
                let clock = clock(&mut store);
                let instant = clock.ready_at(&pollable)?;
                clock.wait_until(instant);
                Ok(())
            })?;
        }
        ("io/poll", "poll") => at
            .func_wrap(name, |mut store, (pollables,): (Vec<Resource<Pollable>>,)| {
                Ok((clock(&mut store).poll(&pollables)?,))
            })?,
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_stand_at_now_and_a_wait_moves_them() {
        let mut clock = Clock::at("2026-01-02T03:04:05.000000006Z");
        let Datetime { seconds, nanoseconds } = clock.datetime();
        assert_eq!((seconds, nanoseconds), (1_767_323_045, 6));
        let (late, soon) = (clock.subscribe(clock.now + 50), clock.subscribe(clock.now + 20));
        assert_eq!(clock.poll(&[late, soon]).unwrap(), [1]);
        assert_eq!(clock.datetime().nanoseconds, 26);
    }

    #[test]
    fn what_is_ready_needs_no_wait_and_places_are_used_again() {
        let mut clock = Clock::at("1970-01-01T00:00:01Z");
        let before = clock.now;
        let ready = clock.subscribe(0);
        assert_eq!(clock.poll(std::slice::from_ref(&ready)).unwrap(), [0]);
        assert_eq!(clock.now, before);
        clock.forget(ready.rep());
        assert_eq!(clock.poll(&[ready]), Err(Denied::Handle));
        assert_eq!(clock.subscribe(0).rep(), 0);
        assert_eq!(clock.poll(&[]), Err(Denied::EmptyPoll));
    }

    #[test]
    fn a_time_that_is_none_is_the_beginning() {
        assert_eq!(Clock::at("yesterday").now, 0);
        assert_eq!(Clock::at("1812-01-01T00:00:00Z").now, 0);
    }
}
