//! Calls of the API server: the `controller_runtime_webhook_*` ones, by path; and what of them was the plugin's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pilothouse_model::names::PluginName;
use pilothouse_model::webhook::Purpose;
use pilothouse_sandbox::Usage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::series::{Series, Words};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabel {
    webhook: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    webhook: String,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    webhook: String,
    reason: &'static str,
}

type Of<L, M> = Family<L, M, fn() -> M>;

/// About all webhooks.
pub(crate) struct WebhookFamilies {
    requests: Of<CodeLabel, Counter>,
    latency: Of<PathLabel, Histogram>,
    in_flight: Of<PathLabel, Gauge>,
    failures: Of<ReasonLabel, Counter>,
    cpu: Of<PathLabel, Histogram>,
    calls: Mutex<BTreeMap<(PluginName, Purpose), Arc<CallMetrics>>>,
}

/// 0.25 ms to 8 s: a call takes half a millisecond, and the API server gives up after 10 s.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

fn cpu_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 15))
}

impl WebhookFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            requests: Family::new_with_constructor(Counter::default),
            latency: Family::new_with_constructor(latency_histogram),
            in_flight: Family::new_with_constructor(Gauge::default),
            failures: Family::new_with_constructor(Counter::default),
            cpu: Family::new_with_constructor(cpu_histogram),
            calls: Mutex::default(),
        };
        registry.register(
            "controller_runtime_webhook_requests",
            "Calls of the API server, by path and HTTP status",
            families.requests.clone(),
        );
        registry.register_with_unit(
            "controller_runtime_webhook_latency",
            "From the first byte of a call that is understood to its answer",
            Unit::Seconds,
            families.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Calls that are being answered",
            families.in_flight.clone(),
        );
        registry.register(
            "pilothouse_webhook_failures",
            "Calls that the failure policy decides: the plugin trapped, ran into a limit or gave an answer that cannot \
             be taken, or the call was malformed, by reason",
            families.failures.clone(),
        );
        registry.register_with_unit(
            "pilothouse_webhook_call_cpu",
            "CPU time of one call into a plugin",
            Unit::Seconds,
            families.cpu.clone(),
        );
        families
    }

    /// The series of one webhook of a plugin.
    pub(crate) fn call(&self, plugin: &PluginName, purpose: Purpose) -> Arc<CallMetrics> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(self.series(purpose.path(plugin.as_str())));
        Arc::clone(calls.entry((plugin.clone(), purpose)).or_insert_with(new))
    }

    /// Ends the series of plugins that do not serve any more, but for those in whose calls somebody is.
    pub(crate) fn retain(&self, serves: impl Fn(&PluginName) -> bool) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|(plugin, _), series| serves(plugin) || Arc::strong_count(series) > 1);
    }

    fn series(&self, webhook: String) -> CallMetrics {
        let path = || PathLabel { webhook: webhook.clone() };
        let (coded, failed) = (webhook.clone(), webhook.clone());
        CallMetrics {
            requests: Words::new(&self.requests, move |code| CodeLabel { webhook: coded.clone(), code }),
            failures: Words::new(&self.failures, move |reason| ReasonLabel {
                webhook: failed.clone(),
                reason,
            }),
            latency: Series::new(&self.latency, path()),
            in_flight: Series::new(&self.in_flight, path()),
            cpu: Series::new(&self.cpu, path()),
        }
    }
}

/// The series of one webhook.
pub(crate) struct CallMetrics {
    requests: Words<CodeLabel>,
    failures: Words<ReasonLabel>,
    latency: Series<PathLabel, Histogram>,
    in_flight: Series<PathLabel, Gauge>,
    cpu: Series<PathLabel, Histogram>,
}

/// A call that is being answered.
pub(crate) struct InFlight<'a>(&'a CallMetrics);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

impl CallMetrics {
    /// A call began, and ends with the guard.
    pub(crate) fn begins(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(self)
    }

    /// A call was answered.
    pub(crate) fn ends(&self, took: Duration, code: u16) {
        self.latency.observe(took.as_secs_f64());
        // What the service answers with; a closed list, as labels are.
        self.requests.count(match code {
            200 => "200",
            400 => "400",
            413 => "413",
            415 => "415",
            500 => "500",
            _ => "other",
        });
    }

    /// A call failed, for a reason of a closed list.
    pub(crate) fn failed(&self, reason: &'static str) {
        self.failures.count(reason);
    }

    /// The plugin was called.
    pub(crate) fn used(&self, usage: &Usage) {
        self.cpu.observe(usage.cpu.as_secs_f64());
    }
}
