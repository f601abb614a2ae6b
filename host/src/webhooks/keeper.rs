//! Keeps the API server's configuration in step with the plugins and the certificates: both webhook configurations, and
//! the conversion of definitions with several versions.
//!
//! The replica that leads writes; the others look whether it has. At rest nothing is written and nothing asked: what
//! somebody changes is seen by a watch.
//!
//! What is there stays until the plugins of the sources have been loaded, and that of a plugin that could not be loaded
//! longer: a host that starts knows nothing yet, and must not let through what another one checked. A plugin that was
//! served and was taken away takes its webhooks along.
//!
//! A conversion stays when its plugin goes. Without it the API server would hand out objects of one version as if they
//! were of another, and drop what that does not know with the next write; with it, it says that it cannot convert.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_cluster::keep::{self, Kept};
use pilothouse_cluster::watches::{Query, Subscription};
use pilothouse_cluster::write::Writer;
use pilothouse_model::backoff;
use pilothouse_model::manifest::Resource;
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;
use pilothouse_model::settings::BackoffSettings;
use pilothouse_model::webhook::{Frame, Guarding, HOST_ANNOTATION, WEBHOOK_SUFFIX, converted_crds};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{InStep, cluster_resource, with_conversion};
use crate::plugins::LiveSet;
use crate::serve::Gate;
use crate::sources;
use crate::supervisor::Shared;

const AGAIN: BackoffSettings = BackoffSettings { base_ms: 200, cap_ms: 30_000 };
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// Of conversions alone, where somebody else applies the definitions.
const CONVERSION_MANAGER: &str = "pilothouse-conversion";

/// Keeps the configuration.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) live: watch::Receiver<Arc<LiveSet>>,
    /// Without its bundle.
    pub(super) frame: Frame,
    /// The authorities that the API server should know, PEM.
    pub(super) bundle: watch::Receiver<Option<String>>,
    /// Where the frame is published, with its bundle.
    pub(super) frames: watch::Sender<Option<Arc<Frame>>>,
    /// What the API server has been told.
    pub(super) told: watch::Sender<Option<InStep>>,
    pub(super) gate: Gate,
    /// Something that was offered cannot be loaded, and nobody knows which plugin it would be.
    pub(super) broken: watch::Receiver<bool>,
}

/// Something that must be there, or not.
struct Wanted {
    resource: Resource,
    name: String,
    /// None: it must not be there.
    object: Option<Value>,
    /// Field manager.
    manager: &'static str,
    /// Only what the object says, of an object that somebody else makes.
    partial: bool,
}

impl Keeper {
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let woken = Arc::new(Notify::new());
        let kinds = [
            cluster_resource(
                ADMISSION_GROUP,
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
            ),
            cluster_resource(
                ADMISSION_GROUP,
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
            ),
        ];
        let configurations = kinds.map(|kind| self.subscribe(kind, &self.frame.name, &woken));
        let mut definitions: BTreeMap<String, Subscription> = BTreeMap::new();
        let mut shards = self.shared.shards.clone();
        let (mut failures, mut said) = (0_u32, String::new());
        let mut was_in_step = false;
        let mut seen: BTreeSet<String> = BTreeSet::new();
        self.gate.set(Err("the plugins are being loaded".to_owned()));
        self.shared.health.without(&[sources::DIRECTORIES, sources::CONFIG_MAPS]).await;
        loop {
            let _ = shards.terms();
            let live = Arc::clone(&self.live.borrow_and_update());
            seen.extend(live.keys().map(ToString::to_string));
            let broken = *self.broken.borrow_and_update();
            self.shared.metrics.webhooks().retain(|plugin| live.contains_key(plugin));
            let bundle = self.bundle.borrow_and_update().clone();
            let names: BTreeSet<String> = converting(&live).map(|(_, name, _)| name.to_owned()).collect();
            definitions.retain(|name, _| names.contains(name));
            for name in names {
                let definition = cluster_resource(
                    "apiextensions.k8s.io",
                    "CustomResourceDefinition",
                    "customresourcedefinitions",
                );
                let new = || self.subscribe(definition, &name, &woken);
                definitions.entry(name.clone()).or_insert_with(new);
            }

            let done = match &bundle {
                None => Err("there is no certificate yet".to_owned()),
                // What must stay is not known before.
                Some(_) if broken && configurations.iter().any(|watch| !watch.store().is_complete()) => {
                    Err("the present webhook configurations are being read".to_owned())
                }
                Some(bundle) => {
                    let frame = Frame { ca_bundle: STANDARD.encode(bundle), ..self.frame.clone() };
                    let mut wanted = self.wanted(&frame, &live);
                    if broken {
                        for one in &mut wanted {
                            one.keep_unknown(&configurations, &seen, &frame);
                        }
                    }
                    self.frames.send_if_modified(|published| {
                        let changed = published.as_deref() != Some(&frame);
                        if changed {
                            *published = Some(Arc::new(frame));
                        }
                        changed
                    });
                    match self.shared.shards.begin_work(0) {
                        Some(work) => {
                            let writer = self.shared.writer.with_fence(work.fence());
                            self.keep(&writer, &wanted).await
                        }
                        None => look(&wanted, &configurations, &definitions),
                    }
                }
            };
            let again = match done {
                Ok(()) => {
                    (failures, said) = (0, String::new());
                    was_in_step = true;
                    self.tell(bundle);
                    self.gate.set(Ok(()));
                    None
                }
                Err(problem) => {
                    if problem != said {
                        tracing::warn!("the API server's webhooks are not in step: {problem}");
                    }
                    self.told.send_replace(None);
                    // A replica that serves is not taken away for a write that fails: it would take the answers with it.
                    if was_in_step {
                        self.gate.open_with(format!("webhooks: {problem}"));
                    } else {
                        self.gate.set(Err(problem.clone()));
                    }
                    said = problem;
                    failures += 1;
                    Some(backoff::delay(&AGAIN, failures, 0))
                }
            };
            let sleep = async {
                match again {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = woken.notified() => {}
                () = shards.changed() => {}
                Ok(()) = self.live.changed() => {}
                Ok(()) = self.bundle.changed() => {}
                Ok(()) = self.broken.changed() => {}
                () = sleep => {}
            }
        }
    }

    fn subscribe(&self, resource: Resource, name: &str, woken: &Arc<Notify>) -> Subscription {
        let woken = Arc::clone(woken);
        let query = Query::new(resource).with_fields(&format!("metadata.name={name}"));
        self.shared.watches.subscribe(query, move |_| woken.notify_one())
    }

    /// What must be there for these plugins.
    fn wanted(&self, frame: &Frame, live: &LiveSet) -> Vec<Wanted> {
        let guarding = || {
            live.values().map(|plugin| Guarding {
                manifest: plugin.prepared.manifest(),
                grants: &plugin.settings.grants,
            })
        };
        let configuration = |kind: &str, plural: &str, object| Wanted {
            resource: cluster_resource(ADMISSION_GROUP, kind, plural),
            name: frame.name.clone(),
            object,
            manager: crate::run::MANAGER,
            partial: false,
        };
        let mut wanted: Vec<Wanted> = converting(live)
            .map(|(plugin, name, crd)| {
                let whole = with_conversion(frame, plugin, crd);
                let object = if self.shared.apply_crds {
                    whole
                } else {
                    json!({
                        "apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": {"name": name},
                        "spec": {"conversion": whole["spec"]["conversion"]},
                    })
                };
                Wanted {
                    resource: cluster_resource(
                        "apiextensions.k8s.io",
                        "CustomResourceDefinition",
                        "customresourcedefinitions",
                    ),
                    name: name.to_owned(),
                    object: Some(object),
                    manager: if self.shared.apply_crds { crate::run::MANAGER } else { CONVERSION_MANAGER },
                    partial: !self.shared.apply_crds,
                }
            })
            .collect();
        // Defaults before checks: an object that is completed is then checked.
        wanted.push(configuration(
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            frame.mutating(guarding()),
        ));
        wanted.push(configuration(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            frame.validating(guarding()),
        ));
        wanted
    }

    async fn keep(&self, writer: &Writer, wanted: &[Wanted]) -> Result<(), String> {
        let mut problems = Vec::new();
        for Wanted { resource, name, object, manager, partial } in wanted {
            let writer = writer.with_manager(manager);
            let ours = |live: &Object| *partial || is_ours(live, &self.frame.host);
            let kept = match object {
                Some(object) => keep::apply(&writer, resource, name, object, *partial, ours).await,
                None => keep::remove(&writer, resource, name, ours).await,
            };
            match kept {
                Ok(Kept::Written) => tracing::info!(kind = resource.kind, name, "written"),
                Ok(Kept::Removed) => tracing::info!(kind = resource.kind, name, "removed"),
                Ok(Kept::AsItWas) => {}
                Ok(Kept::Absent) => problems.push(format!("{} {name} is not there yet", resource.kind)),
                Ok(Kept::Foreign) => problems.push(format!(
                    "{} {name} is of another host: give each its own --webhook-name",
                    resource.kind
                )),
                Err(error) => problems.push(format!("{} {name}: {error}", resource.kind)),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    fn tell(&self, bundle: Option<String>) {
        self.told.send_if_modified(|told| match (&told, bundle) {
            (Some(before), Some(bundle)) if before.bundle == bundle => false,
            (_, bundle) => {
                *told = bundle.map(|bundle| InStep { bundle, since: Instant::now() });
                true
            }
        });
    }
}

impl Wanted {
    /// Adds what is there for plugins that this host has never served: one of them may be what it cannot load.
    fn keep_unknown(&mut self, configurations: &[Subscription], seen: &BTreeSet<String>, frame: &Frame) {
        let watch = configurations.iter().find(|watch| *watch.query().resource() == self.resource);
        let Some(live) = watch.and_then(|watch| watch.store().get(&Key::cluster(&self.name))) else { return };
        if is_ours(&live, &frame.host) {
            self.object = with_unknown(self.object.take(), &live.to_value(), seen, &frame.ca_bundle);
        }
    }
}

fn with_unknown(
    wanted: Option<Value>,
    live: &Value,
    seen: &BTreeSet<String>,
    ca_bundle: &str,
) -> Option<Value> {
    let is_unknown = |webhook: &&Value| {
        let name = webhook["name"].as_str().and_then(|name| name.strip_suffix(WEBHOOK_SUFFIX));
        name.and_then(|name| name.rsplit('.').next()).is_some_and(|plugin| !seen.contains(plugin))
    };
    let unknown = live["webhooks"].as_array().into_iter().flatten().filter(is_unknown);
    let unknown: Vec<Value> = unknown
        .cloned()
        .map(|mut webhook| {
            webhook["clientConfig"]["caBundle"] = json!(ca_bundle);
            webhook
        })
        .collect();
    if unknown.is_empty() {
        return wanted;
    }
    let mut whole = wanted.unwrap_or_else(|| {
        let metadata = &live["metadata"];
        json!({
            "apiVersion": live["apiVersion"], "kind": live["kind"], "webhooks": [],
            "metadata": {"name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"]},
        })
    });
    if let Some(webhooks) = whole["webhooks"].as_array_mut() {
        webhooks.extend(unknown);
    }
    Some(whole)
}

/// Definitions that are converted, each with its plugin.
fn converting(live: &LiveSet) -> impl Iterator<Item = (&pilothouse_model::manifest::Manifest, &str, &Value)> {
    live.values().filter(|plugin| plugin.prepared.converts()).flat_map(|plugin| {
        let manifest = plugin.prepared.manifest();
        converted_crds(manifest).map(move |(name, crd)| (manifest, name, crd))
    })
}

/// Written by hosts that share our Lease. Who has lost the annotation is known by the label.
fn is_ours(live: &Object, host: &str) -> bool {
    let metadata = live.field("metadata");
    match metadata["annotations"][HOST_ANNOTATION].as_str() {
        Some(of) => of == host,
        None => metadata["labels"]["app.kubernetes.io/managed-by"] == "pilothouse",
    }
}

/// Whether whoever leads has written what we would.
fn look(
    wanted: &[Wanted],
    configurations: &[Subscription],
    definitions: &BTreeMap<String, Subscription>,
) -> Result<(), String> {
    for Wanted { resource, name, object, .. } in wanted {
        let watches = configurations.iter().chain(definitions.get(name));
        let watch = watches.into_iter().find(|watch| watch.query().resource() == resource);
        let live = watch.and_then(|watch| watch.store().get(&Key::cluster(name)));
        let in_step = match (object, live) {
            (None, None) => true,
            (Some(object), Some(live)) => holds(&live.to_value(), object),
            _ => false,
        };
        if !in_step {
            return Err(format!("{} {name}: the host that leads has not written it yet", resource.kind));
        }
    }
    Ok(())
}

/// Whether everything that is wanted is there; what is there besides does not matter.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(field, wanted)| holds(live.get(field).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(live), Value::Array(wanted)) => wanted.iter().all(|wanted| match wanted.get("name") {
            Some(name) => live.iter().any(|live| live.get("name") == Some(name) && holds(live, wanted)),
            None => live.contains(wanted),
        }),
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_plugin_of_this_host_ever_was_stays_while_something_cannot_be_loaded() {
        let hook = |name: &str, bundle: &str| json!({"name": format!("{name}.pilothouse.dev"), "clientConfig": {"caBundle": bundle}});
        let live = json!({"kind": "K", "metadata": {"name": "n", "uid": "u"},
                          "webhooks": [hook("webs.gone", "old"), hook("webs.web", "old"), {"name": "x.y.z"}]});
        let seen = BTreeSet::from(["gone".to_owned()]);
        let kept = with_unknown(None, &live, &seen, "new").unwrap();
        assert_eq!(kept["webhooks"], json!([hook("webs.web", "new")]));
        assert_eq!(kept["metadata"]["uid"], Value::Null);
        let more =
            with_unknown(Some(json!({"webhooks": [hook("a.a", "new")]})), &live, &seen, "new").unwrap();
        assert_eq!(more["webhooks"], json!([hook("a.a", "new"), hook("webs.web", "new")]));
        let all = BTreeSet::from(["gone".to_owned(), "web".to_owned()]);
        assert_eq!(with_unknown(None, &live, &all, "new"), None);
    }

    #[test]
    fn a_replica_that_stands_by_sees_whether_the_other_has_written() {
        let wanted =
            json!({"webhooks": [{"name": "a", "clientConfig": {"caBundle": "x"}, "namespaceSelector": {}}]});
        let live = |bundle: &str| {
            json!({"metadata": {"uid": "u"}, "webhooks": [
            {"name": "b"}, {"name": "a", "clientConfig": {"caBundle": bundle}, "namespaceSelector": {}}]})
        };
        assert!(holds(&live("x"), &wanted));
        assert!(!holds(&live("y"), &wanted));
        assert!(!holds(&json!({"webhooks": []}), &wanted));
        assert!(!holds(&json!({}), &wanted));
    }
}
