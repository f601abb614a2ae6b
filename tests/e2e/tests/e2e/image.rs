//! The image: one static binary on nothing, and that is enough to serve in a cluster.
//!
//! There is no node to run it, so the test stands in for the container runtime: it unpacks the image, adds what kubelet
//! mounts into the pod of `deploy/base`, and starts the program in there as the pod's user, with the pod's arguments.
//! That needs root.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Stdio,
};

use pilothouse_harness::workspace;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    deploy::{base, deployment},
    support::{POSTGRES_CLUSTER, World, plugin, run},
};

/// In the Dockerfile.
const USER: u32 = 65532;

/// Blobs of an OCI archive.
struct Image<'a>(&'a Path);

impl Image<'_> {
    fn json(&self, descriptor: &Value) -> Value {
        let digest = descriptor["digest"].as_str().unwrap();
        serde_json::from_slice(&fs::read(self.0.join("blobs").join(digest.replace(':', "/"))).unwrap())
            .unwrap()
    }

    fn manifest(&self) -> Value {
        let index: Value = serde_json::from_slice(&fs::read(self.0.join("index.json")).unwrap()).unwrap();
        self.json(&index["manifests"][0])
    }
}

/// The program of the image as a container runtime would start it: nothing else in sight, no other user, no other
/// environment. It ends with the handle: a shell is the first process of its namespace, whose end is the end of all,
/// since the program itself gives up with its rights what would end it with its parent.
fn start(root: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .arg(format!("--mount-proc={}", root.join("proc").display()))
        .args(["sh", "-c", "\"$@\"; exit $?", "sh", "chroot"])
        .arg(format!("--userspec={USER}:{USER}"))
        .arg(root)
        .arg("/pilothouse")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn mount_service_account(root: &Path, world: &World, token: &str) {
    let directory = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    fs::create_dir_all(&directory).unwrap();
    let kubeconfig: Value = serde_json::from_slice(&fs::read(world.plane.kubeconfig()).unwrap()).unwrap();
    let authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority"].as_str().unwrap();
    fs::copy(authority, directory.join("ca.crt")).unwrap();
    fs::set_permissions(directory.join("ca.crt"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(directory.join("token"), token).unwrap();
    fs::write(directory.join("namespace"), "pilothouse-system").unwrap();
}

async fn unpack(archive: &Path, directory: &Path) {
    let flags = ["-xf".as_ref(), archive.as_os_str(), "-C".as_ref(), directory.as_os_str()];
    run(Path::new("tar"), flags).await;
}

#[tokio::test]
async fn the_image_is_one_static_binary_that_serves_as_the_pod_would() {
    let world = World::deployed("image").await;
    let target = workspace::target_directory();
    let build = workspace::root().join("deploy/images/host/build.sh");
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("pilothouse.tar");
    // What `make test` has compiled already; what is shipped differs from it by its optimisations alone.
    let command = ["PROFILE=release".as_ref(), build.as_os_str(), target.as_os_str(), archive.as_os_str()];
    run(Path::new("env"), command).await;

    let (unpacked, root) = (scratch.path().join("image"), scratch.path().join("root"));
    for directory in [&unpacked, &root] {
        fs::create_dir(directory).unwrap();
    }
    unpack(&archive, &unpacked).await;
    let image = Image(&unpacked);
    let manifest = image.manifest();
    let config = image.json(&manifest["config"]);
    assert_eq!(config["config"]["User"], format!("{USER}:{USER}"));
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/pilothouse"]));
    for layer in manifest["layers"].as_array().unwrap() {
        let digest = layer["digest"].as_str().unwrap();
        unpack(&unpacked.join("blobs").join(digest.replace(':', "/")), &root).await;
    }
    let files: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["pilothouse"]);
    eprintln!("image: {} MiB packed", fs::metadata(&archive).unwrap().len() >> 20);

    // What the runtime and kubelet mount.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for directory in ["proc", "dev", "etc", "plugins/postgres-cluster", "cache"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (device, minor) in [("null", "3"), ("random", "8"), ("urandom", "9")] {
        let path = root.join("dev").join(device);
        let flags = ["--mode=666".as_ref(), path.as_os_str(), "c".as_ref(), "1".as_ref(), minor.as_ref()];
        run(Path::new("mknod"), flags).await;
    }
    chown(root.join("cache"), Some(USER), Some(USER)).unwrap();
    fs::write(root.join("etc/hosts"), "127.0.0.1 kubernetes.default.svc\n").unwrap();
    let mounted = root.join("plugins/postgres-cluster/postgres-cluster.wasm");
    fs::copy(plugin("postgres-cluster"), mounted).unwrap();
    let token = world.kubectl("-n pilothouse-system create token pilothouse").await;
    mount_service_account(&root, &world, token.trim());

    let version = start(&root, &[], &["--version"]).output().await.unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert_eq!(version.trim(), concat!("pilothouse ", env!("CARGO_PKG_VERSION")));

    let pod = deployment(&base().await)["spec"]["template"]["spec"]["containers"][0].clone();
    let arguments: Vec<_> = pod["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    // Only this test's namespace, and a port that others on this machine do not want.
    let more = ["--namespace", &world.namespace, "--listen", "127.0.0.1:0"];
    // The address of a Service that leads to no pod here; what webhooks do is shown elsewhere.
    let here = |argument: &&str| !argument.starts_with("--listen") && !argument.starts_with("--webhook");
    let of_pod = arguments.into_iter().filter(here);
    let arguments: Vec<_> = of_pod.chain(more).collect();
    let port = world.plane.url().rsplit(':').next().unwrap();
    let environment = [
        // A name rather than an address: some clusters set one, and a static C library has to look it up.
        ("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"),
        ("KUBERNETES_SERVICE_PORT", port),
        ("POD_NAME", "pilothouse-0"),
        ("XDG_CACHE_HOME", "/cache"),
    ];
    let log = scratch.path().join("log");
    let mut command = start(&root, &environment, &arguments);
    let mut host: Child =
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let _log = LogOnFailure(&log);
    world.cluster("orders-db", 1).await;
    world.ready(POSTGRES_CLUSTER, "orders-db").await;
    host.kill().await.unwrap();
}

/// Shows the program's log if the test fails.
struct LogOnFailure<'a>(&'a Path);

impl Drop for LogOnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the program:\n{}", fs::read_to_string(self.0).unwrap_or_default());
        }
    }
}
