//! The plugin `pod-replica`: numbers, scaling, replacement and deletion, and how many writes each of them takes.

use pilothouse_harness::{AuditEvent, Host, PodState, eventually};
use serde_json::{Value, json};

use crate::support::{DEADLINE, Kind, POD, POD_REPLICA, World, condition, plugin};

/// A PodReplica of this test alone.
const NAME: &str = "web";

async fn world(prefix: &str) -> (World, Host) {
    let world = World::granted(prefix, &[plugin("pod-replica")]).await;
    let host = world.host().await;
    (world, host)
}

async fn create(world: &World, size: i64) {
    let Kind(api_version, kind, _) = POD_REPLICA;
    let object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME}, "spec": {"size": size}});
    world.create(POD_REPLICA, &object).await;
}

async fn scale(world: &World, size: i64) {
    world.edit(POD_REPLICA, NAME, &json!({"spec": {"size": size}})).await;
}

/// Waits until the pods are those of these numbers, and the status says so.
async fn numbers(world: &World, wanted: impl IntoIterator<Item = usize>) {
    let wanted: Vec<String> = wanted.into_iter().map(|number| format!("{NAME}-{number}")).collect();
    eventually(DEADLINE, "the pods and the status", || async {
        let replica = world.get(POD_REPLICA, NAME).await.unwrap_or_default();
        let status = &replica["status"];
        anyhow::ensure!(status["podNames"] == json!(wanted), "{status}");
        anyhow::ensure!(
            status["replicas"] == wanted.len()
                && status["observedGeneration"] == replica["metadata"]["generation"]
        );
        let ready = condition(&replica, "Ready");
        anyhow::ensure!(
            ready["status"] == "True" && condition(&replica, "Reconciled")["status"] == "True",
            "{status}"
        );
        let there: Vec<Value> = world.list(POD).await;
        let mut there: Vec<&str> = there.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        there.sort_unstable();
        let mut sorted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        anyhow::ensure!(there == sorted, "there are {there:?}");
        Ok(true)
    })
    .await;
}

/// `verb resource/subresource` of each write, sorted, with how often it was sent.
fn counted(writes: &[AuditEvent]) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for write in writes {
        *counts.entry(format!("{} {}/{}", write.verb, write.resource, write.subresource)).or_default() += 1;
    }
    counts.into_iter().collect()
}

async fn uid(world: &World, number: usize) -> String {
    let pod = world.present(POD, &format!("{NAME}-{number}")).await;
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until the pod of this number is another than the one with this UID.
async fn replaced(world: &World, number: usize, before: &str) {
    eventually(DEADLINE, "another pod", || async {
        let pod = world.get(POD, &format!("{NAME}-{number}")).await;
        let replica = world.get(POD_REPLICA, NAME).await;
        anyhow::ensure!(
            pod.as_ref().is_some_and(|pod| pod["metadata"]["uid"] != before),
            "{pod:?} {replica:?}"
        );
        Ok(true)
    })
    .await;
}

async fn in_state(world: &World, number: usize, state: PodState) {
    let name = format!("{NAME}-{number}");
    eventually(DEADLINE, "the state of a pod", || async {
        let pod = serde_json::from_value(world.get(POD, &name).await.unwrap_or_default())?;
        Ok(PodState::of(&pod) == Some(state))
    })
    .await;
}

#[tokio::test]
async fn scaling_takes_the_lowest_free_numbers_and_gives_up_the_highest() {
    let (world, _host) = world("podr-scale").await;
    let mark = world.mark().await;
    create(&world, 3).await;
    numbers(&world, 0..3).await;
    world.kubectl("wait --for=condition=Ready --timeout=120s podreplica/web").await;
    let pod = world.present(POD, "web-0").await;
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("busybox"), &json!("IfNotPresent"))
    );
    assert_eq!(container["command"], json!(["sleep", "3600"]));
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["controller"]), (&json!(NAME), &json!(true)));

    for number in 0..3 {
        in_state(&world, number, PodState::Ready).await;
    }
    scale(&world, 12).await;
    numbers(&world, 0..12).await;
    // What a scale client does, and with it an autoscaler.
    world.kubectl("scale podreplica web --replicas=0").await;
    numbers(&world, []).await;
    world.kubectl("scale podr web --replicas=2").await;
    numbers(&world, 0..2).await;

    let writes = world.writes_since(mark).await;
    let expected = [("create pods/", 14), ("delete pods/", 12), ("patch podreplicas/status", 4)];
    assert_eq!(
        counted(&writes),
        expected.map(|(what, count)| (what.to_owned(), count)),
        "no write too many, no event"
    );
    let scale: Value = serde_json::from_str(
        &world
            .kubectl(
                "get --raw /apis/app.example.com/v1alpha1/namespaces/NS/podreplicas/web/scale"
                    .replace("NS", &world.namespace)
                    .as_str(),
            )
            .await,
    )
    .unwrap();
    let selected = world
        .kubectl(&format!("get pods -o name -l {}", scale["status"]["selector"].as_str().unwrap()))
        .await;
    assert_eq!(selected.lines().collect::<Vec<_>>(), ["pod/web-0", "pod/web-1"]);
}

#[tokio::test]
async fn those_that_are_not_ready_go_first_and_their_numbers_are_taken_again() {
    let (world, _host) = world("podr-ready").await;
    create(&world, 5).await;
    numbers(&world, 0..5).await;
    for number in 0..5 {
        in_state(&world, number, PodState::Ready).await;
    }
    world.kubelet.set(&world.namespace, "web-1", PodState::NotReady).await.unwrap();
    scale(&world, 3).await;
    numbers(&world, [0, 2, 3]).await;
    scale(&world, 5).await;
    numbers(&world, 0..5).await;
}

#[tokio::test]
async fn deleted_and_finished_pods_are_replaced() {
    let (world, _host) = world("podr-replace").await;
    create(&world, 3).await;
    numbers(&world, 0..3).await;
    let before = uid(&world, 1).await;
    world.delete(POD, "web-1").await;
    replaced(&world, 1, &before).await;
    numbers(&world, 0..3).await;

    for (number, state) in [(0, PodState::Succeeded), (2, PodState::Failed)] {
        in_state(&world, number, PodState::Ready).await;
        let before = uid(&world, number).await;
        world.kubelet.set(&world.namespace, &format!("{NAME}-{number}"), state).await.unwrap();
        replaced(&world, number, &before).await;
        numbers(&world, 0..3).await;
    }
}

#[tokio::test]
async fn a_pod_that_does_not_go_keeps_its_number_and_is_not_in_the_status() {
    let (world, _host) = world("podr-stuck").await;
    create(&world, 2).await;
    numbers(&world, 0..2).await;
    world.edit(POD, "web-0", &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    world.delete(POD, "web-0").await;
    eventually(DEADLINE, "one of two", || async {
        let replica = world.get(POD_REPLICA, NAME).await.unwrap();
        Ok(replica["status"]["podNames"] == json!(["web-1"]))
    })
    .await;
    scale(&world, 3).await;
    world.present(POD, "web-2").await;
    world.edit(POD, "web-0", &json!({"metadata": {"finalizers": null}})).await;
    numbers(&world, 0..3).await;
}

#[tokio::test]
async fn a_restart_writes_nothing_and_deletion_takes_the_pods_along() {
    let (world, host) = world("podr-life").await;
    create(&world, 3).await;
    numbers(&world, 0..3).await;
    let passes = async || host.metrics().await.unwrap().sum("controller_runtime_reconcile_total", &[]);
    let mark = world.mark().await;
    host.restart().await.unwrap();
    eventually(DEADLINE, "a pass after the restart", || async { Ok(passes().await >= 1.0) }).await;
    // The next edit's writes come behind all of that pass.
    scale(&world, 4).await;
    numbers(&world, 0..4).await;
    let expected = [("create pods/", 1), ("patch podreplicas/status", 1)];
    assert_eq!(
        counted(&world.writes_since(mark).await),
        expected.map(|(what, count)| (what.to_owned(), count))
    );

    assert!(world.get(POD_REPLICA, NAME).await.unwrap()["metadata"]["finalizers"].is_null());
    world.delete(POD_REPLICA, NAME).await;
    for number in 0..4 {
        world.gone(POD, &format!("{NAME}-{number}")).await;
    }
}

#[tokio::test]
async fn a_pod_that_is_refused_is_not_in_the_status() {
    let (world, _host) = world("podr-quota").await;
    world.kubectl("create quota few --hard=pods=2").await;
    eventually(DEADLINE, "the quota to be counted", || async {
        Ok(!world.kubectl("get resourcequota few -o jsonpath={.status.used}").await.is_empty())
    })
    .await;
    create(&world, 3).await;
    eventually(DEADLINE, "two of three", || async {
        let replica = world.get(POD_REPLICA, NAME).await.unwrap();
        let status = &replica["status"];
        anyhow::ensure!(status["podNames"] == json!(["web-0", "web-1"]), "{status}");
        anyhow::ensure!(condition(&replica, "Ready")["reason"] == "MissingPods", "{status}");
        anyhow::ensure!(condition(&replica, "Reconciled")["reason"] == "WriteFailed", "{status}");
        Ok(true)
    })
    .await;
    world.kubectl("delete resourcequota few").await;
    numbers(&world, 0..3).await;
}

#[tokio::test]
async fn a_wrong_size_is_refused_by_the_api_server() {
    let (world, _host) = world("podr-size").await;
    for (spec, said) in [
        ("size: -1", "spec.size"),
        ("size: 1001", "spec.size"),
        ("size: many", "spec.size"),
        ("sise: 1", "spec.size"),
    ] {
        let head = "apiVersion: app.example.com/v1alpha1\nkind: PodReplica\nmetadata:\n  name: web\nspec:\n";
        let manifest = format!("{head}  {spec}\n");
        let output = world.try_kubectl("create --validate=false -f -", &manifest).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{spec}: {error}");
    }
    create(&world, 1).await;
    let output = world.try_kubectl("scale podr web --replicas=1001", "").await;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    numbers(&world, 0..1).await;
}
