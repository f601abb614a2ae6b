//! The watched objects of one controller: the primaries, the children that carry the plugin's label, and the related
//! kinds of its manifest, each once per namespace that the host serves. Watches are shared with whoever else wants the
//! same ones and end with their last user.

use std::sync::Arc;

use pilothouse_cluster::apply::Sink;
use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_cluster::{Change, Cluster, Delta, ReadError};
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::manifest::{Child, Controller, Related, Resource, Scope};
use pilothouse_model::names::{Key, MANAGED_LABEL, PluginName};
use pilothouse_model::object::Object;
use pilothouse_model::plan::LookUp;
use pilothouse_model::selector::{self, Selector};

use tokio::task::JoinSet;

use crate::snapshot::{Found, Snapshot};

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
    /// A related object: any primary of its namespace may care, of all namespaces if it has none.
    Related {
        /// Its namespace.
        namespace: Option<Arc<str>>,
    },
    /// A watch came into sync, or fell out of it.
    State,
}

/// Takes news. Called with no lock held; must not block.
pub(crate) type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// What a change in a store means to the controller.
type Translation = Arc<dyn Fn(&Delta) -> Vec<News> + Send + Sync>;

/// See the module.
pub(crate) struct View {
    cluster: Cluster,
    controller: Controller,
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
        let subscribe = |query: &Query, news: Translation| -> Vec<Subscription> {
            let everywhere = namespaces.is_empty() || query.resource().scope == Scope::Cluster;
            let scopes: Vec<Query> = if everywhere {
                vec![query.clone()]
            } else {
                namespaces.iter().map(|namespace| query.clone().in_namespace(namespace)).collect()
            };
            let one = |query: Query| {
                let (listener, news) = (Arc::clone(listener), Arc::clone(&news));
                watches.subscribe(query, move |delta| news(delta).into_iter().for_each(|news| listener(news)))
            };
            scopes.into_iter().map(one).collect()
        };

        let primary = controller.primary.clone();
        let primaries =
            subscribe(&Query::new(primary.clone()), Arc::new(|delta| vec![News::Primary(delta.clone())]));
        let children = controller.children.iter().map(|child| {
            let primary = primary.clone();
            subscribe(&child_query(child, plugin), Arc::new(move |delta| owners(delta, &primary)))
        });
        let children = children.collect();
        let related = controller.related.iter().map(|rule| match &rule.selector {
            None => Vec::new(),
            Some(_) => subscribe(
                &related_query(rule),
                Arc::new(|delta| vec![News::Related { namespace: delta.key.namespace.clone() }]),
            ),
        });
        let related = related.collect();
        let mut view = Self {
            cluster: cluster.clone(),
            controller: controller.clone(),
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

    /// What there is around a primary, now.
    pub(crate) fn snapshot(&self, primary: Arc<Object>) -> Snapshot {
        let uid = &primary.meta().uid;
        let children =
            self.children.iter().flat_map(|kind| kind.iter().flat_map(|watch| watch.store().owned_by(uid)));
        let children = children.collect();
        let rules = self.controller.related.iter().zip(&self.related);
        let related = rules.filter_map(|(rule, watches)| {
            let text = rule.selector.as_deref()?;
            // A name that is no label value (of more than 63 characters) is borne by nothing.
            let selector =
                selector::expand(text, primary.meta()).and_then(|text| Selector::parse(&text)).ok();
            let namespace = primary.meta().namespace.as_deref();
            let matches = |object: &Object| {
                let near = rule.resource.scope == Scope::Cluster
                    || namespace.is_none()
                    || object.meta().namespace.as_deref() == namespace;
                near && selector.as_ref().is_some_and(|selector| selector.matches(&object.labels()))
            };
            let objects = watches.iter().flat_map(|watch| watch.store().select(matches)).collect();
            let complete = watches.iter().all(|watch| watch.store().is_complete());
            Some(Found { query: rule.name.clone(), complete, objects })
        });
        let related = related.collect();
        Snapshot { primary, children, related }
    }

    /// Answers a question of the plugin from the API server.
    pub(crate) async fn look_up(&self, asked: &LookUp) -> Result<Found, ReadError> {
        let Some(Related { resource, projection, .. }) = self.looked_up(&asked.kind) else {
            return Err(ReadError::Missing(format!("{} is not among the related kinds", asked.kind)));
        };
        let (objects, complete) = if let Some(name) = &asked.name {
            let key =
                Key { namespace: asked.namespace.as_deref().map(Arc::from), name: name.as_str().into() };
            let mut found = self.cluster.get(resource, &key).await?;
            if let Some(object) = &mut found {
                object.project(projection);
            }
            (found.into_iter().collect(), true)
        } else {
            let mut query = Query::new(resource.clone()).projected(projection.clone());
            if let Some(namespace) = &asked.namespace {
                query = query.in_namespace(namespace);
            }
            if let Some(selector) = &asked.label_selector {
                query = query.labelled(selector);
            }
            let listed = self.cluster.list(&query, asked.limit).await?;
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
    fn looked_up(&self, kind: &Kind) -> Option<&Related> {
        let mut rules = self.controller.related.iter().filter(|rule| rule.resource.kind() == *kind);
        rules.clone().find(|rule| rule.selector.is_none()).or_else(|| rules.next())
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

/// A selector that is the same for every primary is the API server's to match, so that what it leaves out never enters
/// the cache.
fn related_query(rule: &Related) -> Query {
    let query = Query::new(rule.resource.clone()).projected(rule.projection.clone());
    match &rule.selector {
        Some(selector) if !selector.contains("$(") => query.labelled(selector),
        _ => query,
    }
}

/// Only what carries the plugin's label: foreign objects never enter the cache.
fn child_query(child: &Child, plugin: &PluginName) -> Query {
    Query::new(child.resource.clone())
        .projected(child.projection.clone())
        .labelled(&format!("{MANAGED_LABEL}={plugin}"))
        .managed_by(&plugin.field_manager())
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
