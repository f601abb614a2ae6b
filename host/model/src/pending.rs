//! One write that would happen: what it would change, for people and as a hash. An approval is of exactly what is
//! shown here, so the hash is made of that (values before they are cut, those of Secrets left out), of the object's
//! UID, and of nothing that differs from pass to pass.

use std::fmt;

use serde_json::Value;

use crate::diff::Print;
use crate::kind::Reference;
use crate::plan::clip;

/// Changes that a summary shows: more make a line that nobody reads.
const CHANGES_SHOWN: usize = 6;
/// Bytes of one value in a summary.
const VALUE_BYTES_MAX: usize = 48;
/// Bytes of one path in a summary: the keys in it are whatever somebody wrote.
const PATH_BYTES_MAX: usize = 160;
/// Fields of `metadata` that the API server keeps for itself: they count writes and say nothing about one.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// 64 bits of SHA-256, displayed as 16 hexadecimal digits: short enough to be typed, and nobody makes another plan of
/// the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// Of several texts in this order.
    pub(crate) fn of(texts: &[&str]) -> Self {
        Self(Print::of_texts(texts).low_bits())
    }

    /// Reads 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let hexadecimal = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| hexadecimal).map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// A new object.
    Create,
    /// Fields of one that is there.
    Update,
    /// It goes.
    Delete,
}

impl Verb {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// One write that would happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// What.
    pub verb: Verb,
    /// `Kind.group name`, with the namespace or subresource if that is not the obvious one.
    pub subject: String,
    /// Which changes, cut to what a line holds; empty for a deletion.
    pub summary: String,
    /// What an approval is of.
    pub hash: Hash,
}

impl Pending {
    /// A write to `target` that takes the object from `before` to `after` (null: there is none). `home` is the namespace
    /// of the primary, which is not said again. Subresources are objects of their own.
    pub fn new(
        verb: Verb,
        target: &Reference,
        subresource: Option<&str>,
        home: Option<&str>,
        before: &Value,
        after: &Value,
    ) -> Self {
        let mut changes = Vec::new();
        if verb != Verb::Delete {
            let blank = target.kind.is_secret();
            walk(
                &mut Path { at: Vec::new(), status: subresource == Some("status"), blank },
                before,
                after,
                &mut changes,
            );
        }
        let full: String = changes.iter().map(|change| change.to_text(usize::MAX) + "\n").collect();
        let target_text = target.to_string();
        let uid = target.uid.as_deref().unwrap_or_default();
        let hash = Hash::of(&[verb.as_str(), &target_text, uid, subresource.unwrap_or_default(), &full]);
        let shown: Vec<String> =
            changes.iter().take(CHANGES_SHOWN).map(|change| change.to_text(VALUE_BYTES_MAX)).collect();
        let mut summary = shown.join(", ");
        if changes.len() > CHANGES_SHOWN {
            summary = format!("{summary} and {} more", changes.len() - CHANGES_SHOWN);
        } else if changes.is_empty() && verb == Verb::Update {
            summary.push_str("who owns its fields, no value");
        }
        Self { verb, subject: subject(target, subresource, home), summary, hash }
    }

    /// The line of a plan.
    pub(crate) fn line(&self) -> String {
        let colon = if self.summary.is_empty() { "" } else { ": " };
        format!("{} {} {}{colon}{}", self.hash, self.verb.as_str(), self.subject, self.summary)
    }
}

fn subject(target: &Reference, subresource: Option<&str>, home: Option<&str>) -> String {
    let Reference { kind, namespace, name, .. } = target;
    let dot = if kind.group.is_empty() { "" } else { "." };
    let elsewhere = namespace.as_deref().filter(|namespace| Some(*namespace) != home);
    let place = elsewhere.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let part = subresource.map(|subresource| format!(" ({subresource})")).unwrap_or_default();
    format!("{}{dot}{} {place}{name}{part}", kind.kind, kind.group)
}

/// One value that changes.
struct Change {
    path: String,
    from: Option<String>,
    to: Option<String>,
}

impl Change {
    fn to_text(&self, value_bytes_max: usize) -> String {
        let cut = |text: &str| {
            let kept = clip(text, value_bytes_max);
            if kept.len() < text.len() { format!("{kept}…") } else { kept.to_owned() }
        };
        let path = clip(&self.path, if value_bytes_max == usize::MAX { usize::MAX } else { PATH_BYTES_MAX });
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("{path} {} -> {}", cut(from), cut(to)),
            (None, Some(to)) => format!("{path} = {}", cut(to)),
            (_, None) => format!("{path} removed"),
        }
    }
}

enum Step {
    Key(String),
    At(usize),
}

struct Path {
    at: Vec<Step>,
    /// `status` is what is written, not somebody else's news.
    status: bool,
    /// Values of a Secret.
    blank: bool,
}

impl Path {
    fn is_left_out(&self, key: &str) -> bool {
        match self.steps().as_slice() {
            [] => matches!(key, "apiVersion" | "kind") || key == "status" && !self.status,
            ["metadata"] => BOOKKEEPING.contains(&key),
            _ => false,
        }
    }

    /// Only what says which object it is, and by which keys; never what a value is.
    fn hides_values(&self) -> bool {
        // Client-side apply keeps a copy of the whole Secret in an annotation.
        self.blank
            && match self.steps().as_slice() {
                ["metadata", field, ..] => *field == "annotations",
                [field, ..] => *field != "type",
                [] => true,
            }
    }

    /// The first steps, as far as they are keys.
    fn steps(&self) -> Vec<&str> {
        let keys = self.at.iter().take(2).map_while(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::At(_) => None,
        });
        keys.collect()
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for step in &self.at {
            match step {
                // Anything else is quoted: a key with a line break would forge a line of the plan.
                Step::Key(key)
                    if key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') =>
                {
                    text += if text.is_empty() { "" } else { "." };
                    text += key;
                }
                Step::Key(key) => text = format!("{text}[{}]", Value::from(key.as_str())),
                Step::At(at) => text = format!("{text}[{at}]"),
            }
        }
        text
    }
}

fn walk(path: &mut Path, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(_) | Value::Null, Value::Object(_)) | (Value::Object(_), Value::Null) => {
            let (empty, none) = (serde_json::Map::new(), Value::Null);
            let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys.into_iter().filter(|key| !path.is_left_out(key)).collect::<Vec<_>>() {
                path.at.push(Step::Key(key.clone()));
                walk(path, before.get(key).unwrap_or(&none), after.get(key).unwrap_or(&none), changes);
                path.at.pop();
            }
        }
        // Lists whose items have kept their places are looked into; others are one value.
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                path.at.push(Step::At(at));
                walk(path, old, new, changes);
                path.at.pop();
            }
        }
        _ => {
            let hidden = path.hides_values();
            let text = |value: &Value| match value {
                Value::Null => None,
                _ if hidden => Some("(not shown)".to_owned()),
                value => Some(value.to_string()),
            };
            changes.push(Change { path: path.to_text(), from: text(before), to: text(after) });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Kind;

    fn target(kind: Kind, uid: Option<&str>) -> Reference {
        Reference {
            kind,
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    fn service(uid: Option<&str>) -> Reference {
        target(Kind::new("", "v1", "Service"), uid)
    }

    fn update(before: &Value, after: &Value) -> Pending {
        Pending::new(Verb::Update, &service(Some("u")), None, Some("shop"), before, after)
    }

    #[test]
    fn a_line_says_what_changes_from_what_to_what() {
        let before = json!({"metadata": {"resourceVersion": "1", "labels": {"a.b/c": "x"}},
            "spec": {"ports": [{"port": 5432}], "gone": 1}, "status": {"n": 1}});
        let after = json!({"metadata": {"resourceVersion": "2", "labels": {"a.b/c": "y"}},
            "spec": {"ports": [{"port": 6432}], "new": true}, "status": {"n": 2}});
        let pending = update(&before, &after);
        assert_eq!(
            pending.line(),
            format!(
                "{} update Service db: metadata.labels[\"a.b/c\"] \"x\" -> \"y\", spec.gone removed, spec.new = true, \
                 spec.ports[0].port 5432 -> 6432",
                pending.hash
            )
        );
        let elsewhere = Pending::new(Verb::Delete, &service(Some("u")), None, None, &before, &Value::Null);
        assert_eq!(elsewhere.line(), format!("{} delete Service shop/db", elsewhere.hash));
        let scale = target(Kind::new("apps", "v1", "Deployment"), None);
        let scale = Pending::new(Verb::Update, &scale, Some("scale"), Some("shop"), &json!({}), &json!({}));
        assert_eq!(scale.subject, "Deployment.apps db (scale)");
        assert!(scale.summary.contains("owns"));
    }

    #[test]
    fn the_hash_is_of_all_that_changes_and_of_no_more() {
        let (one, two) = (json!({"spec": {"n": 1}}), json!({"spec": {"n": 2}}));
        let hash = update(&one, &two).hash;
        let later = json!({"metadata": {"resourceVersion": "7", "generation": 3}, "spec": {"n": 2}, "status": {"x": 1}});
        assert_eq!(update(&one, &later).hash, hash, "bookkeeping");
        assert_ne!(update(&one, &json!({"spec": {"n": 3}})).hash, hash, "another value");
        assert_ne!(update(&json!({"spec": {"n": 0}}), &two).hash, hash, "from another value");
        let other = Pending::new(Verb::Update, &service(Some("v")), None, Some("shop"), &one, &two);
        assert_ne!(other.hash, hash, "another object of the name");
        let long = |end: &str| json!({"data": {"k": "x".repeat(500) + end}});
        let (a, b) = (update(&json!({}), &long("a")), update(&json!({}), &long("b")));
        assert_eq!(a.summary, b.summary);
        assert_ne!(a.hash, b.hash, "what is cut counts");
        assert!(a.line().len() < 200, "{}", a.line());
        let forged = json!({"data": {"k = 1\n0123456789abcdef create Pod b: a": 1}});
        assert_eq!(update(&json!({}), &forged).line().lines().count(), 1);
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        assert_eq!((Hash::parse("+123456789abcdef"), Hash::parse("12")), (None, None));
    }

    #[test]
    fn values_of_a_secret_are_neither_shown_nor_hashed() {
        let secret = target(Kind::new("", "v1", "Secret"), None);
        let create = |value: &str| {
            let after = json!({"metadata": {"name": "db", "annotations": {"note": value}}, "type": "Opaque",
                "data": {"password": value}, "stringData": {"user": value}});
            Pending::new(Verb::Create, &secret, None, Some("shop"), &Value::Null, &after)
        };
        let pending = create("aHVudGVyMg==");
        assert!(!pending.line().contains("aHVudGVyMg"), "{}", pending.line());
        assert!(pending.line().contains("data.password = (not shown)"), "{}", pending.line());
        assert_eq!(pending.hash, create("b3RoZXI=").hash, "drawn anew in each pass");
    }
}
