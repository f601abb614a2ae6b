//! From the bytes of a file to an uncompressed WebAssembly binary.
//!
//! The form is told by the first bytes and not by the name. The sections of the binary are walked, as their sizes
//! must add up to its end: this finds a half-written file by arithmetic, before anything is compiled.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

/// Largest plugin, as it lies there and uncompressed: 64 MiB. The largest that real tool chains make (a Python
/// interpreter inside) has 18 MB. The bound keeps a small file that inflates without end from filling the memory.
pub const BYTES_MAX: u64 = 64 << 20;

/// Largest window of a zstd frame, as a power of two: 64 MiB, as nothing longer than [`BYTES_MAX`] is unpacked.
/// The decoder allocates the window that the frame's header asks for.
const ZSTD_WINDOW_LOG_MAX: u32 = 26;

const WASM_MAGIC: &[u8] = b"\0asm";
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Magic and version.
const HEADER_BYTES: usize = 8;

/// How a binary was packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// Bytes that are no complete WebAssembly binary.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Nothing there.
    #[error("is empty: a WebAssembly component would be right (is it still being written?)")]
    Empty,
    /// The text format.
    #[error("is WebAssembly text: turn it into a binary first, for example with `wasm-tools parse`")]
    Text,
    /// Something else.
    #[error("is no WebAssembly binary, neither plain nor gzip'd nor zstd'd: it begins with {begin}")]
    Foreign {
        /// The first bytes, escaped.
        begin: String,
    },
    /// The compressed stream is broken or ends early.
    #[error("cannot be unpacked: {0} (is it still being written?)")]
    Stream(io::Error),
    /// It inflates beyond the limit.
    #[error("unpacks to more than {BYTES_MAX} bytes, the most that a plugin may have")]
    TooLarge,
    /// The binary ends within a section.
    #[error("ends at byte {end}, within a section that needs {needed} bytes (is it still being written?)")]
    Truncated {
        /// Length of what is there.
        end: usize,
        /// Length that would be right.
        needed: u64,
    },
}

impl UnpackError {
    /// One word for conditions and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Empty | Self::Stream(_) | Self::Truncated { .. } => "Incomplete",
            Self::Text | Self::Foreign { .. } => "NotAPlugin",
            Self::TooLarge => "TooLarge",
        }
    }
}

/// What the first bytes say.
pub(crate) fn packing(bytes: &[u8]) -> Packing {
    if bytes.starts_with(GZIP_MAGIC) {
        Packing::Gzip
    } else if bytes.starts_with(ZSTD_MAGIC) {
        Packing::Zstd
    } else {
        Packing::Plain
    }
}

/// Unpacks, and checks that a whole WebAssembly binary came out.
pub(crate) fn unpack(bytes: Vec<u8>) -> Result<Vec<u8>, UnpackError> {
    let wasm = match packing(&bytes) {
        Packing::Plain => bytes,
        Packing::Gzip => inflate(MultiGzDecoder::new(bytes.as_slice()))?,
        Packing::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(bytes.as_slice()).map_err(UnpackError::Stream)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(UnpackError::Stream)?;
            inflate(decoder)?
        }
    };
    check_whole(&wasm)?;
    Ok(wasm)
}

fn inflate(stream: impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut wasm = Vec::new();
    stream.take(BYTES_MAX + 1).read_to_end(&mut wasm).map_err(UnpackError::Stream)?;
    if wasm.len() as u64 > BYTES_MAX { Err(UnpackError::TooLarge) } else { Ok(wasm) }
}

fn check_whole(wasm: &[u8]) -> Result<(), UnpackError> {
    if wasm.is_empty() {
        return Err(UnpackError::Empty);
    }
    // A prefix of the magic number is a file of which only a few bytes have been written.
    if !wasm.starts_with(WASM_MAGIC) && !WASM_MAGIC.starts_with(wasm) {
        return Err(foreign(wasm));
    }
    if wasm.len() < HEADER_BYTES {
        return Err(UnpackError::Truncated { end: wasm.len(), needed: HEADER_BYTES as u64 });
    }
    // Core modules and components alike: one byte of id, the size as LEB128, that many bytes.
    let mut at = HEADER_BYTES;
    while at < wasm.len() {
        let missing = |needed: u64| UnpackError::Truncated { end: wasm.len(), needed };
        let (size, size_bytes) = leb128_u32(&wasm[at + 1..]).ok_or_else(|| missing(wasm.len() as u64 + 1))?;
        let end = (at + 1 + size_bytes) as u64 + u64::from(size);
        at = usize::try_from(end).ok().filter(|end| *end <= wasm.len()).ok_or_else(|| missing(end))?;
    }
    Ok(())
}

/// The number and how many bytes it takes; none if it is cut off or longer than 32 bits need.
fn leb128_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok().map(|value| (value, at + 1));
        }
    }
    None
}

fn foreign(bytes: &[u8]) -> UnpackError {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    let word = text.trim_start();
    if word.starts_with("(module") || word.starts_with("(component") || word.starts_with(";;") {
        return UnpackError::Text;
    }
    let begin = bytes[..bytes.len().min(8)].escape_ascii().to_string();
    UnpackError::Foreign { begin: format!("`{begin}`") }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A component with one custom section.
    fn component(payload: &[u8]) -> Vec<u8> {
        let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
        wasm.push(0);
        wasm.push(u8::try_from(payload.len() + 2).unwrap());
        wasm.extend_from_slice(b"\x01x");
        wasm.extend_from_slice(payload);
        wasm
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_content_tells_the_form() {
        let wasm = component(b"payload");
        assert_eq!(unpack(wasm.clone()).unwrap(), wasm);
        assert_eq!(unpack(gzip(&wasm)).unwrap(), wasm);
        assert_eq!(unpack(zstd::encode_all(wasm.as_slice(), 3).unwrap()).unwrap(), wasm);
    }

    #[test]
    fn no_prefix_of_a_file_passes_for_the_whole() {
        let wasm = component(b"payload of the section");
        for packed in [wasm.clone(), gzip(&wasm), zstd::encode_all(wasm.as_slice(), 3).unwrap()] {
            for length in 0..packed.len() {
                // Magic and version alone are an empty binary, which is valid; the sandbox refuses it.
                if packed[..length] != wasm[..8] {
                    assert!(unpack(packed[..length].to_vec()).is_err(), "{length} of {} bytes", packed.len());
                }
            }
        }
    }

    #[test]
    fn errors_say_what_it_is_instead() {
        let error = |bytes: &[u8]| unpack(bytes.to_vec()).unwrap_err().to_string();
        assert!(error(b"").starts_with("is empty"));
        assert!(error(b"  (component)").starts_with("is WebAssembly text"));
        assert_eq!(
            error(b"#!/bin/sh\n"),
            "is no WebAssembly binary, neither plain nor gzip'd nor zstd'd: it begins with `#!/bin/s`"
        );
        assert!(error(b"\0asm\x0d\0\x01\0\0\xff\xff\x03").contains("ends at byte 12"));
        assert!(error(&gzip(b"<html>")).contains("begins with `<html>`"));
    }

    #[test]
    fn a_small_file_that_inflates_without_end_is_refused() {
        let zeros = io::repeat(0).take(BYTES_MAX + (1 << 20));
        let bomb = zstd::encode_all(zeros, 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(unpack(bomb), Err(UnpackError::TooLarge)));
    }
}
