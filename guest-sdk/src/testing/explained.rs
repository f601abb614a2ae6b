//! What `kubectl explain` says of a kind.

use serde_json::Value;

/// Paths of the fields below `spec` and `status`, in any version of a CustomResourceDefinition, that have no description.
///
/// `crd` is as the manifest holds it, `manifest().to_json()["crds"][0]`.
pub fn unexplained(crd: &Value) -> Vec<String> {
    let mut bare = Vec::new();
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        for top in ["spec", "status"] {
            walk(top, &schema[top], &mut bare);
        }
    }
    bare
}

fn walk(path: &str, schema: &Value, bare: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        walk(&path, field, bare);
        walk(&path, &field["items"], bare);
        if field["description"].as_str().is_none_or(str::is_empty) {
            bare.push(path);
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
        assert_eq!(bare, ["spec.empty", "spec.list.bare", "status.bare"]);
    }
}
