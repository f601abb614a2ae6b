//! WASI 0.2 for components that cannot do without: everything denied, and what cannot be denied made of the request.
//!
//! Components of most languages import WASI whether they use it or not. They get no file, no network, no variable, no
//! argument. Output goes to the log. Clocks begin at `desired.now` and stand still, except that a wait moves them on
//! by as long as it would have taken, at once. Randomness is a function of `desired.seed`. So the same request gives
//! the same actions here too, and no guest can wait beyond its limits.
//!
//! What is not offered is linked all the same, as languages import far more than they call: a call gets WASI's own error
//! if the function has one, else it traps with the function's name ([`absent`]). Whatever 0.2 version a component asks for, it gets, as functions that it knows do not change.

mod absent;
mod cli;
mod clocks;
mod random;
mod streams;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType};

use crate::call::CallState;
use crate::log::LogBook;

/// Handles of one call: streams, pollables, and the guest's own resources. Each takes memory of the host.
pub(crate) const HANDLES_MAX: usize = 1_000;

/// A call of something that no plugin gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// A function of WASI.
    #[error("called `{0}`, which no plugin may")]
    Function(String),
    /// The guest wants to end its process.
    #[error("exited")]
    Exit,
    /// More random bytes at once than anybody needs.
    #[error("asked for {0} random bytes at once")]
    Random(u64),
    /// As WASI demands.
    #[error("waited for nothing")]
    EmptyPoll,
    /// A stream or a pollable that is none.
    #[error("used a handle that is closed")]
    Handle,
}

/// What WASI shows to one call.
#[derive(Debug)]
pub(crate) struct Wasi {
    clock: clocks::Clock,
    random: random::Random,
    output: streams::Output,
}

impl Wasi {
    /// Clocks at `now`, RFC 3339, and randomness from `seed`.
    pub(crate) fn new(now: &str, seed: u64) -> Self {
        Self {
            clock: clocks::Clock::at(now),
            random: random::Random::new(seed),
            output: streams::Output::default(),
        }
    }

    /// What was written to stderr last, for the message of a trap.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.output.last_words()
    }

    /// Logs lines that were not ended.
    pub(crate) fn finish(&mut self, log: &mut LogBook) {
        self.output.finish(log);
    }
}

/// What `describe` gets: a time without meaning. Not zero, which Go's runtime takes for a clock that is broken.
impl Default for Wasi {
    fn default() -> Self {
        Self::new("2000-01-01T00:00:00Z", 0)
    }
}

/// An input stream; there is only the empty one.
pub(crate) struct InputStream;
/// An output stream; its number is the file descriptor.
pub(crate) struct OutputStream;
/// Something that can be waited for; its number is a place in [`clocks::Clock`].
pub(crate) struct Pollable;
/// A stream's error; none is ever made.
pub(crate) struct IoError;
/// Any other resource; none is ever made.
pub(crate) struct Absent;

/// Links all that this component imports of WASI.
pub(crate) fn link(linker: &mut Linker<CallState>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (name, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let Some(interface) = name.strip_prefix("wasi:").and_then(|name| name.split('@').next()) else {
            continue;
        };
        let mut at = linker.instance(name)?;
        for (item, export) in instance.exports(engine) {
            match export.ty {
                ComponentItem::Resource(_) => resource(&mut at, item)?,
                ComponentItem::ComponentFunc(signature) if !function(&mut at, interface, item)? => {
                    absent::define(&mut at, name, item, &signature)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Interfaces name the resources of others by the same names, so a name says which it is.
fn resource(at: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    match name {
        "input-stream" => at.resource(name, ResourceType::host::<InputStream>(), |_, _| Ok(())),
        "output-stream" => at.resource(name, ResourceType::host::<OutputStream>(), |_, _| Ok(())),
        "error" => at.resource(name, ResourceType::host::<IoError>(), |_, _| Ok(())),
        "pollable" => at.resource(name, ResourceType::host::<Pollable>(), |mut store, place| {
            store.data_mut().wasi.clock.forget(place);
            Ok(())
        }),
        _ => at.resource(name, ResourceType::host::<Absent>(), |_, _| Ok(())),
    }
}

/// Links one function, if it is one that is offered.
fn function(at: &mut LinkerInstance<'_, CallState>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    Ok(cli::define(at, interface, name)?
        || clocks::define(at, interface, name)?
        || random::define(at, interface, name)?
        || streams::define(at, interface, name)?)
}
