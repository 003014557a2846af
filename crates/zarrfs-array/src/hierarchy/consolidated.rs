//! Serves metadata documents from consolidated metadata, for the nodes below a group.
//!
//! `Consolidated` is a layer over the store. Its listings have only names from the consolidated metadata. On a
//! read-only mount the consolidated metadata are taken to be complete for each folder that they name: if they lack a
//! document of such a folder, the document is missing, and no request is sent. Requests for all other keys go to the
//! store below. The layer serves the children of a group. The group's own documents are read from the store first,
//! unless the consolidated metadata have them too. Changes go to the store below; the consolidated metadata stay as
//! they were read until the group is read again. The text is in memory once, for all documents in it and all nodes that
//! are read from them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use zarr_format::dialect::consolidated::EntryRanges;
use zarr_format::error::{Error, Result};
use zarr_format::model::document::{
    ATTRIBUTES_JSON, ZARRAY, ZATTRS, ZGROUP, is_consolidated, is_in_each_node, is_in_node_folder,
};
use zarrfs_store::Presence;
use zarrfs_store::layer::Layer;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::{
    EntryKind, FlatListing, Hints, Key, Listing, Meta, Object, Store, StoreInfo, Version,
};

/// The document that contains consolidated metadata, such as `.zmetadata`, with its version and time.
pub(super) struct ConsolidatedSource {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) modified: SystemTime,
    /// Whether a document that the consolidated metadata lack is certainly missing: true on a read-only mount, where no
    /// document can be created.
    pub(super) is_complete: bool,
}

/// A layer over the store that serves metadata documents from consolidated metadata.
pub(super) struct Consolidated {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    info: StoreInfo,
    /// The group's folder, to which the document keys in the consolidated metadata are relative.
    top: Key,
    source: ConsolidatedSource,
    text: Bytes,
    /// The byte range of each document in `text`, by its key in the store.
    documents: BTreeMap<Box<[u8]>, Range<usize>>,
    /// The memory that is reserved for the text and the table of documents; `None` if the budget had no room.
    room: Option<Reservation>,
}

/// The memory of an entry in the table of documents, without its text and its key, in bytes.
const DOCUMENT_OVERHEAD: u64 = 96;

impl Consolidated {
    /// Creates the layer over a store and its hints; `places` has the documents' keys relative to `top`, and their byte
    /// ranges in `text`.
    pub(super) fn new(
        inner: Arc<dyn Store>,
        hints: Arc<dyn Hints>,
        top: &Key,
        text: Bytes,
        places: EntryRanges,
        source: ConsolidatedSource,
    ) -> Consolidated {
        let places = places.into_iter();
        Consolidated {
            info: StoreInfo {
                lists: true,
                ..inner.info().clone()
            },
            inner,
            hints,
            text,
            documents: places
                .filter(|(key, _)| !key.is_root())
                .map(|(key, place)| (within(top, key.as_bytes()).into(), place))
                .collect(),
            top: top.clone(),
            source,
            room: None,
        }
    }

    /// Charges the memory of the layer to a budget; returns false if the budget has no room for it.
    pub(super) fn count_in(&mut self, memory: &Arc<MemoryBudget>) -> bool {
        let keys = self.documents.keys();
        let keys = keys.map(|key| key.len() as u64 + DOCUMENT_OVERHEAD);
        self.room = memory.try_reserve(self.text.len() as u64 + keys.sum::<u64>());
        self.room.is_some()
    }

    /// Returns a document as a slice of the text, or `None` if it is not in the consolidated metadata.
    pub(super) fn document(&self, key: &Key) -> Option<Bytes> {
        let place = self.documents.get(key.as_bytes())?;
        Some(self.text.slice(place.clone()))
    }

    pub(super) fn modified(&self) -> SystemTime {
        self.source.modified
    }

    pub(super) fn key(&self) -> &Key {
        &self.source.key
    }

    pub(super) fn version(&self) -> Version {
        self.source.version
    }

    /// Whether a key is the key of the document that contains the consolidated metadata.
    pub(super) fn is_source(&self, key: &Key) -> bool {
        self.source.key == *key
    }

    /// Whether the consolidated metadata include the documents of the group that they belong to.
    pub(super) fn has_own_group(&self) -> bool {
        let own = within(&self.top, ZGROUP.as_bytes());
        self.documents.contains_key(own.as_slice())
    }

    /// Whether a path cannot be a node: it has the name of a metadata file, in a folder whose names are all in the
    /// consolidated metadata.
    pub(super) fn is_no_node(&self, path: &Key) -> bool {
        let is_known = |folder: Key| self.has_folder(&folder);
        self.source.is_complete
            && is_in_each_node(path.name())
            && !self.has_folder(path)
            && path.parent().is_some_and(is_known)
    }

    /// Returns the names directly below a prefix. The search skips all keys below a name that was found, so the time
    /// depends only on the number of names.
    fn names(&self, prefix: &Key) -> BTreeMap<Vec<u8>, EntryKind> {
        let mut names = BTreeMap::new();
        let mut start = within(prefix, b"");
        let stem = start.clone();
        while let Some(rest) = self.first_below(&start, &stem) {
            let mut parts = rest.splitn(2, |&byte| byte == b'/');
            let name = parts.next().unwrap_or_default();
            let is_folder = parts.next().is_some();
            // The search continues at the least key after all keys below that name, or after the document of that name.
            start = [stem.as_slice(), name, if is_folder { b"0" } else { b"\0" }].concat();
            let kind = if is_folder {
                EntryKind::Directory
            } else {
                EntryKind::File
            };
            names.insert(name.to_vec(), kind);
        }
        names
    }

    /// Finds the first document key at or after `start`, and returns the key without its prefix `stem`.
    fn first_below(&self, start: &[u8], stem: &[u8]) -> Option<&[u8]> {
        let range = (Bound::Included(start), Bound::Unbounded);
        let (key, _) = self.documents.range::<[u8], _>(range).next()?;
        key.strip_prefix(stem)
    }

    /// Returns whether a key is a file or a directory according to the consolidated metadata.
    pub(super) fn kind_of(&self, key: &Key) -> Presence<EntryKind> {
        if self.documents.contains_key(key.as_bytes()) {
            Presence::Is(EntryKind::File)
        } else if self.has_folder(key) {
            Presence::Is(EntryKind::Directory)
        } else if self.is_covered(key) {
            Presence::Missing
        } else {
            Presence::Unknown
        }
    }

    fn known(&self, key: &Key) -> Presence<Meta> {
        let bytes = self.document(key).unwrap_or_default();
        self.kind_of(key).map(|kind| self.meta(kind, &bytes))
    }

    fn has_folder(&self, key: &Key) -> bool {
        let stem = within(key, b"");
        key.is_root() || *key == self.top || self.first_below(&stem, &stem).is_some()
    }

    /// Whether the consolidated metadata would have a document with this key if it were stored. They need not have the
    /// documents of their own group, unless they have at least one of them.
    fn is_covered(&self, key: &Key) -> bool {
        let name = key.name();
        let is_document = self.source.is_complete && is_in_node_folder(name);
        let Some(folder) = key.parent().filter(|_| is_document) else {
            return false;
        };
        if folder == self.top {
            let covered = [ZARRAY, ZATTRS, ATTRIBUTES_JSON];
            return self.has_own_group()
                && covered.iter().any(|covered| covered.as_bytes() == name);
        }
        // The document that contains consolidated metadata has no copy in any consolidated metadata.
        !is_consolidated(name) && folder.below(&self.top).is_some() && self.has_folder(&folder)
    }

    fn meta(&self, kind: EntryKind, bytes: &[u8]) -> Meta {
        Meta {
            kind,
            size: bytes.len() as u64,
            stored: bytes.len() as u64,
            modified: self.source.modified,
            version: version_of(bytes),
        }
    }
}

/// Turns a key relative to a folder into a key relative to the root.
fn within(folder: &Key, key: &[u8]) -> Vec<u8> {
    if folder.is_root() {
        key.to_vec()
    } else {
        [folder.as_bytes(), b"/", key].concat()
    }
}

pub(super) fn version_of(bytes: &[u8]) -> Version {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Version::numbered(hasher.finish())
}

impl Layer for Consolidated {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.document(key) {
            Some(bytes) if bytes.len() as u64 <= limit => Ok(Some(Object {
                bytes: bytes.to_vec(),
                size: bytes.len() as u64,
                version: version_of(&bytes),
                modified: Some(self.source.modified),
            })),
            Some(bytes) => Err(Error::too_large(
                key,
                format!("{} bytes exceed the limit of {limit}", bytes.len()),
            )),
            None if self.is_covered(key) => Ok(None),
            None => self.inner.get(context, key, limit),
        }
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        match self.known(key) {
            Presence::Unknown => self.inner.head(context, key),
            known => Ok(known.value()),
        }
    }

    fn list(&self, _context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = self.names(prefix);
        if names.is_empty() {
            return Err(Error::not_found(prefix));
        }
        Ok(Box::new(NameList::new(names)))
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

impl Hints for Consolidated {
    fn prefetch(&self, keys: &[Key]) {
        let is_unknown = |key: &&Key| self.kind_of(key) == Presence::Unknown;
        let keys: Vec<Key> = keys.iter().filter(is_unknown).cloned().collect();
        self.hints.prefetch(&keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::NoHints;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::stats::Stats;

    fn consolidated(keys: &[&str], is_complete: bool) -> Consolidated {
        let place = |key: &&str| (Key::new(*key).unwrap(), 0..2);
        Consolidated::new(
            Arc::new(MemoryStore::default()),
            Arc::new(NoHints),
            &Key::new("top").unwrap(),
            b"{}".to_vec().into(),
            keys.iter().map(place).collect(),
            ConsolidatedSource {
                key: Key::new("top/.zmetadata").unwrap(),
                version: Version::numbered(1),
                modified: SystemTime::UNIX_EPOCH,
                is_complete,
            },
        )
    }

    const KEYS: [&str; 6] = [
        "a/.zarray",
        "a/.zattrs",
        "a-b/.zgroup",
        "a-b/c/.zarray",
        "a0/x",
        ".zgroup",
    ];

    #[test]
    fn each_name_is_listed_once() {
        let mut store = consolidated(&KEYS, true);
        let memory = MemoryBudget::new(1000, Arc::new(Stats::default()));
        assert!(store.count_in(&memory) && memory.held() > 6 * DOCUMENT_OVERHEAD);
        let listed = |prefix: &str| {
            let names = store.names(&Key::new(prefix).unwrap());
            let name = |name: &Vec<u8>| String::from_utf8(name.clone()).unwrap();
            names.keys().map(name).collect::<Vec<_>>()
        };
        assert_eq!(listed("top"), [".zgroup", "a", "a-b", "a0"]);
        assert_eq!(listed("top/a-b"), [".zgroup", "c"]);
        assert_eq!(listed("to"), [] as [String; 0]);
        let kind = |key: &str| {
            let meta = Store::head(&store, &UNLIMITED, &Key::new(key).unwrap()).unwrap();
            meta.map(|meta| meta.kind)
        };
        assert_eq!(kind("top/a"), Some(EntryKind::Directory));
        assert_eq!(kind("top/a/.zarray"), Some(EntryKind::File));
        assert_eq!(kind("top/b"), None);
    }

    /// Keys of documents that the consolidated metadata lack, in folders whose names they have.
    const BESIDE: [&str; 4] = [
        "top/a/.zgroup",
        "top/a/zarr.json",
        "top/a-b/.zattrs",
        "top/.zarray",
    ];

    #[test]
    fn documents_not_in_consolidated_metadata_are_missing() {
        let store = consolidated(&KEYS, true);
        let known = |key: &str| store.kind_of(&Key::new(key).unwrap());
        for key in BESIDE {
            assert_eq!(known(key), Presence::Missing, "{key}");
        }
        for key in [
            "top/.zmetadata",
            "top/zarr.json",
            "top/a/.zmetadata",
            "top/a/0",
            "top/b/.zarray",
            ".zgroup",
            "other/.zgroup",
        ] {
            assert_eq!(known(key), Presence::Unknown, "{key}");
        }
        let bare = consolidated(&["a/zarr.json"], true);
        let own = bare.kind_of(&Key::new("top/.zarray").unwrap());
        assert_eq!(
            own,
            Presence::Unknown,
            "they tell nothing of the group itself"
        );
        for name in ["zarr.json", "metadata.json"] {
            assert!(store.is_no_node(&Key::new(format!("top/a-b/{name}")).unwrap()));
        }
        let named = consolidated(&["metadata.json/.zarray"], true);
        assert!(!named.is_no_node(&Key::new("top/metadata.json").unwrap()));
        assert!(!store.is_no_node(&Key::new("top/b/zarr.json").unwrap()));
    }

    #[test]
    fn a_writable_mount_asks_the_store_for_missing_documents() {
        let store = consolidated(&KEYS, false);
        for key in BESIDE {
            let key = Key::new(key).unwrap();
            assert_eq!(store.kind_of(&key), Presence::Unknown, "{key}");
            assert!(!store.is_no_node(&key));
        }
    }
}
