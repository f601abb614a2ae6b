//! From what a plugin asked for to what the host will do. [`admit`] reads every JSON text of an outcome, checks each
//! action against the manifest and the limits, and returns a [`Plan`] with no choice left for whoever carries it
//! out, or a [`Refusal`] of the whole outcome: a plan is never carried out in part because of what the plugin did.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::action::{Action, Apply, Deletion, Event, Failure, Outcome, Query, SecretTemplate, TargetPatch};
use crate::kind::{Kind, Reference};
use crate::limits::Limits;
use crate::manifest::{Child, Controller, Scope, TargetVerb};
use crate::names::{MANAGED_LABEL, PluginName};
use crate::object::Object;
use crate::secret::{self, Template};

/// Longest message of an event, bytes: the API server's own limit for `note` is 1,024.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1_024;
/// Events of one pass: an operator that has more to say in one pass is looping.
pub const EVENTS_MAX: usize = 16;
/// Largest status, bytes: etcd refuses objects above 1.5 MiB, and the rest of the object needs room.
pub const STATUS_BYTES_MAX: usize = 1 << 20;
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
}

/// What will be done, in order. Nothing in it is left to interpretation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes to objects other than the primary.
    pub writes: Vec<Write>,
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
    /// What to do with it.
    pub operation: Operation,
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
    /// A namespace other than the primary's.
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
            Self::NamespaceNotGranted => "NamespaceNotGranted",
            Self::NotAllowed => "NotAllowed",
            Self::TooMuch => "TooMuch",
            Self::Unknown => "Unknown",
        }
    }
}

type Refused = (RefusalReason, String);

/// Checks an outcome and makes the plan of it.
pub fn admit(outcome: Outcome, cx: &Context<'_>) -> Result<Plan, Refusal> {
    let mut plan = Plan { failure: outcome.failure, ..Plan::default() };
    for (index, action) in outcome.actions.into_iter().enumerate() {
        let name = name_of(&action);
        admit_action(index, action, cx, &mut plan).map_err(|(reason, problem)| Refusal {
            index,
            action: name,
            reason,
            problem,
        })?;
    }
    Ok(plan)
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Apply(_) => "apply",
        Action::Delete(_) => "delete",
        Action::PatchTarget(_) => "patch-target",
        Action::GenerateSecret(_) => "generate-secret",
        Action::SetStatus(_) => "set-status",
        Action::RecordEvent(_) => "record-event",
        Action::LookUp(_) => "look-up",
        Action::RequeueAfter(_) => "requeue-after",
        Action::Release => "release",
        Action::Extension(_) => "extension",
    }
}

fn admit_action(index: usize, action: Action, cx: &Context<'_>, plan: &mut Plan) -> Result<(), Refused> {
    // The number of actions is bounded by `Limits::actions`, far below u32.
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    if index as u64 >= cx.limits.actions {
        return Err((RefusalReason::TooMuch, format!("more than {} actions", cx.limits.actions)));
    }
    match action {
        Action::Apply(apply) => plan.writes.push(admit_apply(index, &apply, cx)?),
        Action::GenerateSecret(template) => plan.writes.push(admit_secret(index, template, cx)?),
        Action::Delete(deletion) => {
            if let Some(write) = admit_deletion(index, deletion, cx)? {
                plan.writes.push(write);
            }
        }
        Action::PatchTarget(patch) => plan.writes.push(admit_patch(index, patch, cx)?),
        Action::SetStatus(text) => {
            if plan.status.is_some() {
                return Err((RefusalReason::NotAllowed, "a second status in one outcome".to_owned()));
            }
            plan.status = Some(admit_status(&text)?);
        }
        Action::RecordEvent(event) => {
            if plan.events.len() == EVENTS_MAX {
                return Err((RefusalReason::TooMuch, format!("more than {EVENTS_MAX} events")));
            }
            plan.events.push(admit_event(event)?);
        }
        Action::LookUp(query) => plan.look_ups.push(admit_look_up(query, cx)?),
        Action::RequeueAfter(ms) => {
            let ms = ms.clamp(REQUEUE_MS_MIN, REQUEUE_MS_MAX);
            plan.requeue_after_ms = Some(plan.requeue_after_ms.map_or(ms, |other| other.min(ms)));
        }
        Action::Release => {
            if !cx.deleting {
                let problem = "the object is not being deleted, or its finalizer is gone";
                return Err((RefusalReason::NotAllowed, problem.to_owned()));
            }
            plan.release = true;
        }
        Action::Extension(extension) => {
            let problem = format!("`{}` is not known to this host", clip(&extension.name, 128));
            return Err((RefusalReason::Unknown, problem));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApplyOptions {
    create_only: Option<bool>,
    #[serde(default)]
    on_immutable: OnImmutable,
}

fn admit_apply(index: u32, apply: &Apply, cx: &Context<'_>) -> Result<Write, Refused> {
    let options: ApplyOptions = options(&apply.options)?;
    let mut object: Value = serde_json::from_str(&apply.object)
        .map_err(|error| (RefusalReason::Malformed, format!("object: {error}")))?;
    let kind = kind_of(&object)?;
    let child = declared_child(&kind, cx)?;
    if object.get("status").is_some() {
        return Err((RefusalReason::NotAllowed, "object.status: belongs to another controller".to_owned()));
    }
    let target = own_child(&mut object, child, cx)?;
    Ok(Write {
        index,
        target,
        plural: child.resource.plural.clone(),
        operation: Operation::Apply {
            object,
            create_only: options.create_only.unwrap_or(child.create_only),
            on_immutable: options.on_immutable,
            force_conflicts: child.force_conflicts,
        },
    })
}

/// Fields of `metadata` that an author decides; the others are the API server's or the host's.
const AUTHORS_METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// Checks the child's metadata and writes into it what makes it ours: namespace, controller reference, label.
fn own_child(object: &mut Value, child: &Child, cx: &Context<'_>) -> Result<Reference, Refused> {
    let kind = child.resource.kind();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err((RefusalReason::Malformed, "object.metadata: is missing".to_owned()));
    };
    if let Some(field) = metadata.keys().find(|key| !AUTHORS_METADATA.contains(&key.as_str())) {
        let problem = format!(
            "object.metadata.{}: is not a plugin's to set, only {}",
            clip(field, 64),
            AUTHORS_METADATA.join(", ")
        );
        return Err((RefusalReason::NotAllowed, problem));
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    check_name(&name)
        .map_err(|problem| (RefusalReason::Malformed, format!("object.metadata.name: {problem}")))?;
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(namespace)) => Some(namespace.clone()),
        Some(_) => {
            return Err((RefusalReason::Malformed, "object.metadata.namespace: is no text".to_owned()));
        }
    };
    let namespace = namespace_for(&kind, child.resource.scope, namespace, cx)?;
    match &namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace.clone())),
        None => metadata.remove("namespace"),
    };
    if let Some(labels) = metadata.get("labels")
        && !labels.is_object()
        && !labels.is_null()
    {
        return Err((RefusalReason::Malformed, "object.metadata.labels: is no mapping".to_owned()));
    }
    if metadata.get("labels").is_none_or(Value::is_null) {
        metadata.insert("labels".to_owned(), json!({}));
    }
    metadata["labels"][MANAGED_LABEL] = Value::String(cx.plugin.to_string());
    let primary = cx.primary.meta();
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": cx.primary.kind().api_version(),
            "kind": cx.primary.kind().kind,
            "name": &*primary.name,
            "uid": &*primary.uid,
            "controller": true,
            "blockOwnerDeletion": true
        }]),
    );
    Ok(Reference { kind, namespace, name, uid: None })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SecretOptions {
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    annotations: Map<String, Value>,
    #[serde(default = "opaque", rename = "type")]
    type_name: String,
}

fn opaque() -> String {
    "Opaque".to_owned()
}

fn admit_secret(index: u32, asked: SecretTemplate, cx: &Context<'_>) -> Result<Write, Refused> {
    let options: SecretOptions = options(&asked.options)?;
    let child = declared_child(&Kind::new("", "v1", "Secret"), cx)?;
    let mut metadata = json!({"name": asked.name});
    for (field, map) in [("labels", options.labels), ("annotations", options.annotations)] {
        if !map.is_empty() {
            metadata[field] = Value::Object(map);
        }
    }
    let mut object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": options.type_name});
    let target = own_child(&mut object, child, cx)?;
    let template = secret::check(asked).map_err(|problem| (RefusalReason::Malformed, problem))?;
    let plural = child.resource.plural.clone();
    Ok(Write { index, target, plural, operation: Operation::GenerateSecret { object, template } })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeletionOptions {
    #[serde(default)]
    propagation: Propagation,
    grace_period_seconds: Option<u64>,
}

/// None if the object was not in the snapshot: a name that the plugin never saw alive is not deleted.
fn admit_deletion(index: u32, deletion: Deletion, cx: &Context<'_>) -> Result<Option<Write>, Refused> {
    let options: DeletionOptions = options(&deletion.options)?;
    let mut target = deletion.target;
    let child = cx.controller.child(&target.kind);
    let resource = match (child, cx.controller.target(&target.kind)) {
        (Some(child), _) => &child.resource,
        (None, Some(declared)) if declared.verbs.contains(&TargetVerb::Delete) => &declared.resource,
        _ => return Err(not_declared(&target.kind, "children or targets with the verb delete", cx)),
    };
    target.namespace = namespace_for(&target.kind, resource.scope, target.namespace.take(), cx)?;
    let seen = cx.children.iter().chain(cx.related).find(|object| {
        let meta = object.meta();
        object.kind() == &target.kind
            && *meta.name == *target.name
            && meta.namespace.as_deref() == target.namespace.as_deref()
    });
    let Some(seen) = seen else { return Ok(None) };
    if target.uid.is_none() {
        target.uid = Some(seen.meta().uid.to_string());
    }
    let operation = Operation::Delete {
        propagation: options.propagation,
        grace_period_seconds: options.grace_period_seconds,
    };
    Ok(Some(Write { index, target, plural: resource.plural.clone(), operation }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchOptions {
    subresource: Option<Subresource>,
}

fn admit_patch(index: u32, asked: TargetPatch, cx: &Context<'_>) -> Result<Write, Refused> {
    let options: PatchOptions = options(&asked.options)?;
    let mut target = asked.target;
    let Some(declared) =
        cx.controller.target(&target.kind).filter(|declared| declared.verbs.contains(&TargetVerb::Patch))
    else {
        return Err(not_declared(&target.kind, "targets with the verb patch", cx));
    };
    check_name(&target.name)
        .map_err(|problem| (RefusalReason::Malformed, format!("target.name: {problem}")))?;
    target.namespace = namespace_for(&target.kind, declared.resource.scope, target.namespace.take(), cx)?;
    let patch: Value = serde_json::from_str(&asked.patch)
        .map_err(|error| (RefusalReason::Malformed, format!("patch: {error}")))?;
    let Some(fields) = patch.as_object() else {
        return Err((RefusalReason::Malformed, "patch: is no JSON object".to_owned()));
    };
    if let Some(metadata) = fields.get("metadata") {
        let allowed = metadata
            .as_object()
            .is_some_and(|fields| fields.keys().all(|key| key == "labels" || key == "annotations"));
        if !allowed {
            let problem = "patch.metadata: only labels and annotations may be changed";
            return Err((RefusalReason::NotAllowed, problem.to_owned()));
        }
    }
    let operation = Operation::Patch { patch, subresource: options.subresource };
    Ok(Write { index, target, plural: declared.resource.plural.clone(), operation })
}

fn admit_status(text: &str) -> Result<Map<String, Value>, Refused> {
    if text.len() > STATUS_BYTES_MAX {
        return Err((
            RefusalReason::TooMuch,
            format!("status: {} bytes, at most {STATUS_BYTES_MAX}", text.len()),
        ));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(status)) => {
            crate::condition::check(&status).map_err(|problem| (RefusalReason::Malformed, problem))?;
            Ok(status)
        }
        Ok(_) => Err((RefusalReason::Malformed, "status: is no JSON object".to_owned())),
        Err(error) => Err((RefusalReason::Malformed, format!("status: {error}"))),
    }
}

fn admit_event(mut event: Event) -> Result<Event, Refused> {
    let right = !event.reason.is_empty()
        && event.reason.len() <= 128
        && event.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !right {
        let problem = format!("reason: `{}` is not one word of letters and digits", clip(&event.reason, 128));
        return Err((RefusalReason::Malformed, problem));
    }
    event.message = clip(&event.message, EVENT_MESSAGE_BYTES_MAX).to_owned();
    Ok(event)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueryOptions {
    label_selector: Option<String>,
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    500
}

fn admit_look_up(query: Query, cx: &Context<'_>) -> Result<LookUp, Refused> {
    let options: QueryOptions = options(&query.options)?;
    let Some(declared) = cx.controller.related.iter().find(|rule| rule.resource.kind() == query.kind) else {
        return Err(not_declared(&query.kind, "related", cx));
    };
    if query.id.is_empty()
        || query.id.len() > 128
        || cx.controller.related.iter().any(|rule| rule.name == query.id)
    {
        let problem = format!(
            "id: `{}` must have 1 to 128 characters and differ from the manifest's rules",
            clip(&query.id, 128)
        );
        return Err((RefusalReason::Malformed, problem));
    }
    if options.limit == 0 || options.limit > 5_000 {
        return Err((
            RefusalReason::TooMuch,
            format!("options.limit: {}, 1 to 5000 would be right", options.limit),
        ));
    }
    let namespace = namespace_for(&query.kind, declared.resource.scope, query.namespace, cx)?;
    Ok(LookUp {
        id: query.id,
        kind: query.kind,
        plural: declared.resource.plural.clone(),
        namespace,
        name: query.name,
        label_selector: options.label_selector,
        limit: options.limit,
    })
}

fn declared_child<'a>(kind: &Kind, cx: &Context<'a>) -> Result<&'a Child, Refused> {
    cx.controller.child(kind).ok_or_else(|| not_declared(kind, "children", cx))
}

fn not_declared(kind: &Kind, list: &str, cx: &Context<'_>) -> Refused {
    let problem = format!("{kind} is not among the {list} of {}'s manifest", cx.plugin);
    (RefusalReason::KindNotDeclared, problem)
}

/// The namespace in which an action of this plugin takes place.
fn namespace_for(
    kind: &Kind,
    scope: Scope,
    asked: Option<String>,
    cx: &Context<'_>,
) -> Result<Option<String>, Refused> {
    let own = cx.primary.meta().namespace.as_deref();
    let refuse = |problem: String| Err((RefusalReason::NamespaceNotGranted, problem));
    match (scope, asked) {
        (Scope::Cluster, Some(namespace)) => {
            refuse(format!("{kind} is cluster-scoped, yet namespace `{}` is named", clip(&namespace, 63)))
        }
        (Scope::Cluster, None) => match own {
            None => Ok(None),
            Some(_) => refuse(format!("{kind} is cluster-scoped, outside the namespace of the primary")),
        },
        (Scope::Namespaced, asked) => match (asked, own) {
            (Some(asked), Some(own)) if asked == own => Ok(Some(asked)),
            (None, Some(own)) => Ok(Some(own.to_owned())),
            (Some(asked), Some(own)) => {
                let asked = clip(&asked, 63).to_owned();
                refuse(format!("namespace `{asked}` is not that of the primary, `{own}`"))
            }
            (Some(asked), None) => Ok(Some(asked)),
            (None, None) => refuse(format!("{kind} needs a namespace, as its primary has none")),
        },
    }
}

fn kind_of(object: &Value) -> Result<Kind, Refused> {
    let field = |name: &str| match object.get(name).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err((RefusalReason::Malformed, format!("object.{name}: is missing"))),
    };
    Ok(Kind::from_api_version(&field("apiVersion")?, &field("kind")?))
}

/// Names as the API server's paths take them; what more a kind wants, the API server says.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 253 || name == "." || name == ".." || name.contains(['/', '%']) {
        return Err(format!("`{}` is not a name", clip(name, 253)));
    }
    Ok(())
}

fn options<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Refused> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| (RefusalReason::Malformed, format!("options: {error}")))
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
    use crate::action::{Alphabet, Extension, RandomKey, Severity};
    use crate::manifest::Manifest;

    struct Case {
        manifest: Manifest,
        primary: Object,
        children: Vec<Arc<Object>>,
        limits: Limits,
        deleting: bool,
    }

    impl Case {
        fn new() -> Self {
            let resource = |group: &str, kind: &str, plural: &str| json!({"group": group, "version": "v1", "kind": kind, "plural": plural});
            let manifest = json!({
                "name": "web", "version": "1",
                "controllers": [{
                    "primary": resource("example.com", "Web", "webs"),
                    "children": [
                        {"resource": resource("", "ConfigMap", "configmaps")},
                        {"resource": resource("", "Secret", "secrets")}
                    ],
                    "related": [{"name": "nodes", "resource":
                        {"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"}},
                        {"name": "pods", "resource": resource("", "Pod", "pods")}],
                    "targets": [{"resource": resource("", "Pod", "pods"), "verbs": ["delete"]},
                        {"resource": resource("", "Service", "services"), "verbs": ["patch"]}],
                    "finalizer": "example.com/f"
                }]
            });
            let primary = json!({"apiVersion": "example.com/v1", "kind": "Web",
                "metadata": {"name": "a", "namespace": "shop", "uid": "u-1"}});
            let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "shop", "uid": "u-2"}});
            Self {
                manifest: Manifest::parse(&manifest.to_string()).unwrap(),
                primary: Object::from_value(&primary).unwrap(),
                children: vec![Arc::new(Object::from_value(&child).unwrap())],
                limits: Limits::default(),
                deleting: false,
            }
        }

        fn admit(&self, actions: Vec<Action>) -> Result<Plan, Refusal> {
            let cx = Context {
                plugin: &self.manifest.name,
                controller: &self.manifest.controllers[0],
                primary: &self.primary,
                children: &self.children,
                related: &[],
                deleting: self.deleting,
                limits: &self.limits,
            };
            admit(Outcome { actions, failure: None }, &cx)
        }

        fn refuses(&self, action: Action, reason: RefusalReason, part: &str) {
            let refusal = self.admit(vec![Action::RequeueAfter(1), action]).unwrap_err();
            assert_eq!((refusal.index, refusal.reason), (1, reason), "{refusal}");
            assert!(refusal.to_string().contains(part), "{refusal}");
        }
    }

    fn apply(object: Value, options: &str) -> Action {
        Action::Apply(Apply { object: object.to_string(), options: options.to_owned() })
    }

    fn config_map(metadata: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}})
    }

    fn reference(kind: &str, name: &str) -> Reference {
        Reference { kind: Kind::new("", "v1", kind), namespace: None, name: name.to_owned(), uid: None }
    }

    #[test]
    fn a_child_is_made_ours() {
        let plan = Case::new()
            .admit(vec![apply(config_map(json!({"name": "a", "labels": {"x": "y"}})), "")])
            .unwrap();
        let [Write { target, plural, operation: Operation::Apply { object, create_only, .. }, .. }] =
            &plan.writes[..]
        else {
            panic!("{plan:?}")
        };
        assert_eq!(target.to_string(), "ConfigMap.v1 shop/a");
        assert_eq!((plural.as_str(), *create_only), ("configmaps", false));
        assert_eq!(
            object["metadata"],
            json!({
                "name": "a", "namespace": "shop", "labels": {"x": "y", MANAGED_LABEL: "web"},
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Web", "name": "a", "uid": "u-1",
                    "controller": true, "blockOwnerDeletion": true}]
            })
        );
    }

    #[test]
    fn what_a_manifest_does_not_allow_refuses_the_whole_outcome() {
        use RefusalReason::{KindNotDeclared, Malformed, NamespaceNotGranted, NotAllowed, TooMuch, Unknown};
        let case = Case::new();
        let role =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}});
        case.refuses(
            apply(role, ""),
            KindNotDeclared,
            "Role.v1.rbac.authorization.k8s.io is not among the children",
        );
        case.refuses(
            apply(config_map(json!({"name": "a", "namespace": "kube-system"})), ""),
            NamespaceNotGranted,
            "`kube-system` is not that of the primary, `shop`",
        );
        for field in ["uid", "ownerReferences", "resourceVersion", "generateName"] {
            case.refuses(apply(config_map(json!({"name": "a", field: "x"})), ""), NotAllowed, field);
        }
        case.refuses(apply(config_map(json!({"name": "../x"})), ""), Malformed, "metadata.name");
        case.refuses(apply(config_map(json!({"name": "a"})), "{\"force\":true}"), Malformed, "`force`");
        case.refuses(
            Action::Apply(Apply { object: "{".to_owned(), options: String::new() }),
            Malformed,
            "object: ",
        );
        case.refuses(Action::Release, NotAllowed, "not being deleted");
        case.refuses(Action::SetStatus("[]".to_owned()), Malformed, "no JSON object");
        case.refuses(
            Action::Extension(Extension { name: "x.io/y".to_owned(), body: String::new() }),
            Unknown,
            "`x.io/y` is not known",
        );
        let node = Action::Delete(Deletion { target: reference("Node", "n"), options: String::new() });
        case.refuses(node, KindNotDeclared, "targets with the verb delete");
        let event =
            Event { severity: Severity::Normal, reason: "Not a word".to_owned(), message: String::new() };
        case.refuses(Action::RecordEvent(event.clone()), Malformed, "one word");
        let many = vec![Action::RecordEvent(Event { reason: "X".to_owned(), ..event }); EVENTS_MAX + 1];
        assert_eq!(case.admit(many).unwrap_err().reason, TooMuch);
        let few = Case { limits: Limits { actions: 2, ..Limits::default() }, ..Case::new() };
        assert_eq!(few.admit(vec![Action::RequeueAfter(1); 3]).unwrap_err().reason, TooMuch);
    }

    #[test]
    fn only_what_the_snapshot_showed_is_deleted_and_only_that_very_object() {
        let deletion = |name: &str| {
            Action::Delete(Deletion {
                target: reference("ConfigMap", name),
                options: r#"{"propagation":"orphan"}"#.to_owned(),
            })
        };
        let plan = Case::new().admit(vec![deletion("never-seen"), deletion("a")]).unwrap();
        let [write] = &plan.writes[..] else { panic!("{plan:?}") };
        assert_eq!((write.index, write.target.uid.as_deref()), (1, Some("u-2")));
        assert!(matches!(write.operation, Operation::Delete { propagation: Propagation::Orphan, .. }));
    }

    #[test]
    fn patches_touch_labels_annotations_and_fields_only() {
        let case = Case::new();
        let patch = |kind: &str, patch: Value| {
            Action::PatchTarget(TargetPatch {
                target: reference(kind, "s"),
                patch: patch.to_string(),
                options: String::new(),
            })
        };
        assert_eq!(
            case.admit(vec![patch("Service", json!({"metadata": {"labels": {"a": null}}}))])
                .unwrap()
                .writes
                .len(),
            1
        );
        case.refuses(
            patch("Service", json!({"metadata": {"finalizers": []}})),
            RefusalReason::NotAllowed,
            "only labels",
        );
        case.refuses(patch("Pod", json!({})), RefusalReason::KindNotDeclared, "verb patch");
    }

    #[test]
    fn secrets_are_owned_and_carry_no_data_from_the_plugin() {
        let template = SecretTemplate {
            name: "a-app".to_owned(),
            literals: vec![],
            random: vec![RandomKey {
                key: "password".to_owned(),
                length: 24,
                alphabet: Alphabet::Alphanumeric,
            }],
            composed: vec![],
            options: r#"{"labels":{"x":"y"}}"#.to_owned(),
        };
        let plan = Case::new().admit(vec![Action::GenerateSecret(template)]).unwrap();
        let Operation::GenerateSecret { object, .. } = &plan.writes[0].operation else { panic!("{plan:?}") };
        assert_eq!(object["metadata"]["labels"], json!({"x": "y", MANAGED_LABEL: "web"}));
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!((object.get("data"), &object["type"]), (None, &json!("Opaque")));
    }

    #[test]
    fn the_shortest_requeue_counts_within_its_bounds() {
        let case = Case::new();
        let requeue = |ms: &[u64]| {
            case.admit(ms.iter().map(|ms| Action::RequeueAfter(*ms)).collect()).unwrap().requeue_after_ms
        };
        assert_eq!(requeue(&[]), None);
        assert_eq!(requeue(&[5_000, 2_000, 9_000]), Some(2_000));
        assert_eq!(requeue(&[0]), Some(REQUEUE_MS_MIN));
        assert_eq!(requeue(&[u64::MAX]), Some(REQUEUE_MS_MAX));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clip("añb", 2), "a");
        assert_eq!(clip("añb", 3), "añ");
        assert_eq!(clip("ab", 5), "ab");
    }
}
