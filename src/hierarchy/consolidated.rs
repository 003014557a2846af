//! A store whose documents are known from consolidated metadata, for the nodes below the group that had them.
//!
//! Lists only what the consolidated metadata name; a key that they do not name is asked of the store below. It
//! is put beneath a group after that group's own documents were read, so it never overrules those. Changes go to the
//! store below; what is consolidated stays as it was read until the group is read anew. Its text is held once, for all
//! documents in it and the nodes that are read from them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::SystemTime;

use crate::dialect::consolidated::DocumentPlaces;
use crate::error::{Error, Result};
use crate::known::Known;
use crate::store::layer::Layer;
use crate::store::listing::NameList;
use crate::store::{
    EntryKind, FlatListing, Hints, Key, Listing, Meta, Object, Store, StoreInfo, Version,
};
use crate::sync::budget::{MemoryBudget, Reservation};
use crate::sync::shared_bytes::SharedBytes;

/// A store over a store.
pub(super) struct Consolidated {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    info: StoreInfo,
    text: SharedBytes,
    /// Where in the text the document of each key stands.
    documents: BTreeMap<Box<[u8]>, Range<usize>>,
    modified: SystemTime,
    /// The memory that the text and the table count in; nothing if there was none left.
    room: Option<Reservation>,
}

/// What a document takes beside its text and the bytes of its key, in bytes.
const DOCUMENT_OVERHEAD: u64 = 96;

impl Consolidated {
    /// Puts documents, their keys counted from `top` and their places in a text, over a store and its hints.
    pub(super) fn new(
        (inner, hints): (Arc<dyn Store>, Arc<dyn Hints>),
        top: &Key,
        (text, places): (SharedBytes, DocumentPlaces),
        modified: SystemTime,
    ) -> Consolidated {
        let within = |key: Key| {
            if top.is_root() {
                key.as_bytes().into()
            } else {
                [top.as_bytes(), b"/", key.as_bytes()].concat().into()
            }
        };
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
                .map(|(key, place)| (within(key), place))
                .collect(),
            modified,
            room: None,
        }
    }

    /// Counts what it holds in a budget; returns whether that has room for it.
    pub(super) fn count_in(&mut self, memory: &Arc<MemoryBudget>) -> bool {
        let keys = self.documents.keys();
        let keys = keys.map(|key| key.len() as u64 + DOCUMENT_OVERHEAD);
        self.room = memory.try_reserve(self.text.held() + keys.sum::<u64>());
        self.room.is_some()
    }

    /// Returns a document as a part of the text; nothing if there is none.
    pub(super) fn document(&self, key: &Key) -> Option<SharedBytes> {
        let place = self.documents.get(key.as_bytes())?;
        Some(self.text.shared_part(place.clone()))
    }

    /// Returns when the consolidated metadata were changed.
    pub(super) fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Returns the names directly under a prefix. From each name the search jumps to the next, so that the
    /// time depends on how many there are and not on how much lies below them.
    fn names(&self, prefix: &Key) -> BTreeMap<Vec<u8>, EntryKind> {
        let mut names = BTreeMap::new();
        let mut start = if prefix.is_root() {
            Vec::new()
        } else {
            [prefix.as_bytes(), b"/"].concat()
        };
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
    fn known(&self, key: &Key) -> Option<Meta> {
        if let Some(bytes) = self.document(key) {
            return Some(self.meta(EntryKind::File, &bytes));
        }
        let stem = [key.as_bytes(), b"/"].concat();
        let is_folder = key.is_root() || self.first_below(&stem, &stem).is_some();
        is_folder.then(|| self.meta(EntryKind::Directory, b""))
    }

    fn meta(&self, kind: EntryKind, bytes: &[u8]) -> Meta {
        Meta {
            kind,
            size: bytes.len() as u64,
            stored: bytes.len() as u64,
            modified: self.modified,
            version: version_of(bytes),
        }
    }
}

/// Tells one content of a document from another.
pub(super) fn version_of(bytes: &[u8]) -> Version {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Version(hasher.finish())
}

impl Layer for Consolidated {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.document(key) {
            Some(bytes) if bytes.len() as u64 <= limit => Ok(Some(Object {
                bytes: bytes.to_vec(),
                size: bytes.len() as u64,
                version: version_of(&bytes),
                modified: Some(self.modified),
            })),
            Some(bytes) => Err(Error::too_large(
                key,
                format!("{} bytes, at most {limit} are read", bytes.len()),
            )),
            None => self.inner.get(key, limit),
        }
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        match self.known(key) {
            Some(meta) => Ok(Some(meta)),
            None => self.inner.head(key),
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = self.names(prefix);
        if names.is_empty() {
            return Err(Error::not_found(prefix));
        }
        Ok(Box::new(NameList::new(names)))
    }

    fn list_all(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

impl Hints for Consolidated {
    fn head_now(&self, key: &Key) -> Known<Meta> {
        match self.known(key) {
            Some(meta) => Known::Is(meta),
            None => self.hints.head_now(key),
        }
    }

    fn prefetch(&self, keys: &[Key]) {
        let is_unknown = |key: &&Key| !self.documents.contains_key(key.as_bytes());
        let keys: Vec<Key> = keys.iter().filter(is_unknown).cloned().collect();
        self.hints.prefetch(&keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;
    use crate::store::NoHints;
    use crate::store::backend::memory::MemoryStore;

    #[test]
    fn each_name_is_listed_once() {
        let keys = [
            "a/.zarray",
            "a/.zattrs",
            "a-b/.zgroup",
            "a-b/c/.zarray",
            "a0/x",
            ".zgroup",
        ];
        let documents = keys.map(|key| (Key::new(key).unwrap(), 0..2));
        let mut store = Consolidated::new(
            (Arc::new(MemoryStore::default()), Arc::new(NoHints)),
            &Key::new("top").unwrap(),
            (b"{}".to_vec().into(), documents.into()),
            SystemTime::UNIX_EPOCH,
        );
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
            let meta = Store::head(&store, &Key::new(key).unwrap()).unwrap();
            meta.map(|meta| meta.kind)
        };
        assert_eq!(kind("top/a"), Some(EntryKind::Directory));
        assert_eq!(kind("top/a/.zarray"), Some(EntryKind::File));
        assert_eq!(kind("top/b"), None);
    }
}
