//! One version of an archive: its metadata, its directory, and reads of entries.
//!
//! Offsets and lengths in a directory are not to be trusted. Before any read they are checked against the archive's
//! real length. If they exceed it, the error is `Corrupt`, or `Changed` if the archive was replaced. A failure to read
//! the archive is never "missing".

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use flate2::Crc;

use crate::backend::is_a_directory;
use crate::sync::clock::Clock;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{EntryKind, Key, Meta, Reader, Store, Version};
use zarr_format::error::{Error, Kind, Result};

use super::FETCH_SIZE;
use super::checksums::EntryChecksums;
use super::directory;
use super::directory::ArchiveLayout;
use super::directory::{OmittedEntries, plain_name};
use super::index::{Compression, ZipEntry, ZipIndex};
use crate::request_context::RequestContext;

/// Length of a local header without name and extra field (APPNOTE 4.3.7).
const HEADER_LEN: usize = 30;

/// A zip archive, in the version whose central directory was read.
pub(super) struct Archive {
    pub(super) index: ZipIndex,
    pub(super) meta: Meta,
    pub(super) layout: ArchiveLayout,
    /// A hash of the central directory, which is equal for versions with the same content.
    digest: u64,
    reader: Arc<dyn Reader>,
    sums: EntryChecksums,
    /// The checks that are under way: after a wrong checksum, a check reads the whole entry again. The key is the
    /// offset of the entry's local header.
    checks: SingleFlight<u64, ()>,
    clock: Clock,
    /// Whether the archive's file may be overwritten in place while it is open.
    in_place: bool,
}

/// The position and the first bytes of a zip entry's data, found by reading its local header.
pub(super) struct EntryData {
    /// The offset of the entry's data in the archive.
    pub(super) start: u64,
    /// The first bytes of the entry's data, which were read in the same request as the local header.
    pub(super) first: Vec<u8>,
}

impl Archive {
    /// Opens a zip archive and reads its central directory. Also returns the entries that are left out, and the names
    /// of those in `folder`. The error is `NotFound`, or `Corrupt` if the object is truncated or not a zip archive.
    pub(super) fn open(
        context: &RequestContext,
        base: &dyn Store,
        key: &Key,
        folder: &Key,
    ) -> Result<(Archive, OmittedEntries)> {
        let reader = base.open(context, key, None)?;
        let meta = reader.meta(context)?;
        let read = directory::read(context, &*reader, meta.size, folder);
        if reader.meta(context)?.version != meta.version {
            return Err(changed());
        }
        let directory = read?;
        let archive = Archive {
            index: directory.index,
            layout: directory.layout,
            digest: directory.digest,
            meta,
            reader,
            sums: EntryChecksums::default(),
            checks: SingleFlight::default(),
            clock: base.info().clock.clone(),
            in_place: base.info().folder.is_some(),
        };
        Ok((archive, directory.omitted))
    }

    /// Whether another version of the archive has the same content: its size and time are equal, and so is the hash of
    /// its central directory, which has the checksum of each entry.
    pub(super) fn has_content_of(&self, other: &Archive) -> bool {
        self.meta.may_be_of(&other.meta) && self.digest == other.digest
    }

    pub(super) fn meta_of(&self, entry: &ZipEntry) -> Meta {
        Meta {
            kind: EntryKind::File,
            size: entry.size,
            stored: entry.compressed,
            modified: UNIX_EPOCH + Duration::from_secs(entry.modified.into()),
            version: self.version_of(entry),
        }
    }

    /// Returns the metadata of a folder in the archive, whether or not the folder has an entry of its own.
    pub(super) fn folder_meta(&self, entry: Option<&ZipEntry>) -> Meta {
        let written = entry.map(|entry| Duration::from_secs(entry.modified.into()));
        Meta {
            kind: EntryKind::Directory,
            size: 0,
            stored: 0,
            modified: written.map_or(self.meta.modified, |time| UNIX_EPOCH + time),
            version: self.meta.version,
        }
    }

    /// Returns the version of a zip entry, made of the archive's version and the entry's offset, checksum and size.
    pub(super) fn version_of(&self, entry: &ZipEntry) -> Version {
        let mut hasher = DefaultHasher::new();
        self.meta.version.hash(&mut hasher);
        (entry.header, entry.crc, entry.size).hash(&mut hasher);
        Version::of(&hasher.finish().to_le_bytes())
    }

    /// Reads exactly `length` bytes of the archive. The error is `Corrupt` if the archive is too short.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.meta.size) {
            return Err(Error::corrupt(
                "",
                "the data lie beyond the end of the zip archive",
            ));
        }
        let wanted = usize::try_from(length).map_err(|error| Error::too_large("", error))?;
        let bytes = self
            .reader
            .read_at(context, offset, wanted)
            .map_err(failed)?;
        self.check_read(context, bytes.len() == wanted)?;
        Ok(bytes)
    }

    /// Returns `Changed` if the bytes that were read from the archive may be from another version of it. Returns
    /// `Corrupt` if the read was short (`is_whole` is false).
    fn check_read(&self, context: &RequestContext, is_whole: bool) -> Result<()> {
        if self.in_place && self.reader.meta(context).map_err(failed)?.version != self.meta.version
        {
            return Err(changed());
        }
        if !is_whole {
            return Err(
                self.error_or_changed(context, Error::corrupt("", "the zip archive is cut off"))
            );
        }
        Ok(())
    }

    /// Returns `Changed` if the archive was replaced, because the replacement explains the error. Otherwise returns the
    /// error unchanged.
    pub(super) fn error_or_changed(&self, context: &RequestContext, error: Error) -> Error {
        match self.reader.meta(context) {
            Ok(meta) if meta.version == self.meta.version => error,
            Err(error) => failed(error),
            Ok(_) => changed(),
        }
    }

    /// Reads the local header of a zip entry, which must have the name of the key. If `together` is true, the data of a
    /// short entry are read in the same request.
    ///
    /// The error is `Unsupported` for encrypted entries and unknown compression methods. It is `Corrupt` for impossible
    /// sizes, and for entries whose checksum was wrong twice within the last minute.
    pub(super) fn data(
        &self,
        context: &RequestContext,
        key: &Key,
        entry: &ZipEntry,
        together: bool,
    ) -> Result<EntryData> {
        check_compression(entry)?;
        self.refuse_confirmed(context, entry)?;
        // An entry of more than 1 MiB is not read together with its local header.
        let together = together && entry.compressed <= 1 << 20;
        let mut wanted = HEADER_LEN as u64 + entry.stored_name_len();
        if together {
            // The extra field (zip64, times, owner), whose length is not known yet, rarely has more than 64 bytes.
            wanted += 64 + entry.compressed;
        }
        let left = self.meta.size.saturating_sub(entry.header);
        let mut bytes = self.read(context, entry.header, wanted.min(left))?;
        let length =
            header_length(&bytes, key).map_err(|error| self.error_or_changed(context, error))?;
        let start = entry.header.saturating_add(length);
        let end = start.checked_add(entry.compressed);
        if end.is_none_or(|end| end > self.meta.size) {
            return Err(Error::corrupt(
                "",
                "the data lie beyond the end of the zip archive",
            ));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        bytes.drain(..length.min(bytes.len()));
        bytes.truncate(usize::try_from(entry.compressed).unwrap_or(usize::MAX));
        Ok(EntryData {
            start,
            first: bytes,
        })
    }

    /// Reads a whole stored (uncompressed) entry and verifies its checksum.
    pub(super) fn stored(
        &self,
        context: &RequestContext,
        entry: &ZipEntry,
        data: EntryData,
    ) -> Result<Vec<u8>> {
        let mut bytes = data.first;
        let have = bytes.len() as u64;
        if have < entry.size {
            let rest = self.read(context, data.start + have, entry.size - have)?;
            if bytes.is_empty() {
                bytes = rest;
            } else {
                bytes.extend_from_slice(&rest);
            }
        }
        let mut crc = Crc::new();
        crc.update(&bytes);
        self.record_checksum(context, entry, crc.sum())?;
        Ok(bytes)
    }

    /// Reads a range of a stored entry, whose data begin at `start`. The error is `Corrupt` if the ranges that were
    /// read so far cover the whole entry, and its checksum is wrong.
    pub(super) fn read_part(
        &self,
        context: &RequestContext,
        entry: &ZipEntry,
        start: u64,
        range: Range<u64>,
    ) -> Result<Vec<u8>> {
        if let Some(wrong) = self.sums.wrong(entry) {
            check_crc(wrong.sum, entry).map_err(|error| self.error_or_changed(context, error))?;
        }
        let bytes = self.read(context, start + range.start, range.end - range.start)?;
        if let Some(sum) = self.sums.record_range(entry, range.start, &bytes) {
            self.record_checksum(context, entry, sum)?;
        }
        Ok(bytes)
    }

    /// If an entry's checksum was wrong, reads the entry again, since the first read may have been damaged in transit.
    /// Concurrent callers wait for the result.
    pub(super) fn recheck_wrong(
        &self,
        context: &RequestContext,
        entry: &ZipEntry,
        start: u64,
    ) -> Result<()> {
        if self.sums.wrong(entry).is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + JOIN_TIMEOUT;
        self.checks.run(context, &entry.header, deadline, || {
            self.read_again(context, entry, start)
        })
    }

    /// Reads a whole entry to verify its checksum, unless another caller has just done so.
    fn read_again(&self, context: &RequestContext, entry: &ZipEntry, start: u64) -> Result<()> {
        self.refuse_confirmed(context, entry)?;
        if self.sums.wrong(entry).is_none() {
            return Ok(());
        }
        let mut crc = Crc::new();
        for offset in (0..entry.size).step_by(usize::try_from(FETCH_SIZE).unwrap_or(usize::MAX)) {
            let length = FETCH_SIZE.min(entry.size - offset);
            crc.update(&self.read(context, start + offset, length)?);
        }
        self.record_checksum(context, entry, crc.sum())
    }

    /// Returns `Corrupt` for an entry whose checksum was wrong again when the entry was last read as a whole, less than
    /// a minute ago.
    fn refuse_confirmed(&self, context: &RequestContext, entry: &ZipEntry) -> Result<()> {
        let now = self.clock.now();
        match self.sums.wrong(entry) {
            Some(wrong) if wrong.is_confirmed(now) => {
                check_crc(wrong.sum, entry).map_err(|error| self.error_or_changed(context, error))
            }
            _ => Ok(()),
        }
    }

    /// Records the checksum of an entry that was read as a whole. The error is `Corrupt` if the checksum is wrong.
    fn record_checksum(&self, context: &RequestContext, entry: &ZipEntry, sum: u32) -> Result<()> {
        let judged = check_crc(sum, entry).map_err(|error| self.error_or_changed(context, error));
        if judged
            .as_ref()
            .err()
            .is_none_or(|error| error.kind() == Kind::Corrupt)
        {
            self.sums.record_whole(entry, sum, self.clock.now());
        }
        judged
    }
}

/// Returns an error for entries that are encrypted or have an unknown compression method, and for sizes that the
/// compression method cannot produce.
fn check_compression(entry: &ZipEntry) -> Result<()> {
    let is_possible = match entry.compression {
        Compression::Stored => entry.compressed == entry.size,
        // One deflated byte expands to at most 1032 bytes.
        Compression::Deflated => entry.size / 1032 <= entry.compressed,
        Compression::Encrypted => {
            return Err(Error::unsupported(
                "",
                "encrypted zip entries are not supported",
            ));
        }
        Compression::Other(method) => {
            let text = format!("unsupported zip compression method {method} (supported: 0, 8)");
            return Err(Error::unsupported("", text));
        }
        Compression::Folder => return Err(is_a_directory("")),
    };
    if is_possible {
        return Ok(());
    }
    let text = format!(
        "the zip archive states {} bytes, which its {} compressed bytes cannot contain",
        entry.size, entry.compressed
    );
    Err(Error::corrupt("", text))
}

/// Returns the length of a local header with its name and extra field. The error is `Corrupt` if the name in the header
/// is not `name`.
fn header_length(bytes: &[u8], name: &Key) -> Result<u64> {
    let wrong = || Error::corrupt("", "the zip directory does not match the entry");
    let number = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let lengths = number(26).zip(number(28));
    let (name_length, extra_length) = lengths.ok_or_else(wrong)?;
    let stored = bytes.get(HEADER_LEN..HEADER_LEN + usize::from(name_length));
    let is_same = |stored: &[u8]| *plain_name(stored) == *name.as_bytes();
    if !bytes.starts_with(b"PK\x03\x04") || !stored.is_some_and(is_same) {
        return Err(wrong());
    }
    Ok(HEADER_LEN as u64 + u64::from(name_length) + u64::from(extra_length))
}

/// Compares the checksum of an entry's data with the checksum in the central directory (APPNOTE 4.4.7).
pub(super) fn check_crc(crc: u32, entry: &ZipEntry) -> Result<()> {
    if crc == entry.crc {
        return Ok(());
    }
    let text = format!(
        "the CRC-32 is {crc:08x}, but the zip archive states {:08x}",
        entry.crc
    );
    Err(Error::corrupt("", text))
}

fn changed() -> Error {
    Error::new(
        Kind::Changed,
        "",
        "the zip archive was changed while it was open",
    )
}

/// Converts an error of the store that holds the archive: `NotFound` becomes `Unavailable`, since a missing archive
/// does not mean a missing entry.
pub(super) fn failed(error: Error) -> Error {
    match error.kind() {
        Kind::NotFound => Error::new(Kind::Unavailable, "", "the zip archive is gone"),
        _ => error,
    }
}
