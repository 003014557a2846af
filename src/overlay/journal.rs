//! The journal of an upper folder: what cannot be told from the files in it, a line a change.
//!
//! A line is a checksum and a JSON list of records, appended by one write: a line that was cut is no line, and
//! what it stood for did not happen. A line in the middle that does not check is an error, never skipped. What
//! the records mean together is `records`' business.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::store::{Key, Version};

/// One change that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JournalRecord {
    /// What the store held when a key was first changed; nothing if the key was missing. `same` while the content
    /// that the upper folder has is still the store's.
    Held {
        key: Key,
        version: Option<Version>,
        same: bool,
    },
    /// What the upper folder has of a key is in the store now, under this version.
    Sent { key: Key, version: Version },
    /// A key is as in the store again.
    Let(Key),
    /// The store's key and what lies below it are hidden, or stand for those of another key.
    White { key: Key, of: Option<Key> },
    /// They are no longer hidden.
    Show(Key),
    /// A file of this key was made and is not whole yet.
    Born(Key),
    /// It is whole.
    Whole(Key),
    /// Something is about to get another name; `native` if the upper folder has it.
    Move { from: Key, to: Key, native: bool },
    /// It has got it.
    Moved,
}

/// The file of records.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    length: u64,
    /// Up to where there is room for certain, in bytes.
    reserved: u64,
}

/// How much room is kept for records to come, in bytes: some hundreds of removals.
const ROOM: u64 = 64 << 10;

/// The longest journal that is read, in bytes.
const LONGEST: u64 = 4 << 30;

impl Journal {
    /// Opens the journal at `path`, made if there is none, and returns the records in it; `Corrupt` if it is
    /// damaged. What was cut off at the end is removed.
    pub(super) fn open(path: &Path) -> Result<(Journal, Vec<JournalRecord>)> {
        let failed = |error| Error::os(path.display(), error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > LONGEST {
            return Err(Error::too_large(path.display(), "a journal beyond 4 GiB"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (records, length) = read_lines(&bytes).map_err(|error| error.about(path.display()))?;
        if length < bytes.len() {
            log::warn!("{}: its last line was cut, and is ignored", path.display());
            file.set_len(length as u64).map_err(failed)?;
        }
        let journal = Journal {
            file,
            path: path.to_path_buf(),
            length: length as u64,
            reserved: 0,
        };
        Ok((journal, records))
    }

    /// Appends records that happen together. When there is no room the journal is as before.
    pub(super) fn append(&mut self, records: &[JournalRecord]) -> Result<()> {
        let line = line_of(records);
        self.reserve(line.len() as u64);
        if let Err(error) = self.file.write_all_at(&line, self.length) {
            // A line that is cut is ignored when the journal is read.
            let _ = self.file.set_len(self.length);
            self.reserved = 0;
            return Err(Error::os(self.path.display(), error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Keeps room ahead, so that something can be removed when there is no room for anything else.
    fn reserve(&mut self, more: u64) {
        let end = self.length + more;
        if end + ROOM / 2 <= self.reserved {
            return;
        }
        let (flags, length) = (FallocateFlags::KEEP_SIZE, end - self.length + ROOM);
        match rustix::fs::fallocate(&self.file, flags, self.length, length) {
            Err(Errno::NOSPC | Errno::DQUOT) => {}
            _ => self.reserved = end + ROOM,
        }
    }

    /// Returns the file, to be synced without a lock.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether it is much longer than so many records would be.
    pub(super) fn is_long_for(&self, records: usize) -> bool {
        self.length > (1 << 20) + 1024 * records as u64
    }

    /// Puts a journal of these records in the place of this one.
    pub(super) fn rewrite(&mut self, records: &[JournalRecord]) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        let arriving = self.path.with_extension("new");
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|record| line_of(std::slice::from_ref(record)))
            .collect();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&arriving)
            .map_err(failed)?;
        file.write_all_at(&bytes, 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&arriving, &self.path).map_err(failed)?;
        (self.file, self.length, self.reserved) = (file, bytes.len() as u64, 0);
        Ok(())
    }
}

/// Digits of a checksum, and the blank after it.
const SUM: usize = 9;

fn line_of(records: &[JournalRecord]) -> Vec<u8> {
    let list: Vec<Value> = records.iter().map(to_json).collect();
    let text = Value::Array(list).to_string();
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{sum:08x} {text}\n").into_bytes()
}

/// Reads whole lines; returns the records and how many bytes they took.
fn read_lines(bytes: &[u8]) -> Result<(Vec<JournalRecord>, usize)> {
    let mut records = Vec::new();
    let mut length = 0;
    for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        match read_line(line) {
            Some(more) => records.extend(more),
            None if length + line.len() == bytes.len() => break,
            None => {
                let what = format!("line {} does not match its checksum", number + 1);
                return Err(Error::corrupt("", what));
            }
        }
        length += line.len();
    }
    Ok((records, length))
}

fn read_line(line: &[u8]) -> Option<Vec<JournalRecord>> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, text) = line.split_at_checked(SUM)?;
    let sum = u32::from_str_radix(sum.strip_suffix(' ')?, 16).ok()?;
    if sum != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    list.iter().map(from_json).collect()
}

/// Bytes of keys that are spelled as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b' ')
    .remove(b'~')
    .remove(b'=')
    .remove(b'+');

fn spelled(key: &Key) -> String {
    percent_encode(key.as_bytes(), PLAIN).to_string()
}

fn key_of(value: Option<&Value>) -> Option<Key> {
    let bytes: Vec<u8> = percent_decode_str(value?.as_str()?).collect();
    Key::new(bytes).ok()
}

fn version_of(value: &Value) -> Option<Version> {
    let digits = u64::from_str_radix(value.as_str()?, 16);
    Some(Version(digits.ok()?))
}

fn to_json(record: &JournalRecord) -> Value {
    match record {
        JournalRecord::Held { key, version, same } => {
            let version = version.map(|version| format!("{:016x}", version.0));
            json!({"held": spelled(key), "version": version, "same": same})
        }
        JournalRecord::Sent { key, version } => {
            json!({"sent": spelled(key), "version": format!("{:016x}", version.0)})
        }
        JournalRecord::Let(key) => json!({"let": spelled(key)}),
        JournalRecord::White { key, of } => {
            json!({"white": spelled(key), "of": of.as_ref().map(spelled)})
        }
        JournalRecord::Show(key) => json!({"show": spelled(key)}),
        JournalRecord::Born(key) => json!({"born": spelled(key)}),
        JournalRecord::Whole(key) => json!({"whole": spelled(key)}),
        JournalRecord::Move { from, to, native } => {
            json!({"move": spelled(from), "to": spelled(to), "native": native})
        }
        JournalRecord::Moved => json!({"moved": true}),
    }
}

fn from_json(value: &Value) -> Option<JournalRecord> {
    let members = value.as_object()?;
    let (name, first) = members.iter().next()?;
    let key = || key_of(Some(first));
    Some(match name.as_str() {
        "held" => JournalRecord::Held {
            key: key()?,
            version: match members.get("version")? {
                Value::Null => None,
                version => Some(version_of(version)?),
            },
            same: members.get("same")?.as_bool()?,
        },
        "sent" => JournalRecord::Sent {
            key: key()?,
            version: version_of(members.get("version")?)?,
        },
        "let" => JournalRecord::Let(key()?),
        "white" => JournalRecord::White {
            key: key()?,
            of: match members.get("of")? {
                Value::Null => None,
                of => Some(key_of(Some(of))?),
            },
        },
        "show" => JournalRecord::Show(key()?),
        "born" => JournalRecord::Born(key()?),
        "whole" => JournalRecord::Whole(key()?),
        "move" => JournalRecord::Move {
            from: key()?,
            to: key_of(members.get("to"))?,
            native: members.get("native")?.as_bool()?,
        },
        "moved" => JournalRecord::Moved,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<JournalRecord> {
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        vec![
            JournalRecord::Held {
                key: key(b"a/\xff %\n\"b"),
                version: Some(Version(u64::MAX)),
                same: true,
            },
            JournalRecord::Held {
                key: key(b"b"),
                version: None,
                same: false,
            },
            JournalRecord::Sent {
                key: key(b"b"),
                version: Version(5),
            },
            JournalRecord::Let(key(b"b")),
            JournalRecord::White {
                key: key(b"c/0/1"),
                of: Some(Key::root()),
            },
            JournalRecord::White {
                key: key(b"c"),
                of: None,
            },
            JournalRecord::Show(key(b"c")),
            JournalRecord::Born(key(b"d")),
            JournalRecord::Whole(key(b"d")),
            JournalRecord::Move {
                from: key(b"e"),
                to: key(b"f"),
                native: true,
            },
            JournalRecord::Moved,
        ]
    }

    /// Writes each of `some` as a line; returns the bytes.
    fn written(path: &Path) -> Vec<u8> {
        let (mut journal, _) = Journal::open(path).unwrap();
        for record in some() {
            journal.append(&[record]).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_is_appended_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, none) = Journal::open(&path).unwrap();
        assert_eq!(none, []);
        journal.append(&some()[..2]).unwrap();
        journal.append(&some()[2..]).unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, some());
        journal.rewrite(&some()[3..]).unwrap();
        journal.append(&some()[..1]).unwrap();
        let (_, found) = Journal::open(&path).unwrap();
        assert_eq!(found, [&some()[3..], &some()[..1]].concat());
    }

    #[test]
    fn a_cut_leaves_the_lines_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let whole = written(&path);
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = Journal::open(&path).unwrap();
            let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(found, some()[..lines]);
            journal.append(&[JournalRecord::Moved]).unwrap();
            let (_, found) = Journal::open(&path).unwrap();
            assert_eq!(found.last(), Some(&JournalRecord::Moved));
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
            match Journal::open(&path) {
                Err(_) => {}
                Ok((_, found)) => assert!(found.len() < some().len() && some().starts_with(&found)),
            }
        }
    }
}
