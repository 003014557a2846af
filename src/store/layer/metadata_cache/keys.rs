//! What the store said of single keys: kind, size and version, or that there is nothing.
//!
//! A key as a name (`head`: also a prefix) and as an object (`get`, `version`, `open`) are two questions; an answer
//! to the first is one to the second where no prefix is in play. Bounded; the key that was asked for least
//! recently goes first.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::time::Instant;

use crate::store::{EntryKind, Key, Meta, Version};
use lru::LruCache;

/// An answer, and until when it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiring<T> {
    pub(super) what: T,
    pub(super) until: Instant,
}

impl<T> Expiring<T> {
    pub(super) fn is_fresh(&self) -> bool {
        self.until > Instant::now()
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Expiring<U> {
        Expiring {
            what: change(self.what),
            until: self.until,
        }
    }
}

/// Returns the younger of two answers.
pub(super) fn younger<T>(
    one: Option<Expiring<T>>,
    other: Option<Expiring<T>>,
) -> Option<Expiring<T>> {
    match (one, other) {
        (Some(one), Some(other)) if one.until < other.until => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedObject {
    Missing,
    /// Only which content it is.
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

    /// Returns what an answer to `head` says of the object; nothing if it is about a prefix or a link.
    pub(super) fn of_head(head: &Option<Meta>) -> Option<CachedObject> {
        match head {
            None => Some(CachedObject::Missing),
            Some(meta) if meta.kind == EntryKind::File => Some(CachedObject::Object(*meta)),
            Some(_) => None,
        }
    }
}

#[derive(Default)]
struct KeyEntry {
    head: Option<Expiring<Option<Meta>>>,
    object: Option<Expiring<CachedObject>>,
}

/// Answers by key.
pub(super) struct KeyCache(Mutex<LruCache<Key, KeyEntry>>);

impl KeyCache {
    /// Builds room for the answers about so many keys.
    pub(super) fn new(most: NonZeroUsize) -> KeyCache {
        KeyCache(Mutex::new(LruCache::new(most)))
    }

    /// Returns what `head` says of a key.
    pub(super) fn head(&self, key: &Key) -> Option<Expiring<Option<Meta>>> {
        let head = self.0.lock().get(key)?.head;
        head.filter(Expiring::is_fresh)
    }

    /// Whether a key is known to be a prefix of others.
    pub(super) fn knows_folder(&self, key: &Key) -> bool {
        let head = self.head(key).and_then(|head| head.what);
        head.is_some_and(|meta| meta.kind == EntryKind::Directory)
    }

    /// Returns what is known of an object.
    pub(super) fn object(&self, key: &Key) -> Option<Expiring<CachedObject>> {
        let mut facts = self.0.lock();
        let fact = facts.get(key)?;
        let of_head = fact.head.and_then(|head| {
            let what = CachedObject::of_head(&head.what)?;
            Some(head.map(|_| what))
        });
        younger(fact.object, of_head).filter(Expiring::is_fresh)
    }

    /// Notes what `head` said.
    pub(super) fn note_head(&self, key: &Key, head: Expiring<Option<Meta>>) {
        self.change(key, |fact| fact.head = Some(head));
    }

    /// Notes what was said of an object.
    pub(super) fn note_object(&self, key: &Key, object: Expiring<CachedObject>) {
        self.change(key, |fact| {
            // An object that is not what it was when its name was asked for is no longer what that said.
            let before = fact
                .head
                .and_then(|head| CachedObject::of_head(&head.what))
                .map(|state| state.version());
            if before.is_some_and(|before| before != object.what.version()) {
                fact.head = None;
            }
            fact.object = Some(object);
        });
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut KeyEntry)) {
        change(
            self.0
                .lock()
                .get_or_insert_mut(key.clone(), KeyEntry::default),
        );
    }

    /// Forgets a key.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().pop(key);
    }
}
