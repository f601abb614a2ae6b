//! How long things may take that have to do with a Lease, and what follows from it for writes.

use std::time::Duration;

use crate::write::WRITE_TIME_MAX;

/// Left over at the end of a Lease for what no time-out sees: clocks of two machines that run at different speeds, a
/// thread that waits for its turn, an API server that ends a request a little late.
const MARGIN: Duration = Duration::from_secs(1);
/// client-go spreads its attempts by as much.
const JITTER: f64 = 1.2;

/// The times of a Lease. 15/10/2 s are client-go's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Times that do not fit together; each names the value that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The Lease itself.
    #[error("duration: {0:?} is out of bounds: 3 s to 1 h in whole seconds would be right")]
    Duration(Duration),
    /// The deadline.
    #[error("renew deadline: {0:?} must be shorter than the duration of {1:?}")]
    RenewDeadline(Duration, Duration),
    /// The retry period.
    #[error("retry period: {0:?} is out of bounds: 100 ms to {1:?} would be right")]
    RetryPeriod(Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// `duration`: others take over when the Lease was not renewed for so long. `renew_deadline`: the holder gives up
    /// when it could not renew for so long. `retry_period`: time between two renewals, and between two looks of one
    /// who stands by.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        let timing = Self { duration, renew_deadline, retry_period };
        // Lease objects have whole seconds. Below three no time is left for a write.
        if !(3..=3_600).contains(&duration.as_secs()) || duration.subsec_nanos() != 0 {
            return Err(TimingError::Duration(duration));
        }
        if renew_deadline >= duration {
            return Err(TimingError::RenewDeadline(renew_deadline, duration));
        }
        // Also once a renewal has failed, writes go on until the next attempt.
        let longest = renew_deadline.min(duration.saturating_sub(timing.reserve())).div_f64(JITTER);
        if !(Duration::from_millis(100)..=longest).contains(&retry_period) {
            return Err(TimingError::RetryPeriod(retry_period, longest));
        }
        Ok(timing)
    }

    /// How long the Lease is good for after a renewal.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// After how long without a renewal the holder gives up.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Time between two attempts.
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// Longest that a write may take, here and in the API server: the usual five seconds, or less where the Lease is
    /// short.
    pub fn write_time(&self) -> Duration {
        self.spare().mul_f64(0.4).min(WRITE_TIME_MAX)
    }

    /// Longest that bytes of a write may be unacknowledged by the API server's machine before the kernel drops them:
    /// the time that the API server itself measures begins only when they have arrived.
    pub fn travel_time(&self) -> Duration {
        self.spare().mul_f64(0.15).min(Duration::from_secs(2))
    }

    /// What must be left of the Lease when a write begins. Then its bytes have arrived or are dropped, the API server
    /// has carried it out or given it up, and a second has passed, before anybody else may write.
    pub fn reserve(&self) -> Duration {
        self.time_to_settle() + MARGIN
    }

    /// Longest from when the bytes of a write leave until it has happened or never will.
    pub(crate) fn time_to_settle(&self) -> Duration {
        self.travel_time() + self.write_time()
    }

    /// Longest that one request about the Lease itself may take.
    pub(crate) fn request_time(&self) -> Duration {
        self.renew_deadline / 2
    }

    fn spare(&self) -> Duration {
        self.duration.saturating_sub(MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_defaults_are_those_of_client_go_and_leave_five_seconds_for_a_write() {
        let timing = Timing::default();
        assert_eq!(Timing::new(ms(15_000), ms(10_000), ms(2_000)), Ok(timing));
        assert_eq!(timing.write_time(), WRITE_TIME_MAX);
        assert_eq!(timing.reserve(), ms(8_000));
    }

    #[test]
    fn whatever_is_accepted_leaves_room_for_a_failed_renewal_and_a_write() {
        for seconds in 3..=60 {
            let duration = Duration::from_secs(seconds);
            let Ok(timing) = Timing::new(duration, duration * 2 / 3, duration / 10) else {
                panic!("{duration:?}")
            };
            assert!(timing.reserve() + timing.retry_period() * 2 < duration, "{timing:?}");
            assert!(timing.write_time() > ms(500), "{timing:?}");
        }
    }

    #[test]
    fn times_that_do_not_fit_are_refused_by_name() {
        let refused = |duration, deadline, retry| {
            Timing::new(ms(duration), ms(deadline), ms(retry)).unwrap_err().to_string()
        };
        assert!(refused(2_000, 1_000, 200).starts_with("duration: 2s"));
        assert!(refused(4_500, 1_000, 200).starts_with("duration: 4.5s"));
        assert!(refused(15_000, 15_000, 2_000).starts_with("renew deadline: 15s must be shorter"));
        assert!(refused(15_000, 10_000, 6_000).starts_with("retry period: 6s is out of bounds"));
        assert!(refused(15_000, 10_000, 50).starts_with("retry period: 50ms"));
    }
}
