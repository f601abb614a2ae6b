//! Records Kubernetes Events (`events.k8s.io/v1`) about primaries. Best effort, and never in the way: a pass puts an
//! event into a bounded queue and goes on; one task writes them, counts repeats and keeps chatter from the API server.
//!
//! - The same event about the same object is one Event. Its first repeat makes it a series; further ones are counted
//!   and written at most every [`SERIES_WRITE_INTERVAL`], as client-go does.
//! - An Event is named by what it says, so that after a restart, or on another host, it goes on being the same one.
//! - Each object has a bucket of [`BUCKET_SIZE`] events that fills by one in [`BUCKET_REFILL`], as in client-go:
//!   what is over is dropped and counted.

mod book;

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
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::book::{Book, Step};

use crate::write::{Answer, Endpoint, Fence, Mode, Writer};
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
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Message>,
    counters: Arc<EventCounters>,
    fence: Arc<dyn Fence>,
}

/// Writes events; must be run.
pub struct EventTask {
    writer: Writer,
    instance: String,
    queue: mpsc::Receiver<Message>,
    counters: Arc<EventCounters>,
    book: Book,
}

enum Message {
    Record(Box<Sighting>),
    /// Say when everything before this has been written.
    Flush(oneshot::Sender<()>),
}

struct Sighting {
    /// Who saw it may have lost the right to say so when its turn comes.
    fence: Arc<dyn Fence>,
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
    let recorder = Recorder { queue: sender, counters: counters.clone(), fence: writer.fence().clone() };
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
    /// The same behind another fence.
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self { fence, ..self.clone() }
    }

    /// Records an event about `regarding`. Returns at once.
    pub fn record(&self, regarding: &Object, event: &Event) {
        let sighting = Sighting {
            fence: Arc::clone(&self.fence),
            kind: regarding.kind().clone(),
            key: regarding.key(),
            uid: regarding.meta().uid.clone(),
            event: Event {
                message: clip(&event.message, EVENT_MESSAGE_BYTES_MAX).to_owned(),
                ..event.clone()
            },
            at: Timestamp::now(),
        };
        if self.queue.try_send(Message::Record(Box::new(sighting))).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was recorded before has been written, or given up. May take as long as the API server does:
    /// whoever waits sets the time. Dropping the future loses nothing.
    pub async fn flush(&self) {
        let (written, all) = oneshot::channel();
        if self.queue.send(Message::Flush(written)).await.is_ok() {
            // The task ends with the host alone.
            let _ = all.await;
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
        while let Some(message) = self.queue.recv().await {
            match message {
                Message::Record(sighting) => self.take(&sighting).await,
                // Whoever asked may have given up.
                Message::Flush(written) => drop(written.send(())),
            }
        }
    }

    async fn take(&mut self, sighting: &Sighting) {
        let print = sighting.print();
        let counter = match self.book.see(sighting, print, Instant::now()) {
            Step::Count => &self.counters.repeated,
            Step::Drop => &self.counters.dropped,
            Step::Create(name) => {
                let done = self.create(sighting, print, &name).await;
                self.settle(print, done)
            }
            Step::Series(name, count) => match self.update(sighting, &name, count).await {
                // Its time was up before ours.
                Err(error) if error.fault == Fault::NotFound => {
                    let name = self.book.begin(sighting, print, Instant::now());
                    let done = self.create(sighting, print, &name).await;
                    self.settle(print, done)
                }
                done => self.settle(print, done),
            },
        };
        counter.fetch_add(1, Ordering::Relaxed);
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

    /// A new Event; if it was written before a restart, or by another host, one more of its series.
    async fn create(&mut self, sighting: &Sighting, print: Print, name: &str) -> Result<(), WriteError> {
        let kind = event_kind();
        let at = sighting.endpoint(&kind, name);
        let body = sighting.to_value(name, &self.instance);
        let writer = self.writer.with_fence(Arc::clone(&sighting.fence));
        match writer.create(&at, &body, Mode::Store, Answer::Whole).await {
            Err(error) if error.fault == Fault::AlreadyExists => {
                // A patch that changes nothing reads it, with the rights that there are.
                let known = writer.merge_patch(&at, None, &json!({})).await?;
                let count = known.field("series")["count"].as_u64().unwrap_or(1);
                let count = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
                self.book.goes_on(print, count);
                self.update(sighting, name, count).await
            }
            done => done.map(drop),
        }
    }

    async fn update(&self, sighting: &Sighting, name: &str, count: u32) -> Result<(), WriteError> {
        let kind = event_kind();
        let patch = json!({"series": {"count": count, "lastObservedTime": micro_time(sighting.at)}});
        let writer = self.writer.with_fence(Arc::clone(&sighting.fence));
        writer.merge_patch(&sighting.endpoint(&kind, name), None, &patch).await.map(drop)
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
