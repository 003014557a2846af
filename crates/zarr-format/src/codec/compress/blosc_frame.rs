//! The frame format of c-blosc 1 (README_CHUNK_FORMAT.rst), and its blocks compressed with snappy.
//!
//! c-blosc is built without snappy, which needs a C++ runtime, so the `snap` crate codes those blocks here. Every
//! offset and length in a frame is checked against the frame's bytes. c-blosc codes all other blocks (`blosc.rs`).

use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::error::{Error, Result};

use super::shuffle;

pub(super) const NAME: &str = "blosc";
pub(super) const HEADER_BYTES: usize = 16;

const VERSION: u8 = 2;
const BYTE_SHUFFLED: u8 = 0x01;
const STORED: u8 = 0x02;
const BIT_SHUFFLED: u8 = 0x04;
const UNSPLIT: u8 = 0x10;
const SNAPPY: u8 = 2;

/// How elements are shuffled before compression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BloscShuffle {
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

    /// Shuffles a block. A block that is too short for its shuffle is copied.
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

/// The first 16 bytes of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    flags: u8,
    typesize: usize,
    blocksize: usize,
    /// Number of decoded bytes.
    pub(super) nbytes: usize,
    /// Number of bytes in the frame, header included.
    pub(super) cbytes: usize,
}

impl FrameHeader {
    /// Reads the header and checks all fields that do not depend on the blocks; `Corrupt` if they are impossible.
    pub(super) fn read(frame: &[u8]) -> Result<FrameHeader> {
        let wrong = |what: &str| Error::corrupt(NAME, what);
        let (first, sizes) = frame
            .split_first_chunk::<4>()
            .ok_or_else(|| wrong("no header"))?;
        let size = |n: usize| read_u32(sizes, n * 4).ok_or_else(|| wrong("no header"));
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
            return Err(wrong("a header with impossible sizes"));
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

    /// Whether there are blocks that c-blosc cannot decode.
    pub(super) fn has_snappy_blocks(&self) -> bool {
        self.flags & STORED == 0 && self.flags >> 5 == SNAPPY
    }

    /// Returns the number of streams in a block of this length. Frames of older versions have no flag for it.
    fn splits(&self, block: usize) -> usize {
        const MAX_SPLITS: usize = 16;
        const MIN_STREAM: usize = 128;
        let splits = self.flags & UNSPLIT == 0
            && self.typesize <= MAX_SPLITS
            && self.blocksize / self.typesize >= MIN_STREAM
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

/// Decodes a frame of snappy blocks into exactly `header.nbytes` bytes.
pub(super) fn decode_snappy(frame: &[u8], header: &FrameHeader) -> Result<Vec<u8>> {
    let broken = || Error::corrupt(NAME, "a block that does not decode");
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

/// Decodes the streams of one block. Returns `None` if one of them does not decode to its share of the block.
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

/// Encodes a frame of snappy blocks, each stored uncompressed if snappy does not shorten it; `typesize` is not 0.
pub(super) fn encode_snappy(
    decoded: &[u8],
    typesize: u8,
    shuffle: BloscShuffle,
) -> Result<Vec<u8>> {
    const BLOCK_BYTES: usize = 256 << 10;
    // Whole groups of eight elements, so that each full block can be bit-shuffled.
    let unit = 8 * usize::from(typesize);
    let blocksize = (BLOCK_BYTES / unit * unit).max(unit);
    let blocksize = blocksize.min(decoded.len().max(1));
    let count = decoded.len().div_ceil(blocksize);
    let mut out = vec![0; HEADER_BYTES + 4 * count];
    let mut block = vec![0; blocksize];
    for (n, source) in decoded.chunks(blocksize).enumerate() {
        let start = u32::try_from(out.len()).map_err(|error| Error::too_large(NAME, error))?;
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
            .map_err(|error| Error::too_large(NAME, error))?
            .to_le_bytes();
    }
    Ok(out)
}

/// Appends a block as the length of its stream and the stream. A stream as long as its block is the uncompressed block.
fn append_stream(out: &mut Vec<u8>, block: &[u8]) -> Result<()> {
    let mut stream = vec![0; max_compress_len(block.len())];
    let length = Encoder::new()
        .compress(block, &mut stream)
        .map_err(|error| Error::invalid(NAME, error))?;
    stream.truncate(length);
    let stream = if length < block.len() { &stream } else { block };
    let length = u32::try_from(stream.len()).map_err(|error| Error::too_large(NAME, error))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(stream);
    Ok(())
}

/// Reads a little-endian 32-bit number.
fn read_u32(bytes: &[u8], offset: usize) -> Option<usize> {
    let word = bytes.get(offset..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::sample;

    #[test]
    fn frames_of_any_size_come_back() {
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
    fn mutated_frames_never_panic() {
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
