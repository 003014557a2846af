//! Assembles directories from the keys of a recursive listing.
//!
//! A directory is complete when a later key lies outside it. That requires that keys are sorted by bytes, or by names,
//! directory by directory; any other order is an error. A directory is omitted if it has a name that may be a file or
//! an empty directory. The directory where the listing began is omitted too, since the listing may begin in the middle
//! of it.

use std::time::Instant;

use super::cached_dir::{DirEntry, NameMap};
use crate::{EntryKind, Key, Meta};

/// A directory, and all names in it, from a recursive listing.
pub(super) struct AssembledDir {
    pub(super) prefix: Key,
    /// Time of the request for the listing's page that contains the first name.
    pub(super) request_time: Instant,
    pub(super) names: NameMap,
}

/// Assembles directories from a recursive ("flat") listing, which returns all keys below a prefix.
pub(super) struct DirAssembler {
    /// The incomplete directories: the listing's prefix, and the ancestors of the last key below it.
    open: Vec<AssembledDir>,
    last: Option<Key>,
    by_bytes: bool,
    by_names: bool,
}

/// The error for a store that lists its keys unsorted: no directory is ever known to be complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsorted;

impl DirAssembler {
    pub(super) fn new(top: Key) -> DirAssembler {
        let top = AssembledDir {
            prefix: top,
            request_time: Instant::now(),
            names: NameMap::new(),
        };
        DirAssembler {
            open: vec![top],
            last: None,
            by_bytes: true,
            by_names: true,
        }
    }

    /// Whether the listing sorts keys by names, directory by directory, instead of by bytes.
    pub(super) fn is_by_names(&self) -> bool {
        !self.by_bytes
    }

    /// Adds the listing's next object, from a page requested at `request_time`. Returns the directories that are now
    /// complete.
    pub(super) fn take(
        &mut self,
        key: Key,
        meta: Meta,
        request_time: Instant,
    ) -> Result<Vec<AssembledDir>, Unsorted> {
        self.check_order(&key)?;
        let Some(parent) = key.parent() else {
            return Err(Unsorted);
        };
        let mut complete = Vec::new();
        let is_passed = |open: &mut AssembledDir| parent.below(&open.prefix).is_none();
        while let Some(dir) = self.open.pop_if(is_passed) {
            complete.extend(finished(dir));
        }
        self.descend(&parent, request_time)?;
        let entry = DirEntry {
            kind: EntryKind::File,
            cursor: 0,
            meta: Some(meta),
        };
        if let Some(dir) = self.open.last_mut() {
            dir.names.insert(key.name().into(), entry);
        }
        self.last = Some(key);
        // Only a key outside the listing's prefix closes the top directory, and no sorted listing has such a key.
        if self.open.is_empty() {
            return Err(Unsorted);
        }
        Ok(complete)
    }

    fn check_order(&mut self, key: &Key) -> Result<(), Unsorted> {
        if let Some(last) = &self.last {
            self.by_bytes &= last < key;
            self.by_names &= last.names().lt(key.names());
        }
        if self.by_bytes || self.by_names {
            Ok(())
        } else {
            Err(Unsorted)
        }
    }

    /// Adds the incomplete directories between the deepest incomplete directory and `parent`.
    fn descend(&mut self, parent: &Key, request_time: Instant) -> Result<(), Unsorted> {
        loop {
            let open = self.open.last_mut().ok_or(Unsorted)?;
            let rest = parent.below(&open.prefix).ok_or(Unsorted)?;
            let Some(name) = rest.names().next() else {
                return Ok(());
            };
            let prefix = open.prefix.child(name).map_err(|_| Unsorted)?;
            let entry = open.names.entry(name.into());
            entry.and_modify(become_directory).or_insert(DirEntry {
                kind: EntryKind::Directory,
                cursor: 0,
                meta: Some(Meta::prefix()),
            });
            self.open.push(AssembledDir {
                prefix,
                request_time,
                names: NameMap::new(),
            });
        }
    }

    /// Returns the directories that the end of the listing completes.
    pub(super) fn end(self) -> Vec<AssembledDir> {
        let mut open = self.open.into_iter();
        open.next();
        open.rev().filter_map(finished).collect()
    }
}

/// Turns an object into a directory, since other keys lie below it. If the object is empty, it may be the marker of a
/// directory, so its metadata are unknown.
fn become_directory(entry: &mut DirEntry) {
    entry.kind = EntryKind::Directory;
    entry.meta = entry.meta.filter(|meta| meta.size > 0).map(|meta| Meta {
        kind: EntryKind::Directory,
        ..meta
    });
}

/// Sorts the names of a complete directory in listing order. Returns `None` if a name may be either an empty object or
/// the marker of an empty directory.
fn finished(mut dir: AssembledDir) -> Option<AssembledDir> {
    let is_doubtful = |entry: &DirEntry| {
        entry.kind == EntryKind::File && entry.meta.is_none_or(|meta| meta.size == 0)
    };
    if dir.names.values().any(is_doubtful) {
        return None;
    }
    dir.names.sort_unstable_keys();
    for (entry, cursor) in dir.names.values_mut().zip(1..) {
        entry.cursor = cursor;
    }
    dir.names.shrink_to_fit();
    Some(dir)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::backend::memory::MemoryStore;
    use crate::request_context::UNLIMITED;
    use crate::{Store, Version};

    type Tree = BTreeMap<Key, BTreeMap<Vec<u8>, EntryKind>>;

    fn meta(size: u64) -> Meta {
        Meta {
            kind: EntryKind::File,
            size,
            version: Version::numbered(1),
            ..Meta::prefix()
        }
    }

    /// Assembles directories from keys in the given order. Also returns how many of the directories were complete
    /// before the end of the listing.
    fn assembled<'a>(keys: impl IntoIterator<Item = &'a Key>, size: u64) -> Option<(Tree, usize)> {
        let mut assembler = DirAssembler::new(Key::root());
        let mut dirs = Vec::new();
        for key in keys {
            dirs.extend(
                assembler
                    .take(key.clone(), meta(size), Instant::now())
                    .ok()?,
            );
        }
        let early = dirs.len();
        dirs.extend(assembler.end());
        let count = dirs.len();
        let tree: Tree = dirs
            .into_iter()
            .map(|folder| {
                let names = folder.names.into_iter();
                let kinds = names.map(|(name, entry)| (name.to_vec(), entry.kind));
                (folder.prefix, kinds.collect())
            })
            .collect();
        assert_eq!(tree.len(), count, "a directory came twice");
        Some((tree, early))
    }

    fn listed(keys: &BTreeSet<Key>) -> Tree {
        let memory = MemoryStore::default();
        for key in keys {
            memory.set(key.clone(), vec![1]);
        }
        let folders = keys.iter().flat_map(|key| {
            std::iter::successors(key.parent(), Key::parent).filter(|folder| !folder.is_root())
        });
        let folders: BTreeSet<Key> = folders.collect();
        let list = |folder: Key| {
            let mut listing = memory.list(&UNLIMITED, &folder).unwrap();
            let mut names = BTreeMap::new();
            while let Some(name) = listing.next(&UNLIMITED).unwrap() {
                names.insert(name.name, name.kind);
            }
            (folder, names)
        };
        folders.into_iter().map(list).collect()
    }

    fn by_names(keys: &BTreeSet<Key>) -> Vec<&Key> {
        let mut keys: Vec<&Key> = keys.iter().collect();
        keys.sort_by(|one, other| one.names().cmp(other.names()));
        keys
    }

    proptest! {
        #[test]
        fn a_flat_listing_gives_the_listing_of_each_directory(
            keys in prop::collection::btree_set("[ab.0-]{1,2}(/[ab.0-]{1,2}){0,4}", 0..40)
        ) {
            let keys: BTreeSet<Key> = keys.iter().filter_map(|key| Key::new(key.as_str()).ok()).collect();
            let expected = listed(&keys);
            prop_assert_eq!(&assembled(&keys, 1).unwrap().0, &expected);
            prop_assert_eq!(&assembled(by_names(&keys), 1).unwrap().0, &expected);
        }
    }

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new(*name).unwrap()).collect()
    }

    #[test]
    fn unsorted_keys_are_an_error() {
        assert!(assembled(&keys(&["a/1", "b/1", "a/2"]), 1).is_none());
        assert!(assembled(&keys(&["a/1", "a/1"]), 1).is_none());
    }

    #[test]
    fn a_directory_is_complete_when_a_later_key_arrives() {
        let (tree, early) = assembled(&keys(&["a/1", "a/2", "b/1", "c"]), 1).unwrap();
        assert_eq!((tree.len(), early), (2, 2));
    }

    #[test]
    fn empty_objects_that_may_be_markers_are_left_out() {
        let (tree, _) = assembled(&keys(&["a/b", "c/d", "c/d/e"]), 0).unwrap();
        let prefixes: Vec<&Key> = tree.keys().collect();
        assert_eq!(prefixes, [&Key::new("c").unwrap()]);
        let mut assembler = DirAssembler::new(Key::root());
        let now = Instant::now();
        for (key, size) in [("c/d", 0), ("c/d/e", 1)] {
            let complete = assembler.take(Key::new(key).unwrap(), meta(size), now);
            assert!(complete.unwrap().is_empty());
        }
        let folders: Vec<AssembledDir> = assembler.end();
        assert_eq!(folders.len(), 2);
        let entry = folders[1].names[b"d".as_slice()];
        assert_eq!(entry.kind, EntryKind::Directory);
        assert!(entry.meta.is_none());
    }
}
