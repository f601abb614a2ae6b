//! `workqueue_*`: names, labels and buckets of client-go's queues as controller-runtime exports them
//! (`pkg/metrics/workqueue.go`). Depth and ages are read from the queues when somebody scrapes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pilothouse_cluster::queue::{Lane, Queue, QueueStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::series::Series;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    name: String,
    controller: String,
}

/// The word for a lane in controller-runtime's priorities: what is there at the start has -100.
fn priority(lane: Lane) -> &'static str {
    match lane {
        Lane::Change => "0",
        Lane::Requeue => "-1",
        Lane::Resync => "-100",
    }
}

fn histogram() -> Histogram {
    // Theirs: 10 ns to 1,000 s.
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

/// Histograms, which are observed as passes begin and end.
pub(super) struct QueueFamilies {
    waited: Family<QueueLabel, Histogram, fn() -> Histogram>,
    worked: Family<QueueLabel, Histogram, fn() -> Histogram>,
}

impl QueueFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let new = || Family::new_with_constructor(histogram as fn() -> Histogram);
        let families = Self { waited: new(), worked: new() };
        registry.register_with_unit(
            "workqueue_queue_duration",
            "How long a key was due before its pass began",
            Unit::Seconds,
            families.waited.clone(),
        );
        registry.register_with_unit(
            "workqueue_work_duration",
            "How long the pass of a key took",
            Unit::Seconds,
            families.worked.clone(),
        );
        families
    }

    /// The series of one queue; they end when the handle is dropped.
    pub(super) fn queue(&self, queues: &Arc<Queues>, name: &str, queue: &Queue) -> QueueMetrics {
        queues.lock().insert(name.to_owned(), queue.clone());
        let label = QueueLabel { name: name.to_owned(), controller: name.to_owned() };
        QueueMetrics {
            waited: Series::new(&self.waited, label.clone()),
            worked: Series::new(&self.worked, label),
            _place: Place { queues: Arc::clone(queues), name: name.to_owned() },
        }
    }
}

/// The series of one queue.
pub(super) struct QueueMetrics {
    waited: Series<QueueLabel, Histogram>,
    worked: Series<QueueLabel, Histogram>,
    _place: Place,
}

impl QueueMetrics {
    pub(super) fn waited(&self, time: Duration) {
        self.waited.observe(time.as_secs_f64());
    }

    pub(super) fn worked(&self, time: Duration) {
        self.worked.observe(time.as_secs_f64());
    }
}

struct Place {
    queues: Arc<Queues>,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queues.lock().remove(&self.name);
    }
}

/// The queues that there are.
#[derive(Default)]
pub(super) struct Queues(Mutex<BTreeMap<String, Queue>>);

impl Queues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// Name, help and value of a metric of each queue.
type OfQueue<T> = (&'static str, &'static str, fn(&QueueStats) -> T);

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats: Vec<(String, QueueStats)> =
            self.lock().iter().map(|(name, queue)| (name.clone(), queue.stats())).collect();
        if stats.is_empty() {
            return Ok(());
        }
        let mut depth = encoder.encode_descriptor(
            "workqueue_depth",
            "Keys that wait for a pass",
            None,
            MetricType::Gauge,
        )?;
        for (name, stats) in &stats {
            for (lane, due) in Lane::ALL.into_iter().zip(stats.due_by_lane) {
                let labels = [("name", name.as_str()), ("controller", name), ("priority", priority(lane))];
                ConstGauge::new(due).encode(depth.encode_family(&labels)?)?;
            }
        }
        let counters: [OfQueue<u64>; 2] = [
            ("workqueue_adds", "Times that a key became due", |stats| stats.added),
            ("workqueue_retries", "Times that a key was put off to be tried or looked at again", |stats| {
                stats.retried
            }),
        ];
        for (name, help, value) in counters {
            let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (name, stats) in &stats {
                let labels = [("name", name), ("controller", name)];
                ConstCounter::new(value(stats)).encode(counter.encode_family(&labels)?)?;
            }
        }
        let gauges: [OfQueue<Duration>; 3] = [
            (
                "pilothouse_queue_oldest_due",
                "How long the key that has waited longest is due for a pass",
                |stats| stats.oldest_due,
            ),
            (
                "workqueue_unfinished_work",
                "How long the passes that run have been running, together",
                |stats| stats.running_for,
            ),
            ("workqueue_longest_running_processor", "How long the longest pass has been running", |stats| {
                stats.longest_running
            }),
        ];
        for (name, help, value) in gauges {
            let mut gauge = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
            for (name, stats) in &stats {
                let labels = [("name", name), ("controller", name)];
                ConstGauge::new(value(stats).as_secs_f64()).encode(gauge.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
