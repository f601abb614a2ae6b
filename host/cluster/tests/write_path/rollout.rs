//! Update strategies. Each pass of a roll-out is another process's: what matters stands in the cluster.

use std::collections::BTreeMap;

use pilothouse_cluster::apply::Report;
use pilothouse_harness::eventually;
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, apply, config_map, delete, message, none, short};

const PODS: [&str; 4] = ["p0", "p1", "p2", "p3"];

fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"image": image}},
        // Not scheduled, so it goes at once when it is deleted.
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": image}]}
    })
}

/// One pass of a process that remembers nothing.
async fn pass(world: &mut World, image: &str) -> Report {
    world.restart();
    world.pass(PODS.iter().map(|name| apply(&pod(name, image))).collect()).await
}

/// What a kubelet would say of the pods.
async fn say_ready(world: &World, names: &[&str], status: &str) {
    let conditions = json!([{"type": "Ready", "status": status, "reason": "Test"}]);
    for name in names {
        world.edit_subresource("Pod", name, "status", &json!({"status": {"conditions": conditions}})).await;
    }
}

/// UID and image of each pod that is there.
async fn pods(world: &World) -> BTreeMap<&'static str, (String, String)> {
    let mut found = BTreeMap::new();
    for name in PODS {
        if let Some(pod) = world.get("Pod", name).await {
            let text = |pointer: &str| pod.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            found.insert(name, (text("/metadata/uid"), text("/spec/containers/0/image")));
        }
    }
    found
}

async fn updated(world: &World, image: &str) -> Vec<&'static str> {
    let pods = pods(world).await;
    pods.into_iter().filter(|(_, (_, is))| is == image).map(|(name, _)| name).collect()
}

/// A pass that deletes this pod and creates nothing: a pod's deletion is answered before it is gone.
async fn deleted_to_make_anew(world: &mut World, name: &str) {
    let before = pods(world).await;
    let report = pass(world, "two").await;
    assert!(!short(&report).contains(&"Written"), "{report:?}");
    let gone = async || world.get("Pod", name).await.is_none();
    eventually(DEADLINE, "the pod to go", gone).await;
    let mut after = pods(world).await;
    after.insert(PODS.into_iter().find(|pod| *pod == name).unwrap(), before[name].clone());
    assert_eq!(after, before, "no other pod went");
}

async fn rolling(method: &str, max: Value) -> World {
    let mut world = World::new("rollout").await;
    world.declare(
        "updateStrategy",
        &json!({"method": method, "maxUnavailable": max,
            "statusChecks": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    // Nothing is held back that is missing, ready or not.
    assert_eq!(short(&pass(&mut world, "one").await), ["Written"; 4]);
    say_ready(&world, &PODS, "True").await;
    assert_eq!(short(&pass(&mut world, "one").await), ["NoOp"; 4]);
    world
}

#[tokio::test]
async fn in_place_one_by_one_and_only_behind_ready_ones() {
    let mut world = rolling("RollingInPlace", json!(1)).await;
    let before = pods(&world).await;
    for (at, name) in PODS.iter().enumerate() {
        let report = pass(&mut world, "two").await;
        let mut expected = vec!["NoOp"; at];
        expected.push("Written");
        expected.resize(PODS.len(), "Held");
        assert_eq!(short(&report), expected);
        assert_eq!(updated(&world, "two").await, PODS[..=at]);

        say_ready(&world, &[name], "False").await;
        let writes = world.writer.counters().writes();
        let report = pass(&mut world, "two").await;
        assert_eq!(world.writer.counters().writes(), writes, "it waits: {report:?}");
        for why in report.held() {
            assert!(why.contains(&format!("waits for {name}, which its condition Ready has")), "{why}");
        }
        assert_eq!(report.held().count(), PODS.len() - 1 - at);
        say_ready(&world, &[name], "True").await;
    }
    let writes = world.writer.counters().writes();
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp"; 4]);
    assert_eq!(world.writer.counters().writes(), writes);
    let after = pods(&world).await;
    assert!(PODS.iter().all(|name| before[name].0 == after[name].0), "none was made anew");
}

#[tokio::test]
async fn made_anew_one_by_one_also_when_one_is_missing_or_broken() {
    let mut world = rolling("RollingRecreate", json!(1)).await;
    let before = pods(&world).await;
    deleted_to_make_anew(&mut world, "p0").await;
    assert_eq!(short(&pass(&mut world, "two").await), ["Written", "Held", "Held", "Held"]);
    assert_ne!(pods(&world).await["p0"].0, before["p0"].0);
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Held", "Held", "Held"], "p0 is not ready");
    say_ready(&world, &["p0"], "True").await;
    // One that somebody deletes is made again, and counts until it is ready.
    world.delete("Pod", "p3").await;
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Held", "Held", "Written"]);
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Held", "Held", "NoOp"]);
    say_ready(&world, &["p3"], "True").await;
    // One that breaks by itself goes first: it is the least loss.
    say_ready(&world, &["p2"], "False").await;
    deleted_to_make_anew(&mut world, "p2").await;
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Held", "Written", "NoOp"]);
    say_ready(&world, &["p2"], "True").await;
    deleted_to_make_anew(&mut world, "p1").await;
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Written", "NoOp", "NoOp"]);
    assert_eq!(updated(&world, "two").await, PODS);
}

#[tokio::test]
async fn a_change_that_never_works_stops_at_its_first_children_and_the_next_change_goes_on() {
    let mut world = rolling("RollingInPlace", json!("50%")).await;
    assert_eq!(short(&pass(&mut world, "bad").await), ["Written", "Written", "Held", "Held"]);
    say_ready(&world, &["p0", "p1"], "False").await;
    for _ in 0..3 {
        assert_eq!(short(&pass(&mut world, "bad").await), ["NoOp", "NoOp", "Held", "Held"]);
    }
    // The cure begins where it hurts, and is not kept from it by those that hurt.
    assert_eq!(short(&pass(&mut world, "good").await), ["Written", "Written", "Held", "Held"]);
    say_ready(&world, &["p0", "p1"], "True").await;
    assert_eq!(short(&pass(&mut world, "good").await), ["NoOp", "NoOp", "Written", "Written"]);
    assert_eq!(updated(&world, "good").await, PODS);
}

#[tokio::test]
async fn a_child_that_cannot_be_updated_stops_the_others_and_is_reported() {
    let mut world = rolling("RollingInPlace", json!(1)).await;
    // A pod's environment cannot change in place.
    let changed = |name: &str| {
        let mut pod = pod(name, "two");
        pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "B"}]);
        apply(&pod)
    };
    world.restart();
    let report = world.pass(PODS.iter().map(|name| changed(name)).collect()).await;
    assert_eq!(short(&report), ["Immutable", "Held", "Held", "Held"]);
    assert!(report.held().all(|why| why.contains("p0, which could not be updated")), "{report:?}");
    assert_eq!(updated(&world, "two").await, Vec::<&str>::new());
}

#[tokio::test]
async fn without_checks_there_is_nothing_to_wait_for_but_an_end() {
    let mut world = World::new("rollout").await;
    world.declare("updateStrategy", &json!({"method": "RollingRecreate"}));
    let maps = |text: &str| {
        let one = |at: usize| apply(&config_map(&format!("a{at}"), &json!({"k": text})));
        (0..3).map(one).collect::<Vec<_>>()
    };
    world.pass(maps("one")).await;
    assert_eq!(short(&world.pass(maps("two")).await), ["Written"; 3]);
    // One that waits for a finalizer counts, however long.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.edit("ConfigMap", "a1", &hold).await;
    world.restart();
    assert_eq!(short(&world.pass(maps("three")).await), ["Written", "Held", "Held"]);
    let before = world.spent();
    assert_eq!(short(&world.pass(maps("three")).await), ["NoOp", "Held", "Held"]);
    assert_eq!(world.spent_since(&before).get("delete"), None, "asked for once");
    world.edit("ConfigMap", "a1", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(short(&world.pass(maps("three")).await), ["NoOp", "Written", "Written"]);
}

#[tokio::test]
async fn recreate_makes_all_anew_that_differ_and_no_others() {
    let mut world = World::new("rollout").await;
    world.declare("updateStrategy", &json!({"method": "Recreate"}));
    let all =
        |text: &str| vec![apply(&config_map("a", &json!({"k": text}))), apply(&config_map("b", &json!({})))];
    let uid = async |world: &World, name: &str| {
        world.get("ConfigMap", name).await.unwrap()["metadata"]["uid"].clone()
    };
    world.pass(all("one")).await;
    let before = (uid(&world, "a").await, uid(&world, "b").await);
    world.restart();
    let spent = world.spent();
    assert_eq!(short(&world.pass(all("one")).await), ["NoOp", "NoOp"]);
    assert_eq!(world.spent_since(&spent), none(), "a restart changes nothing");
    assert_eq!(short(&world.pass(all("two")).await), ["Written", "NoOp"]);
    let after = (uid(&world, "a").await, uid(&world, "b").await);
    assert!(before.0 != after.0 && before.1 == after.1);
    // What others add is none of our business; what they change of ours is.
    world.edit("ConfigMap", "b", &json!({"data": {"theirs": "x"}})).await;
    world.pass(all("two")).await;
    assert_eq!(uid(&world, "b").await, before.1);
    assert_eq!(short(&world.pass(all("two")).await), ["NoOp", "NoOp"]);
    world.edit("ConfigMap", "a", &json!({"data": {"k": "drift"}})).await;
    assert_eq!(short(&world.pass(all("two")).await), ["Written", "NoOp"]);
    assert_eq!(world.get("ConfigMap", "a").await.unwrap()["data"]["k"], "two");
    // Nothing is deleted for an object that could not be created again.
    let wrong = config_map("a", &json!({"not a key": "x"}));
    let kept = uid(&world, "a").await;
    let report = world.pass(vec![apply(&wrong)]).await;
    assert!(!message(&report).0.is_transient());
    assert_eq!(uid(&world, "a").await, kept);
}

#[tokio::test]
async fn on_delete_takes_a_change_when_somebody_deletes_the_child() {
    let mut world = World::new("rollout").await;
    world.declare("updateStrategy", &json!({"method": "OnDelete"}));
    let all = |text: &str| {
        vec![apply(&config_map("a", &json!({"k": text}))), apply(&config_map("b", &json!({"k": text})))]
    };
    world.pass(all("one")).await;
    let spent = world.spent();
    assert_eq!(short(&world.pass(all("two")).await), ["NoOp", "NoOp"]);
    assert_eq!(world.spent_since(&spent), none());
    world.delete("ConfigMap", "a").await;
    assert_eq!(short(&world.pass(all("two")).await), ["Written", "NoOp"]);
    let text = async |name: &str| world.get("ConfigMap", name).await.unwrap()["data"]["k"].clone();
    assert_eq!((text("a").await, text("b").await), (json!("two"), json!("one")));
}

/// MC#144: the end of the primary waits for no roll-out.
#[tokio::test]
async fn mc_144_nothing_is_held_back_while_the_primary_is_deleted() {
    let mut world = rolling("RollingInPlace", json!(1)).await;
    assert_eq!(short(&pass(&mut world, "two").await), ["Written", "Held", "Held", "Held"]);
    say_ready(&world, &["p0"], "False").await;
    world.deleting = true;
    assert_eq!(short(&pass(&mut world, "two").await), ["NoOp", "Written", "Written", "Written"]);
    let all = PODS.iter().map(|name| delete("Pod", name)).collect();
    assert_eq!(short(&world.pass(all).await), ["Deleted"; 4]);
}

#[tokio::test]
async fn a_child_that_lost_its_owner_is_adopted_first_and_updated_in_its_turn() {
    let mut world = rolling("RollingInPlace", json!(1)).await;
    for name in ["p2", "p3"] {
        world.edit("Pod", name, &json!({"metadata": {"ownerReferences": null}})).await;
    }
    // They are not in the snapshot, so they count as missing; they are not updated all at once on that account.
    assert_eq!(short(&pass(&mut world, "two").await), ["Held", "Held", "Written", "Written"]);
    assert_eq!(updated(&world, "two").await, Vec::<&str>::new());
    let owner = &world.get("Pod", "p3").await.unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!(&*world.primary.meta().uid), &json!(true)));
    assert_eq!(short(&pass(&mut world, "two").await), ["Written", "Held", "Held", "Held"]);
}
