//! What an API server, or what stands before it, does wrong. A server before the real one answers in its place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use pilothouse_cluster::discovery::Discovered;
use pilothouse_cluster::store::Store;
use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_cluster::{Change, Cluster, ReadError};
use pilothouse_harness::{Answer, Asked, Audit, ControlPlane, FaultServer, Options, eventually};
use pilothouse_model::manifest::Projection;
use pilothouse_model::names::Key;
use serde_json::{Value, json};

use crate::SOON;
use crate::watch::{Heard, apply_as, config_map, config_maps, connect, connect_with, data, failing};

/// A watch of the ConfigMaps of a namespace of its own, through a server that breaks what it is told to.
struct World {
    server: FaultServer,
    admin: Cluster,
    cluster: Cluster,
    namespace: String,
    watches: Watches,
    heard: Heard,
}

impl World {
    async fn new(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let server = plane.fault_server().await?;
        let admin = connect(plane).await?;
        let cluster = connect_with(server.kubeconfig()).await?;
        let watches = Watches::new(cluster.clone());
        Ok(Self { server, admin, cluster, namespace: namespace.to_owned(), watches, heard: Heard::default() })
    }

    fn watch(&self) -> Subscription {
        let query = Query::new(config_maps()).in_namespace(&self.namespace).labelled("test=yes");
        self.watches.subscribe(query, self.heard.listener())
    }

    async fn put(&self, name: &str, value: &str) -> Result<u64> {
        let object = config_map(&self.namespace, name, value);
        Ok(apply_as(&self.admin, "test", &config_maps(), object).await?.meta().resource_version)
    }

    async fn arrives(&self, store: &Store, name: &str, value: &str) {
        let what = format!("{name} to be {value}");
        eventually(SOON, &what, || async { data(store, &self.namespace, name).as_deref() == Some(value) })
            .await;
    }

    /// Requests for ConfigMaps from the `from`th on.
    fn asked(&self, from: usize) -> Vec<Asked> {
        let asked = self.server.asked().split_off(from);
        asked.into_iter().filter(|asked| asked.uri.contains("/configmaps")).collect()
    }

    fn count(&self, counter: impl Fn(&pilothouse_cluster::watches::WatchCounters) -> &AtomicU64) -> u64 {
        counter(self.watches.counters()).load(Ordering::Relaxed)
    }
}

fn is_watch(asked: &Asked) -> bool {
    asked.is_watch_of("configmaps")
}

fn expired_event() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}})
}

/// kube#1042, apisix#7489.
#[tokio::test]
async fn gone_in_all_three_places_is_listed_again_with_a_growing_pause() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("gone").await?).await?;
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    world.put("a", "1").await?;
    world.arrives(watch.store(), "a", "1").await;

    // In the stream: a list, and on.
    let before = world.server.asked().len();
    assert_eq!(world.server.say(&expired_event(), is_watch), 1);
    eventually(SOON, "the list after it", || async { world.count(|all| &all.lists) == 2 }).await;
    assert!(world.asked(before)[0].has("sendInitialEvents=true"), "{:?}", world.asked(before));

    // At connect, four times in a row: never the old version again, and not at once.
    let (before, began) = (world.server.asked().len(), Instant::now());
    world.server.answer(4, Answer::status(410, "Expired"), is_watch);
    assert_eq!(world.server.break_off(is_watch), 1);
    world.put("b", "1").await?;
    world.arrives(watch.store(), "b", "1").await;
    let asked = world.asked(before);
    let watches: Vec<&Asked> = asked.iter().filter(|asked| is_watch(asked)).collect();
    assert_eq!(watches.len(), 5, "{asked:?}");
    assert!(watches[1..].iter().all(|asked| asked.has("resourceVersion=")), "{watches:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "125 to 250 ms, 250 to 500, 500 to 1000, 1 to 2 s");
    watch.synced(SOON).await.unwrap();
    assert_eq!(world.heard.of("a"), [Change::Changed], "what did not change is not told again");
    Ok(())
}

#[tokio::test]
async fn a_continue_token_that_expires_begins_the_list_anew() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("token-gone").await?).await?;
    // No streamed lists, and small answers: pages.
    world.server.answer(1, Answer::status(422, "Invalid"), |asked| asked.has("sendInitialEvents=true"));
    for n in 0..3 {
        world.put(&format!("c{n}"), "1").await?;
    }
    let first = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5", "continue": "next"},
                       "items": [{"metadata": {"name": "of-another-time", "namespace": world.namespace, "uid": "u", "resourceVersion": "4"}}]});
    world.server.answer(1, Answer::text(200, &first.to_string()), |asked| asked.is_list_of("configmaps"));
    world.server.answer(1, Answer::status(410, "Expired"), |asked| asked.has("continue=next"));
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    assert_eq!(watch.store().len(), 3, "nothing of the list that was not finished");
    assert_eq!((world.count(|all| &all.expired), world.count(|all| &all.lists)), (1, 1));

    // Another watch of the same API does not ask for a streamed list again.
    let before = world.server.asked().len();
    let other = world
        .watches
        .subscribe(Query::new(config_maps()).in_namespace(&world.namespace).labelled("a!=b"), |_| {});
    other.synced(SOON).await.unwrap();
    let asked = world.asked(before);
    assert!(
        asked[0].is_list_of("configmaps") && !asked.iter().any(|asked| asked.has("sendInitialEvents=true")),
        "{asked:?}"
    );
    Ok(())
}

/// As the API server's priority and fairness refuses: no Status, and the time in the head.
#[tokio::test]
async fn too_many_requests_are_repeated_when_the_head_says() -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(2);
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("throttled").await?).await?;
    let throttled =
        || Answer::text(429, "Too many requests, please try again later.\n").header("retry-after", "2");
    // Of the first list, of the question for the version after a break, and of the watch that goes on.
    world.server.answer(1, throttled(), |asked| asked.has("sendInitialEvents=true"));
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    world.server.answer(1, throttled(), |asked| asked.is_list_of("configmaps") && asked.has("limit=1"));
    world.server.answer(1, throttled(), |asked| is_watch(asked) && !asked.has("resourceVersion="));
    world.server.break_off(is_watch);
    world.put("a", "1").await?;
    world.arrives(watch.store(), "a", "1").await;
    let asked = world.asked(0);
    let throttled: Vec<usize> = (0..asked.len()).filter(|&at| asked[at].status == Some(429)).collect();
    assert_eq!(throttled.len(), 3, "{asked:?}");
    for at in throttled {
        let waited = asked[at + 1].at - asked[at].at;
        assert!(waited >= PAUSE, "{waited:?} after {:?}", asked[at]);
    }
    // Discovery hands it to whoever asks.
    let refusal = Answer::text(429, "busy").header("retry-after", "3");
    world.server.answer(1, refusal, |asked| asked.uri == "/api/v1");
    let error = world.cluster.discover(&config_maps()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    Ok(())
}

#[tokio::test]
async fn after_a_break_the_watch_goes_on_from_the_last_bookmark() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("bookmark").await?).await?;
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    // Of an object that this watch does not select: its own version stays behind.
    let mut other = config_map(&world.namespace, "other", "1");
    other["metadata"]["labels"] = json!({});
    let version =
        apply_as(&world.admin, "test", &config_maps(), other).await?.meta().resource_version.to_string();
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
                          "metadata": {"resourceVersion": version}}});
    assert_eq!(world.server.say(&bookmark, is_watch), 1);
    let before = world.server.asked().len();
    assert_eq!(world.server.end(is_watch), 1);
    world.put("a", "1").await?;
    world.arrives(watch.store(), "a", "1").await;
    let asked = world.asked(before);
    let watches: Vec<&Asked> = asked.iter().filter(|asked| is_watch(asked)).collect();
    assert!(watches[0].has(&format!("resourceVersion={version}")), "{watches:?}");
    assert_eq!((watches.len(), world.count(|all| &all.lists)), (1, 1), "no list was needed");
    Ok(())
}

#[tokio::test]
async fn credentials_refused_in_between_and_a_server_in_trouble_heal_by_themselves() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("trouble").await?).await?;
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    for (answer, reason, value) in [
        (Answer::status(401, "Unauthorized"), "Unauthorized", "1"),
        (Answer::status(500, "InternalError"), "Refused", "2"),
        (Answer::text(503, "<html>no backend</html>"), "Refused", "3"),
    ] {
        world.server.answer(2, answer, is_watch);
        assert_eq!(world.server.break_off(is_watch), 1);
        eventually(SOON, reason, || async { failing(&watch) == Some(reason) }).await;
        world.put("a", value).await?;
        world.arrives(watch.store(), "a", value).await;
        watch.synced(SOON).await.unwrap();
    }
    assert_eq!(world.count(|all| &all.lists), 1, "it goes on where it was");
    Ok(())
}

/// A list for a plugin is bounded while it is read, and says what to do.
#[tokio::test]
async fn a_list_of_large_objects_is_read_in_pages_that_fit() -> Result<()> {
    const EACH: usize = 700 << 10;
    let plane = ControlPlane::shared().await;
    let world = World::new(plane, &plane.namespace("large").await?).await?;
    let value = "x".repeat(EACH);
    for n in 0..40 {
        world.put(&format!("l{n:02}"), &value).await?;
    }
    let query = Query::new(config_maps()).in_namespace(&world.namespace).labelled("test=yes");
    let before = world.server.asked().len();
    let all = world.cluster.list(&query, 1_000, 1 << 30).await?;
    assert!(all.complete && all.objects.len() == 40);
    let asked = world.asked(before);
    assert!(
        asked.iter().any(|asked| asked.has("limit=50") || asked.has("limit=25") || asked.has("limit=12")),
        "{asked:?}"
    );
    let few = world.cluster.list(&query, 3, 1 << 30).await?;
    assert!(!few.complete && few.objects.len() == 3);
    let refused = world.cluster.list(&query, 1_000, 4 << 20).await.unwrap_err();
    assert_eq!(refused, ReadError::TooLarge { bytes_max: 4 << 20 });
    let names = query.metadata_only();
    assert_eq!(world.cluster.list(&names, 1_000, 4 << 20).await?.objects.len(), 40, "metadata fits");
    Ok(())
}

/// kubevirt#2210.
#[tokio::test]
async fn an_aggregated_api_that_is_down_does_not_matter_to_the_others() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("aggregated").await?;
    let services = crate::watch::cluster_scoped("apiregistration.k8s.io", "APIService", "apiservices");
    let broken = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.down.example.com"},
        "spec": {"group": "down.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
                 "insecureSkipTLSVerify": true, "service": {"namespace": namespace, "name": "nobody"}}});
    apply_as(&cluster, "test", &services, broken).await?;
    let down = crate::watch::resource("down.example.com", "Thing", "things");
    // It is there and does not answer, which is not the same as not being there.
    eventually(SOON, "the API to be down", || async {
        matches!(cluster.discover(&down).await, Err(ReadError::Refused { code: 503, .. }))
    })
    .await;
    assert!(matches!(cluster.discover(&config_maps()).await?, Discovered::Present(_)));
    let watches = Watches::new(cluster.clone());
    let good = watches.subscribe(Query::new(config_maps()).in_namespace(&namespace), |_| {});
    let bad = watches.subscribe(Query::new(down.clone()).in_namespace(&namespace), |_| {});
    good.synced(SOON).await.unwrap();
    eventually(SOON, "its watch to say so", || async { failing(&bad) == Some("Refused") }).await;
    let WatchState::Failing { reason, .. } = bad.state().borrow().clone() else { panic!("not failing") };
    assert!(reason.to_string().contains("503"), "{reason}");
    apply_as(&cluster, "test", &config_maps(), config_map(&namespace, "a", "1")).await?;
    eventually(SOON, "an object of the others", || async { data(good.store(), &namespace, "a").is_some() })
        .await;

    let key = Key::cluster("v1.down.example.com");
    let service = cluster.get(&services, &key, &Projection::Full).await?.unwrap();
    crate::watch::delete(&cluster, &services, &service).await?;
    eventually(SOON, "it to be gone", || async {
        matches!(cluster.discover(&down).await, Ok(Discovered::Absent(_)))
    })
    .await;
    Ok(())
}

/// etcd was restored from a backup: versions go back, and a watch from a version that lies ahead says nothing.
#[tokio::test]
async fn an_api_server_that_is_set_back_is_listed_again() -> Result<()> {
    let options = Options { controller_manager: false, audit: Audit::Off, ..Options::default() };
    let plane = ControlPlane::start(options).await?;
    let world = World::new(&plane, "default").await?;
    let watch = world.watch();
    watch.synced(SOON).await.unwrap();
    world.put("kept", "old").await?;
    world.arrives(watch.store(), "kept", "old").await;
    plane.back_up()?;
    for n in 0..200 {
        world.put("kept", &format!("new-{n}")).await?;
    }
    world.put("lost", "1").await?;
    world.arrives(watch.store(), "lost", "1").await;
    plane.restore().await?;
    eventually(SOON, "the older state", || async {
        data(watch.store(), "default", "kept").as_deref() == Some("old") && watch.store().len() == 1
    })
    .await;
    watch.synced(SOON).await.unwrap();
    // What is written now has a lower version than what was seen.
    let version = world.put("kept", "after").await?;
    world.arrives(watch.store(), "kept", "after").await;
    let held = watch.store().get(&Key::namespaced("default", "kept")).unwrap();
    assert_eq!(held.meta().resource_version, version);
    let told = world.heard.of("kept");
    let last = &told[told.len() - 3..];
    assert_eq!(
        last,
        [Change::Deleted, Change::Changed, Change::Changed],
        "nobody holds on to a version that never was"
    );
    Ok(())
}
