//! Codec `blosc` (also `numcodecs.blosc`): frames of c-blosc 1.
//!
//! The frame's header (README_CHUNK_FORMAT.rst) is checked against the decoded length that the metadata promise before
//! anything is allocated. Each call of c-blosc uses one thread, since callers run in parallel. c-blosc is built without
//! snappy, which needs a C++ runtime, so the `snap` crate codes those blocks here, and every offset and length in such
//! a frame is checked against the frame's bytes. Bytes after a frame are ignored, as in numcodecs.

#![expect(unsafe_code, reason = "c-blosc is a C library")]

use std::borrow::Cow;
use std::ffi::CStr;

use blosc_src::{
    BLOSC_MAX_BUFFERSIZE, blosc_cbuffer_validate, blosc_compress_ctx, blosc_decompress_ctx,
};
use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Kind, Result};

use super::{leniency, shuffle};

/// Length of the header of a blosc frame in bytes.
const HEADER_BYTES: usize = 16;

/// Version and flags in the header of a frame, and the number by which the flags name snappy.
const VERSION: u8 = 2;
const BYTE_SHUFFLED: u8 = 0x01;
const STORED: u8 = 0x02;
const BIT_SHUFFLED: u8 = 0x04;
const UNSPLIT: u8 = 0x10;
const SNAPPY: u8 = 2;

/// Parameters for encoding with blosc. Decoding ignores them, since a frame states its own.
#[derive(Debug)]
struct Blosc {
    compressor: &'static CStr,
    level: i32,
    shuffle: BloscShuffle,
    /// Element size in bytes; never 0, because c-blosc divides by it.
    typesize: u8,
    blocksize: usize,
}

/// Builds the codec from its configuration (codec `blosc`, "Configuration parameters"), which may have numcodecs'
/// numbers for `shuffle`. Missing parameters have numcodecs' defaults.
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
        // c-blosc treats elements of more than 255 bytes as single bytes; an element size of zero or of more than 32
        // bits would crash it.
        typesize: u8::try_from(typesize).map_or(1, |size| size.max(1)),
        blocksize: blocksize.unwrap_or(0) as usize,
    })))
}

fn compressor(name: &str) -> &'static CStr {
    match name {
        "lz4hc" => c"lz4hc",
        "blosclz" => c"blosclz",
        "zstd" => c"zstd",
        "snappy" => c"snappy",
        "zlib" => c"zlib",
        _ => c"lz4",
    }
}

/// Reads the parameter `shuffle`, a word or numcodecs' number; the number -1 chooses a shuffle by the element size.
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
        want.check("blosc", header.nbytes)?;
        let frame = encoded.get(..header.cbytes).unwrap_or_default();
        leniency::record_trailing_bytes(encoded.len().saturating_sub(header.cbytes));
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
                "{} bytes are more than the {BLOSC_MAX_BUFFERSIZE} that a frame can hold",
                decoded.len()
            );
            return Err(Error::too_large("blosc", found));
        }
        let encoded = if self.compressor == c"snappy" {
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
            written.ok_or_else(|| Error::invalid("blosc", "c-blosc could not encode the chunk"))?,
        );
        Ok(out)
    }
}

/// Has c-blosc check the header of a frame, so that c-blosc reads no byte outside the frame when it decodes.
fn validate(frame: &[u8], length: usize) -> Result<()> {
    let mut nbytes = 0;
    // SAFETY: the pointer is valid for `frame.len()` bytes, and c-blosc reads a header only if there are at least 16;
    // `nbytes` is valid for one size.
    let valid =
        unsafe { blosc_cbuffer_validate(frame.as_ptr().cast(), frame.len(), &raw mut nbytes) };
    if valid < 0 || nbytes != length {
        return Err(Error::corrupt("blosc", "c-blosc rejects the header"));
    }
    Ok(())
}

/// Returns an empty buffer with a capacity of at least `length` bytes; fails with `Unavailable` if memory is out.
fn memory_for(length: usize) -> Result<Vec<u8>> {
    let out = buffer::with_capacity(length);
    if out.capacity() < length {
        return Err(Error::new(Kind::Unavailable, "blosc", "out of memory"));
    }
    Ok(out)
}

/// Decodes a whole blosc frame, whose header states its length in bytes, into exactly `length` bytes. Fails with
/// `Corrupt` if the frame decodes to another length, and with `Unavailable` if memory is out.
fn decompress(frame: &[u8], length: usize) -> Result<Vec<u8>> {
    validate(frame, length)?;
    let mut out = memory_for(length)?;
    // SAFETY: `frame` is as long as its header says, which was just validated, and c-blosc checks every
    // offset it reads against that; it writes at most `length` bytes, for which there is room. The buffers
    // do not overlap and no pointer is kept.
    let written =
        unsafe { blosc_decompress_ctx(frame.as_ptr().cast(), out.as_mut_ptr().cast(), length, 1) };
    // c-blosc may write fewer bytes than the header states: if the length of a block is not a multiple of the number of
    // its streams, the remainder is not written.
    if usize::try_from(written) != Ok(length) {
        let found = format!("expected {length} bytes, c-blosc decoded {written}");
        return Err(Error::corrupt("blosc", found));
    }
    // SAFETY: c-blosc counts the bytes that it has written block by block; if the sum is `length`, every block was
    // written in full, and the blocks are contiguous.
    unsafe { out.set_len(length) };
    Ok(out)
}

/// How blosc reorders the bytes or bits of the elements before compression.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BloscShuffle {
    None,
    Byte,
    Bit,
}

impl BloscShuffle {
    fn flag(self) -> u8 {
        match self {
            BloscShuffle::None => 0,
            BloscShuffle::Byte => BYTE_SHUFFLED,
            BloscShuffle::Bit => BIT_SHUFFLED,
        }
    }

    /// Shuffles a block of decoded bytes before compression. A block too short for the shuffle is copied.
    fn apply(self, typesize: usize, source: &[u8], target: &mut [u8]) {
        match self {
            BloscShuffle::Byte if typesize > 1 => shuffle::shuffle(typesize, source, target),
            BloscShuffle::Bit if source.len() >= typesize => {
                shuffle::bit_shuffle(typesize, source, target)
            }
            BloscShuffle::None | BloscShuffle::Byte | BloscShuffle::Bit => {
                target.copy_from_slice(source)
            }
        }
    }
}

/// The 16-byte header of a blosc frame.
#[derive(Clone, Copy, Debug)]
struct FrameHeader {
    flags: u8,
    typesize: usize,
    blocksize: usize,
    /// Length of the decoded frame, in bytes.
    nbytes: usize,
    /// Length of the encoded frame in bytes, header included.
    cbytes: usize,
}

impl FrameHeader {
    /// Reads the header of a frame and checks all fields that do not depend on the blocks; fails with `Corrupt` if a
    /// field is impossible.
    fn read(frame: &[u8]) -> Result<FrameHeader> {
        let wrong = |what: &str| Error::corrupt("blosc", what);
        let (first, sizes) = frame
            .split_first_chunk::<4>()
            .ok_or_else(|| wrong("too short for a header"))?;
        let size = |n: usize| read_u32(sizes, n * 4).ok_or_else(|| wrong("too short for a header"));
        let header = FrameHeader {
            flags: first[2],
            typesize: usize::from(first[3]),
            nbytes: size(0)?,
            blocksize: size(1)?,
            cbytes: size(2)?,
        };
        if first[0] != VERSION {
            return Err(wrong(&format!(
                "expected format version {VERSION}, found {}",
                first[0]
            )));
        }
        if header.nbytes > 0
            && (header.typesize == 0 || header.blocksize == 0 || header.blocksize > header.nbytes)
        {
            return Err(wrong("the sizes in the header contradict each other"));
        }
        if header.cbytes < HEADER_BYTES || header.cbytes > frame.len() {
            return Err(wrong(&format!(
                "expected {} bytes, found {}",
                header.cbytes,
                frame.len()
            )));
        }
        Ok(header)
    }

    /// Whether the blocks of the frame are compressed with snappy, which this build of c-blosc cannot decode.
    fn has_snappy_blocks(&self) -> bool {
        self.flags & STORED == 0 && self.flags >> 5 == SNAPPY
    }

    /// Returns the number of streams in a block of `block` bytes. Frames of older versions have no flag for it, so the
    /// lengths decide.
    fn splits(&self, block: usize) -> usize {
        // c-blosc divides a block into one stream per byte of an element if elements have at most 16 bytes and each
        // stream gets at least 128 bytes.
        let splits = self.flags & UNSPLIT == 0
            && self.typesize <= 16
            && self.blocksize / self.typesize >= 128
            && block == self.blocksize;
        if splits { self.typesize } else { 1 }
    }

    fn unshuffle(&self, block: &[u8], target: &mut [u8]) {
        if self.flags & BYTE_SHUFFLED != 0 && self.typesize > 1 {
            shuffle::unshuffle(self.typesize, block, target);
        } else if self.flags & BIT_SHUFFLED != 0 && block.len() >= self.typesize {
            shuffle::bit_unshuffle(self.typesize, block, target);
        } else {
            target.copy_from_slice(block);
        }
    }
}

/// Decodes a blosc frame of snappy blocks into exactly `header.nbytes` bytes.
fn decode_snappy(frame: &[u8], header: &FrameHeader) -> Result<Vec<u8>> {
    let broken = || Error::corrupt("blosc", "a block cannot be decoded");
    let mut out = vec![0; header.nbytes];
    let mut block = vec![0; header.blocksize.min(header.nbytes)];
    for (n, target) in out.chunks_mut(header.blocksize.max(1)).enumerate() {
        let start = read_u32(frame, HEADER_BYTES + n * 4).ok_or_else(broken)?;
        let block = block.get_mut(..target.len()).ok_or_else(broken)?;
        decode_block(frame, start, header.splits(target.len()), block).ok_or_else(broken)?;
        header.unshuffle(block, target);
    }
    Ok(out)
}

/// Decodes the streams of a block of a frame. Returns `None` if a stream does not decode to an equal share of the
/// block.
fn decode_block(frame: &[u8], start: usize, splits: usize, block: &mut [u8]) -> Option<()> {
    let share = block.len() / splits;
    if share * splits != block.len() {
        return None;
    }
    let mut offset = start;
    for target in block.chunks_exact_mut(share.max(1)) {
        let length = read_u32(frame, offset)?;
        offset = offset.checked_add(4)?;
        let stream = frame.get(offset..offset.checked_add(length)?)?;
        if length == share {
            target.copy_from_slice(stream);
        } else if Decoder::new().decompress(stream, target).ok()? != share {
            return None;
        }
        offset += length;
    }
    Some(())
}

/// Encodes data as a blosc frame of snappy blocks; a block that snappy does not shorten is stored uncompressed.
/// `typesize` must not be 0.
fn encode_snappy(decoded: &[u8], typesize: u8, shuffle: BloscShuffle) -> Result<Vec<u8>> {
    // Blocks of about 256 KiB, in whole groups of eight elements, so that each full block can be bit-shuffled.
    let unit = 8 * usize::from(typesize);
    let blocksize = ((256 << 10) / unit * unit).max(unit);
    let blocksize = blocksize.min(decoded.len().max(1));
    let count = decoded.len().div_ceil(blocksize);
    let mut out = vec![0; HEADER_BYTES + 4 * count];
    let mut block = vec![0; blocksize];
    for (n, source) in decoded.chunks(blocksize).enumerate() {
        let start = u32::try_from(out.len()).map_err(|error| Error::too_large("blosc", error))?;
        out[HEADER_BYTES + 4 * n..][..4].copy_from_slice(&start.to_le_bytes());
        let target = &mut block[..source.len()];
        shuffle.apply(usize::from(typesize), source, target);
        append_stream(&mut out, target)?;
    }
    let mut flags = UNSPLIT | SNAPPY << 5 | shuffle.flag();
    if out.len() >= decoded.len().saturating_add(HEADER_BYTES) {
        flags |= STORED;
        out.truncate(HEADER_BYTES);
        out.extend_from_slice(decoded);
    }
    let sizes = [decoded.len(), blocksize, out.len()];
    out[..4].copy_from_slice(&[VERSION, 1, flags, typesize]);
    for (field, size) in out[4..HEADER_BYTES]
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(sizes)
    {
        *field = u32::try_from(size)
            .map_err(|error| Error::too_large("blosc", error))?
            .to_le_bytes();
    }
    Ok(out)
}

/// Appends a block to a frame as one stream, after the length of the stream. A stream as long as the block is the
/// uncompressed block.
fn append_stream(out: &mut Vec<u8>, block: &[u8]) -> Result<()> {
    let mut stream = vec![0; max_compress_len(block.len())];
    let length = Encoder::new()
        .compress(block, &mut stream)
        .map_err(|error| Error::invalid("blosc", error))?;
    stream.truncate(length);
    let stream = if length < block.len() { &stream } else { block };
    let length = u32::try_from(stream.len()).map_err(|error| Error::too_large("blosc", error))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(stream);
    Ok(())
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<usize> {
    let word = bytes.get(offset..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};
    use crate::error::{Kind, Result};

    fn blosc(length: u64, configuration: Value) -> Result<Pipeline> {
        let blosc = json!({ "name": "blosc", "configuration": configuration });
        pipeline("uint32", &[length], json!(["bytes", blosc]))
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
    fn out_of_range_typesizes_and_blocksizes_round_trip() {
        let data = sample(4000);
        for typesize in [0, 256, 4_000_000_000_u64, 1 << 32] {
            for shuffle in ["shuffle", "bitshuffle"] {
                let members =
                    json!({ "shuffle": shuffle, "typesize": typesize, "blocksize": 2_147_483_647 });
                let pipeline = blosc(1000, members).unwrap();
                assert_round_trip(&pipeline, &data);
            }
        }
    }

    #[test]
    fn bytes_after_a_frame_are_ignored() {
        let data = sample(4000);
        let pipeline = blosc(1000, json!({})).unwrap();
        let mut encoded = pipeline.encode(&data).unwrap();
        encoded.extend_from_slice(b"junk");
        assert_eq!(pipeline.decode(encoded).unwrap(), data);
    }

    #[test]
    fn a_frame_header_with_another_length_is_corrupt() {
        let pipeline = blosc(1000, json!({})).unwrap();
        let mut encoded = pipeline.encode(&sample(4000)).unwrap();
        for nbytes in [0, 3999, 4001, u32::MAX, 2_147_483_631] {
            encoded[4..8].copy_from_slice(&nbytes.to_le_bytes());
            assert_corrupt(&pipeline, encoded.clone());
        }
    }

    #[test]
    fn a_failed_allocation_is_an_unavailable_error() {
        let error = memory_for(isize::MAX.unsigned_abs()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
    }

    #[test]
    fn snappy_frames_of_any_size_round_trip() {
        for length in [0, 1, 100, 5000, 300_000, 600_001] {
            for typesize in [1, 2, 7, 8, 255] {
                for shuffled in [BloscShuffle::None, BloscShuffle::Byte, BloscShuffle::Bit] {
                    let data = sample(length);
                    let frame = encode_snappy(&data, typesize, shuffled).unwrap();
                    let header = FrameHeader::read(&frame).unwrap();
                    assert_eq!((header.nbytes, header.cbytes), (length, frame.len()));
                    if header.has_snappy_blocks() {
                        assert_eq!(decode_snappy(&frame, &header).unwrap(), data);
                    } else {
                        assert_eq!(frame[HEADER_BYTES..], data);
                    }
                }
            }
        }
    }

    #[test]
    fn mutated_snappy_frames_never_panic() {
        let frame = encode_snappy(&sample(5000), 4, BloscShuffle::Byte).unwrap();
        for place in 0..64.min(frame.len()) {
            for value in 0..=255 {
                let mut frame = frame.clone();
                frame[place] = value;
                if let Ok(header) = FrameHeader::read(&frame)
                    && header.nbytes <= 10_000
                {
                    let _ = decode_snappy(&frame, &header);
                }
            }
        }
    }
}
