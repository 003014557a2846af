//! A view: a hierarchy shown as a tree of directories and files.
//!
//! Paths are spelled like keys. A view answers by path and keeps no state of its callers; inode numbers, handles and
//! permissions are the business of `vfs`. Views do not know whether there is an overlay below.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::Result;
use crate::grid::NumberedName;
use crate::known::Known;
use crate::store::tree::{Posix, TreeFile};
use crate::store::{EntryKind, Key, Listing, Tree};

mod chunk_names;
pub mod control;
pub mod files;
pub mod store;
mod text_file;
pub mod unlisted;

pub use crate::sync::read_bytes::ReadBytes;

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
    /// How long the kernel may keep this without asking again.
    pub fresh: Duration,
    /// Owner, mode and the like where the store keeps them; else they are those of the mount.
    pub posix: Option<Posix>,
    /// The number of the content behind the name, as `OpenedFile::content`; nothing for what is no file.
    pub content: Option<u64>,
}

/// A file that was opened.
pub struct OpenedFile {
    /// Its content.
    pub file: Arc<dyn File>,
    /// Tells this content from another one of the same name: stays while a file is written in place, and changes when
    /// the name gets another file. Nothing if that is unknown.
    pub content: Option<u64>,
    /// A number of the bytes that the content has now: the kernel keeps its pages while it stays the same. Nothing if
    /// the kernel must not keep pages at all.
    pub version: Option<u64>,
    /// Whether reads must bypass the page cache (content that changes by itself).
    pub direct: bool,
    /// The same file as one that can be changed, if it is of a tree.
    pub tree_file: Option<Arc<dyn TreeFile>>,
}

/// The content of an open file.
pub trait File: Send + Sync {
    /// Returns the bytes at `offset` if they are in memory; never waits, never decodes.
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes>;
    /// Returns the bytes at `offset`, fewer than `len` only at the end.
    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes>;
    /// Returns the number of the present bytes, by what is known without waiting.
    fn version(&self) -> Option<u64>;
    /// Whether the content may have changed since this was last asked, by what is known without waiting: a change made
    /// through the mount was one of what the file is made of.
    fn may_have_changed(&self) -> bool {
        true
    }
    /// Whether a reader who opens it now is likely to read on in order, so that it is worth reading far ahead.
    fn is_read_on(&self) -> bool {
        true
    }
    /// Returns what `stat` shows of an open file whose path is gone or has another content; nothing if that is unknown.
    fn attr(&self) -> Option<Attr> {
        None
    }
}

/// A directory as a view looks up names in it: what its path stands for, so that the path is not resolved again for
/// each name. It stays right as long as the directory has this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewDir {
    /// A directory whose names are looked up by their paths.
    Path(Key),
    /// The directory of the node at this path of the hierarchy.
    Node(Key),
    /// The directory of chunks of the array at this path of the hierarchy.
    Chunks(Key),
}

/// A name to be looked up in a directory, with the indices in it.
#[derive(Clone, Debug)]
pub struct ChildName<'a> {
    /// The name.
    pub bytes: &'a [u8],
    /// Its parts, if it is made of indices.
    pub numbered: Option<NumberedName<'a>>,
}

impl<'a> From<&'a [u8]> for ChildName<'a> {
    fn from(bytes: &'a [u8]) -> ChildName<'a> {
        ChildName {
            bytes,
            numbered: NumberedName::parse(bytes),
        }
    }
}

/// A hierarchy as a tree of directories and files.
pub trait View: Send + Sync {
    /// Returns the attributes of a path; nothing if there is no such path.
    fn lookup(&self, path: &Key) -> Result<Option<Attr>>;
    /// Like `lookup`, by what is known without waiting.
    fn lookup_now(&self, path: &Key) -> Known<Attr>;
    /// Returns the directory at a path in the form in which the view looks up names in it; nothing if that is not
    /// known without waiting.
    fn dir_now(&self, path: &Key) -> Option<ViewDir> {
        Some(ViewDir::Path(path.clone()))
    }
    /// Like `lookup_now`, of a name in a directory that `dir_now` returned. Unknown for what cannot be a name.
    fn child_now(&self, dir: &ViewDir, name: &ChildName<'_>) -> Known<Attr> {
        match dir {
            ViewDir::Path(path) => path
                .child(name.bytes)
                .map_or(Known::Unknown, |path| self.lookup_now(&path)),
            ViewDir::Node(_) | ViewDir::Chunks(_) => Known::Unknown,
        }
    }
    /// Opens a directory; the listing has no `.` and `..`.
    fn list(&self, path: &Key) -> Result<Box<dyn Listing>>;
    /// Opens a file.
    fn open(&self, path: &Key) -> Result<OpenedFile>;
    /// Returns where a link points.
    fn read_link(&self, path: &Key) -> Result<Vec<u8>>;
    /// Returns the tree by which a path can be changed, and the path in it; nothing if it cannot be changed.
    fn tree(&self, _path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        Ok(None)
    }
}
