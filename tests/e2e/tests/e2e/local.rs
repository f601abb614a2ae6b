//! `make run` and `make stop`, behind their builds: interrupted anywhere, run again, and nothing left in the end.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Output, Stdio},
};

use pilothouse_harness::{eventually, workspace};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::support::DEADLINE;

/// A user's machine in small: a state directory of its own, so that nobody's own run is touched.
struct Machine {
    state: TempDir,
    listen: String,
    webhook_listen: String,
}

impl Machine {
    fn new() -> Self {
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [listen, webhook_listen] = free.map(|listener| listener.local_addr().unwrap().to_string());
        Self { state: tempfile::tempdir().unwrap(), listen, webhook_listen }
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(workspace::root().join("deploy/local").join(name));
        command
            .arg(workspace::target_directory())
            .env("XDG_STATE_HOME", self.state.path())
            .env("KUBECACHEDIR", self.state.path().join("kubectl"))
            .env("PILOTHOUSE_LISTEN", &self.listen)
            .env("PILOTHOUSE_WEBHOOK_LISTEN", &self.webhook_listen)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn finished(&self, script: &str) -> String {
        let output: Output = self.script(script).output().await.unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {}\n{said}", output.status);
        said
    }

    /// Runs until a line has this part, then presses Ctrl-C: SIGINT to the whole process group of the terminal.
    async fn interrupted_at(&self, part: &str) {
        // The script is a process group of its own, as in a shell, and its output comes as one stream.
        let mut command = self.script("run.sh");
        let mut child = command.process_group(0).spawn().unwrap();
        let group = child.id().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (mut out, mut err) = (BufReader::new(stdout).lines(), BufReader::new(stderr).lines());
        loop {
            let line = tokio::select! {
                Ok(Some(line)) = out.next_line() => line,
                Ok(Some(line)) = err.next_line() => line,
                else => panic!("run.sh ended before it said {part:?}"),
            };
            if line.contains(part) {
                break;
            }
        }
        let killed = Command::new("kill").args(["-INT", "--", &format!("-{group}")]).status().await.unwrap();
        assert!(killed.success());
        let status = tokio::time::timeout(DEADLINE, child.wait()).await.expect("it does not end").unwrap();
        assert!(!status.success(), "it went on after {part:?}");
    }

    /// Processes that were started with this state directory in their environment, by their command lines.
    fn processes(&self) -> Vec<String> {
        let wanted = format!("XDG_STATE_HOME={}", self.state.path().display());
        let belongs = |process: &Path| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let command = |process: std::path::PathBuf| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        };
        entries.filter(|process| belongs(process)).map(command).collect()
    }

    async fn nothing_is_left(&self) {
        eventually(DEADLINE, "every process to end", || async {
            let left = self.processes();
            anyhow::ensure!(left.is_empty(), "{left:#?}");
            Ok(true)
        })
        .await;
        let state = self.state.path().join("pilothouse");
        let left: Vec<_> = fs::read_dir(&state).map(Iterator::collect).unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Machine {
    /// A test that failed half-way has not stopped what it started.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.script("stop.sh").into_std().output();
        }
    }
}

#[tokio::test]
async fn run_is_interrupted_run_again_found_and_stopped() {
    let machine = Machine::new();
    for part in ["starting a control plane", "starting the host", "waiting until the host", "kubectl apply"] {
        machine.interrupted_at(part).await;
    }
    let said = machine.finished("run.sh").await;
    for part in ["found the control plane", "found the host", "export KUBECONFIG=", "orders-db-app", "3/3"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let hosts = machine.processes().into_iter().filter(|line| line.contains(" run --plugins ")).count();
    assert_eq!(hosts, 1);

    let said = machine.finished("stop.sh").await;
    assert!(said.contains("the host has ended") && said.contains("the control plane has ended"), "{said}");
    machine.nothing_is_left().await;

    let said = machine.finished("stop.sh").await;
    assert!(said.contains("no host was running") && said.contains("no control plane was running"), "{said}");
    machine.nothing_is_left().await;
}

#[tokio::test]
async fn what_was_interrupted_can_be_stopped_at_once() {
    for part in ["starting a control plane", "starting the host"] {
        let machine = Machine::new();
        machine.interrupted_at(part).await;
        machine.finished("stop.sh").await;
        machine.nothing_is_left().await;
    }
}
