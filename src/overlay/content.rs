//! Reads, compares and copies contents and attributes of the upper folder's files, and objects of the store.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use twox_hash::XxHash3_128;

use super::attributes;
use crate::error::{Error, Kind, Result};
use crate::store::Reader;

/// Bytes that are copied at a time.
const COPY_BUFFER: usize = 1 << 20;

/// Returns up to `len` bytes at `offset`; fewer only at the end.
pub(super) fn read_file(file: &File, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    // An offset that no file can have is beyond the end: the kernel would refuse it.
    let there = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(there)];
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies the content of a file; holes stay holes.
pub(super) fn copy_data(from: &File, to: &File) -> std::io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(()),
            start => start?,
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start))?.min(size);
        at = start;
        while at < end {
            let piece = usize::try_from(end - at)
                .unwrap_or(COPY_BUFFER)
                .min(COPY_BUFFER);
            let bytes = read_file(from, at, piece)?;
            if bytes.is_empty() {
                return Ok(());
            }
            to.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

/// Copies an object of the store. `Changed` if it is replaced during each of several attempts.
pub(super) fn copy_stored(reader: &dyn Reader, to: &File) -> Result<()> {
    for _ in 0..MAX_COPY_ATTEMPTS {
        let version = reader.meta()?.version;
        let length = copy_once(reader, to)?;
        if reader.meta()?.version == version {
            return to.set_len(length).map_err(|error| Error::os("", error));
        }
    }
    let why = "is written each time it is read";
    Err(Error::new(Kind::Changed, "", why))
}

/// How often an object is copied again that changes while it is copied.
const MAX_COPY_ATTEMPTS: usize = 4;

/// Copies an object; returns its length in bytes.
fn copy_once(reader: &dyn Reader, to: &File) -> Result<u64> {
    let mut at = 0;
    loop {
        let bytes = reader.read_at(at, COPY_BUFFER)?;
        if bytes.is_empty() {
            return Ok(at);
        }
        to.write_all_at(&bytes, at)
            .map_err(|error| Error::os("", error))?;
        at += bytes.len() as u64;
    }
}

/// Copies owner, mode and extended attributes of a file to another one.
pub(super) fn copy_attributes(from: &File, to: &File) -> rustix::io::Result<()> {
    let stat = rustix::fs::fstat(from)?;
    let change = attributes::owner_and_mode(&attributes::posix_of(&stat));
    attributes::set_open(to, &change)?;
    for name in attributes::xattr_names(from)? {
        let value = attributes::xattr(from, &name)?;
        rustix::fs::fsetxattr(
            to,
            name.as_slice(),
            &value.unwrap_or_default(),
            rustix::fs::XattrFlags::empty(),
        )?;
    }
    Ok(())
}

/// Returns a digest of the bytes of an object.
pub(super) fn digest(reader: &dyn Reader) -> Result<u128> {
    digest_of(|at| reader.read_at(at, COPY_BUFFER))
}

/// Returns a digest of the bytes of a file.
pub(super) fn file_digest(file: &File) -> std::io::Result<u128> {
    digest_of(|at| read_file(file, at, COPY_BUFFER))
}

fn digest_of<E>(
    read: impl Fn(u64) -> std::result::Result<Vec<u8>, E>,
) -> std::result::Result<u128, E> {
    let mut hasher = XxHash3_128::new();
    let mut at = 0;
    loop {
        let bytes = read(at)?;
        if bytes.is_empty() {
            return Ok(hasher.finish_128());
        }
        hasher.write(&bytes);
        at += bytes.len() as u64;
    }
}

/// Whether two objects have the same bytes.
pub(super) fn is_same(one: &dyn Reader, other: &dyn Reader) -> Result<bool> {
    if one.meta()?.size != other.meta()?.size {
        return Ok(false);
    }
    let mut at = 0;
    loop {
        let (ours, theirs) = (
            one.read_at(at, COPY_BUFFER)?,
            other.read_at(at, COPY_BUFFER)?,
        );
        if ours != theirs {
            return Ok(false);
        }
        if ours.is_empty() {
            return Ok(true);
        }
        at += ours.len() as u64;
    }
}
