//! What can go wrong with a plugin, sorted by what the caller does about it.
//!
//! [`PrepareError`]: this version of the plugin cannot be served, the old one keeps serving. [`CallError`]: this pass
//! failed, the key backs off. [`SandboxError`]: the host cannot start. Texts that a guest has a hand in are cut and
//! cleaned where they enter ([`crate::log::clean`]).

use std::path::PathBuf;
use std::time::Duration;

use pilothouse_model::manifest::ManifestError;

use crate::compile::CompileError;

/// The sandbox cannot be set up: a fault of the host's environment.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Most often an address space limit (`ulimit -v`).
    #[error(
        "cannot reserve address space for {slots} plugin calls of 4 GiB each (is `ulimit -v` set?): {reason}"
    )]
    Engine {
        /// Calls that are started at the same time.
        slots: u32,
        /// wasmtime's words.
        reason: String,
    },
    /// The directory holds native code, so nobody else may write it.
    #[error("cache directory {}: {problem}", path.display())]
    CacheDir {
        /// The directory.
        path: PathBuf,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// A component cannot be served: what is wrong, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Neither a component nor a core module.
    #[error("is no WebAssembly: {0}")]
    NotWasm(String),
    /// What `cargo build --target wasm32-…` alone makes.
    #[error(
        "is a core module, not a component: build it with `cargo component build --release --target wasm32-unknown-unknown`, or wrap it with `wasm-tools component new MODULE.wasm -o COMPONENT.wasm`"
    )]
    CoreModule,
    /// Bytes bound compile time and memory.
    #[error("has {bytes} bytes, at most {max} are accepted")]
    TooLarge {
        /// Uncompressed size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A component for another host.
    #[error(
        "is no plugin: it does not export `{}` (its exports: {})",
        crate::inspect::RECONCILER,
        list(exports)
    )]
    NotAPlugin {
        /// What it does export.
        exports: Vec<String>,
    },
    /// A plugin for an older or newer host.
    #[error(
        "`{name}` is of contract version {found}, this host knows {}: build the plugin for that version or update the host",
        crate::inspect::CONTRACT_VERSION
    )]
    ContractVersion {
        /// Import or export, as the component names it.
        name: String,
        /// Its version.
        found: String,
    },
    /// Something that no plugin gets.
    #[error(
        "imports `{0}`, which this host does not offer: a plugin may import `{log}` and WASI 0.2",
        log = crate::inspect::LOG
    )]
    ForeignImport(String),
    /// One memory, four tables: what the instance pool has.
    #[error("needs {needed} {what}, at most {max} are offered")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many it needs.
        needed: u64,
        /// The limit.
        max: u64,
    },
    /// The compiler refused it, or ran into its own limits.
    #[error("cannot be compiled: {0}")]
    Compile(#[from] CompileError),
    /// Imports or exports have other types than the contract's.
    #[error("does not fit the contract {version}: {0}", version = crate::inspect::CONTRACT_VERSION)]
    Contract(String),
    /// It trapped or broke a limit while it described itself.
    #[error("`describe` failed: {0}")]
    Describe(#[from] CallError),
    /// It described itself wrongly.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The compiled code could not be mapped: a fault of the host's environment.
    #[error("compiled code cannot be mapped: {0}")]
    Map(String),
}

impl PrepareError {
    /// One word for metrics, conditions and events; a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotWasm(_) | Self::CoreModule => "NotAComponent",
            Self::TooLarge { .. } | Self::TooMany { .. } => "TooLarge",
            Self::NotAPlugin { .. } => "NotAPlugin",
            Self::ContractVersion { .. } => "ContractVersion",
            Self::ForeignImport(_) | Self::Contract(_) => "ContractMismatch",
            Self::Compile(_) => "CompileFailed",
            Self::Describe(_) => "DescribeFailed",
            Self::Manifest(_) => "ManifestInvalid",
            Self::Map(_) => "HostFault",
        }
    }
}

/// A call failed. Unless said otherwise the plugin is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The guest did something that WebAssembly or this host stops: a panic, an access out of bounds, a call of
    /// something denied.
    #[error("trapped: {message}{}", function.as_deref().map(|name| format!(" in `{name}`")).unwrap_or_default())]
    Trap {
        /// wasmtime's words for the trap, and the guest's last error line, for example a panic's text.
        message: String,
        /// Innermost function, if the component has a name section.
        function: Option<String>,
    },
    /// `limits.cpu_ms`.
    #[error("used more than its {} of CPU time", millis(*limit))]
    CpuLimit {
        /// The limit.
        limit: Duration,
    },
    /// `limits.wait_ms`. The host is short of processors, or neighbours use them up.
    #[error("waited more than {} for its turn on a processor", millis(*limit))]
    WaitLimit {
        /// The limit.
        limit: Duration,
    },
    /// `limits.memory_bytes`, or what all plugins may use together.
    #[error("needs more than its {} of memory{}", mebibytes(*limit_bytes), if *shared { " (the limit of all calls together)" } else { "" })]
    MemoryLimit {
        /// The limit.
        limit_bytes: u64,
        /// True if the call was within its own limit, and all calls together would not have been.
        shared: bool,
    },
    /// `limits.output_bytes`.
    #[error("returned more than its {} of output", mebibytes(*limit_bytes))]
    OutputLimit {
        /// The limit.
        limit_bytes: u64,
    },
    /// `limits.actions`.
    #[error("returned {actions} actions, at most {limit} are allowed")]
    ActionLimit {
        /// How many.
        actions: u64,
        /// The limit.
        limit: u64,
    },
    /// Text that is no UTF-8, a list that lies outside its memory, an unknown case of a variant, a wrong handle.
    #[error("gave the host what is not valid: {0}")]
    InvalidOutput(String),
    /// The sandbox is being shut down, or the caller dropped the call. Nobody's fault.
    #[error("was stopped, as the sandbox is closing")]
    Closed,
    /// Our bug. The pass fails, the host goes on.
    #[error("failed inside the host: {0}")]
    HostFault(String),
}

impl CallError {
    /// One word for metrics, conditions and events; a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "Trap",
            Self::CpuLimit { .. } => "CpuLimit",
            Self::WaitLimit { .. } => "WaitLimit",
            Self::MemoryLimit { .. } => "MemoryLimit",
            Self::OutputLimit { .. } => "OutputLimit",
            Self::ActionLimit { .. } => "ActionLimit",
            Self::InvalidOutput(_) => "InvalidOutput",
            Self::Closed => "Closed",
            Self::HostFault(_) => "HostFault",
        }
    }
}

fn millis(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}

fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
