//! What plugin authors do: `cargo component build`, with and without `--target`, makes what the host serves; plain
//! `cargo build` makes what it refuses by name.

use std::{
    env,
    path::{Path, PathBuf},
    process::Output,
};

use pilothouse_harness::{Host, HostOptions, workspace};
use serde_json::json;

use crate::{
    stamped::{put, shows},
    support::{GREETING, World, pilothouse, plugin, plugin_directory, run, try_run},
};

/// Where the Makefile installs it; `make test` says where that is.
pub(crate) fn cargo_component() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).unwrap();
    let installed = || cache().join("pilothouse/cargo-component-0.21.1/bin/cargo-component");
    let path = set("CARGO_COMPONENT").unwrap_or_else(installed);
    assert!(path.is_file(), "no cargo-component at {}: `make test` installs it", path.display());
    path
}

/// A target directory of its own, so that this test waits for no other build and undoes none.
fn target() -> PathBuf {
    workspace::target_directory().join("authors")
}

/// Runs cargo, or a tool that runs it, for the plugin `config-map`.
async fn build(program: &Path, arguments: &[&str]) -> Output {
    let manifest = workspace::root().join("plugins/config-map/Cargo.toml");
    let target = target();
    let common = ["--manifest-path", manifest.to_str().unwrap(), "--target-dir", target.to_str().unwrap()];
    try_run(program, [arguments, &common].concat()).await
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn built(target: &str) -> PathBuf {
    self::target().join(target).join("release/config_map.wasm")
}

/// The host serves this component, and nothing but its world differs.
async fn is_served(prefix: &str, component: &Path) {
    let world = World::granted(prefix, &[plugin("config-map")]).await;
    let plugins = plugin_directory(&[component.to_owned()]);
    let host = HostOptions { plugins: vec![plugins.path().to_owned()], ..world.options() };
    let _host = Host::start(host).await.unwrap();
    put(&world, GREETING, "hello", json!({"text": prefix})).await;
    shows(&world, "hello", &[("text", prefix)]).await;
}

/// One test, as cargo would make three wait for one another.
#[tokio::test(flavor = "multi_thread")]
async fn what_cargo_component_builds_is_served_and_what_cargo_builds_is_refused() {
    const UNKNOWN: &str = "wasm32-unknown-unknown";
    let cargo = PathBuf::from(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    succeeded(&build(&cargo, &["build", "--release", "--target", UNKNOWN]).await);
    let inspected = try_run(&pilothouse(), ["inspect", built(UNKNOWN).to_str().unwrap()]).await;
    let stderr = String::from_utf8_lossy(&inspected.stderr);
    assert_eq!(inspected.status.code(), Some(2), "{stderr}");
    let words = "is a core module, not a component: build it with `cargo component build --release --target";
    assert!(stderr.contains(words), "{stderr}");

    succeeded(&build(&cargo_component(), &["component", "build", "--release", "--target", UNKNOWN]).await);
    let imports = imports(&built(UNKNOWN)).await;
    assert!(imports.iter().all(|import| import.starts_with("pilothouse:operator/")), "{imports:?}");
    is_served("author", &built(UNKNOWN)).await;

    succeeded(&build(&cargo_component(), &["component", "build", "--release"]).await);
    let imports = self::imports(&built("wasm32-wasip1")).await;
    assert!(imports.iter().any(|import| import.starts_with("wasi:")), "{imports:?}");
    is_served("author-wasi", &built("wasm32-wasip1")).await;
}

async fn imports(component: &Path) -> Vec<String> {
    let printed = run(&pilothouse(), ["inspect", "-o", "json", component.to_str().unwrap()]).await;
    let inspected: serde_json::Value = serde_json::from_str(&printed).unwrap();
    serde_json::from_value(inspected["imports"].clone())
        .unwrap_or_else(|error| panic!("{error}: {inspected}"))
}
