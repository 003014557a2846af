//! File system operations on a view, in our own types: names, inodes and handles.
//!
//! FUSE types and stores are unknown here. `looking_up` finds names, `opening` opens files, `files` holds the open
//! files, `pages` tracks the kernel's page cache, `directories` holds open directories, `creating` and `changing`
//! modify the tree, `inode` numbers the names, and `walking` handles paths that change while the kernel walks them.
//!
//! A request for an inode that has lost its name, or whose name has another content, is answered from an open handle,
//! or with `Changed` (ESTALE): then the kernel walks the path again. `NotFound` would be wrong, since the name may have
//! been replaced and exist all the time.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::vfs::directories::OpenDir;
use crate::vfs::files::Handle;
use crate::vfs::inode::Inodes;
use crate::vfs::pages::KernelPages;
use crate::vfs::renames::RenamesUnderWay;
use crate::vfs::walking::Walks;
use crate::view::{Attr, ChildName, View};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::stats::Stats;
use zarrfs_store::{EntryKind, Key, PathLocks};

mod changing;
mod creating;
mod directories;
mod files;
pub mod inode;
mod looking_up;
mod opening;
mod pages;
mod positions;
mod renames;
mod walking;

pub use crate::vfs::creating::NewNode;
pub use crate::vfs::directories::DirSink;
pub use crate::vfs::inode::Ino;
pub use crate::vfs::opening::OpenOptions;
pub use crate::vfs::pages::{Invalidation, Invalidator, OPEN_WAIT};

/// A handle of an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub u64);

/// The thread of a program that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller(pub u32);

/// Owner and permission bits of a mount.
#[derive(Clone, Copy, Debug)]
pub struct VfsConfig {
    /// Owner of all files without stored attributes.
    pub uid: u32,
    /// Group of all files without stored attributes.
    pub gid: u32,
    /// Bits removed from 0444 for files and 0555 for directories, or from 0644 and 0755 if they are writable.
    pub umask: u32,
    /// Whether the mount is writable.
    pub writable: bool,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its inode.
    pub ino: Ino,
    /// Its attributes.
    pub attr: Attr,
}

impl Entry {
    /// An entry with only a kind, which the kernel must not cache.
    pub(crate) fn unknown(ino: Ino, kind: EntryKind) -> Entry {
        let attr = Attr {
            kind,
            size: 0,
            is_exact: true,
            piece: 0,
            stored: 0,
            modified: SystemTime::UNIX_EPOCH,
            fresh: Duration::ZERO,
            is_read_only: false,
            posix: None,
            content: None,
        };
        Entry { ino, attr }
    }
}

/// The reply to an open.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// Its handle.
    pub fh: Fh,
    /// Whether the kernel's cached pages are valid for the current content.
    pub keep_cache: bool,
    /// Whether reads must bypass the page cache.
    pub direct: bool,
    /// Whether it was opened for writing.
    pub writes: bool,
    /// Whether the reader is likely to read sequentially.
    pub reads_on: bool,
}

/// A mounted view.
pub struct Vfs {
    view: Arc<dyn View>,
    config: VfsConfig,
    /// Mount time.
    mounted: SystemTime,
    stats: Arc<Stats>,
    inodes: Inodes,
    renames: RenamesUnderWay,
    /// Names that are being changed.
    path_locks: PathLocks,
    files: RwLock<HashMap<Fh, Arc<Handle>>>,
    directories: Mutex<HashMap<Fh, OpenDir>>,
    last_handle: AtomicU64,
    pages: KernelPages,
    walks: Walks,
}

/// TTL of a directory and its attributes on a writable mount: resolving a path takes a lookup and a permission check of
/// each directory, and programs resolve the same path again at once.
const RESOLUTION_TTL: Duration = Duration::from_millis(1);

/// TTL of negative lookups.
const NEGATIVE_TTL: Duration = Duration::from_secs(1);

/// How often getattr retries if the inode is opened or closed during the request.
const MAX_GETATTR_ATTEMPTS: usize = 4;

impl Vfs {
    /// Builds the operations over a view.
    pub fn new(view: Arc<dyn View>, config: VfsConfig, stats: Arc<Stats>) -> Vfs {
        Vfs {
            view,
            config,
            mounted: SystemTime::now(),
            stats,
            inodes: Inodes::new(),
            renames: RenamesUnderWay::default(),
            path_locks: PathLocks::default(),
            files: RwLock::default(),
            directories: Mutex::default(),
            last_handle: AtomicU64::new(0),
            pages: KernelPages::default(),
            walks: Walks::default(),
        }
    }

    /// Returns the mount time.
    pub(crate) fn mounted(&self) -> SystemTime {
        self.mounted
    }

    /// Returns owner and mode bits.
    pub fn config(&self) -> &VfsConfig {
        &self.config
    }

    /// Returns the parent directory of an inode, for `..` in its listing; the root is its own parent.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.inodes.parent(ino)
    }

    /// Returns the path of an inode, or of its child, from the mountpoint on, for messages. An inode without a name has
    /// its last path.
    pub fn shown_path(&self, ino: Ino, child: Option<&[u8]>) -> String {
        let child = child.map(String::from_utf8_lossy);
        match (self.inodes.last_path(ino), child) {
            (Ok(path), None) if path.is_root() => "/".to_string(),
            (Ok(path), None) => format!("/{path}"),
            (Ok(path), Some(child)) if path.is_root() => format!("/{child}"),
            (Ok(path), Some(child)) => format!("/{path}/{child}"),
            (Err(_), None) => "a file that has no name any more".to_string(),
            (Err(_), Some(child)) => format!("{child} in a folder that has no name any more"),
        }
    }

    /// Returns the path of an inode, with its last name if it has none; `None` if it is unknown or an ancestor has no
    /// name.
    pub fn last_path(&self, ino: Ino) -> Option<Key> {
        self.inodes.last_path(ino).ok()
    }

    /// Sets the callback that invalidates the kernel's cache of an inode.
    pub fn set_invalidator(&self, invalidator: Invalidator) {
        self.pages.set_invalidator(invalidator);
    }

    /// Returns the TTL of negative lookups.
    pub fn negative_ttl(&self) -> Duration {
        if self.config.writable {
            Duration::ZERO
        } else {
            NEGATIVE_TTL
        }
    }

    fn new_handle(&self) -> Fh {
        Fh(self.last_handle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Sets the TTL for the kernel. On a writable mount attributes are read each time, since any view can change a
    /// file; directories are cached for the resolution of one path. Attributes of a mixed inode are never cached: the
    /// kernel copies the attributes of a reply one by one, and a concurrent reader would see the length of another
    /// content.
    fn with_ttl(&self, ino: Ino, attr: Attr) -> Attr {
        let fresh = match attr.kind {
            _ if self.inodes.is_mixed(ino) => Duration::ZERO,
            _ if !self.config.writable => attr.fresh,
            EntryKind::Directory => RESOLUTION_TTL,
            _ => Duration::ZERO,
        };
        Attr { fresh, ..attr }
    }

    /// Returns the attributes of an inode.
    pub fn getattr(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<Attr> {
        let found = self.attr_by_name(context, ino)?;
        if found.is_none() {
            // May query an open file, whose lock may be held during a request to the store.
            context.check_may_wait()?;
        }
        self.stats.getattr_requests.add(1);
        if let Some(attr) = found {
            return Ok(self.with_ttl(ino, attr));
        }
        for _ in 0..MAX_GETATTR_ATTEMPTS {
            let view = |path: &Key| self.measured(context, path);
            let asked = self.find_path(
                || self.asked_path(ino, caller),
                |path| self.renames.find(path, view),
            );
            let (found, path) = match asked {
                Err(error) if error.kind() == Kind::Changed => {
                    return self.open_attr(context, ino).ok_or(error);
                }
                asked => asked?,
            };
            let own = found.filter(|attr| self.inodes.shows(ino, attr));
            if let Some(attr) = own.or_else(|| self.open_attr(context, ino)) {
                return Ok(self.with_ttl(ino, attr));
            }
            if found.is_none() {
                return Err(self.gone(Error::not_found(path), ino, caller));
            }
            // It was opened or closed in between, or is a directory now.
        }
        Err(self.walk_again(ino, caller))
    }

    /// Returns the attributes of a path with the exact length, or the error that prevents it.
    fn measured(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        match self.view.lookup(context, path)? {
            Some(attr) if !attr.is_exact => self.view.measure(context, path),
            found => Ok(found),
        }
    }

    /// Returns the path of an inode for queries to the view; a file without a name has its last path.
    fn asked_path(&self, ino: Ino, caller: Caller) -> Result<Key> {
        self.path_for(ino, caller, || {
            if self.inodes.state(ino).is_directory {
                self.inodes.path(ino)
            } else {
                self.inodes.last_path(ino)
            }
        })
    }

    /// Returns the attributes of an inode by its name; `None` if the name has another content, or the length is not
    /// exact.
    fn attr_by_name(&self, context: &RequestContext, ino: Ino) -> Result<Option<Attr>> {
        let found = match self.inodes.name(ino) {
            Ok(None) => self.view.lookup(context, &Key::root()),
            Ok(Some((parent, name))) => self.find_child(context, parent, &ChildName::from(&*name)),
            Err(error) => Err(error),
        };
        let is_own = |attr: &Attr| attr.is_exact && self.inodes.shows(ino, attr);
        match found {
            Ok(found) => Ok(found.filter(is_own)),
            Err(error) if error.kind() == Kind::Changed => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops lookups that the kernel forgets.
    pub fn forget(&self, ino: Ino, count: u64) {
        if self.inodes.forget(ino, count) {
            self.pages.forget(ino);
        }
    }

    /// Returns the path of an inode for a change, or for a query that no handle answers. An inode that has just lost
    /// its name has its last path, unless it is open: then it is reached through its handles.
    fn present_path(&self, ino: Ino) -> Result<Key> {
        let state = self.inodes.state(ino);
        if state.is_named || state.is_open || state.is_directory {
            self.inodes.path(ino)
        } else {
            self.inodes.last_path(ino)
        }
    }

    /// Returns the target of a link.
    pub fn read_link(&self, context: &RequestContext, ino: Ino) -> Result<Vec<u8>> {
        let target = self.ask(
            || self.present_path(ino),
            |path| self.view.read_link(context, path),
        );
        target.map(|found| found.0).map_err(gone_is_changed)
    }
}

/// Returns the error of an inode whose name was removed or has another content.
fn replaced(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Changed, what, "was replaced")
}

/// Whether an error means that the path of an inode was removed or replaced.
fn is_gone(error: &Error) -> bool {
    use Kind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory)
}

/// Maps an error about a removed path to `Changed` for its inode.
fn gone_is_changed(error: Error) -> Error {
    if is_gone(&error) {
        Error::new(Kind::Changed, "", error)
    } else {
        error
    }
}
