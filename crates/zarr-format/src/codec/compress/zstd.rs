//! Codec `zstd`: one or several frames of RFC 8878, with or without content size.
//!
//! Decoding allocates the length that the metadata promise, whatever size a frame claims. Each thread keeps a
//! decompressor, since creating one costs more than decoding a small inner chunk, and a compressor unless it is large,
//! since each new compressor takes fresh memory from the kernel.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::io::Read;

use zstd::bulk::{Compressor, Decompressor};
use zstd::stream::read::Decoder;
use zstd::zstd_safe::{CParameter, compress_bound};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Parameters for encoding with zstd.
#[derive(Debug)]
struct Zstd {
    level: i32,
    checksum: bool,
}

/// Builds codec `zstd` (specification, "Configuration parameters"). Level 0, the default, is libzstd's default level,
/// 3.
pub(crate) fn build(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let level = config.level("level", -131_072..=22)?.unwrap_or(0);
    let checksum = config.boolean("checksum")?.unwrap_or(false);
    Ok(Codec::BytesToBytes(Box::new(Zstd { level, checksum })))
}

impl BytesToBytes for Zstd {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let decoded = match want {
            Length::Exact(length) => decode_exact(&encoded, length),
            Length::AtMost(max) => decode_bounded(&encoded, max),
            Length::Limited(max) => {
                // Report the exact size that the frame states. The decoder stops at the limit, so its error would tell
                // only that the size exceeds it.
                let size = zstd::zstd_safe::get_frame_content_size(&encoded);
                let size = size.ok().flatten();
                let size = size.and_then(|size| usize::try_from(size).ok());
                want.check("zstd", size.unwrap_or(0))?;
                decode_bounded(&encoded, max)
            }
        };
        decoded.map(Cow::Owned).map_err(|error| {
            // libzstd says "too much memory" if the window of a frame exceeds the limit.
            let needs_memory = error.to_string().contains("too much memory");
            if matches!(want, Length::Limited(_)) && needs_memory {
                return Error::too_large(
                    "zstd",
                    "the frame needs a window larger than the chunk may have",
                );
            }
            let found = encoded.len();
            Error::corrupt(
                "zstd",
                format!(
                    "cannot decode {found} bytes to {}: {error}",
                    want.upper_bound()
                ),
            )
        })
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let encoded = COMPRESSOR.with_borrow_mut(|cached| {
            let mut compressor = match cached.take() {
                Some(compressor) => compressor,
                None => Compressor::new(self.level)?,
            };
            let encoded = self.compress(&mut compressor, &decoded)?;
            // Do not keep a large compressor for the next chunk: at high levels it takes hundreds of MiB.
            if compressor.context_mut().sizeof() <= 2 << 20 {
                *cached = Some(compressor);
            }
            io::Result::Ok(encoded)
        });
        encoded
            .map(Cow::Owned)
            .map_err(|error| Error::invalid("zstd", error))
    }
}

impl Zstd {
    /// Encodes a chunk as one zstd frame. A reused compressor may have other parameters, so all are set again.
    fn compress(&self, compressor: &mut Compressor<'_>, decoded: &[u8]) -> io::Result<Vec<u8>> {
        compressor.set_compression_level(self.level)?;
        compressor.set_parameter(CParameter::ChecksumFlag(self.checksum))?;
        let mut out = buffer::with_capacity(compress_bound(decoded.len()));
        compressor.compress_to_buffer(decoded, &mut out)?;
        Ok(out)
    }
}

/// Decodes all zstd frames of a chunk into a buffer of `length` bytes. The caller checks that they fill it.
fn decode_exact(encoded: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let mut out = buffer::with_capacity(length);
    DECOMPRESSOR.with_borrow_mut(|cached| {
        let decompressor = match cached {
            Some(decompressor) => decompressor,
            None => cached.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(encoded, &mut out)
    })?;
    Ok(out)
}

/// Decodes zstd frames of unknown length to at most `max + 1` bytes; the additional byte tells the caller that the data
/// are longer than `max`. The window is limited too, since a frame of one byte may request 128 MiB.
fn decode_bounded(encoded: &[u8], max: usize) -> io::Result<Vec<u8>> {
    let window = max.checked_next_power_of_two().map_or(31, usize::ilog2);
    let mut decoder = Decoder::with_buffer(encoded)?;
    decoder.window_log_max(window.clamp(10, 31))?;
    let mut out = Vec::new();
    decoder.take(max as u64 + 1).read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::codec::tests::{assert_corrupt, pipeline, sample};
    use serde_json::json;
    use std::io::Write;

    #[test]
    fn a_frame_does_not_depend_on_earlier_frames() {
        let data = sample(300_000);
        let encode = |level: i32, checksum: bool| {
            let zstd = json!({ "name": "zstd", "configuration": { "level": level, "checksum": checksum } });
            let pipeline = pipeline("uint8", &[300_000], json!(["bytes", zstd])).unwrap();
            pipeline.encode(&data).unwrap()
        };
        for (level, checksum) in [(1, true), (19, false), (-3, false), (3, true), (1, false)] {
            let alone = std::thread::scope(|scope| {
                let thread = scope.spawn(|| encode(level, checksum));
                thread.join().unwrap()
            });
            assert!(encode(level, checksum) == alone, "{level} {checksum}");
        }
    }

    #[test]
    fn frames_without_content_size_and_skippable_frames_are_decoded() {
        let data = sample(3000);
        let mut stream = b"\x50\x2a\x4d\x18\x02\0\0\0ab".to_vec();
        for part in data.chunks(1000) {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.write_all(part).unwrap();
            stream.extend(encoder.finish().unwrap());
        }
        let plain = pipeline("uint8", &[3000], json!(["bytes", "zstd"])).unwrap();
        assert_eq!(plain.decode(stream.clone()).unwrap(), data);
        // With a second compressor the length of the frames is unknown, so `decode_bounded` runs.
        let doubled =
            pipeline("uint8", &[3000], json!(["bytes", "zstd", "numcodecs.zstd"])).unwrap();
        assert_eq!(
            doubled
                .decode(zstd::bulk::compress(&stream, 1).unwrap())
                .unwrap(),
            data
        );
    }

    #[test]
    fn bytes_after_a_frame_are_corrupt() {
        let pipeline = pipeline("uint8", &[1000], json!(["bytes", "zstd"])).unwrap();
        let mut trailing = zstd::bulk::compress(&sample(1000), 1).unwrap();
        trailing.extend_from_slice(b"junk");
        assert_corrupt(&pipeline, trailing);
    }

    #[test]
    fn a_frame_that_claims_a_terabyte_is_refused() {
        // A frame of one segment: the magic number, a descriptor (0xe0) that announces an 8-byte content size, and that
        // size.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        frame.extend_from_slice(&(1_u64 << 40).to_le_bytes());
        for codecs in [json!(["bytes", "zstd"]), json!(["bytes", "zstd", "zstd"])] {
            let pipeline = pipeline("uint8", &[1000], codecs).unwrap();
            assert_corrupt(&pipeline, frame.clone());
        }
    }
}
