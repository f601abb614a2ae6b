//! Prometheus metrics. Names that dashboards know from controller-runtime and client-go where the meaning is the
//! same; `pilothouse_` where it is ours. No label ever holds a text that a guest chose: plugin names have passed
//! [`PluginName`], reasons come from closed lists.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse_model::kind::Kind;
use pilothouse_model::names::{Digest, PluginName};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    controller: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: String,
    digest: String,
}

impl PluginLabel {
    fn new(plugin: &PluginName, digest: &Digest) -> Self {
        Self { plugin: plugin.to_string(), digest: digest.to_string() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    reason: &'static str,
}

type TimeFamily = Family<ControllerLabel, Histogram, fn() -> Histogram>;

fn seconds() -> Histogram {
    // 0.1 ms to 6.5 s: a hot call takes 0.1 ms, a pass with slow writes seconds.
    Histogram::new(exponential_buckets(0.000_1, 2.0, 17))
}

/// Everything that the host counts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    passes: Family<ResultLabel, Counter>,
    pass_seconds: TimeFamily,
    active: Family<ControllerLabel, Gauge>,
    depth: Family<ControllerLabel, Gauge>,
    call_seconds: TimeFamily,
    call_memory: Family<ControllerLabel, Gauge>,
    failures: Family<ReasonLabel, Counter>,
    faults: Family<ReasonLabel, Counter>,
    writes: Family<ReasonLabel, Counter>,
    loaded: Family<PluginLabel, Gauge>,
    load_failures: Family<FailureLabel, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let passes = Family::default();
        let pass_seconds = TimeFamily::new_with_constructor(seconds);
        let active = Family::default();
        let depth = Family::default();
        let call_seconds = TimeFamily::new_with_constructor(seconds);
        let call_memory = Family::default();
        let failures = Family::default();
        let faults = Family::default();
        let writes = Family::default();
        let loaded = Family::default();
        let load_failures = Family::default();
        registry.register("controller_runtime_reconcile", "Passes by result", passes.clone());
        registry.register_with_unit(
            "controller_runtime_reconcile_time",
            "Length of a pass",
            Unit::Seconds,
            pass_seconds.clone(),
        );
        registry.register("controller_runtime_active_workers", "Passes that run now", active.clone());
        registry.register("workqueue_depth", "Keys that wait for a pass", depth.clone());
        registry.register_with_unit(
            "pilothouse_plugin_call_cpu",
            "CPU time of one call into a plugin",
            Unit::Seconds,
            call_seconds.clone(),
        );
        registry.register_with_unit(
            "pilothouse_plugin_call_memory",
            "Linear memory at the end of the last call",
            Unit::Bytes,
            call_memory.clone(),
        );
        registry.register("pilothouse_pass_failures", "Passes that failed, by reason", failures.clone());
        registry.register(
            "pilothouse_plugin_faults",
            "Calls and outcomes that the host stopped or refused, by reason",
            faults.clone(),
        );
        registry.register("pilothouse_writes", "Writes of passes, by outcome", writes.clone());
        registry.register("pilothouse_plugin_loaded", "1 for each plugin that serves", loaded.clone());
        registry.register(
            "pilothouse_plugin_load_failures",
            "Plugins that were offered and could not be loaded, by reason",
            load_failures.clone(),
        );
        Self {
            registry: Arc::new(registry),
            passes,
            pass_seconds,
            active,
            depth,
            call_seconds,
            call_memory,
            failures,
            faults,
            writes,
            loaded,
            load_failures,
        }
    }
}

impl Metrics {
    /// The text that Prometheus scrapes (OpenMetrics 1.0).
    pub(crate) fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// The series of one controller of a plugin; they end when the handle is dropped.
    pub(crate) fn controller(&self, plugin: &PluginName, kind: &Kind) -> ControllerMetrics {
        ControllerMetrics {
            metrics: self.clone(),
            label: ControllerLabel { controller: format!("{plugin}/{}", kind.kind) },
            reasons: Mutex::default(),
        }
    }

    /// A plugin serves.
    pub(crate) fn loaded(&self, plugin: &PluginName, digest: &Digest) {
        self.loaded.get_or_create(&PluginLabel::new(plugin, digest)).set(1);
    }

    /// A plugin serves no more.
    pub(crate) fn unloaded(&self, plugin: &PluginName, digest: &Digest) {
        self.loaded.remove(&PluginLabel::new(plugin, digest));
    }

    /// An offered plugin could not be loaded.
    pub(crate) fn load_failed(&self, reason: &'static str) {
        self.load_failures.get_or_create(&FailureLabel { reason }).inc();
    }
}

/// The series of one controller.
pub(crate) struct ControllerMetrics {
    metrics: Metrics,
    label: ControllerLabel,
    /// Reasons that series were made for, so that they can be ended.
    reasons: Mutex<BTreeSet<&'static str>>,
}

impl ControllerMetrics {
    /// A pass began.
    pub(crate) fn pass_begins(&self) {
        self.metrics.active.get_or_create(&self.label).inc();
    }

    /// A pass ended; `failure` is its reason from the closed list of the condition `Reconciled`.
    pub(crate) fn pass_ends(&self, took: Duration, failure: Option<&'static str>) {
        self.metrics.active.get_or_create(&self.label).dec();
        self.metrics.pass_seconds.get_or_create(&self.label).observe(took.as_secs_f64());
        let result = if failure.is_some() { "error" } else { "success" };
        self.metrics.passes.get_or_create(&self.result(result)).inc();
        if let Some(reason) = failure {
            self.metrics.failures.get_or_create(&self.reason(reason)).inc();
        }
    }

    /// A call into the plugin ended in an orderly way.
    pub(crate) fn call(&self, cpu: Duration, memory_bytes: u64) {
        self.metrics.call_seconds.get_or_create(&self.label).observe(cpu.as_secs_f64());
        let bytes = i64::try_from(memory_bytes).unwrap_or(i64::MAX);
        self.metrics.call_memory.get_or_create(&self.label).set(bytes);
    }

    /// A call or an outcome failed for this reason, finer than the condition's.
    pub(crate) fn plugin_fault(&self, reason: &'static str) {
        self.metrics.faults.get_or_create(&self.reason(reason)).inc();
    }

    /// One write of a pass came to this.
    pub(crate) fn write(&self, reason: &'static str) {
        self.metrics.writes.get_or_create(&self.reason(reason)).inc();
    }

    /// How many keys wait.
    pub(crate) fn queue_depth(&self, depth: usize) {
        self.metrics.depth.get_or_create(&self.label).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn result(&self, result: &'static str) -> ResultLabel {
        ResultLabel { controller: self.label.controller.clone(), result }
    }

    fn reason(&self, reason: &'static str) -> ReasonLabel {
        if let Ok(mut reasons) = self.reasons.lock() {
            reasons.insert(reason);
        }
        ReasonLabel { controller: self.label.controller.clone(), reason }
    }
}

impl Drop for ControllerMetrics {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.pass_seconds.remove(&self.label);
        metrics.active.remove(&self.label);
        metrics.depth.remove(&self.label);
        metrics.call_seconds.remove(&self.label);
        metrics.call_memory.remove(&self.label);
        for result in ["success", "error"] {
            metrics.passes.remove(&self.result(result));
        }
        let reasons =
            self.reasons.lock().map(|mut reasons| std::mem::take(&mut *reasons)).unwrap_or_default();
        for reason in reasons {
            let label = ReasonLabel { controller: self.label.controller.clone(), reason };
            metrics.failures.remove(&label);
            metrics.faults.remove(&label);
            metrics.writes.remove(&label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_controller_end_with_it() {
        let metrics = Metrics::default();
        let before = metrics.render().unwrap();
        let plugin: PluginName = "web".parse().unwrap();
        let controller = metrics.controller(&plugin, &Kind::new("example.com", "v1", "Web"));
        controller.pass_begins();
        controller.pass_ends(Duration::from_millis(3), Some("PluginTrapped"));
        controller.plugin_fault("Trap");
        controller.write("NoOp");
        controller.queue_depth(1);
        controller.call(Duration::from_millis(1), 1 << 20);
        let text = metrics.render().unwrap();
        assert!(
            text.contains(
                "pilothouse_pass_failures_total{controller=\"web/Web\",reason=\"PluginTrapped\"} 1"
            )
        );
        assert!(
            text.contains("controller_runtime_reconcile_total{controller=\"web/Web\",result=\"error\"} 1"),
            "{text}"
        );
        drop(controller);
        assert_eq!(metrics.render().unwrap(), before);
    }
}
