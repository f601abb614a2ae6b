//! The connection to the API server: clients for reading and for writing, and lanes for watches.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Request;
use kube::Client;
use pilothouse_model::backoff;
use pilothouse_model::settings::BackoffSettings;

use crate::answer;
use crate::config::{ConnectError, ConnectOptions, Source};
use crate::error::ReadError;
use crate::lease::Gate;
use crate::random;
use crate::requests::RequestCounts;
use crate::transport::{Purpose, Transport};

/// Watches on one connection. kube-apiserver allows 100 streams; the one that is too many would wait for ever, and
/// unlike Go's client hyper's opens no second connection for it.
const WATCHES_PER_LANE_MAX: usize = 64;
/// One question whether the API server is there.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pace of those questions at the start.
const PROBE_BACKOFF: BackoffSettings = BackoffSettings { base_ms: 250, cap_ms: 5_000 };
/// While the API server stays away it is said again after this many questions, about every five minutes.
const PROBES_PER_REMINDER: u32 = 60;
/// One document of discovery: 100 KiB for the largest group there is.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// What `kube` logs by itself holds whole bodies, Secrets included, and repeats what this crate says once. Directives
/// for the log filter of whoever owns it.
pub const LOG_DIRECTIVES: &str = "kube_client=off,kube_runtime=off";

/// A connection to one API server; cheap to clone. Ends with its last clone.
#[derive(Clone)]
pub struct Cluster(Arc<Connection>);

struct Connection {
    source: Source,
    url: String,
    default_namespace: String,
    reader: Client,
    writer: Client,
    lanes: Mutex<Vec<(Client, Arc<()>)>>,
    counts: Arc<RequestCounts>,
    gate: Gate,
}

/// A client for one watch. Its place on the connection is free again when it is dropped.
pub(crate) struct Lane {
    pub(crate) client: Client,
    _place: Arc<()>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("url", &self.0.url).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads the configuration and waits until the API server answers.
    ///
    /// Dropping the future leaves nothing behind. Fails only on what waiting does not repair.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let cluster = Self::open(options).await?;
        cluster.wait().await;
        Ok(cluster)
    }

    /// Reads the configuration; asks the API server nothing yet.
    pub async fn open(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let source = Source::find(options)?;
        let counts = Arc::new(RequestCounts::default());
        let gate = Gate::default();
        let opening = {
            let (source, counts) = (source.clone(), Arc::clone(&counts));
            let writes = Purpose::Write { gate: gate.clone(), unacknowledged_max: options.write_travel_max };
            move || {
                let config = source.load()?;
                let reader = Transport::new(source.clone(), Purpose::Read, Arc::clone(&counts))?;
                let writer = Transport::new(source, writes, counts)?;
                Ok((config.cluster_url.to_string(), config.default_namespace, reader, writer))
            }
        };
        let (url, default_namespace, reader, writer) = off_runtime(opening).await?;
        let (reader, writer) = (reader.client(&default_namespace), writer.client(&default_namespace));
        let lanes = Mutex::new(Vec::new());
        let connection = Connection { source, url, default_namespace, reader, writer, lanes, counts, gate };
        Ok(Self(Arc::new(connection)))
    }

    /// Waits until the API server answers anything but a 5xx. Says once that it does not, and then rarely.
    pub async fn wait(&self) {
        for failures in 1_u32.. {
            let Err(error) = self.probe().await else {
                if failures > 1 {
                    tracing::info!(server = self.url(), "the API server answers");
                }
                return;
            };
            if failures % PROBES_PER_REMINDER == 1 {
                tracing::warn!(server = self.url(), %error, "waiting for the API server");
            }
            let delay = backoff::delay(&PROBE_BACKOFF, failures, random());
            tokio::time::sleep(delay.max(error.retry_after().unwrap_or_default())).await;
        }
    }

    /// Asks for the API server's version, which needs no permission.
    async fn probe(&self) -> Result<(), ReadError> {
        match self.get_text("/version", PROBE_TIMEOUT).await {
            // It is there. What it does not allow, the watches say with more words.
            Ok(_) | Err(ReadError::Forbidden(_) | ReadError::Unauthorized(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The body of the answer to one GET of a document, not of objects.
    pub(crate) async fn get_text(&self, path: &str, timeout: Duration) -> Result<String, ReadError> {
        let request =
            Request::get(path).body(Vec::new()).map_err(|error| ReadError::Malformed(error.to_string()))?;
        answer::text(&self.0.reader, request, timeout, DOCUMENT_BYTES_MAX).await
    }

    /// Address of the API server.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The namespace that the kubeconfig's context or the pod names, else `default`.
    pub fn default_namespace(&self) -> &str {
        &self.0.default_namespace
    }

    /// Requests so far, by verb and status.
    pub fn request_counts(&self) -> &RequestCounts {
        &self.0.counts
    }

    /// The client for gets and lists.
    pub(crate) fn reader(&self) -> &Client {
        &self.0.reader
    }

    /// The client for writes. It repeats nothing, except a request of which not one byte was sent because a kept
    /// connection had just been closed; whoever uses it sets the time-out.
    pub fn writer(&self) -> &Client {
        &self.0.writer
    }

    /// A client for Leases, with a connection of its own.
    pub(crate) async fn lease_client(&self, retry_period: Duration) -> Result<Client, ConnectError> {
        let (source, counts) = (self.0.source.clone(), Arc::clone(&self.0.counts));
        let purpose = Purpose::Lease { retry_period };
        let transport = off_runtime(move || Transport::new(source, purpose, counts)).await?;
        Ok(transport.client(&self.0.default_namespace))
    }

    /// What lets writes leave.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// A place for one watch, on the first connection that has one.
    ///
    /// A dropped future may leave a connection behind that the next caller uses.
    pub(crate) async fn lane(&self) -> Result<Lane, ConnectError> {
        if let Some(lane) = self.0.free_lane() {
            return Ok(lane);
        }
        let (source, counts) = (self.0.source.clone(), Arc::clone(&self.0.counts));
        let transport = off_runtime(move || Transport::new(source, Purpose::Read, counts)).await?;
        let (client, place) = (transport.client(&self.0.default_namespace), Arc::new(()));
        self.0.lanes().push((client.clone(), Arc::clone(&place)));
        Ok(Lane { client, _place: place })
    }
}

impl Connection {
    fn lanes(&self) -> MutexGuard<'_, Vec<(Client, Arc<()>)>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_lane(&self) -> Option<Lane> {
        let mut lanes = self.lanes();
        // One reference is the pool's own.
        let load = |place: &Arc<()>| Arc::strong_count(place) - 1;
        let mut first = true;
        lanes.retain(|(_, place)| std::mem::take(&mut first) || load(place) > 0);
        let (client, place) = lanes.iter().find(|(_, place)| load(place) < WATCHES_PER_LANE_MAX)?;
        Some(Lane { client: client.clone(), _place: Arc::clone(place) })
    }
}

/// Runs what reads files and may run a credential plugin for seconds.
async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
}
