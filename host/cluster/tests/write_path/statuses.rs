//! One write for a status that changed, none for one that did not, and a clear word where there can be none.

use pilothouse_cluster::status::{Status, StatusWriter};
use pilothouse_cluster::write::Writer;
use pilothouse_cluster::write_error::Fault;
use pilothouse_harness::eventually;
use pilothouse_model::action::RejectReason;
use pilothouse_model::condition::Reconciled;
use pilothouse_model::manifest::Resource;
use pilothouse_model::object::Object;
use serde_json::{Map, Value, json};

use crate::world::{DEADLINE, World, resource};

/// A custom resource with an object `a`; its status has the field `ready`, conditions and observedGeneration, and
/// nothing else.
pub(crate) async fn custom(world: &World, plural: &str, subresource: bool) -> (Resource, Object) {
    let group = format!("{}.example.com", world.namespace);
    let status = json!({
        "type": "object",
        "properties": {
            "ready": {"type": "integer"}, "observedGeneration": {"type": "integer"},
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": ["type"],
                          "properties": {"type": {"type": "string"}}}
            }
        }
    });
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}, "status": status
    }});
    let subresources = if subresource { json!({"status": {}}) } else { json!({}) };
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                          "schema": {"openAPIV3Schema": schema}}]
        }
    });
    world.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.unwrap();
    let resource = resource(&format!("{group}/v1"), &kind, plural);
    let path = format!("/apis/{group}/v1/namespaces/{}/{plural}", world.namespace);
    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"}, "spec": {"size": 1}
    });
    let created = eventually(DEADLINE, "the CRD to be served", || async {
        world.request("POST", &path, &object).await.map_err(anyhow::Error::from).map(Some)
    })
    .await;
    (resource, Object::from_value(&created).unwrap())
}

fn writer(world: &World) -> Writer {
    world.writer.with_manager("pilothouse-web")
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn status<'a>(wanted: &'a Map<String, Value>, host: &'a Reconciled, now: &'a str) -> Status<'a> {
    Status { wanted: Some(wanted), host: Some(host), generation: 1, now }
}

const T1: &str = "2025-01-01T00:00:00Z";
const T2: &str = "2025-01-01T00:00:10Z";

#[tokio::test]
async fn strimzi_13079_one_write_for_plugin_and_host_and_none_for_the_same_again() {
    let world = World::new("status").await;
    let (resource, primary) = custom(&world, "webs", true).await;
    let writer = StatusWriter::new(writer(&world));
    let host = Reconciled::succeeded();
    let ready = |message: &str, since: &str| {
        fields(&json!({"ready": 1, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Up", "message": message, "lastTransitionTime": since
        }]}))
    };
    let before = world.spent();
    let first =
        writer.write(&resource, &primary, &status(&ready("m", T1), &host, T1)).await.unwrap().unwrap();
    let conditions = first.field("status")["conditions"].clone();
    assert_eq!((conditions.as_array().unwrap().len(), &conditions[0]["lastTransitionTime"]), (2, &json!(T1)));
    // A fresh time on each call.
    assert_eq!(writer.write(&resource, &first, &status(&ready("m", T2), &host, T2)).await.unwrap(), None);
    assert_eq!(world.spent_since(&before), [("merge-patch", 1)].into());
    let second = writer.write(&resource, &first, &status(&ready("n", T2), &host, T2)).await.unwrap().unwrap();
    assert_eq!(second.field("status")["conditions"][0]["lastTransitionTime"], T1);
    assert_eq!(second.meta().generation, 1, "a status is no change of the spec");
}

#[tokio::test]
async fn gmc_171_a_kind_without_a_status_subresource_is_told_so() {
    let world = World::new("status").await;
    let (resource, primary) = custom(&world, "bares", false).await;
    let writer = StatusWriter::new(writer(&world));
    let error = writer
        .write(&resource, &primary, &status(&Map::new(), &Reconciled::succeeded(), T1))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), RejectReason::Invalid);
    assert!(!error.reason().is_transient());
    assert!(error.message.contains("bares.") && error.message.contains("subresources"), "{}", error.message);
}

#[tokio::test]
async fn a_status_computed_from_an_old_version_is_computed_again_and_merged() {
    let world = World::new("status").await;
    let (resource, primary) = custom(&world, "webs", true).await;
    let writer = StatusWriter::new(writer(&world));
    let path = format!("/apis/{}/v1/namespaces/{}/webs/a", resource.group, world.namespace);
    world.request("PATCH", &path, &json!({"spec": {"size": 2}})).await.unwrap();
    let foreign = json!({"status": {"conditions": [{"type": "Foreign", "status": "True"}]}});
    world.request("PATCH", &format!("{path}/status"), &foreign).await.unwrap();
    let before = world.spent();
    let wanted = fields(&json!({"ready": 1}));
    let written = writer
        .write(&resource, &primary, &status(&wanted, &Reconciled::succeeded(), T1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(world.spent_since(&before), [("get", 1), ("merge-patch", 2)].into());
    let status = written.field("status");
    assert_eq!(status["conditions"][0]["type"], "Foreign");
    assert_eq!(status["observedGeneration"], 1, "the pass saw generation 1");
    assert_eq!(written.meta().generation, 2);
}

#[tokio::test]
async fn fields_that_the_schema_drops_are_not_sent_for_ever() {
    let world = World::new("status").await;
    let (resource, primary) = custom(&world, "webs", true).await;
    let writer = StatusWriter::new(writer(&world));
    let (wanted, host) = (fields(&json!({"ready": 1, "unknown": "x"})), Reconciled::succeeded());
    let first = writer.write(&resource, &primary, &status(&wanted, &host, T1)).await.unwrap().unwrap();
    assert_eq!(first.field("status").get("unknown"), None);
    let before = world.spent();
    for now in [T1, T2] {
        assert_eq!(writer.write(&resource, &first, &status(&wanted, &host, now)).await.unwrap(), None);
    }
    assert_eq!(world.spent_since(&before), [].into());
}

#[tokio::test]
async fn a_primary_that_is_gone_or_replaced_gets_no_status() {
    let world = World::new("status").await;
    let (resource, primary) = custom(&world, "webs", true).await;
    let writer = StatusWriter::new(writer(&world));
    let path = format!("/apis/{}/v1/namespaces/{}/webs", resource.group, world.namespace);
    world.request("DELETE", &format!("{path}/a"), &Value::Null).await.unwrap();
    let (wanted, host) = (Map::new(), Reconciled::succeeded());
    let error = writer.write(&resource, &primary, &status(&wanted, &host, T1)).await.unwrap_err();
    assert_eq!(error.fault, Fault::NotFound);
    let again = json!({"apiVersion": primary.kind().api_version(), "kind": "Web", "metadata": {"name": "a"}});
    world.request("POST", &path, &again).await.unwrap();
    let error = writer.write(&resource, &primary, &status(&wanted, &host, T1)).await.unwrap_err();
    assert_eq!(error.reason(), RejectReason::Gone, "{error}");
    let live = world.request("GET", &format!("{path}/a"), &Value::Null).await.unwrap();
    assert_eq!(live.get("status"), None);
}
