//! Server-side apply, as far as a test of a plugin needs it: one manager, maps by field, lists by position.

use serde_json::{Map, Value, json};

use crate::action::SecretTemplate;

/// Paths at which `live` is not as `wanted` says.
pub(super) fn differences(live: &Value, wanted: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    compare(live, wanted, "", &mut paths);
    paths
}

fn compare(live: &Value, wanted: &Value, path: &str, paths: &mut Vec<String>) {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            for (name, wanted) in wanted {
                compare(live.get(name).unwrap_or(&Value::Null), wanted, &below(path, name), paths);
            }
        }
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => {
            for (at, (live, wanted)) in live.iter().zip(wanted).enumerate() {
                compare(live, wanted, &format!("{path}[{at}]"), paths);
            }
        }
        _ if live == wanted => {}
        _ => paths.push(path.to_owned()),
    }
}

/// Removes from `live` the fields that `before` had applied and `wanted` leaves out; gives their paths.
pub(super) fn take_back(live: &mut Value, before: &Value, wanted: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    remove(live, before, wanted, "", &mut paths);
    paths
}

fn remove(live: &mut Value, before: &Value, wanted: &Value, path: &str, paths: &mut Vec<String>) {
    match (live, before, wanted) {
        (Value::Object(live), Value::Object(before), Value::Object(wanted)) => {
            for (name, before) in before {
                let path = below(path, name);
                match (live.get_mut(name), wanted.get(name)) {
                    (Some(live), Some(wanted)) => remove(live, before, wanted, &path, paths),
                    // Of a mapping only what was applied goes: what others set holds the rest.
                    (Some(held @ Value::Object(_)), None)
                        if before.as_object().is_some_and(|all| !all.is_empty()) =>
                    {
                        let mut below = Vec::new();
                        remove(held, before, &json!({}), &path, &mut below);
                        if held.as_object().is_some_and(Map::is_empty) {
                            live.remove(name);
                            paths.push(path);
                        } else {
                            paths.append(&mut below);
                        }
                    }
                    (Some(_), None) => {
                        live.remove(name);
                        paths.push(path);
                    }
                    (None, _) => {}
                }
            }
        }
        (Value::Array(live), Value::Array(before), Value::Array(wanted))
            if live.len() == before.len() && live.len() == wanted.len() =>
        {
            for (at, (live, (before, wanted))) in live.iter_mut().zip(before.iter().zip(wanted)).enumerate() {
                remove(live, before, wanted, &format!("{path}[{at}]"), paths);
            }
        }
        _ => {}
    }
}

/// Brings `live` to what `wanted` says and leaves the rest.
pub(super) fn merge(live: &mut Value, wanted: &Value) {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            for (name, wanted) in wanted {
                merge(live.entry(name).or_insert(Value::Null), wanted);
            }
        }
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => {
            for (live, wanted) in live.iter_mut().zip(wanted) {
                merge(live, wanted);
            }
        }
        (live, wanted) => *live = wanted.clone(),
    }
}

/// The Secret of a template as a plugin would see it.
pub(super) fn blanked_secret(template: &SecretTemplate) -> Value {
    let pairs = template.literals.iter().chain(&template.composed).map(|(key, _)| key);
    let keys = pairs.chain(template.random.iter().map(|random| &random.key));
    let data: Map<String, Value> = keys.map(|key| (key.clone(), json!(""))).collect();
    let strings = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
    };
    let mut annotations = strings(&template.annotations);
    annotations.insert("pilothouse.dev/blanked".to_owned(), json!("true"));
    let mut secret = crate::kinds::SECRET.object(&template.name);
    secret["metadata"]["annotations"] = Value::Object(annotations);
    secret["metadata"]["labels"] = Value::Object(strings(&template.labels));
    secret["type"] = json!(template.kind.as_deref().unwrap_or("Opaque"));
    secret["data"] = Value::Object(data);
    secret
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_is_left_out_keeps_what_others_set_in_it() {
        let before = json!({"shared": {"ours": 1}, "own": {"a": 1, "b": {"c": 1}}, "empty": {}});
        let mut live =
            json!({"shared": {"ours": 1, "theirs": 1}, "own": {"a": 1, "b": {"c": 1}}, "empty": {}});
        assert_eq!(take_back(&mut live, &before, &json!({})), ["empty", "own", "shared.ours"]);
        assert_eq!(live, json!({"shared": {"theirs": 1}}));
    }

    #[test]
    fn fields_of_others_stay_and_own_ones_that_are_left_out_go() {
        let before = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let mut live = json!({"a": 1, "b": {"c": 2, "d": 3, "theirs": true}, "status": {"ready": 1}});
        let wanted = json!({"a": 1, "b": {"c": 5}});

        assert_eq!(differences(&live, &wanted), ["b.c"]);
        assert_eq!(take_back(&mut live, &before, &wanted), ["b.d"]);
        merge(&mut live, &wanted);
        assert_eq!(live, json!({"a": 1, "b": {"c": 5, "theirs": true}, "status": {"ready": 1}}));
        assert!(differences(&live, &wanted).is_empty());
    }

    #[test]
    fn lists_of_the_same_length_keep_what_the_server_filled_in() {
        let mut live = json!({"list": [{"name": "a", "defaulted": 1}]});
        let wanted = json!({"list": [{"name": "a", "image": "x"}]});
        assert_eq!(differences(&live, &wanted), ["list[0].image"]);
        merge(&mut live, &wanted);
        assert_eq!(live, json!({"list": [{"name": "a", "defaulted": 1, "image": "x"}]}));

        let longer = json!({"list": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(differences(&live, &longer), ["list"]);
        merge(&mut live, &longer);
        assert_eq!(live, longer);
    }
}
