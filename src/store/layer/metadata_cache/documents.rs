//! Small documents, whole: bounded one by one and in all; the one that was read least recently goes first.

use parking_lot::Mutex;
use std::sync::Arc;

use lru::LruCache;

use super::keys::Expiring;
use crate::store::{Key, Object};

/// What a document costs beside its bytes.
const OVERHEAD: u64 = 256;

/// Documents by key.
pub(super) struct DocumentCache {
    held: Mutex<CachedDocument>,
    /// The longest that is kept.
    each: u64,
    /// Bytes in all.
    most: u64,
}

struct CachedDocument {
    by_key: LruCache<Key, Expiring<Arc<Object>>>,
    bytes: u64,
}

fn cost(key: &Key, object: &Object) -> u64 {
    object.bytes.len() as u64 + key.as_bytes().len() as u64 + OVERHEAD
}

impl DocumentCache {
    /// Builds room for `most` bytes of documents of at most `each`.
    pub(super) fn new(each: u64, most: u64) -> DocumentCache {
        let by_key = LruCache::unbounded();
        DocumentCache {
            held: Mutex::new(CachedDocument { by_key, bytes: 0 }),
            each,
            most,
        }
    }

    /// Returns the longest document that is kept.
    pub(super) fn each(&self) -> u64 {
        self.each
    }

    /// Returns a document.
    pub(super) fn get(&self, key: &Key) -> Option<Expiring<Arc<Object>>> {
        let mut held = self.held.lock();
        let told = held.by_key.get(key)?.clone();
        told.is_fresh().then_some(told)
    }

    /// Keeps a document if it is small enough.
    pub(super) fn put(&self, key: &Key, document: Expiring<Arc<Object>>) {
        self.forget(key);
        let cost = cost(key, &document.what);
        if document.what.bytes.len() as u64 > self.each || cost > self.most {
            return;
        }
        let mut held = self.held.lock();
        held.bytes += cost;
        if let Some((key, replaced)) = held.by_key.push(key.clone(), document) {
            held.bytes -= self::cost(&key, &replaced.what);
        }
        while held.bytes > self.most
            && let Some((key, document)) = held.by_key.pop_lru()
        {
            held.bytes -= self::cost(&key, &document.what);
        }
    }

    /// Forgets a document.
    pub(super) fn forget(&self, key: &Key) {
        let mut held = self.held.lock();
        if let Some(document) = held.by_key.pop(key) {
            held.bytes -= cost(key, &document.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::store::Version;

    fn put(documents: &DocumentCache, name: &str, length: usize) {
        let object = Object {
            bytes: vec![0; length],
            size: length as u64,
            version: Version(1),
            modified: None,
        };
        let until = Instant::now() + Duration::from_secs(1000);
        let what = Arc::new(object);
        documents.put(&Key::new(name).unwrap(), Expiring { what, until });
    }

    #[test]
    fn memory_is_bounded() {
        let documents = DocumentCache::new(1000, 5000);
        put(&documents, "large", 1001);
        for number in 0..100 {
            put(&documents, &format!("{number}"), 900);
            put(&documents, "same", number);
            assert!(documents.held.lock().bytes <= 5000);
            assert!(documents.get(&Key::new("same").unwrap()).is_some());
        }
        let has = |name: &str| documents.get(&Key::new(name).unwrap()).is_some();
        assert!(has("99") && !has("0") && !has("large"));
        let held = documents.held.lock();
        let sum = held.by_key.iter().map(|(key, told)| cost(key, &told.what));
        assert_eq!(held.bytes, sum.sum::<u64>());
    }
}
