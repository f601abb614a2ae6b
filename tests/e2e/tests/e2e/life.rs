//! What a user sees between `kubectl apply` and a cluster that is ready.

use base64::{Engine, engine::general_purpose::STANDARD};
use pilothouse_harness::eventually;
use serde_json::{Value, json};

use crate::support::{
    DEADLINE, EVENT, POD_DISRUPTION_BUDGET, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, World,
    condition, sample,
};

const CLUSTER: &str = "orders-db";

async fn world(prefix: &str) -> World {
    let world = World::deployed(prefix).await;
    let manifests = sample("postgres-cluster", "shop", &world.namespace);
    world.apply(&manifests).await;
    world
}

fn values(secret: &Value) -> impl Fn(&str) -> String {
    let data = secret["data"].clone();
    move |key| String::from_utf8(STANDARD.decode(data[key].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn applying_the_sample_makes_every_object_of_the_cluster() {
    let world = World::deployed("sample").await;
    let _host = world.host().await;
    let mark = world.mark().await;
    world.apply(&sample("postgres-cluster", "shop", &world.namespace)).await;
    let cluster = world.present(POSTGRES_CLUSTER, CLUSTER).await;

    let set = world.present(STATEFUL_SET, CLUSTER).await;
    assert_eq!(set["spec"]["replicas"], 3);
    assert_eq!(set["spec"]["serviceName"], CLUSTER);
    assert_eq!(set["spec"]["podManagementPolicy"], "Parallel");
    assert_eq!(set["spec"]["selector"], json!({"matchLabels": {"app.kubernetes.io/instance": CLUSTER}}));
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["name"], "postgres");
    assert_eq!(container["image"], "postgres:16");
    assert_eq!(container["ports"], json!([{"name": "pg", "containerPort": 5432, "protocol": "TCP"}]));
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "data");
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "20Gi");

    let headless = world.present(SERVICE, CLUSTER).await;
    assert_eq!(headless["spec"]["clusterIP"], "None");
    let writes = world.present(SERVICE, "orders-db-rw").await;
    assert_eq!(writes["spec"]["selector"]["statefulset.kubernetes.io/pod-name"], "orders-db-0");
    let reads = world.present(SERVICE, "orders-db-ro").await;
    assert_eq!(reads["spec"]["selector"]["role"], "replica");
    for service in [&headless, &writes, &reads] {
        assert_eq!(service["spec"]["ports"][0]["port"], 5432, "{service}");
    }
    let budget = world.present(POD_DISRUPTION_BUDGET, CLUSTER).await;
    assert_eq!(budget["spec"]["maxUnavailable"], 1);

    let secret = world.present(SECRET, "orders-db-app").await;
    let keys: Vec<_> = secret["data"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["dbname", "host", "password", "port", "uri", "username"]);
    let value = values(&secret);
    assert_eq!(value("password").len(), 32);
    let host = format!("orders-db-rw.{}.svc", world.namespace);
    assert_eq!(value("host"), host);
    assert_eq!(value("uri"), format!("postgresql://app:{}@{host}:5432/app", value("password")));

    for child in [&set, &headless, &writes, &reads, &budget, &secret] {
        let owner = &child["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], cluster["metadata"]["uid"], "{child}");
        assert_eq!(owner["controller"], true, "{child}");
    }
    report_latency(&world, mark).await;
}

/// The API server's own clock: from the answer to the user's write to the answer to the last write of a child.
async fn report_latency(world: &World, mark: crate::support::Mark) {
    let asked = world.events_since(mark).await.into_iter().find(|event| {
        event.is_write()
            && event.resource == "postgresclusters"
            && event.user != world.user
            && event.code < 300
    });
    let writes = world.writes_since(mark).await;
    let made =
        writes.iter().filter(|event| event.resource != "postgresclusters" && event.resource != "events");
    let last = made.map(|event| event.reached).max().unwrap();
    let latency = last.duration_since(asked.unwrap().reached);
    eprintln!("apply to all children: {} ms", latency.as_millis());
}

#[tokio::test]
async fn a_cluster_becomes_ready_and_says_so_to_kubectl() {
    let world = world("ready").await;
    let _host = world.host().await;
    world.kubectl("wait --for=condition=Ready --timeout=120s pgc/orders-db").await;

    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    let status = &cluster["status"];
    assert_eq!(status["readyReplicas"], 3);
    assert_eq!(status["replicas"], 3);
    assert_eq!(status["observedGeneration"], cluster["metadata"]["generation"]);
    let ready = condition(&cluster, "Ready");
    assert_eq!(
        (&ready["reason"], &ready["message"]),
        (&json!("AllReplicasReady"), &json!("3/3 replicas ready"))
    );
    assert_eq!(condition(&cluster, "Reconciled")["reason"], "Succeeded");
    assert_eq!(condition(&cluster, "Replicating")["status"], "False");

    let table = world.kubectl("get pgc orders-db").await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "REPLICAS", "READY", "PRIMARY", "VERSION", "AGE"]);
    assert_eq!(rows[1][..3], ["orders-db", "3", "3"]);

    let explained = world.kubectl("explain pgc.spec").await;
    for part in
        ["replicas", "Number of instances", "-required-", "storageClass", "Major version of PostgreSQL"]
    {
        assert!(explained.contains(part), "{part:?} is not in {explained}");
    }
}

#[tokio::test]
async fn transitions_are_events_and_repeated_passes_are_not() {
    let world = world("events").await;
    let _host = world.host().await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    let about = |reason: &'static str| {
        let world = &world;
        async move {
            let events = world.list(EVENT).await;
            let found = events.into_iter().filter(|event| {
                event["regarding"]["kind"] == POSTGRES_CLUSTER.1 && event["reason"] == reason
            });
            found.collect::<Vec<_>>()
        }
    };
    eventually(DEADLINE, "an event about readiness", || async {
        let events = about("AllReplicasReady").await;
        anyhow::ensure!(!events.is_empty(), "none yet");
        Ok(true)
    })
    .await;
    for reason in ["Provisioning", "AllReplicasReady"] {
        let events = about(reason).await;
        assert_eq!(events.len(), 1, "{reason}: {events:#?}");
        let event = &events[0];
        assert_eq!(event["type"], "Normal");
        assert_eq!(event["regarding"]["name"], CLUSTER);
        assert_eq!(event["series"], Value::Null, "{reason} was repeated");
    }
    let shown = world.kubectl("events --for pgc/orders-db").await;
    assert!(shown.contains("AllReplicasReady") && shown.contains("3/3 replicas ready"), "{shown}");
}

#[tokio::test]
async fn kubectl_scale_changes_the_number_of_instances() {
    let world = world("scale").await;
    let _host = world.host().await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    world.kubectl("scale pgc orders-db --replicas=4").await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["spec"]["replicas"], 4);
    assert_eq!(cluster["status"]["readyReplicas"], 4);
    assert_eq!(world.get(STATEFUL_SET, CLUSTER).await.unwrap()["spec"]["replicas"], 4);
}

#[tokio::test]
async fn clusters_in_other_namespaces_are_left_alone_by_a_host_for_one() {
    let world = world("mine").await;
    let other = World::deployed("theirs").await;
    other.cluster(CLUSTER, 1).await;
    let _host = world.host().await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    let untouched = other.get(POSTGRES_CLUSTER, CLUSTER).await.unwrap();
    assert_eq!(untouched["status"], Value::Null, "{untouched}");
    assert_eq!(untouched["metadata"]["finalizers"], Value::Null, "{untouched}");
    assert_eq!(other.list(STATEFUL_SET).await, Vec::<Value>::new());
}
