//! The guardian: a small process that holds other processes for its parent and ends with it.
//!
//! A test may end in any way: it returns, panics, or is killed with SIGKILL, which leaves it no chance to clean
//! up. So the components of a control plane, and the host under test, are never children of the test itself.
//! They are children of a guardian, which reads requests from a pipe that only the test holds. When that pipe
//! closes, the guardian kills what it holds, removes its directory, and exits. Should the guardian itself be
//! killed, the kernel kills its children: each asked for that signal before it became its program.
//!
//! This file is the guardian's side; [`crate::custody`] is the parent's. Both are one line of JSON each way:
//! a [`Request`], then a [`Reply`], strictly in turns.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};

use crate::process::Process;

/// Changes with this file, so that a test never talks to a guardian that was built from another version of it.
pub(crate) const FINGERPRINT: u64 = fingerprint(include_bytes!("guardian.rs"));

/// A program to hold. Its standard output and error go to `NAME.log` in the guardian's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// What the requests call it, and its log; one running program for each name.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Added to the environment that the guardian inherited from the test.
    pub(crate) environment: BTreeMap<String, String>,
}

/// What may be done to a held program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blow {
    /// SIGTERM; the program ends in its own time.
    Terminate,
    /// SIGKILL; the reply is sent when it is gone.
    Kill,
    /// SIGSTOP: connections stay open and nothing is answered.
    Pause,
    /// SIGCONT.
    Resume,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Program),
    Deal { name: String, blow: Blow },
    Ask { name: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The first line, unasked for.
    Ready {
        fingerprint: u64,
        directory: PathBuf,
    },
    Running(Process),
    /// The program's exit status in words.
    Ended(String),
    Failed(String),
}

/// Runs the guardian on standard input and output until the input closes or a signal asks it to end.
///
/// Must run on the process's main thread: the kernel takes the death of the *thread* that started a child for the
/// death of its parent.
pub async fn guard() -> Result<()> {
    // A session of its own: Ctrl-C in the test's terminal must reach the guardian as a closed pipe, after the
    // test has ended, not as a signal that takes components away from under it. Refused only to the leader of a
    // process group, which then has that independence already.
    let _ = rustix::process::setsid();
    let mut ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .into_iter()
        .map(signal)
        .collect::<std::io::Result<Vec<_>>>()
        .context("cannot wait for signals")?;

    // Mode 0700: keys and kubeconfigs live here.
    let directory =
        tempfile::Builder::new().prefix("pilothouse-").tempdir().context("no temporary directory")?;
    let mut held = Held { directory: directory.path().to_owned(), programs: BTreeMap::new() };
    reply(&Reply::Ready { fingerprint: FINGERPRINT, directory: held.directory.clone() })?;

    // As a pipe rather than as standard input, which tokio reads on a thread that could hold up the end.
    let input = std::io::stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    let input = pipe::Receiver::from_owned_fd(input).context("standard input must be a pipe")?;
    let mut requests = BufReader::new(input).lines();
    loop {
        let signalled = futures::future::select_all(ends.iter_mut().map(|end| Box::pin(end.recv())));
        let line = tokio::select! {
            line = requests.next_line() => line,
            _ = signalled => break,
        };
        let Ok(Some(line)) = line else { break };
        let request = serde_json::from_str(&line).with_context(|| format!("request {line:?}"))?;
        let answer = held.carry_out(request).unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        if reply(&answer).is_err() {
            break; // nobody reads any more
        }
    }
    drop(held);
    directory.close().context("cannot remove the guardian's directory")
}

/// Becomes the program, after asking the kernel for SIGKILL when the guardian ends. Returns only on failure.
///
/// This is its own short-lived process image rather than a hook between fork and exec, which would be unsafe.
pub fn become_program(guardian: u32, program: &Path, arguments: &[String]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("no parent death signal")?;
    // The guardian may have ended before the line above; then no signal will ever come.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(guardian) {
        bail!("the guardian ended before {} started", program.display());
    }
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The programs of one guardian. Dropping it kills them.
struct Held {
    directory: PathBuf,
    programs: BTreeMap<String, Child>,
}

impl Held {
    fn carry_out(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::Start(program) => self.start(&program),
            Request::Deal { name, blow } => self.deal(&name, blow),
            Request::Ask { name } => status(self.program(&name)?),
        }
    }

    fn start(&mut self, program: &Program) -> Result<Reply> {
        if let Some(child) = self.programs.get_mut(&program.name)
            && child.try_wait()?.is_none()
        {
            bail!("{} is already running", program.name);
        }
        let log = self.directory.join(format!("{}.log", program.name));
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        // By this name the guardian's program is found even after a build has replaced its file.
        let child = Command::new("/proc/self/exe")
            .args(["become", &std::process::id().to_string()])
            .arg(&program.path)
            .arg("--")
            .args(&program.arguments)
            .envs(&program.environment)
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .current_dir(&self.directory)
            .spawn()
            .with_context(|| format!("cannot start {}", program.name))?;
        let started = Process::find(child.id());
        let child = self.programs.entry(program.name.clone()).insert_entry(child).into_mut();
        started.map_or_else(|| status(child), |process| Ok(Reply::Running(process)))
    }

    fn deal(&mut self, name: &str, blow: Blow) -> Result<Reply> {
        let child = self.program(name)?;
        // The child has not been waited for since, so the pid is its own.
        if let Some(process) = Process::find(child.id()) {
            process.signal(match blow {
                Blow::Terminate => Signal::TERM,
                Blow::Kill => Signal::KILL,
                Blow::Pause => Signal::STOP,
                Blow::Resume => Signal::CONT,
            })?;
        }
        if blow == Blow::Kill {
            child.wait()?;
        }
        status(child)
    }

    fn program(&mut self, name: &str) -> Result<&mut Child> {
        self.programs.get_mut(name).with_context(|| format!("{name} was never started"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // All of them first: one that waits for another to answer must not delay its end.
        for child in self.programs.values_mut() {
            let _ = child.kill();
        }
        for child in self.programs.values_mut() {
            let _ = child.wait();
        }
    }
}

fn status(child: &mut Child) -> Result<Reply> {
    if let Some(status) = child.try_wait()? {
        return Ok(Reply::Ended(status.to_string()));
    }
    match Process::find(child.id()) {
        Some(process) => Ok(Reply::Running(process)),
        None => Ok(Reply::Ended(child.wait()?.to_string())), // it ended between the two looks
    }
}

fn reply(reply: &Reply) -> Result<()> {
    let line = serde_json::to_string(reply)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// FNV-1a, 64 bits.
const fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}
