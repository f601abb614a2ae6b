//! Webhooks: what `spec.admission` and `spec.conversion` of the object say.
//!
//! `admission`: `deny`, a list of `field`, `reason` and `message`; `allowed`, if it is to contradict that; `warnings`, in
//! which `$(version)`, `$(operation)`, `$(user)` and `$(dryRun)` are filled in; `defaults`, merged into the object;
//! `raw`, returned as it is by `default-fields`; `behaviour` and `work` as for passes, `flood`, bytes that are returned.
//!
//! `conversion`: `error`; `set`, merged into the object; `drop`, true to leave it out; `behaviour` and `work`.

use serde_json::{Value, json};

use crate::exports::pilothouse::operator::admission::{
    AdmissionRequest, Cause, Guest as Admission, Operation, Verdict,
};
use crate::exports::pilothouse::operator::conversion::Guest as Conversion;
use crate::{Scripted, behave, written};

impl Admission for Scripted {
    fn validate(request: AdmissionRequest) -> Verdict {
        let object =
            request.new.as_ref().or(request.old.as_ref()).map(|text| parsed(text)).unwrap_or_default();
        let told = &object["spec"]["admission"];
        behave(told);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes: Vec<Cause> = told["deny"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| Cause {
                field: text(&cause["field"]),
                reason: cause["reason"].as_str().unwrap_or("FieldValueInvalid").to_owned(),
                message: text(&cause["message"]),
            })
            .collect();
        let mut warnings: Vec<String> = told["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| fill_in(&text(one), &request))
            .collect();
        if let Some(bytes) = told["flood"].as_u64() {
            warnings.push("x".repeat(usize::try_from(bytes).unwrap_or(0)));
        }
        Verdict { allowed: told["allowed"].as_bool().unwrap_or(causes.is_empty()), causes, warnings }
    }

    fn default_fields(request: AdmissionRequest) -> String {
        let text = request.new.unwrap_or_default();
        let mut object = parsed(&text);
        let told = object["spec"]["admission"].clone();
        behave(&told);
        if let Some(raw) = told["raw"].as_str() {
            return raw.to_owned();
        }
        merge(&mut object, &told["defaults"]);
        object.to_string()
    }
}

impl Conversion for Scripted {
    fn convert(objects: Vec<String>, to_version: String) -> Result<Vec<String>, String> {
        let mut converted = Vec::new();
        for text in objects {
            let mut object = parsed(&text);
            let told = object["spec"]["conversion"].clone();
            behave(&told);
            if let Some(error) = told["error"].as_str() {
                return Err(error.to_owned());
            }
            object["apiVersion"] = json!(to_version);
            merge(&mut object, &told["set"]);
            if told["drop"] != true {
                converted.push(object.to_string());
            }
        }
        Ok(converted)
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn fill_in(text: &str, request: &AdmissionRequest) -> String {
    let operation = match request.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
    };
    text.replace("$(version)", written()["version"].as_str().unwrap_or_default())
        .replace("$(operation)", operation)
        .replace("$(user)", &request.user)
        .replace("$(dryRun)", &request.dry_run.to_string())
        .replace("$(subresource)", &request.subresource)
}

/// A JSON merge patch without deletions.
fn merge(object: &mut Value, fields: &Value) {
    match (object, fields) {
        (_, Value::Null) => {}
        (Value::Object(object), Value::Object(fields)) => {
            for (field, value) in fields {
                merge(object.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
        (object, value) => *object = value.clone(),
    }
}
