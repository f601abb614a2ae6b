//! Commands that the author's guide and the projects of `pilothouse new` tell people to type are there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The guide, and what is written into projects.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["docs", "host/templates/rust", "host/templates/python", "host/templates/javascript"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let named =
            |path: &PathBuf| path.ends_with("Makefile") || path.extension().is_some_and(|end| end == "md");
        pages.extend(entries.filter(named));
    }
    pages.push(root().join("README.md"));
    pages
}

fn help(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).args([command, "--help"]).output().unwrap();
    assert!(output.status.success(), "there is no `pilothouse {command}`");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_and_flag_of_pilothouse_is_there() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // Indented or in a Makefile's recipe; within a sentence a command need not be whole.
        for line in text.lines().filter(|line| line.starts_with("    ") || line.starts_with('\t')) {
            let line = line.split(" #").next().unwrap().replace("$(PILOTHOUSE)", "pilothouse");
            for typed in line.split('|').map(str::trim) {
                let mut words = typed.split_whitespace();
                if words.next() != Some("pilothouse") {
                    continue;
                }
                let command = words.next().unwrap();
                let help = helps.entry(command.to_owned()).or_insert_with(|| help(command));
                for flag in words.filter(|word| word.starts_with('-') && word.len() > 1) {
                    let there = help.split([' ', ',', '\n']).any(|word| word == flag);
                    assert!(there, "{}: `pilothouse {command}` has no {flag}", page.display());
                }
                count += 1;
            }
        }
    }
    assert!(count >= 20, "{count} commands");
}

#[test]
fn every_goal_of_make_is_there() {
    let makefiles: Vec<String> = ["Makefile", "host/templates/rust/Makefile"]
        .iter()
        .map(|path| fs::read_to_string(root().join(path)).unwrap())
        .collect();
    for page in pages().into_iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let typed = text.lines().filter_map(|line| line.strip_prefix("    make "));
        for goal in typed.flat_map(|rest| rest.split('#').next().unwrap().split_whitespace()) {
            let there = makefiles.iter().any(|makefile| makefile.contains(&format!("\n{goal}:")));
            assert!(there, "{}: make {goal}", page.display());
        }
    }
}
