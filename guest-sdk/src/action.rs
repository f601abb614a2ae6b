//! What a pass may decide. Each action is a plain value with its options; [`Actions`] is the list of them, in the
//! order in which the host carries them out.

use std::time::Duration;

use serde_json::{Value, json};

use crate::condition::Condition;
use crate::kinds::Resource;
use crate::object::Object;

/// The actions of one pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Actions(Vec<Action>);

/// Where an action stands among those of its pass; see [`Actions::place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub(crate) usize);

impl Actions {
    /// Adds an action: an [`Apply`], [`Delete`], [`PatchTarget`], [`SecretTemplate`], [`SetStatus`], [`Event`],
    /// [`LookUp`] or [`Extension`].
    pub fn push(&mut self, action: impl Into<Action>) {
        self.0.push(action.into());
    }

    /// As [`Self::push`], and says where it stands: a later write can come [`after`](Apply::after) it.
    pub fn place(&mut self, action: impl Into<Action>) -> Position {
        self.push(action);
        Position(self.0.len() - 1)
    }

    /// Creates a child, or brings it to this state. The object has the fields that the plugin decides and no others;
    /// the host adds namespace, owner and label.
    pub fn apply(&mut self, object: Value) {
        self.push(Apply::new(object));
    }

    /// Reconciles again after this time at the latest.
    pub fn requeue_after(&mut self, delay: Duration) {
        self.0.push(Action::RequeueAfter(delay));
    }

    /// Ends the deletion: the host removes the finalizer.
    pub fn release(&mut self) {
        self.0.push(Action::Release);
    }

    /// The actions so far.
    pub fn as_slice(&self) -> &[Action] {
        &self.0
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::vec::IntoIter<Action>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One thing that the host shall do.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each case is a type with its own documentation")]
pub enum Action {
    Apply(Apply),
    Delete(Delete),
    PatchTarget(PatchTarget),
    GenerateSecret(SecretTemplate),
    SetStatus(SetStatus),
    Event(Event),
    LookUp(LookUp),
    RequeueAfter(Duration),
    Release,
    Extension(Extension),
}

macro_rules! action {
    ($($variant:ident($type:ty)),*) => {
        $(impl From<$type> for Action {
            fn from(action: $type) -> Self {
                Self::$variant(action)
            }
        })*
    };
}

action!(
    Apply(Apply),
    Delete(Delete),
    PatchTarget(PatchTarget),
    GenerateSecret(SecretTemplate),
    SetStatus(SetStatus),
    Event(Event),
    LookUp(LookUp),
    Extension(Extension)
);

/// Create one child, or bring it to this state (server-side apply).
#[derive(Debug, Clone, PartialEq)]
pub struct Apply {
    /// The fields that the plugin decides.
    pub object: Value,
    /// Never touch it again once it exists; none: as the manifest's child says.
    pub create_only: Option<bool>,
    /// What to do when the API server says that a changed field is immutable.
    pub on_immutable: OnImmutable,
    /// Writes that must have succeeded before.
    pub after: Vec<Position>,
}

/// What to do when a changed field is immutable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnImmutable {
    /// Leave the object as it is and report it in [`Pass::rejected`](crate::Pass::rejected).
    #[default]
    Refuse,
    /// Delete it without its dependents (a StatefulSet's pods live on) and create it anew.
    RecreateOrphan,
    /// Delete it with its dependents and create it anew.
    Recreate,
}

impl Apply {
    /// Of an object with the fields that the plugin decides: at least `apiVersion`, `kind` and `metadata.name`.
    pub fn new(object: Value) -> Self {
        Self { object, create_only: None, on_immutable: OnImmutable::Refuse, after: Vec::new() }
    }

    /// Never touch the object again once it exists.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.create_only = Some(true);
        self
    }

    /// What to do when the API server says that a changed field is immutable.
    #[must_use]
    pub fn on_immutable(mut self, policy: OnImmutable) -> Self {
        self.on_immutable = policy;
        self
    }

    /// Not tried in a pass in which that earlier write fails or waits.
    #[must_use]
    pub fn after(mut self, earlier: Position) -> Self {
        self.after.push(earlier);
        self
    }
}

/// Names one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// What it is.
    pub kind: Resource,
    /// None for the namespace of the primary, or cluster scope.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// That very object, and not a later one of the same name.
    pub uid: Option<String>,
}

impl Reference {
    /// Of this name, in the namespace of the primary.
    pub fn new(kind: Resource, name: &str) -> Self {
        Self { kind, namespace: None, name: name.to_owned(), uid: None }
    }

    /// To this very object.
    pub fn to(kind: Resource, object: &Object) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            kind,
            namespace: some(object.namespace()),
            name: object.name().to_owned(),
            uid: some(object.uid()),
        }
    }
}

/// Delete one child, or one object of a kind in the manifest's targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Which one.
    pub target: Reference,
    /// What happens to what it owns.
    pub propagation: Propagation,
    /// Seconds that it gets to end; none: its own.
    pub grace_period_seconds: Option<u32>,
    /// Writes that must have succeeded before.
    pub after: Vec<Position>,
}

/// What happens to what a deleted object owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Deleted afterwards.
    #[default]
    Background,
    /// Deleted first.
    Foreground,
    /// Kept.
    Orphan,
}

impl Delete {
    /// Of that object.
    pub fn new(target: Reference) -> Self {
        Self { target, propagation: Propagation::Background, grace_period_seconds: None, after: Vec::new() }
    }

    /// What happens to what it owns.
    #[must_use]
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    /// Seconds that it gets to end.
    #[must_use]
    pub fn grace_period_seconds(mut self, seconds: u32) -> Self {
        self.grace_period_seconds = Some(seconds);
        self
    }

    /// Not tried in a pass in which that earlier write fails or waits.
    #[must_use]
    pub fn after(mut self, earlier: Position) -> Self {
        self.after.push(earlier);
        self
    }
}

/// Change an object that the plugin does not own.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchTarget {
    /// Which one.
    pub target: Reference,
    /// JSON merge patch (RFC 7386).
    pub patch: Value,
    /// `status` or `scale`; none: the object itself.
    pub subresource: Option<&'static str>,
}

impl PatchTarget {
    /// A merge patch of that object.
    pub fn new(target: Reference, patch: Value) -> Self {
        Self { target, patch, subresource: None }
    }

    /// Of its status.
    #[must_use]
    pub fn of_status(mut self) -> Self {
        self.subresource = Some("status");
        self
    }

    /// Of its scale.
    #[must_use]
    pub fn of_scale(mut self) -> Self {
        self.subresource = Some("scale");
        self
    }
}

/// A Secret whose random values the host draws once, keeps, and shows to no plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretTemplate {
    /// Its name, in the namespace of the primary, which owns it.
    pub name: String,
    /// Keys with values that the plugin decides.
    pub literals: Vec<(String, String)>,
    /// Keys that the host draws.
    pub random: Vec<RandomKey>,
    /// Keys made of others.
    pub composed: Vec<(String, String)>,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its annotations.
    pub annotations: Vec<(String, String)>,
    /// Its type; none: `Opaque`.
    pub kind: Option<String>,
}

/// A key that the host draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomKey {
    /// The key.
    pub key: String,
    /// Characters, 16 to 256.
    pub length: u32,
    /// Characters to draw from.
    pub alphabet: Alphabet,
}

/// Characters to draw from; all are safe in a URI, a shell word and a connection string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// `A-Z a-z 0-9`
    Alphanumeric,
    /// `0-9 a-f`
    Hexadecimal,
    /// `A-Z a-z 0-9 - _`
    Base64Url,
}

impl SecretTemplate {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            literals: Vec::new(),
            random: Vec::new(),
            composed: Vec::new(),
            labels: Vec::new(),
            annotations: Vec::new(),
            kind: None,
        }
    }

    /// A key whose value the plugin decides.
    #[must_use]
    pub fn literal(mut self, key: &str, value: impl Into<String>) -> Self {
        self.literals.push((key.to_owned(), value.into()));
        self
    }

    /// A key that the host draws, once.
    #[must_use]
    pub fn random(mut self, key: &str, length: u32, alphabet: Alphabet) -> Self {
        self.random.push(RandomKey { key: key.to_owned(), length, alphabet });
        self
    }

    /// A key made of others: `$(key)` stands for a literal or random key's value, `$$` for a dollar sign.
    #[must_use]
    pub fn composed(mut self, key: &str, template: impl Into<String>) -> Self {
        self.composed.push((key.to_owned(), template.into()));
        self
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// A type, for example `kubernetes.io/basic-auth`.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        self.kind = Some(kind.to_owned());
        self
    }
}

/// The status of the primary; made by [`Pass::set_status`](crate::Pass::set_status). At most one in a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct SetStatus {
    pub(crate) fields: Value,
    /// Conditions, one for each name.
    pub conditions: Vec<Condition>,
    pub(crate) removed: Vec<String>,
}

impl SetStatus {
    /// With a condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Without the condition of this name, which an older version of the plugin set: what a status does not name stays.
    #[must_use]
    pub fn without_condition(mut self, name: &str) -> Self {
        self.removed.push(name.to_owned());
        self
    }

    /// The whole status as JSON, as the contract has it: a condition that goes has the status null.
    pub fn to_json(&self) -> Value {
        let mut status = self.fields.clone();
        let removed = self.removed.iter().map(|name| json!({"type": name, "status": null}));
        let conditions: Vec<Value> = self.conditions.iter().map(Condition::to_json).chain(removed).collect();
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        status
    }
}

/// A Kubernetes Event about the primary. Repeats are counted, not written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Somebody should look.
    pub warning: bool,
    /// One word in upper camel case, for machines.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Event {
    /// All is well.
    pub fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), message: message.into() }
    }

    /// Somebody should look.
    pub fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.to_owned(), message: message.into() }
    }
}

/// Ask for objects that the primary does not own. The host calls again at once with the answers, which stay until
/// the end of the pass, at most five rounds; the other actions are carried out only in the last, which asks no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// Name that the answer bears in [`Pass::related`](crate::Pass::related).
    pub id: String,
    /// What they are; of a kind in the manifest's related rules.
    pub kind: Resource,
    /// None for the namespace of the primary.
    pub namespace: Option<String>,
    /// A single object.
    pub name: Option<String>,
    /// Label selector in kubectl's syntax.
    pub selector: Option<String>,
    /// At most so many, up to [`LookUp::LIMIT_MAX`]; none: 500.
    pub limit: Option<u32>,
}

impl LookUp {
    /// The most objects that an answer can have.
    pub const LIMIT_MAX: u32 = 5_000;

    /// One object by name.
    pub fn one(id: &str, kind: Resource, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::all(id, kind) }
    }

    /// All objects of a kind.
    pub fn all(id: &str, kind: Resource) -> Self {
        Self { id: id.to_owned(), kind, namespace: None, name: None, selector: None, limit: None }
    }

    /// In another namespace, by grant.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only those that a label selector matches.
    #[must_use]
    pub fn selector(mut self, selector: &str) -> Self {
        self.selector = Some(selector.to_owned());
        self
    }

    /// At most so many, up to [`LookUp::LIMIT_MAX`].
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// An action that this version of the contract has no case for. A host that does not know the name refuses the whole
/// outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// Its body.
    pub body: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_of_an_older_version_is_taken_back_as_the_contract_says() {
        let fields = json!({"pods": 1});
        let status = SetStatus { fields, conditions: Vec::new(), removed: Vec::new() };
        assert_eq!(status.to_json(), json!({"pods": 1}));
        let status = status.condition(Condition::yes("Ready", "Done", "")).without_condition("Old");
        let conditions = status.to_json()["conditions"].clone();
        assert_eq!(conditions[0]["type"], "Ready");
        assert_eq!(conditions[1], json!({"type": "Old", "status": null}));
    }
}
