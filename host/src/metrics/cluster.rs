//! Numbers of the Kubernetes side, which counts for itself; read when somebody scrapes.
//!
//! `rest_client_*`: names, labels and buckets of client-go (`tools/metrics` and k8s.io/component-base). Watches count
//! as `GET`, as there, and their durations are left out, as there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pilothouse_cluster::event::EventCounters;
use pilothouse_cluster::watches::{WatchCounters, WatchState, WatchStatus, Watches};
use pilothouse_cluster::{Cluster, DURATION_BOUNDS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// What is read from; each part is set once, when it is there.
#[derive(Default)]
pub(crate) struct Sources {
    cluster: OnceLock<Cluster>,
    watches: OnceLock<Watches>,
    events: OnceLock<Arc<EventCounters>>,
}

impl Sources {
    /// Requests of this connection.
    pub(crate) fn cluster(&self, cluster: &Cluster) {
        // A second one would be another host in this process, which there is not.
        let _ = self.cluster.set(cluster.clone());
    }

    /// These watches.
    pub(crate) fn watches(&self, watches: &Watches) {
        let _ = self.watches.set(watches.clone());
    }

    /// What became of events.
    pub(crate) fn events(&self, counters: &Arc<EventCounters>) {
        let _ = self.events.set(Arc::clone(counters));
    }
}

pub(super) struct ClusterCollector(pub(super) Arc<Sources>);

impl fmt::Debug for ClusterCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterCollector").finish_non_exhaustive()
    }
}

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(cluster) = self.0.cluster.get() {
            encode_requests(cluster, &mut encoder)?;
        }
        if let Some(watches) = self.0.watches.get() {
            encode_watches(&watches.status(), &mut encoder)?;
            encode_watch_counters(watches.counters(), &mut encoder)?;
        }
        if let Some(events) = self.0.events.get() {
            let help = "Events, by what became of them";
            let mut metric =
                encoder.encode_descriptor("pilothouse_events", help, None, MetricType::Counter)?;
            let counts = [
                ("written", events.written()),
                ("repeated", events.repeated()),
                ("dropped", events.dropped()),
                ("failed", events.failed()),
            ];
            for (result, count) in counts {
                ConstCounter::new(count).encode(metric.encode_family(&[("result", result)])?)?;
            }
        }
        Ok(())
    }
}

fn encode_requests(cluster: &Cluster, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let url = cluster.url();
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let counts = cluster.request_counts();
    // Watches and other gets are one method.
    let mut requests = BTreeMap::<(&str, u16), u64>::new();
    for (verb, status, count) in counts.snapshot() {
        *requests.entry((method(verb), status)).or_default() += count;
    }
    if requests.is_empty() {
        return Ok(());
    }
    let help = "Requests to the API server, by status, method and host";
    let mut metric = encoder.encode_descriptor("rest_client_requests", help, None, MetricType::Counter)?;
    for ((method, status), count) in requests {
        let code = if status == 0 { "<error>".to_owned() } else { status.to_string() };
        let labels = [("code", code.as_str()), ("method", method), ("host", host)];
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Time until the API server answered, watches left out";
    let unit = Some(&Unit::Seconds);
    let mut metric =
        encoder.encode_descriptor("rest_client_request_duration", help, unit, MetricType::Histogram)?;
    for (verb, durations) in counts.durations().into_iter().filter(|(verb, _)| *verb != "WATCH") {
        let slower = durations.count - durations.buckets.iter().sum::<u64>();
        let buckets: Vec<(f64, u64)> =
            DURATION_BOUNDS.into_iter().zip(durations.buckets).chain([(f64::INFINITY, slower)]).collect();
        let labels = [("verb", verb), ("host", host)];
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(durations.sum, durations.count, &buckets, None)?;
    }
    Ok(())
}

fn method(verb: &'static str) -> &'static str {
    if verb == "WATCH" { "GET" } else { verb }
}

/// The watches of one resource together: they differ in namespaces and selectors, and selectors are a guest's.
#[derive(Default)]
struct OfResource {
    states: [usize; 3],
    objects: usize,
    bytes: usize,
    failing_seconds: f64,
}

fn encode_watches(watches: &[WatchStatus], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut resources = BTreeMap::<String, OfResource>::new();
    for watch in watches {
        let resource = watch.query.resource();
        let dot = if resource.group.is_empty() { "" } else { "." };
        let of = resources.entry(format!("{}{dot}{}", resource.plural, resource.group)).or_default();
        let state = match &watch.state {
            WatchState::Starting => 0,
            WatchState::Synced => 1,
            WatchState::Failing { since, .. } => {
                of.failing_seconds = of.failing_seconds.max(since.elapsed().as_secs_f64());
                2
            }
        };
        of.states[state] += 1;
        of.objects += watch.objects;
        of.bytes += watch.json_bytes;
    }
    if resources.is_empty() {
        return Ok(());
    }
    let help = "Watches that run, by state";
    let mut metric = encoder.encode_descriptor("pilothouse_watches", help, None, MetricType::Gauge)?;
    for (resource, of) in &resources {
        for (state, count) in ["starting", "synced", "failing"].into_iter().zip(of.states) {
            let labels = [("resource", resource.as_str()), ("state", state)];
            ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "Longest time for which changes of a resource have not arrived";
    let unit = Some(&Unit::Seconds);
    let mut metric = encoder.encode_descriptor("pilothouse_watch_failing", help, unit, MetricType::Gauge)?;
    for (resource, of) in &resources {
        ConstGauge::new(of.failing_seconds).encode(metric.encode_family(&[("resource", resource)])?)?;
    }
    let mut metric = encoder.encode_descriptor(
        "pilothouse_store_objects",
        "Objects in memory",
        None,
        MetricType::Gauge,
    )?;
    for (resource, of) in &resources {
        ConstGauge::new(of.objects).encode(metric.encode_family(&[("resource", resource)])?)?;
    }
    let help = "JSON text of the objects in memory";
    let unit = Some(&Unit::Bytes);
    let mut metric = encoder.encode_descriptor("pilothouse_store", help, unit, MetricType::Gauge)?;
    for (resource, of) in &resources {
        ConstGauge::new(of.bytes).encode(metric.encode_family(&[("resource", resource)])?)?;
    }
    Ok(())
}

fn encode_watch_counters(counters: &WatchCounters, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all: [(&str, &str, &AtomicU64); 6] = [
        (
            "pilothouse_watch_starts",
            "Watch requests that were accepted, first and later ones",
            &counters.opened,
        ),
        ("pilothouse_watch_lists", "Whole lists taken in, first and later ones", &counters.lists),
        (
            "pilothouse_watch_expired",
            "Lists that were necessary because a version or a continue token had expired",
            &counters.expired,
        ),
        ("pilothouse_watch_events", "Objects that came as events", &counters.events),
        ("pilothouse_watch_errors", "Watch and list requests and streams that failed", &counters.errors),
        ("pilothouse_watch_unreadable", "Objects and events that could not be read", &counters.malformed),
    ];
    for (name, help, counter) in all {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(counter.load(Ordering::Relaxed)).encode(metric)?;
    }
    Ok(())
}
