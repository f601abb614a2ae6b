//! Runs from due time to history, against pods that come and go.

use std::collections::BTreeSet;

use chaos_pod::ChaosPod;
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::{Cluster, Outcome, unexplained};
use pilothouse_sdk::time::Time;
use pilothouse_sdk::{Action, Failure};
use proptest::prelude::*;

/// A resource and the pods of its namespace.
#[derive(Clone)]
struct World {
    cluster: Cluster<ChaosPod>,
    pods: Vec<Value>,
}

fn pod(name: &str) -> Value {
    let mut pod = POD.object(name);
    pod["metadata"]["namespace"] = json!("shop");
    pod["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    pod["status"]["phase"] = json!("Running");
    pod
}

impl World {
    /// Created at midnight, and looked at once.
    fn new(spec: Value, pods: Vec<Value>) -> Self {
        let mut world = Self { cluster: Cluster::new("shop", "monkey", spec), pods };
        assert_eq!(world.pass(), Vec::<String>::new());
        world
    }

    fn at(&mut self, time: &str) -> &mut Self {
        self.cluster.now = format!("2025-01-01T{time}Z");
        self
    }

    fn outcome(&mut self) -> Outcome {
        self.cluster.answer("pods in shop", self.pods.clone());
        self.cluster.reconcile()
    }

    /// One pass, carried out: names of the pods that it deleted.
    fn pass(&mut self) -> Vec<String> {
        let outcome = self.outcome();
        let deleted = self.delete(&outcome);
        self.cluster.apply(&outcome);
        deleted
    }

    /// Carries out what an outcome deletes, and no more: what is left when the host ends before the status.
    fn delete(&mut self, outcome: &Outcome) -> Vec<String> {
        let deleted: Vec<_> = deletions(outcome);
        self.pods.retain(|pod| !deleted.iter().any(|(_, uid)| pod["metadata"]["uid"] == *uid));
        deleted.into_iter().map(|(name, _)| name).collect()
    }

    fn status(&self) -> Value {
        self.cluster.primary()["status"].clone()
    }

    fn history(&self) -> Vec<Vec<String>> {
        let names = |run: &Value| {
            let pods = run["pods"].as_array().into_iter().flatten();
            pods.map(|pod| pod["name"].as_str().expect("a name").to_owned()).collect()
        };
        self.status()["history"].as_array().into_iter().flatten().map(names).collect()
    }
}

/// Name and UID of what an outcome deletes.
fn deletions(outcome: &Outcome) -> Vec<(String, String)> {
    let deletions = outcome.actions.as_slice().iter().filter_map(|action| match action {
        Action::Delete(delete) => {
            Some((delete.target.name.clone(), delete.target.uid.clone().expect("a UID")))
        }
        _ => None,
    });
    deletions.collect()
}

fn looks_up(outcome: &Outcome) -> bool {
    outcome.actions.as_slice().iter().any(|action| matches!(action, Action::LookUp(_)))
}

fn requeue_ms(outcome: &Outcome) -> u128 {
    let delays = outcome.actions.as_slice().iter().filter_map(|action| match action {
        Action::RequeueAfter(delay) => Some(delay.as_millis()),
        _ => None,
    });
    delays.min().expect("a requeue")
}

fn three() -> Vec<Value> {
    ["web-a", "web-b", "web-c"].map(pod).to_vec()
}

#[test]
fn a_run_chooses_then_deletes_then_records() {
    let mut world = World::new(json!({"prefix": "web-", "interval": "5m"}), three());
    assert_eq!(world.status()["nextTime"], "2025-01-01T00:05:00Z");
    assert_eq!(world.status()["timer"], "every 5m");
    assert_eq!(requeue_ms(&world.outcome()), 300_000);

    world.at("00:04:59");
    assert_eq!(world.pass(), Vec::<String>::new());
    assert_eq!(world.status()["running"], Value::Null);

    world.at("00:05:00");
    assert_eq!(world.pass(), Vec::<String>::new(), "chosen, and not deleted before that is written");
    let chosen = world.status()["running"]["pods"].as_array().unwrap().clone();
    assert_eq!(chosen.len(), 1);
    assert_eq!(world.status()["nextTime"], "2025-01-01T00:10:00Z");
    assert!(requeue_ms(&world.outcome()) < 1000);

    assert_eq!(world.pass(), [chosen[0]["name"].as_str().unwrap()]);
    assert_eq!(world.pass(), Vec::<String>::new());
    assert_eq!(world.status()["running"], Value::Null);
    assert_eq!(world.history(), [[chosen[0]["name"].as_str().unwrap()]]);
    assert_eq!(world.cluster.events().len(), 1);
    assert_eq!(requeue_ms(&world.outcome()), 300_000);
}

#[test]
fn at_rest_nothing_is_looked_up_or_written() {
    let mut world = World::new(json!({"prefix": "web-", "schedule": "*/5 * * * *"}), three());
    world.at("00:03:00");
    let mut cluster = world.cluster.clone();
    assert_eq!(cluster.pass(), Vec::<String>::new());
    assert!(!looks_up(&world.cluster.reconcile()));
    assert_eq!(world.status()["nextTime"], "2025-01-01T00:05:00Z");
    assert_eq!(requeue_ms(&world.outcome()), 120_000);
}

#[test]
fn the_host_may_end_between_any_two_writes() {
    let spec = json!({"prefix": "web-", "interval": "5m", "maxPods": 2});
    let mut world = World::new(spec, three());
    world.at("00:05:00");
    // Before the choice was written: it is made again, and nobody was deleted for the first.
    let lost = world.outcome();
    assert_eq!(deletions(&lost), []);
    world.cluster.seed = 7;
    world.pass();
    // Between one deletion and the next, and before the status.
    let outcome = world.outcome();
    let both = deletions(&outcome);
    world.pods.retain(|pod| pod["metadata"]["uid"] != both[0].1);
    assert_eq!(deletions(&world.outcome()), [both[1].clone()]);
    let outcome = world.outcome();
    world.delete(&outcome);
    // Their controller has made others of the same names: they are not meant.
    world.pods.extend(both.iter().map(|(name, _)| {
        let mut again = pod(name);
        again["metadata"]["uid"] = json!("another");
        again
    }));
    assert_eq!(world.pass(), Vec::<String>::new());
    assert_eq!(world.history(), [both.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()]);
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn missed_times_are_one_run() {
    let mut world = World::new(json!({"prefix": "web-", "interval": "5m"}), three());
    world.at("03:02:10");
    for _ in 0..6 {
        world.pass();
    }
    assert_eq!(world.history().len(), 1);
    assert_eq!(world.pods.len(), 2);
    assert_eq!(world.status()["nextTime"], "2025-01-01T03:05:00Z");
}

#[test]
fn only_live_pods_of_the_prefix_without_the_label_are_taken() {
    let mut pods = three();
    pods.push(pod("db-a"));
    for (at, change) in [
        (0, json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}})),
        (1, json!({"status": {"phase": "Succeeded"}})),
        (2, json!({"metadata": {"labels": {"keep": "yes"}}})),
    ] {
        for (part, fields) in change.as_object().unwrap() {
            pods[at][part].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
    }
    for (label, taken) in [
        (json!("keep"), &[][..]),
        (json!("keep=yes"), &[][..]),
        (json!("keep=no"), &["web-c"][..]),
        (json!("other"), &["web-c"][..]),
        (json!("other="), &["web-c"][..]),
        (Value::Null, &["web-c"][..]),
    ] {
        let spec = json!({"prefix": "web-", "interval": "1m", "maxPods": 9, "protectedLabel": label});
        let mut world = World::new(spec, pods.clone());
        world.at("00:01:00");
        world.pass();
        assert_eq!(world.pass(), taken, "{label}");
    }
}

#[test]
fn what_came_to_be_protected_is_spared() {
    let spec = json!({"prefix": "web-", "interval": "5m", "maxPods": 3, "protectedLabel": "keep"});
    let mut world = World::new(spec, three());
    world.at("00:05:00").pass();
    world.pods[1]["metadata"]["labels"] = json!({"keep": ""});
    let mut deleted = world.pass();
    deleted.sort();
    assert_eq!(deleted, ["web-a", "web-c"]);
    world.pass();
    let mut recorded = world.history().remove(0);
    recorded.sort();
    assert_eq!(recorded, ["web-a", "web-c"]);
}

#[test]
fn a_choice_that_is_not_carried_out_in_a_minute_is_void() {
    let mut world = World::new(json!({"prefix": "web-", "interval": "1h"}), three());
    world.at("01:00:00").pass();
    // The API server refuses the deletion, again and again.
    let outcome = world.at("01:00:59").outcome();
    assert_eq!(deletions(&outcome).len(), 1);
    world.cluster.apply(&outcome);
    world.at("01:01:01");
    assert_eq!(world.pass(), Vec::<String>::new());
    assert_eq!(world.history(), [Vec::<String>::new()]);
    assert_eq!(world.status()["running"], Value::Null);
}

#[test]
fn a_dry_run_records_and_deletes_nothing() {
    let mut world =
        World::new(json!({"prefix": "web-", "interval": "5m", "dryRun": true, "maxPods": 2}), three());
    world.at("00:05:00");
    for _ in 0..3 {
        assert_eq!(world.pass(), Vec::<String>::new());
    }
    assert_eq!(world.pods.len(), 3);
    let run = &world.status()["history"][0];
    assert_eq!((run["dryRun"].clone(), run["pods"].as_array().unwrap().len()), (json!(true), 2));
    assert!(world.cluster.events()[0].message.starts_with("would have deleted web-"));
}

#[test]
fn the_history_is_bounded_and_the_newest_comes_first() {
    let mut world = World::new(json!({"prefix": "none-", "schedule": "* * * * *"}), three());
    for minute in 1..=12 {
        world.at(&format!("00:{minute:02}:00")).pass();
        world.pass();
    }
    let history = world.status()["history"].as_array().unwrap().clone();
    assert_eq!(history.len(), 10);
    assert_eq!(
        (&history[0]["time"], &history[9]["time"]),
        (&json!("2025-01-01T00:12:00Z"), &json!("2025-01-01T00:03:00Z"))
    );
}

#[test]
fn paused_means_no_run_and_going_on_makes_up_for_nothing() {
    let mut world = World::new(json!({"prefix": "web-", "interval": "5m"}), three());
    world.at("00:05:00").pass();
    world.cluster.edit(|spec| spec["paused"] = json!(true));
    assert_eq!(world.pass(), Vec::<String>::new(), "nor does one go on that has chosen");
    assert_eq!(world.status()["nextTime"], Value::Null);
    let ready = world.cluster.primary().condition("Ready").unwrap();
    assert_eq!((ready.state, ready.reason.as_str()), (State::False, "Paused"));
    world.at("02:00:00");
    world.cluster.edit(|spec| spec["paused"] = json!(false));
    for _ in 0..3 {
        assert_eq!(world.pass(), Vec::<String>::new());
    }
    assert_eq!(world.status()["nextTime"], "2025-01-01T02:05:00Z");
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn an_edit_of_the_timer_counts_anew_and_other_edits_do_not() {
    let mut world = World::new(json!({"prefix": "web-", "interval": "5m"}), three());
    world.at("00:06:00");
    world.cluster.edit(|spec| spec["interval"] = json!("4m"));
    world.pass();
    assert_eq!(world.status()["nextTime"], "2025-01-01T00:08:00Z");
    assert_eq!(world.history(), Vec::<Vec<String>>::new());
    world.at("00:09:00");
    world.cluster.edit(|spec| spec["maxPods"] = json!(3));
    world.pass();
    assert_eq!(world.pass().len(), 3, "it was due before the edit");
}

#[test]
fn what_is_wrong_is_refused_by_field_and_stops_the_timer() {
    for (change, expected) in [
        (json!({"prefix": ""}), "spec.prefix: is empty"),
        (json!({"prefix": null}), "spec.prefix: "),
        (json!({"maxPods": 0}), "spec.maxPods: use 1 or more"),
        (json!({"interval": null}), "spec: set exactly one of interval and schedule"),
        (json!({"schedule": "* * * * *"}), "spec: set exactly one of interval and schedule"),
        (json!({"interval": "4s"}), "spec.interval: use hours"),
        (json!({"interval": "soon"}), "spec.interval: use hours"),
        (json!({"interval": null, "schedule": "61 * * * *"}), "spec.schedule: minute: `61`"),
        (json!({"protectedLabel": ""}), "spec.protectedLabel: "),
        (json!({"protectedLabel": "=x"}), "spec.protectedLabel: "),
        (json!({"protectedLabel": "a==b"}), "spec.protectedLabel: "),
        (json!({"protectedLabel": "keep in (x)"}), "spec.protectedLabel: "),
    ] {
        let mut world = World::new(json!({"prefix": "web-", "interval": "5m"}), three());
        world.cluster.edit(|spec| spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        let outcome = world.at("01:00:00").outcome();
        let Some(Failure::Invalid(text)) = &outcome.failure else {
            panic!("{change}: {:?}", outcome.failure)
        };
        assert!(text.starts_with(expected), "{change}: {text}");
        assert_eq!(deletions(&outcome), []);
        if let Some(ready) = outcome.condition("Ready") {
            assert_eq!((ready.state, ready.reason.as_str()), (State::False, "InvalidSpec"));
        }
    }
}

#[test]
fn pods_of_selected_namespaces_are_asked_for_by_namespace() {
    let spec = json!({"prefix": "web-", "interval": "5m", "maxPods": 9, "namespaceSelector": {"matchLabels": {"chaos": "yes"}}});
    let mut world = World::new(spec, three());
    let elsewhere = |namespace: &str, name: &str| {
        let mut pod = pod(name);
        pod["metadata"]["namespace"] = json!(namespace);
        pod
    };
    world.at("00:05:00");
    world.cluster.answer("namespaces selected", vec![NAMESPACE.object("east"), NAMESPACE.object("west")]);
    world.cluster.answer("pods in east", vec![elsewhere("east", "web-a"), elsewhere("east", "db-a")]);
    world.cluster.answer("pods in west", vec![elsewhere("west", "web-b")]);
    world.pass();
    let outcome = world.outcome();
    let mut places: Vec<_> = outcome
        .actions
        .as_slice()
        .iter()
        .filter_map(|action| match action {
            Action::Delete(delete) => {
                Some((delete.target.namespace.clone().unwrap(), delete.target.name.as_str()))
            }
            _ => None,
        })
        .collect();
    places.sort();
    assert_eq!(places, [("east".to_owned(), "web-a"), ("west".to_owned(), "web-b")], "and none of its own");
}

#[test]
fn every_field_of_the_crd_is_explained() {
    let crd = chaos_pod::manifest().to_json()["crds"][0].clone();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(unexplained(&crd), Vec::<String>::new());
    assert_eq!(schema["status"]["properties"]["nextTime"]["format"], "date-time");
}

proptest! {
    /// A run takes candidates only, nobody twice, as many as it may; and the seed decides who.
    #[test]
    fn the_choice_is_among_the_candidates_and_the_seeds_alone(
        names in prop::collection::btree_set("(web|db)-[a-z]{1,4}", 0..12), max in 1_i32..6, seed in any::<u64>(),
    ) {
        let pods: Vec<Value> = names.iter().map(|name| pod(name)).collect();
        let candidates = names.iter().filter(|name| name.starts_with("web-")).count();
        let mut world = World::new(json!({"prefix": "web-", "interval": "5m", "maxPods": max}), pods);
        world.cluster.seed = seed;
        world.at("00:05:00");
        let mut again = world.clone();
        world.pass();
        let deleted = world.pass();
        again.pass();
        prop_assert_eq!(&again.pass(), &deleted);
        prop_assert!(deleted.iter().all(|name| name.starts_with("web-")));
        prop_assert_eq!(deleted.iter().collect::<BTreeSet<_>>().len(), deleted.len());
        prop_assert_eq!(deleted.len(), candidates.min(usize::try_from(max).unwrap()));
    }

    /// Whenever passes come and wherever the host ends, there is at most one run for each due time, and each deletes no
    /// more than it may.
    #[test]
    fn no_due_time_has_two_runs(
        passes in prop::collection::vec((1_i64..90, any::<u64>(), any::<bool>()), 1..60),
    ) {
        let mut world = World::new(json!({"prefix": "web-", "interval": "1m", "maxPods": 2}), Vec::new());
        let begin = Time::parse("2025-01-01T00:00:00Z").unwrap();
        let (mut now, mut deleted) = (begin.seconds(), 0);
        for (number, (seconds, seed, ends_early)) in passes.into_iter().enumerate() {
            now += seconds;
            world.cluster.now = Time::from_seconds(now).to_string();
            world.cluster.seed = seed;
            // Controllers make new pods all the time.
            world.pods.extend((0..2).map(|at| pod(&format!("web-{number}-{at}"))));
            let outcome = world.outcome();
            deleted += world.delete(&outcome).len();
            if !ends_early {
                world.cluster.apply(&outcome);
            }
            let due = usize::try_from((now - begin.seconds()) / 60).unwrap();
            prop_assert!(deleted <= 2 * due, "{deleted} deleted after {due} due times");
        }
    }
}
