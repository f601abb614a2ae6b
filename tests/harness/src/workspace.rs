//! Where this workspace keeps its files and the programs that it builds.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The workspace's root directory, as it was when this crate was compiled.
pub fn root() -> &'static Path {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.ancestors().nth(2).unwrap_or(harness)
}

/// Cargo's target directory: that of the running test, else `CARGO_TARGET_DIR`, else `target` in the workspace.
pub fn target_directory() -> PathBuf {
    // …/target/release/deps/test-0123456789abcdef or …/target/release/program
    let running = env::current_exe().ok().and_then(|path| {
        let profile = path.ancestors().skip(1).take(2).find(|directory| directory.ends_with("release"))?;
        profile.parent().map(Path::to_owned)
    });
    let set = || env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    running.or_else(set).unwrap_or_else(|| root().join("target"))
}

/// The path of a program of this workspace; it may not have been built yet.
pub fn binary(name: &str) -> PathBuf {
    target_directory().join("release").join(name)
}

/// Builds a program of this workspace. Tests of other packages depend on the harness's library only, so nothing
/// else makes Cargo build its binary for them.
pub(crate) fn build(package: &str) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Cargo sets these for the tests that it runs. Build scripts look at them, and would have dependencies compiled anew.
    let of_test = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| of_test(name)) {
        command.env_remove(name);
    }
    let status = command
        .args(["build", "--release", "--package", package, "--bins"])
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target_directory())
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("`cargo build --release --package {package} --bins` failed ({status})");
    }
    Ok(())
}
