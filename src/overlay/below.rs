//! What the store has below a prefix: the objects and the folders, whole lists of them.

use std::collections::HashSet;

use crate::error::{Kind, Result};
use crate::store::{EntryKind, Key, Meta, Store};

/// The key of an object, and what the listing tells of it.
type ListedObject = (Key, Option<Meta>);

/// Returns the keys of all objects at and below a prefix of a store, and what a listing tells of each.
pub(super) fn stored_below(store: &dyn Store, prefix: &Key) -> Result<Vec<ListedObject>> {
    match store.head(prefix)? {
        Some(meta) if meta.kind != EntryKind::Directory => Ok(vec![(prefix.clone(), Some(meta))]),
        _ => Ok(walk(store, prefix)?.0),
    }
}

/// Returns a folder of a store and all below it, each before those in it.
pub(super) fn stored_folders(store: &dyn Store, prefix: &Key) -> Result<Vec<Key>> {
    Ok(walk(store, prefix)?.1)
}

/// Returns the objects below a prefix, and the folders that they are in.
fn walk(store: &dyn Store, prefix: &Key) -> Result<(Vec<ListedObject>, Vec<Key>)> {
    let (mut objects, mut seen) = (Vec::new(), Vec::new());
    let mut folders = match store.head(prefix)? {
        Some(meta) if meta.kind == EntryKind::Directory => vec![prefix.clone()],
        _ => Vec::new(),
    };
    while let Some(folder) = folders.pop() {
        let mut names = match store.list(&folder) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => continue,
            names => names?,
        };
        // A listing of a folder that changes may have a name twice.
        let mut within = HashSet::new();
        while let Some(name) = names.next()? {
            let key = folder.child(&name.name)?;
            match name.kind {
                EntryKind::Directory if within.insert(key.clone()) => folders.push(key),
                EntryKind::File => objects.push((key, name.meta)),
                _ => {}
            }
        }
        seen.push(folder);
    }
    Ok((objects, seen))
}
