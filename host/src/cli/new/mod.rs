//! `pilothouse new`: a project for a plugin that builds, tests and packages as it is. The program carries the SDKs and the
//! contract, since no registry has them, and writes them into the project.

mod names;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::exit::Exit;
use crate::cli::output;

use names::{Gvk, check_name};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Make a project for a plugin
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The project has a first reconciler with its tests and cases, the SDK, the contract and a README that says
what to do next. For example:
  pilothouse new sites --lang rust --kind example.com/v1alpha1/Site

Exit codes:
  0  done
  1  a file could not be written
  2  bad input: arguments, or a folder that is not empty")]
pub(crate) struct NewArgs {
    /// Name of the plugin, and of the folder
    name: String,
    /// Language to write it in
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,
    /// The kind that it reconciles
    #[arg(long, value_name = "GROUP/VERSION/KIND")]
    kind: String,
    /// Plural name of the kind [default: by the rules of English]
    #[arg(long, value_name = "NAME")]
    plural: Option<String>,
    /// Where to make it: a new or an empty folder [default: NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What plugins can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    Rust,
    Python,
    #[value(name = "javascript")]
    JavaScript,
}

impl Language {
    /// The folder of its templates, and those of the list that belong into each project, with where they go.
    fn folders(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Rust => &[("templates/rust/", ""), ("sdk/rust/", "sdk/rust/"), ("sdk/wit/", "sdk/wit/")],
            Self::Python => &[("templates/python/", ""), ("sdk/python/", "sdk/python/")],
            Self::JavaScript => &[("templates/javascript/", ""), ("sdk/javascript/", "sdk/javascript/")],
        }
    }
}

pub(crate) fn main(args: &NewArgs) -> Result<(), Exit> {
    check_name(&args.name)?;
    let gvk = Gvk::parse(&args.kind, args.plural.as_deref())?;
    let folder = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let files = files(args.lang, &args.name, &gvk);
    check_folder(&folder)?;
    for (path, content) in &files {
        write(&folder.join(path), content)?;
    }
    output::write(&format!(
        "{}: {} files. Next:\n  cd {}\n  make package\n",
        args.name,
        files.len(),
        folder.display()
    ))
}

/// Paths and contents of the project's files.
fn files(language: Language, name: &str, gvk: &Gvk) -> Vec<(String, String)> {
    let mut words = vec![
        ("name".to_owned(), name.to_owned()),
        ("crate".to_owned(), name.replace('-', "_")),
        ("group".to_owned(), gvk.group.clone()),
        ("version".to_owned(), gvk.version.clone()),
        ("kind".to_owned(), gvk.kind.clone()),
        ("plural".to_owned(), gvk.plural.clone()),
        ("singular".to_owned(), gvk.singular()),
        ("primary".to_owned(), primary(gvk)),
        ("pilothouse".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (dependency, line) in embedded::DEPENDENCIES {
        words.push((format!("cargo.{dependency}"), (*line).to_owned()));
    }
    let mut files = Vec::new();
    for (from, to) in language.folders() {
        for (path, content) in embedded::FILES {
            let Some(below) = path.strip_prefix(from) else { continue };
            let content = if from.starts_with("templates/") {
                filled_in(content, &words)
            } else {
                (*content).to_owned()
            };
            files.push((format!("{to}{}", file_name(below)), content));
        }
    }
    files
}

/// The constant of a Rust reconciler, broken where rustfmt breaks it: it is the one line of the templates that names make
/// too long.
fn primary(gvk: &Gvk) -> String {
    /// `fn_call_width` and `max_width`, as rustfmt has them.
    const CALL_WIDTH: usize = 60;
    const WIDTH: usize = 100;
    let Gvk { group, version, kind, plural } = gvk;
    let arguments = [group, version, kind, plural].map(|name| format!("{name:?}"));
    let in_line = arguments.join(", ");
    let (head, call) = ("const PRIMARY: Resource =", "Resource::namespaced");
    let line = format!("{head} {call}({in_line});");
    if in_line.len() > CALL_WIDTH {
        format!("{head} {call}(\n        {},\n    );", arguments.join(",\n        "))
    } else if "    ".len() + line.len() > WIDTH {
        format!("{head}\n        {call}({in_line});")
    } else {
        line
    }
}

/// Names that would mean something to this repository's own tools are other ones in its templates.
fn file_name(template: &str) -> String {
    match template {
        "gitignore" => ".gitignore".to_owned(),
        other => other.strip_suffix(".in").unwrap_or(other).to_owned(),
    }
}

fn filled_in(template: &str, words: &[(String, String)]) -> String {
    let mut text = template.to_owned();
    for (word, value) in words {
        text = text.replace(&format!("{{{{{word}}}}}"), value);
    }
    text
}

fn check_folder(folder: &Path) -> Result<(), Exit> {
    let name = folder.display();
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Exit::bad_input(format!("{name}: is not empty: a new or an empty folder would be right")))
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(Exit::bad_input(format!("{name}: {error}: a new or an empty folder would be right")))
        }
    }
}

fn write(path: &Path, content: &str) -> Result<(), Exit> {
    let error = |error: std::io::Error| Exit::failed(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(error)?;
    }
    fs::write(path, content).map_err(error)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn no_place_of_a_template_is_left_empty() {
        let gvk = Gvk::parse("example.com/v1alpha1/Site", None).unwrap();
        for language in Language::value_variants() {
            let files = files(*language, "web-sites", &gvk);
            for (path, content) in &files {
                let is_template = !path.starts_with("sdk/");
                assert!(!is_template || !content.contains("{{"), "{path}: {content}");
            }
            for wanted in [
                "README.md",
                "Makefile",
                ".gitignore",
                "cases/new.yaml",
                "deploy/crd.yaml",
                "samples/hello.yaml",
            ] {
                assert!(files.iter().any(|(path, _)| path == wanted), "{language:?} lacks {wanted}");
            }
        }
    }

    /// With rustfmt's own settings, whatever the names are.
    #[test]
    fn a_rust_project_is_formatted() {
        for (name, kind) in [
            ("sites", "example.com/v1alpha1/Site"),
            ("apps-9", "data.example.com/v1/Database"),
            ("zones", "platform.infrastructure.example.com/v1beta1/PersistentApplicationEnvironment"),
        ] {
            let gvk = Gvk::parse(kind, None).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let mut sources = Vec::new();
            for (path, content) in files(Language::Rust, name, &gvk) {
                let path = folder.path().join(path);
                write(&path, &content).unwrap();
                if path.extension().is_some_and(|extension| extension == "rs") {
                    sources.push(path);
                }
            }
            let rustfmt =
                Command::new("rustfmt").args(["--edition", "2024", "--check"]).args(&sources).output();
            let rustfmt = rustfmt.unwrap();
            assert!(rustfmt.status.success(), "{kind}:\n{}", String::from_utf8_lossy(&rustfmt.stdout));
        }
    }
}
