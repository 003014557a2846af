//! Compression codecs, and a decoder of consecutive streams that bz2 and LZMA share.

use crate::buffer;
use crate::error::{Error, Result};

pub(super) mod base64;
pub(super) mod blosc;
pub(super) mod bz2;
pub(super) mod deflate;
pub(super) mod leniency;
pub(super) mod lz4;
pub(super) mod lzma;
pub(super) mod n5_default;
pub(super) mod pcodec;
pub(super) mod shuffle;
pub(super) mod zstd;

trait StreamDecoder {
    /// Decodes from `input` into the spare capacity of `output` until the input or the capacity is exhausted. Returns
    /// the number of input bytes consumed, and whether the stream has ended.
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool)>;
}

/// Decodes all consecutive streams of a chunk, to at most `max + 1` bytes; the additional byte tells the caller that
/// the data are longer than `max`. As in Python's `bz2` and `lzma`, bytes after the last stream that do not begin
/// another stream are ignored.
fn decode_all<S: StreamDecoder>(
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

/// Decodes one compressed stream, appends its bytes to `out`, and returns the bytes after the stream.
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

fn memory_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::lzma;
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};

    fn compressors() -> Vec<Value> {
        let with = |name: &str, member: &str, value: i32| json!({ "name": name, "configuration": { member: value } });
        let mut all = vec![json!("blosc"), json!("numcodecs.lz4")];
        for level in -1..=9 {
            let names = ["gzip", "numcodecs.gzip", "zlib", "numcodecs.zlib"];
            all.extend(names.map(|name| with(name, "level", level)));
        }
        all.extend([1, 5, 9].map(|level| with("numcodecs.bz2", "level", level)));
        for (level, checksum) in [(-5, false), (0, true), (1, true), (22, false)] {
            let configuration = json!({ "level": level, "checksum": checksum });
            all.push(json!({ "name": "zstd", "configuration": configuration }));
        }
        let lzma = lzma::tests::configurations().into_iter();
        all.extend(
            lzma.map(|members| json!({ "name": "numcodecs.lzma", "configuration": members })),
        );
        all
    }

    fn compressed(length: u64, compressor: &Value) -> Pipeline {
        pipeline("uint8", &[length], json!(["bytes", compressor])).unwrap()
    }

    #[test]
    fn every_compressor_round_trips() {
        for compressor in compressors() {
            // A block of bz2 holds up to 900 kB; longer data cover several blocks.
            let length = if compressor.to_string().contains("bz2") {
                1_000_000
            } else {
                5000
            };
            assert_round_trip(&compressed(length, &compressor), &sample(length as usize));
        }
    }

    #[test]
    fn truncated_streams_and_other_lengths_are_corrupt() {
        for compressor in compressors() {
            let pipeline = compressed(1000, &compressor);
            let encoded = pipeline.encode(&sample(1000)).unwrap();
            for end in 0..encoded.len() {
                assert_corrupt(&pipeline, &encoded[..end]);
            }
            for length in [1, 999, 1001, 5000] {
                assert_corrupt(&compressed(length, &compressor), &encoded[..]);
            }
        }
    }
}
