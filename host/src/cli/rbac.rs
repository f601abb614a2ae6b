//! `pilothouse rbac`: the least rights under which a host can serve given plugins, as Roles and bindings.

use std::path::PathBuf;

use pilothouse_cluster::lease::{SHARDS_MAX, lease_names};
use pilothouse_model::manifest::Manifest;
use pilothouse_model::rbac::{self, Rule};
use pilothouse_model::webhook::converted_crds;
use serde_json::{Value, json};

use crate::cli::exit::{EXIT_CODES, Exit};
use crate::cli::lease::{Switch, check_lease_name};
use crate::cli::output::{self, Format};
use crate::cli::plugin;
use crate::cli::run::check_namespace;
use crate::cli::webhook::check_webhook_name;
use crate::webhooks::secret_name;

/// Print the Roles and bindings that the host needs to serve plugins
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RbacArgs {
    /// Components: NAME.wasm, gzip'd or zstd'd or not
    #[arg(required = true)]
    plugin: Vec<PathBuf>,
    /// Account of the host
    #[arg(long, value_name = "NS/NAME", default_value = "pilothouse-system/pilothouse",
          value_parser = service_account)]
    service_account: ServiceAccount,
    /// Name of the roles, for plugins that are added to others [default: the account's]
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// As given to `run`: rights in these namespaces only, by a Role in each [default: in all]
    #[arg(long = "namespace", short, value_name = "NS")]
    namespaces: Vec<String>,
    /// As given to `run`
    #[arg(long, value_name = "NAMESPACE")]
    plugin_configmaps: Option<String>,
    /// As given to `run`
    #[arg(long)]
    apply_crds: bool,
    /// As given to `run`
    #[arg(long, value_name = "on|off", default_value = "on")]
    leases: Switch,
    /// As given to `run` [default: that of the account]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// As given to `run`
    #[arg(long, value_name = "NAME", default_value = "pilothouse")]
    lease_name: String,
    /// As given to `run`
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=SHARDS_MAX as u64))]
    shards: u64,
    /// Rights for webhooks also if none of these plugins brings any, as for a host that is to serve others' later
    #[arg(long)]
    webhooks: bool,
    /// As given to `run`
    #[arg(long, value_name = "NAME", default_value = "pilothouse")]
    webhook_name: String,
}

#[derive(Debug, Clone)]
struct ServiceAccount {
    namespace: String,
    name: String,
}

fn service_account(text: &str) -> Result<ServiceAccount, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("NAMESPACE/NAME would be right".to_owned()),
    }
}

pub(crate) fn main(args: &RbacArgs) -> Result<(), Exit> {
    for namespace in args.namespaces.iter().chain(&args.plugin_configmaps) {
        check_namespace("namespace", namespace)?;
    }
    if let Some(namespace) = &args.lease_namespace {
        check_namespace("--lease-namespace", namespace)?;
    }
    check_lease_name(&args.lease_name)?;
    check_webhook_name(&args.webhook_name)?;
    let plugins = plugin::load_all(&args.plugin)?;
    let manifests: Vec<&Manifest> = plugins.iter().map(plugin::Plugin::manifest).collect();
    output::print(&objects(args, &manifests), Format::Yaml)
}

fn objects(args: &RbacArgs, manifests: &[&Manifest]) -> Vec<Value> {
    let account = &args.service_account;
    let name = args.role.as_ref().unwrap_or(&account.name);
    let rules = rbac::plugins(manifests.iter().copied());
    let mut cluster = rules.cluster;
    if args.apply_crds {
        cluster.extend(rbac::crds(manifests.iter().copied()));
    }
    let bring =
        |manifest: &&&Manifest| !manifest.admission.is_empty() || converted_crds(manifest).next().is_some();
    let webhooks = args.webhooks || manifests.iter().any(|manifest| bring(&manifest));
    if webhooks {
        cluster.extend(rbac::webhooks(manifests.iter().copied(), &args.webhook_name));
    }
    let mut objects = Vec::new();
    if args.namespaces.is_empty() {
        cluster.extend(rules.namespaced);
    } else {
        for namespace in &args.namespaces {
            objects.extend(role(Some(namespace), name, &rules.namespaced, account));
        }
    }
    objects.splice(0..0, role(None, name, &cluster, account));
    if let Some(namespace) = &args.plugin_configmaps {
        let name = format!("{name}-plugins");
        objects.extend(role(Some(namespace), &name, &rbac::plugin_config_maps(), account));
    }
    let home = args.lease_namespace.as_ref().unwrap_or(&account.namespace);
    if webhooks {
        let rules = rbac::webhook_certificates(&secret_name(&args.webhook_name));
        objects.extend(role(Some(home), &format!("{}-webhook", account.name), &rules, account));
    }
    if args.leases == Switch::On {
        let names = lease_names(&args.lease_name, usize::try_from(args.shards).unwrap_or(SHARDS_MAX));
        let name = format!("{}-leases", account.name);
        objects.extend(role(Some(home), &name, &rbac::leases(names), account));
    }
    objects
}

/// A Role in a namespace, or a ClusterRole, and its binding; nothing if there are no rules.
fn role(namespace: Option<&str>, name: &str, rules: &[Rule], account: &ServiceAccount) -> Vec<Value> {
    const API: &str = "rbac.authorization.k8s.io";
    if rules.is_empty() {
        return Vec::new();
    }
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    vec![
        json!({
            "apiVersion": format!("{API}/v1"), "kind": format!("{prefix}Role"), "metadata": metadata, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{API}/v1"), "kind": format!("{prefix}RoleBinding"), "metadata": metadata,
            "roleRef": {"apiGroup": API, "kind": format!("{prefix}Role"), "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": account.namespace, "name": account.name}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(namespaces: &[&str]) -> RbacArgs {
        RbacArgs {
            plugin: Vec::new(),
            service_account: service_account("ops/pilot").unwrap(),
            role: None,
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            plugin_configmaps: Some("plugins".to_owned()),
            apply_crds: true,
            leases: Switch::On,
            lease_namespace: None,
            lease_name: "pilot".to_owned(),
            shards: 1,
            webhooks: false,
            webhook_name: "pilot".to_owned(),
        }
    }

    fn manifest() -> Manifest {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                         "metadata": {"name": "webs.example.com"}});
        let text = json!({
            "name": "web", "version": "1", "crds": [crd],
            "controllers": [{
                "primary": {"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs"},
                "related": [{"name": "nodes", "resource":
                    {"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"}}]
            }]
        });
        Manifest::parse(&text.to_string()).unwrap()
    }

    /// `Kind namespace/name: resources` of each Role.
    fn roles(objects: &[Value]) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        objects
            .iter()
            .filter(|object| !object["roleRef"].is_object())
            .map(|object| {
                let metadata = &object["metadata"];
                let resources: Vec<String> = object["rules"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|rule| rule["resources"].as_array().unwrap())
                    .map(text)
                    .collect();
                let (kind, namespace, name) =
                    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
                format!("{kind} {namespace}/{name}: {}", resources.join(","))
            })
            .collect()
    }

    #[test]
    fn rights_lie_where_they_are_needed_and_nowhere_else() {
        let manifest = manifest();
        let host = "Role plugins/pilot-plugins: configmaps,events";
        let leases = "Role ops/pilot-leases: leases,leases";
        let definitions = "customresourcedefinitions,customresourcedefinitions";
        let expected = format!("ClusterRole /pilot: nodes,{definitions},events,webs,webs/status");
        assert_eq!(roles(&objects(&args(&[]), &[&manifest])), [&expected, host, leases]);

        let cluster = format!("ClusterRole /pilot: nodes,{definitions}");
        let (a, b) = ("Role a/pilot: events,webs,webs/status", "Role b/pilot: events,webs,webs/status");
        assert_eq!(roles(&objects(&args(&["a", "b"]), &[&manifest])), [&cluster, a, b, host, leases]);
    }

    #[test]
    fn each_lease_is_named_and_none_without_them() {
        let leases = |args: RbacArgs| {
            let roles = objects(&args, &[]);
            roles.into_iter().find(|object| object["metadata"]["name"] == "pilot-leases")
        };
        let sharded = leases(RbacArgs { shards: 2, lease_namespace: Some("l".to_owned()), ..args(&[]) });
        let sharded = sharded.unwrap();
        assert_eq!(sharded["metadata"]["namespace"], "l");
        assert_eq!(sharded["rules"][1]["resourceNames"], json!(["pilot", "pilot-0", "pilot-1"]));
        assert_eq!(leases(args(&[])).unwrap()["rules"][1]["resourceNames"], json!(["pilot"]));
        assert!(leases(RbacArgs { leases: Switch::Off, ..args(&[]) }).is_none());
    }

    #[test]
    fn webhooks_need_their_configurations_by_name_and_a_secret() {
        let mut guarding = manifest();
        assert!(!roles(&objects(&args(&[]), &[&guarding])).iter().any(|role| role.contains("webhook")));
        let resource = json!({"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs"});
        guarding.admission = vec![serde_json::from_value(json!({"resource": resource})).unwrap()];
        let printed = objects(&args(&[]), &[&guarding]);
        assert_eq!(
            roles(&printed)[1..],
            [
                "Role plugins/pilot-plugins: configmaps,events",
                "Role ops/pilot-webhook: secrets,secrets",
                "Role ops/pilot-leases: leases,leases",
            ]
        );
        let rules = printed[0]["rules"].as_array().unwrap();
        let named: Vec<&Value> = rules
            .iter()
            .filter(|rule| rule["apiGroups"] == json!(["admissionregistration.k8s.io"]))
            .collect();
        assert_eq!((&named[0]["verbs"], &named[1]["resourceNames"]), (&json!(["create"]), &json!(["pilot"])));
        let asked = objects(&RbacArgs { webhooks: true, ..args(&[]) }, &[&manifest()]);
        assert!(roles(&asked).contains(&"Role ops/pilot-webhook: secrets,secrets".to_owned()));
    }

    #[test]
    fn roles_of_another_name_stand_beside_the_others() {
        let args = RbacArgs { role: Some("pilot-web".to_owned()), ..args(&["a"]) };
        let named = roles(&objects(&args, &[&manifest()]));
        let names: Vec<&str> =
            named.iter().filter_map(|role| role.split('/').nth(1)?.split(':').next()).collect();
        // The Leases are the host's, not the plugins': one Role for the account, however many are printed for it.
        assert_eq!(names, ["pilot-web", "pilot-web", "pilot-web-plugins", "pilot-leases"]);
        assert_eq!(objects(&args, &[&manifest()])[1]["subjects"][0]["name"], "pilot");
    }

    #[test]
    fn each_role_is_bound_to_the_account() {
        let objects = objects(&args(&["a"]), &[&manifest()]);
        for pair in objects.chunks(2) {
            assert_eq!(pair[1]["roleRef"]["name"], pair[0]["metadata"]["name"]);
            assert_eq!(pair[1]["roleRef"]["kind"], pair[0]["kind"]);
            assert_eq!(pair[1]["metadata"], pair[0]["metadata"]);
            let subject = json!({"kind": "ServiceAccount", "namespace": "ops", "name": "pilot"});
            assert_eq!(pair[1]["subjects"], json!([subject]));
        }
    }
}
