//! Everything of the host that knows wasmtime: from a component's bytes to a plugin that can be called
//! ([`Sandbox::prepare`]), and one call under its limits ([`Sandbox::reconcile`], [`Sandbox::validate`], …).
//!
//! A plugin is hostile until proven otherwise. So each call has a fresh instance, and five limits that cannot be left
//! out ([`pilothouse_model::limits::Limits`]); a guest sees its arguments and nothing else of the world; and what it
//! does wrong is an error of its pass, with a reason of a closed list, never of the host.
//!
//! - [`inspect`]: what a component imports and exports, before anything is done with it
//! - `compile`, `cache`, `prepare`: to mapped code and a linked instance
//! - `turns`: threads, permits and whose turn it is; `budget`: memory; `call`: one call; `convert`: its values
//! - `log`, `wasi`: what a guest may call
//!
//! It may not know Kubernetes, the network, or what an action means.

mod bindings;
mod budget;
mod cache;
mod call;
mod compile;
mod convert;
mod engine;
mod error;
pub mod inspect;
mod log;
mod prepare;
mod sandbox;
mod turns;
mod wasi;

pub use crate::call::{DESCRIBE_BYTES_MAX, Reply, Usage};
pub use crate::compile::{CompileError, CompileLimits, Compiler, compile_main};
pub use crate::error::{CallError, PrepareError, SandboxError};
pub use crate::inspect::CONTRACT_VERSION;
pub use crate::log::{LOG_BYTES_MAX, LOG_LINES_MAX, Level, LogLine};
pub use crate::prepare::Prepared;
pub use crate::sandbox::{Sandbox, SandboxOptions};
