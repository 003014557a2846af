//! Reads, compares, copies and digests contents of files and objects.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use twox_hash::XxHash3_128;

use crate::attributes;
use crate::journal_record::{ContentDigest, Mark};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sparse::next_data;
use zarrfs_store::{Reader, Version};

/// Number of bytes that are copied at a time.
pub(crate) const COPY_BUFFER: usize = 1 << 20;

/// Returns up to `len` bytes at `offset`; fewer only at the end of the file.
pub(crate) fn read_file(file: &File, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    // Limit the length by the file size, because the kernel returns an error for an offset that no file can have.
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
pub(crate) fn copy_data(from: &File, to: &File) -> std::io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut at = 0;
    while let Some(data) = next_data(from, at, size)? {
        at = data.start;
        while at < data.end {
            let bytes = read_file(from, at, piece_of(at..data.end))?;
            if bytes.is_empty() {
                return Ok(());
            }
            to.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

/// Copies a range of a file; holes become zeros.
pub(crate) fn copy_range(from: &File, to: &File, mut range: Range<u64>) -> std::io::Result<()> {
    while range.start < range.end {
        let bytes = read_file(from, range.start, piece_of(range.clone()))?;
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all_at(&bytes, range.start)?;
        range.start += bytes.len() as u64;
    }
    Ok(())
}

/// Returns the length of the next block to copy of a range of bytes.
fn piece_of(range: Range<u64>) -> usize {
    let length = usize::try_from(range.end - range.start);
    length.unwrap_or(COPY_BUFFER).min(COPY_BUFFER)
}

/// Length, digest and version of a store's object.
#[derive(Clone, Copy)]
pub(crate) struct StoredContent {
    pub(crate) version: Version,
    pub(crate) content: ContentDigest,
}

/// Copies an object of the store to a file; returns the object's version and digest. Fails with `Changed` if other
/// programs keep replacing the object during the copy.
pub(crate) fn copy_stored(
    context: &RequestContext,
    reader: &dyn Reader,
    to: &File,
) -> Result<StoredContent> {
    for _ in 0..4 {
        let version = reader.meta(context)?.version;
        let content = read_all(context, reader, |bytes, at| {
            let written = to.write_all_at(bytes, at);
            written.map_err(|error| Error::os("", error))
        })?;
        if reader.meta(context)?.version == version {
            let cut = to.set_len(content.length);
            cut.map_err(|error| Error::os("", error))?;
            return Ok(StoredContent { version, content });
        }
    }
    let why = "keeps changing while it is being read";
    Err(Error::new(Kind::Changed, "", why))
}

/// Reads a whole object; returns its length and digest. `take` gets the bytes of each block with their offset.
fn read_all(
    context: &RequestContext,
    reader: &dyn Reader,
    take: impl Fn(&[u8], u64) -> Result<()>,
) -> Result<ContentDigest> {
    let mut hasher = XxHash3_128::new();
    let mut length = 0;
    loop {
        let bytes = reader.read_at(context, length, COPY_BUFFER)?;
        if bytes.is_empty() {
            let digest = hasher.finish_128();
            return Ok(ContentDigest { length, digest });
        }
        take(&bytes, length)?;
        hasher.write(&bytes);
        length += bytes.len() as u64;
    }
}

/// Maximum size in bytes of a replaced object that is read to record its digest. Reading it takes about as long as
/// writing the new content.
pub(crate) const MAX_REPLACED: u64 = 16 << 20;

/// Maximum size in bytes of a removed or renamed object that is read to record its digest. A removal takes 0.4 ms, as
/// long as reading 1 MiB from memory.
pub(crate) const MAX_REMOVED: u64 = 64 << 10;

/// Returns version and digest of an object. Returns `None` if the object is longer than `limit` bytes, or was replaced
/// while it was read.
pub(crate) fn short_content(
    context: &RequestContext,
    reader: &dyn Reader,
    limit: u64,
) -> Result<Option<StoredContent>> {
    let before = reader.meta(context)?;
    if before.size > limit {
        return Ok(None);
    }
    let content = digest(context, reader)?;
    let is_same = reader.meta(context)?.version == before.version;
    Ok(is_same.then_some(StoredContent {
        version: before.version,
        content,
    }))
}

/// Copies owner, mode and extended attributes from one file to another. Other `user.` attributes are removed.
pub(crate) fn copy_attributes(from: &File, to: &File) -> rustix::io::Result<()> {
    let stat = rustix::fs::fstat(from)?;
    let change = attributes::owner_and_mode(&attributes::posix_of(&stat));
    attributes::set_all(to, &attributes::xattrs(from)?, &change)
}

pub(crate) fn digest(context: &RequestContext, reader: &dyn Reader) -> Result<ContentDigest> {
    read_all(context, reader, |_, _| Ok(()))
}

/// Returns the mark (inode, length and digest) by which the journal recognizes a file's content.
pub(crate) fn mark_of(file: &File) -> std::io::Result<Mark> {
    let digest = file_digest(file)?;
    mark_with(file, Some(digest))
}

/// Returns the mark (inode, length and digest) of a file whose digest is already known.
pub(crate) fn mark_with(file: &File, digest: Option<u128>) -> std::io::Result<Mark> {
    let stat = rustix::fs::fstat(file)?;
    Ok(Mark {
        inode: stat.st_ino,
        length: u64::try_from(stat.st_size).unwrap_or(0),
        digest,
    })
}

/// Returns the digest of a file's bytes. Holes are not read.
pub(crate) fn file_digest(file: &File) -> std::io::Result<u128> {
    let size = file.metadata()?.len();
    let mut hasher = XxHash3_128::new();
    let mut at = 0;
    while let Some(data) = next_data(file, at, size)? {
        add_zeros(&mut hasher, at..data.start);
        at = data.start;
        while at < data.end {
            let bytes = read_file(file, at, piece_of(at..data.end))?;
            if bytes.is_empty() {
                return Ok(hasher.finish_128());
            }
            hasher.write(&bytes);
            at += bytes.len() as u64;
        }
    }
    add_zeros(&mut hasher, at..size);
    Ok(hasher.finish_128())
}

/// Updates a digest with the zeros of a hole of a sparse file.
fn add_zeros(hasher: &mut XxHash3_128, mut hole: Range<u64>) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while hole.start < hole.end {
        let piece = piece_of(hole.clone()).min(ZEROS.len());
        hasher.write(&ZEROS[..piece]);
        hole.start += piece as u64;
    }
}

/// Whether two objects have the same bytes.
pub(crate) fn is_same(
    context: &RequestContext,
    one: &dyn Reader,
    other: &dyn Reader,
) -> Result<bool> {
    if one.meta(context)?.size != other.meta(context)?.size {
        return Ok(false);
    }
    let mut at = 0;
    loop {
        let (ours, theirs) = (
            one.read_at(context, at, COPY_BUFFER)?,
            other.read_at(context, at, COPY_BUFFER)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_do_not_change_the_digest_of_a_file() {
        let file = tempfile::tempfile().unwrap();
        for (offset, bytes, length) in [
            (0, &b""[..], 0),
            (0, b"start", 100_000),
            (3 << 20, b"middle", 5 << 20),
            ((9 << 20) + 1, b"end", (9 << 20) + 4),
        ] {
            file.write_all_at(bytes, offset).unwrap();
            file.set_len(length).unwrap();
            let whole = read_file(&file, 0, length as usize).unwrap();
            assert_eq!(whole.len() as u64, length);
            let digest = XxHash3_128::oneshot(&whole);
            assert_eq!(file_digest(&file).unwrap(), digest);
        }
    }
}
