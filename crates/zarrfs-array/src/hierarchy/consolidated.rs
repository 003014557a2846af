//! A store whose documents are known from consolidated metadata, for the nodes below the group that had them.
//!
//! Lists only what the consolidated metadata name. On a read-only mount they tell all
//! documents of a folder that they name: one that they do not have there is missing, and is not asked for. Any other key
//! that they do not name is asked of the store below. It is put beneath a group after that group's own documents were
//! read, so it never overrules those, or instead of reading them where they are in there. Changes go to the store below;
//! what is consolidated stays as it was read until the group is read anew. Its text is held once, for all documents in it
//! and the nodes that are read from them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use zarr_format::dialect::consolidated::DocumentPlaces;
use zarr_format::error::{Error, Result};
use zarr_format::model::document::{
    ATTRIBUTES_JSON, ZARRAY, ZATTRS, ZGROUP, is_consolidated, is_in_each_node, is_in_node_folder,
};
use zarrfs_store::known::Known;
use zarrfs_store::layer::Layer;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::{
    EntryKind, FlatListing, Hints, Key, Listing, Meta, Object, Store, StoreInfo, Version,
};

/// The document that holds consolidated metadata.
pub(super) struct ConsolidatedSource {
    /// Where it is stored.
    pub(super) key: Key,
    /// Which content it is.
    pub(super) version: Version,
    /// When it was last changed.
    pub(super) modified: SystemTime,
    /// Whether documents that it does not have are missing: the mount is read-only, so that none can be made.
    pub(super) tells_all: bool,
}

/// A store over a store.
pub(super) struct Consolidated {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    info: StoreInfo,
    /// The folder from which the keys of the documents count.
    top: Key,
    source: ConsolidatedSource,
    text: Bytes,
    /// Where in the text the document of each key stands.
    documents: BTreeMap<Box<[u8]>, Range<usize>>,
    /// The memory that the text and the table count in; nothing if there was none left.
    room: Option<Reservation>,
}

/// What a document takes beside its text and the bytes of its key, in bytes.
const DOCUMENT_OVERHEAD: u64 = 96;

impl Consolidated {
    /// Puts documents, their keys counted from `top` and their places in a text, over a store and its hints.
    pub(super) fn new(
        inner: Arc<dyn Store>,
        hints: Arc<dyn Hints>,
        top: &Key,
        text: Bytes,
        places: DocumentPlaces,
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

    /// Counts what it holds in a budget; returns whether that has room for it.
    pub(super) fn count_in(&mut self, memory: &Arc<MemoryBudget>) -> bool {
        let keys = self.documents.keys();
        let keys = keys.map(|key| key.len() as u64 + DOCUMENT_OVERHEAD);
        self.room = memory.try_reserve(self.text.len() as u64 + keys.sum::<u64>());
        self.room.is_some()
    }

    /// Returns a document as a part of the text; nothing if there is none.
    pub(super) fn document(&self, key: &Key) -> Option<Bytes> {
        let place = self.documents.get(key.as_bytes())?;
        Some(self.text.slice(place.clone()))
    }

    /// Returns when the consolidated metadata were changed.
    pub(super) fn modified(&self) -> SystemTime {
        self.source.modified
    }

    /// Returns the key of the document that holds the consolidated metadata.
    pub(super) fn key(&self) -> &Key {
        &self.source.key
    }

    /// Returns which content the consolidated metadata are.
    pub(super) fn version(&self) -> Version {
        self.source.version
    }

    /// Whether a key is that of the document that holds the consolidated metadata.
    pub(super) fn is_source(&self, key: &Key) -> bool {
        self.source.key == *key
    }

    /// Whether the documents of the group that has the consolidated metadata are in there.
    pub(super) fn has_own_group(&self) -> bool {
        let own = within(&self.top, ZGROUP.as_bytes());
        self.documents.contains_key(own.as_slice())
    }

    /// Whether a path cannot be that of a node, as it has the name of a file that each node has, in a folder all of whose
    /// names are known.
    pub(super) fn is_no_node(&self, path: &Key) -> bool {
        let is_known = |folder: Key| self.has_folder(&folder);
        self.source.tells_all
            && is_in_each_node(path.name())
            && !self.has_folder(path)
            && path.parent().is_some_and(is_known)
    }

    /// Returns the names directly under a prefix. From each name the search jumps to the next, so that the
    /// time depends on how many there are and not on how much lies below them.
    fn names(&self, prefix: &Key) -> BTreeMap<Vec<u8>, EntryKind> {
        let mut names = BTreeMap::new();
        let mut start = within(prefix, b"");
        let stem = start.clone();
        while let Some(rest) = self.first_below(&start, &stem) {
            let mut parts = rest.splitn(2, |&byte| byte == b'/');
            let name = parts.next().unwrap_or_default();
            let is_folder = parts.next().is_some();
            // What sorts after everything in the folder, or after the document of that name.
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

    /// Returns what follows `stem` in the first key that is not before `start`.
    fn first_below(&self, start: &[u8], stem: &[u8]) -> Option<&[u8]> {
        let range = (Bound::Included(start), Bound::Unbounded);
        let (key, _) = self.documents.range::<[u8], _>(range).next()?;
        key.strip_prefix(stem)
    }

    /// Returns what the documents tell of a key.
    pub(super) fn kind_of(&self, key: &Key) -> Known<EntryKind> {
        if self.documents.contains_key(key.as_bytes()) {
            Known::Is(EntryKind::File)
        } else if self.has_folder(key) {
            Known::Is(EntryKind::Directory)
        } else if self.is_told(key) {
            Known::Missing
        } else {
            Known::Unknown
        }
    }

    fn known(&self, key: &Key) -> Known<Meta> {
        let bytes = self.document(key).unwrap_or_default();
        self.kind_of(key).map(|kind| self.meta(kind, &bytes))
    }

    /// Whether documents lie below a key.
    fn has_folder(&self, key: &Key) -> bool {
        let stem = within(key, b"");
        key.is_root() || *key == self.top || self.first_below(&stem, &stem).is_some()
    }

    /// Whether a key is that of a document that would be in there if it were stored. Of the group that has the
    /// consolidated metadata, they tell the documents only where they have one of them.
    fn is_told(&self, key: &Key) -> bool {
        let name = key.name();
        let is_document = self.source.tells_all && is_in_node_folder(name);
        let Some(folder) = key.parent().filter(|_| is_document) else {
            return false;
        };
        if folder == self.top {
            let told = [ZARRAY, ZATTRS, ATTRIBUTES_JSON];
            return self.has_own_group() && told.iter().any(|told| told.as_bytes() == name);
        }
        // Copies of copies are not made.
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

/// Returns a key, counted from a folder, as one counted from the root.
fn within(folder: &Key, key: &[u8]) -> Vec<u8> {
    if folder.is_root() {
        key.to_vec()
    } else {
        [folder.as_bytes(), b"/", key].concat()
    }
}

/// Tells one content of a document from another.
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
                format!("{} bytes, at most {limit} are read", bytes.len()),
            )),
            None if self.is_told(key) => Ok(None),
            None => self.inner.get(context, key, limit),
        }
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        match self.known(key) {
            Known::Unknown => self.inner.head(context, key),
            known => Ok(known.found()),
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
        let is_unknown = |key: &&Key| self.kind_of(key) == Known::Unknown;
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

    fn consolidated(keys: &[&str], tells_all: bool) -> Consolidated {
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
                tells_all,
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

    /// Documents that are not in there, in folders that are.
    const BESIDE: [&str; 4] = [
        "top/a/.zgroup",
        "top/a/zarr.json",
        "top/a-b/.zattrs",
        "top/.zarray",
    ];

    #[test]
    fn documents_beside_those_that_are_there_are_missing() {
        let store = consolidated(&KEYS, true);
        let known = |key: &str| store.kind_of(&Key::new(key).unwrap());
        for key in BESIDE {
            assert_eq!(known(key), Known::Missing, "{key}");
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
            assert_eq!(known(key), Known::Unknown, "{key}");
        }
        let bare = consolidated(&["a/zarr.json"], true);
        let own = bare.kind_of(&Key::new("top/.zarray").unwrap());
        assert_eq!(own, Known::Unknown, "they tell nothing of the group itself");
        for name in ["zarr.json", "metadata.json"] {
            assert!(store.is_no_node(&Key::new(format!("top/a-b/{name}")).unwrap()));
        }
        let named = consolidated(&["metadata.json/.zarray"], true);
        assert!(!named.is_no_node(&Key::new("top/metadata.json").unwrap()));
        assert!(!store.is_no_node(&Key::new("top/b/zarr.json").unwrap()));
    }

    #[test]
    fn documents_that_programs_can_make_are_asked_for() {
        let store = consolidated(&KEYS, false);
        for key in BESIDE {
            let key = Key::new(key).unwrap();
            assert_eq!(store.kind_of(&key), Known::Unknown, "{key}");
            assert!(!store.is_no_node(&key));
        }
    }
}
