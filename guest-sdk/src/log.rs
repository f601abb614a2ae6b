//! Lines in the host's log, under the span of the pass. In native tests they are kept for
//! [`Outcome::log`](crate::testing::Outcome::log).

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks closely.
    Debug,
    /// A transition.
    Info,
    /// Somebody should look.
    Warn,
    /// Somebody must act.
    Error,
}

/// Writes one line at level debug.
pub fn debug(message: &str) {
    write(Level::Debug, message);
}

/// Writes one line at level info.
pub fn info(message: &str) {
    write(Level::Info, message);
}

/// Writes one line at level warn.
pub fn warn(message: &str) {
    write(Level::Warn, message);
}

/// Writes one line at level error.
pub fn error(message: &str) {
    write(Level::Error, message);
}

#[cfg(target_arch = "wasm32")]
fn write(level: Level, message: &str) {
    use crate::bindings::pilothouse::operator::log;
    let level = match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, message);
}

#[cfg(not(target_arch = "wasm32"))]
use native::write;

/// Outside a component there is no host: each thread keeps the lines of its own pass.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native {
    use std::cell::RefCell;

    use super::Level;

    thread_local! {
        static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn write(level: Level, message: &str) {
        LINES.with_borrow_mut(|lines| lines.push((level, message.to_owned())));
    }

    /// The lines since the last call.
    pub(crate) fn take() -> Vec<(Level, String)> {
        LINES.take()
    }
}
