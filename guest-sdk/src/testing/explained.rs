//! What `kubectl explain` says of a kind.

use serde_json::Value;

/// Paths of `spec`, `status` and the fields below them, in any version of a CustomResourceDefinition, that have no description.
///
/// `crd` is as the manifest holds it, `manifest().to_json()["crds"][0]`.
pub fn unexplained(crd: &Value) -> Vec<String> {
    let mut bare = Vec::new();
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        for top in ["spec", "status"] {
            if let Some(schema) = schema.get(top) {
                said(top, schema, &mut bare);
            }
        }
    }
    bare
}

fn said(path: &str, schema: &Value, bare: &mut Vec<String>) {
    if schema["description"].as_str().is_none_or(str::is_empty) {
        bare.push(path.to_owned());
    }
    for fields in [schema, &schema["items"]] {
        for (name, field) in fields["properties"].as_object().into_iter().flatten() {
            said(&format!("{path}.{name}"), field, bare);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_without_words_are_named_by_their_paths() {
        let told = json!({"description": "told"});
        let list = json!({"description": "a list", "items": {"properties": {"bare": {}, "told": told}}});
        let spec = json!({"properties": {"told": told, "empty": {"description": ""}, "list": list}});
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": spec, "status": {"properties": {"bare": {}}}}}});
        let crd = json!({"spec": {"versions": [{"schema": schema}]}});
        let mut bare = unexplained(&crd);
        bare.sort();
        assert_eq!(bare, ["spec", "spec.empty", "spec.list.bare", "status", "status.bare"]);
    }
}
