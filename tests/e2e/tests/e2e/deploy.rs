//! What `deploy/` says is what the program prints, and what the API server takes.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use pilothouse_harness::{Kubelet, KubeletOptions, workspace};
use serde_json::{Value, json};

use crate::lax::DEFINITIONS;
use crate::support::{CONFIG_MAP, World, pilothouse, plugin, run, sample};

const SYSTEM: &str = "pilothouse-system";

fn deploy(path: &str) -> PathBuf {
    workspace::root().join("deploy").join(path)
}

/// The objects of `deploy/base`, as kustomize builds them.
pub(crate) async fn base() -> Vec<Value> {
    let base = deploy("base");
    let text = run(Path::new("kubectl"), ["kustomize".as_ref(), base.as_os_str()]).await;
    serde_saphyr::from_multiple(&text).unwrap()
}

pub(crate) fn deployment(objects: &[Value]) -> &Value {
    objects.iter().find(|object| object["kind"] == "Deployment").unwrap()
}

#[tokio::test]
async fn generated_files_are_what_the_program_prints() {
    let fresh = tempfile::tempdir().unwrap();
    let target = workspace::target_directory();
    run(&deploy("generate.sh"), [target.as_os_str(), fresh.path().as_os_str()]).await;
    let plugins = ["chaos-pod", "egapp", "pod-replica", "postgres-cluster", "website"];
    for file in plugins.iter().flat_map(|plugin| ["crds", "rbac"].map(|kind| format!("{kind}/{plugin}.yaml")))
    {
        let committed = std::fs::read_to_string(deploy(&file)).unwrap();
        let printed = std::fs::read_to_string(fresh.path().join(&file)).unwrap();
        assert!(committed == printed, "deploy/{file} is not what the program prints: run `make generate`");
    }
}

#[tokio::test]
async fn the_image_has_the_version_of_the_program() {
    let objects = base().await;
    let container = &deployment(&objects)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], concat!("pilothouse:", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn the_base_is_accepted_and_applying_it_again_changes_nothing() {
    let world = World::deployed("base").await; // which has applied it
    let _held = DEFINITIONS.lock().await;
    let base = deploy("base");
    let accepted = world.kubectl(&format!("-n {SYSTEM} apply --dry-run=server -k {}", base.display())).await;
    assert!(accepted.contains("deployment.apps/pilothouse"), "{accepted}");
    // kubectl sends this selector whole, as its patch strategy is `replace`, and calls that a change.
    let budget = "poddisruptionbudget.policy/pilothouse configured (server dry run)";
    for line in accepted.lines().filter(|line| *line != budget) {
        assert!(line.ends_with("unchanged (server dry run)"), "{line}");
    }
    // Exit code 0: no difference.
    assert_eq!(world.kubectl(&format!("-n {SYSTEM} diff -k {}", base.display())).await, "");
}

#[tokio::test]
async fn every_sample_is_accepted() {
    let plugins = ["chaos-pod", "config-map", "egapp", "pod-replica", "postgres-cluster"].map(plugin);
    let world = World::granted("samples", &plugins).await;
    world.apply(&sample("postgres-cluster", "shop", &world.namespace)).await;
    world.apply(&sample("greeting", "default", &world.namespace)).await;
    for plugin in ["chaos-pod", "egapp", "pod-replica"] {
        world.apply(&sample(plugin, "default", &world.namespace)).await;
    }
    // That of the website takes a host that converts: `webhooks::conversion` applies it.
    let samples = std::fs::read_dir(deploy("samples")).unwrap().count();
    assert_eq!(samples, 6, "a new sample: apply it here");
}

#[tokio::test]
async fn the_pod_passes_the_restricted_level_and_becomes_ready() {
    let world = World::deployed("pod").await;
    let options = KubeletOptions { namespaces: vec![SYSTEM.to_owned()], ..KubeletOptions::default() };
    let _kubelet = Kubelet::start(world.client.clone(), options);
    world.kubectl(&format!("-n {SYSTEM} rollout status deployment/pilothouse --timeout=120s")).await;

    // The level is enforced: the same pod with one privilege more is refused.
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": SYSTEM}});
    pod["spec"] = deployment(&base().await)["spec"]["template"]["spec"].clone();
    let create = format!("-n {SYSTEM} create --dry-run=server -f -");
    let output = world.try_kubectl(&create, &pod.to_string()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let output = world.try_kubectl(&create, &pod.to_string()).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("restricted"), "{said}");
}

#[tokio::test]
async fn the_packaged_plugin_is_the_config_map_that_the_pod_mounts() {
    let world = World::deployed("package").await;
    let program = pilothouse();
    let path = plugin("postgres-cluster");
    let flags = ["--configmap", "postgres-cluster", "-n", SYSTEM].map(std::ffi::OsStr::new);
    let manifest = run(&program, [["package".as_ref(), path.as_os_str()].as_slice(), &flags].concat()).await;
    let output = world.try_kubectl(&format!("-n {SYSTEM} apply --server-side -f -"), &manifest).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let pod = deployment(&base().await)["spec"]["template"]["spec"].clone();
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["configMap"]["name"] == "postgres-cluster").unwrap();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
    let flag = format!("--plugins={}", mount["mountPath"].as_str().unwrap());
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!(flag)), "{pod}");

    // What kubelet would write there is the plugin.
    let stored = CONFIG_MAP.api(&world.client, SYSTEM).get("postgres-cluster").await.unwrap();
    let (name, encoded) = stored.data["binaryData"].as_object().unwrap().iter().next().unwrap();
    let bytes = STANDARD.decode(encoded.as_str().unwrap()).unwrap();
    assert!(bytes.len() < 300 << 10, "{} bytes", bytes.len());
    let directory = tempfile::tempdir().unwrap();
    let mounted = directory.path().join(name);
    std::fs::write(&mounted, bytes).unwrap();
    let digest = |path: PathBuf| {
        let program = &program;
        async move {
            let flags = ["inspect".as_ref(), path.as_os_str(), "-o".as_ref(), "json".as_ref()];
            let shown: Value = serde_json::from_str(&run(program, flags).await).unwrap();
            assert!(shown["digest"].is_string(), "{shown}");
            shown["digest"].clone()
        }
    };
    assert_eq!(digest(mounted).await, digest(path).await);
}
