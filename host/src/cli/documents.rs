//! Kubernetes objects from YAML or JSON files: several documents in a file, `List` objects, directories, stdin. Errors
//! name file, line and column.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::cli::exit::Exit;

/// Largest input file, bytes. An API server takes requests of at most 3 MiB; a file may hold many.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Nodes in one file: as many as fit into it, so that only its size counts.
const NODES_MAX: usize = 64 << 20;

/// One object and where it stood.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// A mapping.
    pub(crate) value: Value,
    /// `file:line`
    pub(crate) place: String,
}

/// Reads the objects of files and directories, in the order given. `-` is stdin. Of a directory the files `*.yaml`,
/// `*.yml` and `*.json` are read, by name, without those of directories below.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Document>, Exit> {
    let mut documents = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let text = read_text(std::io::stdin().lock(), "stdin")?;
            documents.extend(parse(&text, "stdin")?);
        } else if path.is_dir() {
            for file in files(path)? {
                documents.extend(read_file(&file)?);
            }
        } else {
            documents.extend(read_file(path)?);
        }
    }
    Ok(documents)
}

fn read_file(path: &Path) -> Result<Vec<Document>, Exit> {
    parse(&text_of(path)?, &path.display().to_string())
}

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Result<String, Exit> {
    let name = path.display().to_string();
    let file = fs::File::open(path).map_err(|error| Exit::bad_input(format!("{name}: {error}")))?;
    read_text(file, &name)
}

fn read_text(from: impl Read, name: &str) -> Result<String, Exit> {
    let mut text = String::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| Exit::bad_input(format!("{name}: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Exit::bad_input(format!("{name}: has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The files of a directory that are read, by name.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>, Exit> {
    let error = |error: std::io::Error| Exit::bad_input(format!("{}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the documents of a text. Empty ones are skipped, lists are taken apart.
pub(crate) fn parse(text: &str, name: &str) -> Result<Vec<Document>, Exit> {
    let options = serde_saphyr::options! {
        // As kubectl reads `defaultMode: 0644`.
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_events: NODES_MAX,
        },
    };
    let values: Vec<Spanned<Value>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Exit::bad_input(yaml_error(name, &error)))?;
    let mut documents = Vec::new();
    for Spanned { value, referenced, .. } in values {
        let place = format!("{name}:{}", referenced.line());
        if !value.is_object() {
            return Err(Exit::bad_input(format!(
                "{place}: is no Kubernetes object: a mapping would be right"
            )));
        }
        take_apart(value, place, &mut documents);
    }
    Ok(documents)
}

/// `kubectl get -o yaml` writes a `List`.
fn take_apart(mut value: Value, place: String, documents: &mut Vec<Document>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => {
            for (at, item) in items.into_iter().enumerate() {
                take_apart(item, format!("{place}: items[{at}]"), documents);
            }
        }
        Some(items) => {
            value["items"] = items;
            documents.push(Document { value, place });
        }
        None => documents.push(Document { value, place }),
    }
}

/// `file:line:column: what is wrong`
fn yaml_error(name: &str, error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    match error.location() {
        Some(location) if location.line() > 0 => {
            // The text ends with the position in words.
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
            format!("{name}:{}:{}: {text}", location.line(), location.column())
        }
        _ => format!("{name}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> String {
        parse(text, "web.yaml").unwrap_err().message
    }

    #[test]
    fn several_documents_and_lists_are_taken_apart() {
        let text =
            "---\n# nothing\n---\nkind: A\n---\nkind: PodList\nitems:\n- kind: B\n- kind: C\n---\nitems: 3\n";
        let documents = parse(text, "web.yaml").unwrap();
        let found: Vec<(String, &Value)> = documents.iter().map(|d| (d.place.clone(), &d.value)).collect();
        assert_eq!(
            found,
            [
                ("web.yaml:4".to_owned(), &json!({"kind": "A"})),
                ("web.yaml:6: items[0]".to_owned(), &json!({"kind": "B"})),
                ("web.yaml:6: items[1]".to_owned(), &json!({"kind": "C"})),
                ("web.yaml:11".to_owned(), &json!({"items": 3})),
            ]
        );
        assert_eq!(parse(r#"{"kind": "A", "n": [1, 2]}"#, "a.json").unwrap()[0].value["n"], json!([1, 2]));
        assert!(parse("", "web.yaml").unwrap().is_empty());
    }

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        let text = "a: yes\nb: off\nc: 0644\nd: \"yes\"\ne: 1e3\nf: 2001-01-01\ng: 16\nh: !!str 16\ni: ~\n";
        let expected = json!({"a": true, "b": false, "c": 420, "d": "yes", "e": 1000.0, "f": "2001-01-01", "g": 16,
                              "h": "16", "i": null});
        assert_eq!(parse(text, "web.yaml").unwrap()[0].value, expected);
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let broken = error("kind: A\nspec:\n  a: [1, 2\n  b: 3\n");
        assert!(
            broken.starts_with("web.yaml:")
                && broken.split(':').nth(1).is_some_and(|l| l.parse::<u32>().is_ok()),
            "{broken}"
        );
        assert!(error("kind: A\nkind: B\n").starts_with("web.yaml:2:1: "), "{}", error("kind: A\nkind: B\n"));
        assert_eq!(
            error("kind: A\n---\n- a\n"),
            "web.yaml:3: is no Kubernetes object: a mapping would be right"
        );
        let tab = error("a:\n\tb: 1\n");
        assert!(tab.starts_with("web.yaml:2:"), "{tab}");
    }
}
