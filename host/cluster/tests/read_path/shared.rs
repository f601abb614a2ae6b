//! One watch for the children of all plugins.

use std::sync::atomic::Ordering;

use anyhow::Result;
use pilothouse_cluster::Change;
use pilothouse_cluster::watches::{Query, Subscription, Watches};
use pilothouse_harness::{ControlPlane, eventually};
use pilothouse_model::names::{Key, PluginName};
use serde_json::{Value, json};

use crate::SOON;
use crate::watch::{Heard, apply_as, config_map, config_maps, connect};

const PLUGINS: usize = 1_000;

fn plugin(n: usize) -> PluginName {
    format!("shared-{n}").parse().unwrap()
}

fn child(namespace: &str, name: &str, plugin: &PluginName) -> Value {
    let mut child = config_map(namespace, name, "1");
    child["metadata"]["labels"] = json!({"pilothouse.dev/managed": plugin.as_str()});
    child
}

#[tokio::test]
async fn a_thousand_idle_plugins_share_one_stream_and_hear_of_their_own() -> Result<()> {
    let plane = ControlPlane::shared().await;
    let admin = connect(plane).await?;
    let cluster = connect(plane).await?;
    let namespace = plane.namespace("shared").await?;
    let kind = config_maps();
    let apply = async |name: &str, of: usize| {
        let object = child(&namespace, name, &plugin(of));
        apply_as(&admin, &plugin(of).field_manager(), &kind, object).await
    };
    apply("early", 7).await?;
    let watches = Watches::new(cluster.clone());
    let query = || Query::new(kind.clone()).in_namespace(&namespace);
    let join = |n: usize| {
        let heard = Heard::default();
        (watches.subscribe_managed(query(), &plugin(n), heard.listener()), heard)
    };
    let mut users: Vec<(Subscription, Heard)> = (0..PLUGINS - 1).map(join).collect();
    users[0].0.synced(SOON).await.unwrap();
    // One that joins late hears of what is there first.
    users.push(join(PLUGINS - 1));
    let late = join(7);
    assert_eq!(late.1.of("early"), [Change::Initial]);
    assert_eq!((watches.status().len(), watches.status()[0].users), (1, PLUGINS + 1));
    assert_eq!(watches.counters().opened.load(Ordering::Relaxed), 1, "one stream for all");

    apply("mine", 1).await?;
    eventually(SOON, "the new child", || async { users[1].1.of("mine") == [Change::Changed] }).await;
    // Given to another plugin it is gone for the first and new for the other.
    let store = users[0].0.store();
    let held = store.get(&Key::namespaced(&namespace, "mine")).unwrap();
    assert!(held.own_fields().unwrap().contains("f:key"), "the entry of the plugin that the label names");
    let mut given = child(&namespace, "mine", &plugin(2));
    given["data"] = json!({});
    apply_as(&admin, "somebody", &kind, given).await?;
    eventually(SOON, "the gift", || async { users[2].1.of("mine") == [Change::Changed] }).await;
    assert_eq!(users[1].1.of("mine"), [Change::Changed, Change::Deleted]);
    assert!(store.get(&Key::namespaced(&namespace, "mine")).unwrap().own_fields().is_none());
    let others = users.iter().enumerate().filter(|(n, _)| ![1, 2, 7].contains(n));
    assert!(others.into_iter().all(|(_, (_, heard))| heard.is_empty()), "nobody else heard of anything");

    // A plugin that wants less of each object has a watch of its own.
    let metadata = watches.subscribe_managed(query().metadata_only(), &plugin(1), |_| {});
    metadata.synced(SOON).await.unwrap();
    assert_eq!(watches.status().len(), 2);
    assert_eq!(store.listeners(), PLUGINS + 1);
    let store = std::sync::Arc::clone(store);
    drop((users, metadata, late));
    assert_eq!((watches.status().len(), store.listeners()), (0, 0));
    eventually(SOON, "the tasks to end", || async { watches.tasks() == 0 }).await;
    Ok(())
}
