//! Decodes frames of c-blosc 1 with c-blosc, within the true buffer lengths.
//!
//! A frame is decoded by one thread, since callers run in parallel.

#![expect(unsafe_code, reason = "c-blosc is a C library")]

use blosc_src::{blosc_cbuffer_validate, blosc_decompress_ctx};

use crate::buffer;
use crate::error::{Error, Kind, Result};

use super::blosc_frame::NAME;

/// Has c-blosc check the header of a frame, so that decoding reads no byte outside it.
fn validate(frame: &[u8], length: usize) -> Result<()> {
    let mut nbytes = 0;
    // SAFETY: the pointer is valid for `frame.len()` bytes, and c-blosc reads a header only if there are at least 16;
    // `nbytes` is valid for one size.
    let valid =
        unsafe { blosc_cbuffer_validate(frame.as_ptr().cast(), frame.len(), &raw mut nbytes) };
    if valid < 0 || nbytes != length {
        return Err(Error::corrupt(NAME, "a header that c-blosc refuses"));
    }
    Ok(())
}

/// Returns an empty buffer with room for `length` bytes; `Unavailable` if memory is out.
fn memory_for(length: usize) -> Result<Vec<u8>> {
    let out = buffer::with_capacity(length);
    if out.capacity() < length {
        return Err(Error::new(Kind::Unavailable, NAME, "no memory"));
    }
    Ok(out)
}

/// Decodes a whole frame, which must have the length in its header, into exactly `length` bytes. `Corrupt` if it does
/// not decode to them, `Unavailable` if memory is out.
pub(super) fn decompress(frame: &[u8], length: usize) -> Result<Vec<u8>> {
    validate(frame, length)?;
    let mut out = memory_for(length)?;
    // SAFETY: `frame` is as long as its header says, which was just validated, and c-blosc checks every
    // offset it reads against that; it writes at most `length` bytes, for which there is room. The buffers
    // do not overlap and no pointer is kept.
    let written =
        unsafe { blosc_decompress_ctx(frame.as_ptr().cast(), out.as_mut_ptr().cast(), length, 1) };
    // c-blosc may write fewer bytes: if a block does not divide evenly among its streams, the remainder is not written.
    if usize::try_from(written) != Ok(length) {
        let found = format!("expected {length} bytes, c-blosc gave {written}");
        return Err(Error::corrupt(NAME, found));
    }
    // SAFETY: c-blosc counts the bytes that it has written block by block; if the sum is `length`, every block was
    // written in full, and the blocks are contiguous.
    unsafe { out.set_len(length) };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_decoded_where_memory_is_out() {
        let error = memory_for(isize::MAX.unsigned_abs()).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
    }
}
