//! The pages of `docs/` say what is there: what is generated is as it would be generated now, listings are the files that they
//! show, links lead somewhere.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The pages and their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let folder = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = folder.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn generated_pages_are_what_contract_and_code_say() {
    for (name, text) in pilothouse_docs::pages(root()) {
        let path = root().join("docs").join(name);
        let page = fs::read_to_string(&path).unwrap_or_default();
        let line = page.lines().zip(text.lines()).position(|(is, should)| is != should);
        assert!(page == text, "docs/{name} is out of date, from line {line:?} on: run `make generate`");
    }
}

#[test]
fn listings_are_the_files_that_they_show() {
    let mut count = 0;
    for (path, text) in pages() {
        for part in text.split("<!-- ").skip(1) {
            let Some((file, rest)) = part.split_once("; a test compares -->\n```") else { continue };
            let shown = rest.split_once('\n').unwrap().1.split("\n```").next().unwrap();
            let is = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(shown, is.trim_end(), "{}: not {file}", path.display());
            count += 1;
        }
    }
    assert!(count >= 4, "{count} listings");
}

#[test]
fn links_lead_somewhere() {
    for (path, text) in pages() {
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap();
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.starts_with("https://") {
                continue;
            }
            let there = path.parent().unwrap().join(target);
            assert!(there.exists(), "{}: {link} leads nowhere", path.display());
        }
    }
}

/// Listings beside another system's are parts of real plugins: each line of ours is in one.
#[test]
fn parts_of_our_plugins_are_in_them() {
    for (page, begins, source) in [
        ("from-metacontroller.md", "```js\n", "plugins/service-per-pod/service-per-pod.js"),
        ("from-kubebuilder.md", "<!-- docs/site/lib.rs -->\n```rust\n", "docs/site/lib.rs"),
    ] {
        let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
        let source = fs::read_to_string(root().join(source)).unwrap();
        let shown = text.split(begins).nth(1).unwrap().split("```").next().unwrap();
        for line in shown.lines().filter(|line| !line.trim().is_empty()) {
            assert!(source.lines().any(|other| other == line), "{page}: `{line}` is not there");
        }
    }
}
