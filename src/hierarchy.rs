//! Discovery: a store and the dialects make nodes, found when somebody asks for them.
//!
//! A node is remembered for as long as the store says that answers stay true; after that its documents are
//! read again, and a node whose documents did not change keeps its identity. A document that does not read
//! makes a broken node, which is still there; only a failed store is an error.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Instant;
use std::time::SystemTime;

use lru::LruCache;

use crate::dialect::DIALECTS;
use crate::dialect::Dialect;
use crate::dialect::Document;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::model::Array;
use crate::model::Group;
use crate::model::Node;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Store;

/// The longest metadata document that is read, 64 MiB.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// How many nodes are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// A node where it was found.
#[derive(Debug)]
pub struct Found {
    /// Its path.
    pub path: Key,
    /// What its documents say, or what is wrong with them.
    pub node: Result<Node>,
    /// Tells one state of the documents from another.
    pub version: u64,
    /// When the documents were last changed.
    pub modified: SystemTime,
}

impl Found {
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

/// The nodes of a store.
pub struct Hierarchy {
    store: Arc<dyn Store>,
    nodes: Mutex<LruCache<Key, Remembered>>,
}

#[derive(Clone)]
struct Remembered {
    found: Option<Arc<Found>>,
    until: Instant,
}

impl Hierarchy {
    /// Builds the hierarchy of a store; nothing is read yet.
    pub fn new(store: Arc<dyn Store>) -> Hierarchy {
        Hierarchy {
            store,
            nodes: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, Remembered>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node at a path if that is known without asking the store.
    pub fn node_now(&self, path: &Key) -> Option<Option<Arc<Found>>> {
        let mut nodes = self.lock();
        let known = nodes.get(path)?;
        (known.until > Instant::now()).then(|| known.found.clone())
    }

    /// Returns the node at a path; nothing if there is none. A directory without documents is a group.
    pub fn node(&self, path: &Key) -> Result<Option<Arc<Found>>> {
        if let Some(known) = self.node_now(path) {
            return Ok(known);
        }
        let until = Instant::now() + self.store.freshness();
        let mut found = self.read(path)?;
        let mut nodes = self.lock();
        if let (
            Some(new),
            Some(Remembered {
                found: Some(old), ..
            }),
        ) = (&found, nodes.peek(path))
            && new.version == old.version
        {
            found = Some(old.clone());
        }
        nodes.put(
            path.clone(),
            Remembered {
                found: found.clone(),
                until,
            },
        );
        Ok(found)
    }

    fn read(&self, path: &Key) -> Result<Option<Arc<Found>>> {
        // A name so long that no document fits beside it holds no node.
        for dialect in DIALECTS {
            match self.read_as(dialect, path) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Some(Arc::new(found))),
                Err(error) if error.kind() == Kind::NameTooLong => {}
                Err(error) => return Err(error),
            }
        }
        self.implied(path)
    }

    /// Reads the documents of one dialect.
    fn read_as(&self, dialect: &Dialect, path: &Key) -> Result<Option<Found>> {
        let mut documents = Vec::new();
        let mut versions = DefaultHasher::new();
        dialect.name.hash(&mut versions);
        let mut newest = None;
        for key in (dialect.documents)(path)? {
            let bytes = match self.store.get(&key, MAX_DOCUMENT) {
                Ok(Some(object)) => {
                    (&key, object.version).hash(&mut versions);
                    newest = newest.max(self.store.head(&key)?.map(|meta| meta.modified));
                    Some(object.bytes)
                }
                Ok(None) => None,
                // Documents that can never be read are a fault of the node, not of the store.
                Err(error) if is_lasting(error.kind()) => {
                    return Ok(Some(broken(path, error, versions.finish())));
                }
                Err(error) => return Err(error),
            };
            documents.push(Document { key, bytes });
        }
        let Some(modified) = newest else {
            return Ok(None);
        };
        let found = |node| Found {
            path: path.clone(),
            node,
            version: versions.finish(),
            modified,
        };
        Ok((dialect.parse)(path, &documents).map_or_else(
            |error| Some(found(Err(error))),
            |node| node.map(|node| found(Ok(node))),
        ))
    }

    /// A directory without documents: a group that nobody wrote down.
    fn implied(&self, path: &Key) -> Result<Option<Arc<Found>>> {
        let Some(meta) = self
            .store
            .head(path)?
            .filter(|meta| meta.kind == EntryKind::Directory)
        else {
            return Ok(None);
        };
        let node = Ok(Node::Group(Group::default()));
        Ok(Some(Arc::new(Found {
            path: path.clone(),
            node,
            version: 0,
            modified: meta.modified,
        })))
    }
}

fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported
    )
}

fn broken(path: &Key, error: Error, version: u64) -> Found {
    Found {
        path: path.clone(),
        node: Err(error),
        version,
        modified: SystemTime::UNIX_EPOCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    fn with(documents: &[(&str, &str)]) -> Hierarchy {
        let memory = Memory::default();
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
    fn unchanged_documents_keep_the_node() {
        let hierarchy = with(&[("zarr.json", GROUP)]);
        let first = hierarchy.node(&Key::root()).unwrap().unwrap();
        let second = hierarchy.node(&Key::root()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
