//! Finds faults in the metadata documents, attributes, names and keys of a store.

use zarr_format::error::Result;
use zarrfs_store::Key;

pub(crate) mod anndata;
pub(crate) mod consolidated;
pub(crate) mod datasets;
pub(crate) mod documents;
pub(crate) mod foreign;
pub(crate) mod hints;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod ome;

/// Returns the key of a path that is relative to a group.
pub(crate) fn key_of(group: &Key, path: &str) -> Result<Key> {
    match (group.is_root(), path.trim_matches('/')) {
        (_, "" | ".") => Ok(group.clone()),
        (true, below) => Key::new(below),
        (false, below) => Key::new([group.as_bytes(), b"/", below.as_bytes()].concat()),
    }
}
