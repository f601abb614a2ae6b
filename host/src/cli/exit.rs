//! How a command ends when it does not end well. One list of exit codes for all commands, so that scripts need only
//! learn it once.

use std::fmt;
use std::process::ExitCode;

use pilothouse_fetch::FetchError;
use pilothouse_sandbox::{CallError, CompileError, PrepareError, SandboxError};

use crate::run::RunError;

/// Shown below the options of each command that loads plugins.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed for a reason outside the input (cannot write, no memory, …)
  2  bad input: arguments, files, or a component that is no plugin
  3  the plugin trapped or exceeded a limit";

/// Which exit code; a higher one is worse news about the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    /// Nobody's input is at fault; for `render`: the plugin says that it failed, or the host would refuse the plan.
    Failed = 1,
    /// The user must change something.
    BadInput = 2,
    /// A trap or a limit.
    Stopped = 3,
}

/// Why a command ended early. The message is one line that names the file or field and what would be right.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Exit {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: Code::Failed, message: message.into() }
    }

    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Self { code: Code::BadInput, message: message.into() }
    }

    /// Puts what it is about before the message.
    pub(crate) fn about(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl From<RunError> for Exit {
    fn from(error: RunError) -> Self {
        match error {
            RunError::BadInput(error) => Self::bad_input(format!("{error:#}")),
            RunError::Failed(error) => Self::failed(format!("{error:#}")),
        }
    }
}

impl From<FetchError> for Exit {
    fn from(error: FetchError) -> Self {
        Self::bad_input(error.to_string())
    }
}

impl From<SandboxError> for Exit {
    fn from(error: SandboxError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<PrepareError> for Exit {
    fn from(error: PrepareError) -> Self {
        let code = match &error {
            PrepareError::Describe(call) => code_of(call),
            PrepareError::Map(_) | PrepareError::Compile(CompileError::Unavailable { .. }) => Code::Failed,
            PrepareError::Compile(
                CompileError::Died { .. } | CompileError::Time { .. } | CompileError::TooLarge,
            ) => Code::Stopped,
            _ => Code::BadInput,
        };
        Self { code, message: error.to_string() }
    }
}

/// Traps, limits and outcomes that are none are the plugin's; the rest is ours.
pub(crate) fn code_of(error: &CallError) -> Code {
    match error {
        CallError::HostFault(_) | CallError::Closed => Code::Failed,
        _ => Code::Stopped,
    }
}
