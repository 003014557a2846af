//! The store view of a store that cannot list its keys.
//!
//! Directories are derived from the metadata (`synthetic_store`): the folders of known nodes, and the folders that
//! contain chunks. Documents that consolidated metadata contain are shown as they are there, without the extra
//! indentation. For any other path, the store is queried for the key of that name; if the key does not exist, the path
//! is a directory if a node has the path. In a writable view, a copy-on-write layer is over `synthetic_store`, and
//! every lookup queries it, since it may have changed.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::view::store::StoreView;
use crate::view::synthetic_store::{MetadataDir, SyntheticListing, leads_to_chunks};
use crate::view::{Attr, GeneratedFile, MAX_IMMEDIATE_TEXT, OpenedFile, PathInTree, View};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::json_text::dedented;
use zarr_format::model::Array;
use zarrfs_array::array::{Arrays, WrittenKey};
use zarrfs_array::hierarchy::{ConsolidatedCopy, ConsolidatedEntry, Hierarchy, NodeEntry};
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Listing, Store, Tree};

/// A view of a store that cannot list its keys.
pub struct StoreWithoutListing {
    stored: StoreView,
    store: Arc<dyn Store>,
    hierarchy: Arc<Hierarchy>,
    names: SyntheticListing,
    /// Whether the view is writable.
    is_tree: bool,
}

/// The file or directory at a path, as far as the metadata of nodes describe it.
enum PathMetadata {
    Dir(MetadataDir),
    /// A metadata document whose text is in consolidated metadata.
    Copy(ConsolidatedCopy),
    Missing,
    /// The metadata do not mention the path, which may be a stored key, or a node that was not read yet.
    Nothing,
    /// According to the metadata, no node has the path, but a stored key may have it.
    Key,
}

impl StoreWithoutListing {
    /// Creates the view of a store with the nodes of `hierarchy`. If `tree` is given, programs can change the store
    /// through it.
    pub fn new(
        store: Arc<dyn Store>,
        tree: Option<Arc<dyn Tree>>,
        hierarchy: Arc<Hierarchy>,
    ) -> StoreWithoutListing {
        let is_tree = tree.is_some();
        StoreWithoutListing {
            stored: StoreView::new(store.clone()).with_tree(tree),
            names: SyntheticListing::new(store.clone(), hierarchy.clone(), is_tree),
            store,
            hierarchy,
            is_tree,
        }
    }

    /// Sets the arrays whose modified chunks are stored before the view shows keys.
    pub fn with_arrays(mut self, arrays: Arc<Arrays>) -> StoreWithoutListing {
        self.stored = self.stored.with_arrays(arrays);
        self
    }

    /// Looks up a path in the metadata of nodes. Reads the root node and the nodes in consolidated metadata. Any other
    /// node is only found if it was read before.
    fn metadata(&self, context: &RequestContext, path: &Key) -> Result<PathMetadata> {
        if self.is_tree {
            return Ok(PathMetadata::Nothing);
        }
        let Some(mut node) = self.hierarchy.root(context)? else {
            return Ok(PathMetadata::Nothing);
        };
        let mut key = Key::root();
        for name in path.names() {
            if let Some(array) = node.array() {
                return metadata_in_array(&node, array, path);
            }
            key = key.child(name)?;
            let child = match node.consolidated_entry(&key) {
                Presence::Is(ConsolidatedEntry::Document(copy)) if key == *path => {
                    return Ok(PathMetadata::Copy(copy));
                }
                Presence::Is(ConsolidatedEntry::Folder) => {
                    self.hierarchy.child(context, &node, name)?
                }
                Presence::Is(ConsolidatedEntry::Document(_)) | Presence::Missing => {
                    return Ok(PathMetadata::Missing);
                }
                Presence::Unknown => {
                    let known = self.hierarchy.node(&context.without_waiting(), &key);
                    known.unwrap_or_default()
                }
            };
            match child {
                Some(child) => node = child,
                None => return Ok(PathMetadata::Nothing),
            }
        }
        Ok(PathMetadata::Dir(MetadataDir::Node(node)))
    }
}

impl View for StoreWithoutListing {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let info = self.store.info();
        let (known, stamp) = info.ask(context, |context| self.metadata(context, path));
        let ttl = info.time_left(stamp.request_time);
        match known? {
            PathMetadata::Dir(dir) => return Ok(Some(Attr::of_directory(dir.modified(), ttl))),
            PathMetadata::Copy(copy) => {
                return consolidated_attr(context, &copy, ttl).map(Some);
            }
            PathMetadata::Missing => return Ok(None),
            PathMetadata::Nothing | PathMetadata::Key => {}
        }
        if let Some(attr) = self.stored.lookup(context, path)? {
            return Ok(Some(attr));
        }
        if self.is_tree {
            return Ok(None);
        }
        let (folder, stamp) = info.ask(context, |context| self.names.folder(context, path));
        let ttl = info.time_left(stamp.request_time);
        Ok(folder?.map(|folder| Attr::of_directory(folder.modified(), ttl)))
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        if self.is_tree {
            return self.stored.list(context, path);
        }
        self.names.list(context, path)
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        match self.metadata(context, path)? {
            PathMetadata::Copy(copy) => Ok(open_consolidated(&copy)),
            PathMetadata::Dir(_) => Err(Error::new(Kind::IsADirectory, path, "is a directory")),
            PathMetadata::Missing => Err(Error::not_found(path)),
            PathMetadata::Nothing | PathMetadata::Key => self.stored.open(context, path),
        }
    }

    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        self.stored.read_link(context, path)
    }

    fn begin_writing(&self, path: &Key) -> Result<Option<WrittenKey>> {
        self.stored.begin_writing(path)
    }

    fn tree(&self, context: &RequestContext, path: &Key) -> Result<Option<PathInTree>> {
        self.stored.tree(context, path)
    }
}

/// Looks up a path below an array in the array's metadata: it may be a document or lead to a chunk.
fn metadata_in_array(node: &Arc<NodeEntry>, array: &Array, path: &Key) -> Result<PathMetadata> {
    Ok(match node.consolidated_entry(path) {
        Presence::Is(ConsolidatedEntry::Document(copy)) => PathMetadata::Copy(copy),
        Presence::Missing => PathMetadata::Missing,
        Presence::Is(ConsolidatedEntry::Folder) | Presence::Unknown
            if leads_to_chunks(array, path)? =>
        {
            PathMetadata::Dir(MetadataDir::Chunks)
        }
        Presence::Is(ConsolidatedEntry::Folder) | Presence::Unknown => PathMetadata::Key,
    })
}

fn consolidated_attr(
    context: &RequestContext,
    copy: &ConsolidatedCopy,
    ttl: Duration,
) -> Result<Attr> {
    if copy.text.len() > MAX_IMMEDIATE_TEXT {
        context.check_may_wait()?;
    }
    let size = text_of(copy).len() as u64;
    Ok(Attr {
        content: Some(version_of(copy)),
        ..Attr::of_file(size, copy.modified, ttl)
    })
}

fn open_consolidated(copy: &ConsolidatedCopy) -> OpenedFile {
    let text = text_of(copy).into_owned();
    GeneratedFile::open(text.into(), version_of(copy), copy.modified)
}

/// Returns the text of a document in consolidated metadata, without the indentation that it has there.
fn text_of(copy: &ConsolidatedCopy) -> Cow<'_, str> {
    dedented(str::from_utf8(&copy.text).unwrap_or_default())
}

/// Returns the version of a document in consolidated metadata: a hash of its text.
fn version_of(copy: &ConsolidatedCopy) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&copy.text);
    hasher.finish()
}
