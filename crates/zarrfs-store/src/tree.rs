//! The interface of file trees that can be changed: what a writable mount needs beyond a store.
//!
//! Paths are keys; owners and modes are those of the kernel's request, which the kernel has already permitted. Each
//! operation is atomic: after a crash there is the state before it or the one after it.

use std::sync::Arc;
use std::time::SystemTime;

use crate::request_context::RequestContext;
use crate::{Key, Meta};
use zarr_format::error::{Error, Result};

/// What `stat` shows of a file beside its length and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posix {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `st_nlink`: 1 for a file, or 0 once it is open and was removed; a directory has a count of its own.
    pub links: u32,
    /// Time of the last access.
    pub accessed: SystemTime,
    /// Time of the last change of content or attributes.
    pub changed: SystemTime,
    /// The inode number where the attributes are stored.
    pub identity: u64,
}

/// The attributes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind, size and time.
    pub meta: Meta,
    /// Owner, mode and the like, if they are stored; else they are the mount's.
    pub posix: Option<Posix>,
    /// Tells one file from another: stays while a file is written in place or renamed, and changes when its name gets
    /// another file.
    pub content: u64,
}

/// The owner, group and mode of a new file or folder.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits, the caller's umask taken away.
    pub mode: u32,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// This one.
    At(SystemTime),
    /// The clock's.
    Now,
}

/// Attributes to be set; those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub accessed: Option<Time>,
    /// Time of the last change of the content.
    pub modified: Option<Time>,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading alone.
    Read,
    /// Writing too.
    Write,
    /// Writing, after it was emptied.
    Truncate,
}

/// What a rename does with a file that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced: a file by a file, an empty directory by a directory.
    Replace,
    /// The rename fails with `Exists`.
    NoReplace,
}

/// Whether an extended attribute may or must exist when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Sets it in any case.
    Any,
    /// `Exists` if it is there.
    Create,
    /// `NoAttribute` if it is not there.
    Replace,
}

/// Free space, as `statfs` shows it.
#[derive(Clone, Copy, Debug)]
pub struct FreeSpace {
    /// Bytes of a block.
    pub block: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Blocks that are free for all users.
    pub available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes that are free.
    pub free_files: u64,
}

/// A file open for writing, and for reading what was written.
pub trait TreeFile: Send + Sync {
    /// Returns up to `len` bytes at `offset`; fewer only at the end.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Writes all of `bytes` at `offset`; a gap before it is zeros. With a context that may not wait, `WouldWait` and no
    /// change where the write has to wait for more than memory.
    fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Writes all of `bytes` at the end, wherever that is by then.
    fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        self.write_at(context, self.stat(context)?.meta.size, bytes)
    }
    /// Writes pages of the kernel, of which a program has changed some bytes by way of a map: the others are what was
    /// read of the file before.
    fn write_pages(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(context, offset, bytes)
    }
    /// Notes that the kernel has dropped its pages of the file, after an error of `flush` or `sync`.
    fn note_pages_dropped(&self) {}
    /// Allocates space for a range, as fallocate(2) with `mode` does.
    fn allocate(
        &self,
        _context: &RequestContext,
        mode: i32,
        _offset: u64,
        _length: u64,
    ) -> Result<()> {
        Err(Error::unsupported("fallocate", format!("mode {mode}")))
    }
    /// Stores what was written: it survives the end of this process.
    fn flush(&self, context: &RequestContext) -> Result<()>;
    /// Stores what was written so that it survives a loss of power.
    fn sync(&self, context: &RequestContext) -> Result<()>;
    /// Stores what was written as far as it would be lost with this process, which ends while the file is open. An error
    /// says what becomes of what is not stored.
    fn end(&self, context: &RequestContext) -> Result<()> {
        self.flush(context)
    }
    /// Returns what `stat` shows now, also if the file has no name any more.
    fn stat(&self, context: &RequestContext) -> Result<Stat>;
    /// Sets attributes.
    fn change(&self, context: &RequestContext, change: &AttrChange) -> Result<()>;
}

/// A tree of files that can be changed.
pub trait Tree: Send + Sync {
    /// A number that no other tree has: files cannot be renamed from one tree to another.
    fn identity(&self) -> usize;
    /// Returns the attributes of a path; nothing if it is missing.
    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>>;
    /// Makes a regular file and opens it; `Exists` if there is something.
    fn create(
        &self,
        context: &RequestContext,
        path: &Key,
        maker: &Credentials,
    ) -> Result<Arc<dyn TreeFile>>;
    /// Opens a regular file.
    fn open(
        &self,
        context: &RequestContext,
        path: &Key,
        mode: OpenMode,
    ) -> Result<Arc<dyn TreeFile>>;
    /// Sets attributes, also of directories; links are not followed.
    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()>;
    /// Makes an empty directory.
    fn make_folder(&self, context: &RequestContext, path: &Key, maker: &Credentials) -> Result<()>;
    /// Removes a name of a file.
    fn unlink(&self, context: &RequestContext, path: &Key) -> Result<()>;
    /// Removes an empty directory; `NotEmpty` if it is not.
    fn remove_folder(&self, context: &RequestContext, path: &Key) -> Result<()>;
    /// Renames the file or folder `from` to `to`.
    fn rename(
        &self,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()>;
    /// Makes a symbolic link that points at `target`.
    fn make_link(
        &self,
        _context: &RequestContext,
        path: &Key,
        _target: &[u8],
        _maker: &Credentials,
    ) -> Result<()> {
        Err(unsupported(path, "symbolic links"))
    }
    /// Makes a second file at `to` with the bytes of the one at `from`; `Exists` if there is something.
    fn link(&self, _context: &RequestContext, _from: &Key, to: &Key) -> Result<()> {
        Err(unsupported(to, "second keys of a file"))
    }
    /// Has the names of a directory, and what they name, survive a loss of power.
    fn sync_folder(&self, _context: &RequestContext, _path: &Key) -> Result<()> {
        Ok(())
    }
    /// Returns an extended attribute; nothing if it is not set.
    fn attribute(
        &self,
        _context: &RequestContext,
        _path: &Key,
        _name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Returns the names of all extended attributes.
    fn attributes(&self, _context: &RequestContext, _path: &Key) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
    /// Sets an extended attribute.
    fn set_attribute(
        &self,
        _context: &RequestContext,
        path: &Key,
        _name: &[u8],
        _value: &[u8],
        _setting: Setting,
    ) -> Result<()> {
        Err(unsupported(path, "extended attributes"))
    }
    /// Removes an extended attribute; `NoAttribute` if it is not set.
    fn remove_attribute(&self, _context: &RequestContext, path: &Key, _name: &[u8]) -> Result<()> {
        Err(unsupported(path, "extended attributes"))
    }
    /// Returns the free space.
    fn room(&self) -> Result<FreeSpace>;
}

fn unsupported(path: &Key, what: &str) -> Error {
    Error::unsupported(path, format!("there are no {what} in this view"))
}
