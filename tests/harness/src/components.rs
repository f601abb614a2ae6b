//! The command lines of etcd and the Kubernetes components.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    audit::Audit,
    guardian::Program,
    pki::{Identity, TokenKeys},
    programs::Programs,
};

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(crate) const SCHEDULER: &str = "kube-scheduler";

/// Soft limits on Go's heaps: the collector works harder near them. They hold a leak or a benchmark's garbage in
/// check and are several times what a test needs.
const API_SERVER_MEMORY: &str = "2GiB";
const OTHER_MEMORY: &str = "1GiB";

/// Requests per second of controllers to the API server. The default of 20 is made for large clusters and would
/// hide the speed of what is measured behind the garbage collector's.
const CONTROLLER_QPS: u32 = 1000;

/// Loopback ports of one control plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
}

/// Everything that the command lines refer to.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) directory: &'a Path,
    pub(crate) ports: Ports,
    pub(crate) authority: &'a Path,
    pub(crate) serving: &'a Identity,
    pub(crate) token_keys: &'a TokenKeys,
}

impl Layout<'_> {
    pub(crate) fn etcd(&self) -> Result<Program> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        let flags = vec![
            flag("data-dir", self.directory.join("etcd").display()),
            flag("listen-client-urls", &client),
            flag("advertise-client-urls", &client),
            flag("listen-peer-urls", &peer),
            flag("initial-advertise-peer-urls", &peer),
            flag("initial-cluster", format!("default={peer}")),
            // The data does not outlive the process, so a write need not reach the disk.
            "--unsafe-no-fsync".to_owned(),
        ];
        self.program(ETCD, flags, OTHER_MEMORY)
    }

    pub(crate) fn api_server(
        &self,
        audit: &Audit,
        service_accounts: bool,
        more: &[String],
    ) -> Result<Program> {
        let mut flags = vec![
            flag("etcd-servers", format!("http://127.0.0.1:{}", self.ports.etcd)),
            flag("bind-address", "127.0.0.1"),
            flag("advertise-address", "127.0.0.1"),
            flag("secure-port", self.ports.api_server),
            flag("service-cluster-ip-range", "10.0.0.0/16"),
            flag("client-ca-file", self.authority.display()),
            flag("tls-cert-file", self.serving.certificate.display()),
            flag("tls-private-key-file", self.serving.key.display()),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-signing-key-file", self.token_keys.private.display()),
            flag("service-account-key-file", self.token_keys.public.display()),
            flag("authorization-mode", "Node,RBAC"),
            // A loopback address is refused as an endpoint of the `kubernetes` Service.
            flag("endpoint-reconciler-type", "none"),
        ];
        if !service_accounts {
            // Nothing would create the ServiceAccounts that this plugin demands for each pod.
            flags.push(flag("disable-admission-plugins", "ServiceAccount"));
        }
        if let Some(policy) = audit.write_policy(self.directory)? {
            flags.push(flag("audit-policy-file", policy.display()));
            flags.push(flag("audit-log-path", self.audit_log().display()));
            flags.push(flag("audit-log-maxsize", 4096)); // MiB; a rotation would cut a count in two
        }
        flags.extend_from_slice(more);
        self.program(API_SERVER, flags, API_SERVER_MEMORY)
    }

    pub(crate) fn controller_manager(&self, kubeconfig: &Path) -> Result<Program> {
        let mut flags = controller(kubeconfig);
        flags.extend([
            flag("service-account-private-key-file", self.token_keys.private.display()),
            flag("root-ca-file", self.authority.display()),
            "--use-service-account-credentials".to_owned(),
        ]);
        self.program(CONTROLLER_MANAGER, flags, OTHER_MEMORY)
    }

    pub(crate) fn scheduler(&self, kubeconfig: &Path) -> Result<Program> {
        self.program(SCHEDULER, controller(kubeconfig), OTHER_MEMORY)
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    fn program(&self, name: &str, flags: Vec<String>, memory: &str) -> Result<Program> {
        let launch = self.programs.launch(name)?;
        Ok(Program {
            name: name.to_owned(),
            path: launch.path,
            arguments: launch.leading.into_iter().chain(flags).collect(),
            environment: BTreeMap::from([("GOMEMLIMIT".to_owned(), memory.to_owned())]),
        })
    }
}

/// The flags that controllers have in common.
fn controller(kubeconfig: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("leader-elect", false),
        flag("secure-port", 0), // serves nothing: one port less to race for
        flag("kube-api-qps", CONTROLLER_QPS),
        flag("kube-api-burst", CONTROLLER_QPS),
    ]
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}
