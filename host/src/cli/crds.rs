//! `pilothouse crds`: the CustomResourceDefinitions that plugins bring along, for `kubectl apply`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::cli::exit::{EXIT_CODES, Exit};
use crate::cli::output::{self, Format};
use crate::cli::plugin;

/// Print the CustomResourceDefinitions of plugins
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CrdsArgs {
    /// Components: NAME.wasm, gzip'd or zstd'd or not
    #[arg(required = true)]
    plugin: Vec<PathBuf>,
}

pub(crate) fn main(args: &CrdsArgs) -> Result<(), Exit> {
    let plugins = plugin::load_all(&args.plugin)?;
    // By name, so that the order of the arguments does not change a committed file.
    let mut crds: BTreeMap<&str, (&Value, &PathBuf)> = BTreeMap::new();
    for (plugin, path) in plugins.iter().zip(&args.plugin) {
        for crd in &plugin.manifest().crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default();
            if let Some((other, from)) = crds.insert(name, (crd, path))
                && other != crd
            {
                return Err(Exit::bad_input(format!(
                    "{} and {} define {name} differently: one plugin should bring it along",
                    from.display(),
                    path.display()
                )));
            }
        }
    }
    let crds: Vec<Value> = crds.into_values().map(|(crd, _)| crd.clone()).collect();
    output::print(&crds, Format::Yaml)
}
