//! A store that remembers: a wrapper around stores that are far away, so that nothing is asked twice in a while.
//!
//! Answers count for `--metadata-ttl`: kinds, sizes and versions, small documents, the names of directories, and
//! that something is missing. Errors are never remembered. Everything is bounded. What this holds of a key is
//! forgotten when it is changed through this store (`changes`), or when a reader finds it changed; nothing else is
//! ever invalidated but by time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::store::layer::Layer;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, Hints, Key, Listing, Meta, Object, PutBody, Reader,
    Store, Version,
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
}

impl Layer for MetadataCache {
    fn below(&self) -> &dyn Store {
        &*self.shared.inner
    }

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

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let inner = match known {
            Some(_) => self.shared.inner.open(key, known)?,
            None => self.shared.open(key)?,
        };
        Ok(Arc::new(InvalidatingReader {
            inner,
            key: key.clone(),
            shared: self.shared.clone(),
        }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        if self.shared.ttl.is_zero() || !self.shared.inner.info().lists {
            return self.shared.inner.list(prefix);
        }
        match self.shared.head_now(prefix) {
            Known::Missing => return Err(Error::not_found(prefix)),
            Known::Is(meta) if meta.kind == EntryKind::File => {
                let text = "is an object, not a directory";
                return Err(Error::new(Kind::NotADirectory, prefix, text));
            }
            Known::Is(_) | Known::Unknown => {}
        }
        let folder = self.shared.folder(prefix)?;
        Ok(Box::new(CachedListing::new(&self.shared, folder)))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        let etag = self.shared.inner.etag(key)?;
        let version = etag.as_ref().map(|etag| etag.version);
        let known = self.shared.object_now(key);
        if known.is_some_and(|known| known.what.version() != version) {
            self.shared.forget(key);
        }
        Ok(etag)
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
}

impl Hints for MetadataCache {
    fn head_now(&self, key: &Key) -> Known<Meta> {
        self.shared.head_now(key)
    }

    fn prefetch(&self, keys: &[Key]) {
        for key in keys {
            self.shared.ask(key.clone());
        }
    }
}
