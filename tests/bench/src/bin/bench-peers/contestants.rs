//! The operators that do the same work, and how each is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use pilothouse_harness::{OperatorCommand, workspace};

/// One operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contestant {
    /// The host with `pod-replica.wasm`.
    Pilothouse,
    /// The host with the same plugin, but for its watch of whole pods. Only for memory.
    WholePods,
    /// kube-rs: metadata of the pods, found by an index kept by hand.
    KubeRs,
    /// controller-runtime: typed pods, found by an index.
    ControllerRuntime,
}

impl Contestant {
    pub(crate) const ALL: [Self; 4] =
        [Self::Pilothouse, Self::WholePods, Self::KubeRs, Self::ControllerRuntime];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pilothouse => "pilothouse",
            Self::WholePods => "whole-pods",
            Self::KubeRs => "kube-rs",
            Self::ControllerRuntime => "controller-runtime",
        }
    }
}

/// What is started.
#[derive(Debug)]
pub(crate) struct Programs {
    target: PathBuf,
    host: PathBuf,
    peers: PathBuf,
}

impl Programs {
    /// Finds the host and its plugins where `make bench` left them, and builds the peers if they are not there yet.
    pub(crate) fn locate() -> Result<Self> {
        let target = workspace::target_directory();
        for component in [Contestant::Pilothouse, Contestant::WholePods].map(component) {
            let path = target.join(component);
            ensure!(path.is_file(), "{} is missing: `make bench` builds it", path.display());
        }
        let script = workspace::root().join("tests/bench/peers/build.sh");
        let built = Command::new(&script)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{} cannot be started", script.display()))?;
        ensure!(built.status.success(), "{} failed ({})", script.display(), built.status);
        let output = String::from_utf8(built.stdout).context("the path of the peers is not UTF-8")?;
        let peers = output.lines().last().context("the build of the peers printed no path")?.into();
        let set = std::env::var_os("PILOTHOUSE_BIN").map(PathBuf::from);
        let host = set.unwrap_or_else(|| workspace::binary("pilothouse"));
        Ok(Self { target, host, peers })
    }

    /// How to start one against this API server. `directory` gets what it needs, and must outlive it.
    pub(crate) fn command(
        &self,
        one: Contestant,
        kubeconfig: &Path,
        directory: &Path,
    ) -> Result<OperatorCommand> {
        let mut environment = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]);
        let (path, arguments) = match one {
            Contestant::Pilothouse | Contestant::WholePods => {
                std::fs::copy(self.target.join(component(one)), directory.join("pod-replica.wasm"))?;
                let plugins = directory.display().to_string();
                // Neither of the others elects a leader.
                let arguments = ["run", "--plugins", &plugins, "--listen", "127.0.0.1:0", "--leases", "off"];
                (self.host.clone(), arguments.map(str::to_owned).to_vec())
            }
            Contestant::KubeRs => {
                environment.insert("PODS".to_owned(), "index".to_owned());
                (self.peers.join("podreplica-kube-rs"), Vec::new())
            }
            Contestant::ControllerRuntime => (self.peers.join("podreplica-controller-runtime"), Vec::new()),
        };
        Ok(OperatorCommand { path, arguments, environment })
    }
}

/// Below the target directory.
fn component(one: Contestant) -> &'static str {
    if one == Contestant::WholePods { "bench/pod-replica.wasm" } else { "plugins/pod-replica.wasm" }
}
