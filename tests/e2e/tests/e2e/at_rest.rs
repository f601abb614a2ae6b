//! At rest the host writes nothing, whatever it looks at again.

use std::time::Duration;

use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::json;

use crate::support::{DEADLINE, GREETING, Kind, POSTGRES_CLUSTER, World, plugin};

const CLUSTERS: usize = 20;
const GREETINGS: usize = 20;
/// The shortest that `--resync` takes.
const RESYNC: Duration = Duration::from_secs(10);

async fn passes(host: &Host, controller: &str) -> anyhow::Result<f64> {
    Ok(host.metrics().await?.sum("controller_runtime_reconcile_total", &[("controller", controller)]))
}

/// Waits until every key of both controllers was looked at twice more: keys come round robin.
async fn two_resyncs(host: &Host) {
    let controllers = [
        ("postgres-cluster/PostgresCluster.db.example.com", CLUSTERS),
        ("config-map/Greeting.example.com", GREETINGS),
    ];
    let mut wanted = Vec::new();
    for (controller, keys) in controllers {
        let before = passes(host, controller).await.unwrap();
        wanted.push((controller, before + f64::from(u32::try_from(2 * keys).unwrap())));
    }
    for (controller, wanted) in wanted {
        eventually(DEADLINE, &format!("two resyncs of {controller}"), || async {
            let now = passes(host, controller).await?;
            anyhow::ensure!(now >= wanted, "{now} passes of {wanted}");
            Ok(true)
        })
        .await;
    }
}

async fn all_ready(world: &World) {
    for at in 0..CLUSTERS {
        world.ready(POSTGRES_CLUSTER, &format!("db-{at}")).await;
    }
    for at in 0..GREETINGS {
        world.ready(GREETING, &format!("hello-{at}")).await;
    }
}

#[tokio::test]
async fn two_full_resyncs_and_a_restart_write_nothing() {
    let world = World::granted("rest", &[plugin("postgres-cluster"), plugin("config-map")]).await;
    let host = Host::start(HostOptions { resync: Some(RESYNC), ..world.options() }).await.unwrap();
    for at in 0..CLUSTERS {
        world.cluster(&format!("db-{at}"), 1).await;
    }
    for at in 0..GREETINGS {
        let Kind(api_version, kind, _) = GREETING;
        let metadata = json!({"name": format!("hello-{at}")});
        let spec = json!({"text": "Good morning"});
        let greeting = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        world.create(GREETING, &greeting).await;
    }
    all_ready(&world).await;
    // The last event of a StatefulSet may still be on its way, and its pass after it.
    two_resyncs(&host).await;

    let mark = world.mark().await;
    two_resyncs(&host).await;
    assert_eq!(world.writes_since(mark).await, [], "at rest");

    let mark = world.mark().await;
    host.restart().await.unwrap();
    two_resyncs(&host).await;
    let (asked, written): (Vec<_>, Vec<_>) =
        world.writes_since(mark).await.into_iter().partition(AuditEvent::is_dry_run);
    assert_eq!(written, [], "after a restart");
    // A list that the API server treats as one value, and fills with defaults, can only be compared by asking it.
    let about: Vec<_> = asked.iter().map(|event| event.resource.as_str()).collect();
    assert!(about.len() <= CLUSTERS && about.iter().all(|resource| *resource == "statefulsets"), "{about:?}");
    eprintln!("a restart with {CLUSTERS} clusters and {GREETINGS} greetings: {} dry runs", about.len());
}
