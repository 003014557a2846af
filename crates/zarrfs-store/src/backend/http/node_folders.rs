//! Remembers which folders of a web server are node folders.
//!
//! Index pages may hide v2 documents. These folders show where there can be none, so that they are not requested in
//! every folder of chunks.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::Key;
use zarr_format::model::document::{ZARR_JSON, ZARRAY, is_in_node_folder};

/// The kind of node in a folder, as its documents show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeFolder {
    /// A v3 node. If it is an array, its chunks are in folders `c`, `0`, `1` and so on.
    V3,
    /// An array of v2: all below it are chunks.
    V2Array,
}

/// The node folders, by key.
pub(super) struct NodeFolders(Mutex<LruCache<Key, NodeFolder>>);

impl Default for NodeFolders {
    fn default() -> NodeFolders {
        NodeFolders(Mutex::new(LruCache::new(
            const { NonZeroUsize::new(1 << 14).unwrap() },
        )))
    }
}

impl NodeFolders {
    /// Records that a document exists.
    pub(super) fn record_document(&self, key: &Key) {
        if let (Some(node), Some(folder)) = (node_of(key.name()), key.parent()) {
            let mut folders = self.0.lock();
            if node == NodeFolder::V3 || !folders.contains(&folder) {
                folders.put(folder, node);
            }
        }
    }

    /// Records all names in a folder.
    pub(super) fn record_names<'a>(&self, folder: &Key, names: impl Iterator<Item = &'a [u8]>) {
        let nodes: Vec<NodeFolder> = names.filter_map(node_of).collect();
        let is_of_v3 = nodes.contains(&NodeFolder::V3);
        let mut folders = self.0.lock();
        match nodes.first() {
            Some(_) if is_of_v3 => drop(folders.put(folder.clone(), NodeFolder::V3)),
            Some(node) => drop(folders.put(folder.clone(), *node)),
            None => drop(folders.pop(folder)),
        }
    }

    /// Removes the record that came from a document which may have been changed.
    pub(super) fn forget_document(&self, key: &Key) {
        if is_in_node_folder(key.name())
            && let Some(folder) = key.parent()
        {
            self.0.lock().pop(&folder);
        }
    }

    /// Whether a folder is inside an array, where there are no documents. A v3 node may be a group, so there only
    /// folders named like chunks count.
    pub(super) fn holds_chunks(&self, folder: &Key) -> bool {
        let mut folders = self.0.lock();
        let mut above = folder.parent();
        while let Some(node) = above {
            match folders.get(&node) {
                Some(NodeFolder::V2Array) => return true,
                Some(NodeFolder::V3) => {
                    return folder
                        .below(&node)
                        .is_some_and(|rest| has_chunk_names(&rest));
                }
                None => above = node.parent(),
            }
        }
        false
    }
}

fn node_of(document: &[u8]) -> Option<NodeFolder> {
    if document == ZARR_JSON.as_bytes() {
        Some(NodeFolder::V3)
    } else if document == ZARRAY.as_bytes() {
        Some(NodeFolder::V2Array)
    } else {
        None
    }
}

/// Whether a path below a v3 array may lead to chunks: `c/0/1`, or `0/1` with the chunk key encoding `v2`.
fn has_chunk_names(path: &Key) -> bool {
    let is_number = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    let mut names = path.names();
    names
        .next()
        .is_some_and(|name| name == b"c" || is_number(name))
        && names.all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn folders_of_chunks_lie_below_nodes() {
        let folders = NodeFolders::default();
        assert!(!folders.holds_chunks(&key("a/c/0")));
        folders.record_document(&key("a/zarr.json"));
        folders.record_document(&key("b/.zarray"));
        folders.record_document(&key("b/.zattrs"));
        for chunks in ["a/c", "a/c/0/1", "a/0/1", "b/x/0"] {
            assert!(folders.holds_chunks(&key(chunks)), "{chunks}");
        }
        for other in ["a", "b", "a/child", "a/c/child", "a/c/0/child", "x/c/0"] {
            assert!(!folders.holds_chunks(&key(other)), "{other}");
        }
    }

    #[test]
    fn the_nearest_node_counts() {
        let folders = NodeFolders::default();
        folders.record_document(&key("zarr.json"));
        folders.record_document(&key("c/zarr.json"));
        assert!(folders.holds_chunks(&key("c/0")));
        assert!(!folders.holds_chunks(&key("c/old")));
        folders.record_names(&key("c"), [b"0".as_slice(), b".zarray"].into_iter());
        assert!(folders.holds_chunks(&key("c/old")), "an array of v2 by now");
        folders.forget_document(&key("c/.zarray"));
        assert!(!folders.holds_chunks(&key("c/old")));
    }
}
