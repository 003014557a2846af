//! The cached answers about keys and directories.
//!
//! The newer of two answers about a key wins, whether it comes from the key itself or from the listing of its
//! directory. An answer is stored with the time of its request, from which its TTL counts. It is stored under the read
//! lock, and only if its key was not changed since the request; a change invalidates answers under the write lock. A
//! query that comes after a change never joins a request from before the change. The lock is never held during a
//! request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::MetadataCacheConfig;
use super::cached_dir::CachedDir;
use super::dirs::DirCache;
use super::keys::{CachedObject, KeyTable};
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;
use crate::{
    ChangeLog, EntryKind, Key, LogPosition, Meta, Object, Presence, QueryStamp, StoreInfo, Version,
};

/// An answer and the time of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated<T> {
    pub(super) value: T,
    pub(super) request_time: Instant,
}

impl<T> Dated<T> {
    /// Dates an answer of the store below.
    pub(super) fn new(value: T, stamp: QueryStamp) -> Dated<T> {
        let request_time = stamp.request_time;
        Dated {
            value,
            request_time,
        }
    }

    /// Returns another value with the date of this answer.
    pub(super) fn with<U>(&self, value: U) -> Dated<U> {
        let request_time = self.request_time;
        Dated {
            value,
            request_time,
        }
    }

    /// Returns the answer, and records its age in the context.
    pub(super) fn used(self, context: &RequestContext) -> T {
        context.record_age(self.request_time);
        self.value
    }

    /// Returns the newer of two answers.
    pub(super) fn newer(one: Option<Dated<T>>, other: Option<Dated<T>>) -> Option<Dated<T>> {
        match (one, other) {
            (Some(one), Some(other)) if one.request_time < other.request_time => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }
}

/// The TTL of answers, and its clock.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
}

impl Lifetime {
    /// Whether an answer requested at `request_time` is within its TTL.
    pub(super) fn is_fresh(&self, request_time: Instant) -> bool {
        self.clock.now().saturating_duration_since(request_time) < self.ttl
    }

    /// Returns the answer if it is within its TTL.
    pub(super) fn fresh<T>(&self, answer: Option<Dated<T>>) -> Option<Dated<T>> {
        answer.filter(|answer| self.is_fresh(answer.request_time))
    }

    /// Returns a predicate that accepts the answer of a joined request: if it is within its TTL, or was requested after
    /// this call, since a request may take longer than the TTL.
    pub(super) fn accepts<T>(&self, request_time: impl Fn(&T) -> Instant) -> impl Fn(&T) -> bool {
        let begun = self.clock.now();
        move |answer| {
            let request_time = request_time(answer);
            request_time >= begun || self.is_fresh(request_time)
        }
    }
}

/// Identifies a query about a key. A query before a change of the key and one after it have different identifiers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct QueryId {
    key: Key,
    last_change: LogPosition,
}

/// The kind of a change to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The key exists now, and so do its ancestors.
    Put,
    /// The key is missing or in an unknown state, and its ancestors may be gone.
    Erased,
}

/// The answers in memory.
pub(super) struct CachedAnswers {
    pub(super) keys: Arc<KeyTable>,
    pub(super) dirs: Arc<DirCache>,
    /// Whether the store can list names. Only then can `head` tell that a key is a prefix of other keys.
    lists: bool,
    /// The changes made through this store.
    log: Arc<ChangeLog>,
    /// Locked for reading to store an answer, and for writing to invalidate some.
    storing: RwLock<()>,
}

impl CachedAnswers {
    /// Builds an empty cache for answers of the store with the properties `info`.
    pub(super) fn new(info: &StoreInfo, config: &MetadataCacheConfig) -> CachedAnswers {
        let lifetime = Lifetime {
            clock: info.clock.clone(),
            ttl: config.ttl,
        };
        CachedAnswers {
            keys: KeyTable::new(config, lifetime.clone()),
            dirs: DirCache::new(config.names, lifetime, &config.memory),
            lists: info.lists,
            log: info.changes.clone(),
            storing: RwLock::default(),
        }
    }

    /// Whether the cache is on.
    pub(super) fn is_on(&self) -> bool {
        !self.dirs.lifetime().ttl.is_zero()
    }

    /// Returns the answer to `head`.
    pub(super) fn head(&self, key: &Key) -> Option<Dated<Option<Meta>>> {
        let of_dir = self.dirs.entry(key).and_then(|entry| {
            let head = match entry.value {
                None => None,
                Some(entry) => Some(entry.meta?),
            };
            Some(entry.with(head))
        });
        let of_key = Dated::newer(self.keys.head(key), of_dir);
        Dated::newer(of_key, self.head_of_object(key))
    }

    /// Returns the answer to `head` from a cached object, if the store cannot list names: then no key is a prefix.
    fn head_of_object(&self, key: &Key) -> Option<Dated<Option<Meta>>> {
        if self.lists {
            return None;
        }
        let object = self.keys.object(key)?;
        match object.value {
            CachedObject::Object(meta) => Some(object.with(Some(meta))),
            CachedObject::Missing | CachedObject::Version(_) => None,
        }
    }

    /// Returns the answer to `head`, and records its age in the context.
    pub(super) fn known_head(&self, context: &RequestContext, key: &Key) -> Presence<Meta> {
        let head = self.head(key);
        head.map_or(Presence::Unknown, |head| Presence::from(head.used(context)))
    }

    /// Returns the state of an object.
    pub(super) fn object(&self, key: &Key) -> Option<Dated<CachedObject>> {
        let of_dir = self.dirs.entry(key).and_then(|entry| {
            let object = match entry.value {
                None => CachedObject::Missing,
                Some(entry) if entry.kind == EntryKind::File => CachedObject::Object(entry.meta?),
                Some(_) => return None,
            };
            Some(entry.with(object))
        });
        Dated::newer(self.keys.object(key), of_dir)
    }

    /// Whether an object is cached as missing.
    pub(super) fn is_missing(&self, context: &RequestContext, key: &Key) -> bool {
        let object = self.object(key);
        let missing = object.filter(|object| object.value == CachedObject::Missing);
        missing.map(|missing| missing.used(context)).is_some()
    }

    /// Returns the version of an object; `None` inside if the object is missing.
    pub(super) fn version(&self, key: &Key) -> Option<Dated<Option<Version>>> {
        let object = self.object(key)?;
        Some(object.with(object.value.version()))
    }

    /// Returns a document; `None` inside if it is missing.
    pub(super) fn document(&self, key: &Key) -> Option<Dated<Option<Arc<Object>>>> {
        let object = self.object(key);
        if let Some(missing) = object.filter(|object| object.value == CachedObject::Missing) {
            return Some(missing.with(None));
        }
        let document = self.keys.document(key)?;
        let is_other_length = |object: CachedObject| {
            let content = object.content();
            content.is_some_and(|content| content.size != document.value.size)
        };
        match object.filter(|object| object.request_time > document.request_time) {
            // A later answer has another version.
            Some(newer) if newer.value.version() != Some(document.value.version) => None,
            // A later answer has another length.
            Some(newer) if is_other_length(newer.value) => None,
            // A later answer confirms the version.
            Some(newer) => Some(newer.with(Some(document.value))),
            None => Some(document.with(Some(document.value.clone()))),
        }
    }

    /// Identifies a query about a key.
    pub(super) fn query(&self, key: &Key) -> QueryId {
        QueryId {
            key: key.clone(),
            last_change: self.log.last_change(key),
        }
    }

    /// Identifies a query about a prefix, which a change below the prefix affects too.
    pub(super) fn query_below(&self, prefix: &Key) -> QueryId {
        QueryId {
            key: prefix.clone(),
            last_change: self.log.last_change_below(prefix),
        }
    }

    /// Runs `store` unless the key was changed since the request.
    fn store_unless_changed(&self, key: &Key, stamp: QueryStamp, store: impl FnOnce()) {
        let _lock = self.storing.read();
        if !self.log.changed_since(stamp.position, key) {
            store();
        }
    }

    /// Runs `store` unless something at or below the prefix was changed since the request.
    fn store_unless_changed_below(&self, prefix: &Key, stamp: QueryStamp, store: impl FnOnce()) {
        let _lock = self.storing.read();
        if !self.log.below_changed_since(stamp.position, prefix) {
            store();
        }
    }

    /// Caches an answer to `head`.
    pub(super) fn put_head(&self, key: &Key, value: Option<Meta>, stamp: QueryStamp) {
        let head = Dated::new(value, stamp);
        self.store_unless_changed_below(key, stamp, || self.keys.put_head(key, head));
    }

    /// Caches the state of an object.
    pub(super) fn put_object(&self, key: &Key, value: CachedObject, stamp: QueryStamp) {
        let object = Dated::new(value, stamp);
        self.store_unless_changed(key, stamp, || self.keys.put_object(key, object));
    }

    /// Caches a document if there is room for it.
    pub(super) fn put_document(&self, key: &Key, value: Arc<Object>, stamp: QueryStamp) {
        if self.is_on()
            && let Some(document) = self.keys.reserve(key, Dated::new(value, stamp))
        {
            self.store_unless_changed(key, stamp, || self.keys.put_document(key, document));
        }
    }

    /// Caches a directory from a listing that began at `stamp`.
    pub(super) fn put_dir(&self, dir: &Arc<CachedDir>, stamp: QueryStamp) {
        self.store_unless_changed_below(&dir.prefix, stamp, || self.dirs.put(dir));
    }

    /// Caches a directory from a flat listing, unless that listing has ended: a change below the directory would have
    /// ended it.
    pub(super) fn put_dir_unless(&self, dir: &Arc<CachedDir>, has_ended: impl FnOnce() -> bool) {
        let _lock = self.storing.read();
        if !has_ended() {
            self.dirs.put(dir);
        }
    }

    /// Invalidates an object if its cached version differs.
    pub(super) fn forget_other_version(&self, key: &Key, version: Option<Version>) {
        if self
            .version(key)
            .is_some_and(|known| known.value != version)
        {
            self.forget(key);
        }
    }

    /// Invalidates a key and the listing that contains it.
    pub(super) fn forget(&self, key: &Key) {
        self.keys.forget(key);
        if let Some(parent) = key.parent() {
            self.dirs.forget(&parent);
        }
    }

    /// Invalidates a changed key, the listings that contain it, and its ancestors unless they were known to exist and
    /// still do. `end_listings` ends the flat listings that may return the key. Then the change is entered in the log
    /// once more: an answer that this cache gave after the store's own entry may be from before the change.
    pub(super) fn forget_changed(&self, key: &Key, kind: ChangeKind, end_listings: impl FnOnce()) {
        let _lock = self.storing.write();
        self.forget(key);
        self.dirs.forget(key);
        let is_put = kind == ChangeKind::Put;
        let mut below = key.clone();
        while let Some(above) = below.parent() {
            if !(is_put && self.dirs.is_directory(&below)) {
                self.dirs.forget(&above);
            }
            if !(is_put && self.keys.is_directory(&above)) {
                self.keys.forget(&above);
            }
            below = above;
        }
        end_listings();
        self.log.record(key);
    }
}
