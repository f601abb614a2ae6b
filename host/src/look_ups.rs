//! What passes asked the API server for (`look-up`), remembered so that a change of it wakes who asked.
//!
//! While the last pass of any primary asked for objects of a kind, the metadata of that kind is watched: one watch for
//! each kind, however many primaries ask, so the manifest bounds their number. Answers still come from the API server,
//! read after the watch has begun, so that no change falls in between.
//!
//! If the watch does not come into being (RBAC without `watch`, an API server in trouble), answers are given all the
//! same, and what changed is seen at the next resync. A controller is not unready for that.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_cluster::{Change, Delta};
use pilothouse_model::interests::{Interest, Interests, What};
use pilothouse_model::manifest::Resource;
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;
use pilothouse_model::plan::LookUp;
use pilothouse_model::selector::Selector;

use crate::view::{Listener, News, scoped};

/// How long the first question of a kind waits for its watch. A list of metadata takes a fraction of it; an API server
/// in trouble should cost a pass no more than this.
const WATCH_WITHIN: Duration = Duration::from_secs(5);

/// The look-ups of one controller.
pub(crate) struct LookUps {
    watches: Watches,
    namespaces: Vec<String>,
    listener: Listener,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Of the last pass of each primary that asked, and of those that run.
    interests: Interests,
    /// What passes that run have asked so far.
    asking: HashMap<Key, Vec<Interest>>,
    /// By position of the rule.
    watched: HashMap<usize, Arc<Vec<Subscription>>>,
    /// Rules whose questions were answered before their watch had begun.
    late: HashSet<usize>,
}

impl LookUps {
    pub(crate) fn new(watches: &Watches, namespaces: &[String], listener: &Listener) -> Self {
        Self {
            watches: watches.clone(),
            namespaces: namespaces.to_vec(),
            listener: Arc::clone(listener),
            state: Arc::default(),
        }
    }

    /// A pass of this primary begins.
    pub(crate) fn begin(&self, key: &Key) {
        lock(&self.state).asking.insert(key.clone(), Vec::new());
    }

    /// To be called before the API server is asked. `rule` is the position of the rule for the kind.
    ///
    /// Returns when changes from now on are heard of, or when that takes too long. Cancel safe.
    pub(crate) async fn ask(&self, key: &Key, rule: usize, resource: &Resource, asked: &LookUp) {
        {
            let mut state = lock(&self.state);
            state.interests.add(key, interest(rule, asked));
            state.asking.entry(key.clone()).or_default().push(interest(rule, asked));
        }
        let watched = self.watch(rule, resource);
        let begun = async {
            for watch in watched.iter() {
                let mut state = watch.state();
                let settled = state.wait_for(|state| !matches!(state, WatchState::Starting)).await;
                if settled.map_or(true, |state| *state != WatchState::Synced) {
                    return false;
                }
            }
            true
        };
        if !tokio::time::timeout(WATCH_WITHIN, begun).await.unwrap_or(false) {
            lock(&self.state).late.insert(rule);
        }
    }

    /// A pass of this primary has decided, or has `failed` before it could ask all its questions; of one that failed
    /// before the first, those of the pass before it still count.
    pub(crate) fn end(&self, key: &Key, failed: bool) {
        let mut state = lock(&self.state);
        let asked = state.asking.remove(key).unwrap_or_default();
        if !(failed && asked.is_empty()) {
            state.interests.set(key, asked);
        }
        let _unused = state.unused();
        drop(state);
    }

    /// This primary is gone.
    pub(crate) fn forget(&self, key: &Key) {
        let mut state = lock(&self.state);
        state.asking.remove(key);
        state.interests.remove(key);
        let _unused = state.unused();
        drop(state);
    }

    fn watch(&self, rule: usize, resource: &Resource) -> Arc<Vec<Subscription>> {
        if let Some(watched) = lock(&self.state).watched.get(&rule) {
            return Arc::clone(watched);
        }
        // Without the lock: the listener is called at once with what is there.
        let subscribe = |query: Query| {
            let (state, listener) = (Arc::downgrade(&self.state), Arc::clone(&self.listener));
            self.watches.subscribe(query, move |delta| {
                let keys =
                    state.upgrade().map(|state| lock(&state).concerned(rule, delta)).unwrap_or_default();
                if !keys.is_empty() {
                    listener(News::Related { keys });
                }
            })
        };
        let query = Query::new(resource.clone()).metadata_only();
        let new = Arc::new(scoped(&query, &self.namespaces).into_iter().map(subscribe).collect::<Vec<_>>());
        // Of two that begin at once the first stays; the other goes without the lock.
        Arc::clone(lock(&self.state).watched.entry(rule).or_insert_with(|| Arc::clone(&new)))
    }
}

impl State {
    fn concerned(&self, rule: usize, delta: &Delta) -> Vec<Key> {
        // What was there before the question is in the answer.
        if delta.change == Change::Initial && !self.late.contains(&rule) {
            return Vec::new();
        }
        let states: Vec<&Object> = [Some(&delta.object), delta.previous.as_ref()]
            .into_iter()
            .flatten()
            .map(|object| &**object)
            .collect();
        self.interests.concerned(rule, &states).into_iter().collect()
    }

    /// Takes out the watches that nobody needs any more, for the caller to drop without the lock.
    fn unused(&mut self) -> Vec<Arc<Vec<Subscription>>> {
        if self.watched.is_empty() {
            return Vec::new();
        }
        let Self { interests, watched, late, .. } = self;
        late.retain(|rule| interests.has(*rule));
        let unused = watched.extract_if(|rule, _| !interests.has(*rule));
        unused.map(|(_, watched)| watched).collect()
    }
}

/// Maps and lists of plain values are whole whenever their lock is free, also after a panic.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interest(rule: usize, asked: &LookUp) -> Interest {
    let what = match (&asked.name, &asked.label_selector) {
        (Some(name), _) => What::Named(name.as_str().into()),
        // It was checked when the question was admitted.
        (None, Some(selector)) => What::Selected(Selector::parse(selector).unwrap_or_default()),
        (None, None) => What::Selected(Selector::default()),
    };
    Interest { rule, namespace: asked.namespace.as_deref().map(Arc::from), what }
}
