//! Questions about single keys: answered from what is known, asked once where it is not.
//!
//! Of two answers about one key the younger counts, whether it came from the key itself or from the listing of
//! its directory. What was asked before a change is not remembered after it (`changes`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::MetadataCacheConfig;
use super::dir::{CachedDir, Slot};
use super::dirs::DirCache;
use super::document_prefetch::DocumentPrefetch;
use super::documents::DocumentCache;
use super::flat_listing::ListHistory;
use super::folder_prefetch::SiblingStats;
use super::invalidation::{ChangeCounter, QueryStamp};
use super::keys::{CachedObject, Expiring, KeyCache, younger};
use super::listing_prefetch::ListingPrefetch;
use super::single_flight::SingleFlight;
use crate::error::{Error, Kind, Result};
use crate::model::document::is_document;
use crate::store::{EntryKind, Key, Meta, Object, Reader, Store, Version};
use crate::sync::pool::Pool;

/// Documents that may wait to be fetched ahead, for each that is under way.
const WAITING: usize = 4;

/// What is remembered, and the store below.
pub(super) struct MetadataCacheState {
    pub(super) inner: Arc<dyn Store>,
    pub(super) ttl: Duration,
    pub(super) facts: KeyCache,
    pub(super) documents: DocumentCache,
    pub(super) folders: DirCache,
    courses: DocumentPrefetch,
    /// Questions are those of a key at a time between two changes.
    heads: SingleFlight<(Key, u64), Option<Meta>>,
    versions: SingleFlight<(Key, u64), Option<Version>>,
    objects: SingleFlight<(Key, u64), Option<Arc<Object>>>,
    opens: SingleFlight<(Key, u64), Meta>,
    pub(super) lists: SingleFlight<(Key, u64), Arc<CachedDir>>,
    pub(super) changes: ChangeCounter,
    pub(super) trails: Mutex<Vec<Arc<ListingPrefetch>>>,
    pub(super) listed: Mutex<ListHistory>,
    pub(super) neighbours: Mutex<SiblingStats>,
    /// How many requests are made ahead at a time.
    pub(super) window: usize,
    pub(super) pool: Pool,
}

impl MetadataCacheState {
    /// Builds an empty memory.
    pub(super) fn new(inner: Arc<dyn Store>, config: &MetadataCacheConfig) -> MetadataCacheState {
        let ahead = config.concurrency.max(1);
        MetadataCacheState {
            inner,
            ttl: config.ttl,
            facts: KeyCache::new(config.keys),
            documents: DocumentCache::new(config.document, config.documents),
            folders: DirCache::new(config.names),
            courses: DocumentPrefetch::new(ahead),
            heads: SingleFlight::default(),
            versions: SingleFlight::default(),
            objects: SingleFlight::default(),
            opens: SingleFlight::default(),
            lists: SingleFlight::default(),
            changes: ChangeCounter::default(),
            trails: Mutex::default(),
            listed: Mutex::default(),
            neighbours: Mutex::default(),
            window: ahead,
            pool: Pool::new("zarrfs-ahead", ahead, ahead.saturating_mul(WAITING)),
        }
    }

    /// Returns an answer that counts from when it was asked for.
    pub(super) fn told<T>(&self, what: T, asked: Instant) -> Expiring<T> {
        let until = asked.checked_add(self.ttl).unwrap_or(asked);
        Expiring { what, until }
    }

    /// Returns what `head` would say if that is known.
    pub(super) fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        let of_folder = self.folders.look(key).and_then(|place| {
            let what = match place.what {
                Slot::Missing => None,
                Slot::Entry(entry) => Some(entry.meta?),
            };
            Some(place.map(|_| what))
        });
        younger(self.facts.head(key), of_folder).map(|told| told.what)
    }

    /// Returns what is known of an object.
    pub(super) fn object_now(&self, key: &Key) -> Option<Expiring<CachedObject>> {
        let of_folder = self.folders.look(key).and_then(|place| {
            let what = match place.what {
                Slot::Missing => CachedObject::Missing,
                Slot::Entry(entry) if entry.kind == EntryKind::File => {
                    CachedObject::Object(entry.meta?)
                }
                Slot::Entry(_) => return None,
            };
            Some(place.map(|_| what))
        });
        younger(self.facts.object(key), of_folder)
    }

    /// Whether an object is known not to be there.
    pub(super) fn is_missing(&self, key: &Key) -> bool {
        let known = self.object_now(key);
        known.is_some_and(|known| known.what == CachedObject::Missing)
    }

    /// Answers `head`.
    pub(super) fn head(&self, key: &Key) -> Result<Option<Meta>> {
        if let Some(known) = self.head_now(key) {
            return Ok(known);
        }
        let asked = self.changes.asked();
        self.heads.fly(&(key.clone(), asked.changes), || {
            // It may have come between the look and the flight.
            if let Some(known) = self.head_now(key) {
                return Ok(known);
            }
            let head = self.inner.head(key)?;
            self.note_head(key, head, asked);
            Ok(head)
        })
    }

    /// Answers `version`.
    pub(super) fn version(&self, key: &Key) -> Result<Option<Version>> {
        if let Some(known) = self.object_now(key) {
            return Ok(known.what.version());
        }
        let asked = self.changes.asked();
        self.versions.fly(&(key.clone(), asked.changes), || {
            if let Some(known) = self.object_now(key) {
                return Ok(known.what.version());
            }
            let version = self.inner.version(key)?;
            let state = version.map_or(CachedObject::Missing, CachedObject::Version);
            self.note_state(key, state, asked);
            Ok(version)
        })
    }

    /// Answers `get`.
    pub(super) fn object(&self, key: &Key, limit: u64) -> Result<Option<Arc<Object>>> {
        if let Some(known) = self.document_now(key) {
            return within(key, known, limit);
        }
        let mut is_mine = false;
        let asked = self.changes.asked();
        let found = self.objects.fly(&(key.clone(), asked.changes), || {
            is_mine = true;
            match self.document_now(key) {
                Some(known) => Ok(known),
                None => self.fetch(key, limit, asked),
            }
        });
        match found {
            // Somebody else wanted less than this one does.
            Err(error) if !is_mine && error.kind() == Kind::TooLarge => {
                Ok(self.inner.get(key, limit)?.map(Arc::new))
            }
            found => within(key, found?, limit),
        }
    }

    fn fetch(&self, key: &Key, limit: u64, asked: QueryStamp) -> Result<Option<Arc<Object>>> {
        let found = self.inner.get(key, limit)?.map(Arc::new);
        self.note_object(key, found.as_deref(), asked);
        if let Some(object) = &found
            && is_document(key.name())
            && !self.ttl.is_zero()
        {
            let document = self.told(object.clone(), asked.at);
            self.changes
                .unless_changed(asked, || self.documents.put(key, document));
        }
        Ok(found)
    }

    /// Returns a document, or that an object is missing, if that is known.
    fn document_now(&self, key: &Key) -> Option<Option<Arc<Object>>> {
        let known = self.object_now(key);
        if let Some(known) = &known
            && known.what == CachedObject::Missing
        {
            return Some(None);
        }
        let document = self.documents.get(key)?;
        let is_other = |known: &Expiring<CachedObject>| {
            known.until > document.until && known.what.version() != Some(document.what.version)
        };
        (!known.as_ref().is_some_and(is_other)).then_some(Some(document.what))
    }

    /// Notes what an answer with bytes says of an object.
    pub(super) fn note_object(&self, key: &Key, found: Option<&Object>, asked: QueryStamp) {
        let state = match found {
            None => CachedObject::Missing,
            Some(object) => match object.modified {
                None => CachedObject::Version(object.version),
                Some(modified) => CachedObject::Object(Meta {
                    kind: EntryKind::File,
                    size: object.size,
                    stored: object.size,
                    modified,
                    version: object.version,
                }),
            },
        };
        let now = Instant::now();
        self.note_state(key, state, QueryStamp { at: now, ..asked });
    }

    fn note_state(&self, key: &Key, state: CachedObject, asked: QueryStamp) {
        let told = self.told(state, asked.at);
        self.changes
            .unless_changed(asked, || self.facts.note_object(key, told));
    }

    /// Notes what is there; nothing if there is neither an object nor a prefix.
    pub(super) fn note_head(&self, key: &Key, head: Option<Meta>, asked: QueryStamp) {
        let told = self.told(head, asked.at);
        self.changes
            .unless_changed(asked, || self.facts.note_head(key, told));
    }

    /// Answers `open`.
    pub(super) fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        match self.object_now(key).map(|known| known.what) {
            Some(CachedObject::Missing) => return Err(Error::not_found(key)),
            Some(CachedObject::Object(meta)) => return self.inner.open_known(key, &meta),
            Some(CachedObject::Version(_)) | None => {}
        }
        let mut mine = None;
        let asked = self.changes.asked();
        let meta = self.opens.fly(&(key.clone(), asked.changes), || {
            let reader = match self.inner.open(key) {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.note_state(key, CachedObject::Missing, asked);
                    return Err(error);
                }
                answer => answer?,
            };
            let meta = reader.meta()?;
            self.note_state(key, CachedObject::Object(meta), asked);
            mine = Some(reader);
            Ok(meta)
        })?;
        match mine {
            Some(reader) => Ok(reader),
            None => self.inner.open_known(key, &meta),
        }
    }

    /// Forgets what is known of a key.
    pub(super) fn forget(&self, key: &Key) {
        self.facts.forget(key);
        self.documents.forget(key);
        if let Some(parent) = key.parent() {
            self.folders.forget(&parent);
        }
    }

    /// Fetches a document that will be asked for, in another thread.
    pub(super) fn ask(self: &Arc<Self>, key: Key) {
        if self.ttl.is_zero() || self.document_now(&key).is_some() {
            return;
        }
        let shared = self.clone();
        self.pool.submit(move || {
            // Who needs it hears what is wrong with it.
            let _ = shared.object(&key, shared.documents.each());
        });
    }

    /// Fetches the same document of the directories that come next, where one after the other is read.
    pub(super) fn ask_siblings(self: &Arc<Self>, key: &Key) {
        if self.ttl.is_zero() || !is_document(key.name()) {
            return;
        }
        let Some((directory, above)) = key.parent().and_then(|directory| {
            let above = directory.parent()?;
            Some((directory, above))
        }) else {
            return;
        };
        let Some(folder) = self.folders.get(&above) else {
            return;
        };
        let Some(place) = folder.place_of(directory.name()) else {
            return;
        };
        let course = (above.clone(), key.name().to_vec());
        let next = self.courses.advance(course, place);
        for name in folder.directories(next.start, next.end) {
            let document = above
                .child(&name)
                .and_then(|directory| directory.child(key.name()));
            if let Ok(document) = document {
                self.ask(document);
            }
        }
    }
}

/// Gives an object to somebody who wants at most `limit` bytes.
fn within(key: &Key, object: Option<Arc<Object>>, limit: u64) -> Result<Option<Arc<Object>>> {
    match object {
        Some(object) if object.size > limit => {
            let found = format!("{} bytes, at most {limit} are read", object.size);
            Err(Error::too_large(key, found))
        }
        object => Ok(object),
    }
}
