//! Codec `lz4`: one block after its length, as numcodecs writes it, or frames.
//!
//! The first bytes of a chunk distinguish the two; `numcodecs.lz4` writes blocks, and `lz4` of the draft of 2020 writes
//! frames (as sci-rs did). The length that a frame claims is never allocated, except one block of at most 8 MiB.

use std::borrow::Cow;
use std::io::{Read, Write};

use lz4_flex::block::{compress_prepend_size, decompress_into};
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::kind::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

const NAME: &str = "lz4";

/// The first bytes of a frame (LZ4 frame format, "Magic Number").
const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

/// The longest block that the format allows (`LZ4_MAX_INPUT_SIZE`).
const MAX_BLOCK_BYTES: usize = 0x7e00_0000;

/// Whether encoding writes frames, or else a block after its length.
#[derive(Debug)]
struct Lz4 {
    frames: bool,
}

/// Builds `numcodecs.lz4`. Its `acceleration`, which trades size for speed, is ignored.
pub(crate) fn block(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Lz4 { frames: false })))
}

/// Builds `lz4` of the draft of 2020.
pub(crate) fn frame(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Lz4 { frames: true })))
}

impl BytesToBytes for Lz4 {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        // A block whose length equals the magic number is distinguished from a frame by the promised length.
        let claimed = u32::from_le_bytes(MAGIC) as usize;
        let decoded = if encoded.starts_with(&MAGIC) && want != Length::Exact(claimed) {
            decode_frames(&encoded, want.upper_bound())
        } else {
            decode_block(&encoded, want)
        };
        decoded.map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        if self.frames {
            return encode_frame(&decoded).map(Cow::Owned);
        }
        if decoded.len() > MAX_BLOCK_BYTES {
            let found = format!(
                "{} bytes are more than the {MAX_BLOCK_BYTES} that a block can hold",
                decoded.len()
            );
            return Err(Error::too_large(NAME, found));
        }
        Ok(Cow::Owned(compress_prepend_size(&decoded)))
    }
}

/// Decodes one block, which must decode to the number of bytes stated before it.
fn decode_block(encoded: &[u8], want: Length) -> Result<Vec<u8>> {
    let (length, block) = encoded
        .split_first_chunk::<4>()
        .ok_or_else(|| Error::corrupt(NAME, "too short for the length of the block"))?;
    let length = u32::from_le_bytes(*length) as usize;
    // An encoded byte gives at most 255 decoded ones.
    let most = block.len().saturating_mul(255);
    if length > most {
        // For example a different file in the place of a chunk.
        let what = format!(
            "{} bytes decode to at most {most} bytes, not to {length}",
            block.len()
        );
        return Err(Error::corrupt(NAME, what));
    }
    want.check(NAME, length)?;
    let mut out = buffer::of_length(length);
    let found = decompress_into(block, &mut out).map_err(|error| Error::corrupt(NAME, error))?;
    Length::Exact(length).check(NAME, found)?;
    Ok(out)
}

/// Decodes all frames, at most `max` bytes and one more, by which the caller notices surplus bytes.
fn decode_frames(encoded: &[u8], max: usize) -> Result<Vec<u8>> {
    let mut rest = encoded;
    let mut out = buffer::with_capacity(max.saturating_add(1));
    while !rest.is_empty() && out.len() <= max {
        let left = (max - out.len()) as u64 + 1;
        let mut frame = FrameDecoder::new(&mut rest).take(left);
        frame
            .read_to_end(&mut out)
            .map_err(|error| Error::corrupt(NAME, error))?;
    }
    Ok(out)
}

fn encode_frame(decoded: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder
        .write_all(decoded)
        .map_err(|error| Error::invalid(NAME, error))?;
    encoder
        .finish()
        .map_err(|error| Error::invalid(NAME, error))
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline, sample};
    use serde_json::json;

    fn lz4(name: &str, length: u64) -> Pipeline {
        pipeline("uint8", &[length], json!(["bytes", name])).unwrap()
    }

    #[test]
    fn blocks_and_frames_are_read_under_both_names() {
        let mut data = sample(100_000);
        data[1000..].fill(7);
        for written in ["lz4", "numcodecs.lz4"] {
            let encoded = lz4(written, 100_000).encode(&data).unwrap();
            assert!(encoded.len() < data.len());
            for read in ["lz4", "numcodecs.lz4"] {
                assert!(lz4(read, 100_000).decode(encoded.clone()).unwrap() == data);
            }
        }
    }

    #[test]
    fn a_block_stands_behind_its_length() {
        let encoded = lz4("numcodecs.lz4", 5).encode(b"zarrs").unwrap();
        assert_eq!(encoded, b"\x05\0\0\0\x50zarrs");
    }

    #[test]
    fn several_frames_are_one_chunk() {
        let data = sample(3000);
        let frames = data
            .chunks(1000)
            .map(|part| lz4("lz4", 1000).encode(part).unwrap());
        let stream = frames.collect::<Vec<_>>().concat();
        assert_eq!(lz4("lz4", 3000).decode(stream.clone()).unwrap(), data);
        assert_corrupt(&lz4("lz4", 1000), stream);
    }

    #[test]
    fn short_and_broken_input_is_corrupt() {
        for name in ["lz4", "numcodecs.lz4"] {
            let encoded = lz4(name, 1000).encode(&sample(1000)).unwrap();
            for end in 0..encoded.len() {
                let decoded = lz4(name, 1000).decode(encoded[..end].to_vec());
                // A frame may lack its end mark, and no more than that.
                assert!(
                    decoded.is_err() || name == "lz4" && end + 4 >= encoded.len(),
                    "{name} {end}"
                );
            }
            for length in [999, 1001] {
                assert_corrupt(&lz4(name, length), encoded.clone());
            }
        }
    }

    #[test]
    fn a_length_that_nobody_promised_is_refused_before_allocation() {
        for length in [0_u32, 999, 1001, 0x7fff_ffff, u32::MAX] {
            let stream = [length.to_le_bytes().as_slice(), &[0; 20]].concat();
            assert_corrupt(&lz4("numcodecs.lz4", 1000), stream);
        }
    }
}
