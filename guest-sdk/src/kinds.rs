//! [`Resource`]: a kind together with what the API server's paths and RBAC rules need of it, and constants for the
//! built-in kinds that operators use most.

use serde_json::{Value, json};

/// A kind, its plural name and its scope. The host checks it against the API server when the plugin is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group, `""` for the core group.
    pub group: &'static str,
    /// Version within the group, for example `v1`.
    pub version: &'static str,
    /// Kind in upper camel case, for example `StatefulSet`.
    pub kind: &'static str,
    /// Plural name in lower case, for example `statefulsets`.
    pub plural: &'static str,
    /// Where its objects live.
    pub scope: Scope,
}

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In none.
    Cluster,
}

impl Scope {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "Namespaced",
            Self::Cluster => "Cluster",
        }
    }
}

impl Resource {
    /// A kind whose objects live in a namespace.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, kind, plural, scope: Scope::Namespaced }
    }

    /// A kind whose objects live in no namespace.
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, kind, plural, scope: Scope::Cluster }
    }

    /// The text of `apiVersion`: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { [self.group, "/", self.version].concat() }
    }

    /// The beginning of an object of this kind: `apiVersion`, `kind` and `metadata.name`.
    pub fn object(&self, name: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.kind, "metadata": {"name": name}})
    }

    /// Whether `object` is of this kind.
    pub fn is_kind_of(&self, object: &Value) -> bool {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        self.is_named(text("apiVersion"), text("kind"))
    }

    pub(crate) fn is_named(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        kind == self.kind && group == self.group && version == self.version
    }

    /// As the manifest writes it.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "group": self.group,
            "version": self.version,
            "kind": self.kind,
            "plural": self.plural,
            "scope": self.scope.as_str(),
        })
    }
}

macro_rules! built_in {
    ($($(#[$doc:meta])* $name:ident = $scope:ident($group:literal, $version:literal, $kind:literal, $plural:literal);)*) => {
        $($(#[$doc])* pub const $name: Resource = Resource::$scope($group, $version, $kind, $plural);)*
    };
}

built_in! {
    /// Plain configuration.
    CONFIG_MAP = namespaced("", "v1", "ConfigMap", "configmaps");
    /// Credentials; a plugin sees the keys, not the values.
    SECRET = namespaced("", "v1", "Secret", "secrets");
    /// A stable name and address for pods.
    SERVICE = namespaced("", "v1", "Service", "services");
    /// Identity of pods towards the API server.
    SERVICE_ACCOUNT = namespaced("", "v1", "ServiceAccount", "serviceaccounts");
    /// The unit that runs.
    POD = namespaced("", "v1", "Pod", "pods");
    /// A claim to a volume.
    PERSISTENT_VOLUME_CLAIM = namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    /// A machine.
    NODE = cluster("", "v1", "Node", "nodes");
    /// A namespace.
    NAMESPACE = cluster("", "v1", "Namespace", "namespaces");
    /// Stateless pods.
    DEPLOYMENT = namespaced("apps", "v1", "Deployment", "deployments");
    /// Pods with identities and volumes.
    STATEFUL_SET = namespaced("apps", "v1", "StatefulSet", "statefulsets");
    /// A pod on each node.
    DAEMON_SET = namespaced("apps", "v1", "DaemonSet", "daemonsets");
    /// Pods that finish.
    JOB = namespaced("batch", "v1", "Job", "jobs");
    /// Jobs by the clock.
    CRON_JOB = namespaced("batch", "v1", "CronJob", "cronjobs");
    /// How many pods a drain may take away.
    POD_DISRUPTION_BUDGET = namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    /// Scaling by load.
    HORIZONTAL_POD_AUTOSCALER = namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    /// HTTP from outside.
    INGRESS = namespaced("networking.k8s.io", "v1", "Ingress", "ingresses");
    /// Who may talk to whom.
    NETWORK_POLICY = namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
    /// Permissions in a namespace; needs a grant by name.
    ROLE = namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles");
    /// Who has a Role; needs a grant by name.
    ROLE_BINDING = namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
}
