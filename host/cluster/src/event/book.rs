//! Which events are written: new ones, and repeats now and then; no object may say too much.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use pilothouse_model::diff::Print;
use pilothouse_model::plan::clip;
use tokio::time::Instant;

use super::{
    BUCKET_REFILL, BUCKET_SIZE, MEMORY_MAX, NAME_BYTES_MAX, SERIES_END, SERIES_WRITE_INTERVAL, Sighting,
};

/// What was written and how much may be.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) series: Recent<Print, Series>,
    buckets: Recent<Arc<str>, Bucket>,
}

#[derive(Debug)]
pub(super) struct Series {
    name: String,
    count: u32,
    seen: Instant,
    written: Instant,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A new Event of this name.
    Create(String),
    /// The Event of this name was seen so often.
    Series(String, u32),
    /// A repeat that is not written.
    Count,
    /// Too much was said about this object.
    Drop,
}

impl Book {
    pub(super) fn see(&mut self, sighting: &Sighting, print: Print, now: Instant) -> Step {
        let Some(series) = self.series.get(&print).filter(|series| now - series.seen < SERIES_END) else {
            return if self.spend(&sighting.uid, now) {
                Step::Create(self.begin(sighting, print, now))
            } else {
                Step::Drop
            };
        };
        series.count += 1;
        series.seen = now;
        if series.count > 2 && now - series.written < SERIES_WRITE_INTERVAL {
            return Step::Count;
        }
        let step = Step::Series(series.name.clone(), series.count);
        if !self.spend(&sighting.uid, now) {
            return Step::Drop;
        }
        if let Some(series) = self.series.get(&print) {
            series.written = now;
        }
        step
    }

    /// Begins a series; returns the name of its Event, which only the very same event about the same object has.
    pub(super) fn begin(&mut self, sighting: &Sighting, print: Print, now: Instant) -> String {
        // The API server wants a DNS subdomain; some kinds (RBAC) allow more in their names.
        let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' };
        let name: String = clip(&sighting.key.name, NAME_BYTES_MAX).chars().map(plain).collect();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = format!("{}.{print}", if name.is_empty() { "x" } else { name });
        self.series.insert(print, Series { name: name.clone(), count: 1, seen: now, written: now });
        name
    }

    /// The series was begun by another process, and this is its so many-th event.
    pub(super) fn goes_on(&mut self, print: Print, count: u32) {
        if let Some(series) = self.series.get(&print) {
            series.count = count;
        }
    }

    fn spend(&mut self, uid: &Arc<str>, now: Instant) -> bool {
        let size = f64::from(BUCKET_SIZE);
        if self.buckets.get(uid).is_none() {
            self.buckets.insert(uid.clone(), Bucket { tokens: size, filled: now });
        }
        let Some(bucket) = self.buckets.get(uid) else { return false };
        let gained = (now - bucket.filled).as_secs_f64() / BUCKET_REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + gained).min(size);
        bucket.filled = now;
        let may = bucket.tokens >= 1.0;
        if may {
            bucket.tokens -= 1.0;
        }
        may
    }
}

/// A map of the [`MEMORY_MAX`] entries that were used last, or a few less.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.len() >= MEMORY_MAX && !self.entries.contains_key(&key) {
            // An eighth at once: looking for the oldest costs a walk over all.
            let mut used: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
            used.sort_unstable();
            let oldest = used[MEMORY_MAX / 8];
            self.entries.retain(|_, (used, _)| *used > oldest);
        }
        self.clock += 1;
        self.entries.insert(key, (self.clock, value));
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pilothouse_model::action::{Event, Severity};
    use pilothouse_model::kind::Kind;
    use pilothouse_model::names::Key;
    use serde_json::Value;

    use super::*;

    fn sighting(name: &str, message: &str) -> Sighting {
        Sighting {
            fence: std::sync::Arc::new(crate::write::AlwaysOpen),
            kind: Kind::new("example.com", "v1", "Web"),
            key: Key::namespaced("n", name),
            uid: format!("uid-{name}").into(),
            event: Event {
                severity: Severity::Normal,
                reason: "Created".to_owned(),
                message: message.to_owned(),
            },
            at: "2025-01-02T03:04:05.000006Z".parse().unwrap(),
        }
    }

    fn see(book: &mut Book, sighting: &Sighting, now: Instant) -> Step {
        book.see(sighting, sighting.print(), now)
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_become_one_series_that_is_seldom_written() {
        let (mut book, start) = (Book::default(), Instant::now());
        let event = sighting("a", "m");
        let Step::Create(name) = see(&mut book, &event, start) else { panic!("not new") };
        assert_eq!(see(&mut book, &event, start), Step::Series(name.clone(), 2));
        // One on each pass, each ten minutes, for five hours.
        let minutes = |n: u32| start + Duration::from_mins(10) * n;
        let steps: Vec<Step> = (1..=30).map(|n| see(&mut book, &event, minutes(n))).collect();
        let written = steps.iter().filter(|step| matches!(step, Step::Series(..))).count();
        assert_eq!((written, steps.iter().filter(|step| **step == Step::Count).count()), (10, 20));
        assert_eq!(steps[2], Step::Series(name, 5));
        let Step::Create(_) = see(&mut book, &event, minutes(30) + SERIES_END) else {
            panic!("not new again")
        };
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_says_too_much_is_cut_and_others_are_not() {
        let (mut book, start) = (Book::default(), Instant::now());
        let mut say = |name: &str, at: usize, now| see(&mut book, &sighting(name, &at.to_string()), now);
        let steps: Vec<Step> = (0..100).map(|at| say("a", at, start)).collect();
        assert_eq!(steps.iter().filter(|step| **step != Step::Drop).count(), BUCKET_SIZE as usize);
        assert!(matches!(say("b", 0, start), Step::Create(_)));
        assert!(matches!(say("a", 100, start + BUCKET_REFILL), Step::Create(_)));
        assert_eq!(say("a", 101, start + BUCKET_REFILL), Step::Drop);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_keeps_what_is_used() {
        let mut recent = Recent::default();
        for key in 0..3 * MEMORY_MAX {
            recent.insert(key, ());
            assert!(recent.entries.len() <= MEMORY_MAX);
            assert!(recent.get(&0).is_some());
        }
        assert!(recent.get(&(3 * MEMORY_MAX - 1)).is_some() && recent.get(&1).is_none());
    }

    #[test]
    fn an_event_has_the_form_that_the_api_server_wants() {
        let mut book = Book::default();
        let mut event = sighting("system:Node_x", "m");
        event.key.namespace = None;
        let name = book.begin(&event, event.print(), Instant::now());
        assert!(name.starts_with("system--ode-x."), "{name}");
        let value = event.to_value(&name, "host-0");
        assert_eq!(value["metadata"]["namespace"], "default");
        assert_eq!(value["eventTime"], "2025-01-02T03:04:05.000006Z");
        assert_eq!(value["regarding"]["namespace"], Value::Null);
    }
}
