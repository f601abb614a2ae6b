//! Traces over OTLP (http/protobuf): one for each pass, with a span for each call into the plugin, for the writes
//! together and for each request among them. A crate of its own, so that the host without its feature `otel` neither
//! contains nor compiles any of it.
//!
//! The standard variables say where to and how: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`), `…_HEADERS`,
//! `…_TIMEOUT`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_SDK_DISABLED`.
//! Without an endpoint nothing is sent. It must be plain HTTP: a collector beside the pod or on its node, which speaks
//! TLS to wherever traces are kept. Bodies and values of objects are in no span.

mod client;

use std::env;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::client::RuntimeClient;

/// `service.name`, unless the environment names it.
const SERVICE: &str = "pilothouse";
/// Spans that are still to be sent get this long at the end.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);
/// Events and attributes of one span: a plugin may log a hundred lines in a pass, and its limit stands elsewhere.
const SPAN_EVENTS_MAX: u32 = 128;

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Another protocol than the one that is here.
    #[error("OTEL_EXPORTER_OTLP_PROTOCOL: `{0}` is not known here, `http/protobuf` would be right")]
    Protocol(String),
    /// An endpoint with TLS.
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: `{0}` needs TLS, a collector at an http:// address would be right")]
    Tls(String),
    /// What the exporter says.
    #[error("the OTLP exporter cannot be made: {0}")]
    Exporter(String),
}

/// Sends what is left when it is finished.
#[derive(Debug)]
pub struct Telemetry(SdkTracerProvider);

impl Telemetry {
    /// Sends the spans that wait, for a few seconds at most. Blocks: not for a thread of the runtime, which must live.
    pub fn finish(self) {
        // Whatever went wrong: the host ends, and nobody is left to tell.
        let _ = self.0.shutdown_with_timeout(FLUSH_TIME_MAX);
    }
}

/// The layer that turns spans into traces and sends them by this runtime; none if the environment does not say where to.
pub fn layer<S>(runtime: Handle) -> Result<Option<(impl Layer<S> + Send + Sync, Telemetry)>, TelemetryError>
where
    S: tracing::Subscriber + Send + Sync + for<'span> LookupSpan<'span>,
{
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let disabled = set("OTEL_SDK_DISABLED").is_some_and(|disabled| disabled.eq_ignore_ascii_case("true"));
    let Some(endpoint) = endpoint.filter(|_| !disabled) else { return Ok(None) };
    let protocol = set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| set("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(protocol) = protocol.filter(|protocol| protocol != "http/protobuf") {
        return Err(TelemetryError::Protocol(protocol));
    }
    if endpoint.starts_with("https://") {
        return Err(TelemetryError::Tls(endpoint));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(RuntimeClient::new(runtime))
        .build()
        .map_err(|error| TelemetryError::Exporter(error.to_string()))?;
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(SERVICE);
    }
    let provider = SdkTracerProvider::builder()
        .with_resource(resource.build())
        .with_max_events_per_span(SPAN_EVENTS_MAX)
        .with_batch_exporter(exporter)
        .build();
    let tracer = provider.tracer(SERVICE);
    // Ours alone: the spans of hyper and h2 are a hundred for each request, and those of the export would be exported.
    let ours =
        Targets::new().with_target("pilothouse", LevelFilter::DEBUG).with_target("plugin", LevelFilter::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours);
    Ok(Some((layer, Telemetry(provider))))
}
