//! What differs between two values, by the paths of their fields: for people, who look for one line in a hundred.

use std::fmt;

use serde_json::Value;

/// Differences of one finding that are shown: who has more has another problem than these.
const SHOWN_MAX: usize = 20;

/// Longest text of a value, bytes.
const VALUE_BYTES_MAX: usize = 400;

/// One field that differs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// For example `spec.containers[0].image`.
    pub(super) path: String,
    /// None: it is not there.
    pub(super) expected: Option<Value>,
    pub(super) got: Option<Value>,
}

/// All fields below `path` that differ.
pub(super) fn between(path: &str, expected: &Value, got: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(path.to_owned(), Some(expected), Some(got), &mut found);
    found
}

fn walk(path: String, expected: Option<&Value>, got: Option<&Value>, found: &mut Vec<Difference>) {
    match (expected, got) {
        (Some(Value::Object(expected)), Some(Value::Object(got))) => {
            let more = got.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(more) {
                walk(joined(&path, key), expected.get(key), got.get(key), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(got))) => {
            for at in 0..expected.len().max(got.len()) {
                walk(format!("{path}[{at}]"), expected.get(at), got.get(at), found);
            }
        }
        (expected, got) if expected != got => {
            found.push(Difference { path, expected: expected.cloned(), got: got.cloned() });
        }
        _ => {}
    }
}

/// The path of a field, with names that have dots in brackets, as kubectl prints them.
pub(super) fn joined(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains(['.', '/'])) {
        (_, true) => format!("{path}[{key}]"),
        (true, false) => key.to_owned(),
        (false, false) => format!("{path}.{key}"),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "(not there)".to_owned(),
            Some(value) => {
                let text = value.to_string();
                let clipped = pilothouse_model::plan::clip(&text, VALUE_BYTES_MAX);
                if clipped.len() < text.len() { format!("{clipped}…") } else { text }
            }
        };
        let (expected, got) = (text(&self.expected), text(&self.got));
        write!(f, "{}\n    expected: {expected}\n    got:      {got}", self.path)
    }
}

/// As many as are worth reading, one below the other.
pub(super) fn listed(differences: &[Difference]) -> String {
    let mut texts: Vec<String> = differences.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    if differences.len() > SHOWN_MAX {
        texts.push(format!("(and {} more)", differences.len() - SHOWN_MAX));
    }
    texts.join("\n  ")
}

/// The same for what a pass changed.
pub(super) fn changed(differences: &[Difference]) -> String {
    let text = listed(differences);
    text.replace("\n    expected: ", "\n    before: ").replace("\n    got:      ", "\n    after:  ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_by_their_paths() {
        let expected = json!({"a": 1, "labels": {"x.io/y": "1"}, "list": [{"n": 1}, 2], "same": [1]});
        let got = json!({"b": 1, "labels": {"x.io/y": "2"}, "list": [{"n": 2}], "same": [1]});
        let found = between("object", &expected, &got);
        let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
        assert_eq!(
            paths,
            ["object.a", "object.labels[x.io/y]", "object.list[0].n", "object.list[1]", "object.b"]
        );
        assert_eq!(found[0].to_string(), "object.a\n    expected: 1\n    got:      (not there)");
        assert!(between("", &expected, &expected).is_empty());
    }
}
