//! From what a plugin asked for to what the host will do. [`admit`](admit()) reads every JSON text of an outcome, checks each
//! action against the manifest and the limits, and returns a [`Plan`] with no choice left for whoever carries it
//! out, or a [`Refusal`] of the whole outcome: a plan is never carried out in part because of what the plugin did.

mod admit;
mod scope;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::action::{Event, Failure};
use crate::grants::Grants;
use crate::kind::{Kind, Reference};
use crate::limits::Limits;
use crate::manifest::Controller;
use crate::names::PluginName;
use crate::object::Object;
use crate::secret::Template;
use crate::update::{Method, StatusChecks};

pub use admit::admit;

/// Longest message of an event, bytes: the API server's own limit for `note` is 1,024.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1_024;
/// Events of one pass: an operator that has more to say in one pass is looping.
pub const EVENTS_MAX: usize = 16;
/// Largest status, bytes: etcd refuses objects above 1.5 MiB, and the rest of the object needs room.
pub const STATUS_BYTES_MAX: usize = 1 << 20;
/// Maps and lists in all JSON texts of one outcome. A map takes 650 bytes once it is read, `{"a":0}` in the text: 8 MiB
/// of those would be half a gigabyte. 2,000 children of 100 each fit.
pub const CONTAINERS_MAX: usize = 200_000;
/// Rounds of `look-up` in one pass, as many as Crossplane's functions have: a plugin that asks still is searching.
pub const LOOK_UP_ROUNDS_MAX: usize = 5;
/// Questions of one round of `look-up`: each is a request to the API server and an answer in memory.
pub const LOOK_UPS_MAX: usize = 16;
/// Shortest requeue, milliseconds: below this a plugin would spin.
pub const REQUEUE_MS_MIN: u64 = 100;
/// Longest requeue, milliseconds: a day; a resync comes sooner anyway.
pub const REQUEUE_MS_MAX: u64 = 86_400_000;

/// What an outcome is checked against: the very snapshot that the plugin saw.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Whose outcome it is.
    pub plugin: &'a PluginName,
    /// The controller of the primary's kind.
    pub controller: &'a Controller,
    /// The object being reconciled.
    pub primary: &'a Object,
    /// The children that the plugin saw.
    pub children: &'a [Arc<Object>],
    /// The related objects that it saw.
    pub related: &'a [Arc<Object>],
    /// As in the request.
    pub deleting: bool,
    /// Limits of the call.
    pub limits: &'a Limits,
    /// What the administrator allows this plugin beyond its own kinds and namespace.
    pub grants: &'a Grants,
    /// Namespaces that the host serves; empty: all.
    pub namespaces: &'a [String],
}

/// What will be done, in order. Nothing in it is left to interpretation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes to objects other than the primary.
    pub writes: Vec<Write>,
    /// Which of the writes touch what exists a few at a time. None while the primary is being deleted: its end waits
    /// for nobody's health.
    pub rollouts: Vec<Rollout>,
    /// The whole status that the plugin wants.
    pub status: Option<Map<String, Value>>,
    /// Events about the primary.
    pub events: Vec<Event>,
    /// The shortest requeue that was asked for, milliseconds.
    pub requeue_after_ms: Option<u64>,
    /// Remove the finalizer, once all writes succeeded.
    pub release: bool,
    /// More questions: the pass goes on with another call.
    pub look_ups: Vec<LookUp>,
    /// Why the pass could not reach its goal.
    pub failure: Option<Failure>,
}

/// One write. `index` is the position of its action in the outcome, for reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Position in the outcome's actions.
    pub index: u32,
    /// The object. Its namespace is resolved; a UID is a precondition.
    pub target: Reference,
    /// Plural name of its kind.
    pub plural: String,
    /// Positions of earlier actions that must have been carried out before.
    pub after: Vec<u32>,
    /// What to do with it.
    pub operation: Operation,
}

/// The children of one kind, which are updated a few at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Positions of their applies in [`Plan::writes`], ascending.
    pub writes: Vec<usize>,
    /// When one counts as available.
    pub checks: StatusChecks,
    /// How many may be unavailable, at least 1.
    pub unavailable_max: usize,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Server-side apply of a child.
    Apply {
        /// Complete: namespace, controller reference and label are in it. Without a UID.
        object: Value,
        /// Never touch it once it exists.
        create_only: bool,
        /// Nobody looks at more of it than its metadata.
        metadata_only: bool,
        /// What to do where it differs; how many at a time stands in [`Plan::rollouts`].
        method: Method,
        /// What to do when a changed field cannot change.
        on_immutable: OnImmutable,
        /// Take fields from other managers.
        force_conflicts: bool,
    },
    /// Create or complete a Secret.
    GenerateSecret {
        /// Labels, owner and the rest, without data.
        object: Value,
        /// How its data is made.
        template: Template,
    },
    /// Delete it; `target.uid` is always set.
    Delete {
        /// Garbage collection of its dependents.
        propagation: Propagation,
        /// None: the object's own.
        grace_period_seconds: Option<u64>,
    },
    /// JSON merge patch.
    Patch {
        /// The patch.
        patch: Value,
        /// `status`, `scale`, or the object itself.
        subresource: Option<Subresource>,
    },
}

/// Policy for immutable fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnImmutable {
    /// Report it and leave the object as it is.
    #[default]
    Refuse,
    /// Delete it without its dependents and create it again: pods of a StatefulSet stay alive and are adopted.
    RecreateOrphan,
    /// Delete it with its dependents and create it again.
    Recreate,
}

/// Deletion propagation of the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagation {
    /// Dependents go afterwards.
    #[default]
    Background,
    /// Dependents go first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    /// The API server's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Subresources that `patch-target` may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subresource {
    /// `/status`
    Status,
    /// `/scale`
    Scale,
}

/// A checked question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// Name of the answer.
    pub id: String,
    /// Kind.
    pub kind: Kind,
    /// Plural name of the kind.
    pub plural: String,
    /// None for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// A single object.
    pub name: Option<String>,
    /// kubectl's syntax.
    pub label_selector: Option<String>,
    /// Most objects in the answer.
    pub limit: usize,
}

/// Why an outcome is not carried out: the plugin's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("action {index} ({action}): {problem}")]
pub struct Refusal {
    /// Position in the outcome's actions.
    pub index: usize,
    /// Name of the action in the contract.
    pub action: &'static str,
    /// One word for metrics.
    pub reason: RefusalReason,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// The closed list of reasons of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// A text is not JSON, or not of the right form.
    Malformed,
    /// A kind that the manifest does not declare for this.
    KindNotDeclared,
    /// A kind that only a grant allows.
    KindNotGranted,
    /// A namespace other than the primary's, without a grant.
    NamespaceNotGranted,
    /// A field or option that a plugin may not set.
    NotAllowed,
    /// Over a limit of the host.
    TooMuch,
    /// Not known to this version of the contract.
    Unknown,
}

impl RefusalReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "Malformed",
            Self::KindNotDeclared => "KindNotDeclared",
            Self::KindNotGranted => "KindNotGranted",
            Self::NamespaceNotGranted => "NamespaceNotGranted",
            Self::NotAllowed => "NotAllowed",
            Self::TooMuch => "TooMuch",
            Self::Unknown => "Unknown",
        }
    }
}

/// At most `bytes_max` bytes of `text`, cut between characters.
pub fn clip(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clip("añb", 2), "a");
        assert_eq!(clip("añb", 3), "añ");
        assert_eq!(clip("ab", 5), "ab");
    }
}
