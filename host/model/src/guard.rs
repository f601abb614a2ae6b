//! What a plugin guards: kinds whose objects it checks or completes before they are stored. Stands in the manifest as
//! `admission`; the component must export the interface of that name.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::{Manifest, ManifestError, Resource};

/// One kind that a plugin guards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Guard {
    /// What it is. Requests for other versions of the kind are shown in this one.
    pub resource: Resource,
    /// Requests that are checked or completed; creations and updates unless said otherwise. Deletions are only checked.
    #[serde(default = "create_and_update")]
    pub operations: BTreeSet<GuardedOperation>,
    /// Subresources that are guarded besides.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub subresources: BTreeSet<Subresource>,
    /// `validate` is called.
    #[serde(default = "yes")]
    pub validates: bool,
    /// `default-fields` is called.
    #[serde(default)]
    pub defaults: bool,
    /// What becomes of requests while the plugin does not answer.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Seconds after which the API server gives up, 1 to 30.
    #[serde(default = "ten")]
    pub timeout_seconds: u32,
    /// Whether requests for other versions of the kind count.
    #[serde(default)]
    pub match_policy: MatchPolicy,
    /// Whether `default-fields` is called once more when a later webhook has changed the object.
    #[serde(default)]
    pub reinvocation: Reinvocation,
    /// Only objects with these labels, as the API server writes it (`matchLabels`, `matchExpressions`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<Value>,
    /// Only requests for which all of these CEL expressions hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_conditions: Vec<MatchCondition>,
}

/// A request that is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardedOperation {
    /// New objects.
    Create,
    /// Changes.
    Update,
    /// Deletions.
    Delete,
}

impl GuardedOperation {
    /// As webhook configurations write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A subresource that is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subresource {
    /// The status.
    Status,
    /// The scale.
    Scale,
}

impl Subresource {
    /// As in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
        }
    }
}

/// What becomes of requests while the plugin does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailurePolicy {
    /// They fail.
    #[default]
    Fail,
    /// They go on unchecked.
    Ignore,
}

/// Which versions of a kind count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchPolicy {
    /// All; others are converted first.
    #[default]
    Equivalent,
    /// That of the guard.
    Exact,
}

/// Whether defaults are filled in once more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reinvocation {
    /// Once for each request.
    #[default]
    Never,
    /// Again if somebody else has changed the object since.
    IfNeeded,
}

/// A condition on requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchCondition {
    /// For people.
    pub name: String,
    /// CEL.
    pub expression: String,
}

fn create_and_update() -> BTreeSet<GuardedOperation> {
    BTreeSet::from([GuardedOperation::Create, GuardedOperation::Update])
}

fn yes() -> bool {
    true
}

fn ten() -> u32 {
    10
}

impl Guard {
    /// Whether the kind is the plugin's own: it brings the definition. Others are guarded by grant only.
    pub fn is_own(&self, manifest: &Manifest) -> bool {
        manifest.crd(&self.resource.kind()).is_some()
    }

    pub(crate) fn check(&self, path: &str) -> Result<(), ManifestError> {
        self.resource.check(&format!("{path}.resource"))?;
        let wrong =
            |field: &str, problem: &str| Err(ManifestError::new(format_args!("{path}.{field}"), problem));
        if !self.validates && !self.defaults {
            return wrong("validates", "it neither validates nor defaults: leave the entry out");
        }
        if self.operations.is_empty() {
            return wrong("operations", "is empty: `create`, `update`, `delete` or several would be right");
        }
        let deletes_only = self.operations.iter().all(|one| *one == GuardedOperation::Delete);
        if self.defaults && deletes_only {
            return wrong("defaults", "nothing can be filled in when objects are deleted");
        }
        if !(1..=30).contains(&self.timeout_seconds) {
            return wrong("timeoutSeconds", "1 to 30 would be right");
        }
        if self.object_selector.as_ref().is_some_and(|selector| !selector.is_object()) {
            return wrong("objectSelector", "is no object: `{matchLabels: {...}}` would be right");
        }
        // The API server takes as many; the host may add one of its own.
        if self.match_conditions.len() > 63 {
            return wrong("matchConditions", "at most 63 would be right");
        }
        Ok(())
    }
}
