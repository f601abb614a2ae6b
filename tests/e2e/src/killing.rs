//! The host killed, or cut off from its API server, at random instants while it works: nothing is lost, and nothing is
//! made twice.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use kube::{
    ResourceExt,
    core::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};
use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{DEADLINE, Kind, POD_DISRUPTION_BUDGET, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, World};

/// Latest instant of a fault after the start of its round. A host is ready within 200 ms and done with a batch of clusters within
/// 500 ms, so that kills fall into everything that it does.
const LIFE_MAX_MS: u64 = 700;
/// The shortest that `--resync` takes.
const RESYNC: Duration = Duration::from_secs(10);
/// Children of each cluster, by kind, as endings of its name.
const CHILDREN: [(Kind, &[&str]); 4] = [
    (STATEFUL_SET, &[""]),
    (SERVICE, &["", "-ro", "-rw"]),
    (SECRET, &["-app"]),
    (POD_DISRUPTION_BUDGET, &[""]),
];

/// Kills the host this many times while so many PostgresClusters are created, and starts it again each time. Then all
/// clusters become ready with exactly their children, no Secret has changed since it was first seen, and the host
/// writes nothing more. Returns how many of the kills left a cluster half made.
///
/// # Panics
/// If any of that does not hold.
pub async fn killed_while_creating(world: &World, kills: usize, clusters: usize) -> usize {
    let seen = SecretsSeen::watch(world);
    let options = HostOptions { resync: Some(RESYNC), ..world.options() };
    let host = Host::start(options).await.unwrap();
    let names = names(clusters);
    let (mut lives, mut amid_work) = (Vec::new(), 0);
    for round in 0..kills {
        let batch = batch(&names, round, kills);
        let life = random_instant();
        lives.push(life);
        let end = Instant::now() + life;
        let create = join_all(batch.iter().map(|name| world.cluster(name, 1)));
        let live = async {
            // It may be killed before it is ready: that too is an instant.
            let _ = timeout_at(end, host.restart()).await;
            sleep_until(end).await;
        };
        tokio::join!(create, live);
        host.kill_9().unwrap();
        let begun = world.list(POSTGRES_CLUSTER).await.len();
        amid_work += usize::from(world.list(POD_DISRUPTION_BUDGET).await.len() < begun);
    }
    eprintln!("killed after {lives:?}, {amid_work} times amid work");
    host.restart().await.unwrap();

    are_complete(world, &names, &seen).await;
    is_at_rest(world, &host, clusters).await;
    amid_work
}

/// Ends the API server this many times while so many PostgresClusters are created, and starts it again each time; the
/// host goes on by itself. It comes to the same as in [`killed_while_creating`].
///
/// # Panics
/// If it does not.
pub async fn cut_off_while_creating(world: &World, outages: usize, clusters: usize) {
    let seen = SecretsSeen::watch(world);
    let host = Host::start(HostOptions { resync: Some(RESYNC), ..world.options() }).await.unwrap();
    let process = host.process();
    let names = names(clusters);
    let mut instants = Vec::new();
    for round in 0..outages {
        let instant = random_instant();
        instants.push(instant);
        let end = Instant::now() + instant;
        join_all(batch(&names, round, outages).iter().map(|name| world.cluster(name, 1))).await;
        sleep_until(end).await;
        world.plane.stop_api_server().unwrap();
        world.plane.start_api_server().await.unwrap();
    }
    eprintln!("cut off after {instants:?}");
    are_complete(world, &names, &seen).await;
    assert_eq!(host.process(), process, "the host was restarted");
    is_at_rest(world, &host, clusters).await;
}

fn names(clusters: usize) -> Vec<String> {
    (0..clusters).map(|at| format!("pg-{at}")).collect()
}

/// The clusters of one round.
fn batch(names: &[String], round: usize, rounds: usize) -> &[String] {
    &names[round * names.len() / rounds..(round + 1) * names.len() / rounds]
}

fn random_instant() -> Duration {
    Duration::from_millis(RandomState::new().hash_one(0) % LIFE_MAX_MS)
}

/// All clusters become ready, with exactly their children and the Secrets that they had from the beginning.
async fn are_complete(world: &World, names: &[String], seen: &SecretsSeen) {
    for name in names {
        world.ready(POSTGRES_CLUSTER, name).await;
    }
    for (kind, endings) in CHILDREN {
        let expected: BTreeSet<String> =
            names.iter().flat_map(|name| endings.iter().map(move |end| format!("{name}{end}"))).collect();
        let children = world.list(kind).await;
        let there: Vec<&str> =
            children.iter().map(|child| child["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(
            there.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(),
            expected,
            "{}",
            kind.1
        );
        assert_eq!(there.len(), expected.len(), "{}", kind.1);
    }
    seen.assert_unchanged(&names.iter().map(|name| format!("{name}-app")).collect());
}

/// Two passes over every cluster, one of them at a resync, without a write.
async fn is_at_rest(world: &World, host: &Host, clusters: usize) {
    let mark = world.mark().await;
    host.restart().await.unwrap();
    let passes = f64::from(u32::try_from(2 * clusters).unwrap());
    eventually(DEADLINE, "two passes over each cluster", || async {
        let metrics = host.metrics().await?;
        let with = |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
        let done = with("success") + with("requeue_after");
        anyhow::ensure!(done >= passes, "{done} of {passes}");
        Ok(())
    })
    .await;
    // A host that was just started does not remember which differences are the API server's defaults: it may ask.
    let (asked, written): (Vec<_>, Vec<_>) =
        world.writes_since(mark).await.into_iter().partition(AuditEvent::is_dry_run);
    assert!(written.is_empty(), "written at rest: {written:#?}");
    eprintln!("asked by a dry run after a restart: {}", asked.len());
    assert!(asked.len() <= clusters, "asked more than once for each cluster: {asked:#?}");
}

/// Every state that a Secret of a namespace has been seen in.
struct SecretsSeen {
    states: Arc<Mutex<BTreeMap<String, Vec<Value>>>>,
    task: JoinHandle<()>,
}

impl SecretsSeen {
    fn watch(world: &World) -> Self {
        let states: Arc<Mutex<BTreeMap<String, Vec<Value>>>> = Arc::default();
        let book = Arc::clone(&states);
        let note = move |secret: &DynamicObject, state: Value| {
            let mut book = book.lock().unwrap();
            let states = book.entry(secret.name_any()).or_default();
            if states.last() != Some(&state) {
                states.push(state);
            }
        };
        let secrets = SECRET.api(&world.client, &world.namespace);
        let task = tokio::spawn(async move {
            let mut events = watcher(secrets, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(secret) | Event::InitApply(secret)) => {
                        let state = serde_json::json!([secret.metadata.uid, secret.data["data"]]);
                        note(&secret, state);
                    }
                    Ok(Event::Delete(secret)) => note(&secret, Value::Null),
                    // The watcher begins again by itself.
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { states, task }
    }

    /// Each of these Secrets, and no other, was seen in one state only: one uid, one password, never deleted.
    fn assert_unchanged(&self, names: &BTreeSet<String>) {
        let states = self.states.lock().unwrap();
        let changed: HashMap<_, _> = states.iter().filter(|(_, states)| states.len() != 1).collect();
        assert!(changed.is_empty(), "changed: {changed:#?}");
        assert_eq!(&states.keys().cloned().collect::<BTreeSet<_>>(), names);
    }
}

impl Drop for SecretsSeen {
    fn drop(&mut self) {
        self.task.abort();
    }
}
