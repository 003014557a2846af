//! Paths of nodes that attributes have, as keys.

use zarr_format::error::Result;
use zarrfs_store::Key;

/// Returns the key of a path that is counted from a group.
pub(super) fn key_of(group: &Key, path: &str) -> Result<Key> {
    match (group.is_root(), path.trim_matches('/')) {
        (_, "" | ".") => Ok(group.clone()),
        (true, below) => Key::new(below),
        (false, below) => Key::new([group.as_bytes(), b"/", below.as_bytes()].concat()),
    }
}
