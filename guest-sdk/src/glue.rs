//! Between the contract's generated types and the ones that authors see. Called by [`export!`](crate::export) only.

use serde_json::{Map, Value};

use crate::action::{
    Action, Actions, Alphabet, Apply, Delete, LookUp, OnImmutable, PatchTarget, Position, Propagation,
    Reference, SecretTemplate,
};
use crate::admission::{self, Admission, Asked, Operation, Verdict};
use crate::bindings::admission::exports::pilothouse::operator::admission as wit_admission;
use crate::bindings::pilothouse::operator::types as wit;
use crate::conversion::{self, Conversion};
use crate::kinds::Resource;
use crate::manifest::Manifest;
use crate::object::Object;
use crate::pass::{self, Decision};
use crate::reconciler::{Failure, Reconciler};

/// One reconciler of a plugin, without its type.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    primary: Resource,
    run: fn(wit::Desired, wit::Observed) -> Decision,
}

impl Entry {
    /// The reconciler `R`.
    pub const fn of<R: Reconciler>() -> Self {
        Self { primary: R::PRIMARY, run: pass::run::<R> }
    }
}

/// The contract's `describe`.
pub fn describe(manifest: &Manifest) -> String {
    report_panics();
    text(manifest.to_json())
}

/// The contract's `reconcile`.
pub fn reconcile(entries: &[Entry], desired: wit::Desired, observed: wit::Observed) -> wit::Outcome {
    report_panics();
    let decision = match entries {
        [only] => (only.run)(desired, observed),
        several => match several.iter().find(|entry| serves(entry.primary, &desired.primary)) {
            Some(entry) => (entry.run)(desired, observed),
            None => Decision {
                actions: Actions::default(),
                failure: Some(Failure::Retry("this plugin does not serve objects of that kind".to_owned())),
            },
        },
    };
    wit::Outcome {
        actions: decision.actions.into_iter().map(action).collect(),
        failure: decision.failure.map(|failure| match failure {
            Failure::Invalid(text) => wit::Failure::Invalid(text),
            Failure::Retry(text) => wit::Failure::Retry(text),
        }),
    }
}

/// One kind that a plugin guards, without its type.
#[derive(Debug, Clone, Copy)]
pub struct Guarding {
    guarded: Resource,
    validate: fn(Asked) -> Verdict,
    default_fields: fn(Asked) -> Value,
}

impl Guarding {
    /// The kind that `A` guards.
    pub const fn of<A: Admission>() -> Self {
        Self {
            guarded: A::GUARDED,
            validate: admission::validate::<A>,
            default_fields: admission::default_fields::<A>,
        }
    }

    /// Whose request it is: that of the object's kind. A scale names no kind, and is that of the only one.
    fn find<'a>(entries: &'a [Self], asked: &Asked) -> Option<&'a Self> {
        let of_kind = entries.iter().find(|entry| asked.object.is_a(entry.guarded));
        of_kind.or(if let [only] = entries { Some(only) } else { None })
    }
}

/// The contract's `validate`.
pub fn validate(entries: &[Guarding], request: wit_admission::AdmissionRequest) -> wit_admission::Verdict {
    report_panics();
    let asked = asked(request);
    let verdict =
        Guarding::find(entries, &asked).map_or_else(Verdict::allow, |entry| (entry.validate)(asked));
    let allowed = verdict.is_allowed();
    let cause = |cause: admission::Cause| wit_admission::Cause {
        field: cause.field,
        reason: cause.wrong.as_str().to_owned(),
        message: cause.message,
    };
    wit_admission::Verdict {
        allowed,
        causes: verdict.causes.into_iter().map(cause).collect(),
        warnings: verdict.warnings,
    }
}

/// The contract's `default-fields`.
pub fn default_fields(entries: &[Guarding], request: wit_admission::AdmissionRequest) -> String {
    report_panics();
    let asked = asked(request);
    match Guarding::find(entries, &asked) {
        Some(entry) => text((entry.default_fields)(asked)),
        None => text((*asked.object).clone()),
    }
}

fn asked(request: wit_admission::AdmissionRequest) -> Asked {
    let parse = |text: String| Object::parse(text).expect("the host sends objects");
    let (new, old) = (request.new.map(parse), request.old.map(parse));
    let shown = new.or_else(|| old.clone()).expect("the host sends an object");
    Asked {
        operation: match request.operation {
            wit_admission::Operation::Create => Operation::Create,
            wit_admission::Operation::Update => Operation::Update,
            wit_admission::Operation::Delete => Operation::Delete,
        },
        object: shown,
        old_object: old,
        user: request.user,
        groups: request.groups,
        dry_run: request.dry_run,
        subresource: request.subresource,
        now: request.now,
        config: serde_json::from_str(&request.config).unwrap_or_default(),
    }
}

/// One kind that a plugin converts, without its type.
#[derive(Debug, Clone, Copy)]
pub struct Converting {
    kind: Resource,
    convert: fn(Value, &str) -> Result<Value, String>,
}

impl Converting {
    /// The kind that `C` converts.
    pub const fn of<C: Conversion>() -> Self {
        Self { kind: C::CONVERTED, convert: conversion::convert::<C> }
    }
}

/// The contract's `convert`.
pub fn convert(entries: &[Converting], objects: Vec<String>, to: &str) -> Result<Vec<String>, String> {
    report_panics();
    objects.into_iter().map(|object| convert_one(entries, &object, to)).collect()
}

fn convert_one(entries: &[Converting], object: &str, to: &str) -> Result<String, String> {
    let object: Value = serde_json::from_str(object).map_err(|error| error.to_string())?;
    let group = to.split_once('/').map_or("", |(group, _)| group);
    let entry = entries.iter().find(|entry| entry.kind.group == group && object["kind"] == entry.kind.kind);
    let entry = entry.ok_or("this plugin does not convert objects of that kind")?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    (entry.convert)(object, to).map(text).map_err(|problem| [&name, ": ", &problem].concat())
}

fn serves(primary: Resource, object: &str) -> bool {
    Object::parse(object.to_owned()).is_ok_and(|object| object.is_a(primary))
}

/// A panic ends the instance and leaves the host with a trap; the log line says where and why.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| crate::log::error(&panic.to_string())));
}

/// One action as it crosses the border.
pub(crate) fn action(action: Action) -> wit::Action {
    match action {
        Action::Apply(apply) => {
            wit::Action::Apply(wit::Apply { options: apply_options(&apply), object: text(apply.object) })
        }
        Action::Delete(delete) => wit::Action::Delete(wit::Deletion {
            options: delete_options(&delete),
            target: reference(delete.target),
        }),
        Action::PatchTarget(patch) => wit::Action::PatchTarget(wit::TargetPatch {
            options: patch_options(&patch),
            target: reference(patch.target),
            patch: text(patch.patch),
        }),
        Action::GenerateSecret(template) => wit::Action::GenerateSecret(secret(template)),
        Action::SetStatus(status) => wit::Action::SetStatus(text(status.to_json())),
        Action::Event(event) => wit::Action::RecordEvent(wit::Event {
            severity: if event.warning { wit::Severity::Warning } else { wit::Severity::Normal },
            reason: event.reason,
            message: event.message,
        }),
        Action::LookUp(query) => wit::Action::LookUp(look_up(query)),
        Action::RequeueAfter(delay) => {
            wit::Action::RequeueAfter(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
        }
        Action::Release => wit::Action::Release,
        Action::Extension(extension) => {
            wit::Action::Extension(wit::Extension { name: extension.name, body: text(extension.body) })
        }
    }
}

fn kind(resource: Resource) -> wit::Kind {
    wit::Kind {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        kind: resource.kind.to_owned(),
    }
}

fn reference(target: Reference) -> wit::Reference {
    wit::Reference {
        kind: kind(target.kind),
        namespace: target.namespace,
        name: target.name,
        uid: target.uid,
    }
}

fn secret(template: SecretTemplate) -> wit::SecretTemplate {
    let options = secret_options(&template);
    let pairs = |pairs: Vec<(String, String)>| {
        pairs.into_iter().map(|(key, value)| wit::KeyValue { key, value }).collect()
    };
    wit::SecretTemplate {
        name: template.name,
        literals: pairs(template.literals),
        random: template
            .random
            .into_iter()
            .map(|random| wit::RandomKey {
                key: random.key,
                length: random.length,
                alphabet: match random.alphabet {
                    Alphabet::Alphanumeric => wit::Alphabet::Alphanumeric,
                    Alphabet::Hexadecimal => wit::Alphabet::Hexadecimal,
                    Alphabet::Base64Url => wit::Alphabet::Base64url,
                },
            })
            .collect(),
        composed: pairs(template.composed),
        options,
    }
}

fn look_up(query: LookUp) -> wit::Query {
    let mut options = Options::default();
    options.put("labelSelector", query.selector);
    options.put("limit", query.limit);
    wit::Query {
        id: query.id,
        kind: kind(query.kind),
        namespace: query.namespace,
        name: query.name,
        options: options.text(),
    }
}

fn apply_options(apply: &Apply) -> String {
    let mut options = Options::default();
    options.put("createOnly", apply.create_only);
    options.put(
        "onImmutable",
        match apply.on_immutable {
            OnImmutable::Refuse => None,
            OnImmutable::RecreateOrphan => Some("recreate-orphan"),
            OnImmutable::Recreate => Some("recreate"),
        },
    );
    options.put("after", positions(&apply.after));
    options.text()
}

fn delete_options(delete: &Delete) -> String {
    let mut options = Options::default();
    options.put(
        "propagation",
        match delete.propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some("foreground"),
            Propagation::Orphan => Some("orphan"),
        },
    );
    options.put("gracePeriodSeconds", delete.grace_period_seconds);
    options.put("after", positions(&delete.after));
    options.text()
}

fn positions(after: &[Position]) -> Option<Value> {
    (!after.is_empty()).then(|| after.iter().map(|position| position.0).collect())
}

fn patch_options(patch: &PatchTarget) -> String {
    let mut options = Options::default();
    options.put("subresource", patch.subresource);
    options.text()
}

fn secret_options(template: &SecretTemplate) -> String {
    let strings = |pairs: &[(String, String)]| {
        let mut strings = Options::default();
        for (key, value) in pairs {
            strings.put(key, Some(value.as_str()));
        }
        (!pairs.is_empty()).then_some(Value::Object(strings.0))
    };
    let mut options = Options::default();
    options.put("labels", strings(&template.labels));
    options.put("annotations", strings(&template.annotations));
    options.put("type", template.kind.as_deref());
    options.text()
}

/// The JSON text of a value that is not needed any more.
fn text(value: Value) -> String {
    let text = serde_json::to_string(&value).unwrap_or_default();
    // As with the pass: the instance ends with the call.
    if cfg!(target_arch = "wasm32") {
        std::mem::forget(value);
    }
    text
}

/// The `options` text of an action: what differs from the contract's defaults, empty if nothing does.
#[derive(Default)]
struct Options(Map<String, Value>);

impl Options {
    fn put(&mut self, option: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(option.to_owned(), value.into());
        }
    }

    fn text(self) -> String {
        if self.0.is_empty() { String::new() } else { text(Value::Object(self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::kinds::{CONFIG_MAP, SECRET};
    use crate::manifest::Controller;
    use crate::pass::Pass;
    use crate::reconciler::NoStatus;

    macro_rules! reconciler {
        ($name:ident, $kind:ident) => {
            #[derive(Deserialize, JsonSchema)]
            struct $name {}

            impl Reconciler for $name {
                const PRIMARY: Resource = $kind;
                type Status = NoStatus;

                fn controller() -> Controller {
                    Controller::new($kind)
                }

                fn reconcile(_: &Pass<Self>, _: &mut Actions) -> Result<(), Failure> {
                    Err(Failure::Retry(stringify!($name).to_owned()))
                }
            }
        };
    }

    reconciler!(Maps, CONFIG_MAP);
    reconciler!(Secrets, SECRET);

    fn failure(primary: &Value) -> String {
        let desired = wit::Desired {
            primary: primary.to_string(),
            deleting: false,
            config: "{}".to_owned(),
            now: String::new(),
            seed: 0,
        };
        let observed = wit::Observed { children: Vec::new(), related: Vec::new(), last: Vec::new() };
        let outcome = reconcile(&[Entry::of::<Maps>(), Entry::of::<Secrets>()], desired, observed);
        match outcome.failure {
            Some(wit::Failure::Retry(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_object_goes_to_the_reconciler_of_its_kind() {
        assert_eq!(failure(&CONFIG_MAP.object("a")), "Maps");
        assert_eq!(failure(&SECRET.object("a")), "Secrets");
        assert_eq!(
            failure(&crate::kinds::POD.object("a")),
            "this plugin does not serve objects of that kind"
        );
    }
}
