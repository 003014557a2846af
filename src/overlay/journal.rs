//! The journal of an upper folder: the changes that its files alone do not show, one line each.
//!
//! A line is a checksum and a JSON list of records, appended by one write. An incomplete last line counts for
//! nothing: its change did not happen. Any other line with a wrong checksum is an error, never skipped. The words of
//! the lines are a format on disk and stay as they are. `records` holds what the records mean together.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::store::{Key, Version};

/// One change of an upper folder that its files alone do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalRecord {
    /// The store's version of a key when it was first changed here; `None` if the key was missing.
    Base {
        key: Key,
        version: Option<Version>,
        /// What a frozen layer had was changed: its commit tells the store's version.
        is_frozen: bool,
        /// Only attributes were changed: the content in the upper folder is still the store's.
        same_content: bool,
    },
    /// The content that the upper folder has of a key is in the store, under this version.
    Committed { key: Key, version: Version },
    /// A content of this digest is about to be put under a key, or the key is about to be removed: the store may have done
    /// so although no answer came.
    Tried { key: Key, digest: Option<u128> },
    /// A key is as in the store again: its base is forgotten.
    Reverted(Key),
    /// The store's objects at a key and below are hidden, or replaced by those at and below `source`.
    Whiteout { key: Key, source: Option<Key> },
    /// The whiteout of this key is gone.
    WhiteoutRemoved(Key),
    /// A file was created under this key and is incomplete.
    Created(Key),
    /// The file of this key is complete.
    Completed(Key),
    /// A rename begins; `in_upper` if the upper folder has what is renamed.
    RenameStarted { from: Key, to: Key, in_upper: bool },
    /// The rename is done.
    RenameFinished,
}

/// The journal file, open for appending.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    length: u64,
    /// Space on disk is allocated up to this offset, in bytes.
    reserved: u64,
}

/// Space on disk that is allocated ahead, in bytes: enough for some hundreds of removals.
const RESERVE: u64 = 64 << 10;

impl Journal {
    /// Opens the journal at `path`, created if it is missing, and gives its records to `apply` in their order. An
    /// incomplete last line is removed.
    ///
    /// `Corrupt` if another line is damaged.
    pub(super) fn open(path: &Path, apply: &mut dyn FnMut(JournalRecord)) -> Result<Journal> {
        let failed = |error| Error::os(path.display(), error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        let length = read_lines(&file, apply).map_err(|error| error.about(path.display()))?;
        if length < total {
            log::warn!("{}: its last line was cut, and is ignored", path.display());
            file.set_len(length).map_err(failed)?;
        }
        Ok(Journal {
            file,
            path: path.to_path_buf(),
            length,
            reserved: 0,
        })
    }

    /// Notes that the file was renamed.
    pub(super) fn set_path(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Appends records as one line: all of them count, or none. If the disk is full the journal stays as it was.
    pub(super) fn append(&mut self, records: &[JournalRecord]) -> Result<()> {
        let line = encode_line(records);
        self.reserve(line.len() as u64);
        if let Err(error) = self.file.write_all_at(&line, self.length) {
            // If this fails as well, the incomplete line is dropped when the journal is read.
            let _ = self.file.set_len(self.length);
            self.reserved = 0;
            return Err(Error::os(self.path.display(), error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Allocates space ahead, so that keys can still be removed when the disk is full.
    fn reserve(&mut self, bytes: u64) {
        let end = self.length + bytes;
        if end + RESERVE / 2 <= self.reserved {
            return;
        }
        let (flags, length) = (FallocateFlags::KEEP_SIZE, end - self.length + RESERVE);
        match rustix::fs::fallocate(&self.file, flags, self.length, length) {
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            _ => self.reserved = end + RESERVE,
        }
    }

    /// Returns another handle of the file, so that it can be synced without the lock that guards the journal.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether the journal is much longer than a new one of this many records.
    pub(super) fn is_oversized(&self, records: usize) -> bool {
        self.length > (1 << 20) + 1024 * records as u64
    }

    /// Replaces the journal by one of these records, in one step.
    pub(super) fn rewrite(&mut self, records: &[JournalRecord]) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
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
        file.write_all_at(&bytes, 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&replacement, &self.path).map_err(failed)?;
        (self.file, self.length, self.reserved) = (file, bytes.len() as u64, 0);
        self.reserve(0);
        Ok(())
    }
}

/// Length of the checksum at the start of a line: eight digits and a blank.
const CHECKSUM_WIDTH: usize = 9;

fn encode_line(records: &[JournalRecord]) -> Vec<u8> {
    let list: Vec<Value> = records.iter().map(to_json).collect();
    let text = Value::Array(list).to_string();
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{sum:08x} {text}\n").into_bytes()
}

/// Gives the records of all complete lines to `apply`; returns the length of these lines in bytes.
fn read_lines(file: &File, apply: &mut dyn FnMut(JournalRecord)) -> Result<u64> {
    let mut lines = BufReader::new(file);
    let (mut length, mut number) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::os("", error))? == 0 {
            return Ok(length);
        }
        number += 1;
        match decode_line(&line) {
            Some(records) => records.into_iter().for_each(&mut *apply),
            None if lines.fill_buf().is_ok_and(<[u8]>::is_empty) => return Ok(length),
            None => {
                let what = format!("line {number} does not match its checksum");
                return Err(Error::corrupt("", what));
            }
        }
        length += line.len() as u64;
    }
}

fn decode_line(line: &[u8]) -> Option<Vec<JournalRecord>> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, text) = line.split_at_checked(CHECKSUM_WIDTH)?;
    let sum = u32::from_str_radix(sum.strip_suffix(' ')?, 16).ok()?;
    if sum != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    list.iter().map(from_json).collect()
}

/// Bytes of keys that are written without percent encoding, beside letters and digits.
const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b' ')
    .remove(b'~')
    .remove(b'=')
    .remove(b'+');

fn encode_key(key: &Key) -> String {
    percent_encode(key.as_bytes(), UNESCAPED).to_string()
}

fn decode_key(value: Option<&Value>) -> Option<Key> {
    let bytes: Vec<u8> = percent_decode_str(value?.as_str()?).collect();
    Key::new(bytes).ok()
}

fn decode_version(value: &Value) -> Option<Version> {
    let digits = u64::from_str_radix(value.as_str()?, 16);
    Some(Version(digits.ok()?))
}

fn to_json(record: &JournalRecord) -> Value {
    match record {
        JournalRecord::Base {
            key,
            version,
            is_frozen,
            same_content,
        } => {
            let version = version.map(|version| format!("{:016x}", version.0));
            let mut record =
                json!({"held": encode_key(key), "version": version, "same": same_content});
            if *is_frozen {
                record["frozen"] = json!(true);
            }
            record
        }
        JournalRecord::Committed { key, version } => {
            json!({"sent": encode_key(key), "version": format!("{:016x}", version.0)})
        }
        JournalRecord::Tried { key, digest } => {
            let digest = digest.map(|digest| format!("{digest:032x}"));
            json!({"try": encode_key(key), "digest": digest})
        }
        JournalRecord::Reverted(key) => json!({"let": encode_key(key)}),
        JournalRecord::Whiteout { key, source } => {
            json!({"white": encode_key(key), "of": source.as_ref().map(encode_key)})
        }
        JournalRecord::WhiteoutRemoved(key) => json!({"show": encode_key(key)}),
        JournalRecord::Created(key) => json!({"born": encode_key(key)}),
        JournalRecord::Completed(key) => json!({"whole": encode_key(key)}),
        JournalRecord::RenameStarted { from, to, in_upper } => {
            json!({"move": encode_key(from), "to": encode_key(to), "native": in_upper})
        }
        JournalRecord::RenameFinished => json!({"moved": true}),
    }
}

fn from_json(value: &Value) -> Option<JournalRecord> {
    let members = value.as_object()?;
    let (name, first) = members.iter().next()?;
    let key = || decode_key(Some(first));
    Some(match name.as_str() {
        "held" => JournalRecord::Base {
            key: key()?,
            version: match members.get("version")? {
                Value::Null => None,
                version => Some(decode_version(version)?),
            },
            is_frozen: members.get("frozen").is_some(),
            same_content: members.get("same")?.as_bool()?,
        },
        "sent" => JournalRecord::Committed {
            key: key()?,
            version: decode_version(members.get("version")?)?,
        },
        "try" => JournalRecord::Tried {
            key: key()?,
            digest: match members.get("digest")? {
                Value::Null => None,
                digest => Some(u128::from_str_radix(digest.as_str()?, 16).ok()?),
            },
        },
        "let" => JournalRecord::Reverted(key()?),
        "white" => JournalRecord::Whiteout {
            key: key()?,
            source: match members.get("of")? {
                Value::Null => None,
                source => Some(decode_key(Some(source))?),
            },
        },
        "show" => JournalRecord::WhiteoutRemoved(key()?),
        "born" => JournalRecord::Created(key()?),
        "whole" => JournalRecord::Completed(key()?),
        "move" => JournalRecord::RenameStarted {
            from: key()?,
            to: decode_key(members.get("to"))?,
            in_upper: members.get("native")?.as_bool()?,
        },
        "moved" => JournalRecord::RenameFinished,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<JournalRecord> {
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        vec![
            JournalRecord::Base {
                key: key(b"a/\xff %\n\"b"),
                version: Some(Version(u64::MAX)),
                is_frozen: false,
                same_content: true,
            },
            JournalRecord::Base {
                key: key(b"b"),
                version: None,
                is_frozen: true,
                same_content: false,
            },
            JournalRecord::Committed {
                key: key(b"b"),
                version: Version(5),
            },
            JournalRecord::Tried {
                key: key(b"b"),
                digest: Some(7),
            },
            JournalRecord::Tried {
                key: key(b"b"),
                digest: None,
            },
            JournalRecord::Reverted(key(b"b")),
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
        ]
    }

    /// Opens a journal; returns its records too.
    fn opened(path: &Path) -> Result<(Journal, Vec<JournalRecord>)> {
        let mut records = Vec::new();
        let journal = Journal::open(path, &mut |record| records.push(record))?;
        Ok((journal, records))
    }

    /// Writes each of `sample` as a line; returns the bytes.
    fn written(path: &Path) -> Vec<u8> {
        let (mut journal, _) = opened(path).unwrap();
        for record in sample() {
            journal.append(&[record]).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_is_appended_is_read_again() {
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

    #[test]
    fn a_cut_leaves_the_lines_before_it() {
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

    #[test]
    fn a_byte_that_changed_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let whole = written(&path);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            match opened(&path) {
                Err(_) => {}
                Ok((_, found)) => {
                    assert!(found.len() < sample().len() && sample().starts_with(&found))
                }
            }
        }
    }
}
