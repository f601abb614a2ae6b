//! The finalizer is there before the first child and goes with the release; nobody else's is lost.

use pilothouse_cluster::finalizer;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::world::{World, by_kind, config_map, none};

const OURS: &str = "example.com/cleanup";

async fn primary(world: &World, finalizers: &Value) -> Object {
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = finalizers.clone();
    Object::from_value(&world.create(&object).await).unwrap()
}

async fn live(world: &World) -> Option<Vec<String>> {
    let object = world.get("ConfigMap", "a").await?;
    Some(serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap_or_default())
}

#[tokio::test]
async fn put_there_once_and_taken_off_once() {
    let world = World::new("finalizer").await;
    let resource = by_kind("ConfigMap");
    let bare = primary(&world, &json!([])).await;
    let with = finalizer::ensure(&world.writer, &resource, &bare, OURS).await.unwrap().unwrap();
    assert_eq!(live(&world).await.unwrap(), [OURS]);
    let before = world.spent();
    assert_eq!(finalizer::ensure(&world.writer, &resource, &with, OURS).await.unwrap(), None);
    assert_eq!(world.spent_since(&before), none());
    // A stale snapshot: one refused patch, one look.
    let found = finalizer::ensure(&world.writer, &resource, &bare, OURS).await.unwrap().unwrap();
    assert_eq!(found.meta().finalizers.len(), 1);
    assert_eq!(world.spent_since(&before), [("get", 1), ("json-patch", 1)].into());
    finalizer::remove(&world.writer, &resource, &with, OURS).await.unwrap().unwrap();
    assert_eq!(live(&world).await.unwrap(), [""; 0]);
    // Again, from the old snapshot: seen to be off already.
    let off = finalizer::remove(&world.writer, &resource, &with, OURS).await.unwrap().unwrap();
    assert_eq!(off.meta().finalizers.len(), 0);
    let before = world.spent();
    assert_eq!(finalizer::remove(&world.writer, &resource, &off, OURS).await.unwrap(), None);
    assert_eq!(world.spent_since(&before), none());
}

#[tokio::test]
async fn finalizers_of_others_survive_a_race() {
    let world = World::new("finalizer").await;
    let resource = by_kind("ConfigMap");
    let one = primary(&world, &json!(["example.com/a"])).await;
    world
        .edit("ConfigMap", "a", &json!({"metadata": {"finalizers": ["example.com/b", "example.com/a"]}}))
        .await;
    let with = finalizer::ensure(&world.writer, &resource, &one, OURS).await.unwrap().unwrap();
    assert_eq!(live(&world).await.unwrap(), ["example.com/b", "example.com/a", OURS]);
    // Its position has changed since.
    world.edit("ConfigMap", "a", &json!({"metadata": {"finalizers": [OURS, "example.com/a"]}})).await;
    finalizer::remove(&world.writer, &resource, &with, OURS).await.unwrap().unwrap();
    assert_eq!(live(&world).await.unwrap(), ["example.com/a"]);
    world.edit("ConfigMap", "a", &json!({"metadata": {"finalizers": []}})).await;
}

#[tokio::test]
async fn an_object_that_goes_gets_none_and_one_that_took_its_name_loses_none() {
    let world = World::new("finalizer").await;
    let resource = by_kind("ConfigMap");
    let held = primary(&world, &json!(["example.com/a"])).await;
    let path = format!("/api/v1/namespaces/{}/configmaps/a", world.namespace);
    let going = Object::from_value(&world.request("DELETE", &path, &Value::Null).await.unwrap()).unwrap();
    let before = world.spent();
    assert_eq!(finalizer::ensure(&world.writer, &resource, &going, OURS).await.unwrap(), None);
    assert_eq!(world.spent_since(&before), none());
    // A snapshot from before its deletion: the API server refuses, and nothing is created.
    let refused = finalizer::ensure(&world.writer, &resource, &held, OURS).await.unwrap_err();
    assert!(!refused.message.is_empty());
    world.edit("ConfigMap", "a", &json!({"metadata": {"finalizers": []}})).await;
    assert_eq!(live(&world).await, None);
    assert_eq!(
        finalizer::remove(&world.writer, &resource, &with(&held), OURS).await.unwrap(),
        None,
        "it is gone"
    );

    primary(&world, &json!([OURS])).await;
    assert_eq!(finalizer::remove(&world.writer, &resource, &with(&held), OURS).await.unwrap(), None);
    assert_eq!(live(&world).await.unwrap(), [OURS], "another object of that name");
    world.edit("ConfigMap", "a", &json!({"metadata": {"finalizers": []}})).await;
}

/// The same object as if it had our finalizer.
fn with(object: &Object) -> Object {
    let mut value = object.to_value();
    value["metadata"]["finalizers"] = json!([OURS]);
    Object::from_value(&value).unwrap()
}
