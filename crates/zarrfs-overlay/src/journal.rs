//! The journal of an upper folder: changes that its files do not show.
//!
//! Records that belong together form one line, which is appended with one write. An incomplete last line is ignored, as
//! if its change had not happened. After a power loss, all lines from the first damaged line on are ignored, unless one
//! of them records that the damaged line was synced. Any other unreadable line is an error and is never skipped.
//! `records` combines the records into the layer's current state.
//!
//! A journal that ends with the record `Closed` belongs to a completely synced layer. The next change syncs its line
//! before it touches files, so that the journal never ends with `Closed` while unsynced changes exist.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::journal_record::{JournalRecord, decode_line, encode_line};
use zarr_format::error::{Error, Result};

/// The journal of a layer of changes, with its file open for appending.
pub(crate) struct Journal {
    file: Arc<JournalFile>,
    path: PathBuf,
    length: u64,
    /// Whether the layer's files and journal are completely synced.
    is_closed: bool,
    /// The end of the disk space that is allocated for the journal, as an offset in bytes.
    reserved: u64,
}

/// The file of a journal, which is shared so that it can be synced without the journal's lock.
pub(crate) struct JournalFile {
    file: File,
    /// Number of bytes at the start of the file that are certainly on disk.
    synced: AtomicU64,
}

impl JournalFile {
    fn new(file: File) -> Arc<JournalFile> {
        let synced = AtomicU64::new(0);
        Arc::new(JournalFile { file, synced })
    }

    /// Syncs the first `length` bytes of the file, unless they are already on disk.
    fn sync(&self, length: u64) -> io::Result<()> {
        if self.synced.load(Ordering::Acquire) < length {
            self.file.sync_data()?;
            self.synced.fetch_max(length, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// The length of a journal at one moment, up to which it can be synced later without its lock.
pub(crate) struct JournalEnd {
    file: Arc<JournalFile>,
    path: PathBuf,
    length: u64,
}

impl JournalEnd {
    /// Syncs the journal up to the recorded length.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = self.file.sync(self.length);
        synced.map_err(|error| Error::os(self.path.display(), error))
    }
}

/// Number of bytes of disk space that the journal reserves ahead, enough for some hundreds of removals.
const RESERVE: u64 = 64 << 10;

impl Journal {
    /// Opens the journal at `path`, creates it if it is missing, and passes its records to `apply` in order. Removes an
    /// incomplete last line.
    ///
    /// Errors: `Corrupt` if another line is damaged.
    pub(crate) fn open(path: &Path, apply: &mut dyn FnMut(JournalRecord)) -> Result<Journal> {
        let failed = |error| Error::os(path.display(), error);
        let file = open_or_read_only(path).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        let mut is_closed = true;
        let mut apply_and_track = |record: JournalRecord| {
            is_closed = record == JournalRecord::Closed;
            apply(record);
        };
        let read = read_lines(&file, &mut apply_and_track);
        let length = read.map_err(|error| error.about(path.display()))?;
        if length < total {
            log::warn!("{}: ignored an incomplete last record", path.display());
            is_closed = false;
            file.set_len(length).map_err(failed)?;
        }
        Ok(Journal {
            file: JournalFile::new(file),
            path: path.to_path_buf(),
            length,
            is_closed,
            reserved: 0,
        })
    }

    pub(crate) fn set_path(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Appends records as one line, so that after a crash all of them or none are found. If the disk is full, the
    /// journal stays unchanged.
    pub(crate) fn append(&mut self, records: &[JournalRecord]) -> Result<()> {
        let line = encode_line(records);
        self.reserve(line.len() as u64);
        if let Err(error) = self.file.file.write_all_at(&line, self.length) {
            // If the truncation fails as well, the next reader of the journal drops the incomplete line.
            let _ = self.file.file.set_len(self.length);
            self.reserved = 0;
            return Err(match error.raw_os_error() {
                // The file is open read-only, because the file system is read-only.
                Some(libc::EBADF) => Error::read_only(self.path.display()),
                _ => Error::os_own_file(self.path.display(), error),
            });
        }
        self.length += line.len() as u64;
        if std::mem::take(&mut self.is_closed) {
            self.end().sync()?;
        }
        self.is_closed = records.last() == Some(&JournalRecord::Closed);
        Ok(())
    }

    /// Whether the layer's files and journal are completely synced.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Reserves disk space for a line of this many bytes and some more, so that files can still be removed when the
    /// disk is full.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        let end = self.length + bytes;
        if end + RESERVE / 2 <= self.reserved {
            return;
        }
        let (flags, length) = (FallocateFlags::KEEP_SIZE, end - self.length + RESERVE);
        match rustix::fs::fallocate(&self.file.file, flags, self.length, length) {
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            _ => self.reserved = end + RESERVE,
        }
    }

    pub(crate) fn end(&self) -> JournalEnd {
        JournalEnd {
            file: self.file.clone(),
            path: self.path.clone(),
            length: self.length,
        }
    }

    #[cfg(test)]
    pub(crate) fn synced(&self) -> u64 {
        self.file.synced.load(Ordering::Acquire)
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Whether the journal is much longer than necessary for this many records, so that it is worth a rewrite.
    pub(crate) fn is_oversized(&self, records: usize) -> bool {
        self.length > (1 << 20) + 1024 * records as u64
    }

    /// Replaces the journal atomically by a journal that has only these records.
    pub(crate) fn rewrite(&mut self, records: &[JournalRecord]) -> Result<()> {
        let failed = |error| Error::os_own_file(self.path.display(), error);
        let replacement = self.path.with_extension("new");
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|record| encode_line(std::slice::from_ref(record)))
            .collect();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&replacement)
            .map_err(failed)?;
        let written = file
            .write_all_at(&bytes, 0)
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&replacement, &self.path))
            .and_then(|()| sync_folder_of(&self.path));
        written.map_err(|error| {
            // Remove the incomplete file, which would take space on a full disk.
            let _ = std::fs::remove_file(&replacement);
            failed(error)
        })?;
        (self.length, self.reserved) = (bytes.len() as u64, 0);
        self.file = JournalFile::new(file);
        self.file.synced.store(self.length, Ordering::Release);
        self.is_closed = records.is_empty();
        self.reserve(0);
        Ok(())
    }
}

/// Syncs the folder of a file, so that the names in it survive a power loss.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Opens a file for reading and writing, and creates it if it is missing. On a read-only file system it is opened for
/// reading, so that an upper folder there can be inspected.
pub(crate) fn open_or_read_only(path: &Path) -> io::Result<File> {
    let options = || {
        let mut options = File::options();
        options.read(true).write(true);
        options
    };
    match options().create(true).truncate(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(path),
        opened => opened,
    }
}

/// Passes the records of all lines before the first damaged line to `apply`; returns the length of these lines in
/// bytes. Fails with `Corrupt` if a later line records that the damaged line was synced.
fn read_lines(file: &File, apply: &mut dyn FnMut(JournalRecord)) -> Result<u64> {
    let mut lines = BufReader::new(file);
    let (mut length, mut number) = (0, 0);
    let mut damage = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::os("", error))? == 0 {
            return Ok(length);
        }
        number += 1;
        match (decode_line(&line), &mut damage) {
            (Some(records), None) => {
                records.into_iter().for_each(&mut *apply);
                length += line.len() as u64;
            }
            (None, None) => damage = Some(Damage::at(number)),
            (Some(records), Some(damage)) => damage.check(&records)?,
            (None, Some(_)) => {}
        }
    }
}

/// The first damaged line of a journal.
struct Damage {
    /// The number of the damaged line, from 1.
    line: u64,
    /// The numbers of the syncs of the whole layer that began after the damaged line was written.
    syncs: Vec<u64>,
}

impl Damage {
    fn at(line: u64) -> Damage {
        let syncs = Vec::new();
        Damage { line, syncs }
    }

    /// Fails if a later record says that the damaged line was already synced, since a power loss cannot explain the
    /// damage then.
    fn check(&mut self, records: &[JournalRecord]) -> Result<()> {
        for record in records {
            let was_synced = match record {
                JournalRecord::SyncStarted(sync) => {
                    self.syncs.push(*sync);
                    false
                }
                JournalRecord::SyncFinished(sync) => self.syncs.contains(sync),
                record => *record == JournalRecord::Closed,
            };
            if was_synced {
                let what = format!("line {} does not match its checksum", self.line);
                return Err(Error::corrupt("", what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute_override::AttributeOverride;
    use crate::journal_record::{ContentDigest, Mark};
    use zarrfs_store::{EncodedBy, Key, StoreVersion};

    fn sample() -> Vec<JournalRecord> {
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        vec![
            JournalRecord::Base {
                key: key(b"a/\xff %\n\"b"),
                version: Some(StoreVersion(u64::MAX)),
                is_frozen: false,
                content: Some(ContentDigest {
                    length: u64::MAX,
                    digest: 1,
                }),
            },
            JournalRecord::Base {
                key: key(b"b"),
                version: None,
                is_frozen: true,
                content: None,
            },
            JournalRecord::Attributes {
                key: key(b"b"),
                attributes: AttributeOverride::sample(),
            },
            JournalRecord::AttributesDropped(key(b"b")),
            JournalRecord::Committed {
                key: key(b"b"),
                version: StoreVersion(5),
            },
            JournalRecord::Attempted {
                key: key(b"b"),
                digest: Some(7),
            },
            JournalRecord::Attempted {
                key: key(b"b"),
                digest: None,
            },
            JournalRecord::Reverted(key(b"b")),
            JournalRecord::EncodedBy {
                at: Key::root(),
                by: Some(EncodedBy {
                    document: key(b"zarr.json"),
                    folder: Key::root(),
                    digest: u128::MAX,
                }),
            },
            JournalRecord::EncodedBy {
                at: key(b"data/x"),
                by: Some(EncodedBy {
                    document: key(b"meta/x.array.json"),
                    folder: key(b"data/x"),
                    digest: 5,
                }),
            },
            JournalRecord::EncodedBy {
                at: key(b"b"),
                by: None,
            },
            JournalRecord::Whiteout {
                key: key(b"c/0/1"),
                source: Some(Key::root()),
            },
            JournalRecord::Whiteout {
                key: key(b"c"),
                source: None,
            },
            JournalRecord::WhiteoutRemoved(key(b"c")),
            JournalRecord::Created(key(b"d")),
            JournalRecord::Completed(key(b"d")),
            JournalRecord::RenameStarted {
                from: key(b"e"),
                to: key(b"f"),
                in_upper: true,
            },
            JournalRecord::RenameFinished,
            JournalRecord::Written {
                key: key(b"g"),
                mark: Mark {
                    inode: u64::MAX,
                    length: 1 << 40,
                    digest: Some(u128::MAX),
                },
            },
            JournalRecord::Written {
                key: key(b"h"),
                mark: Mark {
                    inode: 1,
                    length: 0,
                    digest: None,
                },
            },
            JournalRecord::Removed(key(b"h")),
            JournalRecord::SyncStarted(7),
            JournalRecord::Forgotten(key(b"g")),
            JournalRecord::CopiesWritten(key(b"zarr.json")),
            JournalRecord::CopiesStale {
                holder: key(b"zarr.json"),
                path: key(b"a"),
            },
        ]
    }

    fn opened(path: &Path) -> Result<(Journal, Vec<JournalRecord>)> {
        let mut records = Vec::new();
        let journal = Journal::open(path, &mut |record| records.push(record))?;
        Ok((journal, records))
    }

    fn written(path: &Path) -> Vec<u8> {
        let (mut journal, _) = opened(path).unwrap();
        for record in sample() {
            journal.append(&[record]).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn appended_records_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, none) = opened(&path).unwrap();
        assert_eq!(none, []);
        journal.append(&sample()[..2]).unwrap();
        journal.append(&sample()[2..]).unwrap();
        assert_eq!(opened(&path).unwrap().1, sample());
        journal.rewrite(&sample()[3..]).unwrap();
        journal.append(&sample()[..1]).unwrap();
        let (_, found) = opened(&path).unwrap();
        assert_eq!(found, [&sample()[3..], &sample()[..1]].concat());
    }

    /// Invariant (overlay): A journal with a truncated or damaged end gives an earlier state. If a synced line is
    /// damaged, the journal is refused.
    #[test]
    fn a_truncated_journal_keeps_its_complete_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let whole = written(&path);
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = opened(&path).unwrap();
            let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(found, sample()[..lines]);
            journal.append(&[JournalRecord::RenameFinished]).unwrap();
            let (_, found) = opened(&path).unwrap();
            assert_eq!(found.last(), Some(&JournalRecord::RenameFinished));
        }
    }

    /// Invariant of `a_truncated_journal_keeps_its_complete_lines`.
    #[test]
    fn a_damaged_line_and_the_lines_after_it_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let whole = written(&path);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let (_, found) = opened(&path).unwrap();
            assert!(found.len() < sample().len() && sample().starts_with(&found));
        }
    }

    /// Invariant of `a_truncated_journal_keeps_its_complete_lines`.
    #[test]
    fn damage_of_a_line_that_was_synced_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (started, finished) = (
            JournalRecord::SyncStarted(1),
            JournalRecord::SyncFinished(1),
        );
        for records in [vec![started, finished], vec![JournalRecord::Closed]] {
            std::fs::remove_file(&path).unwrap_or_default();
            written(&path);
            let (mut journal, _) = opened(&path).unwrap();
            journal.append(&records).unwrap();
            assert_eq!(opened(&path).unwrap().1.last(), records.last());
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[20] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(opened(&path).is_err());
        }
    }

    #[test]
    fn a_closed_journal_is_reopened_by_the_next_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let is_closed = || opened(&path).unwrap().0.is_closed();
        assert!(is_closed(), "nothing was changed yet");
        let (mut journal, _) = opened(&path).unwrap();
        journal.append(&sample()[..1]).unwrap();
        assert!(!is_closed());
        journal.append(&[JournalRecord::Closed]).unwrap();
        assert!(journal.is_closed() && is_closed());
        journal.append(&sample()[..1]).unwrap();
        assert!(!journal.is_closed() && !is_closed());
    }
}
