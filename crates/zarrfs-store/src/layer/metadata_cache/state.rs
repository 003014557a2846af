//! Answers queries about single keys, from memory or by one shared request.
//!
//! `known_answers` searches the memory. A cached answer keeps the time of its request. An answer that was requested
//! before a change of its key is not cached (`changes`).

use std::sync::Arc;

use super::cached_dir::{DirEntry, Slot};
use super::changes::{ChangeKind, ChangeTracker};
use super::dated::{Dated, Lifetime, from_memory};
use super::dirs::DirCache;
use super::flat_listing::DirLister;
use super::keys::{CachedObject, KeyTable};
use super::known_answers::KnownAnswers;
use super::name_orders::{Followed, NameOrders};
use super::{MetadataCacheConfig, join_deadline};
use crate::known::Known;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::pool::ThreadPool;
use crate::sync::single_flight::SingleFlight;
use crate::{
    ByteRange, EntryKind, Key, LogPosition, Meta, Object, QueryStamp, Reader, Store, Version,
    check_length,
};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_document;

/// Maximum number of queued prefetches per running one.
const QUEUE_FACTOR: usize = 4;

/// Number of sequential lookups before prefetching starts.
const MIN_LOOKED_UP: usize = 3;

/// Joins equal requests about a key that have no change of the key between them.
type KeyFlight<T> = SingleFlight<(Key, LogPosition), Dated<T>>;

/// The cached answers and the store below.
pub(super) struct MetadataCacheState {
    pub(super) lister: Arc<DirLister>,
    keys: Arc<KeyTable>,
    changes: Arc<ChangeTracker>,
    /// Whether the cache is on.
    remembers: bool,
    /// Programs that read documents.
    read_documents: NameOrders,
    /// Programs that look up documents and files.
    looked_up: NameOrders,
    heads: KeyFlight<Option<Meta>>,
    versions: KeyFlight<Option<Version>>,
    documents: KeyFlight<Option<Arc<Object>>>,
    opens: KeyFlight<Meta>,
    pool: ThreadPool,
    /// Maximum number of names to prefetch.
    window: usize,
}

impl MetadataCacheState {
    /// Builds an empty cache.
    pub(super) fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCacheState {
        let window = config.concurrency.max(1);
        let queued = window.saturating_mul(QUEUE_FACTOR);
        let memory = config.memory.part(config.documents);
        let lifetime = Lifetime {
            clock: inner.info().clock.clone(),
            ttl: config.ttl,
        };
        let keys = KeyTable::new(
            config.keys,
            &config.memory,
            lifetime.clone(),
            memory,
            config.document,
        );
        let changes = Arc::new(ChangeTracker::new(inner.info().changes.clone()));
        let lister = DirLister::new(
            inner,
            DirCache::new(config.names, lifetime, &config.memory),
            keys.clone(),
            changes.clone(),
        );
        MetadataCacheState {
            lister: Arc::new(lister),
            keys,
            changes,
            remembers: !config.ttl.is_zero(),
            read_documents: NameOrders::default(),
            looked_up: NameOrders::default(),
            heads: SingleFlight::default(),
            versions: SingleFlight::default(),
            documents: SingleFlight::default(),
            opens: SingleFlight::default(),
            pool: ThreadPool::new("zarrfs-ahead", window, queued),
            window,
        }
    }

    /// Returns the store below.
    pub(super) fn inner(&self) -> &dyn Store {
        &*self.lister.inner
    }

    /// Whether the cache is on.
    pub(super) fn remembers(&self) -> bool {
        self.remembers
    }

    /// Queries the store below; returns the answer and its age.
    pub(super) fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        self.inner()
            .info()
            .ask(context, |context| question(context, self.inner()))
    }

    /// Returns the answers in memory.
    fn known(&self) -> KnownAnswers<'_> {
        KnownAnswers {
            keys: &self.keys,
            dirs: &self.lister.dirs,
            lists: self.inner().info().lists,
        }
    }

    /// Returns the answer to `head` from memory.
    pub(super) fn known_head(&self, context: &RequestContext, key: &Key) -> Known<Meta> {
        from_memory(context, self.known().head(key)).map_or(Known::Unknown, Known::from)
    }

    /// Whether memory says that an object is missing.
    pub(super) fn is_missing(&self, context: &RequestContext, key: &Key) -> bool {
        let known = self.known().object(key);
        let missing = known.filter(|known| known.value == CachedObject::Missing);
        from_memory(context, missing).is_some()
    }

    /// Answers `head` from memory or by a request.
    pub(super) fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let ask = || {
            let (head, stamp) = self.ask(context, |context, inner| inner.head(context, key));
            let head = Dated::new(head?, stamp);
            self.changes
                .store_if_unchanged_below(stamp, key, || self.keys.put_head(key, head));
            Ok(head)
        };
        let known = || self.known().head(key);
        let question = || self.changes.question_below(key);
        self.answer(context, &self.heads, known, question, ask)
    }

    /// Answers `version` from memory or by a request.
    pub(super) fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let ask = || {
            let (version, stamp) = self.ask(context, |context, inner| inner.version(context, key));
            let version = version?;
            let object = version.map_or(CachedObject::Missing, CachedObject::Version);
            self.note_object(key, object, stamp);
            Ok(Dated::new(version, stamp))
        };
        let known = || self.known().version(key);
        let question = || self.changes.question(key);
        self.answer(context, &self.versions, known, question, ask)
    }

    /// Returns `Unavailable` if an object has another length than known for its version. A proxy may have truncated
    /// either answer, so a new request decides.
    pub(super) fn check_length(
        &self,
        context: &RequestContext,
        key: &Key,
        found: Option<&Object>,
    ) -> Result<()> {
        let Some(object) = found else { return Ok(()) };
        let listed = self
            .known()
            .object(key)
            .and_then(|known| known.value.content());
        let lengths = [self.keys.content(key), listed];
        let mut lengths = lengths.into_iter().flatten();
        let differs = |known| check_length(key, object.content(), known).is_err();
        if !lengths.any(differs) {
            return Ok(());
        }
        let (meta, stamp) = self.ask(context, |context, inner| inner.head(context, key));
        let Some(meta) = meta? else {
            return Err(Error::new(
                Kind::Changed,
                key,
                "was removed while it was read",
            ));
        };
        self.note_object(key, CachedObject::Object(meta), stamp);
        let checked = check_length(key, object.content(), meta.content());
        checked.inspect_err(|_| self.inner().doubt(key, None))
    }

    /// Drops the known length and the bytes of a key that cannot be decoded.
    pub(super) fn doubt(&self, key: &Key, range: Option<&ByteRange>) {
        self.keys.forget(key);
        self.inner().doubt(key, range);
    }

    /// Answers `get` from memory or by a request.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Object>> {
        if !is_document(key.name()) {
            // The decoder joins concurrent readers of a chunk.
            if self.is_missing(context, key) {
                return Ok(None);
            }
            let (found, stamp) = self.ask(context, |context, inner| inner.get(context, key, limit));
            let found = found?;
            self.check_length(context, key, found.as_ref())?;
            self.note_object(key, found.as_ref().into(), stamp);
            return Ok(found);
        }
        let found = self.document(context, key, limit)?;
        match found {
            Some(object) if object.size > limit => {
                let found = format!("{} bytes, at most {limit} are read", object.size);
                Err(Error::too_large(key, found))
            }
            found => Ok(found.map(Arc::unwrap_or_clone)),
        }
    }

    /// Returns a document; a cached one may be longer than `limit`.
    fn document(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Arc<Object>>> {
        let mut has_asked = false;
        let ask = || {
            has_asked = true;
            self.fetch(context, key, limit)
        };
        let known = || self.known().document(key);
        let question = || self.changes.question(key);
        match self.answer(context, &self.documents, known, question, ask) {
            // The joined request had a lower limit.
            Err(error) if !has_asked && error.kind() == Kind::TooLarge => {
                self.fetch(context, key, limit).map(|found| found.value)
            }
            found => found,
        }
    }

    fn fetch(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Dated<Option<Arc<Object>>>> {
        let (found, stamp) = self.ask(context, |context, inner| inner.get(context, key, limit));
        let found = found?.map(Arc::new);
        self.check_length(context, key, found.as_deref())?;
        self.note_object(key, found.as_deref().into(), stamp);
        if let Some(object) = &found
            && self.remembers()
            && let Some(document) = self.keys.reserve(key, Dated::new(object.clone(), stamp))
        {
            self.changes
                .store_if_unchanged(stamp, key, || self.keys.put_document(key, document));
        }
        Ok(Dated::new(found, stamp))
    }

    /// Caches the state of an object.
    pub(super) fn note_object(&self, key: &Key, object: CachedObject, stamp: QueryStamp) {
        let object = Dated::new(object, stamp);
        self.changes
            .store_if_unchanged(stamp, key, || self.keys.put_object(key, object));
    }

    /// Answers `open`, from known metadata if possible.
    pub(super) fn open(&self, context: &RequestContext, key: &Key) -> Result<Arc<dyn Reader>> {
        let known = self.known().object(key);
        match known.map(|known| known.value) {
            Some(CachedObject::Missing) => {
                from_memory(context, known);
                return Err(Error::not_found(key));
            }
            Some(CachedObject::Object(meta)) => {
                from_memory(context, known);
                return self.inner().open(context, key, Some(&meta));
            }
            Some(CachedObject::Version(_)) | None => {}
        }
        let mut opened = None;
        let question = self.changes.question(key);
        let counts = self.lister.counts(|meta: &Dated<Meta>| meta.asked);
        let flight = &self.opens;
        let meta = flight.run_counting(context, &question, join_deadline(), counts, || {
            let (reader, stamp) =
                self.ask(context, |context, inner| inner.open(context, key, None));
            let reader = match reader {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.note_object(key, CachedObject::Missing, stamp);
                    return Err(error);
                }
                reader => reader?,
            };
            let meta = reader.meta(context)?;
            self.note_object(key, CachedObject::Object(meta), stamp);
            opened = Some(reader);
            Ok(Dated::new(meta, stamp))
        })?;
        match opened {
            Some(reader) => Ok(reader),
            None => {
                context.note_memory(meta.asked);
                self.inner().open(context, key, Some(&meta.value))
            }
        }
    }

    /// Invalidates an object if its known version differs.
    pub(super) fn forget_other_version(&self, key: &Key, version: Option<Version>) {
        let known = self.known().version(key);
        if known.is_some_and(|known| known.value != version) {
            self.forget(key);
        }
    }

    /// Invalidates a key and the listing that contains it.
    pub(super) fn forget(&self, key: &Key) {
        self.keys.forget(key);
        if let Some(parent) = key.parent() {
            self.lister.dirs.forget(&parent);
        }
    }

    /// Makes a change, and invalidates what it may have affected, whether it succeeds or not.
    pub(super) fn change<T>(
        &self,
        key: &Key,
        kind: ChangeKind,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let done = change();
        let kind = if done.is_ok() {
            kind
        } else {
            ChangeKind::Erased
        };
        self.changes.forget(key, || self.forget_changed(key, kind));
        done
    }

    /// Invalidates the key, the listings that contain it, and its ancestors unless they were known to exist and still
    /// do.
    fn forget_changed(&self, key: &Key, kind: ChangeKind) {
        let dirs = &self.lister.dirs;
        self.forget(key);
        dirs.forget(key);
        let is_put = kind == ChangeKind::Put;
        let mut below = key.clone();
        while let Some(above) = below.parent() {
            if !(is_put && dirs.is_directory(&below)) {
                dirs.forget(&above);
            }
            if !(is_put && self.keys.is_directory(&above)) {
                self.keys.forget(&above);
            }
            below = above;
        }
        self.lister.end_over(key);
    }

    /// Prefetches a document in another thread, unless the listing of its directory lacks the name: where an index page
    /// hides `.zarray`, a node with `zarr.json` is read without it.
    pub(super) fn prefetch(self: &Arc<Self>, key: Key) {
        let is_unlikely = || {
            let dir = key.parent().and_then(|dir| self.lister.dirs.get(&dir));
            dir.is_some_and(|dir| dir.lacks(key.name()))
        };
        if !self.remembers() || self.known().document(&key).is_some() || is_unlikely() {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader repeats a failed request and gets the error.
            let _ = shared.document(&UNLIMITED, &key, shared.keys.max_document_bytes());
        });
    }

    /// Lists at most `limit` names of a directory in another thread.
    pub(super) fn list_ahead(self: &Arc<Self>, dir: Key, limit: usize) {
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader repeats a failed request and gets the error.
            let Ok(dir) = shared.lister.list(&UNLIMITED, &dir) else {
                return;
            };
            let is_name = |place: &usize| matches!(dir.at(&UNLIMITED, *place), Ok(Slot::Entry(_)));
            (0..limit).take_while(is_name).for_each(drop);
        });
    }

    /// Prefetches the answer to `head` in another thread, unless it is known.
    pub(super) fn prefetch_head(self: &Arc<Self>, key: Key) {
        if self.known().head(&key).is_some() {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader repeats a failed request and gets the error.
            let _ = shared.head(&UNLIMITED, &key);
        });
    }

    /// Records a lookup, and prefetches the next ones of the sequence: the same document of the next directories, or
    /// files of a listing without sizes. Only a key that needs a request (`is_asked`) starts a sequence.
    pub(super) fn note_lookup(self: &Arc<Self>, key: &Key, is_asked: bool) {
        let followed = match key.parent() {
            Some(above) if self.remembers() => self.followed(above, key),
            _ => None,
        };
        let Some(followed) = followed.filter(|it| is_asked || self.looked_up.has(it)) else {
            return;
        };
        let window = |count, _| match count {
            0..MIN_LOOKED_UP => 0,
            count => self.window.min(count),
        };
        for key in self.next_keys(&self.looked_up, followed, key, window) {
            self.prefetch_head(key);
        }
    }

    /// Records the read of a document, and prefetches the same document of the next directories, once that document of
    /// the first directory or of a second one was read.
    pub(super) fn note_document(self: &Arc<Self>, key: &Key) {
        let followed = match key.parent() {
            Some(above) if self.remembers() && is_document(key.name()) => self.followed(above, key),
            _ => None,
        };
        let Some(followed) = followed else { return };
        let window = |count, is_first: bool| match count {
            1 if !is_first => 0,
            _ => self.window,
        };
        for document in self.next_keys(&self.read_documents, followed, key, window) {
            self.prefetch(document);
        }
    }

    /// Returns the sequence that a use of the key belongs to.
    fn followed(&self, directory: Key, key: &Key) -> Option<Followed> {
        if !is_document(key.name()) {
            return Some(Followed::Files(directory));
        }
        Some(Followed::Documents {
            above: directory.parent()?,
            name: key.name().to_vec(),
        })
    }

    /// Records the use of a key; returns the next keys to prefetch. `window` gets the number of keys used in sequence,
    /// and whether this is the first key of the directory.
    fn next_keys(
        &self,
        orders: &NameOrders,
        followed: Followed,
        key: &Key,
        window: impl Fn(usize, bool) -> usize,
    ) -> Vec<Key> {
        let (directory, document) = match &followed {
            Followed::Files(directory) => (directory.clone(), None),
            Followed::Documents { above, name } => (above.clone(), Some(name.clone())),
        };
        let is_wanted = |entry: &DirEntry| match document {
            None => entry.is_without_size(),
            Some(_) => entry.kind == EntryKind::Directory,
        };
        let Some(dir) = self.lister.dirs.get(&directory) else {
            return Vec::new();
        };
        let name = key.below(&directory);
        let Some(place) = name.and_then(|below| dir.place_of(below.names().next()?, is_wanted))
        else {
            return Vec::new();
        };
        let window = |count| {
            let is_first = count == 1 && dir.first_place(is_wanted) == Some(place);
            window(count, is_first)
        };
        let next = dir.names_at(orders.advance(followed, place, window), is_wanted);
        let next = next.into_iter().map(|name| {
            let child = directory.child(&name)?;
            match &document {
                None => Ok(child),
                Some(document) => child.child(document),
            }
        });
        next.flatten().collect()
    }

    /// Returns a known answer or the result of `ask`, which concurrent callers with the same question share.
    fn answer<T: Clone>(
        &self,
        context: &RequestContext,
        flight: &KeyFlight<T>,
        known: impl Fn() -> Option<Dated<T>>,
        question: impl FnOnce() -> (Key, LogPosition),
        ask: impl FnOnce() -> Result<Dated<T>>,
    ) -> Result<T> {
        let found = match known() {
            Some(known) => known,
            None => {
                let counts = self.lister.counts(|answer: &Dated<T>| answer.asked);
                // Another call may have stored the answer since the lookup above.
                let work = || known().map_or_else(ask, Ok);
                flight.run_counting(context, &question(), join_deadline(), counts, work)?
            }
        };
        context.note_memory(found.asked);
        Ok(found.value)
    }
}
