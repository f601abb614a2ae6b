//! What an administrator gets wrong: one clear line that says where, nothing lost, nothing else disturbed. What needs
//! no cluster to be refused is in `host/tests/cli`.

use std::{fs, net::TcpListener, path::Path, process::Output};

use pilothouse_guests::Stamp;
use pilothouse_harness::{ControlPlane, Host, HostOptions, eventually};
use serde_json::json;

use crate::{
    stamped::{LOAD_FAILURES, assert_ready, count, counts, logs, put, serves, shows, stamp, world, write},
    support::{DEADLINE, Kind, World, pilothouse, try_run},
};

const fn kind(kind: &'static str, plural: &'static str) -> Kind {
    Kind("test.pilothouse.dev/v1", kind, plural)
}

/// The exit code is 2 and the last line on stderr begins with `error: ` and has all of these words.
fn assert_refused(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let [line] = errors[..] else { panic!("not one line: {stderr}") };
    assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
}

async fn run_host(kubeconfig: &Path, listen: &str) -> Output {
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = ["run", "--plugins", "/nowhere", "--kubeconfig", kubeconfig, "--listen", listen];
    try_run(&pilothouse(), arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_leads_nowhere_is_refused_by_file_and_field() {
    const GOOD: &str = r#"
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: there, user: me}}]
clusters: [{name: there, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"#;
    let files = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("contexts: [", &["is malformed"][..]),
        (&GOOD.replace("current-context: here", ""), &["names no current-context", "`here`"]),
        (
            &GOOD.replace("current-context: here", "current-context: gone"),
            &["current-context", "`gone`", "`here`"],
        ),
        (
            &GOOD.replace("cluster: there,", "cluster: gone,"),
            &["context `here`", "cluster `gone`", "`there`"],
        ),
        (&GOOD.replace("user: me}", "user: gone}"), &["context `here`", "user `gone`", "`me`"]),
        (&GOOD.replace("https://127.0.0.1:1", "not an address"), &["cluster url"]),
    ] {
        let path = write(files.path(), "kubeconfig", text);
        let output = run_host(&path, "127.0.0.1:0").await;
        assert_refused(&output, &[&[path.to_str().unwrap()], words].concat());
    }
    let missing = files.path().join("missing");
    assert_refused(&run_host(&missing, "127.0.0.1:0").await, &[missing.to_str().unwrap(), "No such file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_refused() {
    let plane = ControlPlane::shared().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run_host(plane.kubeconfig(), &address).await;
    assert_refused(&output, &[&format!("--listen {address}"), "in use"]);
}

/// Missing, a file, empty: said once each, and the plugin is served as soon as it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_directory_may_come_late() {
    const LATE: Kind = kind("Late", "lates");
    let world = world("late", &[("late", LATE)]).await;
    let files = tempfile::tempdir().unwrap();
    let directory = files.path().join("plugins");
    let options = HostOptions { plugins: vec![directory.clone()], ..world.options() };
    let host = Host::start(options).await.unwrap();
    let says = format!("plugin directory {}", directory.display());
    logs(&host, &[&says, "No such file"]).await;
    fs::write(&directory, "").unwrap();
    logs(&host, &[&says, "Not a directory"]).await;
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    logs(&host, &[&says, "has no plugin: NAME.wasm"]).await;
    assert_ready(&host).await;

    put(&world, LATE, "late", json!({"text": "a"})).await;
    write(&directory, "late.wasm", stamp("late", LATE, "1"));
    shows(&world, "late", &[("text", "a")]).await;
    for words in ["No such file", "Not a directory", "has no plugin"] {
        assert_eq!(host.log().matches(words).count(), 1, "{}", host.log());
    }
    // What was loaded from a directory outlives it: a volume that is gone for a moment is no order to stop.
    fs::rename(&directory, files.path().join("away")).unwrap();
    eventually(DEADLINE, "the loss of the directory in the log", || async {
        host.log().matches("No such file").count() == 2
    })
    .await;
    put(&world, LATE, "late", json!({"text": "b"})).await;
    shows(&world, "late", &[("text", "b")]).await;
    assert_eq!(count(&host, LOAD_FAILURES, &[]).await, 0, "{}", host.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_plugins_for_one_kind_the_first_serves_until_it_goes() {
    const BOTH: Kind = kind("Both", "boths");
    let world = world("both", &[("first", BOTH), ("second", BOTH)]).await;
    let host = world.host().await;
    serves(&host, &[("first", "1")]).await;
    counts(&host, LOAD_FAILURES, &[("reason", "KindTaken")], 1).await;
    let second = world.plugins.path().join("second.wasm");
    logs(
        &host,
        &[second.to_str().unwrap(), "Both.v1.test.pilothouse.dev is served by plugin `first` already"],
    )
    .await;
    put(&world, BOTH, "both", json!({"text": "a"})).await;
    shows(&world, "both", &[("text", "a")]).await;
    let managed = |by: &'static str| {
        let world = &world;
        eventually(DEADLINE, by, move || async move {
            let made = world.get(crate::support::CONFIG_MAP, "both").await.unwrap_or_default();
            anyhow::ensure!(made["metadata"]["labels"]["pilothouse.dev/managed"] == by, "{made}");
            Ok(())
        })
    };
    managed("first").await;
    fs::remove_file(world.plugins.path().join("first.wasm")).unwrap();
    serves(&host, &[("second", "1")]).await;
    put(&world, BOTH, "both", json!({"text": "b"})).await;
    shows(&world, "both", &[("text", "b")]).await;
    managed("second").await;
}

/// A right that lacks keeps one plugin from starting and no other, keeps a new version from taking over and not the old
/// one from serving, and need only be granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_stops_nothing_that_works() {
    const WIDE: Kind = kind("Wide", "wides");
    const FREE: Kind = kind("Free", "frees");
    // The rights of the narrow version. The wide ones have Services among their children, too.
    let world: World = world("wide", &[("free", FREE), ("wide", WIDE)]).await;
    let offer = |version: &str, wide: bool| {
        let component = Stamp { name: "wide", kind: "Wide", version, wide }.component();
        write(world.plugins.path(), "wide.wasm", component);
    };
    offer("1", true);
    let host = Host::spawn(&world.options()).unwrap();
    let lacks_a_right = || async {
        let (status, body) = host.get("/readyz").await?;
        let named = body.contains("plugin wide") && body.contains("Service.v1") && body.contains("forbidden");
        anyhow::ensure!(status == 503 && named, "it says {status} {body}");
        Ok(())
    };
    eventually(DEADLINE, "/readyz to name the right", lacks_a_right).await;
    logs(&host, &["Service.v1", "orbidden"]).await;
    put(&world, FREE, "free", json!({"text": "a"})).await;
    put(&world, WIDE, "wide", json!({"text": "a"})).await;
    shows(&world, "free", &[("text", "a")]).await;

    offer("2", false);
    shows(&world, "wide", &[("text", "a"), ("version", "2")]).await;
    host.ready().await.unwrap();
    offer("3", true);
    eventually(DEADLINE, "/readyz to name the right", lacks_a_right).await;
    put(&world, WIDE, "wide", json!({"text": "b"})).await;
    shows(&world, "wide", &[("text", "b"), ("version", "2")]).await;

    let grant = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "services"},
        "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}],
    });
    let bind = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "services"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "services"},
        "subjects": [{"kind": "ServiceAccount", "name": world.namespace, "namespace": world.namespace}],
    });
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [grant, bind]}).to_string()).await;
    shows(&world, "wide", &[("text", "b"), ("version", "3")]).await;
    host.ready().await.unwrap();
    assert_eq!(count(&host, LOAD_FAILURES, &[]).await, 0);
}
