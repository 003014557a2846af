//! Packs the entries of one READDIR reply in memory.
//!
//! fuser's reply object stays among the pending requests, so that it can be refused, and is not available while the
//! listing is read. The kernel may have less space than the largest reply: the entries that do not fit return to the
//! open directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, ReplyDirectory};

use super::convert;
use crate::vfs::{DirEntry, Fh, Ino, Vfs};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Name};

/// Length of a READDIR reply in bytes, as glibc requests it.
const REPLY_LEN: usize = 32 << 10;

/// The cursor after `.` and `..`, and the difference between the kernel's and the vfs's cursors of all other entries.
const AFTER_DOTS: u64 = 1;

struct PackedEntry {
    ino: Ino,
    /// The cursor that the kernel gets for the entry.
    cursor: u64,
    kind: EntryKind,
    end: usize,
}

/// Entries of a directory for one READDIR reply.
pub(super) struct DirBuffer {
    fh: Fh,
    /// The vfs's cursor after which the entries begin.
    from: u64,
    entries: Vec<PackedEntry>,
    names: Vec<u8>,
    length: usize,
}

impl DirBuffer {
    /// Reads the entries of an open directory after the kernel's cursor `cursor`; 0 begins with `.` and `..`.
    pub(super) fn read(
        vfs: &Vfs,
        context: &RequestContext,
        ino: Ino,
        fh: Fh,
        cursor: u64,
    ) -> Result<DirBuffer> {
        let mut buffer = DirBuffer::begin(vfs, ino, fh, cursor);
        let from = buffer.from;
        let mut sink = |entry: DirEntry<'_>| {
            buffer.push(DirEntry {
                cursor: AFTER_DOTS + entry.cursor,
                ..entry
            })
        };
        vfs.readdir(context, fh, from, &mut sink)?;
        Ok(buffer)
    }

    /// Returns the buffer of a reply that begins after `cursor`; for 0 it contains `.` and `..`.
    fn begin(vfs: &Vfs, ino: Ino, fh: Fh, cursor: u64) -> DirBuffer {
        let mut buffer = DirBuffer {
            fh,
            from: cursor.saturating_sub(AFTER_DOTS),
            entries: Vec::new(),
            names: Vec::new(),
            length: 0,
        };
        if cursor == 0 {
            for (ino, name) in [(ino, &b"."[..]), (vfs.parent(ino), b"..")] {
                buffer.push(DirEntry {
                    ino,
                    cursor: AFTER_DOTS,
                    kind: EntryKind::Directory,
                    name,
                });
            }
        }
        buffer
    }

    /// Adds an entry to the buffer; returns false if the reply has no space for it.
    fn push(&mut self, entry: DirEntry<'_>) -> bool {
        // An entry in the reply takes 24 bytes and its name, rounded up to eight bytes.
        let length = (24 + entry.name.len()).next_multiple_of(8);
        if self.length + length > REPLY_LEN {
            return false;
        }
        self.length += length;
        self.names.extend_from_slice(entry.name);
        self.entries.push(PackedEntry {
            ino: entry.ino,
            cursor: entry.cursor,
            kind: entry.kind,
            end: self.names.len(),
        });
        true
    }

    /// Adds the entries to fuser's reply until it is full, and returns the others to the open directory, since the
    /// kernel continues after the last entry that it got.
    pub(super) fn add_to(&self, reply: &mut ReplyDirectory, vfs: &Vfs) {
        self.add_until(vfs, |entry, name| {
            let kind = convert::file_type(entry.kind);
            let name = OsStr::from_bytes(name);
            reply.add(INodeNo(entry.ino.0), entry.cursor, kind, name)
        });
    }

    /// Calls `is_full` with each entry and its name until it returns true. Returns the entry that did not fit, and
    /// those after it, to the open directory.
    fn add_until(&self, vfs: &Vfs, mut is_full: impl FnMut(&PackedEntry, &[u8]) -> bool) {
        let mut named = self.named();
        if let Some(taken) = named.position(|(entry, name)| is_full(entry, name)) {
            self.return_rest(taken, vfs);
        }
    }

    fn named(&self) -> impl Iterator<Item = (&PackedEntry, &[u8])> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let name = self.names.get(start..entry.end).unwrap_or_default();
            start = entry.end;
            (entry, name)
        })
    }

    /// Returns all but the first `taken` entries to the open directory, whose listing continues with them.
    fn return_rest(&self, taken: usize, vfs: &Vfs) {
        let is_listed = |entry: &PackedEntry| entry.cursor != AFTER_DOTS;
        let last = self.entries.get(..taken).unwrap_or_default().last();
        let cursor = last.filter(|entry| is_listed(entry));
        let cursor = cursor.map_or(self.from, |entry| entry.cursor - AFTER_DOTS);
        let rest = self.named().skip(taken);
        let rest = rest.filter(|(entry, _)| is_listed(entry));
        let rest = rest.map(|(entry, name)| Name {
            name: name.to_vec(),
            kind: entry.kind,
            cursor: entry.cursor - AFTER_DOTS,
            meta: None,
        });
        vfs.return_names(self.fh, cursor, rest.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Caller, mounted};
    use zarrfs_store::Key;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

    /// Returns a mounted store with twenty files.
    fn twenty_files() -> Vfs {
        let store = MemoryStore::default();
        for number in 0..20 {
            store.set(Key::new(number.to_string()).unwrap(), Vec::new());
        }
        mounted(store, true)
    }

    /// Reads a directory in replies of `capacity` entries. All replies but the first consist of entries that did not
    /// fit and were returned to the open directory.
    fn listed(capacity: usize) -> Vec<Vec<u8>> {
        let vfs = twenty_files();
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        let mut buffer = DirBuffer::read(&vfs, &UNLIMITED, Ino::ROOT, fh, 0).unwrap();
        let mut listed: Vec<Vec<u8>> = Vec::new();
        loop {
            let (before, mut cursor) = (listed.len(), 0);
            buffer.add_until(&vfs, |entry, name| {
                let is_full = listed.len() == before + capacity;
                if !is_full {
                    cursor = entry.cursor;
                    listed.push(name.to_vec());
                }
                is_full
            });
            if listed.len() == before {
                return listed;
            }
            buffer =
                DirBuffer::read(&vfs, &WITHOUT_WAITING, Ino::ROOT, fh, cursor).expect("given back");
        }
    }

    #[test]
    fn entries_that_do_not_fit_are_returned_without_a_new_listing() {
        // The kernel cannot continue between `.` and `..`, which have the same cursor.
        for capacity in [2, 3, 7, 19, 20, 21, 22, 30] {
            let mut listed = listed(capacity);
            assert_eq!(listed[..2], [&b"."[..], b".."], "{capacity} at a time");
            assert_eq!(listed.len(), 22, "{capacity} at a time");
            listed.sort();
            listed.dedup();
            assert_eq!(listed.len(), 22, "{capacity} at a time");
        }
    }

    #[test]
    fn a_full_directory_buffer_refuses_entries() {
        let mut buffer = DirBuffer::begin(&twenty_files(), Ino(1), Fh(1), AFTER_DOTS);
        let name = [b'x'; 40];
        let entry = |cursor| DirEntry {
            ino: Ino(2),
            cursor,
            kind: EntryKind::File,
            name: &name,
        };
        let taken = (0..1000).take_while(|&cursor| buffer.push(entry(cursor)));
        assert_eq!(taken.count(), REPLY_LEN / 64);
    }
}
