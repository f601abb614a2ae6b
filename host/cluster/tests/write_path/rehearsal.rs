//! Rehearsals: they show what would be written, write nothing, and what they show stays the same until it is done.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::rehearsal::Rehearsal;
use pilothouse_harness::eventually;
use pilothouse_model::action::Action;
use pilothouse_model::pending::{Hash, Pending};
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, apply, config_map, delete, short};

const PODS: [&str; 3] = ["p0", "p1", "p2"];

fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        // Not scheduled, so it goes at once when it is deleted.
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": image}]}
    })
}

fn pods(image: &str) -> Vec<Action> {
    PODS.iter().map(|name| apply(&pod(name, image))).collect()
}

/// What a pass would write, and whether the API server is as it was.
async fn rehearse(world: &World, actions: Vec<Action>) -> Vec<Pending> {
    let rehearsal = Arc::new(Rehearsal::new(Some(&world.namespace)));
    let children = world.children().await;
    let before = world.writer.counters().writes();
    world.pass_with(&world.applier.rehearsing(&rehearsal, &children), actions, &children).await;
    assert_eq!(world.writer.counters().writes(), before, "a rehearsal writes nothing");
    let versions = |objects: &[Arc<_>]| -> Vec<u64> {
        objects
            .iter()
            .map(|object: &Arc<pilothouse_model::object::Object>| object.meta().resource_version)
            .collect()
    };
    assert_eq!(versions(&world.children().await), versions(&children));
    rehearsal.pending()
}

fn hashes(pending: &[Pending]) -> BTreeSet<Hash> {
    pending.iter().map(|action| action.hash).collect()
}

fn told(pending: &[Pending]) -> Vec<String> {
    pending.iter().map(|action| format!("{} {}", action.verb.as_str(), action.subject)).collect()
}

#[tokio::test]
async fn what_would_be_created_changed_and_deleted_is_shown_and_nothing_at_rest() {
    let world = World::new("rehearsal").await;
    let both =
        || vec![apply(&config_map("a", &json!({"k": "1"}))), apply(&config_map("b", &json!({"k": "1"})))];
    let first = rehearse(&world, both()).await;
    assert_eq!(told(&first), ["create ConfigMap a", "create ConfigMap b"]);
    assert_eq!(hashes(&rehearse(&world, both()).await), hashes(&first));
    assert_eq!(short(&world.pass(both()).await), ["Written"; 2]);
    assert_eq!(rehearse(&world, both()).await, []);

    let actions = || vec![apply(&config_map("a", &json!({"k": "2"}))), delete("ConfigMap", "b")];
    let changes = rehearse(&world, actions()).await;
    assert_eq!(told(&changes), ["update ConfigMap a", "delete ConfigMap b"]);
    assert_eq!(changes[0].summary, "data.k \"1\" -> \"2\"");
    // Another value of the same field there is another change.
    world.edit("ConfigMap", "a", &json!({"data": {"k": "drifted"}})).await;
    assert_ne!(rehearse(&world, actions()).await[0].hash, changes[0].hash);
}

/// One approval is for the whole of a roll-out: what is left of it is always part of what was shown at first.
async fn rolls_out(method: &str, shown: usize) {
    let mut world = World::new("rehearsal").await;
    let mut strategy = json!({ "method": method });
    if method.starts_with("Rolling") {
        strategy["statusChecks"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    }
    world.declare("updateStrategy", &strategy);
    world.pass(pods("one")).await;
    let all = rehearse(&world, pods("two")).await;
    assert_eq!(all.len(), shown, "{method}: {:?}", told(&all));
    let done = async || {
        let ready =
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}});
        for name in PODS {
            if world.get("Pod", name).await.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            {
                world.edit_subresource("Pod", name, "status", &ready).await;
            }
        }
        let left = rehearse(&world, pods("two")).await;
        assert!(hashes(&left).is_subset(&hashes(&all)), "{method}: {:?} of {:?}", told(&left), told(&all));
        world.pass(pods("two")).await;
        left.is_empty()
    };
    eventually(DEADLINE, "the roll-out to be done", done).await;
}

#[tokio::test]
async fn a_roll_out_is_shown_whole_and_what_is_left_of_it_is_part_of_that() {
    rolls_out("RollingInPlace", 3).await;
    rolls_out("RollingRecreate", 6).await;
    rolls_out("Recreate", 6).await;
    rolls_out("InPlace", 3).await;
}
