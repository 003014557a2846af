//! Reads an open file with `pread`.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::backend::local::directory::failed;
use crate::backend::local::stat::meta_of;
use crate::request_context::RequestContext;
use crate::sync::file_limits::Permit;
use crate::{Key, Meta, Reader, scatter};
use zarr_format::buffer::{self, Buffer};
use zarr_format::error::{Error, Result};

/// An open file. If another file replaces it under its key, this reader does not see that.
pub(super) struct LocalReader {
    fd: OwnedFd,
    key: Key,
    _permit: Permit,
}

impl LocalReader {
    /// Takes a permit for the open file. Fails with `TooManyFiles` if there are no more permits.
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

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // The kernel refuses reads that end beyond the largest signed offset.
        let ends_too_far = offset.saturating_add(wanted as u64) > i64::MAX as u64;
        if ends_too_far || are_short(parts.len(), wanted) {
            let bytes = Buffer::from(self.read_at(context, offset, wanted)?);
            scatter(&bytes, parts);
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

/// Whether buffers of `length` bytes in total are filled faster by one read and a copy.
fn are_short(parts: usize, length: usize) -> bool {
    // With shorter buffers on average, `preadv` costs more than one read and a copy. The bytes must still be in the
    // processor's cache when they are copied.
    parts > 1 && length / parts < 1024 && length <= 1 << 20
}

/// Reads `length` bytes, or fewer at the end of the file. No file exceeds the largest signed offset.
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

/// Fills the buffers in order. Returns the number of bytes read.
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
