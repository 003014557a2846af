//! Finds the groups and arrays of a store and caches them.
//!
//! Nodes are found from the root down: each passes a `ChildScope` on to its children, so that an entry point governs
//! the nodes below it. A cached node is valid for the TTL of the store, counted from the request for the oldest of its
//! documents, unless one of its documents is changed through the store. Then its documents are read again, and the node
//! keeps its identity if they did not change. Cached nodes count in a memory budget.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use crate::hierarchy::document_locks::DocumentLocks;
use crate::hierarchy::node_cache::{CachedNode, NodeCache};
use crate::hierarchy::scope::{ChildScope, Rule};
use zarr_format::dialect::{Choice, DIALECTS};
use zarr_format::error::Result;
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Dependencies, Hints, Key, NoHints, Store};

mod asked_documents;
mod broken;
mod children;
mod consolidated;
mod consolidation;
mod copied;
mod detect;
mod document_locks;
mod edit;
mod format;
mod named_children;
mod node_cache;
mod node_entry;
mod publish;
mod read;
mod reading;
mod rebuild;
mod scope;

pub use broken::{BrokenDocument, BrokenNode};
pub use copied::{Copied, DocumentCopy};
pub use edit::{EditedNode, SeenNode};
pub use node_entry::NodeEntry;
pub use publish::DocumentVersions;
pub use rebuild::RebuiltCopies;

/// The longest metadata document that is read, 64 MiB.
pub const MAX_DOCUMENT: u64 = zarr_format::dialect::consolidated::MAX_DOCUMENT;

/// The memory limit of cached nodes in bytes, unless the configuration has another one.
const USUAL_MEMORY: u64 = 256 << 20;

/// Nodes may use 1/N of the budget.
const NODES_SHARE: u64 = 2;

/// The upper limit for cached nodes, in bytes: twice the longest document, so that each document can be cached.
const MAX_NODES_BYTES: u64 = 2 * MAX_DOCUMENT;

/// The warning about a symbolic link to one of its own ancestors.
pub const LEADS_BACK: &str = "a symbolic link to a folder that it lies in, which is left out";

/// The maximum number of different warnings that are logged.
const MAX_WARNINGS: usize = 256;

/// How the nodes of a store are found.
#[derive(Clone, Debug, Default)]
pub struct HierarchyConfig {
    /// The dialect, or `None` to detect it from the documents.
    pub dialect: Option<Choice>,
    /// Whether to use consolidated metadata even if the store can list its keys.
    pub consolidated: bool,
}

/// The nodes of a store.
pub struct Hierarchy {
    store: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    /// Whether the store is a directory tree that programs can change.
    is_tree: bool,
    /// Whether programs can change documents through this store or through a layer above it.
    may_change: bool,
    config: HierarchyConfig,
    nodes: Arc<NodeCache>,
    /// Held while documents are edited.
    editing: DocumentLocks,
    /// The warnings that were logged, each with the first path that it was about.
    warned: Mutex<HashMap<String, Key>>,
    /// The errors of consolidated metadata that could not be read.
    unread_copies: Mutex<BTreeSet<String>>,
}

impl Hierarchy {
    /// Creates the hierarchy of a store and detects the dialects from its documents. Sends no request.
    pub fn new(store: Arc<dyn Store>) -> Hierarchy {
        Hierarchy::configured(store, HierarchyConfig::default())
    }

    /// Creates the hierarchy of a store with a configuration. Sends no request.
    pub fn configured(store: Arc<dyn Store>, config: HierarchyConfig) -> Hierarchy {
        Hierarchy {
            store,
            hints: Arc::new(NoHints),
            is_tree: false,
            may_change: false,
            config,
            nodes: NodeCache::new(MemoryBudget::new(USUAL_MEMORY, Arc::default())),
            editing: DocumentLocks::default(),
            warned: Mutex::default(),
            unread_copies: Mutex::default(),
        }
    }

    /// Uses the hints of the store.
    pub fn with_hints(mut self, hints: Arc<dyn Hints>) -> Hierarchy {
        self.hints = hints;
        self
    }

    /// Counts cached nodes in a budget.
    pub fn within(mut self, memory: &Arc<MemoryBudget>) -> Hierarchy {
        let most = MAX_NODES_BYTES.min(memory.limit() / NODES_SHARE);
        self.nodes = NodeCache::new(memory.part(most));
        self
    }

    /// Marks the store as a directory tree that programs change.
    pub fn of_tree(mut self) -> Hierarchy {
        self.may_change = true;
        self.is_tree = true;
        self
    }

    /// Never reads a copy in place of a stored document, since programs change the store through a layer above this
    /// one.
    pub fn below_changes(mut self) -> Hierarchy {
        self.may_change = true;
        self
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the hints of the store, which need no request.
    pub fn hints(&self) -> &dyn Hints {
        &*self.hints
    }

    /// Returns the valid cached answer for a path and the time of its request; sends no request.
    pub(crate) fn cached_at(&self, path: &Key) -> Option<(Option<Arc<NodeEntry>>, Instant)> {
        let info = self.store.info();
        let is_valid = |cached: &CachedNode| {
            let CachedNode { stamp, depends, .. } = cached;
            info.is_fresh(stamp.request_time)
                && !info.changes.any_changed_since(stamp.position, depends)
                && cached.is_of(info.archive_generation.number())
        };
        self.nodes.get(path, is_valid)
    }

    /// Returns the cached node at a path, or `Unknown`; sends no request.
    fn cached(&self, context: &RequestContext, path: &Key) -> Presence<Arc<NodeEntry>> {
        match self.cached_at(path) {
            None => Presence::Unknown,
            Some((found, asked)) => {
                context.record_age(asked);
                found.into()
            }
        }
    }

    /// Returns the node at a path, or `None` if it does not exist. A directory without documents is a group.
    pub fn node(&self, context: &RequestContext, path: &Key) -> Result<Option<Arc<NodeEntry>>> {
        match self.cached(context, path) {
            Presence::Unknown => context.check_may_wait()?,
            known => return Ok(known.value()),
        }
        let mut found = self.root(context)?;
        for name in path.names() {
            found = match found {
                Some(parent) => self.child(context, &parent, name)?,
                None => return Ok(None),
            };
        }
        Ok(found)
    }

    /// Returns the root node.
    pub fn root(&self, context: &RequestContext) -> Result<Option<Arc<NodeEntry>>> {
        let dialects = match self.config.dialect {
            Some(Choice::Plain(dialects)) => dialects,
            Some(Choice::Draft(_)) | None => DIALECTS,
        };
        let scope = ChildScope {
            rule: Rule::Plain(dialects),
            store: self.store.clone(),
            hints: self.hints.clone(),
            depends: Dependencies::default(),
            consolidated: None,
            unread_copies: None,
            version: 0,
        };
        self.cached_or_read(context, &Key::root(), &scope)
    }

    /// Returns a child of a node by name, or `None` if it does not exist. Arrays have no children.
    pub fn child(
        &self,
        context: &RequestContext,
        parent: &NodeEntry,
        name: &[u8],
    ) -> Result<Option<Arc<NodeEntry>>> {
        if parent.is_array() {
            return Ok(None);
        }
        self.cached_or_read(context, &parent.path.child(name)?, &parent.scope)
    }

    /// Returns the node at a path from the cache, or reads it.
    fn cached_or_read(
        &self,
        context: &RequestContext,
        path: &Key,
        scope: &ChildScope,
    ) -> Result<Option<Arc<NodeEntry>>> {
        match self.cached(context, path) {
            Presence::Unknown => context.check_may_wait()?,
            known => return Ok(known.value()),
        }
        let old = self.nodes.peek(path).and_then(|(found, _)| found);
        if let Some(old) = &old {
            let (is_unchanged, stamp) = self.store.info().ask(context, |context| {
                self.note_scope(context, path, scope);
                self.is_unchanged(context, old, scope)
            });
            if is_unchanged? && self.nodes.renew(path, old, stamp) {
                return Ok(Some(old.clone()));
            }
        }
        let read = |context: &RequestContext| {
            self.note_scope(context, path, scope);
            self.read(context, path, scope, old.as_deref())
        };
        let (read, stamp) = self.store.info().ask(context, read);
        let (found, depends) = read?;
        let found = match (found, old) {
            (Some(new), Some(old)) if new.is_same_as(&old) => Some(old),
            (new, _) => new.map(|new| Arc::new(self.nodes.counted(new))),
        };
        self.nodes.put(path, found.clone(), stamp, depends);
        Ok(found)
    }

    /// Reports the age of the documents above, if the scope of a node was read from them.
    fn note_scope(&self, context: &RequestContext, path: &Key, scope: &ChildScope) {
        let is_plain = matches!(scope.rule, Rule::Plain(_)) && scope.consolidated.is_none();
        if let Some(above) = path.parent().filter(|_| !is_plain)
            && let Some((_, asked)) = self.nodes.peek(&above)
        {
            context.record_age(asked);
        }
    }

    /// Logs a warning about a node, each different warning once.
    fn warn(&self, path: &Key, warning: Option<String>) {
        let Some(warning) = warning else { return };
        let mut warned = self.warned.lock();
        if warned.len() < MAX_WARNINGS && !warned.contains_key(&warning) {
            log::warn!("{path}: {warning}");
            warned.insert(warning, path.clone());
        }
    }

    /// Returns the first symbolic link that was left out because it leads to one of its own ancestors.
    pub fn link_back(&self) -> Option<Key> {
        self.warned.lock().get(LEADS_BACK).cloned()
    }

    /// Returns the errors of consolidated metadata that could not be read, each with its key.
    pub fn unread_copies(&self) -> Vec<String> {
        self.unread_copies.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::model::Node;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;

    fn with(documents: &[(&str, &str)]) -> Hierarchy {
        let memory = MemoryStore::default();
        for (key, text) in documents {
            memory.set(Key::new(*key).unwrap(), text.as_bytes().to_vec());
        }
        Hierarchy::new(Arc::new(memory))
    }

    const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;

    #[test]
    fn dialects_may_be_mixed() {
        let hierarchy = with(&[
            ("zarr.json", GROUP),
            ("old/.zgroup", r#"{"zarr_format": 2}"#),
        ]);
        for path in ["", "old"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(matches!(found.node, Ok(Node::Group(_))), "{path}");
        }
        assert!(
            hierarchy
                .node(&UNLIMITED, &Key::new("none").unwrap())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_broken_document_is_a_broken_node() {
        let hierarchy = with(&[("zarr.json", GROUP), ("bad/zarr.json", "{")]);
        let found = hierarchy
            .node(&UNLIMITED, &Key::new("bad").unwrap())
            .unwrap()
            .unwrap();
        assert!(
            found
                .node()
                .unwrap_err()
                .to_string()
                .starts_with("bad/zarr.json: not JSON")
        );
    }

    #[test]
    fn a_fallback_is_warned_of_once() {
        let uri = "https://purl.org/zarr/spec/protocol/core/3.0";
        let entry = format!(r#"{{"zarr_format": "{uri}", "metadata_encoding": "{uri}"}}"#);
        let array = r#"{"shape": [1], "chunk_grid": {"type": "regular", "chunk_shape": [1]},
            "data_type": {"extension": "http://x.org/t", "type": "ip", "fallback": "r8"}}"#;
        let hierarchy = with(&[
            ("zarr.json", &entry),
            ("meta/root/a.array.json", array),
            ("meta/root/b.array.json", array),
        ]);
        for path in ["a", "b", "a"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn missing_codecs_are_warned_of_once() {
        let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "int8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0}"#;
        let hierarchy = with(&[("a/zarr.json", array), ("b/zarr.json", array)]);
        for path in ["a", "b", "a"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn unchanged_documents_keep_the_node() {
        let hierarchy = with(&[("zarr.json", GROUP)]);
        let first = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
        let second = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
