//! Discovery: the nodes of a store, read by the dialects when they are needed.
//!
//! Nodes are found from the root down: each passes a `ChildScope` on to its children, so that an entry point governs what
//! lies below it. A node is cached for the freshness of the store, counted from when the store was asked for the oldest of
//! its documents, unless something that it was read from is changed through the store; then its documents are read
//! again, and a node whose documents did not change keeps its identity.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use lru::LruCache;

use crate::dialect::draft::EntryPoint;
use crate::dialect::{Choice, DIALECTS, Dialect, DialectSettings};
use crate::error::{Error, Result};
use crate::hierarchy::consolidated::Consolidated;
use crate::hierarchy::document_locks::DocumentLocks;
use crate::known::Known;
use crate::model::document::IN_NODE_FOLDER;
use crate::model::{Array, Node};
use crate::store::{
    Dependencies, Hints, Key, Meta, NoHints, QueryStamp, Store, Tree, Version, note_memory,
};

mod broken;
mod children;
mod consolidated;
mod consolidation;
mod create;
mod detect;
mod document_locks;
mod edit;
mod format;
mod moving;
mod plan;
mod publish;
mod read;
mod reading;

pub use broken::{BrokenDocument, BrokenNode};
pub use plan::{EditedNode, SeenNode};
pub use publish::DocumentVersions;

/// The longest metadata document that is read, 64 MiB.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// How many nodes are cached.
const MAX_NODES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// How many different warnings are logged.
const MAX_WARNINGS: usize = 256;

/// A node of a hierarchy, as its documents were read last.
pub struct NodeEntry {
    /// Its path.
    pub path: Key,
    /// The node, or the error about its documents.
    pub node: Result<Node>,
    /// Differs between states of the documents; 0 where there is nothing but a folder.
    pub version: u64,
    /// When the documents were last changed.
    pub modified: SystemTime,
    /// What is known beside the error of a node whose documents do not read.
    pub broken: Option<BrokenNode>,
    /// The documents that it was read from and their versions; nothing if it was read from consolidated metadata.
    pub documents: Option<Arc<[(Key, Version)]>>,
    scope: ChildScope,
}

/// How the documents of nodes are found.
#[derive(Clone)]
enum Rule {
    /// In the folder of each node, in the first of these dialects that has some.
    Plain(&'static [&'static Dialect]),
    /// Where the entry point of the hierarchy has them.
    Draft(Arc<EntryPoint>),
    /// Not at all, since the entry point above does not read.
    Closed,
}

/// What a node passes on to its children: how their documents are found, and in which store.
#[derive(Clone)]
struct ChildScope {
    rule: Rule,
    /// Where documents are read: the store, or consolidated metadata over it.
    store: Arc<dyn Store>,
    /// The hints of that store.
    hints: Arc<dyn Hints>,
    /// What the rule and the consolidated metadata were read from.
    depends: Dependencies,
    /// The consolidated metadata over the store, if they are used.
    consolidated: Option<Arc<Consolidated>>,
    /// Differs between rules; 0 for the rule of the root.
    version: u64,
}

impl ChildScope {
    /// Returns the version of a group that no document describes.
    fn implied_version(&self) -> u64 {
        match self.consolidated_version() {
            None => self.version,
            Some(consolidated) => hash_of((self.version, consolidated)),
        }
    }

    /// Returns the version of the consolidated metadata, if they are used.
    fn consolidated_version(&self) -> Option<Version> {
        self.consolidated.as_ref().map(|used| used.version())
    }
}

/// Returns a number that differs between values.
fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl fmt::Debug for NodeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEntry")
            .field("path", &self.path)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl NodeEntry {
    /// Returns the array that this is; nothing if it is a group.
    pub fn array(&self) -> Option<&Array> {
        match &self.node {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Returns the name of the dialect whose documents describe it; nothing if none does.
    pub fn dialect(&self) -> Option<&'static str> {
        if let Some(array) = self.array() {
            return Some(array.dialect);
        }
        if let Rule::Draft(entry) = &self.scope.rule {
            return Some(entry.name());
        }
        let read = self.documents_in_folder();
        let is_of = |dialect: &&&Dialect| {
            let keys = (dialect.documents)(&self.path).unwrap_or_default();
            read.iter().any(|key| keys.contains(key))
        };
        DIALECTS.iter().find(is_of).map(|dialect| dialect.name)
    }

    /// Whether its children are read from consolidated metadata, and so known without requests.
    pub fn is_consolidated(&self) -> bool {
        self.scope.consolidated.is_some()
    }

    /// Returns what the consolidated metadata that its children, or the keys of an array, are under tell of a key below
    /// it: whether it is there, and the bytes of a document.
    pub fn copied(&self, key: &Key) -> Known<(Meta, &[u8])> {
        let Some(used) = &self.scope.consolidated else {
            return Known::Unknown;
        };
        used.known(key)
            .map(|meta| (meta, used.document(key).unwrap_or_default()))
    }

    /// Returns the keys of the documents in its folder by which it was found, and of its consolidated metadata.
    pub fn documents_in_folder(&self) -> Vec<Key> {
        let names = IN_NODE_FOLDER.iter();
        let keys = names.filter_map(|name| self.path.child(name.as_bytes()).ok());
        keys.filter(|key| self.has_read(key)).collect()
    }

    /// Whether a document is one by which the node was found, or holds its consolidated metadata.
    fn has_read(&self, key: &Key) -> bool {
        let read = self.documents.as_deref().unwrap_or_default();
        let broken = self.broken.iter().flat_map(|broken| &broken.documents);
        let used = self.scope.consolidated.as_ref();
        read.iter().any(|(read, _)| read == key)
            || broken.into_iter().any(|broken| broken.key == *key)
            || used.is_some_and(|used| used.is_source(key) || used.document(key).is_some())
    }

    /// Whether this is an array, whether it reads or not: it has no children.
    pub fn is_array(&self) -> bool {
        let is_broken_array = self.broken.as_ref().is_some_and(|broken| broken.is_array);
        is_broken_array || self.array().is_some()
    }

    /// Returns the node, or the error about its documents.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().map_err(Error::clone)
    }
}

/// How the nodes of a store are found.
#[derive(Clone, Debug, Default)]
pub struct HierarchyConfig {
    /// The dialect, if it is not to be found from the documents.
    pub dialect: Option<Choice>,
    /// Use consolidated metadata although the store can list.
    pub consolidated: bool,
    /// Settings of the dialects.
    pub settings: DialectSettings,
}

/// The nodes of a store.
pub struct Hierarchy {
    store: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    tree: Option<Arc<dyn Tree>>,
    config: HierarchyConfig,
    nodes: Mutex<LruCache<Key, CachedNode>>,
    /// Held while documents are edited.
    editing: DocumentLocks,
    warned: Mutex<HashSet<String>>,
}

/// The answer to a path, which may be that there is no node.
struct CachedNode {
    found: Option<Arc<NodeEntry>>,
    /// How old the answers are that it was read from.
    stamp: QueryStamp,
    /// What it was read from.
    depends: Dependencies,
}

impl Hierarchy {
    /// Builds the hierarchy of a store, its dialects decided by its documents; nothing is read yet.
    pub fn new(store: Arc<dyn Store>) -> Hierarchy {
        Hierarchy::configured(store, HierarchyConfig::default())
    }

    /// Builds the hierarchy of a store; nothing is read yet.
    pub fn configured(store: Arc<dyn Store>, config: HierarchyConfig) -> Hierarchy {
        Hierarchy {
            store,
            hints: Arc::new(NoHints),
            tree: None,
            config,
            nodes: Mutex::new(LruCache::new(MAX_NODES)),
            editing: DocumentLocks::default(),
            warned: Mutex::new(HashSet::new()),
        }
    }

    /// Uses the hints of the store.
    pub fn with_hints(mut self, hints: Arc<dyn Hints>) -> Hierarchy {
        self.hints = hints;
        self
    }

    /// Renames nodes as folders of a tree, if the store is one.
    pub fn with_tree(mut self, tree: Option<Arc<dyn Tree>>) -> Hierarchy {
        self.tree = tree;
        self
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, CachedNode>> {
        self.nodes.lock()
    }

    /// Returns the node at a path from the cache; the store is not asked.
    pub fn node_now(&self, path: &Key) -> Known<Arc<NodeEntry>> {
        let mut nodes = self.lock();
        let info = self.store.info();
        let is_valid = |cached: &&CachedNode| {
            let CachedNode { stamp, depends, .. } = cached;
            info.is_fresh(stamp.asked) && !info.changes.any_changed_since(stamp.position, depends)
        };
        match nodes.get(path).filter(is_valid) {
            None => Known::Unknown,
            Some(cached) => {
                note_memory(cached.stamp.asked);
                cached.found.clone().into()
            }
        }
    }

    /// Returns the node at a path; nothing if there is none. A directory without documents is a group.
    pub fn node(&self, path: &Key) -> Result<Option<Arc<NodeEntry>>> {
        let mut found = self.root()?;
        for name in path.names() {
            found = match found {
                Some(parent) => self.child(&parent, name)?,
                None => return Ok(None),
            };
        }
        Ok(found)
    }

    /// Returns the root node.
    pub fn root(&self) -> Result<Option<Arc<NodeEntry>>> {
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
            version: 0,
        };
        self.cached_or_read(&Key::root(), &scope)
    }

    /// Returns the child of a node by its name; nothing if there is none, as in every array.
    pub fn child(&self, parent: &NodeEntry, name: &[u8]) -> Result<Option<Arc<NodeEntry>>> {
        if parent.is_array() {
            return Ok(None);
        }
        self.cached_or_read(&parent.path.child(name)?, &parent.scope)
    }

    /// Returns the node at a path from the cache, or reads it.
    fn cached_or_read(&self, path: &Key, scope: &ChildScope) -> Result<Option<Arc<NodeEntry>>> {
        match self.node_now(path) {
            Known::Unknown => {}
            known => return Ok(known.found()),
        }
        let old = self.lock().peek(path).and_then(|old| old.found.clone());
        let read = || {
            self.note_scope(path, scope);
            self.read(path, scope, old.as_deref())
        };
        let (read, stamp) = self.store.info().ask(read);
        let (found, depends) = read?;
        let found = found.map(Arc::new);
        let found = match (found, old) {
            (Some(new), Some(old)) if new.version == old.version => Some(old),
            (new, _) => new,
        };
        let cached = CachedNode {
            found: found.clone(),
            stamp,
            depends,
        };
        self.lock().put(path.clone(), cached);
        Ok(found)
    }

    /// Notes how old the scope of a node is, if it comes from documents of the nodes above.
    fn note_scope(&self, path: &Key, scope: &ChildScope) {
        let is_plain = matches!(scope.rule, Rule::Plain(_)) && scope.consolidated.is_none();
        if let Some(above) = path.parent().filter(|_| !is_plain)
            && let Some(above) = self.lock().peek(&above)
        {
            note_memory(above.stamp.asked);
        }
    }

    /// Logs a warning about how a node was read, each different one once.
    fn warn(&self, path: &Key, warning: Option<String>) {
        let Some(warning) = warning else { return };
        let mut warned = self.warned.lock();
        if warned.len() < MAX_WARNINGS && warned.insert(warning.clone()) {
            log::warn!("{path}: {warning}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::memory::MemoryStore;

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
            let found = hierarchy.node(&Key::new(path).unwrap()).unwrap().unwrap();
            assert!(matches!(found.node, Ok(Node::Group(_))), "{path}");
        }
        assert!(
            hierarchy
                .node(&Key::new("none").unwrap())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_broken_document_is_a_broken_node() {
        let hierarchy = with(&[("zarr.json", GROUP), ("bad/zarr.json", "{")]);
        let found = hierarchy.node(&Key::new("bad").unwrap()).unwrap().unwrap();
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
            let found = hierarchy.node(&Key::new(path).unwrap()).unwrap().unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn c03_missing_codecs_are_warned_of_once() {
        let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "int8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0}"#;
        let hierarchy = with(&[("a/zarr.json", array), ("b/zarr.json", array)]);
        for path in ["a", "b", "a"] {
            let found = hierarchy.node(&Key::new(path).unwrap()).unwrap().unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn unchanged_documents_keep_the_node() {
        let hierarchy = with(&[("zarr.json", GROUP)]);
        let first = hierarchy.node(&Key::root()).unwrap().unwrap();
        let second = hierarchy.node(&Key::root()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
