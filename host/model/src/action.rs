//! What crosses the border between the host and a plugin, as plain values: the mirror of `wit/operator.wit`.
//!
//! Nothing is checked here. JSON stays text until [`crate::plan::admit`] reads it, so that a wrong text refuses the
//! outcome with its position, whatever language the plugin was written in.

use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Reference};

/// Everything that a plugin's `reconcile` gets. Also the form in which a pass is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The object being reconciled, as JSON text.
    pub primary: String,
    /// Deletion was asked for and this plugin's finalizer is still there.
    pub deleting: bool,
    /// The plugin's configuration as JSON text.
    pub config: String,
    /// RFC 3339, UTC.
    pub now: String,
    /// Fresh in each pass.
    pub seed: u64,
    /// Objects that the primary owns, as JSON texts.
    pub children: Vec<String>,
    /// Objects that it does not own, by question.
    pub related: Vec<Answer>,
    /// What went wrong with the previous pass's actions.
    pub last: Vec<Rejected>,
}

/// The objects found for one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the manifest's rule, or id of the `look-up`.
    pub query: String,
    /// All objects are here.
    pub complete: bool,
    /// JSON texts.
    pub objects: Vec<String>,
}

/// One action of the previous pass that did not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Position in that pass's actions.
    pub index: u32,
    /// The object that it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Reference>,
    /// Why, one word.
    pub reason: RejectReason,
    /// Why, for people.
    pub message: String,
}

/// The closed list of reasons in `rejected.reason` of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RejectReason {
    /// Another field manager owns a field.
    Conflict,
    /// An immutable field would change, and the policy is to refuse.
    Immutable,
    /// The API server refused the object.
    Invalid,
    /// RBAC or a quota.
    Forbidden,
    /// An object of that name exists and is not ours.
    NotOwned,
    /// The namespace or the old object is going away.
    Terminating,
    /// The UID precondition failed.
    Gone,
    /// The API server could not be reached, or was too busy.
    Unavailable,
    /// Over the API server's size limit.
    TooLarge,
}

impl RejectReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Conflict,
        Self::Immutable,
        Self::Invalid,
        Self::Forbidden,
        Self::NotOwned,
        Self::Terminating,
        Self::Gone,
        Self::Unavailable,
        Self::TooLarge,
    ];

    /// The word of the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "Conflict",
            Self::Immutable => "Immutable",
            Self::Invalid => "Invalid",
            Self::Forbidden => "Forbidden",
            Self::NotOwned => "NotOwned",
            Self::Terminating => "Terminating",
            Self::Gone => "Gone",
            Self::Unavailable => "Unavailable",
            Self::TooLarge => "TooLarge",
        }
    }

    /// Whether trying again soon, with nothing else changed, may help. The others wait for a change and are tried
    /// at the slowest pace meanwhile.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Terminating | Self::Gone | Self::Unavailable)
    }
}

/// What a plugin decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Why the pass could not reach its goal.
    pub failure: Option<Failure>,
}

/// Why a pass could not reach its goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The user must change the primary.
    Invalid(String),
    /// Try again with backoff.
    Retry(String),
}

/// One thing that the host shall do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Server-side apply of one child.
    Apply(Apply),
    /// Delete a child or a target.
    Delete(Deletion),
    /// Change an object that the plugin does not own.
    PatchTarget(TargetPatch),
    /// A Secret with values that no plugin sees.
    GenerateSecret(SecretTemplate),
    /// The primary's status, a JSON object.
    SetStatus(String),
    /// A Kubernetes Event.
    RecordEvent(Event),
    /// Ask for related objects.
    LookUp(Query),
    /// Milliseconds.
    RequeueAfter(u64),
    /// Remove the finalizer.
    Release,
    /// Not known to this version of the contract.
    Extension(Extension),
}

/// One child as the plugin wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apply {
    /// JSON text.
    pub object: String,
    /// JSON text, may be empty.
    pub options: String,
}

/// One object to delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// Which one.
    pub target: Reference,
    /// JSON text, may be empty.
    pub options: String,
}

/// A change to an object that the plugin does not own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetPatch {
    /// Which one.
    pub target: Reference,
    /// JSON merge patch as text.
    pub patch: String,
    /// JSON text, may be empty.
    pub options: String,
}

/// A Secret whose random values the host draws once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretTemplate {
    /// Name of the Secret.
    pub name: String,
    /// Keys with values that the plugin decides.
    pub literals: Vec<KeyValue>,
    /// Keys that the host fills.
    pub random: Vec<RandomKey>,
    /// Keys made of others.
    pub composed: Vec<KeyValue>,
    /// JSON text, may be empty.
    pub options: String,
}

/// A key of a Secret and its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// Key of `data`.
    pub key: String,
    /// Text.
    pub value: String,
}

/// A key that the host draws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomKey {
    /// Key of `data`.
    pub key: String,
    /// Characters, 16 to 256.
    pub length: u32,
    /// Characters to draw from.
    pub alphabet: Alphabet,
}

/// Characters of a random key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alphabet {
    /// `A-Z a-z 0-9`
    Alphanumeric,
    /// `0-9 a-f`
    Hexadecimal,
    /// `A-Z a-z 0-9 - _`
    Base64url,
}

/// A Kubernetes Event about the primary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Its type.
    pub severity: Severity,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Severity {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// The text of an Event's `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A question for related objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// Name of the answer.
    pub id: String,
    /// Kind of the objects.
    pub kind: Kind,
    /// None for the namespace of the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A single object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text, may be empty.
    pub options: String,
}

/// An action of a later contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// JSON text.
    pub body: String,
}
