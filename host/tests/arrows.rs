//! Which crate may know which: the arrows of ARCHITECTURE.md, read from what cargo knows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Ordinary dependencies within the workspace, by package. Development dependencies may point anywhere.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let knows = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ordinary = dependencies.filter(|dependency| dependency["kind"].is_null());
        ordinary.map(|dependency| text(&dependency["name"])).filter(|name| names.contains(name)).collect()
    };
    packages.iter().map(|package| (text(&package["name"]), knows(package))).collect()
}

fn external(manifest: &str) -> BTreeSet<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
    let text = std::fs::read_to_string(&path).unwrap();
    let dependencies = text.split("[dependencies]").nth(1).unwrap_or_default();
    let ordinary = dependencies.split("\n[").next().unwrap_or_default();
    ordinary.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned).collect()
}

#[test]
fn no_arrow_between_crates_has_turned() {
    let arrows = arrows();
    let knows = |name: &str| arrows[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(knows("pilothouse-model"), [""; 0], "model knows nobody");
    for crate_ in ["pilothouse-sandbox", "pilothouse-cluster", "pilothouse-fetch"] {
        assert_eq!(knows(crate_), ["pilothouse-model"], "{crate_} knows the model and not its siblings");
    }
    assert_eq!(
        knows("pilothouse"),
        [
            "pilothouse-cluster",
            "pilothouse-fetch",
            "pilothouse-model",
            "pilothouse-sandbox",
            "pilothouse-telemetry",
        ],
        "only the host sees all"
    );
    assert_eq!(knows("pilothouse-telemetry"), [""; 0], "traces know no Kubernetes");
    assert_eq!(knows("pilothouse-sdk"), [""; 0], "the SDK stands alone, as authors take it");
    for plugin in ["config-map", "postgres-cluster"] {
        assert_eq!(knows(plugin), ["pilothouse-sdk"], "plugin {plugin} knows the SDK alone");
    }
}

#[test]
fn kube_stays_in_cluster_and_wasmtime_in_sandbox() {
    let crates = [
        ("host", "Cargo.toml"),
        ("model", "model/Cargo.toml"),
        ("sandbox", "sandbox/Cargo.toml"),
        ("cluster", "cluster/Cargo.toml"),
        ("fetch", "fetch/Cargo.toml"),
    ];
    for (name, manifest) in crates {
        let external = external(manifest);
        assert!(!external.is_empty(), "{manifest} lists dependencies");
        // Of hyper, the client is what `cluster` owns; the host listens with the other half.
        for (library, owner) in [("kube", "cluster"), ("hyper-rustls", "cluster"), ("wasmtime", "sandbox")] {
            assert_eq!(
                external.contains(library),
                name == owner,
                "{library} belongs to {owner}, looked at {name}"
            );
        }
    }
}
