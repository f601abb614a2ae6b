//! Starts, swaps and stops one controller per primary kind as the live set changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Cluster;
use pilothouse_cluster::event::Recorder;
use pilothouse_cluster::lease::Shards;
use pilothouse_cluster::queue::{PluginTurns, Scheduler};
use pilothouse_cluster::watches::Watches;
use pilothouse_cluster::write::Writer;
use pilothouse_model::kind::Kind;
use pilothouse_model::names::PluginName;
use pilothouse_sandbox::Sandbox;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::abandoned::{Abandoned, AbandonedKinds};
use crate::controller;
use crate::metrics::Metrics;
use crate::plugins::{LivePlugin, LiveSet};
use crate::serve::Health;
use crate::webhooks::Webhooks;

/// What all controllers share.
pub(crate) struct Shared {
    /// Reads.
    pub cluster: Cluster,
    /// Watches, shared between plugins.
    pub watches: Watches,
    /// Whose pass is next.
    pub scheduler: Scheduler,
    /// Writes; not one before it is put under a term.
    pub writer: Writer,
    /// Which work is this host's.
    pub shards: Shards,
    /// Calls.
    pub sandbox: Arc<Sandbox>,
    /// Events.
    pub events: Recorder,
    /// Counts.
    pub metrics: Metrics,
    /// Readiness.
    pub health: Health,
    /// Namespaces that are served; empty means all.
    pub namespaces: Arc<[String]>,
    /// Time between resyncs, unless the plugin or its settings say otherwise.
    pub resync: Duration,
    /// Apply the plugins' CRDs.
    pub apply_crds: bool,
    /// None: this host serves no webhooks.
    pub webhooks: Option<Webhooks>,
}

/// One controller that runs.
struct Running {
    versions: watch::Sender<Arc<LivePlugin>>,
    stop: CancellationToken,
    ended: CancellationToken,
}

/// Keeps the controllers in step with the live set until `stop`, then lets their passes end.
pub(crate) async fn supervise(
    shared: Arc<Shared>,
    mut live: watch::Receiver<Arc<LiveSet>>,
    stop: CancellationToken,
) {
    let mut tasks: JoinSet<Option<Abandoned>> = JoinSet::new();
    let mut abandoned = AbandonedKinds::default();
    let mut running: HashMap<(PluginName, Kind), Running> = HashMap::new();
    // Controllers that are ending, by kind: their successor waits for the last pass, so that no key ever has two. The
    // version does not count, as objects are the same in all.
    let mut ending: HashMap<(String, String), CancellationToken> = HashMap::new();
    // By plugin: its controllers share one bound and one place in the round.
    let mut turns: HashMap<PluginName, PluginTurns> = HashMap::new();
    let versionless = |kind: &Kind| (kind.group.clone(), kind.kind.clone());
    loop {
        let wanted = Arc::clone(&live.borrow_and_update());
        let names: HashSet<(PluginName, Kind)> = wanted.values().flat_map(controllers_of).collect();
        running.retain(|key, controller| {
            let stays = names.contains(key);
            if !stays {
                controller.stop.cancel();
                ending.insert(versionless(&key.1), controller.ended.clone());
            }
            stays
        });
        turns.retain(|name, _| wanted.contains_key(name));
        ending.retain(|_, ended| !ended.is_cancelled());
        for plugin in wanted.values() {
            for key in controllers_of(plugin) {
                abandoned.take_up(&key.1, finalizer_of(plugin, &key.1));
                if let Some(controller) = running.get(&key) {
                    controller.versions.send_if_modified(|current| {
                        let new = !Arc::ptr_eq(current, plugin);
                        if new {
                            *current = Arc::clone(plugin);
                        }
                        new
                    });
                    continue;
                }
                let (versions, receiver) = watch::channel(Arc::clone(plugin));
                let controller =
                    Running { versions, stop: stop.child_token(), ended: CancellationToken::new() };
                let predecessor = ending.get(&versionless(&key.1)).cloned();
                let (shared, token) = (Arc::clone(&shared), controller.stop.clone());
                let ended = controller.ended.clone().drop_guard();
                let kind = key.1.clone();
                let concurrency = plugin.settings.concurrency;
                let turns =
                    turns.entry(key.0.clone()).or_insert_with(|| shared.scheduler.plugin(concurrency));
                let turns = turns.clone();
                tasks.spawn(async move {
                    let _ended = ended;
                    if let Some(predecessor) = predecessor {
                        predecessor.cancelled().await;
                    }
                    controller::run(shared, turns, kind, receiver, token).await
                });
                running.insert(key, controller);
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = live.changed() => if changed.is_err() { break },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                let Some(left) = report(ended) else { continue };
                // Whoever was loaded meanwhile has taken up what was left by the one before it.
                let live = live.borrow();
                if !live.values().any(|plugin| finalizer_of(plugin, &left.kind) == Some(&left.finalizer)) {
                    abandoned.add(left, &shared.metrics);
                }
            }
        }
    }
    stop.cancel();
    // What is left behind now is taken up by the next host.
    while let Some(ended) = tasks.join_next().await {
        report(ended);
    }
}

fn controllers_of(plugin: &Arc<LivePlugin>) -> Vec<(PluginName, Kind)> {
    let manifest = plugin.prepared.manifest();
    let kinds = manifest.controllers.iter().map(|controller| controller.primary.kind());
    kinds.map(|kind| (manifest.name.clone(), kind)).collect()
}

fn finalizer_of<'a>(plugin: &'a LivePlugin, kind: &Kind) -> Option<&'a str> {
    let mut controllers = plugin.prepared.manifest().controllers.iter();
    controllers.find(|controller| controller.primary.kind().is_version_of(kind))?.guard()
}

fn report(ended: Result<Option<Abandoned>, tokio::task::JoinError>) -> Option<Abandoned> {
    match ended {
        Ok(left) => left,
        Err(error) => {
            if error.is_panic() {
                tracing::error!(%error, "a controller ended by a panic, which is a bug of the host");
            }
            None
        }
    }
}
