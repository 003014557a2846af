//! Codecs `gzip` and `numcodecs.zlib`: deflate with a gzip or a zlib header.
//!
//! A chunk is usually a single stream ("member" in gzip) of the expected length, which libdeflate decodes in one call.
//! In all other cases (several members, padding, a length that is not known in advance) flate2 decodes with an upper
//! bound. As in numcodecs, zeros after a gzip member are padding and other bytes are an error, and bytes after a zlib
//! stream are ignored.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::io::Read;

use flate2::bufread::{GzDecoder, ZlibDecoder};
use libdeflater::{CompressionLvl, Compressor, Decompressor, adler32, crc32};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

use super::leniency;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrapper {
    Gzip,
    Zlib,
}

/// A `gzip` or `numcodecs.zlib` codec, and the compression level for encoding.
#[derive(Debug)]
struct Deflate {
    wrapper: Wrapper,
    level: i32,
}

/// Builds the codec `gzip` (specification of `gzip`, "Configuration parameters").
pub(crate) fn gzip(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(config, Wrapper::Gzip)
}

/// Builds the codec `numcodecs.zlib`, which has the same parameters as `gzip`.
pub(crate) fn zlib(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(config, Wrapper::Zlib)
}

/// Builds `gzip` or `zlib` from the compression level. -1, as in N5, is zlib's default, 6; without a level, numcodecs'
/// default 1 applies.
fn build(config: Configuration<'_>, wrapper: Wrapper) -> Result<Codec> {
    let level = match config.level("level", -1..=9)? {
        Some(-1) => 6,
        Some(level) => level,
        None => 1,
    };
    Ok(Codec::BytesToBytes(Box::new(Deflate { wrapper, level })))
}

impl Wrapper {
    fn name(self) -> &'static str {
        match self {
            Wrapper::Gzip => "gzip",
            Wrapper::Zlib => "zlib",
        }
    }
}

impl Deflate {
    fn name(&self) -> &'static str {
        self.wrapper.name()
    }

    /// Returns whether the first bytes begin a gzip or a zlib stream, whatever the metadata state: old versions of z5py
    /// wrote zlib streams but stated gzip. No zlib stream begins like a gzip member.
    fn wrapper_of(&self, encoded: &[u8]) -> Wrapper {
        match encoded {
            [0x1f, 0x8b, ..] => Wrapper::Gzip,
            [first, second, ..]
                if first & 0x0f == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0 =>
            {
                Wrapper::Zlib
            }
            _ => self.wrapper,
        }
    }
}

impl BytesToBytes for Deflate {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let wrapper = self.wrapper_of(&encoded);
        if wrapper != self.wrapper {
            leniency::record_wrapper(self.name(), wrapper.name());
        }
        if let Length::Exact(length) = want
            && let Some(decoded) = decode_exact(wrapper, &encoded, length)
        {
            return Ok(Cow::Owned(decoded));
        }
        let decoded = decode_bounded(wrapper, &encoded, want.upper_bound());
        decoded.map(Cow::Owned).map_err(|error| {
            let found = encoded.len();
            Error::corrupt(
                self.name(),
                format!(
                    "cannot decode {found} bytes to {}: {error}",
                    want.upper_bound()
                ),
            )
        })
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let level = CompressionLvl::new(self.level).unwrap_or_default();
        let mut compressor = Compressor::new(level);
        let mut out = match self.wrapper {
            Wrapper::Gzip => vec![0; compressor.gzip_compress_bound(decoded.len())],
            Wrapper::Zlib => vec![0; compressor.zlib_compress_bound(decoded.len())],
        };
        let length = match self.wrapper {
            Wrapper::Gzip => compressor.gzip_compress(&decoded, &mut out),
            Wrapper::Zlib => compressor.zlib_compress(&decoded, &mut out),
        };
        out.truncate(length.map_err(|error| Error::invalid(self.name(), error))?);
        Ok(Cow::Owned(out))
    }
}

/// Decodes a single zlib stream or gzip member of exactly `length` bytes. Returns `None` if its decoded length differs
/// or, for gzip, if bytes follow it.
fn decode_exact(wrapper: Wrapper, encoded: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = buffer::of_length(length);
    let found = DECOMPRESSOR.with_borrow_mut(|decompressor| match wrapper {
        Wrapper::Gzip => decompressor.gzip_decompress(encoded, &mut out),
        Wrapper::Zlib => decompressor.zlib_decompress(encoded, &mut out),
    });
    if wrapper == Wrapper::Zlib && found == Ok(length) && leniency::is_recording() {
        record_after_zlib(encoded, &out);
    }
    let whole =
        found == Ok(length) && (wrapper == Wrapper::Zlib || ends_with_trailer(encoded, &out));
    whole.then_some(out)
}

/// Records the number of bytes that follow the zlib stream of `decoded`. The stream ends with a checksum (RFC 1950,
/// section 2.2); only if the last bytes are not that checksum is the stream decoded again to find its end.
fn record_after_zlib(encoded: &[u8], decoded: &[u8]) {
    let trailer = encoded.last_chunk::<4>();
    if trailer.is_some_and(|trailer| u32::from_be_bytes(*trailer) == adler32(decoded)) {
        return;
    }
    let mut stream = ZlibDecoder::new(encoded);
    if io::copy(&mut stream, &mut io::sink()).is_ok() {
        leniency::record_trailing_bytes(stream.into_inner().len());
    }
}

/// Whether the last bytes of gzip data are the trailer of a member that decodes to `decoded` (RFC 1952, section 2.3.1),
/// so that nothing follows the member. libdeflate does not tell how many input bytes it consumed.
fn ends_with_trailer(encoded: &[u8], decoded: &[u8]) -> bool {
    let Some((_, trailer)) = encoded.split_last_chunk::<8>() else {
        return false;
    };
    let [a, b, c, d, size @ ..] = *trailer;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the trailer has the length modulo 2^32"
    )]
    let length = decoded.len() as u32;
    // Compute the CRC last, since it reads all decoded bytes.
    u32::from_le_bytes(size) == length && u32::from_le_bytes([a, b, c, d]) == crc32(decoded)
}

/// Decodes a gzip or zlib stream to at most `max + 1` bytes. The additional byte tells the caller that the data are
/// longer than `max`.
fn decode_bounded(wrapper: Wrapper, encoded: &[u8], max: usize) -> io::Result<Vec<u8>> {
    let limit = max as u64 + 1;
    let mut out = Vec::new();
    match wrapper {
        Wrapper::Zlib => {
            let mut stream = ZlibDecoder::new(encoded).take(limit);
            stream.read_to_end(&mut out)?;
            leniency::record_trailing_bytes(stream.into_inner().into_inner().len());
        }
        Wrapper::Gzip => {
            let mut rest = encoded;
            while !rest.is_empty() && out.len() <= max {
                let mut member = GzDecoder::new(rest).take(limit - out.len() as u64);
                member.read_to_end(&mut out)?;
                let behind = member.into_inner().into_inner();
                rest = without_padding(behind);
                leniency::record_padding(behind.len() - rest.len());
            }
        }
    }
    Ok(out)
}

fn without_padding(bytes: &[u8]) -> &[u8] {
    let start = bytes
        .iter()
        .position(|&byte| byte != 0)
        .unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};
    use serde_json::json;

    fn with_codec(name: &str, length: u64) -> Pipeline {
        pipeline("uint8", &[length], json!(["bytes", name])).unwrap()
    }

    #[test]
    fn concatenated_gzip_members_with_padding_are_one_chunk() {
        let data = sample(3000);
        let mut stream = Vec::new();
        for part in data.chunks(1000) {
            stream.extend(with_codec("gzip", 1000).encode(part).unwrap());
            stream.extend_from_slice(&[0; 5]);
        }
        assert_eq!(
            with_codec("gzip", 3000).decode(stream.clone()).unwrap(),
            data
        );
        // Two gzip members of a chunk of 3000 bytes are corrupt for a chunk of 1000 bytes, even if the first member has
        // that length.
        assert_corrupt(&with_codec("gzip", 1000), stream.clone());
        stream.extend_from_slice(b"junk");
        assert_corrupt(&with_codec("gzip", 3000), stream);
    }

    #[test]
    fn a_second_gzip_member_of_the_same_length_is_corrupt() {
        let mut stream = with_codec("gzip", 1000).encode(&sample(1000)).unwrap();
        stream.extend(with_codec("gzip", 1000).encode(&[7; 1000]).unwrap());
        assert_corrupt(&with_codec("gzip", 1000), stream);
    }

    #[test]
    fn bytes_after_a_zlib_stream_are_ignored() {
        let data = sample(1000);
        let mut stream = with_codec("zlib", 1000).encode(&data).unwrap();
        stream.extend_from_slice(b"junk");
        assert_eq!(with_codec("zlib", 1000).decode(stream).unwrap(), data);
    }

    #[test]
    fn zlib_streams_are_decoded_under_the_name_gzip() {
        let data = sample(1000);
        for level in [1, 6, 9] {
            let codec = json!({ "name": "zlib", "configuration": { "level": level } });
            let zlib = pipeline("uint8", &[1000], json!(["bytes", codec])).unwrap();
            assert_eq!(
                with_codec("gzip", 1000)
                    .decode(zlib.encode(&data).unwrap())
                    .unwrap(),
                data
            );
        }
    }

    #[test]
    fn gzip_streams_are_decoded_under_the_name_zlib() {
        let data = sample(1000);
        let encoded = with_codec("gzip", 1000).encode(&data).unwrap();
        assert_eq!(with_codec("zlib", 1000).decode(encoded).unwrap(), data);
    }

    #[test]
    fn bombs_in_single_and_chained_compressors_are_corrupt() {
        let data = sample(1000);
        let double = pipeline("uint8", &[1000], json!(["bytes", "zlib", "gzip"])).unwrap();
        assert_round_trip(&double, &data);
        let bomb = with_codec("gzip", 64 << 20)
            .encode(&vec![0; 64 << 20])
            .unwrap();
        assert_corrupt(&double, bomb.clone());
        assert_corrupt(&with_codec("gzip", 1000), bomb);
    }
}
