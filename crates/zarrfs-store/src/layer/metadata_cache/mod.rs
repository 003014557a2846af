//! Caches metadata of a store on the network: keys, documents and listings.
//!
//! For the TTL `--metadata-ttl`, counted from the request, it caches kinds, sizes and versions, small documents, the
//! names of directories, and missing keys. Errors are never cached. All tables are bounded, within the memory budget. A
//! change through this store, or a reader that finds a key changed, invalidates the key; changes by other programs show
//! after the TTL.
//!
//! A caller that will visit everything below several directories announces it (`listed_below`). Otherwise a client that
//! lists a second directory starts a recursive listing of its siblings (`flat_listing`). Sequential reads and lookups
//! are prefetched (`name_orders`): the same document of the next directories, and the sizes of files whose listing has
//! none.

use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::known::Known;
use crate::layer::Layer;
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{
    ByteRange, Condition, ETag, EntryKind, Hints, Key, Listing, Meta, Object, PutBody, Reader,
    Store, Version,
};
use changes::ChangeKind;
use listing::CachedListing;
use state::MetadataCacheState;
use zarr_format::error::{Error, Kind, Result};

mod assembler;
mod cached_dir;
mod changes;
mod dated;
mod dirs;
mod flat_listing;
mod keys;
mod known_answers;
mod listed_below;
mod listing;
mod listing_parts;
mod listing_prefetch;
mod name_orders;
mod state;

/// Timeout for joining another caller's request; far longer than the store's own timeouts.
const JOIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of names to read from a directory when a store is opened.
const MAX_ROOT_NAMES: usize = 1000;

fn join_deadline() -> Instant {
    Instant::now() + JOIN_TIMEOUT
}

/// Limits and TTL of the cache.
#[derive(Clone, Debug)]
pub struct MetadataCacheConfig {
    /// TTL of answers.
    pub ttl: Duration,
    /// Maximum number of documents to prefetch concurrently.
    pub concurrency: usize,
    /// Maximum number of names in all directories.
    pub names: usize,
    /// Maximum number of single keys.
    pub keys: NonZeroUsize,
    /// Maximum size of a cached document, in bytes.
    pub document: u64,
    /// Maximum size of all cached documents, in bytes.
    pub documents: u64,
    /// The budget in which all answers count.
    pub memory: Arc<MemoryBudget>,
}

impl MetadataCacheConfig {
    /// Returns the default limits, within the budget `memory`.
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
    /// Returns the default limits, with a separate budget.
    fn default() -> MetadataCacheConfig {
        MetadataCacheConfig::within(MemoryBudget::new(32 << 20, Arc::new(Stats::default())))
    }
}

/// A store that caches metadata.
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

    /// Lists the root, to learn which documents it has, and starts to list a directory that is alone there. Later
    /// listings will report the errors.
    pub fn list_root(&self, context: &RequestContext) {
        if !self.shared.remembers() {
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
            self.shared.list_ahead(only, MAX_ROOT_NAMES);
        }
    }
}

impl Layer for MetadataCache {
    fn below(&self) -> &dyn Store {
        self.shared.inner()
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.shared.note_document(key);
        self.shared.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if self.shared.is_missing(context, key) {
            return Ok(None);
        }
        let ask = |context: &RequestContext, inner: &dyn Store| {
            inner.get_range(context, key, range.clone())
        };
        let (found, stamp) = self.shared.ask(context, ask);
        let found = found?;
        let checked = self.shared.check_length(context, key, found.as_ref());
        checked.inspect_err(|_| self.below().doubt(key, Some(&range)))?;
        self.shared.note_object(key, found.as_ref().into(), stamp);
        Ok(found)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if context.may_wait() {
            self.shared.note_lookup(key, true);
            return self.shared.head(context, key);
        }
        let known = self.shared.head(context, key)?;
        self.shared.note_lookup(key, false);
        Ok(known)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.shared.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let inner = match known {
            Some(_) => self.below().open(context, key, known)?,
            None => self.shared.open(context, key)?,
        };
        Ok(Arc::new(InvalidatingReader {
            inner,
            key: key.clone(),
            shared: self.shared.clone(),
        }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        if !self.shared.remembers() || !self.below().info().lists {
            return self.below().list(context, prefix);
        }
        match self.shared.known_head(context, prefix) {
            Known::Missing => return Err(Error::not_found(prefix)),
            Known::Is(meta) if meta.kind == EntryKind::File => {
                let text = "is an object, not a directory";
                return Err(Error::new(Kind::NotADirectory, prefix, text));
            }
            Known::Is(_) | Known::Unknown => {}
        }
        let lister = &self.shared.lister;
        let dir = lister.list(context, prefix)?;
        context.note_memory(dir.asked);
        Ok(Box::new(CachedListing::new(lister, dir)))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let etag = self.below().etag(context, key)?;
        let version = etag.as_ref().map(|etag| etag.version);
        self.shared.forget_other_version(key, version);
        Ok(etag)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let put = || self.below().put(context, key, body, condition);
        self.shared.change(key, ChangeKind::Put, put)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.below().erase(context, key, condition);
        self.shared.change(key, ChangeKind::Erased, erase)
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        let erase = || self.below().erase_folder(context, prefix);
        self.shared.change(prefix, ChangeKind::Erased, erase)
    }

    fn doubt(&self, key: &Key, range: Option<&ByteRange>) {
        self.shared.doubt(key, range);
    }
}

impl Hints for MetadataCache {
    fn prefetch(&self, keys: &[Key]) {
        for key in keys {
            self.shared.prefetch(key.clone());
        }
    }

    fn learn_below(&self, context: &RequestContext, top: &Key, folders: &[Key]) {
        if self.shared.remembers() && self.below().info().lists {
            self.shared.lister.learn(context, top, folders);
        }
    }

    fn known_below(&self, context: &RequestContext, folder: &Key) -> Option<Vec<(Key, Meta)>> {
        listed_below::all_below(context, &self.shared.lister.dirs, folder)
    }
}

/// An open object that invalidates its cached metadata when a read finds it changed.
struct InvalidatingReader {
    inner: Arc<dyn Reader>,
    key: Key,
    shared: Arc<MetadataCacheState>,
}

impl InvalidatingReader {
    fn check<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == Kind::Changed
        {
            self.shared.forget(&self.key);
        }
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for InvalidatingReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.check(self.inner.read_at(context, offset, len))
    }

    fn read_scattered(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        self.check(self.inner.read_scattered(context, offset, parts))
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
