//! Where plugins come from: directories, and ConfigMaps read through the API (so without kubelet's delay). Both say
//! the same things to the loader; what could not be loaded from a ConfigMap is said in an event on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_cluster::event::Recorder;
use pilothouse_cluster::lease::Shards;
use pilothouse_cluster::watches::{Query, Subscription, WatchState};
use pilothouse_fetch::{Change, FetchError, Origin, from_config_map, watch_directories};
use pilothouse_model::action::{Event, Severity};
use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::names::{Key, PLUGIN_LABEL};
use pilothouse_model::object::Object;
use serde::Deserialize;
use tokio::sync::{Notify, mpsc};

use crate::plugins::{Found, LoadFailure};
use crate::serve::Gate;
use crate::supervisor::Shared;

/// Gate of the directories: there until what is in them at the start has been loaded.
pub(crate) const DIRECTORIES: &str = "plugin directories";
/// Gate of the ConfigMaps.
pub(crate) const CONFIG_MAPS: &str = "plugin ConfigMaps";

/// Follows directories; `gate` opens when what was there at the start has been loaded.
pub(crate) async fn follow_directories(directories: Vec<PathBuf>, found: mpsc::Sender<Found>, gate: Gate) {
    // One: the loader is the slow part, and its channel is the bound.
    let (changes, mut changed) = mpsc::channel(1);
    let mut gate = Some(gate);
    let forward = async {
        while let Some(change) = changed.recv().await {
            let news = match change {
                Change::Synced => match gate.take() {
                    Some(gate) => Found::Synced(gate),
                    None => continue,
                },
                other => Found::Change(Box::new(other)),
            };
            if found.send(news).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(watch_directories(directories, changes), forward);
}

/// The ConfigMaps of one namespace that carry a plugin.
#[derive(Clone)]
pub(crate) struct ConfigMaps {
    watch: Arc<Subscription>,
    dirty: Arc<Dirty>,
}

#[derive(Default)]
struct Dirty {
    keys: Mutex<BTreeSet<Key>>,
    woken: Notify,
}

impl ConfigMaps {
    /// Begins to watch.
    pub(crate) fn watch(shared: &Shared, namespace: &str) -> Self {
        let resource = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
            scope: Scope::Namespaced,
        };
        let dirty = Arc::new(Dirty::default());
        let query = Query::new(resource).in_namespace(namespace).labelled(PLUGIN_LABEL);
        let marks = Arc::clone(&dirty);
        let watch = shared.watches.subscribe(query, move |delta| {
            marks.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(delta.key.clone());
            marks.woken.notify_one();
        });
        Self { watch: Arc::new(watch), dirty }
    }

    /// Reports the plugins, and then each change; `gate` opens when what was there at the start has been loaded.
    pub(crate) async fn follow(self, found: mpsc::Sender<Found>, gate: Gate) {
        let mut origins: BTreeMap<Key, Origin> = BTreeMap::new();
        let mut gate = Some(gate);
        let mut state = self.watch.state();
        loop {
            // Before the keys are taken: the first list marks them and is in sync only then.
            let complete = *state.borrow_and_update() == WatchState::Synced;
            let keys = std::mem::take(&mut *self.dirty.keys.lock().unwrap_or_else(PoisonError::into_inner));
            for key in keys {
                let before = origins.get(&key).cloned();
                let news = match (self.watch.store().get(&key), &before) {
                    (Some(object), _) => read(&object, before.as_ref()),
                    (None, Some(origin)) => Change::Gone(origin.clone()),
                    (None, None) => continue,
                };
                let now = origin_of(&news);
                if found.send(Found::Change(Box::new(news))).await.is_err() {
                    return;
                }
                // A plugin that moved to another key of its ConfigMap is no more under the old one. Said second, so
                // that it never stops serving.
                if let (Some(now), Some(before)) = (&now, before)
                    && *now != before
                    && found.send(Found::Change(Box::new(Change::Gone(before)))).await.is_err()
                {
                    return;
                }
                match now {
                    Some(now) => origins.insert(key, now),
                    None => origins.remove(&key),
                };
            }
            if complete
                && let Some(gate) = gate.take()
                && found.send(Found::Synced(gate)).await.is_err()
            {
                return;
            }
            if let (Some(gate), WatchState::Failing { reason, .. }) = (&gate, &*state.borrow()) {
                gate.set(Err(reason.to_string()));
            }
            tokio::select! {
                () = self.dirty.woken.notified() => {}
                Ok(()) = state.changed() => {}
            }
        }
    }

    fn object(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.watch.store().get(&Key::namespaced(namespace, name))
    }
}

/// Where what still is there is.
fn origin_of(change: &Change) -> Option<Origin> {
    match change {
        Change::Found(artifact) => Some(artifact.origin.clone()),
        Change::Broken { origin, .. } => Some(origin.clone()),
        Change::Gone(_) | Change::Synced => None,
    }
}

/// Reads a ConfigMap. What is broken is reported under the origin that it had `before`, whose plugin goes on serving.
fn read(object: &Object, before: Option<&Origin>) -> Change {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        #[serde(default)]
        data: BTreeMap<String, String>,
        #[serde(default)]
        binary_data: BTreeMap<String, String>,
    }
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), &*meta.name);
    let label = object.labels().remove(PLUGIN_LABEL).unwrap_or_default();
    let wrong =
        |problem: String| FetchError::ConfigMap { config_map: format!("{namespace}/{name}"), problem };
    let artifact = serde_json::from_str::<Data>(object.json())
        .map_err(|error| wrong(error.to_string()))
        .and_then(|Data { data, binary_data }| {
            let decoded = binary_data.into_iter().map(|(key, text)| match STANDARD.decode(text) {
                Ok(bytes) => Ok((key, bytes)),
                Err(error) => Err(wrong(format!("binaryData key `{key}`: {error}"))),
            });
            from_config_map(namespace, name, &label, &decoded.collect::<Result<_, _>>()?, &data)
        });
    match artifact {
        Ok(artifact) => Change::Found(artifact),
        Err(error) => {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let new = || Origin::ConfigMap { namespace, name, key: format!("{label}.wasm") };
            Change::Broken { origin: before.cloned().unwrap_or_else(new), error }
        }
    }
}

/// Says in events on ConfigMaps what could not be loaded from them. Files have no object to say it on: the log and
/// the metric have it.
///
/// Each host loads plugins for itself; the one that holds the namespace's shard says what failed.
pub(crate) async fn tell_failures(
    events: Recorder,
    shards: Shards,
    config_maps: Option<ConfigMaps>,
    mut failures: mpsc::Receiver<LoadFailure>,
) {
    while let Some(failure) = failures.recv().await {
        let Origin::ConfigMap { namespace, name, .. } = &failure.origin else { continue };
        let Some(object) = config_maps.as_ref().and_then(|maps| maps.object(namespace, name)) else {
            continue;
        };
        let Some(term) = shards.term(shards.of_host(namespace)) else { continue };
        let (severity, reason) = (Severity::Warning, "PluginNotLoaded".to_owned());
        let event = Event { severity, reason, message: failure.message };
        events.with_fence(Arc::new(term)).record(&object, &event);
    }
}
