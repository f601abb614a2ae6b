//! The user's side: creates and changes PodReplicas, and notes when each thing shows at its own watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Pods of each resource at first.
pub(crate) const SIZE: usize = 5;
const RESOURCES: &str = "/apis/app.example.com/v1alpha1/namespaces/default/podreplicas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Users that create resources at the same time.
const CREATORS: usize = 4;

/// Name of the resource with this number.
pub(crate) fn name(number: usize) -> String {
    format!("cr{number:05}")
}

/// What the two watches have shown.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When each pod that there is came.
    pub(crate) pods: HashMap<String, Instant>,
    /// When each resource's status began to name all pods that it should have.
    pub(crate) complete: HashMap<String, Instant>,
    /// When each resource last changed.
    pub(crate) resources: HashMap<String, Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Pod {
    metadata: Named,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    resource_version: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Replica {
    metadata: Named,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
struct Spec {
    size: usize,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    pod_names: Vec<String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Replica>,
}

impl Replica {
    fn is_complete(&self) -> bool {
        let wanted = (0..self.spec.size).map(|number| format!("{}-{number}", self.metadata.name));
        self.status.pod_names.iter().cloned().eq(wanted)
    }
}

/// The user.
pub(crate) struct User {
    client: Client,
    shared: Arc<Shared>,
    watches: JoinSet<()>,
}

impl User {
    /// Watches from now on.
    pub(crate) async fn new(client: Client) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut watches = JoinSet::new();
        let take = Arc::clone(&shared);
        watch::<Pod>(&client, PODS, METADATA, &mut watches, move |event| {
            let now = Instant::now();
            match event {
                WatchEvent::Added(pod) => drop(take.seen().pods.insert(pod.metadata.name, now)),
                WatchEvent::Deleted(pod) => drop(take.seen().pods.remove(&pod.metadata.name)),
                _ => return,
            }
            take.changed.notify_waiters();
        })
        .await?;
        let take = Arc::clone(&shared);
        watch::<Replica>(&client, RESOURCES, "application/json", &mut watches, move |event| {
            let now = Instant::now();
            let (WatchEvent::Added(replica) | WatchEvent::Modified(replica)) = event else { return };
            let mut seen = take.seen();
            let name = replica.metadata.name.clone();
            if replica.is_complete() {
                seen.complete.entry(name.clone()).or_insert(now);
            } else {
                seen.complete.remove(&name);
            }
            seen.resources.insert(name, now);
            drop(seen);
            take.changed.notify_waiters();
        })
        .await?;
        Ok(Self { client, shared, watches })
    }

    /// What was seen so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    /// Waits until what was seen is so; an error after that time.
    pub(crate) async fn until(&self, what: &str, limit: Duration, so: impl Fn(&Seen) -> bool) -> Result<()> {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if so(&self.seen()) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(limit, wait).await.is_ok() {
            return Ok(());
        }
        let there = self.there().await?;
        bail!("waited {limit:?} for {what}; {there}")
    }

    /// What the API server has, beside what the watches have shown: whose fault a delay is.
    async fn there(&self) -> Result<String> {
        let list: List = self.client.request(Request::get(RESOURCES).body(Vec::new())?).await?;
        let (all, seen) = (list.items.len(), self.seen());
        let unfinished: Vec<_> = list.items.iter().filter(|one| !one.is_complete()).collect();
        let unseen = list.items.iter().filter(|one| !seen.complete.contains_key(&one.metadata.name)).count();
        let first = unfinished.first().map_or("none", |one| &one.metadata.name);
        let unfinished = unfinished.len();
        Ok(format!(
            "of {all} resources {unfinished} are unfinished, first {first}; {unseen} were not seen finished"
        ))
    }

    /// Creates so many resources of a size, several at once.
    pub(crate) async fn create(&self, count: usize, size: usize) -> Result<()> {
        let mut creators = JoinSet::new();
        for first in 0..CREATORS {
            let client = self.client.clone();
            creators.spawn(async move {
                for number in (first..count).step_by(CREATORS) {
                    let object = json!({
                        "apiVersion": "app.example.com/v1alpha1", "kind": "PodReplica",
                        "metadata": {"name": name(number)}, "spec": {"size": size}
                    });
                    send(&client, "POST", RESOURCES, "application/json", &object).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = creators.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Changes the size of one resource. Returns when it was sent.
    pub(crate) async fn resize(&self, name: &str, size: usize) -> Result<Instant> {
        let sent = Instant::now();
        let patch = json!({"spec": {"size": size}});
        send(&self.client, "PATCH", &format!("{RESOURCES}/{name}"), "application/merge-patch+json", &patch)
            .await?;
        Ok(sent)
    }

    /// Creates a pod, as an operator would. Returns when it was sent.
    pub(crate) async fn create_pod(&self, name: &str) -> Result<Instant> {
        let sent = Instant::now();
        let container = json!({
            "name": "busybox", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"]
        });
        let pod =
            json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [container]}});
        send(&self.client, "POST", PODS, "application/json", &pod).await?;
        Ok(sent)
    }

    /// Ends the watches.
    pub(crate) async fn leave(mut self) {
        self.watches.shutdown().await;
    }
}

async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) -> Result<()> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let answered = client.request_text(request.body(body.to_string().into_bytes())?).await;
    answered.map(drop).with_context(|| format!("{method} {path}"))
}

/// An object of a watch.
trait Versioned {
    /// `metadata.resourceVersion`.
    fn version(&self) -> &str;
}

impl Versioned for Pod {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Versioned for Replica {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// Starts a watch of what changes from now on. The API server ends the watch of whoever is slow for a moment; it goes on
/// behind what was seen last.
async fn watch<T>(
    client: &Client,
    path: &str,
    accept: &str,
    tasks: &mut JoinSet<()>,
    mut take: impl FnMut(WatchEvent<T>) + Send + 'static,
) -> Result<()>
where
    T: Clone + DeserializeOwned + Versioned + Send + Sync + 'static,
{
    let list: Value = client.request(Request::get(format!("{path}?limit=1")).body(Vec::new())?).await?;
    let Some(version) = list["metadata"]["resourceVersion"].as_str() else {
        bail!("{path}: a list without a version")
    };
    let (client, path, accept) = (client.clone(), path.to_owned(), accept.to_owned());
    let mut version = version.to_owned();
    let open = async move |version: &str| {
        let uri = format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=3500");
        let request = Request::get(uri).header("Accept", &accept).body(Vec::new())?;
        anyhow::Ok(Box::pin(client.request_events::<T>(request).await?))
    };
    let mut events = open(&version).await?;
    tasks.spawn(async move {
        loop {
            let ended = match events.try_next().await {
                Ok(Some(event)) => {
                    if let WatchEvent::Added(one) | WatchEvent::Modified(one) | WatchEvent::Deleted(one) =
                        &event
                    {
                        one.version().clone_into(&mut version);
                    }
                    take(event);
                    continue;
                }
                Ok(None) => "by the API server".to_owned(),
                Err(error) => error.to_string(),
            };
            eprintln!("bench-peers: a watch of the user ended ({ended}) and goes on at {version}");
            events = match open(&version).await {
                Ok(events) => events,
                Err(error) => {
                    eprintln!("bench-peers: it does not: {error:#}");
                    return;
                }
            };
        }
    });
    Ok(())
}

/// Whether so many resources have all of their first pods and say so.
pub(crate) fn all_there(seen: &Seen, count: usize) -> bool {
    seen.complete.len() == count && seen.pods.len() == count * SIZE
}
