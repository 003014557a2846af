//! Questions about single keys: answered from what is known, asked once where it is not.
//!
//! Of two answers about one key the younger counts, whether it came from the key itself or from the listing of
//! its directory. What was asked before a change is not remembered after it (`changes`).

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use super::MemoConfig;
use super::changes::Asked;
use super::changes::Changes;
use super::course::Courses;
use super::documents::Documents;
use super::excursion::Neighbours;
use super::facts::Facts;
use super::facts::State;
use super::facts::Told;
use super::facts::younger;
use super::flights::Flights;
use super::folder::Folder;
use super::folder::Place;
use super::folders::Folders;
use super::trail::Trail;
use super::walking::Listed;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::pool::Pool;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Object;
use crate::store::Reader;
use crate::store::Store;
use crate::store::Version;

/// Documents that may wait to be fetched ahead, for each that is under way.
const WAITING: usize = 4;

/// What is remembered, and the store below.
pub(super) struct Shared {
    pub(super) inner: Arc<dyn Store>,
    pub(super) ttl: Duration,
    pub(super) facts: Facts,
    pub(super) documents: Documents,
    pub(super) folders: Folders,
    courses: Courses,
    /// Questions are those of a key at a time between two changes.
    heads: Flights<(Key, u64), Option<Meta>>,
    versions: Flights<(Key, u64), Option<Version>>,
    objects: Flights<(Key, u64), Option<Arc<Object>>>,
    opens: Flights<(Key, u64), Meta>,
    pub(super) lists: Flights<(Key, u64), Arc<Folder>>,
    pub(super) changes: Changes,
    pub(super) trails: Mutex<Vec<Arc<Trail>>>,
    pub(super) listed: Mutex<Listed>,
    pub(super) neighbours: Mutex<Neighbours>,
    /// How many requests are made ahead at a time.
    pub(super) window: usize,
    pub(super) pool: Pool,
}

/// Whether an object is a document, which is small and read again, and not a chunk.
fn is_document(key: &Key) -> bool {
    let name = key.name();
    name.ends_with(b".json") || name.starts_with(b".z")
}

impl Shared {
    /// Builds an empty memory.
    pub(super) fn new(inner: Arc<dyn Store>, config: &MemoConfig) -> Shared {
        let ahead = config.concurrency.max(1);
        Shared {
            inner,
            ttl: config.ttl,
            facts: Facts::new(config.keys),
            documents: Documents::new(config.document, config.documents),
            folders: Folders::new(config.names),
            courses: Courses::new(ahead),
            heads: Flights::default(),
            versions: Flights::default(),
            objects: Flights::default(),
            opens: Flights::default(),
            lists: Flights::default(),
            changes: Changes::default(),
            trails: Mutex::default(),
            listed: Mutex::default(),
            neighbours: Mutex::default(),
            window: ahead,
            pool: Pool::new("zarrfs-ahead", ahead, ahead.saturating_mul(WAITING)),
        }
    }

    /// Returns an answer that counts from when it was asked for.
    pub(super) fn told<T>(&self, what: T, asked: Instant) -> Told<T> {
        let until = asked.checked_add(self.ttl).unwrap_or(asked);
        Told { what, until }
    }

    /// Returns what `head` would say if that is known.
    pub(super) fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        let of_folder = self.folders.look(key).and_then(|place| {
            let what = match place.what {
                Place::Missing => None,
                Place::Entry(entry) => Some(entry.meta?),
            };
            Some(place.map(|_| what))
        });
        younger(self.facts.head(key), of_folder).map(|told| told.what)
    }

    /// Returns what is known of an object.
    pub(super) fn object_now(&self, key: &Key) -> Option<Told<State>> {
        let of_folder = self.folders.look(key).and_then(|place| {
            let what = match place.what {
                Place::Missing => State::Missing,
                Place::Entry(entry) if entry.kind == EntryKind::File => State::Object(entry.meta?),
                Place::Entry(_) => return None,
            };
            Some(place.map(|_| what))
        });
        younger(self.facts.object(key), of_folder)
    }

    /// Whether an object is known not to be there.
    pub(super) fn is_missing(&self, key: &Key) -> bool {
        let known = self.object_now(key);
        known.is_some_and(|known| known.what == State::Missing)
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
            let state = version.map_or(State::Missing, State::Version);
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

    fn fetch(&self, key: &Key, limit: u64, asked: Asked) -> Result<Option<Arc<Object>>> {
        let found = self.inner.get(key, limit)?.map(Arc::new);
        self.note_object(key, found.as_deref(), asked);
        if let Some(object) = &found
            && is_document(key)
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
            && known.what == State::Missing
        {
            return Some(None);
        }
        let document = self.documents.get(key)?;
        let is_other = |known: &Told<State>| {
            known.until > document.until && known.what.version() != Some(document.what.version)
        };
        (!known.as_ref().is_some_and(is_other)).then_some(Some(document.what))
    }

    /// Notes what an answer with bytes says of an object.
    pub(super) fn note_object(&self, key: &Key, found: Option<&Object>, asked: Asked) {
        let state = match found {
            None => State::Missing,
            Some(object) => match object.modified {
                None => State::Version(object.version),
                Some(modified) => State::Object(Meta {
                    kind: EntryKind::File,
                    size: object.size,
                    stored: object.size,
                    modified,
                    version: object.version,
                }),
            },
        };
        let now = Instant::now();
        self.note_state(key, state, Asked { at: now, ..asked });
    }

    fn note_state(&self, key: &Key, state: State, asked: Asked) {
        let told = self.told(state, asked.at);
        self.changes
            .unless_changed(asked, || self.facts.note_object(key, told));
    }

    /// Notes what is there; nothing if there is neither an object nor a prefix.
    pub(super) fn note_head(&self, key: &Key, head: Option<Meta>, asked: Asked) {
        let told = self.told(head, asked.at);
        self.changes
            .unless_changed(asked, || self.facts.note_head(key, told));
    }

    /// Answers `open`.
    pub(super) fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        match self.object_now(key).map(|known| known.what) {
            Some(State::Missing) => return Err(Error::not_found(key)),
            Some(State::Object(meta)) => return self.inner.open_known(key, &meta),
            Some(State::Version(_)) | None => {}
        }
        let mut mine = None;
        let asked = self.changes.asked();
        let meta = self.opens.fly(&(key.clone(), asked.changes), || {
            let reader = match self.inner.open(key) {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.note_state(key, State::Missing, asked);
                    return Err(error);
                }
                answer => answer?,
            };
            let meta = reader.meta()?;
            self.note_state(key, State::Object(meta), asked);
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
        if self.ttl.is_zero() || !is_document(key) {
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
