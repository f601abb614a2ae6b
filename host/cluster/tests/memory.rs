//! What an object costs in a store. A binary of its own: it measures the process.

#![allow(clippy::unwrap_used, reason = "all of it is tests")]

use std::sync::Arc;

use pilothouse_cluster::Grouping;
use pilothouse_cluster::store::Store;
use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::Projection;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

const OBJECTS: usize = 10_000;
/// Beside its JSON: the fields that are indexed, two keys, allocator.
const BYTES_BESIDE_JSON_MAX: usize = 900;

/// A pod as a ReplicaSet's controller and kubelet leave it, the fifth of one owner.
fn pod(n: usize) -> Value {
    let (owner, uid) = (n / 5, format!("{:08x}-0000-4000-8000-{n:012x}", n * 7));
    json!({
        "metadata": {
            "name": format!("web-{owner}-{}", n % 5), "namespace": "shop", "uid": uid,
            "resourceVersion": (1_000 + n).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1,
            "labels": {"app.kubernetes.io/instance": format!("web-{owner}"), "pilothouse.dev/managed": "pod-replica"},
            "ownerReferences": [{"apiVersion": "app.example.com/v1alpha1", "kind": "PodReplica", "name": format!("web-{owner}"),
                "uid": format!("{owner:08x}-1111-4000-8000-000000000000"), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [
                {"manager": "pilothouse-pod-replica", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                 "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app.kubernetes.io/instance": {}},
                 "f:ownerReferences": {}}, "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}},
                {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                 "fieldsType": "FieldsV1", "subresource": "status", "fieldsV1": {"f:status": {"f:conditions": {}}}}
            ]
        },
        "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "3600"],
            "imagePullPolicy": "IfNotPresent", "resources": {}, "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File"}], "restartPolicy": "Always", "nodeName": "node", "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    })
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

#[test]
fn an_object_costs_little_more_than_its_json() {
    let mut stores = Vec::new();
    let phase = serde_json::from_value(json!({"fields": [".status.phase"]})).unwrap();
    for projection in [Projection::Metadata, phase, Projection::Full] {
        let store = Arc::new(Store::new(Kind::new("", "v1", "Pod"), projection.clone(), Grouping::default()));
        let before = resident_bytes();
        for n in 0..OBJECTS {
            let object: Object = serde_json::from_str(&pod(n).to_string()).unwrap();
            store.upsert_response(object);
        }
        let used = resident_bytes() - before;
        let (json, each) = (store.json_bytes() / OBJECTS, used / OBJECTS);
        println!("{projection:?}: {each} bytes for an object of {json} bytes of JSON");
        assert_eq!(store.len(), OBJECTS);
        assert!(
            each <= json + BYTES_BESIDE_JSON_MAX,
            "{projection:?}: {each} bytes for {json} bytes of JSON"
        );
        stores.push(store);
    }
}
