//! Puts into the program what `pilothouse new` writes: the templates of projects, and the SDKs with the contract, which no
//! registry has. As a list of paths and contents, `embedded.rs`, in the order of the paths.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folders and files of the workspace, and where they go in the list.
const SOURCES: [(&str, &str); 15] = [
    ("host/templates", "templates"),
    ("wit", "sdk/wit"),
    ("guest-sdk/src", "sdk/rust/src"),
    // `cargo fmt --all` of a project reaches the SDK in it.
    ("rustfmt.toml", "sdk/rust/rustfmt.toml"),
    ("guest-sdk/python/README.md", "sdk/python/README.md"),
    ("guest-sdk/python/pyproject.toml", "sdk/python/pyproject.toml"),
    ("guest-sdk/python/requirements.txt", "sdk/python/requirements.txt"),
    ("guest-sdk/python/src", "sdk/python/src"),
    ("guest-sdk/javascript/README.md", "sdk/javascript/README.md"),
    ("guest-sdk/javascript/build.mjs", "sdk/javascript/build.mjs"),
    ("guest-sdk/javascript/package-lock.json", "sdk/javascript/package-lock.json"),
    ("guest-sdk/javascript/package.json", "sdk/javascript/package.json"),
    ("guest-sdk/javascript/src", "sdk/javascript/src"),
    ("guest-sdk/javascript/types", "sdk/javascript/types"),
    ("guest-sdk/javascript/wit", "sdk/javascript/wit"),
];

fn main() {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = host.parent().expect("host/ lies in the workspace");
    let mut files = Vec::new();
    for (from, to) in SOURCES {
        let from = root.join(from);
        println!("cargo:rerun-if-changed={}", from.display());
        if from.is_dir() {
            collect(&from, to, &mut files);
        } else {
            files.push((to.to_owned(), from));
        }
    }
    files.sort();

    let workspace = read(&root.join("Cargo.toml"));
    let manifest = out.join("sdk-cargo.toml");
    fs::write(&manifest, standalone(&read(&root.join("guest-sdk/Cargo.toml")), &workspace))
        .expect("OUT_DIR is ours");
    files.push(("sdk/rust/Cargo.toml".to_owned(), manifest));

    let mut text = String::from("pub(super) const FILES: &[(&str, &str)] = &[\n");
    for (to, from) in &files {
        writeln!(text, "    ({to:?}, include_str!({:?})),", from.display().to_string()).expect("a String");
    }
    text.push_str("];\npub(super) const DEPENDENCIES: &[(&str, &str)] = &[\n");
    for name in ["schemars", "serde"] {
        writeln!(text, "    ({name:?}, {:?}),", dependency(name, &workspace)).expect("a String");
    }
    text.push_str("];\n");
    fs::write(out.join("embedded.rs"), text).expect("OUT_DIR is ours");
}

fn collect(folder: &Path, to: &str, files: &mut Vec<(String, PathBuf)>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("our files have plain names");
        let to = format!("{to}/{name}");
        // What Python keeps beside the files that it ran.
        if name == "__pycache__" {
            continue;
        }
        if path.is_dir() {
            collect(&path, &to, files);
        } else {
            files.push((to, path));
        }
    }
}

fn read(path: &Path) -> String {
    println!("cargo:rerun-if-changed={}", path.display());
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The manifest of a crate outside the workspace: what it inherits is written out, what only its own tests need is left out.
fn standalone(manifest: &str, workspace: &str) -> String {
    let mut text = String::new();
    let mut keep = true;
    for line in manifest.lines() {
        if line.starts_with('[') {
            keep = matches!(line, "[package]" | "[dependencies]");
        }
        if !keep {
            continue;
        }
        let own = match line.strip_suffix(".workspace = true") {
            Some(name) => dependency(name, workspace),
            None => line.to_owned(),
        };
        text.push_str(&own);
        text.push('\n');
    }
    text
}

/// The line of the workspace's manifest that says this.
fn dependency(name: &str, workspace: &str) -> String {
    let says = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ="));
    let line = workspace.lines().find(says);
    line.unwrap_or_else(|| panic!("Cargo.toml says no `{name}`")).to_owned()
}
