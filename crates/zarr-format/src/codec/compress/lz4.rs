//! Codecs `lz4`, `numcodecs.lz4` and `n5.lz4`: LZ4 blocks in three framings.
//!
//! `numcodecs.lz4` writes the decoded length and one block; `lz4` of the Zarr v3 draft of 2020 writes LZ4 frames (as
//! sci-rs did); the first bytes of a chunk distinguish the two. `n5.lz4`, which N5 calls `lz4`, has blocks as lz4-java
//! frames them (`LZ4BlockOutputStream`). No buffer is as long as a frame claims to be; only a single block of at most 8
//! MiB is allocated in advance.

use std::borrow::Cow;
use std::io::{Read, Write};

use lz4_flex::block::{compress, compress_prepend_size, decompress_into};
use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use twox_hash::XxHash32;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

/// First bytes of an LZ4 frame (LZ4 frame format, "Magic Number").
const FRAME_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

/// LZ4 codec that encodes a chunk as a frame, or as one block after its decoded length.
#[derive(Debug)]
struct Lz4 {
    frames: bool,
}

/// Builds `numcodecs.lz4`. Its `acceleration`, which trades size for speed, is ignored.
pub(crate) fn block(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Lz4 { frames: false })))
}

/// Builds the codec `lz4` of the Zarr v3 draft of 2020.
pub(crate) fn frame(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Lz4 { frames: true })))
}

impl BytesToBytes for Lz4 {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        // The first four bytes are either the magic number of a frame or the decoded length of a block. If the expected
        // length equals the magic number, the data are a block.
        let claimed = u32::from_le_bytes(FRAME_MAGIC) as usize;
        let decoded = if encoded.starts_with(&FRAME_MAGIC) && want != Length::Exact(claimed) {
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
        // Maximum length of an LZ4 block (`LZ4_MAX_INPUT_SIZE` of liblz4).
        let (length, max) = (decoded.len(), 0x7e00_0000);
        if length > max {
            let found = format!("{length} bytes are more than the {max} that a block can hold");
            return Err(Error::too_large("lz4", found));
        }
        Ok(Cow::Owned(compress_prepend_size(&decoded)))
    }
}

/// Decodes one LZ4 block, which must decode to exactly the number of bytes stated before it.
fn decode_block(encoded: &[u8], want: Length) -> Result<Vec<u8>> {
    let (length, block) = encoded
        .split_first_chunk::<4>()
        .ok_or_else(|| Error::corrupt("lz4", "too short for the length of the block"))?;
    let length = u32::from_le_bytes(*length) as usize;
    // In LZ4, an encoded byte decodes to at most 255 bytes.
    let most = block.len().saturating_mul(255);
    if length > most {
        // The impossible length suggests that another file, not a chunk, is stored under the key.
        let what = format!(
            "{} bytes decode to at most {most} bytes, not to {length}",
            block.len()
        );
        return Err(Error::corrupt("lz4", what));
    }
    want.check("lz4", length)?;
    let mut out = buffer::of_length(length);
    let found = decompress_into(block, &mut out).map_err(|error| Error::corrupt("lz4", error))?;
    Length::Exact(length).check("lz4", found)?;
    Ok(out)
}

/// Decodes all LZ4 frames of a chunk, to at most `max + 1` bytes. The additional byte tells the caller that the data
/// are longer than `max`.
fn decode_frames(encoded: &[u8], max: usize) -> Result<Vec<u8>> {
    let mut rest = encoded;
    let mut out = buffer::with_capacity(max.saturating_add(1));
    while !rest.is_empty() && out.len() <= max {
        let left = (max - out.len()) as u64 + 1;
        let mut frame = FrameDecoder::new(&mut rest).take(left);
        frame
            .read_to_end(&mut out)
            .map_err(|error| Error::corrupt("lz4", error))?;
    }
    Ok(out)
}

fn encode_frame(decoded: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder
        .write_all(decoded)
        .map_err(|error| Error::invalid("lz4", error))?;
    encoder
        .finish()
        .map_err(|error| Error::invalid("lz4", error))
}

/// Codec `n5.lz4`. Encoding divides a chunk into blocks of `block_bytes` decoded bytes, from 64 to 2^25.
///
/// A block has a header: "LZ4Block", one byte of flags (compression method and maximum length), the stored length, the
/// decoded length, and a checksum, all little-endian. An empty block ends the chunk; bytes after it are ignored.
/// Decoding allocates no more bytes than the metadata promise.
#[derive(Debug)]
struct Lz4Java {
    block_bytes: u32,
}

/// Magic number of a block of lz4-java, and the length of the block's header: the magic number, a byte of flags and
/// three 32-bit numbers.
const JAVA_MAGIC: &[u8; 8] = b"LZ4Block";
const JAVA_HEADER: usize = JAVA_MAGIC.len() + 1 + 3 * size_of::<u32>();

/// Compression method of a block of lz4-java, in the upper half of the byte of flags.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Uncompressed = 0x10,
    Lz4 = 0x20,
}

/// Binary logarithm of the smallest maximum block length of lz4-java. The lower half of the byte of flags counts from
/// it.
const MIN_BLOCK_LOG2: u32 = 10;

/// Builds `n5.lz4`. The parameter `blockSize` matters only to encoding.
pub(crate) fn java(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let block_bytes = config.level("blockSize", 64..=1 << 25)?;
    Ok(Codec::BytesToBytes(Box::new(Lz4Java {
        block_bytes: block_bytes.map_or(1 << 16, i32::unsigned_abs),
    })))
}

struct JavaBlock<'a> {
    method: Method,
    stored: &'a [u8],
    length: usize,
    checksum: u32,
}

impl BytesToBytes for Lz4Java {
    fn encoded_length(&self, decoded: Length) -> Length {
        let blocks = decoded.upper_bound() / self.block_bytes as usize + 2;
        decoded
            .plus(blocks.saturating_mul(JAVA_HEADER))
            .compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let mut out = buffer::with_capacity(want.upper_bound());
        let mut rest = encoded.as_ref();
        // The last, empty block may be missing, because N5 stops reading once it has all elements of a chunk.
        while !rest.is_empty() {
            let block = take_block(&mut rest)?;
            if block.length == 0 {
                break;
            }
            let end = out.len().saturating_add(block.length);
            want.bounding(want.upper_bound()).check("n5.lz4", end)?;
            block.append(&mut out)?;
        }
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut out = Vec::new();
        for part in decoded.chunks(self.block_bytes as usize) {
            let packed = compress(part);
            if packed.len() < part.len() {
                self.append(Method::Lz4, part, &packed, &mut out)?;
            } else {
                self.append(Method::Uncompressed, part, part, &mut out)?;
            }
        }
        self.append(Method::Uncompressed, &[], &[], &mut out)?;
        Ok(Cow::Owned(out))
    }
}

impl Lz4Java {
    /// Appends a block of lz4-java to `out`: its header, then `stored`, which is `decoded` encoded with `method`.
    fn append(
        &self,
        method: Method,
        decoded: &[u8],
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let log2 = self.block_bytes.next_power_of_two().trailing_zeros();
        #[expect(clippy::cast_possible_truncation, reason = "a logarithm, at most 25")]
        let size = log2.saturating_sub(MIN_BLOCK_LOG2) as u8;
        out.extend_from_slice(JAVA_MAGIC);
        out.push(method as u8 | size);
        for length in [stored.len(), decoded.len()] {
            let length =
                u32::try_from(length).map_err(|error| Error::too_large("n5.lz4", error))?;
            out.extend_from_slice(&length.to_le_bytes());
        }
        out.extend_from_slice(&checksum(decoded).to_le_bytes());
        out.extend_from_slice(stored);
        Ok(())
    }
}

/// Returns the checksum of the decoded bytes of an lz4-java block; 0 for an empty block.
fn checksum(decoded: &[u8]) -> u32 {
    if decoded.is_empty() {
        0
    } else {
        // lz4-java hashes with this seed and stores only the lower 28 bits of the hash.
        XxHash32::oneshot(0x9747_b28c, decoded) & 0x0fff_ffff
    }
}

/// Removes the next lz4-java block from `rest` and returns it. Fails with `Corrupt` if the lengths and the flags in its
/// header contradict each other.
fn take_block<'a>(rest: &mut &'a [u8]) -> Result<JavaBlock<'a>> {
    let wrong = |what: String| Error::corrupt("n5.lz4", what);
    let (header, after) = rest.split_first_chunk::<JAVA_HEADER>().ok_or_else(|| {
        wrong(format!(
            "{} bytes are too short for the header of a block",
            rest.len()
        ))
    })?;
    let Some(&[token, ref numbers @ ..]) = header.strip_prefix(JAVA_MAGIC.as_slice()) else {
        return Err(wrong(format!(
            "expected LZ4Block, found {:?}",
            &header[..8]
        )));
    };
    let (numbers, _) = numbers.as_chunks();
    let [stored, length, checksum] = [0, 1, 2].map(|n| u32::from_le_bytes(numbers[n]));
    let max = 1_u32 << (MIN_BLOCK_LOG2 + u32::from(token & 0x0f));
    let (method, fits) = match token & 0xf0 {
        0x10 => (Method::Uncompressed, stored == length),
        0x20 => (Method::Lz4, (stored == 0) == (length == 0)),
        _ => {
            return Err(wrong(format!(
                "unknown compression method in token {token:#x}"
            )));
        }
    };
    if !fits || length > max {
        let what =
            format!("invalid header: {stored} stored bytes for a block of {length}, at most {max}");
        return Err(wrong(what));
    }
    let (stored, after) = after
        .split_at_checked(stored as usize)
        .ok_or_else(|| wrong("the chunk ends within a block".to_string()))?;
    *rest = after;
    Ok(JavaBlock {
        method,
        stored,
        length: length as usize,
        checksum,
    })
}

impl JavaBlock<'_> {
    /// Decodes an lz4-java block and appends its bytes to `out`. The caller has checked that they do not exceed the
    /// chunk.
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if self.method == Method::Uncompressed {
            out.extend_from_slice(self.stored);
        } else {
            out.resize(start + self.length, 0);
            let found = decompress_into(self.stored, &mut out[start..])
                .map_err(|error| Error::corrupt("n5.lz4", error))?;
            Length::Exact(self.length).check("n5.lz4", found)?;
        }
        let found = checksum(&out[start..]);
        if found == self.checksum {
            return Ok(());
        }
        let what = format!("expected checksum {:08x}, found {found:08x}", self.checksum);
        Err(Error::corrupt("n5.lz4", what))
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};
    use crate::error::Kind;
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
    fn a_block_is_stored_after_its_decoded_length() {
        let encoded = lz4("numcodecs.lz4", 5).encode(b"zarrs").unwrap();
        assert_eq!(encoded, b"\x05\0\0\0\x50zarrs");
    }

    #[test]
    fn concatenated_frames_are_one_chunk() {
        let data = sample(3000);
        let frames = data
            .chunks(1000)
            .map(|part| lz4("lz4", 1000).encode(part).unwrap());
        let stream = frames.collect::<Vec<_>>().concat();
        assert_eq!(lz4("lz4", 3000).decode(stream.clone()).unwrap(), data);
        assert_corrupt(&lz4("lz4", 1000), stream);
    }

    #[test]
    fn truncated_input_and_other_lengths_are_refused() {
        for name in ["lz4", "numcodecs.lz4"] {
            let encoded = lz4(name, 1000).encode(&sample(1000)).unwrap();
            for end in 0..encoded.len() {
                let decoded = lz4(name, 1000).decode(encoded[..end].to_vec());
                // An LZ4 frame may decode without its end mark (4 bytes), but if more bytes are missing, decoding must
                // fail.
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
    fn a_block_with_another_stated_length_is_corrupt() {
        for length in [0_u32, 999, 1001, 0x7fff_ffff, u32::MAX] {
            let stream = [length.to_le_bytes().as_slice(), &[0; 20]].concat();
            assert_corrupt(&lz4("numcodecs.lz4", 1000), stream);
        }
    }

    /// Block of lz4-java that decodes to `zarrs ` ten times. The hash of the text is 0xc2cdf94c, and its upper four
    /// bits are not stored; the LZ4 data are six letters, a match of 49 bytes and five letters.
    const PACKED: &[u8] =
        b"LZ4Block\x20\x10\0\0\0\x3c\0\0\0\x4c\xf9\xcd\x02\x6fzarrs \x06\0\x1e\x50arrs ";

    /// Block of lz4-java that stores the two bytes `N5` uncompressed.
    const RAW: &[u8] = b"LZ4Block\x10\x02\0\0\0\x02\0\0\0\x27\xe0\xc5\x07N5";

    const END: &[u8] = b"LZ4Block\x10\0\0\0\0\0\0\0\0\0\0\0\0";

    fn n5_lz4(length: u64, block: u64) -> Pipeline {
        let codec = json!({ "name": "n5.lz4", "configuration": { "blockSize": block } });
        pipeline("uint8", &[length], json!(["bytes", codec])).unwrap()
    }

    #[test]
    fn n5_streams_have_the_lz4block_format() {
        let text = b"zarrs ".repeat(10);
        let stream = [PACKED, RAW, END].concat();
        let decoded = [text.as_slice(), b"N5"].concat();
        assert_eq!(n5_lz4(62, 64).decode(stream).unwrap(), decoded);
        // The LZ4 encoder may compress the text to other bytes, so only the flags, the decoded length and the checksum
        // are compared.
        let encoded = n5_lz4(60, 64).encode(&text).unwrap();
        assert_eq!(encoded[..9], PACKED[..9]);
        assert_eq!(encoded[13..21], PACKED[13..21]);
        assert!(encoded.ends_with(END));
        assert_eq!(n5_lz4(2, 64).encode(b"N5").unwrap(), [RAW, END].concat());
    }

    #[test]
    fn an_n5_stream_may_lack_its_end_block_or_have_junk_after_it() {
        for stream in [RAW.to_vec(), [RAW, END, b"junk"].concat()] {
            assert_eq!(n5_lz4(2, 64).decode(stream).unwrap(), b"N5");
        }
        assert_corrupt(&n5_lz4(2, 64), [RAW, b"junk"].concat());
    }

    #[test]
    fn n5_blocks_of_every_size_round_trip() {
        for block in [64, 1000, 1 << 16, 1 << 25] {
            for length in [1, 63, 64, 65, 200_000] {
                let data = sample(length);
                let pipeline = n5_lz4(length as u64, block);
                let encoded = pipeline.encode(&data).unwrap();
                assert!(
                    pipeline.decode(encoded).unwrap() == data,
                    "{block} {length}"
                );
            }
        }
    }

    #[test]
    fn many_small_n5_blocks_round_trip_through_gzip() {
        let codec = json!({ "name": "n5.lz4", "configuration": { "blockSize": 64 } });
        let pipeline = pipeline("uint8", &[3 << 20], json!(["bytes", codec, "gzip"])).unwrap();
        let data =
            Vec::from_iter((0..3 << 20).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8));
        assert_round_trip(&pipeline, &data);
    }

    #[test]
    fn n5_block_headers_with_wrong_values_are_corrupt() {
        let change = |place: usize, byte: u8| {
            let mut stream = [PACKED, END].concat();
            stream[place] = byte;
            stream
        };
        for stream in [
            change(0, b'l'),
            // Changed flags (byte 8): an unknown method, the method of uncompressed blocks, and a maximum length below
            // the block's.
            change(8, 0x30),
            change(8, 0x10),
            [
                &b"LZ4Block\x20\x10\0\0\0\x3c\x04\0\0"[..],
                &PACKED[17..],
                END,
            ]
            .concat(),
            change(9, 0xff),
            change(9, 0),
            change(12, 0xff),
            change(13, 0x3b),
            change(13, 0),
            change(16, 0xff),
            change(17, 0),
            // The upper four bits of the hash, which must be stored as zeros.
            change(20, 0xc2),
        ] {
            let error = n5_lz4(60, 64).decode(stream.clone()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{stream:?}");
        }
    }

    #[test]
    fn truncated_n5_streams_and_other_lengths_are_corrupt() {
        let stream = [PACKED, END].concat();
        for end in (0..stream.len()).filter(|&end| end != PACKED.len()) {
            let error = n5_lz4(60, 64).decode(stream[..end].to_vec()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{end}");
        }
        for length in [1, 59, 61] {
            assert_corrupt(&n5_lz4(length, 64), stream.clone());
        }
    }
}
