//! Parses the central directory into an index (APPNOTE 4.3.1 and 4.3.12 to 4.3.16).
//!
//! The crate `rawzip` reads through a window, so that only the index is in memory. It has one record for each entry
//! that really exists, whatever number the end of the archive claims. Names that could lead out of the archive, and
//! entries that are neither files nor folders, are left out here, and nowhere else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;

use rawzip::time::{UtcDateTime, ZipDateTimeKind};
use rawzip::{CompressionMethod, ErrorKind, ReaderAt, ZipArchive, ZipFileHeaderRecord, ZipLocator};
use serde_json::Value;
use twox_hash::XxHash64;

use super::index::{Compression, IndexBuilder, ZipEntry, ZipIndex};
use crate::request_context::RequestContext;
use crate::{HiddenEntry, HiddenReason, Key, Reader};
use zarr_format::error::{Error, Kind, Result, printable};
use zarr_format::model::document;

/// The end of central directory record (APPNOTE 4.3.16): signature, length in bytes, and length with the longest comment.
const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const END_LEN: usize = 22;
const MAX_END_LEN: usize = END_LEN + u16::MAX as usize;

/// The parsed central directory of an archive, and the entries that were left out of the index.
pub(super) struct CentralDirectory {
    pub(super) index: ZipIndex,
    pub(super) omitted: OmittedEntries,
    /// Properties of the archive for which RFC-9 has recommendations.
    pub(super) layout: ArchiveLayout,
    /// A hash of the names, offsets, lengths, times and checksums of all entries.
    pub(super) digest: u64,
}

/// The entries of the central directory that are left out of the index.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OmittedEntries {
    /// Number of entries whose name is not a valid key: with `..`, `.` or an empty component, or too long.
    pub(super) names: u64,
    /// Number of entries that are symbolic links, pipes or devices.
    pub(super) specials: u64,
    /// Number of files that are left out because a later file has the same name.
    pub(super) repeated: u64,
    /// The first name that is not a valid key, for the warning in the log.
    pub(super) first: String,
    /// The first left-out entries of each kind in the folder that was opened.
    pub(super) list: OmittedList,
}

impl fmt::Display for OmittedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OmittedEntries {
            names,
            specials,
            repeated,
            first,
            list: _,
        } = self;
        let mut before = "";
        for (count, what) in [
            (
                names,
                format!("with names that are not plain paths, the first '{first}'"),
            ),
            (specials, "symbolic links and special files".to_string()),
            (
                repeated,
                "files that later entries of the same name replace".to_string(),
            ),
        ] {
            if *count > 0 {
                write!(f, "{before}{count} {what}")?;
                before = "; ";
            }
        }
        Ok(())
    }
}

/// Reads the central directory of an archive of `size` bytes. Also lists the entries of `folder` that are left out of
/// the index. The error is `Corrupt` if there is no directory or the archive is truncated.
pub(super) fn read(
    context: &RequestContext,
    reader: &dyn Reader,
    size: u64,
    folder: &Key,
) -> Result<CentralDirectory> {
    let source = ArchiveSource::new(context, reader, size)?;
    // The buffer is longer than the longest possible record of the central directory.
    let mut window = vec![0; 1 << 20];
    let archive = locate(&source, size, &mut window)?;
    let mut builder = IndexBuilder::default();
    let mut layout = LayoutBuilder::default();
    let mut omitted = OmittedEntries {
        list: OmittedList::of(folder),
        ..OmittedEntries::default()
    };
    let claimed = archive.entries_hint();
    let mut count: u64 = 0;
    let mut hasher = XxHash64::with_seed(0);
    let mut records = archive.entries(&mut window);
    loop {
        match records.next_entry() {
            Ok(Some(record)) => {
                hash(&record, &mut hasher);
                if let Some(key) = add_record(&record, &mut builder, &mut omitted)? {
                    layout.add(&record, &key);
                }
            }
            Ok(None) => break,
            // If all entries were found, other data between the last entry and the end record are not an error.
            Err(error) if count == claimed && !is_io(&error) => break,
            Err(error) => return Err(zip_error(error)),
        }
        count += 1;
    }
    // Writers without zip64 store the number of entries modulo 65536.
    if count & 0xffff != claimed & 0xffff {
        let text = format!("the zip directory has {count} entries instead of {claimed}");
        return Err(Error::corrupt("", text));
    }
    let index;
    (index, omitted.repeated) = builder.finish(&mut omitted.list);
    Ok(CentralDirectory {
        index,
        omitted,
        layout: layout.finish(source.comment(), source.is_zip64()),
        digest: hasher.finish(),
    })
}

/// Adds a record of the central directory to the hash, even if the entry is left out of the index.
fn hash(record: &ZipFileHeaderRecord<'_>, hasher: &mut XxHash64) {
    let path = record.file_path();
    let name: &[u8] = path.as_ref();
    let entry = entry_of(record, false);
    (name, entry.header, entry.crc).hash(hasher);
    (entry.compressed, entry.size, entry.modified).hash(hasher);
}

/// Finds the end of central directory record (APPNOTE 4.3.16). A comment may contain a copy of such a record, so the
/// last record whose comment ends at the end of the archive is used. If there is none, other data follow the comment,
/// and the last record of all is used.
fn locate<'a>(
    source: &'a ArchiveSource<'a>,
    size: u64,
    window: &mut [u8],
) -> Result<ZipArchive<&'a ArchiveSource<'a>>> {
    // The comment may contain the signature of an end record by chance: at most 64 of them are tried.
    for start in source.ends().take(64) {
        let end = start + END_SIGNATURE.len() as u64;
        let locator = ZipLocator::new().max_search_space(END_SIGNATURE.len() as u64);
        match locator.locate_in_reader(source, window, end) {
            Ok(archive) => return Ok(archive),
            Err((_, error)) if is_io(&error) => return Err(zip_error(error)),
            Err(_) => {}
        }
    }
    let locator = ZipLocator::new().max_search_space(MAX_END_LEN as u64);
    let located = locator.locate_in_reader(source, window, size);
    located.map_err(|(_, error)| zip_error(error))
}

/// Adds a record of the central directory to the index, or counts it as left out. Returns the key if the record was
/// added as a file.
fn add_record(
    record: &ZipFileHeaderRecord<'_>,
    builder: &mut IndexBuilder,
    omitted: &mut OmittedEntries,
) -> Result<Option<Key>> {
    let path = record.file_path();
    let name: &[u8] = path.as_ref();
    let plain = plain_name(name);
    // Zip tools of Windows mark a folder with a final backslash instead of a slash.
    let is_folder = name.ends_with(b"/") || name.ends_with(b"\\");
    let key = Key::new(plain.strip_suffix(b"/").unwrap_or(&plain)).ok();
    if is_folder && key.as_ref().is_some_and(Key::is_root) {
        // Some writers store an entry `./` for the root folder, which always exists anyway.
        return Ok(None);
    }
    let Some(key) = key.filter(|key| !key.is_root()) else {
        omitted.names += 1;
        if omitted.names == 1 {
            omitted.first = printable(&String::from_utf8_lossy(path.as_ref()));
        }
        omitted.list.add(name, &plain, HiddenReason::NoPath);
        return Ok(None);
    };
    if *plain != *name {
        let why = HiddenReason::Respelled;
        omitted.list.add(name, key.as_bytes(), why);
    }
    if !is_folder && is_special(record) {
        omitted.specials += 1;
        omitted.list.add(name, &plain, HiddenReason::Special);
        return Ok(None);
    }
    if builder.add(&key, entry_of(record, is_folder), name.len()) {
        return Ok((!is_folder).then_some(key));
    }
    Err(Error::too_large(
        "",
        "the names in the zip archive exceed 4 GiB in total",
    ))
}

/// Normalizes a name as APPNOTE 4.4.17.1 requires: relative, with slashes. bsdtar writes a leading `./`, other programs
/// a leading slash, and Windows PowerShell writes backslashes. `Key` checks whether the name could lead outside.
pub(super) fn plain_name(name: &[u8]) -> Cow<'_, [u8]> {
    if name.contains(&b'\\') {
        let slashes = name
            .iter()
            .map(|&byte| if byte == b'\\' { b'/' } else { byte });
        let slashes: Vec<u8> = slashes.collect();
        return Cow::Owned(relative(&slashes).to_vec());
    }
    Cow::Borrowed(relative(name))
}

fn relative(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"/")) {
        name = rest;
    }
    name
}

/// Whether a Unix writer marked the entry as neither file nor folder (APPNOTE 4.4.15).
fn is_special(record: &ZipFileHeaderRecord<'_>) -> bool {
    let kind = record.mode().value() & 0o170_000;
    kind != 0o100_000 && kind != 0o040_000 && kind != 0
}

fn entry_of(record: &ZipFileHeaderRecord<'_>, is_folder: bool) -> ZipEntry {
    let flags = record.flags();
    let compression = match record.compression_method() {
        _ if is_folder => Compression::Folder,
        _ if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() => {
            Compression::Encrypted
        }
        CompressionMethod::STORE => Compression::Stored,
        CompressionMethod::DEFLATE => Compression::Deflated,
        method => Compression::Other(method.as_u16()),
    };
    let mut entry = ZipEntry::new(compression, record.local_header_offset());
    entry.compressed = record.compressed_size_hint();
    entry.size = record.uncompressed_size_hint();
    entry.crc = record.crc32();
    entry.modified = seconds(&record.last_modified());
    entry
}

/// Converts the time of an entry to seconds since 1970. DOS times (APPNOTE 4.4.6) have no time zone and are taken as
/// UTC.
fn seconds(time: &ZipDateTimeKind) -> u32 {
    let unix = match time {
        ZipDateTimeKind::Utc(time) => Some(time.to_unix()),
        ZipDateTimeKind::Local(time) => UtcDateTime::from_components(
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            0,
        )
        .map(|time| time.to_unix()),
    };
    unix.map_or(0, |unix| u32::try_from(unix.max(0)).unwrap_or(u32::MAX))
}

fn is_io(error: &rawzip::Error) -> bool {
    matches!(error.kind(), ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof)
}

/// Converts an error of `rawzip`: an error of the store is returned as it is, a defect of the archive as `Corrupt`.
fn zip_error(error: rawzip::Error) -> Error {
    let what = match error.into_kind() {
        ErrorKind::IO(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the directory lies beyond the end".to_string()
        }
        ErrorKind::IO(error) => {
            let own = error.downcast::<Error>();
            return own.unwrap_or_else(|error| Error::new(Kind::Unavailable, "", error));
        }
        ErrorKind::MissingEndOfCentralDirectory => {
            "no end of central directory record in the last 64 KiB".to_string()
        }
        ErrorKind::Eof => "the directory is cut off".to_string(),
        ErrorKind::InvalidSignature { .. } => {
            "the directory is not at the stated offset".to_string()
        }
        other => other.to_string(),
    };
    Error::corrupt("", format!("not a zip archive, or cut off: {what}"))
}

/// Lets `rawzip` read the archive in the store. The end of the archive, which often includes the whole central
/// directory, is read only once.
struct ArchiveSource<'a> {
    context: &'a RequestContext,
    reader: &'a dyn Reader,
    tail: Vec<u8>,
    tail_start: u64,
}

impl<'a> ArchiveSource<'a> {
    fn new(
        context: &'a RequestContext,
        reader: &'a dyn Reader,
        size: u64,
    ) -> Result<ArchiveSource<'a>> {
        let tail_start = size.saturating_sub(MAX_END_LEN as u64);
        let tail = reader.read_at(context, tail_start, MAX_END_LEN)?;
        Ok(ArchiveSource {
            context,
            reader,
            tail,
            tail_start,
        })
    }

    fn comment(&self) -> &[u8] {
        let start = self
            .ends()
            .next()
            .and_then(|end| end.checked_sub(self.tail_start));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let comment = start.and_then(|start| self.tail.get(start + END_LEN..));
        comment.unwrap_or_default()
    }

    /// Whether the locator of the ZIP64 record, 20 bytes with a signature (APPNOTE 4.3.15), stands directly before an
    /// end record.
    fn is_zip64(&self) -> bool {
        self.ends().any(|end| {
            let locator = end.checked_sub(self.tail_start + 20);
            let locator = locator.and_then(|start| self.tail.get(usize::try_from(start).ok()?..));
            locator.is_some_and(|bytes| bytes.starts_with(b"PK\x06\x07"))
        })
    }

    fn ends(&self) -> impl Iterator<Item = u64> {
        let records = self.tail.windows(END_LEN).enumerate().rev();
        records.filter_map(|(start, record)| {
            let comment = match record {
                [.., low, high] => u16::from_le_bytes([*low, *high]),
                _ => return None,
            };
            let is_last = start + END_LEN + usize::from(comment) == self.tail.len();
            (record.starts_with(END_SIGNATURE) && is_last).then_some(self.tail_start + start as u64)
        })
    }
}

impl ReaderAt for ArchiveSource<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let in_tail = offset
            .checked_sub(self.tail_start)
            .and_then(|start| self.tail.get(usize::try_from(start).ok()?..));
        let read;
        let bytes = match in_tail {
            Some(in_tail) => in_tail,
            None if offset >= self.tail_start => &[],
            None => {
                let fetched = self.reader.read_at(self.context, offset, buffer.len());
                read = fetched.map_err(io::Error::other)?;
                &read
            }
        };
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}

/// The entries of one folder that are left out of the archive's index, in the order in which they were found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OmittedList {
    folder: Key,
    entries: Vec<HiddenEntry>,
    counts: HashMap<HiddenReason, usize>,
}

impl OmittedList {
    pub(super) fn of(folder: &Key) -> OmittedList {
        OmittedList {
            folder: folder.clone(),
            ..OmittedList::default()
        }
    }

    /// Lists a left-out entry if it is in the folder and the limit for its kind is not reached. `plain` is the entry's
    /// name as a relative path with slashes.
    pub(super) fn add(&mut self, name: &[u8], plain: &[u8], why: HiddenReason) {
        let Some(path) = self.path_in_folder(plain) else {
            return;
        };
        let limit = match why {
            HiddenReason::Respelled => 1,
            _ => 100,
        };
        let count = self.counts.entry(why).or_default();
        if *count == limit {
            return;
        }
        *count += 1;
        let key = match why {
            HiddenReason::NoPath => None,
            _ => Key::new(path).ok(),
        };
        let name = name.to_vec();
        self.entries.push(HiddenEntry { name, key, why });
    }

    fn path_in_folder<'a>(&self, plain: &'a [u8]) -> Option<&'a [u8]> {
        if self.folder.is_root() {
            return Some(plain);
        }
        let rest = plain.strip_prefix(self.folder.as_bytes())?;
        rest.strip_prefix(b"/")
    }

    pub(super) fn into_entries(self) -> Vec<HiddenEntry> {
        self.entries
    }
}

/// How far an archive with the name `.ozx` follows the recommendations of RFC-9 of OME-NGFF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveLayout {
    /// The first entry with compressed data, if there is one: RFC-9 recommends to store all data uncompressed.
    pub compressed: Option<Key>,
    /// The first `zarr.json` that is not where RFC-9 wants it: all `zarr.json` come first in the archive, in
    /// breadth-first order.
    pub misplaced: Option<Key>,
    /// Whether the archive has the end record of ZIP64.
    pub is_zip64: bool,
    /// Whether the archive's comment states the version of OME-Zarr, as RFC-9 recommends.
    pub has_comment: bool,
}

/// Checks the entries against the recommendations of RFC-9, in the order of the central directory.
#[derive(Default)]
struct LayoutBuilder {
    layout: ArchiveLayout,
    /// The number of components in the key of the last `zarr.json`, or 0 before the first `zarr.json`.
    depth: usize,
    has_chunks: bool,
}

impl LayoutBuilder {
    fn add(&mut self, record: &ZipFileHeaderRecord<'_>, key: &Key) {
        if record.compression_method() != CompressionMethod::STORE {
            self.layout.compressed.get_or_insert_with(|| key.clone());
        }
        let depth = key.names().count();
        if key.name() != document::ZARR_JSON.as_bytes() {
            self.has_chunks = true;
            return;
        }
        let is_in_order = depth >= self.depth && (self.depth > 0 || depth == 1);
        if self.has_chunks || !is_in_order {
            self.layout.misplaced.get_or_insert_with(|| key.clone());
        }
        self.depth = depth;
    }

    fn finish(mut self, comment: &[u8], is_zip64: bool) -> ArchiveLayout {
        let text = comment.strip_suffix(b"\0").unwrap_or(comment);
        let value: Option<Value> = serde_json::from_slice(text).ok();
        let version = value
            .as_ref()
            .and_then(|value| value.get("ome")?.get("version")?.as_str());
        self.layout.has_comment = version.is_some();
        self.layout.is_zip64 = is_zip64;
        self.layout
    }
}
