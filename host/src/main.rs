//! `pilothouse`: parse the command line, run the command, return its exit code.

mod abandoned;
mod cli;
mod controller;
mod leader;
mod log;
mod look_ups;
mod metrics;
mod plugins;
mod reconcile;
mod related;
mod run;
mod serve;
mod shelf;
mod snapshot;
mod sources;
mod supervisor;
mod view;
mod webhooks;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

/// A pass makes and frees a thousand small values, on whatever thread it is at that moment: a tenth less processor time
/// than with glibc's. Its settings are in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => {
            args.config().and_then(|config| Ok(run::run(config)?)).map(|()| ExitCode::SUCCESS)
        }
        Command::New(args) => cli::new::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Render(args) => cli::render::main(&args),
        Command::Check(args) => cli::check::main(&args),
        Command::Inspect(args) => cli::inspect::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Crds(args) => cli::crds::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Rbac(args) => cli::rbac::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Package(args) => cli::package::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Compile => Ok(pilothouse_sandbox::compile_main()),
    };
    done.unwrap_or_else(|exit| {
        cli::output::say(&format!("error: {}", exit.message));
        exit.code.into()
    })
}
