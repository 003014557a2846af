//! A file kept open, read by `pread`.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::backend::local::directory::failed;
use crate::backend::local::stat::meta_of;
use crate::request_context::RequestContext;
use crate::sync::descriptors::Permit;
use crate::{Key, Meta, Reader, deal_out};
use zarr_format::buffer::{self, Buffer};
use zarr_format::error::{Error, Result};

/// Shorter parts than this on average, in bytes, cost the kernel more than one copy of all that it reads at once.
const SHORT_PART_BYTES: usize = 1024;
/// The most bytes that are worth the copy: those that a cache of the processor still has.
const MAX_COPIED_BYTES: usize = 1 << 20;

/// A file kept open; a file that replaces it under its key is not seen here.
pub(super) struct LocalReader {
    fd: OwnedFd,
    key: Key,
    _permit: Permit,
}

impl LocalReader {
    /// Keeps a file open. `TooManyFiles` if no more files can be kept open.
    pub(super) fn new(fd: OwnedFd, key: &Key) -> Result<LocalReader> {
        Ok(LocalReader {
            fd,
            key: key.clone(),
            _permit: Permit::take().map_err(|error| error.about(key))?,
        })
    }
}

impl Reader for LocalReader {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        read_span(&self.fd, offset, len as u64).map_err(|error| failed(&self.key, error))
    }

    fn read_scattered(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // The kernel refuses reads that would end beyond the largest signed offset.
        let ends_too_far = offset.saturating_add(wanted as u64) > i64::MAX as u64;
        if ends_too_far || are_short(parts.len(), wanted) {
            let bytes = Buffer::from(self.read_at(context, offset, wanted)?);
            deal_out(&bytes, parts);
            return Ok(bytes.len());
        }
        fill_parts(&self.fd, offset, parts).map_err(|error| failed(&self.key, error))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|error| failed(&self.key, error))?;
        meta_of(&stat).ok_or_else(|| Error::not_found(&self.key))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// Whether parts of `length` bytes together are filled faster from one piece of memory.
fn are_short(parts: usize, length: usize) -> bool {
    parts > 1 && length <= MAX_COPIED_BYTES && length / parts < SHORT_PART_BYTES
}

/// Reads `length` bytes, fewer only at the end of the file; no file exceeds the largest signed offset.
pub(super) fn read_span(fd: &OwnedFd, offset: u64, length: u64) -> rustix::io::Result<Vec<u8>> {
    let length = length.min((i64::MAX as u64).saturating_sub(offset));
    let length = usize::try_from(length).map_err(|_| Errno::FBIG)?;
    let mut bytes = buffer::with_capacity(length);
    if bytes.capacity() < length {
        return Err(Errno::NOMEM);
    }
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(fd, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Fills `parts` one after the other; returns the number of bytes read.
fn fill_parts(
    fd: &OwnedFd,
    offset: u64,
    mut parts: &mut [IoSliceMut<'_>],
) -> rustix::io::Result<usize> {
    let mut total = 0;
    while !parts.is_empty() {
        match rustix::io::preadv(fd, parts, offset + total as u64) {
            Ok(0) => break,
            Ok(read) => {
                total += read;
                IoSliceMut::advance_slices(&mut parts, read);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}
