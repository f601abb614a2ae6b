//! The contract's types on wasmtime's side, to and from the model's. One to one: nothing is checked, nothing decided.
//! On the way in texts are borrowed and only the lists around them are made; on the way out texts are moved.

use pilothouse_model::action as model;
use pilothouse_model::admission;
use pilothouse_model::kind::{Kind, Reference};

use crate::bindings::v0_1::further::exports::pilothouse::operator::admission as wit_admission;
use crate::bindings::v0_1::pilothouse::operator::types as wit;

/// Calls `with` with the two arguments of `reconcile`, which borrow from the request and from lists that live here.
pub(crate) fn arguments<R>(
    request: &model::Request,
    with: impl FnOnce(wit::Desired<'_>, wit::Observed<'_>) -> R,
) -> R {
    let desired = wit::Desired {
        primary: &request.primary,
        deleting: request.deleting,
        config: &request.config,
        now: &request.now,
        seed: request.seed,
    };
    let children = texts(&request.children);
    let objects: Vec<Vec<&str>> = request.related.iter().map(|answer| texts(&answer.objects)).collect();
    let related: Vec<wit::Answer<'_>> = request
        .related
        .iter()
        .zip(&objects)
        .map(|(answer, objects)| wit::Answer { query: &answer.query, complete: answer.complete, objects })
        .collect();
    let last: Vec<wit::Rejected<'_>> = request.last.iter().map(rejected).collect();
    with(desired, wit::Observed { children: &children, related: &related, last: &last })
}

fn texts(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

fn rejected(rejected: &model::Rejected) -> wit::Rejected<'_> {
    wit::Rejected {
        index: rejected.index,
        target: rejected.target.as_ref().map(|target| wit::ReferenceParam {
            kind: wit::KindParam {
                group: &target.kind.group,
                version: &target.kind.version,
                kind: &target.kind.kind,
            },
            namespace: target.namespace.as_deref(),
            name: &target.name,
            uid: target.uid.as_deref(),
        }),
        reason: rejected.reason.as_str(),
        message: &rejected.message,
    }
}

/// What a guest returned.
pub(crate) fn outcome(outcome: wit::Outcome) -> model::Outcome {
    let wit::Outcome { actions, failure } = outcome;
    let failure = failure.map(|failure| match failure {
        wit::Failure::Invalid(text) => model::Failure::Invalid(text),
        wit::Failure::Retry(text) => model::Failure::Retry(text),
    });
    model::Outcome { actions: actions.into_iter().map(action).collect(), failure }
}

fn action(action: wit::Action) -> model::Action {
    match action {
        wit::Action::Apply(wit::Apply { object, options }) => {
            model::Action::Apply(model::Apply { object, options })
        }
        wit::Action::Delete(wit::Deletion { target, options }) => {
            model::Action::Delete(model::Deletion { target: reference(target), options })
        }
        wit::Action::PatchTarget(wit::TargetPatch { target, patch, options }) => {
            model::Action::PatchTarget(model::TargetPatch { target: reference(target), patch, options })
        }
        wit::Action::GenerateSecret(template) => model::Action::GenerateSecret(secret_template(template)),
        wit::Action::SetStatus(status) => model::Action::SetStatus(status),
        wit::Action::RecordEvent(wit::Event { severity, reason, message }) => {
            let severity = match severity {
                wit::Severity::Normal => model::Severity::Normal,
                wit::Severity::Warning => model::Severity::Warning,
            };
            model::Action::RecordEvent(model::Event { severity, reason, message })
        }
        wit::Action::LookUp(wit::Query { id, kind: of, namespace, name, options }) => {
            model::Action::LookUp(model::Query { id, kind: kind(of), namespace, name, options })
        }
        wit::Action::RequeueAfter(milliseconds) => model::Action::RequeueAfter(milliseconds),
        wit::Action::Release => model::Action::Release,
        wit::Action::Extension(wit::Extension { name, body }) => {
            model::Action::Extension(model::Extension { name, body })
        }
    }
}

fn secret_template(template: wit::SecretTemplate) -> model::SecretTemplate {
    let wit::SecretTemplate { name, literals, random, composed, options } = template;
    model::SecretTemplate {
        name,
        literals: literals.into_iter().map(key_value).collect(),
        random: random.into_iter().map(random_key).collect(),
        composed: composed.into_iter().map(key_value).collect(),
        options,
    }
}

fn key_value(wit::KeyValue { key, value }: wit::KeyValue) -> model::KeyValue {
    model::KeyValue { key, value }
}

fn random_key(wit::RandomKey { key, length, alphabet }: wit::RandomKey) -> model::RandomKey {
    let alphabet = match alphabet {
        wit::Alphabet::Alphanumeric => model::Alphabet::Alphanumeric,
        wit::Alphabet::Hexadecimal => model::Alphabet::Hexadecimal,
        wit::Alphabet::Base64url => model::Alphabet::Base64url,
    };
    model::RandomKey { key, length, alphabet }
}

fn reference(reference: wit::ReferenceResult) -> Reference {
    let wit::ReferenceResult { kind: of, namespace, name, uid } = reference;
    Reference { kind: kind(of), namespace, name, uid }
}

fn kind(wit::KindResult { group, version, kind }: wit::KindResult) -> Kind {
    Kind { group, version, kind }
}

/// The argument of `validate` and `default-fields`.
pub(crate) fn admission_request(request: admission::AdmissionRequest) -> wit_admission::AdmissionRequest {
    let admission::AdmissionRequest { operation, new, old, user, groups, dry_run, subresource, config, now } =
        request;
    let operation = match operation {
        admission::Operation::Create => wit_admission::Operation::Create,
        admission::Operation::Update => wit_admission::Operation::Update,
        admission::Operation::Delete => wit_admission::Operation::Delete,
    };
    wit_admission::AdmissionRequest { operation, new, old, user, groups, dry_run, subresource, config, now }
}

/// What a guest thinks of a request.
pub(crate) fn verdict(verdict: wit_admission::Verdict) -> admission::Verdict {
    let wit_admission::Verdict { allowed, causes, warnings } = verdict;
    let cause = |wit_admission::Cause { field, reason, message }| admission::Cause { field, reason, message };
    admission::Verdict { allowed, causes: causes.into_iter().map(cause).collect(), warnings }
}
