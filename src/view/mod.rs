//! A view: a hierarchy shown as a tree of directories and files.
//!
//! Paths are spelled like keys. A view answers by path and keeps no state of its callers; inode numbers, handles and
//! permissions are the business of `vfs`. Views do not know whether there is an overlay below.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use zarr_format::error::Result;
use zarr_format::grid::NumberedName;
use zarrfs_array::array::WrittenKey;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{Posix, TreeFile};
use zarrfs_store::{EntryKind, Key, Listing, Tree};

pub mod control;
mod copied_document;
pub mod files;
pub mod store;
pub mod store_without_listing;
mod synthetic_listing;
pub mod synthetic_store;
mod text_file;

pub use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes};

/// The extended attribute of an array's directory that has the names that open in it, each with a newline. No list of
/// attributes has it, so that programs that copy attributes do not meet it.
pub const FILES_ATTRIBUTE: &[u8] = b"user.zarrfs.files";

/// What the names of all extended attributes begin with that views make.
pub const FACTS: &[u8] = b"user.zarrfs.";

/// Returns the name of the fact that an extended attribute of a view tells; nothing if it is not made by views.
pub fn fact_of(attribute: &[u8]) -> Option<&str> {
    str::from_utf8(attribute.strip_prefix(FACTS)?).ok()
}

/// What `stat` shows of a path, before owner and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Directory, file or link.
    pub kind: EntryKind,
    /// Length in bytes.
    pub size: u64,
    /// Whether that is exact. If not, the length cannot be told, and `measure` says why.
    pub is_exact: bool,
    /// Bytes of a decoded chunk under the file, from which its block size follows; 0 if it has none or has chunks of several
    /// arrays.
    pub piece: u64,
    /// Bytes stored for it; shown as blocks, never 0 for a file that is not empty.
    pub stored: u64,
    /// Time of the last change.
    pub modified: SystemTime,
    /// How long the kernel may keep this without asking again.
    pub fresh: Duration,
    /// Whether it has no bits of writing, though the mount can be changed.
    pub is_read_only: bool,
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
pub trait File: ReadAt {
    /// Returns the number of the present bytes, by what is known without waiting.
    fn version(&self) -> Option<u64>;
    /// Whether the content may have changed since this was last asked, by what is known without waiting: a change made
    /// through the mount was one of what the file is made of.
    fn may_have_changed(&self) -> bool {
        true
    }
    /// Whether a reader that opens it now is likely to read on in order, so that it is worth reading far ahead.
    fn is_read_on(&self) -> bool {
        true
    }
    /// Returns what `stat` shows of an open file whose path is gone or has another content; nothing if that is unknown.
    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        None
    }
    /// Returns the file of this machine that has the bytes and no others, if it is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A directory, by its path, as a view looks up names in it: what the path stands for, so that it is not resolved again
/// for each name. It stays right as long as the directory has this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewDir {
    /// A directory whose names are looked up by their paths.
    Path(Key),
    /// The directory of a node, which has this path in the hierarchy as well.
    Node(Key),
    /// The directory of the chunks of an array.
    Chunks(Key),
}

impl ViewDir {
    /// Returns its path.
    pub fn path(&self) -> &Key {
        let (ViewDir::Path(path) | ViewDir::Node(path) | ViewDir::Chunks(path)) = self;
        path
    }
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
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>>;
    /// Like `lookup`, with the exact length or with the error that stops it from being told: a file
    /// that is not empty must not look so.
    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.lookup(context, path)
    }
    /// Returns an extended attribute that the view makes itself; nothing if the path has no such one.
    fn attribute(
        &self,
        _context: &RequestContext,
        _path: &Key,
        _name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Returns the directory at a path in the form in which the view looks up names in it.
    fn dir(&self, _context: &RequestContext, path: &Key) -> Result<ViewDir> {
        Ok(ViewDir::Path(path.clone()))
    }
    /// Like `lookup`, of a name in a directory that `dir` returned.
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
    /// Returns where a link points.
    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>>;
    /// Notes that a path is changed, or open for writing: what is returned is kept as long. `Busy` if what it holds is open
    /// for writing in another form.
    fn begin_writing(&self, _path: &Key) -> Result<Option<WrittenKey>> {
        Ok(None)
    }
    /// Returns the tree by which a path can be changed, and the path in it; nothing if it cannot be changed.
    fn tree(&self, _context: &RequestContext, _path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        Ok(None)
    }
}
