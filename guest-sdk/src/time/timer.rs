//! [`Timer`]: an interval or a crontab line, as users choose between them.

use std::fmt;
use std::time::Duration;

use super::{Cron, Time, interval};

/// When something is due, again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    text: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Each whole multiple of the seconds after a time.
    Every {
        seconds: u64,
        from: Time,
    },
    Cron(Cron),
}

impl Timer {
    /// By an [`interval`] that is no shorter than `min`, counted from a time that stays, such as that of a resource's
    /// creation: counted from the last time, it would be later each time. The error says what would be right.
    pub fn every(text: &str, min: Duration, from: Time) -> Result<Self, String> {
        let min_seconds = min.as_secs().max(1);
        match interval(text).map(|length| length.as_secs()) {
            Some(seconds) if seconds >= min_seconds => {
                Ok(Self { text: ["every ", text].concat(), kind: Kind::Every { seconds, from } })
            }
            _ => Err(format!("use hours, minutes and seconds such as 90s or 1h30m, {min_seconds}s or more")),
        }
    }

    /// By a crontab line. The error says which field is wrong.
    pub fn cron(line: &str) -> Result<Self, String> {
        Ok(Self { text: line.to_owned(), kind: Kind::Cron(Cron::parse(line)?) })
    }

    /// The first time after this one.
    pub fn after(&self, time: Time) -> Time {
        match &self.kind {
            Kind::Every { seconds, from } => {
                let count = time.since(*from).as_secs() / seconds + 1;
                from.plus(Duration::from_secs(count.saturating_mul(*seconds)))
            }
            Kind::Cron(cron) => cron.after(time),
        }
    }
}

/// `every 5m`, or the crontab line.
impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_the_beginning() {
        let begin = Time::parse("2025-01-01T00:00:30Z").unwrap();
        let timer = Timer::every("5m", Duration::from_secs(5), begin).unwrap();
        for (time, expected) in [
            ("2024-12-31T00:00:00Z", "2025-01-01T00:05:30Z"),
            ("2025-01-01T00:00:30Z", "2025-01-01T00:05:30Z"),
            ("2025-01-01T00:05:29Z", "2025-01-01T00:05:30Z"),
            ("2025-01-01T00:05:30Z", "2025-01-01T00:10:30Z"),
            ("2025-01-02T00:05:31Z", "2025-01-02T00:10:30Z"),
        ] {
            assert_eq!(timer.after(Time::parse(time).unwrap()).to_string(), expected, "after {time}");
        }
        assert_eq!(timer.to_string(), "every 5m");
    }

    #[test]
    fn too_short_and_malformed_intervals_are_refused() {
        let zero = Time::from_seconds(0);
        for (text, min) in [("4s", 5), ("soon", 5), ("0s", 0), ("", 0)] {
            let error = Timer::every(text, Duration::from_secs(min), zero).unwrap_err();
            assert!(error.ends_with(&format!("{}s or more", min.max(1))), "{text}: {error}");
        }
        let cron = Timer::cron("0 * * * *").unwrap();
        assert_eq!((cron.to_string(), cron.after(zero).seconds()), ("0 * * * *".to_owned(), 3600));
        assert!(Timer::cron("0 * * *").is_err());
    }
}
