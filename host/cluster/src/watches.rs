//! One watch for all who want the same objects. It starts with its first subscription and ends with its last.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilothouse_model::manifest::{Projection, Resource};
use pilothouse_model::names::{MANAGED_LABEL, PluginName};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::connect::Cluster;
use crate::error::ReadError;
use crate::groups::Grouping;
use crate::index::Delta;
use crate::listeners::{Interest, Listener};
use crate::store::Store;
use crate::streamed_lists::StreamedLists;
use crate::watch::Watch;

/// Which objects. Equal queries share a watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    pub(crate) resource: Resource,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) projection: Projection,
    pub(crate) grouping: Grouping,
}

impl Query {
    /// All objects of a resource, whole.
    pub fn new(resource: Resource) -> Self {
        Self {
            resource,
            namespace: None,
            labels: None,
            fields: None,
            projection: Projection::Full,
            grouping: Grouping::default(),
        }
    }

    /// Only those of one namespace. Without effect on cluster-scoped resources.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Only those that a label selector, in kubectl's syntax, selects.
    #[must_use]
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()).filter(|selector| !selector.is_empty()), ..self }
    }

    /// Only those that a field selector selects; which fields there are depends on the resource.
    #[must_use]
    pub fn with_fields(self, selector: &str) -> Self {
        Self { fields: Some(selector.to_owned()).filter(|selector| !selector.is_empty()), ..self }
    }

    /// `apiVersion`, `kind` and `metadata` only; the rest is not even sent.
    #[must_use]
    pub fn metadata_only(self) -> Self {
        Self { projection: Projection::Metadata, ..self }
    }

    /// As much of each object as the manifest says.
    #[must_use]
    pub fn projected(self, projection: Projection) -> Self {
        Self { projection, ..self }
    }

    /// By what the store finds objects, for [`Store::select_in`].
    #[must_use]
    pub fn grouped(self, grouping: Grouping) -> Self {
        Self { grouping, ..self }
    }

    /// What is watched.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// How much of each object.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Where; none: everywhere.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource.kind())?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        if let Some(labels) = &self.labels {
            write!(f, " labelled {labels}")?;
        }
        if let Some(fields) = &self.fields {
            write!(f, " with {fields}")?;
        }
        match &self.projection {
            Projection::Full => Ok(()),
            Projection::Metadata => f.write_str(" (metadata)"),
            Projection::Fields(paths) => write!(f, " ({paths})"),
        }
    }
}

/// How a watch is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is on its way.
    Starting,
    /// The store is complete and changes arrive.
    Synced,
    /// Changes do not arrive. What the store has stays, and may be old; [`Store::is_complete`] says whether it ever
    /// was complete. It is tried again by itself.
    Failing {
        /// Why: [`ReadError::Missing`] while the kind does not exist, [`ReadError::Forbidden`] while RBAC lacks it.
        reason: ReadError,
        /// Since when.
        since: Instant,
    },
}

/// What all watches of this process did so far.
#[derive(Debug, Default)]
pub struct WatchCounters {
    /// Watch requests that were accepted, the first one of each watch included.
    pub opened: AtomicU64,
    /// Whole lists taken in, the first one of each watch included.
    pub lists: AtomicU64,
    /// Lists that were necessary because a version or a continue token had expired.
    pub expired: AtomicU64,
    /// Objects that came as events, lists not included.
    pub events: AtomicU64,
    /// Requests and streams that failed.
    pub errors: AtomicU64,
    /// Objects and events that could not be read and were passed over.
    pub malformed: AtomicU64,
}

/// One watch as it is now, for metrics.
#[derive(Debug, Clone)]
pub struct WatchStatus {
    /// What it watches.
    pub query: Arc<Query>,
    /// How it is doing.
    pub state: WatchState,
    /// Subscriptions.
    pub users: usize,
    /// Objects in its store.
    pub objects: usize,
    /// Bytes of JSON in its store.
    pub json_bytes: usize,
}

/// All watches of this process. Cheap to clone; the last clone ends them.
#[derive(Clone)]
pub struct Watches(Arc<Registry>);

struct Registry {
    cluster: Cluster,
    counters: Arc<WatchCounters>,
    retry: Arc<Notify>,
    streamed_lists: Arc<StreamedLists>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    watches: HashMap<Arc<Query>, Shared>,
    /// Dropped with the registry, which ends the tasks.
    tasks: JoinSet<()>,
}

struct Shared {
    store: Arc<Store>,
    state: watch::Receiver<WatchState>,
    task: AbortHandle,
    users: usize,
}

impl Watches {
    /// None yet.
    pub fn new(cluster: Cluster) -> Self {
        let (counters, retry, streamed_lists) = (Arc::default(), Arc::new(Notify::new()), Arc::default());
        Self(Arc::new(Registry { cluster, counters, retry, streamed_lists, running: Mutex::default() }))
    }

    /// Joins the watch of these objects, and starts it if this is its first user. `listener` hears first of every
    /// object that is there and then of every change, until the subscription is dropped; see
    /// [`Listener`] for what it may do.
    ///
    /// Must be called on a runtime.
    pub fn subscribe(&self, query: Query, listener: impl Fn(&Delta) + Send + Sync + 'static) -> Subscription {
        self.join(query, Interest::All, Arc::new(listener))
    }

    /// Joins the watch of the children of all plugins: of the objects of `query` that bear the label
    /// [`MANAGED_LABEL`]. `listener` hears of those of `plugin`, as [`Watches::subscribe`] says; one whose label names
    /// another from now on is told as deleted. The store has the others' as well.
    pub fn subscribe_managed(
        &self,
        query: Query,
        plugin: &PluginName,
        listener: impl Fn(&Delta) + Send + Sync + 'static,
    ) -> Subscription {
        let interest = Interest::Managed(plugin.as_str().into());
        self.join(query.labelled(MANAGED_LABEL), interest, Arc::new(listener))
    }

    fn join(&self, query: Query, interest: Interest, listener: Listener) -> Subscription {
        let (query, store, state) = {
            let mut running = self.0.running();
            while running.tasks.try_join_next().is_some() {}
            let (query, shared) = running.join(&self.0, query);
            (query, Arc::clone(&shared.store), shared.state.clone())
        };
        let listener = store.listen(&interest, listener);
        Subscription { registry: Arc::clone(&self.0), query, store, state, interest, listener }
    }

    /// Tries every failing watch again at once: a CRD was established or a permission granted.
    pub fn retry(&self) {
        self.0.retry.notify_waiters();
    }

    /// What all watches did so far.
    pub fn counters(&self) -> &WatchCounters {
        &self.0.counters
    }

    /// Every watch as it is now.
    pub fn status(&self) -> Vec<WatchStatus> {
        let running = self.0.running();
        let status = |(query, shared): (&Arc<Query>, &Shared)| WatchStatus {
            query: Arc::clone(query),
            state: shared.state.borrow().clone(),
            users: shared.users,
            objects: shared.store.len(),
            json_bytes: shared.store.json_bytes(),
        };
        running.watches.iter().map(status).collect()
    }

    /// Tasks that run for watches; for tests of what is left behind.
    pub fn tasks(&self) -> usize {
        let mut running = self.0.running();
        while running.tasks.try_join_next().is_some() {}
        running.tasks.len()
    }
}

impl Registry {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn join(&mut self, registry: &Registry, query: Query) -> (Arc<Query>, &Shared) {
        let query = match self.watches.get_key_value(&query) {
            Some((query, _)) => Arc::clone(query),
            None => Arc::new(query),
        };
        let tasks = &mut self.tasks;
        let shared = self.watches.entry(Arc::clone(&query)).or_insert_with(|| {
            let (projection, grouping) = (query.projection.clone(), query.grouping.clone());
            let store = Arc::new(Store::new(query.resource.kind(), projection, grouping));
            let (told, state) = watch::channel(WatchState::Starting);
            let watch = Watch::new(
                registry.cluster.clone(),
                Arc::clone(&query),
                Arc::clone(&store),
                told,
                Arc::clone(&registry.counters),
                Arc::clone(&registry.retry),
                Arc::clone(&registry.streamed_lists),
            );
            Shared { store, state, task: tasks.spawn(watch.run()), users: 0 }
        });
        shared.users += 1;
        (query, shared)
    }
}

/// A share in one watch. Dropping it ends the share.
pub struct Subscription {
    registry: Arc<Registry>,
    query: Arc<Query>,
    store: Arc<Store>,
    state: watch::Receiver<WatchState>,
    interest: Interest,
    listener: u64,
}

impl Subscription {
    /// What was asked for.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The objects.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// How the watch is doing, now and from now on.
    pub fn state(&self) -> watch::Receiver<WatchState> {
        self.state.clone()
    }

    /// Waits until the store is complete. Cancel safe.
    pub async fn synced(&self, deadline: Duration) -> Result<(), WatchState> {
        let mut state = self.state();
        let synced = state.wait_for(|state| *state == WatchState::Synced);
        match tokio::time::timeout(deadline, synced).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.state.borrow().clone()),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.unlisten(&self.interest, self.listener);
        let mut running = self.registry.running();
        if let Some(shared) = running.watches.get_mut(&self.query) {
            shared.users -= 1;
            if shared.users == 0 {
                shared.task.abort();
                running.watches.remove(&self.query);
            }
        }
    }
}

impl WatchCounters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
