//! [`Object`]: a Kubernetes object as the host showed it, with access that never fails.

use std::cell::OnceCell;
use std::ops::Deref;

use serde::Deserialize;
use serde_json::Value;

use crate::condition::Condition;
use crate::kinds::Resource;

/// A Kubernetes object. It dereferences to its JSON value; the methods are short forms of what plugins ask most.
/// A field that is not there reads as empty text, zero or `None`.
///
/// What kind and name it has is known at once. The rest is read when something of it is asked for: most passes look
/// into one child of many, and reading is the larger part of a pass.
#[derive(Debug, Clone)]
pub struct Object {
    api_version: String,
    kind: String,
    name: String,
    text: String,
    value: OnceCell<Value>,
}

/// The fields that every object is found by.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

impl Object {
    /// From JSON text.
    pub(crate) fn parse(text: String) -> serde_json::Result<Self> {
        let Header { api_version, kind, metadata } = serde_json::from_str(&text)?;
        Ok(Self { api_version, kind, name: metadata.name, text, value: OnceCell::new() })
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// `metadata.generation`.
    pub fn generation(&self) -> i64 {
        self.int("/metadata/generation")
    }

    /// Whether the object's own controller has seen its newest spec.
    pub fn is_observed(&self) -> bool {
        self.int("/status/observedGeneration") >= self.generation()
    }

    /// Whether deletion was asked for.
    pub fn is_terminating(&self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    /// Whether it bears a label: a key, whatever its value, or `key=value`.
    pub fn has_label(&self, label: &str) -> bool {
        match label.split_once('=') {
            Some((key, value)) => self.label(key) == Some(value),
            None => self.label(label).is_some(),
        }
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// Kind and name of the owner that controls it.
    pub fn controller(&self) -> Option<(&str, &str)> {
        let owners = self.get("metadata")?.get("ownerReferences")?.as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        Some((owner["kind"].as_str()?, owner["name"].as_str()?))
    }

    /// A condition of the status.
    pub fn condition(&self, name: &str) -> Option<Condition> {
        Condition::find(self, name)
    }

    /// The value at a JSON pointer (RFC 6901), for example `/spec/replicas`.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.pointer(pointer)
    }

    /// The text at a JSON pointer.
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The whole number at a JSON pointer.
    pub fn int(&self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether each of these fields has this value already, so that applying them would change nothing. Lists may be
    /// longer at the end. A value that the API server writes in another form, such as `1024Mi`, counts as different.
    pub fn has_all(&self, wanted: &Value) -> bool {
        has_all(self, wanted)
    }

    /// Whether it is of this kind.
    pub fn is_a(&self, kind: Resource) -> bool {
        kind.is_named(&self.api_version, &self.kind)
    }
}

fn has_all(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, wanted)| present.get(field).is_some_and(|present| has_all(present, wanted))),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() >= wanted.len()
                && present.iter().zip(wanted).all(|(present, wanted)| has_all(present, wanted))
        }
        _ => present == wanted,
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Self {
        let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&value["apiVersion"]),
            kind: text(&value["kind"]),
            name: text(&value["metadata"]["name"]),
            text: String::new(),
            value: value.into(),
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        // Reading the header has already found the text to be JSON.
        self.value.get_or_init(|| serde_json::from_str(&self.text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_owner_that_does_not_control_is_no_controller() {
        let pod = |owners: Value| Object::from(json!({"metadata": {"ownerReferences": owners}}));
        let other = json!({"kind": "Job", "name": "a"});
        let set = json!({"kind": "ReplicaSet", "name": "web-1", "controller": true});
        assert_eq!(pod(json!([other, set])).controller(), Some(("ReplicaSet", "web-1")));
        assert_eq!(pod(json!([other])).controller(), None);
        assert_eq!(Object::from(json!({})).controller(), None);
    }

    #[test]
    fn a_label_is_there_whatever_its_value_or_with_one() {
        let pod = Object::from(json!({"metadata": {"labels": {"keep": "yes", "empty": ""}}}));
        for (label, expected) in [
            ("keep", true),
            ("keep=yes", true),
            ("keep=no", false),
            ("keep=", false),
            ("empty=", true),
            ("other", false),
        ] {
            assert_eq!(pod.has_label(label), expected, "{label}");
        }
    }

    #[test]
    fn what_others_added_is_no_difference_and_what_is_missing_is() {
        let present = Object::from(json!({"a": {"b": 1, "c": 2}, "list": [{"x": 1, "y": 2}, 3]}));
        for (wanted, expected) in [
            (json!({}), true),
            (json!({"a": {"b": 1}}), true),
            (json!({"list": [{"x": 1}]}), true),
            (json!({"list": []}), true),
            (json!({"a": {"b": 2}}), false),
            (json!({"a": {"d": null}}), false),
            (json!({"a": 1}), false),
            (json!({"list": [{"x": 1}, 3, 4]}), false),
        ] {
            assert_eq!(present.has_all(&wanted), expected, "{wanted}");
        }
    }
}
