//! Any operator as a process: what the benchmarks run beside the host, and in the same way.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};

use crate::{
    custody::{Custody, Standing, log_tail},
    guardian::{Blow, Program},
    process::{Process, Usage},
    wait::until,
};

/// What the guardian and the log call it.
const NAME: &str = "operator";
/// Time to end after SIGTERM.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// How to start an operator.
#[derive(Clone, Debug)]
pub struct OperatorCommand {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to the environment of this process.
    pub environment: BTreeMap<String, String>,
}

/// An operator's process. Dropping it kills it.
#[derive(Debug)]
pub struct Operator {
    custody: Custody,
    process: Process,
}

impl Operator {
    /// Starts it, and does not wait for anything.
    pub fn start(command: &OperatorCommand) -> Result<Self> {
        let custody = Custody::begin()?;
        let OperatorCommand { path, arguments, environment } = command.clone();
        let process = custody.start(Program { name: NAME.to_owned(), path, arguments, environment })?;
        Ok(Self { custody, process })
    }

    /// Its memory and CPU time so far; an error with the end of its log if it has ended.
    pub fn usage(&self) -> Result<Usage> {
        self.process.usage().with_context(|| format!("the operator's log ends with\n{}", self.log()))
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub async fn terminate(self) -> Result<()> {
        self.custody.deal(NAME, Blow::Terminate)?;
        let look = || async {
            let standing = self.custody.standing(NAME);
            standing.map(|standing| matches!(standing, Standing::Ended(_)).then_some(()))
        };
        match until(END_DEADLINE, look).await {
            Ok(()) => Ok(()),
            Err(_) => {
                bail!("the operator still runs after {END_DEADLINE:?}; its log ends with\n{}", self.log())
            }
        }
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        log_tail(&self.custody.log_path(NAME))
    }
}
