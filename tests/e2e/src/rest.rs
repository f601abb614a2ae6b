//! At rest the host writes nothing, whatever it looks at again.

use std::{collections::BTreeMap, time::Duration};

use pilothouse_harness::{AuditEvent, Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{CHAOS_POD, DEADLINE, EG_APP, GREETING, Kind, POD_REPLICA, POSTGRES_CLUSTER, World, plugin};

/// The shortest that `--resync` takes.
pub const RESYNC: Duration = Duration::from_secs(10);

/// Objects of one plugin that can come to rest.
struct Resting {
    plugin: &'static str,
    /// In the metrics.
    controller: &'static str,
    kind: Kind,
    spec: Value,
}

fn all() -> [Resting; 5] {
    [
        Resting {
            plugin: "postgres-cluster",
            controller: "postgres-cluster/PostgresCluster.db.example.com",
            kind: POSTGRES_CLUSTER,
            spec: json!({"replicas": 1, "version": "16", "storage": "1Gi"}),
        },
        Resting {
            plugin: "config-map",
            controller: "config-map/Greeting.example.com",
            kind: GREETING,
            spec: json!({"text": "Good morning"}),
        },
        Resting {
            plugin: "pod-replica",
            controller: "pod-replica/PodReplica.app.example.com",
            kind: POD_REPLICA,
            spec: json!({"size": 1}),
        },
        Resting {
            plugin: "egapp",
            controller: "egapp/EGApp.egplatform.platform.evillgenius.com",
            kind: EG_APP,
            spec: json!({"framework": "go", "environment": "dev"}),
        },
        Resting {
            plugin: "chaos-pod",
            controller: "chaos-pod/ChaosPod.app.example.com",
            kind: CHAOS_POD,
            spec: json!({"prefix": "none", "interval": "24h"}),
        },
    ]
}

/// So many objects of each of our plugins become ready. Then the host writes nothing for so many resyncs of each, and
/// nothing in a resync after a restart, but for dry runs.
///
/// # Panics
/// If it does.
pub async fn writes_nothing_at_rest(each: usize, rounds: usize) {
    let all = all();
    let plugins: Vec<_> = all.iter().map(|resting| plugin(resting.plugin)).collect();
    let world = World::granted("rest", &plugins).await;
    let host = Host::start(HostOptions { resync: Some(RESYNC), ..world.options() }).await.unwrap();
    let name = |resting: &Resting, at: usize| format!("{}-{at}", resting.kind.1.to_lowercase());
    for resting in &all {
        let Resting { kind, spec, .. } = resting;
        for at in 0..each {
            let metadata = json!({"name": name(resting, at)});
            let object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec});
            world.create(*kind, &object).await;
        }
    }
    for resting in &all {
        for at in 0..each {
            world.ready(resting.kind, &name(resting, at)).await;
        }
    }
    let controllers = all.map(|resting| (resting.controller, each));
    // The last event of a StatefulSet may still be on its way, and its pass after it.
    resyncs(&host, &controllers, 2).await;

    let mark = world.mark().await;
    resyncs(&host, &controllers, rounds).await;
    assert_eq!(world.writes_since(mark).await, [], "at rest");

    let mark = world.mark().await;
    host.restart().await.unwrap();
    resyncs(&host, &controllers, 2).await;
    let (asked, written): (Vec<_>, Vec<_>) =
        world.writes_since(mark).await.into_iter().partition(AuditEvent::is_dry_run);
    assert_eq!(written, [], "after a restart");
    // A list that the API server treats as one value, and fills with defaults, can only be compared by asking it.
    let mut about: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &asked {
        *about.entry(event.resource.as_str()).or_default() += 1;
    }
    assert!(about.iter().all(|(resource, count)| *resource == "statefulsets" && *count <= each), "{about:?}");
    eprintln!("a restart with {each} objects of each plugin: {} dry runs", asked.len());
}

/// Passes that have ended of a controller, `PLUGIN/KIND.GROUP`.
pub async fn passes(host: &Host, controller: &str) -> anyhow::Result<f64> {
    Ok(host.metrics().await?.sum("controller_runtime_reconcile_total", &[("controller", controller)]))
}

/// Waits until each of these controllers, with so many keys, has looked at each key so many times more: keys come
/// round robin.
pub async fn resyncs(host: &Host, controllers: &[(&str, usize)], rounds: usize) {
    let mut wanted = Vec::new();
    for (controller, keys) in controllers {
        let before = passes(host, controller).await.unwrap();
        wanted.push((controller, before + f64::from(u32::try_from(rounds * keys).unwrap())));
    }
    for (controller, wanted) in wanted {
        eventually(DEADLINE, &format!("{rounds} resyncs of {controller}"), || async {
            let now = passes(host, controller).await?;
            anyhow::ensure!(now >= wanted, "{now} passes of {wanted}");
            Ok(())
        })
        .await;
    }
}
