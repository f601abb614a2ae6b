//! The host is killed, or asked to end, while it works. `make test-faults` has the longer version.

use std::time::{Duration, Instant};

use pilothouse_e2e::killing::killed_while_creating;

use crate::support::{POSTGRES_CLUSTER, World};

#[tokio::test(flavor = "multi_thread")]
async fn clusters_survive_a_host_that_is_killed_while_it_makes_them() {
    let world = World::deployed("kill").await;
    killed_while_creating(&world, 4, 12).await;
}

/// kubelet sends SIGTERM and gives a pod 30 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_asked_to_end_amid_work_ends_well_and_in_time() {
    const CLUSTERS: usize = 10;
    const DEADLINE: Duration = Duration::from_secs(25);
    let world = World::deployed("term").await;
    let host = world.host().await;
    for at in 0..CLUSTERS {
        world.cluster(&format!("pg-{at}"), 1).await;
    }
    let asked = Instant::now();
    assert_eq!(host.terminate().await.unwrap(), "exit status: 0", "{}", host.log());
    let took = asked.elapsed();
    assert!(took < DEADLINE, "it took {took:?}\n{}", host.log());
    assert!(!host.log().contains("cut short"), "{}", host.log());

    host.restart().await.unwrap();
    for at in 0..CLUSTERS {
        world.ready(POSTGRES_CLUSTER, &format!("pg-{at}")).await;
    }
}
