//! A view: a hierarchy shown as a tree of directories and files.
//!
//! Paths are written like keys of a store. A view knows paths only; inode numbers, handles and permissions belong to
//! `vfs`. A view does not know whether its store has a copy-on-write layer.

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

/// Extended attribute of a node's directory that contains the names that can be opened in it, one a line. `listxattr`
/// leaves it out, so that programs that copy attributes do not copy it.
pub const FILES_ATTRIBUTE: &[u8] = b"user.zarrfs.files";

/// The prefix of all extended attributes that views generate.
pub const FACT_PREFIX: &[u8] = b"user.zarrfs.";

/// Maximum length in bytes of a text that is generated in a call that must not wait.
pub(crate) const MAX_IMMEDIATE_TEXT: usize = 256 << 10;

/// The file that says why a node cannot be read, or why an uncompressed Zarr v3 store leaves out the node.
const ERROR_TEXT: &str = "ERROR.txt";

/// Returns the part of an extended attribute's name after the prefix, or `None` if views do not generate the attribute.
pub fn fact_of(attribute: &[u8]) -> Option<&str> {
    str::from_utf8(attribute.strip_prefix(FACT_PREFIX)?).ok()
}

/// The attributes of a path as `stat` shows them, without owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Directory, file or symbolic link.
    pub kind: EntryKind,
    /// Length of the file in bytes.
    pub size: u64,
    /// Whether `size` is exact. If it is not, the length is unknown, and `measure` fails with the reason.
    pub is_exact: bool,
    /// Size of a decoded chunk in bytes, from which the file's block size follows. 0 if the file has no chunks or has
    /// chunks of several arrays.
    pub chunk_bytes: u64,
    /// Bytes that the file takes in the store, from which its number of blocks follows. Never 0 for a file that is not
    /// empty.
    pub stored: u64,
    /// Time of the last modification.
    pub modified: SystemTime,
    /// How long the kernel may cache the attributes.
    pub ttl: Duration,
    /// Whether the mode has no write permission although the mount is writable.
    pub is_read_only: bool,
    /// Owner, mode and other POSIX attributes if the store has them; `None` for the defaults of the mount.
    pub posix: Option<Posix>,
    /// The number that identifies the file behind the name, as in `OpenedFile::content`. `None` if it is unknown or the
    /// path is not a file.
    pub content: Option<u64>,
}

impl Attr {
    /// Returns the attributes of a file of `size` bytes, without an owner or a number that identifies the file.
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

/// An open file, and how the kernel may cache it.
pub struct OpenedFile {
    /// The bytes and attributes of the file.
    pub file: Arc<dyn File>,
    /// Identifies the file behind the name: the number is unchanged while the file is written in place, and changes
    /// when another file gets the name. `None` if it is unknown.
    pub content: Option<u64>,
    /// The version of the bytes: while it is unchanged, the kernel may keep its cached pages. `None` if the kernel must
    /// not cache pages.
    pub version: Option<u64>,
    /// Whether reads must bypass the kernel's page cache, because the bytes change without a write to the file.
    pub direct: bool,
    /// The open file of a writable tree; `None` for a file of a read-only view.
    pub tree_file: Option<Arc<dyn TreeFile>>,
}

/// The bytes and attributes of an open file.
pub trait File: ReadAt {
    /// Returns the version of the current bytes without waiting for a request to the store.
    fn version(&self) -> Option<u64>;
    /// Whether a write in this mount may have changed the bytes since the last call, such as a write to a chunk of a
    /// decoded file. Never waits.
    fn may_have_changed(&self) -> bool {
        true
    }
    /// Whether reads return the bytes of the time of the open, even after `version` has changed. The mount makes such
    /// reads fail, because the kernel would take the old bytes for the new ones.
    fn is_snapshot(&self) -> bool {
        false
    }
    /// Whether programs usually read the file sequentially, so that a large read-ahead is useful.
    fn expects_sequential(&self) -> bool {
        true
    }
    /// Returns the attributes of an open file whose path was removed or replaced, or `None` if they are unknown.
    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        None
    }
    /// Returns a descriptor of the local file that has exactly the same bytes, or `None` if there is none.
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
    /// Opens a file with the given bytes, whose version is `version`.
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

/// A resolved directory in which names are looked up, so that its path is not resolved again for each name. Valid as
/// long as the directory has the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewDir {
    /// A directory whose children are looked up by their full path.
    Path(Key),
    /// The directory of the node that has the same path in the hierarchy.
    Node(Key),
    /// The directory of an array's chunks.
    Chunks(Key),
}

impl ViewDir {
    /// Returns the path of the directory.
    pub fn path(&self) -> &Key {
        let (ViewDir::Path(path) | ViewDir::Node(path) | ViewDir::Chunks(path)) = self;
        path
    }
}

/// The name of a child of a directory, and its indices if it is the name of a chunk.
#[derive(Clone, Debug)]
pub struct ChildName<'a> {
    /// The name of the child in bytes.
    pub bytes: &'a [u8],
    /// The indices and the format in the name, if it is the name of a chunk.
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

/// A path of a view, and the tree through which programs change it.
pub struct PathInTree {
    /// The tree through which the path is changed.
    pub tree: Arc<dyn Tree>,
    /// The path of the file or directory in the tree.
    pub at: Key,
}

/// A hierarchy as a tree of directories and files.
pub trait View: Send + Sync {
    /// Returns the attributes of a path, or `None` if the path does not exist.
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>>;
    /// Returns the attributes of a path with the exact length, or `None` if the path does not exist. Fails if the
    /// length is unknown, since a file that is not empty must not look empty.
    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.lookup(context, path)
    }
    /// Returns an extended attribute that the view generates, or `None` if the path does not have it.
    fn attribute(
        &self,
        _context: &RequestContext,
        _path: &Key,
        _name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Resolves the directory at a path, in which `child` looks up names.
    fn dir(&self, _context: &RequestContext, path: &Key) -> Result<ViewDir> {
        Ok(ViewDir::Path(path.clone()))
    }
    /// Returns the attributes of a name in a directory, or `None` if it does not exist.
    fn child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        self.lookup(context, &dir.path().child(name.bytes)?)
    }
    /// Opens the listing of a directory, without `.` and `..`.
    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>>;
    /// Opens a file for reading.
    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile>;
    /// Returns the target of a symbolic link.
    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>>;
    /// Registers a file as open for writing until the returned guard is dropped. Fails with `Busy` if its elements are
    /// open for writing through another file.
    fn begin_writing(&self, _path: &Key) -> Result<Option<WrittenKey>> {
        Ok(None)
    }
    /// Returns the path in the tree through which programs change it, or `None` if the path is read-only.
    fn tree(&self, _context: &RequestContext, _path: &Key) -> Result<Option<PathInTree>> {
        Ok(None)
    }
}
