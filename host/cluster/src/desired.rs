//! Makes a configuration fit for server-side apply, and tells what an object from the store shows of a patch.

use std::borrow::Cow;

use k8s_openapi::ByteString;
use pilothouse_model::merge_patch::without_nulls;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

/// The configuration in the form in which it is applied and compared.
///
/// - Nulls are left out: they mean "not set" to whoever serialised an optional field, while an apply would own them.
/// - A Secret's `stringData` goes into `data`: the API server keeps no `stringData`, so a key left out later would
///   stay for ever, and what is owned would never be what is there.
pub(crate) fn canonical(object: &Value) -> Cow<'_, Value> {
    let string_data =
        object["apiVersion"] == "v1" && object["kind"] == "Secret" && object.get("stringData").is_some();
    if !string_data && !has_null(object) {
        return Cow::Borrowed(object);
    }
    let mut object = without_nulls(object);
    if string_data
        && let Some(Value::Object(texts)) = object.as_object_mut().and_then(|o| o.remove("stringData"))
    {
        if !object["data"].is_object() {
            object["data"] = json!({});
        }
        for (key, text) in texts {
            // What is no text the API server shall refuse, by its name.
            object["data"][key] = match text {
                Value::String(text) => base64(text.into_bytes()),
                other => other,
            };
        }
    }
    Cow::Owned(object)
}

/// Bytes as a Secret's `data` holds them.
pub(crate) fn base64(bytes: Vec<u8>) -> Value {
    serde_json::to_value(ByteString(bytes)).unwrap_or_default()
}

/// With the UID that the live object must have.
pub(crate) fn with_uid(object: &Value, uid: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = json!(uid);
    object
}

/// Whether an object from the store can tell what a patch would change: of some kinds only metadata, or a few fields, are
/// kept.
pub(crate) fn shows_all_of(live: &Object, patch: &Value) -> bool {
    let metadata_alone =
        || patch.as_object().is_some_and(|fields| fields.keys().all(|name| name == "metadata"));
    !live.is_partial() || metadata_alone()
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|value| value.is_null() || has_null(value)),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_model::manifest::Projection;

    use super::*;

    #[test]
    fn string_data_becomes_data_and_wins_as_in_the_api_server() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": null},
            "data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new", "c": 1}
        });
        assert_eq!(
            *canonical(&secret),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                "data": {"a": "bmV3", "b": "Yg==", "c": 1}
            })
        );
        let other = json!({"apiVersion": "example.com/v1", "kind": "Secret", "stringData": {"a": "x"}});
        assert!(matches!(canonical(&other), Cow::Borrowed(_)));
    }

    #[test]
    fn nulls_go_at_any_depth_but_items_of_lists_stay() {
        let object = json!({"a": [{"b": null, "c": 1}, null], "d": {"e": null}});
        assert_eq!(*canonical(&object), json!({"a": [{"c": 1}, null], "d": {}}));
    }

    #[test]
    fn a_metadata_only_object_cannot_judge_a_patch_of_its_content() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let whole = Object::from_value(&pod).unwrap();
        let mut bare = whole.clone();
        bare.project(&Projection::Metadata);
        assert!(shows_all_of(&bare, &json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(!shows_all_of(&bare, &json!({"spec": {}})));
        assert!(shows_all_of(&whole, &json!({"spec": {}})));
    }
}
