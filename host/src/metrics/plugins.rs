//! What serves, in which version, and what was offered and does not.

use std::collections::BTreeMap;

use pilothouse_model::kind::Kind;
use pilothouse_model::names::{Digest, Generation, PluginName};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::series::Series;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DigestLabel {
    plugin: String,
    digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// About plugins as they are loaded.
pub(crate) struct PluginFamilies {
    loaded: Family<DigestLabel, Gauge>,
    generation: Family<PluginLabel, Gauge>,
    code_bytes: Family<PluginLabel, Gauge>,
    failures: Family<ReasonLabel, Counter>,
    not_serving: Family<ReasonLabel, Gauge>,
    prepared: Family<CodeLabel, Counter>,
    left: Family<KindLabel, Gauge>,
}

impl PluginFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            loaded: Family::default(),
            generation: Family::default(),
            code_bytes: Family::default(),
            failures: Family::default(),
            not_serving: Family::default(),
            prepared: Family::default(),
            left: Family::default(),
        };
        registry.register(
            "pilothouse_plugin_loaded",
            "1 for each plugin that serves, by the digest of its component",
            families.loaded.clone(),
        );
        registry.register(
            "pilothouse_plugin_generation",
            "Which version serves: counts up with each that this process has loaded",
            families.generation.clone(),
        );
        registry.register_with_unit(
            "pilothouse_plugin_code",
            "Size of the compiled code, which is mapped from its file",
            Unit::Bytes,
            families.code_bytes.clone(),
        );
        registry.register(
            "pilothouse_plugin_load_failures",
            "Plugins that were offered and could not be loaded, by reason",
            families.failures.clone(),
        );
        registry.register(
            "pilothouse_plugins_not_serving",
            "Places whose newest plugin does not serve now, by reason",
            families.not_serving.clone(),
        );
        registry.register(
            "pilothouse_plugin_code_prepared",
            "Components made callable: from the cache of compiled code, or compiled",
            families.prepared.clone(),
        );
        registry.register(
            "pilothouse_finalizers_left",
            "Objects that hold the finalizer of a plugin that is gone, as counted when it went",
            families.left.clone(),
        );
        families
    }

    /// A plugin serves; its series end when the handle is dropped.
    pub(crate) fn serves(
        &self,
        plugin: &PluginName,
        digest: &Digest,
        generation: Generation,
        code_bytes: u64,
    ) -> Serving {
        let label = || PluginLabel { plugin: plugin.to_string() };
        let digest = DigestLabel { plugin: plugin.to_string(), digest: digest.to_string() };
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let serving = Serving {
            loaded: Series::new(&self.loaded, digest),
            generation: Series::new(&self.generation, label()),
            code_bytes: Series::new(&self.code_bytes, label()),
        };
        serving.loaded.set(1);
        serving.generation.set(gauge(generation.0));
        serving.code_bytes.set(gauge(code_bytes));
        serving
    }

    /// So many objects of a kind hold the finalizer of a plugin that is gone; the series ends when the handle is
    /// dropped. There is one for each kind, whatever its version.
    pub(crate) fn holds(&self, kind: &Kind, objects: usize) -> Held {
        let dot = if kind.group.is_empty() { "" } else { "." };
        let held = Series::new(&self.left, KindLabel { kind: format!("{}{dot}{}", kind.kind, kind.group) });
        held.set(i64::try_from(objects).unwrap_or(i64::MAX));
        Held(held)
    }

    /// A component was made callable, from the cache or by compiling it.
    pub(crate) fn prepared(&self, from_cache: bool) {
        let code = if from_cache { "cached" } else { "compiled" };
        self.prepared.get_or_create(&CodeLabel { code }).inc();
    }

    /// An offered plugin could not be loaded.
    pub(crate) fn load_failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Why the newest offers of places do not serve, one word for each place.
    pub(crate) fn not_serving(&self, reasons: impl IntoIterator<Item = &'static str>) {
        let mut counts = BTreeMap::<_, i64>::new();
        for reason in reasons {
            *counts.entry(reason).or_default() += 1;
        }
        self.not_serving.clear();
        for (reason, count) in counts {
            self.not_serving.get_or_create(&ReasonLabel { reason }).set(count);
        }
    }
}

/// The series of one version that serves.
#[derive(Debug)]
pub(crate) struct Serving {
    loaded: Series<DigestLabel, Gauge>,
    generation: Series<PluginLabel, Gauge>,
    code_bytes: Series<PluginLabel, Gauge>,
}

/// The series of objects that were left behind.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "kept until it is dropped")] Series<KindLabel, Gauge>);
