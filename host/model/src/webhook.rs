//! Webhook configurations: what the API server must be told so that it asks this host about the kinds that its plugins
//! guard and convert. Every field is said, also where the API server has the same default: what it fills in would look
//! like somebody else's change.
//!
//! # What can lock itself out
//!
//! A guard that fails closed on a kind that the host needs to come up (its own pods) would keep the host from ever
//! answering. So kinds that a plugin does not bring itself are never guarded in the host's own namespace, nor in
//! `kube-system`, whatever was granted. A plugin's own kinds need no such exception: no pod depends on them. The API
//! server never asks webhooks about webhook configurations, so these can always be put right.

use serde_json::{Value, json};

use crate::grants::{Grants, Places};
use crate::guard::{Guard, GuardedOperation};
use crate::manifest::{Manifest, Scope};

/// Who wrote a configuration: `NAMESPACE/LEASE` of the hosts that share it.
pub const HOST_ANNOTATION: &str = "pilothouse.dev/host";
/// What names of webhooks end with, after the plural and the plugin.
pub const WEBHOOK_SUFFIX: &str = ".pilothouse.dev";
/// What each namespace has as a label: its own name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// Where the cluster's own machinery runs.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Where the API server finds the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Service in the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// `https://HOST[:PORT][/PATH]`, without a slash at the end: a host outside the cluster.
    Url(String),
}

impl Address {
    /// Names that a serving certificate must bear for the API server.
    pub fn host_names(&self) -> Vec<String> {
        match self {
            // The API server asks by the first; the second is what people try.
            Self::Service { namespace, name, .. } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
            }
            Self::Url(url) => {
                let rest = url.strip_prefix("https://").unwrap_or(url);
                let authority = rest.split('/').next().unwrap_or_default();
                let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    Some((address, _)) => address,
                    None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
                };
                vec![host.to_owned()]
            }
        }
    }

    fn client_config(&self, path: &str, ca_bundle: &str) -> Value {
        match self {
            Self::Service { namespace, name, port } => json!({
                "service": {"namespace": namespace, "name": name, "port": port, "path": path},
                "caBundle": ca_bundle,
            }),
            Self::Url(url) => json!({"url": format!("{url}{path}"), "caBundle": ca_bundle}),
        }
    }
}

/// What is the same for all webhooks of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Name of both configurations.
    pub name: String,
    /// Value of [`HOST_ANNOTATION`].
    pub host: String,
    /// Namespace that the host's own pods are in.
    pub own_namespace: String,
    /// Namespaces that the host serves; empty: all.
    pub namespaces: Vec<String>,
    /// Where it is found.
    pub address: Address,
    /// Authorities of its certificates: PEM in Base64.
    pub ca_bundle: String,
}

/// A plugin that guards.
#[derive(Debug, Clone, Copy)]
pub struct Guarding<'a> {
    /// What it says of itself.
    pub manifest: &'a Manifest,
    /// What it may.
    pub grants: &'a Grants,
}

/// What is done with a request; also the first part of the path that the API server calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// `validate`
    Validate,
    /// `default-fields`
    Default,
    /// `convert`
    Convert,
}

impl Purpose {
    /// As in paths and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Default => "default",
            Self::Convert => "convert",
        }
    }

    /// The path of a plugin's webhook.
    pub fn path(self, plugin: &str) -> String {
        format!("/{}/{plugin}", self.as_str())
    }

    /// What a path means: the purpose and the plugin's name.
    pub fn of_path(path: &str) -> Option<(Self, &str)> {
        let (purpose, plugin) = path.strip_prefix('/')?.split_once('/')?;
        let all = [Self::Validate, Self::Default, Self::Convert];
        let purpose = all.into_iter().find(|one| one.as_str() == purpose)?;
        Some((purpose, plugin)).filter(|(_, plugin)| !plugin.is_empty() && !plugin.contains('/'))
    }
}

impl Frame {
    /// The ValidatingWebhookConfiguration; none if nothing is validated.
    pub fn validating<'a>(&self, plugins: impl IntoIterator<Item = Guarding<'a>>) -> Option<Value> {
        self.configuration("ValidatingWebhookConfiguration", Purpose::Validate, plugins)
    }

    /// The MutatingWebhookConfiguration; none if nothing gets defaults.
    pub fn mutating<'a>(&self, plugins: impl IntoIterator<Item = Guarding<'a>>) -> Option<Value> {
        self.configuration("MutatingWebhookConfiguration", Purpose::Default, plugins)
    }

    fn configuration<'a>(
        &self,
        kind: &str,
        purpose: Purpose,
        plugins: impl IntoIterator<Item = Guarding<'a>>,
    ) -> Option<Value> {
        let webhooks: Vec<Value> = plugins
            .into_iter()
            .flat_map(|plugin| plugin.manifest.admission.iter().map(move |guard| (plugin, guard)))
            .filter(|(_, guard)| if purpose == Purpose::Validate { guard.validates } else { guard.defaults })
            .map(|(plugin, guard)| self.webhook(purpose, plugin, guard))
            .collect();
        if webhooks.is_empty() {
            return None;
        }
        Some(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": self.name,
                "labels": {"app.kubernetes.io/managed-by": "pilothouse"},
                "annotations": {HOST_ANNOTATION: self.host},
            },
            "webhooks": webhooks,
        }))
    }

    fn webhook(&self, purpose: Purpose, plugin: Guarding<'_>, guard: &Guard) -> Value {
        let (name, resource) = (&plugin.manifest.name, &guard.resource);
        let operations = guard.operations.iter().filter(|one| {
            // What is deleted gets no defaults any more.
            purpose == Purpose::Validate || **one != GuardedOperation::Delete
        });
        let operations: Vec<&str> = operations.map(|one| one.as_str()).collect();
        let mut resources = vec![resource.plural.clone()];
        // Defaults belong to the object itself.
        if purpose == Purpose::Validate {
            let below = guard.subresources.iter().map(|one| format!("{}/{}", resource.plural, one.as_str()));
            resources.extend(below);
        }
        let scope = if resource.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
        let mut webhook = json!({
            "name": format!("{}.{name}{WEBHOOK_SUFFIX}", resource.plural),
            "clientConfig": self.address.client_config(&purpose.path(name.as_str()), &self.ca_bundle),
            "rules": [{
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "operations": operations,
                "resources": resources,
                "scope": scope,
            }],
            "failurePolicy": guard.failure_policy,
            "matchPolicy": guard.match_policy,
            "namespaceSelector": self.namespaces_of(plugin, guard),
            "objectSelector": guard.object_selector.clone().unwrap_or_else(|| json!({})),
            "sideEffects": "None",
            "timeoutSeconds": guard.timeout_seconds,
            "admissionReviewVersions": ["v1"],
        });
        if purpose == Purpose::Default {
            webhook["reinvocationPolicy"] = json!(guard.reinvocation);
        }
        if !guard.match_conditions.is_empty() {
            webhook["matchConditions"] = json!(guard.match_conditions);
        }
        webhook
    }

    /// Which namespaces are guarded, as a label selector.
    fn namespaces_of(&self, plugin: Guarding<'_>, guard: &Guard) -> Value {
        let mut expressions = Vec::new();
        let mut within = |operator: &str, names: Vec<&str>| {
            expressions.push(json!({"key": NAMESPACE_LABEL, "operator": operator, "values": names}));
        };
        if guard.resource.scope == Scope::Namespaced {
            if !self.namespaces.is_empty() {
                within("In", self.namespaces.iter().map(String::as_str).collect());
            }
            if !guard.is_own(plugin.manifest) {
                if let Some(Places::Some(names)) = plugin.grants.places(&guard.resource.kind()) {
                    within("In", names.into_iter().collect());
                }
                within("NotIn", vec![&self.own_namespace, SYSTEM_NAMESPACE]);
            }
        }
        if expressions.is_empty() { json!({}) } else { json!({"matchExpressions": expressions}) }
    }

    /// What `spec.conversion` of a plugin's definitions must be, by name of the definition. Only definitions with several
    /// versions need any.
    pub fn conversions(&self, manifest: &Manifest) -> Vec<(String, Value)> {
        converted_crds(manifest)
            .map(|(name, _)| {
                let path = Purpose::Convert.path(manifest.name.as_str());
                let webhook = json!({
                    "clientConfig": self.address.client_config(&path, &self.ca_bundle),
                    "conversionReviewVersions": ["v1"],
                });
                (name.to_owned(), json!({"strategy": "Webhook", "webhook": webhook}))
            })
            .collect()
    }
}

/// The plugin's definitions that have several versions, with their names.
pub fn converted_crds(manifest: &Manifest) -> impl Iterator<Item = (&str, &Value)> {
    manifest.crds.iter().filter_map(|crd| {
        let several = crd["spec"]["versions"].as_array().is_some_and(|versions| versions.len() > 1);
        let name = crd["metadata"]["name"].as_str().filter(|_| several)?;
        Some((name, crd))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(admission: Value, versions: &[&str]) -> Manifest {
        let versions: Vec<Value> = versions.iter().map(|name| json!({"name": name})).collect();
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                         "metadata": {"name": "webs.example.com"},
                         "spec": {"group": "example.com", "names": {"kind": "Web"}, "versions": versions}});
        let text = json!({"name": "web", "version": "1", "crds": [crd], "admission": admission,
                          "controllers": [{"primary": web()}]});
        Manifest::parse(&text.to_string()).unwrap()
    }

    fn web() -> Value {
        json!({"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs"})
    }

    fn pods() -> Value {
        json!({"version": "v1", "kind": "Pod", "plural": "pods"})
    }

    fn frame(namespaces: &[&str]) -> Frame {
        Frame {
            name: "pilot".to_owned(),
            host: "ops/pilot".to_owned(),
            own_namespace: "ops".to_owned(),
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            address: Address::Service { namespace: "ops".to_owned(), name: "pilot".to_owned(), port: 443 },
            ca_bundle: "Q0E=".to_owned(),
        }
    }

    fn grants(value: Value) -> Grants {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_field_of_a_webhook_is_said() {
        let manifest = manifest(json!([{"resource": web()}]), &["v1"]);
        let guarding = [Guarding { manifest: &manifest, grants: &Grants::default() }];
        let made = frame(&[]).validating(guarding).unwrap();
        assert_eq!(
            made,
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "pilot", "labels": {"app.kubernetes.io/managed-by": "pilothouse"},
                             "annotations": {"pilothouse.dev/host": "ops/pilot"}},
                "webhooks": [{
                    "name": "webs.web.pilothouse.dev",
                    "clientConfig": {"caBundle": "Q0E=", "service":
                        {"namespace": "ops", "name": "pilot", "port": 443, "path": "/validate/web"}},
                    "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["webs"],
                               "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}],
                    "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
                    "objectSelector": {}, "sideEffects": "None", "timeoutSeconds": 10,
                    "admissionReviewVersions": ["v1"],
                }],
            })
        );
        assert_eq!(frame(&[]).mutating(guarding), None);
        assert_eq!(frame(&[]).validating([]), None);
        assert!(frame(&[]).conversions(&manifest).is_empty());
    }

    #[test]
    fn what_the_manifest_says_of_a_guard_arrives() {
        let manifest = manifest(
            json!([{
                "resource": web(), "operations": ["update", "delete"], "subresources": ["scale", "status"],
                "defaults": true, "failurePolicy": "Ignore", "timeoutSeconds": 3, "matchPolicy": "Exact",
                "reinvocation": "IfNeeded", "objectSelector": {"matchLabels": {"a": "b"}},
                "matchConditions": [{"name": "x", "expression": "true"}],
            }]),
            &["v1"],
        );
        let guarding = [Guarding { manifest: &manifest, grants: &Grants::default() }];
        let validating = &frame(&[]).validating(guarding).unwrap()["webhooks"][0];
        assert_eq!(validating["rules"][0]["operations"], json!(["UPDATE", "DELETE"]));
        assert_eq!(validating["rules"][0]["resources"], json!(["webs", "webs/status", "webs/scale"]));
        assert_eq!(
            (&validating["failurePolicy"], &validating["timeoutSeconds"]),
            (&json!("Ignore"), &json!(3))
        );
        assert_eq!(validating["matchConditions"][0]["expression"], "true");
        let mutating = &frame(&[]).mutating(guarding).unwrap()["webhooks"][0];
        assert_eq!(mutating["rules"][0]["operations"], json!(["UPDATE"]));
        assert_eq!(mutating["rules"][0]["resources"], json!(["webs"]));
        assert_eq!(
            (&mutating["reinvocationPolicy"], &mutating["matchPolicy"]),
            (&json!("IfNeeded"), &json!("Exact"))
        );
        assert_eq!(mutating["objectSelector"], json!({"matchLabels": {"a": "b"}}));
        assert_eq!(mutating["clientConfig"]["service"]["path"], "/default/web");
    }

    #[test]
    fn kinds_of_others_are_guarded_by_grant_and_never_where_the_host_lives() {
        let manifest = manifest(json!([{"resource": web()}, {"resource": pods()}]), &["v1"]);
        let refused = Grants::default().check(&manifest).unwrap_err().to_string();
        assert!(
            refused.contains("admission[1]") && refused.contains("{kind: Pod, namespaces: [NAME, ...]}"),
            "{refused}"
        );
        let selectors = |allowed: &Grants, namespaces: &[&str]| {
            allowed.check(&manifest).unwrap();
            let guarding = [Guarding { manifest: &manifest, grants: allowed }];
            let made = frame(namespaces).validating(guarding).unwrap();
            [0, 1].map(|at| made["webhooks"][at]["namespaceSelector"]["matchExpressions"].clone())
        };
        let one = |operator: &str, names: &[&str]| json!({"key": "kubernetes.io/metadata.name", "operator": operator, "values": names});
        let not_here = one("NotIn", &["ops", "kube-system"]);
        let everywhere = grants(json!([{"kind": "Pod", "namespaces": ["*"]}]));
        assert_eq!(selectors(&everywhere, &[]), [Value::Null, json!([not_here])]);
        let here = grants(json!([{"kind": "Pod", "namespaces": ["ops", "b"]}]));
        assert_eq!(
            selectors(&here, &["a", "b"]),
            [
                json!([one("In", &["a", "b"])]),
                json!([one("In", &["a", "b"]), one("In", &["b", "ops"]), not_here])
            ]
        );
    }

    #[test]
    fn definitions_with_several_versions_are_converted() {
        let manifest = manifest(json!([]), &["v1", "v2"]);
        let frame = Frame { address: Address::Url("https://127.0.0.1:9443/x".to_owned()), ..frame(&[]) };
        let client = json!({"url": "https://127.0.0.1:9443/x/convert/web", "caBundle": "Q0E="});
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        let conversion = json!({"strategy": "Webhook", "webhook": webhook});
        assert_eq!(frame.conversions(&manifest), [("webs.example.com".to_owned(), conversion)]);
    }

    #[test]
    fn paths_and_host_names() {
        assert_eq!(Purpose::of_path("/validate/web"), Some((Purpose::Validate, "web")));
        for wrong in ["/", "", "/validate", "/validate/", "/mutate/web", "/validate/web/x"] {
            assert_eq!(Purpose::of_path(wrong), None, "{wrong}");
        }
        let names = |url: &str| Address::Url(url.to_owned()).host_names();
        assert_eq!(names("https://127.0.0.1:9443"), ["127.0.0.1"]);
        assert_eq!(names("https://[::1]:9443/a"), ["::1"]);
        assert_eq!(names("https://hooks.example.com/a"), ["hooks.example.com"]);
        assert_eq!(frame(&[]).address.host_names(), ["pilot.ops.svc", "pilot.ops.svc.cluster.local"]);
    }
}
