//! `pilothouse run`: builds the parts in order, owns their tasks, and ends them in the opposite order.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use pilothouse_cluster::lease::{Leadership, LeaseOptions, Shards};
use pilothouse_cluster::queue::Scheduler;
use pilothouse_cluster::watches::Watches;
use pilothouse_cluster::write::{AlwaysShut, Writer};
use pilothouse_cluster::{Cluster, ConnectOptions, event};
use pilothouse_sandbox::{CompileLimits, Compiler, Sandbox, SandboxOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::run::{LeaseConfig, RunConfig};
use crate::leader;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::plugins::Loader;
use crate::serve::{self, Health};
use crate::sources;
use crate::supervisor::{self, Shared};
use crate::webhooks;

/// Plugins that were found and wait to be loaded: a whole directory at once, each tens of MiB at most.
const FOUND_MAX: usize = 16;
/// Passes at the same time, over all plugins: a pass waits for the API server most of its life, and an API server
/// takes 200 writes at once by default.
const PASSES_MAX: usize = 64;
/// Passes that run get this long to end. Their events and the release of the Leases take at most 14 s more, usually
/// none: `deploy/` gives a pod 40 s.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);
/// Events of the last passes get this long to be written; then the rest is lost.
const EVENTS_DEADLINE: Duration = Duration::from_secs(5);
/// The very program that runs, also when its file has been replaced since.
const PROGRAM: &str = "/proc/self/exe";
/// Field manager of what the host writes for itself.
pub(crate) const MANAGER: &str = "pilothouse";

/// Why the host ended other than by a signal.
#[derive(Debug)]
pub(crate) enum RunError {
    /// What the user gave cannot be used.
    BadInput(anyhow::Error),
    /// A part could not be started or ended by itself.
    Failed(anyhow::Error),
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(config: RunConfig) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(io_threads())
        .enable_all()
        .build()
        .context("starting the runtime's threads")
        .map_err(RunError::Failed)?;
    let log = Log::start(config.log_format, runtime.handle());
    let done = runtime.block_on(host(config));
    log.finish();
    // A compilation that still runs is a thread of the runtime: its child process has a deadline of its own.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Threads that carry bytes, one for each two processors. Plugins run on threads of the sandbox. A request to the API
/// server keeps its own two cores busier than one of ours, and threads that wake each other for every one of its
/// frames cost a sixth more of our processor time.
fn io_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).div_ceil(2)
}

async fn host(config: RunConfig) -> Result<(), RunError> {
    let stop = CancellationToken::new();
    let mut parts = Parts::new();
    parts.spawn("signal handler", stop_on_signal(stop.clone()));

    let metrics = Metrics::default();
    let health = Health::default();
    let sandbox = Arc::new(sandbox().map_err(RunError::Failed)?);
    let (failures, failed) = mpsc::channel(FOUND_MAX);
    let serves_webhooks = config.webhooks.is_some();
    let (loader, live) = Loader::new(Arc::clone(&sandbox), metrics.clone(), failures, serves_webhooks);
    let broken = loader.broken();

    // All gates stand before the first probe is answered: in between the host would look ready.
    let api_server = health.gate("API server".to_owned(), "not reached yet");
    let directories = (!config.plugin_directories.is_empty())
        .then(|| health.gate(sources::DIRECTORIES.to_owned(), "the first scan is on its way"));
    let config_map_list = (config.plugin_config_maps.is_some())
        .then(|| health.gate(sources::CONFIG_MAPS.to_owned(), "the first list is on its way"));
    let lease_gate = health.gate("Leases".to_owned(), "not looked at yet");
    let webhook_gate = serves_webhooks.then(|| health.gate("webhooks".to_owned(), "not set up yet"));

    // Probes are answered before anything that may have to wait.
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("--listen {}: cannot listen there", config.listen))
        .map_err(RunError::BadInput)?;
    tracing::info!(address = %config.listen, "serving /livez, /readyz, /plugins and /metrics");
    let answer_until = stop.clone().cancelled_owned();
    let served = serve::serve(listener, health.clone(), metrics.clone(), live.clone(), answer_until);
    parts.spawn("HTTP server", served);

    let webhook_listener = match &config.webhooks {
        Some(webhooks) => Some(
            TcpListener::bind(webhooks.listen)
                .await
                .with_context(|| format!("--webhook-listen {}: cannot listen there", webhooks.listen))
                .map_err(RunError::BadInput)?,
        ),
        None => None,
    };

    let mut options = ConnectOptions { kubeconfig: config.kubeconfig.clone(), ..ConnectOptions::default() };
    if let Some(leases) = &config.leases {
        options.write_travel_max = leases.timing.travel_time();
    }
    let cluster = Cluster::open(&options).await.map_err(|error| RunError::BadInput(error.into()))?;
    tracing::info!(server = cluster.url(), "connecting to the API server");
    tokio::select! {
        () = cluster.wait() => drop(api_server),
        () = stop.cancelled() => return Ok(()),
    }

    let watches = Watches::new(cluster.clone());
    let home = home_namespace(config.leases.as_ref(), &cluster);
    let lease = config.leases.as_ref().map_or_else(|| MANAGER.to_owned(), |leases| leases.name.clone());
    let mut leadership = match config.leases {
        Some(leases) => {
            let begun = Leadership::begin(&cluster, &watches, lease_options(leases, home.clone()));
            Some(begun.await.map_err(|error| RunError::BadInput(error.into()))?)
        }
        None => None,
    };
    let shards = leadership.as_ref().map_or_else(Shards::alone, |leadership| leadership.shards().clone());
    parts.spawn_endless("leadership's word", leader::tell(shards.clone(), metrics.clone(), lease_gate));

    // Nothing is written but under a term, which each piece of work brings along.
    let writer = Writer::new(cluster.writer().clone(), MANAGER, Arc::new(AlwaysShut));
    let (events, event_task) = event::recorder(&writer, &instance());
    parts.spawn_endless("events", event_task.run());
    metrics.read_from().cluster(&cluster);
    metrics.read_from().watches(&watches);
    metrics.read_from().events(events.counters());
    let last_events = events.clone();
    let (frames, known_webhooks) = webhooks::channel();
    let shared = Arc::new(Shared {
        watches,
        scheduler: Scheduler::new(PASSES_MAX),
        cluster,
        writer,
        shards: shards.clone(),
        sandbox,
        events,
        metrics,
        health,
        namespaces: config.namespaces.into(),
        resync: config.resync,
        apply_crds: config.apply_crds,
        webhooks: serves_webhooks.then_some(known_webhooks),
    });
    let webhook_server = match (config.webhooks, webhook_listener, webhook_gate) {
        (Some(config), Some(listener), Some(gate)) => {
            tracing::info!(address = %config.listen, "serving webhooks");
            let parts = webhooks::Parts { config, listener, namespace: home, lease, gate, broken };
            let started = webhooks::start(parts, &shared, live.clone(), frames, &stop);
            Some(started.map_err(RunError::Failed)?)
        }
        _ => None,
    };
    let (found, finds) = mpsc::channel(FOUND_MAX);
    parts.spawn_endless("loader", loader.run(finds));
    if let Some(gate) = directories {
        let followed = sources::follow_directories(config.plugin_directories, found.clone(), gate);
        parts.spawn_endless("plugin directories", followed);
    }
    let config_maps =
        config.plugin_config_maps.map(|namespace| sources::ConfigMaps::watch(&shared, &namespace));
    parts.spawn_endless(
        "load failures",
        sources::tell_failures(shared.events.clone(), shards, config_maps.clone(), failed),
    );
    if let (Some(config_maps), Some(gate)) = (config_maps, config_map_list) {
        parts.spawn_endless("plugin ConfigMaps", config_maps.follow(found, gate));
    }

    let mut supervisor = tokio::spawn(supervisor::supervise(shared, live, stop.clone()));
    let ended = tokio::select! {
        // First: when the host is told to stop its parts end as well, and that is no failure.
        biased;
        () = stop.cancelled() => Ok(()),
        failed = parts.first_end() => Err(RunError::Failed(failed)),
        () = keeper_failed(&mut leadership) => Err(RunError::Failed(anyhow!("a Lease is kept no more, which is a bug"))),
        _ = &mut supervisor => {
            return Err(RunError::Failed(anyhow!("the supervisor ended by itself, which is a bug")));
        }
    };
    stop.cancel();
    let supervised = tokio::time::timeout(SHUTDOWN_DEADLINE, &mut supervisor).await;
    if supervised.is_err() {
        tracing::warn!("passes did not end within {} s and are cut short", SHUTDOWN_DEADLINE.as_secs());
        supervisor.abort();
    }
    if tokio::time::timeout(EVENTS_DEADLINE, last_events.flush()).await.is_err() {
        tracing::warn!("the last events were not written within {} s", EVENTS_DEADLINE.as_secs());
    }
    if let Some(leadership) = leadership {
        // Whoever takes over must not meet a write of a pass that was cut short.
        leadership.end(matches!(supervised, Ok(Ok(())))).await;
    }
    if let Some(server) = webhook_server {
        // It began to end with everything else, and has a time of its own for that.
        let _ = server.await;
    }
    tracing::info!("ended");
    ended
}

/// The namespace of Leases and certificates: as told, else the pod's, else that of the kubeconfig's context.
fn home_namespace(leases: Option<&LeaseConfig>, cluster: &Cluster) -> String {
    let told = leases.and_then(|leases| leases.namespace.clone());
    let of_pod = || std::env::var("POD_NAMESPACE").ok().filter(|namespace| !namespace.is_empty());
    told.or_else(of_pod).unwrap_or_else(|| cluster.default_namespace().to_owned())
}

fn lease_options(config: LeaseConfig, namespace: String) -> LeaseOptions {
    let LeaseConfig { name, shards, timing, .. } = config;
    LeaseOptions { namespace, name, shards, timing, host: instance() }
}

/// Waits until a keeper ends by itself.
async fn keeper_failed(leadership: &mut Option<Leadership>) {
    match leadership {
        Some(leadership) => leadership.failed().await,
        None => std::future::pending().await,
    }
}

/// The tasks of the host. None of them ends before the host does; all end with it.
struct Parts(JoinSet<(&'static str, anyhow::Result<()>)>);

impl Parts {
    fn new() -> Self {
        Self(JoinSet::new())
    }

    fn spawn(&mut self, name: &'static str, part: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.0.spawn(async move { (name, part.await) });
    }

    /// A part that cannot fail.
    fn spawn_endless(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.spawn(name, async {
            part.await;
            Ok(())
        });
    }

    /// Why the first of them ended.
    async fn first_end(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Ok((name, Err(error)))) => error.context(name),
            Some(Ok((name, Ok(())))) => anyhow!("{name}: ended by itself, which is a bug"),
            Some(Err(panic)) => anyhow!(panic).context("a part ended by a panic, which is a bug"),
            None => std::future::pending().await,
        }
    }
}

async fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!("{name}: passes that run may end, no more begin");
    stop.cancel();
    // Everything ends with `stop`; ending here would look like a failure.
    std::future::pending().await
}

fn sandbox() -> anyhow::Result<Sandbox> {
    let program = PathBuf::from(PROGRAM);
    let limits = CompileLimits::default();
    let compiler = Compiler::Child { program, arguments: vec!["compile".to_owned()], limits };
    let mut options = SandboxOptions::new(compiler);
    options.cache_dir = cache_directory();
    if let Some(limit) = container_memory() {
        // The other half is for the objects that are watched and for the compiler.
        options.memory_bytes_max = options.memory_bytes_max.min(limit / 2);
    }
    Sandbox::new(options).map_err(Into::into)
}

/// Memory limit of the container, bytes; cgroup 2, then 1. None without one.
fn container_memory() -> Option<u64> {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    files.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

/// `$XDG_CACHE_HOME/pilothouse/compiled`, by default in `~/.cache`. None: compiled code is kept in memory.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("pilothouse/compiled"))
}

/// Names this host in Events: the pod, or else the machine.
fn instance() -> String {
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    pod.or_else(|| machine().ok()).unwrap_or_else(|| "pilothouse".to_owned())
}
