//! The PLUGIN argument of the commands: a file that holds a component, as it is, gzip'd or zstd'd.

use std::path::Path;
use std::sync::Arc;

use pilothouse_fetch::{Artifact, load_file};
use pilothouse_model::manifest::Manifest;
use pilothouse_sandbox::{Compiler, Prepared, Sandbox, SandboxOptions};

use crate::cli::exit::Exit;
use crate::run;

/// A plugin that was loaded from a file.
pub(crate) struct Plugin {
    /// Its bytes and settings.
    pub(crate) artifact: Artifact,
    /// It can be called.
    pub(crate) prepared: Arc<Prepared>,
}

impl Plugin {
    pub(crate) fn manifest(&self) -> &Manifest {
        self.prepared.manifest()
    }
}

/// A sandbox for one's own components: compiled in this process, and kept where `run` keeps them, as a component of
/// Python or JavaScript takes ten seconds to compile.
pub(crate) fn sandbox() -> Result<Sandbox, Exit> {
    let without_cache = || SandboxOptions { permits: 1, ..SandboxOptions::new(Compiler::InProcess) };
    let cached = SandboxOptions { cache_dir: run::cache_directory(), ..without_cache() };
    // What is wrong with the directory is for `run` to say; a command that only looks can do without.
    Ok(Sandbox::new(cached).or_else(|_| Sandbox::new(without_cache()))?)
}

/// Loads a plugin with the settings beside it.
pub(crate) fn load(sandbox: &Sandbox, path: &Path) -> Result<Plugin, Exit> {
    let artifact = load_file(path)?;
    let prepared = sandbox
        .prepare(&artifact.wasm, &artifact.settings.limits)
        .map_err(|error| Exit::from(error).about(path.display()))?;
    Ok(Plugin { artifact, prepared: Arc::new(prepared) })
}

/// Loads several plugins.
pub(crate) fn load_all(paths: &[impl AsRef<Path>]) -> Result<Vec<Plugin>, Exit> {
    let sandbox = sandbox()?;
    paths.iter().map(|path| load(&sandbox, path.as_ref())).collect()
}
