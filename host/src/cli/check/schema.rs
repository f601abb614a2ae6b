//! What the API server does with the schema of a CustomResourceDefinition, as far as `check` needs it: it drops what the
//! schema does not know, and refuses what is missing, of another type or out of bounds.

use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::{Manifest, Scope};
use serde_json::Value;

use super::bounds;
use super::difference::joined;

/// Levels of a schema that are looked at: as many as people nest, and an end for a schema that does not.
const DEPTH_MAX: usize = 32;

/// The schema of this version of a kind that the plugin brings along.
pub(super) fn of<'a>(manifest: &'a Manifest, kind: &Kind) -> Option<&'a Value> {
    let versions = manifest.crd(kind)?["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|version| version["name"] == *kind.version)?;
    Some(&version["schema"]["openAPIV3Schema"])
}

/// Drops what the schema does not know; nulls of fields that are not nullable count as absent.
pub(super) fn prune(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            let keeps = keeps_all(schema) || schema.is_null();
            let more = schema["additionalProperties"].as_object().is_some()
                || schema["additionalProperties"] == Value::Bool(true);
            fields.retain(|name, _| keeps || more || known.is_some_and(|known| known.contains_key(name)));
            for (name, value) in fields {
                match known.and_then(|known| known.get(name)) {
                    Some(schema) => prune(value, schema),
                    None if more => prune(value, &schema["additionalProperties"]),
                    None => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"])),
        _ => {}
    }
}

fn keeps_all(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true)
}

/// What is wrong with a value: the path of each field, and what would be right.
pub(super) fn problems(path: &str, value: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(path, value, schema, &mut found);
    found
}

fn check(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    let right = types(schema);
    if !right.is_empty() && !right.iter().any(|name| is_of(value, name)) {
        found.push(format!("{path}: {} would be right", right.join(" or ")));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{path}: {value} is none of {}", Value::Array(allowed.clone())));
    }
    found.extend(bounds::broken(value, schema).into_iter().map(|problem| format!("{path}: {problem}")));
    match value {
        Value::Object(fields) => {
            for name in required(schema) {
                if fields.get(name).is_none_or(Value::is_null) {
                    found.push(format!("{}: is required by the schema", joined(path, name)));
                }
            }
            let known = schema["properties"].as_object();
            let more = &schema["additionalProperties"];
            for (name, value) in fields {
                let path = joined(path, name);
                match known.and_then(|known| known.get(name)) {
                    Some(schema) if value.is_null() && schema["nullable"] != Value::Bool(true) => {}
                    Some(schema) => check(&path, value, schema, found),
                    None if more.is_object() => check(&path, value, more, found),
                    None if keeps_all(schema) || *more == Value::Bool(true) => {}
                    None => {
                        found
                            .push(format!("{path}: the schema does not know it, so the API server drops it"));
                    }
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                check(&format!("{path}[{at}]"), item, &schema["items"], found);
            }
        }
        _ => {}
    }
}

/// Names of the types that a value may have; empty if all.
fn types(schema: &Value) -> Vec<&str> {
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return vec!["integer", "string"];
    }
    schema["type"].as_str().into_iter().collect()
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// One way in which a resource can be wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wrong {
    /// Path of the field.
    pub(super) path: String,
    /// For people: `is missing`, `is a text`.
    pub(super) how: &'static str,
    /// In its place; none: it is taken away.
    pub(super) value: Option<Value>,
}

impl Wrong {
    /// The last name of the path.
    pub(super) fn field(&self) -> &str {
        self.path.rsplit(['.', '[']).next().unwrap_or_default().trim_end_matches(']')
    }
}

/// Ways in which the fields below `path`, which `value` has, can be wrong by the schema: each required one missing, each
/// one of another type. At most `count_max`, the outer ones first.
pub(super) fn wrongs(path: &str, value: &Value, schema: &Value, count_max: usize) -> Vec<Wrong> {
    let mut found = Vec::new();
    let mut level = vec![(path.to_owned(), value, schema)];
    for _ in 0..DEPTH_MAX {
        let mut below = Vec::new();
        for (path, value, schema) in level {
            let known = schema["properties"].as_object().into_iter().flatten();
            // A name with a dot in it could not be told from a path.
            for (name, property) in known.filter(|(name, _)| !name.contains(['.', '/'])) {
                let path = joined(&path, name);
                // The API server fills a default in.
                let is_filled = property.get("default").is_some();
                if required(schema).any(|required| required == name) && !is_filled {
                    found.push(Wrong { path: path.clone(), how: "is missing", value: None });
                }
                found.extend(of_another_type(&path, property));
                if let Some(inner) = value.get(name).filter(|inner| inner.is_object()) {
                    below.push((path, inner, property));
                }
            }
        }
        level = below;
    }
    found.truncate(count_max);
    found
}

fn of_another_type(path: &str, schema: &Value) -> Option<Wrong> {
    if keeps_all(schema) && schema["type"].is_null() {
        return None;
    }
    let right = types(schema);
    let (how, value) = match right.first() {
        None => return None,
        // A text for a mapping, since a list is as good as one to some readers: its items are the fields in order.
        Some(&("array" | "object")) => ("is a text", Value::from("wrong")),
        Some(_) => ("is a list", serde_json::json!(["wrong"])),
    };
    Some(Wrong { path: path.to_owned(), how, value: Some(value) })
}

/// What is wrong with the CustomResourceDefinitions of a manifest, beyond what loading it checks.
pub(super) fn of_manifest(manifest: &Manifest) -> Vec<String> {
    let mut found = Vec::new();
    for (at, crd) in manifest.crds.iter().enumerate() {
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
        if crd["metadata"]["name"] != name {
            found.push(format!(
                "crds[{at}].metadata.name: `{name}` would be right, by spec.names.plural and spec.group"
            ));
        }
        for (at_version, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
            let path = format!("crds[{at}].spec.versions[{at_version}].schema.openAPIV3Schema");
            structural(&path, &version["schema"]["openAPIV3Schema"], 0, &mut found);
        }
    }
    for (at, controller) in manifest.controllers.iter().enumerate() {
        let (resource, kind) = (&controller.primary, controller.primary.kind());
        let Some(crd) = manifest.crd(&kind) else { continue };
        let path = format!("controllers[{at}].primary");
        let scope = if resource.scope == Scope::Cluster { "Cluster" } else { "Namespaced" };
        if crd["spec"]["scope"] != scope {
            found.push(format!("{path}.scope: {scope}, yet its CRD says {}", crd["spec"]["scope"]));
        }
        if crd["spec"]["names"]["plural"] != *resource.plural {
            let plural = &crd["spec"]["names"]["plural"];
            found.push(format!("{path}.plural: {}, yet its CRD says {plural}", resource.plural));
        }
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        if !versions.into_iter().any(|one| one["name"] == *kind.version && one["served"] == Value::Bool(true))
        {
            found.push(format!("{path}.version: {} is no served version of its CRD", kind.version));
        }
    }
    found
}

/// What the API server refuses in a schema, and authors who write theirs by hand get wrong.
fn structural(path: &str, schema: &Value, depth: usize, found: &mut Vec<String>) {
    let mut wrong = |at: &str, problem: &str| found.push(format!("{path}{at}: {problem}"));
    let kinds = types(schema);
    if depth == 0 && kinds != ["object"] {
        wrong(".type", "`object` would be right");
    } else if kinds.is_empty() && !keeps_all(schema) {
        wrong("", "has no type");
    }
    if kinds == ["array"] && !schema["items"].is_object() {
        wrong(".items", "is missing: the schema of an item would be right");
    }
    if schema["properties"].is_object() && schema.get("additionalProperties").is_some() {
        wrong(".additionalProperties", "cannot stand beside `properties`");
    }
    if schema["uniqueItems"] == Value::Bool(true) {
        wrong(".uniqueItems", "is not allowed: `x-kubernetes-list-type: set` would be right");
    }
    for keyword in ["$ref", "definitions", "dependencies", "id", "patternProperties"] {
        if schema.get(keyword).is_some() {
            wrong(&format!(".{keyword}"), "is not allowed in a structural schema");
        }
    }
    if schema["x-kubernetes-list-type"] == "map" {
        let item = &schema["items"];
        for key in
            schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            let is_always_there =
                required(item).any(|name| name == key) || item["properties"][key].get("default").is_some();
            if !is_always_there {
                wrong(
                    ".items",
                    &format!("`{key}` is a key of the list: it must be required or have a default"),
                );
            }
        }
    }
    if depth > DEPTH_MAX {
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        structural(&format!("{path}.properties.{name}"), property, depth + 1, found);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            structural(&format!("{path}.{below}"), &schema[below], depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["text", "count"], "properties": {
            "text": {"type": "string", "enum": ["a", "b"]},
            "count": {"type": "integer", "default": 1},
            "nested": {"type": "object", "required": ["size"], "properties": {"size": {"x-kubernetes-int-or-string": true}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
        }})
    }

    #[test]
    fn problems_name_the_field_and_what_would_be_right() {
        let value = json!({"text": "c", "count": "1", "nested": {}, "labels": {"a.b/c": 1}, "free": {"x": 1}, "more": 1});
        assert_eq!(
            problems("status", &value, &schema()),
            [
                "status.count: integer would be right",
                "status.labels[a.b/c]: string would be right",
                "status.more: the schema does not know it, so the API server drops it",
                "status.nested.size: is required by the schema",
                "status.text: \"c\" is none of [\"a\",\"b\"]",
            ]
        );
        let mut pruned = value;
        prune(&mut pruned, &schema());
        assert_eq!(pruned.get("more"), None);
        assert_eq!(pruned["free"], json!({"x": 1}));
    }

    #[test]
    fn each_field_goes_wrong_in_its_own_way() {
        let value = json!({"text": "a", "nested": {"size": 1}});
        let found = wrongs("spec", &value, &schema(), 100);
        let texts: Vec<String> = found.iter().map(|wrong| format!("{} {}", wrong.path, wrong.how)).collect();
        assert_eq!(
            texts,
            [
                "spec.count is a list",
                "spec.free is a text",
                "spec.labels is a text",
                "spec.nested is a text",
                "spec.text is missing",
                "spec.text is a list",
                "spec.nested.size is missing",
                "spec.nested.size is a list",
            ]
        );
    }

    #[test]
    fn a_schema_without_types_is_no_schema() {
        let mut found = Vec::new();
        let schema = json!({"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}}});
        structural("s", &schema, 0, &mut found);
        assert_eq!(found, ["s.properties.a: has no type", "s.properties.b.items: has no type"]);
    }
}
