//! Defaults of a CustomResourceDefinition's schema, filled in as the API server does before anything is stored:
//! without them a plugin would see other objects offline than in a cluster.

use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::Manifest;
use serde_json::Value;

/// Fills in the defaults of this kind's schema, if the plugin brings one along.
pub(super) fn fill(object: &mut Value, kind: &Kind, manifest: &Manifest) {
    if let Some(schema) = schema(kind, manifest) {
        fill_from(object, schema);
    }
}

fn schema<'a>(kind: &Kind, manifest: &'a Manifest) -> Option<&'a Value> {
    let crd = manifest.crds.iter().find(|crd| {
        crd["spec"]["group"] == kind.group.as_str() && crd["spec"]["names"]["kind"] == kind.kind.as_str()
    })?;
    let mut versions = crd["spec"]["versions"].as_array()?.iter();
    Some(&versions.find(|version| version["name"] == kind.version.as_str())?["schema"]["openAPIV3Schema"])
}

/// `structuraldefaulting.Default` of the API server: outer defaults first, so that a default object gets the defaults
/// of its own fields; a null that is not allowed counts as absent.
fn fill_from(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            for (name, property) in properties.into_iter().flatten() {
                let is_absent = fields
                    .get(name)
                    .is_none_or(|value| value.is_null() && property["nullable"] != Value::Bool(true));
                if is_absent && let Some(default) = property.get("default") {
                    fields.insert(name.clone(), default.clone());
                }
            }
            let additional = &schema["additionalProperties"];
            for (name, value) in fields {
                fill_from(
                    value,
                    properties.and_then(|properties| properties.get(name)).unwrap_or(additional),
                );
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_from(item, &schema["items"])),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_filled_in_as_the_api_server_does() {
        let schema = json!({"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "storage": {"type": "object", "default": {}, "properties": {
                "size": {"type": "string", "default": "1Gi"}, "class": {"type": "string"}}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {
                "protocol": {"type": "string", "default": "TCP"}}}},
            "pools": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                "weight": {"type": "integer", "default": 10}}}},
            "note": {"type": "string", "nullable": true, "default": "none"},
            "optional": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}
        }});
        let mut value =
            json!({"replicas": null, "ports": [{}, {"protocol": "UDP"}], "pools": {"a": {}}, "note": null});
        fill_from(&mut value, &schema);
        let expected = json!({
            "replicas": 1, "storage": {"size": "1Gi"}, "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}],
            "pools": {"a": {"weight": 10}}, "note": null,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn the_schema_is_that_of_the_kind_and_version() {
        let version = |name: &str, default: u64| {
            json!({"name": name, "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {
                "replicas": {"default": default}}}}}}})
        };
        let manifest = json!({
            "name": "web", "version": "1",
            "crds": [{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                      "metadata": {"name": "webs.example.com"},
                      "spec": {"group": "example.com", "names": {"kind": "Web"},
                               "versions": [version("v1", 1), version("v2", 2)]}}],
            "controllers": [{"primary": {"group": "example.com", "version": "v2", "kind": "Web", "plural": "webs"}}]
        });
        let manifest = Manifest::parse(&manifest.to_string()).unwrap();
        let mut object = json!({"spec": {}});
        fill(&mut object, &Kind::new("example.com", "v2", "Web"), &manifest);
        assert_eq!(object["spec"]["replicas"], 2);
        let mut other = json!({"spec": {}});
        fill(&mut other, &Kind::new("example.com", "v1", "Other"), &manifest);
        assert_eq!(other, json!({"spec": {}}));
    }
}
