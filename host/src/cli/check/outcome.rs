//! Compares the outcome that a case expects with the one that the plugin gave. Actions are matched by what they are
//! for, not by their position: one that is missing is one line, and not a difference in each that follows.

use serde_json::Value;

use super::difference::{self, Difference, between};

/// What differs; empty if nothing does.
pub(super) fn differences(expected: &Value, got: &Value) -> Vec<Difference> {
    let (wanted, given) = (actions(expected), actions(got));
    let mut left: Vec<Option<&(String, &Value)>> = given.iter().map(Some).collect();
    let mut found = Vec::new();
    let mut order = Vec::new();
    for (at, (name, action)) in wanted.iter().enumerate() {
        let place = left.iter().position(|other| other.is_some_and(|(other, _)| other == name));
        let path = format!("actions[{at}] {name}");
        match place {
            Some(place) => {
                order.push(place);
                if let Some((_, other)) = left[place].take() {
                    found.extend(between(&path, body(action), body(other)));
                }
            }
            None => found.push(Difference { path, expected: Some((*action).clone()), got: None }),
        }
    }
    for (at, (name, action)) in left.iter().enumerate().filter_map(|(at, other)| Some((at, (*other)?))) {
        let path = format!("actions[{at}] {name}");
        found.push(Difference { path, expected: None, got: Some((*action).clone()) });
    }
    if found.is_empty() && !order.is_sorted() {
        let names = |list: &[(String, &Value)]| list.iter().map(|(name, _)| name.as_str()).collect();
        let path = "actions: the order".to_owned();
        found.push(Difference { path, expected: Some(names(&wanted)), got: Some(names(&given)) });
    }
    let failure = |outcome: &Value| outcome.get("failure").cloned().unwrap_or_default();
    found.extend(between("failure", &failure(expected), &failure(got)));
    found
}

fn actions(outcome: &Value) -> Vec<(String, &Value)> {
    let actions = outcome["actions"].as_array().into_iter().flatten();
    actions.map(|action| (name(action), action)).collect()
}

/// `apply ConfigMap hello`, `record-event Created`, `release`.
fn name(action: &Value) -> String {
    let Some((kind, body)) = action.as_object().and_then(|action| action.iter().next()) else {
        return action.as_str().unwrap_or_default().to_owned();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let what = match kind.as_str() {
        "apply" => {
            format!("{} {}", text(&body["object"]["kind"]), text(&body["object"]["metadata"]["name"]))
        }
        "delete" | "patch-target" => {
            format!("{} {}", text(&body["target"]["kind"]["kind"]), text(&body["target"]["name"]))
        }
        "generate-secret" => format!("Secret {}", text(&body["name"])),
        "record-event" => text(&body["reason"]),
        "look-up" => text(&body["id"]),
        _ => return kind.clone(),
    };
    format!("{kind} {what}")
}

fn body(action: &Value) -> &Value {
    action.as_object().and_then(|action| action.values().next()).unwrap_or(action)
}

/// For a finding.
pub(super) fn listed(expected: &Value, got: &Value) -> Option<String> {
    let found = differences(expected, got);
    (!found.is_empty()).then(|| difference::listed(&found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(name: &str, text: &str) -> Value {
        json!({"apply": {"object": {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}}})
    }

    fn paths(expected: Value, got: Value) -> Vec<String> {
        differences(&expected, &got).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn actions_are_matched_by_what_they_are_for() {
        let expected = json!({"actions": [map("a", "1"), map("b", "1"), "release"]});
        let got = json!({"actions": [map("b", "2"), "release", map("c", "1")]});
        assert_eq!(
            paths(expected, got),
            [
                "actions[0] apply ConfigMap a",
                "actions[1] apply ConfigMap b.object.data.text",
                "actions[2] apply ConfigMap c"
            ]
        );
    }

    #[test]
    fn order_and_failure_count() {
        let one = json!({"actions": [map("a", "1"), map("b", "1")]});
        let other = json!({"actions": [map("b", "1"), map("a", "1")]});
        assert_eq!(paths(one.clone(), other), ["actions: the order"]);
        let failing = json!({"actions": [map("a", "1"), map("b", "1")], "failure": {"invalid": "x"}});
        assert_eq!(paths(one, failing), ["failure"]);
    }
}
