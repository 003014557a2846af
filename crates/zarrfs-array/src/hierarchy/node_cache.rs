//! Caches the last nodes by path, within a memory budget.
//!
//! The memory of a node, with its metadata and the text of its attributes, is charged to the budget until its last user
//! drops it. If the budget has no room, the node is returned to the caller but not cached. The hierarchy decides
//! whether a cached answer is still valid.

use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::hierarchy::NodeEntry;
use zarrfs_store::sync::aged_map::{AgedMap, Minute};
use zarrfs_store::sync::budget::{Evict, MemoryBudget, Priority, Reservation};
use zarrfs_store::{Dependencies, Key, QueryStamp};

pub(super) struct CachedNode {
    found: Option<Arc<NodeEntry>>,
    /// When the store was asked for the oldest of the answer's documents.
    pub(super) stamp: QueryStamp,
    /// The keys whose change invalidates the answer.
    pub(super) depends: Dependencies,
    _room: Reservation,
}

pub(crate) struct CachedAnswer {
    pub(crate) found: Option<Arc<NodeEntry>>,
    /// The time when the store was asked for the oldest of the answer's documents.
    pub(crate) asked: Instant,
}

impl CachedNode {
    fn answer(&self) -> CachedAnswer {
        CachedAnswer {
            found: self.found.clone(),
            asked: self.stamp.request_time,
        }
    }

    /// Whether the cached node was read after the whole store had been replaced `replacements` times; true without a
    /// node.
    pub(super) fn is_of(&self, replacements: u64) -> bool {
        let found = self.found.as_ref();
        found.is_none_or(|found| found.replacements == replacements)
    }
}

pub(super) struct NodeCache {
    nodes: Mutex<AgedMap<Key, CachedNode>>,
    memory: Arc<MemoryBudget>,
}

impl NodeCache {
    /// Creates an empty node cache, whose memory is charged to a budget.
    pub(super) fn new(memory: Arc<MemoryBudget>) -> Arc<NodeCache> {
        let cache = Arc::new(NodeCache {
            nodes: Mutex::new(AgedMap::default()),
            memory,
        });
        let weak: Weak<NodeCache> = Arc::downgrade(&cache);
        cache.memory.register(Priority::Metadata, weak);
        cache
    }

    pub(super) fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// Returns the cached answer for a path, if `is_valid` accepts it.
    pub(super) fn get(
        &self,
        path: &Key,
        is_valid: impl Fn(&CachedNode) -> bool,
    ) -> Option<CachedAnswer> {
        let mut nodes = self.nodes.lock();
        let cached = nodes.get(path).filter(|cached| is_valid(cached))?;
        Some(cached.answer())
    }

    /// Returns the cached answer for a path, even if it is no longer valid.
    pub(super) fn peek(&self, path: &Key) -> Option<CachedAnswer> {
        self.nodes.lock().peek(path).map(CachedNode::answer)
    }

    /// Reserves memory for a node that was read, if the budget has room.
    pub(super) fn counted(&self, mut node: NodeEntry) -> NodeEntry {
        let bytes = bytes_of(&node);
        node.room = self.memory.try_reserve(bytes);
        node
    }

    /// Caches the answer for a path, if the budget has room for it and its node.
    pub(super) fn put(
        &self,
        path: &Key,
        found: Option<Arc<NodeEntry>>,
        stamp: QueryStamp,
        depends: Dependencies,
    ) {
        let is_counted = found.as_ref().is_none_or(|node| node.room.is_some());
        // An answer takes 320 bytes besides its node and its path.
        let bytes = 320 + 2 * path.as_bytes().len() as u64;
        let room = is_counted.then(|| self.memory.try_reserve(bytes)).flatten();
        let mut nodes = self.nodes.lock();
        let replaced = match room {
            Some(_room) => nodes.put(
                path.clone(),
                CachedNode {
                    found,
                    stamp,
                    depends,
                    _room,
                },
            ),
            None => nodes.pop(path),
        };
        drop(nodes);
        drop(replaced);
    }

    /// Renews the request time of a cached node that was found unchanged; returns false if it is no longer cached.
    pub(super) fn renew(&self, path: &Key, node: &Arc<NodeEntry>, stamp: QueryStamp) -> bool {
        let mut nodes = self.nodes.lock();
        let same = nodes.get(path).filter(|cached| {
            let found = cached.found.as_ref();
            found.is_some_and(|found| Arc::ptr_eq(found, node))
        });
        same.map(|cached| cached.stamp = stamp).is_some()
    }

    pub(super) fn forget(&self, path: &Key) {
        let forgotten = self.nodes.lock().pop(path);
        drop(forgotten);
    }

    /// Returns the names of the cached nodes directly below a path, sorted, each with the result of `property`.
    pub(super) fn names_below<T: Ord>(
        &self,
        path: &Key,
        property: impl Fn(&CachedNode) -> T,
    ) -> Vec<(Vec<u8>, T)> {
        let nodes = self.nodes.lock();
        let is_child = |key: &Key| key.parent().is_some_and(|parent| parent == *path);
        let known = nodes
            .iter()
            .filter(|(key, known)| known.found.is_some() && is_child(key));
        let named = known.map(|(key, known)| (key.name().to_vec(), property(known)));
        let mut names: Vec<_> = named.collect();
        names.sort();
        names
    }
}

impl Evict for NodeCache {
    fn evict_one(&self, before: Minute) -> bool {
        let evicted = self.nodes.lock().pop_unused(before);
        evicted.is_some()
    }
}

/// Returns the memory of a node in bytes. If the attributes share the text of their document, only the length of the
/// attributes is counted, because they are most of the document. The text of consolidated metadata is charged to the
/// budget elsewhere.
fn bytes_of(node: &NodeEntry) -> u64 {
    let path = 4 * node.path.as_bytes().len() as u64;
    let own = node.node.as_ref().map_or(0, |read| {
        read.attributes().text_bytes() + read.metadata_bytes()
    });
    // A node takes 768 bytes besides its text, its metadata and its path.
    768 + path + own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Hierarchy;
    use zarr_format::error::Kind;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};
    use zarrfs_store::stats::Stats;

    const LENGTH: u64 = 50_000;

    /// Creates a hierarchy of arrays with long attributes, whose nodes are cached within a budget; no node is read yet.
    fn hierarchy(memory: &Arc<MemoryBudget>) -> Hierarchy {
        let store = MemoryStore::default();
        let words = "x".repeat(usize::try_from(LENGTH).unwrap());
        for number in 0..50 {
            let array = format!(
                r#"{{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "int8", "fill_value": 0,
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [1]}}}},
                "chunk_key_encoding": {{"name": "default"}}, "codecs": [{{"name": "bytes"}}],
                "attributes": {{"words": "{words}"}}}}"#
            );
            let key = Key::new(format!("a{number}/zarr.json")).unwrap();
            store.set(key, array.into_bytes());
        }
        Hierarchy::new(Arc::new(store)).within(memory)
    }

    fn path(number: u32) -> Key {
        Key::new(format!("a{number}")).unwrap()
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn cached_nodes_stay_within_the_metadata_memory() {
        let memory = MemoryBudget::new(20 * LENGTH, Arc::new(Stats::default()));
        let hierarchy = hierarchy(&memory);
        for number in 0..50 {
            let found = hierarchy.node(&UNLIMITED, &path(number)).unwrap().unwrap();
            assert!(found.array().is_some());
            assert!(memory.held() > LENGTH && memory.held() <= 10 * LENGTH);
        }
        let is_kept = |number| hierarchy.nodes.peek(&path(number)).is_some();
        assert!(is_kept(49) && !is_kept(0));
        let _all = memory.try_reserve(20 * LENGTH).unwrap();
        assert!(!is_kept(49), "nodes give way to other memory");
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn a_node_counts_as_memory_until_its_last_holder_drops_it() {
        let memory = MemoryBudget::new(20 * LENGTH, Arc::new(Stats::default()));
        let hierarchy = hierarchy(&memory);
        let held = hierarchy.node(&UNLIMITED, &path(0)).unwrap().unwrap();
        while hierarchy.nodes.evict_one(Minute::NEVER) {}
        assert!(memory.held() > LENGTH && memory.held() < 2 * LENGTH);
        drop(held);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_node_without_memory_is_read_but_not_cached() {
        let memory = MemoryBudget::new(LENGTH, Arc::new(Stats::default()));
        let hierarchy = hierarchy(&memory);
        let found = hierarchy.node(&UNLIMITED, &path(0)).unwrap().unwrap();
        assert!(found.array().is_some() && found.room.is_none());
        let again = hierarchy.node(&WITHOUT_WAITING, &path(0));
        assert!(again.is_err_and(|error| error.kind() == Kind::WouldWait));
        assert!(memory.held() < LENGTH);
    }
}
