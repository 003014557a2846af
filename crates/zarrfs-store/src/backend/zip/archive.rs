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

/// An archive in the version whose directory was read.
pub(super) struct Archive {
    pub(super) index: ZipIndex,
    pub(super) meta: Meta,
    pub(super) layout: ArchiveLayout,
    /// The digest of the directory.
    digest: u64,
    reader: Arc<dyn Reader>,
    sums: EntryChecksums,
    /// The running checks of entries whose checksum was wrong, by the offset of the entry's header. A check reads the
    /// whole entry.
    checks: SingleFlight<u64, ()>,
    clock: Clock,
    /// Whether the archive's file may be overwritten in place while it is open.
    in_place: bool,
}

/// The data after an entry's local header.
pub(super) struct EntryData {
    /// The offset of the entry's data in the archive.
    pub(super) start: u64,
    /// The first bytes of the data, which were read together with the header.
    pub(super) first: Vec<u8>,
}

impl Archive {
    /// Opens an archive and reads its directory. The error is `NotFound`, or `Corrupt` if it is no zip archive or
    /// truncated. Also returns the entries that are left out, with a list of those in `folder`.
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

    /// Whether another version of the archive has the same content. Without ETags a version is only size and time, but
    /// the directory has the checksum of each entry.
    pub(super) fn has_content_of(&self, other: &Archive) -> bool {
        self.meta.may_be_of(&other.meta) && self.digest == other.digest
    }

    /// Returns the metadata of an entry.
    pub(super) fn meta_of(&self, entry: &ZipEntry) -> Meta {
        Meta {
            kind: EntryKind::File,
            size: entry.size,
            stored: entry.compressed,
            modified: UNIX_EPOCH + Duration::from_secs(entry.modified.into()),
            version: self.version_of(entry),
        }
    }

    /// Returns the metadata of a folder, with or without an entry of its own.
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

    /// Returns the version of an entry, made of the archive's version and the entry's offset, checksum and size.
    pub(super) fn version_of(&self, entry: &ZipEntry) -> Version {
        let mut hasher = DefaultHasher::new();
        self.meta.version.hash(&mut hasher);
        (entry.header, entry.crc, entry.size).hash(&mut hasher);
        Version::of(&hasher.finish().to_le_bytes())
    }

    /// Reads exactly `length` bytes. The error is `Corrupt` if the archive is too short.
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

    /// Checks a read. The error is `Changed` if the bytes may be from another version of the archive. A short read is
    /// an error too.
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

    /// Returns `Changed` if the archive was changed, which explains the error, or else the error itself.
    pub(super) fn error_or_changed(&self, context: &RequestContext, error: Error) -> Error {
        match self.reader.meta(context) {
            Ok(meta) if meta.version == self.meta.version => error,
            Err(error) => failed(error),
            Ok(_) => changed(),
        }
    }

    /// Reads an entry's local header, which must have the same name. With `together`, short data are read in the same
    /// request.
    ///
    /// The error is `Unsupported` for encrypted entries and unknown methods, `Corrupt` for impossible sizes and for
    /// entries whose checksum is known to be wrong.
    pub(super) fn data(
        &self,
        context: &RequestContext,
        key: &Key,
        entry: &ZipEntry,
        together: bool,
    ) -> Result<EntryData> {
        check_compression(entry)?;
        self.refuse_confirmed(context, entry)?;
        // A longer entry is not read together with its header.
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

    /// Reads a whole stored (uncompressed) entry and checks it.
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

    /// Reads a range of a stored entry, whose data begin at `start`. The error is `Corrupt` if all readers together
    /// have now read the whole entry, and its checksum is wrong.
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

    /// Reads the whole entry, unless another caller has just done so.
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

    /// Returns an error for an entry that was read again within the last minute and still had a wrong checksum. It is
    /// not read again so soon, since each check reads the whole entry.
    fn refuse_confirmed(&self, context: &RequestContext, entry: &ZipEntry) -> Result<()> {
        let now = self.clock.now();
        match self.sums.wrong(entry) {
            Some(wrong) if wrong.is_confirmed(now) => {
                check_crc(wrong.sum, entry).map_err(|error| self.error_or_changed(context, error))
            }
            _ => Ok(()),
        }
    }

    /// Records the checksum of a whole entry that was read. The error is `Corrupt` if the checksum is wrong.
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

/// Returns an error for entries that cannot be read, and for sizes that are impossible with the entry's compression
/// method.
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

/// Returns the length of a local header with its name and extra field. The error is `Corrupt` if it has another name
/// than `name`.
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

/// Compares the checksum of a whole entry (APPNOTE 4.4.7).
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

/// Converts an error of the store below. A missing archive does not mean that an entry is missing.
pub(super) fn failed(error: Error) -> Error {
    match error.kind() {
        Kind::NotFound => Error::new(Kind::Unavailable, "", "the zip archive is gone"),
        _ => error,
    }
}
