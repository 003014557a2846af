//! The file system's operations in our own words: names, inodes and handles over a view.
//!
//! Knows no FUSE type and no store. `*_now` answer out of memory and never wait; the others may. A handle
//! holds what it was opened on, and its content's version: when that changes, whoever asked is told.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::stats::Stats;
use crate::store::tree::{Posix, TreeFile};
use crate::store::{EntryKind, Key, Listing, Name};
use crate::vfs::inode::Inodes;
use crate::view::{Attr, ReadBytes, View};

mod changing;
mod computed;
pub mod inode;

pub use crate::vfs::changing::NewNode;
pub use crate::vfs::inode::Ino;

/// A handle of an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fh(pub u64);

/// Who owns what is shown, and with which bits.
#[derive(Clone, Copy, Debug)]
pub struct VfsConfig {
    /// Owner of everything.
    pub uid: u32,
    /// Group of everything.
    pub gid: u32,
    /// Bits taken from 0444 for files and 0555 for directories; from 0644 and 0755 where they can be changed.
    pub umask: u32,
    /// Files can be changed, and get other names.
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
    /// Whether the pages that the kernel has are still true.
    pub keep_cache: bool,
    /// Whether reads must bypass the page cache.
    pub direct: bool,
    /// Whether it was opened for writing.
    pub writes: bool,
}

/// Takes inode, cursor, kind and name of a directory's entry; returns false if it has no room for it.
pub type DirSink<'a> = dyn FnMut(Ino, u64, EntryKind, &[u8]) -> bool + 'a;

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
    /// The content that the kernel's pages of an inode are of.
    cached: Mutex<HashMap<Ino, u64>>,
    invalidator: OnceLock<Invalidator>,
}

struct FileHandle {
    ino: Ino,
    path: Key,
    file: Arc<dyn crate::view::File>,
    version: Option<u64>,
    /// The same file if it was opened for writing.
    written: Option<Arc<dyn TreeFile>>,
}

struct DirHandle {
    ino: Ino,
    path: Key,
    listing: Box<dyn Listing>,
    /// Where the listing stands.
    cursor: u64,
    /// A name that did not fit the last answer.
    kept: Option<Name>,
}

/// How long the kernel may keep the attributes of a directory where everything can be changed: resolving a path takes
/// a lookup and a permission check of each directory, and programs resolve the same path again at once.
const DIR_TTL: Duration = Duration::from_millis(1);

/// How long the kernel may keep that a name is missing.
const NEGATIVE_TTL: Duration = Duration::from_secs(1);

/// The most inodes whose kept pages are remembered.
const MOST_CACHED: usize = 1 << 16;

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

    /// Returns how long the kernel may keep that a name is missing.
    pub fn negative_ttl(&self) -> Duration {
        match self.config.writable {
            true => Duration::ZERO,
            false => NEGATIVE_TTL,
        }
    }

    /// Looks up a name; nothing if it is missing.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Option<Entry>> {
        self.stats.lookup_requests.add(1);
        let path = self.inodes.path(parent)?.child(name)?;
        let attr = self.view.lookup(&path)?;
        Ok(attr.map(|attr| self.entry(parent, name, attr)))
    }

    /// Counts a lookup of the kernel.
    fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Entry {
        let is_linked = |posix: &Posix| posix.links > 1 && attr.kind != EntryKind::Directory;
        let ino = match attr.posix.filter(is_linked) {
            Some(posix) => self.inodes.look_up_linked(parent, name, posix.identity),
            None => {
                let identity = attr.posix.map(|posix| posix.identity);
                self.inodes.look_up(parent, name, attr.kind, identity)
            }
        };
        let attr = self.fresh(attr);
        Entry { ino, attr }
    }

    /// Where files can be changed, through whatever view, the kernel asks each time; once a walk for directories.
    fn fresh(&self, attr: Attr) -> Attr {
        let fresh = match attr.kind {
            _ if !self.config.writable => attr.fresh,
            EntryKind::Directory => DIR_TTL,
            _ => Duration::ZERO,
        };
        Attr { fresh, ..attr }
    }

    /// Returns what `lookup` would, if memory knows it.
    pub fn lookup_now(&self, parent: Ino, name: &[u8]) -> Option<Result<Option<Entry>>> {
        let path = match self.inodes.path(parent).and_then(|path| path.child(name)) {
            Ok(path) => path,
            Err(error) => return Some(Err(error)),
        };
        let attr = self.view.lookup_now(&path)?;
        self.stats.lookup_requests.add(1);
        Some(Ok(attr.map(|attr| self.entry(parent, name, attr))))
    }

    /// Returns what `getattr` would, if memory knows it.
    pub fn getattr_now(&self, ino: Ino) -> Option<Result<Attr>> {
        let path = match self.inodes.path(ino) {
            Ok(path) => path,
            Err(error) if error.kind() == Kind::NotFound => return None,
            Err(error) => return Some(Err(error)),
        };
        let attr = self.view.lookup_now(&path)?;
        self.stats.getattr_requests.add(1);
        Some(self.attr_or_open(ino, path, attr))
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
        self.attr_or_open(ino, path, attr)
    }

    /// Returns what was found of an inode, or what somebody who has it open still reads: the kernel asks for
    /// attributes before it hands pages to a reader, and fails the read where there are none.
    fn attr_or_open(&self, ino: Ino, path: Key, attr: Option<Attr>) -> Result<Attr> {
        let attr = attr.or_else(|| self.open_attr(ino));
        let attr = attr.map(|attr| self.fresh(attr));
        attr.ok_or_else(|| Error::not_found(path))
    }

    /// Returns what `stat` shows of an inode that somebody has open.
    fn open_attr(&self, ino: Ino) -> Option<Attr> {
        self.open_file(ino, |_| true)?.file.attr()
    }

    /// Returns an open file of an inode.
    fn open_file(&self, ino: Ino, fits: impl Fn(&FileHandle) -> bool) -> Option<Arc<FileHandle>> {
        let files = self.files.read();
        let open = files.values().find(|open| open.ino == ino && fits(open));
        open.cloned()
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

    fn new_handle(&self) -> Fh {
        Fh(self.last_handle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Opens a file.
    pub fn open(&self, ino: Ino) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let path = self.inodes.path(ino)?;
        let opened = self.view.open(&path)?;
        let keep_cache = self.keep_cache(ino, opened.version);
        if !keep_cache {
            // The kernel may believe a length from before; it would cut the content off there.
            self.invalidate(ino, Invalidation::Length);
        }
        let fh = self.new_handle();
        let file = Arc::new(FileHandle {
            ino,
            path,
            file: opened.file,
            version: opened.version,
            written: None,
        });
        self.enter(fh, file);
        Ok(OpenReply {
            fh,
            keep_cache,
            direct: opened.direct,
            writes: false,
        })
    }

    fn enter(&self, fh: Fh, file: Arc<FileHandle>) {
        let mut files = self.files.write();
        files.insert(fh, file);
    }

    /// Whether the kernel's pages of an inode are of this content; from now on they are.
    fn keep_cache(&self, ino: Ino, version: Option<u64>) -> bool {
        let mut cached = self.cached.lock();
        let Some(version) = version else {
            cached.remove(&ino);
            return false;
        };
        if cached.len() >= MOST_CACHED {
            cached.clear();
        }
        cached.insert(ino, version) == Some(version)
    }

    fn file(&self, fh: Fh) -> Result<Arc<FileHandle>> {
        let files = self.files.read();
        files
            .get(&fh)
            .cloned()
            .ok_or_else(|| Error::invalid("handle", "is not open"))
    }

    /// Returns bytes of an open file if memory has them.
    pub fn read_now(&self, fh: Fh, offset: u64, len: usize) -> Option<Result<ReadBytes>> {
        let open = match self.file(fh) {
            Ok(open) => open,
            Err(error) => return Some(Err(error)),
        };
        let bytes = open.file.read_now(offset, len)?;
        if let Err(error) = self.check_current(&open) {
            return Some(Err(error));
        }
        self.stats.read_immediate_requests.add(1);
        self.count_read(&bytes);
        Some(Ok(bytes))
    }

    /// Returns bytes of an open file, fewer than `len` only at its end.
    pub fn read(&self, fh: Fh, offset: u64, len: usize) -> Result<ReadBytes> {
        let open = self.file(fh)?;
        let bytes = open
            .file
            .read_at(offset, len)
            .map_err(|error| error.about(&open.path));
        self.tell_change(&open);
        let bytes = bytes?;
        self.check_current(&open)?;
        self.count_read(&bytes);
        Ok(bytes)
    }

    fn count_read(&self, bytes: &ReadBytes) {
        self.stats.read_requests.add(1);
        self.stats.read_bytes.add(bytes.len() as u64);
    }

    /// Tells the session when the content is no longer the one that was opened.
    fn tell_change(&self, open: &FileHandle) {
        let now = open.file.version();
        if open.version.is_none()
            || now.is_none()
            || now == open.version
            || self.cached.lock().get(&open.ino) == now.as_ref()
        {
            return;
        }
        if let Some(now) = now {
            self.cached.lock().insert(open.ino, now);
        }
        self.invalidate(open.ino, Invalidation::Content);
    }

    fn invalidate(&self, ino: Ino, what: Invalidation) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator(ino, what);
        }
    }

    /// Has the kernel drop its pages of what is open for reading: they may be made of what was changed.
    fn drop_pages(&self) {
        let files = self.files.read();
        let open = files.values();
        let made = open.filter(|open| open.version.is_some() && open.file.version().is_some());
        let inodes: Vec<Ino> = made.map(|open| open.ino).collect();
        drop(files);
        for ino in inodes {
            self.invalidate(ino, Invalidation::Content);
        }
    }

    /// Says `Changed` to who reads a content that others have seen replaced: the kernel's pages of an inode
    /// belong to all handles, so old bytes must not come into them again.
    fn check_current(&self, open: &FileHandle) -> Result<()> {
        let (Some(version), Some(&cached)) = (open.version, self.cached.lock().get(&open.ino))
        else {
            return Ok(());
        };
        if version == cached || open.file.version() != open.version {
            return Ok(());
        }
        Err(Error::new(
            Kind::Changed,
            &open.path,
            "was replaced while it was open",
        ))
    }

    /// Keeps what was written to all files that are open: the mount is gone, and nobody closes them any more.
    pub fn flush_all(&self) {
        let files = self.files.read();
        let open: Vec<_> = files.values().cloned().collect();
        drop(files);
        for open in open {
            if let Some(Err(error)) = open.written.as_ref().map(|file| file.flush()) {
                log::error!("{}: what was written is not kept: {error}", open.path);
            }
        }
    }

    /// Closes a file; what was written to it was flushed before, or is now.
    pub fn release(&self, fh: Fh) {
        let file = self.files.write().remove(&fh);
        let written = file.as_ref().and_then(|open| open.written.as_ref());
        if let Some(Err(error)) = written.map(|file| file.flush()) {
            log::error!("what was written is not kept: {error}");
        }
    }

    /// Opens a directory.
    pub fn opendir(&self, ino: Ino) -> Result<Fh> {
        let path = self.inodes.path(ino)?;
        let listing = self.view.list(&path)?;
        let fh = self.new_handle();
        let open = DirHandle {
            ino,
            path,
            listing,
            cursor: 0,
            kept: None,
        };
        self.directories
            .lock()
            .insert(fh, Arc::new(Mutex::new(open)));
        Ok(fh)
    }

    /// Calls `sink` with inode, cursor, kind and name of what comes after `cursor`, until it returns false:
    /// that name was not taken and comes again.
    pub fn readdir(&self, fh: Fh, cursor: u64, sink: &mut DirSink) -> Result<()> {
        self.stats.readdir_requests.add(1);
        let open = self.directories.lock().get(&fh).cloned();
        let open = open.ok_or_else(|| Error::invalid("handle", "is not open"))?;
        let mut open = open.lock();
        if open.cursor != cursor {
            open.listing.seek(cursor)?;
            open.kept = None;
            open.cursor = cursor;
        }
        loop {
            let next = match open.kept.take() {
                Some(name) => Some(name),
                None => open
                    .listing
                    .next()
                    .map_err(|error| error.about(&open.path))?,
            };
            let Some(name) = next else { return Ok(()) };
            let ino = self.inodes.peek(open.ino, &name.name, name.kind);
            if !sink(ino, name.cursor, name.kind, &name.name) {
                open.kept = Some(name);
                return Ok(());
            }
            open.cursor = name.cursor;
        }
    }

    /// Closes a directory.
    pub fn releasedir(&self, fh: Fh) {
        let open = self.directories.lock().remove(&fh);
        drop(open);
    }
}
