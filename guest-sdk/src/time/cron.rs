//! [`Cron`]: times by a crontab line, in UTC. The dialect is that of Kubernetes' CronJobs: five fields of numbers, ranges,
//! steps and lists, names of months and weekdays, 7 for Sunday besides, and no `@daily`.

use std::time::Duration;

use super::{DAY_SECONDS, Time, date};

/// Days within which a date comes again, if ever: 29 February comes after 4 years, or 8 where a century has none.
const SEARCH_DAYS: i64 = 8 * 366;

/// A checked crontab line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both kinds of days are restricted: then either will do.
    either: bool,
}

/// What a field may hold.
struct Field {
    name: &'static str,
    first: u64,
    last: u64,
    /// Above `last` for Sunday alone, which is 0 and 7.
    accepted: u64,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, accepted: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, accepted: 23, names: &[] },
    Field { name: "day of the month", first: 1, last: 31, accepted: 31, names: &[] },
    Field {
        name: "month",
        first: 1,
        last: 12,
        accepted: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field {
        name: "day of the week",
        first: 0,
        last: 6,
        accepted: 7,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

impl Cron {
    /// Reads a line such as `*/5 9-17 * * mon-fri`. The error says which field is wrong.
    pub fn parse(line: &str) -> Result<Self, String> {
        let texts: Vec<&str> = line.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = texts[..] else {
            return Err(
                "has not five fields: minute, hour, day of the month, month, day of the week".to_owned()
            );
        };
        let [of_minute, of_hour, of_day, of_month, of_weekday] = &FIELDS;
        let weekdays = of_weekday.read(weekday)?;
        let cron = Self {
            minutes: of_minute.read(minute)?,
            hours: of_hour.read(hour)?,
            days: of_day.read(day)?,
            months: of_month.read(month)?,
            weekdays: weekdays | weekdays >> 7,
            either: day != "*" && weekday != "*",
        };
        match cron.search(Time::from_seconds(0)) {
            Some(_) => Ok(cron),
            None => Err("names a date that never comes".to_owned()),
        }
    }

    /// The first time after this one.
    pub fn after(&self, time: Time) -> Time {
        // It was found to come when the line was read; what can be far away is less than nothing.
        self.search(time).unwrap_or(time.plus(Duration::from_hours(24)))
    }

    fn search(&self, time: Time) -> Option<Time> {
        let from = time.seconds().div_euclid(60) + 1;
        let today = from.div_euclid(1440);
        (today..=today + SEARCH_DAYS).filter(|day| self.has_day(*day)).find_map(|day| {
            let mut minutes = (from - day * 1440).max(0)..1440;
            let minute =
                minutes.find(|minute| has(self.hours, minute / 60) && has(self.minutes, minute % 60))?;
            Some(Time::from_seconds(day * DAY_SECONDS + minute * 60))
        })
    }

    fn has_day(&self, day: i64) -> bool {
        let [_, month, number] = date(day);
        // 1 January 1970 was a Thursday.
        let (of_month, of_week) = (has(self.days, number), has(self.weekdays, (day + 4).rem_euclid(7)));
        has(self.months, month) && if self.either { of_month || of_week } else { of_month && of_week }
    }
}

fn has(set: u64, value: i64) -> bool {
    set >> value & 1 == 1
}

impl Field {
    /// The set of values that a text names.
    fn read(&self, text: &str) -> Result<u64, String> {
        let mut set = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => {
                    (range, Some(step.parse().ok().filter(|step: &usize| (1..=59).contains(step))))
                }
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (Some(self.first), Some(self.last)),
                Some((first, last)) => (self.value(first), self.value(last)),
                // `9/2` goes on to the end.
                None if step.is_some() => {
                    (self.value(range), self.value(range).map(|first| first.max(self.last)))
                }
                None => (self.value(range), self.value(range)),
            };
            let (Some(first), Some(last), Some(step)) = (first, last, step.unwrap_or(Some(1))) else {
                return Err(self.refuse(part));
            };
            if first > last {
                return Err(self.refuse(part));
            }
            for value in (first..=last).step_by(step) {
                set |= 1 << value;
            }
        }
        Ok(set)
    }

    fn value(&self, text: &str) -> Option<u64> {
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let value = match named {
            Some(position) => position as u64 + self.first,
            None => super::digits(text)?,
        };
        (self.first..=self.accepted).contains(&value).then_some(value)
    }

    fn refuse(&self, part: &str) -> String {
        let (first, last) = (self.first.to_string(), self.accepted.to_string());
        [self.name, ": `", part, "` is not of ", &first, " to ", &last, ", `*`, a range `a-b` or a step `/n`"]
            .concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(line: &str, time: &str) -> String {
        Cron::parse(line).unwrap().after(Time::parse(time).unwrap()).to_string()
    }

    #[test]
    fn the_next_time_is_the_one_that_a_cron_job_would_have() {
        for (line, time, expected) in [
            ("* * * * *", "2025-01-01T00:00:00Z", "2025-01-01T00:01:00Z"),
            ("* * * * *", "2025-01-01T00:00:59Z", "2025-01-01T00:01:00Z"),
            ("0 * * * *", "2025-01-01T00:00:00Z", "2025-01-01T01:00:00Z"),
            ("59 23 31 12 *", "2025-12-31T23:59:00Z", "2026-12-31T23:59:00Z"),
            ("*/20 9-10 * * *", "2025-01-01T09:40:00Z", "2025-01-01T10:00:00Z"),
            ("*/20 9-10 * * *", "2025-01-01T10:40:00Z", "2025-01-02T09:00:00Z"),
            ("5/20 * * * *", "2025-01-01T00:25:00Z", "2025-01-01T00:45:00Z"),
            ("0 8,20 * * *", "2025-01-01T08:00:00Z", "2025-01-01T20:00:00Z"),
            // Wednesday; Monday to Friday, then over the weekend.
            ("0 9 * * mon-FRI", "2025-01-01T12:00:00Z", "2025-01-02T09:00:00Z"),
            ("0 9 * * 1-5", "2025-01-03T09:00:00Z", "2025-01-06T09:00:00Z"),
            ("0 0 * * 0", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z"),
            ("0 0 * * 7", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z"),
            ("0 0 * * 7/2", "2025-01-01T00:00:00Z", "2025-01-05T00:00:00Z"),
            ("0 0 * * 6-7", "2025-01-04T00:00:00Z", "2025-01-05T00:00:00Z"),
            ("0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 31 * *", "2025-01-31T00:00:00Z", "2025-03-31T00:00:00Z"),
            ("0 0 1 jan,JUL *", "2025-01-01T00:00:00Z", "2025-07-01T00:00:00Z"),
            // Both days restricted: either. One of them with `*`: both.
            ("0 0 13 * fri", "2025-06-01T00:00:00Z", "2025-06-06T00:00:00Z"),
            ("0 0 13 * fri", "2025-06-06T00:00:00Z", "2025-06-13T00:00:00Z"),
            ("0 0 10 * fri", "2025-06-06T00:00:00Z", "2025-06-10T00:00:00Z"),
            ("0 0 * 2 fri", "2025-06-06T00:00:00Z", "2026-02-06T00:00:00Z"),
        ] {
            assert_eq!(after(line, time), expected, "{line} after {time}");
        }
    }

    #[test]
    fn what_is_no_line_is_refused_by_field() {
        for (line, part) in [
            ("", "five fields"),
            ("* * * *", "five fields"),
            ("* * * * * *", "five fields"),
            ("@daily", "five fields"),
            ("60 * * * *", "minute: `60` is not of 0 to 59"),
            ("* 24 * * *", "hour: `24`"),
            ("* * 0 * *", "day of the month: `0` is not of 1 to 31"),
            ("* * * 13 *", "month: `13`"),
            ("* * * * 8", "day of the week: `8`"),
            ("* * * * monday", "day of the week: `monday`"),
            ("*/0 * * * *", "minute: `*/0`"),
            ("*/x * * * *", "minute: `*/x`"),
            ("5-1 * * * *", "minute: `5-1`"),
            ("1,,2 * * * *", "minute: ``"),
            ("+1 * * * *", "minute: `+1`"),
            ("1-2-3 * * * *", "minute: `1-2-3`"),
            ("0 0 30 2 *", "never comes"),
            ("0 0 31 4,6 *", "never comes"),
        ] {
            let error = Cron::parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    fn field(first: u64, last: u64) -> impl Strategy<Value = String> {
        prop_oneof![
            Just("*".to_owned()),
            (first..=last).prop_map(|value| value.to_string()),
            (first..=last, 1..=last).prop_map(|(value, step)| format!("{value}/{step}")),
            (first..=last, first..=last).prop_map(|(one, two)| format!("{}-{}", one.min(two), one.max(two))),
            prop::collection::vec(first..=last, 1..4).prop_map(|all| all
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(",")),
        ]
    }

    fn line() -> impl Strategy<Value = String> {
        (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)).prop_map(
            |(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"),
        )
    }

    proptest! {
        /// The next time is later, on a whole minute, and nothing lies between: asked anywhere before it, the answer is
        /// the same.
        #[test]
        fn times_go_up_and_none_is_left_out(
            line in line(), begin in 0_i64..7_000_000_000, part in 0_f64..1.0,
        ) {
            let cron = Cron::parse(&line).unwrap();
            let begin = Time::from_seconds(begin);
            let next = cron.after(begin);
            prop_assert!(next > begin && next.seconds() % 60 == 0, "{} after {}", next, begin);
            let gap = next.since(begin).mul_f64(part);
            let between = begin.plus(gap);
            if between < next {
                prop_assert_eq!(cron.after(between), next);
            }
            prop_assert!(cron.after(next) > next);
        }

        #[test]
        fn no_text_is_a_panic(line in "[-*/,0-9a-z ]{0,24}") {
            let _ = Cron::parse(&line);
        }
    }
}
