//! Which rights the host needs at the API server to serve given plugins: no more than their manifests declare.
//!
//! Each right follows from one thing that the host does:
//! - it watches primaries, children and related kinds; those without a selector while a plugin looks them up: `get`,
//!   `list`, `watch`
//! - it applies children on the server's side, which takes `create` where the object is new and `patch` in any case,
//!   and deletes them
//! - it patches primaries (finalizer) and their `status`, and reads one before it adopts an object
//! - its owner references block the owner's deletion, which takes `update` of the owner's `finalizers` where the
//!   admission plugin OwnerReferencesPermissionEnforcement is on
//! - it reads and patches targets, or deletes them, as far as each target's verbs say
//! - it records events: one `create`, and a `patch` for repeats
//! - it creates, watches and updates the Leases by which hosts elect who writes
//! - for webhooks it keeps two configurations, the conversion of definitions, and a Secret with certificates

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::manifest::{Controller, Manifest, Resource, Scope, TargetVerb};

/// A verb of the API server, in the order in which people write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// One object.
    Get,
    /// All objects.
    List,
    /// Changes.
    Watch,
    /// A new object.
    Create,
    /// A whole object.
    Update,
    /// Some fields.
    Patch,
    /// One object.
    Delete,
}

const WATCH: [Verb; 3] = [Verb::Get, Verb::List, Verb::Watch];
const RECORD: [Verb; 2] = [Verb::Create, Verb::Patch];

/// A rule of a Role or ClusterRole; serializes as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// `""` is the core group.
    pub api_groups: Vec<String>,
    /// Plural names, with `/` and the subresource if one is meant.
    pub resources: Vec<String>,
    /// Only these objects; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// What may be done.
    pub verbs: Vec<Verb>,
}

/// Rules by where they must be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// For the whole cluster: kinds without a namespace.
    pub cluster: Vec<Rule>,
    /// In each namespace that the host serves.
    pub namespaced: Vec<Rule>,
}

/// What the host needs to serve these plugins.
pub fn plugins<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Rules {
    let mut cluster = Collected::default();
    let mut namespaced = Collected::default();
    for controller in manifests.into_iter().flat_map(|manifest| &manifest.controllers) {
        let mut allow = |resource: &Resource, subresource: &str, verbs: &[Verb]| {
            let rules = match resource.scope {
                Scope::Cluster => &mut cluster,
                Scope::Namespaced => &mut namespaced,
            };
            rules.allow(&resource.group, &format!("{}{subresource}", resource.plural), verbs);
        };
        collect(controller, &mut allow);
        // Events about an object without a namespace go to the namespace `default`.
        let events = match controller.primary.scope {
            Scope::Cluster => &mut cluster,
            Scope::Namespaced => &mut namespaced,
        };
        events.allow("events.k8s.io", "events", &RECORD);
    }
    Rules { cluster: cluster.into_rules(), namespaced: namespaced.into_rules() }
}

fn collect(controller: &Controller, allow: &mut impl FnMut(&Resource, &str, &[Verb])) {
    let primary = &controller.primary;
    allow(primary, "", &WATCH);
    allow(primary, "", &[Verb::Patch]);
    allow(primary, "/status", &[Verb::Patch]);
    if !controller.children.is_empty() {
        allow(primary, "/finalizers", &[Verb::Update]);
    }
    for child in &controller.children {
        allow(&child.resource, "", &WATCH);
        allow(&child.resource, "", &[Verb::Create, Verb::Patch, Verb::Delete]);
    }
    for related in &controller.related {
        allow(&related.resource, "", &WATCH);
    }
    for target in &controller.targets {
        for verb in &target.verbs {
            match verb {
                TargetVerb::Delete => allow(&target.resource, "", &[Verb::Delete]),
                // It is read first, as a patch without effect is not sent.
                TargetVerb::Patch => allow(&target.resource, "", &[Verb::Get, Verb::Patch]),
                TargetVerb::PatchStatus => allow(&target.resource, "/status", &[Verb::Get, Verb::Patch]),
                TargetVerb::PatchScale => allow(&target.resource, "/scale", &[Verb::Get, Verb::Patch]),
            }
        }
    }
}

/// What the host needs, in the whole cluster, to apply the CustomResourceDefinitions that these plugins bring.
pub fn crds<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Vec<Rule> {
    let names: BTreeSet<String> = manifests
        .into_iter()
        .flat_map(|manifest| &manifest.crds)
        .filter_map(|crd| crd["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let rule = |resource_names: Vec<String>, verbs: &[Verb]| Rule {
        api_groups: vec!["apiextensions.k8s.io".to_owned()],
        resources: vec!["customresourcedefinitions".to_owned()],
        resource_names,
        verbs: verbs.to_vec(),
    };
    // The API server does not know the name when it authorizes `create`.
    vec![rule(Vec::new(), &[Verb::Create]), rule(names.into_iter().collect(), &[Verb::Get, Verb::Patch])]
}

/// What the host needs in the namespace of ConfigMaps that carry plugins: it watches them, and says in an event on
/// one why it could not be loaded.
pub fn plugin_config_maps() -> Vec<Rule> {
    let mut rules = Collected::default();
    rules.allow("", "configmaps", &WATCH);
    rules.allow("events.k8s.io", "events", &RECORD);
    rules.into_rules()
}

/// Verbs by group and resource, so that what two plugins need of one resource is one right.
#[derive(Default)]
struct Collected(BTreeMap<(String, String), BTreeSet<Verb>>);

impl Collected {
    fn allow(&mut self, group: &str, resource: &str, verbs: &[Verb]) {
        self.0.entry((group.to_owned(), resource.to_owned())).or_default().extend(verbs);
    }

    /// One rule for all resources of a group that have the same verbs, in alphabetical order.
    fn into_rules(self) -> Vec<Rule> {
        let mut by_verbs: BTreeMap<(String, Vec<Verb>), Vec<String>> = BTreeMap::new();
        for ((group, resource), verbs) in self.0 {
            by_verbs.entry((group, verbs.into_iter().collect())).or_default().push(resource);
        }
        let mut rules: Vec<Rule> = by_verbs
            .into_iter()
            .map(|((group, verbs), resources)| Rule {
                api_groups: vec![group],
                resources,
                resource_names: Vec::new(),
                verbs,
            })
            .collect();
        rules.sort_by(|a, b| (&a.api_groups, &a.resources).cmp(&(&b.api_groups, &b.resources)));
        rules
    }
}

/// What the host needs, in the namespace of its Leases, to elect by them who writes. RBAC cannot say which name a
/// creation may have; all else is said of these names alone, lists and watches too, which ask for one name.
pub fn leases(names: Vec<String>) -> Vec<Rule> {
    let rule = |resource_names, verbs: &[Verb]| Rule {
        api_groups: vec!["coordination.k8s.io".to_owned()],
        resources: vec!["leases".to_owned()],
        resource_names,
        verbs: verbs.to_vec(),
    };
    vec![rule(Vec::new(), &[Verb::Create]), rule(names, &[Verb::Get, Verb::List, Verb::Watch, Verb::Update])]
}

/// What the host needs in the whole cluster so that the API server asks it about what these plugins guard and convert.
/// `name`: that of the configurations.
pub fn webhooks<'a>(manifests: impl IntoIterator<Item = &'a Manifest>, name: &str) -> Vec<Rule> {
    let definitions: BTreeSet<String> = manifests
        .into_iter()
        .flat_map(crate::webhook::converted_crds)
        .map(|(name, _)| name.to_owned())
        .collect();
    let rule = |resources: &[&str], resource_names: Vec<String>, verbs: &[Verb]| Rule {
        api_groups: vec!["admissionregistration.k8s.io".to_owned()],
        resources: resources.iter().map(ToString::to_string).collect(),
        resource_names,
        verbs: verbs.to_vec(),
    };
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let keep = [WATCH.as_slice(), &[Verb::Patch, Verb::Delete]].concat();
    let mut rules = vec![
        rule(&configurations, Vec::new(), &[Verb::Create]),
        rule(&configurations, vec![name.to_owned()], &keep),
    ];
    if !definitions.is_empty() {
        rules.push(Rule {
            api_groups: vec!["apiextensions.k8s.io".to_owned()],
            resources: vec!["customresourcedefinitions".to_owned()],
            resource_names: definitions.into_iter().collect(),
            verbs: [WATCH.as_slice(), &[Verb::Patch]].concat(),
        });
    }
    rules
}

/// What the host needs, in the namespace of its Leases, to keep certificates in the Secret of this name.
pub fn webhook_certificates(secret: &str) -> Vec<Rule> {
    let rule = |resource_names: Vec<String>, verbs: &[Verb]| Rule {
        api_groups: vec![String::new()],
        resources: vec!["secrets".to_owned()],
        resource_names,
        verbs: verbs.to_vec(),
    };
    let keep = [WATCH.as_slice(), &[Verb::Patch]].concat();
    vec![rule(Vec::new(), &[Verb::Create]), rule(vec![secret.to_owned()], &keep)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(controllers: &Value) -> Manifest {
        let crd = |name: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                   "metadata": {"name": name}})
        };
        let manifest = json!({
            "name": "web", "version": "1", "crds": [crd("webs.example.com"), crd("apps.example.com")],
            "controllers": controllers
        });
        Manifest::parse(&manifest.to_string()).unwrap()
    }

    fn resource(group: &str, kind: &str, plural: &str) -> Value {
        json!({"group": group, "version": "v1", "kind": kind, "plural": plural})
    }

    /// Lines as `group: resources: verbs`.
    fn lines(rules: &[Rule]) -> Vec<String> {
        let verbs =
            |rule: &Rule| serde_json::to_value(&rule.verbs).unwrap().to_string().replace(['"', '[', ']'], "");
        rules
            .iter()
            .map(|rule| {
                format!("{}: {}: {}", rule.api_groups.join(","), rule.resources.join(","), verbs(rule))
            })
            .collect()
    }

    #[test]
    fn rights_follow_the_manifest() {
        let manifest = manifest(&json!([{
            "primary": resource("example.com", "Web", "webs"),
            "children": [
                {"resource": resource("", "Service", "services")},
                {"resource": resource("", "ConfigMap", "configmaps")},
                {"resource": resource("apps", "Deployment", "deployments")}
            ],
            "related": [
                {"name": "nodes", "resource":
                    {"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"}},
                {"name": "pods", "resource": resource("", "Pod", "pods"), "selector": "app=$(name)"}],
            "targets": [{"resource": resource("", "Pod", "pods"), "verbs": ["delete"]}]
        }]));
        let rules = plugins([&manifest]);
        assert_eq!(
            lines(&rules.namespaced),
            [
                ": configmaps,services: get,list,watch,create,patch,delete",
                ": pods: get,list,watch,delete",
                "apps: deployments: get,list,watch,create,patch,delete",
                "events.k8s.io: events: create,patch",
                "example.com: webs: get,list,watch,patch",
                "example.com: webs/finalizers: update",
                "example.com: webs/status: patch",
            ]
        );
        assert_eq!(lines(&rules.cluster), [": nodes: get,list,watch"]);
    }

    /// They are watched, made and deleted like others; what holds their primary until then is a patch of it.
    #[test]
    fn children_that_no_owner_reference_reaches_need_the_same_rights_where_they_are() {
        let manifest = manifest(&json!([{
            "primary": resource("example.com", "Web", "webs"),
            "children": [{"resource":
                {"group": "scheduling.k8s.io", "version": "v1", "kind": "PriorityClass", "plural": "priorityclasses",
                 "scope": "Cluster"}}, {"resource": resource("", "ConfigMap", "configmaps"), "namespaces": "any"}]
        }]));
        let rules = plugins([&manifest]);
        let all = "get,list,watch,create,patch,delete";
        assert_eq!(lines(&rules.cluster), [format!("scheduling.k8s.io: priorityclasses: {all}")]);
        assert!(lines(&rules.namespaced).contains(&format!(": configmaps: {all}")));
        assert!(lines(&rules.namespaced).contains(&"example.com: webs: get,list,watch,patch".to_owned()));
    }

    #[test]
    fn what_two_plugins_need_of_one_kind_is_one_right() {
        let reads = manifest(&json!([{
            "primary": resource("example.com", "App", "apps"),
            "related": [{"name": "webs", "resource": resource("example.com", "Web", "webs"), "selector": ""}]
        }]));
        let serves = manifest(&json!([{"primary": resource("example.com", "Web", "webs")}]));
        let expected = [
            "events.k8s.io: events: create,patch",
            "example.com: apps,webs: get,list,watch,patch",
            "example.com: apps/status,webs/status: patch",
        ];
        assert_eq!(lines(&plugins([&reads, &serves]).namespaced), expected);
        assert_eq!(plugins([&reads, &serves]), plugins([&serves, &reads]));
    }

    #[test]
    fn patching_a_target_includes_the_subresources_that_it_names_and_nothing_of_others() {
        let manifest = manifest(&json!([{
            "primary": {"group": "example.com", "version": "v1", "kind": "Fleet", "plural": "fleets", "scope": "Cluster"},
            "targets": [{"resource": resource("apps", "Deployment", "deployments"), "verbs": ["patch", "patch-scale"]}]
        }]));
        let rules = plugins([&manifest]);
        assert_eq!(lines(&rules.namespaced), ["apps: deployments,deployments/scale: get,patch"]);
        assert_eq!(
            lines(&rules.cluster),
            [
                "events.k8s.io: events: create,patch",
                "example.com: fleets: get,list,watch,patch",
                "example.com: fleets/status: patch"
            ]
        );
    }

    #[test]
    fn definitions_are_named_as_far_as_rbac_can() {
        let manifest = manifest(&json!([{"primary": resource("example.com", "Web", "webs")}]));
        let rules = crds([&manifest]);
        assert_eq!((rules[0].verbs.as_slice(), rules[0].resource_names.len()), (&[Verb::Create][..], 0));
        assert_eq!(rules[1].resource_names, ["apps.example.com", "webs.example.com"]);
        assert!(!rules[1].verbs.contains(&Verb::Delete));
        assert!(crds([]).is_empty());
    }
}
