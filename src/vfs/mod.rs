//! The file system's operations in our own types: names, inodes and handles over a view.
//!
//! No type of FUSE and no store is known here. `*_now` answer out of memory and never wait; the others may. `files` has
//! open files, `directories` open directories, `changing` what changes something, `inode` the numbers of names.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::stats::Stats;
use crate::store::tree::{Posix, TreeFile};
use crate::store::{EntryKind, Key};
use crate::vfs::directories::DirHandle;
use crate::vfs::inode::{DirLookup, Inodes};
use crate::view::{Attr, ChildName, File, View};

mod changing;
mod computed;
mod directories;
mod files;
pub mod inode;

pub use crate::vfs::changing::NewNode;
pub use crate::vfs::directories::DirSink;
pub use crate::vfs::inode::Ino;

/// A handle of an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub u64);

/// Owner and mode bits of everything that a mount shows.
#[derive(Clone, Copy, Debug)]
pub struct VfsConfig {
    /// Owner of everything.
    pub uid: u32,
    /// Group of everything.
    pub gid: u32,
    /// Bits taken from 0444 for files and 0555 for directories; from 0644 and 0755 where they can be changed.
    pub umask: u32,
    /// Whether files can be changed and renamed.
    pub writable: bool,
}

/// A name that was looked up.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its inode.
    pub ino: Ino,
    /// What `stat` shows.
    pub attr: Attr,
}

/// A file that was opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// Its handle.
    pub fh: Fh,
    /// Whether the pages that the kernel has are those of the present content.
    pub keep_cache: bool,
    /// Whether reads must bypass the page cache.
    pub direct: bool,
    /// Whether it was opened for writing.
    pub writes: bool,
}

/// What the kernel has to ask for again of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Its length may have changed; sent before the reply to an open.
    Length,
    /// Its content changed. The kernel must be told from a thread that handles no request: it may wait for a page that
    /// a pending read holds.
    Content,
}

/// Has the kernel ask again.
type Invalidator = Box<dyn Fn(Ino, Invalidation) + Send + Sync>;

/// A mounted view.
pub struct Vfs {
    view: Arc<dyn View>,
    config: VfsConfig,
    stats: Arc<Stats>,
    inodes: Inodes,
    files: RwLock<HashMap<Fh, Arc<FileHandle>>>,
    directories: Mutex<HashMap<Fh, Arc<Mutex<DirHandle>>>>,
    last_handle: AtomicU64,
    /// The number of the content that the kernel's pages of an inode are of.
    cached: Mutex<HashMap<Ino, u64>>,
    invalidator: OnceLock<Invalidator>,
}

/// An open file.
struct FileHandle {
    ino: Ino,
    path: Key,
    file: Arc<dyn File>,
    /// The number of the content that was opened.
    version: Option<u64>,
    /// The same file if it was opened for writing.
    writer: Option<Arc<dyn TreeFile>>,
}

/// How long the kernel may keep the attributes of a directory where everything can be changed: resolving a path takes
/// a lookup and a permission check of each directory, and programs resolve the same path again at once.
const DIR_TTL: Duration = Duration::from_millis(1);

/// How long the kernel may keep that a name is missing.
const NEGATIVE_TTL: Duration = Duration::from_secs(1);

impl Vfs {
    /// Builds the operations over a view.
    pub fn new(view: Arc<dyn View>, config: VfsConfig, stats: Arc<Stats>) -> Vfs {
        Vfs {
            view,
            config,
            stats,
            inodes: Inodes::new(!config.writable),
            files: RwLock::default(),
            directories: Mutex::default(),
            last_handle: AtomicU64::new(0),
            cached: Mutex::default(),
            invalidator: OnceLock::new(),
        }
    }

    /// Returns owner and mode bits.
    pub fn config(&self) -> &VfsConfig {
        &self.config
    }

    /// Returns the path of an inode, for messages.
    pub fn path(&self, ino: Ino) -> Result<Key> {
        self.inodes.path(ino)
    }

    /// Has `invalidator` called when something about an inode is seen to have changed.
    pub fn set_invalidator(&self, invalidator: Invalidator) {
        // Only the session that serves this file system sets it, once.
        let _ = self.invalidator.set(invalidator);
    }

    fn invalidate(&self, ino: Ino, what: Invalidation) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator(ino, what);
        }
    }

    /// Returns how long the kernel may keep that a name is missing.
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

    /// Looks up a name, and counts the lookup if there is such a name.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Option<Entry>> {
        self.stats.lookup_requests.add(1);
        let path = self.inodes.path(parent)?.child(name)?;
        let attr = self.view.lookup(&path)?;
        Ok(attr.map(|attr| self.entry(parent, &name.into(), attr)))
    }

    /// Like `lookup`, if it is known without waiting.
    pub fn lookup_now(&self, parent: Ino, name: &[u8]) -> Option<Result<Option<Entry>>> {
        let name = ChildName::from(name);
        let attr = match self.find_now(parent, &name) {
            Ok(Known::Unknown) => return None,
            Ok(known) => known.found(),
            Err(error) => return Some(Err(error)),
        };
        self.stats.lookup_requests.add(1);
        Some(Ok(attr.map(|attr| self.entry(parent, &name, attr))))
    }

    /// Returns the attributes of a name in a directory, by what is known without waiting.
    fn find_now(&self, parent: Ino, name: &ChildName<'_>) -> Result<Known<Attr>> {
        let dir = match self.inodes.dir(parent)? {
            DirLookup::Resolved(dir) => dir,
            DirLookup::Path(path, changes) => match self.view.dir_now(&path) {
                Some(dir) => self.inodes.keep_dir(parent, dir, changes),
                None => return Ok(Known::Unknown),
            },
        };
        Ok(self.view.child_now(&dir, name))
    }

    /// Gives a name its inode and counts a lookup of the kernel.
    fn entry(&self, parent: Ino, name: &ChildName<'_>, attr: Attr) -> Entry {
        let is_linked = |posix: &Posix| posix.links > 1 && attr.kind != EntryKind::Directory;
        let ino = match attr.posix.filter(is_linked) {
            Some(posix) => self
                .inodes
                .look_up_linked(parent, name.bytes, posix.identity),
            None => {
                let identity = attr.posix.map(|posix| posix.identity);
                self.inodes.look_up(parent, name, attr.kind, identity)
            }
        };
        let attr = self.with_ttl(attr);
        Entry { ino, attr }
    }

    /// Has the kernel ask for attributes each time where files can be changed, through this view or another; directories
    /// are kept for the resolution of one path.
    fn with_ttl(&self, attr: Attr) -> Attr {
        let fresh = match attr.kind {
            _ if !self.config.writable => attr.fresh,
            EntryKind::Directory => DIR_TTL,
            _ => Duration::ZERO,
        };
        Attr { fresh, ..attr }
    }

    /// Returns what `stat` shows of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.stats.getattr_requests.add(1);
        let path = match self.inodes.path(ino) {
            // Its last name was removed.
            Err(error) if error.kind() == Kind::NotFound => {
                return self.open_attr(ino).ok_or(error);
            }
            path => path?,
        };
        let attr = self.view.lookup(&path)?;
        self.attr_or_open(ino, attr)
    }

    /// Like `getattr`, if it is known without waiting.
    pub fn getattr_now(&self, ino: Ino) -> Option<Result<Attr>> {
        let known = match self.inodes.name(ino) {
            Ok(None) => Ok(self.view.lookup_now(&Key::root())),
            Ok(Some((parent, name))) => self.find_now(parent, &ChildName::from(&*name)),
            Err(error) => Err(error),
        };
        let attr = match known {
            Ok(Known::Unknown) => return None,
            Ok(known) => known.found(),
            Err(error) if error.kind() == Kind::NotFound => return None,
            Err(error) => return Some(Err(error)),
        };
        self.stats.getattr_requests.add(1);
        Some(self.attr_or_open(ino, attr))
    }

    /// Returns the attributes that were found of an inode, or else those of an open file of it: the kernel asks for
    /// attributes before it gives pages to a reader, and fails the read if there are none.
    fn attr_or_open(&self, ino: Ino, attr: Option<Attr>) -> Result<Attr> {
        match attr.or_else(|| self.open_attr(ino)) {
            Some(attr) => Ok(self.with_ttl(attr)),
            None => Err(Error::not_found(self.inodes.path(ino)?)),
        }
    }

    /// Takes back lookups that the kernel forgets.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.inodes.forget(ino, count);
        self.cached.lock().remove(&ino);
    }

    /// Returns where a link points.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.view.read_link(&self.inodes.path(ino)?)
    }
}
