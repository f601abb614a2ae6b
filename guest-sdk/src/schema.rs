//! From the schema of a Rust type (JSON Schema 2020-12, by schemars) to the structural schema that a
//! CustomResourceDefinition must have.
//!
//! The API server wants every type said once, at the top of each subschema, no references, no `null`, and nothing but
//! restrictions inside `oneOf`. What cannot be said that way is a panic that names the path: `describe` runs when the
//! plugin is loaded and in the author's first test, never in a pass.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Formats that the API server knows; it warns about others.
const FORMATS: [&str; 8] = ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];

/// Keywords that say nothing to the API server, or that it refuses.
const DROPPED: [&str; 9] = [
    "$schema",
    "title",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "unevaluatedProperties",
    "contentEncoding",
    "contentMediaType",
];

/// The structural schema of `spec`: what the type reads.
pub(crate) fn of_spec<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    structural(generate::<T>(settings), "spec")
}

/// The structural schema of `status`: what the type writes. Nothing is required, as the host adds its own condition
/// before the plugin has said anything.
pub(crate) fn of_status<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = structural(generate::<T>(settings), "status");
    if let Value::Object(fields) = &mut schema {
        fields.remove("required");
    }
    schema
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn structural(schema: Value, path: &str) -> Value {
    let Value::Object(mut schema) = schema else {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    };
    unwrap_optional(&mut schema);
    assert!(!schema.contains_key("$ref"), "{path}: a type that contains itself has no structural schema");
    for keyword in DROPPED {
        schema.remove(keyword);
    }
    if let Some(only) = schema.remove("const") {
        schema.insert("enum".to_owned(), json!([only]));
    }
    // Of a number that is not zero.
    if let Some(not) = schema.get_mut("not")
        && let Some(only) = not.get("const").cloned()
    {
        *not = json!({"enum": [only]});
    }
    drop_null(&mut schema, path);
    say_lists(&mut schema, path);
    say_maps(&mut schema, path);
    if let Some((keyword, variants)) = take_variants(&mut schema) {
        if variants.iter().all(|variant| variant["const"].is_string() || variant["enum"].is_array()) {
            merge_enumeration(&mut schema, &variants);
        } else if variants.iter().all(|variant| variant["properties"].is_object()) {
            merge_objects(&mut schema, variants, keyword, path);
        } else {
            panic!("{path}: an enum must have names only, or an object for each variant");
        }
    }
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        schema.remove("format");
    }
    descend(&mut schema, path);
    if schema.keys().all(|keyword| keyword == "description" || keyword == "default") {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true));
    }
    Value::Object(schema)
}

/// `anyOf` a type and `null` is that type.
fn unwrap_optional(schema: &mut Map<String, Value>) {
    while let Some((keyword, mut variants)) = take_variants(schema) {
        variants.retain(|variant| variant["type"] != "null");
        if let [Value::Object(only)] = variants.as_mut_slice() {
            for (keyword, value) in std::mem::take(only) {
                schema.entry(keyword).or_insert(value);
            }
        } else {
            schema.insert(keyword.to_owned(), Value::Array(variants));
            return;
        }
    }
}

fn take_variants(schema: &mut Map<String, Value>) -> Option<(&'static str, Vec<Value>)> {
    ["anyOf", "oneOf"].into_iter().find_map(|keyword| match schema.remove(keyword) {
        Some(Value::Array(variants)) => Some((keyword, variants)),
        _ => None,
    })
}

/// A field that may be absent is simply not required: `null` in an object is dropped by the API server anyway.
fn drop_null(schema: &mut Map<String, Value>, path: &str) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        let [only] = types.as_slice() else {
            panic!("{path}: {types:?} are several types, one would be right")
        };
        let only = only.clone();
        schema.insert("type".to_owned(), only);
    }
}

/// The API server refuses `uniqueItems`, and has a list type of its own for sets of plain values. Of others it cannot tell
/// whether two are the same; the type that reads them can.
fn say_lists(schema: &mut Map<String, Value>, path: &str) {
    assert!(
        !schema.contains_key("prefixItems"),
        "{path}: a tuple has no structural schema, a struct would be right"
    );
    let is_set = schema.remove("uniqueItems") == Some(Value::Bool(true));
    let is_plain =
        |item: &Value| matches!(item["type"].as_str(), Some("string" | "integer" | "number" | "boolean"));
    if is_set && schema.get("items").is_some_and(is_plain) {
        schema.insert("x-kubernetes-list-type".to_owned(), json!("set"));
    }
}

/// A map whose keys are numbers has a pattern for them, which the API server does not take.
fn say_maps(schema: &mut Map<String, Value>, path: &str) {
    let Some(Value::Object(patterns)) = schema.remove("patternProperties") else { return };
    let mut values: Vec<Value> = patterns.into_iter().map(|(_, value)| value).collect();
    values.dedup();
    match values.pop() {
        Some(value) if values.is_empty() => schema.insert("additionalProperties".to_owned(), value),
        _ => panic!("{path}: a map must have values of one type"),
    };
}

fn descend(schema: &mut Map<String, Value>, path: &str) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties.iter_mut() {
            *property = structural(property.take(), &format!("{path}.{name}"));
        }
    }
    if let Some(items) = schema.get_mut("items") {
        *items = structural(items.take(), &format!("{path}[]"));
    }
    match schema.remove("additionalProperties") {
        // Unknown fields are pruned or refused by the API server itself.
        None | Some(Value::Bool(_)) => {}
        Some(values) => {
            schema.insert("additionalProperties".to_owned(), structural(values, &format!("{path}[]")));
        }
    }
}

/// Names, each perhaps with a description, become one `enum` that describes them all.
fn merge_enumeration(schema: &mut Map<String, Value>, variants: &[Value]) {
    let mut names = Vec::new();
    let mut description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for variant in variants {
        match variant["enum"].as_array() {
            Some(several) => names.extend(several.iter().cloned()),
            None => names.push(variant["const"].clone()),
        }
        if let (Some(name), Some(about)) = (variant["const"].as_str(), variant["description"].as_str()) {
            for part in ["\n", name, ": ", about] {
                description.push_str(part);
            }
        }
    }
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(names));
    if !description.is_empty() {
        schema.insert("description".to_owned(), json!(description.trim_start()));
    }
}

/// Objects become one object with the properties of all, and `oneOf` keeps only what tells them apart.
fn merge_objects(schema: &mut Map<String, Value>, variants: Vec<Value>, keyword: &str, path: &str) {
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let mut restrictions = Vec::new();
    for mut variant in variants {
        let mut restriction = Map::new();
        if let Some(required) = variant.get_mut("required") {
            restriction.insert("required".to_owned(), required.take());
        }
        let Value::Object(own) = variant["properties"].take() else { continue };
        for (name, property) in own {
            if let Some(tag) = property.get("const") {
                restriction.insert("properties".to_owned(), json!({&name: {"enum": [tag]}}));
                let known = properties.entry(name).or_insert_with(|| json!({"type": "string", "enum": []}));
                if let Some(Value::Array(tags)) = known.get_mut("enum") {
                    tags.push(tag.clone());
                }
            } else if let Some(other) = properties.insert(name.clone(), property) {
                assert!(
                    properties.get(&name) == Some(&other),
                    "{path}.{name}: must have one type in all variants of the enum"
                );
            }
        }
        restrictions.push(Value::Object(restriction));
    }
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert(keyword.to_owned(), Value::Array(restrictions));
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::num::NonZeroI32;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Everything {
        /// How many.
        #[schemars(range(min = 1, max = 5))]
        count: i32,
        port: Option<u16>,
        #[serde(default)]
        policy: Policy,
        plain: Option<Plain>,
        nested: Option<Nested>,
        labels: BTreeMap<String, String>,
        list: Vec<Nested>,
        anything: Value,
        store: Option<Store>,
        tagged: Tagged,
    }

    /// What happens to the data.
    #[derive(Default, Deserialize, Serialize, JsonSchema)]
    enum Policy {
        /// Kept.
        #[default]
        Retain,
        /// Gone.
        Delete,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    enum Plain {
        A,
        B,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Nested {
        #[serde(default)]
        name: Option<String>,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    enum Store {
        Volume { size: String },
        Bucket(Nested),
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(tag = "kind")]
    enum Tagged {
        One { a: i64 },
        Two { b: bool },
    }

    #[test]
    fn a_structural_schema_has_one_type_each_and_no_null() {
        let nested = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        assert_eq!(
            of_spec::<Everything>(),
            json!({
                "type": "object",
                "required": ["count", "labels", "list", "anything", "tagged"],
                "properties": {
                    "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 5, "description": "How many."},
                    "port": {"type": "integer", "minimum": 0, "maximum": 65535},
                    "policy": {
                        "type": "string", "enum": ["Retain", "Delete"], "default": "Retain",
                        "description": "What happens to the data.\nRetain: Kept.\nDelete: Gone.",
                    },
                    "plain": {"type": "string", "enum": ["A", "B"]},
                    "nested": nested,
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "list": {"type": "array", "items": nested},
                    "anything": {"x-kubernetes-preserve-unknown-fields": true},
                    "store": {
                        "type": "object",
                        "properties": {
                            "volume": {"type": "object", "required": ["size"], "properties": {"size": {"type": "string"}}},
                            "bucket": nested,
                        },
                        "oneOf": [{"required": ["volume"]}, {"required": ["bucket"]}],
                    },
                    "tagged": {
                        "type": "object",
                        "properties": {
                            "kind": {"type": "string", "enum": ["One", "Two"]},
                            "a": {"type": "integer", "format": "int64"},
                            "b": {"type": "boolean"},
                        },
                        "oneOf": [
                            {"required": ["kind", "a"], "properties": {"kind": {"enum": ["One"]}}},
                            {"required": ["kind", "b"], "properties": {"kind": {"enum": ["Two"]}}},
                        ],
                    },
                },
            })
        );
    }

    /// What the API server would refuse, or drop, as schemars says it.
    #[test]
    fn sets_maps_of_numbers_and_numbers_that_are_not_zero_are_said_otherwise() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema matters")]
        struct Odd {
            names: BTreeSet<String>,
            nested: BTreeSet<Vec<String>>,
            ports: BTreeMap<u16, String>,
            step: NonZeroI32,
        }
        let text = json!({"type": "string"});
        let expected = json!({
            "names": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "nested": {"type": "array", "items": {"type": "array", "items": text}},
            "ports": {"type": "object", "additionalProperties": text},
            "step": {"type": "integer", "format": "int32", "not": {"enum": [0]}},
        });
        assert_eq!(of_spec::<Odd>()["properties"], expected);
    }

    #[derive(Deserialize, JsonSchema)]
    struct Pair {
        #[expect(dead_code, reason = "only its schema matters")]
        both: (String, i32),
    }

    #[test]
    #[should_panic(expected = "spec.both: a tuple has no structural schema, a struct would be right")]
    fn a_tuple_is_refused() {
        of_spec::<Pair>();
    }

    #[test]
    fn a_status_requires_nothing() {
        #[derive(Serialize, JsonSchema)]
        struct Status {
            ready: i32,
        }
        let expected =
            json!({"type": "object", "properties": {"ready": {"type": "integer", "format": "int32"}}});
        assert_eq!(of_status::<Status>(), expected);
    }

    #[derive(Deserialize, JsonSchema)]
    struct Tree {
        #[expect(dead_code, reason = "only its schema matters")]
        children: Vec<Tree>,
    }

    #[test]
    #[should_panic(expected = "a type that contains itself")]
    fn a_type_that_contains_itself_is_refused() {
        of_spec::<Tree>();
    }
}
