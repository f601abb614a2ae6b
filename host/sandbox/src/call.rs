//! One call: a fresh store and instance, the guest's work, and what came of it. Runs on the thread of a [`Turn`].

use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_model::action::{Outcome, Request};
use pilothouse_model::admission::{AdmissionRequest, Verdict};
use pilothouse_model::limits::Limits;
use wasmtime::component::Instance;
use wasmtime::{Engine, Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::bindings::v0_1::PluginPre;
use crate::bindings::v0_1::exports::pilothouse::operator::reconciler;
use crate::bindings::v0_1::further::exports::pilothouse::operator::{admission, conversion};
use crate::budget::{MemoryBudget, Refusal, SharedMemory};
use crate::convert;
use crate::error::CallError;
use crate::log::{LogBook, LogLine, excerpt};
use crate::prepare::Prepared;
use crate::turns::{Stop, Turn};
use crate::wasi::{Denied, HANDLES_MAX, Wasi};

/// Bytes that `describe` may return: a few large CRDs. More would not fit into etcd anyway.
pub const DESCRIBE_BYTES_MAX: u64 = 4 << 20;

/// What one call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time: making the instance, copying, the guest's own.
    pub cpu: Duration,
    /// Time spent waiting for a turn on a processor.
    pub wait: Duration,
    /// Memories and tables at the end, which is their peak.
    pub memory_bytes_peak: u64,
    /// Lines beyond the limits of a pass.
    pub log_lines_dropped: u32,
}

/// What came of one call. Usage and lines are there whether it failed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T = Outcome> {
    /// What the plugin decided, or why the call failed.
    pub result: Result<T, CallError>,
    /// What it used.
    pub usage: Usage,
    /// What the guest logged.
    pub logs: Vec<LogLine>,
}

impl<T> Reply<T> {
    /// A call that was never started.
    pub(crate) fn unstarted(error: CallError, waited: Duration) -> Self {
        Self { result: Err(error), usage: Usage { wait: waited, ..Usage::default() }, logs: Vec::new() }
    }
}

/// A store's data: all that belongs to one call.
pub(crate) struct CallState {
    pub(crate) log: LogBook,
    pub(crate) wasi: Wasi,
    memory: MemoryBudget,
    // Last: its slot may be taken by another call as soon as it is dropped.
    turn: Turn,
}

/// What a call needs besides the plugin.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<SharedMemory>,
}

/// Asks the plugin for its manifest.
pub(crate) fn describe(
    context: &Context,
    pre: &PluginPre<CallState>,
    limits: &Limits,
    turn: Turn,
) -> Reply<String> {
    let limits = Limits { output_bytes: DESCRIBE_BYTES_MAX, ..*limits };
    run(context, pre, &limits, turn, Wasi::default(), |instance, store| {
        reconciler_of(pre, store, instance)?.call_describe(store)
    })
}

/// One pass.
pub(crate) fn reconcile(
    context: &Context,
    pre: &PluginPre<CallState>,
    limits: &Limits,
    turn: Turn,
    request: &Request,
) -> Reply {
    let wasi = Wasi::new(&request.now, request.seed);
    let mut reply = run(context, pre, limits, turn, wasi, |instance, store| {
        let reconciler = reconciler_of(pre, store, instance)?;
        convert::arguments(request, |desired, observed| reconciler.call_reconcile(store, desired, observed))
            .map(convert::outcome)
    });
    if let Ok(outcome) = &reply.result {
        let actions = outcome.actions.len() as u64;
        if actions > limits.actions {
            reply.result = Err(CallError::ActionLimit { actions, limit: limits.actions });
        }
    }
    reply
}

/// May this object be stored?
pub(crate) fn validate(
    context: &Context,
    plugin: &Prepared,
    limits: &Limits,
    turn: Turn,
    request: AdmissionRequest,
) -> Reply<Verdict> {
    // Nothing in a request is random, so the clock is all that a guest's runtime gets.
    let wasi = Wasi::new(&request.now, 0);
    run(context, &plugin.pre, limits, turn, wasi, |instance, store| {
        let guest = admission_of(plugin, store, instance)?;
        guest.call_validate(store, &convert::admission_request(request)).map(convert::verdict)
    })
}

/// The object with defaults filled in.
pub(crate) fn default_fields(
    context: &Context,
    plugin: &Prepared,
    limits: &Limits,
    turn: Turn,
    request: AdmissionRequest,
) -> Reply<String> {
    let wasi = Wasi::new(&request.now, 0);
    run(context, &plugin.pre, limits, turn, wasi, |instance, store| {
        let guest = admission_of(plugin, store, instance)?;
        guest.call_default_fields(store, &convert::admission_request(request))
    })
}

/// The objects in another version.
pub(crate) fn convert(
    context: &Context,
    plugin: &Prepared,
    limits: &Limits,
    turn: Turn,
    objects: &[String],
    to_version: &str,
) -> Reply<Result<Vec<String>, String>> {
    run(context, &plugin.pre, limits, turn, Wasi::default(), |instance, store| {
        let indices = plugin.further.conversion.as_ref();
        let guest: conversion::Guest =
            indices.expect("only called of plugins that export conversion").load(&mut *store, instance)?;
        guest.call_convert(store, objects, to_version)
    })
}

fn reconciler_of(
    pre: &PluginPre<CallState>,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> wasmtime::Result<reconciler::Guest> {
    reconciler::GuestIndices::new(pre.instance_pre())?.load(store, instance)
}

fn admission_of(
    plugin: &Prepared,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> wasmtime::Result<admission::Guest> {
    plugin
        .further
        .admission
        .as_ref()
        .expect("only called of plugins that export admission")
        .load(store, instance)
}

fn run<T>(
    context: &Context,
    pre: &PluginPre<CallState>,
    limits: &Limits,
    turn: Turn,
    wasi: Wasi,
    call: impl FnOnce(&Instance, &mut Store<CallState>) -> wasmtime::Result<T>,
) -> Reply<T> {
    let memory = MemoryBudget::new(Arc::clone(&context.memory), limits.memory_bytes);
    let mut store = Store::new(&context.engine, CallState { log: LogBook::default(), wasi, memory, turn });
    store.limiter(|state| &mut state.memory);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        store.data_mut().turn.tick()?;
        Ok(UpdateDeadline::Continue(1))
    });
    // Bounds what lifting one result allocates, counted at the size that it has on the host. The same bound holds for
    // what one call of `log.write` or WASI hands over.
    store.set_hostcall_fuel(usize::try_from(limits.output_bytes).unwrap_or(usize::MAX));
    store.set_max_component_handles(HANDLES_MAX);

    let called = match pre.instance_pre().instantiate(&mut store) {
        Ok(instance) => call(&instance, &mut store).map_err(|error| (error, Phase::Call)),
        Err(error) => Err((error, Phase::Instantiate)),
    };
    let result = called.map_err(|(error, phase)| classify(&error, phase, store.data(), limits));
    // Gives the instance slot back, before the turn lets the next call start.
    let CallState { mut log, mut wasi, memory, turn } = store.into_data();
    wasi.finish(&mut log);
    let memory_bytes_peak = memory.peak_bytes();
    drop(memory);
    let (logs, log_lines_dropped) = log.into_parts();
    let usage = Usage { cpu: turn.cpu(), wait: turn.waited(), memory_bytes_peak, log_lines_dropped };
    Reply { result, usage, logs }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Instantiate,
    Call,
}

/// Whose fault it was. The order matters: a limit that the host enforced explains the trap that followed.
fn classify(error: &wasmtime::Error, phase: Phase, state: &CallState, limits: &Limits) -> CallError {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return stopped(*stop, state.turn.terms().cpu, state.turn.terms().wait);
    }
    if let Some(refusal) = state.memory.refused() {
        let limit_bytes = state.memory.limit_bytes(refusal);
        return CallError::MemoryLimit { limit_bytes, shared: refusal == Refusal::Shared };
    }
    if is_fuel_exhausted(error) {
        return CallError::OutputLimit { limit_bytes: limits.output_bytes };
    }
    if let Some(denied) = error.downcast_ref::<Denied>() {
        return CallError::Trap { message: with_last_words(&denied.to_string(), state), function: None };
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        let text = trap.to_string();
        let text = text.strip_prefix("wasm trap: ").unwrap_or(&text);
        return CallError::Trap {
            message: with_last_words(text, state),
            function: innermost_function(error),
        };
    }
    if let Some(error) = error.downcast_ref::<Utf8Error>() {
        return CallError::InvalidOutput(format!("text that is no UTF-8: {error}"));
    }
    match phase {
        Phase::Instantiate => CallError::HostFault(excerpt(&format!("{error:#}"))),
        // What is left are the canonical ABI's checks of pointers, lengths and cases.
        Phase::Call => CallError::InvalidOutput(excerpt(&format!("{}", error.root_cause()))),
    }
}

/// The error of a call that the host stopped, or never started.
pub(crate) fn stopped(stop: Stop, cpu: Duration, wait: Duration) -> CallError {
    match stop {
        Stop::Cpu => CallError::CpuLimit { limit: cpu },
        Stop::Wait => CallError::WaitLimit { limit: wait },
        Stop::Closed => CallError::Closed,
    }
}

/// wasmtime's type for it is private, so it can only be known by its text; a test with a guest that returns too much
/// fails when an update of wasmtime changes the words.
fn is_fuel_exhausted(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().ends_with("fuel allocated for hostcalls has been exhausted")
}

/// A trap says where, the guest's last words say why.
fn with_last_words(text: &str, state: &CallState) -> String {
    let words = state.log.last_error().map(str::to_owned).or_else(|| state.wasi.last_words());
    match words {
        Some(words) => format!("{}: {words}", excerpt(text)),
        None => excerpt(text),
    }
}

/// The innermost function that is not the language's way to a panic, if the component has a name section.
fn innermost_function(error: &wasmtime::Error) -> Option<String> {
    const RUNTIME: [&str; 6] = ["std::", "core::", "alloc::", "__rust", "rust_", "abort"];
    let trace = error.downcast_ref::<WasmBacktrace>()?;
    let names: Vec<String> = trace
        .frames()
        .iter()
        .filter_map(|frame| frame.func_name())
        // Without the hash that rustc appends.
        .map(|name| format!("{:#}", rustc_demangle::demangle(name)))
        .collect();
    let own = names
        .iter()
        .find(|name| !RUNTIME.iter().any(|prefix| name.trim_start_matches('<').starts_with(prefix)));
    own.or_else(|| names.first()).map(|name| excerpt(name))
}
