//! Time for plugins. The pass's `now` is the only clock that there is, and it is text: [`Time`] reads it, counts with it
//! and writes it. [`Timer`] reads what users write about times to come.
//!
//! Whole seconds and UTC only, as `metav1.Time` has them: no time zone, no leap second, and little code in a plugin.

mod cron;
mod timer;

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cron::Cron;
pub use timer::Timer;

const DAY_SECONDS: i64 = 86_400;

/// An instant: seconds since 1970 in UTC. As JSON it is text in RFC 3339, for example `2025-01-01T00:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(extend("format" = "date-time"))]
pub struct Time(i64);

impl Time {
    /// Reads RFC 3339 in UTC, as the API server and the host write it. Fractions of a second are left out.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(clock.split_once('.').map_or(clock, |(whole, _)| whole), ':')?;
        let right = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && hour < 24
            && minute < 60
            && second < 60;
        // A day that its month does not have is one of the next.
        if !right || self::date(days(year, month, day)) != [year, month, day] {
            return None;
        }
        Some(Self(days(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second))
    }

    /// Of that many seconds since 1970 in UTC.
    pub fn from_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Seconds since 1970 in UTC.
    pub fn seconds(self) -> i64 {
        self.0
    }

    /// That much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_secs().try_into().unwrap_or(i64::MAX)))
    }

    /// How long it is from `earlier` until this; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0).try_into().unwrap_or_default())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [year, month, day] = date(self.0.div_euclid(DAY_SECONDS));
        let seconds = self.0.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl TryFrom<String> for Time {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("is no time such as 2025-01-01T00:00:00Z")
    }
}

/// Reads a duration as Go programs write it, of whole hours, minutes and seconds: `90s`, `5m`, `1h30m`.
pub fn interval(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0_u64, text);
    for (unit, length) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((count, after)) = rest.split_once(unit) {
            seconds = seconds.checked_add(digits(count)?.checked_mul(length)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then(|| Duration::from_secs(seconds))
}

/// Three numbers.
fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| digits(part)?.try_into().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// A number of up to 9 digits and nothing else: `parse` would take a sign.
fn digits(text: &str) -> Option<u64> {
    let right = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    if right { text.parse().ok() } else { None }
}

/// Days from 1970 to a date. Years begin in March here, so that the leap day is the last, and repeat each 400.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of a day since 1970.
fn date(days: i64) -> [i64; 3] {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let january = i64::from(month >= 10);
    [era * 400 + year + january, if month < 10 { month + 3 } else { month - 9 }, day]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(time(text).seconds(), seconds, "{text}");
            assert_eq!(Time::from_seconds(seconds).to_string(), text);
        }
        assert_eq!(time("2025-01-01T00:00:00.987654321Z"), time("2025-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2025-01-01",
            "2025-01-01T00:00:00",
            "2025-01-01T00:00:00+01:00",
            "2025-13-01T00:00:00Z",
            "2025-01-00T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2025-04-31T00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:00Z",
            "2025-01-01T00:00:+1Z",
            "99999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn intervals_are_those_of_go_in_whole_units() {
        for (text, seconds) in
            [("90s", 90), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("2h0m5s", 7205), ("0s", 0)]
        {
            assert_eq!(interval(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "5m1h", "1.5h", "-5m", "5 m", "5d", "1000000000h", "1h1h"] {
            assert_eq!(interval(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_is_text_in_json_and_in_a_schema() {
        let noon = time("2025-06-01T12:00:00Z");
        assert_eq!(serde_json::to_value(noon).unwrap(), "2025-06-01T12:00:00Z");
        assert_eq!(serde_json::from_str::<Time>("\"2025-06-01T12:00:00Z\"").unwrap(), noon);
        assert!(serde_json::from_str::<Time>("\"noon\"").is_err());
        let schema = schemars::schema_for!(Time).to_value();
        assert_eq!((&schema["type"], &schema["format"]), (&"string".into(), &"date-time".into()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(seconds in -62_135_596_800_i64..253_402_300_800) {
            let time = Time::from_seconds(seconds);
            prop_assert_eq!(Time::parse(&time.to_string()), Some(time));
        }

        #[test]
        fn days_follow_one_another(day in -700_000_i64..2_900_000) {
            let ([year, month, number], next) = (date(day), date(day + 1));
            prop_assert!(next == [year, month, number + 1] || next == [year, month + 1, 1] || next == [year + 1, 1, 1]);
            prop_assert_eq!(days(year, month, number), day);
        }
    }
}
