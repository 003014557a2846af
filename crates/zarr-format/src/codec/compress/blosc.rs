//! Codec `blosc` (also `numcodecs.blosc`): frames of c-blosc 1.
//!
//! Encoding calls c-blosc here, decoding calls it in `blosc_decode`. The frame's header is checked against the promised
//! length before anything is allocated. Each call of c-blosc uses one thread, since callers run in parallel.
//! `blosc_frame` handles frames with snappy blocks. Bytes after a frame are ignored, as in the reference.

#![expect(unsafe_code, reason = "c-blosc is a C library")]

use std::borrow::Cow;
use std::ffi::CStr;

use blosc_src::{BLOSC_MAX_BUFFERSIZE, blosc_compress_ctx};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::kind::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

use super::blosc_decode::decompress;
use super::blosc_frame::{
    BloscShuffle, FrameHeader, HEADER_BYTES, NAME, decode_snappy, encode_snappy,
};
use super::ignored;

/// Parameters of encoding. Decoding takes them from the frame.
#[derive(Debug)]
struct Blosc {
    compressor: &'static CStr,
    level: i32,
    shuffle: BloscShuffle,
    /// Never 0: c-blosc divides by it.
    typesize: u8,
    blocksize: usize,
}

const SNAPPY: &CStr = c"snappy";

/// Reads the configuration (codec `blosc`, "Configuration parameters"), including numcodecs' numbers for `shuffle`. The
/// defaults are numcodecs'.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let name = config.keyword(
        "cname",
        &["lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib"],
    )?;
    let typesize = config
        .integer("typesize", 0..=i64::MAX)?
        .filter(|&size| size > 0);
    let typesize = typesize.map_or(position.element_size, |size| {
        usize::try_from(size).unwrap_or(usize::MAX)
    });
    let blocksize = config.unsigned("blocksize", 0..=i32::MAX.unsigned_abs())?;
    Ok(Codec::BytesToBytes(Box::new(Blosc {
        compressor: compressor(name.unwrap_or("lz4")),
        level: config.level("clevel", 0..=9)?.unwrap_or(5),
        shuffle: shuffle(config, typesize)?,
        // c-blosc itself takes longer elements as bytes; zero or more than 32 bits would crash it.
        typesize: u8::try_from(typesize).map_or(1, |size| size.max(1)),
        blocksize: blocksize.unwrap_or(0) as usize,
    })))
}

fn compressor(name: &str) -> &'static CStr {
    match name {
        "lz4hc" => c"lz4hc",
        "blosclz" => c"blosclz",
        "zstd" => c"zstd",
        "snappy" => SNAPPY,
        "zlib" => c"zlib",
        _ => c"lz4",
    }
}

/// Reads `shuffle` as a word or as numcodecs' number; -1 chooses by the element size.
fn shuffle(config: Configuration<'_>, typesize: usize) -> Result<BloscShuffle> {
    let wrong = || {
        config.unexpected(
            "shuffle",
            "noshuffle, shuffle, bitshuffle or a number from -1 to 2",
        )
    };
    let Some(value) = config.get("shuffle") else {
        return Ok(BloscShuffle::Byte);
    };
    match (value.as_str(), value.as_i64()) {
        (Some("noshuffle"), _) | (_, Some(0)) => Ok(BloscShuffle::None),
        (Some("shuffle"), _) | (_, Some(1)) => Ok(BloscShuffle::Byte),
        (Some("bitshuffle"), _) | (_, Some(2)) => Ok(BloscShuffle::Bit),
        (_, Some(-1)) if typesize == 1 => Ok(BloscShuffle::Bit),
        (_, Some(-1)) => Ok(BloscShuffle::Byte),
        _ => Err(wrong()),
    }
}

impl BytesToBytes for Blosc {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let header = FrameHeader::read(&encoded)?;
        want.check(NAME, header.nbytes)?;
        let frame = encoded.get(..header.cbytes).unwrap_or_default();
        ignored::note_bytes(encoded.len().saturating_sub(header.cbytes));
        let decoded = if header.has_snappy_blocks() {
            decode_snappy(frame, &header)?
        } else {
            decompress(frame, header.nbytes)?
        };
        Ok(Cow::Owned(decoded))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        if decoded.len() > BLOSC_MAX_BUFFERSIZE as usize {
            let found = format!(
                "{} bytes exceed the {BLOSC_MAX_BUFFERSIZE} of a frame",
                decoded.len()
            );
            return Err(Error::too_large(NAME, found));
        }
        let encoded = if self.compressor == SNAPPY {
            encode_snappy(&decoded, self.typesize, self.shuffle)
        } else {
            self.compress(&decoded)
        };
        encoded.map(Cow::Owned)
    }
}

impl Blosc {
    fn compress(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let shuffle = match self.shuffle {
            BloscShuffle::None => 0,
            BloscShuffle::Byte => 1,
            BloscShuffle::Bit => 2,
        };
        let mut out = buffer::of_length(decoded.len() + HEADER_BYTES);
        // SAFETY: both pointers are valid for the lengths given with them and do not overlap; the name ends
        // with a zero byte. c-blosc stays within `destsize`, keeps no pointer, and never divides by zero, since
        // typesize is 1 to 255.
        let written = unsafe {
            blosc_compress_ctx(
                self.level,
                shuffle,
                self.typesize.into(),
                decoded.len(),
                decoded.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                out.len(),
                self.compressor.as_ptr(),
                self.blocksize,
                1,
            )
        };
        let written = usize::try_from(written)
            .ok()
            .filter(|&written| written >= HEADER_BYTES);
        out.truncate(
            written.ok_or_else(|| Error::invalid(NAME, "c-blosc could not encode the chunk"))?,
        );
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{pipeline, sample};
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn blosc(length: u64, configuration: Value) -> Result<Pipeline> {
        let little = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        let blosc = json!({ "name": "blosc", "configuration": configuration });
        pipeline("uint32", &[length], json!([little, blosc]))
    }

    #[test]
    fn all_compressors_and_shuffles_round_trip() {
        let data = sample(40_000);
        for cname in ["lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib"] {
            for shuffle in [
                json!("noshuffle"),
                json!("shuffle"),
                json!("bitshuffle"),
                json!(-1),
                json!(2),
            ] {
                for clevel in [0, 1, 9] {
                    let members = json!({ "cname": cname, "clevel": clevel, "shuffle": shuffle, "typesize": 4 });
                    let pipeline = blosc(10_000, members).unwrap();
                    let encoded = pipeline.encode(&data).unwrap();
                    assert_eq!(
                        pipeline.decode(encoded).unwrap(),
                        data,
                        "{cname} {shuffle} {clevel}"
                    );
                }
            }
        }
    }

    #[test]
    fn absurd_sizes_of_elements_and_blocks_encode() {
        let data = sample(4000);
        for typesize in [0, 256, 4_000_000_000_u64, 1 << 32] {
            for shuffle in ["shuffle", "bitshuffle"] {
                let members =
                    json!({ "shuffle": shuffle, "typesize": typesize, "blocksize": 2_147_483_647 });
                let pipeline = blosc(1000, members).unwrap();
                assert_eq!(
                    pipeline.decode(pipeline.encode(&data).unwrap()).unwrap(),
                    data
                );
            }
        }
    }

    #[test]
    fn bytes_after_a_frame_are_ignored_but_none_may_miss() {
        let data = sample(4000);
        let pipeline = blosc(1000, json!({})).unwrap();
        let mut encoded = pipeline.encode(&data).unwrap();
        for end in 0..encoded.len() {
            assert_eq!(
                pipeline.decode(encoded[..end].to_vec()).unwrap_err().kind(),
                Kind::Corrupt
            );
        }
        encoded.extend_from_slice(b"junk");
        assert_eq!(pipeline.decode(encoded).unwrap(), data);
    }

    #[test]
    fn a_header_that_promises_more_is_refused_before_allocation() {
        let pipeline = blosc(1000, json!({})).unwrap();
        let mut encoded = pipeline.encode(&sample(4000)).unwrap();
        for nbytes in [0, 3999, 4001, u32::MAX, 2_147_483_631] {
            encoded[4..8].copy_from_slice(&nbytes.to_le_bytes());
            assert_eq!(
                pipeline.decode(encoded.clone()).unwrap_err().kind(),
                Kind::Corrupt
            );
        }
    }

    #[test]
    fn malformed_members_are_named() {
        for (member, value) in [
            ("cname", json!("lzo")),
            ("clevel", json!("high")),
            ("shuffle", json!(3)),
        ] {
            let error = blosc(10, json!({ member: value })).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().contains(member), "{error}");
        }
    }
}
