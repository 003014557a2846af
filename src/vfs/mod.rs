//! File system operations on a view, in our own types: names, inodes and handles.
//!
//! FUSE types and stores are unknown here. This file finds names, `files` opens, reads and writes files, `directories`
//! lists, and `changes` modifies the tree. Open files are in `handles`, the names that the kernel knows in `inode`, and
//! `pages` tracks the kernel's page cache. `renames` and `estale_retry` handle paths that change while the kernel walks
//! them.
//!
//! Each lookup is counted until the kernel forgets it. If the inode of a name is open with another content, the name is
//! looked up again before it gets another inode.
//!
//! A request for an inode that has lost its name, or whose name has another content, is answered from an open handle,
//! or with `Changed` (ESTALE): then the kernel walks the path again. `NotFound` would be wrong, since the name may have
//! been replaced and exist all the time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::vfs::directories::OpenDirs;
use crate::vfs::estale_retry::EstaleRetries;
use crate::vfs::handles::HandleTable;
use crate::vfs::inode::{DirLookup, Inodes};
use crate::vfs::pages::KernelPages;
use crate::vfs::renames::Renames;
use crate::view::{Attr, ChildName, View, ViewDir};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::{RequestContext, is_answer};
use zarrfs_store::stats::Stats;
use zarrfs_store::{EntryKind, Key, PathLocks};

mod changes;
mod cursors;
mod directories;
mod estale_retry;
mod files;
mod handles;
pub mod inode;
mod pages;
mod renames;

pub use crate::vfs::changes::NewNode;
pub use crate::vfs::directories::{DirEntry, DirSink};
pub use crate::vfs::files::OpenOptions;
pub use crate::vfs::inode::{Ino, NameIn};
pub use crate::vfs::pages::{Invalidation, KernelCache, OPEN_WAIT};

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
    /// The inode of the name.
    pub ino: Ino,
    /// The attributes of the inode.
    pub attr: Attr,
}

impl Entry {
    /// An entry with only a kind, which the kernel must not cache.
    pub(crate) fn unknown(ino: Ino, kind: EntryKind) -> Entry {
        let attr = Attr {
            kind,
            ..Attr::of_file(0, SystemTime::UNIX_EPOCH, Duration::ZERO)
        };
        Entry { ino, attr }
    }
}

/// The reply to an open.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// The handle of the open file.
    pub fh: Fh,
    /// Whether the kernel's cached pages are valid for the current content.
    pub keep_cache: bool,
    /// Whether reads must bypass the page cache.
    pub direct: bool,
    /// Whether the file was opened for writing.
    pub writes: bool,
    /// Whether the reader is likely to read sequentially.
    pub expects_sequential: bool,
}

/// A mounted view.
pub struct Vfs {
    view: Arc<dyn View>,
    config: VfsConfig,
    /// Mount time.
    mounted: SystemTime,
    stats: Arc<Stats>,
    inodes: Inodes,
    renames: Renames,
    /// Names that are being changed.
    path_locks: PathLocks,
    handles: HandleTable,
    directories: OpenDirs,
    pages: KernelPages,
    estale: EstaleRetries,
}

impl Vfs {
    /// Builds the operations over a view.
    pub fn new(view: Arc<dyn View>, config: VfsConfig, stats: Arc<Stats>) -> Vfs {
        Vfs {
            view,
            config,
            mounted: SystemTime::now(),
            stats,
            inodes: Inodes::new(),
            renames: Renames::default(),
            path_locks: PathLocks::default(),
            handles: HandleTable::default(),
            directories: OpenDirs::default(),
            pages: KernelPages::default(),
            estale: EstaleRetries::default(),
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
    pub fn display_path(&self, ino: Ino, child: Option<&[u8]>) -> String {
        let child = child.map(String::from_utf8_lossy);
        match (self.inodes.last_path(ino), child) {
            (Ok(path), None) if path.is_root() => "/".to_string(),
            (Ok(path), None) => format!("/{path}"),
            (Ok(path), Some(child)) if path.is_root() => format!("/{child}"),
            (Ok(path), Some(child)) => format!("/{path}/{child}"),
            (Err(_), None) => "a deleted file".to_string(),
            (Err(_), Some(child)) => format!("{child} in a deleted directory"),
        }
    }

    /// Returns the path of an inode, with its last name if it has none; `None` if it is unknown or an ancestor has no
    /// name.
    pub fn last_path(&self, ino: Ino) -> Option<Key> {
        self.inodes.last_path(ino).ok()
    }

    /// Sets the kernel's cache of this mount.
    pub fn set_kernel_cache(&self, cache: impl KernelCache + 'static) {
        self.pages.set_cache(Box::new(cache));
    }

    /// Returns the TTL of negative lookups.
    pub fn negative_ttl(&self) -> Duration {
        if self.config.writable {
            Duration::ZERO
        } else {
            Duration::from_secs(1)
        }
    }

    /// Sets the TTL of attributes that are about to be sent to the kernel. On a writable mount attributes of files are
    /// not cached, since any view can change a file; those of directories are cached for the resolution of one path.
    /// Attributes of a mixed inode are never cached: the kernel copies the attributes of a reply one by one, so a
    /// concurrent reader could see the length of another content.
    fn with_ttl(&self, ino: Ino, attr: Attr) -> Attr {
        let is_kept = !self.config.writable && attr.kind == EntryKind::File;
        if is_kept && self.inodes.record_length(ino, attr.size) {
            // The kernel may have begun this request before an open that relies on another length. After this
            // invalidation it ignores the attributes in the reply, and asks again.
            self.pages.invalidate(ino, Invalidation::Length);
        }
        let ttl = match attr.kind {
            _ if self.inodes.is_mixed(ino) => Duration::ZERO,
            _ if !self.config.writable => attr.ttl,
            // Resolving a path takes a lookup and a permission check of each directory, and programs resolve the same
            // path again at once.
            EntryKind::Directory => Duration::from_millis(1),
            _ => Duration::ZERO,
        };
        Attr { ttl, ..attr }
    }

    /// Looks up a name; counts the lookup if the name exists.
    pub fn lookup(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        caller: Caller,
    ) -> Result<Option<Entry>> {
        let name = ChildName::from(name);
        let entry = self.look_up(context, parent, &name, caller);
        if is_answer(&entry) {
            self.stats.lookup_requests.add(1);
        }
        entry
    }

    fn look_up(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
        caller: Caller,
    ) -> Result<Option<Entry>> {
        let Some(attr) = self.find(context, parent, name, caller)? else {
            return Ok(None);
        };
        // `None` if the inode of the name is open with another content.
        if let Some(ino) = self.inodes.look_up_same(parent, name.bytes, &attr) {
            return Ok(Some(self.entry_of(ino, attr)));
        }
        // Queries again, since a file that was opened after the first query may have the same content.
        let attr = self.find(context, parent, name, caller)?;
        Ok(attr.map(|attr| self.entry(parent, name.bytes, attr)))
    }

    /// Returns the attributes of a name in a directory; handles concurrent renames.
    fn find(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
        caller: Caller,
    ) -> Result<Option<Attr>> {
        let count = self.renames.count();
        match self.find_child(context, parent, name) {
            // The name may have been renamed in the meantime.
            Ok(None) if !self.renames.have_none_since(count) => {}
            // The directory has lost its name: the caller decides whether the kernel has to walk the path again
            // (`path_for`).
            Err(error) if error.kind() == Kind::Changed => {}
            found => return found,
        }
        let directory = || self.path_for(parent, caller, || self.inodes.path(parent));
        let view = |path: &Key| self.view.lookup(context, path);
        let (found, _) = self.renames.retry_find(directory, |path| {
            self.renames.find_in(path, name.bytes, view)
        })?;
        Ok(found)
    }

    /// Returns the attributes of a name in a directory of the inode table.
    pub(super) fn find_child(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        let dir = match self.inodes.dir(parent)? {
            DirLookup::Resolved(dir) => dir,
            DirLookup::Path(path, changes) => {
                // The children of a directory may be in memory even if the directory itself is not.
                match self.view.dir(&context.without_waiting(), &path) {
                    Ok(dir) => self.inodes.cache_dir(parent, dir, changes),
                    Err(_) => Arc::new(ViewDir::Path(path)),
                }
            }
        };
        self.view.child(context, &dir, name)
    }

    /// Assigns an inode to a name and counts a lookup.
    pub(super) fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Entry {
        let ino = self.inodes.look_up(parent, name, &attr);
        self.entry_of(ino, attr)
    }

    /// Returns the kernel's entry for an inode.
    ///
    /// The kernel queries the attributes of a new file again before it answers the program. A TTL would save that
    /// query, but the same TTL holds for the name: the kernel rounds it up to some milliseconds, and keeps the name
    /// across a rename. A chunk's file that was just created and renamed would show stale bytes after a write of the
    /// decoded file.
    fn entry_of(&self, ino: Ino, attr: Attr) -> Entry {
        let attr = self.with_ttl(ino, attr);
        Entry { ino, attr }
    }

    /// Returns the attributes of an inode.
    pub fn getattr(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<Attr> {
        let found = self.attr_by_name(context, ino)?;
        if found.is_none() {
            // An open file may have to be queried, and its lock may be held during a request to the store.
            context.check_may_wait()?;
        }
        self.stats.getattr_requests.add(1);
        if let Some(attr) = found {
            return Ok(self.with_ttl(ino, attr));
        }
        // Tries again if the inode is opened or closed during the request.
        for _ in 0..4 {
            let view = |path: &Key| self.measured(context, path);
            let answer = self.renames.retry_find(
                || self.path_of_inode(ino, caller),
                |path| self.renames.find(path, view),
            );
            let (found, path) = match answer {
                Err(error) if error.kind() == Kind::Changed => {
                    let attr = self.open_attr(context, ino).ok_or(error)?;
                    return Ok(self.with_ttl(ino, attr));
                }
                answer => answer?,
            };
            let own = found.filter(|attr| self.inodes.can_show(ino, attr));
            if let Some(attr) = own.or_else(|| self.open_attr(context, ino)) {
                return Ok(self.with_ttl(ino, attr));
            }
            if found.is_none() {
                return Err(self
                    .estale
                    .error_of_path(Error::not_found(path), ino, caller));
            }
            // The inode was opened or closed in the meantime, or is a directory now.
        }
        Err(self.estale.walk_again(ino, caller))
    }

    /// Returns the attributes of a path with the exact length, or the error that prevents it.
    fn measured(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        match self.view.lookup(context, path)? {
            Some(attr) if !attr.is_exact => self.view.measure(context, path),
            found => Ok(found),
        }
    }

    /// Returns the path of an inode for queries to the view; a file without a name has its last path.
    fn path_of_inode(&self, ino: Ino, caller: Caller) -> Result<Key> {
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
        let is_own = |attr: &Attr| attr.is_exact && self.inodes.can_show(ino, attr);
        match found {
            Ok(attr) => Ok(attr.filter(is_own)),
            Err(error) if error.kind() == Kind::Changed => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops lookups that the kernel forgets.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.inodes.forget(ino, count, || self.pages.forget(ino));
    }

    /// Returns the path of an inode for a change, or for a query that no handle answers. An inode that has just lost
    /// its name has its last path, unless it is open: then it is reached through its handles.
    fn current_path(&self, ino: Ino) -> Result<Key> {
        let state = self.inodes.state(ino);
        if state.is_named || state.is_open || state.is_directory {
            self.inodes.path(ino)
        } else {
            self.inodes.last_path(ino)
        }
    }

    /// Returns the path for a query about an inode: the path from `own`. `own` fails with `Changed` if a directory has
    /// lost its name, and the kernel walks the path again. If it fails in the second walk too, returns the path that
    /// the kernel has walked.
    pub(super) fn path_for(
        &self,
        ino: Ino,
        caller: Caller,
        own: impl Fn() -> Result<Key>,
    ) -> Result<Key> {
        match own() {
            Err(error) if error.kind() == Kind::Changed => {
                let walked = self.inodes.walked_path(ino);
                if let (true, Ok(walked)) = (self.estale.is_retry(caller), walked) {
                    return Ok(walked);
                }
                self.estale.begin(caller);
                Err(error)
            }
            path => path,
        }
    }

    /// Returns the target of a link.
    pub fn read_link(&self, context: &RequestContext, ino: Ino) -> Result<Vec<u8>> {
        let target = self.renames.retry_query(
            || self.current_path(ino),
            |path| self.view.read_link(context, path),
        );
        target.map(|(target, _)| target).map_err(gone_is_changed)
    }
}

/// Returns the error of an inode whose name was removed or has another content.
fn replaced(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Changed, what, "was replaced by another file")
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

/// Returns a mount of a store, owned by root.
#[cfg(test)]
pub(crate) fn mounted(store: impl zarrfs_store::Store + 'static, writable: bool) -> Vfs {
    let config = VfsConfig {
        uid: 0,
        gid: 0,
        umask: 0,
        writable,
    };
    let view = Arc::new(crate::view::store::StoreView::new(Arc::new(store)));
    Vfs::new(view, config, Arc::default())
}
