//! The programs that tests call, and the plugins that they give to the host.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use pilothouse_harness::workspace;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command};

/// A plugin that `make plugins` has built, or `make plugins-LANGUAGE`.
///
/// # Panics
/// If none has.
pub fn plugin(name: &str) -> PathBuf {
    let built = ["plugins", "languages"]
        .map(|directory| workspace::target_directory().join(directory).join(name).with_extension("wasm"));
    built.iter().find(|path| path.is_file()).cloned().unwrap_or_else(|| {
        panic!("no plugin at {built:?}: run `make plugins plugins-python plugins-javascript plugins-go`")
    })
}

/// A new directory with these plugins and the settings that lie beside them, for `--plugins`.
pub fn plugin_directory(plugins: &[PathBuf]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for plugin in plugins {
        let settings = plugin.with_extension("yaml");
        for file in [plugin, &settings].into_iter().filter(|file| *file == plugin || file.is_file()) {
            std::fs::copy(file, directory.path().join(file.file_name().unwrap())).unwrap();
        }
    }
    directory
}

/// The command `pilothouse`, as [`Host`](pilothouse_harness::Host) would run it.
pub fn pilothouse() -> PathBuf {
    std::env::var_os("PILOTHOUSE_BIN").map_or_else(|| workspace::binary("pilothouse"), PathBuf::from)
}

/// Runs a program with this standard input and returns all of its output. It ends with the test.
pub async fn try_run_with<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        // Compiled code of tests stays out of the user's cache.
        .env("XDG_CACHE_HOME", workspace::target_directory().join("cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut stdin = child.stdin.take().unwrap();
    let write = async move {
        // A program that does not read its input ends before all of it is written.
        let _ = stdin.write_all(input).await;
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    output.unwrap()
}

/// Runs a program without input.
pub async fn try_run<A: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = A>) -> Output {
    try_run_with(program, arguments, &[]).await
}

/// Runs a program that succeeds and returns its standard output.
///
/// # Panics
/// If it does not.
pub async fn run<A: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = A>) -> String {
    succeeded(&try_run(program, arguments).await)
}

pub(crate) fn succeeded(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}
