//! From a component to native code, mostly in a child process.
//!
//! Compiling is the most memory-hungry and longest thing that the host does with foreign bytes: seconds and hundreds of
//! MiB for a Python component. A child's memory goes back to the system when it ends, its limits are the kernel's, and
//! if the compiler falls over it takes nothing along. One child runs at a time, at low priority.
//!
//! The child gets the component on stdin and answers with the code on stdout, or with a line of text on stderr. The
//! parent sets the child's limits (`prlimit`) before it sends the first byte, so the child needs no arguments.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use crate::cache::FILE_BYTES_MAX;
use crate::engine;

/// Bytes of a child's error text that are kept.
const STDERR_BYTES_MAX: u64 = 4 << 10;
/// Added to the child's niceness: passes go first.
const NICENESS: i32 = 10;

/// How components are compiled.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// In this process and without limits: for one's own components, as in `pilothouse render`.
    InProcess,
    /// In a child process that calls [`compile_main`].
    Child {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// What it may use.
        limits: CompileLimits,
    },
}

/// What one compilation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Address space of the child, bytes.
    pub memory_bytes: u64,
    /// CPU time of the child, seconds.
    pub cpu_seconds: u64,
    /// Time until an answer, seconds.
    pub wall_seconds: u64,
}

impl Default for CompileLimits {
    /// Three to six times what the largest Python components take (10 s, 350 MiB).
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, cpu_seconds: 60, wall_seconds: 120 }
    }
}

/// No code was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The compiler says that the component is not valid, or uses a feature that is switched off.
    #[error("{0}")]
    Refused(String),
    /// The child used up its memory, or crashed in another way.
    #[error("the compiler died ({status}) with {} MiB of address space: {message}", memory_bytes >> 20)]
    Died {
        /// How.
        status: String,
        /// What it wrote last.
        message: String,
        /// Its limit.
        memory_bytes: u64,
    },
    /// It was stopped at a limit of time.
    #[error("the compiler took longer than {seconds} s of {what}")]
    Time {
        /// CPU time or wall time.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The code is larger than what the host maps.
    #[error("the code has more than {} MiB", FILE_BYTES_MAX >> 20)]
    TooLarge,
    /// The host's fault: no child could be started, or it could not be talked to.
    #[error("cannot run the compiler {program}: {reason}")]
    Unavailable {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
}

impl Compiler {
    /// Compiles one component. Blocks for as long as that takes.
    pub(crate) fn compile(&self, wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
        match self {
            Self::InProcess => in_process(wasm),
            Self::Child { program, arguments, limits } => {
                let mut command = Command::new(program);
                command.args(arguments);
                let unavailable = |error: io::Error| CompileError::Unavailable {
                    program: program.display().to_string(),
                    reason: error.to_string(),
                };
                in_child(command, wasm, limits).map_err(unavailable)?
            }
        }
    }
}

fn in_process(wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
    let compiled = engine::compiler().and_then(|engine| engine.precompile_component(wasm));
    compiled.map_err(|error| CompileError::Refused(format!("{error:#}")))
}

/// The body of the hidden command that [`Compiler::Child`] runs: reads a component from stdin, writes its code to
/// stdout. The limits are set from outside.
pub fn compile_main() -> ExitCode {
    // A host that was killed leaves no compiler behind. Neither call can fail in a way that matters here.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let _ = rustix::process::nice(NICENESS);
    let run = || -> Result<(), String> {
        let mut wasm = Vec::new();
        io::stdin().lock().read_to_end(&mut wasm).map_err(|error| format!("cannot read stdin: {error}"))?;
        let code = in_process(&wasm).map_err(|error| error.to_string())?;
        io::stdout().lock().write_all(&code).map_err(|error| format!("cannot write stdout: {error}"))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed the exit code has to do.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The outer error is of the host, the inner one of the component.
fn in_child(
    mut command: Command,
    wasm: &[u8],
    limits: &CompileLimits,
) -> io::Result<Result<Vec<u8>, CompileError>> {
    command.env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = Killed(command.spawn()?);
    let pid = Pid::from_child(&child.0);
    let bound = |limit| Rlimit { current: Some(limit), maximum: Some(limit) };
    rustix::process::prlimit(Some(pid), Resource::As, bound(limits.memory_bytes))?;
    rustix::process::prlimit(Some(pid), Resource::Core, bound(0))?;
    // SIGXCPU at the soft limit ends it; a second later nothing could have caught that.
    let cpu = Rlimit { current: Some(limits.cpu_seconds), maximum: Some(limits.cpu_seconds + 1) };
    rustix::process::prlimit(Some(pid), Resource::Cpu, cpu)?;
    converse(child, wasm, limits)
}

/// Kills the child if it still runs, and collects it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends the component and collects the answer.
fn converse(
    mut child: Killed,
    wasm: &[u8],
    limits: &CompileLimits,
) -> io::Result<Result<Vec<u8>, CompileError>> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty())?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take())
    else {
        return Err(io::Error::other("its pipes are missing"));
    };
    thread::scope(|scope| {
        let (ended, wait) = mpsc::channel::<()>();
        // Ends the child at the limit, which closes its pipes and so ends everything below.
        let watchdog = scope.spawn(move || {
            let timeout = wait.recv_timeout(Duration::from_secs(limits.wall_seconds));
            let late = timeout == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                // By its descriptor: the process id may be another's by now.
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            }
            late
        });
        // A child that stops reading has ended or will be ended; its status tells more than a broken pipe.
        scope.spawn(move || stdin.write_all(wasm));
        let message = scope.spawn(move || read_at_most(stderr, STDERR_BYTES_MAX));
        // One byte more than allowed shows that there is more.
        let code = read_at_most(stdout, FILE_BYTES_MAX + 1);
        if code.as_ref().is_ok_and(|code| code.len() as u64 > FILE_BYTES_MAX) {
            let _ = child.0.kill();
        }
        let status = child.0.wait();
        drop(ended);
        let late = watchdog.join().unwrap_or(false);
        let message = message.join().ok().and_then(Result::ok).unwrap_or_default();
        Ok(judge(code?, status?, &message, late, limits))
    })
}

fn read_at_most(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(bytes_max).read_to_end(&mut content)?;
    Ok(content)
}

fn judge(
    code: Vec<u8>,
    status: ExitStatus,
    message: &[u8],
    late: bool,
    limits: &CompileLimits,
) -> Result<Vec<u8>, CompileError> {
    if late {
        return Err(CompileError::Time { what: "wall time", seconds: limits.wall_seconds });
    }
    if code.len() as u64 > FILE_BYTES_MAX {
        return Err(CompileError::TooLarge);
    }
    if status.success() {
        return Ok(code);
    }
    let message = crate::log::excerpt(&String::from_utf8_lossy(message));
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return Err(CompileError::Time { what: "CPU time", seconds: limits.cpu_seconds });
    }
    match status.code() {
        Some(_) => Err(CompileError::Refused(message)),
        None => {
            Err(CompileError::Died { status: status.to_string(), message, memory_bytes: limits.memory_bytes })
        }
    }
}
