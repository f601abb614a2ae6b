//! JSON merge patches (RFC 7386): made, applied, and what a null means in them.

use serde_json::{Map, Value};

/// The patch from one value to another, or none if they are equal. Nulls in `to` mean absent,
/// as the API server stores none.
pub fn between(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for key in from.keys().filter(|key| to.get(*key).is_none_or(Value::is_null)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in to.iter().filter(|(_, value)| !value.is_null()) {
                match from.get(key) {
                    None => {
                        patch.insert(key.clone(), without_nulls(value));
                    }
                    Some(old) => {
                        if let Some(change) = between(old, value) {
                            patch.insert(key.clone(), change);
                        }
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => Some(without_nulls(to)).filter(|to| from != to),
    }
}

/// What a patch makes of an object: what the API server would store.
pub fn apply(live: &Value, patch: &Value) -> Value {
    let Some(fields) = patch.as_object() else { return patch.clone() };
    let mut merged = live.as_object().cloned().unwrap_or_default();
    for (name, value) in fields {
        if value.is_null() {
            merged.remove(name);
        } else {
            let new = apply(merged.get(name).unwrap_or(&Value::Null), value);
            merged.insert(name.clone(), new);
        }
    }
    Value::Object(merged)
}

/// Whether a patch would change anything of what is there. What it only removes from a map that is not there changes
/// nothing: by the letter of the RFC an empty map would come of it, of which the API server keeps none in its own kinds,
/// so that the same patch would be sent for ever.
pub fn changes(live: Option<&Value>, patch: &Value) -> bool {
    match (live.filter(|live| !live.is_null()), patch) {
        (None, Value::Object(fields)) => {
            fields.is_empty() || fields.values().any(|patch| changes(None, patch))
        }
        (Some(Value::Object(live)), Value::Object(fields)) => {
            fields.iter().any(|(name, patch)| changes(live.get(name), patch))
        }
        (live, patch) => live.unwrap_or(&Value::Null) != patch,
    }
}

/// The value without the nulls in its objects: they mean "not set" to whoever serialised an optional field. Items of lists
/// stay, as their places count.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_merge() {
        let live = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        assert_eq!(
            apply(&live, &json!({"a": {"b": null, "e": 3}, "d": [2]})),
            json!({"a": {"c": 2, "e": 3}, "d": [2]})
        );
        assert_eq!(apply(&live, &json!({"a": {"x": null}})), live);
    }

    #[test]
    fn only_what_would_be_different_is_a_change() {
        let live = json!({"a": {"b": 1}, "d": [1]});
        for patch in [
            json!({}),
            json!({"a": {"b": 1, "x": null}, "d": [1], "x": null}),
            json!({"x": {"y": {"z": null}}}),
        ] {
            assert!(!changes(Some(&live), &patch), "{patch}");
        }
        for patch in [
            json!({"a": null}),
            json!({"a": {"b": null}}),
            json!({"d": []}),
            json!({"d": {"x": null}}),
            json!({"x": {}}),
            json!({"x": {"y": null, "z": 1}}),
        ] {
            assert!(changes(Some(&live), &patch), "{patch}");
            assert_ne!(apply(&live, &patch), live, "{patch}");
        }
    }
}
