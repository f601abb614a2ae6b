//! One control plane: etcd, the API server, and the controllers that were asked for.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::OnceCell;

use crate::{
    audit::{Audit, AuditEvent},
    components::{API_SERVER, CONTROLLER_MANAGER, ETCD, Layout, Ports, SCHEDULER},
    custody::{Custody, Standing, log_tail},
    fault_server::FaultServer,
    guardian::{Blow, Program},
    kubeconfig::{self, Credentials},
    kubelet::{Kubelet, KubeletOptions},
    pki::Authority,
    ports::free_port,
    process::Process,
    programs::Programs,
    wait::until,
};

/// Four seconds on an idle machine with two cores; the rest is for machines that compile at the same time.
const START_DEADLINE: Duration = Duration::from_mins(2);
/// How long one namespace may take to get its ServiceAccount from a controller-manager that runs.
const NAMESPACE_DEADLINE: Duration = Duration::from_secs(30);
/// Two starts in a row that both lose a port to another process are rare already.
const PORT_ATTEMPTS: u32 = 5;
/// Members of this group may do anything, whatever RBAC says.
const ADMINISTRATORS: &str = "system:masters";

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run kube-controller-manager: Deployments, StatefulSets, Jobs, garbage collection, namespaces,
    /// ServiceAccounts. Without it these objects stay as they were written, and the API server does not demand
    /// that a pod's ServiceAccount exists.
    pub controller_manager: bool,
    /// Run kube-scheduler. There are no nodes, so it only marks each pod unschedulable and says so in an event;
    /// tests that do not look at that are quieter without it.
    pub scheduler: bool,
    /// Whose requests to log.
    pub audit: Audit,
    /// More flags of kube-apiserver, as `--name=value`.
    pub api_server_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { controller_manager: true, scheduler: false, audit: Audit::Off, api_server_flags: Vec::new() }
    }
}

/// A running control plane on loopback ports of its own. Dropping it, or ending this process in any way, kills
/// its components and removes its files.
///
/// It belongs to no async runtime: tests that each have their own may share one.
#[derive(Debug)]
pub struct ControlPlane {
    custody: Custody,
    authority: Authority,
    admin: PathBuf,
    url: String,
    audit_log: PathBuf,
    etcd: Program,
    api_server: Program,
    components: Vec<&'static str>,
}

impl ControlPlane {
    /// Starts a control plane and returns when it answers: `/readyz` is ok and, with a controller-manager, the
    /// namespace `default` has its ServiceAccount. The first start on a machine builds Kubernetes (minutes).
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn start(options: Options) -> Result<Self> {
        let mut components = vec![ETCD, API_SERVER];
        components.extend(options.controller_manager.then_some(CONTROLLER_MANAGER));
        components.extend(options.scheduler.then_some(SCHEDULER));
        let names = components.clone();
        let programs = tokio::task::spawn_blocking(move || Programs::locate(&names)).await??;

        for _ in 1..PORT_ATTEMPTS {
            let plane = Self::launch(&options, &programs, components.clone())?;
            match plane.ready().await {
                Ok(()) => return Ok(plane),
                Err(_) if plane.lost_a_port() => {} // with other ports, then
                Err(error) => return Err(error),
            }
        }
        let plane = Self::launch(&options, &programs, components)?;
        plane.ready().await.context("other processes took its ports again and again")?;
        Ok(plane)
    }

    /// The control plane that the tests of one process share: with a controller-manager, and everybody's requests
    /// in the audit log. Keep to a [namespace](Self::namespace) of your own.
    ///
    /// # Panics
    /// If it does not start; every test that needs it then fails with the same reason.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        let start = || Self::start(Options { audit: Audit::All, ..Options::default() });
        match SHARED.get_or_try_init(start).await {
            Ok(plane) => plane,
            Err(error) => panic!("the shared control plane: {error:#}"),
        }
    }

    fn launch(options: &Options, programs: &Programs, components: Vec<&'static str>) -> Result<Self> {
        let custody = Custody::begin()?;
        let directory = custody.directory().to_owned();
        let ports = Ports { etcd: free_port()?, etcd_peer: free_port()?, api_server: free_port()? };
        let url = format!("https://127.0.0.1:{}", ports.api_server);

        let authority = Authority::create(directory.join("pki"))?;
        let names = ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default", "kubernetes.default.svc"];
        let layout = Layout {
            programs,
            directory: &directory,
            ports,
            authority: &authority.certificate(),
            serving: &authority.server(API_SERVER, &names)?,
            token_keys: &authority.token_keys()?,
        };
        let user = |name: &str, group: Option<&str>| -> Result<PathBuf> {
            let path = kubeconfig::path(&directory, name);
            let identity = authority.client(&kubeconfig::file_name(name), name, group)?;
            kubeconfig::write(&path, &url, &authority.certificate(), &Credentials::Certificate(&identity))?;
            Ok(path)
        };
        let admin = user("admin", Some(ADMINISTRATORS))?;

        // All at once: each waits for what it needs.
        let etcd = layout.etcd()?;
        custody.start(etcd.clone())?;
        let api_server =
            layout.api_server(&options.audit, options.controller_manager, &options.api_server_flags)?;
        custody.start(api_server.clone())?;
        if options.controller_manager {
            custody.start(layout.controller_manager(&user("system:kube-controller-manager", None)?)?)?;
        }
        if options.scheduler {
            custody.start(layout.scheduler(&user("system:kube-scheduler", None)?)?)?;
        }
        let audit_log = layout.audit_log();
        Ok(Self { custody, authority, admin, url, audit_log, etcd, api_server, components })
    }

    /// Waits until the API server answers and the controller-manager has begun its work.
    async fn ready(&self) -> Result<()> {
        let client = self.client().await?;
        let look = || async {
            if let Some(ended) = self.ended_component() {
                return Ok(Some(Err(ended)));
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            if self.components.contains(&CONTROLLER_MANAGER)
                && !has_default_account(&client, "default").await?
            {
                bail!("namespace default has no ServiceAccount yet");
            }
            Ok(Some(Ok(())))
        };
        match until(START_DEADLINE, look).await {
            Ok(outcome) => outcome,
            Err(last) => {
                let logs: Vec<_> = self.components.iter().map(|name| self.describe_log(name)).collect();
                bail!("no control plane after {START_DEADLINE:?}: {last}\n{}", logs.join("\n"))
            }
        }
    }

    fn ended_component(&self) -> Option<anyhow::Error> {
        self.components.iter().find_map(|name| match self.custody.standing(name) {
            Ok(Standing::Running(_)) => None,
            Ok(Standing::Ended(status)) => {
                Some(anyhow!("{name} ended ({status})\n{}", self.describe_log(name)))
            }
            Err(error) => Some(error),
        })
    }

    fn describe_log(&self, component: &str) -> String {
        format!("--- end of the log of {component}:\n{}", self.log_tail(component))
    }

    fn lost_a_port(&self) -> bool {
        [ETCD, API_SERVER].iter().any(|name| self.log_tail(name).contains("address already in use"))
    }

    /// The API server's address, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The kubeconfig of an administrator (user `admin`).
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// A client as administrator. It belongs to the async runtime that this is called on, and does not retry.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client(&self.admin).await
    }

    /// A client with the credentials of one of the kubeconfigs below.
    pub async fn client_of(&self, kubeconfig: &Path) -> Result<Client> {
        kubeconfig::client(kubeconfig).await
    }

    /// A kubeconfig with a client certificate for this user, who may do nothing until a role is bound to it, or
    /// anything in the group `system:masters`. (A certificate made here holds one group at most; bind roles to
    /// the user for more.)
    pub fn kubeconfig_for_user(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let identity = self.authority.client(&kubeconfig::file_name(user), user, group)?;
        self.write_kubeconfig(user, &Credentials::Certificate(&identity))
    }

    /// A kubeconfig with a token of this ServiceAccount, good for one hour. The account must exist.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() },
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("no token for ServiceAccount {namespace}/{name}"))?;
        let token = answer.status.context("the token request has no status")?.token;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.write_kubeconfig(&user, &Credentials::Token(&token))
    }

    fn write_kubeconfig(&self, user: &str, credentials: &Credentials<'_>) -> Result<PathBuf> {
        let path = kubeconfig::path(self.custody.directory(), user);
        kubeconfig::write(&path, &self.url, &self.authority.certificate(), credentials)?;
        Ok(path)
    }

    /// Creates a namespace whose name begins with `prefix` and a dash, and waits for its ServiceAccount.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let client = self.client().await?;
        let wanted = Namespace {
            metadata: ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let created = Api::all(client.clone()).create(&PostParams::default(), &wanted).await;
        let name =
            created.context("cannot create a namespace")?.metadata.name.context("a nameless namespace")?;
        if self.components.contains(&CONTROLLER_MANAGER) {
            until(NAMESPACE_DEADLINE, || has_default_account(&client, &name))
                .await
                .map_err(|last| anyhow!("namespace {name} got no ServiceAccount: {last}"))?;
        }
        Ok(name)
    }

    /// Starts a stand-in for the kubelet, as user `kubelet`; see [`Kubelet`].
    pub async fn kubelet(&self, options: KubeletOptions) -> Result<Kubelet> {
        let kubeconfig = self.kubeconfig_for_user("kubelet", Some(ADMINISTRATORS))?;
        Ok(Kubelet::start(self.client_of(&kubeconfig).await?, options))
    }

    /// The audit log so far; empty if [`Options::audit`] is off. See [`AuditEvent::read_log`].
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>> {
        AuditEvent::read_log(&self.audit_log)
    }

    /// Where the API server writes its audit log.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// Kills the API server: connections break and new ones are refused. etcd and the controllers stay.
    pub fn stop_api_server(&self) -> Result<()> {
        self.custody.deal(API_SERVER, Blow::Kill).map(drop)
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.custody.start(self.api_server.clone())?;
        self.ready().await
    }

    /// Stops the API server in its tracks: connections stay open and nothing is answered.
    pub fn pause_api_server(&self) -> Result<()> {
        self.custody.deal(API_SERVER, Blow::Pause).map(drop)
    }

    /// Lets a paused API server go on.
    pub fn resume_api_server(&self) -> Result<()> {
        self.custody.deal(API_SERVER, Blow::Resume).map(drop)
    }

    /// A server before this control plane's API server that breaks what a test tells it to break. Belongs to the async
    /// runtime that this is called on.
    pub async fn fault_server(&self) -> Result<FaultServer> {
        let serving = |port| self.authority.server(&format!("fault-server-{port}"), &["127.0.0.1"]);
        FaultServer::start(self.client().await?, &self.admin, serving).await
    }

    /// Takes a backup of everything that is stored, for [`Self::restore`].
    pub fn back_up(&self) -> Result<()> {
        let (data, backup) = (self.directory().join("etcd"), self.directory().join("etcd-backup"));
        // Stopped in its tracks its files are those of a crash at this instant, which it repairs when it starts.
        self.custody.deal(ETCD, Blow::Pause)?;
        let copied = copy(&data, &backup);
        self.custody.deal(ETCD, Blow::Resume)?;
        copied.with_context(|| format!("cannot copy {}", data.display()))
    }

    /// Sets everything back to the last backup, as an administrator does after a disaster: stops the API server,
    /// restores etcd, starts both, and waits until they are ready. Versions count on from those of the backup.
    pub async fn restore(&self) -> Result<()> {
        let (data, backup) = (self.directory().join("etcd"), self.directory().join("etcd-backup"));
        self.custody.deal(API_SERVER, Blow::Kill)?;
        self.custody.deal(ETCD, Blow::Kill)?;
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        copy(&backup, &data).with_context(|| format!("cannot copy {}", backup.display()))?;
        self.custody.start(self.etcd.clone())?;
        self.start_api_server().await
    }

    /// Every process of this control plane by name: the components that run, and `guardian`.
    pub fn processes(&self) -> Result<Vec<(&'static str, Process)>> {
        let mut processes: Vec<_> =
            self.custody.guardian().map(|process| ("guardian", process)).into_iter().collect();
        for name in &self.components {
            if let Standing::Running(process) = self.custody.standing(name)? {
                processes.push((name, process));
            }
        }
        Ok(processes)
    }

    /// The last lines that a component (`kube-apiserver`, …) has logged.
    pub fn log_tail(&self, component: &str) -> String {
        log_tail(&self.custody.log_path(component))
    }

    /// The directory of this control plane: logs, certificates, kubeconfigs, data.
    pub fn directory(&self) -> &Path {
        self.custody.directory()
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), &place)?;
        }
    }
    // etcd insists on it.
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700))
}

async fn has_default_account(client: &Client, namespace: &str) -> Result<bool> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    Ok(accounts.get_opt("default").await?.is_some())
}
