//! The control plane of `make run`: detached from the terminal, found again by its state directory.
//!
//! The state directory holds `control-plane.json` (which processes, by pid and start time), `kubeconfig`, `log`
//! and `lock`. A daemon owns the control plane and the stand-in for the kubelet as any test would; the guardian
//! behind it cleans up even if the daemon is killed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    components::{API_SERVER, CONTROLLER_MANAGER, ETCD},
    control_plane::{ControlPlane, Options},
    custody::log_tail,
    kubeconfig,
    kubelet::KubeletOptions,
    process::Process,
    programs::Programs,
    wait::until,
};

/// Longer than [`ControlPlane::start`] takes to give up by itself.
const START_DEADLINE: Duration = Duration::from_mins(3);
/// A healthy control plane answers in milliseconds.
const HEALTH_DEADLINE: Duration = Duration::from_secs(5);
/// From SIGTERM to the last component's end; SIGKILL follows.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// `control-plane.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    daemon: Process,
    /// None while it starts.
    plane: Option<Plane>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Plane {
    url: String,
    processes: BTreeMap<String, Process>,
}

/// What is there.
#[derive(Debug)]
pub enum Status {
    /// It runs and answers.
    Healthy {
        /// The API server's address.
        url: String,
        /// An administrator's kubeconfig.
        kubeconfig: PathBuf,
    },
    /// Something of it runs, but not all of it works: why.
    Unwell(String),
    /// Nothing runs.
    Absent,
}

/// A state directory and the control plane that it describes.
#[derive(Clone, Debug)]
pub struct Local {
    state: PathBuf,
}

impl Local {
    /// The control plane with this state directory.
    pub fn new(state: PathBuf) -> Self {
        Self { state }
    }

    /// `$XDG_STATE_HOME/pilothouse/run`, by default in `~/.local/state`.
    pub fn default_state() -> Result<PathBuf> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        Ok(base
            .context("neither XDG_STATE_HOME nor HOME is set: name a directory with --state")?
            .join("pilothouse/run"))
    }

    /// Makes sure that a healthy control plane runs and returns its kubeconfig. One that is healthy stays; one
    /// that is half dead is replaced. Says on standard error what it finds and does.
    pub async fn up(&self) -> Result<PathBuf> {
        fs::create_dir_all(&self.state).with_context(|| format!("cannot create {}", self.state.display()))?;
        let _lock = self.lock()?;
        if let Some(Record { daemon, plane: None }) = self.record()?
            && daemon.is_alive()
        {
            say("a control plane is already starting");
            return self.wait_for(daemon).await;
        }
        match self.status().await? {
            Status::Healthy { url, kubeconfig } => {
                say(&format!("found the control plane at {url}, healthy"));
                return Ok(kubeconfig);
            }
            Status::Unwell(why) => {
                say(&format!("found a control plane that is not healthy ({why}); replacing it"));
                self.end().await?;
            }
            Status::Absent => {}
        }
        // Here rather than in the daemon: a first build takes minutes and its progress belongs on this terminal.
        tokio::task::spawn_blocking(|| Programs::locate(&[ETCD, API_SERVER, CONTROLLER_MANAGER])).await??;
        say("starting a control plane");
        let daemon = self.spawn_daemon()?;
        self.wait_for(daemon).await
    }

    /// Ends the control plane, if there is one, and removes its state. Returns whether there was one.
    pub async fn down(&self) -> Result<bool> {
        if !self.state.is_dir() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        let ended = self.end().await?;
        fs::remove_dir_all(&self.state).with_context(|| format!("cannot remove {}", self.state.display()))?;
        Ok(ended)
    }

    /// Looks whether it runs and answers.
    pub async fn status(&self) -> Result<Status> {
        let Some(record) = self.record()? else { return Ok(Status::Absent) };
        let Some(plane) = record.plane.as_ref() else {
            let starting = record.daemon.is_alive();
            return Ok(if starting {
                Status::Unwell("it is still starting".to_owned())
            } else {
                Status::Absent
            });
        };
        let mut processes = vec![("the daemon", record.daemon)];
        processes.extend(plane.processes.iter().map(|(name, process)| (name.as_str(), *process)));
        let (alive, ended): (Vec<_>, Vec<_>) =
            processes.into_iter().partition(|(_, process)| process.is_alive());
        if alive.is_empty() {
            return Ok(Status::Absent);
        }
        if let Some((name, _)) = ended.first() {
            return Ok(Status::Unwell(format!("{name} has ended")));
        }
        let kubeconfig = self.kubeconfig();
        let answer = async {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            anyhow::Ok(kubeconfig::client(&kubeconfig).await?.request_text(request).await?)
        };
        Ok(match tokio::time::timeout(HEALTH_DEADLINE, answer).await {
            Ok(Ok(_)) => Status::Healthy { url: plane.url.clone(), kubeconfig },
            Ok(Err(error)) => Status::Unwell(format!("{error:#}")),
            Err(_) => Status::Unwell(format!("no answer within {HEALTH_DEADLINE:?}")),
        })
    }

    /// The daemon: runs a control plane until it is asked to end.
    pub async fn serve(&self) -> Result<()> {
        // Away from the terminal's signals. Refused to the leader of a process group, which is away already.
        let _ = rustix::process::setsid();
        let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let run = async {
            let plane = ControlPlane::start(Options::default()).await?;
            let kubelet = plane.kubelet(KubeletOptions::default()).await?;
            self.announce(&plane)?;
            anyhow::Ok((plane, kubelet))
        };
        let running = tokio::select! {
            running = run => running?,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        drop(running);
        Ok(())
    }

    fn announce(&self, plane: &ControlPlane) -> Result<()> {
        let daemon = Process::find(std::process::id()).context("the daemon does not see itself in /proc")?;
        fs::copy(plane.kubeconfig(), self.kubeconfig()).context("cannot write the kubeconfig")?;
        let processes =
            plane.processes()?.into_iter().map(|(name, process)| (name.to_owned(), process)).collect();
        self.write_record(&Record { daemon, plane: Some(Plane { url: plane.url().to_owned(), processes }) })
    }

    fn spawn_daemon(&self) -> Result<Process> {
        let log =
            File::create(self.log()).with_context(|| format!("cannot create {}", self.log().display()))?;
        let child = Command::new("/proc/self/exe")
            .arg("serve")
            .arg("--state")
            .arg(&self.state)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the daemon")?;
        let Some(daemon) = Process::find(child.id()) else {
            bail!("the daemon ended at once\n{}", log_tail(&self.log()))
        };
        // Written here, so that there is a record from the first moment on; the daemon completes it.
        self.write_record(&Record { daemon, plane: None })?;
        Ok(daemon)
    }

    async fn wait_for(&self, daemon: Process) -> Result<PathBuf> {
        let look = || async {
            match self.status().await {
                Ok(Status::Healthy { url, kubeconfig }) => Ok(Some(Ok((url, kubeconfig)))),
                _ if !daemon.is_alive() => Ok(Some(Err(anyhow!("the daemon ended")))),
                Ok(Status::Unwell(why)) => Err(anyhow!(why)),
                Ok(Status::Absent) => Err(anyhow!("nothing runs yet")),
                Err(error) => Err(error),
            }
        };
        let outcome = until(START_DEADLINE, look).await.unwrap_or_else(|last| Err(anyhow!(last)));
        let (url, kubeconfig) = outcome.with_context(|| {
            format!("no control plane; end of {}:\n{}", self.log().display(), log_tail(&self.log()))
        })?;
        say(&format!("the control plane at {url} is ready"));
        Ok(kubeconfig)
    }

    /// Ends the processes of the record, and no others, and forgets them.
    async fn end(&self) -> Result<bool> {
        let Some(record) = self.record()? else { return Ok(false) };
        let mut processes = vec![record.daemon];
        // The guardian is not among those that are signalled first: the daemon's end is what ends it.
        processes.extend(record.plane.iter().flat_map(|plane| plane.processes.values().copied()));
        let found = processes.iter().any(|process| process.is_alive());
        record.daemon.signal(Signal::TERM)?;
        let gone = || async { processes.iter().all(|process| !process.is_alive()) };
        if until(END_DEADLINE, gone).await.is_err() {
            for process in &processes {
                process.signal(Signal::KILL)?;
            }
            let killed = until(END_DEADLINE, gone).await;
            killed.map_err(|_| anyhow!("processes {processes:?} do not end, even by SIGKILL"))?;
        }
        for path in [self.record_path(), self.kubeconfig()] {
            let _ = fs::remove_file(path);
        }
        Ok(found)
    }

    fn lock(&self) -> Result<File> {
        let path = self.state.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    fn record(&self) -> Result<Option<Record>> {
        let path = self.record_path();
        match fs::read(&path) {
            Ok(bytes) => {
                let record = serde_json::from_slice(&bytes)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                Ok(Some(record))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn write_record(&self, record: &Record) -> Result<()> {
        let (path, partial) = (self.record_path(), self.state.join("control-plane.json.partial"));
        fs::write(&partial, serde_json::to_vec_pretty(record)?)
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn record_path(&self) -> PathBuf {
        self.state.join("control-plane.json")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    fn log(&self) -> PathBuf {
        self.state.join("log")
    }
}

fn say(what: &str) {
    eprintln!("pilothouse-harness: {what}");
}
