//! Questions about single keys: answered from memory where the answer is known, asked of the store once where not.
//!
//! `known_answers` looks into memory. An answer from memory carries the time at which the store was asked. One that was
//! asked for before a change of its key is not kept (`changes`).

use std::sync::Arc;

use super::changes::{ChangeKind, ChangeTracker};
use super::dated::{Dated, Lifetime, from_memory};
use super::dirs::DirCache;
use super::flat_listing::DirLister;
use super::head_prefetch::HeadPrefetch;
use super::keys::{CachedObject, KeyTable};
use super::known_answers::KnownAnswers;
use super::prefetch::DocumentPrefetch;
use super::{MetadataCacheConfig, join_deadline};
use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::model::document::is_document;
use crate::store::{
    Key, LogPosition, Meta, Object, QueryStamp, Reader, Store, Version, check_length, note_memory,
};
use crate::sync::pool::ThreadPool;
use crate::sync::single_flight::SingleFlight;

/// Documents that may wait to be fetched ahead, for each that is being fetched.
const QUEUE_FACTOR: usize = 4;

/// Joins requests for the same answer about a key between two changes of it.
type KeyFlight<T> = SingleFlight<(Key, LogPosition), Dated<T>>;

/// What is remembered, and the store below.
pub(super) struct MetadataCacheState {
    pub(super) lister: Arc<DirLister>,
    keys: Arc<KeyTable>,
    changes: Arc<ChangeTracker>,
    /// Whether answers are remembered at all.
    remembers: bool,
    document_prefetch: DocumentPrefetch,
    head_prefetch: HeadPrefetch,
    heads: KeyFlight<Option<Meta>>,
    versions: KeyFlight<Option<Version>>,
    documents: KeyFlight<Option<Arc<Object>>>,
    opens: KeyFlight<Meta>,
    pool: Arc<ThreadPool>,
}

impl MetadataCacheState {
    /// Remembers nothing yet.
    pub(super) fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCacheState {
        let window = config.concurrency.max(1);
        let queued = window.saturating_mul(QUEUE_FACTOR);
        let pool = Arc::new(ThreadPool::new("zarrfs-ahead", window, queued));
        let memory = config.memory.part(config.documents);
        let lifetime = Lifetime {
            clock: inner.info().clock.clone(),
            ttl: config.ttl,
        };
        let keys = KeyTable::new(
            (config.keys, &config.memory),
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
            (window, pool.clone()),
        );
        MetadataCacheState {
            lister: Arc::new(lister),
            keys,
            changes,
            remembers: !config.ttl.is_zero(),
            document_prefetch: DocumentPrefetch::new(window),
            head_prefetch: HeadPrefetch::new(window),
            heads: SingleFlight::default(),
            versions: SingleFlight::default(),
            documents: SingleFlight::default(),
            opens: SingleFlight::default(),
            pool,
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
    pub(super) fn ask<T>(&self, question: impl FnOnce(&dyn Store) -> T) -> (T, QueryStamp) {
        self.inner().info().ask(|| question(self.inner()))
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
    pub(super) fn head_now(&self, key: &Key) -> Known<Meta> {
        from_memory(self.known().head(key)).map_or(Known::Unknown, Known::from)
    }

    /// Whether an object is known not to exist.
    pub(super) fn is_missing(&self, key: &Key) -> bool {
        let known = self.known().object(key);
        let missing = known.filter(|known| known.value == CachedObject::Missing);
        from_memory(missing).is_some()
    }

    /// Answers `head`.
    pub(super) fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let ask = || {
            let (head, stamp) = self.ask(|inner| inner.head(key));
            let head = Dated::new(head?, stamp);
            self.changes
                .store_if_unchanged_below(stamp, key, || self.keys.put_head(key, head));
            Ok(head)
        };
        let known = || self.known().head(key);
        let question = || self.changes.question_below(key);
        answer(&self.heads, known, question, ask)
    }

    /// Answers `version`.
    pub(super) fn version(&self, key: &Key) -> Result<Option<Version>> {
        let ask = || {
            let (version, stamp) = self.ask(|inner| inner.version(key));
            let version = version?;
            let object = version.map_or(CachedObject::Missing, CachedObject::Version);
            self.note_object(key, object, stamp);
            Ok(Dated::new(version, stamp))
        };
        let known = || self.known().version(key);
        let question = || self.changes.question(key);
        answer(&self.versions, known, question, ask)
    }

    /// Fails with `Unavailable` if a version of an object has another length than the one that is known.
    pub(super) fn check_length(&self, key: &Key, found: Option<&Object>) -> Result<()> {
        let Some(object) = found else { return Ok(()) };
        let listed = self
            .known()
            .object(key)
            .and_then(|known| known.value.content());
        let lengths = [self.keys.content(key), listed];
        lengths
            .into_iter()
            .flatten()
            .try_for_each(|known| check_length(key, object.content(), known))
    }

    /// Answers `get`.
    pub(super) fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if !is_document(key.name()) {
            // Concurrent readers of a chunk are joined where it is decoded.
            if self.is_missing(key) {
                return Ok(None);
            }
            let (found, stamp) = self.ask(|inner| inner.get(key, limit));
            let found = found?;
            self.check_length(key, found.as_ref())?;
            self.note_object(key, found.as_ref().into(), stamp);
            return Ok(found);
        }
        let found = self.document(key, limit)?;
        match found {
            Some(object) if object.size > limit => {
                let found = format!("{} bytes, at most {limit} are read", object.size);
                Err(Error::too_large(key, found))
            }
            found => Ok(found.map(Arc::unwrap_or_clone)),
        }
    }

    /// Returns a document, which may be longer than `limit` if it is known.
    fn document(&self, key: &Key, limit: u64) -> Result<Option<Arc<Object>>> {
        let mut has_asked = false;
        let ask = || {
            has_asked = true;
            self.fetch(key, limit)
        };
        let known = || self.known().document(key);
        let question = || self.changes.question(key);
        match answer(&self.documents, known, question, ask) {
            // The request that was joined had a lower limit.
            Err(error) if !has_asked && error.kind() == Kind::TooLarge => {
                self.fetch(key, limit).map(|found| found.value)
            }
            found => found,
        }
    }

    fn fetch(&self, key: &Key, limit: u64) -> Result<Dated<Option<Arc<Object>>>> {
        let (found, stamp) = self.ask(|inner| inner.get(key, limit));
        let found = found?.map(Arc::new);
        self.check_length(key, found.as_deref())?;
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
    pub(super) fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        let known = self.known().object(key);
        match known.map(|known| known.value) {
            Some(CachedObject::Missing) => {
                from_memory(known);
                return Err(Error::not_found(key));
            }
            Some(CachedObject::Object(meta)) => {
                from_memory(known);
                return self.inner().open(key, Some(&meta));
            }
            Some(CachedObject::Version(_)) | None => {}
        }
        let mut opened = None;
        let question = self.changes.question(key);
        let meta = self.opens.run(&question, join_deadline(), || {
            let (reader, stamp) = self.ask(|inner| inner.open(key, None));
            let reader = match reader {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.note_object(key, CachedObject::Missing, stamp);
                    return Err(error);
                }
                reader => reader?,
            };
            let meta = reader.meta()?;
            self.note_object(key, CachedObject::Object(meta), stamp);
            opened = Some(reader);
            Ok(Dated::new(meta, stamp))
        })?;
        match opened {
            Some(reader) => Ok(reader),
            None => {
                note_memory(meta.asked);
                self.inner().open(key, Some(&meta.value))
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

    /// Fetches a document that will be read, in another thread.
    pub(super) fn prefetch(self: &Arc<Self>, key: Key) {
        if !self.remembers() || self.known().document(&key).is_some() {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader asks again after an error, and gets it then.
            let _ = shared.document(&key, shared.keys.max_document_bytes());
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
            let _ = shared.head(&key);
        });
    }

    /// Notes that a key is looked up, which the store is asked about if it `is_asked`; asks for the sizes of the files that
    /// come next, if they are looked up in order and no listing has them.
    pub(super) fn ask_ahead_of(self: &Arc<Self>, key: &Key, is_asked: bool) {
        if !self.remembers() || (!is_asked && !self.head_prefetch.has_runs()) {
            return;
        }
        let Some(dir) = key
            .parent()
            .and_then(|parent| self.lister.dirs.get(&parent))
        else {
            return;
        };
        let is_followed =
            matches!(dir.look(key.name()), Known::Is(entry) if entry.is_without_size());
        let Some(place) = dir.place_of(key.name()).filter(|_| is_followed) else {
            return;
        };
        for name in self.head_prefetch.note(&dir, place, is_asked) {
            if let Ok(key) = dir.prefix.child(&name) {
                self.prefetch_head(key);
            }
        }
    }

    /// Fetches the same document of the directories that come next, where one after the other is read.
    pub(super) fn prefetch_siblings(self: &Arc<Self>, key: &Key) {
        if !self.remembers() || !is_document(key.name()) {
            return;
        }
        let Some((dir, above)) = key.parent().and_then(|dir| {
            let above = dir.parent()?;
            Some((dir, above))
        }) else {
            return;
        };
        let Some(siblings) = self.lister.dirs.get(&above) else {
            return;
        };
        let Some(place) = siblings.place_of(dir.name()) else {
            return;
        };
        let run = (above.clone(), key.name().to_vec());
        let next = self.document_prefetch.advance(run, place);
        for name in siblings.directories(next.start, next.end) {
            let document = above.child(&name).and_then(|dir| dir.child(key.name()));
            if let Ok(document) = document {
                self.prefetch(document);
            }
        }
    }
}

/// Returns an answer that is known, or that of `ask`, which concurrent callers with the same question share.
fn answer<T: Clone>(
    flight: &KeyFlight<T>,
    known: impl Fn() -> Option<Dated<T>>,
    question: impl FnOnce() -> (Key, LogPosition),
    ask: impl FnOnce() -> Result<Dated<T>>,
) -> Result<T> {
    let found = match known() {
        Some(known) => known,
        // The answer may have come between the look and the begin of the call.
        None => flight.run(&question(), join_deadline(), || match known() {
            Some(known) => Ok(known),
            None => ask(),
        })?,
    };
    note_memory(found.asked);
    Ok(found.value)
}
