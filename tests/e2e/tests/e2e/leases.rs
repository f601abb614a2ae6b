//! Several hosts: one writes, the others stand by, and the work goes on whatever becomes of the one.

use std::{collections::BTreeMap, time::Instant};

use pilothouse_e2e::duel::{duel, trespasses};
use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::support::{Account, DEADLINE, GREETING, LEASE, World, plugin};

async fn world(prefix: &str) -> World {
    World::granted(prefix, &[plugin("config-map")]).await
}

fn options(world: &World, account: &Account, name: &str, arguments: &[&str]) -> HostOptions {
    let mut options = HostOptions {
        kubeconfig: account.kubeconfig.clone(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        ..world.options()
    };
    options.environment.insert("POD_NAME".to_owned(), name.to_owned());
    options
}

async fn greet(world: &World, name: &str) {
    let object = json!({"apiVersion": GREETING.0, "kind": GREETING.1, "metadata": {"name": name}, "spec": {"text": "hello"}});
    world.create(GREETING, &object).await;
    world.ready(GREETING, name).await;
}

/// Waits until a Lease is held by a host of this name (none: by nobody), and returns its `spec`.
async fn held_by(world: &World, lease: &str, name: Option<&str>) -> Value {
    eventually(DEADLINE, &format!("Lease {lease} to be held by {name:?}"), || async {
        let lease = world.get(LEASE, lease).await.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let right = name.map_or(holder.is_empty(), |name| holder.starts_with(&format!("{name}_")));
        anyhow::ensure!(right, "its holder is {holder:?}");
        Ok(Some(lease["spec"].clone()))
    })
    .await
}

async fn stands_by(host: &Host, words: &str) {
    eventually(DEADLINE, &format!("/readyz to say {words:?}"), || async {
        let (status, body) = host.get("/readyz").await?;
        anyhow::ensure!(status == 200 && body.contains(words), "{status}: {body}");
        Ok(())
    })
    .await;
}

async fn master_status(host: &Host, lease: &str) -> Option<f64> {
    let series = format!("leader_election_master_status{{name=\"{lease}\"}}");
    host.metrics().await.unwrap().get(&series)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_ready_writes_nothing_and_takes_over_when_the_leader_ends() {
    let world = world("standby").await;
    let (a, b) = (world.account("a", 1).await, world.account("b", 1).await);
    let mark = world.mark().await;
    let first = Host::start(options(&world, &a, "host-a", &[])).await.unwrap();
    held_by(&world, "pilothouse", Some("host-a")).await;
    let second = Host::start(options(&world, &b, "host-b", &[])).await.unwrap();
    stands_by(&second, "stands by: Lease").await;
    stands_by(&second, "/pilothouse is held by host-a_").await;
    assert_eq!(first.get("/readyz").await.unwrap().1, "ok\n");
    assert_eq!(master_status(&first, "pilothouse").await, Some(1.0));
    assert_eq!(master_status(&second, "pilothouse").await, Some(0.0));

    greet(&world, "before").await;
    let table = world.kubectl("get lease pilothouse").await;
    assert!(table.contains("HOLDER") && table.contains("host-a_"), "{table}");
    // Its holder creates a Lease again that somebody deletes, and goes on.
    world.kubectl("delete lease pilothouse").await;
    held_by(&world, "pilothouse", Some("host-a")).await;
    greet(&world, "still").await;
    let written: Vec<_> = world
        .events_since(mark)
        .await
        .into_iter()
        .filter(|event| event.user == b.user && event.is_write())
        .collect();
    assert!(written.is_empty(), "a standby wrote: {written:#?}");

    let asked = Instant::now();
    let (status, lease) = tokio::join!(first.terminate(), async {
        let lease = held_by(&world, "pilothouse", Some("host-b")).await;
        eprintln!("taken over {:?} after SIGTERM", asked.elapsed());
        lease
    });
    assert_eq!(status.unwrap(), "exit status: 0", "{}", first.log());
    assert_eq!(
        (&lease["leaseTransitions"], &lease["leaseDurationSeconds"]),
        (&json!(1), &json!(15)),
        "{lease}"
    );
    greet(&world, "after").await;
    eprintln!("new work done {:?} after SIGTERM", asked.elapsed());
    assert_eq!(second.get("/readyz").await.unwrap().1, "ok\n");
    let events = world.events_since(mark).await;
    assert_eq!(trespasses(&events, &[&a.user, &b.user]), [""; 0]);

    second.terminate().await.unwrap();
    let lease = held_by(&world, "pilothouse", None).await;
    assert_eq!(lease["leaseDurationSeconds"], 1, "{lease}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hangs_is_replaced_and_stands_by_when_it_comes_back() {
    let world = world("hangs").await;
    let (a, b) = (world.account("a", 1).await, world.account("b", 1).await);
    let mark = world.mark().await;
    let first = Host::start(options(&world, &a, "host-a", &[])).await.unwrap();
    let second = Host::start(options(&world, &b, "host-b", &[])).await.unwrap();
    held_by(&world, "pilothouse", Some("host-a")).await;
    greet(&world, "before").await;
    first.pause().unwrap();
    let paused = Instant::now();
    held_by(&world, "pilothouse", Some("host-b")).await;
    eprintln!("taken over {:?} after SIGSTOP", paused.elapsed());
    greet(&world, "meanwhile").await;
    first.resume().unwrap();
    stands_by(&first, "is held by host-b_").await;
    greet(&world, "after").await;
    assert_eq!(master_status(&second, "pilothouse").await, Some(1.0));
    let events = world.events_since(mark).await;
    assert_eq!(trespasses(&events, &[&a.user, &b.user]), [""; 0]);
}

/// With a Lease of an hour, whoever waited for its end would wait for longer than the test.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_and_started_again_knows_that_it_is_dead() {
    let world = world("killed").await;
    let account = world.account("a", 1).await;
    let hour = ["--lease-duration", "3600", "--lease-renew-deadline", "100"];
    let host = Host::start(options(&world, &account, "host-a", &hour)).await.unwrap();
    greet(&world, "before").await;
    let before = held_by(&world, "pilothouse", Some("host-a")).await;
    host.restart().await.unwrap();
    greet(&world, "after").await;
    let after = held_by(&world, "pilothouse", Some("host-a")).await;
    assert_ne!(before["holderIdentity"], after["holderIdentity"]);
    assert_eq!(after["leaseTransitions"], 1, "{after}");
}

/// How many of the four shards each host has; waits until the shares are these.
async fn shares(world: &World, wanted: &[(&str, usize)]) {
    eventually(DEADLINE, &format!("shards to be shared as {wanted:?}"), || async {
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        for shard in 0..4 {
            let lease = world.get(LEASE, &format!("pilothouse-{shard}")).await.unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            *shares.entry(holder.split('_').next().unwrap().to_owned()).or_default() += 1;
        }
        let wanted: BTreeMap<String, usize> =
            wanted.iter().map(|(host, share)| ((*host).to_owned(), *share)).collect();
        let (mut there, mut due): (Vec<_>, Vec<_>) = (shares.values().collect(), wanted.values().collect());
        there.sort_unstable();
        due.sort_unstable();
        anyhow::ensure!(shares.keys().eq(wanted.keys()) && there == due, "{shares:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_shared_by_the_hosts_that_are_there() {
    let world = world("shards").await;
    let account = world.account("a", 4).await;
    let host = |name| Host::start(options(&world, &account, name, &["--shards", "4"]));
    let first = host("host-a").await.unwrap();
    shares(&world, &[("host-a", 4)]).await;
    let group = world.get(LEASE, "pilothouse").await.unwrap();
    assert_eq!(group["spec"]["holderIdentity"], "4 shards");
    let second = host("host-b").await.unwrap();
    shares(&world, &[("host-a", 2), ("host-b", 2)]).await;
    greet(&world, "two").await;
    let third = host("host-c").await.unwrap();
    shares(&world, &[("host-a", 1), ("host-b", 1), ("host-c", 2)]).await;
    greet(&world, "three").await;
    stands_by(&second, "shares: Lease").await;

    first.terminate().await.unwrap();
    shares(&world, &[("host-b", 2), ("host-c", 2)]).await;
    greet(&world, "after-an-end").await;
    third.kill_9().unwrap();
    shares(&world, &[("host-b", 4)]).await;
    greet(&world, "after-a-death").await;
    let sum = second.metrics().await.unwrap().sum("leader_election_master_status", &[]);
    assert!((sum - 4.0).abs() < 0.1, "{sum}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_another_number_of_shards_waits_until_the_others_have_ended() {
    let world = world("disagree").await;
    let (a, b) = (world.account("a", 1).await, world.account("b", 2).await);
    let mark = world.mark().await;
    let first = Host::start(options(&world, &a, "host-a", &[])).await.unwrap();
    held_by(&world, "pilothouse", Some("host-a")).await;
    let second = Host::start(options(&world, &b, "host-b", &["--shards", "2"])).await.unwrap();
    stands_by(&second, "with another number of shards than --shards 2 of this host").await;
    greet(&world, "before").await;
    let written: Vec<_> = world
        .events_since(mark)
        .await
        .into_iter()
        .filter(|event| event.user == b.user && event.is_write())
        .collect();
    assert!(written.is_empty(), "{written:#?}");
    first.terminate().await.unwrap();
    for shard in ["pilothouse-0", "pilothouse-1"] {
        held_by(&world, shard, Some("host-b")).await;
    }
    greet(&world, "after").await;
    assert_eq!(second.get("/readyz").await.unwrap().1, "ok\n");

    // And the other way round.
    let third = Host::start(options(&world, &a, "host-c", &[])).await.unwrap();
    stands_by(&third, "is held by `2 shards`, with another number of shards than --shards 1").await;
}

/// `make test-faults` has fifty.
#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_and_a_network_that_fails_five_times_never_write_at_the_same_time() {
    let world = world("duel").await;
    let outcome = duel(&world, 5).await;
    assert!(outcome.takeovers > 0, "no fault was long enough: {outcome:?}");
}
