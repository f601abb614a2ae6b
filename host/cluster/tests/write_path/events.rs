//! MC#195: a plugin that emits the same event on each pass makes one Event.

use pilothouse_cluster::event::{BUCKET_SIZE, recorder};
use pilothouse_harness::eventually;
use pilothouse_model::action::{Event, Severity};
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::world::{DEADLINE, World};

fn event(message: &str) -> Event {
    Event { severity: Severity::Warning, reason: "Stuck".to_owned(), message: message.to_owned() }
}

async fn events(world: &World, namespace: &str, uid: &str) -> Vec<Value> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let list = world.request("GET", &path, &Value::Null).await.unwrap();
    let all = list["items"].as_array().unwrap().clone();
    all.into_iter().filter(|event| event["regarding"]["uid"] == uid).collect()
}

#[tokio::test]
async fn mc_195_repeats_are_one_series_and_chatter_is_cut() {
    let world = World::new("event").await;
    let (recorder, task) = recorder(&world.writer, "host-0");
    let counters = recorder.counters().clone();
    let running = tokio::spawn(task.run());
    for _ in 0..50 {
        recorder.record(&world.primary, &event("the same"));
    }
    for at in 0..50 {
        recorder.record(&world.primary, &event(&format!("another: {at}")));
    }
    drop(recorder);
    tokio::time::timeout(DEADLINE, running).await.expect("the task ends with its last recorder").unwrap();

    // The first, its series, and 23 of the others.
    let burst = u64::from(BUCKET_SIZE);
    assert_eq!((counters.written(), counters.repeated(), counters.dropped()), (burst, 48, 50 - (burst - 2)));
    assert_eq!(counters.failed(), 0);
    let uid = &world.primary.meta().uid;
    let found = events(&world, &world.namespace, uid).await;
    assert_eq!(found.len() as u64, burst - 1);
    let same = found.iter().find(|event| event["note"] == "the same").unwrap();
    assert_eq!(same["series"]["count"], 2);
    assert_eq!(
        (&same["type"], &same["reason"], &same["reportingController"], &same["reportingInstance"]),
        (&json!("Warning"), &json!("Stuck"), &json!("pilothouse.dev/host"), &json!("host-0"))
    );
}

#[tokio::test]
async fn events_about_cluster_scoped_objects_are_in_default_and_long_messages_cut() {
    let world = World::new("event").await;
    let path = format!("/api/v1/namespaces/{}", world.namespace);
    let namespace = Object::from_value(&world.request("GET", &path, &Value::Null).await.unwrap()).unwrap();
    let (recorder, task) = recorder(&world.writer, "host-0");
    let running = tokio::spawn(task.run());
    recorder.record(&namespace, &event(&"ä".repeat(2_000)));
    let found = eventually(DEADLINE, "the event", || async {
        events(&world, "default", &namespace.meta().uid).await.pop()
    })
    .await;
    assert_eq!(found["note"], "ä".repeat(512));
    drop(recorder);
    running.await.unwrap();
}

#[tokio::test]
async fn an_event_that_the_server_has_dropped_is_made_anew() {
    let world = World::new("event").await;
    let (recorder, task) = recorder(&world.writer, "host-0");
    let running = tokio::spawn(task.run());
    let uid = world.primary.meta().uid.clone();
    recorder.record(&world.primary, &event("m"));
    let first =
        eventually(DEADLINE, "the event", || async { events(&world, &world.namespace, &uid).await.pop() })
            .await;
    let name = first["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events/{name}", world.namespace);
    world.request("DELETE", &path, &Value::Null).await.unwrap();
    recorder.record(&world.primary, &event("m"));
    let second =
        eventually(DEADLINE, "a new event", || async { events(&world, &world.namespace, &uid).await.pop() })
            .await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    drop(recorder);
    running.await.unwrap();
}

#[tokio::test]
async fn what_is_said_again_after_a_restart_goes_on_being_the_same_event() {
    let world = World::new("event").await;
    let uid = world.primary.meta().uid.clone();
    let mut counts = Vec::new();
    for life in 0..3 {
        let (recorder, task) = recorder(&world.writer, &format!("host-{life}"));
        let running = tokio::spawn(task.run());
        recorder.record(&world.primary, &event("m"));
        tokio::time::timeout(DEADLINE, recorder.flush()).await.expect("the event is written");
        assert_eq!((recorder.counters().written(), recorder.counters().failed()), (1, 0), "life {life}");
        let found = events(&world, &world.namespace, &uid).await;
        assert_eq!(found.len(), 1, "life {life}: {found:#?}");
        counts.push(found[0]["series"]["count"].as_u64().unwrap_or(1));
        drop(recorder);
        running.await.unwrap();
    }
    assert_eq!(counts, [1, 2, 3]);
}

#[tokio::test]
async fn all_that_was_recorded_before_a_flush_is_written_after_it() {
    let world = World::new("event").await;
    let (recorder, task) = recorder(&world.writer, "host-0");
    let running = tokio::spawn(task.run());
    for at in 0..20 {
        recorder.record(&world.primary, &event(&at.to_string()));
    }
    tokio::time::timeout(DEADLINE, recorder.flush()).await.expect("they are written");
    let found = events(&world, &world.namespace, &world.primary.meta().uid).await;
    assert_eq!(found.len(), 20);
    // Without the task there is nobody to wait for.
    running.abort();
    let _ = running.await;
    tokio::time::timeout(DEADLINE, recorder.flush()).await.expect("nobody writes any more");
}
