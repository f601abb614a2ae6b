//! Many objects, on a control plane that holds nothing else: without an audit log, which other tests read as a whole,
//! and without controllers.

use std::path::Path;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use pilothouse_harness::{ControlPlane, Host, HostOptions, Options, eventually, workspace};
use serde_json::Value;
use tempfile::TempDir;

use crate::{DEADLINE, Kind, plugin_directory};

/// Requests at the same time. More of them make the API server no faster on two processors.
const REQUESTS_AT_ONCE: usize = 32;

/// A control plane of its own, and one plugin for a host that applies CRDs and so is an administrator.
pub struct Crowd {
    /// The control plane.
    pub plane: ControlPlane,
    /// An administrator's.
    pub client: Client,
    /// The only namespace that the host serves.
    pub namespace: String,
    plugins: TempDir,
}

impl Crowd {
    /// With this plugin.
    pub async fn new(plugin: &Path) -> Self {
        let plane =
            ControlPlane::start(Options { controller_manager: false, ..Options::default() }).await.unwrap();
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace("crowd").await.unwrap();
        Self { plane, client, namespace, plugins: plugin_directory(&[plugin.to_owned()]) }
    }

    /// A host, ready.
    pub async fn host(&self) -> Host {
        // Compiled code of test plugins stays out of the user's cache, and is found again by the next run.
        let cache = workspace::target_directory().join("cache").display().to_string();
        let options = HostOptions {
            plugins: vec![self.plugins.path().to_owned()],
            apply_crds: true,
            namespaces: vec![self.namespace.clone()],
            lease_namespace: Some(self.namespace.clone()),
            environment: [("XDG_CACHE_HOME".to_owned(), cache)].into(),
            ..HostOptions::new(self.plane.kubeconfig())
        };
        Host::start(options).await.unwrap()
    }

    /// Creates these objects, many at the same time.
    pub async fn create_all(&self, kind: Kind, objects: impl IntoIterator<Item = Value>) {
        let api = &kind.api(&self.client, &self.namespace);
        let requests = objects.into_iter().map(|object| async move {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await
        });
        let mut answers = stream::iter(requests).buffer_unordered(REQUESTS_AT_ONCE);
        while answers.try_next().await.unwrap().is_some() {}
    }

    /// Merges the same patch into all objects of these names, many at the same time.
    pub async fn edit_all(&self, kind: Kind, names: impl IntoIterator<Item = String>, patch: &Value) {
        let api = &kind.api(&self.client, &self.namespace);
        let requests = names
            .into_iter()
            .map(|name| async move { api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await });
        let mut answers = stream::iter(requests).buffer_unordered(REQUESTS_AT_ONCE);
        while answers.try_next().await.unwrap().is_some() {}
    }

    /// Waits until there is an object.
    pub async fn present(&self, kind: Kind, name: &str) {
        let api = kind.api(&self.client, &self.namespace);
        let look = || async { anyhow::Ok(api.get_opt(name).await?.is_some()) };
        eventually(DEADLINE, &format!("{} {name}", kind.1), look).await;
    }
}
