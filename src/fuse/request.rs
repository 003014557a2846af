//! The requests that may have to wait: what each asks of the vfs and how its answer is put.
//!
//! One type per request. `now` must answer out of memory or not at all; `later` runs in a pool. An answer
//! that comes after its reply was refused is given back (`discard`), so that no inode or handle leaks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

use super::convert;
use super::deadline::ReplyError;
use crate::error::Result;
use crate::store::EntryKind;
use crate::vfs::{Entry, Fh, Ino, OpenReply, Vfs};
use crate::view::{Attr, ReadBytes};

/// Which pool a request waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestPool {
    /// Names and attributes.
    Names,
    /// Contents.
    Reads,
}

/// A request that may have to wait.
pub(super) trait Request: Send + 'static {
    /// The reply that it owes.
    type Reply: ReplyError;
    /// What it found.
    type Found;

    /// What the log calls it.
    fn name(&self) -> &'static str;
    /// Where it waits.
    fn queue(&self) -> RequestPool {
        RequestPool::Names
    }
    /// Whether it is refused when it takes too long. What keeps a file may take as long as the file is; each of its
    /// requests to the store has a limit.
    fn is_limited(&self) -> bool {
        true
    }

    /// The inode that it is about, for the log.
    fn inode(&self) -> u64;
    /// Returns the answer if it is in memory; never waits.
    fn now(&self, _vfs: &Vfs) -> Option<Result<Self::Found>> {
        None
    }
    /// Returns the answer; may wait.
    fn later(&self, vfs: &Vfs) -> Result<Self::Found>;
    /// Sends the answer.
    fn answer(self, found: Self::Found, reply: Self::Reply, vfs: &Vfs);
    /// Gives back what nobody will hear of.
    fn discard(self, _found: Self::Found, _vfs: &Vfs)
    where
        Self: Sized,
    {
    }
}

pub(super) struct Lookup {
    pub(super) parent: Ino,
    pub(super) name: OsString,
}

impl Request for Lookup {
    type Reply = ReplyEntry;
    type Found = Option<Entry>;

    fn name(&self) -> &'static str {
        "lookup"
    }

    fn inode(&self) -> u64 {
        self.parent.0
    }

    fn now(&self, vfs: &Vfs) -> Option<Result<Option<Entry>>> {
        vfs.lookup_now(self.parent, self.name.as_bytes())
    }

    fn later(&self, vfs: &Vfs) -> Result<Option<Entry>> {
        vfs.lookup(self.parent, self.name.as_bytes())
    }

    fn answer(self, found: Option<Entry>, reply: ReplyEntry, vfs: &Vfs) {
        let Entry { ino, attr } = found.unwrap_or_else(|| nothing(vfs));
        reply.entry(
            &attr.fresh,
            &convert::file_attr(ino, &attr, vfs.config()),
            Generation(0),
        );
    }

    fn discard(self, found: Option<Entry>, vfs: &Vfs) {
        if let Some(entry) = found {
            vfs.forget(entry.ino, 1);
        }
    }
}

/// Returns the entry that says "no such name": inode 0, which the kernel remembers as long as it is fresh.
fn nothing(vfs: &Vfs) -> Entry {
    let attr = Attr {
        kind: EntryKind::File,
        size: 0,
        stored: 0,
        modified: SystemTime::UNIX_EPOCH,
        fresh: vfs.negative_ttl(),
        posix: None,
    };
    Entry { ino: Ino(0), attr }
}

pub(super) struct GetAttr {
    pub(super) ino: Ino,
}

impl Request for GetAttr {
    type Reply = ReplyAttr;
    type Found = Attr;

    fn name(&self) -> &'static str {
        "getattr"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn now(&self, vfs: &Vfs) -> Option<Result<Attr>> {
        vfs.getattr_now(self.ino)
    }

    fn later(&self, vfs: &Vfs) -> Result<Attr> {
        vfs.getattr(self.ino)
    }

    fn answer(self, found: Attr, reply: ReplyAttr, vfs: &Vfs) {
        reply.attr(
            &found.fresh,
            &convert::file_attr(self.ino, &found, vfs.config()),
        );
    }
}

pub(super) struct ReadLink {
    pub(super) ino: Ino,
}

impl Request for ReadLink {
    type Reply = ReplyData;
    type Found = Vec<u8>;

    fn name(&self) -> &'static str {
        "readlink"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<Vec<u8>> {
        vfs.read_link(self.ino)
    }

    fn answer(self, found: Vec<u8>, reply: ReplyData, _vfs: &Vfs) {
        reply.data(&found);
    }
}

pub(super) struct OpenRequest {
    pub(super) ino: Ino,
    /// For writing, too; the content is thrown away if this is true.
    pub(super) writes: Option<bool>,
}

impl Request for OpenRequest {
    type Reply = ReplyOpen;
    type Found = OpenReply;

    fn name(&self) -> &'static str {
        "open"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<OpenReply> {
        match self.writes {
            Some(truncate) => vfs.open_for_writing(self.ino, truncate),
            None => vfs.open(self.ino),
        }
    }

    fn answer(self, found: OpenReply, reply: ReplyOpen, _vfs: &Vfs) {
        reply.opened(FileHandle(found.fh.0), convert::open_flags(&found));
    }

    fn discard(self, found: OpenReply, vfs: &Vfs) {
        vfs.release(found.fh);
    }
}

pub(super) struct Read {
    pub(super) ino: Ino,
    pub(super) fh: Fh,
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl Request for Read {
    type Reply = ReplyData;
    type Found = ReadBytes;

    fn name(&self) -> &'static str {
        "read"
    }

    fn queue(&self) -> RequestPool {
        RequestPool::Reads
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn now(&self, vfs: &Vfs) -> Option<Result<ReadBytes>> {
        vfs.read_now(self.fh, self.offset, self.len)
    }

    fn later(&self, vfs: &Vfs) -> Result<ReadBytes> {
        vfs.read(self.fh, self.offset, self.len)
    }

    fn answer(self, found: ReadBytes, reply: ReplyData, _vfs: &Vfs) {
        reply.data(&found);
    }
}

pub(super) struct OpenDir {
    pub(super) ino: Ino,
}

impl Request for OpenDir {
    type Reply = ReplyOpen;
    type Found = Fh;

    fn name(&self) -> &'static str {
        "opendir"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<Fh> {
        vfs.opendir(self.ino)
    }

    fn answer(self, found: Fh, reply: ReplyOpen, _vfs: &Vfs) {
        reply.opened(FileHandle(found.0), FopenFlags::empty());
    }

    fn discard(self, found: Fh, vfs: &Vfs) {
        vfs.releasedir(found);
    }
}

/// Names of one directory, packed: the reply itself must stay in its slot while the listing goes on.
#[derive(Default)]
pub(super) struct DirBuffer {
    entries: Vec<(Ino, u64, EntryKind, usize)>,
    bytes: Vec<u8>,
    /// Of the reply that they will make.
    length: usize,
}

/// What glibc asks for at once; a directory entry is its name and 24 bytes, rounded up to eight.
const DIRECTORY_REPLY: usize = 32 << 10;
const DIRECTORY_ENTRY: usize = 24;

impl DirBuffer {
    /// Takes one name, or returns false if there is no room for it.
    fn push(&mut self, ino: Ino, cursor: u64, kind: EntryKind, name: &[u8]) -> bool {
        let length = (DIRECTORY_ENTRY + name.len()).next_multiple_of(8);
        if self.length + length > DIRECTORY_REPLY {
            return false;
        }
        self.length += length;
        self.bytes.extend_from_slice(name);
        self.entries.push((ino, cursor, kind, self.bytes.len()));
        true
    }

    fn send(&self, mut reply: ReplyDirectory) {
        let mut start = 0;
        for &(ino, cursor, kind, end) in &self.entries {
            let name = std::ffi::OsStr::from_bytes(self.bytes.get(start..end).unwrap_or_default());
            // Full: the kernel asks for the rest by the cursor of the last name that went in.
            if reply.add(INodeNo(ino.0), cursor, convert::file_type(kind), name) {
                break;
            }
            start = end;
        }
        reply.ok();
    }
}

/// The cursor after `.` and `..`: where the vfs begins. No listing has it, whatever file system is below;
/// ext4 ends at the largest number.
const AFTER_DOTS: u64 = 0x7fff_ffff_ffff_fffd;

/// The inode number shown of `..`, which nobody has looked up by this name.
const UNKNOWN: Ino = Ino(0xffff_ffff);

pub(super) struct ReadDir {
    pub(super) ino: Ino,
    pub(super) fh: Fh,
    pub(super) cursor: u64,
}

impl Request for ReadDir {
    type Reply = ReplyDirectory;
    type Found = DirBuffer;

    fn name(&self) -> &'static str {
        "readdir"
    }

    fn inode(&self) -> u64 {
        self.ino.0
    }

    fn later(&self, vfs: &Vfs) -> Result<DirBuffer> {
        let mut names = DirBuffer::default();
        if self.cursor == 0 {
            names.push(self.ino, AFTER_DOTS, EntryKind::Directory, b".");
            names.push(UNKNOWN, AFTER_DOTS, EntryKind::Directory, b"..");
        }
        let cursor = if self.cursor == AFTER_DOTS {
            0
        } else {
            self.cursor
        };
        let mut sink = |ino, cursor, kind, name: &[u8]| names.push(ino, cursor, kind, name);
        vfs.readdir(self.fh, cursor, &mut sink)?;
        Ok(names)
    }

    fn answer(self, found: DirBuffer, reply: ReplyDirectory, _vfs: &Vfs) {
        found.send(reply);
    }
}

macro_rules! refuse {
    ($($reply:ty),+) => {
        $(impl ReplyError for $reply {
            fn refuse(self, errno: i32) {
                self.error(Errno::from_i32(errno));
            }
        })+
    };
}

refuse!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyEmpty,
    ReplyEntry,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);
