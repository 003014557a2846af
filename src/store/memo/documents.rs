//! Small documents, whole: bounded one by one and in all; the one that was read least recently goes first.

use std::sync::Arc;
use std::sync::Mutex;

use lru::LruCache;

use super::facts::Told;
use super::lock;
use crate::store::Key;
use crate::store::Object;

/// What a document costs beside its bytes.
const OVERHEAD: u64 = 256;

/// Documents by key.
pub(super) struct Documents {
    held: Mutex<Held>,
    /// The longest that is kept.
    each: u64,
    /// Bytes in all.
    most: u64,
}

struct Held {
    by_key: LruCache<Key, Told<Arc<Object>>>,
    bytes: u64,
}

fn cost(key: &Key, object: &Object) -> u64 {
    object.bytes.len() as u64 + key.as_bytes().len() as u64 + OVERHEAD
}

impl Documents {
    /// Builds room for `most` bytes of documents of at most `each`.
    pub(super) fn new(each: u64, most: u64) -> Documents {
        let by_key = LruCache::unbounded();
        Documents {
            held: Mutex::new(Held { by_key, bytes: 0 }),
            each,
            most,
        }
    }

    /// Returns the longest document that is kept.
    pub(super) fn each(&self) -> u64 {
        self.each
    }

    /// Returns a document.
    pub(super) fn get(&self, key: &Key) -> Option<Told<Arc<Object>>> {
        let mut held = lock(&self.held);
        let told = held.by_key.get(key)?.clone();
        told.is_fresh().then_some(told)
    }

    /// Keeps a document if it is small enough.
    pub(super) fn put(&self, key: &Key, document: Told<Arc<Object>>) {
        self.forget(key);
        let cost = cost(key, &document.what);
        if document.what.bytes.len() as u64 > self.each || cost > self.most {
            return;
        }
        let mut held = lock(&self.held);
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
        let mut held = lock(&self.held);
        if let Some(document) = held.by_key.pop(key) {
            held.bytes -= cost(key, &document.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::Instant;

    use super::*;
    use crate::store::Version;

    fn put(documents: &Documents, name: &str, length: usize) {
        let object = Object {
            bytes: vec![0; length],
            size: length as u64,
            version: Version(1),
            modified: None,
        };
        let until = Instant::now() + Duration::from_secs(1000);
        let what = Arc::new(object);
        documents.put(&Key::new(name).unwrap(), Told { what, until });
    }

    #[test]
    fn memory_is_bounded() {
        let documents = Documents::new(1000, 5000);
        put(&documents, "large", 1001);
        for number in 0..100 {
            put(&documents, &format!("{number}"), 900);
            put(&documents, "same", number);
            assert!(lock(&documents.held).bytes <= 5000);
            assert!(documents.get(&Key::new("same").unwrap()).is_some());
        }
        let has = |name: &str| documents.get(&Key::new(name).unwrap()).is_some();
        assert!(has("99") && !has("0") && !has("large"));
        let held = lock(&documents.held);
        let sum = held.by_key.iter().map(|(key, told)| cost(key, &told.what));
        assert_eq!(held.bytes, sum.sum::<u64>());
    }
}
