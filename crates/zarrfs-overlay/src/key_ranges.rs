//! Finds keys at and below a prefix, and joins keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use zarrfs_store::Key;

/// Returns the entries of keys at and below a prefix.
pub(super) fn below<'a, V>(
    map: &'a BTreeMap<Key, V>,
    prefix: &'a Key,
) -> impl Iterator<Item = (&'a Key, &'a V)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    // Keys are sorted by their bytes: `a-b` comes between `a` and `a/b`.
    map.range::<Key, _>(from)
        .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
        .filter(|(key, _)| key.below(prefix).is_some())
}

/// Returns the key `rest` below `prefix`.
pub(super) fn joined(prefix: &Key, rest: &Key) -> Key {
    let names = rest.names();
    names.fold(prefix.clone(), |key, name| {
        // Names of a key are valid names.
        key.child(name).unwrap_or(key)
    })
}
