//! Passes and calls of one controller.
//!
//! `controller_runtime_*`: names, labels and buckets of sigs.k8s.io/controller-runtime
//! (`pkg/internal/controller/metrics/metrics.go`). A plugin that traps is what a panic of a reconciler is there.

use std::time::Duration;

use pilothouse_model::names::PluginName;
use pilothouse_sandbox::Usage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::queues::QueueMetrics;
use super::series::{Series, Words};

/// Buckets of `controller_runtime_reconcile_time_seconds`.
const RECONCILE_TIME_BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The label of controller-runtime.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    controller: String,
    result: &'static str,
}

/// Of our own metrics: by plugin as well, since alerts and limits are about plugins.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OwnLabel {
    plugin: String,
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    plugin: String,
    controller: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    plugin: String,
    controller: String,
    result: &'static str,
}

type Made<L, M> = Family<L, M, fn() -> M>;

/// The families that every controller has a series in.
pub(super) struct ControllerFamilies {
    reconciles: Made<ResultLabel, Counter>,
    errors: Made<ControllerLabel, Counter>,
    terminal_errors: Made<ControllerLabel, Counter>,
    panics: Made<ControllerLabel, Counter>,
    reconcile_time: Made<ControllerLabel, Histogram>,
    workers_max: Made<ControllerLabel, Gauge>,
    active: Made<ControllerLabel, Gauge>,
    call_cpu: Made<OwnLabel, Histogram>,
    call_time: Made<OwnLabel, Histogram>,
    call_memory: Made<OwnLabel, Gauge>,
    failures: Made<ReasonLabel, Counter>,
    faults: Made<ReasonLabel, Counter>,
    held: Made<ReasonLabel, Gauge>,
    writes: Made<WriteLabel, Counter>,
}

/// 0.1 ms to 6.5 s: a hot call takes 0.1 ms, one at its limits seconds.
fn call_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 17))
}

fn reconcile_histogram() -> Histogram {
    Histogram::new(RECONCILE_TIME_BOUNDS)
}

impl ControllerFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            reconcile_time: Family::new_with_constructor(reconcile_histogram),
            workers_max: Family::default(),
            active: Family::default(),
            call_cpu: Family::new_with_constructor(call_histogram),
            call_time: Family::new_with_constructor(call_histogram),
            call_memory: Family::default(),
            failures: Family::default(),
            faults: Family::default(),
            held: Family::default(),
            writes: Family::default(),
        };
        families.register_known(registry);
        families.register_own(registry);
        families
    }

    fn register_known(&self, registry: &mut Registry) {
        let name = |rest: &str| format!("controller_runtime_{rest}");
        registry.register(name("reconcile"), "Passes, by result", self.reconciles.clone());
        registry.register(name("reconcile_errors"), "Passes that failed", self.errors.clone());
        registry.register(
            name("terminal_reconcile_errors"),
            "Passes that failed and are not tried again until something changes",
            self.terminal_errors.clone(),
        );
        registry.register(
            name("reconcile_panics"),
            "Passes in which the plugin trapped or the host panicked",
            self.panics.clone(),
        );
        registry.register_with_unit(
            name("reconcile_time"),
            "Length of a pass",
            Unit::Seconds,
            self.reconcile_time.clone(),
        );
        registry.register(
            name("max_concurrent_reconciles"),
            "Passes that may run at the same time, of all controllers of the plugin together",
            self.workers_max.clone(),
        );
        registry.register(name("active_workers"), "Passes that run now", self.active.clone());
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "pilothouse_plugin_call_cpu",
            "CPU time of one call into a plugin",
            Unit::Seconds,
            self.call_cpu.clone(),
        );
        registry.register_with_unit(
            "pilothouse_plugin_call_time",
            "CPU time of one call into a plugin and its waiting for a processor",
            Unit::Seconds,
            self.call_time.clone(),
        );
        registry.register_with_unit(
            "pilothouse_plugin_call_memory",
            "Linear memory at the end of the last call",
            Unit::Bytes,
            self.call_memory.clone(),
        );
        registry.register(
            "pilothouse_plugin_faults",
            "Calls that trapped or ran into a limit and outcomes that were refused, by reason",
            self.faults.clone(),
        );
        registry.register(
            "pilothouse_held_keys",
            "Resources that wait although nothing is wrong: for a person, or for children to follow, by reason",
            self.held.clone(),
        );
        registry.register("pilothouse_pass_failures", "Passes that failed, by reason", self.failures.clone());
        registry.register(
            "pilothouse_writes",
            "Writes of passes, by what became of them",
            self.writes.clone(),
        );
    }

    /// `name` is the label `controller`.
    pub(super) fn controller(
        &self,
        plugin: &PluginName,
        name: String,
        queue: QueueMetrics,
    ) -> ControllerMetrics {
        let known = || ControllerLabel { controller: name.clone() };
        let own = || OwnLabel { plugin: plugin.to_string(), controller: name.clone() };
        let result = |result| ResultLabel { controller: name.clone(), result };
        let reason = |OwnLabel { plugin, controller }: OwnLabel| {
            move |reason| ReasonLabel { plugin: plugin.clone(), controller: controller.clone(), reason }
        };
        let OwnLabel { plugin, controller } = own();
        let write =
            move |result| WriteLabel { plugin: plugin.clone(), controller: controller.clone(), result };
        ControllerMetrics {
            queue,
            // From the start, as there: an alert on a rate sees the first error only if there was a zero before.
            results: ["success", "error", "requeue", "requeue_after"]
                .map(|word| Series::new(&self.reconciles, result(word))),
            errors: Series::new(&self.errors, known()),
            terminal_errors: Series::new(&self.terminal_errors, known()),
            panics: Series::new(&self.panics, known()),
            reconcile_time: Series::new(&self.reconcile_time, known()),
            workers_max: Series::new(&self.workers_max, known()),
            active: Series::new(&self.active, known()),
            call_cpu: Series::new(&self.call_cpu, own()),
            call_time: Series::new(&self.call_time, own()),
            call_memory: Series::new(&self.call_memory, own()),
            paused: Series::new(&self.held, reason(own())("Paused")),
            awaiting: Series::new(&self.held, reason(own())("AwaitingApproval")),
            updating: Series::new(&self.held, reason(own())("Updating")),
            failures: Words::new(&self.failures, reason(own())),
            faults: Words::new(&self.faults, reason(own())),
            writes: Words::new(&self.writes, write),
        }
    }
}

/// How a pass ended, in the words of controller-runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassResult {
    /// All is done.
    Success,
    /// All is done, and the plugin or the host wants to look again at a time.
    RequeueAfter,
    /// It failed for this reason, from the closed list of the condition `Reconciled`.
    Error {
        /// The reason.
        reason: &'static str,
        /// Not tried again until something changes.
        terminal: bool,
    },
}

/// The series of one controller.
pub(crate) struct ControllerMetrics {
    queue: QueueMetrics,
    results: [Series<ResultLabel, Counter>; 4],
    errors: Series<ControllerLabel, Counter>,
    terminal_errors: Series<ControllerLabel, Counter>,
    panics: Series<ControllerLabel, Counter>,
    reconcile_time: Series<ControllerLabel, Histogram>,
    workers_max: Series<ControllerLabel, Gauge>,
    active: Series<ControllerLabel, Gauge>,
    call_cpu: Series<OwnLabel, Histogram>,
    call_time: Series<OwnLabel, Histogram>,
    call_memory: Series<OwnLabel, Gauge>,
    paused: Series<ReasonLabel, Gauge>,
    awaiting: Series<ReasonLabel, Gauge>,
    updating: Series<ReasonLabel, Gauge>,
    failures: Words<ReasonLabel>,
    faults: Words<ReasonLabel>,
    writes: Words<WriteLabel>,
}

impl ControllerMetrics {
    /// The plugin may run this many passes at the same time.
    pub(crate) fn concurrency(&self, passes_max: u32) {
        self.workers_max.set(i64::from(passes_max));
    }

    /// A pass began, and its key had been due for this long.
    pub(crate) fn pass_begins(&self, waited: Duration) {
        self.queue.waited(waited);
        self.active.inc();
    }

    /// A pass ended.
    pub(crate) fn pass_ends(&self, took: Duration, result: PassResult) {
        self.active.dec();
        self.reconcile_time.observe(took.as_secs_f64());
        self.queue.worked(took);
        let [success, error, _requeue, requeue_after] = &self.results;
        match result {
            PassResult::Success => success.inc(),
            PassResult::RequeueAfter => requeue_after.inc(),
            PassResult::Error { reason, terminal } => {
                self.errors.inc();
                if terminal {
                    self.terminal_errors.inc();
                }
                self.failures.count(reason);
                error.inc()
            }
        };
    }

    /// A pass ended by a panic of the host, which is its bug.
    pub(crate) fn pass_panicked(&self) {
        self.active.dec();
        self.panics.inc();
        self.errors.inc();
        self.results[1].inc();
    }

    /// A call into the plugin came to an end, whatever it was.
    pub(crate) fn call(&self, usage: &Usage) {
        self.call_cpu.observe(usage.cpu.as_secs_f64());
        self.call_time.observe((usage.cpu + usage.wait).as_secs_f64());
        self.call_memory.set(i64::try_from(usage.memory_bytes_peak).unwrap_or(i64::MAX));
    }

    /// The plugin trapped.
    pub(crate) fn trapped(&self) {
        self.panics.inc();
    }

    /// A call or an outcome failed for this reason, finer than the condition's.
    pub(crate) fn plugin_fault(&self, reason: &'static str) {
        self.faults.count(reason);
    }

    /// How many resources are paused, how many wait for an approval, and of how many children wait for each other.
    pub(crate) fn held(&self, paused: usize, awaiting: usize, updating: usize) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.paused.set(gauge(paused));
        self.awaiting.set(gauge(awaiting));
        self.updating.set(gauge(updating));
    }

    /// One write of a pass came to this.
    pub(crate) fn write(&self, result: &'static str) {
        self.writes.count(result);
    }
}
