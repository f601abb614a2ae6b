//! Kinds, namespaces, accounts and API servers that come and go while watches run.

use std::time::Duration;

use anyhow::{Context, Result};
use pilothouse_cluster::watches::{Query, WatchState, Watches};
use pilothouse_cluster::{Change, Cluster, crd};
use pilothouse_harness::{ControlPlane, eventually};
use pilothouse_model::manifest::{Projection, Resource};
use pilothouse_model::names::Key;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::watch::{
    Heard, apply_as, cluster_scoped, config_map, config_maps, connect, connect_with, data, delete, failing,
    resource, writer,
};
use crate::{SOON, options};

fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("webs.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
                 "names": {"kind": "Web", "plural": "webs", "singular": "web", "listKind": "WebList"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}
    })
}

async fn undefine(cluster: &Cluster, group: &str) -> Result<()> {
    let crds =
        cluster_scoped("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    let key = Key::cluster(&format!("webs.{group}"));
    let live = cluster.get(&crds, &key, &Projection::Full).await?.context("no such CRD")?;
    delete(cluster, &crds, &live).await
}

fn web(group: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Web", "metadata": {"namespace": namespace, "name": name}})
}

/// K8s#74105, CR#2983, kro#1029.
#[tokio::test]
async fn a_kind_that_is_not_there_is_asked_for_ever_more_rarely() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let server = plane.fault_server().await?;
    let admin = connect(plane).await?;
    let watches = Watches::new(connect_with(server.kubeconfig()).await?);
    let group = "rare.example.com";
    let watch = watches.subscribe(Query::new(resource(group, "Web", "webs")), |_| {});
    let refused = || server.asked().into_iter().filter(|asked| asked.uri.contains(group)).collect::<Vec<_>>();
    eventually(SOON, "four refusals", || async { refused().len() >= 4 }).await;
    let asked = refused();
    assert!(asked.iter().all(|asked| asked.status.is_none_or(|status| status == 404)), "{asked:?}");
    for (pair, at_least_ms) in asked.windows(2).zip([500, 1_000, 2_000]) {
        let pause = pair[1].at - pair[0].at;
        assert!(pause >= Duration::from_millis(at_least_ms), "{pause:?} between {pair:?}");
    }
    crd::apply_crds(&writer(&admin), &[definition(group)]).await?;
    watch.synced(SOON).await.unwrap();
    undefine(&admin, group).await
}

/// The same, with no time in between in which the kind could be seen to be gone.
#[tokio::test]
async fn a_kind_that_is_defined_anew_at_once_is_watched_on() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    let namespace = plane.namespace("anew").await?;
    let group = "anew.example.com";
    let webs: Resource = resource(group, "Web", "webs");
    let watches = Watches::new(connect(plane).await?);
    let heard = Heard::default();
    crd::apply_crds(&writer(&admin), &[definition(group)]).await?;
    let watch = watches.subscribe(Query::new(webs.clone()).in_namespace(&namespace), heard.listener());
    watch.synced(SOON).await.unwrap();
    apply_as(&admin, "test", &webs, web(group, &namespace, "old")).await?;
    eventually(SOON, "the old one", || async { watch.store().len() == 1 }).await;
    undefine(&admin, group).await?;
    let crds =
        cluster_scoped("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    let key = Key::cluster(&format!("webs.{group}"));
    eventually(SOON, "the definition to go", || async {
        matches!(admin.get(&crds, &key, &Projection::Metadata).await, Ok(None))
    })
    .await;
    crd::apply_crds(&writer(&admin), &[definition(group)]).await?;
    eventually(SOON, "a new object to be taken", || async {
        apply_as(&admin, "test", &webs, web(group, &namespace, "new")).await.is_ok()
    })
    .await;
    eventually(SOON, "the new one alone", || async {
        watch.store().len() == 1 && watch.store().get(&Key::namespaced(&namespace, "new")).is_some()
    })
    .await;
    assert_eq!(heard.of("old"), [Change::Changed, Change::Deleted]);
    undefine(&admin, group).await
}

#[tokio::test]
async fn namespaces_appear_vanish_and_appear_again() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    // A name of its own, that nothing bears yet.
    let namespace = format!("{}-later", plane.namespace("ns").await?);
    let namespaces = cluster_scoped("", "Namespace", "namespaces");
    let watches = Watches::new(connect(plane).await?);
    let heard = Heard::default();
    let query = Query::new(config_maps()).in_namespace(&namespace).labelled("test=yes");
    let watch = watches.subscribe(query, heard.listener());
    watch.synced(SOON).await.unwrap();
    for round in 1..=2 {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let live = apply_as(&admin, "test", &namespaces, object).await?;
        let value = round.to_string();
        apply_as(&admin, "test", &config_maps(), config_map(&namespace, "a", &value)).await?;
        eventually(SOON, "its object", || async {
            data(watch.store(), &namespace, "a").as_ref() == Some(&value)
        })
        .await;
        delete(&admin, &namespaces, &live).await?;
        let key = Key::cluster(&namespace);
        eventually(SOON, "it to go with its objects", || async {
            matches!(admin.get(&namespaces, &key, &Projection::Metadata).await, Ok(None))
                && watch.store().is_empty()
        })
        .await;
    }
    assert_eq!(heard.of("a"), [Change::Changed, Change::Deleted, Change::Changed, Change::Deleted]);
    assert_eq!(
        watches.counters().lists.load(std::sync::atomic::Ordering::Relaxed),
        1,
        "one watch all the time"
    );
    Ok(())
}

/// kiali#5070, with a token that the API server itself stops to accept: its account is made anew.
#[tokio::test]
async fn a_token_that_is_revoked_is_replaced_without_a_restart() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    let namespace = plane.namespace("revoked").await?;
    let accounts = resource("", "ServiceAccount", "serviceaccounts");
    let account = || json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "host"}});
    let live = apply_as(&admin, "test", &accounts, account()).await?;
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": "host"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "host"}]});
    apply_as(&admin, "test", &resource(rbac, "RoleBinding", "rolebindings"), binding).await?;

    let directory = tempfile::tempdir()?;
    let token_file = directory.path().join("token");
    let kubeconfig = directory.path().join("kubeconfig");
    let renew = async || -> Result<()> {
        let made = plane.kubeconfig_for_service_account(&namespace, "host").await?;
        let mut made: Value = serde_json::from_slice(&std::fs::read(made)?)?;
        let token = made["users"][0]["user"]["token"].as_str().context("no token")?;
        std::fs::write(&token_file, token)?;
        made["users"][0]["user"] = json!({"tokenFile": token_file});
        Ok(std::fs::write(&kubeconfig, made.to_string())?)
    };
    renew().await?;
    let watches = Watches::new(connect_with(&kubeconfig).await?);
    let query = Query::new(config_maps()).in_namespace(&namespace);
    let first = watches.subscribe(query.clone(), |_| {});
    first.synced(SOON).await.unwrap();

    delete(&admin, &accounts, &live).await?;
    // The API server remembers for ten seconds that it knew the token.
    eventually(Duration::from_mins(1), "the token to be refused", || async {
        let watch = watches.subscribe(query.clone().labelled("asked=anew"), |_| {});
        let _ = watch.synced(Duration::from_secs(2)).await;
        failing(&watch) == Some("Unauthorized")
    })
    .await;
    let second = watches.subscribe(query.labelled("asked!=anew"), |_| {});
    eventually(SOON, "the state Unauthorized", || async { failing(&second) == Some("Unauthorized") }).await;
    apply_as(&admin, "test", &accounts, account()).await?;
    renew().await?;
    second.synced(Duration::from_mins(1)).await.unwrap();
    Ok(())
}

/// The kernel of a machine whose API server hangs takes connections all the same.
#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_is_given_up() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let directory = tempfile::tempdir()?;
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(plane.kubeconfig())?)?;
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{}", silent.local_addr()?).into();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    let watches = Watches::new(Cluster::open(&options(&path)).await?);
    let watch = watches.subscribe(Query::new(config_maps()), |_| {});
    // Not by the time-out of the request, which is longer, but by that of the connection, which all requests share.
    eventually(Duration::from_mins(1), "the connection to be given up", || async {
        matches!(&*watch.state().borrow(), WatchState::Failing { reason, .. } if reason.to_string().contains("no connection within"))
    })
    .await;
    Ok(())
}
