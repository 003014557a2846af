//! Keeps the tree of inode names: builds paths, adds and removes names, drops entries.
//!
//! An entry exists as long as the kernel's lookups or entries below it need it. A name keeps its inode as long as it
//! has the same file. A name with another file gets another inode, and the old inode has no name any more: programs
//! that have it open still see its pages and its length. A file that is open keeps the inode with which it was opened.

use std::collections::HashMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use lru::LruCache;
use smallvec::SmallVec;

use crate::vfs::Fh;
use crate::vfs::inode::Ino;
use crate::vfs::inode::entries::{EntryTable, InodeEntry, hash_of, is_sparse};
use crate::view::{Attr, ViewDir};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::{EntryKind, Key};

/// The largest inode number: 32-bit programs get EOVERFLOW from `stat` and `readdir` for numbers above 32 bits, and
/// some use signed numbers.
const MAX_NUMBER: u64 = (1 << 31) - 1;

/// Content number of an inode for which the kernel may have attributes of several files; it differs from every other.
pub(super) const MIXED: u64 = u64::MAX;

/// Which inode a lookup returns for a name.
pub(super) enum InodeChoice {
    /// The lookup returns this existing inode.
    Known(u64),
    /// The lookup returns a new inode, because the name has none.
    New,
    /// The lookup returns a new inode, because the inode of the name stands for another file.
    Split,
}

/// The data of `Inodes`, behind its lock.
pub(super) struct InodeTable {
    pub(super) entries: EntryTable,
    pub(super) open: OpenInodes,
    /// Cache of directories, as the view returned them.
    pub(super) dirs: LruCache<u64, Arc<ViewDir>>,
    /// Number of removed names; each removal may have changed the path of a cached directory.
    pub(super) changes: u64,
}

impl InodeTable {
    pub(super) fn new() -> InodeTable {
        let mut entries = EntryTable::default();
        entries.add_root(Ino::ROOT.0);
        if let Some(root) = entries.get_mut(Ino::ROOT.0) {
            (root.lookups, root.kind) = (1, EntryKind::Directory);
        }
        InodeTable {
            entries,
            open: OpenInodes::default(),
            dirs: LruCache::new(const { NonZeroUsize::new(1024).unwrap() }),
            changes: 0,
        }
    }

    /// Returns the path of an inode. Fails with `Changed` if the inode or a directory above it has no name.
    pub(super) fn path(&self, ino: Ino) -> Result<Key> {
        if self.is_named(ino) {
            self.last_path(ino)
        } else {
            Err(nameless(ino))
        }
    }

    /// Returns the path of an inode, with its last name if the name was removed. Fails with `Changed` if the inode is
    /// unknown or a directory above it has no name.
    pub(super) fn last_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, InodeEntry::is_named)
    }

    /// Returns the path of an inode from its last name and those of the directories above it, removed or not. Fails
    /// with `Changed` if one of them is unknown.
    pub(super) fn walked_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, |_| true)
    }

    /// Returns the path of an inode from the last names of the inode and of the directories above it. Fails with
    /// `Changed` if a directory is unknown or `count` returns false for it.
    fn path_through(&self, ino: Ino, count: impl Fn(&InodeEntry) -> bool) -> Result<Key> {
        if ino == Ino::ROOT {
            return Ok(Key::root());
        }
        let (mut at, name) = self.last_name(ino)?;
        let mut names = vec![name];
        while at != Ino::ROOT.0 {
            let entry = self.entries.get(at).filter(|entry| count(entry));
            let (parent, name) = entry.ok_or_else(|| nameless(Ino(at)))?.last_name();
            names.push(name);
            at = parent;
        }
        names.reverse();
        Key::new(names.join(&b'/'))
    }

    /// Returns the directory and the name of an inode, or the last ones if the name was removed.
    pub(super) fn last_name(&self, ino: Ino) -> Result<(u64, &[u8])> {
        let entry = self.entries.get(ino.0).ok_or_else(|| gone(ino))?;
        Ok(entry.last_name())
    }

    pub(super) fn is_named(&self, ino: Ino) -> bool {
        let entry = self.entries.get(ino.0);
        entry.is_some_and(InodeEntry::is_named)
    }

    pub(super) fn is_directory(&self, ino: Ino) -> bool {
        self.is_a(ino.0, EntryKind::Directory)
    }

    /// Whether an inode is known with this file type: the kernel invalidates an inode whose type changes.
    pub(super) fn is_a(&self, ino: u64, kind: EntryKind) -> bool {
        let entry = self.entries.get(ino);
        entry.is_some_and(|entry| entry.kind == kind)
    }

    /// Whether an inode is known to stand for another file than `content`.
    pub(super) fn differs(&self, ino: u64, content: Option<u64>) -> bool {
        let known = self
            .open
            .content(ino)
            .or_else(|| self.looked_up_content(ino));
        let is_other = |(known, content)| known == MIXED || known != content;
        known.zip(content).is_some_and(is_other)
    }

    /// Returns the number of the file that the last lookup of an inode found.
    fn looked_up_content(&self, ino: u64) -> Option<u64> {
        let entry = self.entries.get(ino)?;
        entry.content.map(NonZeroU64::get)
    }

    /// Records which file an inode stands for.
    pub(super) fn set_content(&mut self, ino: u64, content: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.content = content.and_then(NonZeroU64::new);
        }
    }

    /// Returns a free inode number: a hash of directory and name, or the next free number. A name whose hash is free
    /// always gets the same number, also after a remount.
    pub(super) fn free_number(&self, parent: Ino, name: &[u8]) -> u64 {
        let mut ino = hash_of(parent.0, name) & MAX_NUMBER;
        while ino <= Ino::ROOT.0 || self.entries.get(ino).is_some() || self.open.is_open(ino) {
            ino = (ino + 1) & MAX_NUMBER;
        }
        ino
    }

    /// Gives a name to an inode; an inode that had the name loses it.
    pub(super) fn assign_name(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        let owner = self.entries.named(parent.0, name);
        if owner == Some(ino) {
            return;
        }
        if owner.is_some() {
            self.remove_name(parent, name);
        }
        self.entries.add_name(ino, parent.0, name);
        if let Some(parent) = self.entries.get_mut(parent.0) {
            parent.children += 1;
        }
        if let Some(owner) = owner {
            self.prune(owner);
        }
    }

    /// Removes a name in a directory; returns the inode that had the name.
    pub(super) fn remove_name(&mut self, parent: Ino, name: &[u8]) -> Option<u64> {
        let ino = self.entries.take_name(parent.0, name)?;
        self.changes += 1;
        let entry = self.entries.get(ino);
        if entry.is_some_and(|entry| entry.children > 0) || self.dirs.contains(&ino) {
            self.dirs.clear();
        }
        if let Some(parent) = self.entries.get_mut(parent.0) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(ino)
    }

    /// Drops an entry without lookups and children, and the entries above it that have no others.
    pub(super) fn prune(&mut self, ino: u64) {
        let mut waiting = vec![ino];
        while let Some(at) = waiting.pop() {
            let entry = self.entries.get(at);
            let idle = entry.filter(|entry| entry.lookups == 0 && entry.children == 0);
            let Some(entry) = idle.filter(|_| at != Ino::ROOT.0) else {
                continue;
            };
            if entry.is_named() {
                let (parent, name) = entry.last_name();
                let name: Box<[u8]> = name.into();
                self.entries.take_name(parent, &name);
                if let Some(parent) = self.entries.get_mut(parent) {
                    parent.children = parent.children.saturating_sub(1);
                }
                waiting.push(parent);
            }
            self.entries.remove(at);
            self.dirs.pop(&at);
        }
    }

    /// Chooses the inode that a lookup returns for a name with the attributes `attr`.
    pub(super) fn choose(&self, parent: Ino, name: &[u8], attr: &Attr) -> InodeChoice {
        if let Some(ino) = self.open_as(parent, name, attr.content) {
            return InodeChoice::Known(ino);
        }
        match self.entries.named(parent.0, name) {
            Some(ino) if self.differs(ino, attr.content) || !self.is_a(ino, attr.kind) => {
                InodeChoice::Split
            }
            Some(ino) => InodeChoice::Known(ino),
            None => InodeChoice::New,
        }
    }

    /// Returns the inode with which a file is open, if this is the current or last name of the inode.
    fn open_as(&self, parent: Ino, name: &[u8], content: Option<u64>) -> Option<u64> {
        let mut open = self.open.with_content(content?).iter();
        let has_name = |ino: &&u64| {
            let last = self.last_name(Ino(**ino));
            last.is_ok_and(|last| last == (parent.0, name))
        };
        open.find(has_name).copied()
    }

    /// Whether a file is open as another inode that has, or had, the same name as `ino`.
    pub(super) fn is_open_elsewhere(&self, ino: Ino, content: Option<u64>) -> bool {
        let Ok((parent, name)) = self.last_name(ino) else {
            return false;
        };
        let other = self.open_as(Ino(parent), name, content);
        other.is_some_and(|other| other != ino.0)
    }

    /// Gives a name to the inode `ino`, and counts a lookup of the kernel.
    pub(super) fn count_lookup(&mut self, ino: u64, parent: Ino, name: &[u8], attr: &Attr) {
        self.assign_name(ino, parent, name);
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.lookups += 1;
            entry.kind = attr.kind;
        }
        self.set_content(ino, attr.content);
    }
}

/// The open inodes, and the file of their handles.
///
/// All handles of an inode have the same file open, since the kernel's pages belong to the inode.
#[derive(Default)]
pub(super) struct OpenInodes {
    by_ino: HashMap<u64, OpenInode>,
    /// Open inodes by the number of their file; usually one inode for a file.
    by_content: HashMap<u64, SmallVec<[u64; 2]>>,
}

/// An open inode.
#[derive(Default)]
struct OpenInode {
    /// Number of the file that all handles have open; `None` if it is unknown.
    content: Option<u64>,
    /// Whether the kernel may have attributes of another file than the one that is open.
    is_mixed: bool,
    handles: SmallVec<[Fh; 2]>,
}

impl OpenInodes {
    pub(super) fn is_open(&self, ino: u64) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Whether the kernel may have attributes of another file than the one that the inode is open with.
    pub(super) fn is_mixed(&self, ino: u64) -> bool {
        self.by_ino.get(&ino).is_some_and(|open| open.is_mixed)
    }

    /// Records that the kernel may have attributes of another file than the one that the inode is open with.
    pub(super) fn mark_mixed(&mut self, ino: u64) {
        if let Some(open) = self.by_ino.get_mut(&ino) {
            open.is_mixed = true;
        }
    }

    /// Returns the number of the file that an inode is open with; `None` if it is unknown or the inode is not open.
    pub(super) fn content(&self, ino: u64) -> Option<u64> {
        self.by_ino.get(&ino)?.content
    }

    /// Returns the inodes that are open with this file.
    pub(super) fn with_content(&self, content: u64) -> &[u64] {
        self.by_content.get(&content).map_or(&[], |inos| inos)
    }

    pub(super) fn handles(&self, ino: u64) -> SmallVec<[Fh; 2]> {
        let open = self.by_ino.get(&ino);
        open.map(|open| open.handles.clone()).unwrap_or_default()
    }

    /// Adds a handle of a file to an inode.
    pub(super) fn add(&mut self, ino: u64, fh: Fh, content: Option<u64>) {
        let open = self.by_ino.entry(ino).or_default();
        open.handles.push(fh);
        if open.content.is_none()
            && let Some(content) = content
        {
            open.content = Some(content);
            self.by_content.entry(content).or_default().push(ino);
        }
    }

    /// Removes a handle from an inode.
    pub(super) fn remove(&mut self, ino: u64, fh: Fh) {
        let Some(open) = self.by_ino.get_mut(&ino) else {
            return;
        };
        open.handles.retain(|known| *known != fh);
        if !open.handles.is_empty() {
            return;
        }
        let content = open.content;
        self.by_ino.remove(&ino);
        if let Some(content) = content
            && let Some(inos) = self.by_content.get_mut(&content)
        {
            inos.retain(|known| *known != ino);
            if inos.is_empty() {
                self.by_content.remove(&content);
            }
        }
        if is_sparse(self.by_ino.len(), self.by_ino.capacity()) {
            self.by_ino.shrink_to(2 * self.by_ino.len());
            self.by_content.shrink_to(2 * self.by_content.len());
        }
    }
}

/// Returns the error for an inode whose name was removed; on this error the kernel walks the path again.
pub(super) fn nameless(ino: Ino) -> Error {
    Error::new(Kind::Changed, format!("inode {}", ino.0), "was deleted")
}

/// Returns the error for an inode that the kernel has forgotten.
fn gone(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "is no longer known",
    )
}
