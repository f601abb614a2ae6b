//! What the API server would make of a server-side apply, as far as it can be said without the schemas of built-in kinds:
//! mappings merge, lists whose items all have a name merge by it, lists of the same length by position, and other lists
//! are replaced. Fields that the last apply had and this one leaves out go. Admission, defaults and other controllers are
//! not pretended; what they did stands in the case.

use pilothouse_model::merge_patch;
use serde_json::Value;

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
                match desired.get(name) {
                    None => {
                        live.remove(name);
                    }
                    Some(new) => {
                        if let Some(live) = live.get_mut(name) {
                            take_back(live, old, new);
                        }
                    }
                }
            }
        }
        (Value::Array(live), Value::Array(before), Value::Array(desired))
            if named(live) && named(before) && named(desired) =>
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
    use serde_json::json;

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
    fn lists_without_names_merge_by_position_or_are_replaced() {
        let live = json!({"ports": [{"port": 80, "protocol": "TCP"}], "args": ["a"]});
        let desired = json!({"ports": [{"port": 81}], "args": ["b", "c"]});
        let expected = json!({"ports": [{"port": 81, "protocol": "TCP"}], "args": ["b", "c"]});
        assert_eq!(applied(&live, None, &desired), expected);
    }
}
