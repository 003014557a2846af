//! Caches metadata of a store on the network: keys, documents and listings.
//!
//! For the TTL `--metadata-ttl`, counted from the request, it caches kinds, sizes and versions, small documents, the
//! names of directories, and missing keys. Errors are never cached. All tables are bounded, within the memory budget. A
//! change through this store, or a reader that finds a key changed, invalidates the key; changes by other programs show
//! after the TTL.
//!
//! `cached_answers` has the answers in memory; `key_queries` and `lister` make the requests for others. Two objects guess
//! what a program needs next: `listing_prefetch` lists the siblings of directories that were listed, and `lookahead`
//! fetches the documents and sizes that follow in sequence. A caller that will visit everything below several
//! directories announces it (`Hints::prefetch_below`).

use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::layer::Layer;
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{
    ByteRange, Condition, ETag, EntryKind, Hints, Key, Listing, Meta, Object, Presence, PutBody,
    Reader, Store, Version,
};
use cached_answers::{CachedAnswers, ChangeKind};
use cached_dir::CachedListing;
use key_queries::KeyQueries;
use lister::DirLister;
use lookahead::Lookahead;
use zarr_format::error::{Error, Kind, Result};

mod assembler;
mod cached_answers;
mod cached_dir;
mod dirs;
mod key_queries;
mod keys;
mod lister;
mod listing_prefetch;
mod lookahead;

/// Maximum number of names that are listed in the root, and in the root's only directory, when a store is opened.
const MAX_ROOT_NAMES: usize = 1000;

/// The TTL and the limits of the metadata cache.
#[derive(Clone, Debug)]
pub struct MetadataCacheConfig {
    /// How long a cached answer is used, counted from its request.
    pub ttl: Duration,
    /// Maximum number of concurrent requests that prefetch documents.
    pub concurrency: usize,
    /// Maximum number of cached names in all directories together.
    pub names: usize,
    /// Maximum number of keys with cached answers, directories aside.
    pub keys: NonZeroUsize,
    /// Maximum size of a cached document, in bytes.
    pub document: u64,
    /// Maximum size of all cached documents, in bytes.
    pub documents: u64,
    /// The budget to which the memory of all cached answers is charged.
    pub memory: Arc<MemoryBudget>,
}

impl MetadataCacheConfig {
    /// Returns the default configuration, with memory from the budget `memory`.
    pub fn within(memory: Arc<MemoryBudget>) -> MetadataCacheConfig {
        MetadataCacheConfig {
            ttl: Duration::from_secs(60),
            concurrency: 32,
            names: 200_000,
            keys: const { NonZeroUsize::new(1 << 16).unwrap() },
            document: 1 << 20,
            documents: 32 << 20,
            memory,
        }
    }
}

impl Default for MetadataCacheConfig {
    fn default() -> MetadataCacheConfig {
        MetadataCacheConfig::within(MemoryBudget::new(32 << 20, Arc::new(Stats::default())))
    }
}

/// A store that caches the metadata of the store that it wraps.
pub struct MetadataCache {
    inner: Arc<dyn Store>,
    answers: Arc<CachedAnswers>,
    queries: Arc<KeyQueries>,
    lister: Arc<DirLister>,
    lookahead: Lookahead,
}

impl MetadataCache {
    /// Wraps a store, and caches its metadata as `config` says.
    pub fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCache {
        let answers = Arc::new(CachedAnswers::new(inner.info(), config));
        let queries = Arc::new(KeyQueries::new(inner.clone(), answers.clone()));
        let lister = Arc::new(DirLister::new(inner.clone(), answers.clone()));
        MetadataCache {
            lookahead: Lookahead::new(queries.clone(), lister.clone(), config.concurrency),
            inner,
            answers,
            queries,
            lister,
        }
    }

    /// Makes a change of a key, and invalidates the cached answers that the change may have affected, even if it fails.
    fn change<T>(
        &self,
        key: &Key,
        kind: ChangeKind,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let changed = change();
        let kind = if changed.is_ok() {
            kind
        } else {
            ChangeKind::Erased
        };
        let end_listings = || self.lister.end_prefetches_over(key);
        self.answers.forget_changed(key, kind, end_listings);
        changed
    }

    /// Lists the root, to learn which metadata documents it has. If the root has only one directory, starts to list
    /// that directory too. Errors are ignored, since later listings will report them.
    pub fn list_root(&self, context: &RequestContext) {
        if !self.answers.is_on() {
            return;
        }
        let Ok(mut listing) = Layer::list(self, context, &Key::root()) else {
            return;
        };
        let mut directories = Vec::new();
        for _ in 0..MAX_ROOT_NAMES {
            match listing.next(context) {
                Ok(Some(name)) if name.kind == EntryKind::Directory => directories.push(name.name),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if let [only] = &*directories
            && let Ok(only) = Key::root().child(only)
        {
            self.lookahead.prefetch_listing(only, MAX_ROOT_NAMES);
        }
    }
}

impl Layer for MetadataCache {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.lookahead.record_read(key);
        self.queries.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if self.answers.is_missing(context, key) {
            return Ok(None);
        }
        let (object, stamp) = self.queries.request(context, |context, inner| {
            inner.get_range(context, key, range.clone())
        });
        let object = object?;
        let checked = self.queries.check_length(context, key, object.as_ref());
        checked.inspect_err(|_| self.inner.drop_cached(key, Some(&range)))?;
        self.answers.put_object(key, object.as_ref().into(), stamp);
        Ok(object)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if context.may_wait() {
            self.lookahead.record_lookup(key, true);
            return self.queries.head(context, key);
        }
        let known = self.queries.head(context, key)?;
        self.lookahead.record_lookup(key, false);
        Ok(known)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.queries.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let inner = match known {
            Some(_) => self.inner.open(context, key, known)?,
            None => self.queries.open(context, key)?,
        };
        Ok(Arc::new(InvalidatingReader {
            inner,
            key: key.clone(),
            answers: self.answers.clone(),
        }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        if !self.answers.is_on() || !self.inner.info().lists {
            return self.inner.list(context, prefix);
        }
        match self.answers.known_head(context, prefix) {
            Presence::Missing => return Err(Error::not_found(prefix)),
            Presence::Is(meta) if meta.kind == EntryKind::File => {
                let text = "is an object, not a directory";
                return Err(Error::new(Kind::NotADirectory, prefix, text));
            }
            Presence::Is(_) | Presence::Unknown => {}
        }
        let dir = self.lister.list(context, prefix)?;
        context.record_age(dir.request_time);
        Ok(Box::new(CachedListing::new(&self.lister, dir)))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let etag = self.inner.etag(context, key)?;
        let version = etag.as_ref().map(|etag| etag.version);
        self.answers.forget_other_version(key, version);
        Ok(etag)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let put = || self.inner.put(context, key, body, condition);
        self.change(key, ChangeKind::Put, put)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.inner.erase(context, key, condition);
        self.change(key, ChangeKind::Erased, erase)
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        let erase = || self.inner.erase_folder(context, prefix);
        self.change(prefix, ChangeKind::Erased, erase)
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        self.answers.keys.forget(key);
        self.inner.drop_cached(key, range);
    }
}

impl Hints for MetadataCache {
    fn prefetch(&self, keys: &[Key]) {
        for key in keys {
            self.lookahead.prefetch_document(key.clone());
        }
    }

    fn prefetch_below(&self, context: &RequestContext, top: &Key, folders: &[Key]) {
        if self.answers.is_on() && self.inner.info().lists {
            self.lister.list_below(context, top, folders);
        }
    }

    fn cached_below(&self, context: &RequestContext, folder: &Key) -> Option<Vec<(Key, Meta)>> {
        self.answers.dirs.all_below(context, folder)
    }
}

/// An open object. If a read finds that the object has changed, its cached metadata are invalidated.
struct InvalidatingReader {
    inner: Arc<dyn Reader>,
    key: Key,
    answers: Arc<CachedAnswers>,
}

impl InvalidatingReader {
    fn check<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == Kind::Changed
        {
            self.answers.forget(&self.key);
        }
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for InvalidatingReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.check(self.inner.read_at(context, offset, len))
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        self.check(self.inner.read_vectored(context, offset, parts))
    }

    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check(self.inner.read_ranges(context, ranges))
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.check(self.inner.meta(context))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
