//! What the API server would make of a server-side apply, as far as it can be said without the schemas of built-in kinds:
//! mappings merge, lists whose items all have a name merge by it, lists of the same length by position, and other lists
//! are replaced. Fields that the last apply had and this one leaves out go. Admission, defaults and other controllers are
//! not pretended; what they did stands in the case.

use pilothouse_model::merge_patch;
use serde_json::{Map, Value, json};

/// The object `live` after `desired` was applied to it, when `before` was applied last.
pub(super) fn applied(live: &Value, before: Option<&Value>, desired: &Value) -> Value {
    let desired = merge_patch::without_nulls(desired);
    let mut kept = live.clone();
    if let Some(before) = before {
        take_back(&mut kept, before, &desired);
    }
    merged(&kept, &desired)
}

fn merged(live: &Value, desired: &Value) -> Value {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let mut fields = live.clone();
            for (name, value) in desired {
                let old = live.get(name).unwrap_or(&Value::Null);
                fields.insert(name.clone(), merged(old, value));
            }
            Value::Object(fields)
        }
        (Value::Array(live), Value::Array(desired)) if named(live) && named(desired) => {
            let ours = |item: &&Value| desired.iter().any(|own| own["name"] == item["name"]);
            let own = desired.iter().map(|own| {
                let old = live.iter().find(|old| old["name"] == own["name"]);
                merged(old.unwrap_or(&Value::Null), own)
            });
            own.chain(live.iter().filter(|item| !ours(item)).cloned()).collect()
        }
        (Value::Array(live), Value::Array(desired)) if live.len() == desired.len() => {
            live.iter().zip(desired).map(|(live, desired)| merged(live, desired)).collect()
        }
        (_, desired) => desired.clone(),
    }
}

fn named(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| item["name"].is_string())
}

fn take_back(live: &mut Value, before: &Value, desired: &Value) {
    match (live, before, desired) {
        (Value::Object(live), Value::Object(before), Value::Object(desired)) => {
            for (name, old) in before {
                let Some(held) = live.get_mut(name) else { continue };
                let goes = match (desired.get(name), old) {
                    (Some(new), _) => {
                        take_back(held, old, new);
                        false
                    }
                    // Of a mapping or a list of names only what was applied goes, and the rest holds it.
                    (None, Value::Object(fields)) if !fields.is_empty() => {
                        take_back(held, old, &json!({}));
                        held.as_object().is_none_or(Map::is_empty)
                    }
                    (None, Value::Array(items)) if named(items) => {
                        take_back(held, old, &json!([]));
                        held.as_array().is_none_or(Vec::is_empty)
                    }
                    (None, _) => true,
                };
                if goes {
                    live.remove(name);
                }
            }
        }
        (Value::Array(live), Value::Array(before), Value::Array(desired))
            if named(live) && named(before) && (named(desired) || desired.is_empty()) =>
        {
            let of = |items: &[Value], name: &Value| items.iter().find(|item| item["name"] == *name).cloned();
            live.retain_mut(|item| {
                let name = item["name"].clone();
                match (of(before, &name), of(desired, &name)) {
                    (Some(_), None) => false,
                    (Some(old), Some(new)) => {
                        take_back(item, &old, &new);
                        true
                    }
                    (None, _) => true,
                }
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_set_stays_and_what_was_left_out_goes() {
        let before =
            json!({"data": {"a": "1", "b": "1"}, "containers": [{"name": "x", "image": "i"}, {"name": "y"}]});
        let live = json!({"data": {"a": "1", "b": "1", "theirs": "1"}, "uid": "u",
            "containers": [{"name": "x", "image": "i", "policy": "Always"}, {"name": "y"}, {"name": "injected"}]});
        let desired = json!({"data": {"a": "2", "n": null}, "containers": [{"name": "x", "image": "j"}]});
        let expected = json!({"data": {"a": "2", "theirs": "1"}, "uid": "u",
            "containers": [{"name": "x", "image": "j", "policy": "Always"}, {"name": "injected"}]});
        assert_eq!(applied(&live, Some(&before), &desired), expected);
        assert_eq!(applied(&expected, Some(&desired), &desired), expected);
    }

    #[test]
    fn a_mapping_that_is_left_out_keeps_what_others_set_in_it() {
        let before = json!({"metadata": {"annotations": {"ours": "1"}, "labels": {"ours": "1"}},
            "strategy": {"type": "Recreate"}, "args": ["a"], "env": [{"name": "OURS", "value": "1"}], "empty": {}});
        let live = json!({"metadata": {"annotations": {"ours": "1", "theirs": "1"}, "labels": {"ours": "1"}},
            "strategy": {"type": "Recreate"}, "args": ["a"],
            "env": [{"name": "OURS", "value": "1"}, {"name": "THEIRS"}], "empty": {}});
        let expected = json!({"metadata": {"annotations": {"theirs": "1"}}, "env": [{"name": "THEIRS"}]});
        assert_eq!(applied(&live, Some(&before), &json!({"metadata": {}})), expected);
    }

    #[test]
    fn lists_without_names_merge_by_position_or_are_replaced() {
        let live = json!({"ports": [{"port": 80, "protocol": "TCP"}], "args": ["a"]});
        let desired = json!({"ports": [{"port": 81}], "args": ["b", "c"]});
        let expected = json!({"ports": [{"port": 81, "protocol": "TCP"}], "args": ["b", "c"]});
        assert_eq!(applied(&live, None, &desired), expected);
    }
}
