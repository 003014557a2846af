//! Questions about single keys: answered from memory where the answer is known, asked of the store once where not.
//!
//! `known_answers` looks into memory. An answer from memory carries the time at which the store was asked. One that was
//! asked for before a change of its key is not kept (`changes`).

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

/// Documents that may wait to be fetched ahead, for each that is being fetched.
const QUEUE_FACTOR: usize = 4;

/// How many names have to be looked up in order before others are looked up ahead.
const MIN_LOOKED_UP: usize = 3;

/// Joins requests for the same answer about a key between two changes of it.
type KeyFlight<T> = SingleFlight<(Key, LogPosition), Dated<T>>;

/// What is remembered, and the store below.
pub(super) struct MetadataCacheState {
    pub(super) lister: Arc<DirLister>,
    keys: Arc<KeyTable>,
    changes: Arc<ChangeTracker>,
    /// Whether answers are remembered at all.
    remembers: bool,
    /// Who reads documents.
    read_documents: NameOrders,
    /// Who looks up documents and files.
    looked_up: NameOrders,
    heads: KeyFlight<Option<Meta>>,
    versions: KeyFlight<Option<Version>>,
    documents: KeyFlight<Option<Arc<Object>>>,
    opens: KeyFlight<Meta>,
    pool: ThreadPool,
    /// How many names are fetched ahead at a time.
    window: usize,
}

impl MetadataCacheState {
    /// Remembers nothing yet.
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

    /// Whether answers are remembered at all.
    pub(super) fn remembers(&self) -> bool {
        self.remembers
    }

    /// Asks the store below; returns its answer and how old that is.
    pub(super) fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        self.inner()
            .info()
            .ask(context, |context| question(context, self.inner()))
    }

    /// Returns what is known without a request.
    fn known(&self) -> KnownAnswers<'_> {
        KnownAnswers {
            keys: &self.keys,
            dirs: &self.lister.dirs,
            lists: self.inner().info().lists,
        }
    }

    /// Returns what `head` answers if that is known.
    pub(super) fn known_head(&self, context: &RequestContext, key: &Key) -> Known<Meta> {
        from_memory(context, self.known().head(key)).map_or(Known::Unknown, Known::from)
    }

    /// Whether an object is known not to exist.
    pub(super) fn is_missing(&self, context: &RequestContext, key: &Key) -> bool {
        let known = self.known().object(key);
        let missing = known.filter(|known| known.value == CachedObject::Missing);
        from_memory(context, missing).is_some()
    }

    /// Answers `head`.
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

    /// Answers `version`.
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

    /// Fails with `Unavailable` if a version of an object has another length than the one that is known. Which of the two a
    /// proxy has cut short is found out: the store is asked again.
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

    /// Forgets the length and the bytes of a key that does not read.
    pub(super) fn doubt(&self, key: &Key, range: Option<&ByteRange>) {
        self.keys.forget(key);
        self.inner().doubt(key, range);
    }

    /// Answers `get`.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Object>> {
        if !is_document(key.name()) {
            // Concurrent readers of a chunk are joined where it is decoded.
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

    /// Returns a document, which may be longer than `limit` if it is known.
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
            // The request that was joined had a lower limit.
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

    /// Notes what an answer tells of an object.
    pub(super) fn note_object(&self, key: &Key, object: CachedObject, stamp: QueryStamp) {
        let object = Dated::new(object, stamp);
        self.changes
            .store_if_unchanged(stamp, key, || self.keys.put_object(key, object));
    }

    /// Answers `open`.
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

    /// Forgets what is known of an object if that is another version.
    pub(super) fn forget_other_version(&self, key: &Key, version: Option<Version>) {
        let known = self.known().version(key);
        if known.is_some_and(|known| known.value != version) {
            self.forget(key);
        }
    }

    /// Forgets what is known of a key.
    pub(super) fn forget(&self, key: &Key) {
        self.keys.forget(key);
        if let Some(parent) = key.parent() {
            self.lister.dirs.forget(&parent);
        }
    }

    /// Changes a key, and forgets what may no longer be true, whether the change succeeds or not.
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

    /// Forgets what a change of a key made untrue: the key, the names beside it, and the directories above it unless
    /// they were known to exist and still do.
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

    /// Fetches a document that will be read, in another thread. One that the listing of its directory does not show is left
    /// to its reader: where an index page hides `.zarray`, a node that has `zarr.json` is read without it.
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
            // The reader asks again after an error, and gets it then.
            let _ = shared.document(&UNLIMITED, &key, shared.keys.max_document_bytes());
        });
    }

    /// Lists a directory in another thread; reads at most `limit` names.
    pub(super) fn list_ahead(self: &Arc<Self>, dir: Key, limit: usize) {
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader asks again after an error, and gets it then.
            let Ok(dir) = shared.lister.list(&UNLIMITED, &dir) else {
                return;
            };
            let is_name = |place: &usize| matches!(dir.at(&UNLIMITED, *place), Ok(Slot::Entry(_)));
            (0..limit).take_while(is_name).for_each(drop);
        });
    }

    /// Asks for what `head` answers about a key, in another thread, unless that is known.
    pub(super) fn prefetch_head(self: &Arc<Self>, key: Key) {
        if self.known().head(&key).is_some() {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader asks again after an error, and gets it then.
            let _ = shared.head(&UNLIMITED, &key);
        });
    }

    /// Notes that a key is looked up; looks up what comes next: the same document of the next directories, or the next files
    /// of a directory whose listing has no sizes. Keys that are known begin no order: `is_asked` tells those that the store
    /// is asked about.
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

    /// Notes that a document is read; fetches the same document of the next directories, once that of the first directory or
    /// of a second one is read.
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

    /// Returns what a program goes through that uses a key.
    fn followed(&self, directory: Key, key: &Key) -> Option<Followed> {
        if !is_document(key.name()) {
            return Some(Followed::Files(directory));
        }
        Some(Followed::Documents {
            above: directory.parent()?,
            name: key.name().to_vec(),
        })
    }

    /// Notes that a key is used; returns those that come next. `window` gets how many were used in order, and whether this is
    /// the first one there.
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

    /// Returns an answer that is known, or that of `ask`, which concurrent callers with the same question share.
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
                // The answer may have come between the look and the begin of the call.
                let work = || known().map_or_else(ask, Ok);
                flight.run_counting(context, &question(), join_deadline(), counts, work)?
            }
        };
        context.note_memory(found.asked);
        Ok(found.value)
    }
}
