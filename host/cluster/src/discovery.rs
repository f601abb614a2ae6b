//! Whether the API server has what a manifest names. Only the group and version in question is asked for, so that a
//! broken aggregated API elsewhere does not matter.

use std::collections::BTreeSet;
use std::time::Duration;

use pilothouse_model::manifest::{Resource, Scope};
use serde::Deserialize;

use crate::connect::Cluster;
use crate::error::ReadError;
use crate::path;

/// One discovery document. An aggregated API server may be slow to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the API server says of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovered {
    /// It is there as the manifest says.
    Present(Features),
    /// It is not there and may come: a CRD that is not applied yet. The text says what is there instead.
    Absent(String),
    /// The manifest contradicts the API server. Only a new manifest or another CRD helps. The text says what is
    /// there.
    Contradicted(String),
}

/// What can be done with a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// `get`, `list`, `watch`, `patch`, … as the API server offers them; RBAC may allow fewer.
    pub verbs: BTreeSet<String>,
    /// Subresources, for example `status` and `scale`.
    pub subresources: BTreeSet<String>,
}

impl Features {
    /// It has a status of its own, which [`crate::status`] needs.
    pub fn has_status(&self) -> bool {
        self.subresources.contains("status")
    }
}

impl Cluster {
    /// Looks a resource up. Fails if the API server does not say; that is worth another try.
    pub async fn discover(&self, resource: &Resource) -> Result<Discovered, ReadError> {
        let path = path::of_version(&resource.group, &resource.version);
        match self.get_text(&path, TIMEOUT).await {
            Ok(text) => {
                let list: ResourceList =
                    serde_json::from_str(&text).map_err(|error| ReadError::Malformed(error.to_string()))?;
                Ok(judge(resource, &list))
            }
            Err(ReadError::Missing(_)) => Ok(Discovered::Absent(self.other_versions(resource).await)),
            Err(error) => Err(error),
        }
    }

    /// For the error text only: what the API server has of the group.
    async fn other_versions(&self, resource: &Resource) -> String {
        let Resource { group, version, .. } = resource;
        if group.is_empty() {
            return format!("the API server has no version `{version}` of the core group");
        }
        let Ok(text) = self.get_text(&format!("/apis/{group}"), TIMEOUT).await else {
            return format!("the API server has no group `{group}`");
        };
        let served: Group = serde_json::from_str(&text).unwrap_or_default();
        let versions: Vec<String> =
            served.versions.iter().map(|entry| format!("`{}`", entry.version)).collect();
        format!("the API server has no version `{version}` of group `{group}`, only {}", versions.join(", "))
    }
}

#[derive(Deserialize, Default)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// Plural, or `plural/subresource`.
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: BTreeSet<String>,
}

fn judge(resource: &Resource, list: &ResourceList) -> Discovered {
    let kind = resource.kind();
    let main = list.resources.iter().filter(|entry| !entry.name.contains('/'));
    let Some(entry) = main.clone().find(|entry| entry.name == resource.plural) else {
        return match main.clone().find(|entry| entry.kind == resource.kind) {
            Some(entry) => Discovered::Contradicted(format!(
                "the plural of {kind} is `{}`, not `{}`",
                entry.name, resource.plural
            )),
            None => Discovered::Absent(format!("the API server has no `{}` of {kind}", resource.plural)),
        };
    };
    if entry.kind != resource.kind {
        return Discovered::Contradicted(format!(
            "`{}` is the plural of {}, not of {}",
            resource.plural, entry.kind, resource.kind
        ));
    }
    let scope = if entry.namespaced { Scope::Namespaced } else { Scope::Cluster };
    if scope != resource.scope {
        return Discovered::Contradicted(format!(
            "the scope of {kind} is {scope:?}, and the manifest says {:?}",
            resource.scope
        ));
    }
    let prefix = format!("{}/", resource.plural);
    let subresources = list.resources.iter().filter_map(|entry| entry.name.strip_prefix(&prefix));
    Discovered::Present(Features {
        verbs: entry.verbs.clone(),
        subresources: subresources.map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPS: &str = r#"{"kind": "APIResourceList", "resources": [
        {"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ["get", "watch"]},
        {"name": "deployments/scale", "kind": "Scale", "namespaced": true, "verbs": ["get"]},
        {"name": "deployments/status", "kind": "Deployment", "namespaced": true, "verbs": ["get"]},
        {"name": "nodes", "kind": "Node", "namespaced": false, "verbs": []}]}"#;

    fn judged(kind: &str, plural: &str, scope: Scope) -> Discovered {
        let resource = Resource {
            group: "apps".into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            scope,
        };
        judge(&resource, &serde_json::from_str(APPS).unwrap())
    }

    #[test]
    fn what_is_there_is_told_with_its_subresources() {
        let Discovered::Present(features) = judged("Deployment", "deployments", Scope::Namespaced) else {
            panic!("not found")
        };
        assert!(
            features.has_status()
                && features.subresources.contains("scale")
                && features.verbs.contains("watch")
        );
        let Discovered::Present(features) = judged("Node", "nodes", Scope::Cluster) else {
            panic!("not found")
        };
        assert!(!features.has_status());
    }

    #[test]
    fn what_is_not_there_or_otherwise_is_told_with_what_is() {
        let text = |discovered| match discovered {
            Discovered::Absent(text) => format!("absent: {text}"),
            Discovered::Contradicted(text) => format!("contradicted: {text}"),
            Discovered::Present(_) => "present".to_owned(),
        };
        for (kind, plural, scope, expected) in [
            ("Web", "webs", Scope::Namespaced, "absent: the API server has no `webs` of Web.v1.apps"),
            (
                "Deployment",
                "deploys",
                Scope::Namespaced,
                "contradicted: the plural of Deployment.v1.apps is `deployments`, not `deploys`",
            ),
            (
                "Deploy",
                "deployments",
                Scope::Namespaced,
                "contradicted: `deployments` is the plural of Deployment, not of Deploy",
            ),
            (
                "Node",
                "nodes",
                Scope::Namespaced,
                "contradicted: the scope of Node.v1.apps is Cluster, and the manifest says Namespaced",
            ),
        ] {
            assert_eq!(text(judged(kind, plural, scope)), expected);
        }
    }
}
