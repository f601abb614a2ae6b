//! The parent's side of a [guardian](crate::guardian): starts one, asks it to hold programs, ends it by dropping.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Mutex,
};

use anyhow::{Context, Result, bail};

use crate::{
    guardian::{Blow, FINGERPRINT, Program, Reply, Request},
    process::Process,
    workspace,
};

/// The name of the guardian's binary, and of this package.
const BINARY: &str = "pilothouse-harness";

/// A running guardian and the directory that ends with it.
///
/// Its methods block for the few milliseconds that a reply takes. It belongs to no async runtime, so one may be
/// shared by tests that each have their own. Dropping it returns when everything that it held is gone.
#[derive(Debug)]
pub(crate) struct Custody {
    directory: PathBuf,
    guardian: Mutex<Guardian>,
}

/// Whether a held program still runs.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Running(Process),
    /// Its exit status in words.
    Ended(String),
}

#[derive(Debug)]
struct Guardian {
    process: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Custody {
    /// Starts a guardian, building its binary first if there is none or it is another version than this code.
    pub(crate) fn begin() -> Result<Self> {
        let binary = workspace::binary(BINARY);
        if let Ok(custody) = Self::begin_with(&binary) {
            return Ok(custody);
        }
        workspace::build(BINARY)?;
        Self::begin_with(&binary).with_context(|| format!("no guardian from {}", binary.display()))
    }

    fn begin_with(binary: &Path) -> Result<Self> {
        let mut process = Command::new(binary)
            .arg("guard")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let (requests, replies) = (process.stdin.take(), process.stdout.take());
        let replies = BufReader::new(replies.context("the guardian has no standard output")?);
        let mut guardian = Guardian { process, requests, replies };
        match guardian.receive()? {
            Reply::Ready { fingerprint: FINGERPRINT, directory } => {
                Ok(Self { directory, guardian: Mutex::new(guardian) })
            }
            _ => bail!("{} was built from another version of the harness", binary.display()),
        }
    }

    /// The guardian's directory (mode 0700), removed when it ends.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the standard output and error of the program with this name go.
    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    pub(crate) fn start(&self, program: Program) -> Result<Process> {
        let name = program.name.clone();
        match self.ask(&Request::Start(program))? {
            Standing::Running(process) => Ok(process),
            Standing::Ended(status) => bail!("{name} ended at once ({status})"),
        }
    }

    pub(crate) fn deal(&self, name: &str, blow: Blow) -> Result<Standing> {
        self.ask(&Request::Deal { name: name.to_owned(), blow })
    }

    pub(crate) fn standing(&self, name: &str) -> Result<Standing> {
        self.ask(&Request::Ask { name: name.to_owned() })
    }

    /// The pid of the guardian itself.
    pub(crate) fn guardian(&self) -> Option<Process> {
        let guardian = self.guardian.lock().ok()?;
        Process::find(guardian.process.id())
    }

    fn ask(&self, request: &Request) -> Result<Standing> {
        let mut guardian =
            self.guardian.lock().map_err(|_| anyhow::anyhow!("an earlier request panicked"))?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let requests = guardian.requests.as_mut().context("the guardian was ended")?;
        requests.write_all(line.as_bytes()).context("the guardian is gone")?;
        match guardian.receive()? {
            Reply::Running(process) => Ok(Standing::Running(process)),
            Reply::Ended(status) => Ok(Standing::Ended(status)),
            Reply::Failed(message) => bail!(message),
            Reply::Ready { .. } => bail!("the guardian spoke out of turn"),
        }
    }
}

impl Guardian {
    fn receive(&mut self) -> Result<Reply> {
        let mut line = String::new();
        if self.replies.read_line(&mut line).context("the guardian is gone")? == 0 {
            bail!("the guardian ended without a reply");
        }
        serde_json::from_str(&line).with_context(|| format!("the guardian's reply {line:?}"))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.requests = None; // closes the pipe, which is the request to end
        let _ = self.process.wait();
    }
}

/// The end of a log file: what to show when the program that wrote it has failed.
pub(crate) fn log_tail(path: &Path) -> String {
    const LINES: usize = 40;
    let Ok(bytes) = std::fs::read(path) else { return format!("(no log at {})", path.display()) };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
