//! The watched objects of one controller: the primaries, the children that carry the plugin's label, and the related
//! kinds of its manifest, each once per namespace that the host serves. Watches are shared with whoever else wants the
//! same ones and end with their last user: 1,000 plugins that own ConfigMaps share one watch of all ConfigMaps with a
//! label of ours, hear of their own, and see their own.

use std::collections::HashSet;
use std::sync::Arc;

use pilothouse_cluster::apply::Sink;
use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_cluster::{Change, Cluster, Delta, ReadError};
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::manifest::{Child, Controller, Related, Resource, Scope};
use pilothouse_model::names::{Key, MANAGED_LABEL, OWNER_UID_LABEL, PluginName};
use pilothouse_model::object::{Meta, Object};
use pilothouse_model::plan::LookUp;
use tokio::task::JoinSet;

use crate::look_ups::LookUps;
use crate::related::{self, Rules};
use crate::snapshot::{Found, Snapshot};

/// Tracked children of one kind that are looked at in one pass; the next one sees the others.
const TRACKED_MAX: usize = 5_000;
/// Metadata of as many with annotations of a few KiB each.
const TRACKED_BYTES_MAX: u64 = 64 << 20;

/// What became known of an object, seen from the controller.
#[derive(Debug)]
pub(crate) enum News {
    /// The primary with this key.
    Primary(Delta),
    /// A child of the primary with this key.
    Child {
        /// The primary.
        owner: Key,
        /// UID of the child.
        uid: Arc<str>,
        /// What happened to it.
        change: Change,
        /// Its version after that.
        resource_version: u64,
    },
    /// An object that the primaries with these keys look at without owning it.
    Related {
        /// The primaries.
        keys: Vec<Key>,
    },
    /// A watch came into sync, or fell out of it.
    State,
}

/// Takes news. Called with no lock held; must not block.
pub(crate) type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// What a change in a store means to the controller.
type Translation = Arc<dyn Fn(&Delta) -> Vec<News> + Send + Sync>;

/// Whose objects are heard of.
#[derive(Clone, Copy)]
enum Whose<'a> {
    All,
    ChildrenOf(&'a PluginName),
}

/// See the module.
pub(crate) struct View {
    cluster: Cluster,
    plugin: PluginName,
    controller: Controller,
    rules: Arc<Rules>,
    look_ups: LookUps,
    primaries: Vec<Subscription>,
    /// One list for each child kind, in the order of the manifest.
    children: Vec<Vec<Subscription>>,
    /// One list for each rule, in the order of the manifest; empty for rules without a selector.
    related: Vec<Vec<Subscription>>,
    /// Tell of the watches' states; they end with the view.
    tellers: JoinSet<()>,
}

impl View {
    /// Subscribes to what a controller needs. `namespaces` empty means all.
    pub(crate) fn open(
        cluster: &Cluster,
        watches: &Watches,
        plugin: &PluginName,
        controller: &Controller,
        namespaces: &[String],
        listener: &Listener,
    ) -> Self {
        let subscribe = |query: &Query, whose: Whose<'_>, news: Translation| -> Vec<Subscription> {
            let one = |query: Query| {
                let (listener, news) = (Arc::clone(listener), Arc::clone(&news));
                let told = move |delta: &Delta| news(delta).into_iter().for_each(|news| listener(news));
                match whose {
                    Whose::All => watches.subscribe(query, told),
                    Whose::ChildrenOf(plugin) => watches.subscribe_managed(query, plugin, told),
                }
            };
            scoped(query, namespaces).into_iter().map(one).collect()
        };

        let primary = controller.primary.clone();
        let rules = Arc::new(Rules::new(controller));
        let seen = Arc::clone(&rules);
        let primaries = subscribe(
            &Query::new(primary.clone()),
            Whose::All,
            Arc::new(move |delta| {
                // Before the key is queued: what changes while its pass runs must find it.
                seen.primary(delta);
                vec![News::Primary(delta.clone())]
            }),
        );
        let children = controller.children.iter().map(|child| {
            let primary = primary.clone();
            let query = Query::new(child.resource.clone()).projected(child.projection.clone());
            subscribe(&query, Whose::ChildrenOf(plugin), Arc::new(move |delta| owners(delta, &primary)))
        });
        let children = children.collect();
        let related = controller.related.iter().enumerate().map(|(at, rule)| {
            if rule.selector.is_none() {
                return Vec::new();
            }
            let rules = Arc::clone(&rules);
            let query = related::query(rule, primary.scope);
            subscribe(&query, Whose::All, Arc::new(move |delta| concerned(&rules, at, delta)))
        });
        let related = related.collect();
        let mut view = Self {
            cluster: cluster.clone(),
            plugin: plugin.clone(),
            controller: controller.clone(),
            look_ups: LookUps::new(watches, namespaces, listener),
            rules,
            primaries,
            children,
            related,
            tellers: JoinSet::new(),
        };
        let states: Vec<_> = view.subscriptions().map(Subscription::state).collect();
        for mut state in states {
            let listener = Arc::clone(listener);
            view.tellers.spawn(async move {
                while state.changed().await.is_ok() {
                    listener(News::State);
                }
            });
        }
        view
    }

    /// Why the view cannot be trusted now, a line for each watch that is not in sync.
    pub(crate) fn unready(&self) -> Vec<String> {
        let problem = |watch: &Subscription| match &*watch.state().borrow() {
            WatchState::Synced => None,
            WatchState::Starting => Some(format!("{}: the first list is on its way", watch.query())),
            WatchState::Failing { reason, .. } => Some(format!("{}: {reason}", watch.query())),
        };
        self.subscriptions().filter_map(problem).collect()
    }

    /// Every watch has been complete once, so what is not here was not there.
    pub(crate) fn is_complete(&self) -> bool {
        self.subscriptions().all(|watch| watch.store().is_complete())
    }

    /// One primary.
    pub(crate) fn primary(&self, key: &Key) -> Option<Arc<Object>> {
        self.primaries.iter().find_map(|watch| watch.store().get(key))
    }

    /// The keys of all primaries, in no order.
    pub(crate) fn primary_keys(&self) -> Vec<Key> {
        self.primaries.iter().flat_map(|watch| watch.store().keys()).collect()
    }

    /// How many primaries hold this finalizer.
    pub(crate) fn primaries_with(&self, finalizer: &str) -> usize {
        let holds = |object: &Object| object.meta().finalizers.iter().any(|held| **held == *finalizer);
        self.primaries.iter().map(|watch| watch.store().select(holds).len()).sum()
    }

    /// The UIDs of all primaries and children.
    pub(crate) fn uids(&self) -> HashSet<Arc<str>> {
        let watches = self.primaries.iter().chain(self.children.iter().flatten());
        watches.flat_map(|watch| watch.store().uids()).collect()
    }

    /// What there is around a primary, now.
    pub(crate) fn snapshot(&self, primary: Arc<Object>) -> Snapshot {
        let meta = primary.meta();
        let kinds = self.controller.children.iter().zip(&self.children);
        let children = kinds.flat_map(|(declared, watches)| {
            let owned = watches.iter().flat_map(|watch| watch.store().owned_by(&meta.uid));
            owned.filter(|child| self.is_child(child, declared, meta))
        });
        let children = children.collect();
        let rules = self.controller.related.iter().zip(&self.related);
        let rules = rules.filter(|(rule, _)| rule.selector.is_some()).map(|(rule, watches)| Found {
            query: rule.name.clone(),
            complete: watches.iter().all(|watch| watch.store().is_complete()),
            objects: watches.iter().flat_map(|watch| related::seen(rule, meta, watch.store())).collect(),
        });
        let related = rules.collect();
        Snapshot { primary, children, related }
    }

    /// The children of a primary that are tied to it by label alone, as the API server has them now, and whether those are
    /// all. A cache may lag behind a host that was here before, or its watch may fail, and what is missed would be
    /// nobody's; so would the children of a plugin that had another name then.
    pub(crate) async fn tracked(&self, primary: &Meta) -> Result<(Vec<Arc<Object>>, bool), ReadError> {
        let (mut tracked, mut complete) = (Vec::new(), true);
        for (declared, watches) in self.controller.children.iter().zip(&self.children) {
            if !self.controller.tracks(declared) {
                continue;
            }
            for watch in watches {
                let query = Query::new(declared.resource.clone()).metadata_only();
                let query = query.labelled(&format!("{MANAGED_LABEL},{OWNER_UID_LABEL}={}", primary.uid));
                let query = watch.query().namespace().map_or(query.clone(), |one| query.in_namespace(one));
                let listed = match self.cluster.list(&query, TRACKED_MAX, TRACKED_BYTES_MAX).await {
                    // The kind went with its CRD, and all objects with it.
                    Err(ReadError::Missing(_)) => continue,
                    listed => listed?,
                };
                complete &= listed.complete;
                tracked.extend(listed.objects.into_iter().map(Arc::new));
            }
        }
        Ok((tracked, complete))
    }

    /// Ours, and where children of its kind may be: labels and owner references are anybody's to write.
    fn is_child(&self, object: &Object, declared: &Child, primary: &Meta) -> bool {
        let meta = object.meta();
        let near = primary.namespace.is_none() || meta.namespace == primary.namespace;
        let tracked = meta.owner.as_ref().is_some_and(|owner| owner.tracked_in.is_some());
        meta.managed.as_deref() == Some(self.plugin.as_str())
            && (near || tracked && self.controller.tracks(declared))
    }

    /// What passes ask for, to be told where each begins and ends.
    pub(crate) fn look_ups(&self) -> &LookUps {
        &self.look_ups
    }

    /// Forgets a primary that a pass did not find.
    pub(crate) fn forget(&self, key: &Key) {
        self.look_ups.forget(key);
        self.rules.refresh(key, None);
    }

    /// A primary is there after all.
    pub(crate) fn find(&self, key: &Key) {
        self.rules.refresh(key, self.primary(key).as_deref());
    }

    /// Answers a question of the plugin for a primary from the API server, in at most `bytes_max`, and remembers that it
    /// was asked.
    pub(crate) async fn look_up(
        &self,
        key: &Key,
        asked: &LookUp,
        bytes_max: u64,
    ) -> Result<Found, ReadError> {
        let Some((at, Related { resource, projection, .. })) = self.looked_up(&asked.kind) else {
            return Err(ReadError::Missing(format!("{} is not among the related kinds", asked.kind)));
        };
        self.look_ups.ask(key, at, resource, asked).await;
        let (objects, complete) = if let Some(name) = &asked.name {
            let key =
                Key { namespace: asked.namespace.as_deref().map(Arc::from), name: name.as_str().into() };
            (self.cluster.get(resource, &key, projection).await?.into_iter().collect(), true)
        } else {
            let mut query = Query::new(resource.clone()).projected(projection.clone());
            if let Some(namespace) = &asked.namespace {
                query = query.in_namespace(namespace);
            }
            if let Some(selector) = &asked.label_selector {
                query = query.labelled(selector);
            }
            let listed = self.cluster.list(&query, asked.limit, bytes_max).await?;
            (listed.objects, listed.complete)
        };
        let objects = objects.into_iter().map(Arc::new).collect();
        Ok(Found { query: asked.id.clone(), complete, objects })
    }

    /// Puts a response about a primary into the store.
    pub(crate) fn written_primary(&self, object: &Object) {
        store_response(&self.primaries, object);
    }

    /// A primary went with its last finalizer.
    pub(crate) fn removed_primary(&self, object: &Object) {
        for watch in &self.primaries {
            watch.store().remove_response(&object.key(), &object.meta().uid);
        }
    }

    /// The rule for look-ups of a kind: one that has no selector is for nothing else.
    fn looked_up(&self, kind: &Kind) -> Option<(usize, &Related)> {
        let rules = self.controller.related.iter().enumerate();
        let mut rules = rules.filter(|(_, rule)| rule.resource.kind() == *kind);
        rules.clone().find(|(_, rule)| rule.selector.is_none()).or_else(|| rules.next())
    }

    fn watches_of(&self, kind: &Kind) -> &[Subscription] {
        let mut kinds = self.controller.children.iter().zip(&self.children);
        kinds.find(|(child, _)| child.resource.kind() == *kind).map_or(&[][..], |(_, watches)| watches)
    }

    fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        let many = self.children.iter().chain(&self.related).flatten();
        self.primaries.iter().chain(many)
    }
}

impl Sink for View {
    fn written(&self, object: Arc<Object>) {
        store_response(self.watches_of(object.kind()), &object);
    }

    fn deleted(&self, reference: &Reference) {
        let Some(uid) = &reference.uid else { return };
        let key = Key {
            namespace: reference.namespace.as_deref().map(Arc::from),
            name: reference.name.as_str().into(),
        };
        for watch in self.watches_of(&reference.kind) {
            watch.store().remove_response(&key, uid);
        }
    }
}

fn store_response(watches: &[Subscription], object: &Object) {
    let namespace = object.meta().namespace.as_deref();
    for watch in
        watches.iter().filter(|watch| watch.query().namespace().is_none_or(|one| Some(one) == namespace))
    {
        watch.store().upsert_response(object.clone());
    }
}

/// A query once for each namespace that is served; `namespaces` empty means all.
pub(crate) fn scoped(query: &Query, namespaces: &[String]) -> Vec<Query> {
    if namespaces.is_empty() || query.resource().scope == Scope::Cluster {
        return vec![query.clone()];
    }
    namespaces.iter().map(|namespace| query.clone().in_namespace(namespace)).collect()
}

fn concerned(rules: &Rules, at: usize, delta: &Delta) -> Vec<News> {
    // At the start every primary is looked at anyway.
    if delta.change == Change::Initial {
        return Vec::new();
    }
    let keys = rules.concerned(at, delta);
    if keys.is_empty() { Vec::new() } else { vec![News::Related { keys }] }
}

fn owners(delta: &Delta, primary: &Resource) -> Vec<News> {
    let news = delta.owner_keys(primary).map(|owner| News::Child {
        owner,
        uid: delta.uid.clone(),
        change: delta.change,
        resource_version: delta.resource_version,
    });
    news.collect()
}
