//! Records Kubernetes Events (`events.k8s.io/v1`) about primaries. Best effort, and never in the way: a pass puts an
//! event into a bounded queue and goes on; one task writes them, counts repeats and keeps chatter from the API server.
//!
//! - The same event about the same object is one Event. Its first repeat makes it a series; further ones are counted
//!   and written at most every [`SERIES_WRITE_INTERVAL`], as client-go does.
//! - Each object has a bucket of [`BUCKET_SIZE`] events that fills by one in [`BUCKET_REFILL`], as in client-go:
//!   what is over is dropped and counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use pilothouse_model::action::Event;
use pilothouse_model::diff::Print;
use pilothouse_model::kind::Kind;
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;
use pilothouse_model::plan::{EVENT_MESSAGE_BYTES_MAX, clip};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::write::{Endpoint, Mode, Writer};
use crate::write_error::{Fault, WriteError};

/// Events that wait to be written. Two passes on each of 500 resources; beyond that the API server is away, and news
/// of a minute ago is none.
pub const QUEUE_MAX: usize = 1_024;
/// Series and objects that are remembered, client-go's figure. An event that is forgotten is written again.
pub const MEMORY_MAX: usize = 4_096;
/// Events about one object at once.
pub const BUCKET_SIZE: u32 = 25;
/// Time for one more.
pub const BUCKET_REFILL: Duration = Duration::from_mins(5);
/// How often the count of a series is written.
pub const SERIES_WRITE_INTERVAL: Duration = Duration::from_mins(30);
/// A repeat after this time is a new Event: the API server has dropped the old one (its default time to live).
pub const SERIES_END: Duration = Duration::from_hours(1);

/// `reportingController` of all Events.
const CONTROLLER: &str = "pilothouse.dev/host";
/// `action` of all Events: the API server wants one.
const ACTION: &str = "Reconcile";
/// Bytes of the primary's name in that of its Events: with a dot and 16 digits it stays below 253.
const NAME_BYTES_MAX: usize = 200;

/// What became of events, counted since the start.
#[derive(Debug, Default)]
pub struct EventCounters {
    written: AtomicU64,
    repeated: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl EventCounters {
    /// Events and series written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Repeats that were only counted.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Dropped since the queue was full or the object said too much.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes that failed. They are not tried again.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Takes events. Cheap to clone; the task ends when all clones are dropped and the queue is empty.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Sighting>,
    counters: Arc<EventCounters>,
}

/// Writes events; must be run.
#[derive(Debug)]
pub struct EventTask {
    writer: Writer,
    instance: String,
    queue: mpsc::Receiver<Sighting>,
    counters: Arc<EventCounters>,
    book: Book,
}

#[derive(Debug)]
struct Sighting {
    kind: Kind,
    key: Key,
    uid: Arc<str>,
    event: Event,
    at: Timestamp,
}

/// A recorder and the task behind it. `instance` names this host (`reportingInstance`), at most 128 bytes count.
pub fn recorder(writer: &Writer, instance: &str) -> (Recorder, EventTask) {
    let (sender, queue) = mpsc::channel(QUEUE_MAX);
    let counters = Arc::new(EventCounters::default());
    let recorder = Recorder { queue: sender, counters: counters.clone() };
    let instance = clip(instance, 128).to_owned();
    (
        recorder,
        EventTask {
            writer: writer.with_manager("pilothouse"),
            instance,
            queue,
            counters,
            book: Book::default(),
        },
    )
}

impl Recorder {
    /// Records an event about `regarding`. Returns at once.
    pub fn record(&self, regarding: &Object, event: &Event) {
        let sighting = Sighting {
            kind: regarding.kind().clone(),
            key: regarding.key(),
            uid: regarding.meta().uid.clone(),
            event: Event {
                message: clip(&event.message, EVENT_MESSAGE_BYTES_MAX).to_owned(),
                ..event.clone()
            },
            at: Timestamp::now(),
        };
        if self.queue.try_send(sighting).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of events so far.
    pub fn counters(&self) -> &Arc<EventCounters> {
        &self.counters
    }
}

impl EventTask {
    /// Writes events until all recorders are dropped. Dropping the future loses the events that wait.
    pub async fn run(mut self) {
        while let Some(sighting) = self.queue.recv().await {
            let print = sighting.print();
            let counter = match self.book.see(&sighting, print, Instant::now()) {
                Step::Count => &self.counters.repeated,
                Step::Drop => &self.counters.dropped,
                Step::Create(name) => self.settle(print, self.create(&sighting, &name).await),
                Step::Series(name, count) => match self.update(&sighting, &name, count).await {
                    // Its time was up before ours.
                    Err(error) if error.fault == Fault::NotFound => {
                        let name = self.book.begin(&sighting, print, Instant::now());
                        self.settle(print, self.create(&sighting, &name).await)
                    }
                    done => self.settle(print, done),
                },
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn settle(&mut self, print: Print, done: Result<(), WriteError>) -> &AtomicU64 {
        match done {
            Ok(()) => &self.counters.written,
            Err(error) => {
                tracing::debug!(reason = error.reason().as_str(), %error, "event not written");
                self.book.series.forget(&print);
                &self.counters.failed
            }
        }
    }

    async fn create(&self, sighting: &Sighting, name: &str) -> Result<(), WriteError> {
        let kind = event_kind();
        let body = sighting.to_value(name, &self.instance);
        self.writer.create(&sighting.endpoint(&kind, name), &body, Mode::Store).await.map(drop)
    }

    async fn update(&self, sighting: &Sighting, name: &str, count: u32) -> Result<(), WriteError> {
        let kind = event_kind();
        let patch = json!({"series": {"count": count, "lastObservedTime": micro_time(sighting.at)}});
        self.writer.merge_patch(&sighting.endpoint(&kind, name), None, &patch).await.map(drop)
    }
}

fn event_kind() -> Kind {
    Kind::new("events.k8s.io", "v1", "Event")
}

/// Kubernetes' MicroTime: exactly six digits.
fn micro_time(at: Timestamp) -> String {
    format!("{at:.6}")
}

impl Sighting {
    fn print(&self) -> Print {
        let Event { severity, reason, message } = &self.event;
        Print::of_texts(&[&self.uid, severity.as_str(), reason, message])
    }

    /// Events about cluster-scoped objects live in `default`.
    fn namespace(&self) -> &str {
        self.key.namespace.as_deref().unwrap_or("default")
    }

    fn endpoint<'a>(&'a self, kind: &Kind, name: &'a str) -> Endpoint<'a> {
        Endpoint::new(kind, "events", Some(self.namespace()), name)
    }

    fn to_value(&self, name: &str, instance: &str) -> Value {
        let mut regarding = json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "name": &*self.key.name, "uid": &*self.uid
        });
        if let Some(namespace) = &self.key.namespace {
            regarding["namespace"] = json!(&**namespace);
        }
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace()},
            "eventTime": micro_time(self.at),
            "reportingController": CONTROLLER, "reportingInstance": instance, "action": ACTION,
            "type": self.event.severity.as_str(), "reason": self.event.reason, "note": self.event.message,
            "regarding": regarding
        })
    }
}

/// What was written and how much may be.
#[derive(Debug, Default)]
struct Book {
    series: Recent<Print, Series>,
    buckets: Recent<Arc<str>, Bucket>,
}

#[derive(Debug)]
struct Series {
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
enum Step {
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
    fn see(&mut self, sighting: &Sighting, print: Print, now: Instant) -> Step {
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

    /// Begins a series; returns the name of its Event, which no other has.
    fn begin(&mut self, sighting: &Sighting, print: Print, now: Instant) -> String {
        // The API server wants a DNS subdomain; some kinds (RBAC) allow more in their names.
        let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' };
        let name: String = clip(&sighting.key.name, NAME_BYTES_MAX).chars().map(plain).collect();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        // As client-go names them: by the time in nanoseconds.
        let name =
            format!("{}.{:016x}", if name.is_empty() { "x" } else { name }, sighting.at.as_nanosecond());
        self.series.insert(print, Series { name: name.clone(), count: 1, seen: now, written: now });
        name
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
struct Recent<K, V> {
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

    fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_model::action::Severity;

    use super::*;

    fn sighting(name: &str, message: &str) -> Sighting {
        Sighting {
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
