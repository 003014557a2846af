//! Parses the central directory into an index (APPNOTE 4.3.1 and 4.3.12 to 4.3.16).
//!
//! The crate `rawzip` reads through a window, so that memory use is that of the index: one record for each entry that
//! really exists, whatever the end of the archive claims. Names that could lead out of the archive, and entries that
//! are neither files nor folders, are left out here, and nowhere else.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::io;

use rawzip::time::{UtcDateTime, ZipDateTimeKind};
use rawzip::{CompressionMethod, ErrorKind, ReaderAt, ZipArchive, ZipFileHeaderRecord, ZipLocator};
use twox_hash::XxHash64;

use crate::{Key, HiddenReason, Reader};
use zarr_format::error::{Error, Kind, Result, printable};

use super::index::{IndexBuilder, Packing, ZipEntry, ZipIndex};
use super::listed::ListedEntries;
use crate::request_context::RequestContext;

/// The end of central directory record (APPNOTE 4.3.16): signature, length, and length with the longest comment.
const SIGNATURE: &[u8] = b"PK\x05\x06";
const END: usize = 22;
const TAIL_LEN: usize = END + u16::MAX as usize;
const TAIL: u64 = TAIL_LEN as u64;

/// Maximum number of false signatures in a comment that are skipped.
const TRIES: usize = 64;

/// Bytes of the directory per read: more than its longest record.
const WINDOW: usize = 1 << 20;

/// The parsed directory, with the entries that are left out.
pub(super) struct CentralDirectory {
    pub(super) index: ZipIndex,
    pub(super) left_out: LeftOut,
    /// A hash of the names, offsets, lengths, times and checksums of all entries.
    pub(super) digest: u64,
}

/// Entries that are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LeftOut {
    /// Number of names that are not valid keys: with `..`, `.` or an empty component, or too long.
    pub(super) names: u64,
    /// Number of symbolic links, pipes and devices.
    pub(super) specials: u64,
    /// Number of files with the same name as a later one.
    pub(super) repeated: u64,
    /// The first invalid name.
    pub(super) first: String,
    /// The first entries of each kind in the folder that was opened.
    pub(super) listed: ListedEntries,
}

/// Reads the directory of an archive of `size` bytes. The error is `Corrupt` if there is none or it is truncated. Lists
/// the entries of `folder` that are left out.
pub(super) fn read(
    context: &RequestContext,
    reader: &dyn Reader,
    size: u64,
    folder: &Key,
) -> Result<CentralDirectory> {
    let source = ArchiveSource::new(context, reader, size)?;
    let mut window = vec![0; WINDOW];
    let archive = locate(&source, size, &mut window)?;
    let mut builder = IndexBuilder::default();
    let mut left_out = LeftOut {
        listed: ListedEntries::of(folder),
        ..LeftOut::default()
    };
    let claimed = archive.entries_hint();
    let mut found: u64 = 0;
    let mut hasher = XxHash64::with_seed(0);
    let mut records = archive.entries(&mut window);
    loop {
        match records.next_entry() {
            Ok(Some(record)) => {
                hash(&record, &mut hasher);
                take(&record, &mut builder, &mut left_out)?;
            }
            Ok(None) => break,
            // Other data between the last record and the end is not an error.
            Err(error) if found == claimed && !is_io(&error) => break,
            Err(error) => return Err(refused(error)),
        }
        found += 1;
    }
    // Writers without zip64 count modulo 65536.
    if found & 0xffff != claimed & 0xffff {
        let text = format!("the directory has {found} entries, not {claimed} as its end says");
        return Err(Error::corrupt("", text));
    }
    let index;
    (index, left_out.repeated) = builder.finish(&mut left_out.listed);
    Ok(CentralDirectory {
        index,
        left_out,
        digest: hasher.finish(),
    })
}

/// Hashes the record of an entry, even if the entry is left out.
fn hash(record: &ZipFileHeaderRecord<'_>, hasher: &mut XxHash64) {
    let path = record.file_path();
    let name: &[u8] = path.as_ref();
    let entry = entry_of(record, false);
    (name, entry.header, entry.crc).hash(hasher);
    (entry.packed, entry.size, entry.modified).hash(hasher);
}

/// Finds the end of central directory record (APPNOTE 4.3.16). A comment may imitate it, so the last one whose comment
/// ends at the end of the archive is used, or else the last one of all, with other data after it.
fn locate<'a>(
    source: &'a ArchiveSource<'a>,
    size: u64,
    window: &mut [u8],
) -> Result<ZipArchive<&'a ArchiveSource<'a>>> {
    for start in source.ends().take(TRIES) {
        let end = start + SIGNATURE.len() as u64;
        let locator = ZipLocator::new().max_search_space(SIGNATURE.len() as u64);
        match locator.locate_in_reader(source, window, end) {
            Ok(archive) => return Ok(archive),
            Err((_, error)) if is_io(&error) => return Err(refused(error)),
            Err(_) => {}
        }
    }
    let locator = ZipLocator::new().max_search_space(TAIL);
    let found = locator.locate_in_reader(source, window, size);
    found.map_err(|(_, error)| refused(error))
}

/// Adds one record to the index, or counts it as left out.
fn take(
    record: &ZipFileHeaderRecord<'_>,
    builder: &mut IndexBuilder,
    left_out: &mut LeftOut,
) -> Result<()> {
    let path = record.file_path();
    let name: &[u8] = path.as_ref();
    let plain = plain_name(name);
    // Windows writes a backslash at the end of a folder, and the plain name of `./` is empty.
    let is_folder = name.ends_with(b"/") || name.ends_with(b"\\");
    let key = Key::new(plain.strip_suffix(b"/").unwrap_or(&plain)).ok();
    if is_folder && key.as_ref().is_some_and(Key::is_root) {
        // The root of the packed folder, stored as `./`.
        return Ok(());
    }
    let Some(key) = key.filter(|key| !key.is_root()) else {
        left_out.names += 1;
        if left_out.names == 1 {
            left_out.first = printable(&String::from_utf8_lossy(path.as_ref()));
        }
        left_out.listed.add(name, &plain, HiddenReason::NoPath);
        return Ok(());
    };
    if *plain != *name {
        let why = HiddenReason::Respelled;
        left_out.listed.add(name, key.as_bytes(), why);
    }
    if !is_folder && is_special(record) {
        left_out.specials += 1;
        left_out.listed.add(name, &plain, HiddenReason::Special);
        return Ok(());
    }
    if builder.add(&key, entry_of(record, is_folder), name.len()) {
        return Ok(());
    }
    Err(Error::too_large(
        "",
        "the names are longer than 4 GiB together",
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
    let packing = match record.compression_method() {
        _ if is_folder => Packing::Folder,
        _ if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() => {
            Packing::Encrypted
        }
        CompressionMethod::STORE => Packing::Stored,
        CompressionMethod::DEFLATE => Packing::Deflated,
        method => Packing::Other(method.as_u16()),
    };
    let mut entry = ZipEntry::new(packing, record.local_header_offset());
    entry.packed = record.compressed_size_hint();
    entry.size = record.uncompressed_size_hint();
    entry.crc = record.crc32();
    entry.modified = seconds(&record.last_modified());
    entry
}

/// Returns seconds since 1970. DOS times (APPNOTE 4.4.6) have no time zone and count as UTC.
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

/// Returns the store's error if there was one, or else describes the defect of the archive.
fn refused(error: rawzip::Error) -> Error {
    let what = match error.into_kind() {
        ErrorKind::IO(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "its directory lies beyond its end".to_string()
        }
        ErrorKind::IO(error) => {
            let own = error.downcast::<Error>();
            return own.unwrap_or_else(|error| Error::new(Kind::Unavailable, "", error));
        }
        ErrorKind::MissingEndOfCentralDirectory => {
            "no end of central directory record in its last 64 KiB".to_string()
        }
        ErrorKind::Eof => "its directory ends too early".to_string(),
        ErrorKind::InvalidSignature { .. } => "its directory is not where its end says".to_string(),
        other => other.to_string(),
    };
    Error::corrupt("", format!("not a zip archive, or cut off: {what}"))
}

/// The archive as a source for `rawzip`. Its end is read only once, which often includes the whole directory.
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
        let tail_start = size.saturating_sub(TAIL);
        let tail = reader.read_at(context, tail_start, TAIL_LEN)?;
        Ok(ArchiveSource {
            context,
            reader,
            tail,
            tail_start,
        })
    }

    /// Returns the possible offsets of a record whose comment ends at the end of the archive, the last one first.
    fn ends(&self) -> impl Iterator<Item = u64> {
        let records = self.tail.windows(END).enumerate().rev();
        records.filter_map(|(start, record)| {
            let comment = match record {
                [.., low, high] => u16::from_le_bytes([*low, *high]),
                _ => return None,
            };
            let is_last = start + END + usize::from(comment) == self.tail.len();
            (record.starts_with(SIGNATURE) && is_last).then_some(self.tail_start + start as u64)
        })
    }
}

impl ReaderAt for ArchiveSource<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let kept = offset
            .checked_sub(self.tail_start)
            .and_then(|start| self.tail.get(usize::try_from(start).ok()?..));
        let read;
        let bytes = match kept {
            Some(kept) => kept,
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
