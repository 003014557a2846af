//! File system operations on a view, in our own types: names, inodes and handles.
//!
//! The code is independent of FUSE and of stores. This module looks up names; `files` opens, reads and writes files,
//! `directories` lists, and `changes` modifies the tree. Open files are in `handles`, the names that the kernel knows
//! in `inode`, and `pages` tracks the kernel's page cache. `renames` and `estale_retry` handle paths that change while
//! the kernel resolves them.
//!
//! The lookups of an inode are counted until the kernel forgets them. If a name was replaced while its inode is open,
//! the name is looked up again before the new file gets another inode.
//!
//! A request for an inode whose name was removed or replaced is answered from an open handle. If there is none, the
//! answer is `Changed` (ESTALE), after which the kernel resolves the path again. `NotFound` would be wrong if the name
//! was replaced, since the name has existed all the time.

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

/// The number of an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub u64);

/// The ID of the thread that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller(pub u32);

/// Owner and permission bits of the files in a mount.
#[derive(Clone, Copy, Debug)]
pub struct VfsConfig {
    /// User ID of all files for which no owner is stored.
    pub uid: u32,
    /// Group ID of all files for which no group is stored.
    pub gid: u32,
    /// Permission bits that are removed from the mode, which is 0444 for files and 0555 for directories, and 0644 and
    /// 0755 in writable views.
    pub umask: u32,
    /// Whether the mount is writable.
    pub writable: bool,
}

/// The reply to the lookup of a name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The inode number of the file or directory that has the name.
    pub ino: Ino,
    /// The attributes of the file or directory.
    pub attr: Attr,
}

impl Entry {
    /// Returns an entry of which only the file type is known, and which the kernel must not cache.
    pub(crate) fn unknown(ino: Ino, kind: EntryKind) -> Entry {
        let attr = Attr {
            kind,
            ..Attr::of_file(0, SystemTime::UNIX_EPOCH, Duration::ZERO)
        };
        Entry { ino, attr }
    }
}

/// The reply to the opening of a file.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// The handle of the open file.
    pub fh: Fh,
    /// Whether the kernel's cached pages are valid for the file that was opened.
    pub keep_cache: bool,
    /// Whether reads must bypass the kernel's page cache.
    pub direct: bool,
    /// Whether the file was opened for writing.
    pub writes: bool,
    /// Whether the reader is likely to read sequentially.
    pub expects_sequential: bool,
}

/// The file system operations on one mounted view.
pub struct Vfs {
    view: Arc<dyn View>,
    config: VfsConfig,
    /// The time at which the view was mounted.
    mounted: SystemTime,
    stats: Arc<Stats>,
    inodes: Inodes,
    renames: Renames,
    /// Locks of names that are being created, removed or renamed.
    path_locks: PathLocks,
    handles: HandleTable,
    directories: OpenDirs,
    pages: KernelPages,
    estale: EstaleRetries,
}

impl Vfs {
    /// Creates the file system of a view, without inodes except the root.
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

    pub(crate) fn mounted(&self) -> SystemTime {
        self.mounted
    }

    /// Returns the owner and the permission bits of files.
    pub fn config(&self) -> &VfsConfig {
        &self.config
    }

    /// Returns the parent directory of an inode, for `..` in its listing; the root is its own parent.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.inodes.parent(ino)
    }

    /// Returns the path of an inode, or of its child, from the mountpoint on, for messages. For an inode without a
    /// name, returns the path that it had last.
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

    /// Returns the path of an inode, or the path that it had last if it has no name. Returns `None` if the inode is
    /// unknown or a parent directory has no name.
    pub fn last_path(&self, ino: Ino) -> Option<Key> {
        self.inodes.last_path(ino).ok()
    }

    /// Sets the object that invalidates the kernel's page cache.
    pub fn set_kernel_cache(&self, cache: impl KernelCache + 'static) {
        self.pages.set_cache(Box::new(cache));
    }

    /// Returns how long the kernel may cache that a name does not exist.
    pub fn negative_ttl(&self) -> Duration {
        if self.config.writable {
            Duration::ZERO
        } else {
            Duration::from_secs(1)
        }
    }

    /// Sets how long the kernel may cache attributes. On a writable mount, attributes of files are not cached, since
    /// any view can change a file, and those of directories are cached while the kernel resolves a path.
    ///
    /// If a name was replaced, the kernel may have attributes of another file than the inode's handles. Then they are
    /// never cached: the kernel copies the attributes of a reply one by one, so a concurrent reader could see the
    /// length of the other file.
    fn with_ttl(&self, ino: Ino, attr: Attr) -> Attr {
        let is_kept = !self.config.writable && attr.kind == EntryKind::File;
        if is_kept && self.inodes.record_length(ino, attr.size) {
            // An open that overlapped this request may rely on another length. The invalidation makes the kernel ignore
            // the attributes in this reply and request them again.
            self.pages.invalidate(ino, Invalidation::Length);
        }
        let ttl = match attr.kind {
            _ if self.inodes.is_mixed(ino) => Duration::ZERO,
            _ if !self.config.writable => attr.ttl,
            // A path resolution needs a lookup and a permission check per directory, and programs often resolve the
            // same path again at once.
            EntryKind::Directory => Duration::from_millis(1),
            _ => Duration::ZERO,
        };
        Attr { ttl, ..attr }
    }

    /// Looks up a name in a directory, and counts the lookup if the name exists.
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
        // `None` if the inode of the name is open with another file, because the name was replaced.
        if let Some(ino) = self.inodes.look_up_same(parent, name.bytes, &attr) {
            return Ok(Some(self.entry_of(ino, attr)));
        }
        // Looks up the name again, because a program may have opened the same file after the first lookup.
        let attr = self.find(context, parent, name, caller)?;
        Ok(attr.map(|attr| self.entry(parent, name.bytes, attr)))
    }

    /// Returns the attributes of a name in a directory, also while the name or the directory is being renamed.
    fn find(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
        caller: Caller,
    ) -> Result<Option<Attr>> {
        let count = self.renames.count();
        match self.find_child(context, parent, name) {
            // The name may have been renamed in the meantime, so it is looked up again.
            Ok(None) if !self.renames.have_none_since(count) => {}
            // The directory has lost its name. `path_for` decides whether the kernel has to resolve the path again.
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

    /// Returns the attributes of a name in a directory, without regard to concurrent renames.
    pub(super) fn find_child(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        let dir = match self.inodes.dir(parent)? {
            DirLookup::Resolved(dir) => dir,
            DirLookup::Path(path, changes) => {
                // A directory that would have to be requested may have children that are in memory.
                match self.view.dir(&context.without_waiting(), &path) {
                    Ok(dir) => self.inodes.cache_dir(parent, dir, changes),
                    Err(_) => Arc::new(ViewDir::Path(path)),
                }
            }
        };
        self.view.child(context, &dir, name)
    }

    /// Returns the entry of a name, with an inode of which one more lookup is counted.
    pub(super) fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Entry {
        let ino = self.inodes.look_up(parent, name, &attr);
        self.entry_of(ino, attr)
    }

    /// Returns the reply to a lookup of an inode.
    ///
    /// The kernel requests the attributes of a new file again before it answers the program. A TTL would save that
    /// request, but the same TTL holds for the name: the kernel rounds it up to some milliseconds, and keeps the name
    /// across a rename. Then the file of a chunk that was just created and renamed would show stale bytes after a write
    /// of the decoded file.
    fn entry_of(&self, ino: Ino, attr: Attr) -> Entry {
        let attr = self.with_ttl(ino, attr);
        Entry { ino, attr }
    }

    /// Returns the attributes of an inode.
    pub fn getattr(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<Attr> {
        let found = self.attr_by_name(context, ino)?;
        if found.is_none() {
            // The attributes may have to come from an open file, whose lock may be held during a request to the store.
            context.check_may_wait()?;
        }
        self.stats.getattr_requests.add(1);
        if let Some(attr) = found {
            return Ok(self.with_ttl(ino, attr));
        }
        // The query is repeated if the inode is opened or closed in the meantime.
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
            // The inode was opened or closed in the meantime, so its attributes are requested again.
        }
        Err(self.estale.walk_again(ino, caller))
    }

    /// Returns the attributes of a path with the exact length, for which it decodes the file if necessary.
    fn measured(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        match self.view.lookup(context, path)? {
            Some(attr) if !attr.is_exact => self.view.measure(context, path),
            found => Ok(found),
        }
    }

    /// Returns the path of an inode for queries to the view. For a file without a name, returns the path that it had
    /// last.
    fn path_of_inode(&self, ino: Ino, caller: Caller) -> Result<Key> {
        self.path_for(ino, caller, || {
            if self.inodes.state(ino).is_directory {
                self.inodes.path(ino)
            } else {
                self.inodes.last_path(ino)
            }
        })
    }

    /// Returns the attributes that the view has for the name of an inode. Returns `None` if the name was replaced by
    /// another file, or if the length is not exact.
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

    /// Subtracts lookups that the kernel has forgotten from the count of an inode.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.inodes.forget(ino, count, || self.pages.forget(ino));
    }

    /// Returns the path of an inode for a change, or for a query that no open handle answers. For a closed file that
    /// has just lost its name, returns the path that it had last.
    fn current_path(&self, ino: Ino) -> Result<Key> {
        let state = self.inodes.state(ino);
        if state.is_named || state.is_open || state.is_directory {
            self.inodes.path(ino)
        } else {
            self.inodes.last_path(ino)
        }
    }

    /// Returns the path of an inode from `own`. If a directory on the path has lost its name, `own` fails with
    /// `Changed`, and the kernel resolves the path again. If it fails then, too, returns the path that the kernel has
    /// just resolved.
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

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, context: &RequestContext, ino: Ino) -> Result<Vec<u8>> {
        let target = self.renames.retry_query(
            || self.current_path(ino),
            |path| self.view.read_link(context, path),
        );
        target.map(|(target, _)| target).map_err(gone_is_changed)
    }
}

/// Returns the error for an inode whose name was removed or replaced.
fn replaced(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Changed, what, "was replaced by another file")
}

/// Whether an error means that a path was removed or replaced.
fn is_gone(error: &Error) -> bool {
    use Kind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory)
}

/// Turns an error that says that a path was removed into `Changed`, for requests about an inode that had the path.
fn gone_is_changed(error: Error) -> Error {
    if is_gone(&error) {
        Error::new(Kind::Changed, "", error)
    } else {
        error
    }
}

/// Returns the file system of a store's view for tests, owned by root.
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
