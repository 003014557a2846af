//! Converts paths of nodes in attributes to keys.

use zarr_format::error::Result;
use zarrfs_store::Key;

/// Returns the key of a path relative to a group.
pub(super) fn key_of(group: &Key, path: &str) -> Result<Key> {
    match (group.is_root(), path.trim_matches('/')) {
        (_, "" | ".") => Ok(group.clone()),
        (true, below) => Key::new(below),
        (false, below) => Key::new([group.as_bytes(), b"/", below.as_bytes()].concat()),
    }
}
