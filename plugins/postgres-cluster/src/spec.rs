//! What the user of a cluster writes, and the checks that a schema cannot make.

use pilothouse_sdk::prelude::*;

use crate::quantity::{Cpu, Memory, Storage};

/// A PostgreSQL cluster.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresCluster {
    /// Number of instances.
    #[schemars(range(min = 1, max = 5))]
    pub replicas: i32,
    /// Major version of PostgreSQL. It never changes; a minor upgrade is a change of `image`.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": MAJOR_UPGRADE}]))]
    pub version: Version,
    /// Size of each instance's volume, for example `20Gi`.
    #[schemars(regex(pattern = "^[0-9]+Gi$"))]
    pub storage: String,
    /// Image with PostgreSQL of that major version, in the layout of the official one; `postgres:VERSION` if left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// StorageClass of the volumes; the cluster's default if left out. It is chosen once.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub storage_class: Option<String>,
    /// CPU and memory of each instance.
    #[serde(default)]
    pub resources: Option<Resources>,
}

const MAJOR_UPGRADE: &str = "a major upgrade is not done in place: create a PostgresCluster of the new version and move \
                             the data with pg_dump and pg_restore; for a minor upgrade change spec.image";

/// Major versions that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it, and documentation would enter the schema")]
pub enum Version {
    #[serde(rename = "15")]
    V15,
    #[serde(rename = "16")]
    V16,
}

impl Version {
    /// As the user writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V15 => "15",
            Self::V16 => "16",
        }
    }
}

/// CPU and memory of an instance, as in a container's `resources`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Resources {
    /// What is reserved; 100m and 256Mi if left out.
    #[serde(default)]
    pub requests: Option<Amounts>,
    /// What is allowed at most; unlimited if left out.
    #[serde(default)]
    pub limits: Option<Amounts>,
}

/// Amounts of CPU and memory.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Amounts {
    /// Cores, for example `2` or `500m`.
    #[serde(default)]
    #[schemars(regex(pattern = "^([0-9]{1,6}m|[0-9]{1,3}([.][0-9]{1,3})?)$"))]
    pub cpu: Option<String>,
    /// Memory, for example `512Mi` or `4Gi`.
    #[serde(default)]
    #[schemars(regex(pattern = "^[0-9]{1,7}[MG]i$"))]
    pub memory: Option<String>,
}

/// Reserved where the user says nothing: enough for PostgreSQL's defaults, so that the scheduler knows of it.
const CPU_DEFAULT: &str = "100m";
const MEMORY_DEFAULT: &str = "256Mi";

/// The spec after all checks: what the plan is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) replicas: i32,
    pub(crate) image: String,
    pub(crate) storage: Storage,
    pub(crate) storage_class: Option<String>,
    pub(crate) requests: (Cpu, Memory),
    pub(crate) limits: (Option<Cpu>, Option<Memory>),
}

impl PostgresCluster {
    /// Checks what the schema cannot, in case of zero or of a request above its limit.
    pub(crate) fn check(&self) -> Result<Checked, Failure> {
        let resources = self.resources.clone().unwrap_or_default();
        let requests = resources.requests.unwrap_or_default();
        let limits = resources.limits.unwrap_or_default();

        let cpu_limit = limits.cpu.map(|text| Cpu::parse("spec.resources.limits.cpu", &text)).transpose()?;
        let memory_limit =
            limits.memory.map(|text| Memory::parse("spec.resources.limits.memory", &text)).transpose()?;
        let cpu = match requests.cpu {
            Some(text) => Cpu::parse("spec.resources.requests.cpu", &text)?,
            None => at_most(Cpu::parse("", CPU_DEFAULT)?, cpu_limit),
        };
        let memory = match requests.memory {
            Some(text) => Memory::parse("spec.resources.requests.memory", &text)?,
            None => at_most(Memory::parse("", MEMORY_DEFAULT)?, memory_limit),
        };
        if cpu_limit.is_some_and(|limit| cpu > limit) {
            return Err(Failure::invalid(
                "spec.resources.requests.cpu",
                "is more than spec.resources.limits.cpu",
            ));
        }
        if memory_limit.is_some_and(|limit| memory > limit) {
            let problem = "is more than spec.resources.limits.memory";
            return Err(Failure::invalid("spec.resources.requests.memory", problem));
        }
        Ok(Checked {
            replicas: self.replicas,
            image: match &self.image {
                Some(image) => image.clone(),
                None => ["postgres:", self.version.as_str()].concat(),
            },
            storage: Storage::parse("spec.storage", &self.storage)?,
            storage_class: self.storage_class.clone(),
            requests: (cpu, memory),
            limits: (cpu_limit, memory_limit),
        })
    }
}

/// A default gives way to the user's limit.
fn at_most<T: Ord>(default: T, limit: Option<T>) -> T {
    match limit {
        Some(limit) => default.min(limit),
        None => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Value)) -> Result<Checked, Failure> {
        let mut spec = json!({"replicas": 3, "version": "16", "storage": "20Gi"});
        change(&mut spec);
        let spec: PostgresCluster = pilothouse_sdk::serde_json::from_value(spec).unwrap();
        spec.check()
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let checked = check(|_| {}).unwrap();
        assert_eq!(checked.image, "postgres:16");
        assert_eq!(
            (checked.requests.0.to_string(), checked.requests.1.to_string()),
            ("100m".into(), "256Mi".into())
        );
        assert_eq!(checked.limits, (None, None));
    }

    #[test]
    fn a_default_request_gives_way_to_a_lower_limit() {
        let checked =
            check(|spec| spec["resources"] = json!({"limits": {"cpu": "50m", "memory": "128Mi"}})).unwrap();
        assert_eq!(
            (checked.requests.0.to_string(), checked.requests.1.to_string()),
            ("50m".into(), "128Mi".into())
        );
    }

    #[test]
    fn what_the_schema_cannot_refuse_is_refused_with_the_fields_name() {
        let cases: [(&str, Value, &str); 4] = [
            ("storage", json!("0Gi"), "spec.storage: "),
            ("storage", json!("99999999999Gi"), "spec.storage: "),
            (
                "resources",
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}),
                "spec.resources.requests.cpu: is more than spec.resources.limits.cpu",
            ),
            (
                "resources",
                json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1025Mi"}}),
                "spec.resources.requests.memory: is more than spec.resources.limits.memory",
            ),
        ];
        for (field, value, expected) in cases {
            let Err(Failure::Invalid(text)) = check(|spec| spec[field] = value.clone()) else {
                panic!("{field}: {value} was accepted")
            };
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
