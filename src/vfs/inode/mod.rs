//! Inode numbers: computed for files whose names are made of indices (`computed`), from a table for the rest.
//!
//! A name of the table has an entry with the kernel's lookup count, which is dropped when the count is zero. Its number
//! is a hash of directory and name, so that a listing can tell it without holding anything. The directories in which
//! names were looked up last are kept as the view resolved them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::error::{Error, Kind, Result};
use crate::grid::NumberedName;
use crate::store::{EntryKind, Key};
use crate::vfs::computed::{COMPUTED, code_of, computed_name, number_of};
use crate::view::{ChildName, ViewDir};

/// An inode number; 1 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the mount.
    pub const ROOT: Ino = Ino(1);
}

/// The inodes that the kernel knows.
pub struct Inodes {
    state: Mutex<InodeTable>,
    /// Whether numbers of names made of indices are computed; not where files can be renamed.
    computes: bool,
}

/// Number of resolved directories that are kept.
const MAX_DIRS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

struct InodeTable {
    entries: HashMap<u64, InodeEntry>,
    by_name: HashMap<(u64, Box<[u8]>), u64>,
    /// Files that have several names, by their identity in the store.
    by_identity: HashMap<u64, u64>,
    /// Directories by the small number that is part of computed numbers.
    directories: HashMap<u64, u64>,
    last_directory: u64,
    /// Directories as the view resolved them.
    dirs: LruCache<u64, Arc<ViewDir>>,
    /// Counts names that were taken from inodes: a directory may have another path since.
    changes: u64,
}

/// A directory in which a name is to be looked up.
pub enum DirLookup {
    /// What its path was resolved to.
    Resolved(Arc<ViewDir>),
    /// Its path, which is still to be resolved, and the count of changes to be given to `keep_dir`.
    Path(Key, u64),
}

struct InodeEntry {
    /// Directory and name, several for a file with hard links; none once the last was removed.
    names: Vec<(u64, Box<[u8]>)>,
    identity: Option<u64>,
    lookups: u64,
    /// Number of entries whose parent is this one.
    children: u64,
    /// Its small number as a directory of computed names; 0 if it has none yet.
    directory: u64,
}

impl InodeEntry {
    fn new() -> InodeEntry {
        InodeEntry {
            names: Vec::new(),
            identity: None,
            lookups: 0,
            children: 0,
            directory: 0,
        }
    }
}

impl InodeTable {
    fn path(&self, ino: Ino) -> Result<Key> {
        let computed = computed_name(ino.0);
        let mut at = match &computed {
            Some((directory, _)) => *self.directories.get(directory).ok_or_else(|| gone(ino))?,
            None => ino.0,
        };
        let mut names: Vec<&[u8]> = Vec::new();
        names.extend(computed.as_ref().map(|(_, name)| name.as_bytes()));
        while at != Ino::ROOT.0 {
            let entry = self.entries.get(&at).ok_or_else(|| gone(ino))?;
            let (parent, name) = entry.names.first().ok_or_else(|| nameless(ino))?;
            names.push(name);
            at = *parent;
        }
        names.reverse();
        Key::new(names.join(&b'/'))
    }

    /// Returns the small number of a directory, which it gets now if it has none.
    fn directory(&mut self, ino: Ino) -> Option<u64> {
        let entry = self.entries.get_mut(&ino.0)?;
        if entry.directory == 0 {
            self.last_directory += 1;
            entry.directory = self.last_directory;
            self.directories.insert(entry.directory, ino.0);
        }
        Some(entry.directory)
    }

    /// Returns the computed number of a file. Directories have entries instead, which know their parents.
    fn computed(
        &mut self,
        parent: Ino,
        name: Option<&NumberedName<'_>>,
        kind: EntryKind,
    ) -> Option<Ino> {
        if kind != EntryKind::File {
            return None;
        }
        let code = code_of(name?)?;
        let directory = self.directory(parent)?;
        number_of(directory, code).map(Ino)
    }

    /// Returns the entry of a number, which is made if there is none, with this name among its names.
    fn enter(&mut self, ino: u64, parent: Ino, name: &[u8]) -> &mut InodeEntry {
        let key = (parent.0, Box::from(name));
        let is_new = self.by_name.insert(key.clone(), ino) != Some(ino);
        if is_new && let Some(parent) = self.entries.get_mut(&parent.0) {
            parent.children += 1;
        }
        let entry = self.entries.entry(ino).or_insert_with(InodeEntry::new);
        if is_new {
            entry.names.push(key);
        }
        entry
    }

    /// Takes a name from the entry that has it; returns the number of the entry.
    fn take(&mut self, parent: Ino, name: &[u8]) -> Option<u64> {
        let key = (parent.0, Box::from(name));
        let ino = self.by_name.remove(&key)?;
        self.changes += 1;
        if let Some(entry) = self.entries.get_mut(&ino) {
            entry.names.retain(|known| *known != key);
            if entry.children > 0 || self.dirs.contains(&ino) {
                self.dirs.clear();
            }
        }
        if let Some(parent) = self.entries.get_mut(&parent.0) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(ino)
    }

    /// Takes a name from an entry with several if it is the name of another file by now.
    fn split_linked(&mut self, parent: Ino, name: &[u8], identity: Option<u64>) {
        let known = self.by_name.get(&(parent.0, Box::from(name)));
        let entry = known.and_then(|ino| self.entries.get(ino));
        if entry.is_some_and(|entry| entry.names.len() > 1 && entry.identity != identity) {
            self.take(parent, name);
        }
    }

    /// Takes all names of an entry but one, which is the only one that the file still has.
    fn keep_one(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        let names = self.entries.get(&ino).map(|entry| entry.names.clone());
        for (other, old) in names.unwrap_or_default() {
            if (other, &*old) != (parent.0, name) {
                self.take(Ino(other), &old);
            }
        }
    }

    /// Drops an entry without lookups and children, and those above it that it alone kept.
    fn prune(&mut self, ino: u64) {
        let mut open = vec![ino];
        while let Some(at) = open.pop() {
            let is_idle = |entry: &InodeEntry| entry.lookups + entry.children == 0;
            if at == Ino::ROOT.0 || !self.entries.get(&at).is_some_and(is_idle) {
                continue;
            }
            let Some(entry) = self.entries.remove(&at) else {
                continue;
            };
            self.directories.remove(&entry.directory);
            self.dirs.pop(&at);
            if let Some(identity) = entry.identity {
                self.by_identity.remove(&identity);
            }
            for (parent, name) in entry.names {
                self.by_name.remove(&(parent, name));
                if let Some(parent) = self.entries.get_mut(&parent) {
                    parent.children = parent.children.saturating_sub(1);
                }
                open.push(parent);
            }
        }
    }

    /// Returns the number that a name has, or the one that it would get.
    fn number(&self, parent: Ino, name: &[u8]) -> u64 {
        if let Some(&ino) = self.by_name.get(&(parent.0, Box::from(name))) {
            return ino;
        }
        let mut ino = hashed(parent, name);
        while ino <= Ino::ROOT.0 || self.entries.contains_key(&ino) {
            ino = (ino + 1) & !COMPUTED;
        }
        ino
    }
}

fn hashed(parent: Ino, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent.0, name).hash(&mut hasher);
    hasher.finish() & !COMPUTED
}

impl Default for Inodes {
    fn default() -> Inodes {
        Inodes::new(true)
    }
}

impl Inodes {
    /// Builds a table with the root in it; `computes` if no file is ever renamed.
    pub fn new(computes: bool) -> Inodes {
        let mut state = InodeTable {
            entries: HashMap::new(),
            by_name: HashMap::new(),
            by_identity: HashMap::new(),
            directories: HashMap::new(),
            last_directory: 0,
            dirs: LruCache::new(MAX_DIRS),
            changes: 0,
        };
        let root = InodeEntry {
            lookups: 1,
            ..InodeEntry::new()
        };
        state.entries.insert(Ino::ROOT.0, root);
        Inodes {
            state: Mutex::new(state),
            computes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, InodeTable> {
        self.state.lock()
    }

    /// Returns the path of an inode; `Changed` if it was forgotten, `NotFound` if its last name was removed.
    pub fn path(&self, ino: Ino) -> Result<Key> {
        self.lock().path(ino)
    }

    /// Returns a directory as the view resolved it, or its path if that is still to be done. Fails as `path` does.
    pub fn dir(&self, ino: Ino) -> Result<DirLookup> {
        let mut state = self.lock();
        if let Some(dir) = state.dirs.get(&ino.0) {
            return Ok(DirLookup::Resolved(dir.clone()));
        }
        Ok(DirLookup::Path(state.path(ino)?, state.changes))
    }

    /// Keeps what the path of a directory was resolved to, unless names have changed since it was asked for.
    pub fn keep_dir(&self, ino: Ino, dir: ViewDir, changes: u64) -> Arc<ViewDir> {
        let dir = Arc::new(dir);
        let mut state = self.lock();
        if state.changes == changes && state.entries.contains_key(&ino.0) {
            state.dirs.put(ino.0, dir.clone());
        }
        dir
    }

    /// Returns the directory and the name of an inode, nothing for the root. Fails as `path` does.
    pub fn name(&self, ino: Ino) -> Result<Option<(Ino, Box<[u8]>)>> {
        if ino == Ino::ROOT {
            return Ok(None);
        }
        let state = self.lock();
        if let Some((directory, name)) = computed_name(ino.0) {
            let parent = *state.directories.get(&directory).ok_or_else(|| gone(ino))?;
            return Ok(Some((Ino(parent), name.into_bytes().into_boxed_slice())));
        }
        let entry = state.entries.get(&ino.0).ok_or_else(|| gone(ino))?;
        let (parent, name) = entry.names.first().ok_or_else(|| nameless(ino))?;
        Ok(Some((Ino(*parent), name.clone())))
    }

    /// Returns the number of a name for a listing; nothing is held.
    pub fn peek(&self, parent: Ino, name: &[u8], kind: EntryKind) -> Ino {
        let numbered = self.computes.then(|| NumberedName::parse(name)).flatten();
        let mut state = self.lock();
        let computed = state.computed(parent, numbered.as_ref(), kind);
        computed.unwrap_or_else(|| Ino(state.number(parent, name)))
    }

    /// Returns the number of a name and counts a lookup of the kernel; `identity` is that of its file in the store, if
    /// it has one.
    pub fn look_up(
        &self,
        parent: Ino,
        name: &ChildName<'_>,
        kind: EntryKind,
        identity: Option<u64>,
    ) -> Ino {
        let mut state = self.lock();
        if self.computes
            && let Some(ino) = state.computed(parent, name.numbered.as_ref(), kind)
        {
            return ino;
        }
        let name = name.bytes;
        state.split_linked(parent, name, identity);
        let ino = state.number(parent, name);
        let entry = state.enter(ino, parent, name);
        entry.lookups += 1;
        if entry.names.len() > 1 {
            state.keep_one(ino, parent, name);
        }
        Ino(ino)
    }

    /// The same for a file that may have several names: all of them have one number.
    pub fn look_up_linked(&self, parent: Ino, name: &[u8], identity: u64) -> Ino {
        let mut state = self.lock();
        state.split_linked(parent, name, Some(identity));
        let known = state.by_name.get(&(parent.0, Box::from(name))).copied();
        let ino = known
            .or_else(|| state.by_identity.get(&identity).copied())
            .unwrap_or_else(|| state.number(parent, name));
        let entry = state.enter(ino, parent, name);
        entry.lookups += 1;
        let before = entry.identity.replace(identity);
        if let Some(before) = before.filter(|before| *before != identity) {
            state.by_identity.remove(&before);
        }
        state.by_identity.insert(identity, ino);
        Ino(ino)
    }

    /// Gives a file one more name, and counts a lookup of the kernel.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) {
        let mut state = self.lock();
        if state.entries.contains_key(&ino.0) {
            state.enter(ino.0, parent, name).lookups += 1;
        }
    }

    /// Notes the identity in the store of a file with several names.
    pub fn identify(&self, ino: Ino, identity: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&ino.0) {
            entry.identity = Some(identity);
            state.by_identity.insert(identity, ino.0);
        }
    }

    /// Removes a name; programs that have its file open still use it by its number.
    pub fn unlink(&self, parent: Ino, name: &[u8]) {
        let mut state = self.lock();
        if let Some(ino) = state.take(parent, name) {
            state.prune(ino);
        }
        state.prune(parent.0);
    }

    /// Gives the inode of one name another name; the inode that had that loses it, or gets the first name if
    /// `exchange`.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), exchange: bool) {
        let mut state = self.lock();
        let old = state.take(from.0, from.1);
        let new = state.take(to.0, to.1);
        if let Some(old) = old {
            state.enter(old, to.0, to.1);
        }
        match new {
            Some(new) if exchange => {
                state.enter(new, from.0, from.1);
            }
            Some(new) => state.prune(new),
            None => {}
        }
        state.prune(from.0.0);
    }

    /// Takes back lookups; an entry without lookups and children is dropped.
    pub fn forget(&self, ino: Ino, count: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&ino.0) {
            entry.lookups = entry.lookups.saturating_sub(count);
        }
        state.prune(ino.0);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether there is no entry; there always is that of the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the error of an inode whose last name was removed.
fn nameless(ino: Ino) -> Error {
    Error::not_found(format!("inode {}", ino.0))
}

/// Returns the error of an inode that the kernel has forgotten.
fn gone(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "is not known any more",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(name: &[u8]) -> ChildName<'_> {
        name.into()
    }

    #[test]
    fn listings_and_lookups_agree() {
        let inodes = Inodes::default();
        for name in [&b"a"[..], b"0.1", b"zarr.json", b"\xff"] {
            let listed = inodes.peek(Ino::ROOT, name, EntryKind::File);
            assert_eq!(
                inodes.look_up(Ino::ROOT, &child(name), EntryKind::File, None),
                listed
            );
        }
    }

    #[test]
    fn a_million_chunks_need_no_entry() {
        let inodes = Inodes::default();
        let directory = inodes.look_up(Ino::ROOT, &child(b"array"), EntryKind::Directory, None);
        for name in ["999999", "0.1023.1023", "c.7", "c0", "12.npy", "1.2.3.raw"] {
            let ino = inodes.look_up(directory, &child(name.as_bytes()), EntryKind::File, None);
            assert_eq!(
                inodes.path(ino).unwrap(),
                Key::new(format!("array/{name}")).unwrap()
            );
        }
        assert_eq!(inodes.len(), 2);
    }

    #[test]
    fn other_spellings_of_a_number_are_other_names() {
        let inodes = Inodes::default();
        let numbers: Vec<Ino> = [
            "01",
            "1",
            "1.",
            ".1",
            "1..2",
            "c",
            "99999999999999",
            "1.npyx",
        ]
        .iter()
        .map(|name| inodes.look_up(Ino::ROOT, &child(name.as_bytes()), EntryKind::File, None))
        .collect();
        for (place, ino) in numbers.iter().enumerate() {
            assert!(!numbers[..place].contains(ino));
        }
        assert_eq!(inodes.path(numbers[0]).unwrap().as_bytes(), b"01");
    }

    #[test]
    fn directories_named_by_numbers_lead_upwards() {
        let inodes = Inodes::default();
        let outer = inodes.look_up(Ino::ROOT, &child(b"0"), EntryKind::Directory, None);
        let inner = inodes.look_up(outer, &child(b"c.1"), EntryKind::Directory, None);
        let file = inodes.look_up(inner, &child(b"2"), EntryKind::File, None);
        assert_eq!(inodes.path(file).unwrap().as_bytes(), b"0/c.1/2");
        assert_eq!(inodes.peek(outer, b"c.1", EntryKind::Directory), inner);
    }

    #[test]
    fn renamed_folders_take_what_is_in_them_along() {
        let inodes = Inodes::new(false);
        let folder = inodes.look_up(Ino::ROOT, &child(b"a"), EntryKind::Directory, None);
        let file = inodes.look_up(folder, &child(b"0.1"), EntryKind::File, None);
        let other = inodes.look_up(Ino::ROOT, &child(b"b"), EntryKind::Directory, None);
        inodes.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"b"), false);
        assert_eq!(inodes.path(file).unwrap().as_bytes(), b"b/0.1");
        assert_eq!(inodes.path(other).unwrap_err().kind(), Kind::NotFound);
        let third = inodes.look_up(Ino::ROOT, &child(b"c"), EntryKind::Directory, None);
        inodes.rename((Ino::ROOT, b"b"), (Ino::ROOT, b"c"), true);
        assert_eq!(inodes.path(file).unwrap().as_bytes(), b"c/0.1");
        assert_eq!(inodes.path(third).unwrap().as_bytes(), b"b");
        for (ino, count) in [(other, 1), (file, 1), (folder, 1), (third, 1)] {
            inodes.forget(ino, count);
        }
        assert_eq!(inodes.len(), 1);
    }

    #[test]
    fn names_of_one_file_have_one_number() {
        let inodes = Inodes::new(false);
        let first = inodes.look_up_linked(Ino::ROOT, b"a", 7);
        assert_eq!(inodes.look_up_linked(Ino::ROOT, b"b", 7), first);
        inodes.unlink(Ino::ROOT, b"a");
        assert_eq!(inodes.path(first).unwrap().as_bytes(), b"b");
        inodes.unlink(Ino::ROOT, b"b");
        assert_eq!(inodes.path(first).unwrap_err().kind(), Kind::NotFound);
        assert_ne!(
            inodes.look_up(Ino::ROOT, &child(b"a"), EntryKind::File, None),
            first
        );
        inodes.forget(first, 2);
        assert_eq!(inodes.len(), 2);
    }

    #[test]
    fn names_that_are_linked_no_more_part() {
        let file = |inodes: &Inodes, name: &[u8], identity| {
            inodes.look_up(Ino::ROOT, &child(name), EntryKind::File, identity)
        };
        let path = |inodes: &Inodes, ino| inodes.path(ino).unwrap().as_bytes().to_vec();
        let linked = || {
            let inodes = Inodes::new(false);
            let both = inodes.look_up_linked(Ino::ROOT, b"a", 7);
            assert_eq!(inodes.look_up_linked(Ino::ROOT, b"b", 7), both);
            (inodes, both)
        };
        // Both are files of the store now.
        let (inodes, _) = linked();
        let (first, second) = (file(&inodes, b"a", None), file(&inodes, b"b", None));
        assert_ne!(first, second);
        assert_eq!(
            (path(&inodes, first), path(&inodes, second)),
            (b"a".to_vec(), b"b".to_vec())
        );
        // One is another file, and the other one what it was.
        let (inodes, both) = linked();
        assert_ne!(file(&inodes, b"a", Some(8)), both);
        assert_eq!(file(&inodes, b"b", Some(7)), both);
        assert_eq!(path(&inodes, both), b"b");
        // One is gone without a notice.
        let (inodes, both) = linked();
        assert_eq!(file(&inodes, b"b", Some(7)), both);
        assert_eq!(path(&inodes, both), b"b");
        // One is linked to another file.
        let (inodes, both) = linked();
        assert_ne!(inodes.look_up_linked(Ino::ROOT, b"a", 9), both);
        assert_eq!(inodes.look_up_linked(Ino::ROOT, b"b", 7), both);
    }

    #[test]
    fn forgotten_entries_go_with_their_parents() {
        let inodes = Inodes::default();
        let outer = inodes.look_up(Ino::ROOT, &child(b"a"), EntryKind::Directory, None);
        let inner = inodes.look_up(outer, &child(b"b"), EntryKind::File, None);
        inodes.forget(outer, 1);
        assert_eq!(inodes.path(inner).unwrap().as_bytes(), b"a/b");
        inodes.forget(inner, 1);
        assert_eq!(inodes.len(), 1);
        assert!(inodes.path(inner).is_err());
    }
}
