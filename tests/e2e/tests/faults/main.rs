//! The long fault tests, for `make test-faults`: what `tests/e2e/crash.rs` shows in a few rounds, in many.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilothouse_e2e::{World, killing::killed_while_creating};

/// Killed at twenty random instants while fifty clusters are being created.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_clusters_survive_twenty_kills() {
    let world = World::deployed("kills").await;
    let amid_work = killed_while_creating(&world, 20, 50).await;
    assert!(amid_work > 0, "no kill fell into the making of a cluster");
}
