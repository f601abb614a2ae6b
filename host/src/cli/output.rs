//! What goes to stdout: results and nothing else, so that they can be piped. Everything for people goes to stderr.

use std::io::{self, ErrorKind, Write};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::cli::exit::Exit;

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// YAML, one document for each result.
    Yaml,
    /// JSON, one text for each result.
    Json,
}

/// Writes results to stdout.
pub(crate) fn print(results: &[Value], format: Format) -> Result<(), Exit> {
    let mut text = String::new();
    for result in results {
        match format {
            Format::Yaml => text.push_str(&document(result)?),
            Format::Json => {
                let json = serde_json::to_string_pretty(&InOrder(result));
                text.push_str(&json.map_err(|error| Exit::failed(format!("cannot write JSON: {error}")))?);
                text.push('\n');
            }
        }
    }
    write(&text)
}

/// Writes a text to stdout. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn write(text: &str) -> Result<(), Exit> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Exit::failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one line for people to stderr. If that is closed nobody listens.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A YAML document with its separator.
pub(crate) fn document(value: &Value) -> Result<String, Exit> {
    Ok(format!("---\n{}", yaml(value)?))
}

/// YAML that readers of version 1.1 (as kubectl) and 1.2 alike take for the same values.
pub(crate) fn yaml(value: &Value) -> Result<String, Exit> {
    // Long lines stay lines: folding them would make a diff of base64 or of a message unreadable.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(&InOrder(value), options)
        .map_err(|error| Exit::failed(format!("cannot write YAML: {error}")))
}

/// Keys that tell what a mapping is, in the order in which people write them; the others follow by name.
const FIRST: [&str; 7] = ["resource", "now", "apiVersion", "kind", "metadata", "name", "namespace"];

/// A value whose mappings have their keys in the order of [`FIRST`].
struct InOrder<'a>(&'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                fields.sort_by_key(|(key, _)| (rank(key), *key));
                serializer.collect_map(fields.into_iter().map(|(key, value)| (key, InOrder(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(InOrder)),
            scalar => scalar.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::documents;

    #[test]
    fn what_is_written_reads_back_the_same() {
        let texts = [
            "yes",
            "no",
            "on",
            "off",
            "y",
            "n",
            "Y",
            "N",
            "true",
            "True",
            "null",
            "~",
            "Null",
            "",
            "16",
            "1e3",
            "0x1F",
            "0o17",
            "017",
            "1_000",
            "+1",
            "-1.5",
            ".5",
            ".inf",
            "NaN",
            ".nan",
            "190:20:30",
            "2001-01-01",
            "=",
            "<<",
            "12e03",
            "0b1",
            "1.",
            "*",
            "&a",
            "!x",
            "%",
            "@",
            "`",
            "- x",
            "a: b",
            "a #b",
            "#",
            "\"",
            "'",
            "a\nb\n",
            "\n",
            " a",
            "a ",
            "a\tb",
            "\u{7}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}x",
            "---",
            "...",
            "{}",
            "[]",
            "?",
            ":",
            "a\r\nb",
            "  a\nb",
            "a\n\n",
            "ünï",
            "🚢",
        ];
        for text in texts {
            for value in [json!({"key": text}), json!({"list": [text, [text]]}), json!({ text: "value" })] {
                let yaml = yaml(&value).unwrap();
                let read = documents::parse(&yaml, "test").unwrap();
                assert_eq!(read[0].value, value, "{text:?} became {yaml:?}");
            }
        }
        let long = "word ".repeat(60);
        let values = json!({"a": {"b": [], "c": {}, "d": [[1, [2]], {"e": null}]}, "f": 1.5, "g": -3, "h": long,
                            "i": u64::MAX, "j": i64::MIN, "k": true});
        assert_eq!(documents::parse(&yaml(&values).unwrap(), "test").unwrap()[0].value, values);
    }

    #[test]
    fn objects_begin_with_what_they_are() {
        let object = json!({"data": {"b": 1, "a": 2}, "kind": "K", "apiVersion": "v1",
                            "metadata": {"labels": {}, "namespace": "shop", "name": "x"}});
        let expected = "apiVersion: v1\nkind: K\nmetadata:\n  name: x\n  namespace: shop\n  labels: {}\n\
                        data:\n  a: 2\n  b: 1\n";
        assert_eq!(yaml(&object).unwrap(), expected);
    }

    #[test]
    fn strings_that_yaml_1_1_takes_for_something_else_are_quoted() {
        for text in ["yes", "off", "y", "16", "1e3", "017", "1_000", "190:20:30", "2001-01-01", "~"] {
            let yaml = yaml(&json!({"key": text})).unwrap();
            assert!(yaml == format!("key: \"{text}\"\n") || yaml == format!("key: '{text}'\n"), "{yaml}");
        }
    }
}
