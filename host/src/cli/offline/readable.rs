//! An outcome for people and for comparing with a committed file: the texts of JSON in it are taken apart.

use pilothouse_model::action::Outcome;
use pilothouse_model::object::Object;
use serde_json::{Map, Value, json};

/// Fields that hold JSON text, by action. See `wit/operator.wit`.
const JSON_FIELDS: [&str; 4] = ["object", "options", "patch", "body"];

/// One document: which resource, the actions in order, and the failure if there is one.
pub(crate) fn document(primary: &Object, outcome: &Outcome) -> Value {
    let meta = primary.meta();
    let mut resource = json!({
        "apiVersion": primary.kind().api_version(),
        "kind": primary.kind().kind,
        "name": &*meta.name,
    });
    if let Some(namespace) = &meta.namespace {
        resource["namespace"] = json!(&**namespace);
    }
    let mut document = json!({
        "resource": resource,
        "actions": outcome.actions.iter().map(|action| taken_apart(json!(action))).collect::<Vec<_>>(),
    });
    if let Some(failure) = &outcome.failure {
        document["failure"] = json!(failure);
    }
    document
}

/// `{"apply": {"object": "{…}", "options": ""}}` becomes `{"apply": {"object": {…}}}`. Text that is no JSON stays as
/// it is: the refusal says what is wrong with it.
fn taken_apart(action: Value) -> Value {
    let Value::Object(action) = action else { return action };
    let taken_apart = |(name, body): (String, Value)| {
        let body = match body {
            Value::String(text) if name == "set-status" => json_or_text(text),
            Value::Object(fields) => Value::Object(fields.into_iter().filter_map(field).collect()),
            other => other,
        };
        (name, body)
    };
    Value::Object(action.into_iter().map(taken_apart).collect::<Map<_, _>>())
}

fn field((name, value): (String, Value)) -> Option<(String, Value)> {
    let value = match value {
        Value::String(text) if JSON_FIELDS.contains(&name.as_str()) => json_or_text(text),
        other => other,
    };
    let is_empty = name == "options" && (value == json!({}) || value == json!(""));
    (!is_empty).then_some((name, value))
}

fn json_or_text(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use pilothouse_model::action::{Action, Apply, Deletion, Failure, TargetPatch};
    use pilothouse_model::kind::{Kind, Reference};

    use super::*;

    #[test]
    fn texts_of_json_are_taken_apart_and_others_kept() {
        let primary = json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a", "namespace": "n"}});
        let pod =
            Reference { kind: Kind::new("", "v1", "Pod"), namespace: None, name: "p".into(), uid: None };
        let outcome = Outcome {
            actions: vec![
                Action::Apply(Apply { object: r#"{"kind":"Pod"}"#.into(), options: String::new() }),
                Action::Apply(Apply { object: "{broken".into(), options: r#"{"createOnly":true}"#.into() }),
                Action::Delete(Deletion { target: pod.clone(), options: " {} ".into() }),
                Action::PatchTarget(TargetPatch {
                    target: pod,
                    patch: "null".into(),
                    options: String::new(),
                }),
                Action::SetStatus(r#"{"ready":1}"#.into()),
                Action::RequeueAfter(5),
                Action::Release,
            ],
            failure: Some(Failure::Retry("later".into())),
        };
        let pod = json!({"kind": {"group": "", "version": "v1", "kind": "Pod"}, "name": "p"});
        let expected = json!({
            "resource": {"apiVersion": "example.com/v1", "kind": "Web", "namespace": "n", "name": "a"},
            "actions": [
                {"apply": {"object": {"kind": "Pod"}}},
                {"apply": {"object": "{broken", "options": {"createOnly": true}}},
                {"delete": {"target": pod}},
                {"patch-target": {"target": pod, "patch": null}},
                {"set-status": {"ready": 1}},
                {"requeue-after": 5},
                "release",
            ],
            "failure": {"retry": "later"},
        });
        assert_eq!(document(&Object::from_value(&primary).unwrap(), &outcome), expected);
    }
}
