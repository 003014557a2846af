//! Questions about single keys: answered from memory where the answer is known, asked of the store once where not.
//!
//! Of two answers about one key the newer counts, whether it came from the key itself or from the listing of its
//! directory. An answer that was asked for before a change of its key is not kept (`changes`).

use std::sync::Arc;
use std::time::Instant;

use super::changes::{ChangeKind, ChangeTracker, QueryStamp};
use super::flat_listing::DirLister;
use super::keys::{CachedObject, Expiring, KeyTable, newer};
use super::prefetch::DocumentPrefetch;
use super::{MetadataCacheConfig, join_deadline};
use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::model::document::is_document;
use crate::store::{EntryKind, Key, LogPosition, Meta, Object, Reader, Store, Version};
use crate::sync::pool::ThreadPool;
use crate::sync::single_flight::SingleFlight;

/// Documents that may wait to be fetched ahead, for each that is being fetched.
const QUEUE_FACTOR: usize = 4;

/// Joins those who ask the same about a key between two changes of it.
type KeyFlight<T> = SingleFlight<(Key, LogPosition), T>;

/// What is remembered, and the store below.
pub(super) struct MetadataCacheState {
    pub(super) lister: Arc<DirLister>,
    keys: Arc<KeyTable>,
    changes: Arc<ChangeTracker>,
    document_prefetch: DocumentPrefetch,
    heads: KeyFlight<Option<Meta>>,
    versions: KeyFlight<Option<Version>>,
    documents: KeyFlight<Option<Arc<Object>>>,
    opens: KeyFlight<Meta>,
    pool: ThreadPool,
}

impl MetadataCacheState {
    /// Remembers nothing yet.
    pub(super) fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCacheState {
        let window = config.concurrency.max(1);
        let queued = window.saturating_mul(QUEUE_FACTOR);
        let pool = ThreadPool::new("zarrfs-ahead", window, queued);
        let memory = config.memory.part(config.documents);
        let keys = KeyTable::new(config.keys, memory, config.document);
        let changes = Arc::new(ChangeTracker::new(inner.info().changes.clone()));
        let lister = DirLister::new(
            inner,
            (config.ttl, config.names),
            keys.clone(),
            changes.clone(),
        );
        MetadataCacheState {
            lister: Arc::new(lister),
            keys,
            changes,
            document_prefetch: DocumentPrefetch::new(window),
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
        !self.lister.ttl.is_zero()
    }

    fn expiring<T>(&self, value: T, asked: Instant) -> Expiring<T> {
        let until = asked.checked_add(self.lister.ttl).unwrap_or(asked);
        Expiring { value, until }
    }

    /// Returns what `head` answers if that is known.
    pub(super) fn head_now(&self, key: &Key) -> Known<Meta> {
        let of_dir = self.lister.dirs.look(key).and_then(|found| {
            let head = match found.value {
                None => None,
                Some(entry) => Some(entry.meta?),
            };
            Some(found.with(head))
        });
        let known = newer(self.keys.head(key), of_dir);
        known.map_or(Known::Unknown, |known| known.value.into())
    }

    /// Returns what is known of an object.
    fn object_now(&self, key: &Key) -> Option<Expiring<CachedObject>> {
        let of_dir = self.lister.dirs.look(key).and_then(|found| {
            let object = match found.value {
                None => CachedObject::Missing,
                Some(entry) if entry.kind == EntryKind::File => CachedObject::Object(entry.meta?),
                Some(_) => return None,
            };
            Some(found.with(object))
        });
        newer(self.keys.object(key), of_dir)
    }

    /// Returns the version of an object if that is known.
    fn version_now(&self, key: &Key) -> Known<Version> {
        let known = self.object_now(key);
        known.map_or(Known::Unknown, |known| known.value.version().into())
    }

    /// Whether an object is known not to exist.
    pub(super) fn is_missing(&self, key: &Key) -> bool {
        self.version_now(key) == Known::Missing
    }

    /// Answers `head`.
    pub(super) fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let ask = || {
            let stamp = self.changes.stamp();
            let head = self.inner().head(key)?;
            self.note_head(key, head, stamp);
            Ok(head)
        };
        let known = || self.head_now(key);
        let question = || self.changes.question_below(key);
        answer(&self.heads, known, question, ask)
    }

    /// Answers `version`.
    pub(super) fn version(&self, key: &Key) -> Result<Option<Version>> {
        let ask = || {
            let stamp = self.changes.stamp();
            let version = self.inner().version(key)?;
            let object = version.map_or(CachedObject::Missing, CachedObject::Version);
            self.note_object(key, object, stamp);
            Ok(version)
        };
        let known = || self.version_now(key);
        let question = || self.changes.question(key);
        answer(&self.versions, known, question, ask)
    }

    /// Answers `get`.
    pub(super) fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if !is_document(key.name()) {
            // Concurrent readers of a chunk are joined where it is decoded.
            if self.is_missing(key) {
                return Ok(None);
            }
            let stamp = self.changes.stamp();
            let found = self.inner().get(key, limit)?;
            self.note_read(key, found.as_ref(), stamp);
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
        let known = || self.document_now(key);
        let question = || self.changes.question(key);
        match answer(&self.documents, known, question, ask) {
            // The request that was joined had a lower limit.
            Err(error) if !has_asked && error.kind() == Kind::TooLarge => self.fetch(key, limit),
            found => found,
        }
    }

    fn fetch(&self, key: &Key, limit: u64) -> Result<Option<Arc<Object>>> {
        let stamp = self.changes.stamp();
        let found = self.inner().get(key, limit)?.map(Arc::new);
        self.note_read(key, found.as_deref(), stamp);
        if let Some(object) = &found
            && self.remembers()
            && let Some(document) = self
                .keys
                .reserve(key, self.expiring(object.clone(), stamp.asked))
        {
            self.changes
                .store_if_unchanged(stamp, key, || self.keys.put_document(key, document));
        }
        Ok(found)
    }

    /// Returns a document if it, or that there is none, is known.
    fn document_now(&self, key: &Key) -> Known<Arc<Object>> {
        let known = self.object_now(key);
        if known.is_some_and(|known| known.value == CachedObject::Missing) {
            return Known::Missing;
        }
        let Some(document) = self.keys.document(key) else {
            return Known::Unknown;
        };
        let is_newer_version = known.is_some_and(|known| {
            known.until > document.until && known.value.version() != Some(document.value.version)
        });
        if is_newer_version {
            return Known::Unknown;
        }
        Known::Is(document.value)
    }

    /// Notes what an answer with bytes tells of an object. It counts from now, when its bytes have come.
    pub(super) fn note_read(&self, key: &Key, found: Option<&Object>, stamp: QueryStamp) {
        self.note_object(key, found.into(), stamp.starting_now());
    }

    /// Notes what an answer tells of an object.
    fn note_object(&self, key: &Key, object: CachedObject, stamp: QueryStamp) {
        let object = self.expiring(object, stamp.asked);
        self.changes
            .store_if_unchanged(stamp, key, || self.keys.put_object(key, object));
    }

    /// Notes what a key is; nothing if there is neither an object nor a prefix.
    fn note_head(&self, key: &Key, head: Option<Meta>, stamp: QueryStamp) {
        let head = self.expiring(head, stamp.asked);
        self.changes
            .store_if_unchanged_below(stamp, key, || self.keys.put_head(key, head));
    }

    /// Returns the stamp of a question that is asked now.
    pub(super) fn stamp(&self) -> QueryStamp {
        self.changes.stamp()
    }

    /// Answers `open`.
    pub(super) fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        match self.object_now(key).map(|known| known.value) {
            Some(CachedObject::Missing) => return Err(Error::not_found(key)),
            Some(CachedObject::Object(meta)) => return self.inner().open(key, Some(&meta)),
            Some(CachedObject::Version(_)) | None => {}
        }
        let mut opened = None;
        let question = self.changes.question(key);
        let meta = self.opens.run(&question, join_deadline(), || {
            let stamp = self.changes.stamp();
            let reader = match self.inner().open(key, None) {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.note_object(key, CachedObject::Missing, stamp);
                    return Err(error);
                }
                reader => reader?,
            };
            let meta = reader.meta()?;
            self.note_object(key, CachedObject::Object(meta), stamp);
            opened = Some(reader);
            Ok(meta)
        })?;
        match opened {
            Some(reader) => Ok(reader),
            None => self.inner().open(key, Some(&meta)),
        }
    }

    /// Forgets what is known of an object if that is another version.
    pub(super) fn forget_other_version(&self, key: &Key, version: Option<Version>) {
        let known = self.version_now(key);
        if known != Known::Unknown && known != version.into() {
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
        if !self.remembers() || !matches!(self.document_now(&key), Known::Unknown) {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // The reader asks again after an error, and gets it then.
            let _ = shared.document(&key, shared.keys.max_document_bytes());
        });
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
    flight: &KeyFlight<Option<T>>,
    known: impl Fn() -> Known<T>,
    question: impl FnOnce() -> (Key, LogPosition),
    ask: impl FnOnce() -> Result<Option<T>>,
) -> Result<Option<T>> {
    match known() {
        Known::Is(value) => return Ok(Some(value)),
        Known::Missing => return Ok(None),
        Known::Unknown => {}
    }
    // The answer may have come between the look and the begin of the call.
    flight.run(&question(), join_deadline(), || match known() {
        Known::Is(value) => Ok(Some(value)),
        Known::Missing => Ok(None),
        Known::Unknown => ask(),
    })
}
