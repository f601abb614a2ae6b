//! Watches. Each test is named for what broke elsewhere.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use pilothouse_cluster::store::Store;
use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_cluster::write::{AlwaysOpen, Conflicts, Endpoint, Mode, Writer};
use pilothouse_cluster::{Change, Cluster, Delta, ReadError};
use pilothouse_harness::{Audit, ControlPlane, Options, eventually};
use pilothouse_model::manifest::{Projection, Resource, Scope};
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::line::Line;
use crate::{SOON, options};

/// Of a connection that died silently: 20 s to notice, and the backoff.
const DEATH_NOTICED: Duration = Duration::from_mins(1);

pub(crate) fn resource(group: &str, kind: &str, plural: &str) -> Resource {
    let (group, version) = (group.to_owned(), "v1".to_owned());
    Resource { group, version, kind: kind.to_owned(), plural: plural.to_owned(), scope: Scope::Namespaced }
}

pub(crate) fn cluster_scoped(group: &str, kind: &str, plural: &str) -> Resource {
    Resource { scope: Scope::Cluster, ..resource(group, kind, plural) }
}

pub(crate) async fn delete(cluster: &Cluster, resource: &Resource, live: &Object) -> Result<()> {
    let at = Endpoint::of_object(resource, live);
    let propagation = pilothouse_model::plan::Propagation::Background;
    writer(cluster).delete(&at, &live.meta().uid, propagation, None).await?;
    Ok(())
}

pub(crate) fn config_maps() -> Resource {
    resource("", "ConfigMap", "configmaps")
}

pub(crate) async fn connect(plane: &ControlPlane) -> Result<Cluster> {
    connect_with(plane.kubeconfig()).await
}

pub(crate) async fn connect_with(kubeconfig: &std::path::Path) -> Result<Cluster> {
    Ok(Cluster::connect(&options(kubeconfig)).await?)
}

pub(crate) fn writer(cluster: &Cluster) -> Writer {
    Writer::new(cluster.writer().clone(), "test", Arc::new(AlwaysOpen))
}

async fn apply(cluster: &Cluster, resource: &Resource, object: Value) -> Result<Object> {
    apply_as(cluster, "test", resource, object).await
}

pub(crate) async fn apply_as(
    cluster: &Cluster,
    manager: &str,
    resource: &Resource,
    object: Value,
) -> Result<Object> {
    let target = Object::from_value(&object)?;
    let at = Endpoint::of_object(resource, &target);
    Ok(writer(cluster).with_manager(manager).apply(&at, &object, Conflicts::Force, Mode::Store).await?)
}

pub(crate) fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"namespace": namespace, "name": name, "labels": {"test": "yes"}}, "data": {"key": value}})
}

/// What a listener heard.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Delta>>>);

impl Heard {
    pub(crate) fn listener(&self) -> impl Fn(&Delta) + Send + Sync + 'static {
        let heard = Arc::clone(&self.0);
        move |delta| heard.lock().unwrap().push(delta.clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    pub(crate) fn of(&self, name: &str) -> Vec<Change> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|delta| &*delta.key.name == name)
            .map(|delta| delta.change)
            .collect()
    }
}

pub(crate) fn failing(subscription: &Subscription) -> Option<&'static str> {
    match &*subscription.state().borrow() {
        WatchState::Failing { reason, .. } => Some(reason.reason()),
        _ => None,
    }
}

pub(crate) fn data(store: &Store, namespace: &str, name: &str) -> Option<String> {
    let object = store.get(&Key::namespaced(namespace, name))?;
    Some(object.field("data")["key"].as_str()?.to_owned())
}

#[tokio::test]
async fn objects_arrive_whole_or_as_metadata_and_own_answers_at_once() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("arrive").await?;
    apply(&cluster, &config_maps(), config_map(&namespace, "before", "1")).await?;
    let watches = Watches::new(cluster.clone());
    let query = Query::new(config_maps()).in_namespace(&namespace).labelled("test=yes");
    let heard = Heard::default();
    let whole = watches.subscribe(query.clone(), heard.listener());
    let bare = watches.subscribe(query.metadata_only(), |_| {});
    whole.synced(SOON).await.unwrap();
    bare.synced(SOON).await.unwrap();
    assert_eq!(heard.of("before"), [Change::Initial]);
    assert_eq!(data(whole.store(), &namespace, "before").as_deref(), Some("1"));
    let key = Key::namespaced(&namespace, "before");
    let metadata = bare.store().get(&key).unwrap();
    assert_eq!((metadata.field("data"), metadata.kind().kind.as_str()), (Value::Null, "ConfigMap"));

    let answer = apply(&cluster, &config_maps(), config_map(&namespace, "ours", "1")).await?;
    whole.store().upsert_response(answer);
    assert_eq!(
        data(whole.store(), &namespace, "ours").as_deref(),
        Some("1"),
        "no need to wait for its event"
    );
    apply(&cluster, &config_maps(), config_map(&namespace, "ours", "2")).await?;
    eventually(SOON, "the change of the other", || async {
        data(whole.store(), &namespace, "ours").as_deref() == Some("2")
    })
    .await;
    assert_eq!(heard.of("ours"), [Change::Changed, Change::Changed], "the event of our own write is quiet");
    assert_eq!(watches.status().len(), 2);
    let gets: u64 =
        cluster.request_counts().snapshot().iter().filter(|(verb, ..)| *verb == "GET").map(|of| of.2).sum();
    assert_eq!(gets, 1, "the question for the version: lists were streamed");
    Ok(())
}

#[tokio::test]
async fn a_kind_that_comes_later_goes_and_comes_back_is_watched_again() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("crd").await?;
    let webs = resource("watch.example.com", "Web", "webs");
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.watch.example.com"},
        "spec": {"group": "watch.example.com", "scope": "Namespaced",
                 "names": {"kind": "Web", "plural": "webs", "singular": "web", "listKind": "WebList"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}
    });
    let web = |name: &str, spec: Value| {
        json!({"apiVersion": "watch.example.com/v1", "kind": "Web",
               "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    };
    let watches = Watches::new(cluster.clone());
    let subscription = watches.subscribe(Query::new(webs.clone()).in_namespace(&namespace), |_| {});
    eventually(SOON, "the state Missing", || async { failing(&subscription) == Some("Missing") }).await;
    // Absent is a state to wait in, told with what is there.
    let discovered = format!("{:?}", cluster.discover(&webs).await?);
    assert!(discovered.contains("has no group `watch.example.com`"), "{discovered}");

    pilothouse_cluster::crd::apply_crds(&writer(&cluster), std::slice::from_ref(&crd)).await?;
    watches.retry();
    subscription.synced(SOON).await.unwrap();
    let discovered = format!("{:?}", cluster.discover(&webs).await?);
    assert!(discovered.starts_with("Present") && !discovered.contains("status"), "{discovered}");

    // Some with the wrong type where others have the right one.
    for n in 0..20 {
        let spec = if n == 7 { json!("not an object") } else { json!({"size": n}) };
        apply(&cluster, &webs, web(&format!("w{n}"), spec)).await?;
    }
    eventually(SOON, "all of them", || async { subscription.store().len() == 20 }).await;
    let malformed = subscription.store().get(&Key::namespaced(&namespace, "w7")).unwrap();
    assert_eq!(malformed.field("spec"), "not an object");

    // Applied again it is left alone.
    let version = |object: Option<Object>| object.map(|object| object.meta().resource_version);
    let crds = Resource {
        scope: Scope::Cluster,
        ..resource("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
    };
    let key = Key::cluster("webs.watch.example.com");
    let before = version(cluster.get(&crds, &key, &Projection::Full).await?);
    let patches = |cluster: &Cluster| -> u64 {
        let counts = cluster.request_counts().snapshot();
        counts.iter().filter(|(verb, ..)| *verb == "PATCH").map(|(_, _, count)| count).sum()
    };
    let patched = patches(&cluster);
    pilothouse_cluster::crd::apply_crds(&writer(&cluster), std::slice::from_ref(&crd)).await?;
    assert_eq!(
        (before, patched),
        (version(cluster.get(&crds, &key, &Projection::Full).await?), patches(&cluster))
    );

    let live = cluster.get(&crds, &key, &Projection::Full).await?.unwrap();
    let at = Endpoint::of_object(&crds, &live);
    let propagation = pilothouse_model::plan::Propagation::Background;
    writer(&cluster).delete(&at, &live.meta().uid, propagation, None).await?;
    eventually(SOON, "the kind to go", || async { failing(&subscription) == Some("Missing") }).await;
    assert!(subscription.store().is_empty(), "the API server deletes the objects first and says so");
    pilothouse_cluster::crd::apply_crds(&writer(&cluster), &[crd]).await?;
    apply(&cluster, &webs, web("again", json!({}))).await?;
    // Without being told: within the pace of a missing kind.
    eventually(SOON, "the new one", || async { subscription.store().len() == 1 }).await;
    assert_eq!(failing(&subscription), None);
    Ok(())
}

#[tokio::test]
async fn missing_rbac_is_said_and_heals_when_granted() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    let namespace = plane.namespace("rbac").await?;
    let kubeconfig = plane.kubeconfig_for_user("watch-rbac", None)?;
    let cluster = connect_with(&kubeconfig).await?;
    let watches = Watches::new(cluster);
    let query = Query::new(config_maps()).in_namespace(&namespace);
    let subscription = watches.subscribe(query, |_| {});
    eventually(SOON, "the state Forbidden", || async { failing(&subscription) == Some("Forbidden") }).await;
    let WatchState::Failing { reason: ReadError::Forbidden(text), .. } =
        subscription.state().borrow().clone()
    else {
        panic!("not forbidden")
    };
    assert!(text.contains("watch-rbac") && text.contains("configmaps"), "{text}");

    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": namespace, "name": "watch"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": "watch"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "watch"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "watch-rbac"}]});
    apply(&admin, &resource(rbac, "Role", "roles"), role).await?;
    apply(&admin, &resource(rbac, "RoleBinding", "rolebindings"), binding).await?;
    subscription.synced(Duration::from_mins(1)).await.unwrap();
    Ok(())
}

#[tokio::test]
async fn a_thousand_users_come_and_go_and_leave_nothing() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("churn").await?;
    let watches = Watches::new(cluster.clone());
    let query =
        |n: usize| Query::new(config_maps()).in_namespace(&namespace).labelled(&format!("test!=no-{n}"));
    let rss = || {
        std::fs::read_to_string("/proc/self/statm")
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let mut at_hundred = 0.0;
    for n in 0..1_000 {
        let first = watches.subscribe(query(n % 3), |_| {});
        let second = watches.subscribe(query(n % 3), |_| {});
        // Some before they were in sync, some after.
        if n % 10 == 0 {
            first.synced(SOON).await.unwrap();
            assert!(Arc::ptr_eq(first.store(), second.store()), "equal queries share a watch");
        }
        if n == 100 {
            at_hundred = rss();
        }
    }
    assert_eq!(watches.status().len(), 0);
    eventually(SOON, "the tasks to end", || async { watches.tasks() == 0 }).await;
    let grown = rss() / at_hundred;
    assert!(grown < 1.10, "resident memory grew to {grown:.2} times");
    // And events arrive afterwards.
    let heard = Heard::default();
    let subscription = watches.subscribe(query(0), heard.listener());
    subscription.synced(SOON).await.unwrap();
    apply(&cluster, &config_maps(), config_map(&namespace, "after", "1")).await?;
    eventually(SOON, "an event", || async { heard.of("after") == [Change::Changed] }).await;
    Ok(())
}

#[tokio::test]
async fn more_watches_than_one_connection_takes() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("many").await?;
    let watches = Watches::new(cluster.clone());
    let heard = Arc::new(AtomicUsize::new(0));
    let subscriptions: Vec<_> = (0..150)
        .map(|n| {
            let query = Query::new(config_maps()).in_namespace(&namespace).labelled(&format!("test!=no-{n}"));
            let heard = Arc::clone(&heard);
            watches.subscribe(query, move |delta| {
                heard.fetch_add(usize::from(&*delta.key.name == "one"), Ordering::Relaxed);
            })
        })
        .collect();
    for subscription in &subscriptions {
        subscription.synced(SOON).await.unwrap();
    }
    apply(&cluster, &config_maps(), config_map(&namespace, "one", "1")).await?;
    eventually(SOON, "all to hear of it", || async { heard.load(Ordering::Relaxed) == 150 }).await;
    Ok(())
}

#[tokio::test]
async fn a_connection_that_dies_silently_is_noticed_and_replaced() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    let namespace = plane.namespace("silent").await?;
    let line = Line::to(plane.url()).await?;
    let cluster = connect_with(&line.kubeconfig(plane.kubeconfig())?).await?;
    let watches = Watches::new(cluster);
    let subscription = watches.subscribe(Query::new(config_maps()).in_namespace(&namespace), |_| {});
    subscription.synced(SOON).await.unwrap();
    let errors = watches.counters().errors.load(Ordering::Relaxed);

    // From now on the connections that exist carry nothing, and nobody says so. New ones work.
    line.silence();
    apply(&admin, &config_maps(), config_map(&namespace, "unheard", "1")).await?;
    eventually(DEATH_NOTICED, "the change that nobody sent", || async {
        data(subscription.store(), &namespace, "unheard").is_some()
    })
    .await;
    assert!(watches.counters().errors.load(Ordering::Relaxed) > errors, "it is counted");

    line.reset();
    apply(&admin, &config_maps(), config_map(&namespace, "reset", "1")).await?;
    eventually(SOON, "the change after a reset", || async {
        data(subscription.store(), &namespace, "reset").is_some()
    })
    .await;
    assert_eq!(watches.counters().expired.load(Ordering::Relaxed), 0, "it goes on where it was");
    assert_eq!(watches.counters().lists.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test]
async fn an_expired_version_is_not_asked_for_again_and_again() -> Result<()> {
    // Without its watch cache the API server forgets what etcd forgets, here after two seconds.
    let flags = ["--etcd-compaction-interval=2s", "--watch-cache=false", "--feature-gates=WatchList=false"];
    let api_server_flags = flags.map(str::to_owned).to_vec();
    let options =
        Options { controller_manager: false, audit: Audit::All, api_server_flags, ..Options::default() };
    let plane = ControlPlane::start(options).await?;
    let admin = connect(&plane).await?;
    let namespace = "default";
    let line = Line::to(plane.url()).await?;
    let cluster = connect_with(&line.kubeconfig(plane.kubeconfig())?).await?;
    let watches = Watches::new(cluster);
    let heard = Heard::default();
    let query = Query::new(config_maps()).in_namespace(namespace).labelled("test=yes");
    let subscription = watches.subscribe(query, heard.listener());
    subscription.synced(SOON).await.unwrap();
    let kind = config_maps();
    // More than a page of others: this API server does not stream lists.
    futures::stream::iter(0..600)
        .map(|n| {
            let mut other = config_map(namespace, &format!("other-{n}"), "1");
            other["metadata"]["labels"] = json!({"test": "pages"});
            apply(&admin, &kind, other)
        })
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let others =
        watches.subscribe(Query::new(config_maps()).in_namespace(namespace).labelled("test=pages"), |_| {});
    others.synced(SOON).await.unwrap();
    assert_eq!(others.store().len(), 600);
    drop(others);
    apply(&admin, &config_maps(), config_map(namespace, "kept", "1")).await?;
    apply(&admin, &config_maps(), config_map(namespace, "dies", "1")).await?;
    eventually(SOON, "both", || async { subscription.store().len() == 2 }).await;

    line.cut();
    let dies = subscription.store().get(&Key::namespaced(namespace, "dies")).unwrap();
    let at = Endpoint::of_object(&config_maps(), &dies);
    let propagation = pilothouse_model::plan::Propagation::Background;
    writer(&admin).delete(&at, &dies.meta().uid, propagation, None).await?;
    apply(&admin, &config_maps(), config_map(namespace, "new", "1")).await?;
    let old = format!(
        "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion={}",
        dies.meta().resource_version
    );
    let client = plane.client().await?;
    eventually(SOON, "the version to expire", || async {
        let request = http::Request::get(&old).body(Vec::new()).unwrap();
        matches!(client.request_text(request).await, Err(kube::Error::Api(status)) if status.code == 410)
    })
    .await;
    line.mend();
    eventually(SOON, "the list after the expired version", || async {
        data(subscription.store(), namespace, "new").is_some()
    })
    .await;
    assert_eq!(subscription.store().len(), 2);
    assert_eq!(heard.of("dies"), [Change::Changed, Change::Deleted]);
    assert_eq!(heard.of("kept"), [Change::Changed], "what did not change is not told again");
    let gone = watches.counters().expired.load(Ordering::Relaxed);
    assert_eq!(gone, 1, "one refusal is enough");
    Ok(())
}
