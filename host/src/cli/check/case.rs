//! A file of cases: Kubernetes objects as they lie in a cluster, and after them the documents that `pilothouse render`
//! prints, one for each resource. What it prints can be appended to what it read, and is a case.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pilothouse_model::manifest::Manifest;
use serde_json::Value;

use crate::cli::documents::{self, Document};
use crate::cli::exit::Exit;
use crate::cli::offline::scene;
use crate::cli::output;

/// Time of a case that says none: any, but the same in each run.
pub(super) const NOW: &str = "2025-01-01T00:00:00Z";

/// Fields of a document that says what is expected.
const FIELDS: [&str; 5] = ["resource", "now", "config", "actions", "failure"];

/// One file.
pub(super) struct CaseFile {
    pub(super) path: PathBuf,
    text: String,
    /// Resources that the plugin serves, each with what is expected.
    pub(super) cases: Vec<Case>,
    /// The other objects.
    pub(super) objects: Vec<Document>,
    /// Of the line that begins the first document that says what is expected.
    expected_at: Option<usize>,
}

/// One resource of a file.
pub(super) struct Case {
    pub(super) primary: Document,
    pub(super) expected: Option<Expected>,
}

/// What a document says of one resource.
#[derive(Clone)]
pub(super) struct Expected {
    /// `file:line`
    pub(super) place: String,
    /// As `render` prints it: `actions`, and `failure` if there is one.
    pub(super) outcome: Value,
    /// Time of the pass.
    pub(super) now: Option<String>,
    /// In place of the configuration in the plugin's settings.
    pub(super) config: Option<Value>,
    resource: Value,
}

/// Reads the files, and of directories each `*.yaml`, `*.yml` and `*.json`, by name.
pub(super) fn read(paths: &[PathBuf], manifest: &Manifest) -> Result<Vec<CaseFile>, Exit> {
    let mut files = Vec::new();
    for path in paths {
        let found = if path.is_dir() { documents::files(path)? } else { vec![path.clone()] };
        if found.is_empty() {
            let path = path.display();
            return Err(Exit::bad_input(format!("{path}: no cases: a file NAME.yaml would be right")));
        }
        for path in found {
            files.push(read_file(&path, manifest)?);
        }
    }
    Ok(files)
}

fn read_file(path: &Path, manifest: &Manifest) -> Result<CaseFile, Exit> {
    let text = documents::text_of(path)?;
    let name = path.display().to_string();
    let (mut cases, mut objects, mut expected) = (Vec::new(), Vec::new(), Vec::<Expected>::new());
    for document in documents::parse(&text, &name)? {
        let is_outcome = FIELDS.iter().any(|field| document.value.get(field).is_some());
        if is_outcome && document.value.get("kind").is_none() {
            expected.push(read_expected(document)?);
        } else if let Some(first) = expected.first() {
            return Err(Exit::bad_input(format!(
                "{}: an object after the expected outcome at {}: the objects come first",
                document.place, first.place
            )));
        } else if manifest.controller(&scene::kind_of(&document)?).is_some() {
            cases.push(Case { primary: document, expected: None });
        } else {
            objects.push(document);
        }
    }
    if cases.is_empty() {
        let plugin = &manifest.name;
        return Err(Exit::bad_input(format!("{name}: no resource that plugin {plugin} serves")));
    }
    let expected_at = expected.first().map(|first| start_of(&text, line_of(&first.place)));
    for one in expected {
        let place = one.place.clone();
        let of = cases.iter_mut().find(|case| names(&one.resource, &case.primary.value));
        match of {
            Some(case) if case.expected.is_none() => case.expected = Some(one),
            Some(_) => {
                return Err(Exit::bad_input(format!("{place}: a second outcome of the same resource")));
            }
            None => {
                return Err(Exit::bad_input(format!(
                    "{place}: resource: no such resource in this file: apiVersion, kind, name and namespace of one \
                     would be right"
                )));
            }
        }
    }
    Ok(CaseFile { path: path.to_owned(), text, cases, objects, expected_at })
}

fn read_expected(document: Document) -> Result<Expected, Exit> {
    let Document { mut value, place } = document;
    let unknown = value.as_object().and_then(|all| all.keys().find(|key| !FIELDS.contains(&key.as_str())));
    if let Some(field) = unknown {
        let right = FIELDS.join(", ");
        return Err(Exit::bad_input(format!("{place}: {field}: is no field of an outcome: {right} are")));
    }
    if !value["actions"].is_array() {
        return Err(Exit::bad_input(format!(
            "{place}: actions: a list would be right, `[]` if there are none"
        )));
    }
    let now = match value["now"].take() {
        Value::Null => None,
        Value::String(text) if text.parse::<Timestamp>().is_ok() => Some(text),
        other => {
            return Err(Exit::bad_input(format!("{place}: now: {other}: a time as {NOW} would be right")));
        }
    };
    let config = match value["config"].take() {
        Value::Null => None,
        Value::Object(fields) => Some(Value::Object(fields)),
        other => return Err(Exit::bad_input(format!("{place}: config: {other}: a mapping would be right"))),
    };
    let resource = value["resource"].take();
    if let Some(fields) = value.as_object_mut() {
        for field in ["resource", "now", "config"] {
            fields.remove(field);
        }
    }
    Ok(Expected { place, outcome: value, now, config, resource })
}

/// A namespace that one of them leaves out is the default one of the other.
fn names(resource: &Value, object: &Value) -> bool {
    let namespace = |value: &Value| value.as_str().map(str::to_owned);
    let (said, own) = (namespace(&resource["namespace"]), namespace(&object["metadata"]["namespace"]));
    resource["apiVersion"] == object["apiVersion"]
        && resource["kind"] == object["kind"]
        && resource["name"] == object["metadata"]["name"]
        && (said == own || own.is_none() && said.as_deref().is_none_or(|said| said == scene::NAMESPACE))
}

fn line_of(place: &str) -> usize {
    place.rsplit(':').next().and_then(|line| line.parse().ok()).unwrap_or(1)
}

/// Where the document that has its first node in this line begins: behind the last line before it that belongs to
/// another one, so that comments between the two go with the outcome.
fn start_of(text: &str, line: usize) -> usize {
    let (mut at, mut start) = (0, 0);
    for read in text.split_inclusive('\n').take(line) {
        if read.starts_with("---") {
            start = at;
        }
        at += read.len();
    }
    start
}

impl CaseFile {
    /// The file with these outcomes in place of those that it has.
    pub(super) fn with_outcomes(&self, outcomes: &[Value]) -> Result<String, Exit> {
        let mut text = self.text[..self.expected_at.unwrap_or(self.text.len())].to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for outcome in outcomes {
            text.push_str(&output::document(outcome)?);
        }
        Ok(text)
    }

    /// Whether the file has this text already.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_begins_with_its_separator() {
        let text = "kind: A\n---\n# note\nkind: B\n---\n# recorded\nresource: {}\nactions: []\n";
        assert_eq!(&text[start_of(text, 7)..], "---\n# recorded\nresource: {}\nactions: []\n");
        assert_eq!(&text[start_of(text, 5)..], "---\n# recorded\nresource: {}\nactions: []\n");
    }
}
