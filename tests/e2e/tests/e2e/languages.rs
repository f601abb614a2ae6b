//! Plugins in Python, JavaScript and Go live as those in Rust do: apply, scale, drift, invalid input, hot swap, deletion.

use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    stamped::{generation, logs, put, reconciled, serves, shows},
    support::{
        CONFIG_MAP, DEADLINE, EVENT, GREETING, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, World,
        condition, pilothouse, plugin, plugin_directory, run, try_run,
    },
};

const CLUSTER: &str = "orders-db";
const PYTHON: &str = "postgres-cluster-python";
const JAVASCRIPT: &str = "service-per-pod";
const GO: &str = "greeting-go";
const SET: &str = "web";

/// Writes the plugin anew with other bytes, and waits until it serves.
async fn swap(world: &World, host: &Host, name: &str) {
    let before = generation(host, name).await.unwrap();
    let file = world.plugins.path().join(name).with_extension("wasm");
    let changed = pilothouse_guests::variant(&std::fs::read(&file).unwrap(), 1);
    let beside = file.with_extension("new");
    std::fs::write(&beside, changed).unwrap();
    std::fs::rename(beside, file).unwrap();
    eventually(DEADLINE, "the new version to serve", || async {
        let now = generation(host, name).await;
        anyhow::ensure!(now > Some(before), "generation {now:?}");
        Ok(())
    })
    .await;
}

/// A host that begins anew asks at most what a list would become, and writes nothing.
async fn rests_through_a_restart(world: &World, host: &Host, name: &str) {
    host.terminate().await.unwrap();
    let mark = world.mark().await;
    host.restart().await.unwrap();
    eventually(DEADLINE, "a pass of the new host", || async {
        let metrics = host.metrics().await?;
        let passes = metrics.sum("controller_runtime_reconcile_total", &[("result", "success")]);
        anyhow::ensure!(passes >= 1.0, "{passes} passes of {name}");
        Ok(())
    })
    .await;
    let mut writes = world.writes_since(mark).await;
    writes.retain(|event| !event.is_dry_run());
    assert_eq!(writes, [], "{name}");
}

async fn python(prefix: &str) -> World {
    World::granted(prefix, &[plugin(PYTHON)]).await
}

#[tokio::test]
async fn a_python_handler_makes_the_stateful_set_and_what_it_returns_is_the_status() {
    let world = python("python").await;
    let host = world.host().await;
    serves(&host, &[(PYTHON, "0.1.0")]).await;
    world.cluster(CLUSTER, 3).await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["status"]["desiredReplicas"], 3);
    assert_eq!(cluster["status"]["readyReplicas"], 3);
    logs(&host, &["ensuring orders-db has 3 replicas", PYTHON]).await;

    let set = world.get(STATEFUL_SET, CLUSTER).await.unwrap();
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], cluster["metadata"]["uid"]);
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "postgres:16");
    assert!(world.get(SECRET, "orders-db-app").await.unwrap()["data"]["password"].is_string());
    assert!(world.get(SERVICE, CLUSTER).await.is_some());

    world.kubectl("scale pgc orders-db --replicas=4").await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["status"]["desiredReplicas"], 4);

    // Drift is put back, by the version that has taken over meanwhile too.
    for _ in 0..2 {
        world.edit(STATEFUL_SET, CLUSTER, &json!({"spec": {"replicas": 1}})).await;
        eventually(DEADLINE, "the replicas to be put back", || async {
            let set = world.get(STATEFUL_SET, CLUSTER).await.unwrap_or_default();
            anyhow::ensure!(set["spec"]["replicas"] == 4, "{}", set["spec"]["replicas"]);
            Ok(())
        })
        .await;
        swap(&world, &host, PYTHON).await;
    }

    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    rests_through_a_restart(&world, &host, PYTHON).await;
    world.kubectl("scale pgc orders-db --replicas=2").await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["status"]["desiredReplicas"], 2);
}

#[tokio::test]
async fn a_python_permanent_error_is_told_and_the_edit_that_mends_it_is_enough() {
    let world = python("python-invalid").await;
    let _host = world.host().await;
    world.cluster(CLUSTER, 1).await;
    world.edit(POSTGRES_CLUSTER, CLUSTER, &json!({"spec": {"storage": "0Gi"}})).await;
    let told = reconciled(&world, POSTGRES_CLUSTER, CLUSTER, "InvalidResource").await;
    assert_eq!(told["message"], "spec.storage: 0Gi is no size, at least 1Gi would be right");
    world.edit(POSTGRES_CLUSTER, CLUSTER, &json!({"spec": {"storage": "2Gi"}})).await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(condition(&cluster, "Reconciled")["reason"], "Succeeded");
}

#[tokio::test]
async fn a_python_delete_handler_holds_the_object_until_its_instances_are_gone() {
    let world = python("python-delete").await;
    let host = world.host().await;
    world.cluster(CLUSTER, 2).await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["metadata"]["finalizers"], json!(["db.example.com/cleanup"]));
    world.delete(POSTGRES_CLUSTER, CLUSTER).await;
    logs(&host, &["ensuring orders-db has 0 replicas", PYTHON]).await;
    logs(&host, &["orders-db is shutting down; again in 10 s"]).await;
    world.gone(POSTGRES_CLUSTER, CLUSTER).await;
    logs(&host, &["orders-db has shut down"]).await;
    for kind in [STATEFUL_SET, SERVICE, SECRET] {
        eventually(DEADLINE, &format!("every {} to be gone", kind.1), || async {
            let left = world.list(kind).await;
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await;
    }
}

/// Of the two plugins that serve the kind, one or the other runs: the finalizer is the same, so that nothing stays.
#[tokio::test]
async fn what_the_rust_plugin_held_the_python_one_lets_go() {
    let world = World::granted("python-after", &[plugin("postgres-cluster"), plugin(PYTHON)]).await;
    let serving = |name| {
        let directory = plugin_directory(&[plugin(name)]);
        let options = HostOptions { plugins: vec![directory.path().to_owned()], ..world.options() };
        async move { (Host::start(options).await.unwrap(), directory) }
    };
    let (host, _rust) = serving("postgres-cluster").await;
    world.cluster(CLUSTER, 2).await;
    world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    host.terminate().await.unwrap();

    let (host, _python) = serving(PYTHON).await;
    serves(&host, &[(PYTHON, "0.1.0")]).await;
    world.kubectl("scale pgc orders-db --replicas=1").await;
    let cluster = world.ready(POSTGRES_CLUSTER, CLUSTER).await;
    assert_eq!(cluster["status"]["desiredReplicas"], 1);
    world.delete(POSTGRES_CLUSTER, CLUSTER).await;
    world.gone(POSTGRES_CLUSTER, CLUSTER).await;
    world.gone(STATEFUL_SET, CLUSTER).await;
}

/// A StatefulSet with these annotations.
fn set(replicas: u32, annotations: &Value) -> String {
    let labels = json!({"app": SET});
    let containers = json!([{"name": "web", "image": "web:1"}]);
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": SET, "annotations": annotations},
        "spec": {
            "replicas": replicas, "serviceName": SET, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    })
    .to_string()
}

async fn has_services(world: &World, wanted: &[&str]) {
    eventually(DEADLINE, &format!("Services {wanted:?}"), || async {
        let services = world.list(SERVICE).await;
        let names = services.iter().map(|service| service["metadata"]["name"].as_str().unwrap_or_default());
        anyhow::ensure!(names.clone().eq(wanted.iter().copied()), "{:?}", names.collect::<Vec<_>>());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_javascript_decorator_follows_the_stateful_set_that_it_decorates() {
    let world = World::granted("per-pod", &[plugin(JAVASCRIPT)]).await;
    let host = world.host().await;
    world.apply(&set(3, &json!({"service-per-pod-ports": "80:8080"}))).await;
    has_services(&world, &["web-0", "web-1", "web-2"]).await;
    let owner = world.get(STATEFUL_SET, SET).await.unwrap();
    let service = world.get(SERVICE, "web-1").await.unwrap();
    assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    assert_eq!(service["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(service["spec"]["selector"], json!({"statefulset.kubernetes.io/pod-name": "web-1"}));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);

    world.kubectl("scale statefulset web --replicas=2").await;
    has_services(&world, &["web-0", "web-1"]).await;
    logs(&host, &["web-2 has no pod any more"]).await;

    swap(&world, &host, JAVASCRIPT).await;
    let uid = world.get(SERVICE, "web-0").await.unwrap()["metadata"]["uid"].clone();
    world
        .edit(SERVICE, "web-0", &json!({"spec": {"selector": {"statefulset.kubernetes.io/pod-name": "no"}}}))
        .await;
    eventually(DEADLINE, "the selector to be put back", || async {
        let service = world.get(SERVICE, "web-0").await.unwrap_or_default();
        let selector = &service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"];
        anyhow::ensure!(selector == "web-0" && service["metadata"]["uid"] == uid, "{service}");
        Ok(())
    })
    .await;

    rests_through_a_restart(&world, &host, JAVASCRIPT).await;
    world.kubectl("annotate statefulset web service-per-pod-ports-").await;
    has_services(&world, &[]).await;
    world.kubectl("annotate statefulset web service-per-pod-ports=443").await;
    has_services(&world, &["web-0", "web-1"]).await;
    world.delete(STATEFUL_SET, SET).await;
    has_services(&world, &[]).await;
}

#[tokio::test]
async fn a_javascript_invalid_error_is_an_event_and_nothing_is_touched() {
    let world = World::granted("per-pod-invalid", &[plugin(JAVASCRIPT)]).await;
    let _host = world.host().await;
    world.apply(&set(1, &json!({"service-per-pod-ports": "80"}))).await;
    has_services(&world, &["web-0"]).await;
    world.kubectl("annotate --overwrite statefulset web service-per-pod-ports=http").await;
    eventually(DEADLINE, "an event that names the annotation", || async {
        let events = world.list(EVENT).await;
        let notes: Vec<_> = events.iter().filter_map(|event| event["note"].as_str()).collect();
        let wanted = "metadata.annotations[service-per-pod-ports]: `http` is no port";
        anyhow::ensure!(notes.iter().any(|note| note.contains(wanted)), "{notes:?}");
        Ok(())
    })
    .await;
    let service = world.get(SERVICE, "web-0").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
}

#[tokio::test]
async fn what_no_config_map_holds_is_not_packaged_and_the_way_is_told() {
    let file = plugin(JAVASCRIPT);
    let done =
        try_run(&pilothouse(), ["package".as_ref(), file.as_os_str(), "--configmap".as_ref(), "x".as_ref()])
            .await;
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("a ConfigMap holds 1048576") && stderr.contains("run --plugins DIR"), "{stderr}");
}

#[tokio::test]
async fn a_plugin_in_go_takes_over_the_kind_of_one_in_rust() {
    // The kind and the rights are those of the plugin in Rust.
    let world = World::granted("go", &[plugin("config-map")]).await;
    let plugins = plugin_directory(&[plugin(GO)]);
    let host = HostOptions { plugins: vec![plugins.path().to_owned()], ..world.options() };
    let host = Host::start(host).await.unwrap();
    serves(&host, &[(GO, "0.1.0")]).await;
    put(&world, GREETING, "hello", json!({"text": "good day"})).await;
    shows(&world, "hello", &[("text", "good day")]).await;
    let greeting = world.ready(GREETING, "hello").await;
    assert_eq!(condition(&greeting, "Ready")["message"], "the ConfigMap is there");

    world.edit(CONFIG_MAP, "hello", &json!({"data": {"text": "drift"}})).await;
    shows(&world, "hello", &[("text", "good day")]).await;
    put(&world, GREETING, "hello", json!({"text": "good night"})).await;
    shows(&world, "hello", &[("text", "good night")]).await;
    world.ready(GREETING, "hello").await;
    rests_through_a_restart(&world, &host, GO).await;
    world.delete(GREETING, "hello").await;
    world.gone(CONFIG_MAP, "hello").await;
}

/// `pilothouse crds` refuses two plugins that define a kind differently.
#[tokio::test]
async fn plugins_that_serve_one_kind_bring_one_definition_of_it() {
    for (one, other) in [("postgres-cluster", PYTHON), ("config-map", GO)] {
        let printed =
            run(&pilothouse(), ["crds".as_ref(), plugin(one).as_os_str(), plugin(other).as_os_str()]).await;
        assert_eq!(
            printed.matches("kind: CustomResourceDefinition").count(),
            1,
            "`make generate` writes crd.json"
        );
    }
}
