//! Caches answers about single keys: kind, size, version, small documents.
//!
//! Two answers are cached for a key: that of `head`, which also finds prefixes, and the state of the object, which
//! `get`, `version` and `open` use. An answer of `head` also tells the state of the object, unless the key is a prefix
//! or a link. The number of keys is bounded. Keys are charged to the memory budget, and documents to a part of it; the
//! least recently used key is evicted first.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::MetadataCacheConfig;
use super::cached_answers::{Dated, Lifetime};
use crate::object::Content;
use crate::sync::aged_map::{AgedMap, Minute};
use crate::sync::budget::BatchedReservation;
use crate::sync::budget::{Evict, MemoryBudget, Priority, Reservation};
use crate::{EntryKind, Key, Meta, Object, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedObject {
    Missing,
    /// The object exists. Only its version is known.
    Version(Version),
    Object(Meta),
}

impl CachedObject {
    pub(super) fn version(&self) -> Option<Version> {
        match self {
            CachedObject::Missing => None,
            CachedObject::Version(version) => Some(*version),
            CachedObject::Object(meta) => Some(meta.version),
        }
    }

    /// Returns version and length of the object, or `None` if they are not both known.
    pub(super) fn content(&self) -> Option<Content> {
        match self {
            CachedObject::Missing | CachedObject::Version(_) => None,
            CachedObject::Object(meta) => Some(meta.content()),
        }
    }

    /// Derives the state of an object from an answer to `head`. Returns `None` if the key is a prefix or a link.
    fn of_head(head: &Option<Meta>) -> Option<CachedObject> {
        match head {
            None => Some(CachedObject::Missing),
            Some(meta) if meta.kind == EntryKind::File => Some(CachedObject::Object(*meta)),
            Some(_) => None,
        }
    }
}

impl From<Option<&Object>> for CachedObject {
    /// Derives the state of an object from an answer with its bytes.
    fn from(object: Option<&Object>) -> CachedObject {
        match object {
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
        }
    }
}

#[derive(Default)]
struct KeyEntry {
    head: Option<Dated<Option<Meta>>>,
    object: Option<Dated<CachedObject>>,
    document: Option<CachedDocument>,
}

impl KeyEntry {
    fn object(&self) -> Option<Dated<CachedObject>> {
        let of_head = self.head.and_then(|head| {
            let object = CachedObject::of_head(&head.value)?;
            Some(head.with(object))
        });
        Dated::newer(self.object, of_head)
    }
}

struct CachedDocument {
    object: Dated<Arc<Object>>,
    _reservation: Reservation,
}

/// Memory that a cached key and its answers, except documents, take, in bytes.
const KEY_BYTES: u64 = 384;

pub(super) struct KeyTable {
    entries: Mutex<AgedMap<Key, KeyEntry>>,
    reservation: BatchedReservation,
    lifetime: Lifetime,
    memory: Arc<MemoryBudget>,
    max_document_bytes: u64,
}

impl KeyTable {
    /// Builds an empty table. Only a part of the memory budget is used for documents.
    pub(super) fn new(config: &MetadataCacheConfig, lifetime: Lifetime) -> Arc<KeyTable> {
        let table = Arc::new(KeyTable {
            entries: Mutex::new(AgedMap::default()),
            reservation: BatchedReservation::new(&config.memory, KEY_BYTES, config.keys.get()),
            lifetime,
            memory: config.memory.part(config.documents),
            max_document_bytes: config.document,
        });
        let weak: Weak<KeyTable> = Arc::downgrade(&table);
        table.memory.register(Priority::Metadata, weak.clone());
        table
            .reservation
            .memory()
            .register(Priority::Metadata, weak);
        table
    }

    pub(super) fn max_document_bytes(&self) -> u64 {
        self.max_document_bytes
    }

    pub(super) fn head(&self, key: &Key) -> Option<Dated<Option<Meta>>> {
        let head = self.entries.lock().get(key)?.head;
        self.lifetime.fresh(head)
    }

    /// Whether the last answer to `head` says that the key is a prefix of other keys.
    pub(super) fn is_directory(&self, key: &Key) -> bool {
        let head = self.head(key).and_then(|head| head.value);
        head.is_some_and(|meta| meta.kind == EntryKind::Directory)
    }

    pub(super) fn object(&self, key: &Key) -> Option<Dated<CachedObject>> {
        let object = self.entries.lock().get(key)?.object();
        self.lifetime.fresh(object)
    }

    /// Returns the last known version and length of an object, even if they are older than the TTL.
    pub(super) fn content(&self, key: &Key) -> Option<Content> {
        self.entries.lock().peek(key)?.object()?.value.content()
    }

    pub(super) fn document(&self, key: &Key) -> Option<Dated<Arc<Object>>> {
        let mut entries = self.entries.lock();
        let document = entries.get(key)?.document.as_ref()?;
        let is_fresh = self.lifetime.is_fresh(document.object.request_time);
        is_fresh.then(|| document.object.clone())
    }

    pub(super) fn put_head(&self, key: &Key, head: Dated<Option<Meta>>) {
        self.change(key, |entry| entry.head = Some(head));
    }

    pub(super) fn put_object(&self, key: &Key, object: Dated<CachedObject>) {
        self.change(key, |entry| {
            // An older answer to `head` with another version is stale.
            let before = entry
                .head
                .and_then(|head| CachedObject::of_head(&head.value));
            if before.is_some_and(|before| before.version() != object.value.version()) {
                entry.head = None;
            }
            entry.object = Some(object);
        });
    }

    /// Reserves memory for a metadata document. Returns `None` if the document is too long or the memory budget is used
    /// up.
    pub(super) fn reserve(
        &self,
        key: &Key,
        object: Dated<Arc<Object>>,
    ) -> Option<ReservedDocument> {
        let length = object.value.bytes.len() as u64;
        // 256 bytes for the other fields of the cached document.
        let bytes = length + key.as_bytes().len() as u64 + 256;
        if length > self.max_document_bytes {
            return None;
        }
        Some(ReservedDocument(CachedDocument {
            object,
            _reservation: self.memory.try_reserve(bytes)?,
        }))
    }

    pub(super) fn put_document(&self, key: &Key, document: ReservedDocument) {
        self.change(key, |entry| entry.document = Some(document.0));
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut KeyEntry)) {
        let mut entries = self.entries.lock();
        change(entries.get_or_insert(key.clone(), KeyEntry::default));
        let count = entries.len();
        drop(entries);
        if !self.reservation.covers(count) {
            while !self.reservation.cover(|| self.entries.lock().len())
                && self.evict_one(Minute::NEVER)
            {}
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.entries.lock().pop(key);
    }
}

/// A metadata document for which memory is reserved, and which is not cached yet.
pub(super) struct ReservedDocument(CachedDocument);

impl Evict for KeyTable {
    fn evict_one(&self, before: Minute) -> bool {
        let mut entries = self.entries.lock();
        let oldest = entries.pop_unused(before);
        let count = entries.len();
        drop(entries);
        self.reservation.shrink(count);
        oldest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::stats::Stats;
    use crate::sync::clock::Clock;

    fn put(table: &KeyTable, name: &str, length: usize) {
        let object = Object {
            bytes: vec![0; length],
            size: length as u64,
            version: Version::numbered(1),
            modified: None,
        };
        let key = Key::new(name).unwrap();
        let (value, request_time) = (Arc::new(object), Instant::now());
        if let Some(document) = table.reserve(
            &key,
            Dated {
                value,
                request_time,
            },
        ) {
            table.put_document(&key, document);
        }
    }

    fn table(config: &MetadataCacheConfig) -> Arc<KeyTable> {
        let lifetime = Lifetime {
            clock: Clock::default(),
            ttl: Duration::from_secs(1000),
        };
        KeyTable::new(config, lifetime)
    }

    #[test]
    fn cached_documents_stay_within_their_memory_limit() {
        let memory = MemoryBudget::new(100_000, Arc::new(Stats::default()));
        let table = table(&MetadataCacheConfig {
            keys: NonZeroUsize::new(1000).unwrap(),
            document: 1000,
            documents: 5000,
            ..MetadataCacheConfig::within(memory.clone())
        });
        put(&table, "large", 1001);
        for number in 0..100 {
            put(&table, &format!("{number}"), 900);
            put(&table, "same", number);
            assert!(table.memory.held() <= 5000);
            assert!(table.document(&Key::new("same").unwrap()).is_some());
        }
        let has = |name: &str| table.document(&Key::new(name).unwrap()).is_some();
        assert!(has("99") && !has("0") && !has("large"));
        let _all = memory.try_reserve(100_000).unwrap();
        assert!(!has("99"), "documents give way to other memory");
        put(&table, "other", 10);
        assert!(!has("other"));
    }

    #[test]
    fn cached_keys_are_evicted_for_other_memory() {
        let memory = MemoryBudget::new(200 * KEY_BYTES, Arc::new(Stats::default()));
        let table = table(&MetadataCacheConfig {
            keys: NonZeroUsize::new(400).unwrap(),
            ..MetadataCacheConfig::within(memory.clone())
        });
        let key = |number: u32| Key::new(format!("{number}")).unwrap();
        let missing = Dated {
            value: None,
            request_time: Instant::now(),
        };
        for number in 0..1000 {
            table.put_head(&key(number), missing);
            assert!(memory.held() <= 200 * KEY_BYTES);
        }
        let knows = |number| table.head(&key(number)).is_some();
        assert!(knows(999) && knows(900) && !knows(700));
        let _all = memory.try_reserve(200 * KEY_BYTES).unwrap();
        assert!(!knows(999));
    }
}
