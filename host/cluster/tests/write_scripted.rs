//! What the writing half does when the API server answers as a healthy one in a test never does.

#![allow(clippy::unwrap_used, reason = "clippy knows only functions that are tests themselves")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use pilothouse_cluster::apply::{Applier, ApplyContext, Report, Sink};
use pilothouse_cluster::write::{AlwaysOpen, Writer};
use pilothouse_model::action::RejectReason;
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::object::Object;
use pilothouse_model::plan::{OnImmutable, Operation, Plan, Write};
use pilothouse_model::update;
use serde_json::{Value, json};

/// Answers requests in turn, and a connection error when there are no more answers.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (u16, Value)>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), requests: Arc::default() }
    }

    fn answer(&self, request: &Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let dry =
            if request.uri().query().is_some_and(|query| query.contains("dryRun=All")) { " dry" } else { "" };
        let name = request.uri().path().rsplit('/').next().unwrap();
        self.requests.lock().unwrap().push(format!("{}{dry} {name}", request.method()));
        let next = self.answers.lock().unwrap().pop_front();
        let (status, body) = next.ok_or_else(|| std::io::Error::other("connection refused"))?;
        Ok(Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap())
    }

    fn applier(&self) -> Applier {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(&request);
            async move { answer }
        });
        let writer = Writer::new(kube::Client::new(service, "default"), "test", Arc::new(AlwaysOpen));
        Applier::new(&writer, "web".parse().unwrap())
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

struct Nowhere;
impl Sink for Nowhere {
    fn written(&self, _: Arc<Object>) {}
    fn deleted(&self, _: &Reference) {}
}

fn primary() -> Object {
    Object::from_value(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "uid": "u0"}}),
    )
    .unwrap()
}

/// A child as it is desired.
fn desired(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name, "namespace": "n"}, "spec": spec})
}

/// The same as the API server stores it.
fn stored(name: &str, spec: &Value, version: u64, owned: &Value) -> Value {
    let mut object = desired(name, spec);
    object["metadata"]["uid"] = json!(format!("uid-{name}"));
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "u0", "controller": true}]);
    object["metadata"]["managedFields"] =
        json!([{"manager": "pilothouse-web", "operation": "Apply", "fieldsV1": {"f:spec": owned}}]);
    object
}

fn child(stored: &Value) -> Arc<Object> {
    let mut object = Object::from_value(stored).unwrap();
    object.keep_manager("pilothouse-web");
    Arc::new(object)
}

fn write(name: &str, spec: &Value) -> Write {
    let kind = Kind::new("example.com", "v1", "Web");
    let target = Reference { kind, namespace: Some("n".to_owned()), name: name.to_owned(), uid: None };
    let operation = Operation::Apply {
        object: desired(name, spec),
        create_only: false,
        metadata_only: false,
        method: update::Method::InPlace,
        on_immutable: OnImmutable::Recreate,
        force_conflicts: true,
    };
    Write { index: 0, target, plural: "webs".to_owned(), after: Vec::new(), operation }
}

async fn pass(applier: &Applier, writes: &[Write], children: &[Arc<Object>]) -> Report {
    let primary = primary();
    let primary_resource = Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        scope: Scope::Namespaced,
    };
    let primary_resource = &primary_resource;
    let cx = ApplyContext { primary: &primary, primary_resource, children, related: &[], sink: &Nowhere };
    let plan = Plan { writes: writes.to_vec(), ..Plan::default() };
    applier.apply(&plan, cx).await
}

fn reasons(report: &Report) -> Vec<RejectReason> {
    report.rejected().map(|rejected| rejected.reason).collect()
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}))
}

fn immutable() -> (u16, Value) {
    let cause = json!({"reason": "FieldValueInvalid", "field": "spec.x", "message": "Invalid value: 2: field is immutable"});
    let (code, mut status) = failure(422, "Invalid", "spec.x: field is immutable");
    status["details"] = json!({"name": "a", "causes": [cause]});
    (code, status)
}

const SPEC: [&str; 4] = ["a", "b", "c", "d"];

fn four() -> Vec<Write> {
    SPEC.iter().map(|name| write(name, &json!({"x": 1}))).collect()
}

fn four_old() -> Vec<Arc<Object>> {
    SPEC.iter().map(|name| child(&stored(name, &json!({"x": 0}), 1, &json!({"f:y": {}})))).collect()
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_once_and_nothing_is_repeated() {
    let server = Server::default();
    let report = pass(&server.applier(), &four(), &four_old()).await;
    assert_eq!(reasons(&report), [RejectReason::Unavailable; 4]);
    assert_eq!(server.requests(), ["PATCH dry a"]);
    assert!(report.rejected().nth(3).unwrap().message.contains("not tried"));
}

#[tokio::test]
async fn a_server_that_wants_to_be_left_alone_is() {
    let (code, mut status) = failure(429, "TooManyRequests", "slow down");
    status["details"] = json!({"retryAfterSeconds": 7});
    let server = Server::new([(code, status)]);
    let report = pass(&server.applier(), &four(), &four_old()).await;
    assert_eq!((reasons(&report).len(), report.retry_after), (4, Some(Duration::from_secs(7))));
    assert_eq!(server.requests().len(), 1);
}

/// A webhook's answer, or that of a load balancer, may say anything; the queue adds it to the time that it is.
#[tokio::test]
async fn nobody_is_left_alone_for_longer_than_minutes() {
    let (code, mut status) = failure(429, "TooManyRequests", "slow down");
    status["details"] = json!({"retryAfterSeconds": u64::MAX});
    let server = Server::new([(code, status)]);
    let report = pass(&server.applier(), &four(), &four_old()).await;
    assert_eq!(report.retry_after, Some(Duration::from_mins(5)));
}

#[tokio::test]
async fn one_failing_webhook_does_not_stop_other_children_but_trouble_everywhere_does() {
    let webhook = || failure(500, "InternalError", "failed calling webhook");
    let fine = |name: &str| (200, stored(name, &json!({"x": 1}), 2, &json!({"f:x": {}})));
    let server = Server::new([webhook(), fine("b"), fine("b"), fine("c"), fine("c"), webhook()]);
    let report = pass(&server.applier(), &four(), &four_old()).await;
    assert_eq!(reasons(&report), [RejectReason::Unavailable; 2]);
    assert_eq!(server.requests().len(), 6);

    let server = Server::new([webhook(), webhook(), webhook(), fine("d")]);
    let report = pass(&server.applier(), &four(), &four_old()).await;
    assert_eq!((reasons(&report).len(), server.requests().len()), (4, 3));
}

/// A webhook that puts an immutable field back makes each apply fail; deleting the object would not help.
#[tokio::test]
async fn what_would_come_back_the_same_is_not_deleted() {
    let live = stored("a", &json!({"x": 1}), 1, &json!({"f:x": {}}));
    let mut rehearsed = live.clone();
    rehearsed["metadata"]["name"] = json!("a-x7k2p");
    let server = Server::new([immutable(), (201, rehearsed)]);
    let report = pass(&server.applier(), &[write("a", &json!({"x": 2}))], &[child(&live)]).await;
    assert_eq!(reasons(&report), [RejectReason::Immutable]);
    assert_eq!(server.requests(), ["PATCH dry a", "POST dry webs"]);
    assert!(report.rejected().next().unwrap().message.contains("would be the same"));
}

#[tokio::test]
async fn what_was_made_from_this_configuration_is_not_made_again() {
    let owned = json!({"f:x": {}});
    // Created from x: 2, stored with x: 1; later somebody else takes a field.
    let created = stored("a", &json!({"x": 1}), 1, &owned);
    let drifted = stored("a", &json!({"x": 1}), 2, &json!({}));
    let server = Server::new([failure_not_found(), (201, created), immutable()]);
    let applier = server.applier();
    let writes = [write("a", &json!({"x": 2}))];
    assert_eq!(reasons(&pass(&applier, &writes, &[]).await), []);
    let report = pass(&applier, &writes, &[child(&drifted)]).await;
    assert_eq!(reasons(&report), [RejectReason::Immutable]);
    assert_eq!(server.requests(), ["GET a", "PATCH a", "PATCH a"]);
}

fn failure_not_found() -> (u16, Value) {
    let (code, mut status) = failure(404, "NotFound", "webs \"a\" not found");
    status["details"] = json!({"name": "a", "kind": "webs"});
    (code, status)
}

#[tokio::test]
async fn a_deleted_object_is_made_again_in_the_same_pass_if_it_is_gone_at_once() {
    let live = stored("a", &json!({"x": 1}), 1, &json!({"f:x": {}}));
    let new = stored("a", &json!({"x": 2}), 5, &json!({"f:x": {}}));
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let answers = [immutable(), (201, new.clone()), (200, gone), failure_not_found(), (201, new.clone())];
    let server = Server::new(answers);
    let report = pass(&server.applier(), &[write("a", &json!({"x": 2}))], &[child(&live)]).await;
    assert_eq!((reasons(&report), report.written_versions()), (vec![], vec![5]));
    assert_eq!(server.requests(), ["PATCH dry a", "POST dry webs", "DELETE a", "GET a", "PATCH a"]);

    // Still going: the next pass waits without asking.
    let mut going = live.clone();
    going["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    going["metadata"]["finalizers"] = json!(["orphan"]);
    let server = Server::new([immutable(), (201, new), (200, going.clone())]);
    let applier = server.applier();
    let report = pass(&applier, &[write("a", &json!({"x": 2}))], &[child(&live)]).await;
    assert_eq!(reasons(&report), [RejectReason::Terminating]);
    server.requests();
    let report = pass(&applier, &[write("a", &json!({"x": 2}))], &[child(&going)]).await;
    assert_eq!((reasons(&report), server.requests().len()), (vec![RejectReason::Terminating], 0));
}

/// Of a related kind the store may hold a few fields. What a patch changes of the others it cannot tell.
#[tokio::test]
async fn a_patch_of_fields_that_are_not_watched_is_judged_by_the_whole_object() {
    let whole = stored("a", &json!({"x": 1, "y": 2}), 1, &json!({}));
    let mut shown = Object::from_value(&whole).unwrap();
    shown.project(&serde_json::from_value(json!({"fields": [".spec.x"]})).unwrap());
    let shown = [Arc::new(shown)];
    for (patch, requests) in [
        (json!({"spec": {"y": 2}}), &["GET a"][..]),
        (json!({"spec": {"y": null}}), &["GET a", "PATCH a"]),
        (json!({"metadata": {"labels": {"l": null}}}), &[]),
    ] {
        let server = Server::new([(200, whole.clone()), (200, whole.clone())]);
        let operation = Operation::Patch { patch: patch.clone(), subresource: None };
        pass(&server.applier(), &[Write { operation, ..write("a", &json!({})) }], &shown).await;
        assert_eq!(server.requests(), requests, "{patch}");
    }
}

#[tokio::test]
async fn a_pass_may_move_between_threads() {
    let server = Server::default();
    let applier = server.applier();
    let handle =
        tokio::spawn(async move { pass(&applier, &[write("a", &json!({}))], &[]).await.entries.len() });
    assert_eq!(handle.await.unwrap(), 1);
    assert_eq!(server.requests(), [format!("{} a", Method::GET)]);
}
