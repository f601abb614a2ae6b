//! `docs/manifest.md`: the manifest's schema as tables.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::{MADE, cell};

pub(crate) fn page(root: &Path) -> String {
    let path = root.join("wit/manifest.schema.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let mut page = format!(
        "# The manifest\n\n{MADE}\n\n{} `pilothouse inspect -o json` shows that of a component. The SDKs write it: in Rust \
         `Controller`, in Python `pilothouse.controller`, in JavaScript `plugin`. From \
         [`wit/manifest.schema.json`](../wit/manifest.schema.json).\n",
        text_of(&schema["description"])
    );
    table("manifest", &schema, &mut page);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        if definition["properties"].is_object() {
            table(name, definition, &mut page);
        } else if name != "word" {
            let about = text_of(&definition["description"]);
            write!(page, "\n## {name}\n\n{about}\n\n{}\n", type_of(definition)).expect("a String");
            let forms = definition["oneOf"].as_array().into_iter().flatten();
            for form in forms.filter(|form| form["properties"].is_object()) {
                page.push_str(HEAD);
                rows("", form, &mut page);
            }
        }
    }
    page
}

const HEAD: &str = "\n| Field | Type | Default | |\n|---|---|---|---|\n";

fn table(name: &str, schema: &Value, page: &mut String) {
    write!(page, "\n## {name}\n").expect("a String");
    if name != "manifest" && !schema["description"].is_null() {
        write!(page, "\n{}\n", text_of(&schema["description"])).expect("a String");
    }
    page.push_str(HEAD);
    rows("", schema, page);
}

fn rows(path: &str, schema: &Value, page: &mut String) {
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let default = match field.get("default") {
            Some(default) => format!("`{default}`"),
            None if required(name) => "required".to_owned(),
            None => String::new(),
        };
        let about = cell(&text_of(&field["description"]));
        writeln!(page, "| `{path}` | {} | {default} | {about} |", type_of(field)).expect("a String");
        // Fields of fields that have no name of their own.
        rows(&path, field, page);
        if field["items"]["properties"].is_object() {
            rows(&format!("{path}[]"), &field["items"], page);
        }
    }
}

fn type_of(field: &Value) -> String {
    if let Some(name) = field["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return if name == "word" {
            "text".to_owned()
        } else {
            format!("[{name}](#{})", name.to_lowercase())
        };
    }
    if let Some(all) = field["enum"].as_array() {
        return all.iter().map(|one| format!("`{}`", text_of(one))).collect::<Vec<_>>().join(", ");
    }
    if let Some(one) = field.get("const") {
        return format!("`{}`", text_of(one));
    }
    if let Some(any) = field["anyOf"].as_array().or(field["oneOf"].as_array()) {
        return any.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    let name = |name: &Value| match name.as_str() {
        Some("string") => "text".to_owned(),
        Some("array") => format!("list of {}", type_of(&field["items"])),
        Some(other) => other.to_owned(),
        None => String::new(),
    };
    match &field["type"] {
        Value::Array(names) => {
            names.iter().filter(|one| *one != "null").map(name).collect::<Vec<_>>().join(" or ")
        }
        one => name(one),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
