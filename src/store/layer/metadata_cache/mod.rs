//! A store that remembers: a wrapper around stores that are far away, so that nothing is asked twice in a while.
//!
//! Answers count for `--metadata-ttl`: kinds, sizes and versions, small documents, the names of directories, and
//! that something is missing. Errors are never remembered. Everything is bounded. What this holds of a key is
//! forgotten when it is changed through this store (`changes`), or when a reader finds it changed; nothing else is
//! ever invalidated but by time.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, Tree, Version,
};
use invalidation::ChangeKind;
use listing::CachedListing;
use reader::InvalidatingReader;
use shared::MetadataCacheState;

mod assembler;
mod dir;
mod dirs;
mod document_prefetch;
mod documents;
mod flat_listing;
mod folder_prefetch;
mod invalidation;
mod keys;
mod listing;
mod listing_prefetch;
mod reader;
mod shared;
mod single_flight;
mod warm_up;

/// How much is remembered, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct MetadataCacheConfig {
    /// For how long an answer counts.
    pub ttl: Duration,
    /// The most documents that are fetched ahead at a time.
    pub concurrency: usize,
    /// The most names of directories.
    pub names: usize,
    /// The most single keys.
    pub keys: NonZeroUsize,
    /// The longest document, in bytes.
    pub document: u64,
    /// Bytes of all documents.
    pub documents: u64,
}

impl Default for MetadataCacheConfig {
    fn default() -> MetadataCacheConfig {
        MetadataCacheConfig {
            ttl: Duration::from_secs(60),
            concurrency: 32,
            names: 200_000,
            keys: const { NonZeroUsize::new(1 << 16).unwrap() },
            document: 1 << 20,
            documents: 32 << 20,
        }
    }
}

/// A store over a store.
pub struct MetadataCache {
    shared: Arc<MetadataCacheState>,
}

impl MetadataCache {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCache {
        MetadataCache {
            shared: Arc::new(MetadataCacheState::new(inner, config)),
        }
    }

    fn watched(&self, key: &Key, inner: Arc<dyn Reader>) -> Arc<dyn Reader> {
        Arc::new(InvalidatingReader {
            inner,
            key: key.clone(),
            shared: self.shared.clone(),
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for MetadataCache {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.shared.ask_siblings(key);
        let found = self.shared.object(key, limit)?;
        Ok(found.map(Arc::unwrap_or_clone))
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        if self.shared.is_missing(key) {
            return Ok(None);
        }
        let asked = self.shared.changes.asked();
        let found = self.shared.inner.get_range(key, range)?;
        self.shared.note_object(key, found.as_ref(), asked);
        Ok(found)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.shared.head(key)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.shared.version(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        let reader = self.shared.open(key)?;
        Ok(self.watched(key, reader))
    }

    fn open_known(&self, key: &Key, meta: &Meta) -> Result<Arc<dyn Reader>> {
        let reader = self.shared.inner.open_known(key, meta)?;
        Ok(self.watched(key, reader))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        if self.shared.ttl.is_zero() || !self.shared.inner.lists() {
            return self.shared.inner.list(prefix);
        }
        match self.shared.head_now(prefix) {
            Some(None) => return Err(Error::not_found(prefix)),
            Some(Some(meta)) if meta.kind == EntryKind::File => {
                let text = "is an object, not a directory";
                return Err(Error::new(Kind::NotADirectory, prefix, text));
            }
            _ => {}
        }
        let folder = self.shared.folder(prefix)?;
        Ok(Box::new(CachedListing::new(&self.shared, folder)))
    }

    fn walk(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        self.shared.inner.walk(prefix, from)
    }

    fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        self.shared.head_now(key)
    }

    fn ask_ahead(&self, keys: &[Key]) {
        for key in keys {
            self.shared.ask(key.clone());
        }
    }

    fn lists(&self) -> bool {
        self.shared.inner.lists()
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        self.shared.inner.read_link(key)
    }

    fn freshness(&self) -> Duration {
        self.shared.inner.freshness()
    }

    fn epoch(&self) -> u64 {
        // A change is counted here once it is forgotten, below as soon as it is made.
        let below = self.shared.inner.epoch();
        below.wrapping_add(self.shared.changes.count())
    }

    fn stamp(&self, key: &Key) -> Result<Option<ETag>> {
        let stamp = self.shared.inner.stamp(key)?;
        let version = stamp.as_ref().map(|stamp| stamp.version);
        let known = self.shared.object_now(key);
        if known.is_some_and(|known| known.what.version() != version) {
            self.shared.forget(key);
        }
        Ok(stamp)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = || self.shared.inner.put(key, body, condition);
        self.shared.change(key, ChangeKind::Put, put)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.shared.inner.erase(key, condition);
        self.shared.change(key, ChangeKind::Erased, erase)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        let erase = || self.shared.inner.erase_folder(prefix);
        self.shared.change(prefix, ChangeKind::Erased, erase)
    }

    fn honours_conditions(&self) -> Result<bool> {
        // A listing that was read meanwhile may have the key of the trial.
        let try_out = || self.shared.inner.honours_conditions();
        self.shared.change(&Key::root(), ChangeKind::Put, try_out)
    }

    fn tree(&self) -> Option<Arc<dyn Tree>> {
        self.shared.inner.tree()
    }

    fn folder(&self) -> Option<&Path> {
        self.shared.inner.folder()
    }
}
