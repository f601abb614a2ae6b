//! Workloads on a control plane with the stand-in for the kubelet: what a user sees with kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::Pod,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use pilothouse_harness::{ControlPlane, KubeletOptions, PodState, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);

/// `kubectl apply` as a user would, in this namespace.
fn apply(kubeconfig: &Path, namespace: &str, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut kubectl = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", namespace, "apply", "--filename", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
    assert!(kubectl.wait().unwrap().success(), "kubectl apply failed");
}

fn workload(kind: &str, name: &str, replicas: u32, more: &Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {
                "initContainers": [{"name": "prepare", "image": "prepare"}],
                "containers": [{"name": "main", "image": "main"}],
            },
        },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn deployments_stateful_sets_and_jobs_work_as_in_a_cluster() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("workloads").await.unwrap();
    let options = KubeletOptions { namespaces: vec![namespace.clone()], ..KubeletOptions::default() };
    let _kubelet = plane.kubelet(options).await.unwrap();
    apply(
        plane.kubeconfig(),
        &namespace,
        &[
            workload("Deployment", "web", 3, &json!({})),
            workload("StatefulSet", "db", 3, &json!({"serviceName": "db"})),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": {
               "restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}}}}),
        ],
    );

    let client = plane.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    eventually(SOON, "the Deployment to be available", || async {
        let status = deployments.get_status("web").await?.status;
        anyhow::Ok(status.and_then(|status| status.available_replicas) == Some(3))
    })
    .await;
    let stateful_sets: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
    eventually(SOON, "the StatefulSet to be ready", || async {
        let status = stateful_sets.get_status("db").await?.status;
        anyhow::Ok(status.and_then(|status| status.ready_replicas) == Some(3))
    })
    .await;
    let jobs: Api<Job> = Api::namespaced(client, &namespace);
    eventually(SOON, "the Job to complete", || async {
        let status = jobs.get_status("once").await?.status;
        anyhow::Ok(status.and_then(|status| status.succeeded) == Some(1))
    })
    .await;
    kubelet_wrote_only_status(plane, &namespace);
}

fn kubelet_wrote_only_status(plane: &ControlPlane, namespace: &str) {
    let events = plane.audit_events().unwrap();
    let mut writes = events
        .iter()
        .filter(|event| event.user == "kubelet" && event.namespace == namespace && event.is_write());
    assert!(writes.clone().count() >= 7, "one for each pod");
    let other =
        writes.find(|event| (event.resource.as_str(), event.subresource.as_str()) != ("pods", "status"));
    assert_eq!(other, None);
}

#[tokio::test]
async fn a_test_decides_about_each_pod() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("manual").await.unwrap();
    let options = KubeletOptions { namespaces: vec![namespace.clone()], ..KubeletOptions::manual() };
    let kubelet = plane.kubelet(options).await.unwrap();
    apply(plane.kubeconfig(), &namespace, &[workload("Deployment", "web", 2, &json!({}))]);

    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    let list = eventually(SOON, "two pods", || async {
        let list = pods.list(&ListParams::default()).await?.items;
        anyhow::Ok((list.len() == 2).then_some(list))
    });
    let list = list.await;
    assert!(list.iter().all(|pod| PodState::of(pod).is_none()), "a pod was not left pending");

    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    for state in [PodState::Ready, PodState::NotReady, PodState::Ready, PodState::Failed] {
        kubelet.set(&namespace, &name(&list[0]), state).await.unwrap();
        let pod = pods.get(&name(&list[0])).await.unwrap();
        assert_eq!(PodState::of(&pod), Some(state));
        assert!(pod.status.unwrap().pod_ip.is_some());
    }
    assert_eq!(PodState::of(&pods.get(&name(&list[1])).await.unwrap()), None);
}

#[tokio::test]
async fn a_pod_without_a_node_is_deleted_at_once_whatever_its_grace_period() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("deletion").await.unwrap();
    let options = KubeletOptions { namespaces: vec![namespace.clone()], ..KubeletOptions::default() };
    let _kubelet = plane.kubelet(options).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": {
        "terminationGracePeriodSeconds": 600, "containers": [{"name": "main", "image": "main"}]}});
    apply(plane.kubeconfig(), &namespace, &[pod]);
    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    eventually(SOON, "the pod to be ready", || async {
        anyhow::Ok(PodState::of(&pods.get("alone").await?) == Some(PodState::Ready))
    })
    .await;
    pods.delete("alone", &DeleteParams::default()).await.unwrap();
    assert!(pods.get_opt("alone").await.unwrap().is_none());
}

#[tokio::test]
async fn a_delay_keeps_pods_pending_for_that_long_and_outlives_a_break_of_the_watch() {
    let delay = Duration::from_secs(1);
    let options = pilothouse_harness::Options { controller_manager: false, ..Default::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let _kubelet = plane.kubelet(KubeletOptions { delay, ..KubeletOptions::default() }).await.unwrap();
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
               "spec": {"containers": [{"name": "main", "image": "main"}]}})
    };
    let created = Instant::now();
    apply(plane.kubeconfig(), "default", &[pod("before")]);
    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), "default");
    let ready = |name: &'static str| {
        let pods = pods.clone();
        async move { anyhow::Ok(PodState::of(&pods.get(name).await?) == Some(PodState::Ready)) }
    };
    eventually(SOON, "the first pod to be ready", || ready("before")).await;
    assert!(created.elapsed() >= delay);

    plane.stop_api_server().unwrap();
    plane.start_api_server().await.unwrap();
    apply(plane.kubeconfig(), "default", &[pod("after")]);
    eventually(SOON, "a pod that came after the break to be ready", || ready("after")).await;
}
