//! What a user of the host feels, against a real API server: how soon children appear, how soon a deleted one is back,
//! how soon a new version serves, and how much memory the host takes at rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use pilothouse_bench::{Figure, quantile};
use pilothouse_harness::{ControlPlane, Host, HostOptions, Metrics, Options};
use serde_json::json;

/// Samples of each time.
const SAMPLES: usize = 50;
/// For each wait: a bench that hangs says where.
const DEADLINE: Duration = Duration::from_mins(1);
/// Between looks; a part of what is measured, so small.
const LOOK: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = measure().await {
        eprintln!("bench: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn measure() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let _kubelet = plane.kubelet(pilothouse_harness::KubeletOptions::default()).await?;
    let directory = tempfile::tempdir()?;
    let plugin = directory.path().join("postgres-cluster.wasm");
    fs::copy(built("postgres-cluster")?, &plugin)?;
    let options = || HostOptions {
        plugins: vec![directory.path().to_owned()],
        apply_crds: true,
        ..HostOptions::new(plane.kubeconfig().to_owned())
    };
    // The first start compiles; the second takes the code from the cache.
    Host::start(options()).await?.terminate().await?;
    let host = Host::start(options()).await?;
    at_rest(&host).await?;

    let namespace = plane.namespace("bench").await?;
    let client = plane.client().await?;
    let world = World { client, namespace };
    world.appear().await?;
    world.come_back().await?;
    world.scale().await?;
    swap(&host, &plugin).await?;
    host.terminate().await?;
    webhook(&plane, &world).await?;
    Ok(())
}

/// What a check adds to an apply, by the API server's own histogram. Its first bound is 5 ms, so that the middle is
/// known as a mean alone.
async fn webhook(plane: &ControlPlane, world: &World) -> Result<()> {
    const CALLS: u32 = 2_000;
    let directory = tempfile::tempdir()?;
    fs::copy(built("egapp")?, directory.path().join("egapp.wasm"))?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let flags =
        [format!("--webhook-listen=127.0.0.1:{port}"), format!("--webhook-url=https://127.0.0.1:{port}")];
    let options = HostOptions {
        plugins: vec![directory.path().to_owned()],
        apply_crds: true,
        arguments: flags.into(),
        ..HostOptions::new(plane.kubeconfig().to_owned())
    };
    let _host = Host::start(options).await?;
    let kind = GroupVersionKind::gvk("egplatform.platform.evillgenius.com", "v1alpha1", "EGApp");
    let resource = ApiResource::from_gvk_with_plural(&kind, "egapps");
    let apps: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    for number in 0..CALLS {
        let app: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "egplatform.platform.evillgenius.com/v1alpha1", "kind": "EGApp",
            "metadata": {"name": format!("app-{number}")}, "spec": {"framework": "go", "environment": "dev"}
        }))?;
        // The way through admission and nothing else: what is stored would be reconciled beside it.
        apps.create(&PostParams { dry_run: true, ..PostParams::default() }, &app).await?;
    }
    let text = world.client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let metrics = Metrics::parse(&text);
    let name = "apiserver_admission_webhook_admission_duration_seconds";
    let sum = |suffix: &str, more: &[(&str, &str)]| {
        let labels = [&[("name", "egapps.egapp.pilothouse.dev")], more].concat();
        metrics.sum(&format!("{name}_{suffix}"), &labels)
    };
    let (calls, seconds, quick) = (sum("count", &[]), sum("sum", &[]), sum("bucket", &[("le", "0.005")]));
    ensure!(calls >= f64::from(CALLS), "the API server counts {calls} calls");
    Figure {
        name: "webhook call, mean at the API server",
        value: seconds / calls * 1e3,
        unit: "ms",
        goal: Some(2.0),
    }
    .print();
    Figure {
        name: "webhook calls of more than 5 ms at the API server",
        value: (calls - quick) / calls * 100.0,
        unit: "%",
        goal: Some(1.0),
    }
    .print();
    Ok(())
}

/// The component that `make plugins` left.
fn built(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("the program lies in target/release")?;
    let path = target.join("plugins").join(format!("{name}.wasm"));
    ensure!(path.is_file(), "{} is missing: run `make plugins`", path.display());
    Ok(path)
}

#[allow(clippy::cast_precision_loss, reason = "bytes of one process")]
async fn at_rest(host: &Host) -> Result<()> {
    // Memory that was needed to start is given back within a moment.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let usage = host.usage()?;
    let mebibytes = usage.rss_bytes as f64 / f64::from(1 << 20);
    Figure {
        name: "host at rest with postgres-cluster from the cache, RSS",
        value: mebibytes,
        unit: "MiB",
        goal: Some(25.0),
    }
    .print();
    Ok(())
}

struct World {
    client: kube::Client,
    namespace: String,
}

impl World {
    fn clusters(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("db.example.com", "v1alpha1", "PostgresCluster");
        let resource = ApiResource::from_gvk_with_plural(&kind, "postgresclusters");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn appear(&self) -> Result<()> {
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let name = format!("db-{number}");
            let cluster: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "db.example.com/v1alpha1", "kind": "PostgresCluster",
                "metadata": {"name": name}, "spec": {"replicas": 3, "version": "16", "storage": "20Gi"}
            }))?;
            let begun = Instant::now();
            self.clusters().create(&PostParams::default(), &cluster).await?;
            // The StatefulSet is the last of the plan: all others are there before it.
            wait("the StatefulSet", || async {
                Ok(self.api::<StatefulSet>().get_opt(&name).await?.is_some())
            })
            .await?;
            times.push(begun.elapsed());
            for service in [name.clone(), format!("{name}-rw"), format!("{name}-ro")] {
                self.api::<Service>().get(&service).await?;
            }
            self.api::<Secret>().get(&format!("{name}-app")).await?;
            self.api::<PodDisruptionBudget>().get(&name).await?;
        }
        figures(("apply to all six children, p50", "apply to all six children, p99"), &mut times, 1_000.0);
        Ok(())
    }

    async fn come_back(&self) -> Result<()> {
        let services = self.api::<Service>();
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let name = format!("db-{number}-rw");
            let before = services.get(&name).await?.metadata.uid;
            let begun = Instant::now();
            services.delete(&name, &DeleteParams::default()).await?;
            wait("the Service to come back", || async {
                Ok(services.get_opt(&name).await?.is_some_and(|now| now.metadata.uid != before))
            })
            .await?;
            times.push(begun.elapsed());
        }
        figures(("deleted child is back, p50", "deleted child is back, p99"), &mut times, 2_000.0);
        Ok(())
    }

    async fn scale(&self) -> Result<()> {
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let name = format!("db-{number}");
            let begun = Instant::now();
            let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
            self.clusters().patch(&name, &PatchParams::default(), &patch).await?;
            wait("the StatefulSet to follow", || async {
                let set = self.api::<StatefulSet>().get(&name).await?;
                Ok(set.spec.and_then(|spec| spec.replicas) == Some(5))
            })
            .await?;
            times.push(begun.elapsed());
        }
        figures(
            ("edit to the StatefulSet follows, p50", "edit to the StatefulSet follows, p99"),
            &mut times,
            1_000.0,
        );
        Ok(())
    }
}

/// A version that the cache has: only the settings change, so the component is the same.
async fn swap(host: &Host, plugin: &Path) -> Result<()> {
    let settings = plugin.with_extension("yaml");
    let mut times = Vec::new();
    for number in 0_u32..20 {
        let before = generation(host).await?;
        let begun = Instant::now();
        let staged = settings.with_extension("staged");
        fs::write(&staged, format!("concurrency: {}\n", 10 + number))?;
        fs::rename(&staged, &settings)?;
        wait("the new version to serve", || async { Ok(generation(host).await? > before) }).await?;
        times.push(begun.elapsed());
    }
    figures(("new version to serving, cached, p50", "new version to serving, cached, p99"), &mut times, 50.0);
    Ok(())
}

async fn generation(host: &Host) -> Result<u64> {
    let (_, body) = host.get("/plugins").await?;
    let plugins: serde_json::Value = serde_json::from_str(&body)?;
    plugins[0]["generation"].as_u64().context("/plugins says no generation")
}

async fn wait<F>(what: &str, look: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let deadline = Instant::now() + DEADLINE;
    while !look().await? {
        ensure!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn figures((half, most): (&'static str, &'static str), times: &mut [Duration], goal_ms: f64) {
    Figure::millis(half, quantile(times, 0.5), Some(goal_ms)).print();
    Figure::millis(most, quantile(times, 0.99), None).print();
}
