//! The entries of inodes, found by number and by name.
//!
//! A name costs an entry, its bytes, and a number in each of two tables that shrink when entries go: at most 200 bytes
//! for a name of ordinary length. An entry that has lost its last name remembers it. Further names of a file with
//! several are in `links`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use hashbrown::HashTable;

use crate::vfs::inode::links::HardLinks;

/// What is known of an inode.
pub(super) struct InodeEntry {
    ino: u64,
    /// Directory and name; the last ones that there were if `is_named` is not set.
    parent: u64,
    name: Box<[u8]>,
    /// The content that was found at the last lookup; nothing if it is unknown.
    pub(super) content: Option<NonZeroU64>,
    /// How often the kernel has looked the inode up.
    pub(super) lookups: u64,
    /// Number of names in this directory that have an entry.
    pub(super) children: u32,
    /// Its small number as a directory of computed names; 0 if it has none yet.
    pub(super) directory: u32,
    is_named: bool,
    pub(super) is_directory: bool,
}

impl InodeEntry {
    /// Returns the directory and the first name, or the last one that there was.
    pub(super) fn last_name(&self) -> (u64, &[u8]) {
        (self.parent, &self.name)
    }

    /// Whether the inode has a name.
    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    fn has(&self, parent: u64, name: &[u8]) -> bool {
        self.is_named && self.last_name() == (parent, name)
    }
}

/// The entries.
#[derive(Default)]
pub(super) struct EntryTable {
    entries: HashTable<Box<InodeEntry>>,
    /// The numbers of entries by their first names, which are compared in the entries.
    by_name: HashTable<u64>,
    pub(super) links: HardLinks,
}

/// Returns the number that a name gets if no other inode has it.
pub(super) fn hash_of(parent: u64, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    hasher.finish()
}

fn find(entries: &HashTable<Box<InodeEntry>>, ino: u64) -> Option<&InodeEntry> {
    // The number of an entry is a hash already.
    let found = entries.find(ino, |entry| entry.ino == ino);
    found.map(Box::as_ref)
}

/// Returns the hash of the first name of an entry.
fn name_hash(entries: &HashTable<Box<InodeEntry>>, ino: u64) -> u64 {
    find(entries, ino).map_or(0, |entry| hash_of(entry.parent, &entry.name))
}

impl EntryTable {
    pub(super) fn get(&self, ino: u64) -> Option<&InodeEntry> {
        find(&self.entries, ino)
    }

    pub(super) fn get_mut(&mut self, ino: u64) -> Option<&mut InodeEntry> {
        let found = self.entries.find_mut(ino, |entry| entry.ino == ino);
        found.map(Box::as_mut)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the inode that has a name.
    pub(super) fn named(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let is_it = |ino: &u64| {
            let entry = self.get(*ino);
            entry.is_some_and(|entry| entry.has(parent, name))
        };
        let found = self.by_name.find(hash_of(parent, name), is_it).copied();
        found.or_else(|| self.links.find(parent, name))
    }

    /// Gives an inode a name that no inode has; makes its entry if there is none.
    pub(super) fn add_name(&mut self, ino: u64, parent: u64, name: &[u8]) {
        match self.get_mut(ino) {
            Some(entry) if entry.is_named => self.links.add(ino, parent, name),
            Some(entry) => {
                (entry.parent, entry.name, entry.is_named) = (parent, Box::from(name), true);
                self.add_first_name(ino);
            }
            None => {
                self.add_entry(ino, parent, name);
                self.add_first_name(ino);
            }
        }
    }

    /// Makes the entry of the root, which has no name.
    pub(super) fn add_root(&mut self, ino: u64) {
        self.add_entry(ino, 0, b"");
    }

    fn add_entry(&mut self, ino: u64, parent: u64, name: &[u8]) {
        let entry = InodeEntry {
            ino,
            parent,
            name: Box::from(name),
            content: None,
            lookups: 0,
            children: 0,
            directory: 0,
            is_named: true,
            is_directory: false,
        };
        self.entries
            .insert_unique(ino, Box::new(entry), |entry| entry.ino);
    }

    fn add_first_name(&mut self, ino: u64) {
        let entries = &self.entries;
        let hash = name_hash(entries, ino);
        self.by_name
            .insert_unique(hash, ino, |&ino| name_hash(entries, ino));
    }

    /// Takes a name from its inode, which is returned.
    pub(super) fn take_name(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let Some(ino) = self.remove_first_name(parent, name) else {
            return self.links.take(parent, name);
        };
        let next = self.links.take_first(ino);
        if let Some(entry) = self.get_mut(ino) {
            entry.is_named = next.is_some();
            if let Some(next) = next {
                (entry.parent, entry.name) = next;
                self.add_first_name(ino);
            }
        }
        Some(ino)
    }

    fn remove_first_name(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let entries = &self.entries;
        let is_it = |ino: &u64| find(entries, *ino).is_some_and(|entry| entry.has(parent, name));
        let found = self.by_name.find_entry(hash_of(parent, name), is_it);
        let (ino, _) = found.ok()?.remove();
        if is_sparse(self.by_name.len(), self.by_name.capacity()) {
            let room = 2 * self.by_name.len();
            self.by_name.shrink_to(room, |&ino| name_hash(entries, ino));
        }
        Some(ino)
    }

    /// Removes an entry that has no name any more, or is the last of its kind; its names have to be taken first.
    pub(super) fn remove(&mut self, ino: u64) -> Option<Box<InodeEntry>> {
        let found = self.entries.find_entry(ino, |entry| entry.ino == ino);
        let (entry, _) = found.ok()?.remove();
        self.links.forget_identity(ino);
        if is_sparse(self.entries.len(), self.entries.capacity()) {
            let room = 2 * self.entries.len();
            self.entries.shrink_to(room, |entry| entry.ino);
        }
        Some(entry)
    }

    /// Returns how much memory the tables and entries take, as an allocator counts it that keeps 8 bytes of its own with
    /// each block and rounds up to 16.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let block = |bytes: usize| (bytes + 8).next_multiple_of(16).max(32);
        let entries = self.entries.iter();
        let entries = entries.map(|entry| block(size_of::<InodeEntry>()) + block(entry.name.len()));
        let tables = self.entries.allocation_size() + self.by_name.allocation_size();
        tables + entries.sum::<usize>()
    }

    /// Returns the names of an inode.
    pub(super) fn names(&self, ino: u64) -> Vec<(u64, Box<[u8]>)> {
        let entry = self.get(ino).filter(|entry| entry.is_named);
        let first = entry.map(|entry| (entry.parent, entry.name.clone()));
        let further = self.links.names(ino).iter().cloned();
        first.into_iter().chain(further).collect()
    }
}

/// The least room of a table that shrinks.
const MIN_SHRUNK: usize = 1 << 10;

/// Whether a table has far more room than it needs.
pub(super) fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > MIN_SHRUNK && len < capacity / 8
}
