//! What the user of an application writes, and what its status says.

use pilothouse_sdk::{names, prelude::*};

/// Leaving appId out means the resource's name, so to say that name afterwards is no change.
pub(crate) const APP_ID_RULE: &str = "(has(self.spec.appId) ? self.spec.appId : self.metadata.name) == \
                                      (has(oldSelf.spec.appId) ? oldSelf.spec.appId : oldSelf.metadata.name)";
pub(crate) const APP_ID_FIXED: &str = "cannot change: create an EGApp for the other application";
pub(crate) const FRAMEWORK_FIXED: &str = "cannot change: create an EGApp for the rewritten application";

/// An application of the platform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgApp {
    /// Name of the application, which its container bears: a DNS label, the name of the resource if left out. It never
    /// changes.
    #[serde(default)]
    #[schemars(length(max = 63), regex(pattern = names::DNS_LABEL))]
    pub app_id: Option<String>,
    /// What the application is written in. It never changes.
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf", "message": FRAMEWORK_FIXED}
    ]))]
    pub framework: Framework,
    /// CPU and memory of each pod.
    #[serde(default)]
    pub instance_type: InstanceType,
    /// Stage that the application runs in.
    pub environment: Environment,
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replica_count: i32,
    /// Image of the application, which listens on port 8080; `gcr.io/kuar-demo/kuard-amd64:1` if left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
}

fn one() -> i32 {
    1
}

/// Languages that the platform knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it, and documentation would enter the schema")]
pub enum Framework {
    Java,
    Python,
    Go,
}

/// Stages that an application goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it, and documentation would enter the schema")]
pub enum Environment {
    Dev,
    Stage,
    Prod,
}

/// Sizes of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum InstanceType {
    /// 100m CPU and 128Mi memory.
    #[default]
    LowMem,
    /// 250m CPU and 1Gi memory.
    HighMem,
    /// 1 CPU and 256Mi memory.
    #[serde(rename = "highCPU")]
    HighCpu,
    /// 500m CPU and 512Mi memory.
    Balanced,
}

impl InstanceType {
    /// CPU and memory, in the form in which the API server keeps them.
    pub(crate) fn resources(self) -> (&'static str, &'static str) {
        match self {
            Self::LowMem => ("100m", "128Mi"),
            Self::HighMem => ("250m", "1Gi"),
            Self::HighCpu => ("1", "256Mi"),
            Self::Balanced => ("500m", "512Mi"),
        }
    }
}

/// What is chosen once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the application.
    pub app_id: String,
    /// What it is written in.
    pub framework: Framework,
}

impl EgApp {
    /// What this spec of a resource of this name would choose.
    pub fn identity(&self, name: &str) -> Identity {
        Identity { app_id: self.app_id.as_deref().unwrap_or(name).to_owned(), framework: self.framework }
    }
}

impl Identity {
    /// What was chosen for this resource; none if nothing was made of it yet. It is kept in the status, as anybody may
    /// edit the Deployment: then the choice there is what is wrong, and put back.
    pub fn of(resource: &Value) -> Option<Self> {
        Self::deserialize(resource.pointer("/status/identity")?).ok()
    }
}

/// Status of an application, beside its condition `Ready`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgAppStatus {
    /// Names of the application's pods, sorted.
    pub pods: Vec<String>,
    /// Number of pods that the Deployment counts.
    pub replicas: i64,
    /// Number of pods that are ready.
    pub ready_replicas: i64,
    /// Label selector of the pods, for autoscalers.
    pub selector: String,
    /// What was chosen when the application was made, and cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}
