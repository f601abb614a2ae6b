//! Why a write did not happen, read from the API server's answer and sorted by what the writer does next.
//!
//! The API server has one code for many things: 409 is a field manager's conflict, a taken name, a wrong UID or an
//! old version; 422 is a wrong value or one that may not change; 500 is a broken server or a configuration that its
//! schema does not know. What the code does not tell, the causes do, and where these have no reason of their own, the
//! words: all words that are relied upon stand in this file, [`IMMUTABLE_WORDS`] and [`fault_of`].

use std::time::Duration;

use pilothouse_model::action::RejectReason;
use pilothouse_model::plan::clip;
use serde::Deserialize;

use crate::answer::RETRY_AFTER_MAX;

/// Longest message kept, bytes: conditions and events hold no more.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// Causes named in a message. An object wrong in more places shows the others when these are mended.
const CAUSES_MAX: usize = 5;
/// Smallest byte limit in a "Too long" that is one of the API server's own (annotations 256 KiB, ConfigMaps and
/// Secrets 1 MiB) and not a schema's `maxLength`.
const OWN_LIMIT_BYTES_MIN: u64 = 262_144;

/// What stands at the end of a cause when a value is right but may not change. From Kubernetes' validation code and
/// from the messages that CEL transition rules of CRDs customarily have.
const IMMUTABLE_WORDS: [&str; 9] = [
    // apimachinery's FieldImmutableErrorMsg: Deployment selector, Job template, Secret type, roleRef of old. Also
    // "field is immutable when `immutable` is set" (ConfigMap, Secret), "Value is immutable" (CEL) and "spec is
    // immutable after creation except …" (PersistentVolumeClaim).
    "is immutable",
    // "updates to statefulset spec for fields other than …", "updates to parameters are forbidden." (StorageClass)
    "updates to ",
    // "pod updates may not change fields other than …"
    "updates may not change",
    // Service: clusterIP, ipFamilies; Node: podCIDRs
    "may not change once set",
    "can not be unset",
    // RBAC
    "cannot change roleRef",
    // PriorityClass, VolumeSnapshotClass; custom resources
    "may not be changed",
    "cannot be changed",
    "can not be changed",
];

/// What stopped a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Another field manager owns a field, and it was not to be taken.
    FieldConflict,
    /// The name is taken.
    AlreadyExists,
    /// The object is of another UID, or gone, or a JSON patch's `test` did not hold.
    Precondition,
    /// The object was changed since it was read.
    Stale,
    /// There is no such object, or no such namespace.
    NotFound,
    /// The API server does not know the kind, or the kind has no such subresource.
    NoEndpoint,
    /// A value that may not change would change.
    Immutable,
    /// The object would hold an item twice, and nothing else is wrong with it.
    Duplicate,
    /// The API server, its schema or a webhook finds the object wrong.
    Invalid,
    /// A webhook cannot tell without side effects what it would do.
    NoDryRun,
    /// RBAC, a quota or a policy.
    Forbidden,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The object itself is being deleted.
    ObjectTerminating,
    /// An object of that name exists and is not ours.
    NotOwned,
    /// Over a size limit.
    TooLarge,
    /// The API server cannot be reached, does not want to be asked now, or failed in itself or in a webhook. The write
    /// may have happened.
    Unavailable,
    /// No answer in time. The write may have happened.
    NoAnswer,
    /// This host may not write now. Nothing was sent.
    Fenced,
}

/// A write that did not happen, or of which it is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WriteError {
    /// What stopped it.
    pub fault: Fault,
    /// For people: what is wrong, with the field where one is to blame. Never a value of a Secret.
    pub message: String,
    /// HTTP status, 0 if there was none.
    pub code: u16,
    /// How long the API server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The fields of a [`Fault::Duplicate`], like `spec.ports[1].name`.
    pub(crate) duplicates: Vec<String>,
}

impl WriteError {
    /// An error that is found here, not told by the API server.
    pub(crate) fn here(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), code: 0, retry_after: None, duplicates: Vec::new() }
    }

    /// From an answer with an error status. Of a Secret only field names are kept: values may stand in any message.
    pub(crate) fn from_answer(code: u16, body: &[u8], secret: bool) -> Self {
        let status: Option<Status> =
            serde_json::from_slice(body).ok().filter(|status: &Status| status.is_one());
        let fault = fault_of(code, status.as_ref(), body);
        let status = status.unwrap_or_default();
        let seconds = status.details.retry_after_seconds.filter(|seconds| *seconds > 0);
        let message = status.describe(code, fault, secret);
        let duplicates = status.details.causes.into_iter().map(|cause| cause.field);
        Self {
            duplicates: duplicates.filter(|_| fault == Fault::Duplicate).take(CAUSES_MAX).collect(),
            fault,
            message: clip(&message, MESSAGE_BYTES_MAX).to_owned(),
            code,
            retry_after: seconds.map(pause),
        }
    }

    /// The word of the contract.
    pub fn reason(&self) -> RejectReason {
        match self.fault {
            Fault::FieldConflict => RejectReason::Conflict,
            Fault::AlreadyExists | Fault::NotOwned => RejectReason::NotOwned,
            Fault::Precondition | Fault::NotFound => RejectReason::Gone,
            Fault::Immutable => RejectReason::Immutable,
            Fault::Invalid | Fault::Duplicate | Fault::NoDryRun => RejectReason::Invalid,
            Fault::Forbidden => RejectReason::Forbidden,
            Fault::NamespaceTerminating | Fault::ObjectTerminating => RejectReason::Terminating,
            Fault::TooLarge => RejectReason::TooLarge,
            // A kind that is not served yet may be tomorrow.
            Fault::Stale | Fault::NoEndpoint | Fault::Unavailable | Fault::NoAnswer | Fault::Fenced => {
                RejectReason::Unavailable
            }
        }
    }

    /// Whether the next write would end the same way, whatever object it is for: no connection, a server that wants
    /// to be left alone, or a shut fence.
    pub(crate) fn stops_all(&self) -> bool {
        self.fault == Fault::Fenced || self.fault == Fault::Unavailable && [0, 429, 503].contains(&self.code)
    }

    /// Whether it may be the server's trouble or that of one kind alone (a webhook that hangs).
    pub(crate) fn is_trouble(&self) -> bool {
        matches!(self.fault, Fault::Unavailable | Fault::NoAnswer)
    }
}

/// The pause that somebody asks for: a webhook may, or a load balancer, and say anything.
pub(crate) fn pause(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(RETRY_AFTER_MAX)
}

/// The parts of `metav1.Status` that are read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    kind: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    causes: Vec<Cause>,
    retry_after_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

impl Status {
    fn is_one(&self) -> bool {
        self.kind == "Status"
    }

    fn has_cause(&self, reason: &str) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == reason)
    }

    fn describe(&self, code: u16, fault: Fault, secret: bool) -> String {
        let of_causes = |why: fn(&Cause) -> &str| {
            let causes = self.details.causes.iter().filter(|cause| !cause.field.is_empty()).take(CAUSES_MAX);
            causes.map(|cause| format!("{}: {}", cause.field, why(cause))).collect::<Vec<_>>().join(", ")
        };
        let text = if secret {
            of_causes(|cause| &cause.reason)
        } else if fault == Fault::FieldConflict {
            // `conflict with "kubectl" using apps/v1`, and the field.
            of_causes(|cause| &cause.message)
        } else if self.message.len() > MESSAGE_BYTES_MAX {
            // The value is quoted in it, the whole object perhaps.
            of_causes(Cause::why)
        } else {
            self.message.clone()
        };
        match text.as_str() {
            "" if secret => {
                format!("status {code} {}; the rest of the answer could show values", self.reason)
            }
            "" if self.message.is_empty() => {
                format!("the API server answered with status {code} {}", self.reason)
            }
            "" => self.message.clone(),
            _ => text,
        }
    }
}

impl Cause {
    /// `Forbidden: why` or `Invalid value: VALUE: why` → `why`: the value is the user's and may say anything. Below
    /// the first line of a `Forbidden` stands a listing of what differs.
    fn why(&self) -> &str {
        let message = match self.message.lines().next() {
            Some(line) if self.reason == "FieldValueForbidden" => line,
            _ => &self.message,
        };
        message.rsplit_once(": ").map_or(message, |(_, why)| why)
    }

    fn is_immutable(&self) -> bool {
        let refused = self.reason == "FieldValueForbidden" || self.reason == "FieldValueInvalid";
        refused && IMMUTABLE_WORDS.iter().any(|words| self.why().contains(words))
    }

    fn is_too_large(&self) -> bool {
        // "Too long: may not be more than 1048576 bytes"
        let limit = self.why().split_ascii_whitespace().find_map(|word| word.parse::<u64>().ok());
        self.reason == "FieldValueTooLong" && limit.is_some_and(|limit| limit >= OWN_LIMIT_BYTES_MIN)
    }
}

fn fault_of(code: u16, status: Option<&Status>, body: &[u8]) -> Fault {
    let Some(status) = status else {
        // Not the API server's words: the mux (404 for a path that it does not know) or something in between.
        return match code {
            404 => Fault::NoEndpoint,
            405 | 415 => Fault::Invalid,
            413 => Fault::TooLarge,
            401 | 403 => Fault::Forbidden,
            _ if body_says_too_large(body) => Fault::TooLarge,
            _ => Fault::Unavailable,
        };
    };
    let says = |words: &str| status.message.contains(words);
    match code {
        400 if says("does not support dry run") => Fault::NoDryRun,
        400 if says("Request entity too large") => Fault::TooLarge,
        400 | 405 | 406 | 415 => Fault::Invalid,
        403 if status.has_cause("NamespaceTerminating") || says("because it is being terminated") => {
            Fault::NamespaceTerminating
        }
        403 => Fault::Forbidden,
        // `the server could not find the requested resource`: no name in the details.
        404 if status.details.name.is_empty() => Fault::NoEndpoint,
        404 => Fault::NotFound,
        409 if status.has_cause("FieldManagerConflict") => Fault::FieldConflict,
        409 if status.reason == "AlreadyExists" => Fault::AlreadyExists,
        // Of a deletion, by the registry or by etcd's store; of an apply to a name that nothing bears.
        409 if says("UID in the precondition") || says("UID in precondition") || says("uid mismatch") => {
            Fault::Precondition
        }
        409 if says("object is being deleted") => Fault::ObjectTerminating,
        409 => Fault::Stale,
        413 => Fault::TooLarge,
        // A JSON patch that does not fit: a `test` failed, or a path is not there. The server says no more.
        422 if status.details.causes.is_empty() && says("due to an error in our request") => {
            Fault::Precondition
        }
        422 => {
            let causes = &status.details.causes;
            // A UID in the body of another object: `metadata.uid: Invalid value: …: field is immutable`.
            if causes.iter().any(|cause| cause.field == "metadata.uid") {
                Fault::Precondition
            } else if causes.iter().any(|cause| cause.why().contains("if the object is being deleted")) {
                // metadata.finalizers: no new ones
                Fault::ObjectTerminating
            } else if causes.iter().any(Cause::is_too_large) {
                Fault::TooLarge
            } else if !causes.is_empty() && causes.iter().all(Cause::is_immutable) {
                // Wrong in another place as well: making it anew would fail as this did.
                Fault::Immutable
            } else if !causes.is_empty() && causes.iter().all(|cause| cause.reason == "FieldValueDuplicate") {
                Fault::Duplicate
            } else {
                Fault::Invalid
            }
        }
        // etcd's limit, and that of the connection to it.
        500 if body_says_too_large(status.message.as_bytes()) => Fault::TooLarge,
        // Server-side apply's answer to a configuration that does not fit the schema: `.spec.x: field not declared in
        // schema`, `duplicate entries for key [name="A"]`, `illegal base64 data`. It fails in the same way for ever.
        500 if says("failed to create typed patch object") || says("failed to convert new object") => {
            Fault::Invalid
        }
        // Among them 401: the credentials are re-read, and the next attempt may have new ones.
        _ => Fault::Unavailable,
    }
}

fn body_says_too_large(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&body[..body.len().min(4_096)]);
    ["request is too large", "Request entity too large", "message larger than max"]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(code: u16, reason: &str, message: &str, causes: &Value) -> WriteError {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message,
            "details": {"name": "a", "kind": "webs", "causes": causes}, "code": code
        });
        WriteError::from_answer(code, status.to_string().as_bytes(), false)
    }

    fn cause(reason: &str, field: &str, message: &str) -> Value {
        json!({"reason": reason, "field": field, "message": message})
    }

    #[test]
    fn immutable_is_told_from_invalid_by_the_servers_words_alone() {
        let statefulset = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'template' are forbidden";
        let immutable = [
            cause("FieldValueForbidden", "spec", statefulset),
            cause(
                "FieldValueInvalid",
                "spec.selector",
                "Invalid value: {\"a\":\"b: c\"}: field is immutable",
            ),
            cause(
                "FieldValueInvalid",
                "spec.clusterIPs[0]",
                "Invalid value: [\"None\"]: may not change once set",
            ),
            cause("FieldValueForbidden", "data", "Forbidden: field is immutable when `immutable` is set"),
            cause("FieldValueInvalid", "roleRef", "Invalid value: {}: cannot change roleRef"),
            cause("FieldValueInvalid", "spec.engine", "Invalid value: \"string\": Value is immutable"),
            cause("FieldValueForbidden", "parameters", "Forbidden: updates to parameters are forbidden."),
            cause(
                "FieldValueForbidden",
                "spec",
                "Forbidden: spec is immutable after creation except x\n@@ -1 +1 @@\n- a: b\n",
            ),
        ];
        for cause in &immutable {
            assert_eq!(answer(422, "Invalid", "m", &json!([cause])).fault, Fault::Immutable, "{cause}");
        }
        let invalid = [
            cause("FieldValueInvalid", "spec.x", "Invalid value: \"field is immutable\": must be a number"),
            cause("FieldValueRequired", "spec.x", "Required value: is immutable"),
            cause("FieldValueTooLong", "spec.x", "Too long: may not be more than 63 bytes"),
        ];
        for cause in &invalid {
            assert_eq!(answer(422, "Invalid", "m", &json!([cause])).fault, Fault::Invalid, "{cause}");
            assert_eq!(answer(422, "Invalid", "m", &json!([cause, immutable[0]])).fault, Fault::Invalid);
        }
    }

    #[test]
    fn one_code_is_many_things() {
        let typed = "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema";
        let none = json!([]);
        for (error, fault, reason) in [
            (
                answer(
                    409,
                    "Conflict",
                    "m",
                    &json!([cause("FieldManagerConflict", ".spec.x", "conflict with \"k\"")]),
                ),
                Fault::FieldConflict,
                RejectReason::Conflict,
            ),
            (answer(409, "AlreadyExists", "m", &none), Fault::AlreadyExists, RejectReason::NotOwned),
            (
                answer(
                    409,
                    "Conflict",
                    "Precondition failed: UID in precondition: a, UID in object meta: b",
                    &none,
                ),
                Fault::Precondition,
                RejectReason::Gone,
            ),
            (
                answer(
                    409,
                    "Conflict",
                    "uid mismatch: the provided object specified uid a, and no existing object was found",
                    &none,
                ),
                Fault::Precondition,
                RejectReason::Gone,
            ),
            (
                answer(
                    409,
                    "Conflict",
                    "the UID in the precondition (a) does not match the UID in record (b)",
                    &none,
                ),
                Fault::Precondition,
                RejectReason::Gone,
            ),
            (
                answer(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                    &none,
                ),
                Fault::Precondition,
                RejectReason::Gone,
            ),
            (
                answer(
                    422,
                    "Invalid",
                    "m",
                    &json!([cause(
                        "FieldValueInvalid",
                        "metadata.uid",
                        "Invalid value: \"a\": field is immutable"
                    )]),
                ),
                Fault::Precondition,
                RejectReason::Gone,
            ),
            (
                answer(409, "Conflict", "the object has been modified", &none),
                Fault::Stale,
                RejectReason::Unavailable,
            ),
            (
                answer(
                    403,
                    "Forbidden",
                    "m",
                    &json!([cause("NamespaceTerminating", "metadata.namespace", "m")]),
                ),
                Fault::NamespaceTerminating,
                RejectReason::Terminating,
            ),
            (answer(403, "Forbidden", "exceeded quota", &none), Fault::Forbidden, RejectReason::Forbidden),
            (answer(404, "NotFound", "webs \"a\" not found", &none), Fault::NotFound, RejectReason::Gone),
            (
                answer(
                    422,
                    "Invalid",
                    "m",
                    &json!([cause("FieldValueTooLong", "", "Too long: may not be more than 1048576 bytes")]),
                ),
                Fault::TooLarge,
                RejectReason::TooLarge,
            ),
            (
                answer(500, "", "etcdserver: request is too large", &none),
                Fault::TooLarge,
                RejectReason::TooLarge,
            ),
            (answer(500, "InternalError", typed, &none), Fault::Invalid, RejectReason::Invalid),
            (
                answer(500, "InternalError", "etcdserver: leader changed", &none),
                Fault::Unavailable,
                RejectReason::Unavailable,
            ),
            (answer(429, "TooManyRequests", "m", &none), Fault::Unavailable, RejectReason::Unavailable),
        ] {
            assert_eq!((error.fault, error.reason()), (fault, reason), "{}", error.message);
        }
    }

    #[test]
    fn an_answer_that_is_no_status_is_judged_by_its_code() {
        let plain = |code, body: &str| WriteError::from_answer(code, body.as_bytes(), false).fault;
        assert_eq!(plain(404, "404 page not found\n"), Fault::NoEndpoint);
        assert_eq!(plain(413, "<html>"), Fault::TooLarge);
        assert_eq!(plain(502, "bad gateway"), Fault::Unavailable);
        assert_eq!(plain(200, "{"), Fault::Unavailable);
    }

    #[test]
    fn a_conflict_names_manager_and_field() {
        let causes = json!([cause(
            "FieldManagerConflict",
            ".spec.replicas",
            "conflict with \"kubectl\" using apps/v1"
        )]);
        let error = answer(409, "Conflict", "m", &causes);
        assert_eq!(error.message, ".spec.replicas: conflict with \"kubectl\" using apps/v1");
    }

    #[test]
    fn a_long_message_is_told_by_its_causes() {
        let whole = format!("Invalid value: \"{}\": json: cannot unmarshal number", "x".repeat(5_000));
        let error = answer(
            422,
            "Invalid",
            &format!("patch: {whole}"),
            &json!([cause("FieldValueInvalid", "patch", &whole)]),
        );
        assert_eq!(error.message, "patch: cannot unmarshal number");
    }

    #[test]
    fn values_of_secrets_do_not_reach_messages() {
        let status = json!({
            "kind": "Status", "message": "data[x]: Invalid value: \"hunter2\"", "reason": "Invalid",
            "details": {"causes": [cause("FieldValueInvalid", "data[x]", "Invalid value: \"hunter2\": no")]}
        });
        let error = WriteError::from_answer(422, status.to_string().as_bytes(), true);
        assert_eq!(error.message, "data[x]: FieldValueInvalid");
        let status = json!({"kind": "Status", "message": "hunter2", "reason": "InternalError"});
        let message = WriteError::from_answer(500, status.to_string().as_bytes(), true).message;
        assert_eq!(message, "status 500 InternalError; the rest of the answer could show values");
    }

    #[test]
    fn the_server_says_how_long_it_wants_to_be_left_alone() {
        let status = json!({"kind": "Status", "details": {"retryAfterSeconds": 3}});
        let error = WriteError::from_answer(429, status.to_string().as_bytes(), false);
        assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
    }
}
