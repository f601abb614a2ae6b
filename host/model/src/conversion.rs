//! Conversion between the versions of a kind: what the host takes of a plugin's answer.
//!
//! The rules are apiextensions' own: as many objects, in the same order, each in the version that was asked for, and of
//! `metadata` nothing changed but labels and annotations. The API server would say no as well, with fewer words; and
//! what it would overwrite silently is refused here by name.

use serde_json::Value;

use crate::admission::Lie;

/// The converted object in the form in which it goes back to the API server: what the plugin made of it, with the
/// metadata that the plugin did not see. `at` is its position in the request.
pub fn converted(at: usize, before: &Value, after: &str, api_version: &str) -> Result<Value, Lie> {
    let lie = |problem: String| Lie(format!("objects[{at}]: {problem}"));
    let mut after: Value =
        serde_json::from_str(after).map_err(|error| lie(format!("the result is no JSON: {error}")))?;
    if after["apiVersion"] != api_version {
        return Err(lie(format!("apiVersion is {}, `{api_version}` was asked for", after["apiVersion"])));
    }
    if after["kind"] != before["kind"] {
        return Err(lie(format!("kind is {}, it was {}", after["kind"], before["kind"])));
    }
    let (Some(old), Some(new)) = (before["metadata"].as_object(), after["metadata"].as_object()) else {
        return Err(lie("metadata is missing".to_owned()));
    };
    let changed = old.keys().chain(new.keys()).find(|field| {
        let may = matches!(field.as_str(), "labels" | "annotations" | "managedFields");
        !may && old.get(*field) != new.get(*field)
    });
    if let Some(field) = changed {
        return Err(lie(format!(
            "changes metadata.{field}, and conversion may change labels and annotations only"
        )));
    }
    let mut metadata = old.clone();
    for field in ["labels", "annotations"] {
        let strings =
            |value: &Value| value.as_object().is_some_and(|fields| fields.values().all(Value::is_string));
        match new.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(value) if strings(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            Some(_) => return Err(lie(format!("metadata.{field} has values that are no text"))),
        }
    }
    after["metadata"] = Value::Object(metadata);
    Ok(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn before() -> Value {
        json!({"apiVersion": "e/v1", "kind": "A", "metadata": {
            "name": "a", "uid": "u", "labels": {"x": "y"}, "managedFields": [{"manager": "m"}]}, "spec": {"a": 1}})
    }

    fn shown(change: impl FnOnce(&mut Value)) -> String {
        let mut object = before();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object["apiVersion"] = json!("e/v2");
        change(&mut object);
        object.to_string()
    }

    #[test]
    fn content_labels_and_annotations_may_change() {
        let text = shown(|object| {
            object["spec"] = json!({"b": 1});
            object["metadata"]["annotations"] = json!({"e/lost": "1"});
            object["metadata"].as_object_mut().unwrap().remove("labels");
        });
        let after = converted(0, &before(), &text, "e/v2").unwrap();
        assert_eq!(
            after,
            json!({"apiVersion": "e/v2", "kind": "A", "spec": {"b": 1}, "metadata": {
                "name": "a", "uid": "u", "annotations": {"e/lost": "1"}, "managedFields": [{"manager": "m"}]}})
        );
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (text, part) in [
            (shown(|object| object["metadata"]["name"] = json!("b")), "changes metadata.name,"),
            (
                shown(|object| object["metadata"]["finalizers"] = json!(["x/y"])),
                "changes metadata.finalizers,",
            ),
            (shown(|object| object["metadata"] = json!(null)), "metadata is missing"),
            (shown(|object| object["metadata"]["labels"] = json!({"x": 1})), "metadata.labels has values"),
            (shown(|object| object["kind"] = json!("B")), "kind is \"B\""),
            (shown(|object| object["apiVersion"] = json!("e/v3")), "apiVersion is \"e/v3\", `e/v2` was"),
            ("[]".to_owned(), "apiVersion is null"),
            ("{".to_owned(), "no JSON"),
        ] {
            let lie = converted(3, &before(), &text, "e/v2").unwrap_err().to_string();
            assert!(lie.starts_with("objects[3]: ") && lie.contains(part), "{lie}");
        }
    }
}
