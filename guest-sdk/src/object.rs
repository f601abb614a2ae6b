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

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.get("metadata")?.get("annotations")?.get(key)?.as_str()
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

    /// Whether it is of this kind.
    pub fn is_a(&self, kind: Resource) -> bool {
        kind.is_named(&self.api_version, &self.kind)
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
