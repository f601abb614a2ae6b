//! The control plane of `make run`, and the guardian behind every control plane of a test.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use pilothouse_harness::{
    guardian,
    local::{Local, Status},
};
use tracing_subscriber::EnvFilter;

/// A Kubernetes control plane on this machine, without containers.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start a control plane, or find the one that runs; prints the path of its kubeconfig.
    /// With KUBECONFIG set, that cluster is taken and nothing is started.
    Up(State),
    /// End the control plane and remove its state.
    Down(State),
    /// Say what runs; the exit code is 0 if it is healthy and 3 if not.
    Status(State),
    /// The process behind `up`.
    #[command(hide = true)]
    Serve(State),
    /// Hold processes for the parent; see the module `guardian`.
    #[command(hide = true)]
    Guard,
    /// Become a program that ends with its guardian.
    #[command(hide = true)]
    Become {
        guardian: u32,
        program: PathBuf,
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

#[derive(clap::Args)]
struct State {
    /// Where the control plane's record and kubeconfig are kept [default: $XDG_STATE_HOME/pilothouse/run].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl State {
    fn local(self) -> Result<Local> {
        Ok(Local::new(self.state.map_or_else(Local::default_state, Ok)?))
    }
}

/// Without what kube's client says about each refused connection: waiting for a server is a series of those.
const LOG_FILTER: &str = "info,kube_client=off";

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG_FILTER));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_env_filter(filter).init();
    match start(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pilothouse-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(action: Action) -> Result<ExitCode> {
    match action {
        // On the main thread, as `guard` asks for.
        Action::Guard => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(guardian::guard()).map(|()| ExitCode::SUCCESS)
        }
        Action::Become { guardian, program, arguments } => {
            guardian::become_program(guardian, &program, &arguments).map(|()| ExitCode::SUCCESS)
        }
        other => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(run(other))
        }
    }
}

#[expect(clippy::print_stdout, reason = "the results of these commands")]
async fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Up(state) => {
            if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
                let path = std::env::split_paths(&paths).next().context("KUBECONFIG names no file")?;
                eprintln!("pilothouse-harness: KUBECONFIG is set; taking that cluster and starting nothing");
                println!("{}", path.display());
            } else {
                println!("{}", state.local()?.up().await?.display());
            }
        }
        Action::Down(state) => {
            let ended = state.local()?.down().await?;
            println!(
                "{}",
                if ended { "the control plane has ended" } else { "no control plane was running" }
            );
        }
        Action::Status(state) => match state.local()?.status().await? {
            Status::Healthy { url, kubeconfig } => {
                println!("healthy at {url}\nkubeconfig: {}", kubeconfig.display());
            }
            Status::Unwell(why) => {
                println!("not healthy: {why}");
                return Ok(ExitCode::from(3));
            }
            Status::Absent => {
                println!("no control plane is running");
                return Ok(ExitCode::from(3));
            }
        },
        Action::Serve(state) => state.local()?.serve().await?,
        Action::Guard | Action::Become { .. } => unreachable!("`main` runs these itself"),
    }
    Ok(ExitCode::SUCCESS)
}
