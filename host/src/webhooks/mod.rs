//! Admission and conversion webhooks: what the API server asks before it stores an object, and when it has one in
//! another version than somebody wants.
//!
//! - [`listener`]: HTTPS, with a bound on everything that a client may take or withhold; `stage` says what a connection
//!   is doing, and [`drain`](listener) how the last ones end
//! - [`service`]: from a request to a plugin's call and back; `review` has the API's forms, `admit` and `convert` the calls
//! - certificates: [`pair`] makes them, [`kept`] says what is to be done with them, [`secret`] does it in a Secret that
//!   the replicas share, [`files`] takes them from a directory instead; [`serving`] is what the listener shows
//! - [`keeper`]: the API server's configuration, in step with the plugins and the certificates
//!
//! Every replica serves. The one that holds the first shard's Lease writes: certificates and configurations.
//!
//! A certificate is shown only when the API server has been told its authority, and the authority before it stays in
//! the `caBundle` until the next rotation: no call meets a certificate that its caller does not know.

mod admit;
mod convert;
mod files;
mod keeper;
mod kept;
mod listener;
mod pair;
mod review;
mod secret;
mod service;
mod serving;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_model::manifest::{Manifest, Resource, Scope};
use pilothouse_model::webhook::{Address, Frame, converted_crds};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::plugins::LiveSet;
use crate::serve::Gate;
use crate::supervisor::Shared;

use self::keeper::Keeper;
use self::serving::Serving;

/// How webhooks are served, as the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookConfig {
    /// Where the host listens.
    pub(crate) listen: std::net::SocketAddr,
    /// Where the API server finds it.
    pub(crate) address: Address,
    /// Name of the configurations; the Secret's begins with it.
    pub(crate) name: String,
    /// None: the host makes its certificates.
    pub(crate) cert_dir: Option<PathBuf>,
    /// How long a certificate of the host's own is good.
    pub(crate) cert_lifetime: Duration,
}

/// The Secret that holds the certificates of hosts whose configurations have this name.
pub(crate) fn secret_name(name: &str) -> String {
    format!("{name}-webhook")
}

/// What the API server has been told.
#[derive(Debug, Clone)]
struct InStep {
    /// The authorities in its configuration, PEM.
    bundle: String,
    /// Since when.
    since: Instant,
}

/// What others must know of the webhooks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Webhooks {
    /// None until there is a certificate.
    frame: watch::Receiver<Option<Arc<Frame>>>,
}

impl Webhooks {
    /// The definition as it must be applied: with its conversion, if the plugin converts it. None: there is no
    /// certificate yet, so that nobody could be told where it is converted.
    pub(crate) fn complete(&self, manifest: &Manifest, crd: &Value) -> Option<Value> {
        let name = crd["metadata"]["name"].as_str();
        if !converted_crds(manifest).any(|(converted, _)| Some(converted) == name) {
            return Some(crd.clone());
        }
        let frame = self.frame.borrow().clone()?;
        Some(with_conversion(&frame, manifest, crd))
    }
}

fn with_conversion(frame: &Frame, manifest: &Manifest, crd: &Value) -> Value {
    let mut crd = crd.clone();
    let conversions = frame.conversions(manifest);
    if let Some((_, conversion)) = conversions.iter().find(|(name, _)| crd["metadata"]["name"] == **name) {
        crd["spec"]["conversion"] = conversion.clone();
    }
    crd
}

/// What the parts are made of.
pub(crate) struct Parts {
    /// As the user said.
    pub(crate) config: WebhookConfig,
    /// Bound already, so that a wrong address ends the host at once.
    pub(crate) listener: TcpListener,
    /// Namespace of the host's pods, its Leases and its Secret.
    pub(crate) namespace: String,
    /// Name of the hosts' Lease.
    pub(crate) lease: String,
    /// Opens when a certificate is served and the API server has been told.
    pub(crate) gate: Gate,
    /// Something that was offered cannot be loaded.
    pub(crate) broken: watch::Receiver<bool>,
}

/// The frame's channel: the sender goes to [`start`].
pub(crate) fn channel() -> (watch::Sender<Option<Arc<Frame>>>, Webhooks) {
    let (sender, frame) = watch::channel(None);
    (sender, Webhooks { frame })
}

/// Starts all parts. They end with `stop`, the listener some seconds later; the handle says when.
pub(crate) fn start(
    parts: Parts,
    shared: &Arc<Shared>,
    live: watch::Receiver<Arc<LiveSet>>,
    frames: watch::Sender<Option<Arc<Frame>>>,
    stop: &CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let Parts { config, listener, namespace, lease, gate, broken } = parts;
    let serving = Serving::new();
    let tls = serving.tls()?;
    let (told, in_step) = watch::channel(None);
    let (bundles, bundle) = watch::channel(None);
    let frame = Frame {
        name: config.name.clone(),
        host: format!("{namespace}/{lease}"),
        own_namespace: namespace.clone(),
        namespaces: shared.namespaces.to_vec(),
        address: config.address.clone(),
        ca_bundle: String::new(),
    };
    let keeper =
        Keeper { shared: Arc::clone(shared), live: live.clone(), frame, bundle, frames, told, gate, broken };
    spawn_until(stop, keeper.run());
    if let Some(directory) = config.cert_dir {
        spawn_until(stop, files::follow(directory, serving, bundles, in_step));
    } else {
        let names = config.address.host_names();
        let secret = secret_name(&config.name);
        let keeper = secret::SecretKeeper::new(shared, &namespace, secret, names, config.cert_lifetime);
        spawn_until(stop, keeper.run(serving, bundles, in_step));
    }
    let service = service::Service::new(Arc::clone(shared), live);
    Ok(tokio::spawn(listener::serve(listener, tls, service, stop.clone())))
}

fn spawn_until(stop: &CancellationToken, part: impl Future<Output = ()> + Send + 'static) {
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = part => tracing::error!("a part of the webhooks ended by itself, which is a bug"),
        }
    });
}

/// A cluster-scoped resource of the API server's own.
fn cluster_resource(group: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        scope: Scope::Cluster,
    }
}
