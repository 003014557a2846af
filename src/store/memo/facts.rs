//! What the store said of single keys: kind, size and version, or that there is nothing.
//!
//! A key as a name (`head`: also a prefix) and as an object (`get`, `version`, `open`) are two questions; an answer
//! to the first is one to the second where no prefix is in play. Bounded; the key that was asked for least
//! recently goes first.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Instant;

use lru::LruCache;

use super::lock;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Version;

/// An answer, and until when it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<T> {
    pub(super) what: T,
    pub(super) until: Instant,
}

impl<T> Told<T> {
    pub(super) fn is_fresh(&self) -> bool {
        self.until > Instant::now()
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Told<U> {
        Told {
            what: change(self.what),
            until: self.until,
        }
    }
}

/// Returns the younger of two answers.
pub(super) fn younger<T>(one: Option<Told<T>>, other: Option<Told<T>>) -> Option<Told<T>> {
    match (one, other) {
        (Some(one), Some(other)) if one.until < other.until => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Missing,
    /// Only which content it is.
    Version(Version),
    Object(Meta),
}

impl State {
    pub(super) fn version(&self) -> Option<Version> {
        match self {
            State::Missing => None,
            State::Version(version) => Some(*version),
            State::Object(meta) => Some(meta.version),
        }
    }

    /// Returns what an answer to `head` says of the object; nothing if it is about a prefix or a link.
    pub(super) fn of_head(head: &Option<Meta>) -> Option<State> {
        match head {
            None => Some(State::Missing),
            Some(meta) if meta.kind == EntryKind::File => Some(State::Object(*meta)),
            Some(_) => None,
        }
    }
}

#[derive(Default)]
struct Fact {
    head: Option<Told<Option<Meta>>>,
    object: Option<Told<State>>,
}

/// Answers by key.
pub(super) struct Facts(Mutex<LruCache<Key, Fact>>);

impl Facts {
    /// Builds room for the answers about so many keys.
    pub(super) fn new(most: NonZeroUsize) -> Facts {
        Facts(Mutex::new(LruCache::new(most)))
    }

    /// Returns what `head` says of a key.
    pub(super) fn head(&self, key: &Key) -> Option<Told<Option<Meta>>> {
        let head = lock(&self.0).get(key)?.head;
        head.filter(Told::is_fresh)
    }

    /// Whether a key is known to be a prefix of others.
    pub(super) fn knows_folder(&self, key: &Key) -> bool {
        let head = self.head(key).and_then(|head| head.what);
        head.is_some_and(|meta| meta.kind == EntryKind::Directory)
    }

    /// Returns what is known of an object.
    pub(super) fn object(&self, key: &Key) -> Option<Told<State>> {
        let mut facts = lock(&self.0);
        let fact = facts.get(key)?;
        let of_head = fact.head.and_then(|head| {
            let what = State::of_head(&head.what)?;
            Some(head.map(|_| what))
        });
        younger(fact.object, of_head).filter(Told::is_fresh)
    }

    /// Notes what `head` said.
    pub(super) fn note_head(&self, key: &Key, head: Told<Option<Meta>>) {
        self.change(key, |fact| fact.head = Some(head));
    }

    /// Notes what was said of an object.
    pub(super) fn note_object(&self, key: &Key, object: Told<State>) {
        self.change(key, |fact| {
            // An object that is not what it was when its name was asked for is no longer what that said.
            let before = fact
                .head
                .and_then(|head| State::of_head(&head.what))
                .map(|state| state.version());
            if before.is_some_and(|before| before != object.what.version()) {
                fact.head = None;
            }
            fact.object = Some(object);
        });
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Fact)) {
        change(lock(&self.0).get_or_insert_mut(key.clone(), Fact::default));
    }

    /// Forgets a key.
    pub(super) fn forget(&self, key: &Key) {
        lock(&self.0).pop(key);
    }
}
