//! The store view of a store that cannot list its keys: names come from the metadata.
//!
//! What metadata tell is not asked for: nodes that are known, folders on the way to chunks, and the documents of nodes
//! below consolidated metadata, which are the copies in there. For any other path the store is asked for the key that it
//! spells; what it does not have is a directory if it is a node. A listing has the documents by which a node was found,
//! the nodes that are known, and every chunk of the grid, since whether one is stored is known only when it is read. A
//! store that can be changed is asked for documents, since it may have others by now. Where chunk files are looked up in
//! order, the next ones are asked for ahead (`sizes_ahead`).

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Copied, DocumentCopy, Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Array;
use crate::model::document::{IN_NODE_FOLDER, is_in_node_folder};
use crate::store::listing::NameList;
use crate::store::{EntryKind, Hints, Key, Listing, Name, NoHints, Store, Tree};
use crate::view::chunk_names::{Level, level};
use crate::view::copied_document;
use crate::view::sizes_ahead::SizesAhead;
use crate::view::store::StoreView;
use crate::view::text_file::directory_attr;
use crate::view::{Attr, OpenedFile, View};

/// A store without listings as a tree of files.
pub struct UnlistedView {
    stored: StoreView,
    store: Arc<dyn Store>,
    hierarchy: Arc<Hierarchy>,
    /// Whether the store can be changed.
    is_tree: bool,
    ahead: SizesAhead,
}

/// What metadata tell of a path.
enum PathMetadata {
    Dir(KnownDir),
    /// A document of which a node's consolidated metadata have a copy.
    Copy(DocumentCopy),
    Missing,
    /// Nothing: it is what the store has under that key, or a node that is not known yet.
    Nothing,
    /// Nothing, but no node lies there: it is what the store has under that key.
    Key,
}

/// A directory that follows from the metadata.
enum KnownDir {
    Node(Arc<NodeEntry>),
    /// On the way to chunks of an array.
    Chunks(Level),
}

impl UnlistedView {
    /// Builds the view of a store, which may be a tree of files that can be changed, and whose nodes are those of
    /// `hierarchy`.
    pub fn new(
        store: Arc<dyn Store>,
        tree: Option<Arc<dyn Tree>>,
        hierarchy: Arc<Hierarchy>,
    ) -> UnlistedView {
        let is_tree = tree.is_some();
        UnlistedView {
            stored: StoreView::new(store.clone()).with_tree(tree),
            ahead: SizesAhead::new(hierarchy.clone(), Arc::new(NoHints), !is_tree),
            store,
            hierarchy,
            is_tree,
        }
    }

    /// Has lookups of keys answered out of what `hints` know.
    pub fn with_hints(mut self, hints: Arc<dyn Hints>) -> UnlistedView {
        self.ahead = SizesAhead::new(self.hierarchy.clone(), hints.clone(), !self.is_tree);
        self.stored = self.stored.with_hints(hints);
        self
    }

    /// Finds what metadata tell of a path; the root is read for it if it is not known.
    fn metadata(&self, path: &Key) -> Result<PathMetadata> {
        if self.is_tree {
            return Ok(PathMetadata::Nothing);
        }
        match self.hierarchy.root()? {
            Some(root) => self.metadata_below(root, path, |parent, name| {
                Ok(self.hierarchy.child(parent, name)?.into())
            }),
            None => Ok(PathMetadata::Nothing),
        }
    }

    /// The same by nodes that are known without waiting.
    fn metadata_now(&self, path: &Key) -> Result<PathMetadata> {
        let known = self.hierarchy.node_now(&Key::root());
        let Some(root) = known.found().filter(|_| !self.is_tree) else {
            return Ok(PathMetadata::Nothing);
        };
        self.metadata_below(root, path, |parent, name| {
            Ok(self.hierarchy.node_now(&parent.path.child(name)?))
        })
    }

    /// Finds what metadata tell of a path. Children that consolidated metadata name are found by `child_of`, others only
    /// if they are known.
    fn metadata_below(
        &self,
        root: Arc<NodeEntry>,
        path: &Key,
        child_of: impl Fn(&NodeEntry, &[u8]) -> Result<Known<Arc<NodeEntry>>>,
    ) -> Result<PathMetadata> {
        let (mut node, mut key) = (root, Key::root());
        for name in path.names() {
            if let Some(array) = node.array() {
                return metadata_in_array(&node, array, path);
            }
            key = key.child(name)?;
            let child = match node.copied(&key) {
                Known::Is(Copied::Document(copy)) if key == *path => {
                    return Ok(PathMetadata::Copy(copy));
                }
                Known::Is(Copied::Folder) => child_of(&node, name)?,
                Known::Is(Copied::Document(_)) | Known::Missing => {
                    return Ok(PathMetadata::Missing);
                }
                Known::Unknown => self.hierarchy.node_now(&key),
            };
            match child {
                Known::Is(child) => node = child,
                Known::Missing | Known::Unknown => return Ok(PathMetadata::Nothing),
            }
        }
        Ok(PathMetadata::Dir(KnownDir::Node(node)))
    }

    /// Finds the directory at a path that follows from the metadata.
    fn folder(&self, path: &Key) -> Result<Option<KnownDir>> {
        let Some(mut node) = self.hierarchy.root()? else {
            return Ok(None);
        };
        for name in path.names() {
            if let Some(array) = node.array() {
                return Ok(level(array, path)?.map(KnownDir::Chunks));
            }
            if is_in_node_folder(name) {
                return Ok(None);
            }
            match self.hierarchy.child(&node, name)? {
                Some(child) => node = child,
                None => return Ok(None),
            }
        }
        Ok(Some(KnownDir::Node(node)))
    }

    /// Returns the names in a node's directory before those of its chunks or children.
    fn documents(&self, found: &NodeEntry) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        if self.is_tree {
            return self.stored_documents(&found.path);
        }
        let read = found.documents_in_folder();
        let name = |key: Key| (key.name().to_vec(), EntryKind::File);
        Ok(read.into_iter().map(name).collect())
    }

    /// Returns the names of the documents that are stored in a folder.
    fn stored_documents(&self, path: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let mut names = Vec::new();
        for name in IN_NODE_FOLDER {
            let meta = self.store.head(&path.child(name.as_bytes())?)?;
            if meta.is_some_and(|meta| meta.kind == EntryKind::File) {
                names.push((name.as_bytes().to_vec(), EntryKind::File));
            }
        }
        Ok(names)
    }

    fn list_node(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let documents = self.documents(found)?;
        let rest: Box<dyn Listing> = match found.array() {
            Some(array) => match level(array, &found.path)? {
                Some(level) => level.listing(),
                None => Box::new(NameList::new([])),
            },
            // A node whose metadata cannot be read has its documents all the same.
            None if found.node.is_err() => Box::new(NameList::new([])),
            None => self.hierarchy.known_children(found)?,
        };
        Ok(Box::new(DocumentsFirst {
            documents,
            rest,
            place: 0,
        }))
    }
}

impl View for UnlistedView {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        let info = self.store.info();
        let (known, stamp) = info.ask(|| self.metadata(path));
        let fresh = info.time_left(stamp.asked);
        match known? {
            PathMetadata::Dir(dir) => return Ok(Some(directory_attr(dir.modified(), fresh))),
            PathMetadata::Copy(copy) => return Ok(Some(copied_document::attr(&copy, fresh))),
            PathMetadata::Missing => return Ok(None),
            PathMetadata::Nothing | PathMetadata::Key => self.ahead.note(path),
        }
        if let Some(attr) = self.stored.lookup(path)? {
            return Ok(Some(attr));
        }
        let (folder, stamp) = info.ask(|| self.folder(path));
        let fresh = info.time_left(stamp.asked);
        Ok(folder?.map(|folder| directory_attr(folder.modified(), fresh)))
    }

    fn lookup_now(&self, path: &Key) -> Known<Attr> {
        let info = self.store.info();
        let (known, stamp) = info.ask(|| self.metadata_now(path));
        let fresh = info.time_left(stamp.asked);
        match known {
            Ok(PathMetadata::Dir(dir)) => Known::Is(directory_attr(dir.modified(), fresh)),
            Ok(PathMetadata::Copy(copy)) => copied_document::attr_now(&copy, fresh),
            Ok(PathMetadata::Missing) => Known::Missing,
            Ok(PathMetadata::Key) => match self.stored.lookup_now(path) {
                Known::Unknown => Known::Unknown,
                known if self.ahead.note_now(path) => known,
                _ => Known::Unknown,
            },
            Ok(PathMetadata::Nothing) | Err(_) => Known::Unknown,
        }
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        match self.folder(path)? {
            Some(KnownDir::Node(found)) => self.list_node(&found),
            Some(KnownDir::Chunks(level)) => Ok(level.listing()),
            None => match self.store.head(path)? {
                Some(meta) if meta.kind == EntryKind::Directory => {
                    let why =
                        "the server does not list this directory, and no metadata describe it";
                    Err(Error::unsupported(path, why))
                }
                Some(_) => Err(Error::new(
                    Kind::NotADirectory,
                    path,
                    "is an object, not a directory",
                )),
                None => Err(Error::not_found(path)),
            },
        }
    }

    fn open(&self, path: &Key) -> Result<OpenedFile> {
        match self.metadata(path)? {
            PathMetadata::Copy(copy) => Ok(copied_document::open(copy)),
            PathMetadata::Dir(_) => Err(Error::new(Kind::IsADirectory, path, "is a directory")),
            PathMetadata::Missing => Err(Error::not_found(path)),
            PathMetadata::Nothing | PathMetadata::Key => self.stored.open(path),
        }
    }

    fn read_link(&self, path: &Key) -> Result<Vec<u8>> {
        self.stored.read_link(path)
    }

    fn tree(&self, path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        self.stored.tree(path)
    }
}

impl KnownDir {
    fn modified(&self) -> SystemTime {
        match self {
            KnownDir::Node(found) => found.modified,
            KnownDir::Chunks(_) => SystemTime::UNIX_EPOCH,
        }
    }
}

/// Finds what metadata tell of a path below an array.
fn metadata_in_array(node: &Arc<NodeEntry>, array: &Array, path: &Key) -> Result<PathMetadata> {
    Ok(match node.copied(path) {
        Known::Is(Copied::Document(copy)) => PathMetadata::Copy(copy),
        Known::Missing => PathMetadata::Missing,
        Known::Is(Copied::Folder) | Known::Unknown => match level(array, path)? {
            Some(level) => PathMetadata::Dir(KnownDir::Chunks(level)),
            None => PathMetadata::Key,
        },
    })
}

/// The documents of a node, then a listing whose cursors are moved behind theirs.
struct DocumentsFirst {
    documents: Vec<(Vec<u8>, EntryKind)>,
    rest: Box<dyn Listing>,
    place: usize,
}

/// The number that cursors are moved by; a node has fewer documents.
const CURSOR_OFFSET: u64 = 16;

impl Listing for DocumentsFirst {
    fn next(&mut self) -> Result<Option<Name>> {
        if let Some((name, kind)) = self.documents.get(self.place).cloned() {
            self.place += 1;
            let cursor = self.place as u64;
            return Ok(Some(Name {
                name,
                kind,
                cursor,
                meta: None,
            }));
        }
        let next = self.rest.next()?;
        Ok(next.map(|name| Name {
            cursor: name.cursor.saturating_add(CURSOR_OFFSET),
            ..name
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.place = usize::try_from(cursor)
            .unwrap_or(usize::MAX)
            .min(self.documents.len());
        self.rest.seek(cursor.saturating_sub(CURSOR_OFFSET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_behind_the_documents() {
        let chunks = ["0", "1", "2", "3"].map(|name| (name.as_bytes().to_vec(), EntryKind::File));
        let mut listing = DocumentsFirst {
            documents: vec![(b".zarray".to_vec(), EntryKind::File)],
            rest: Box::new(NameList::new(chunks)),
            place: 0,
        };
        let mut all = Vec::new();
        while let Some(name) = listing.next().unwrap() {
            all.push(name);
        }
        assert_eq!(all.len(), 5);
        for (place, name) in all.iter().enumerate() {
            listing.seek(name.cursor).unwrap();
            assert_eq!(listing.next().unwrap().as_ref(), all.get(place + 1));
        }
        listing.seek(0).unwrap();
        assert_eq!(listing.next().unwrap().as_ref(), all.first());
    }
}
