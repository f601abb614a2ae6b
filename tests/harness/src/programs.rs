//! Which etcd and Kubernetes programs a control plane is made of.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A program and the arguments that come before the component's own flags.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) path: PathBuf,
    pub(crate) leading: Vec<String>,
}

/// Finds the program of each component.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    ours: Option<PathBuf>,
    assets: Option<PathBuf>,
}

impl Programs {
    /// Takes etcd and the API server from `KUBEBUILDER_ASSETS` (the layout of envtest) if that is set and has
    /// them, everything else from this project's own build, which this makes if there is none yet (minutes).
    ///
    /// envtest has no controller-manager: without our build, a control plane from it alone would not even give
    /// a namespace its ServiceAccount, so ours is built whenever a component is missing there.
    pub(crate) fn locate(components: &[&str]) -> Result<Self> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()).map(PathBuf::from);
        let missing = |directory: &Path| {
            components.iter().copied().filter(|name| !directory.join(name).is_file()).collect::<Vec<_>>()
        };
        let Some(assets) = assets else { return Ok(Self { ours: Some(build()?), assets: None }) };
        let missing = missing(&assets);
        if missing.is_empty() {
            return Ok(Self { ours: None, assets: Some(assets) });
        }
        eprintln!("pilothouse-harness: KUBEBUILDER_ASSETS has no {}; taking our own", missing.join(", "));
        Ok(Self { ours: Some(build()?), assets: Some(assets) })
    }

    /// How to run this component.
    pub(crate) fn launch(&self, component: &str) -> Result<Launch> {
        let asset = self.assets.as_ref().map(|directory| directory.join(component));
        match (asset.filter(|path| path.is_file()), &self.ours) {
            (Some(path), _) => Ok(Launch { path, leading: Vec::new() }),
            (None, Some(path)) => Ok(Launch { path: path.clone(), leading: vec![component.to_owned()] }),
            (None, None) => bail!("no program for {component}"),
        }
    }
}

/// Runs `tests/cluster/build.sh`, which does nothing but print the path if the build is already there.
fn build() -> Result<PathBuf> {
    let script = workspace::root().join("tests/cluster/build.sh");
    let output = Command::new(&script)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !output.status.success() {
        bail!("{} failed ({})", script.display(), output.status);
    }
    let stdout = String::from_utf8(output.stdout).context("the path of the control plane is not UTF-8")?;
    let path = stdout.lines().last().context("the build printed no path")?;
    Ok(PathBuf::from(path))
}
