//! Folders out of one stream of keys: what a walk finds, told directory by directory.
//!
//! A folder is complete when a key after it has come, which holds where keys come byte by byte or folder by
//! folder in order; any other order ends the walk. Folders of which something is in doubt are left out, and so
//! is the one that the walk began in: whoever wants those asks the store.

use std::time::Instant;

use super::dir::{DirEntry, NameMap};
use crate::store::{EntryKind, Key, Meta};

/// A folder of which every name is known.
pub(super) struct AssembledDir {
    pub(super) prefix: Key,
    /// When the first of its names was asked for.
    pub(super) asked: Instant,
    pub(super) names: NameMap,
}

/// Folders under way.
pub(super) struct DirAssembler {
    /// From the top of the walk down to where it is.
    open: Vec<AssembledDir>,
    last: Option<Key>,
    by_bytes: bool,
    by_names: bool,
}

/// Keys came in no order that tells when a folder is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsorted;

impl DirAssembler {
    /// Begins a walk below `top`.
    pub(super) fn new(top: Key) -> DirAssembler {
        let top = AssembledDir {
            prefix: top,
            asked: Instant::now(),
            names: NameMap::new(),
        };
        DirAssembler {
            open: vec![top],
            last: None,
            by_bytes: true,
            by_names: true,
        }
    }

    /// Whether keys come folder by folder and not byte by byte.
    pub(super) fn is_by_names(&self) -> bool {
        !self.by_bytes
    }

    /// Takes the next object, of a page asked for at `asked`; returns the folders that are complete with it.
    pub(super) fn take(
        &mut self,
        key: Key,
        meta: Meta,
        asked: Instant,
    ) -> Result<Vec<AssembledDir>, Unsorted> {
        self.check_order(&key)?;
        let Some(parent) = key.parent() else {
            return Err(Unsorted);
        };
        let mut complete = Vec::new();
        while let Some(folder) = self
            .open
            .pop_if(|open| parent.below(&open.prefix).is_none())
        {
            complete.extend(finished(folder));
        }
        self.descend(&parent, asked)?;
        let entry = DirEntry {
            kind: EntryKind::File,
            cursor: 0,
            meta: Some(meta),
        };
        if let Some(folder) = self.open.last_mut() {
            folder.names.insert(key.name().into(), entry);
        }
        self.last = Some(key);
        // The top stays open to the end.
        match self.open.is_empty() {
            true => Err(Unsorted),
            false => Ok(complete),
        }
    }

    fn check_order(&mut self, key: &Key) -> Result<(), Unsorted> {
        if let Some(last) = &self.last {
            self.by_bytes &= last < key;
            self.by_names &= last.names().lt(key.names());
        }
        match self.by_bytes || self.by_names {
            true => Ok(()),
            false => Err(Unsorted),
        }
    }

    /// Opens the folders from the innermost open one down to `parent`.
    fn descend(&mut self, parent: &Key, asked: Instant) -> Result<(), Unsorted> {
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
                asked,
                names: NameMap::new(),
            });
        }
    }

    /// Ends the walk after the last key; returns the folders that are complete with that.
    pub(super) fn end(self) -> Vec<AssembledDir> {
        let mut open = self.open.into_iter();
        open.next();
        open.rev().filter_map(finished).collect()
    }

    /// The same where all keys of the top came: it is complete as well, unless there are none.
    pub(super) fn end_with_top(self) -> Vec<AssembledDir> {
        let has_names = |folder: &AssembledDir| !folder.names.is_empty();
        let open = self.open.into_iter().rev().filter(has_names);
        open.filter_map(finished).collect()
    }
}

/// Makes an object a directory, since keys lie below it. One without bytes may be the marker of the folder.
fn become_directory(entry: &mut DirEntry) {
    entry.kind = EntryKind::Directory;
    entry.meta = entry.meta.filter(|meta| meta.size > 0).map(|meta| Meta {
        kind: EntryKind::Directory,
        ..meta
    });
}

/// Orders the names as a listing has them; nothing if something may be an empty folder as well as an empty object.
fn finished(mut folder: AssembledDir) -> Option<AssembledDir> {
    let is_doubtful = |entry: &DirEntry| {
        entry.kind == EntryKind::File && entry.meta.is_none_or(|meta| meta.size == 0)
    };
    if folder.names.values().any(is_doubtful) {
        return None;
    }
    folder.names.sort_unstable_keys();
    for (entry, cursor) in folder.names.values_mut().zip(1..) {
        entry.cursor = cursor;
    }
    folder.names.shrink_to_fit();
    Some(folder)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::store::backend::memory::MemoryStore;
    use crate::store::{Store, Version};

    type Tree = BTreeMap<Key, BTreeMap<Vec<u8>, EntryKind>>;

    fn meta(size: u64) -> Meta {
        Meta {
            kind: EntryKind::File,
            size,
            version: Version(1),
            ..Meta::prefix()
        }
    }

    /// Returns the folders that a walk over keys in the given order finds, and how many before its end.
    fn gathered<'a>(keys: impl IntoIterator<Item = &'a Key>, size: u64) -> Option<(Tree, usize)> {
        let mut gather = DirAssembler::new(Key::root());
        let mut found = Vec::new();
        for key in keys {
            found.extend(gather.take(key.clone(), meta(size), Instant::now()).ok()?);
        }
        let early = found.len();
        found.extend(gather.end());
        let count = found.len();
        let tree: Tree = found
            .into_iter()
            .map(|folder| {
                let names = folder.names.into_iter();
                let kinds = names.map(|(name, entry)| (name.to_vec(), entry.kind));
                (folder.prefix, kinds.collect())
            })
            .collect();
        assert_eq!(tree.len(), count, "a folder was told twice");
        Some((tree, early))
    }

    /// Returns the same by a listing of each folder below the root.
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
            let mut listing = memory.list(&folder).unwrap();
            let mut names = BTreeMap::new();
            while let Some(name) = listing.next().unwrap() {
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
        fn a_walk_is_every_listing(
            keys in prop::collection::btree_set("[ab.0-]{1,2}(/[ab.0-]{1,2}){0,4}", 0..40)
        ) {
            let keys: BTreeSet<Key> = keys.iter().filter_map(|key| Key::new(key.as_str()).ok()).collect();
            let expected = listed(&keys);
            prop_assert_eq!(&gathered(&keys, 1).unwrap().0, &expected);
            prop_assert_eq!(&gathered(by_names(&keys), 1).unwrap().0, &expected);
        }
    }

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new(*name).unwrap()).collect()
    }

    #[test]
    fn disorder_ends_a_walk() {
        assert!(gathered(&keys(&["a/1", "b/1", "a/2"]), 1).is_none());
        assert!(gathered(&keys(&["a/1", "a/1"]), 1).is_none());
    }

    #[test]
    fn folders_are_told_once_they_are_passed() {
        let (tree, early) = gathered(&keys(&["a/1", "a/2", "b/1", "c"]), 1).unwrap();
        assert_eq!((tree.len(), early), (2, 2));
    }

    #[test]
    fn a_top_of_which_all_came_is_complete() {
        let top = || DirAssembler::new(Key::new("a").unwrap());
        assert!(top().end_with_top().is_empty(), "perhaps an object");
        let mut gather = top();
        for key in keys(&["a/1", "a/b/2"]) {
            gather.take(key, meta(1), Instant::now()).unwrap();
        }
        let told: Vec<Key> = gather
            .end_with_top()
            .into_iter()
            .map(|folder| folder.prefix)
            .collect();
        assert_eq!(told, keys(&["a/b", "a"]));
    }

    #[test]
    fn what_may_be_a_marker_is_left_in_doubt() {
        let (tree, _) = gathered(&keys(&["a/b", "c/d", "c/d/e"]), 0).unwrap();
        let told: Vec<&Key> = tree.keys().collect();
        assert_eq!(told, [&Key::new("c").unwrap()]);
        let mut gather = DirAssembler::new(Key::root());
        let now = Instant::now();
        for (key, size) in [("c/d", 0), ("c/d/e", 1)] {
            let told = gather.take(Key::new(key).unwrap(), meta(size), now);
            assert!(told.unwrap().is_empty());
        }
        let folders: Vec<AssembledDir> = gather.end();
        assert_eq!(folders.len(), 2);
        let entry = folders[1].names[b"d".as_slice()];
        assert_eq!(entry.kind, EntryKind::Directory);
        assert!(entry.meta.is_none());
    }
}
