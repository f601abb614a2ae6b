//! The live set: loads what the sources find, decides by the rules of [`crate::shelf`] what serves, and publishes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_fetch::{Artifact, Change, Origin};
use pilothouse_model::kind::Kind;
use pilothouse_model::names::{Generation, PluginName};
use pilothouse_model::settings::Settings;
use pilothouse_model::webhook;
use pilothouse_sandbox::{Prepared, Sandbox};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::metrics::Metrics;
use crate::metrics::plugins::Serving;
use crate::serve::Gate;
use crate::shelf::{Offer, Shelf};

/// One loaded version of a plugin. Passes pin it: they end on the version that they began with.
pub(crate) struct LivePlugin {
    /// Which version.
    pub generation: Generation,
    /// Where its bytes came from.
    pub origin: Origin,
    /// The component, compiled.
    pub prepared: Arc<Prepared>,
    /// What the administrator says of it.
    pub settings: Settings,
    /// `settings.config` as the guest gets it.
    pub config: String,
}

impl Offer for LivePlugin {
    type Origin = Origin;

    fn name(&self) -> &PluginName {
        &self.prepared.manifest().name
    }

    fn kinds(&self) -> Vec<Kind> {
        self.prepared.manifest().controllers.iter().map(|controller| controller.primary.kind()).collect()
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn generation(&self) -> Generation {
        self.generation
    }
}

/// The plugins that serve, by name.
pub(crate) type LiveSet = BTreeMap<PluginName, Arc<LivePlugin>>;

/// What a source says.
pub(crate) enum Found {
    /// A plugin is there, changed, broken or gone.
    Change(Box<Change>),
    /// What was there at the start has been said: the gate may open once it is loaded.
    Synced(Gate),
}

/// Why something that was offered does not serve. Sent to whoever can tell the administrator.
#[derive(Debug, Clone)]
pub(crate) struct LoadFailure {
    /// Where it is.
    pub origin: Origin,
    /// Why, for people.
    pub message: String,
}

/// Loads plugins one at a time, in the order in which they are found.
pub(crate) struct Loader {
    sandbox: Arc<Sandbox>,
    metrics: Metrics,
    shelf: Shelf<LivePlugin>,
    next: Generation,
    live: watch::Sender<Arc<LiveSet>>,
    failures: mpsc::Sender<LoadFailure>,
    /// This host serves webhooks.
    serves_webhooks: bool,
    /// Something that was offered cannot be loaded, whatever plugin that is.
    broken: watch::Sender<bool>,
    /// Series of what is live.
    serving: BTreeMap<PluginName, (Generation, Serving)>,
    /// Why the newest of what each place offered does not serve, and its generation if it was loaded and waits.
    not_serving: BTreeMap<Origin, (&'static str, Option<Generation>)>,
}

impl Loader {
    /// A loader with nothing loaded, and the live set as it will be.
    pub(crate) fn new(
        sandbox: Arc<Sandbox>,
        metrics: Metrics,
        failures: mpsc::Sender<LoadFailure>,
        serves_webhooks: bool,
    ) -> (Self, watch::Receiver<Arc<LiveSet>>) {
        let (live, receiver) = watch::channel(Arc::default());
        let loader = Self {
            sandbox,
            metrics,
            shelf: Shelf::new(),
            next: Generation(1),
            live,
            failures,
            serves_webhooks,
            broken: watch::Sender::new(false),
            serving: BTreeMap::new(),
            not_serving: BTreeMap::new(),
        };
        (loader, receiver)
    }

    /// Whether something that was offered cannot be loaded: nobody knows which plugin it would be.
    pub(crate) fn broken(&self) -> watch::Receiver<bool> {
        self.broken.subscribe()
    }

    /// Loads until the sources are gone. Dropping the future between two plugins loses nothing; a compilation that
    /// runs goes on in its thread and its result is dropped.
    pub(crate) async fn run(mut self, mut found: mpsc::Receiver<Found>) {
        while let Some(found) = found.recv().await {
            match found {
                Found::Change(change) => {
                    self.take(*change).await;
                    let broken = self.not_serving.values().any(|(reason, _)| *reason != "KindTaken");
                    self.broken.send_if_modified(|was| std::mem::replace(was, broken) != broken);
                }
                Found::Synced(gate) => drop(gate),
            }
        }
    }

    async fn take(&mut self, change: Change) {
        match change {
            Change::Found(artifact) => self.load(artifact).await,
            Change::Broken { origin, error } => self.fail(origin, error.reason(), error.to_string(), None),
            Change::Gone(origin) => {
                self.not_serving.remove(&origin);
                self.shelf.withdraw(&origin);
                self.publish();
            }
            Change::Synced => {}
        }
    }

    async fn load(&mut self, artifact: Artifact) {
        let Artifact { origin, wasm, settings, .. } = artifact;
        let sandbox = Arc::clone(&self.sandbox);
        let limits = settings.limits;
        // Compilation waits for a child process: not on an async thread.
        let prepared = tokio::task::spawn_blocking(move || sandbox.prepare(&wasm, &limits)).await;
        let prepared = match prepared {
            Ok(Ok(prepared)) => Arc::new(prepared),
            Ok(Err(error)) => return self.fail(origin, error.reason(), error.to_string(), None),
            Err(panic) => return self.fail(origin, "Internal", panic.to_string(), None),
        };
        self.metrics.plugins().prepared(prepared.from_cache());
        if let Err(missing) = settings.grants.check(prepared.manifest()) {
            return self.fail(origin, "NotGranted", missing.to_string(), None);
        }
        if !self.serves_webhooks {
            let manifest = prepared.manifest();
            // Objects of two versions would be taken for each other.
            if prepared.converts() && webhook::converted_crds(manifest).next().is_some() {
                let message = "converts between versions of its kind, and this host serves no webhooks: \
                               give it --webhook-listen";
                return self.fail(origin, "NoWebhooks", message.to_owned(), None);
            }
            if !manifest.admission.is_empty() {
                tracing::warn!(%origin, "guards kinds, and this host serves no webhooks: nothing is checked before it is stored");
            }
        }
        self.not_serving.remove(&origin);
        let generation = self.next;
        self.next = Generation(generation.0 + 1);
        let config = settings.config.to_string();
        let plugin = Arc::new(LivePlugin { generation, origin: origin.clone(), prepared, settings, config });
        if let Err(waits) = self.shelf.offer(plugin) {
            self.fail(origin, "KindTaken", waits.to_string(), Some(generation));
        }
        self.publish();
    }

    fn fail(&mut self, origin: Origin, reason: &'static str, message: String, waits: Option<Generation>) {
        tracing::error!(%origin, reason, "plugin not loaded: {message}");
        self.metrics.plugins().load_failed(reason);
        self.not_serving.insert(origin.clone(), (reason, waits));
        self.metrics.plugins().not_serving(self.not_serving.values().map(|(reason, _)| *reason));
        // A full channel means that nobody can be told faster than plugins break: the log has it.
        let _ = self.failures.try_send(LoadFailure { origin, message });
    }

    fn publish(&mut self) {
        let live = self.shelf.live();
        // What waited may serve now.
        self.not_serving.retain(|origin, (_, waits)| {
            let serves = |plugin: &Arc<LivePlugin>| {
                plugin.origin == *origin && waits.is_some_and(|waits| plugin.generation >= waits)
            };
            !live.values().any(serves)
        });
        self.metrics.plugins().not_serving(self.not_serving.values().map(|(reason, _)| *reason));
        // Series of the old version end before those of the new one begin: they are the same.
        self.serving.retain(|name, (generation, _)| {
            live.get(name).is_some_and(|plugin| plugin.generation == *generation)
        });
        for (name, LivePlugin { generation, prepared, .. }) in live.iter().map(|(name, live)| (name, &**live))
        {
            self.serving.entry(name.clone()).or_insert_with(|| {
                let (digest, bytes) = (prepared.digest(), prepared.compiled_bytes());
                (*generation, self.metrics.plugins().serves(name, &digest, *generation, bytes))
            });
        }
        self.live.send_if_modified(|published| {
            let mut changed = false;
            for (name, plugin) in published.iter() {
                if !live.get(name).is_some_and(|now| Arc::ptr_eq(now, plugin)) {
                    changed = true;
                    if !live.contains_key(name) {
                        tracing::info!(plugin = %name, "plugin unloaded");
                    }
                }
            }
            for (name, plugin) in live {
                if !published.get(name).is_some_and(|before| Arc::ptr_eq(before, plugin)) {
                    changed = true;
                    tracing::info!(
                        plugin = %name,
                        version = plugin.prepared.manifest().version,
                        generation = %plugin.generation,
                        digest = %plugin.prepared.digest(),
                        origin = %plugin.origin,
                        "plugin serves"
                    );
                }
            }
            if changed {
                *published = Arc::new(live.clone());
            }
            changed
        });
    }
}

/// The live set as JSON, for people and scripts.
pub(crate) fn to_json(live: &LiveSet) -> Value {
    live.iter()
        .map(|(name, plugin)| {
            json!({
                "name": name,
                "version": plugin.prepared.manifest().version,
                "generation": plugin.generation,
                "digest": plugin.prepared.digest().to_string(),
                "origin": plugin.origin.to_string(),
                "kinds": plugin.kinds().iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
        .collect()
}
