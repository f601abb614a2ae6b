//! The commands as scripts use them: arguments and files in, text and exit code out. No cluster is needed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod check;
mod plugins;
mod render;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use pilothouse_guests::Target;
use tempfile::TempDir;

/// What a command left.
struct Done {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Done {
    /// Ended with this code, and said this on stderr.
    #[track_caller]
    fn failed(&self, code: i32, part: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.contains(part), "{:?} is not in: {}", part, self.stderr);
    }

    /// The input was refused: exit code 2, nothing on stdout, and one line on stderr that begins with this.
    #[track_caller]
    fn refused(&self, begin: &str) {
        self.failed(2, begin);
        assert!(self.stderr.starts_with(&format!("error: {begin}")), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert_eq!(self.stdout, "");
    }

    /// Ended well; the documents that it printed.
    #[track_caller]
    fn documents(&self) -> Vec<serde_json::Value> {
        assert_eq!(self.code, 0, "{}", self.stderr);
        parse(&self.stdout)
    }
}

fn parse(yaml: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

/// Runs `pilothouse` with these arguments.
fn pilothouse(arguments: &[&str]) -> Done {
    pilothouse_reading(arguments, "")
}

/// Runs `pilothouse` with these arguments and this text on stdin, without the environment of the test.
fn pilothouse_reading(arguments: &[&str], stdin: &str) -> Done {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Not read by commands that refuse their arguments.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Done {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The example plugin `config-map`, as bytes.
fn greeter() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| pilothouse_guests::component("config-map", Target::Unknown))
}

/// A directory with files, gone at the end of the test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = Path::new(self.0.path()).join(name);
        path.to_str().unwrap().to_owned()
    }
}
