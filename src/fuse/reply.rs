//! Sends the results of requests, or undoes them after a timeout.
//!
//! The kernel does not know a result that was not sent, so it would never release the inodes and handles in that
//! result.

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

use super::convert;
use super::deadline::ReplyError;
use super::directory::DirBuffer;
use crate::vfs::{Entry, Fh, Ino, OpenReply, Vfs};
use crate::view::{Attr, ReadBytes};
use zarrfs_store::EntryKind;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::FreeSpace;

/// The result of a kernel request.
pub(super) trait Output: Sized {
    /// The reply type of fuser that sends a result of this type.
    type Reply: ReplyError;

    /// Sends the result to the kernel.
    fn send(self, reply: Self::Reply, vfs: &Vfs);

    /// Returns the error number that the program gets with this result, or `None` for a success.
    fn errno(&self) -> Option<i32> {
        None
    }

    /// Releases the inode or the handle of a result that was not sent, because its request has timed out.
    fn undo(self, _context: &RequestContext, _vfs: &Vfs) {}
}

impl Output for () {
    type Reply = ReplyEmpty;

    fn send(self, reply: ReplyEmpty, _vfs: &Vfs) {
        reply.ok();
    }
}

impl Output for Entry {
    type Reply = ReplyEntry;

    fn send(self, reply: ReplyEntry, vfs: &Vfs) {
        let attr = convert::file_attr(self.ino, &self.attr, vfs);
        reply.entry(&self.attr.ttl, &attr, Generation(0));
    }

    fn undo(self, _context: &RequestContext, vfs: &Vfs) {
        vfs.forget(self.ino, 1);
    }
}

/// The result of a lookup.
impl Output for Option<Entry> {
    type Reply = ReplyEntry;

    fn send(self, reply: ReplyEntry, vfs: &Vfs) {
        self.unwrap_or_else(|| negative_entry(vfs)).send(reply, vfs);
    }

    fn errno(&self) -> Option<i32> {
        self.is_none().then_some(libc::ENOENT)
    }

    fn undo(self, context: &RequestContext, vfs: &Vfs) {
        if let Some(entry) = self {
            entry.undo(context, vfs);
        }
    }
}

/// Returns the reply for a missing name: inode 0, which the kernel caches for the TTL of missing names.
fn negative_entry(vfs: &Vfs) -> Entry {
    let mut entry = Entry::unknown(Ino(0), EntryKind::File);
    entry.attr.ttl = vfs.negative_ttl();
    entry
}

/// Attributes of an inode.
pub(super) struct InodeAttr(pub(super) Ino, pub(super) Attr);

impl Output for InodeAttr {
    type Reply = ReplyAttr;

    fn send(self, reply: ReplyAttr, vfs: &Vfs) {
        let InodeAttr(ino, attr) = self;
        reply.attr(&attr.ttl, &convert::file_attr(ino, &attr, vfs));
    }
}

impl Output for ReadBytes {
    type Reply = ReplyData;

    fn send(self, reply: ReplyData, _vfs: &Vfs) {
        reply.data(&self);
    }
}

pub(super) struct LinkTarget(pub(super) Vec<u8>);

impl Output for LinkTarget {
    type Reply = ReplyData;

    fn send(self, reply: ReplyData, _vfs: &Vfs) {
        reply.data(&self.0);
    }
}

/// Number of bytes that a write has written.
#[derive(Clone, Copy)]
pub(super) struct Written(pub(super) u32);

impl Output for Written {
    type Reply = ReplyWrite;

    fn send(self, reply: ReplyWrite, _vfs: &Vfs) {
        reply.written(self.0);
    }
}

/// A file that was created and opened.
impl Output for (Entry, OpenReply) {
    type Reply = ReplyCreate;

    fn send(self, reply: ReplyCreate, vfs: &Vfs) {
        let (Entry { ino, attr }, opened) = self;
        reply.created(
            &attr.ttl,
            &convert::file_attr(ino, &attr, vfs),
            Generation(0),
            FileHandle(opened.fh.0),
            convert::open_flags(&opened),
        );
    }

    fn undo(self, context: &RequestContext, vfs: &Vfs) {
        let (entry, opened) = self;
        vfs.release(context, opened.fh);
        entry.undo(context, vfs);
    }
}

/// Handle of an opened directory.
pub(super) struct OpenedDir(pub(super) Fh);

impl Output for OpenedDir {
    type Reply = ReplyOpen;

    fn send(self, reply: ReplyOpen, _vfs: &Vfs) {
        reply.opened(FileHandle(self.0.0), FopenFlags::empty());
    }

    fn undo(self, _context: &RequestContext, vfs: &Vfs) {
        vfs.releasedir(self.0);
    }
}

impl Output for DirBuffer {
    type Reply = ReplyDirectory;

    fn send(self, mut reply: ReplyDirectory, vfs: &Vfs) {
        self.add_to(&mut reply, vfs);
        reply.ok();
    }
}

impl Output for FreeSpace {
    type Reply = ReplyStatfs;

    fn send(self, reply: ReplyStatfs, _vfs: &Vfs) {
        reply.statfs(
            self.blocks,
            self.free,
            self.available,
            self.files,
            self.free_files,
            self.block,
            // Maximum length of a file name in bytes.
            255,
            self.block,
        );
    }
}

macro_rules! reply_errors {
    ($($reply:ty),+) => {
        $(impl ReplyError for $reply {
            fn refuse(self, errno: i32) {
                self.error(Errno::from_i32(errno));
            }
        })+
    };
}

reply_errors!(
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
