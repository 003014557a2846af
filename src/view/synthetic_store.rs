//! Adds listings made from metadata to a store that cannot list its keys.
//!
//! A directory is the folder of a node, or contains chunks of an array. The folder of a node lists the known child
//! nodes and the node's metadata documents. A node is known after it or one of its documents was looked up. Chunks are
//! not listed, because it is unknown which of them are stored, but they open by name.
//!
//! A copy-on-write overlay uses `SyntheticStore` as its lower layer, so that its listings merge the names from metadata
//! with the names in the upper layer and omit those that a whiteout hides. `StoreInfo::lists` stays false, because keys
//! may exist that no listing shows.

use std::sync::Arc;
use std::time::SystemTime;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Grid;
use zarr_format::model::Array;
use zarr_format::model::document::{IN_NODE_FOLDER, is_in_node_folder};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::layer::Layer;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, ETag, EntryKind, Hints, Key, Listing, Meta, Object, PutBody, Store};

/// Derives the listings of a store from the nodes that are known.
#[derive(Clone)]
pub(super) struct SyntheticListing {
    store: Arc<dyn Store>,
    hierarchy: Arc<Hierarchy>,
    /// Whether the metadata documents in the store may change. If so, listings query the store, since a document that
    /// was read may be gone.
    may_change: bool,
}

/// A directory that the metadata of a node imply.
pub(super) enum MetadataDir {
    Node(Arc<NodeEntry>),
    /// A folder that contains chunks of an array, or folders of chunks.
    Chunks,
}

impl MetadataDir {
    pub(super) fn modified(&self) -> SystemTime {
        match self {
            MetadataDir::Node(node) => node.modified,
            MetadataDir::Chunks => SystemTime::UNIX_EPOCH,
        }
    }
}

impl SyntheticListing {
    pub(super) fn new(
        store: Arc<dyn Store>,
        hierarchy: Arc<Hierarchy>,
        may_change: bool,
    ) -> SyntheticListing {
        SyntheticListing {
            store,
            hierarchy,
            may_change,
        }
    }

    /// Returns the directory at a path that the metadata imply, or `None` if they imply none.
    pub(super) fn folder(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<MetadataDir>> {
        let Some(mut node) = self.hierarchy.root(context)? else {
            return Ok(None);
        };
        for name in path.names() {
            if let Some(array) = node.array() {
                return Ok(leads_to_chunks(array, path)?.then_some(MetadataDir::Chunks));
            }
            if is_in_node_folder(name) {
                return Ok(None);
            }
            match self.hierarchy.child(context, &node, name)? {
                Some(child) => node = child,
                None => return Ok(None),
            }
        }
        Ok(Some(MetadataDir::Node(node)))
    }

    pub(super) fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        let names = match self.folder(context, path)? {
            Some(MetadataDir::Node(node)) => self.names_in(context, &node)?,
            Some(MetadataDir::Chunks) => Vec::new(),
            None => return Err(self.listing_error(context, path)?),
        };
        Ok(Box::new(NameList::new(names)))
    }

    /// Returns the error for listing a path that is no directory according to the metadata.
    fn listing_error(&self, context: &RequestContext, path: &Key) -> Result<Error> {
        Ok(
            match self.store.head(context, path)?.map(|meta| meta.kind) {
                Some(EntryKind::Directory) => {
                    let why =
                        "the server does not list this directory, and no metadata name the entries";
                    Error::unsupported(path, why)
                }
                Some(_) => Error::new(Kind::NotADirectory, path, "is an object, not a directory"),
                None => Error::not_found(path),
            },
        )
    }

    /// Returns the names in a node's folder: the known children of a group, then the metadata documents.
    fn names_in(
        &self,
        context: &RequestContext,
        node: &Arc<NodeEntry>,
    ) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let mut names = Vec::new();
        // A node that cannot be read has no known children, but its documents are listed.
        if node.array().is_none() && node.node.is_ok() {
            let mut children = self.hierarchy.known_children(context, node)?;
            while let Some(child) = children.next(context)? {
                names.push((child.name, child.kind));
            }
        }
        let documents = self.documents(context, node)?.into_iter();
        names.extend(documents.map(|name| (name, EntryKind::File)));
        Ok(names)
    }

    /// Returns the names of the metadata documents in a node's folder.
    fn documents(&self, context: &RequestContext, node: &NodeEntry) -> Result<Vec<Vec<u8>>> {
        if self.may_change {
            return self.stored_documents(context, &node.path);
        }
        let read = node.documents_in_folder().into_iter();
        Ok(read.map(|key| key.name().to_vec()).collect())
    }

    /// Returns the names of the metadata documents in a folder, for which it queries the store.
    fn stored_documents(&self, context: &RequestContext, path: &Key) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for name in IN_NODE_FOLDER {
            let meta = self.store.head(context, &path.child(name.as_bytes())?)?;
            if meta.is_some_and(|meta| meta.kind == EntryKind::File) {
                names.push(name.as_bytes().to_vec());
            }
        }
        Ok(names)
    }
}

/// Whether a path in an array is a folder of chunks: the key of a chunk in the grid begins with the path and a slash.
pub(super) fn leads_to_chunks(array: &Array, path: &Key) -> Result<bool> {
    let keys = &array.keys;
    let folder = [path.as_bytes(), b"/"].concat();
    if array.shape.is_empty() {
        let mut scalar_keys = keys.scalar_keys.iter();
        return Ok(scalar_keys.any(|key| key.starts_with(&folder)));
    }
    if keys.prefix.starts_with(&folder) {
        return Ok(true);
    }
    let has_slashes = keys.separator == '/' || keys.other_separator == Some('/');
    let indices = keys.indices_of(path.as_bytes(), '/');
    let Some(indices) = indices.filter(|_| has_slashes) else {
        return Ok(false);
    };
    let grid = Grid::of(array)?;
    let counts = grid.counts();
    Ok(indices.len() < counts.len()
        && indices
            .iter()
            .zip(counts)
            .all(|(index, count)| index < count))
}

/// A store that cannot list its keys, with listings that are derived from metadata.
pub struct SyntheticStore {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    names: SyntheticListing,
}

impl SyntheticStore {
    /// Creates the store from the store of `hierarchy`, with derived listings. `hints` belong to the same store.
    pub fn new(hierarchy: Arc<Hierarchy>, hints: Arc<dyn Hints>) -> SyntheticStore {
        let inner = hierarchy.store().clone();
        SyntheticStore {
            names: SyntheticListing::new(inner.clone(), hierarchy, true),
            inner,
            hints,
        }
    }

    /// Reads the node to which a metadata document belongs if it is unknown, so that it is listed from then on.
    fn load_node_of(&self, context: &RequestContext, key: &Key) {
        if is_in_node_folder(key.name())
            && let Some(folder) = key.parent()
        {
            // A failure is ignored, because the next lookup reads the node again.
            let _ = self.names.hierarchy.node(context, &folder);
        }
    }
}

/// Returns the metadata of a folder that the metadata of nodes imply.
fn meta_of(folder: &MetadataDir) -> Meta {
    Meta {
        modified: folder.modified(),
        ..Meta::prefix()
    }
}

impl Layer for SyntheticStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let object = self.inner.get(context, key, limit)?;
        if object.is_some() {
            self.load_node_of(context, key);
        }
        Ok(object)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let meta = self.inner.head(context, key)?;
        if meta.is_some() || is_in_node_folder(key.name()) {
            return Ok(meta);
        }
        Ok(self.names.folder(context, key)?.as_ref().map(meta_of))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.names.list(context, prefix)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let etag = self.inner.put(context, key, body, condition)?;
        self.load_node_of(context, key);
        Ok(etag)
    }
}

impl Hints for SyntheticStore {
    fn prefetch(&self, keys: &[Key]) {
        self.hints.prefetch(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;

    /// Returns the array that is read from a metadata document with the given text.
    fn array(document: &str, text: &str) -> Array {
        let memory = MemoryStore::default();
        memory.set(Key::new(format!("a/{document}")).unwrap(), text.into());
        let hierarchy = Hierarchy::new(Arc::new(memory));
        let found = hierarchy
            .node(&UNLIMITED, &Key::new("a").unwrap())
            .unwrap()
            .unwrap();
        found.node().unwrap();
        found.array().unwrap().clone()
    }

    fn v2(separator: &str) -> Array {
        let text = format!(
            r#"{{"zarr_format": 2, "shape": [4, 3], "chunks": [2, 2], "dtype": "<i4", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null, "dimension_separator": "{separator}"}}"#
        );
        array(".zarray", &text)
    }

    fn v3(shape: &str) -> Array {
        let text = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": {shape}, "data_type": "int32",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": {shape}}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0,
            "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}"#
        );
        array("zarr.json", &text)
    }

    #[test]
    fn directories_lead_to_chunks_of_the_grid() {
        let folders = |array: &Array, paths: &[&str]| -> Vec<String> {
            let leads = |path: &&&str| leads_to_chunks(array, &Key::new(**path).unwrap()).unwrap();
            paths
                .iter()
                .filter(leads)
                .map(|path| path.to_string())
                .collect()
        };
        let paths = [
            "a/0", "a/1", "a/2", "a/x", "a/01", "a/0/0", "a/c", "a/c/0", "a/c/0/0", "a/c/1", "a/d",
        ];
        assert_eq!(folders(&v2("/"), &paths), ["a/0", "a/1"]);
        assert_eq!(folders(&v3("[4, 3]"), &paths), ["a/c", "a/c/0"]);
        assert_eq!(folders(&v3("[]"), &paths), [""; 0]);
    }
}
