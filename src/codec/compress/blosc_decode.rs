//! Decoding of frames of c-blosc 1 by c-blosc, which is given the true length of both buffers.
//!
//! A frame is decoded by one thread, since callers run in parallel; a long one that is the only one, by several, each of
//! which decodes some of its blocks.

#![expect(unsafe_code, reason = "c-blosc is a C library")]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use blosc_src::{blosc_cbuffer_validate, blosc_decompress_ctx, blosc_getitem};

use crate::error::{Error, Kind, Result};
use crate::sync::buffer;
use crate::sync::pool::parallel_map;

use super::blosc_frame::{FrameHeader, NAME};

/// Decodes a frame, which is as long as its header says, into exactly as many bytes as that says. `Corrupt` if it does not
/// decode to them, `Unavailable` if memory is out.
pub(super) fn decompress(frame: &[u8], header: &FrameHeader) -> Result<Vec<u8>> {
    let decoding = FrameInDecoding::begin();
    match header.share_of_blocks(decoding.cores(header)) {
        Some(share) => decompress_shared(frame, header, share),
        None => decompress_alone(frame, header.nbytes),
    }
}

/// How many frames are being decoded.
static DECODING: AtomicUsize = AtomicUsize::new(0);

/// The shortest frame, in decoded bytes, that is worth threads of its own.
const MIN_SHARED: usize = 4 << 20;

/// A frame that is being decoded.
struct FrameInDecoding {
    is_alone: bool,
}

impl FrameInDecoding {
    fn begin() -> FrameInDecoding {
        FrameInDecoding {
            is_alone: DECODING.fetch_add(1, Ordering::Relaxed) == 0,
        }
    }

    /// Returns how many cores have nothing else to decode; others come to those that are busy soon enough.
    fn cores(&self, header: &FrameHeader) -> usize {
        if self.is_alone && header.nbytes >= MIN_SHARED {
            thread::available_parallelism().map_or(1, usize::from)
        } else {
            1
        }
    }
}

impl Drop for FrameInDecoding {
    fn drop(&mut self) {
        DECODING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has c-blosc check the header of a frame, of which it then reads nothing outside.
fn validate(frame: &[u8], length: usize) -> Result<()> {
    let mut nbytes = 0;
    // SAFETY: the pointer is valid for `frame.len()` bytes, of which c-blosc reads the header if there are at
    // least 16; `nbytes` is valid for one size.
    let valid =
        unsafe { blosc_cbuffer_validate(frame.as_ptr().cast(), frame.len(), &raw mut nbytes) };
    if valid < 0 || nbytes != length {
        return Err(Error::corrupt(NAME, "a header that c-blosc refuses"));
    }
    Ok(())
}

/// Returns a buffer with room for `length` bytes; `Unavailable` if memory is out.
fn memory_for(length: usize) -> Result<Vec<u8>> {
    let out = buffer::with_capacity(length);
    if out.capacity() < length {
        return Err(Error::new(Kind::Unavailable, NAME, "no memory"));
    }
    Ok(out)
}

/// Decodes a whole frame by several threads, each of which decodes `share` bytes: whole blocks and whole elements.
fn decompress_shared(frame: &[u8], header: &FrameHeader, share: usize) -> Result<Vec<u8>> {
    validate(frame, header.nbytes)?;
    let mut out = memory_for(header.nbytes)?;
    let room = out.spare_capacity_mut().get_mut(..header.nbytes);
    let parts: Vec<_> = room.unwrap_or_default().chunks_mut(share).collect();
    let first = |number: usize| number * (share / header.typesize);
    let parts: Vec<_> = parts.into_iter().enumerate().collect();
    let decode = |(number, part): (usize, &mut [MaybeUninit<u8>])| {
        decompress_items(frame, header.typesize, first(number), part)
    };
    let done = parallel_map(parts.len(), parts, &decode);
    let written: usize = done.into_iter().sum::<Result<usize>>()?;
    if written != header.nbytes {
        let found = format!("expected {} bytes, c-blosc gave {written}", header.nbytes);
        return Err(Error::corrupt(NAME, found));
    }
    // SAFETY: each part was written in full, and they lie side by side.
    unsafe { out.set_len(header.nbytes) };
    Ok(out)
}

/// Decodes the elements of a valid frame from `first` on, until `out` is full; returns its length.
fn decompress_items(
    frame: &[u8],
    typesize: usize,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<usize> {
    let number = |items: usize| i32::try_from(items).map_err(|error| Error::too_large(NAME, error));
    let (first, count) = (number(first)?, number(out.len() / typesize)?);
    // SAFETY: `frame` is as long as its header says, which was validated, and c-blosc checks every offset that it
    // reads against that; it writes at most `count` elements, for which there is room, and keeps no pointer.
    let written =
        unsafe { blosc_getitem(frame.as_ptr().cast(), first, count, out.as_mut_ptr().cast()) };
    if usize::try_from(written) != Ok(out.len()) {
        return Err(Error::corrupt(NAME, "a block that does not decode"));
    }
    Ok(out.len())
}

/// Decodes a whole frame by one thread into exactly `length` bytes.
fn decompress_alone(frame: &[u8], length: usize) -> Result<Vec<u8>> {
    validate(frame, length)?;
    let mut out = memory_for(length)?;
    // SAFETY: `frame` is as long as its header says, which was just validated, and c-blosc checks every
    // offset it reads against that; it writes at most `length` bytes, for which there is room. The buffers
    // do not overlap and no pointer is kept.
    let written =
        unsafe { blosc_decompress_ctx(frame.as_ptr().cast(), out.as_mut_ptr().cast(), length, 1) };
    // c-blosc may write less: blocks that do not divide evenly among their streams leave a rest unwritten.
    if usize::try_from(written) != Ok(length) {
        let found = format!("expected {length} bytes, c-blosc gave {written}");
        return Err(Error::corrupt(NAME, found));
    }
    // SAFETY: c-blosc counts what it has written block by block; if that is `length`, every block was
    // written in full, and they lie side by side.
    unsafe { out.set_len(length) };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::blosc_frame::HEADER_BYTES;
    use super::*;
    use crate::codec::tests::{pipeline, sample};
    use serde_json::{Value, json};

    /// Returns the frame of bytes as 32-bit numbers.
    fn frame(data: &[u8], configuration: &Value) -> Vec<u8> {
        let little = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        let blosc = json!({ "name": "blosc", "configuration": configuration });
        let pipeline = pipeline("uint32", &[data.len() as u64 / 4], json!([little, blosc]));
        pipeline.unwrap().encode(data).unwrap()
    }

    #[test]
    fn frames_decoded_by_several_threads_are_those_of_one() {
        let data = sample(1_000_000);
        for (cname, shuffle, typesize) in [
            ("lz4", "shuffle", 4),
            ("zstd", "bitshuffle", 8),
            ("blosclz", "noshuffle", 2),
            ("lz4", "shuffle", 7),
        ] {
            for clevel in [0, 5] {
                let members = json!({ "cname": cname, "clevel": clevel, "shuffle": shuffle, "typesize": typesize });
                let frame = frame(&data, &members);
                let header = FrameHeader::read(&frame).unwrap();
                let whole_elements = data.len().is_multiple_of(typesize);
                for cores in [2, 3, 16] {
                    let share = header.share_of_blocks(cores);
                    assert!(whole_elements || share.is_none(), "{cname} {typesize}");
                    let is_stored = header.cbytes >= data.len();
                    assert!(
                        share.is_some() || is_stored || !whole_elements,
                        "{cname} {typesize}"
                    );
                    if let Some(share) = share {
                        assert!(decompress_shared(&frame, &header, share).unwrap() == data);
                    }
                }
            }
        }
    }

    #[test]
    fn mutated_frames_decoded_by_several_threads_never_panic() {
        let data = sample(200_000);
        let members = json!({ "cname": "lz4", "typesize": 4, "blocksize": 16_384 });
        let whole = frame(&data, &members);
        for place in (0..HEADER_BYTES + 80).chain([whole.len() / 2, whole.len() - 1]) {
            for change in [1, 0x40, 0x80, 0xff] {
                let mut frame = whole.clone();
                frame[place] ^= change;
                let header = FrameHeader::read(&frame);
                let Ok(header) = header.map_err(|error| assert_eq!(error.kind(), Kind::Corrupt))
                else {
                    continue;
                };
                let frame = &frame[..header.cbytes];
                if let Some(share) = header
                    .share_of_blocks(2)
                    .filter(|_| header.nbytes < 1 << 20)
                {
                    let one = decompress_alone(frame, header.nbytes);
                    let several = decompress_shared(frame, &header, share);
                    assert_eq!(one.is_ok(), several.is_ok(), "{place} {change}");
                    assert!(one.ok() == several.ok(), "{place} {change}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_decoded_where_memory_is_out() {
        let error = memory_for(isize::MAX.unsigned_abs()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
    }
}
