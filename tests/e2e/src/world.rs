//! One test's part of the shared control plane.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Output,
};

use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use pilothouse_harness::{
    Audit, ControlPlane, Host, HostOptions, Kubelet, KubeletOptions, Options, eventually, workspace,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::{
    DEADLINE, Kind, POSTGRES_CLUSTER, plugin, plugin_directory,
    programs::{pilothouse, run, succeeded, try_run_with},
};

/// What `deploy/base` calls the host's account.
const DEPLOYED: (&str, &str) = ("pilothouse-system", "pilothouse");

/// A namespace with a stand-in for the kubelet, credentials for hosts that serve this namespace alone and have their
/// Lease there, and the plugins for them.
pub struct World {
    /// The control plane that all tests share, or the test's own.
    pub plane: &'static ControlPlane,
    /// An administrator's.
    pub client: Client,
    /// This test's own.
    pub namespace: String,
    /// The host's user, as the audit log calls it.
    pub user: String,
    /// The host's credentials.
    pub kubeconfig: PathBuf,
    /// A directory for `--plugins`, with the plugins that were named.
    pub plugins: TempDir,
    /// Makes pods ready, or what the test says.
    pub kubelet: Kubelet,
}

/// Somebody whom the API server knows.
#[derive(Clone, Debug)]
pub struct Account {
    /// As the audit log calls it.
    pub user: String,
    /// Its credentials.
    pub kubeconfig: PathBuf,
}

impl World {
    /// The PostgresCluster operator with the account, the rights and the CRD of `deploy/base`.
    pub async fn deployed(prefix: &str) -> Self {
        let plane = ControlPlane::shared().await;
        Self::deployed_on(plane, deploy(plane).await, prefix).await
    }

    /// The same on a control plane of its own, for a test that changes what all others rely on. It ends with the process,
    /// as the shared one does.
    pub async fn deployed_alone(prefix: &str) -> Self {
        let options = Options { audit: Audit::All, ..Options::default() };
        let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::start(options).await.unwrap()));
        Self::deployed_on(plane, apply_base(plane).await, prefix).await
    }

    async fn deployed_on(plane: &'static ControlPlane, kubeconfig: PathBuf, prefix: &str) -> Self {
        let namespace = plane.namespace(prefix).await.unwrap();
        // Its own Lease is in another namespace, and one for all tests.
        let flags = ["rbac", "--namespace", &namespace, "--lease-namespace", &namespace].map(OsStr::new);
        let plugin_path = plugin("postgres-cluster");
        let roles = run(&pilothouse(), flags.into_iter().chain([plugin_path.as_os_str()])).await;
        kubectl(plane, ["apply", "--server-side", "-f", "-"], roles.as_bytes()).await;
        Self::with_account(plane, namespace, DEPLOYED, kubeconfig, &[plugin("postgres-cluster")]).await
    }

    /// These plugins, their CRDs, and an account with the rights that `pilothouse rbac` prints for them, in the
    /// test's namespace alone.
    pub async fn granted(prefix: &str, plugins: &[PathBuf]) -> Self {
        let plane = ControlPlane::shared().await;
        let namespace = plane.namespace(prefix).await.unwrap();
        // Cluster-wide roles have the account's name, so it is one that no other test has.
        let account = (namespace.as_str(), namespace.as_str());
        kubectl(plane, ["-n", &namespace, "create", "serviceaccount", &namespace], &[]).await;

        let plugin_paths = || plugins.iter().map(|path| path.as_os_str());
        // That of the PostgresCluster, which two plugins serve, belongs to `deploy/base` and is applied in one way only.
        let (deployed, others): (Vec<_>, Vec<_>) =
            plugin_paths().partition(|path| path.to_string_lossy().contains("/postgres-cluster"));
        if !deployed.is_empty() {
            deploy(plane).await;
        }
        let crds = match others.as_slice() {
            [] => String::new(),
            some => run(&pilothouse(), ["crds".as_ref()].iter().chain(some)).await,
        };
        if !crds.trim().is_empty() {
            kubectl(plane, ["apply", "--server-side", "-f", "-"], crds.as_bytes()).await;
            kubectl(plane, ["wait", "--for=condition=Established", "-f", "-"], crds.as_bytes()).await;
        }
        let account_flag = format!("{namespace}/{namespace}");
        let flags = [
            "rbac",
            "--namespace",
            &namespace,
            "--service-account",
            &account_flag,
            "--webhook-name",
            &namespace,
        ];
        let roles = run(&pilothouse(), flags.map(OsStr::new).into_iter().chain(plugin_paths())).await;
        kubectl(plane, ["apply", "--server-side", "-f", "-"], roles.as_bytes()).await;

        let kubeconfig = plane.kubeconfig_for_service_account(account.0, account.1).await.unwrap();
        let user = (namespace.clone(), namespace.clone());
        Self::with_account(plane, namespace, (&user.0, &user.1), kubeconfig, plugins).await
    }

    async fn with_account(
        plane: &'static ControlPlane,
        namespace: String,
        account: (&str, &str),
        kubeconfig: PathBuf,
        plugins: &[PathBuf],
    ) -> Self {
        let client = plane.client().await.unwrap();
        let kubelet = KubeletOptions { namespaces: vec![namespace.clone()], ..KubeletOptions::default() };
        Self {
            plane,
            kubelet: Kubelet::start(client.clone(), kubelet),
            client,
            namespace,
            user: format!("system:serviceaccount:{}:{}", account.0, account.1),
            kubeconfig,
            plugins: plugin_directory(plugins),
        }
    }

    /// One more account for a host of this test, which the audit log tells apart from the others: with the rights that
    /// `pilothouse rbac` prints for the test's plugins and so many shards.
    pub async fn account(&self, name: &str, shards: usize) -> Account {
        let (namespace, name) = (&self.namespace, format!("{}-{name}", self.namespace));
        self.kubectl(&format!("create serviceaccount {name}")).await;
        let (account, shards) = (format!("{namespace}/{name}"), shards.to_string());
        let flags = [
            "rbac",
            "--namespace",
            namespace,
            "--service-account",
            &account,
            "--shards",
            &shards,
            "--webhook-name",
            namespace,
        ];
        let plugins = std::fs::read_dir(self.plugins.path()).unwrap().map(|entry| entry.unwrap().path());
        let arguments = flags.iter().map(Into::into).chain(plugins.map(PathBuf::into_os_string));
        let roles = run(&pilothouse(), arguments.collect::<Vec<std::ffi::OsString>>()).await;
        self.apply(&roles).await;
        Account {
            kubeconfig: self.plane.kubeconfig_for_service_account(namespace, &name).await.unwrap(),
            user: format!("system:serviceaccount:{namespace}:{name}"),
        }
    }

    /// How to start this test's host; to be changed as the test likes.
    pub fn options(&self) -> HostOptions {
        // Compiled code of test plugins stays out of the user's cache, and is found again by the next run.
        let cache = workspace::target_directory().join("cache").display().to_string();
        HostOptions {
            plugins: vec![self.plugins.path().to_owned()],
            namespaces: vec![self.namespace.clone()],
            lease_namespace: Some(self.namespace.clone()),
            environment: [("XDG_CACHE_HOME".to_owned(), cache)].into(),
            ..HostOptions::new(&self.kubeconfig)
        }
    }

    /// Starts this test's host and waits until it is ready.
    pub async fn host(&self) -> Host {
        Host::start(self.options()).await.unwrap()
    }

    /// Runs kubectl in the test's namespace as an administrator, and returns what it prints. The words of the
    /// command are separated by spaces.
    ///
    /// # Panics
    /// If it fails.
    pub async fn kubectl(&self, command: &str) -> String {
        succeeded(&self.try_kubectl(command, "").await)
    }

    /// As [`Self::kubectl`], with standard input, and whatever comes of it.
    pub async fn try_kubectl(&self, command: &str, input: &str) -> Output {
        let words = ["-n", &self.namespace].into_iter().chain(command.split_whitespace());
        try_kubectl(self.plane, words, input.as_bytes()).await
    }

    /// `kubectl apply -f -`
    ///
    /// # Panics
    /// If it is refused.
    pub async fn apply(&self, manifests: &str) {
        succeeded(&self.try_kubectl("apply -f -", manifests).await);
    }

    /// An object; none if it is not there.
    pub async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let object = kind.api(&self.client, &self.namespace).get_opt(name).await.unwrap();
        object.map(|object| serde_json::to_value(object).unwrap())
    }

    /// All objects of a kind.
    pub async fn list(&self, kind: Kind) -> Vec<Value> {
        let listed = kind.api(&self.client, &self.namespace).list(&ListParams::default()).await.unwrap();
        listed.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    /// Creates an object; its namespace is the test's.
    pub async fn create(&self, kind: Kind, object: &Value) -> Value {
        let object = serde_json::from_value(object.clone()).unwrap();
        let created = kind.api(&self.client, &self.namespace).create(&PostParams::default(), &object).await;
        serde_json::to_value(created.unwrap()).unwrap()
    }

    /// Edits an object by a JSON merge patch.
    pub async fn edit(&self, kind: Kind, name: &str, patch: &Value) -> Value {
        let params = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        let patched =
            kind.api(&self.client, &self.namespace).patch(name, &params, &Patch::Merge(patch)).await;
        serde_json::to_value(patched.unwrap()).unwrap()
    }

    /// Asks for the deletion of an object.
    pub async fn delete(&self, kind: Kind, name: &str) {
        kind.api(&self.client, &self.namespace).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Waits until an object is there, and says how it looks then.
    pub async fn present(&self, kind: Kind, name: &str) -> Value {
        eventually(DEADLINE, &format!("{} {name}", kind.1), || async { Ok(self.get(kind, name).await) }).await
    }

    /// Waits until an object is gone.
    pub async fn gone(&self, kind: Kind, name: &str) {
        let what = format!("{} {name} to be gone", kind.1);
        eventually(DEADLINE, &what, || async { Ok(self.get(kind, name).await.is_none()) }).await;
    }

    /// A PostgresCluster, created: version 16 with volumes of 1 GiB.
    pub async fn cluster(&self, name: &str, replicas: i32) -> Value {
        let spec = json!({"replicas": replicas, "version": "16", "storage": "1Gi"});
        let Kind(api_version, kind, _) = POSTGRES_CLUSTER;
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.create(POSTGRES_CLUSTER, &object).await
    }

    /// Waits until the last edit of a resource was reconciled and its condition Ready is True.
    pub async fn ready(&self, kind: Kind, name: &str) -> Value {
        let look = || async {
            let Some(object) = self.get(kind, name).await else { anyhow::bail!("there is none") };
            for wanted in ["Reconciled", "Ready"] {
                let condition = condition(&object, wanted);
                let current = condition["observedGeneration"] == object["metadata"]["generation"];
                anyhow::ensure!(current && condition["status"] == "True", "{wanted}: {condition}");
            }
            Ok(Some(object))
        };
        eventually(DEADLINE, &format!("{} {name} to be Ready", kind.1), look).await
    }
}

/// [`apply_base`] on the shared control plane, once.
async fn deploy(plane: &ControlPlane) -> PathBuf {
    static ACCOUNT: OnceCell<PathBuf> = OnceCell::const_new();
    ACCOUNT.get_or_init(|| apply_base(plane)).await.clone()
}

/// Applies `deploy/base` and returns the credentials of its account.
async fn apply_base(plane: &ControlPlane) -> PathBuf {
    let base = workspace::root().join("deploy/base");
    kubectl(plane, ["apply".as_ref(), "-k".as_ref(), base.as_os_str()], &[]).await;
    let crd = "crd/postgresclusters.db.example.com";
    kubectl(plane, ["wait", "--for=condition=Established", crd], &[]).await;
    plane.kubeconfig_for_service_account(DEPLOYED.0, DEPLOYED.1).await.unwrap()
}

/// A condition of an object; null if it has none of this type.
pub fn condition(object: &Value, name: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == name).cloned().unwrap_or_default()
}

/// The text of `deploy/samples/NAME.yaml`, with the namespace in it replaced.
pub fn sample(name: &str, its_namespace: &str, namespace: &str) -> String {
    let path = workspace::root().join("deploy/samples").join(name).with_extension("yaml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.replace(&format!(": {its_namespace}\n"), &format!(": {namespace}\n"))
}

/// kubectl with a cache of its own: the user's may hold what another control plane once said on this port.
async fn try_kubectl<A: AsRef<OsStr>>(
    plane: &ControlPlane,
    arguments: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Output {
    let cache = plane.directory().join("kubectl-cache");
    let flags =
        ["--kubeconfig".as_ref(), plane.kubeconfig().as_os_str(), "--cache-dir".as_ref(), cache.as_os_str()];
    let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    try_run_with(Path::new("kubectl"), flags.into_iter().chain(arguments), input).await
}

async fn kubectl<A: AsRef<OsStr>>(
    plane: &ControlPlane,
    arguments: impl IntoIterator<Item = A>,
    input: &[u8],
) -> String {
    succeeded(&try_kubectl(plane, arguments, input).await)
}
