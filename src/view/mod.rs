//! A view: one face of a hierarchy as a tree of directories and files.
//!
//! Paths are spelled like keys. A view answers by path and keeps no state per caller; inode numbers, handles
//! and permissions are the `vfs`'s business. Views never learn whether there is an overlay below.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::array::flat_file::ReadSpan;
use crate::error::Result;
use crate::store::tree::Posix;
use crate::store::{EntryKind, Key, Listing, Tree};

pub mod control;
pub mod files;
pub mod store;
pub mod unlisted;

/// Bytes of an answer.
pub type ReadBytes = ReadSpan;

/// What `stat` shows of a path, before owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Directory, file or link.
    pub kind: EntryKind,
    /// Length in bytes, exact.
    pub size: u64,
    /// Bytes stored for it; shown as blocks, never 0 for a file that is not empty.
    pub stored: u64,
    /// Time of the last change.
    pub modified: SystemTime,
    /// How long the kernel may take this for true.
    pub fresh: Duration,
    /// Owner, mode and the like, where they are kept; else they are the mount's.
    pub posix: Option<Posix>,
}

/// A file that was opened.
pub struct OpenedFile {
    /// Its content.
    pub file: Arc<dyn File>,
    /// Tells this content from another: the kernel keeps its pages while this number stays the same.
    /// Nothing if the pages must not be kept at all.
    pub version: Option<u64>,
    /// Whether reads must bypass the page cache (content that changes by itself).
    pub direct: bool,
}

/// The content of an open file.
pub trait File: Send + Sync {
    /// Returns the bytes if memory holds them: never waits, never decodes.
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes>;
    /// Returns the bytes at `offset`, fewer than `len` only at the end.
    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes>;
    /// Tells the content now from the one that was opened, by what is known without waiting.
    fn version(&self) -> Option<u64>;
    /// Returns what `stat` shows of a content that stays readable though its path is gone.
    fn attr(&self) -> Option<Attr> {
        None
    }
}

/// One face of a hierarchy.
pub trait View: Send + Sync {
    /// Returns the attributes of a path, or nothing if there is none.
    fn lookup(&self, path: &Key) -> Result<Option<Attr>>;
    /// Returns what `lookup` would, if memory knows it: never waits.
    fn lookup_now(&self, path: &Key) -> Option<Option<Attr>>;
    /// Opens a directory; names come without `.` and `..`.
    fn list(&self, path: &Key) -> Result<Box<dyn Listing>>;
    /// Opens a file.
    fn open(&self, path: &Key) -> Result<OpenedFile>;
    /// Returns where a link points.
    fn read_link(&self, path: &Key) -> Result<Vec<u8>>;
    /// Returns who changes what lies at a path, and under which path it is known there; nothing where nothing can
    /// be changed.
    fn tree(&self, _path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        Ok(None)
    }
}
