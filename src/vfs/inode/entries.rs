//! Stores inode entries by number and by name.
//!
//! A known name costs an entry, its bytes, and an inode number in each of two tables that shrink when entries are
//! removed: at most 200 bytes for a name of ordinary length. The entry of an inode that has lost its name still has
//! that name.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use hashbrown::HashTable;

use zarrfs_store::EntryKind;

/// What is known about an inode.
pub(super) struct InodeEntry {
    ino: u64,
    /// Directory and name of the inode, or the last ones if the name was removed (`is_named`).
    parent: u64,
    name: Box<[u8]>,
    /// Number of the file (content number) that the last lookup found; `None` if it is unknown.
    pub(super) content: Option<NonZeroU64>,
    /// The kernel's lookup count of the inode.
    pub(super) lookups: u64,
    /// Number of named entries in the directory, if the inode is a directory.
    pub(super) children: u32,
    is_named: bool,
    /// File type that the last lookup found.
    pub(super) kind: EntryKind,
    /// File lengths that were sent to the kernel.
    pub(super) lengths: Lengths,
}

/// File lengths of one inode that were sent to the kernel. The kernel may ignore either of two overlapping replies, so
/// it certainly has a length only if all replies had that length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lengths {
    /// No length was sent to the kernel yet.
    #[default]
    None,
    /// All replies to the kernel had this file length.
    One(u64),
    /// All replies to the kernel had this file length, and an open relies on it.
    Kept(u64),
    /// Replies to the kernel had different file lengths.
    Several,
}

impl Lengths {
    /// Records a length that is sent to the kernel; returns whether an open relies on the kernel having another length.
    pub(super) fn add(&mut self, length: u64) -> bool {
        match *self {
            Lengths::None => *self = Lengths::One(length),
            Lengths::One(known) | Lengths::Kept(known) if known == length => {}
            Lengths::One(_) | Lengths::Several => *self = Lengths::Several,
            Lengths::Kept(_) => {
                *self = Lengths::Several;
                return true;
            }
        }
        false
    }

    /// Whether all replies to the kernel had this file length. If so, records that an open relies on it.
    pub(super) fn keep(&mut self, length: u64) -> bool {
        let is_one = matches!(*self, Lengths::One(known) | Lengths::Kept(known) if known == length);
        if is_one {
            *self = Lengths::Kept(length);
        }
        is_one
    }
}

impl InodeEntry {
    /// Returns the directory and the name of the inode, or the last ones if the name was removed.
    pub(super) fn last_name(&self) -> (u64, &[u8]) {
        (self.parent, &self.name)
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    fn has(&self, parent: u64, name: &[u8]) -> bool {
        self.is_named && self.last_name() == (parent, name)
    }
}

/// The entries of all inodes, found by number or by name.
#[derive(Default)]
pub(super) struct EntryTable {
    entries: HashTable<Box<InodeEntry>>,
    /// Inode numbers by the hash of directory and name; the names themselves are in the entries.
    by_name: HashTable<u64>,
}

/// Returns the hash of a directory's inode number and a name in it.
pub(super) fn hash_of(parent: u64, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    hasher.finish()
}

/// Returns the hash of an inode number. It spreads the 31 bits of the number, since the table uses the upper bits of
/// hashes.
fn spread(ino: u64) -> u64 {
    ino.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn find(entries: &HashTable<Box<InodeEntry>>, ino: u64) -> Option<&InodeEntry> {
    let found = entries.find(spread(ino), |entry| entry.ino == ino);
    found.map(Box::as_ref)
}

/// Returns the hash of the directory and the name of an inode.
fn name_hash(entries: &HashTable<Box<InodeEntry>>, ino: u64) -> u64 {
    find(entries, ino).map_or(0, |entry| hash_of(entry.parent, &entry.name))
}

impl EntryTable {
    pub(super) fn get(&self, ino: u64) -> Option<&InodeEntry> {
        find(&self.entries, ino)
    }

    pub(super) fn get_mut(&mut self, ino: u64) -> Option<&mut InodeEntry> {
        let found = self.entries.find_mut(spread(ino), |entry| entry.ino == ino);
        found.map(Box::as_mut)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the inode with this name in a directory.
    pub(super) fn named(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let is_it = |ino: &u64| {
            let entry = self.get(*ino);
            entry.is_some_and(|entry| entry.has(parent, name))
        };
        self.by_name.find(hash_of(parent, name), is_it).copied()
    }

    /// Gives a free name to an inode that has none; adds its entry if it is missing.
    pub(super) fn add_name(&mut self, ino: u64, parent: u64, name: &[u8]) {
        match self.get_mut(ino) {
            Some(entry) => {
                (entry.parent, entry.name, entry.is_named) = (parent, Box::from(name), true);
            }
            None => self.add_entry(ino, parent, name),
        }
        let entries = &self.entries;
        let hash = name_hash(entries, ino);
        self.by_name
            .insert_unique(hash, ino, |&ino| name_hash(entries, ino));
    }

    /// Adds the entry of the root directory, which has no name.
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
            is_named: true,
            kind: EntryKind::File,
            lengths: Lengths::None,
        };
        self.entries
            .insert_unique(spread(ino), Box::new(entry), |entry| spread(entry.ino));
    }

    /// Removes a name in a directory; returns the inode that had the name.
    pub(super) fn take_name(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let entries = &self.entries;
        let is_it = |ino: &u64| find(entries, *ino).is_some_and(|entry| entry.has(parent, name));
        let found = self.by_name.find_entry(hash_of(parent, name), is_it);
        let (ino, _) = found.ok()?.remove();
        if is_sparse(self.by_name.len(), self.by_name.capacity()) {
            let capacity = 2 * self.by_name.len();
            self.by_name
                .shrink_to(capacity, |&ino| name_hash(entries, ino));
        }
        if let Some(entry) = self.get_mut(ino) {
            entry.is_named = false;
        }
        Some(ino)
    }

    /// Removes the entry of an inode whose name was already removed.
    pub(super) fn remove(&mut self, ino: u64) {
        let found = self
            .entries
            .find_entry(spread(ino), |entry| entry.ino == ino);
        if let Ok(found) = found {
            found.remove();
        }
        if is_sparse(self.entries.len(), self.entries.capacity()) {
            let capacity = 2 * self.entries.len();
            self.entries.shrink_to(capacity, |entry| spread(entry.ino));
        }
    }

    /// Returns the memory of the tables and entries in bytes, for an allocator with 8 bytes of overhead for each block
    /// and 16-byte rounding.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let block = |bytes: usize| (bytes + 8).next_multiple_of(16).max(32);
        let entries = self.entries.iter();
        let entries = entries.map(|entry| block(size_of::<InodeEntry>()) + block(entry.name.len()));
        let tables = self.entries.allocation_size() + self.by_name.allocation_size();
        tables + entries.sum::<usize>()
    }
}

/// Whether a hash table has far more capacity than it needs; small tables never shrink.
pub(super) fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > 1024 && len < capacity / 8
}
