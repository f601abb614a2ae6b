//! What `pilothouse new` writes builds, tests, checks and packages as it is, and a host serves it; and what the author's guide
//! has people type after that does what the guide says.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Output,
};

use pilothouse_harness::workspace;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    authors::cargo_component,
    stamped::reconciled,
    support::{CONFIG_MAP, DEPLOYMENT, Kind, SERVICE, World, pilothouse, run},
};

/// Compressed size of a Rust plugin, bytes: it shall fit into a ConfigMap many times over.
const RUST_BYTES_MAX: usize = 150 << 10;

/// A project in a folder of its own.
struct Project {
    folder: TempDir,
    /// Variables of make.
    variables: Vec<String>,
}

impl Project {
    async fn new(language: &str, kind: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_str().unwrap();
        run(&pilothouse(), ["new", "sites", "--lang", language, "--kind", kind, "--dir", place]).await;
        let variables = vec![format!("PILOTHOUSE={}", pilothouse().display())];
        Self { folder, variables }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    /// Runs a program in the project, without what Cargo says to the test and without a network.
    async fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).kill_on_drop(true);
        let of_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in env::vars().filter(|(name, _)| of_test(name)) {
            command.env_remove(name);
        }
        command.env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", target());
        command.output().await.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    async fn make(&self, goal: &str) {
        let variables: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        self.succeeds("make", &[&[goal], variables.as_slice()].concat()).await;
    }

    async fn succeeds(&self, program: &str, arguments: &[&str]) {
        let done = self.run(Path::new(program), arguments).await;
        let text = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{program} {arguments:?}:\n{}", String::from_utf8_lossy(&text));
    }

    /// A file of the project as it would be applied in another namespace.
    fn in_namespace(&self, below: &str, namespace: &str) -> String {
        self.read(below).replace("namespace: default\n", &format!("namespace: {namespace}\n"))
    }
}

/// One target directory for all projects and runs, so that the dependencies compile once.
fn target() -> PathBuf {
    workspace::target_directory().join("authors/new")
}

/// Packages the project; what was written beside it for the API server is what the component says.
async fn packages(project: &Project) {
    let written = project.read("deploy/crd.yaml");
    project.make("package").await;
    assert_eq!(project.read("deploy/crd.yaml"), written, "the project's CRD is not that of its plugin");
    assert!(project.read("deploy/rbac.yaml").contains("name: pilothouse-sites"));
}

/// A host serves the component: the sample becomes a ConfigMap, which comes back, and goes with it.
async fn is_served(project: &Project, component: PathBuf, prefix: &str, kind: Kind) {
    let world = World::granted(prefix, &[component]).await;
    let _host = world.host().await;
    world.apply(&project.in_namespace("samples/hello.yaml", &world.namespace)).await;
    let resource = world.ready(kind, "hello").await;
    assert_eq!(resource["status"]["configMap"], "hello-message");
    let config_map = world.get(CONFIG_MAP, "hello-message").await.unwrap();
    assert_eq!(config_map["data"]["message"], "Hello from a component");

    world.delete(CONFIG_MAP, "hello-message").await;
    world.present(CONFIG_MAP, "hello-message").await;
    world.edit(kind, "hello", &json!({"spec": {"message": " "}})).await;
    let told = reconciled(&world, kind, "hello", "InvalidResource").await;
    assert_eq!(told["message"], "spec.message: is blank, a text would be right");
    world.delete(kind, "hello").await;
    world.gone(CONFIG_MAP, "hello-message").await;
}

/// What a function of `guest-sdk/tools.sh` installs, once for all who build plugins in that language.
async fn tools(function: &str, shown: &str) -> PathBuf {
    let script = format!("source guest-sdk/tools.sh; {function} >&2; echo \"{shown}\"");
    let done =
        Command::new("bash").args(["-ec", &script]).current_dir(workspace::root()).output().await.unwrap();
    assert!(done.status.success(), "{function}: {}", String::from_utf8_lossy(&done.stderr));
    PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_project_works_as_written() {
    let mut project = Project::new("python", "example.com/v1alpha1/Page").await;
    let python = tools("python_tools", "$python").await;
    project.variables.push(format!("VENV={}", python.ancestors().nth(2).unwrap().display()));
    packages(&project).await;
    let component = project.path("dist/sites.wasm");
    is_served(&project, component, "new-python", Kind("example.com/v1alpha1", "Page", "pages")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_javascript_project_works_as_written() {
    let project = Project::new("javascript", "example.com/v1alpha1/Note").await;
    // As `npm ci` and `npm install` would leave it.
    let packages_of_sdk = tools("javascript_tools", "$root/guest-sdk/javascript/node_modules").await;
    symlink(packages_of_sdk, project.path("sdk/javascript/node_modules")).unwrap();
    fs::create_dir(project.path("node_modules")).unwrap();
    symlink("../sdk/javascript", project.path("node_modules/pilothouse")).unwrap();
    packages(&project).await;
    let component = project.path("dist/sites.wasm");
    is_served(&project, component, "new-javascript", Kind("example.com/v1alpha1", "Note", "notes")).await;
}

/// One test, as the second project would wait for the first one's target directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_rust_project_works_as_written_and_as_the_guide_goes_on() {
    const SITE: Kind = Kind("example.com/v1alpha1", "Site", "sites");
    let mut project = Project::new("rust", "example.com/v1alpha1/Site").await;
    project.variables.push(format!("COMPONENT_BUILD={} component build", cargo_component().display()));
    project.succeeds("cargo", &["fmt", "--all", "--check"]).await;
    project.succeeds("cargo", &["clippy", "--all-targets", "--", "--deny", "warnings"]).await;
    packages(&project).await;
    let plugin: serde_json::Value = serde_saphyr::from_str(&project.read("deploy/plugin.yaml")).unwrap();
    let packed =
        plugin["binaryData"]["sites.wasm.zst"].as_str().or(plugin["binaryData"]["sites.wasm.gz"].as_str());
    let bytes = packed.unwrap().len() / 4 * 3;
    assert!(bytes <= RUST_BYTES_MAX, "{bytes} bytes");
    let component = target().join("plugins/sites.wasm");
    is_served(&project, component.clone(), "new-rust", SITE).await;

    // The guide: other files, cases that are recorded, and a cluster.
    let page = workspace::root().join("docs/site");
    for (from, to) in [
        ("lib.rs", "src/lib.rs"),
        ("reconcile.rs", "tests/reconcile.rs"),
        ("hello.yaml", "samples/hello.yaml"),
    ] {
        fs::copy(page.join(from), project.path(to)).unwrap();
    }
    fs::remove_dir_all(project.path("cases")).unwrap();
    fs::create_dir(project.path("cases")).unwrap();
    let hello = project.read("samples/hello.yaml");
    fs::write(project.path("cases/new.yaml"), &hello).unwrap();
    let wrong = hello.replace("<h1>Hello from a component</h1>", "no page");
    fs::write(project.path("cases/no-html.yaml"), wrong).unwrap();
    project.make("build").await;
    let record = ["check", component.to_str().unwrap(), "cases", "--record"];
    let recorded = project.run(&pilothouse(), &record).await;
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stdout));
    assert!(project.read("cases/no-html.yaml").contains("invalid: \"spec.page: is no HTML"));
    project.make("package").await;

    let world = World::granted("guide", &[component]).await;
    let _host = world.host().await;
    world.apply(&project.in_namespace("samples/hello.yaml", &world.namespace)).await;
    world.ready(SITE, "hello").await;
    world.kubectl("scale site hello --replicas 3").await;
    world.ready(SITE, "hello").await;
    assert_eq!(world.get(DEPLOYMENT, "hello").await.unwrap()["spec"]["replicas"], 3);
    world.kubectl("delete service hello").await;
    world.present(SERVICE, "hello").await;
    world.edit(SITE, "hello", &json!({"spec": {"page": "no page"}})).await;
    let told = reconciled(&world, SITE, "hello", "InvalidResource").await;
    assert_eq!(told["message"], "spec.page: is no HTML, as `<h1>Hello</h1>` would be");
    world.kubectl("delete site hello").await;
    world.gone(DEPLOYMENT, "hello").await;
}
