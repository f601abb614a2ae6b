//! Children that somebody deletes or edits are put right; what belongs to somebody else is left as it is.

use std::time::Instant;

use base64::{Engine, engine::general_purpose::STANDARD};
use pilothouse_harness::eventually;
use serde_json::{Value, json};

use crate::support::{
    DEADLINE, Kind, POD_DISRUPTION_BUDGET, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, World,
};

const CLUSTER: &str = "orders-db";

const CHILDREN: [(Kind, &str); 6] = [
    (STATEFUL_SET, "orders-db"),
    (SERVICE, "orders-db"),
    (SERVICE, "orders-db-rw"),
    (SERVICE, "orders-db-ro"),
    (SECRET, "orders-db-app"),
    (POD_DISRUPTION_BUDGET, "orders-db"),
];

async fn ready_world(prefix: &str) -> (World, pilothouse_harness::Host) {
    let world = World::deployed(prefix).await;
    let host = world.host().await;
    world.cluster(CLUSTER, 1).await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    (world, host)
}

/// What the plugin and its user see of an object.
fn content(object: &Value) -> Value {
    json!([
        object["metadata"]["labels"],
        object["metadata"]["ownerReferences"],
        object["spec"],
        object["data"]
    ])
}

fn decoded(secret: &Value, key: &str) -> String {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_deleted_child_is_made_again() {
    let (world, _host) = ready_world("deleted").await;
    for (kind, name) in CHILDREN {
        let before = world.get(kind, name).await.unwrap();
        let begun = Instant::now();
        world.delete(kind, name).await;
        let after = eventually(DEADLINE, &format!("{} {name} to be back", kind.1), || async {
            let found = world.get(kind, name).await;
            Ok(found.filter(|found| found["metadata"]["uid"] != before["metadata"]["uid"]))
        })
        .await;
        eprintln!("{} {name}: back after {} ms", kind.1, begun.elapsed().as_millis());
        assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
        if kind == SECRET {
            // Nobody has kept the old password; the composed value is of the new one.
            let (password, uri) = (decoded(&after, "password"), decoded(&after, "uri"));
            assert!(uri.contains(&format!(":{password}@")), "uri and password differ");
        }
    }
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
}

#[tokio::test]
async fn an_edited_child_is_put_right() {
    let (world, _host) = ready_world("edited").await;
    let selector = json!({"spec": {"selector": {"app.kubernetes.io/instance": "another"}}});
    let edits: [(Kind, &str, Value); 10] = [
        (STATEFUL_SET, "orders-db", json!({"spec": {"replicas": 4}})),
        (
            STATEFUL_SET,
            "orders-db",
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}),
        ),
        (STATEFUL_SET, "orders-db", json!({"metadata": {"labels": {"app.kubernetes.io/name": "mysql"}}})),
        (SERVICE, "orders-db", json!({"metadata": {"labels": {"app.kubernetes.io/instance": null}}})),
        (SERVICE, "orders-db-rw", selector.clone()),
        (
            SERVICE,
            "orders-db-rw",
            json!({"spec": {"ports": [{"name": "pg", "port": 6432, "targetPort": "pg"}]}}),
        ),
        (SERVICE, "orders-db-ro", selector),
        (SECRET, "orders-db-app", json!({"data": {"port": STANDARD.encode("6432")}})),
        (SECRET, "orders-db-app", json!({"data": {"username": null}})),
        (POD_DISRUPTION_BUDGET, "orders-db", json!({"spec": {"maxUnavailable": 3}})),
    ];
    for (kind, name, edit) in edits {
        let before = world.get(kind, name).await.unwrap();
        let begun = Instant::now();
        let edited = world.edit(kind, name, &edit).await;
        assert_ne!(content(&edited), content(&before), "{edit} changes nothing, so the test shows nothing");
        eventually(DEADLINE, &format!("{} {name} after {edit}", kind.1), || async {
            let now = world.get(kind, name).await.unwrap();
            anyhow::ensure!(content(&now) == content(&before), "it is {now}, was {before}");
            Ok(true)
        })
        .await;
        eprintln!("{} {name} {edit}: right after {} ms", kind.1, begun.elapsed().as_millis());
    }
}

#[tokio::test]
async fn what_somebody_else_adds_to_a_child_stays() {
    let (world, _host) = ready_world("foreign").await;
    let added = json!({"metadata": {"labels": {"team": "till"}, "annotations": {"note": "mine"}}});
    for (kind, name) in CHILDREN {
        world.edit(kind, name, &added).await;
    }
    // A field of ours, edited afterwards and put right, shows that the host has looked since.
    for (kind, name) in CHILDREN {
        let ours = "app.kubernetes.io/name";
        world.edit(kind, name, &json!({"metadata": {"labels": {ours: "mysql"}}})).await;
        eventually(DEADLINE, &format!("the label of {} {name}", kind.1), || async {
            let now = world.get(kind, name).await.unwrap();
            anyhow::ensure!(now["metadata"]["labels"][ours] == "postgresql", "{}", now["metadata"]);
            assert_eq!(now["metadata"]["labels"]["team"], "till", "{}", now["metadata"]);
            assert_eq!(now["metadata"]["annotations"]["note"], "mine", "{}", now["metadata"]);
            Ok(true)
        })
        .await;
    }
}

#[tokio::test]
async fn a_password_that_a_user_sets_is_kept_and_the_uri_follows() {
    let (world, _host) = ready_world("password").await;
    let before = world.get(SECRET, "orders-db-app").await.unwrap();
    world.edit(SECRET, "orders-db-app", &json!({"data": {"password": STANDARD.encode("chosen")}})).await;
    let after = eventually(DEADLINE, "the uri to follow", || async {
        let now = world.get(SECRET, "orders-db-app").await.unwrap();
        let uri = decoded(&now, "uri");
        anyhow::ensure!(uri.starts_with("postgresql://app:chosen@"), "{uri}");
        Ok(Some(now))
    })
    .await;
    assert_eq!(decoded(&after, "password"), "chosen");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["data"]["host"], before["data"]["host"]);
}

#[tokio::test]
async fn a_child_whose_label_was_taken_off_is_found_again() {
    let (world, _host) = ready_world("unlabelled").await;
    for (kind, name) in CHILDREN {
        let before = world.get(kind, name).await.unwrap();
        assert_eq!(before["metadata"]["labels"]["pilothouse.dev/managed"], "postgres-cluster", "{before}");
        world.edit(kind, name, &json!({"metadata": {"labels": {"pilothouse.dev/managed": null}}})).await;
        eventually(DEADLINE, &format!("{} {name} to be labelled", kind.1), || async {
            let now = world.get(kind, name).await.unwrap();
            assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"], "it was made anew");
            anyhow::ensure!(content(&now) == content(&before), "{now}");
            Ok(true)
        })
        .await;
    }
}
