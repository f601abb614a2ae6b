//! A stand-in for the kubelet: it runs nothing and reports everything as running.
//!
//! It writes the status subresource of pods and nothing else, so what controllers make of it happens as in a real
//! cluster: Deployments and StatefulSets roll, Jobs complete, budgets count.
//!
//! Pods need no node for that, and have none. Two things follow: a pod is deleted by the API server at once,
//! whatever its grace period, since there is no kubelet to wait for (one that a test binds to a node stays
//! terminating, as on a node that is gone); and Services get no endpoints, as their controllers look up each
//! pod's node and skip the pod without one.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::{
    StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{FuturesUnordered, SelectAll},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::pod_status::{PodState, patch};

/// Status writes under way at one time: enough for thousands of pods in seconds, too few to crowd out the program
/// under test.
const WRITES_MAX: usize = 8;
/// A write that failed is tried again after this, for as long as the pod is there.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Decides what a new pod becomes; `None` leaves it pending, for the test to [set](Kubelet::set).
pub type Decide = Arc<dyn Fn(&Pod) -> Option<PodState> + Send + Sync>;

/// Which pods, what they become, and how fast.
#[derive(Clone)]
pub struct KubeletOptions {
    /// Only pods in these namespaces; all, if empty.
    pub namespaces: Vec<String>,
    /// How long a pod stays pending first.
    pub delay: Duration,
    /// What each new pod becomes.
    pub decide: Decide,
}

impl Default for KubeletOptions {
    /// All namespaces, no delay; pods of Jobs succeed, all others become ready.
    fn default() -> Self {
        let decide = |pod: &Pod| {
            let of_job = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
            Some(if of_job { PodState::Succeeded } else { PodState::Ready })
        };
        Self { namespaces: Vec::new(), delay: Duration::ZERO, decide: Arc::new(decide) }
    }
}

impl KubeletOptions {
    /// Pods stay pending until the test [sets](Kubelet::set) them.
    pub fn manual() -> Self {
        Self { decide: Arc::new(|_| None), ..Self::default() }
    }
}

impl fmt::Debug for KubeletOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("KubeletOptions");
        fields.field("namespaces", &self.namespaces).field("delay", &self.delay).finish_non_exhaustive()
    }
}

/// A running stand-in; it stops when dropped. It takes each pod from pending to the decided state once; after that
/// (or after [`Kubelet::set`]) the pod's status is the test's.
pub struct Kubelet {
    node: Arc<Node>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Starts it on the current runtime. Its writes are made by the client's user.
    pub fn start(client: Client, options: KubeletOptions) -> Self {
        let node = Arc::new(Node { client, ips: Mutex::default(), writes: Semaphore::new(WRITES_MAX) });
        let task = tokio::spawn(drive(Arc::clone(&node), options));
        Self { node, task }
    }

    /// Brings one pod into this state now. The API server lets no pod leave a final state.
    pub async fn set(&self, namespace: &str, name: &str, state: PodState) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.node.client.clone(), namespace);
        let pod = pods.get(name).await.with_context(|| format!("pod {namespace}/{name}"))?;
        self.node.write(&pod, state).await.with_context(|| format!("status of pod {namespace}/{name}"))
    }

    /// Merges any JSON into one pod's status (strategic merge: conditions by type, containers by name).
    pub async fn patch_status(&self, namespace: &str, name: &str, status: Value) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.node.client.clone(), namespace);
        let patch = Patch::Strategic(serde_json::json!({ "status": status }));
        let written = pods.patch_status(name, &PatchParams::default(), &patch).await;
        written.map(drop).with_context(|| format!("status of pod {namespace}/{name}"))
    }
}

impl fmt::Debug for Kubelet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kubelet").finish_non_exhaustive()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Node {
    client: Client,
    /// By uid, so that a pod keeps its address through all its states.
    ips: Mutex<HashMap<String, Ipv4Addr>>,
    writes: Semaphore,
}

impl Node {
    async fn write(&self, pod: &Pod, state: PodState) -> kube::Result<()> {
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace.unwrap_or_default());
        let _permit = self.writes.acquire().await;
        let body = patch(pod, state, &self.ip(&uid(pod)).to_string(), Timestamp::now());
        pods.patch_status(name.unwrap_or_default(), &PatchParams::default(), &Patch::Strategic(body)).await?;
        Ok(())
    }

    /// An address from 10.128.0.0/9, which no Service uses; the next for a new pod.
    fn ip(&self, uid: &str) -> Ipv4Addr {
        let mut ips = self.ips.lock().unwrap_or_else(PoisonError::into_inner);
        let next = u32::from(Ipv4Addr::new(10, 128, 0, 1)) + u32::try_from(ips.len()).unwrap_or_default();
        *ips.entry(uid.to_owned()).or_insert_with(|| Ipv4Addr::from(next))
    }
}

/// The loop: sees pods, decides once for each, and waits out their delays.
async fn drive(node: Arc<Node>, options: KubeletOptions) {
    let mut events: SelectAll<_> = apis(&node.client, &options.namespaces)
        .map(|pods| watcher(pods, watcher::Config::default()).default_backoff().boxed())
        .collect();
    let mut seen = HashSet::new();
    let mut starting: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            Some(()) = starting.next() => continue,
        };
        match event {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                let wanted = PodState::of(&pod).is_none() && pod.metadata.deletion_timestamp.is_none();
                if wanted
                    && !seen.contains(&uid(&pod))
                    && let Some(state) = (options.decide)(&pod)
                {
                    seen.insert(uid(&pod));
                    starting.push(Box::pin(run(Arc::clone(&node), pod, state, options.delay)));
                }
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                seen.remove(&uid(&pod));
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
            // The watcher goes on by itself; tests stop the API server on purpose.
            Err(error) => tracing::debug!(%error, "the watch on pods was interrupted"),
            Ok(None) => return,
        }
    }
}

fn apis(client: &Client, namespaces: &[String]) -> impl Iterator<Item = Api<Pod>> {
    let all = namespaces.is_empty().then(|| Api::all(client.clone()));
    let some: Vec<_> = namespaces.iter().map(|name| Api::namespaced(client.clone(), name)).collect();
    all.into_iter().chain(some)
}

/// Takes one pod to its state; ends early if the pod does.
async fn run(node: Arc<Node>, pod: Pod, state: PodState, delay: Duration) {
    tokio::time::sleep(delay).await;
    loop {
        match node.write(&pod, state).await {
            Ok(()) => return,
            // Gone, or another pod by now (the uid in the patch differs).
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(error) => tracing::debug!(%error, "a pod's status was not written"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}
