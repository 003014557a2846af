//! Discovery: a store and the dialects make nodes, found when somebody asks for them.
//!
//! Nodes are found from the root down: each tells its children by which rule they are found, so that an entry
//! point governs what lies below it. A node is remembered for as long as the store says that answers stay
//! true, and nothing was changed through it; after that its documents are read again, and a node whose
//! documents did not change keeps its identity.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use lru::LruCache;

use crate::dialect::{Choice, DIALECTS, DialectSettings};
use crate::error::{Error, Result};
use crate::hierarchy::ground::{ChildScope, Rule};
use crate::model::{Array, Node};
use crate::store::{Key, Store};

mod children;
mod consolidated;
mod detect;
mod edit;
mod format;
mod ground;
mod moving;
mod publish;
mod read;

/// The longest metadata document that is read, 64 MiB.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// How many nodes are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// How many different warnings are given.
const MOST_WARNINGS: usize = 256;

/// A node where it was found.
pub struct NodeEntry {
    /// Its path.
    pub path: Key,
    /// What its documents say, or what is wrong with them.
    pub node: Result<Node>,
    /// Tells one state of the documents from another; 0 where there is nothing but a folder.
    pub version: u64,
    /// When the documents were last changed.
    pub modified: SystemTime,
    ground: ChildScope,
}

impl fmt::Debug for NodeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found")
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

    /// Returns the node, or the error about its documents.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().map_err(Error::clone)
    }
}

/// How the nodes of a store are to be found.
#[derive(Clone, Debug, Default)]
pub struct HierarchyConfig {
    /// The dialect, instead of what the documents say.
    pub dialect: Option<Choice>,
    /// Use consolidated metadata although the store can list.
    pub consolidated: bool,
    /// What the dialects may decide.
    pub settings: DialectSettings,
}

/// The nodes of a store.
pub struct Hierarchy {
    store: Arc<dyn Store>,
    config: HierarchyConfig,
    nodes: Mutex<LruCache<Key, Remembered>>,
    warned: Mutex<HashSet<String>>,
}

#[derive(Clone)]
struct Remembered {
    found: Option<Arc<NodeEntry>>,
    until: Instant,
    epoch: u64,
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
            config,
            nodes: Mutex::new(LruCache::new(REMEMBERED)),
            warned: Mutex::new(HashSet::new()),
        }
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, Remembered>> {
        self.nodes.lock()
    }

    /// Returns the node at a path if that is known without asking the store.
    pub fn node_now(&self, path: &Key) -> Option<Option<Arc<NodeEntry>>> {
        let mut nodes = self.lock();
        let known = nodes.get(path)?;
        let holds = known.until > Instant::now() && known.epoch == self.store.epoch();
        holds.then(|| known.found.clone())
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
        let ground = ChildScope {
            rule: Rule::Plain(dialects),
            store: self.store.clone(),
            consolidated: None,
            version: 0,
        };
        self.remembered(&Key::root(), &ground)
    }

    /// Returns the child of a node by its name; nothing if there is none, as in every array.
    pub fn child(&self, parent: &NodeEntry, name: &[u8]) -> Result<Option<Arc<NodeEntry>>> {
        if parent.array().is_some() {
            return Ok(None);
        }
        self.remembered(&parent.path.child(name)?, &parent.ground)
    }

    fn remembered(&self, path: &Key, ground: &ChildScope) -> Result<Option<Arc<NodeEntry>>> {
        if let Some(known) = self.node_now(path) {
            return Ok(known);
        }
        let until = Instant::now() + self.store.freshness();
        let epoch = self.store.epoch();
        let old = self.lock().peek(path).and_then(|old| old.found.clone());
        let found = self.read(path, ground, old.as_deref())?.map(Arc::new);
        let found = match (found, old) {
            (Some(new), Some(old)) if new.version == old.version => Some(old),
            (new, _) => new,
        };
        let remembered = Remembered {
            found: found.clone(),
            until,
            epoch,
        };
        self.lock().put(path.clone(), remembered);
        Ok(found)
    }

    /// Logs what a person should know of how a node was read, each thing once.
    fn warn(&self, path: &Key, warning: Option<String>) {
        let Some(warning) = warning else { return };
        let mut warned = self.warned.lock();
        if warned.len() < MOST_WARNINGS && warned.insert(warning.clone()) {
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
    fn unchanged_documents_keep_the_node() {
        let hierarchy = with(&[("zarr.json", GROUP)]);
        let first = hierarchy.node(&Key::root()).unwrap().unwrap();
        let second = hierarchy.node(&Key::root()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
