//! `pilothouse run`: from what was typed to what is meant. Only checks that need no cluster are done here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::exit::Exit;
use crate::cli::lease::LeaseArgs;
pub(crate) use crate::cli::lease::LeaseConfig;
use crate::cli::webhook::WebhookArgs;
use crate::webhooks::WebhookConfig;

/// Host the plugins: watch, reconcile, apply
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With several values in an environment variable, separate them by commas.

Exit codes:
  0  ended by SIGTERM or SIGINT
  1  failed: a part of the host ended, or could not be started
  2  bad input: arguments, kubeconfig")]
pub(crate) struct RunArgs {
    /// Directory with plugins: NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, and settings NAME.yaml beside. Followed as
    /// it changes; may appear later. May be given several times
    #[arg(long, value_name = "DIR", env = "PILOTHOUSE_PLUGINS", value_delimiter = ',')]
    plugins: Vec<PathBuf>,
    /// Namespace of ConfigMaps with the label pilothouse.dev/plugin that hold a plugin each
    #[arg(long, value_name = "NAMESPACE", env = "PILOTHOUSE_PLUGIN_CONFIGMAPS")]
    plugin_configmaps: Option<String>,
    /// Apply the CustomResourceDefinitions that plugins bring along
    #[arg(long, env = "PILOTHOUSE_APPLY_CRDS")]
    apply_crds: bool,
    /// Kubeconfig file [default: as kubectl finds it, else the ServiceAccount of the pod]
    #[arg(long, value_name = "FILE", env = "PILOTHOUSE_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Serve only objects in this namespace [default: all]. May be given several times
    #[arg(long = "namespace", short, value_name = "NS", env = "PILOTHOUSE_NAMESPACE", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Seconds after which an unchanged object is reconciled again, if neither the plugin nor its settings say
    /// otherwise
    #[arg(long, value_name = "SECONDS", env = "PILOTHOUSE_RESYNC", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(10..=86_400))]
    resync: u64,
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, value_name = "ADDR:PORT", env = "PILOTHOUSE_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Form of the log on stderr
    #[arg(long, value_name = "FORMAT", env = "PILOTHOUSE_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(flatten)]
    leases: LeaseArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What `run` was told, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunConfig {
    /// Directories of plugins, each once, in the order in which they win.
    pub(crate) plugin_directories: Vec<PathBuf>,
    /// Namespace of plugin ConfigMaps.
    pub(crate) plugin_config_maps: Option<String>,
    /// Apply the plugins' CRDs.
    pub(crate) apply_crds: bool,
    /// None: as kubectl finds it, else in-cluster.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Empty: all.
    pub(crate) namespaces: Vec<String>,
    /// Time between resyncs.
    pub(crate) resync: Duration,
    /// Address of the HTTP server.
    pub(crate) listen: SocketAddr,
    /// Form of the log.
    pub(crate) log_format: LogFormat,
    /// None: there is no other host.
    pub(crate) leases: Option<LeaseConfig>,
    /// None: no webhooks are served.
    pub(crate) webhooks: Option<WebhookConfig>,
}

impl RunArgs {
    /// Checks what was typed.
    pub(crate) fn config(self) -> Result<RunConfig, Exit> {
        if self.plugins.is_empty() && self.plugin_configmaps.is_none() {
            return Err(Exit::bad_input(
                "no source of plugins: give --plugins DIR, --plugin-configmaps NAMESPACE, or both",
            ));
        }
        if let Some(empty) = self.plugins.iter().position(|path| path.as_os_str().is_empty()) {
            return Err(Exit::bad_input(format!(
                "--plugins: value {} is empty: a directory would be right",
                empty + 1
            )));
        }
        if let Some(namespace) = &self.plugin_configmaps {
            check_namespace("--plugin-configmaps", namespace)?;
        }
        for namespace in &self.namespaces {
            check_namespace("--namespace", namespace)?;
        }
        if let Some(path) = &self.kubeconfig {
            check_readable(path)?;
        }
        // By name, as the objects in them are shown to plugins.
        let mut namespaces = without_repeats(self.namespaces);
        namespaces.sort_unstable();
        Ok(RunConfig {
            plugin_directories: without_repeats(self.plugins),
            plugin_config_maps: self.plugin_configmaps,
            apply_crds: self.apply_crds,
            kubeconfig: self.kubeconfig,
            namespaces,
            resync: Duration::from_secs(self.resync),
            listen: self.listen,
            log_format: self.log_format,
            leases: self.leases.config()?,
            webhooks: self.webhooks.config()?,
        })
    }
}

/// A namespace is a DNS label.
pub(crate) fn check_namespace(option: &str, namespace: &str) -> Result<(), Exit> {
    let bytes = namespace.as_bytes();
    let right = (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-';
    if right { Ok(()) } else { Err(Exit::bad_input(format!("{option}: `{namespace}` is no namespace"))) }
}

fn check_readable(path: &Path) -> Result<(), Exit> {
    let problem = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => "is a directory".to_owned(),
        Ok(_) => match std::fs::File::open(path) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    Err(Exit::bad_input(format!(
        "--kubeconfig {}: {problem}: a kubeconfig file would be right",
        path.display()
    )))
}

fn without_repeats<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(values.len());
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}
