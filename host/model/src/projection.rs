//! How much of each object of a kind the host keeps and shows to the plugin: all of it, its metadata, or a few fields
//! beside the metadata. What is left out is dropped on arrival, so that memory follows what is read rather than what
//! there is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Paths of one projection; whoever needs more reads the object.
const PATHS_MAX: usize = 64;
/// Steps of one path. Reading goes down as far as this, so it also bounds the stack.
const STEPS_MAX: usize = 16;
/// Always there.
const KEPT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// See the module. `"full"`, `"metadata"` or `{"fields": [".status.phase", …]}` in the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Projection {
    /// Everything but managedFields.
    #[default]
    Full,
    /// `apiVersion`, `kind` and `metadata`; the API server does not even send the rest.
    Metadata,
    /// These fields beside `apiVersion`, `kind` and `metadata`. The API server knows no such thing: it sends all, and
    /// the host keeps this.
    Fields(FieldPaths),
}

/// Paths of fields, such as `.status.phase` or `.status.conditions[*].type`; at least one. Equal sets are equal,
/// however they were written. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct FieldPaths(Arc<Node>);

/// What is kept below one place; nothing named: all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Node {
    fields: BTreeMap<Box<str>, Node>,
    /// Below each item of a list.
    items: Option<Box<Node>>,
}

/// A text that is no path, or a list of paths that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(String);

/// One step down.
enum Step {
    Field(Box<str>),
    Items,
}

/// A path as it is written. A dot within a name is `\.`, as in kubectl's JSONPath.
struct Path(Vec<Step>);

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let wrong = |problem: &str| {
            PathError(format!(
                "`{text:.128}` {problem}: `.status.phase` or `.status.conditions[*].type` would be right"
            ))
        };
        let (mut steps, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("[*]") {
                steps.push(Step::Items);
                rest = after;
                continue;
            }
            rest = rest.strip_prefix('.').ok_or_else(|| wrong("has a step without `.`"))?;
            let mut name = String::new();
            let mut characters = rest.char_indices();
            rest = loop {
                match characters.next() {
                    None => break "",
                    Some((at, '.' | '[')) => break &rest[at..],
                    Some((_, '\\')) => {
                        let escaped = characters.next().ok_or_else(|| wrong("ends with `\\`"))?;
                        name.push(escaped.1);
                    }
                    Some((_, character)) => name.push(character),
                }
            };
            if name.is_empty() {
                return Err(wrong("has a step without a name"));
            }
            steps.push(Step::Field(name.into()));
        }
        match steps.first() {
            Some(Step::Field(name)) if KEPT.contains(&&**name) => {
                let problem = "is always kept: leave it out";
                Err(PathError(format!("`{text:.128}` {problem}")))
            }
            Some(Step::Field(_)) if steps.len() <= STEPS_MAX => Ok(Self(steps)),
            Some(Step::Field(_)) => Err(wrong(&format!("has more than {STEPS_MAX} steps"))),
            _ => Err(wrong("does not begin with a field")),
        }
    }
}

impl Node {
    fn is_whole(&self) -> bool {
        self.fields.is_empty() && self.items.is_none()
    }

    /// Adds what is below `steps`. A path that ends above another one takes it in.
    fn insert(&mut self, steps: &mut std::vec::IntoIter<Step>) {
        let Some(step) = steps.next() else {
            *self = Self::default();
            return;
        };
        let (known, node) = match step {
            Step::Field(name) => {
                let known = self.fields.contains_key(&name);
                (known, self.fields.entry(name).or_default())
            }
            Step::Items => (self.items.is_some(), &mut **self.items.get_or_insert_default()),
        };
        if !(known && node.is_whole()) {
            node.insert(steps);
        }
    }

    fn texts(&self, at: &str, out: &mut Vec<String>) {
        if self.is_whole() {
            out.push(at.to_owned());
        }
        for (name, node) in &self.fields {
            let name = name.replace('\\', "\\\\").replace('.', "\\.").replace('[', "\\[");
            node.texts(&format!("{at}.{name}"), out);
        }
        if let Some(node) = &self.items {
            node.texts(&format!("{at}[*]"), out);
        }
    }
}

impl TryFrom<Vec<String>> for FieldPaths {
    type Error = PathError;

    fn try_from(texts: Vec<String>) -> Result<Self, PathError> {
        if texts.is_empty() || texts.len() > PATHS_MAX {
            let count = texts.len();
            return Err(PathError(format!("fields: {count} paths, 1 to {PATHS_MAX} would be right")));
        }
        let mut root = Node::default();
        for text in &texts {
            root.insert(&mut text.parse::<Path>()?.0.into_iter());
        }
        Ok(Self(Arc::new(root)))
    }
}

impl From<FieldPaths> for Vec<String> {
    fn from(paths: FieldPaths) -> Self {
        let mut texts = Vec::new();
        paths.0.texts("", &mut texts);
        texts
    }
}

impl fmt::Display for FieldPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Vec::from(self.clone()).join(", "))
    }
}

impl FieldPaths {
    /// Appends what is kept of an object's top-level fields to a JSON object that has a field already.
    pub(crate) fn append(&self, fields: &BTreeMap<Cow<'_, str>, &RawValue>, out: &mut String) {
        for (name, node) in &self.0.fields {
            let Some(raw) = fields.get(&**name) else { continue };
            let before = out.len();
            let _ = write!(out, ",{}:", serde_json::Value::from(&**name));
            // What is below is JSON already, so reading it cannot fail.
            if !matches!((Part { node, out }).read(raw), Ok(true)) {
                out.truncate(before);
            }
        }
    }
}

/// Copies what is kept of one value; says whether that is anything.
struct Part<'a> {
    node: &'a Node,
    out: &'a mut String,
}

impl Part<'_> {
    fn read(self, raw: &RawValue) -> Result<bool, serde_json::Error> {
        if self.node.is_whole() {
            self.out.push_str(raw.get());
            return Ok(true);
        }
        self.deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        if self.node.is_whole() {
            self.out.push_str(<&RawValue>::deserialize(deserializer)?.get());
            return Ok(true);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        let Self { node, out } = self;
        let begin = out.len();
        out.push('{');
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            let Some(node) = node.fields.get(&*name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let before = out.len();
            if !out.ends_with('{') {
                out.push(',');
            }
            write!(out, "{}:", serde_json::Value::from(&*name)).map_err(M::Error::custom)?;
            if !map.next_value_seed(Part { node, out })? {
                out.truncate(before);
            }
        }
        if out.len() == begin + 1 {
            out.truncate(begin);
            return Ok(false);
        }
        out.push('}');
        Ok(true)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<bool, S::Error> {
        let Self { node, out } = self;
        let Some(node) = &node.items else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(false);
        };
        out.push('[');
        let mut first = true;
        loop {
            let before = out.len();
            if !first {
                out.push(',');
            }
            match seq.next_element_seed(Part { node, out })? {
                Some(true) => {}
                // Items keep their places.
                Some(false) => out.push_str("{}"),
                None => {
                    out.truncate(before);
                    break;
                }
            }
            first = false;
        }
        out.push(']');
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;

    fn fields(paths: &[&str]) -> FieldPaths {
        FieldPaths::try_from(paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn projected(paths: &[&str], content: &Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let mut object = Object::from_value(&object).unwrap();
        object.project(&Projection::Fields(fields(paths)));
        assert!(object.is_partial());
        let mut value = object.to_value();
        assert_eq!(value["metadata"], json!({"name": "a"}));
        for kept in KEPT {
            assert!(value.as_object_mut().unwrap().remove(kept).is_some(), "{kept}");
        }
        value
    }

    #[test]
    fn named_fields_stay_and_the_rest_goes() {
        let pod = json!({
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
                {"type": "Ready", "status": "True", "message": "long"}, "not an object", {"other": 1}]},
            "data": {"a.b": "1", "a": "2"}
        });
        for (paths, expected) in [
            (
                &[".status.phase", ".spec.nodeName"][..],
                json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}),
            ),
            (
                &[".status.conditions[*].type", ".status.conditions[*].status"],
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {}, {}]}}),
            ),
            (&[".spec.containers[*]"], json!({"spec": {"containers": [{"name": "c"}]}})),
            (&[".data.a\\.b"], json!({"data": {"a.b": "1"}})),
            (&[".spec", ".spec.nodeName"], json!({"spec": pod["spec"]})),
            (&[".spec.nodeName", ".spec"], json!({"spec": pod["spec"]})),
            // Paths that lead nowhere, or elsewhere than they were meant to.
            (
                &[".status.none", ".none.x", ".status.phase.x", ".spec.containers.name", ".status[*]"],
                json!({}),
            ),
        ] {
            assert_eq!(projected(paths, &pod), expected, "{paths:?}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused_by_name() {
        for (path, part) in [
            ("status", "`status` has a step without `.`"),
            (".status..phase", "`.status..phase` has a step without a name"),
            (".status.", "without a name"),
            (".status\\", "ends with `\\`"),
            ("[*].a", "does not begin with a field"),
            ("", "does not begin with a field"),
            (".a[0]", "has a step without `.`"),
            (".metadata.labels", "`.metadata.labels` is always kept"),
            (&".a".repeat(17), "has more than 16 steps"),
        ] {
            let error = FieldPaths::try_from(vec![path.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(FieldPaths::try_from(Vec::new()).unwrap_err().to_string().contains("0 paths, 1 to 64"));
    }

    #[test]
    fn a_projection_reads_and_writes_as_the_manifest_has_it() {
        let read = |value: Value| serde_json::from_value::<Projection>(value);
        assert_eq!(read(json!("metadata")).unwrap(), Projection::Metadata);
        let two = read(json!({"fields": [".b\\.c[*].d", ".a"]})).unwrap();
        assert_eq!(two, Projection::Fields(fields(&[".a", ".b\\.c[*].d", ".a.x"])));
        assert_eq!(serde_json::to_value(&two).unwrap(), json!({"fields": [".a", ".b\\.c[*].d"]}));
        assert!(read(json!({"fields": ["a"]})).unwrap_err().to_string().contains("`a` has a step"));
        assert!(read(json!({"field": [".a"]})).is_err());
    }

    fn content() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            "[a-c\"\\\\]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::btree_map("[abc.\\[]", inner.clone(), 0..4).prop_map(|map| json!(map)),
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
            ]
        })
    }

    /// The same over a tree of values.
    fn by_tree(node: &Node, value: &Value) -> Option<Value> {
        if node.is_whole() {
            return Some(value.clone());
        }
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter_map(|(name, value)| {
                    Some((name.clone(), by_tree(node.fields.get(name.as_str())?, value)?))
                });
                let kept: serde_json::Map<String, Value> = kept.collect();
                (!kept.is_empty()).then(|| kept.into())
            }
            Value::Array(items) => {
                let node = node.items.as_ref()?;
                Some(items.iter().map(|item| by_tree(node, item).unwrap_or_else(|| json!({}))).collect())
            }
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn reading_text_does_what_reading_a_tree_does(
            content in content(),
            paths in prop::collection::vec("(\\.[abc]|\\.\\\\\\.|\\.\\\\\\[)(\\.[abc]|\\[\\*\\]){0,3}", 1..4),
        ) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let expected = by_tree(&fields(&paths).0, &json!({"a": content})).unwrap_or_else(|| json!({}));
            let once = projected(&paths, &json!({"a": content}));
            prop_assert_eq!(&once, &expected);
            prop_assert_eq!(projected(&paths, &once), once);
            let texts = Vec::from(fields(&paths));
            prop_assert_eq!(FieldPaths::try_from(texts).unwrap(), fields(&paths));
        }
    }
}
