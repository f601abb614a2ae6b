//! The manifest: what a plugin says of itself when it is loaded (`describe`), in the form of
//! `wit/manifest.schema.json`. An unknown field is refused by name, as a typing error would otherwise weaken a rule
//! without anybody noticing.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::field_selector::FieldSelector;
use crate::guard::Guard;
use crate::kind::Kind;
use crate::names::{CLEANUP_FINALIZER, HOST_PREFIX, PluginName};
use crate::object::{Meta, Object};
pub use crate::projection::Projection;
use crate::selector::{self, Selector};
use crate::update::{Method, UpdateStrategy};

/// What a plugin is, serves and may touch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Identity: the same name is a new version of the same plugin.
    pub name: PluginName,
    /// Version for people, for example `0.3.1`.
    pub version: String,
    /// CustomResourceDefinitions that it brings along, whole objects.
    #[serde(default)]
    pub crds: Vec<Value>,
    /// One for each primary kind; at least one.
    pub controllers: Vec<Controller>,
    /// Kinds whose objects are checked or completed before they are stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission: Vec<Guard>,
}

/// How objects of one primary kind are reconciled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controller {
    /// The kind that is reconciled: of the plugin's own CRDs, or one that exists already.
    pub primary: Resource,
    /// Kinds that it creates and owns.
    #[serde(default)]
    pub children: Vec<Child>,
    /// Kinds that it reads.
    #[serde(default)]
    pub related: Vec<Related>,
    /// Kinds that it changes or deletes without owning them.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Finalizer, `domain/name`. None: deletion is garbage collection alone and no pass sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// Seconds after which an unchanged object is reconciled again, 10 to 86,400. None: as the host was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_seconds: Option<u64>,
}

/// A kind together with what the API server's paths and RBAC rules need of it, so that both can be said offline.
/// Checked against the API server's discovery when the plugin is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// API group, `""` (or left out) for the core group.
    #[serde(default)]
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name, as in the API server's paths.
    pub plural: String,
    /// Namespaced unless said otherwise.
    #[serde(default)]
    pub scope: Scope,
}

impl Resource {
    /// Group, version and kind.
    pub fn kind(&self) -> Kind {
        Kind::new(&self.group, &self.version, &self.kind)
    }
}

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// In a namespace.
    #[default]
    Namespaced,
    /// In none.
    Cluster,
}

/// A kind that the plugin creates and owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Child {
    /// What it is.
    pub resource: Resource,
    /// How much of it is watched.
    #[serde(default)]
    pub projection: Projection,
    /// Never touched again once it exists.
    #[serde(default)]
    pub create_only: bool,
    /// Field manager conflicts are settled for the plugin; else they are reported and the other manager keeps the
    /// field. Default true: the plugin created these objects.
    #[serde(default = "yes")]
    pub force_conflicts: bool,
    /// Where its objects may be, if the kind has namespaces.
    #[serde(default, skip_serializing_if = "Namespaces::is_own")]
    pub namespaces: Namespaces,
    /// How objects that exist follow a change of what the plugin wants.
    #[serde(default, skip_serializing_if = "UpdateStrategy::is_default")]
    pub update_strategy: UpdateStrategy,
}

/// Where children of a namespaced primary may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespaces {
    /// In the primary's own namespace.
    #[default]
    Own,
    /// In others as well, as far as the administrator grants them.
    Any,
}

impl Namespaces {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

fn yes() -> bool {
    true
}

/// A kind that the plugin reads, by a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Related {
    /// Name of the answer in `observed.related`.
    pub name: String,
    /// What it is.
    pub resource: Resource,
    /// Label selector in kubectl's syntax; may use `$(name)`, `$(namespace)` and `$(uid)` of the primary. None: the
    /// kind is only for `look-up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Field selector in the API server's syntax, of objects that the label selector selects. None: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<String>,
    /// How much of it is watched.
    #[serde(default)]
    pub projection: Projection,
}

/// A kind that the plugin changes or deletes without owning its objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// What it is.
    pub resource: Resource,
    /// What may be done.
    pub verbs: BTreeSet<TargetVerb>,
}

/// What may be done to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetVerb {
    /// `patch-target` of the object itself
    Patch,
    /// `patch-target` of its subresource `status`
    PatchStatus,
    /// `patch-target` of its subresource `scale`
    PatchScale,
    /// `delete`
    Delete,
}

/// A manifest that cannot be served: where it is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("manifest: {path}: {problem}")]
pub struct ManifestError {
    /// Path of the field, for example `controllers[0].finalizer`.
    pub path: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ManifestError {
    pub(crate) fn new(path: impl fmt::Display, problem: impl Into<String>) -> Self {
        Self { path: path.to_string(), problem: problem.into() }
    }
}

impl Manifest {
    /// Kinds per controller and rules per manifest beyond which something is wrong: each costs a watch.
    const KINDS_MAX: usize = 64;

    /// Reads and checks the JSON text that `describe` returned.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_str(text).map_err(|error| {
            ManifestError::new(
                format_args!("line {} column {}", error.line(), error.column()),
                error.to_string(),
            )
        })?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The controller of this primary kind and its position.
    pub fn controller(&self, kind: &Kind) -> Option<(usize, &Controller)> {
        self.controllers.iter().enumerate().find(|(_, controller)| controller.primary.kind() == *kind)
    }

    /// The CRD of this kind, if the plugin brings it along.
    pub fn crd(&self, kind: &Kind) -> Option<&Value> {
        self.crds
            .iter()
            .find(|crd| crd["spec"]["group"] == *kind.group && crd["spec"]["names"]["kind"] == *kind.kind)
    }

    /// Whether objects of this kind can hold the host's own condition: the plugin brings the CRD, with a status
    /// subresource and `status.conditions` in its schema. Other kinds belong to somebody else, and a field that the
    /// schema does not know would be dropped and written for ever.
    pub fn holds_conditions(&self, kind: &Kind) -> bool {
        let versions = self.crd(kind).and_then(|crd| crd["spec"]["versions"].as_array());
        versions.into_iter().flatten().any(|version| {
            version["name"] == *kind.version
                && version["subresources"]["status"].is_object()
                && version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
                    .is_object()
        })
    }

    fn check(&self) -> Result<(), ManifestError> {
        if self.version.is_empty() || self.version.len() > 64 {
            return Err(ManifestError::new("version", "must have 1 to 64 characters"));
        }
        if self.controllers.is_empty() {
            return Err(ManifestError::new("controllers", "is empty: name at least one primary kind"));
        }
        for (at, controller) in self.controllers.iter().enumerate() {
            let path = format!("controllers[{at}]");
            let kind = controller.primary.kind();
            if self.controllers[..at].iter().any(|other| other.primary.kind().is_version_of(&kind)) {
                let problem = format!("{kind} has a controller already: one serves all versions of a kind");
                return Err(ManifestError::new(format_args!("{path}.primary"), problem));
            }
            controller.check(&path)?;
        }
        if self.admission.len() > Self::KINDS_MAX {
            let problem =
                format!("{} kinds, at most {} would be right", self.admission.len(), Self::KINDS_MAX);
            return Err(ManifestError::new("admission", problem));
        }
        for (at, guard) in self.admission.iter().enumerate() {
            guard.check(&format!("admission[{at}]"))?;
            let kind = guard.resource.kind();
            if self.admission[..at].iter().any(|other| other.resource.kind().is_version_of(&kind)) {
                let problem = format!("{kind} is named twice: its objects are the same in all versions");
                return Err(ManifestError::new(format_args!("admission[{at}].resource"), problem));
            }
        }
        for (at, crd) in self.crds.iter().enumerate() {
            if crd["kind"] != "CustomResourceDefinition" || crd["apiVersion"] != "apiextensions.k8s.io/v1" {
                return Err(ManifestError::new(
                    format_args!("crds[{at}]"),
                    "is no CustomResourceDefinition of apiextensions.k8s.io/v1",
                ));
            }
            if crd["metadata"]["name"].as_str().is_none_or(str::is_empty) {
                return Err(ManifestError::new(format_args!("crds[{at}].metadata.name"), "is missing"));
            }
        }
        Ok(())
    }
}

impl Controller {
    /// The declared child kind, if `kind` is one.
    pub fn child(&self, kind: &Kind) -> Option<&Child> {
        self.children.iter().find(|child| child.resource.kind() == *kind)
    }

    /// Whether objects of this child kind may be where no owner reference reaches: in another namespace than their
    /// primary, or in none while it has one. They are tied to it by a label, and cleaned up by the host.
    pub fn tracks(&self, child: &Child) -> bool {
        let elsewhere = child.resource.scope == Scope::Cluster || child.namespaces == Namespaces::Any;
        self.primary.scope == Scope::Namespaced && elsewhere
    }

    /// The finalizer that is on each primary before its first child: the plugin's own, or the host's if there is
    /// something for it to clean up.
    pub fn guard(&self) -> Option<&str> {
        let host = self.children.iter().any(|child| self.tracks(child)).then_some(CLEANUP_FINALIZER);
        self.finalizer.as_deref().or(host)
    }

    /// The declared target kind, if `kind` is one.
    pub fn target(&self, kind: &Kind) -> Option<&Target> {
        self.targets.iter().find(|target| target.resource.kind() == *kind)
    }

    fn check(&self, path: &str) -> Result<(), ManifestError> {
        self.primary.check(&format!("{path}.primary"))?;
        let count = self.children.len() + self.related.len() + self.targets.len();
        if count > Manifest::KINDS_MAX {
            let problem = format!("{count} kinds and rules, at most {} would be right", Manifest::KINDS_MAX);
            return Err(ManifestError::new(path, problem));
        }
        for (at, child) in self.children.iter().enumerate() {
            child.check(&format!("{path}.children[{at}]"))?;
            let path = format!("{path}.children[{at}].resource");
            let kind = child.resource.kind();
            if self.children[..at].iter().any(|other| other.resource.kind().is_version_of(&kind)) {
                let problem = format!("{kind} is named twice: its objects are the same in all versions");
                return Err(ManifestError::new(path, problem));
            }
        }
        let mut names = BTreeSet::new();
        for (at, related) in self.related.iter().enumerate() {
            let path = format!("{path}.related[{at}]");
            related.resource.check(&format!("{path}.resource"))?;
            if related.name.is_empty() || !names.insert(&related.name) {
                return Err(ManifestError::new(format_args!("{path}.name"), "must be unique and not empty"));
            }
            if let Some(text) = &related.field_selector {
                let path = format!("{path}.fieldSelector");
                if related.selector.is_none() {
                    return Err(ManifestError::new(path, "needs a selector beside it"));
                }
                FieldSelector::parse(text).map_err(|problem| ManifestError::new(path, problem))?;
            }
            if let Some(text) = &related.selector {
                // Any name and UID will do to see whether the text is a selector.
                let example = Meta {
                    name: "name".into(),
                    namespace: Some("namespace".into()),
                    uid: "uid".into(),
                    ..Meta::default()
                };
                selector::expand(text, &example).and_then(|text| Selector::parse(&text)).map_err(
                    |error| ManifestError::new(format_args!("{path}.selector"), error.to_string()),
                )?;
            }
        }
        for (at, target) in self.targets.iter().enumerate() {
            let path = format!("{path}.targets[{at}].resource");
            target.resource.check(&path)?;
            let kind = target.resource.kind();
            if self.targets[..at].iter().any(|other| other.resource.kind() == kind) {
                return Err(ManifestError::new(
                    path,
                    format!("{kind} is named twice: list all its verbs once"),
                ));
            }
        }
        if let Some(finalizer) = &self.finalizer {
            let right = finalizer.split_once('/').is_some_and(|(domain, name)| {
                domain.contains('.') && !name.is_empty() && name.len() <= 63 && !name.contains('/')
            });
            if !right {
                return Err(ManifestError::new(
                    format_args!("{path}.finalizer"),
                    format!("`{finalizer}` is no finalizer: `example.com/cleanup` would be right"),
                ));
            }
            if finalizer.starts_with(HOST_PREFIX) {
                let problem = format!("`{finalizer}` is the host's own: take one of your domain");
                return Err(ManifestError::new(format_args!("{path}.finalizer"), problem));
            }
        }
        if let Some(seconds) = self.resync_seconds
            && !(10..=86_400).contains(&seconds)
        {
            let problem = format!("{seconds} is out of bounds, 10 to 86400 would be right");
            return Err(ManifestError::new(format_args!("{path}.resyncSeconds"), problem));
        }
        Ok(())
    }
}

impl Child {
    fn check(&self, path: &str) -> Result<(), ManifestError> {
        self.resource.check(&format!("{path}.resource"))?;
        if self.namespaces == Namespaces::Any && self.resource.scope == Scope::Cluster {
            let problem = format!("{} has no namespaces: leave it out", self.resource.kind());
            return Err(ManifestError::new(format_args!("{path}.namespaces"), problem));
        }
        let path = format!("{path}.updateStrategy");
        let strategy = &self.update_strategy;
        strategy
            .check()
            .map_err(|(below, problem)| ManifestError::new(format_args!("{path}{below}"), problem))?;
        if self.create_only && !matches!(strategy.method, Method::InPlace | Method::OnDelete) {
            let problem = format!("{:?} contradicts createOnly: leave one of them out", strategy.method);
            return Err(ManifestError::new(path, problem));
        }
        if !strategy.status_checks.is_empty() && !shows_conditions(&self.projection) {
            let problem =
                "the kind's projection does not show .status.conditions and .status.observedGeneration";
            return Err(ManifestError::new(format_args!("{path}.statusChecks"), problem));
        }
        Ok(())
    }
}

/// Whether an object that is watched like this still has what status checks look at.
fn shows_conditions(projection: &Projection) -> bool {
    let status =
        json!({"observedGeneration": 1, "conditions": [{"type": "A", "status": "B", "reason": "C"}]});
    let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "status": status});
    Object::from_value(&object).is_ok_and(|mut object| {
        object.project(projection);
        object.field("status") == status
    })
}

impl Resource {
    pub(crate) fn check(&self, path: &str) -> Result<(), ManifestError> {
        for (field, value) in [("version", &self.version), ("kind", &self.kind), ("plural", &self.plural)] {
            if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                let problem = format!("`{value}` is not right: letters, digits and `-` only");
                return Err(ManifestError::new(format_args!("{path}.{field}"), problem));
            }
        }
        if !self.group.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        {
            let problem = format!("`{}` is not an API group", self.group);
            return Err(ManifestError::new(format_args!("{path}.group"), problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> Value {
        json!({
            "name": "web", "version": "0.1.0",
            "controllers": [{
                "primary": {"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs"},
                "children": [{"resource": {"version": "v1", "kind": "ConfigMap", "plural": "configmaps"}}],
                "finalizer": "example.com/cleanup"
            }]
        })
    }

    fn error(manifest: &Value) -> String {
        Manifest::parse(&manifest.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn a_minimal_manifest_has_the_documented_defaults() {
        let manifest = Manifest::parse(&minimal().to_string()).unwrap();
        let child = &manifest.controllers[0].children[0];
        assert_eq!(child.projection, Projection::Full);
        assert!(child.force_conflicts && !child.create_only);
        assert_eq!(child.resource.kind(), Kind::new("", "v1", "ConfigMap"));
    }

    #[test]
    fn errors_name_the_field_and_what_would_be_right() {
        let mut unknown = minimal();
        unknown["controllers"][0]["chidren"] = json!([]);
        assert!(error(&unknown).contains("unknown field `chidren`"), "{}", error(&unknown));

        let mut twice = minimal();
        let child = twice["controllers"][0]["children"][0].clone();
        twice["controllers"][0]["children"] = json!([child.clone(), child]);
        assert_eq!(
            error(&twice),
            "manifest: controllers[0].children[1].resource: ConfigMap.v1 is named twice: its objects are the same in all versions"
        );
        twice["controllers"][0]["children"][1]["resource"]["version"] = json!("v2");
        assert!(error(&twice).contains("ConfigMap.v2 is named twice"), "{}", error(&twice));

        let mut versions = minimal();
        let mut second = versions["controllers"][0].clone();
        second["primary"]["version"] = json!("v2");
        versions["controllers"].as_array_mut().unwrap().push(second);
        assert!(
            error(&versions).contains("Web.v2.example.com has a controller already"),
            "{}",
            error(&versions)
        );

        let mut finalizer = minimal();
        finalizer["controllers"][0]["finalizer"] = json!("cleanup");
        assert!(error(&finalizer).starts_with("manifest: controllers[0].finalizer: `cleanup`"));

        let mut finalizer = minimal();
        finalizer["controllers"][0]["finalizer"] = json!("pilothouse.dev/cleanup");
        assert!(error(&finalizer).contains("is the host's own"));

        let mut scope = minimal();
        scope["controllers"][0]["children"][0]["resource"]["scope"] = json!("Cluster");
        scope["controllers"][0]["children"][0]["namespaces"] = json!("any");
        assert!(error(&scope).contains("children[0].namespaces: ConfigMap.v1 has no namespaces"));

        let strategy = |field: &str, value: Value| {
            let mut manifest = minimal();
            let child = &mut manifest["controllers"][0]["children"][0];
            let checks = json!({"conditions": [{"type": "Ready"}]});
            child["updateStrategy"] = json!({"method": "RollingInPlace", "statusChecks": checks});
            child[field] = value;
            Manifest::parse(&manifest.to_string()).map_err(|error| error.to_string())
        };
        let wrong = strategy("createOnly", json!(true)).unwrap_err();
        assert!(
            wrong.contains("children[0].updateStrategy: RollingInPlace contradicts createOnly"),
            "{wrong}"
        );
        for projection in [json!("metadata"), json!({"fields": [".status.conditions[*].type"]})] {
            let wrong = strategy("projection", projection).unwrap_err();
            assert!(wrong.contains("updateStrategy.statusChecks: the kind's projection"), "{wrong}");
        }
        let shown = json!({"fields": [".status.conditions", ".status.observedGeneration", ".spec.x"]});
        strategy("projection", shown).unwrap();

        let mut selector = minimal();
        selector["controllers"][0]["related"] = json!([{
            "name": "pods", "selector": "owner=$(nme)", "resource": {"version": "v1", "kind": "Pod", "plural": "pods"}
        }]);
        assert!(
            error(&selector).starts_with("manifest: controllers[0].related[0].selector:"),
            "{}",
            error(&selector)
        );

        let mut fields = selector.clone();
        fields["controllers"][0]["related"][0]["selector"] = json!("owner=$(name)");
        fields["controllers"][0]["related"][0]["fieldSelector"] = json!("phase");
        assert!(
            error(&fields).starts_with("manifest: controllers[0].related[0].fieldSelector: `phase`"),
            "{}",
            error(&fields)
        );

        let mut name = minimal();
        name["name"] = json!("Web");
        assert!(error(&name).contains("`Web` is not a plugin name"));
    }
}
