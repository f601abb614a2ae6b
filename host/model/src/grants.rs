//! Grants: what an administrator allows one plugin beyond what every plugin may. It stands in the plugin's settings, not
//! in its manifest: the manifest says what a plugin wants, and the verbs with which; a grant says yes to a kind and to
//! places.
//!
//! Every plugin may act on namespaced kinds of its manifest, in the namespace of its primary. By grant alone it may act
//! on
//! - kinds without a namespace,
//! - kinds that give rights or change the API server itself (RBAC, webhooks, CRDs), wherever they are,
//! - objects in other namespaces.
//!
//! What a manifest wants and no grant allows is found when the plugin is loaded; what a pass wants beyond its grants
//! refuses the whole outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::manifest::{Controller, Manifest, Namespaces, Resource, Scope};

/// Grants of one plugin; a manifest has at most as many kinds.
const GRANTS_MAX: usize = 64;

/// Groups whose objects give rights, or stand between everybody and the API server.
const SENSITIVE_GROUPS: [&str; 4] = [
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
];

/// All grants of one plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(Vec<Grant>);

/// Yes to one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Which kind, in all of its versions.
    pub kind: GrantedKind,
    /// Namespaces beside the primary's own in which it may be acted on; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// A kind in all of its versions: `Kind.group`, or `Kind` of the core group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GrantedKind {
    group: String,
    kind: String,
}

impl GrantedKind {
    fn of(kind: &Kind) -> Self {
        Self { group: kind.group.clone(), kind: kind.kind.clone() }
    }
}

impl FromStr for GrantedKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        let dangling = text.ends_with('.');
        let kind_is_right = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let group_is_right = group
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
        if dangling || !kind_is_right || !group_is_right {
            return Err(format!("`{text}` is no kind: `ConfigMap` or `Deployment.apps` would be right"));
        }
        Ok(Self { group: group.to_owned(), kind: kind.to_owned() })
    }
}

impl TryFrom<String> for GrantedKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<GrantedKind> for String {
    fn from(kind: GrantedKind) -> Self {
        kind.to_string()
    }
}

impl fmt::Display for GrantedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Namespaces of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places<'a> {
    /// All.
    All,
    /// These.
    Some(BTreeSet<&'a str>),
}

/// Something that a manifest wants and no grant allows: what, why that is needed, and the line that would allow it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("grants: {0}")]
pub struct NotGranted(String);

/// Whether objects of the kind give rights, or stand between everybody and the API server.
pub fn is_sensitive(kind: &Kind) -> bool {
    SENSITIVE_GROUPS.contains(&kind.group.as_str())
}

/// What a manifest wants to do with one kind.
struct Want {
    kind: Kind,
    scope: Scope,
    /// In other namespaces than its primary's.
    elsewhere: bool,
}

impl Want {
    fn needs_namespaces(&self) -> bool {
        self.scope == Scope::Namespaced && self.elsewhere
    }
}

/// All that a manifest wants to act on, each with its path.
fn wants(manifest: &Manifest) -> Vec<(String, Want)> {
    let mut wants = Vec::new();
    for (at, Controller { primary, children, targets, .. }) in manifest.controllers.iter().enumerate() {
        let mut want = |list: &str, at_item: usize, resource: &Resource, elsewhere: bool| {
            let elsewhere = elsewhere || primary.scope == Scope::Cluster;
            let want = Want { kind: resource.kind(), scope: resource.scope, elsewhere };
            wants.push((format!("controllers[{at}].{list}[{at_item}]"), want));
        };
        for (at, child) in children.iter().enumerate() {
            want("children", at, &child.resource, child.namespaces == Namespaces::Any);
        }
        for (at, target) in targets.iter().enumerate() {
            want("targets", at, &target.resource, false);
        }
    }
    wants
}

impl Grants {
    /// Whether the kind is granted, wherever.
    pub fn names(&self, kind: &Kind) -> bool {
        self.of(kind).next().is_some()
    }

    /// Whether objects of the kind are granted in this namespace.
    pub fn admit(&self, kind: &Kind, namespace: &str) -> bool {
        self.of(kind).flat_map(|grant| &grant.namespaces).any(|one| one == "*" || one == namespace)
    }

    /// The namespaces in which objects of the kind are granted; none if in none.
    pub fn places(&self, kind: &Kind) -> Option<Places<'_>> {
        let names: BTreeSet<&str> =
            self.of(kind).flat_map(|grant| &grant.namespaces).map(String::as_str).collect();
        match names.is_empty() {
            true => None,
            false if names.contains("*") => Some(Places::All),
            false => Some(Places::Some(names)),
        }
    }

    /// Whether the manifest wants no more than what is granted.
    pub fn check(&self, manifest: &Manifest) -> Result<(), NotGranted> {
        for (path, wanted) in wants(manifest) {
            let Some(why) = self.lacks(&wanted) else { continue };
            let place = if wanted.needs_namespaces() { ", namespaces: [NAME, ...]" } else { "" };
            let remedy = format!("- {{kind: {}{place}}}", GrantedKind::of(&wanted.kind));
            let kind = wanted.kind;
            return Err(NotGranted(format!(
                "{path} of the manifest wants {kind}, which {why}: add `{remedy}` to `grants` in the plugin's settings"
            )));
        }
        for (at, guard) in manifest.admission.iter().enumerate() {
            let kind = guard.resource.kind();
            let places = guard.resource.scope == Scope::Cluster || self.places(&kind).is_some();
            if guard.is_own(manifest) || (self.names(&kind) && places) {
                continue;
            }
            let place = if guard.resource.scope == Scope::Cluster { "" } else { ", namespaces: [NAME, ...]" };
            let granted = GrantedKind::of(&kind);
            return Err(NotGranted(format!(
                "admission[{at}] of the manifest guards {kind}, which is not the plugin's own: \
                 add `- {{kind: {granted}{place}}}` to `grants` in the plugin's settings"
            )));
        }
        Ok(())
    }

    /// The least that a manifest needs, a grant for each kind. Namespaces are the administrator's to name: in their place
    /// stands `NAME`.
    pub fn needed(manifest: &Manifest) -> Self {
        let mut needed: Vec<Grant> = Vec::new();
        for (_, wanted) in wants(manifest) {
            if Self::default().lacks(&wanted).is_none() {
                continue;
            }
            let kind = GrantedKind::of(&wanted.kind);
            let at = needed.iter().position(|grant| grant.kind == kind).unwrap_or_else(|| {
                needed.push(Grant { kind, namespaces: Vec::new() });
                needed.len() - 1
            });
            if wanted.needs_namespaces() && needed[at].namespaces.is_empty() {
                needed[at].namespaces.push("NAME".to_owned());
            }
        }
        for guard in manifest.admission.iter().filter(|guard| !guard.is_own(manifest)) {
            let kind = GrantedKind::of(&guard.resource.kind());
            let at = needed.iter().position(|grant| grant.kind == kind).unwrap_or_else(|| {
                needed.push(Grant { kind, namespaces: Vec::new() });
                needed.len() - 1
            });
            if guard.resource.scope == Scope::Namespaced && needed[at].namespaces.is_empty() {
                needed[at].namespaces.push("NAME".to_owned());
            }
        }
        Self(needed)
    }

    /// Why what is wanted is not granted; none if it is, or needs no grant.
    fn lacks(&self, wanted: &Want) -> Option<&'static str> {
        let Want { kind, scope, elsewhere } = wanted;
        let in_namespaces = self.of(kind).any(|grant| !grant.namespaces.is_empty());
        match scope {
            Scope::Cluster if !self.names(kind) => Some("has no namespace"),
            Scope::Namespaced if *elsewhere && !in_namespaces => {
                Some("is in other namespaces than its primary")
            }
            _ if is_sensitive(kind) && !self.names(kind) => Some("gives rights or changes the API server"),
            _ => None,
        }
    }

    pub(crate) fn check_form(&self) -> Result<(), String> {
        if self.0.len() > GRANTS_MAX {
            return Err(format!("grants: {} of them, at most {GRANTS_MAX} would be right", self.0.len()));
        }
        for (at, grant) in self.0.iter().enumerate() {
            let wrong = |name: &&String| {
                let right = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                *name != "*" && (name.is_empty() || name.len() > 63 || !name.bytes().all(right))
            };
            if let Some(name) = grant.namespaces.iter().find(wrong) {
                return Err(format!(
                    "grants[{at}].namespaces: `{name}` is no namespace: its name or `*` would be right"
                ));
            }
        }
        Ok(())
    }

    fn of(&self, kind: &Kind) -> impl Iterator<Item = &Grant> {
        let kind = GrantedKind::of(kind);
        self.0.iter().filter(move |grant| grant.kind == kind)
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Self {
        Self(grants.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn grants(value: Value) -> Grants {
        serde_json::from_value(value).unwrap()
    }

    /// A manifest of a primary of this scope with one child and one target kind.
    fn manifest(primary: &str, child: &Value, target: &Value) -> Manifest {
        let manifest = json!({"name": "web", "version": "1", "controllers": [{
            "primary": {"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs", "scope": primary},
            "children": [child], "targets": [{"resource": target, "verbs": ["patch"]}]
        }]});
        Manifest::parse(&manifest.to_string()).unwrap()
    }

    fn map() -> Value {
        json!({"resource": {"version": "v1", "kind": "ConfigMap", "plural": "configmaps"}})
    }

    fn pod() -> Value {
        json!({"version": "v1", "kind": "Pod", "plural": "pods"})
    }

    #[test]
    fn what_is_ordinary_needs_no_grant() {
        let ordinary = manifest("Namespaced", &map(), &pod());
        Grants::default().check(&ordinary).unwrap();
        assert_eq!(Grants::needed(&ordinary), Grants::default());
    }

    #[test]
    fn what_is_wanted_beyond_that_names_its_remedy_and_the_remedy_helps() {
        let mut any = map();
        any["namespaces"] = json!("any");
        let role =
            json!({"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "Role", "plural": "roles"});
        let cluster = json!({"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole",
            "plural": "clusterroles", "scope": "Cluster"});
        let node = json!({"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"});
        let (m, n) = ("ConfigMap, namespaces: [NAME, ...]", "Pod, namespaces: [NAME, ...]");
        for (manifest, kinds) in [
            (manifest("Namespaced", &any, &pod()), vec![m]),
            (
                manifest("Namespaced", &json!({"resource": role}), &pod()),
                vec!["Role.rbac.authorization.k8s.io"],
            ),
            (
                manifest("Namespaced", &json!({"resource": cluster}), &node),
                vec!["ClusterRole.rbac.authorization.k8s.io", "Node"],
            ),
            (manifest("Cluster", &map(), &pod()), vec![m, n]),
            (manifest("Cluster", &json!({"resource": node}), &node), vec!["Node"]),
        ] {
            let mut granted = Vec::new();
            for kind in kinds {
                let error = grants(Value::Array(granted.clone())).check(&manifest).unwrap_err().to_string();
                assert!(error.contains(&format!("`- {{kind: {kind}}}`")), "{error}");
                let name = kind.split(',').next().unwrap();
                granted.push(if kind == name {
                    json!({"kind": name})
                } else {
                    json!({"kind": name, "namespaces": ["NAME"]})
                });
            }
            let granted = grants(Value::Array(granted));
            granted.check(&manifest).unwrap();
            assert_eq!(Grants::needed(&manifest), granted);
        }
    }

    #[test]
    fn a_grant_is_for_one_kind_and_its_namespaces() {
        let grants = grants(
            json!([{"kind": "ConfigMap", "namespaces": ["a"]}, {"kind": "Deployment.apps", "namespaces": ["*"]}]),
        );
        let (map, deployment) =
            (Kind::new("", "v1", "ConfigMap"), Kind::new("apps", "v1beta1", "Deployment"));
        assert!(grants.admit(&map, "a") && !grants.admit(&map, "b"));
        assert!(grants.admit(&deployment, "b") && grants.names(&deployment));
        assert!(
            !grants.names(&Kind::new("", "v1", "Deployment"))
                && !grants.names(&Kind::new("", "v1", "Secret"))
        );
    }
}
