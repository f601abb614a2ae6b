//! Connections: an API server that is not there yet, and credentials that change.

use std::time::Duration;

use anyhow::{Context, Result};
use pilothouse_cluster::Cluster;
use pilothouse_cluster::watches::{Query, Subscription, WatchState, Watches};
use pilothouse_harness::{ControlPlane, eventually};
use pilothouse_model::manifest::{Projection, Resource, Scope};
use pilothouse_model::names::Key;
use serde_json::{Value, json};

use crate::line::Line;
use crate::{SOON, options};

fn namespaces() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        plural: "namespaces".to_owned(),
        scope: Scope::Cluster,
    }
}

#[tokio::test]
async fn an_api_server_that_comes_later_is_waited_for() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let line = Line::to(plane.url()).await?;
    line.cut();
    let cluster = Cluster::open(&options(&line.kubeconfig(plane.kubeconfig())?)).await?;
    assert!(tokio::time::timeout(Duration::from_secs(2), cluster.wait()).await.is_err());
    line.mend();
    tokio::time::timeout(SOON, cluster.wait()).await?;
    let kind = namespaces();
    let get = async |name: &str| cluster.get(&kind, &Key::cluster(name), &Projection::Metadata).await;
    let default = get("default").await?.context("no namespace default")?;
    assert_eq!(
        (default.kind().kind.as_str(), default.field("status"), default.is_partial()),
        ("Namespace", Value::Null, true)
    );
    assert!(get("no-such").await?.is_none());
    let first = cluster.list(&Query::new(namespaces()), 1, 1 << 20).await?;
    assert_eq!((first.objects.len(), first.complete), (1, false));
    let all = cluster.list(&Query::new(namespaces()), 1_000, 1 << 20).await?;
    assert!(all.complete && all.objects.iter().all(|object| object.kind().kind == "Namespace"));
    Ok(())
}

/// The token in a kubeconfig, or in a file that the kubeconfig names, changes under a running host.
#[tokio::test]
async fn a_rotated_token_is_read_again_without_a_restart() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("token").await?;
    let kubeconfig = plane.kubeconfig_for_service_account(&namespace, "default").await?;
    let good: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let token = good["users"][0]["user"]["token"].as_str().context("no token")?;

    let directory = tempfile::tempdir()?;
    let (inline, by_file, token_file) =
        (directory.path().join("inline"), directory.path().join("by-file"), directory.path().join("token"));
    let write_inline = |token: &str| {
        let mut kubeconfig = good.clone();
        kubeconfig["users"][0]["user"]["token"] = json!(token);
        std::fs::write(&inline, kubeconfig.to_string())
    };
    let mut kubeconfig = good.clone();
    kubeconfig["users"][0]["user"] = json!({"tokenFile": token_file});
    std::fs::write(&by_file, kubeconfig.to_string())?;

    write_inline("expired")?;
    std::fs::write(&token_file, "expired")?;
    let is = |subscription: &Subscription, wanted: &str| match &*subscription.state().borrow() {
        WatchState::Failing { reason, .. } => reason.reason() == wanted,
        _ => false,
    };
    for kubeconfig in [&inline, &by_file] {
        let cluster = Cluster::connect(&options(kubeconfig)).await?;
        let watches = Watches::new(cluster);
        let subscription = watches.subscribe(Query::new(namespaces()), |_| {});
        eventually(SOON, "the state Unauthorized", || async { is(&subscription, "Unauthorized") }).await;
        write_inline(token)?;
        std::fs::write(&token_file, token)?;
        // It may not list namespaces, and that it is told so shows that it is known.
        eventually(SOON, "the state Forbidden", || async { is(&subscription, "Forbidden") }).await;
        write_inline("expired")?;
        std::fs::write(&token_file, "expired")?;
    }
    Ok(())
}
