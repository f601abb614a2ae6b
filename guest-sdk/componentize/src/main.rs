//! Wraps core modules, as `cargo build --target wasm32-unknown-unknown` leaves them, into components: what
//! `cargo component build` does, without its dependencies, as the last step of `make plugins`.
//!
//! The world comes from the `component-type` section that the SDK put into the module, so nothing needs to be said
//! here but where the files are. Modules of Go have no such section and import WASI 0.1: [`wasi`].

mod wasi;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use wit_component::ComponentEncoder;

/// Wrap core Wasm modules into components.
#[derive(Parser)]
struct Arguments {
    /// Where the components go, as NAME.wasm, with `-` where the module's file has `_`.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Core modules, built for wasm32-unknown-unknown, or for WASI 0.1 as a library.
    #[arg(required = true, value_name = "MODULE.wasm")]
    modules: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("componentize: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let out = &arguments.out;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for path in &arguments.modules {
        let module = fs::read(path).with_context(|| path.display().to_string())?;
        let component = wrap(&module).with_context(|| path.display().to_string())?;
        let name = component_name(path).with_context(|| format!("{}: has no file name", path.display()))?;
        let changed = replace(&out.join(&name), &component)?;
        let note = if changed { "" } else { " (unchanged)" };
        eprintln!("{}: {} KiB{note}", out.join(name).display(), component.len().div_ceil(1024));
    }
    Ok(())
}

fn wrap(module: &[u8]) -> Result<Vec<u8>> {
    let contents = wasi::Contents::of(module)?;
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true);
    if contents.imports_wasi() {
        let adapter = wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
        encoder.module(&contents.complete(module)?)?.adapter(wasi::WASI, adapter)?;
    } else {
        encoder.module(module)?;
    }
    encoder.encode()
}

/// Cargo writes package `pod-replica` as `pod_replica.wasm`; a plugin bears its package's name.
fn component_name(module: &Path) -> Option<String> {
    Some(module.file_stem()?.to_str()?.replace('_', "-") + ".wasm")
}

/// Leaves a file alone that is right already, as a running host would load it again. Otherwise it is replaced by
/// renaming, so that the host never reads half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    let half = path.with_extension(format!("wasm.{}.tmp", std::process::id()));
    let written = fs::write(&half, bytes).and_then(|()| fs::rename(&half, path));
    if written.is_err() {
        // The reason is reported below; a file that was never written cannot be removed either.
        let _ = fs::remove_file(&half);
    }
    written.with_context(|| path.display().to_string())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_bears_the_name_of_its_package() {
        assert_eq!(component_name(Path::new("a/pod_replica.wasm")).unwrap(), "pod-replica.wasm");
    }

    #[test]
    fn what_is_no_plugin_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not_wasm.wasm");
        fs::write(&path, "text").unwrap();
        let out = dir.path().join("out");
        let error = run(&Arguments { out: out.clone(), modules: vec![path] }).unwrap_err();
        assert!(format!("{error:#}").contains("not_wasm.wasm: "), "{error:#}");
        assert_eq!(fs::read_dir(out).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_right_already_is_left_alone_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wasm");
        assert!(replace(&path, b"one").unwrap());
        assert!(!replace(&path, b"one").unwrap());
        assert!(replace(&path, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
