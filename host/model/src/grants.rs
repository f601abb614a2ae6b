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

/// Something that a manifest wants and no grant allows: what, why that is needed, and the line that would allow it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("grants: {0}")]
pub struct NotGranted(String);

/// Whether objects of the kind give rights, or stand between everybody and the API server.
pub fn is_sensitive(kind: &Kind) -> bool {
    SENSITIVE_GROUPS.contains(&kind.group.as_str())
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

    /// Whether the manifest wants no more than what is granted.
    pub fn check(&self, manifest: &Manifest) -> Result<(), NotGranted> {
        for (at, controller) in manifest.controllers.iter().enumerate() {
            for (at_child, child) in controller.children.iter().enumerate() {
                let elsewhere = child.namespaces == Namespaces::Any;
                let path = format!("controllers[{at}].children[{at_child}]");
                self.check_one(&path, &child.resource, elsewhere, controller)?;
            }
            for (at_target, target) in controller.targets.iter().enumerate() {
                let path = format!("controllers[{at}].targets[{at_target}]");
                self.check_one(&path, &target.resource, false, controller)?;
            }
        }
        Ok(())
    }

    fn check_one(
        &self,
        path: &str,
        resource: &Resource,
        elsewhere: bool,
        controller: &Controller,
    ) -> Result<(), NotGranted> {
        let kind = resource.kind();
        let elsewhere = elsewhere || controller.primary.scope == Scope::Cluster;
        let in_namespaces = self.of(&kind).any(|grant| !grant.namespaces.is_empty());
        let why = match resource.scope {
            Scope::Cluster if !self.names(&kind) => "has no namespace",
            Scope::Namespaced if elsewhere && !in_namespaces => "is in other namespaces than its primary",
            _ if is_sensitive(&kind) && !self.names(&kind) => "gives rights or changes the API server",
            _ => return Ok(()),
        };
        let place =
            if resource.scope == Scope::Namespaced && elsewhere { ", namespaces: [NAME, ...]" } else { "" };
        let remedy = format!("- {{kind: {}{place}}}", GrantedKind::of(&kind));
        Err(NotGranted(format!(
            "{path} of the manifest wants {kind}, which {why}: add `{remedy}` to `grants` in the plugin's settings"
        )))
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
        Grants::default().check(&manifest("Namespaced", &map(), &pod())).unwrap();
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
                    json!({"kind": name, "namespaces": ["a"]})
                });
            }
            grants(Value::Array(granted)).check(&manifest).unwrap();
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
