//! `inspect`, `crds`, `rbac` and `package`.

use std::io::Write;

use serde_json::{Value, json};

use super::{Files, greeter, pilothouse};

#[test]
fn inspect_tells_the_same_of_each_packing() {
    let files = Files::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(greeter()).unwrap();
    let plugins = [
        files.write("greeter.wasm", greeter()),
        files.write("greeter.wasm.gz", gzip.finish().unwrap()),
        files.write("greeter.bin", zstd::encode_all(greeter(), 3).unwrap()),
    ];
    let inspected: Vec<Value> = plugins
        .iter()
        .map(|plugin| serde_json::from_str(&pilothouse(&["inspect", plugin, "-o", "json"]).stdout).unwrap())
        .collect();
    let first = &inspected[0];
    assert_eq!(first["manifest"]["name"], "config-map");
    assert_eq!(first["manifest"]["crds"][0]["kind"], "CustomResourceDefinition");
    assert_eq!(first["contract"], "0.1.0");
    assert!(first["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(first["bytes"]["wasm"], greeter().len());
    assert!(first["bytes"]["compiled"].as_u64().unwrap() > 0);
    assert_eq!(first["grantsNeeded"], json!([]));
    let imports = first["imports"].as_array().unwrap();
    assert!(
        imports.iter().all(|name| name.as_str().unwrap().starts_with("pilothouse:operator/")),
        "{imports:?}"
    );
    for other in &inspected[1..] {
        assert_eq!((&other["digest"], &other["manifest"]), (&first["digest"], &first["manifest"]));
        assert!(other["bytes"]["compressed"].as_u64() < first["bytes"]["compressed"].as_u64());
    }
    let text = pilothouse(&["inspect", &plugins[0]]).documents().remove(0);
    assert_eq!(text["manifest"]["crds"], json!(["greetings.example.com"]));
    assert_eq!(text["manifest"]["controllers"][0]["children"], json!(["ConfigMap.v1"]));
}

#[test]
fn crds_of_several_plugins_are_printed_once_by_name() {
    let files = Files::new();
    let greeter = files.write("greeter.wasm", greeter());
    let hostile = files.write("hostile.wasm", pilothouse_guests::hostile());
    let crds = pilothouse(&["crds", &hostile, &greeter, &greeter]).documents();
    let names: Vec<&Value> = crds.iter().map(|crd| &crd["metadata"]["name"]).collect();
    assert_eq!(names, ["greetings.example.com", "hostiles.test.pilothouse.dev"]);
    assert_eq!(pilothouse(&["crds", &greeter, &hostile]).documents(), crds);
}

#[test]
fn rbac_grants_what_the_manifests_declare() {
    let files = Files::new();
    let greeter = files.write("greeter.wasm", greeter());
    let objects = pilothouse(&["rbac", &greeter, "--service-account", "ops/pilot"]).documents();
    let role = &objects[0];
    assert_eq!((&role["kind"], &role["metadata"]["name"]), (&json!("ClusterRole"), &json!("pilot")));
    let children = json!({"apiGroups": [""], "resources": ["configmaps"],
                          "verbs": ["get", "list", "watch", "create", "patch", "delete"]});
    assert_eq!(role["rules"][0], children);
    assert_eq!(
        objects[1]["subjects"][0],
        json!({"kind": "ServiceAccount", "namespace": "ops", "name": "pilot"})
    );

    let objects = pilothouse(&["rbac", &greeter, "-n", "shop"]).documents();
    assert_eq!(objects[0]["kind"], "Role", "nothing of it is cluster-scoped");
    assert_eq!(objects[0]["metadata"]["namespace"], "shop");
    pilothouse(&["rbac", &greeter, "--service-account", "pilot"]).failed(2, "NAMESPACE/NAME would be right");
    pilothouse(&["rbac", &greeter, "-n", "Shop"]).refused("namespace: `Shop` is no namespace");
}

#[test]
fn package_makes_a_config_map_with_the_settings() {
    let files = Files::new();
    let plugin = files.write("some_file.wasm", greeter());
    files.write("some_file.yaml", "concurrency: 3\n");
    let arguments = ["package", &plugin, "--configmap", "greeter", "-n", "ops"];
    let config_map = pilothouse(&arguments).documents().remove(0);
    let metadata =
        json!({"name": "greeter", "namespace": "ops", "labels": {"pilothouse.dev/plugin": "config-map"}});
    assert_eq!(config_map["metadata"], metadata);
    assert_eq!(config_map["data"], json!({"config-map.yaml": "concurrency: 3\n"}));
    let keys: Vec<&String> = config_map["binaryData"].as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 1);
    assert!(keys[0].starts_with("config-map.wasm."), "{keys:?}");
    assert_eq!(pilothouse(&arguments).stdout, pilothouse(&arguments).stdout);
    pilothouse(&["package", &plugin, "--configmap", "Greeter"]).refused("--configmap: `Greeter` is no name");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["crds", &plugin])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
