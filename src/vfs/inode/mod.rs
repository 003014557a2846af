//! Numbers the inodes that the kernel knows, by name.
//!
//! An inode stands for one file: all of its handles have that file open, and a name that gets another file gets another
//! inode. The entry of an inode has the kernel's lookup count, and is dropped when the count is zero. The inode number
//! is a 31-bit hash of directory and name, or the next free number: so a listing needs no memory for inodes, and most
//! files have the same number after a remount. The directories of the last lookups are cached in the form that the view
//! returned.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::vfs::Fh;
use crate::vfs::inode::table::{InodeChoice, InodeTable, MIXED, nameless};
use crate::view::{Attr, ViewDir};
use zarr_format::error::Result;
use zarrfs_store::Key;

mod entries;
mod table;
#[cfg(test)]
mod tests;

/// An inode number; 1 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// Inode number of the mount's root.
    pub const ROOT: Ino = Ino(1);
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NameIn<'a> {
    /// Inode number of the directory.
    pub parent: Ino,
    /// The name in the directory.
    pub name: &'a [u8],
}

impl<'a> NameIn<'a> {
    /// Builds a name in the directory `parent`.
    pub fn new(parent: Ino, name: &'a [u8]) -> NameIn<'a> {
        NameIn { parent, name }
    }
}

/// The inodes that the kernel knows.
pub struct Inodes {
    state: Mutex<InodeTable>,
}

/// A directory in which names are to be looked up.
pub enum DirLookup {
    /// The directory as the view returned it, for looking up names in it.
    Resolved(Arc<ViewDir>),
    /// The path of a directory that the view has not returned yet, and the number of removed names, for `cache_dir`.
    Path(Key, u64),
}

/// Facts about an inode.
#[derive(Clone, Copy, Debug)]
pub struct InodeState {
    /// Whether the inode is a directory.
    pub is_directory: bool,
    /// Whether the inode has a name.
    pub is_named: bool,
    /// Whether the inode has open handles.
    pub is_open: bool,
}

/// The result of adding a handle to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The handle was added.
    Added,
    /// The handle was not added: the inode is open with another file.
    Different,
    /// The handle was not added: the inode is not open, and the last lookup found another file.
    Replaced,
    /// The handle was not added: the file is open as another inode with the same name.
    Elsewhere,
}

impl Default for Inodes {
    fn default() -> Inodes {
        Inodes::new()
    }
}

impl Inodes {
    /// Builds a table that contains only the root.
    pub fn new() -> Inodes {
        Inodes {
            state: Mutex::new(InodeTable::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, InodeTable> {
        self.state.lock()
    }

    /// Returns the path of an inode. Fails with `Changed` if the kernel has forgotten the inode, or if its name or the
    /// name of a directory above it was removed.
    pub fn path(&self, ino: Ino) -> Result<Key> {
        self.lock().path(ino)
    }

    /// Returns the path of an inode that may have lost its name; it then has its last name. Fails with `Changed` if a
    /// directory above it has lost its name.
    pub fn last_path(&self, ino: Ino) -> Result<Key> {
        self.lock().last_path(ino)
    }

    /// Returns the path by which the kernel reached an inode: the last names of the inode and of the directories above
    /// it, even if they were removed.
    pub fn walked_path(&self, ino: Ino) -> Result<Key> {
        self.lock().walked_path(ino)
    }

    /// Returns the directory of an inode, or the last one if its name was removed. The root and unknown inodes are
    /// their own parents.
    pub fn parent(&self, ino: Ino) -> Ino {
        match self.lock().last_name(ino) {
            Ok((parent, _)) if ino != Ino::ROOT => Ino(parent),
            _ => ino,
        }
    }

    /// Returns facts about an inode.
    pub fn state(&self, ino: Ino) -> InodeState {
        let state = self.lock();
        InodeState {
            is_directory: state.is_directory(ino),
            is_named: state.is_named(ino),
            is_open: state.open.is_open(ino.0),
        }
    }

    /// Whether the attributes that were found under the name of an inode may be sent to the kernel as the inode's. If
    /// the inode is not open, they may be sent even if the name has another file by now; then the next lookup gives the
    /// name another inode.
    pub fn can_show(&self, ino: Ino, attr: &Attr) -> bool {
        let mut state = self.lock();
        if !state.is_a(ino.0, attr.kind) {
            return false;
        }
        if !state.differs(ino.0, attr.content) {
            return true;
        }
        if !state.open.is_open(ino.0) {
            state.set_content(ino.0, Some(MIXED));
        }
        !state.open.is_open(ino.0)
    }

    /// Returns a cached directory of the view, or the path of the directory. Fails with `Changed` if it has no path.
    pub fn dir(&self, ino: Ino) -> Result<DirLookup> {
        let mut state = self.lock();
        if let Some(dir) = state.dirs.get(&ino.0) {
            return Ok(DirLookup::Resolved(dir.clone()));
        }
        Ok(DirLookup::Path(state.path(ino)?, state.changes))
    }

    /// Caches a directory as the view returned it, unless names were removed since `dir` returned the path.
    pub fn cache_dir(&self, ino: Ino, dir: ViewDir, changes: u64) -> Arc<ViewDir> {
        let dir = Arc::new(dir);
        let mut state = self.lock();
        if state.changes == changes && state.entries.get(ino.0).is_some() {
            state.dirs.put(ino.0, dir.clone());
        }
        dir
    }

    /// Returns the directory and the name of an inode, or `None` for the root. Fails with `Changed` if its name was
    /// removed.
    pub fn name(&self, ino: Ino) -> Result<Option<(Ino, Box<[u8]>)>> {
        if ino == Ino::ROOT {
            return Ok(None);
        }
        let state = self.lock();
        if !state.is_named(ino) {
            return Err(nameless(ino));
        }
        let (parent, name) = state.last_name(ino)?;
        Ok(Some((Ino(parent), name.into())))
    }

    /// Adds a new inode for a file that was created, with a handle and one lookup of the kernel.
    pub fn create(&self, parent: Ino, name: &[u8], content: Option<u64>, fh: Fh) -> Ino {
        let mut state = self.lock();
        let ino = state.free_number(parent, name);
        state.assign_name(ino, parent, name);
        if let Some(entry) = state.entries.get_mut(ino) {
            entry.lookups += 1;
        }
        state.set_content(ino, content);
        state.open.add(ino, fh, content);
        Ino(ino)
    }

    /// Returns the inode number of a name for a listing, without adding an entry.
    ///
    /// A lookup at this moment would assign the same number. If two names that the kernel does not know have the same
    /// hash, the name that is looked up second gets the next number, not the listed one. That takes a directory of tens
    /// of thousands of names, and affects 1 in 4,000 names in a directory of a million. To avoid it, each listed name
    /// would need an entry.
    pub fn number_of(&self, parent: Ino, name: &[u8]) -> Ino {
        let state = self.lock();
        let known = state.entries.named(parent.0, name);
        Ino(known.unwrap_or_else(|| state.free_number(parent, name)))
    }

    /// Returns the inode of a name that has the attributes `attr`, and counts a lookup of the kernel.
    pub fn look_up(&self, parent: Ino, name: &[u8], attr: &Attr) -> Ino {
        let mut state = self.lock();
        let ino = match state.choose(parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New | InodeChoice::Split => state.free_number(parent, name),
        };
        state.count_lookup(ino, parent, name, attr);
        Ino(ino)
    }

    /// Returns the inode of a name, and counts a lookup; returns `None` if that inode stands for another file.
    pub fn look_up_same(&self, parent: Ino, name: &[u8], attr: &Attr) -> Option<Ino> {
        let mut state = self.lock();
        let ino = match state.choose(parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New => state.free_number(parent, name),
            InodeChoice::Split => return None,
        };
        state.count_lookup(ino, parent, name, attr);
        Some(Ino(ino))
    }

    /// Removes a name. Programs that have the file open continue to use its inode.
    pub fn unlink(&self, parent: Ino, name: &[u8]) {
        let mut state = self.lock();
        if let Some(ino) = state.remove_name(parent, name) {
            state.prune(ino);
        }
        state.prune(parent.0);
    }

    /// Moves an inode to another name; an inode that had that name loses it.
    pub fn rename(&self, from: NameIn<'_>, to: NameIn<'_>) {
        let mut state = self.lock();
        let old = state.remove_name(from.parent, from.name);
        let new = state.remove_name(to.parent, to.name);
        if let Some(old) = old {
            state.assign_name(old, to.parent, to.name);
        }
        if let Some(new) = new {
            state.prune(new);
        }
        state.prune(from.parent.0);
    }

    /// Subtracts lookups from the kernel's lookup count, and drops the entry if no lookups and no children are left. If
    /// the inode is not open either, calls `forgotten` before another name can get the number. Otherwise the kernel may
    /// still use the inode: FORGET also arrives for a lookup whose reply the kernel does not use.
    pub fn forget(&self, ino: Ino, count: u64, forgotten: impl FnOnce()) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(ino.0) {
            entry.lookups = entry.lookups.saturating_sub(count);
        }
        state.prune(ino.0);
        if state.entries.get(ino.0).is_none() && !state.open.is_open(ino.0) {
            forgotten();
        }
    }

    /// Adds a handle of the file `content` to an inode, unless the inode stands for another file or the file is open as
    /// another inode.
    pub fn bind(&self, ino: Ino, fh: Fh, content: Option<u64>) -> Binding {
        let mut state = self.lock();
        let is_open = state.open.is_open(ino.0);
        if state.differs(ino.0, content) {
            return if is_open {
                Binding::Different
            } else {
                Binding::Replaced
            };
        }
        if !is_open && state.is_open_elsewhere(ino, content) {
            return Binding::Elsewhere;
        }
        state.open.add(ino.0, fh, content);
        Binding::Added
    }

    /// Adds a handle of a file that is not the one that lookups found, or that is open as another inode. While the
    /// inode is open it counts as mixed (`is_mixed`), and no later lookup returns it. Returns `Different` if the inode
    /// is open with another file.
    pub fn bind_mixed(&self, ino: Ino, fh: Fh, content: Option<u64>) -> Binding {
        let mut state = self.lock();
        if state.open.is_open(ino.0) && state.differs(ino.0, content) {
            return Binding::Different;
        }
        state.set_content(ino.0, content);
        state.open.add(ino.0, fh, content);
        state.open.mark_mixed(ino.0);
        Binding::Added
    }

    /// Whether the kernel may have attributes of another file than the one that the inode is open with. Then reads must
    /// not rely on the kernel's length, since the reply with the wrong length may arrive last.
    pub fn is_mixed(&self, ino: Ino) -> bool {
        self.lock().open.is_mixed(ino.0)
    }

    /// Records a length that the kernel is about to get; returns whether an open relies on the kernel having another
    /// length.
    pub fn record_length(&self, ino: Ino, length: u64) -> bool {
        let mut state = self.lock();
        let entry = state.entries.get_mut(ino.0);
        entry.is_some_and(|entry| entry.lengths.add(length))
    }

    /// Whether the kernel got this length for an inode, and no other. If so, records that an open relies on it.
    pub fn keep_length(&self, ino: Ino, length: u64) -> bool {
        let mut state = self.lock();
        let entry = state.entries.get_mut(ino.0);
        entry.is_some_and(|entry| entry.lengths.keep(length))
    }

    /// Removes a handle from its inode.
    pub fn release(&self, ino: Ino, fh: Fh) {
        let mut state = self.lock();
        let was_mixed = state.open.is_mixed(ino.0);
        state.open.remove(ino.0, fh);
        if was_mixed && !state.open.is_open(ino.0) {
            state.set_content(ino.0, Some(MIXED));
        }
    }

    /// Returns the handles of an inode.
    pub fn handles(&self, ino: Ino) -> SmallVec<[Fh; 2]> {
        self.lock().open.handles(ino.0)
    }

    /// Returns the other inodes that are open with the same file.
    pub fn open_with_same_content(&self, ino: Ino) -> Vec<Ino> {
        let state = self.lock();
        let content = state.open.content(ino.0);
        let all = content.map_or(&[][..], |content| state.open.with_content(content));
        let others = all.iter().filter(|&&other| other != ino.0);
        others.map(|&other| Ino(other)).collect()
    }

    /// Returns the number of inodes that have an entry.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether the table is empty, which it never is, since it contains the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
