//! The entries of one READDIR reply, packed in memory.
//!
//! fuser's reply cannot be filled while the listing goes on, since it stays with its deadline until then.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, ReplyDirectory};

use super::convert;
use crate::error::Result;
use crate::store::EntryKind;
use crate::vfs::{Fh, Ino, Vfs};

/// The length of a reply in bytes, as glibc asks for it; an entry takes its name and 24 bytes, rounded up to eight.
const REPLY_LEN: usize = 32 << 10;
const ENTRY_HEADER: usize = 24;

/// The cursor after `.` and `..`: where the vfs begins. No listing has it, whatever file system is below;
/// ext4 ends at the largest number.
const AFTER_DOTS: u64 = 0x7fff_ffff_ffff_fffd;

/// The inode number shown of `..`, which the kernel never looks up by this name.
const UNKNOWN: Ino = Ino(0xffff_ffff);

struct PackedEntry {
    ino: Ino,
    cursor: u64,
    kind: EntryKind,
    /// Where its name ends among the names.
    end: usize,
}

/// Entries of a directory, at most as many as a reply takes.
#[derive(Default)]
pub(super) struct DirBuffer {
    entries: Vec<PackedEntry>,
    names: Vec<u8>,
    /// Of the reply that they will make, in bytes.
    length: usize,
}

impl DirBuffer {
    /// Reads the entries of an open directory that come after `cursor`; 0 begins with `.` and `..`.
    pub(super) fn read(vfs: &Vfs, ino: Ino, fh: Fh, cursor: u64) -> Result<DirBuffer> {
        let (mut buffer, cursor) = DirBuffer::begin(ino, cursor);
        let mut sink = |ino, cursor, kind, name: &[u8]| buffer.push(ino, cursor, kind, name);
        vfs.readdir(fh, cursor, &mut sink)?;
        Ok(buffer)
    }

    /// Like `read`, if something is in memory that can be replied.
    pub(super) fn read_now(vfs: &Vfs, ino: Ino, fh: Fh, cursor: u64) -> Option<DirBuffer> {
        let (mut buffer, cursor) = DirBuffer::begin(ino, cursor);
        let mut sink = |ino, cursor, kind, name: &[u8]| buffer.push(ino, cursor, kind, name);
        vfs.readdir_now(fh, cursor, &mut sink)?;
        Some(buffer)
    }

    /// Returns the buffer of a reply that begins after `cursor`, and where the vfs goes on.
    fn begin(ino: Ino, cursor: u64) -> (DirBuffer, u64) {
        let mut buffer = DirBuffer::default();
        if cursor == 0 {
            buffer.push(ino, AFTER_DOTS, EntryKind::Directory, b".");
            buffer.push(UNKNOWN, AFTER_DOTS, EntryKind::Directory, b"..");
        }
        let cursor = if cursor == AFTER_DOTS { 0 } else { cursor };
        (buffer, cursor)
    }

    /// Adds one entry, or returns false if there is no room for it.
    fn push(&mut self, ino: Ino, cursor: u64, kind: EntryKind, name: &[u8]) -> bool {
        let length = (ENTRY_HEADER + name.len()).next_multiple_of(8);
        if self.length + length > REPLY_LEN {
            return false;
        }
        self.length += length;
        self.names.extend_from_slice(name);
        self.entries.push(PackedEntry {
            ino,
            cursor,
            kind,
            end: self.names.len(),
        });
        true
    }

    /// Adds the entries to a reply until it is full: the kernel asks for the rest by the cursor of the last one.
    pub(super) fn add_to(&self, reply: &mut ReplyDirectory) {
        let mut start = 0;
        for entry in &self.entries {
            let name = OsStr::from_bytes(self.names.get(start..entry.end).unwrap_or_default());
            let kind = convert::file_type(entry.kind);
            if reply.add(INodeNo(entry.ino.0), entry.cursor, kind, name) {
                return;
            }
            start = entry.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_takes_no_more_names() {
        let mut buffer = DirBuffer::default();
        let name = [b'x'; 40];
        let taken =
            (0..1000).take_while(|&cursor| buffer.push(Ino(2), cursor, EntryKind::File, &name));
        assert_eq!(taken.count(), REPLY_LEN / 64);
    }
}
