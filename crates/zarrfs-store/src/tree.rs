//! The interface of a writable file tree, which a writable mount needs beyond a store.
//!
//! A path is a key. The kernel has checked the permissions; owner and mode come from its request. Each operation is
//! atomic: a crash leaves the state before or after it.

use std::sync::Arc;
use std::time::SystemTime;

use crate::request_context::RequestContext;
use crate::{Key, Meta};
use zarr_format::error::{Error, Result};

/// The POSIX attributes of a file that `stat` shows in addition to size and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posix {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the file.
    pub gid: u32,
    /// `st_nlink`: 1 for a file, 0 for an open file that was removed; directories have their own count.
    pub links: u32,
    /// Time of the last access to the file.
    pub accessed: SystemTime,
    /// Time of the last change of content or attributes.
    pub changed: SystemTime,
    /// Inode number of the local file in which the attributes are stored.
    pub identity: u64,
}

/// The metadata and POSIX attributes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type, size, time of the last change, and version of the content.
    pub meta: Meta,
    /// The owner, mode and times that are stored for the path, or `None` if the defaults of the mount apply.
    pub posix: Option<Posix>,
    /// Identifies the file: the same across renames and writes in place, and different if another file takes the name.
    pub content: u64,
}

/// Owner, group and mode of a new file or folder.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits after the caller's umask.
    pub mode: u32,
}

/// A timestamp to set on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The given time, as the new timestamp.
    At(SystemTime),
    /// The present time, as the new timestamp.
    Now,
}

/// The attributes of a file to set; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits of the file.
    pub mode: Option<u32>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Length of the file, in bytes.
    pub size: Option<u64>,
    /// Time of the last access to the file.
    pub accessed: Option<Time>,
    /// Time of the last change of the file's content.
    pub modified: Option<Time>,
}

/// Whether a file is opened for reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read-only.
    Read,
    /// Read and write.
    Write,
    /// Read and write, truncated to length 0.
    Truncate,
}

/// The behaviour of a rename if the target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces an existing target: a file by a file, an empty directory by a directory.
    Replace,
    /// Fails with `Exists` if the target exists.
    NoReplace,
}

/// Whether an extended attribute may or must exist before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Creates or replaces the extended attribute.
    Any,
    /// The extended attribute must not exist; otherwise the error is `Exists`.
    Create,
    /// The extended attribute must exist; otherwise the error is `NoAttribute`.
    Replace,
}

/// Free space, as `statfs` shows it.
#[derive(Clone, Copy, Debug)]
pub struct FreeSpace {
    /// Size of a block of the file system, in bytes.
    pub block: u32,
    /// Total blocks of the file system.
    pub blocks: u64,
    /// Free blocks of the file system.
    pub free: u64,
    /// Free blocks that unprivileged users can use.
    pub available: u64,
    /// Total inodes of the file system.
    pub files: u64,
    /// Free inodes of the file system.
    pub free_files: u64,
}

/// A file that is open for writing. Reads return what was written.
pub trait TreeFile: Send + Sync {
    /// Returns up to `len` bytes of the file at `offset`; fewer only at the end of the file.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Writes all of `bytes` at `offset`; a gap between the file's end and `offset` reads as zeros. If the context may
    /// not wait and the write would block, the error is `WouldWait` and nothing is changed.
    fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Writes all of `bytes` at the present end of the file.
    fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        self.write_at(context, self.stat(context)?.meta.size, bytes)
    }
    /// Writes pages that a program changed through mmap. The bytes that the program did not change are as old as the
    /// read that filled the pages, and may be stale.
    fn write_pages(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(context, offset, bytes)
    }
    /// Records that the kernel has dropped its cached pages of the file, as it does after `flush` or `sync` failed.
    fn mark_pages_dropped(&self) {}
    /// Allocates space for a range, as fallocate(2) with `mode` does.
    fn allocate(
        &self,
        _context: &RequestContext,
        mode: i32,
        _offset: u64,
        _length: u64,
    ) -> Result<()> {
        Err(Error::unsupported(
            "fallocate",
            format!("unsupported mode {mode}"),
        ))
    }
    /// Stores all writes so that they survive the end of this process.
    fn flush(&self, context: &RequestContext) -> Result<()>;
    /// Stores all writes so that they survive a loss of power.
    fn sync(&self, context: &RequestContext) -> Result<()>;
    /// Stores the writes that would be lost when this process ends, while the file is still open. An error says what
    /// happens to writes that cannot be stored.
    fn end(&self, context: &RequestContext) -> Result<()> {
        self.flush(context)
    }
    /// Returns the file's present attributes, even if its name was removed.
    fn stat(&self, context: &RequestContext) -> Result<Stat>;
    /// Sets attributes of the file.
    fn change(&self, context: &RequestContext, change: &AttrChange) -> Result<()>;
}

/// A tree of files and folders that can be changed like a POSIX file system.
pub trait Tree: Send + Sync {
    /// Identifies the tree, since a file cannot be renamed into another tree.
    fn identity(&self) -> usize;
    /// Returns the attributes of a path, or `None` if it is missing.
    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>>;
    /// Creates and opens a regular file. The error is `Exists` if the path exists.
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
    /// Sets attributes of a file or directory. Does not follow symbolic links.
    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()>;
    /// Creates an empty directory.
    fn make_folder(&self, context: &RequestContext, path: &Key, maker: &Credentials) -> Result<()>;
    /// Removes a file name.
    fn unlink(&self, context: &RequestContext, path: &Key) -> Result<()>;
    /// Removes an empty directory. The error is `NotEmpty` if the directory has entries.
    fn remove_folder(&self, context: &RequestContext, path: &Key) -> Result<()>;
    /// Renames the file or folder `from` to `to`.
    fn rename(
        &self,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()>;
    /// Creates a symbolic link to `target`.
    fn make_link(
        &self,
        _context: &RequestContext,
        path: &Key,
        _target: &[u8],
        _maker: &Credentials,
    ) -> Result<()> {
        Err(unsupported(path, "symbolic links"))
    }
    /// Creates a second file at `to` with the bytes of `from`, like a hard link. The error is `Exists` if `to` exists.
    fn link(&self, _context: &RequestContext, _from: &Key, to: &Key) -> Result<()> {
        Err(unsupported(to, "hard links"))
    }
    /// Makes the entries of a directory durable against a loss of power.
    fn sync_folder(&self, _context: &RequestContext, _path: &Key) -> Result<()> {
        Ok(())
    }
    /// Returns an extended attribute of a path, or `None` if it is not set.
    fn attribute(
        &self,
        _context: &RequestContext,
        _path: &Key,
        _name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Returns the names of all extended attributes of a path.
    fn attributes(&self, _context: &RequestContext, _path: &Key) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
    /// Sets an extended attribute of a path.
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
    /// Removes an extended attribute of a path. The error is `NoAttribute` if it is not set.
    fn remove_attribute(&self, _context: &RequestContext, path: &Key, _name: &[u8]) -> Result<()> {
        Err(unsupported(path, "extended attributes"))
    }
    /// Returns the free space of the tree, for `statfs`.
    fn free_space(&self) -> Result<FreeSpace>;
}

fn unsupported(path: &Key, what: &str) -> Error {
    Error::unsupported(path, format!("this view does not support {what}"))
}
