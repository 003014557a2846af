//! The cached answers about keys and directories.
//!
//! The newer of two answers about a key is used, whether it comes from the key itself or from the listing of its
//! directory. An answer is stored with the time of its request, from which its TTL counts. It is stored under the read
//! lock, and only if its key was not changed since the request; a change invalidates answers under the write lock. A
//! query after a change never joins a request from before the change. The lock is never held during a request.

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

/// An answer of the store, and the time of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated<T> {
    pub(super) value: T,
    pub(super) request_time: Instant,
}

impl<T> Dated<T> {
    pub(super) fn new(value: T, stamp: QueryStamp) -> Dated<T> {
        let request_time = stamp.request_time;
        Dated {
            value,
            request_time,
        }
    }

    pub(super) fn with<U>(&self, value: U) -> Dated<U> {
        let request_time = self.request_time;
        Dated {
            value,
            request_time,
        }
    }

    /// Returns the answer, and records its age in the caller's request context.
    pub(super) fn used(self, context: &RequestContext) -> T {
        context.record_age(self.request_time);
        self.value
    }

    pub(super) fn newer(one: Option<Dated<T>>, other: Option<Dated<T>>) -> Option<Dated<T>> {
        match (one, other) {
            (Some(one), Some(other)) if one.request_time < other.request_time => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }
}

/// The TTL of cached answers, and the clock by which it is measured.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
}

impl Lifetime {
    pub(super) fn is_fresh(&self, request_time: Instant) -> bool {
        self.clock.now().saturating_duration_since(request_time) < self.ttl
    }

    /// Returns the cached answer if it is within the TTL.
    pub(super) fn fresh<T>(&self, answer: Option<Dated<T>>) -> Option<Dated<T>> {
        answer.filter(|answer| self.is_fresh(answer.request_time))
    }

    /// Returns a predicate that accepts the answer of another caller's request: if it is within the TTL, or was
    /// requested after this call. A request may take longer than the TTL.
    pub(super) fn accepts<T>(&self, request_time: impl Fn(&T) -> Instant) -> impl Fn(&T) -> bool {
        let begun = self.clock.now();
        move |answer| {
            let request_time = request_time(answer);
            request_time >= begun || self.is_fresh(request_time)
        }
    }
}

/// Identifies a query about a key, so that concurrent callers with the same query share one request. Queries before and
/// after a change of the key have different identifiers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct QueryId {
    key: Key,
    last_change: LogPosition,
}

/// The kind of a change to a key, as far as it matters to cached answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The key exists after the change, and so do the directories above it.
    Put,
    /// After the change the key is missing or in an unknown state, and the directories above it may be gone.
    Erased,
}

/// The cached answers about single keys and directories.
pub(super) struct CachedAnswers {
    pub(super) keys: Arc<KeyTable>,
    pub(super) dirs: Arc<DirCache>,
    /// Whether the store can list names. If not, `head` never finds that a key is a prefix of other keys.
    lists: bool,
    log: Arc<ChangeLog>,
    /// Locked for reading while an answer is stored, and for writing while answers are invalidated.
    storing: RwLock<()>,
}

impl CachedAnswers {
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

    /// Whether answers are cached: the TTL is not 0.
    pub(super) fn is_on(&self) -> bool {
        !self.dirs.lifetime().ttl.is_zero()
    }

    /// Returns the cached answer to a `head` request: the metadata of an object or directory.
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

    /// Derives the answer to `head` from a cached object. That is only possible if the store cannot list names, so that
    /// no key is found to be a prefix.
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

    /// Returns the cached answer to `head`, and records its age in the caller's request context.
    pub(super) fn known_head(&self, context: &RequestContext, key: &Key) -> Presence<Meta> {
        let head = self.head(key);
        head.map_or(Presence::Unknown, |head| Presence::from(head.used(context)))
    }

    /// Returns the cached state of an object: missing, or its version or metadata.
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

    pub(super) fn is_missing(&self, context: &RequestContext, key: &Key) -> bool {
        let object = self.object(key);
        let missing = object.filter(|object| object.value == CachedObject::Missing);
        missing.map(|missing| missing.used(context)).is_some()
    }

    /// Returns the cached version of an object, or `Some(None)` if the object is known to be missing.
    pub(super) fn version(&self, key: &Key) -> Option<Dated<Option<Version>>> {
        let object = self.object(key)?;
        Some(object.with(object.value.version()))
    }

    /// Returns a cached metadata document, or `Some(None)` if it is known to be missing.
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
            // A later answer has another version, so the cached document is stale.
            Some(newer) if newer.value.version() != Some(document.value.version) => None,
            // A later answer has another length for the same version: one of the two is wrong.
            Some(newer) if is_other_length(newer.value) => None,
            // A later answer has the same version, so the document counts as requested then.
            Some(newer) => Some(newer.with(Some(document.value))),
            None => Some(document.with(Some(document.value.clone()))),
        }
    }

    pub(super) fn query(&self, key: &Key) -> QueryId {
        QueryId {
            key: key.clone(),
            last_change: self.log.last_change(key),
        }
    }

    /// Returns the identifier of a query about a prefix, which differs before and after a change of any key below the
    /// prefix.
    pub(super) fn query_below(&self, prefix: &Key) -> QueryId {
        QueryId {
            key: prefix.clone(),
            last_change: self.log.last_change_below(prefix),
        }
    }

    /// Runs `store`, which caches an answer about a key, unless the key was changed since the answer was requested.
    fn store_unless_changed(&self, key: &Key, stamp: QueryStamp, store: impl FnOnce()) {
        let _lock = self.storing.read();
        if !self.log.changed_since(stamp.position, key) {
            store();
        }
    }

    /// Runs `store`, which caches an answer about a prefix, unless the prefix or a key below it was changed since the
    /// answer was requested.
    fn store_unless_changed_below(&self, prefix: &Key, stamp: QueryStamp, store: impl FnOnce()) {
        let _lock = self.storing.read();
        if !self.log.below_changed_since(stamp.position, prefix) {
            store();
        }
    }

    pub(super) fn put_head(&self, key: &Key, value: Option<Meta>, stamp: QueryStamp) {
        let head = Dated::new(value, stamp);
        self.store_unless_changed_below(key, stamp, || self.keys.put_head(key, head));
    }

    pub(super) fn put_object(&self, key: &Key, value: CachedObject, stamp: QueryStamp) {
        let object = Dated::new(value, stamp);
        self.store_unless_changed(key, stamp, || self.keys.put_object(key, object));
    }

    pub(super) fn put_document(&self, key: &Key, value: Arc<Object>, stamp: QueryStamp) {
        if self.is_on()
            && let Some(document) = self.keys.reserve(key, Dated::new(value, stamp))
        {
            self.store_unless_changed(key, stamp, || self.keys.put_document(key, document));
        }
    }

    pub(super) fn put_dir(&self, dir: &Arc<CachedDir>, stamp: QueryStamp) {
        self.store_unless_changed_below(&dir.prefix, stamp, || self.dirs.put(dir));
    }

    /// Caches a directory from a recursive listing, unless the listing has ended: it ends early if a key below the
    /// directory changes.
    pub(super) fn put_dir_unless(&self, dir: &Arc<CachedDir>, has_ended: impl FnOnce() -> bool) {
        let _lock = self.storing.read();
        if !has_ended() {
            self.dirs.put(dir);
        }
    }

    /// Invalidates the cached answers about an object unless they have the given version.
    pub(super) fn forget_other_version(&self, key: &Key, version: Option<Version>) {
        if self
            .version(key)
            .is_some_and(|known| known.value != version)
        {
            self.forget(key);
        }
    }

    /// Invalidates the answers about a key, and the cached directory that contains it.
    pub(super) fn forget(&self, key: &Key) {
        self.keys.forget(key);
        if let Some(parent) = key.parent() {
            self.dirs.forget(&parent);
        }
    }

    /// Invalidates the answers about a changed key, and about the directories above it unless they were known to exist
    /// and still do. `end_listings` ends the recursive listings that may return the key. Then the change is logged once
    /// more: an answer that this cache returned after the store logged the change may be from before the change.
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
