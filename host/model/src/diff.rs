//! Is a write needed? The host at rest writes nothing, whatever the API server, its defaults and mutating webhooks
//! make of what was applied; and a restart forgets all that was remembered.
//!
//! 1. The same configuration as last time, and the object still carries the version of our last response: no. This
//!    is the common case and parses nothing.
//! 2. The same configuration, and the fields that we own have the values of our last response: no. Others changed
//!    what is theirs.
//! 3. Our entry in managedFields names exactly the paths of the configuration, with its values: no.
//! 4. Nothing is remembered and 3 cannot tell: ask with a dry run, and compare what would come of it ([`unchanged`]).
//! 5. Otherwise: write.

use std::{fmt, io};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::fields::FieldSet;
use crate::object::Object;

/// 128 bits of SHA-256: equal contents, for all purposes here, at a quarter of a UID's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Print(u128);

impl Print {
    /// Of a tree of values.
    pub fn of(value: &Value) -> Self {
        let mut feed = Feed::default();
        feed.value(value);
        feed.print()
    }

    /// The last 64 bits.
    pub(crate) fn low_bits(self) -> u64 {
        u64::try_from(self.0 & u128::from(u64::MAX)).unwrap_or_default()
    }

    /// Of several texts; moving a character from one to the next gives another print.
    pub fn of_texts(texts: &[&str]) -> Self {
        let mut feed = Feed::default();
        for text in texts {
            feed.text(text);
        }
        feed.print()
    }
}

/// 16 hexadecimal digits of it: part of names.
impl fmt::Display for Print {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.low_bits())
    }
}

#[derive(Default)]
struct Feed(Sha256);

impl io::Write for Feed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Feed {
    fn text(&mut self, text: &str) {
        self.0.update(text.len().to_le_bytes());
        self.0.update(text.as_bytes());
    }

    fn value(&mut self, value: &Value) {
        // Neither this writer nor a tree of values can fail to be written.
        let _ = serde_json::to_writer(self, value);
    }

    fn print(self) -> Print {
        let digest: [u8; 32] = self.0.finalize().into();
        Print(digest[..16].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
    }
}

/// What of an object is ours: the paths, and the values there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own {
    /// Paths everywhere, values in `metadata`.
    metadata: Print,
    /// Values elsewhere; none if the object came without all of its content.
    content: Option<Print>,
}

impl Own {
    fn of(object: &Object) -> Self {
        let live = object.to_value();
        let set = object.own_fields().and_then(|text| FieldSet::parse(text));
        let print = |of_metadata: bool| {
            let mut feed = Feed::default();
            if let Some(text) = object.own_fields().filter(|_| of_metadata) {
                feed.text(text);
            }
            if let Some(set) = &set {
                set.visit_owned(&live, |name| (name == "metadata") == of_metadata, &mut |step, value| {
                    feed.text(step);
                    if let Some(value) = value {
                        feed.value(value);
                    }
                });
            }
            feed.print()
        };
        Self { metadata: print(true), content: (!object.is_partial()).then(|| print(false)) }
    }

    /// Equal as far as both are known.
    fn agrees(&self, other: &Self) -> bool {
        self.metadata == other.metadata
            && self.content.zip(other.content).is_none_or(|(mine, theirs)| mine == theirs)
    }
}

/// What is remembered of a child after each response of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    desired: Print,
    own: Own,
    resource_version: u64,
}

impl Memory {
    /// After the API server answered an apply of `desired` with `response`, or was seen to have nothing to do.
    pub fn after(desired: Print, response: &Object) -> Self {
        Self { desired, own: Own::of(response), resource_version: response.meta().resource_version }
    }

    /// Whether this very configuration was the last one that the API server took.
    pub fn is_of(&self, desired: Print) -> bool {
        self.desired == desired
    }
}

/// Whether a write is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// No; and what to remember.
    No(Memory),
    /// Yes.
    Write,
    /// Only the API server can tell.
    Ask,
}

/// Decides whether `desired` (with its print) must be applied to `live`. Both `live` and the response behind `memory`
/// must have gone through [`Object::keep_manager`].
pub fn need(desired: &Value, print: Print, live: &Object, memory: Option<&Memory>) -> Need {
    if let Some(memory) = memory.filter(|memory| memory.desired == print) {
        // A store that lags behind our own write shows an older version: the response is the newer truth.
        if live.meta().resource_version <= memory.resource_version {
            return Need::No(*memory);
        }
        let now = Memory::after(print, live);
        if now.own.agrees(&memory.own) {
            // The content that this look did not see is still the remembered one.
            let content = now.own.content.or(memory.own.content);
            return Need::No(Memory { own: Own { content, ..now.own }, ..now });
        }
    }
    let Some(own) = live.own_fields().and_then(|text| FieldSet::parse(text)) else { return Need::Write };
    // A field that is not shown looks like one that was left out; whoever changed it has taken its path from our entry.
    if !live.is_partial() && own.settled(desired, &live.to_value()) {
        return Need::No(Memory::after(print, live));
    }
    if memory.is_some() { Need::Write } else { Need::Ask }
}

/// Whether a dry run's answer says that applying changes nothing: neither the object nor what we own of it.
pub fn unchanged(answer: &Object, live: &Object) -> bool {
    let fields = |object: &Object| object.own_fields().and_then(|text| FieldSet::parse(text));
    fields(answer) == fields(live) && same_content(answer, live)
}

/// Whether a dry run's answer says that applying changes nothing but what we own of the object.
pub fn same_content(answer: &Object, live: &Object) -> bool {
    let content = |object: &Object| {
        let mut value = object.to_value();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            // Both count writes; a dry run may count itself.
            metadata.remove("resourceVersion");
            metadata.remove("generation");
        }
        value
    };
    content(answer) == content(live)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;
    use crate::projection::Projection;

    const MANAGER: &str = "pilothouse-x";

    /// The API server in small: maps merge, lists of named items merge by name, all else is atomic. It fills in a
    /// default beside our fields and leaves out zero values.
    fn server(desired: &Value, others: &Value, version: u64) -> Object {
        let mut live = merged(others, &without_zeros(desired));
        live["metadata"]["uid"] = json!("u1");
        live["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut own = field_set(desired);
        if let Some(own) = own.as_object_mut() {
            own.remove("f:apiVersion");
            own.remove("f:kind");
            let metadata = own["f:metadata"].as_object_mut().unwrap();
            metadata.remove("f:name");
        }
        live["metadata"]["managedFields"] =
            json!([{"manager": MANAGER, "operation": "Apply", "fieldsV1": own}]);
        let mut object = Object::from_value(&live).unwrap();
        object.keep_manager(MANAGER);
        object
    }

    fn keyed(items: &[Value]) -> bool {
        !items.is_empty() && items.iter().all(|item| item.get("name").is_some())
    }

    fn without_zeros(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields
                .iter()
                .filter(|(_, value)| !matches!(value, Value::String(text) if text.is_empty()))
                .map(|(name, value)| (name.clone(), without_zeros(value)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(items) if keyed(items) => items.iter().map(without_zeros).collect(),
            other => other.clone(),
        }
    }

    fn merged(live: &Value, desired: &Value) -> Value {
        match (live, desired) {
            (Value::Object(live), Value::Object(desired)) => {
                let mut fields = live.clone();
                for (name, value) in desired {
                    let old = live.get(name).unwrap_or(&Value::Null);
                    fields.insert(name.clone(), merged(old, value));
                }
                fields.into()
            }
            (Value::Array(live), Value::Array(desired)) if keyed(desired) => {
                let ours = |item: &&Value| !desired.iter().any(|own| own["name"] == item["name"]);
                let theirs = live.iter().filter(ours).cloned();
                desired.iter().map(|own| merged(&json!({"defaulted": true}), own)).chain(theirs).collect()
            }
            (_, desired) => desired.clone(),
        }
    }

    fn field_set(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), field_set(value)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(items) if keyed(items) => items
                .iter()
                .map(|item| {
                    let mut below = field_set(item);
                    below["."] = json!({});
                    (format!("k:{}", json!({"name": item["name"]})), below)
                })
                .collect::<Map<_, _>>()
                .into(),
            _ => json!({}),
        }
    }

    fn content() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            "[a-b]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let fields = prop::collection::btree_map("[a-d]", inner.clone(), 1..4);
            prop_oneof![
                fields.clone().prop_map(|fields| json!(fields)),
                prop::collection::vec(inner, 1..3)
                    .prop_map(Value::from)
                    .prop_filter("keyed by chance", |list| {
                        list.as_array().is_none_or(|items| items.iter().all(|item| !item.is_object()))
                    }),
                prop::collection::btree_map("[a-d]", fields, 1..4).prop_map(|items| {
                    let named = items.into_iter().map(|(name, fields)| {
                        let mut item = json!(fields);
                        item["name"] = json!(name);
                        item
                    });
                    named.collect()
                }),
            ]
        })
    }

    fn object(content: &Value) -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "X",
            "metadata": {"name": "a", "labels": {"pilothouse.dev/managed": "x"}},
            "spec": {"content": content}
        })
    }

    /// Every leaf of `value` replaced in turn by something else.
    fn changes(value: &Value) -> Vec<Value> {
        match value {
            Value::Object(fields) => fields
                .iter()
                .filter(|(name, _)| *name != "name")
                .flat_map(|(name, old)| {
                    changes(old).into_iter().map(move |new| {
                        let mut changed = value.clone();
                        changed[name] = new;
                        changed
                    })
                })
                .collect(),
            Value::Array(items) if keyed(items) => (0..items.len())
                .flat_map(|at| {
                    changes(&items[at]).into_iter().map(move |new| {
                        let mut changed = value.clone();
                        changed[at] = new;
                        changed
                    })
                })
                .collect(),
            _ => vec![json!("another")],
        }
    }

    proptest! {
        #[test]
        fn what_was_applied_needs_no_write_with_or_without_memory(content in content(), theirs in content()) {
            let desired = object(&content);
            let print = Print::of(&desired);
            let response = server(&desired, &json!({"metadata": {}}), 5);
            prop_assert_eq!(need(&desired, print, &response, None), Need::No(Memory::after(print, &response)));
            let memory = Memory::after(print, &response);
            // Others write what is theirs.
            let others = json!({"metadata": {"annotations": {"x": "y"}}, "theirs": theirs, "status": theirs});
            let later = server(&desired, &others, 6);
            prop_assert_eq!(need(&desired, print, &later, Some(&memory)), Need::No(Memory::after(print, &later)));
            prop_assert_eq!(need(&desired, print, &later, None), Need::No(Memory::after(print, &later)));
        }

        #[test]
        fn each_changed_value_is_written(content in content()) {
            let desired = object(&content);
            let response = server(&desired, &json!({"metadata": {}}), 5);
            let memory = Memory::after(Print::of(&desired), &response);
            for changed in changes(&content) {
                let changed = object(&changed);
                let print = Print::of(&changed);
                prop_assert_eq!(need(&changed, print, &response, Some(&memory)), Need::Write);
                prop_assert_eq!(need(&changed, print, &response, None), Need::Ask);
            }
        }

        #[test]
        fn each_value_that_drifts_is_written_back(content in content()) {
            let desired = object(&content);
            let print = Print::of(&desired);
            let memory = Memory::after(print, &server(&desired, &json!({"metadata": {}}), 5));
            for drifted in changes(&content) {
                let live = server(&object(&drifted), &json!({"metadata": {}}), 6);
                prop_assert_eq!(need(&desired, print, &live, Some(&memory)), Need::Write);
            }
        }
    }

    fn web(version: u64, own: Option<Value>) -> Object {
        let entries = own.map(|own| json!([{"manager": MANAGER, "operation": "Apply", "fieldsV1": own}]));
        let mut object = Object::from_value(&json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a", "resourceVersion": version.to_string(), "managedFields": entries},
            "spec": {"size": "1", "replicas": 3}
        }))
        .unwrap();
        object.keep_manager(MANAGER);
        object
    }

    fn wanted() -> Value {
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"size": "1000m", "replicas": 3}})
    }

    #[test]
    fn a_normalised_value_is_quiet_once_it_was_written() {
        let own = json!({"f:spec": {"f:size": {}, "f:replicas": {}}});
        let print = Print::of(&wanted());
        let memory = Memory::after(print, &web(5, Some(own.clone())));
        for version in [4, 5] {
            let live = web(version, Some(own.clone()));
            assert_eq!(need(&wanted(), print, &live, Some(&memory)), Need::No(memory), "{version}");
        }
        assert!(matches!(need(&wanted(), print, &web(6, Some(own.clone())), Some(&memory)), Need::No(_)));
        assert_eq!(need(&wanted(), print, &web(6, Some(own)), None), Need::Ask);
    }

    #[test]
    fn a_field_that_another_manager_took_is_drift() {
        let print = Print::of(&wanted());
        let memory = Memory::after(print, &web(5, Some(json!({"f:spec": {"f:size": {}, "f:replicas": {}}}))));
        let live = web(6, Some(json!({"f:spec": {"f:size": {}}})));
        assert_eq!(need(&wanted(), print, &live, Some(&memory)), Need::Write);
        // All of our fields: then there is no entry left.
        assert_eq!(need(&wanted(), print, &web(6, None), Some(&memory)), Need::Write);
        assert_eq!(need(&wanted(), print, &web(6, None), None), Need::Write);
    }

    #[test]
    fn a_watch_without_all_content_neither_hides_drift_nor_makes_it() {
        let own =
            json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:size": {}, "f:replicas": {}}});
        let print = Print::of(&wanted());
        let memory = Memory::after(print, &web(5, Some(own.clone())));
        let some = serde_json::from_value(json!({"fields": [".spec.replicas"]})).unwrap();
        for projection in [Projection::Metadata, some] {
            let mut bare = web(6, Some(own.clone()));
            bare.project(&projection);
            let Need::No(kept) = need(&wanted(), print, &bare, Some(&memory)) else { panic!("not quiet") };
            assert!(kept.own.content.is_some());
            let mut taken = web(7, Some(json!({"f:spec": {"f:size": {}}})));
            taken.project(&projection);
            assert_eq!(need(&wanted(), print, &taken, Some(&kept)), Need::Write);
            // After a restart the whole object must be looked at, also where what is wanted looks like nothing.
            assert_eq!(need(&wanted(), print, &bare, None), Need::Ask);
            let zero = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "labels": {"a": ""}}, "spec": {"size": "", "replicas": 0}});
            assert_eq!(need(&zero, Print::of(&zero), &bare, None), Need::Ask);
        }
    }

    #[test]
    fn a_dry_run_compares_content_and_ownership() {
        let own = json!({"f:spec": {"f:size": {}}});
        assert!(unchanged(&web(5, Some(own.clone())), &web(9, Some(own.clone()))));
        assert!(!unchanged(&web(5, Some(own)), &web(5, Some(json!({"f:spec": {}})))));
        assert!(!unchanged(&web(5, None), &server(&wanted(), &json!({"metadata": {}}), 5)));
    }

    #[test]
    fn prints_tell_texts_apart() {
        assert_ne!(Print::of_texts(&["ab", "c"]), Print::of_texts(&["a", "bc"]));
        assert_ne!(Print::of(&json!({"a": 1})), Print::of(&json!({"a": "1"})));
    }
}
