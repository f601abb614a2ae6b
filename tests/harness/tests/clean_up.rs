//! Nothing outlives the process that asked for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use pilothouse_harness::{ControlPlane, Options, Process, eventually};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_mins(2);
const HARNESS: &str = env!("CARGO_BIN_EXE_pilothouse-harness");

fn kill_9(process: Process) {
    let status = Command::new("kill").args(["-9", &process.pid.to_string()]).status().unwrap();
    assert!(status.success());
}

async fn all_gone(processes: &BTreeMap<String, Process>) {
    eventually(SOON, "every process to be gone", || async {
        let left: Vec<_> = processes.iter().filter(|(_, process)| process.is_alive()).collect();
        anyhow::ensure!(left.is_empty(), "{left:?}");
        anyhow::Ok(())
    })
    .await;
}

/// The record that a daemon writes: its own process, and those of its control plane once that is ready.
fn record(state: &Path) -> anyhow::Result<(Process, Option<BTreeMap<String, Process>>)> {
    let record: Value = serde_json::from_slice(&std::fs::read(state.join("control-plane.json"))?)?;
    let plane = &record["plane"]["processes"];
    let processes = (!plane.is_null()).then(|| serde_json::from_value(plane.clone())).transpose()?;
    Ok((serde_json::from_value(record["daemon"].clone())?, processes))
}

fn harness(command: &str, state: &Path) -> (bool, String) {
    let output = Command::new(HARNESS)
        .args([command, "--state"])
        .arg(state)
        .env_remove("KUBECONFIG")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// Ends what a test has put up, also when the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        harness("down", self.0);
    }
}

#[tokio::test]
async fn dropping_a_control_plane_leaves_nothing() {
    let plane = ControlPlane::start(Options { scheduler: true, ..Options::default() }).await.unwrap();
    let directory = plane.directory().to_owned();
    let processes = plane.processes().unwrap();
    let names: Vec<_> = processes.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["guardian", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]);
    drop(plane);
    let left: Vec<_> = processes.iter().filter(|(_, process)| process.is_alive()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_holds_a_control_plane_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut holder = Command::new(HARNESS)
        .args(["serve", "--state"])
        .arg(state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let processes =
        eventually(START, "a control plane to be ready", || async { Ok(record(state.path())?.1) });
    let processes = processes.await;
    assert!(processes.len() >= 4 && processes.values().all(|process| process.is_alive()), "{processes:?}");
    let directory = guardian_directory(state.path());
    holder.kill().unwrap();
    holder.wait().unwrap();
    all_gone(&processes).await;
    eventually(SOON, "the guardian's directory to be removed", || async { !directory.exists() }).await;
}

#[tokio::test]
async fn a_guardian_that_is_killed_takes_its_components_along() {
    let plane =
        ControlPlane::start(Options { controller_manager: false, ..Options::default() }).await.unwrap();
    let directory = plane.directory().to_owned();
    let processes: BTreeMap<_, _> =
        plane.processes().unwrap().into_iter().map(|(name, process)| (name.to_owned(), process)).collect();
    kill_9(processes["guardian"]);
    all_gone(&processes).await;
    let error = plane.stop_api_server().unwrap_err().to_string();
    assert!(error.contains("guardian"), "{error}");
    std::fs::remove_dir_all(directory).unwrap(); // the one thing that nobody was left to do
}

#[tokio::test]
async fn up_finds_what_is_healthy_replaces_what_is_half_dead_and_down_ends_it() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("run");
    let _down = Down(&state);
    assert_eq!(harness("status", &state), (false, "no control plane is running\n".to_owned()));

    let (up, kubeconfig) = harness("up", &state);
    assert!(up && Path::new(kubeconfig.trim()).is_file(), "{kubeconfig}");
    let (daemon, first) = record(&state).unwrap();
    assert!(harness("status", &state).1.starts_with("healthy at https://127.0.0.1:"));

    assert_eq!(harness("up", &state), (true, kubeconfig.clone()));
    assert_eq!(record(&state).unwrap(), (daemon, first.clone()), "a healthy control plane was replaced");

    let first = first.unwrap();
    kill_9(first["etcd"]);
    eventually(SOON, "the end of etcd to be told", || async {
        harness("status", &state).1.starts_with("not healthy: etcd has ended")
    })
    .await;
    assert_eq!(harness("up", &state), (true, kubeconfig));
    all_gone(&first).await;
    assert!(!daemon.is_alive());

    let (daemon, second) = record(&state).unwrap();
    kill_9(daemon); // the record stays, and names nobody any more
    all_gone(&second.unwrap()).await;
    assert!(harness("status", &state).1.starts_with("no control plane"));
    assert!(harness("up", &state).0);

    let (daemon, third) = record(&state).unwrap();
    assert_eq!(harness("down", &state), (true, "the control plane has ended\n".to_owned()));
    assert!(!daemon.is_alive());
    all_gone(&third.unwrap()).await;
    assert!(!state.exists());
    assert_eq!(harness("down", &state), (true, "no control plane was running\n".to_owned()));
}

#[tokio::test]
async fn down_does_not_touch_a_process_that_has_the_pid_of_an_earlier_one() {
    let state = tempfile::tempdir().unwrap();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let own = Process::find(bystander.id()).unwrap();
    let earlier = Process { started: own.started - 1, ..own };
    let record = serde_json::json!({"daemon": earlier, "plane": null});
    std::fs::write(state.path().join("control-plane.json"), record.to_string()).unwrap();
    assert_eq!(harness("down", state.path()), (true, "no control plane was running\n".to_owned()));
    assert!(own.is_alive());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// Where the certificates of the kubeconfig are.
fn guardian_directory(state: &Path) -> PathBuf {
    let kubeconfig: Value =
        serde_json::from_slice(&std::fs::read(state.join("kubeconfig")).unwrap()).unwrap();
    let authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority"].as_str().unwrap();
    Path::new(authority).ancestors().nth(2).unwrap().to_owned()
}
