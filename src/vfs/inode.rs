//! Inode numbers: computed for files whose names are made of numbers (`computed`), from a table for the rest.
//!
//! A name of the table has an entry with the kernel's lookup count and goes when it is zero; its number is a hash
//! of directory and name, so that a listing can say it without holding anything.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::{Error, Kind, Result};
use crate::store::{EntryKind, Key};
use crate::vfs::computed::{COMPUTED, code_of, computed_name, number_of};

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
    /// Numbers of names that are made of numbers are computed: not where files get other names.
    computes: bool,
}

#[derive(Default)]
struct InodeTable {
    entries: HashMap<u64, InodeEntry>,
    by_name: HashMap<(u64, Box<[u8]>), u64>,
    /// Files that have several names, by what tells them apart below.
    by_identity: HashMap<u64, u64>,
    /// Directories that have a small number of their own, for the names in them that are computed.
    directories: HashMap<u64, u64>,
    last_directory: u64,
}

struct InodeEntry {
    /// Directory and name, several for a file with hard links; none once the last was removed.
    names: Vec<(u64, Box<[u8]>)>,
    identity: Option<u64>,
    lookups: u64,
    /// Entries that have this one for a parent.
    children: u64,
    /// The number as a directory of computed names; 0 if it has none yet.
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
    /// Returns the small number of a directory, given to it now if need be.
    fn directory(&mut self, ino: Ino) -> Option<u64> {
        let entry = self.entries.get_mut(&ino.0)?;
        if entry.directory == 0 {
            self.last_directory += 1;
            entry.directory = self.last_directory;
            self.directories.insert(entry.directory, ino.0);
        }
        Some(entry.directory)
    }

    /// Returns the computed number of a file. Directories have entries, so that a way leads up from them.
    fn computed(&mut self, parent: Ino, name: &[u8], kind: EntryKind) -> Option<Ino> {
        if kind != EntryKind::File {
            return None;
        }
        let code = code_of(name)?;
        let directory = self.directory(parent)?;
        number_of(directory, code).map(Ino)
    }

    /// Returns the entry of a number, made if there is none, with this name among its names.
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

    /// Takes a name from whoever has it.
    fn take(&mut self, parent: Ino, name: &[u8]) -> Option<u64> {
        let key = (parent.0, Box::from(name));
        let ino = self.by_name.remove(&key)?;
        if let Some(entry) = self.entries.get_mut(&ino) {
            entry.names.retain(|known| *known != key);
        }
        if let Some(parent) = self.entries.get_mut(&parent.0) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(ino)
    }

    /// Parts a name from the others of its entry if it is that of another file by now.
    fn part(&mut self, parent: Ino, name: &[u8], identity: Option<u64>) {
        let known = self.by_name.get(&(parent.0, Box::from(name)));
        let entry = known.and_then(|ino| self.entries.get(ino));
        if entry.is_some_and(|entry| entry.names.len() > 1 && entry.identity != identity) {
            self.take(parent, name);
        }
    }

    /// Takes all names of an entry but one: the file has that one only.
    fn keep_one(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        let names = self.entries.get(&ino).map(|entry| entry.names.clone());
        for (other, old) in names.unwrap_or_default() {
            if (other, &*old) != (parent.0, name) {
                self.take(Ino(other), &old);
            }
        }
    }

    /// Drops an entry that nobody knows any more, and those above it that only it held.
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

    /// Returns the number that a name has or would get.
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
    /// Builds a table with the root in it; `computes` where no file ever gets another name.
    pub fn new(computes: bool) -> Inodes {
        let mut state = InodeTable::default();
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

    /// Returns the path of an inode; `Changed` if the kernel asks for one it has given back.
    pub fn path(&self, ino: Ino) -> Result<Key> {
        let state = self.lock();
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut at = ino.0;
        if let Some((directory, name)) = computed_name(at) {
            names.push(name.into_bytes().into_boxed_slice());
            at = *state.directories.get(&directory).ok_or_else(|| gone(ino))?;
        }
        while at != Ino::ROOT.0 {
            let entry = state.entries.get(&at).ok_or_else(|| gone(ino))?;
            let (parent, name) = entry.names.first().ok_or_else(|| nameless(ino))?;
            names.push(name.clone());
            at = *parent;
        }
        names.reverse();
        Key::new(names.join(&b'/'))
    }

    /// Returns the number of a name for a listing, which holds nothing.
    pub fn peek(&self, parent: Ino, name: &[u8], kind: EntryKind) -> Ino {
        let mut state = self.lock();
        let computed = match self.computes {
            true => state.computed(parent, name, kind),
            false => None,
        };
        computed.unwrap_or_else(|| Ino(state.number(parent, name)))
    }

    /// Returns the number of a name and counts a lookup of the kernel; `identity` tells its file from others, if
    /// something does.
    pub fn look_up(&self, parent: Ino, name: &[u8], kind: EntryKind, identity: Option<u64>) -> Ino {
        let mut state = self.lock();
        if self.computes
            && let Some(ino) = state.computed(parent, name, kind)
        {
            return ino;
        }
        state.part(parent, name, identity);
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
        state.part(parent, name, Some(identity));
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

    /// Says by what a file with several names is told from others.
    pub fn identify(&self, ino: Ino, identity: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&ino.0) {
            entry.identity = Some(identity);
            state.by_identity.insert(identity, ino.0);
        }
    }

    /// Takes a name away; who has its file open still knows it by its number.
    pub fn unlink(&self, parent: Ino, name: &[u8]) {
        let mut state = self.lock();
        if let Some(ino) = state.take(parent, name) {
            state.prune(ino);
        }
        state.prune(parent.0);
    }

    /// Gives what has one name another; what had that loses it, or gets the first one if `exchange`.
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

    /// Gives back lookups; an entry without any, and without children, goes.
    pub fn forget(&self, ino: Ino, count: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(&ino.0) {
            entry.lookups = entry.lookups.saturating_sub(count);
        }
        state.prune(ino.0);
    }

    /// Returns how many entries the table holds.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether the table is empty; it never is, the root stays.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Says that a file was removed which somebody still knows.
fn nameless(ino: Ino) -> Error {
    Error::not_found(format!("inode {}", ino.0))
}

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

    #[test]
    fn listings_and_lookups_agree() {
        let inodes = Inodes::default();
        for name in [&b"a"[..], b"0.1", b"zarr.json", b"\xff"] {
            let listed = inodes.peek(Ino::ROOT, name, EntryKind::File);
            assert_eq!(
                inodes.look_up(Ino::ROOT, name, EntryKind::File, None),
                listed
            );
        }
    }

    #[test]
    fn a_million_chunks_need_no_entry() {
        let inodes = Inodes::default();
        let directory = inodes.look_up(Ino::ROOT, b"array", EntryKind::Directory, None);
        for name in ["999999", "0.1023.1023", "c.7", "c0", "12.npy", "1.2.3.raw"] {
            let ino = inodes.look_up(directory, name.as_bytes(), EntryKind::File, None);
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
        .map(|name| inodes.look_up(Ino::ROOT, name.as_bytes(), EntryKind::File, None))
        .collect();
        for (place, ino) in numbers.iter().enumerate() {
            assert!(!numbers[..place].contains(ino));
        }
        assert_eq!(inodes.path(numbers[0]).unwrap().as_bytes(), b"01");
    }

    #[test]
    fn directories_named_by_numbers_lead_upwards() {
        let inodes = Inodes::default();
        let outer = inodes.look_up(Ino::ROOT, b"0", EntryKind::Directory, None);
        let inner = inodes.look_up(outer, b"c.1", EntryKind::Directory, None);
        let file = inodes.look_up(inner, b"2", EntryKind::File, None);
        assert_eq!(inodes.path(file).unwrap().as_bytes(), b"0/c.1/2");
        assert_eq!(inodes.peek(outer, b"c.1", EntryKind::Directory), inner);
    }

    #[test]
    fn renamed_folders_take_what_is_in_them_along() {
        let inodes = Inodes::new(false);
        let folder = inodes.look_up(Ino::ROOT, b"a", EntryKind::Directory, None);
        let file = inodes.look_up(folder, b"0.1", EntryKind::File, None);
        let other = inodes.look_up(Ino::ROOT, b"b", EntryKind::Directory, None);
        inodes.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"b"), false);
        assert_eq!(inodes.path(file).unwrap().as_bytes(), b"b/0.1");
        assert_eq!(inodes.path(other).unwrap_err().kind(), Kind::NotFound);
        let third = inodes.look_up(Ino::ROOT, b"c", EntryKind::Directory, None);
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
            inodes.look_up(Ino::ROOT, b"a", EntryKind::File, None),
            first
        );
        inodes.forget(first, 2);
        assert_eq!(inodes.len(), 2);
    }

    #[test]
    fn names_that_are_linked_no_more_part() {
        let file = |inodes: &Inodes, name: &[u8], identity| {
            inodes.look_up(Ino::ROOT, name, EntryKind::File, identity)
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
        // One is gone, and nobody said so.
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
        let outer = inodes.look_up(Ino::ROOT, b"a", EntryKind::Directory, None);
        let inner = inodes.look_up(outer, b"b", EntryKind::File, None);
        inodes.forget(outer, 1);
        assert_eq!(inodes.path(inner).unwrap().as_bytes(), b"a/b");
        inodes.forget(inner, 1);
        assert_eq!(inodes.len(), 1);
        assert!(inodes.path(inner).is_err());
    }
}
