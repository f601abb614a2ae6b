//! Instants that leases are measured by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on this machine's clock that only goes forward, and goes on while the machine sleeps (`CLOCK_BOOTTIME`).
/// The clock behind [`std::time::Instant`] stands still then: a laptop that is opened again would believe that it
/// still holds what others have taken long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        // Since the boot, so neither part is negative.
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Self(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
    }

    /// For an atomic: 584 years after the boot it would be full.
    pub(crate) fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time since an earlier moment; zero since a later one.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    #[cfg(test)]
    pub(crate) fn at(seconds: f64) -> Self {
        Self(Duration::from_secs_f64(seconds))
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let first = Moment::now();
        let second = Moment::now();
        assert!(second >= first && first > Moment(Duration::ZERO));
        assert_eq!(first.since(second), Duration::ZERO);
        assert_eq!((first + Duration::from_secs(2)).since(first), Duration::from_secs(2));
    }
}
