//! From a request to an answer: which plugin, how much may be read, and what is said when something is wrong with the
//! request itself. What the API server cannot use is an HTTP status other than 200 with a text, which it quotes in its
//! own error; then the webhook's failure policy decides. It quotes texts of a 500 alone: others become words of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::Timestamp;
use pilothouse_model::limits::Limits;
use pilothouse_model::webhook::Purpose;
use pilothouse_sandbox::Reply;
use tokio::sync::watch;

use super::stage::{Budget, Share, Stage};
use super::{admit, convert};
use crate::metrics::webhooks::CallMetrics;
use crate::plugins::{LivePlugin, LiveSet};
use crate::reconcile::log_lines;
use crate::supervisor::Shared;

/// Two objects of the 3 MiB that the API server takes, and what stands around them.
const ADMISSION_BYTES_MAX: usize = 8 << 20;
/// A page of 500 objects of 100 KB; what is larger is asked for in smaller pages.
const CONVERSION_BYTES_MAX: usize = 64 << 20;
/// What all requests together hold of bodies.
const BODIES_BYTES_MAX: u64 = 128 << 20;
/// What the API server waits for if it does not say: its own default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What it never waits longer than.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Before the API server gives up: an error of ours says more than its own.
const EARLIER: Duration = Duration::from_millis(300);

/// Answers requests.
pub(super) struct Service {
    shared: Arc<Shared>,
    live: watch::Receiver<Arc<LiveSet>>,
    bodies: Arc<Budget>,
}

/// An answer that the API server counts as a failed call.
#[derive(Debug)]
pub(super) struct Refusal {
    /// What kind.
    pub(super) status: StatusCode,
    /// One word, for metrics.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    /// The request is no review.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Malformed", message)
    }
}

/// What a call of a plugin needs.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Shared,
    pub(super) plugin: &'a Arc<LivePlugin>,
    pub(super) metrics: &'a CallMetrics,
    /// When the answer must be there.
    pub(super) deadline: Instant,
}

impl Call<'_> {
    /// The plugin's limits, no wider than the time that is left.
    pub(super) fn limits(&self) -> Limits {
        let limits = self.plugin.settings.limits;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        Limits { cpu_ms: limits.cpu_ms.min(left), wait_ms: limits.wait_ms.min(left), ..limits }
    }

    /// Waits for a call of the plugin, not longer than there is time, and counts it.
    pub(super) async fn wait<T>(&self, call: impl Future<Output = Reply<T>>) -> Result<T, Refusal> {
        let failed = |reason, problem: String| {
            let name = &self.plugin.prepared.manifest().name;
            let message = format!("plugin `{name}` {problem}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason, message)
        };
        let Ok(reply) = tokio::time::timeout_at(self.deadline.into(), call).await else {
            return Err(failed(
                "Timeout",
                "did not answer within the time that the API server gives it".to_owned(),
            ));
        };
        self.metrics.used(&reply.usage);
        log_lines(&reply.logs, reply.usage.log_lines_dropped);
        reply.result.map_err(|error| failed(error.reason(), error.to_string()))
    }

    /// The plugin's answer cannot be taken.
    pub(super) fn lied(&self, what: &str, lie: &pilothouse_model::admission::Lie) -> Refusal {
        let name = &self.plugin.prepared.manifest().name;
        let message = format!("plugin `{name}`: `{what}` gave an answer that cannot be taken: {lie}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "Refused", message)
    }

    /// The clock of the call.
    pub(super) fn now() -> String {
        crate::snapshot::time(Timestamp::now())
    }
}

impl Service {
    pub(super) fn new(shared: Arc<Shared>, live: watch::Receiver<Arc<LiveSet>>) -> Arc<Self> {
        Arc::new(Self { shared, live, bodies: Budget::new(BODIES_BYTES_MAX) })
    }

    /// Answers one request; never fails.
    pub(super) async fn answer(&self, request: Request<Incoming>, stage: &Stage) -> Response<Body> {
        let began = Instant::now();
        let route = self.route(&request);
        let (purpose, plugin) = match route {
            Ok(route) => route,
            Err(refusal) => return refused(&refusal),
        };
        let name = &plugin.prepared.manifest().name;
        let metrics = self.shared.metrics.webhooks().call(name, purpose);
        let _in_flight = metrics.begins();
        let mut share = self.bodies.share();
        let deadline = began + timeout(request.uri().query());
        let answered = match self.body(request, purpose, &mut share).await {
            Ok(body) => {
                stage.answering();
                let shared = &*self.shared;
                let call = Call { shared, plugin: &plugin, metrics: &metrics, deadline };
                match purpose {
                    Purpose::Validate | Purpose::Default => admit::answer(&call, purpose, &body).await,
                    Purpose::Convert => convert::answer(&call, &body).await,
                }
            }
            Err(refusal) => Err(refusal),
        };
        let response = match answered {
            Ok(text) => json(text),
            Err(refusal) => {
                tracing::warn!(plugin = %name, webhook = purpose.as_str(), reason = refusal.reason, "{}", refusal.message);
                metrics.failed(refusal.reason);
                refused(&refusal)
            }
        };
        metrics.ends(began.elapsed(), response.status().as_u16());
        response
    }

    fn route(&self, request: &Request<Incoming>) -> Result<(Purpose, Arc<LivePlugin>), Refusal> {
        let path = request.uri().path();
        let Some((purpose, name)) = Purpose::of_path(path) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "NotFound", "there is no webhook at this path"));
        };
        if request.method() != Method::POST {
            let message = "webhooks are called by POST";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Malformed", message));
        }
        let live = Arc::clone(&self.live.borrow());
        let found =
            live.iter().find(|(known, _)| known.as_str() == name).map(|(_, plugin)| Arc::clone(plugin));
        let Some(plugin) = found else {
            let message =
                format!("plugin `{}` is not loaded by this host", name.chars().take(64).collect::<String>());
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "NotLoaded", message));
        };
        let exports = match purpose {
            Purpose::Validate | Purpose::Default => plugin.prepared.admits(),
            Purpose::Convert => plugin.prepared.converts(),
        };
        if !exports {
            let message = format!("plugin `{name}` does not {}", purpose.as_str());
            return Err(Refusal::new(StatusCode::NOT_FOUND, "NotFound", message));
        }
        Ok((purpose, plugin))
    }

    async fn body(
        &self,
        request: Request<Incoming>,
        purpose: Purpose,
        share: &mut Share,
    ) -> Result<Bytes, Refusal> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if kind != Some("application/json") {
            let message = "the review must be of type application/json";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Malformed", message));
        }
        let max = match purpose {
            Purpose::Validate | Purpose::Default => ADMISSION_BYTES_MAX,
            Purpose::Convert => CONVERSION_BYTES_MAX,
        };
        let too_large = || {
            let message = format!("the review is too large: at most {max} bytes are read");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", message)
        };
        let mut body = request.into_body();
        let announced = hyper::body::Body::size_hint(&body).exact();
        if announced.is_some_and(|bytes| bytes > max as u64) {
            return Err(too_large());
        }
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Refusal::malformed(format!("the review broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.len() > max {
                return Err(too_large());
            }
            if !share.take(data.len()) {
                let message = "this host has too many calls in its hands: try again";
                return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "Busy", message));
            }
            read.extend_from_slice(&data);
        }
        Ok(read.into())
    }
}

/// How long the answer may take: a little less than what the API server says in `?timeout=10s`.
fn timeout(query: Option<&str>) -> Duration {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("timeout="));
    let seconds = pairs.find_map(|text| text.strip_suffix('s')?.parse().ok().map(Duration::from_secs));
    seconds.unwrap_or(TIMEOUT).clamp(Duration::from_secs(1), TIMEOUT_MAX).saturating_sub(EARLIER)
}

fn json(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::from(refusal.message.clone() + "\n"));
    *response.status_mut() = refusal.status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_before_the_api_server_gives_up() {
        let seconds = |query: Option<&str>| timeout(query).as_millis();
        assert_eq!(seconds(Some("timeout=5s")), 4_700);
        assert_eq!(seconds(Some("a=b&timeout=30s")), 29_700);
        for unknown in [None, Some(""), Some("timeout=x"), Some("timeout=1m0s")] {
            assert_eq!(seconds(unknown), 9_700, "{unknown:?}");
        }
        assert_eq!(seconds(Some("timeout=9999s")), 29_700);
        assert_eq!(seconds(Some("timeout=0s")), 700);
    }
}
