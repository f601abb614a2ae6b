//! How long to wait before a failed key is tried again.

use std::time::Duration;

use crate::settings::BackoffSettings;

/// The delay before attempt `failures + 1`: the base, doubled with each failure, up to the cap; then shortened by up
/// to a tenth by `spread`, so that keys that failed together do not come back together.
///
/// `spread` is any number that differs between keys, a hash for example. Without failures the delay is zero.
pub fn delay(settings: &BackoffSettings, failures: u32, spread: u64) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    let ms = settings.base_ms.saturating_mul(factor).min(settings.cap_ms);
    let us = ms.saturating_mul(1_000);
    Duration::from_micros(us - us / 10 * (spread % 1_024) / 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_from_5_ms_to_60_s() {
        let settings = BackoffSettings::default();
        let ms = |failures| delay(&settings, failures, 0).as_millis();
        assert_eq!(
            [0, 1, 2, 3, 4, 14, 15, 64, u32::MAX].map(ms),
            [0, 5, 10, 20, 40, 40_960, 60_000, 60_000, 60_000]
        );
    }

    #[test]
    fn the_spread_takes_at_most_a_tenth() {
        let settings = BackoffSettings { base_ms: 1_000, cap_ms: 60_000 };
        for spread in [0, 1, 500, 1_023, 1_024, u64::MAX] {
            let delay = delay(&settings, 1, spread);
            assert!(delay <= Duration::from_secs(1) && delay > Duration::from_millis(899), "{delay:?}");
        }
    }
}
