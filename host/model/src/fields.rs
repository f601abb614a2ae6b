//! Field sets: what `metadata.managedFields` says a manager owns, as `fieldsV1` writes it.
//!
//! A set is a trie. Its keys are `f:NAME` (a field), `k:{…}` (the item of a list whose keys have these values),
//! `v:VALUE` (an item of a set) and `.` (the item itself); an empty map ends a path. Two facts of the API server
//! make the walks below right:
//!
//! - The set of an Apply entry is that of the configuration which was applied, before defaults and normalisation.
//! - Whoever changes the value of a field afterwards takes it out of the sets of all others. So a path that is still
//!   in our entry has, in the live object, the value that our own last apply left there.
//!
//! The schema (which lists have keys, which maps are atomic) is not known here and not needed: it shows in the set.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Comparisons that one list may cost: 1,000 items in any order. What is larger is left to the API server to judge.
const LIST_STEPS_MAX: usize = 1 << 20;

/// A field set, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSet(Map<String, Value>);

impl FieldSet {
    /// Reads `fieldsV1`; none if it is no trie.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// Whether the set names this path of fields, or something below it.
    pub fn has(&self, path: &[&str]) -> bool {
        let mut node = Some(&self.0);
        for name in path {
            node = node.and_then(|node| node.get(&format!("f:{name}"))).and_then(Value::as_object);
        }
        node.is_some()
    }

    /// Whether applying `desired` would change neither this set nor a value in `live`: the same paths, the same
    /// values. False also where that cannot be told: a defaulted or normalised value looks like a changed one.
    pub fn settled(&self, desired: &Value, live: &Value) -> bool {
        let Some(fields) = desired.as_object() else { return false };
        let none = Map::new();
        let node = |name: &str| self.0.get(&format!("f:{name}"));
        let mut owned = self.0.len();
        for (name, value) in fields.iter().filter(|(name, _)| *name != "apiVersion" && *name != "kind") {
            let here = node(name);
            owned -= usize::from(here.is_some());
            let same = if name == "metadata" {
                // The API server leaves what identifies the object out of every set.
                let entries = value.as_object().unwrap_or(&none).iter();
                let entries = entries.filter(|(name, _)| !["name", "namespace"].contains(&name.as_str()));
                same_fields(entries, live.get(name), here.and_then(Value::as_object).unwrap_or(&none))
            } else {
                same_or_absent(value, live.get(name), here)
            };
            if !same {
                return false;
            }
        }
        owned == 0
    }

    /// Calls `visit` with each path step and each owned value of `live`, in an order that depends on the set alone.
    /// `wanted` chooses the top-level fields. Maps at the end of a path are left out: whether such a map is owned
    /// whole or was only named while empty cannot be seen, and in the first case a change of it shows in the set.
    pub fn visit_owned(
        &self,
        live: &Value,
        wanted: impl Fn(&str) -> bool,
        visit: &mut impl FnMut(&str, Option<&Value>),
    ) {
        for (key, below) in &self.0 {
            let Some(name) = key.strip_prefix("f:").filter(|name| wanted(name)) else { continue };
            visit(key, None);
            visit_node(below, live.get(name), visit);
        }
    }

    /// The union with another set.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        merge(&mut self.0, &other.0);
        self
    }

    /// As `fieldsV1`.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, below) in from {
        let node = into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        match (node.as_object_mut(), below.as_object()) {
            (Some(node), Some(below)) if node.is_empty() || below.is_empty() => {
                // One of the two owns the field itself, the other something in it: `.` keeps both.
                if node.is_empty() != below.is_empty() {
                    node.insert(".".to_owned(), Value::Object(Map::new()));
                }
                merge(node, below);
            }
            (Some(node), Some(below)) => merge(node, below),
            _ => {}
        }
    }
}

fn same_or_absent(desired: &Value, live: Option<&Value>, own: Option<&Value>) -> bool {
    match own.and_then(Value::as_object) {
        Some(own) => same(desired, live, own),
        // An empty list with keys owns nothing and changes nothing: items of others stay.
        None => desired.as_array().is_some_and(Vec::is_empty),
    }
}

fn same(desired: &Value, live: Option<&Value>, own: &Map<String, Value>) -> bool {
    if own.is_empty() {
        return match live {
            // The server writes a zero value as no value: `env[].value: ""`, `updateStrategy: {}`.
            None => is_zero(desired),
            Some(live) => desired == live,
        };
    }
    match desired {
        Value::Object(fields) => same_fields(fields.iter(), live, own),
        Value::Array(items) => {
            let live = live.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            same_items(items, live, own)
        }
        _ => false,
    }
}

fn same_fields<'a>(
    desired: impl Iterator<Item = (&'a String, &'a Value)>,
    live: Option<&Value>,
    own: &Map<String, Value>,
) -> bool {
    let mut owned = own.keys().filter(|key| *key != ".").count();
    for (name, value) in desired {
        let here = own.get(&format!("f:{name}"));
        owned -= usize::from(here.is_some());
        if !same_or_absent(value, live.and_then(|live| live.get(name)), here) {
            return false;
        }
    }
    owned == 0
}

/// Pairs each owned item with the desired and the live one; all must pair, in the same order.
fn same_items(desired: &[Value], live: &[Value], own: &Map<String, Value>) -> bool {
    let owned = own.iter().filter(|(key, _)| *key != ".").count();
    if owned != desired.len() || owned.saturating_mul(desired.len().max(live.len())) > LIST_STEPS_MAX {
        return false;
    }
    let mut places = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (key, below) in own.iter().filter(|(key, _)| *key != ".") {
        let Some(below) = below.as_object() else { return false };
        let Some(element) = Element::parse(key) else { return false };
        let mut found = desired.iter().enumerate().filter(|(_, item)| element.may_be(item));
        let (Some((at, item)), None) = (found.next(), found.next()) else { return false };
        let Some(there) = live.iter().position(|item| element.is(item)) else { return false };
        let alike = match element {
            Element::Item(_) => same(item, Some(&live[there]), below),
            Element::Member(_) => true,
        };
        if !alike || !taken.insert(there) || places.insert(at, there).is_some() {
            return false;
        }
    }
    places.values().is_sorted()
}

/// One item of a list, as a key of the trie names it.
enum Element {
    Item(Map<String, Value>),
    Member(Value),
}

impl Element {
    fn parse(key: &str) -> Option<Self> {
        match key.split_once(':')? {
            ("k", keys) => serde_json::from_str(keys).ok().map(Self::Item),
            ("v", value) => serde_json::from_str(value).ok().map(Self::Member),
            _ => None,
        }
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Self::Item(keys) => keys.iter().all(|(name, value)| item.get(name) == Some(value)),
            Self::Member(value) => item == value,
        }
    }

    /// Keys may have defaults that the configuration left out: `protocol` of a port is TCP.
    fn may_be(&self, item: &Value) -> bool {
        match self {
            Self::Item(keys) => {
                keys.iter().all(|(name, value)| item.get(name).is_none_or(|key| key == value))
            }
            Self::Member(value) => item == value,
        }
    }
}

fn visit_node(own: &Value, live: Option<&Value>, visit: &mut impl FnMut(&str, Option<&Value>)) {
    let Some(own) = own.as_object() else { return };
    if own.is_empty() {
        visit("=", live.filter(|live| !live.is_object()));
        return;
    }
    for (key, below) in own {
        visit(key, None);
        let here = if let Some(name) = key.strip_prefix("f:") {
            live.and_then(|live| live.get(name))
        } else if let Some(element) = Element::parse(key) {
            live.and_then(Value::as_array).and_then(|items| items.iter().find(|item| element.is(item)))
        } else {
            continue;
        };
        visit_node(below, here, visit);
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> FieldSet {
        FieldSet::parse(&value.to_string()).unwrap()
    }

    /// A StatefulSet's worth of what the API server does to a configuration: keys with defaults, dropped zero
    /// values, lists of others' items.
    fn own() -> FieldSet {
        set(&json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {}, "f:updateStrategy": {},
                "f:containers": {"k:{\"name\":\"db\"}": {
                    ".": {}, "f:name": {},
                    "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                    "f:ports": {"k:{\"containerPort\":5432,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}
                }},
                "f:finalizers": {"v:\"example.com/a\"": {}}
            }
        }))
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "db"}},
            "spec": {
                "replicas": 3, "updateStrategy": {}, "volumes": [],
                "containers": [{"name": "db", "env": [{"name": "A", "value": ""}], "ports": [{"containerPort": 5432}]}],
                "finalizers": ["example.com/a"]
            }
        })
    }

    fn live() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"app": "db", "theirs": "1"}},
            "spec": {
                "replicas": 3, "other": 1,
                "containers": [
                    {"name": "sidecar"},
                    {"name": "db", "image": "defaulted", "env": [{"name": "A"}],
                     "ports": [{"containerPort": 5432, "protocol": "TCP"}]}
                ],
                "finalizers": ["z", "example.com/a"]
            },
            "status": {"replicas": 3}
        })
    }

    #[test]
    fn what_the_server_fills_in_or_drops_is_no_difference() {
        assert!(own().settled(&desired(), &live()));
    }

    #[test]
    fn each_real_difference_is_one() {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 9] = [
            ("a value", |d| d["spec"]["replicas"] = json!(4)),
            ("a zero value where there is another", |d| d["spec"]["replicas"] = json!(0)),
            ("a new field", |d| d["spec"]["new"] = json!("")),
            ("a dropped field", |d| {
                d["spec"].as_object_mut().unwrap().remove("replicas");
            }),
            ("a dropped label", |d| d["metadata"]["labels"] = json!({})),
            ("a new item", |d| d["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "new"}))),
            ("a dropped item", |d| d["spec"]["containers"] = json!([])),
            ("an item's key", |d| d["spec"]["containers"][0]["ports"][0]["protocol"] = json!("UDP")),
            ("a member", |d| d["spec"]["finalizers"][0] = json!("example.com/b")),
        ];
        for (what, change) in changes {
            let mut desired = desired();
            change(&mut desired);
            assert!(!own().settled(&desired, &live()), "{what}");
        }
    }

    #[test]
    fn the_order_of_items_counts_and_doubles_are_left_to_the_server() {
        let item = json!({".": {}, "f:name": {}});
        let own = set(&json!({"f:env": {"k:{\"name\":\"A\"}": item, "k:{\"name\":\"B\"}": item}}));
        let list =
            |names: &[&str]| json!({"env": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()});
        assert!(own.settled(&list(&["A", "B"]), &list(&["A", "X", "B"])));
        assert!(!own.settled(&list(&["B", "A"]), &list(&["A", "X", "B"])));
        assert!(!own.settled(&list(&["A", "A"]), &list(&["A", "B"])));
    }

    #[test]
    fn an_atomic_map_with_defaults_in_it_cannot_be_told() {
        let own = set(&json!({"f:fieldRef": {}}));
        let desired = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        let live = json!({"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}});
        assert!(!own.settled(&desired, &live));
        assert!(own.settled(&live, &live));
    }

    #[test]
    fn a_set_says_which_fields_it_names() {
        assert!(own().has(&["spec", "replicas"]) && own().has(&["spec"]) && !own().has(&["spec", "x"]));
    }

    #[test]
    fn a_union_keeps_every_path() {
        let ours = set(&json!({"f:a": {}, "f:b": {"f:c": {}}}));
        let theirs = set(&json!({"f:a": {"f:x": {}}, "f:b": {"f:d": {}}, "f:e": {}}));
        let both = set(&json!({"f:a": {".": {}, "f:x": {}}, "f:b": {"f:c": {}, "f:d": {}}, "f:e": {}}));
        assert_eq!(ours.clone().union(&theirs), both);
        assert_eq!(theirs.union(&ours), both);
    }
}
