//! The names of inodes as a tree: paths, names that come and go, and entries that nothing holds any more.
//!
//! An entry is held by the kernel's lookups and by the entries below it.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use lru::LruCache;

use crate::vfs::inode::Ino;
use crate::vfs::inode::entries::{EntryTable, InodeEntry, hash_of};
use crate::vfs::inode::open::OpenInodes;
use crate::view::ViewDir;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::{EntryKind, Key};

/// Number of resolved directories that are kept.
const MAX_DIRS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The largest inode number. Programs of 32 bits get EOVERFLOW from `stat` and `readdir` for one beyond 32 bits, and some
/// take numbers for signed.
const MAX_NUMBER: u64 = (1 << 31) - 1;

/// The content of an inode of which the kernel has attributes of several contents: no content is the same.
pub(super) const MIXED: u64 = u64::MAX;

/// The state of `Inodes`.
pub(super) struct InodeTable {
    pub(super) entries: EntryTable,
    pub(super) open: OpenInodes,
    /// Directories as the view resolved them.
    pub(super) dirs: LruCache<u64, Arc<ViewDir>>,
    /// Counts names that were taken from inodes: a directory may have another path since.
    pub(super) changes: u64,
}

impl InodeTable {
    /// Builds a table with the root in it.
    pub(super) fn new() -> InodeTable {
        let mut entries = EntryTable::default();
        entries.add_root(Ino::ROOT.0);
        if let Some(root) = entries.get_mut(Ino::ROOT.0) {
            (root.lookups, root.kind) = (1, EntryKind::Directory);
        }
        InodeTable {
            entries,
            open: OpenInodes::default(),
            dirs: LruCache::new(MAX_DIRS),
            changes: 0,
        }
    }

    /// Returns the path of an inode; `Changed` if it or a directory above it has no name.
    pub(super) fn path(&self, ino: Ino) -> Result<Key> {
        if self.is_named(ino) {
            self.last_path(ino)
        } else {
            Err(nameless(ino))
        }
    }

    /// Returns the path of an inode, by its last name if it has none. `Changed` if it is not known, or if a directory
    /// above it has no name.
    pub(super) fn last_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, InodeEntry::is_named)
    }

    /// Returns the path of an inode by the last names of it and of the directories above it, whether they have them
    /// still or not. `Changed` if one is not known.
    pub(super) fn walked_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, |_| true)
    }

    /// Returns the path of an inode by its last name and those of the directories above it; `Changed` if one of these is
    /// not known or does not `count`.
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

    /// Returns the directory of an inode and its name, or the last ones that it had.
    pub(super) fn last_name(&self, ino: Ino) -> Result<(u64, &[u8])> {
        let entry = self.entries.get(ino.0).ok_or_else(|| gone(ino))?;
        Ok(entry.last_name())
    }

    /// Whether an inode has a name.
    pub(super) fn is_named(&self, ino: Ino) -> bool {
        let entry = self.entries.get(ino.0);
        entry.is_some_and(InodeEntry::is_named)
    }

    /// Whether an inode is a directory.
    pub(super) fn is_directory(&self, ino: Ino) -> bool {
        self.is_a(ino.0, EntryKind::Directory)
    }

    /// Whether an inode is of a kind. The kernel gives up an inode that gets attributes of another kind.
    pub(super) fn is_a(&self, ino: u64, kind: EntryKind) -> bool {
        let entry = self.entries.get(ino);
        entry.is_some_and(|entry| entry.kind == kind)
    }

    /// Whether an inode is known to have another content.
    pub(super) fn differs(&self, ino: u64, content: Option<u64>) -> bool {
        let known = self.open.content(ino).or_else(|| self.found(ino));
        let is_other = |(known, content)| known == MIXED || known != content;
        known.zip(content).is_some_and(is_other)
    }

    /// Returns the content that the last lookup of an inode has found.
    fn found(&self, ino: u64) -> Option<u64> {
        let entry = self.entries.get(ino)?;
        entry.content.map(NonZeroU64::get)
    }

    /// Notes the content of an inode.
    pub(super) fn note_content(&mut self, ino: u64, content: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.content = content.and_then(NonZeroU64::new);
        }
    }

    /// Returns a number that no inode has: a hash of directory and name, or the next free one. Without other inodes it is
    /// always the same for a name, also after another mount.
    pub(super) fn free_number(&self, parent: Ino, name: &[u8]) -> u64 {
        let mut ino = hash_of(parent.0, name) & MAX_NUMBER;
        while ino <= Ino::ROOT.0 || self.entries.get(ino).is_some() || self.open.is_open(ino) {
            ino = (ino + 1) & MAX_NUMBER;
        }
        ino
    }

    /// Gives an inode a name, which another one may have now.
    pub(super) fn give(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        let owner = self.entries.named(parent.0, name);
        if owner == Some(ino) {
            return;
        }
        if owner.is_some() {
            self.take(parent, name);
        }
        self.entries.add_name(ino, parent.0, name);
        if let Some(parent) = self.entries.get_mut(parent.0) {
            parent.children += 1;
        }
        if let Some(owner) = owner {
            self.prune(owner);
        }
    }

    /// Takes a name from the inode that has it, which is returned.
    pub(super) fn take(&mut self, parent: Ino, name: &[u8]) -> Option<u64> {
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

    /// Drops an entry that nothing holds, and those above it that it alone held.
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
}

/// Returns the error of an inode whose name was removed: the kernel walks its path again.
pub(super) fn nameless(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "has no name any more",
    )
}

/// Returns the error of an inode that the kernel has forgotten.
fn gone(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "is not known any more",
    )
}
