//! Calls the zfp library to encode and decode streams.
//!
//! zfp does not check the bounds of a stream. So zfp reads a copy of the stream that is padded with more zeros than a
//! block can have, and the read position is checked after each block. `mod.rs` and `field.rs` check modes and arrays
//! before zfp is called.

#![expect(unsafe_code, reason = "zfp is a C library")]

use std::ptr::NonNull;

use zfp_sys::*;

use crate::error::{Error, Result};

use super::field::{SIDE, Scalar, ZfpField};
use super::{MAX_BITS, Mode};

/// Number of zero bytes after the copy of a stream. zfp reads less beyond its end: a header of 148 bits, or a block of
/// at most `MAX_BITS` and one word.
const PADDING: usize = 2 * MAX_BITS as usize / 8;

/// Size in bytes of the largest decoded block: four dimensions of 8-byte numbers.
const BLOCK_BYTES: usize = 8 * SIDE * SIDE * SIDE * SIDE;

fn zfp_type_of(scalar: Scalar) -> zfp_type {
    match scalar {
        Scalar::Int32 => zfp_type_zfp_type_int32,
        Scalar::Int64 => zfp_type_zfp_type_int64,
        Scalar::Float => zfp_type_zfp_type_float,
        Scalar::Double => zfp_type_zfp_type_double,
    }
}

/// Returns zfp's description of an array whose numbers are at `data`.
fn zfp_field_of(field: &ZfpField, data: *mut std::ffi::c_void) -> zfp_field {
    let [nx, ny, nz, nw] = field.sides(0);
    zfp_field {
        type_: zfp_type_of(field.scalar),
        nx,
        ny,
        nz,
        nw,
        sx: 0,
        sy: 0,
        sz: 0,
        sw: 0,
        data,
    }
}

/// A buffer for one decoded block of any number type, aligned for zfp.
#[repr(align(8))]
struct ZfpBlock([u8; BLOCK_BYTES]);

/// A zfp stream: the two handles of the library, which are closed on drop, and the words that they point to.
struct ZfpStream {
    words: Vec<u64>,
    bits: NonNull<bitstream>,
    zfp: NonNull<zfp_stream>,
}

impl ZfpStream {
    /// Opens a zfp stream over `words`.
    fn open(mut words: Vec<u64>) -> Result<ZfpStream> {
        let no_memory = || Error::too_large("zfp", "out of memory");
        let length = words.len() * size_of::<u64>();
        // SAFETY: the words are valid for `length` bytes, aligned, and do not move while the stream lives, since
        // nothing changes the vector's length.
        let bits = unsafe { stream_open(words.as_mut_ptr().cast(), length) };
        let bits = NonNull::new(bits).ok_or_else(no_memory)?;
        // SAFETY: `bits` is an open bit stream.
        let zfp = NonNull::new(unsafe { zfp_stream_open(bits.as_ptr()) });
        let Some(zfp) = zfp else {
            // SAFETY: `bits` is an open bit stream without another owner.
            unsafe { stream_close(bits.as_ptr()) };
            return Err(no_memory());
        };
        Ok(ZfpStream { words, bits, zfp })
    }

    /// Sets the mode of the stream. The parameters were checked when the configuration was read.
    fn set_mode(&mut self, mode: Mode, field: &ZfpField) -> Result<()> {
        let zfp = self.zfp.as_ptr();
        // SAFETY: `zfp` is an open stream; `rate_bits` accepted the rate, so the number of bits fits its type.
        let accepted = unsafe {
            match mode {
                Mode::Reversible => zfp_stream_set_reversible(zfp),
                Mode::Rate { rate, dimensions } => {
                    let dimensions = u32::try_from(dimensions).unwrap_or(u32::MAX);
                    zfp_stream_set_rate(zfp, rate, zfp_type_of(field.scalar), dimensions, 0);
                }
                Mode::Precision(precision) => {
                    zfp_stream_set_precision(zfp, precision);
                }
                Mode::Accuracy(tolerance) => {
                    zfp_stream_set_accuracy(zfp, tolerance);
                }
                Mode::Expert { .. } => {}
            }
            match mode {
                Mode::Expert {
                    minbits,
                    maxbits,
                    maxprec,
                    minexp,
                } => zfp_stream_set_params(zfp, minbits, maxbits, maxprec, minexp) != 0,
                _ => true,
            }
        };
        if accepted {
            Ok(())
        } else {
            Err(Error::corrupt("zfp", "zfp rejects the parameters"))
        }
    }

    /// Reads the header of the stream, which sets the mode. Fails with `Corrupt` if the header does not match `field`.
    fn read_header(&mut self, field: &ZfpField) -> Result<()> {
        let want = zfp_field_of(field, std::ptr::null_mut());
        let mut found = want;
        // SAFETY: both pointers are valid; the header is shorter than the padding after the stream.
        let bits = unsafe { zfp_read_header(self.zfp.as_ptr(), &raw mut found, ZFP_HEADER_FULL) };
        if bits == 0 {
            return Err(Error::corrupt("zfp", "the zfp header is missing"));
        }
        let type_and_shape = |field: &zfp_field| {
            let sides = [field.nw, field.nz, field.ny, field.nx];
            let shape = Vec::from_iter(sides.into_iter().filter(|side| *side != 0));
            (field.type_, shape)
        };
        if type_and_shape(&want) == type_and_shape(&found) {
            return Ok(());
        }
        let [(want, shape), (other, lengths)] = [type_and_shape(&want), type_and_shape(&found)];
        let found = format!(
            "expected zfp type {want} and shape {shape:?}, found type {other} and shape {lengths:?}"
        );
        Err(Error::corrupt("zfp", found))
    }

    fn position(&self) -> u64 {
        // SAFETY: the stream is open.
        unsafe { stream_rtell(self.bits.as_ptr()) }
    }

    /// Decodes the next block of the stream. The caller has checked that the read position is before the padding.
    fn read_block(&mut self, scalar: Scalar, dimensions: usize, block: &mut ZfpBlock) {
        use Scalar::{Double, Float, Int32, Int64};
        let (zfp, to) = (self.zfp.as_ptr(), block.0.as_mut_ptr());
        // SAFETY: the stream is open, and the words after its position are more than a block takes in any accepted
        // mode. zfp writes a block of at most 4^4 numbers of 8 bytes, for which the aligned buffer has room.
        unsafe {
            match (scalar, dimensions) {
                (Int32, 1) => zfp_decode_block_int32_1(zfp, to.cast()),
                (Int32, 2) => zfp_decode_block_int32_2(zfp, to.cast()),
                (Int32, 3) => zfp_decode_block_int32_3(zfp, to.cast()),
                (Int32, _) => zfp_decode_block_int32_4(zfp, to.cast()),
                (Int64, 1) => zfp_decode_block_int64_1(zfp, to.cast()),
                (Int64, 2) => zfp_decode_block_int64_2(zfp, to.cast()),
                (Int64, 3) => zfp_decode_block_int64_3(zfp, to.cast()),
                (Int64, _) => zfp_decode_block_int64_4(zfp, to.cast()),
                (Float, 1) => zfp_decode_block_float_1(zfp, to.cast()),
                (Float, 2) => zfp_decode_block_float_2(zfp, to.cast()),
                (Float, 3) => zfp_decode_block_float_3(zfp, to.cast()),
                (Float, _) => zfp_decode_block_float_4(zfp, to.cast()),
                (Double, 1) => zfp_decode_block_double_1(zfp, to.cast()),
                (Double, 2) => zfp_decode_block_double_2(zfp, to.cast()),
                (Double, 3) => zfp_decode_block_double_3(zfp, to.cast()),
                (Double, _) => zfp_decode_block_double_4(zfp, to.cast()),
            }
        };
    }
}

impl Drop for ZfpStream {
    fn drop(&mut self) {
        // SAFETY: both handles are open and have no other owner, and the words that they point to are dropped later.
        unsafe {
            zfp_stream_close(self.zfp.as_ptr());
            stream_close(self.bits.as_ptr());
        }
    }
}

/// Decodes a zfp stream into exactly `field.bytes`. If `mode` is `None`, the mode is read from the stream's header.
/// Bytes after the last block are ignored, as in zfp. Fails with `Corrupt` if the stream is truncated or its header
/// does not match `field`.
pub(super) fn decode(field: &ZfpField, mode: Option<Mode>, encoded: &[u8]) -> Result<Vec<u8>> {
    let padding = std::iter::repeat_n(0, PADDING / size_of::<u64>());
    let mut stream = ZfpStream::open(Vec::from_iter(words(encoded).chain(padding)))?;
    match mode {
        Some(mode) => stream.set_mode(mode, field)?,
        None => stream.read_header(field)?,
    }
    let end = 8 * encoded.len() as u64;
    let sides = field.sides(1);
    let [nx, ny, nz, nw] = sides;
    let mut block = ZfpBlock([0; BLOCK_BYTES]);
    let mut decoded = vec![0; field.bytes];
    for w in (0..nw).step_by(SIDE) {
        for z in (0..nz).step_by(SIDE) {
            for y in (0..ny).step_by(SIDE) {
                for x in (0..nx).step_by(SIDE) {
                    if stream.position() >= end {
                        return Err(ended(end));
                    }
                    stream.read_block(field.scalar, field.shape.len(), &mut block);
                    copy_block(&block, [x, y, z, w], field, &mut decoded);
                }
            }
        }
    }
    if stream.position() > end {
        return Err(ended(end));
    }
    swap_big(&mut decoded, field.scalar.width());
    Ok(decoded)
}

fn ended(end: u64) -> Error {
    Error::corrupt("zfp", format!("the stream is cut off after {end} bits"))
}

/// Copies a decoded block to its position in the array, without the elements beyond the edges of the array.
fn copy_block(block: &ZfpBlock, at: [usize; 4], field: &ZfpField, decoded: &mut [u8]) {
    let width = field.scalar.width();
    let [nx, ny, nz, nw] = field.sides(1);
    let [x, y, z, w] = at;
    let row = SIDE.min(nx - x) * width;
    for dw in 0..SIDE.min(nw - w) {
        for dz in 0..SIDE.min(nz - z) {
            for dy in 0..SIDE.min(ny - y) {
                let from = ((dw * SIDE + dz) * SIDE + dy) * SIDE * width;
                let to = ((((w + dw) * nz + z + dz) * ny + y + dy) * nx + x) * width;
                decoded[to..to + row].copy_from_slice(&block.0[from..from + row]);
            }
        }
    }
}

/// Encodes an array as a zfp stream, with or without a header. Fails with `Invalid` if the header cannot store the
/// shape.
pub(super) fn encode(
    field: &ZfpField,
    mode: Mode,
    header: bool,
    decoded: &[u8],
) -> Result<Vec<u8>> {
    if decoded.len() != field.bytes {
        let found = format!("expected {} bytes, found {}", field.bytes, decoded.len());
        return Err(Error::invalid("zfp", found));
    }
    let mut numbers = aligned(decoded, field.scalar.width());
    let array = zfp_field_of(field, numbers.as_mut_ptr().cast());
    let room = field.max_stream_bytes(mode).saturating_add(PADDING) / size_of::<u64>();
    let mut stream = ZfpStream::open(vec![0; room])?;
    stream.set_mode(mode, field)?;
    let zfp = stream.zfp.as_ptr();
    // SAFETY: `array` describes `numbers` and has their exact length; the stream is open.
    let max_bytes = unsafe { zfp_stream_maximum_size(zfp, &raw const array) };
    if max_bytes == 0 || max_bytes > room * size_of::<u64>() {
        let found = format!("zfp needs up to {max_bytes} bytes, more than expected");
        return Err(Error::too_large("zfp", found));
    }
    // SAFETY: `array` describes `numbers`, and the stream is open; its buffer has room for the maximum that zfp
    // returned.
    let written = unsafe {
        if header && zfp_write_header(zfp, &raw const array, ZFP_HEADER_FULL) == 0 {
            return Err(Error::invalid(
                "zfp",
                "the zfp header cannot express the shape or the mode",
            ));
        }
        zfp_compress(zfp, &raw const array)
    };
    if written == 0 {
        return Err(Error::invalid("zfp", "zfp could not encode the chunk"));
    }
    let words = stream.words.iter().take(written.div_ceil(8));
    Ok(words.flat_map(|word| word.to_le_bytes()).collect())
}

/// Copies numbers to words, in the byte order of the machine, since zfp needs aligned numbers.
fn aligned(decoded: &[u8], width: usize) -> Vec<u64> {
    let mut numbers = decoded.to_vec();
    swap_big(&mut numbers, width);
    numbers.resize(numbers.len().next_multiple_of(size_of::<u64>()), 0);
    let (words, _) = numbers.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Splits a stream into words; the last word is padded with zeros.
fn words(encoded: &[u8]) -> impl Iterator<Item = u64> {
    encoded.chunks(size_of::<u64>()).map(|bytes| {
        let mut word = [0; size_of::<u64>()];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

/// Converts numbers between little-endian and the byte order of the machine.
fn swap_big(numbers: &mut [u8], width: usize) {
    if cfg!(target_endian = "big") {
        numbers.chunks_mut(width).for_each(<[u8]>::reverse);
    }
}
