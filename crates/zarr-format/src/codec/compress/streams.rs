//! Decodes consecutive compressed streams into one buffer of bounded length.
//!
//! As in the reference (Python's `bz2` and `lzma`), trailing bytes that are not a stream are ignored. The codecs
//! implement the formats.

use crate::buffer;
use crate::error::{Error, Result};

use super::leniency;

/// A decoder of one stream.
pub(super) trait StreamDecoder {
    /// Decodes from `input` into the spare capacity of `output` until one of them is exhausted. Returns the number of
    /// input bytes consumed, and whether the stream has ended.
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool)>;
}

/// Decodes all streams of `encoded`, at most `max` bytes and one more, by which the caller notices surplus bytes.
pub(super) fn decode_all<S: StreamDecoder>(
    codec: &str,
    encoded: &[u8],
    max: usize,
    open: impl Fn() -> Result<S>,
) -> Result<Vec<u8>> {
    let mut out = buffer::with_capacity(max.saturating_add(1));
    let mut rest = one_stream(codec, encoded, max, open()?, &mut out)?;
    while !rest.is_empty() && out.len() <= max {
        let whole = out.len();
        match one_stream(codec, rest, max, open()?, &mut out) {
            Ok(left) => rest = left,
            Err(_) => {
                leniency::record_trailing_bytes(rest.len());
                out.truncate(whole);
                break;
            }
        }
    }
    Ok(out)
}

/// Decodes one stream and returns the bytes after it.
fn one_stream<'a>(
    codec: &str,
    encoded: &'a [u8],
    max: usize,
    mut stream: impl StreamDecoder,
    out: &mut Vec<u8>,
) -> Result<&'a [u8]> {
    let mut rest = encoded;
    loop {
        let before = out.len();
        let (used, ended) = stream.advance(rest, out)?;
        rest = rest.get(used..).unwrap_or_default();
        if ended || out.len() > max {
            return Ok(rest);
        }
        if used == 0 && out.len() == before {
            let what = format!("the stream is cut off after {} bytes", encoded.len());
            return Err(Error::corrupt(codec, what));
        }
    }
}

/// Converts a byte count of data in memory, which therefore fits `usize`.
pub(super) fn memory_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
