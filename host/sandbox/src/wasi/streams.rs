//! Standard streams: input is empty, output goes to the log line by line.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, LinkerInstance, Lower, Resource};

use super::{Denied, InputStream, IoError, OutputStream};
use crate::call::CallState;
use crate::log::{Level, LogBook, excerpt};

pub(super) const STDIN: u32 = 0;
pub(super) const STDOUT: u32 = 1;
pub(super) const STDERR: u32 = 2;

/// Bytes that a guest may write at once, as `check-write` says.
const WRITE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a line that has not ended; a longer one is cut into several.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes of stderr that are kept for the message of a trap.
const LAST_WORDS_BYTES_MAX: usize = 1 << 10;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[allow(dead_code, reason = "part of the type; writing to a log cannot fail")]
    LastOperationFailed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

/// What was written and has not become a line yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    last_words: Vec<u8>,
}

impl Output {
    fn write(&mut self, stream: u32, bytes: &[u8], log: &mut LogBook) -> Result<(), Denied> {
        let (unfinished, level) = match stream {
            STDOUT => (&mut self.stdout, Level::Info),
            STDERR => (&mut self.stderr, Level::Warn),
            _ => return Err(Denied::Handle),
        };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n').flat_map(|line| line.chunks(LINE_BYTES_MAX))
        {
            unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") || unfinished.len() >= LINE_BYTES_MAX {
                log.write(level, &String::from_utf8_lossy(unfinished));
                unfinished.clear();
            }
        }
        if stream == STDERR {
            self.last_words.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_WORDS_BYTES_MAX)..]);
            let excess = self.last_words.len().saturating_sub(LAST_WORDS_BYTES_MAX);
            self.last_words.drain(..excess);
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, log: &mut LogBook) {
        for (unfinished, level) in [(&self.stdout, Level::Info), (&self.stderr, Level::Warn)] {
            if !unfinished.is_empty() {
                log.write(level, &String::from_utf8_lossy(unfinished));
            }
        }
    }

    pub(super) fn last_words(&self) -> Option<String> {
        let words = String::from_utf8_lossy(&self.last_words);
        (!words.trim().is_empty()).then(|| excerpt(words.trim()))
    }
}

type Store<'a> = StoreContextMut<'a, CallState>;
type Written = (Result<(), StreamError>,);

fn write(store: &mut Store<'_>, stream: &Resource<OutputStream>, bytes: &[u8]) -> wasmtime::Result<Written> {
    let CallState { wasi, log, .. } = store.data_mut();
    wasi.output.write(stream.rep(), bytes, log)?;
    Ok((Ok(()),))
}

pub(super) fn define(
    at: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<bool> {
    if interface != "io/streams" {
        return Ok(false);
    }
    match name {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            at.func_wrap(name, |_, (_stream, _length): (Resource<InputStream>, u64)| {
                Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => {
            at.func_wrap(name, |_, (_stream, _length): (Resource<InputStream>, u64)| {
                Ok((Err::<u64, _>(StreamError::Closed),))
            })?;
        }
        "[method]output-stream.check-write" => {
            at.func_wrap(name, |_, (_stream,): (Resource<OutputStream>,)| {
                Ok((Ok::<_, StreamError>(WRITE_BYTES_MAX),))
            })?;
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            at.func_wrap(name, |mut store, (stream, bytes): (Resource<OutputStream>, Vec<u8>)| {
                write(&mut store, &stream, &bytes)
            })?;
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            at.func_wrap(name, |_, (_stream,): (Resource<OutputStream>,)| Ok((Ok::<(), StreamError>(()),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[(u32, &str)]) -> (Vec<(Level, String)>, Option<String>) {
        let (mut output, mut log) = (Output::default(), LogBook::default());
        for (stream, piece) in pieces {
            output.write(*stream, piece.as_bytes(), &mut log).unwrap();
        }
        output.finish(&mut log);
        let last_words = output.last_words();
        let (lines, _) = log.into_parts();
        (lines.into_iter().map(|line| (line.level, line.message)).collect(), last_words)
    }

    #[test]
    fn lines_are_put_together_by_stream() {
        let (lines, last_words) =
            lines(&[(STDOUT, "a"), (STDERR, "x "), (STDOUT, "b\nc\n"), (STDERR, "y\n"), (STDOUT, "rest")]);
        let expected = [(Level::Info, "ab"), (Level::Info, "c"), (Level::Warn, "x y"), (Level::Info, "rest")];
        assert_eq!(lines, expected.map(|(level, text)| (level, text.to_owned())));
        assert_eq!(last_words.as_deref(), Some("x y"));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (lines, last_words) = lines(&[(STDERR, &"x".repeat(3 * LINE_BYTES_MAX + 1))]);
        assert_eq!(
            lines.iter().map(|(_, text)| text.len()).collect::<Vec<_>>(),
            [LINE_BYTES_MAX; 3].into_iter().chain([1]).collect::<Vec<_>>()
        );
        assert!(last_words.unwrap().len() <= LAST_WORDS_BYTES_MAX);
    }

    #[test]
    fn there_is_no_other_stream() {
        let (mut output, mut log) = (Output::default(), LogBook::default());
        assert_eq!(output.write(7, b"x", &mut log), Err(Denied::Handle));
    }
}
