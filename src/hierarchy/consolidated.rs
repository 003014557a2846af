//! A store whose documents are known from consolidated metadata, for the nodes below the group that had them.
//!
//! Lists only what the consolidated metadata name; a key that they do not name is asked of the store below. It
//! is put beneath a group after that group's own documents were read, so it never overrules those. Changes go to the
//! store below; what is consolidated stays as it was read until the group is read anew.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::dialect::DocumentMap;
use crate::error::{Error, Result};
use crate::store::listing::NameList;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, Tree, Version,
};

/// A store over a store.
pub(super) struct Consolidated {
    inner: Arc<dyn Store>,
    documents: BTreeMap<Vec<u8>, Vec<u8>>,
    modified: SystemTime,
}

impl Consolidated {
    /// Puts documents, their keys counted from `top`, over a store.
    pub(super) fn new(
        inner: Arc<dyn Store>,
        top: &Key,
        documents: DocumentMap,
        modified: SystemTime,
    ) -> Consolidated {
        let within = |key: Key| match top.is_root() {
            true => key.as_bytes().to_vec(),
            false => [top.as_bytes(), b"/", key.as_bytes()].concat(),
        };
        let documents = documents.into_iter();
        Consolidated {
            inner,
            documents: documents
                .filter(|(key, _)| !key.is_root())
                .map(|(key, document)| (within(key), document))
                .collect(),
            modified,
        }
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
        if let Some(bytes) = self.documents.get(key.as_bytes()) {
            return Some(self.meta(EntryKind::File, bytes));
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

#[deny(clippy::missing_trait_methods)]
impl Store for Consolidated {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.documents.get(key.as_bytes()) {
            Some(bytes) if bytes.len() as u64 <= limit => Ok(Some(Object {
                bytes: bytes.clone(),
                size: bytes.len() as u64,
                version: version_of(bytes),
                modified: Some(self.modified),
            })),
            Some(bytes) => Err(Error::too_large(
                key,
                format!("{} bytes, at most {limit} are read", bytes.len()),
            )),
            None => self.inner.get(key, limit),
        }
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.inner.get_range(key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        match self.known(key) {
            Some(meta) => Ok(Some(meta)),
            None => self.inner.head(key),
        }
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.inner.version(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        self.inner.open(key)
    }

    fn open_known(&self, key: &Key, meta: &Meta) -> Result<Arc<dyn Reader>> {
        self.inner.open_known(key, meta)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = self.names(prefix);
        if names.is_empty() {
            return Err(Error::not_found(prefix));
        }
        Ok(Box::new(NameList::new(names)))
    }

    fn walk(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        match self.known(key) {
            Some(meta) => Some(Some(meta)),
            None => self.inner.head_now(key),
        }
    }

    fn ask_ahead(&self, keys: &[Key]) {
        let is_unknown = |key: &&Key| !self.documents.contains_key(key.as_bytes());
        let keys: Vec<Key> = keys.iter().filter(is_unknown).cloned().collect();
        self.inner.ask_ahead(&keys);
    }

    fn lists(&self) -> bool {
        true
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        self.inner.read_link(key)
    }

    fn freshness(&self) -> Duration {
        self.inner.freshness()
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    fn stamp(&self, key: &Key) -> Result<Option<ETag>> {
        self.inner.stamp(key)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        self.inner.put(key, body, condition)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.inner.erase(key, condition)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.inner.erase_folder(prefix)
    }

    fn honours_conditions(&self) -> Result<bool> {
        self.inner.honours_conditions()
    }

    /// What documents there are says the tree of the store below.
    fn tree(&self) -> Option<Arc<dyn Tree>> {
        self.inner.tree()
    }

    fn folder(&self) -> Option<&Path> {
        self.inner.folder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let documents = keys.map(|key| (Key::new(key).unwrap(), b"{}".to_vec()));
        let store = Consolidated::new(
            Arc::new(MemoryStore::default()),
            &Key::new("top").unwrap(),
            documents.into(),
            SystemTime::UNIX_EPOCH,
        );
        let listed = |prefix: &str| {
            let names = store.names(&Key::new(prefix).unwrap());
            let name = |name: &Vec<u8>| String::from_utf8(name.clone()).unwrap();
            names.keys().map(name).collect::<Vec<_>>()
        };
        assert_eq!(listed("top"), [".zgroup", "a", "a-b", "a0"]);
        assert_eq!(listed("top/a-b"), [".zgroup", "c"]);
        assert_eq!(listed("to"), [] as [String; 0]);
        let kind = |key: &str| {
            store
                .head(&Key::new(key).unwrap())
                .unwrap()
                .map(|meta| meta.kind)
        };
        assert_eq!(kind("top/a"), Some(EntryKind::Directory));
        assert_eq!(kind("top/a/.zarray"), Some(EntryKind::File));
        assert_eq!(kind("top/b"), None);
    }
}
