//! The PodReplica operator on kube-rs: the native peer of the benchmark.
//!
//! `PODS=index` (default) follows kube.rs/controllers/optimization: one metadata-only pod watch that is both the
//! `owns` trigger and the source of what exists, so that a reconcile makes no reads.
//! `PODS=list` is the shape of the introductory docs: `Controller::new(..).owns(..)` and a list call per reconcile.
mod index;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use index::{OwnedPods, Pods};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action, Config},
        reflector, watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "app.example.com",
    version = "v1alpha1",
    kind = "PodReplica",
    plural = "podreplicas",
    namespaced,
    status = "PodReplicaStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct PodReplicaSpec {
    pub size: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodReplicaStatus {
    #[serde(default)]
    pub pod_names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("kube: {0}")]
    Kube(#[from] kube::Error),
    #[error("object has no {0}")]
    Missing(&'static str),
}

struct Ctx {
    client: Client,
    pods: Option<Arc<Pods>>,
}

fn pod_for(cr: &PodReplica, name: String) -> Result<Pod, Error> {
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cr.namespace(),
            labels: Some(BTreeMap::from([("app".into(), cr.name_any())])),
            owner_references: Some(vec![cr.controller_owner_ref(&()).ok_or(Error::Missing("uid"))?]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "busybox".into(),
                image: Some("busybox".into()),
                image_pull_policy: Some("IfNotPresent".into()),
                command: Some(vec!["sleep".into(), "3600".into()]),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    })
}

async fn owned(cr: &PodReplica, api: &Api<Pod>, ctx: &Ctx) -> Result<OwnedPods, Error> {
    let (name, uid) = (cr.name_any(), cr.uid().ok_or(Error::Missing("uid"))?);
    if let Some(pods) = &ctx.pods {
        pods.ready().await;
        return Ok(pods.owned_by(&uid));
    }
    let list = api.list_metadata(&ListParams::default().labels(&format!("app={name}"))).await?;
    Ok(list
        .iter()
        .filter_map(|p| index::entry(&p.metadata))
        .filter(|e| e.owner == uid)
        .map(|e| (e.ordinal, e.gone))
        .collect())
}

async fn reconcile(cr: Arc<PodReplica>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    if cr.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (ns, name) = (cr.namespace().ok_or(Error::Missing("namespace"))?, cr.name_any());
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &ns);
    let have = owned(&cr, &api, &ctx).await?;
    let size = cr.spec.size;

    let mut names = Vec::with_capacity(size as usize);
    for i in 0..size {
        let pod = format!("{name}-{i}");
        match have.get(&i) {
            Some(false) => names.push(pod),
            Some(true) => {} // terminating: its delete event comes back here
            None => match api.create(&PostParams::default(), &pod_for(&cr, pod.clone())?).await {
                Ok(_) => names.push(pod),
                // Our view is behind the server: ask it whose pod this is.
                Err(kube::Error::Api(e)) if e.is_already_exists() => {
                    let owner = cr.uid().ok_or(Error::Missing("uid"))?;
                    let found = api.get_metadata_opt(&pod).await?;
                    if found.is_some_and(|p| index::entry(&p.metadata).is_some_and(|e| e.owner == owner && !e.gone)) {
                        names.push(pod);
                    }
                }
                Err(e) => return Err(e.into()),
            },
        }
    }
    for (i, gone) in have.range(size..).rev() {
        if !gone {
            match api.delete(&format!("{name}-{i}"), &DeleteParams::default()).await {
                Err(kube::Error::Api(e)) if e.is_not_found() => {}
                r => drop(r?),
            }
        }
    }

    if cr.status.as_ref().map_or(&[][..], |s| &s.pod_names) != names {
        Api::<PodReplica>::namespaced(ctx.client.clone(), &ns)
            .patch_status(
                &name,
                &PatchParams::default(),
                &Patch::Merge(json!({"status": {"podNames": names}})),
            )
            .await?;
    }
    Ok(Action::await_change())
}

fn error_policy(_: Arc<PodReplica>, err: &Error, _: Arc<Ctx>) -> Action {
    tracing::warn!(%err, "reconcile failed");
    Action::requeue(Duration::from_millis(200))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    let client = Client::try_default().await?;
    let crs: Api<PodReplica> = Api::all(client.clone());
    let config = Config::default().concurrency(10);

    let (controller, pods) = if std::env::var("PODS").is_ok_and(|v| v == "list") {
        let pods = Api::<Pod>::all(client.clone());
        (
            Controller::new(crs, watcher::Config::default()).owns(pods, watcher::Config::default()),
            None,
        )
    } else {
        let pods = Arc::new(Pods::default());
        let (reader, writer) = reflector::store();
        let cr_stream = watcher(crs, watcher::Config::default())
            .default_backoff()
            .modify(|cr| cr.managed_fields_mut().clear())
            .reflect(writer)
            .touched_objects();
        let index = pods.clone();
        let pod_stream = watcher(Api::<PartialObjectMeta<Pod>>::all(client.clone()), watcher::Config::default())
            .default_backoff()
            .inspect_ok(move |event| index.apply(event))
            .touched_objects();
        (Controller::for_stream(cr_stream, reader).owns_stream(pod_stream), Some(pods))
    };
    controller
        .with_config(config)
        .shutdown_on_signal()
        .run(reconcile, error_policy, Arc::new(Ctx { client, pods }))
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}
