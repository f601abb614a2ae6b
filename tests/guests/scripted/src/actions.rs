//! Actions in JSON: an object with one field, named as the contract names the case, in lower camel case.
//!
//! - `apply`: `object`, `options`
//! - `delete`: `apiVersion`, `kind`, `name`, `namespace`, `uid`, `options`
//! - `patchTarget`: as `delete`, and `patch`
//! - `generateSecret`: `name`, `literals` and `composed` (objects of strings), `random` (lengths by key), `options`
//! - `setStatus`: the status
//! - `recordEvent`: `severity` (`Normal` or `Warning`), `reason`, `message`
//! - `lookUp`: `id`, `apiVersion`, `kind`, `namespace`, `name`, `options`
//! - `requeueAfterMs`: a number; `release`: true; `extension`: `name`, `body`

use serde_json::{Map, Value, json};

use crate::exports::pilothouse::operator::reconciler::Observed;
use crate::pilothouse::operator::types::{
    Action, Alphabet, Apply, Deletion, Event, Extension, KeyValue, Kind, Query, RandomKey, Reference,
    SecretTemplate, Severity, TargetPatch,
};

/// All actions of a script, in the order children, `grow`, `actions`, status, requeue.
pub(crate) fn of(script: &Value, observed: &Observed) -> Result<Vec<Action>, String> {
    let listed = |field: &str| script[field].as_array().cloned().unwrap_or_default();
    let children = listed("children").into_iter().map(|child| apply(&json!({ "object": child })));
    let mut actions: Vec<Action> = children.collect();
    let wanted = script["grow"]["to"].as_u64().unwrap_or(0);
    if (observed.children.len() as u64) < wanted {
        actions.push(apply(&json!({ "object": script["grow"]["child"] })));
    }
    for told in listed("actions") {
        let mut cases = told.as_object().into_iter().flatten();
        let (Some((name, body)), None) = (cases.next(), cases.next()) else {
            return Err(format!("actions: an object with one field would be right, not {told}"));
        };
        actions.push(action(name, body)?);
    }
    let mut status = script["status"].clone();
    if script["report"] == true {
        status["observed"] = report(observed);
    }
    if status.is_object() {
        actions.push(Action::SetStatus(status.to_string()));
    }
    if let Some(after_ms) = script["requeueAfterMs"].as_u64() {
        actions.push(Action::RequeueAfter(after_ms));
    }
    Ok(actions)
}

/// One action.
pub(crate) fn action(name: &str, body: &Value) -> Result<Action, String> {
    Ok(match name {
        "apply" => apply(body),
        "delete" => Action::Delete(Deletion { target: reference(body), options: options(body) }),
        "patchTarget" => Action::PatchTarget(TargetPatch {
            target: reference(body),
            patch: body["patch"].to_string(),
            options: options(body),
        }),
        "generateSecret" => Action::GenerateSecret(SecretTemplate {
            name: text(body, "name"),
            literals: pairs(&body["literals"]),
            random: lengths(&body["random"]),
            composed: pairs(&body["composed"]),
            options: options(body),
        }),
        "setStatus" => Action::SetStatus(body.to_string()),
        "recordEvent" => Action::RecordEvent(Event {
            severity: if body["severity"] == "Warning" { Severity::Warning } else { Severity::Normal },
            reason: text(body, "reason"),
            message: text(body, "message"),
        }),
        "lookUp" => Action::LookUp(Query {
            id: text(body, "id"),
            kind: kind(body),
            namespace: maybe(body, "namespace"),
            name: maybe(body, "name"),
            options: options(body),
        }),
        "requeueAfterMs" => Action::RequeueAfter(body.as_u64().ok_or("requeueAfterMs: no number")?),
        "release" => Action::Release,
        "extension" => {
            Action::Extension(Extension { name: text(body, "name"), body: body["body"].to_string() })
        }
        other => return Err(format!("actions: there is no `{other}`")),
    })
}

fn apply(body: &Value) -> Action {
    Action::Apply(Apply { object: body["object"].to_string(), options: options(body) })
}

/// What the pass was shown: children as KIND/NAME, names by query, and the actions that failed before.
fn report(observed: &Observed) -> Value {
    let short = |object: &String| {
        let object: Value = serde_json::from_str(object).unwrap_or_default();
        format!("{}/{}", text(&object, "kind"), text(&object["metadata"], "name"))
    };
    let related = observed
        .related
        .iter()
        .map(|answer| (answer.query.clone(), answer.objects.iter().map(short).collect::<Vec<_>>().into()));
    let last = observed.last.iter().map(
        |rejected| json!({ "index": rejected.index, "reason": rejected.reason, "message": rejected.message }),
    );
    json!({
        "children": observed.children.iter().map(short).collect::<Vec<_>>(),
        "related": related.collect::<Map<String, Value>>(),
        "last": last.collect::<Vec<_>>(),
    })
}

fn reference(body: &Value) -> Reference {
    Reference {
        kind: kind(body),
        namespace: maybe(body, "namespace"),
        name: text(body, "name"),
        uid: maybe(body, "uid"),
    }
}

fn kind(body: &Value) -> Kind {
    let api_version = text(body, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Kind { group: group.to_owned(), version: version.to_owned(), kind: text(body, "kind") }
}

fn pairs(value: &Value) -> Vec<KeyValue> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, _)| KeyValue { key: key.clone(), value: text(value, key) }).collect()
}

fn lengths(value: &Value) -> Vec<RandomKey> {
    let fields = value.as_object().into_iter().flatten();
    let key = |(key, length): (&String, &Value)| RandomKey {
        key: key.clone(),
        length: length.as_u64().and_then(|length| length.try_into().ok()).unwrap_or(0),
        alphabet: Alphabet::Alphanumeric,
    };
    fields.map(key).collect()
}

fn options(body: &Value) -> String {
    body.get("options").map(Value::to_string).unwrap_or_default()
}

fn text(value: &Value, field: &str) -> String {
    maybe(value, field).unwrap_or_default()
}

fn maybe(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}
