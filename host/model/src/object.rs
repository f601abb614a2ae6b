//! A Kubernetes object as the host keeps it: pruned JSON text beside the few fields that indexing needs. Never a
//! tree of values, so that memory stays near the wire size and a guest gets its input by one copy.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kind::{Kind, Reference};
use crate::names::{BLANKED_ANNOTATION, HOST_PREFIX, Key, MANAGED_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL};
use crate::owner::Owner;
use crate::projection::Projection;
use crate::steering::Steering;

/// In this annotation kubectl's client-side apply keeps a copy of the object, up to 256 KiB.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One object, read from the API server or from a file. Reading never fails on the shape of what is inside `spec`,
/// `status` or `data`: one malformed object must not hide 999 good ones.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    kind: Arc<Kind>,
    meta: Meta,
    /// The whole object, without `metadata.managedFields`; `apiVersion` and `kind` come first.
    json: Arc<str>,
    managers: Managers,
    partial: bool,
}

/// The fields of `metadata` that the host indexes by.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Meta {
    /// `metadata.namespace`, none for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`, empty if the object has none.
    pub name: Arc<str>,
    /// `metadata.uid`, empty for an object that was never stored.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion` as a number, 0 if it has none. Comparable within one API server, which
    /// Kubernetes promises since 1.35 (KEP-5504) and etcd's revisions have always been.
    pub resource_version: u64,
    /// `metadata.generation`, 0 if it has none.
    pub generation: i64,
    /// The owner whose reference says `controller: true`, or the one that label and annotation name. Siblings share it.
    pub owner: Option<Arc<Owner>>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Box<str>]>,
    /// What annotations say to the host; almost no object has any.
    pub steering: Option<Arc<Steering>>,
    /// The value of the label [`MANAGED_LABEL`]: whose child it is.
    pub managed: Option<Arc<str>>,
}

/// What `metadata.managedFields` said.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Managers {
    /// All entries, until [`Object::keep_manager`].
    All(Box<[ManagerEntry]>),
    /// What is left of them.
    Kept {
        /// `fieldsV1` of our own Apply entry, as JSON text.
        own: Option<Arc<str>>,
        /// Another manager applied or updated (status aside).
        foreign: bool,
    },
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagerEntry {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    subresource: String,
    #[serde(default, rename = "fieldsV1", deserialize_with = "raw_text")]
    fields: Arc<str>,
}

fn raw_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    Ok(Box::<RawValue>::deserialize(deserializer)?.get().into())
}

/// A text that is not an object with a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Not JSON, or not a JSON object.
    #[error("{0}")]
    Json(String),
    /// `apiVersion` or `kind` is missing.
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

impl Object {
    /// Reads JSON text that says its own `apiVersion` and `kind`.
    pub fn parse(text: &str) -> Result<Self, ObjectError> {
        let object: Self =
            serde_json::from_str(text).map_err(|error| ObjectError::Json(error.to_string()))?;
        if object.kind.version.is_empty() {
            return Err(ObjectError::Missing("apiVersion"));
        }
        if object.kind.kind.is_empty() {
            return Err(ObjectError::Missing("kind"));
        }
        Ok(object)
    }

    /// From a tree of values; see [`Object::parse`].
    pub fn from_value(value: &Value) -> Result<Self, ObjectError> {
        Self::parse(&value.to_string())
    }

    /// Writes the kind into the object: items of built-in lists and `PartialObjectMetadata` lack it or say another.
    pub fn stamp(&mut self, kind: &Arc<Kind>) {
        if *self.kind == **kind {
            // Many objects share one kind.
            self.kind = Arc::clone(kind);
            return;
        }
        let rest = after_type(&self.json);
        let mut json = String::with_capacity(self.json.len() + 64);
        open(&mut json, kind);
        json.push(',');
        json.push_str(rest);
        self.json = json.into();
        self.kind = Arc::clone(kind);
    }

    /// Of `managedFields` keeps `manager`'s own Apply entry and whether others exist; drops the rest. Does nothing the
    /// second time.
    pub fn keep_manager(&mut self, manager: &str) {
        let Managers::All(entries) = &mut self.managers else { return };
        let (mut own, mut foreign) = (None, false);
        for entry in std::mem::take(entries) {
            if entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty() {
                own = Some(entry.fields);
            } else if entry.subresource.is_empty() {
                foreign = true;
            }
        }
        self.managers = Managers::Kept { own, foreign };
    }

    /// Group, version and kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The indexed part of `metadata`.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The whole object as JSON text, without `metadata.managedFields`.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The whole object as a tree. Parses: not for the hot path.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or(Value::Null)
    }

    /// `fieldsV1` of our own Apply entry, after [`Object::keep_manager`].
    pub fn own_fields(&self) -> Option<&Arc<str>> {
        match &self.managers {
            Managers::Kept { own, .. } => own.as_ref(),
            Managers::All(_) => None,
        }
    }

    /// Whether another manager has written fields outside subresources, after [`Object::keep_manager`].
    pub fn has_foreign_managers(&self) -> bool {
        matches!(self.managers, Managers::Kept { foreign: true, .. })
    }

    /// Replaces texts that many objects have in common (namespace, our label, our own entry) by equal ones that are
    /// shared.
    pub fn share_texts(&mut self, mut share: impl FnMut(&mut Arc<str>)) {
        let Meta { namespace, managed, .. } = &mut self.meta;
        namespace.iter_mut().chain(managed).for_each(&mut share);
        if let Managers::Kept { own: Some(own), .. } = &mut self.managers {
            share(own);
        }
    }

    /// The same for the owner.
    pub fn share_owner(&mut self, share: impl FnOnce(&mut Arc<Owner>)) {
        if let Some(owner) = &mut self.meta.owner {
            share(owner);
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key { namespace: self.meta.namespace.clone(), name: self.meta.name.clone() }
    }

    /// Kind, namespace, name and UID.
    pub fn reference(&self) -> Reference {
        Reference {
            kind: Kind::clone(&self.kind),
            namespace: self.meta.namespace.as_deref().map(str::to_owned),
            name: self.meta.name.to_string(),
            uid: (!self.meta.uid.is_empty()).then(|| self.meta.uid.to_string()),
        }
    }

    /// `metadata.labels`. Parses the object's metadata: labels are not kept twice.
    pub fn labels(&self) -> BTreeMap<String, String> {
        #[derive(Deserialize)]
        struct Labelled {
            #[serde(default)]
            metadata: Labels,
        }
        #[derive(Deserialize, Default)]
        struct Labels {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        serde_json::from_str::<Labelled>(&self.json).map(|object| object.metadata.labels).unwrap_or_default()
    }

    /// One top-level field, parsed; null if it is not there.
    pub fn field(&self, name: &str) -> Value {
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(&self.json).unwrap_or_default();
        fields.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null)
    }

    /// Drops what a projection leaves out, and what a partial look has no use for: the copy of the whole object that
    /// kubectl's client-side apply keeps in an annotation.
    pub fn project(&mut self, projection: &Projection) {
        let paths = match projection {
            Projection::Full => return,
            Projection::Metadata => None,
            Projection::Fields(paths) => Some(paths),
        };
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(&self.json).unwrap_or_default();
        let mut json = String::new();
        open(&mut json, &self.kind);
        let metadata = fields.get("metadata").map_or("{}", |metadata| metadata.get());
        push_field(&mut json, "metadata", &without_last_applied(metadata));
        if let Some(paths) = paths {
            paths.append(&fields, &mut json);
        }
        json.push('}');
        self.json = json.into();
        self.partial = true;
    }

    /// Not all of the content is here: [`Object::project`] dropped some.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// The object as a guest may see it. Values of Secrets are blanked: keys of `data` keep their names, each with
    /// the value `""`, and an annotation says so.
    pub fn guest_json(&self) -> Cow<'_, str> {
        if !self.kind.is_secret() {
            return Cow::Borrowed(&self.json);
        }
        let mut value = self.to_value();
        blank_secret(&mut value);
        Cow::Owned(value.to_string())
    }
}

/// Blanks the values of a Secret as guests see it; see [`Object::guest_json`].
pub fn blank_secret(value: &mut Value) {
    for field in ["data", "stringData"] {
        if let Some(data) = value.get_mut(field).and_then(Value::as_object_mut) {
            data.values_mut().for_each(|secret| *secret = Value::String(String::new()));
        }
    }
    // Client-side apply copies the whole Secret into this annotation.
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        // A file may say anything here; a Secret that is not marked would be taken for one with empty values.
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            _ => serde_json::Map::new(),
        };
        annotations.remove(LAST_APPLIED);
        annotations.insert(BLANKED_ANNOTATION.to_owned(), Value::String("true".to_owned()));
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
}

impl fmt::Debug for Object {
    /// Never the content: it may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("kind", &self.kind.to_string())
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

/// The text of `metadata` without [`LAST_APPLIED`]. Almost none has it, so almost none is parsed.
fn without_last_applied(metadata: &str) -> Cow<'_, str> {
    if !metadata.contains(LAST_APPLIED) {
        return Cow::Borrowed(metadata);
    }
    let mut value: Value = serde_json::from_str(metadata).unwrap_or_default();
    if let Some(annotations) = value.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    Cow::Owned(value.to_string())
}

/// `{"apiVersion":…,"kind":…` without the closing brace.
fn open(json: &mut String, kind: &Kind) {
    json.push_str("{\"apiVersion\":");
    json.push_str(&quote(&kind.api_version()));
    json.push_str(",\"kind\":");
    json.push_str(&quote(&kind.kind));
}

fn quote(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn push_field(json: &mut String, name: &str, raw: &str) {
    if !json.ends_with('{') {
        json.push(',');
    }
    json.push_str(&quote(name));
    json.push(':');
    json.push_str(raw);
}

/// The text behind `apiVersion` and `kind` up to and with the last brace. Reading always writes `metadata` first.
fn after_type(json: &str) -> &str {
    json.find("\"metadata\":").map_or("", |start| &json[start..])
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object, M::Error> {
                let (mut api_version, mut kind) = (String::new(), String::new());
                let mut metadata = ParsedMetadata::default();
                let mut rest: Vec<(String, Box<RawValue>)> = Vec::with_capacity(4);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "apiVersion" => api_version = map.next_value::<Option<String>>()?.unwrap_or_default(),
                        "kind" => kind = map.next_value::<Option<String>>()?.unwrap_or_default(),
                        "metadata" => metadata = map.next_value()?,
                        _ => rest.push((name, map.next_value()?)),
                    }
                }
                let kind = Kind::from_api_version(&api_version, &kind);
                let bytes: usize = rest.iter().map(|(name, raw)| name.len() + raw.get().len() + 4).sum();
                let mut json = String::with_capacity(metadata.json.len() + bytes + 96);
                open(&mut json, &kind);
                push_field(&mut json, "metadata", &metadata.json);
                for (name, raw) in &rest {
                    push_field(&mut json, name, raw.get());
                }
                json.push('}');
                let managers = Managers::All(metadata.entries.into());
                Ok(Object {
                    kind: Arc::new(kind),
                    meta: metadata.meta,
                    json: json.into(),
                    managers,
                    partial: false,
                })
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.json).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// `metadata`, read in one pass: its text without managedFields, and the indexed fields.
struct ParsedMetadata {
    json: String,
    meta: Meta,
    entries: Vec<ManagerEntry>,
}

impl Default for ParsedMetadata {
    fn default() -> Self {
        Self { json: "{}".to_owned(), meta: Meta::default(), entries: Vec::new() }
    }
}

/// Labels or annotations.
type Texts<'a> = BTreeMap<Cow<'a, str>, Option<Arc<str>>>;

/// A field of `metadata` in the type that the API server guarantees; the default if a file says otherwise.
fn read<T: serde::de::DeserializeOwned + Default>(raw: &RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for ParsedMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OwnerReference {
            #[serde(default)]
            api_version: Arc<str>,
            #[serde(default)]
            kind: Arc<str>,
            #[serde(default)]
            name: Arc<str>,
            #[serde(default)]
            uid: Arc<str>,
            #[serde(default)]
            controller: Option<bool>,
        }
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = ParsedMetadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object's metadata")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<ParsedMetadata, E> {
                Ok(ParsedMetadata::default())
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ParsedMetadata, M::Error> {
                let mut json = String::from("{");
                let mut meta = Meta::default();
                let mut entries = Vec::new();
                let (mut owner_uid, mut owner) = (None, None);
                while let Some(name) = map.next_key::<String>()? {
                    if name == "managedFields" {
                        entries = map.next_value::<Option<Vec<ManagerEntry>>>()?.unwrap_or_default();
                        continue;
                    }
                    if name == "selfLink" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let raw: Box<RawValue> = map.next_value()?;
                    match name.as_str() {
                        "name" => meta.name = read::<Option<Arc<str>>>(&raw).unwrap_or_default(),
                        "namespace" => meta.namespace = read(&raw),
                        "uid" => meta.uid = read::<Option<Arc<str>>>(&raw).unwrap_or_default(),
                        "resourceVersion" => {
                            meta.resource_version = read::<String>(&raw).parse().unwrap_or_default();
                        }
                        "generation" => meta.generation = read(&raw),
                        "deletionTimestamp" => meta.deleting = raw.get() != "null",
                        "finalizers" => meta.finalizers = read(&raw),
                        "annotations" => {
                            meta.steering = Steering::read(raw.get()).map(Arc::new);
                            if raw.get().contains(OWNER_ANNOTATION) {
                                owner = read::<Texts<'_>>(&raw).remove(OWNER_ANNOTATION).flatten();
                            }
                        }
                        "labels" if raw.get().contains(HOST_PREFIX) => {
                            let mut labels = read::<Texts<'_>>(&raw);
                            meta.managed = labels.remove(MANAGED_LABEL).flatten();
                            owner_uid = labels.remove(OWNER_UID_LABEL).flatten();
                        }
                        "ownerReferences" => {
                            let owners: Vec<OwnerReference> = read(&raw);
                            meta.owner = owners.into_iter().find(|owner| owner.controller == Some(true)).map(
                                |owner| {
                                    let group = owner.api_version.split_once('/');
                                    Arc::new(Owner {
                                        uid: owner.uid,
                                        name: owner.name,
                                        kind: owner.kind,
                                        group: group.map_or("", |(group, _)| group).into(),
                                        tracked_in: None,
                                    })
                                },
                            );
                        }
                        _ => {}
                    }
                    push_field(&mut json, &name, raw.get());
                }
                json.push('}');
                if let (None, Some(uid), Some(owner)) = (&meta.owner, owner_uid, owner) {
                    meta.owner = Owner::tracked(uid, &owner).map(Arc::new);
                }
                Ok(ParsedMetadata { json, meta, entries })
            }
        }
        deserializer.deserialize_any(MetadataVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u1", "resourceVersion": "42", "generation": 3,
                "labels": {"x": "y", "pilothouse.dev/managed": "web"},
                "finalizers": ["example.com/f"],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u0"},
                    {"apiVersion": "example.com/v1", "kind": "Web", "name": "w", "uid": "u9", "controller": true}
                ],
                "managedFields": [
                    {"manager": "pilothouse-web", "operation": "Apply", "fieldsV1": {"f:spec": {}}},
                    {"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {}}
                ]
            },
            "spec": {"containers": []}
        })
    }

    #[test]
    fn indexed_fields_are_read_and_managed_fields_dropped() {
        let mut object = Object::from_value(&pod()).unwrap();
        let meta = object.meta();
        assert_eq!((&*meta.name, meta.namespace.as_deref(), &*meta.uid), ("a", Some("n"), "u1"));
        assert_eq!((meta.resource_version, meta.generation, meta.deleting), (42, 3, true));
        assert_eq!(&*meta.owner.as_ref().unwrap().uid, "u9");
        assert_eq!(meta.managed.as_deref(), Some("web"));
        assert_eq!(object.labels()["x"], "y");
        object.keep_manager("pilothouse-web");
        assert_eq!(object.own_fields().unwrap().as_ref(), r#"{"f:spec":{}}"#);
        assert!(!object.has_foreign_managers());
        let mut expected = pod();
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(object.to_value(), expected);
        assert!(object.json().starts_with(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"#));
    }

    #[test]
    fn items_of_built_in_lists_get_their_kind_stamped() {
        let mut value = pod();
        value.as_object_mut().unwrap().remove("kind");
        value.as_object_mut().unwrap().remove("apiVersion");
        let mut object: Object = serde_json::from_value(value).unwrap();
        object.stamp(&Arc::new(Kind::new("", "v1", "Pod")));
        let mut expected = pod();
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(object.to_value(), expected);

        let mut bare: Object = serde_json::from_str("{}").unwrap();
        bare.stamp(&Arc::new(Kind::new("a.b", "v1", "X")));
        assert_eq!(bare.to_value(), json!({"apiVersion": "a.b/v1", "kind": "X", "metadata": {}}));
    }

    #[test]
    fn wrong_types_inside_an_object_do_not_fail_it() {
        let object = Object::parse(
            r#"{"apiVersion":"v1","kind":"X","metadata":{"name":7,"labels":[],"finalizers":{}},"spec":"?","status":null}"#,
        )
        .unwrap();
        assert_eq!(&*object.meta().name, "");
        assert!(object.labels().is_empty());
        assert_eq!(object.field("spec"), json!("?"));
        assert_eq!(Object::parse(r#"{"kind":"X"}"#), Err(ObjectError::Missing("apiVersion")));
        assert!(matches!(Object::parse("[]"), Err(ObjectError::Json(_))));
    }

    #[test]
    fn guests_never_see_the_values_of_secrets() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "c2VjcmV0"}},
            "data": {"password": "c2VjcmV0"}, "stringData": {"more": "c2VjcmV0"}
        });
        let object = Object::from_value(&secret).unwrap();
        let seen = object.guest_json();
        assert!(!seen.contains("c2VjcmV0"));
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["data"], json!({"password": ""}));
        assert_eq!(seen["metadata"]["annotations"][BLANKED_ANNOTATION], "true");
        assert!(!format!("{object:?}").contains("c2VjcmV0"));
    }

    #[test]
    fn a_secret_with_malformed_annotations_is_blanked_and_marked() {
        for annotations in [json!(null), json!("x"), json!(["x"])] {
            let secret = json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "annotations": annotations}, "data": {"password": "c2VjcmV0"}});
            let seen: Value =
                serde_json::from_str(&Object::from_value(&secret).unwrap().guest_json()).unwrap();
            assert_eq!(seen["metadata"]["annotations"], json!({BLANKED_ANNOTATION: "true"}));
            assert_eq!(seen["data"], json!({"password": ""}));
        }
    }

    #[test]
    fn metadata_alone_can_be_kept_without_the_copy_of_the_rest() {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({LAST_APPLIED: "{\"spec\":{}}", "kept": "yes"});
        let mut object = Object::from_value(&pod).unwrap();
        assert!(!object.is_partial());
        object.project(&Projection::Metadata);
        assert!(object.is_partial());
        assert_eq!(object.to_value()["spec"], Value::Null);
        assert_eq!(object.to_value()["metadata"]["name"], "a");
        assert_eq!(object.to_value()["metadata"]["annotations"], json!({"kept": "yes"}));
    }
}
