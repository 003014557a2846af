//! A view: a hierarchy shown as a tree of directories and files.
//!
//! Paths are spelled like keys. A view answers by path and is stateless towards its callers; inode numbers, handles and
//! permissions belong to `vfs`. Views do not know whether the store below is an overlay.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use zarr_format::error::Result;
use zarr_format::grid::NumberedName;
use zarrfs_array::array::WrittenKey;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::part;
use zarrfs_store::tree::{Posix, TreeFile};
use zarrfs_store::{EntryKind, Key, Listing, Tree};

pub mod control;
pub mod files;
pub mod plain;
pub mod store;
pub mod store_without_listing;
pub mod synthetic_store;

pub use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes};

/// The extended attribute of an array's directory that lists the names that open in it, one a line. `listxattr` does
/// not return it, so that programs that copy attributes do not copy it.
pub const FILES_ATTRIBUTE: &[u8] = b"user.zarrfs.files";

/// The prefix of all extended attributes that views synthesize.
pub const FACT_PREFIX: &[u8] = b"user.zarrfs.";

/// The longest text in bytes that is generated in a call that must not wait.
pub(crate) const MAX_IMMEDIATE_TEXT: usize = 256 << 10;

/// The file in the directory of a node that cannot be read, or that a plain store leaves out: it says why.
const ERROR_TEXT: &str = "ERROR.txt";

/// Returns the name of the fact that an extended attribute shows, or `None` if it is not an attribute of a view.
pub fn fact_of(attribute: &[u8]) -> Option<&str> {
    str::from_utf8(attribute.strip_prefix(FACT_PREFIX)?).ok()
}

/// The attributes of a path as `stat` shows them, without owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Directory, file or link.
    pub kind: EntryKind,
    /// Length in bytes.
    pub size: u64,
    /// Whether `size` is exact. If it is not, the length is not known, and `measure` returns the reason.
    pub is_exact: bool,
    /// Size of a decoded chunk in bytes, from which the block size of the file follows; 0 if the file has no chunks or
    /// has chunks of several arrays.
    pub chunk_bytes: u64,
    /// Bytes stored for the file; shown as blocks, and never 0 for a file that is not empty.
    pub stored: u64,
    /// Time of the last change.
    pub modified: SystemTime,
    /// TTL of the attributes in the kernel.
    pub ttl: Duration,
    /// Whether the path has no write permission bits although the mount is writable.
    pub is_read_only: bool,
    /// Owner, mode and other POSIX attributes if the store keeps them; `None`: the defaults of the mount.
    pub posix: Option<Posix>,
    /// The number of the content behind the name, as `OpenedFile::content`; `None` if it is unknown or the path is not
    /// a file.
    pub content: Option<u64>,
}

impl Attr {
    /// Returns the attributes of a file that is stored as it is shown, without owner and identity.
    pub(crate) fn of_file(size: u64, modified: SystemTime, ttl: Duration) -> Attr {
        Attr {
            kind: EntryKind::File,
            size,
            is_exact: true,
            chunk_bytes: 0,
            stored: size,
            modified,
            ttl,
            is_read_only: false,
            posix: None,
            content: None,
        }
    }

    /// Returns the attributes of a directory.
    pub(crate) fn of_directory(modified: SystemTime, ttl: Duration) -> Attr {
        Attr {
            kind: EntryKind::Directory,
            ..Attr::of_file(0, modified, ttl)
        }
    }
}

/// An open file.
pub struct OpenedFile {
    /// The content of the file.
    pub file: Arc<dyn File>,
    /// Identifies the file behind the name: unchanged while the file is written in place, changed when the name gets
    /// another file. `None` if it is unknown.
    pub content: Option<u64>,
    /// The version of the bytes: the kernel keeps its pages while it is unchanged. `None` if the kernel must not cache
    /// pages.
    pub version: Option<u64>,
    /// Whether reads must bypass the page cache, because the content changes without writes.
    pub direct: bool,
    /// The file for writing; `None` if the file does not belong to a `Tree`.
    pub tree_file: Option<Arc<dyn TreeFile>>,
}

/// The content of an open file.
pub trait File: ReadAt {
    /// Returns the version of the current bytes, from memory, without waiting.
    fn version(&self) -> Option<u64>;
    /// Whether this mount may have changed the content since the last call, by a write to a source of the file. Never
    /// waits.
    fn may_have_changed(&self) -> bool {
        true
    }
    /// Whether reads return the bytes of the time of the open, even after `version` has changed. The mount makes such
    /// reads fail: the kernel would take the bytes for those of the new content.
    fn is_snapshot(&self) -> bool {
        false
    }
    /// Whether a new reader is likely to read sequentially, so that a large read-ahead pays.
    fn expects_sequential(&self) -> bool {
        true
    }
    /// Returns the attributes of an open file whose path is gone or has another content, or `None` if they are unknown.
    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        None
    }
    /// Returns the local file that has exactly these bytes, or `None` if no local file has them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file whose bytes are generated when it is opened.
pub(crate) struct GeneratedFile {
    pub(crate) bytes: Bytes,
    pub(crate) version: u64,
    pub(crate) modified: SystemTime,
}

impl GeneratedFile {
    /// Opens a file with these bytes; `version` identifies them.
    pub(crate) fn open(bytes: Bytes, version: u64, modified: SystemTime) -> OpenedFile {
        OpenedFile {
            file: Arc::new(GeneratedFile {
                bytes,
                version,
                modified,
            }),
            content: Some(version),
            version: Some(version),
            direct: false,
            tree_file: None,
        }
    }
}

impl ReadAt for GeneratedFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64);
        Ok(part(&self.bytes, offset..end).into())
    }
}

impl File for GeneratedFile {
    fn version(&self) -> Option<u64> {
        Some(self.version)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let size = self.bytes.len() as u64;
        Some(Attr::of_file(size, self.modified, Duration::ZERO))
    }
}

/// A resolved directory for lookups of its children, so that its path is not resolved again for each name. Valid as
/// long as the directory has this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewDir {
    /// A directory whose children are looked up by path.
    Path(Key),
    /// The directory of a node; the node has the same path in the hierarchy.
    Node(Key),
    /// The chunk directory of an array.
    Chunks(Key),
}

impl ViewDir {
    /// Returns the path of the directory.
    pub fn path(&self) -> &Key {
        let (ViewDir::Path(path) | ViewDir::Node(path) | ViewDir::Chunks(path)) = self;
        path
    }
}

/// The name of a child, and its indices if it is the name of a chunk.
#[derive(Clone, Debug)]
pub struct ChildName<'a> {
    /// The name.
    pub bytes: &'a [u8],
    /// The parsed name, if it consists of indices.
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

/// A path, and the tree through which it is changed.
pub struct PathInTree {
    /// The tree.
    pub tree: Arc<dyn Tree>,
    /// The path in that tree.
    pub at: Key,
}

/// A hierarchy as a tree of directories and files.
pub trait View: Send + Sync {
    /// Returns the attributes of a path, or `None` if the path does not exist.
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>>;
    /// Like `lookup`, with the exact length, or the error that prevents it: a file that is not empty must not look
    /// empty.
    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.lookup(context, path)
    }
    /// Returns an extended attribute that the view synthesizes, or `None` if the path does not have it.
    fn attribute(
        &self,
        _context: &RequestContext,
        _path: &Key,
        _name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Resolves the directory at a path, for `child`.
    fn dir(&self, _context: &RequestContext, path: &Key) -> Result<ViewDir> {
        Ok(ViewDir::Path(path.clone()))
    }
    /// Like `lookup`, for a name in a directory that `dir` returned.
    fn child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        self.lookup(context, &dir.path().child(name.bytes)?)
    }
    /// Opens a directory; the listing has no `.` and `..`.
    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>>;
    /// Opens a file.
    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile>;
    /// Returns the target of a link.
    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>>;
    /// Registers a path as written until the returned guard is dropped. `Busy` if its elements are open for writing in
    /// another form.
    fn begin_writing(&self, _path: &Key) -> Result<Option<WrittenKey>> {
        Ok(None)
    }
    /// Returns a path in the tree that changes it, or `None` if the path is read-only.
    fn tree(&self, _context: &RequestContext, _path: &Key) -> Result<Option<PathInTree>> {
        Ok(None)
    }
}
