//! The kinds that tests look at.

use kube::{Api, Client, api::ApiResource, core::DynamicObject};

/// A namespaced kind: `apiVersion`, `kind` and plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub &'static str, pub &'static str, pub &'static str);

/// `postgresclusters.db.example.com`
pub const POSTGRES_CLUSTER: Kind = Kind("db.example.com/v1alpha1", "PostgresCluster", "postgresclusters");
/// `greetings.example.com`, of the plugin `config-map`
pub const GREETING: Kind = Kind("example.com/v1alpha1", "Greeting", "greetings");
/// `podreplicas.app.example.com`
pub const POD_REPLICA: Kind = Kind("app.example.com/v1alpha1", "PodReplica", "podreplicas");
/// `chaospods.app.example.com`
pub const CHAOS_POD: Kind = Kind("app.example.com/v1alpha1", "ChaosPod", "chaospods");
/// `egapps.egplatform.platform.evillgenius.com`
pub const EG_APP: Kind = Kind("egplatform.platform.evillgenius.com/v1alpha1", "EGApp", "egapps");
/// `deployments.apps`
pub const DEPLOYMENT: Kind = Kind("apps/v1", "Deployment", "deployments");
/// `statefulsets.apps`
pub const STATEFUL_SET: Kind = Kind("apps/v1", "StatefulSet", "statefulsets");
/// `services`
pub const SERVICE: Kind = Kind("v1", "Service", "services");
/// `secrets`
pub const SECRET: Kind = Kind("v1", "Secret", "secrets");
/// `configmaps`
pub const CONFIG_MAP: Kind = Kind("v1", "ConfigMap", "configmaps");
/// `pods`
pub const POD: Kind = Kind("v1", "Pod", "pods");
/// `poddisruptionbudgets.policy`
pub const POD_DISRUPTION_BUDGET: Kind = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");
/// `leases.coordination.k8s.io`
pub const LEASE: Kind = Kind("coordination.k8s.io/v1", "Lease", "leases");
/// `events.events.k8s.io`
pub const EVENT: Kind = Kind("events.k8s.io/v1", "Event", "events");

/// `validatingwebhookconfigurations.admissionregistration.k8s.io`
pub const VALIDATING: Kind = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
/// `mutatingwebhookconfigurations.admissionregistration.k8s.io`
pub const MUTATING: Kind =
    Kind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");

impl Kind {
    /// The objects of this kind in a namespace.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// The objects of this kind, which has no namespaces.
    pub fn cluster_api(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    fn resource(self) -> ApiResource {
        let Self(api_version, kind, plural) = self;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }
}
