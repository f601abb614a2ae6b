//! HTTPS: connections, their bounds, and their end.
//!
//! Whoever reaches the port may ask: the API server does not say who it is unless it is configured to. Nothing is written
//! for a question, and an answer says no more than the plugin does; what must be bounded is what a client can take.
//! Connections are limited in number and each in time (see `stage`), requests in size and in what they hold together.
//!
//! # The end
//!
//! A Service goes on sending calls for a moment after a pod was told to end, and a call that meets a closed port fails.
//! So the listener goes on as well, and says with each answer that it was the last one on its connection: within a
//! few calls they are all at another replica.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::service::Service;
use super::stage::{Stage, Staged};

/// An API server has as many calls under way as requests, 600 by default, and there are three of them; they wait in the
/// kernel's queue beyond that.
const CONNECTIONS_MAX: usize = 1024;
/// How long calls are still taken after the host was told to end: endpoints of a Service follow within a second or two.
const DRAIN: Duration = Duration::from_secs(5);
/// Calls that run then get as long to end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// After an error of `accept`, which is mostly that there are no more files to be had.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, and some seconds longer.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: Arc<Service>,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Idle connections end with it.
    let closing = CancellationToken::new();
    let mut connections = JoinSet::new();
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::pin!(drained);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            biased;
            () = &mut drained => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => {
                    let connection =
                        connection(stream, acceptor.clone(), Arc::clone(&service), stop.clone(), closing.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection to the webhooks was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    closing.cancel();
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, all).await.is_err() {
        tracing::warn!("webhook calls did not end within {} s and are cut short", LAST_ANSWERS.as_secs());
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Arc<Service>,
    stop: CancellationToken,
    closing: CancellationToken,
) {
    // An answer is one small write; nothing is to be gathered.
    let _ = stream.set_nodelay(true);
    let stage = Stage::new();
    let served = async {
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a client of the webhooks did not come through TLS");
                return;
            }
        };
        let io = TokioIo::new(Staged { inner: stream, stage: stage.clone() });
        let answer = service_fn(|request: hyper::Request<Incoming>| {
            let (service, stage, stop) = (Arc::clone(&service), stage.clone(), stop.clone());
            async move {
                let mut response = service.answer(request, &stage).await;
                if stop.is_cancelled() {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                stage.answered();
                Ok::<Response<Body>, Infallible>(response)
            }
        });
        let connection = http1::Builder::new().serve_connection(io, answer);
        tokio::pin!(connection);
        tokio::select! {
            // What went wrong on the line is the client's to report.
            _ = &mut connection => {}
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = stage.overdue() => tracing::debug!("a client of the webhooks was too slow"),
        // Those that are in the middle of a call may end it.
        () = async { closing.cancelled().await; if !stage.is_idle() { std::future::pending::<()>().await } } => {}
    }
}
