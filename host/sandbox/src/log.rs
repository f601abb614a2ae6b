//! The one thing that a plugin may call: `log.write`. Lines are kept with the call and handed to the caller, who
//! knows the span that they belong to.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmStr};

use crate::bindings::v0_1::pilothouse::operator::log::Level as WitLevel;
use crate::call::CallState;
use crate::inspect;

/// Lines of one pass, as the contract says.
pub const LOG_LINES_MAX: usize = 100;
/// Bytes of one pass's lines, as the contract says.
pub const LOG_BYTES_MAX: usize = 64 << 10;
/// Bytes of a guest's text that goes into an error, a condition, an event.
const EXCERPT_BYTES_MAX: usize = 512;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the plugin's author.
    Debug,
    /// A fact.
    Info,
    /// Somebody should look.
    Warn,
    /// Somebody must act.
    Error,
}

/// One line that a guest logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// The text without control characters, so that it cannot forge other lines.
    pub message: String,
}

/// Lines of one call, within their limits.
#[derive(Debug, Default)]
pub(crate) struct LogBook {
    lines: Vec<LogLine>,
    bytes: usize,
    dropped: u32,
    last_error: Option<String>,
}

impl LogBook {
    /// Keeps a line, or counts it as dropped.
    pub(crate) fn write(&mut self, level: Level, message: &str) {
        if level == Level::Error {
            // Kept apart from the lines: a panic's text is wanted most after a flood of lines.
            self.last_error = Some(excerpt(message));
        }
        if self.lines.len() >= LOG_LINES_MAX || self.bytes + message.len() > LOG_BYTES_MAX {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.bytes += message.len();
        self.lines.push(LogLine { level, message: clean(message) });
    }

    /// An excerpt of the last line of level error.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The lines, and how many more there were.
    pub(crate) fn into_parts(self) -> (Vec<LogLine>, u32) {
        (self.lines, self.dropped)
    }
}

/// A guest's text without what could forge lines or steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The beginning of a guest's text, cleaned.
pub(crate) fn excerpt(text: &str) -> String {
    if text.len() <= EXCERPT_BYTES_MAX {
        return clean(text);
    }
    let end = text.floor_char_boundary(EXCERPT_BYTES_MAX);
    format!("{}…", clean(&text[..end]))
}

/// Links `log.write`.
pub(crate) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.instance(inspect::LOG)?.func_wrap("write", write)
}

/// `WasmStr` lies in the guest's memory: what is dropped is never copied.
fn write(
    mut store: StoreContextMut<'_, CallState>,
    (level, text): (WitLevel, WasmStr),
) -> wasmtime::Result<()> {
    let level = match level {
        WitLevel::Debug => Level::Debug,
        WitLevel::Info => Level::Info,
        WitLevel::Warn => Level::Warn,
        WitLevel::Error => Level::Error,
    };
    // The book is taken out so that the text may be read from the store meanwhile.
    let mut book = std::mem::take(&mut store.data_mut().log);
    let written = text.to_str(&store).map(|text| book.write(level, &text));
    store.data_mut().log = book;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_the_last_error_survives_it() {
        let mut book = LogBook::default();
        for at in 0..150 {
            book.write(Level::Info, &format!("line {at}"));
        }
        book.write(Level::Error, "panicked at src/lib.rs:1");
        assert_eq!(book.last_error(), Some("panicked at src/lib.rs:1"));
        let (lines, dropped) = book.into_parts();
        assert_eq!((lines.len(), dropped), (LOG_LINES_MAX, 51));
        assert_eq!(lines[99].message, "line 99");
    }

    #[test]
    fn bytes_are_bounded_whatever_the_number_of_lines() {
        let mut book = LogBook::default();
        book.write(Level::Info, &"x".repeat(LOG_BYTES_MAX));
        book.write(Level::Info, "x");
        book.write(Level::Info, "");
        let (lines, dropped) = book.into_parts();
        assert_eq!((lines.len(), dropped), (2, 1), "an empty line still fits");
    }

    #[test]
    fn a_line_cannot_forge_another() {
        assert_eq!(clean("a\nINFO all is well\u{1b}[2J\r\n"), "a INFO all is well [2J");
        let long = "ä".repeat(EXCERPT_BYTES_MAX);
        assert!(excerpt(&long).len() <= EXCERPT_BYTES_MAX + '…'.len_utf8());
    }
}
