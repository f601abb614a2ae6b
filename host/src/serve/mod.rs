//! What the host serves over HTTP: probes and metrics.

mod health;

use std::future::Future;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) use health::{Gate, Health};

use crate::controller::gate_name;
use crate::metrics::Metrics;
use crate::metrics::format::Format;
use crate::plugins::{self, LiveSet};
use crate::shelf::Offer as _;

/// What the handlers read.
#[derive(Clone)]
struct Shared {
    health: Health,
    metrics: Metrics,
    live: watch::Receiver<Arc<LiveSet>>,
}

/// Serves `/livez`, `/readyz`, `/plugins` and `/metrics` until `shutdown` resolves. Dropping the future closes the
/// listener at once.
pub(crate) async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: Metrics,
    live: watch::Receiver<Arc<LiveSet>>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let app = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/plugins", get(list_plugins))
        .route("/metrics", get(scrape))
        .with_state(Shared { health, metrics, live });
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await.context("serving probes and metrics")
}

/// 200 when every loaded plugin's watches are in sync; else 503 with one line for each reason. A host that stands by is
/// ready, and says so: it could take over at once, and a rollout waits for it.
async fn ready(State(shared): State<Shared>) -> impl IntoResponse {
    let live = Arc::clone(&shared.live.borrow());
    let kinds = live
        .iter()
        .flat_map(|(name, plugin)| plugin.kinds().into_iter().map(move |kind| gate_name(name, &kind)));
    let unready = shared.health.unready(kinds);
    if unready.is_empty() {
        let lines = std::iter::once("ok".to_owned()).chain(shared.health.notes());
        (StatusCode::OK, lines.map(|line| line + "\n").collect())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, unready.join("\n") + "\n")
    }
}

/// Which plugins serve, from where, in which version: JSON.
async fn list_plugins(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], plugins::to_json(&shared.live.borrow()).to_string() + "\n")
}

async fn scrape(State(shared): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    match shared.metrics.render(format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
