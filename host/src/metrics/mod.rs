//! What the host measures, for Prometheus. Names, labels and buckets are those of controller-runtime and client-go
//! where the meaning is the same, so that dashboards and alerts for operators work as they are; `pilothouse_` where it
//! is ours.
//!
//! - [`controller`]: passes and calls of one controller (`controller_runtime_*`, `pilothouse_pass_*`, …)
//! - [`queues`]: the `workqueue_*` ones, read from the queues when somebody scrapes
//! - [`plugins`]: what serves and what could not be loaded
//! - [`cluster`]: the `rest_client_*` ones, watches and events, read when somebody scrapes
//! - [`leader`]: which Lease this host holds
//! - [`webhooks`]: the `controller_runtime_webhook_*` ones, and how plugins fare in these calls
//! - [`process`]: the `process_*` ones, from `/proc`
//! - [`format`](mod@format): the two text formats
//!
//! No label ever holds a text that a guest chose freely: plugin names have passed `PluginName`, kinds are those that
//! the API server has, reasons come from closed lists. Series end with what they are about. Whoever counts in a pass
//! holds handles: no label set is looked up there.

pub(crate) mod cluster;
pub(crate) mod controller;
pub(crate) mod format;
pub(crate) mod leader;
pub(crate) mod plugins;
mod process;
mod queues;
mod series;
pub(crate) mod webhooks;

use std::sync::Arc;

use pilothouse_cluster::queue::Queue;
use pilothouse_model::kind::Kind;
use pilothouse_model::names::PluginName;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::cluster::{ClusterCollector, Sources};
use self::controller::{ControllerFamilies, ControllerMetrics};
use self::format::Format;
use self::leader::LeaderFamily;
use self::plugins::PluginFamilies;
use self::process::ProcessCollector;
use self::queues::{QueueFamilies, Queues};
use self::webhooks::WebhookFamilies;

/// Everything that the host counts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<All>);

struct All {
    registry: Registry,
    controllers: ControllerFamilies,
    queue_families: QueueFamilies,
    queues: Arc<Queues>,
    plugins: PluginFamilies,
    leaders: LeaderFamily,
    webhooks: WebhookFamilies,
    sources: Arc<Sources>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let controllers = ControllerFamilies::register(&mut registry);
        let queue_families = QueueFamilies::register(&mut registry);
        let queues = Arc::<Queues>::default();
        registry.register_collector(Box::new(Arc::clone(&queues)));
        let plugins = PluginFamilies::register(&mut registry);
        let leaders = LeaderFamily::register(&mut registry);
        let webhooks = WebhookFamilies::register(&mut registry);
        let sources = Arc::<Sources>::default();
        registry.register_collector(Box::new(ClusterCollector(Arc::clone(&sources))));
        registry.register_collector(Box::new(ProcessCollector));
        let build =
            [("version", env!("CARGO_PKG_VERSION")), ("contract", pilothouse_sandbox::CONTRACT_VERSION)];
        registry.register(
            "pilothouse_build",
            "Version of the host, and of the contract that it speaks",
            Info::new(build),
        );
        Self(Arc::new(All {
            registry,
            controllers,
            queue_families,
            queues,
            plugins,
            leaders,
            webhooks,
            sources,
        }))
    }
}

impl Metrics {
    /// The text that Prometheus scrapes.
    pub(crate) fn render(&self, format: Format) -> Result<String, std::fmt::Error> {
        let mut body = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut body, &self.0.registry)?,
            Format::OpenMetrics => text::encode(&mut body, &self.0.registry)?,
        }
        Ok(body)
    }

    /// The series of one controller of a plugin and of its queue; they end when the handle is dropped. No two handles
    /// for the same controller may live at the same time.
    pub(crate) fn controller(&self, plugin: &PluginName, kind: &Kind, queue: &Queue) -> ControllerMetrics {
        let name = controller_label(plugin, kind);
        let queue = self.0.queue_families.queue(&self.0.queues, &name, queue);
        self.0.controllers.controller(plugin, name, queue)
    }

    /// What is served, and what could not be.
    pub(crate) fn plugins(&self) -> &PluginFamilies {
        &self.0.plugins
    }

    /// Leadership.
    pub(crate) fn leaders(&self) -> &LeaderFamily {
        &self.0.leaders
    }

    /// Calls of the API server.
    pub(crate) fn webhooks(&self) -> &WebhookFamilies {
        &self.0.webhooks
    }

    /// Where the numbers of connection, watches and events are read from, once there are any.
    pub(crate) fn read_from(&self) -> &Sources {
        &self.0.sources
    }
}

/// `PLUGIN/KIND.GROUP`: one plugin may serve equal kinds of two groups.
fn controller_label(plugin: &PluginName, kind: &Kind) -> String {
    let dot = if kind.group.is_empty() { "" } else { "." };
    format!("{plugin}/{}{dot}{}", kind.kind, kind.group)
}

#[cfg(test)]
mod tests;
