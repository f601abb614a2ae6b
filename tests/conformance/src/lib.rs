//! The conformance suite from within tests: what `pilothouse check` says of a component and its cases. The suite itself is
//! the command, so that the author of a plugin in any language has the same one.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use pilothouse_harness::workspace;

/// What the suite said.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Exit code.
    pub code: Option<i32>,
    /// The report, and what went to stderr below it.
    pub text: String,
}

impl Checked {
    /// Names of the rules that were broken.
    pub fn broken(&self) -> BTreeSet<&str> {
        let findings = self.text.lines().filter_map(|line| line.strip_prefix("  "));
        findings.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(": ").next()).collect()
    }
}

/// Runs `pilothouse check` with these arguments. `make build` makes the program.
///
/// # Panics
/// If it cannot be run.
pub fn check(component: &Path, cases: &[PathBuf], more: &[&str]) -> Checked {
    let program =
        std::env::var_os("PILOTHOUSE_BIN").map_or_else(|| workspace::binary("pilothouse"), PathBuf::from);
    let output = Command::new(&program).arg("check").arg(component).args(cases).args(more).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}: run `make build`", program.display()));
    let text = [output.stdout, output.stderr].concat();
    Checked { code: output.status.code(), text: String::from_utf8_lossy(&text).into_owned() }
}
