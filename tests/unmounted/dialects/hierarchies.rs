//! Builds in-memory stores from metadata documents, and queries their hierarchies.

use std::sync::Arc;

use serde_json::Value;
use zarr_format::error::Result;
use zarr_format::model::{Array, Node};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig, NodeEntry};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::{EntryKind, Key, Listing, Meta, Store, StoreInfo};

pub const CORE_2020: &str = "https://purl.org/zarr/spec/protocol/core/3.0";
pub const CORE_2022: &str = "https://purl.org/zarr/spec/core/3.0";
pub const CORE_2019: &str = "http://purl.org/zarr/spec/protocol/core/3.0";

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub fn documents(documents: &[(&str, Value)]) -> MemoryStore {
    let memory = MemoryStore::default();
    for (path, document) in documents {
        memory.set(key(path), document.to_string().into_bytes());
    }
    memory
}

pub fn hierarchy(store: &MemoryStore) -> Arc<Hierarchy> {
    Arc::new(Hierarchy::new(Arc::new(store.clone())))
}

pub fn configured(store: Arc<dyn Store>, config: HierarchyConfig) -> Arc<Hierarchy> {
    Arc::new(Hierarchy::configured(store, config))
}

pub fn found(hierarchy: &Hierarchy, path: &str) -> Arc<NodeEntry> {
    let found = hierarchy.node(&UNLIMITED, &key(path)).unwrap();
    found.unwrap_or_else(|| panic!("no node at '{path}'"))
}

pub fn array(hierarchy: &Hierarchy, path: &str) -> Array {
    match found(hierarchy, path).node().unwrap() {
        Node::Array(array) => (**array).clone(),
        Node::Group(_) => panic!("{path} is a group"),
    }
}

pub fn group(hierarchy: &Hierarchy, path: &str) -> Value {
    match found(hierarchy, path).node().unwrap() {
        Node::Group(group) => Value::Object(group.attributes.to_map()),
        Node::Array(_) => panic!("{path} is an array"),
    }
}

/// Returns the error of an unreadable node.
pub fn fault(hierarchy: &Hierarchy, path: &str) -> String {
    found(hierarchy, path).node().unwrap_err().to_string()
}

/// Returns the sorted names of a group's children. Fails unless each child exists as a node and is listed once.
pub fn children(hierarchy: &Arc<Hierarchy>, path: &str) -> Vec<String> {
    let parent = found(hierarchy, path);
    let mut listing = hierarchy.children_or_named(&UNLIMITED, &parent).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        assert_eq!(name.kind, EntryKind::Directory);
        let child = hierarchy.child(&UNLIMITED, &parent, &name.name).unwrap();
        names.push(String::from_utf8(name.name).unwrap());
        assert!(child.is_some(), "{names:?}");
    }
    names.sort();
    let listed = names.len();
    names.dedup();
    assert_eq!(names.len(), listed, "{names:?}");
    names
}

/// A store that can neither list keys nor find prefixes, as a plain web server.
pub struct Mute(MemoryStore, StoreInfo);

impl Mute {
    pub fn new(memory: MemoryStore) -> Mute {
        let info = StoreInfo {
            lists: false,
            ..memory.info().clone()
        };
        Mute(memory, info)
    }
}

impl Layer for Mute {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let meta = self.0.head(context, key)?;
        Ok(meta.filter(|meta| meta.kind == EntryKind::File || key.is_root()))
    }

    fn list(&self, _context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        panic!("'{prefix}' is listed")
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}
