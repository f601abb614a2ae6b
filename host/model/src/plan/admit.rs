//! The checks behind [`admit`], one function for each action.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::scope::{Use, namespace_for};
use super::{
    CONTAINERS_MAX, Context, EVENT_MESSAGE_BYTES_MAX, EVENTS_MAX, LOOK_UPS_MAX, LookUp, OnImmutable,
    Operation, Plan, Propagation, REQUEUE_MS_MAX, REQUEUE_MS_MIN, Refusal, RefusalReason, Rollout,
    STATUS_BYTES_MAX, Subresource, Write, clip,
};
use crate::action::{Action, Apply, Deletion, Event, Outcome, Query, SecretTemplate, TargetPatch};
use crate::kind::{Kind, Reference};
use crate::manifest::{Child, Scope, TargetVerb};
use crate::names::{BLANKED_ANNOTATION, MANAGED_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL, PLUGIN_LABEL};
use crate::object::Object;
use crate::owner;
use crate::projection::Projection;
use crate::secret;
use crate::selector::Selector;
use crate::update::{Method, UpdateStrategy};

pub(super) type Refused = (RefusalReason, String);

/// Checks an outcome and makes the plan of it.
pub fn admit(outcome: Outcome, cx: &Context<'_>) -> Result<Plan, Refusal> {
    let mut plan = Plan { failure: outcome.failure, ..Plan::default() };
    let mut children = BTreeSet::new();
    let mut containers = 0;
    let is_write: Vec<bool> = outcome.actions.iter().map(is_write).collect();
    for (index, action) in outcome.actions.into_iter().enumerate() {
        let name = name_of(&action);
        let refused = |(reason, problem)| Refusal { index, action: name, reason, problem };
        containers += containers_in(&action);
        if containers > CONTAINERS_MAX {
            let problem = format!("more than {CONTAINERS_MAX} maps and lists in the JSON of one outcome");
            return Err(refused((RefusalReason::TooMuch, problem)));
        }
        let writes = plan.writes.len();
        admit_action(index, action, cx, &mut plan).map_err(refused)?;
        if let Some(write) = plan.writes.get(writes) {
            once(write, &mut children).map_err(refused)?;
            comes_after(write, &is_write).map_err(refused)?;
        }
    }
    plan.rollouts = rollouts(&plan.writes, cx);
    Ok(plan)
}

fn is_write(action: &Action) -> bool {
    use Action::{Apply, Delete, GenerateSecret, PatchTarget};
    matches!(action, Apply(_) | Delete(_) | PatchTarget(_) | GenerateSecret(_))
}

/// What a write waits for is done before it, as the plan is carried out in order, and is a write itself.
fn comes_after(write: &Write, is_write: &[bool]) -> Result<(), Refused> {
    let wrong = |after: &&u32| **after >= write.index || !is_write.get(**after as usize).unwrap_or(&false);
    write.after.iter().find(wrong).map_or(Ok(()), |after| {
        let problem =
            format!("options.after: {after} is not the position of an earlier write of this outcome");
        Err((RefusalReason::Malformed, problem))
    })
}

/// One for each child kind with a rolling strategy, of its applies that may touch what exists.
fn rollouts(writes: &[Write], cx: &Context<'_>) -> Vec<Rollout> {
    if cx.deleting {
        return Vec::new();
    }
    let rolling = cx.controller.children.iter().filter(|child| child.update_strategy.method.is_rolling());
    let rollouts = rolling.map(|child| {
        let kind = child.resource.kind();
        let of_kind = |write: &Write| {
            let touches = matches!(write.operation, Operation::Apply { create_only: false, .. });
            touches && write.target.kind == kind
        };
        let writes: Vec<usize> = (0..writes.len()).filter(|at| of_kind(&writes[*at])).collect();
        let UpdateStrategy { status_checks, max_unavailable, .. } = &child.update_strategy;
        Rollout { unavailable_max: max_unavailable.of(writes.len()), writes, checks: status_checks.clone() }
    });
    rollouts.filter(|rollout| !rollout.writes.is_empty()).collect()
}

/// Counted before anything is parsed, and so by what begins one. JSON within a text does not count: behind its braces
/// stands an escaped quote.
fn containers_in(action: &Action) -> usize {
    let texts: &[&str] = match action {
        Action::Apply(apply) => &[&apply.object, &apply.options],
        Action::Delete(deletion) => &[&deletion.options],
        Action::PatchTarget(patch) => &[&patch.patch, &patch.options],
        Action::GenerateSecret(template) => &[&template.options],
        Action::SetStatus(status) => &[status],
        Action::LookUp(query) => &[&query.options],
        Action::RecordEvent(_) | Action::RequeueAfter(_) | Action::Release | Action::Extension(_) => &[],
    };
    let begins = |pair: &[u8]| matches!(pair[0], b'{' | b'[') && pair[1] != b'\\';
    texts.iter().map(|text| text.as_bytes().windows(2).filter(|pair| begins(pair)).count()).sum()
}

/// A child wanted in two ways would be written twice in each pass, for ever.
fn once(
    write: &Write,
    children: &mut BTreeSet<(String, String, Option<String>, String)>,
) -> Result<(), Refused> {
    if !matches!(write.operation, Operation::Apply { .. } | Operation::GenerateSecret { .. }) {
        return Ok(());
    }
    let Reference { kind, namespace, name, .. } = &write.target;
    if children.insert((kind.group.clone(), kind.kind.clone(), namespace.clone(), name.clone())) {
        return Ok(());
    }
    Err((RefusalReason::NotAllowed, format!("{} is applied or generated twice in one outcome", write.target)))
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
    if u64::from(index) >= cx.limits.actions {
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
        Action::LookUp(query) => {
            if plan.look_ups.len() == LOOK_UPS_MAX {
                return Err((
                    RefusalReason::TooMuch,
                    format!("more than {LOOK_UPS_MAX} look-ups in one round"),
                ));
            }
            if plan.look_ups.iter().any(|other| other.id == query.id) {
                let problem = format!("id: `{}` is asked twice in one round", clip(&query.id, 128));
                return Err((RefusalReason::NotAllowed, problem));
            }
            plan.look_ups.push(admit_look_up(query, cx)?);
        }
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
    #[serde(default)]
    after: Vec<u32>,
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
    let method = child.update_strategy.method;
    Ok(Write {
        index,
        target,
        plural: child.resource.plural.clone(),
        after: options.after,
        operation: Operation::Apply {
            object,
            create_only: options.create_only.unwrap_or(child.create_only) || method == Method::OnDelete,
            metadata_only: child.projection == Projection::Metadata,
            method,
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
    let what = Use::Own(child.namespaces);
    let namespace = namespace_for(&kind, child.resource.scope, namespace, what, cx)?;
    match &namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace.clone())),
        None => metadata.remove("namespace"),
    };
    for field in ["labels", "annotations"] {
        if metadata.get(field).is_some_and(|map| !map.is_object() && !map.is_null()) {
            return Err((RefusalReason::Malformed, format!("object.metadata.{field}: is no mapping")));
        }
    }
    check_tags(metadata, "object.metadata")?;
    if metadata.get("annotations").is_some_and(|all| all.get(BLANKED_ANNOTATION).is_some()) {
        let problem = format!(
            "object.metadata.annotations: `{BLANKED_ANNOTATION}` marks a Secret without its values, which would be overwritten: generate-secret keeps them"
        );
        return Err((RefusalReason::NotAllowed, problem));
    }
    let primary = cx.primary.meta();
    if kind.is_version_of(cx.primary.kind())
        && *name == *primary.name
        && namespace.as_deref() == primary.namespace.as_deref()
    {
        return Err((
            RefusalReason::NotAllowed,
            "object: is the primary, which cannot be its own child".to_owned(),
        ));
    }
    if metadata.get("labels").is_none_or(Value::is_null) {
        metadata.insert("labels".to_owned(), json!({}));
    }
    metadata["labels"][MANAGED_LABEL] = Value::String(cx.plugin.to_string());
    owner::tie(metadata, namespace.as_deref(), cx.primary);
    Ok(Reference { kind, namespace, name, uid: None })
}

/// Labels and annotations by which the host tells whose an object is. Of another value they would give it away, or make
/// a plugin of a ConfigMap.
const HOST_TAGS: [&str; 3] = [OWNER_UID_LABEL, OWNER_ANNOTATION, PLUGIN_LABEL];

fn check_tags(metadata: &Map<String, Value>, path: &str) -> Result<(), Refused> {
    for field in ["labels", "annotations"] {
        let map = metadata.get(field).and_then(Value::as_object);
        if let Some(tag) = HOST_TAGS.iter().find(|tag| map.is_some_and(|map| map.contains_key(**tag))) {
            return Err((
                RefusalReason::NotAllowed,
                format!("{path}.{field}: `{tag}` is the host's to write"),
            ));
        }
    }
    Ok(())
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
    #[serde(default)]
    after: Vec<u32>,
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
    Ok(Write {
        index,
        target,
        plural,
        after: options.after,
        operation: Operation::GenerateSecret { object, template },
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeletionOptions {
    #[serde(default)]
    propagation: Propagation,
    grace_period_seconds: Option<u64>,
    #[serde(default)]
    after: Vec<u32>,
}

/// None if the object was not in the snapshot: a name that the plugin never saw alive is not deleted.
fn admit_deletion(index: u32, deletion: Deletion, cx: &Context<'_>) -> Result<Option<Write>, Refused> {
    let options: DeletionOptions = options(&deletion.options)?;
    let mut target = deletion.target;
    let declared = cx.controller.target(&target.kind);
    let foreign = declared.filter(|declared| declared.verbs.contains(&TargetVerb::Delete));
    let resource = match (cx.controller.child(&target.kind), foreign) {
        (Some(child), _) => &child.resource,
        (None, Some(declared)) => &declared.resource,
        (None, None) => {
            return Err(not_declared(&target.kind, "children or targets with the verb delete", cx));
        }
    };
    // What it only reads, a plugin must not delete because it owns others of that kind.
    let related = if foreign.is_some() { cx.related } else { &[] };
    let is_it = |object: &&Arc<Object>, namespace: Option<&str>| {
        let meta = object.meta();
        object.kind() == &target.kind && *meta.name == *target.name && meta.namespace.as_deref() == namespace
    };
    let asked = target.namespace.take().or_else(|| match resource.scope {
        Scope::Namespaced => cx.primary.meta().namespace.as_deref().map(str::to_owned),
        Scope::Cluster => None,
    });
    // What it owns it may delete wherever that is, also when a grant was taken back.
    let own = cx.children.iter().find(|object| is_it(object, asked.as_deref()));
    let namespace = match own {
        Some(_) => asked,
        None => namespace_for(&target.kind, resource.scope, asked, Use::Change, cx)?,
    };
    let seen = own.or_else(|| related.iter().find(|object| is_it(object, namespace.as_deref())));
    let Some(seen) = seen else { return Ok(None) };
    target.namespace = namespace;
    if target.uid.is_none() {
        target.uid = Some(seen.meta().uid.to_string());
    }
    let operation = Operation::Delete {
        propagation: options.propagation,
        grace_period_seconds: options.grace_period_seconds,
    };
    Ok(Some(Write { index, target, plural: resource.plural.clone(), after: options.after, operation }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchOptions {
    subresource: Option<Subresource>,
    #[serde(default)]
    after: Vec<u32>,
}

fn admit_patch(index: u32, asked: TargetPatch, cx: &Context<'_>) -> Result<Write, Refused> {
    let options: PatchOptions = options(&asked.options)?;
    let mut target = asked.target;
    let (verb, list) = match options.subresource {
        None => (TargetVerb::Patch, "targets with the verb patch"),
        Some(Subresource::Status) => (TargetVerb::PatchStatus, "targets with the verb patch-status"),
        Some(Subresource::Scale) => (TargetVerb::PatchScale, "targets with the verb patch-scale"),
    };
    let Some(declared) = cx.controller.target(&target.kind).filter(|declared| declared.verbs.contains(&verb))
    else {
        return Err(not_declared(&target.kind, list, cx));
    };
    check_name(&target.name)
        .map_err(|problem| (RefusalReason::Malformed, format!("target.name: {problem}")))?;
    let namespace = target.namespace.take();
    target.namespace = namespace_for(&target.kind, declared.resource.scope, namespace, Use::Change, cx)?;
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
        let metadata = metadata.as_object().cloned().unwrap_or_default();
        check_tags(&metadata, "patch.metadata")?;
        if metadata.get("labels").is_some_and(|labels| labels.get(MANAGED_LABEL).is_some()) {
            let problem = format!("patch.metadata.labels: `{MANAGED_LABEL}` is the host's to write");
            return Err((RefusalReason::NotAllowed, problem));
        }
    }
    let operation = Operation::Patch { patch, subresource: options.subresource };
    Ok(Write { index, target, plural: declared.resource.plural.clone(), after: options.after, operation })
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
    if let Some(name) = &query.name {
        check_name(name).map_err(|problem| (RefusalReason::Malformed, format!("name: {problem}")))?;
    }
    if let Some(text) = &options.label_selector {
        Selector::parse(text)
            .map_err(|error| (RefusalReason::Malformed, format!("options.labelSelector: {error}")))?;
    }
    let namespace = namespace_for(&query.kind, declared.resource.scope, query.namespace, Use::Read, cx)?;
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

fn kind_of(object: &Value) -> Result<Kind, Refused> {
    let field = |name: &str| match object.get(name).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err((RefusalReason::Malformed, format!("object.{name}: is missing"))),
    };
    Ok(Kind::from_api_version(&field("apiVersion")?, &field("kind")?))
}

/// Names as the API server's paths take them; what more a kind wants, the API server says.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 253 || name == "." || name == ".." || name.contains(['/', '%']) {
        return Err(format!("`{}` is not a name", clip(name, 253)));
    }
    Ok(())
}

fn options<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Refused> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| (RefusalReason::Malformed, format!("options: {error}")))
}

#[cfg(test)]
mod tests;
