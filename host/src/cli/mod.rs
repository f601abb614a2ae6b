//! The command line: one file for each command. A command turns arguments into calls of the crates below, and what
//! comes back into text and an exit code; it decides nothing about plugins.

pub(crate) mod check;
pub(crate) mod crds;
pub(crate) mod documents;
pub(crate) mod exit;
pub(crate) mod inspect;
pub(crate) mod lease;
pub(crate) mod new;
pub(crate) mod offline;
pub(crate) mod output;
pub(crate) mod package;
pub(crate) mod plugin;
pub(crate) mod rbac;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod webhook;

/// One process that hosts many Kubernetes operators, each a sandboxed WebAssembly component
#[derive(Debug, clap::Parser)]
#[command(version, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    New(new::NewArgs),
    Render(render::RenderArgs),
    Check(check::CheckArgs),
    Inspect(inspect::InspectArgs),
    Crds(crds::CrdsArgs),
    Rbac(rbac::RbacArgs),
    Package(package::PackageArgs),
    /// Compile a component from stdin to native code on stdout; the host runs itself with this in a child process
    #[command(hide = true)]
    Compile,
}
