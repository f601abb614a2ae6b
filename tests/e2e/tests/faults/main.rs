//! The long tests, for `make test-faults`: what `tests/e2e` shows in a few rounds and small numbers, in many and large
//! ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod numbers;

use pilothouse_e2e::{
    World,
    duel::duel,
    killing::{cut_off_while_creating, killed_while_creating},
    plugin,
};
use tokio::sync::Mutex;

/// The control plane is shared, and one test ends its API server.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Killed at twenty random instants while fifty clusters are being created.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_clusters_survive_twenty_kills() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let world = World::deployed("kills").await;
    let amid_work = killed_while_creating(&world, 20, 50).await;
    assert!(amid_work > 0, "no kill fell into the making of a cluster");
}

/// Without its API server at ten random instants while fifty clusters are being created.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_clusters_survive_ten_outages() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let world = World::deployed("outages").await;
    cut_off_while_creating(&world, 10, 50).await;
}

/// Two hosts, and fifty times something between the one that leads and the API server breaks, or the host itself hangs.
#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_never_write_at_the_same_time_whatever_fails_fifty_times() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let world = World::granted("duel", &[plugin("config-map")]).await;
    let outcome = duel(&world, 50).await;
    assert!(outcome.takeovers >= 10, "few faults were long enough: {outcome:?}");
}
