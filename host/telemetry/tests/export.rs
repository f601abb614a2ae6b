//! Spans arrive at a collector as the standard says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use pilothouse_telemetry::TelemetryError;
use prost::Message as _;
use tokio::net::TcpListener;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

#[derive(Clone, Default)]
struct Collector {
    requests: Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>,
}

async fn collect(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    collector.requests.lock().unwrap().push((headers, request));
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some((attribute.key.clone(), text)),
        Value::IntValue(number) => Some((attribute.key.clone(), number.to_string())),
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap()
}

/// This program again, with this in its environment and nothing but this test.
fn again(test: &str, environment: &[(&str, &str)]) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    let done =
        program.args([test, "--exact", "--nocapture"]).envs(environment.iter().copied()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

/// What the environment says is the process's: the test below runs this one again, in an environment of its own.
#[test]
fn without_an_endpoint_nothing_is_sent_and_with_one_a_pass_is() {
    let runtime = runtime();
    let made = pilothouse_telemetry::layer(runtime.handle().clone()).unwrap();
    let Some((layer, telemetry)) = made else {
        assert!(std::env::var_os(ENDPOINT).is_none());
        return;
    };
    assert!(std::env::var_os(ENDPOINT).is_some());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        // As the host does it.
        let pass = tracing::info_span!(
            target: "pilothouse::controller", "pass", plugin = "web", kind = "Web", key = "n/a", generation = 3
        );
        let _pass = pass.enter();
        tracing::debug_span!(target: "pilothouse::reconcile", "call").in_scope(|| {});
        tracing::debug_span!(target: "pilothouse_cluster::write", "write", verb = "apply").in_scope(|| {
            tracing::debug_span!(target: "h2", "not ours").in_scope(|| {});
        });
    });
    telemetry.finish();
}

/// As above.
#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let refused = pilothouse_telemetry::layer::<Registry>(runtime().handle().clone()).err();
    match std::env::var("OTEL_EXPORTER_OTLP_PROTOCOL") {
        Ok(protocol) => {
            assert!(matches!(refused, Some(TelemetryError::Protocol(named)) if named == protocol));
        }
        Err(_) if std::env::var(ENDPOINT).is_ok_and(|endpoint| endpoint.starts_with("https")) => {
            assert!(matches!(refused, Some(TelemetryError::Tls(_))));
        }
        Err(_) => {
            assert!(refused.is_none());
            let test = "what_cannot_be_sent_is_refused_by_name";
            again(test, &[(ENDPOINT, "http://localhost:1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
            again(test, &[(ENDPOINT, "https://localhost:1")]);
        }
    }
}

#[test]
fn spans_arrive_at_the_collector_that_the_environment_names() {
    let runtime = runtime();
    let collector = Collector::default();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/traces", post(collect)).with_state(collector.clone());
    runtime.spawn(async move { axum::serve(listener, app).await });
    let environment = [
        (ENDPOINT, endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=till"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=host-0"),
    ];
    again("without_an_endpoint_nothing_is_sent_and_with_one_a_pass_is", &environment);

    let requests = collector.requests.lock().unwrap();
    let (headers, _) = requests.first().expect("something arrived");
    assert_eq!(headers["x-tenant"], "till");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let of_resource = requests[0].1.resource_spans[0].resource.clone().unwrap();
    let of_resource = texts(&of_resource.attributes);
    assert_eq!(
        (of_resource["service.name"].as_str(), of_resource["k8s.pod.name"].as_str()),
        ("pilothouse", "host-0")
    );
    let spans = requests.iter().flat_map(|(_, request)| &request.resource_spans);
    let spans: BTreeMap<&str, &Span> = spans
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans)
        .map(|span| (span.name.as_str(), span))
        .collect();
    assert_eq!(spans.keys().copied().collect::<Vec<_>>(), ["call", "pass", "write"]);
    for child in ["call", "write"] {
        assert_eq!(spans[child].parent_span_id, spans["pass"].span_id, "{child}");
        assert_eq!(spans[child].trace_id, spans["pass"].trace_id, "{child}");
    }
    let fields = texts(&spans["pass"].attributes);
    for (field, value) in [("plugin", "web"), ("kind", "Web"), ("key", "n/a"), ("generation", "3")] {
        assert_eq!(fields[field], value, "{field}");
    }
    assert_eq!(texts(&spans["write"].attributes)["verb"], "apply");
}
