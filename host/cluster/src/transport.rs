//! How requests travel: one service below `kube::Client`, in place of kube's own stack.
//!
//! Three things are different from that stack. It speaks HTTP/2, so that hundreds of watches need a few connections.
//! It never retries: kube's would repeat a write up to fifteen times over minutes, long after the right to write is
//! gone. And when the API server answers 401 it reads the credentials again, whatever form they have.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::config::{ConnectError, Source};
use crate::gated::GatedConnector;
use crate::lease::Gate;
use crate::requests::{RequestCounts, verb};

/// Within one data centre a connection takes milliseconds; three lost SYNs take 7 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For all of it, TLS included, as client-go has it. The kernel of a machine whose API server hangs still takes
/// connections, and nobody answers the handshake; whoever wanted the connection would wait behind it for ever, for over
/// HTTP/2 all share the one that is on its way. With the PING below, an API server that hangs is noticed and said
/// within 30 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection without traffic may be silent before its peer is asked (HTTP/2 PING or TCP keepalive).
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How long the peer may take to answer that. Together: a silently dead connection is noticed within 20 s. client-go
/// takes 30 s + 15 s.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// At most one reading of the credentials in this time, however many requests are refused at once.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// What the connections of a client are for.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    /// Gets, lists and watches.
    Read,
    /// Everything that changes objects. Nothing leaves while the gate is shut; what has left and is not acknowledged
    /// within the time is given up, so that it cannot arrive behind the fence of a Lease.
    Write { gate: Gate, unacknowledged_max: Duration },
    /// Leases, renewed once in this time: a connection that is dead must be noticed while there is time for another.
    Lease { retry_period: Duration },
}

impl Purpose {
    /// How long a connection may be silent before its peer is asked, and how long the answer may take.
    fn patience(&self) -> (Duration, Duration) {
        match self {
            Self::Read | Self::Write { .. } => (IDLE_MAX, PING_TIMEOUT),
            Self::Lease { retry_period } => (*retry_period, *retry_period),
        }
    }

    fn unacknowledged_max(&self) -> Duration {
        match self {
            Self::Read => IDLE_MAX + PING_TIMEOUT,
            Self::Write { unacknowledged_max, .. } => *unacknowledged_max,
            Self::Lease { retry_period } => *retry_period * 2,
        }
    }
}

type Stack = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// The service below one `kube::Client`, with connections of its own.
#[derive(Clone)]
pub(crate) struct Transport(Arc<Shared>);

struct Shared {
    source: Source,
    purpose: Purpose,
    stack: ArcSwap<Stack>,
    reloaded: Mutex<Instant>,
    counts: Arc<RequestCounts>,
}

impl Transport {
    /// Blocks on files and on a credential plugin, if the kubeconfig names one.
    pub(crate) fn new(
        source: Source,
        purpose: Purpose,
        counts: Arc<RequestCounts>,
    ) -> Result<Self, ConnectError> {
        let config = source.load()?;
        let stack = build(&config, &purpose).map_err(|error| source.unusable(&error))?;
        let (stack, reloaded) = (ArcSwap::from_pointee(stack), Mutex::new(Instant::now()));
        Ok(Self(Arc::new(Shared { source, purpose, stack, reloaded, counts })))
    }

    /// Must be called on a runtime: kube runs a task for each client.
    pub(crate) fn client(self, default_namespace: &str) -> Client {
        Client::new(self, default_namespace)
    }
}

impl Shared {
    /// Reads the credentials again and uses them for all later requests. Requests in flight keep their connections.
    async fn reload(self: Arc<Self>) {
        {
            let mut reloaded = self.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
            if reloaded.elapsed() < RELOAD_INTERVAL {
                return;
            }
            *reloaded = Instant::now();
        }
        let shared = Arc::clone(&self);
        let build = move || {
            let config = shared.source.load()?;
            build(&config, &shared.purpose).map_err(|error| shared.source.unusable(&error))
        };
        match tokio::task::spawn_blocking(build).await {
            Ok(Ok(stack)) => self.stack.store(Arc::new(stack)),
            Ok(Err(error)) => tracing::warn!(%error, "the credentials are refused and cannot be read again"),
            Err(error) => tracing::warn!(%error, "reading the credentials again did not end well"),
        }
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        let verb = verb(&request);
        Box::pin(async move {
            let (stack, sent) = (Stack::clone(&shared.stack.load()), Instant::now());
            let answer = stack.oneshot(request).await;
            let status = answer.as_ref().map_or(0, |response| response.status().as_u16());
            shared.counts.add(verb, status, sent.elapsed());
            if status == StatusCode::UNAUTHORIZED {
                // The refused request is not repeated here: each caller has its own pace.
                shared.reload().await;
            }
            answer
        })
    }
}

/// Makes connections, each within [`HANDSHAKE_TIMEOUT`].
#[derive(Clone)]
struct Bounded<C>(C);

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Response: 'static,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.0.call(uri));
        Box::pin(async move {
            connected.await.unwrap_or_else(|_| {
                Err(format!("no connection within {} s", HANDSHAKE_TIMEOUT.as_secs()).into())
            })
        })
    }
}

fn build(config: &Config, purpose: &Purpose) -> Result<Stack, kube::Error> {
    let (idle_max, ping_timeout) = purpose.patience();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // For what speaks HTTP/1.1, a proxy for example; HTTP/2 has its own PING.
    tcp.set_keepalive(Some(idle_max));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_tcp_user_timeout(Some(purpose.unacknowledged_max()));
    let gate = match purpose {
        Purpose::Write { gate, .. } => gate.clone(),
        Purpose::Read | Purpose::Lease { .. } => Gate::default(), // which is open
    };

    let mut https =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(kube::client::RustlsTlsError::InvalidServerName);
        https = https
            .with_server_name_resolver(FixedServerNameResolver::new(name.map_err(kube::Error::RustlsTls)?));
    }
    let https = https.enable_http1().enable_http2();
    let https = Bounded(https.wrap_connector(GatedConnector::new(tcp, gate)));

    let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(idle_max)
        .http2_keep_alive_timeout(ping_timeout)
        // A writer's connection is idle most of the time; its death must not be noticed by the first write.
        .http2_keep_alive_while_idle(true);
    let hyper = builder.build::<_, Body>(https);

    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper);
    Ok(BoxCloneSyncService::new(service))
}
