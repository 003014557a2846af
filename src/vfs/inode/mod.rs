//! Numbers the inodes that the kernel knows, by name.
//!
//! An inode is one content: all of its handles have the same content, and a name that gets another content gets another
//! inode. An inode has an entry with the kernel's lookup count, and the entry is dropped when the count is zero. Its
//! number is a 31-bit hash of directory and name, or the next free number if that is taken: a listing needs no memory
//! for it, and most files have the same number after a remount. The directories of the last lookups are cached as the
//! view resolved them.

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
    /// The root of the mount.
    pub const ROOT: Ino = Ino(1);
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NameIn<'a> {
    /// The directory.
    pub parent: Ino,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> NameIn<'a> {
    /// Returns a name in a directory.
    pub fn new(parent: Ino, name: &'a [u8]) -> NameIn<'a> {
        NameIn { parent, name }
    }
}

/// The inodes that the kernel knows.
pub struct Inodes {
    state: Mutex<InodeTable>,
}

/// A directory for lookups of its children.
pub enum DirLookup {
    /// The resolved directory.
    Resolved(Arc<ViewDir>),
    /// The path of the directory, which is not resolved yet, and the count of changes for `cache_dir`.
    Path(Key, u64),
}

/// The state of an inode.
#[derive(Clone, Copy, Debug)]
pub struct InodeState {
    /// Whether the inode is a directory.
    pub is_directory: bool,
    /// Whether the inode has a name.
    pub is_named: bool,
    /// Whether the inode has handles.
    pub is_open: bool,
}

/// The result of adding a handle to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The handle was added.
    Added,
    /// The inode is open with another content.
    Different,
    /// The inode is not open, and lookups have found another content.
    Replaced,
    /// The content is open as another inode of this name.
    Elsewhere,
}

impl Default for Inodes {
    fn default() -> Inodes {
        Inodes::new()
    }
}

impl Inodes {
    /// Builds a table with the root in it.
    pub fn new() -> Inodes {
        Inodes {
            state: Mutex::new(InodeTable::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, InodeTable> {
        self.state.lock()
    }

    /// Returns the path of an inode. `Changed` if it was forgotten, or if its name or an ancestor's name was removed.
    pub fn path(&self, ino: Ino) -> Result<Key> {
        self.lock().path(ino)
    }

    /// Like `path`; an inode without a name has its last path.
    pub fn last_path(&self, ino: Ino) -> Result<Key> {
        self.lock().last_path(ino)
    }

    /// Returns the path by which the kernel reached an inode: the last names of the inode and its ancestors, removed or
    /// not.
    pub fn walked_path(&self, ino: Ino) -> Result<Key> {
        self.lock().walked_path(ino)
    }

    /// Returns the parent directory of an inode, or its last one; the root and unknown inodes are their own parents.
    pub fn parent(&self, ino: Ino) -> Ino {
        match self.lock().last_name(ino) {
            Ok((parent, _)) if ino != Ino::ROOT => Ino(parent),
            _ => ino,
        }
    }

    /// Returns the state of an inode.
    pub fn state(&self, ino: Ino) -> InodeState {
        let state = self.lock();
        InodeState {
            is_directory: state.is_directory(ino),
            is_named: state.is_named(ino),
            is_open: state.open.is_open(ino.0),
        }
    }

    /// Whether the attributes that were found under the name of an inode may be sent to the kernel as the inode's. If
    /// the inode is not open, they may be of another content; the inode is then marked as `MIXED`, and the next lookup
    /// gives the name another inode.
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

    /// Returns a directory as the view resolved it, or its path if it is not resolved yet. Fails as `path` does.
    pub fn dir(&self, ino: Ino) -> Result<DirLookup> {
        let mut state = self.lock();
        if let Some(dir) = state.dirs.get(&ino.0) {
            return Ok(DirLookup::Resolved(dir.clone()));
        }
        Ok(DirLookup::Path(state.path(ino)?, state.changes))
    }

    /// Caches a resolved directory, unless names have changed since its path was returned.
    pub fn cache_dir(&self, ino: Ino, dir: ViewDir, changes: u64) -> Arc<ViewDir> {
        let dir = Arc::new(dir);
        let mut state = self.lock();
        if state.changes == changes && state.entries.get(ino.0).is_some() {
            state.dirs.put(ino.0, dir.clone());
        }
        dir
    }

    /// Returns the directory and the name of an inode, or `None` for the root. Fails as `path` does.
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

    /// Adds a new file with a new inode, a handle and a lookup of the kernel.
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
    /// A lookup at this moment would assign the same number. Two names that the kernel does not know may have the same
    /// hash: then `stat` of the name that is looked up second returns the next number, and not the listed one. That
    /// takes a directory of tens of thousands of names, and affects 1 in 4,000 names in a directory of a million. To
    /// avoid it, each listed name would need an entry.
    pub fn number_of(&self, parent: Ino, name: &[u8]) -> Ino {
        let state = self.lock();
        let known = state.entries.named(parent.0, name);
        Ino(known.unwrap_or_else(|| state.free_number(parent, name)))
    }

    /// Returns the inode of a name that has the attributes `attr`, and counts a lookup.
    pub fn look_up(&self, parent: Ino, name: &[u8], attr: &Attr) -> Ino {
        let mut state = self.lock();
        let ino = match state.choose(parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New | InodeChoice::Split => state.free_number(parent, name),
        };
        state.count_lookup(ino, parent, name, attr);
        Ino(ino)
    }

    /// Like `look_up`; `None` if the inode of the name has another content.
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

    /// Removes a name; programs that have the file open still use its inode.
    pub fn unlink(&self, parent: Ino, name: &[u8]) {
        let mut state = self.lock();
        if let Some(ino) = state.remove_name(parent, name) {
            state.prune(ino);
        }
        state.prune(parent.0);
    }

    /// Moves an inode to another name; the inode that had that name loses it.
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

    /// Subtracts lookups from the kernel's count, and drops an entry without lookups and children. If the inode then
    /// has no entry and no handle, calls `forgotten`, before another name can get the number. Otherwise the kernel may
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

    /// Adds a handle of a content, unless the inode has another content or the content is open as another inode.
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

    /// Adds a handle of a content that is not the one that lookups found, or that is open as another inode. The inode
    /// is mixed (`is_mixed`) while it is open, and no lookup returns it afterwards. `Different` if the inode is open
    /// with another content.
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

    /// Whether the kernel may have attributes of a content that is not the content of the handles. Reads must then not
    /// rely on the kernel's length, since a reply with the wrong length may arrive after the reply with the right one.
    pub fn is_mixed(&self, ino: Ino) -> bool {
        self.lock().open.is_mixed(ino.0)
    }

    /// Records a length that the kernel is about to get; returns whether an open relies on another length.
    pub fn record_length(&self, ino: Ino, length: u64) -> bool {
        let mut state = self.lock();
        let entry = state.entries.get_mut(ino.0);
        entry.is_some_and(|entry| entry.lengths.add(length))
    }

    /// Whether the kernel got this length for an inode and no other length; if so, records that an open relies on it.
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

    /// Returns the other inodes that are open with the same content.
    pub fn open_with_same_content(&self, ino: Ino) -> Vec<Ino> {
        let state = self.lock();
        let content = state.open.content(ino.0);
        let all = content.map_or(&[][..], |content| state.open.with_content(content));
        let others = all.iter().filter(|&&other| other != ino.0);
        others.map(|&other| Ino(other)).collect()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether the table is empty; it always has the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
