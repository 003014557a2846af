//! A store on the network that others have removed is gone, and not one without keys.
//!
//! A bucket has no folders and a server that does not list names tells of single keys: where all was removed, each answer
//! is that a key is missing, as if it had never been stored. So no key is called missing, and nothing is changed, unless
//! the store was there a moment before: it has keys, or a folder at its URL, or, where names cannot be listed, one of the
//! documents that its root was seen to have. While it is gone, every answer is an error. The store is looked at only for a
//! key that is missing or is to be changed, and at most once a second while it is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Kind, Result};
use crate::model::document;
use crate::store::layer::Layer;
use crate::store::listing::NameList;
use crate::store::{
    ByteRange, Condition, ETag, FlatListing, Key, Listing, Meta, Object, PutBody, Reader, Store,
    Version,
};
use evidence::{Evidence, PresenceChange};

mod evidence;

/// How long a store counts as there after it was asked.
const COUNTS: Duration = Duration::from_secs(1);

/// A store on the network, and what is known of whether it is there.
pub struct PresenceStore {
    witness: Arc<Witness>,
}

/// What asks a store whether it is there.
struct Witness {
    inner: Arc<dyn Store>,
    evidence: Mutex<Evidence>,
    /// Held while the store is asked.
    asking: Mutex<()>,
    /// When it was last asked after a removal.
    looked: Mutex<Option<Instant>>,
}

impl PresenceStore {
    /// Wraps a store that was just opened; `may_be_empty` if nothing need have been there.
    pub fn new(inner: Arc<dyn Store>, may_be_empty: bool) -> PresenceStore {
        let mut evidence = Evidence::default();
        if inner.info().lists && !may_be_empty {
            evidence.found(inner.info().clock.now(), true);
        }
        PresenceStore {
            witness: Arc::new(Witness {
                inner,
                evidence: Mutex::new(evidence),
                asking: Mutex::default(),
                looked: Mutex::default(),
            }),
        }
    }

    /// Asks about a key; what is missing is an error where the store is gone.
    fn ask<T>(
        &self,
        key: &Key,
        ask: impl FnOnce(&dyn Store) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let witness = &self.witness;
        let asked = witness.now();
        let answer = ask(&*witness.inner)?;
        match &answer {
            Some(_) => witness.note_found(key, asked),
            None => witness.check(key)?,
        }
        Ok(answer)
    }

    /// Changes a key, unless the store is gone.
    fn change<T>(&self, key: &Key, change: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        self.witness.check(key)?;
        change(&*self.witness.inner)
    }
}

impl Witness {
    fn now(&self) -> Instant {
        self.inner.info().clock.now()
    }

    /// Whether a key is one of those that cannot all be missing.
    fn is_witness(&self, key: &Key) -> bool {
        self.inner.info().lists || document::at_root().any(|name| name.as_bytes() == key.as_bytes())
    }

    fn note_found(&self, key: &Key, asked: Instant) {
        // That the root is a folder is known without asking.
        if !key.is_root() {
            let change = self.evidence.lock().found(asked, self.is_witness(key));
            self.note_change(change);
        }
    }

    fn note_removed(&self, key: &Key) {
        if self.is_witness(key) {
            self.evidence.lock().removed(self.now());
        }
    }

    /// Looks whether a removal has left anything, so that what others remove after it does not pass for more of it.
    fn look_after_removal(&self) {
        let mut looked = self.looked.lock();
        let now = self.now();
        if looked.is_none_or(|last| now.saturating_duration_since(last) >= COUNTS) {
            *looked = Some(now);
            drop(looked);
            if let Err(error) = self.look() {
                log::debug!("after a removal: {error}");
            }
        }
    }

    /// Fails with `Gone` if the store is gone by now, which an answer that comes before may not tell.
    fn check(&self, key: &Key) -> Result<()> {
        if self.inner.info().never_changes() {
            return Ok(());
        }
        let now = self.now();
        let is_there = match self.is_there(now) {
            Some(is_there) => is_there,
            None => {
                let _asking = self.asking.lock();
                match self.is_there(now) {
                    Some(is_there) => is_there,
                    None => self.look().map_err(|error| error.about(key))?,
                }
            }
        };
        if is_there {
            Ok(())
        } else {
            Err(self.gone(key))
        }
    }

    fn is_there(&self, at: Instant) -> Option<bool> {
        let evidence = self.evidence.lock();
        if evidence.may_be_empty() {
            return Some(true);
        }
        evidence.is_there(at, COUNTS.min(self.inner.info().freshness))
    }

    /// Looks whether the store is there, by requests.
    fn look(&self) -> Result<bool> {
        let asked = self.now();
        let is_there = if self.inner.info().lists {
            self.has_root()?
        } else {
            self.has_document()?
        };
        let mut evidence = self.evidence.lock();
        let change = if is_there {
            evidence.found(asked, true)
        } else {
            evidence.absent(asked)
        };
        let is_there = is_there || evidence.may_be_empty();
        drop(evidence);
        self.note_change(change);
        Ok(is_there)
    }

    /// Returns the names of a root that has none; `Gone` if that is not because this mount has removed them.
    fn empty_root(&self, asked: Instant) -> Result<Box<dyn Listing>> {
        let mut evidence = self.evidence.lock();
        let (change, may_be_empty) = (evidence.absent(asked), evidence.may_be_empty());
        drop(evidence);
        self.note_change(change);
        if may_be_empty {
            return Ok(Box::new(NameList::new([])));
        }
        Err(self.gone(&Key::root()))
    }

    fn has_root(&self) -> Result<bool> {
        match self.inner.list(&Key::root()) {
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) if error.kind() == Kind::Unsupported => Ok(true),
            listing => listing.map(|_| true),
        }
    }

    fn has_document(&self) -> Result<bool> {
        for name in document::at_root() {
            if self.inner.version(&Key::new(name)?)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The one line of the log about a store that is gone.
    fn note_change(&self, change: PresenceChange) {
        match change {
            PresenceChange::Nothing => return,
            PresenceChange::Gone => log::error!(
                "{}; nothing can be read until it is there again",
                self.gone(&Key::root()).detail()
            ),
            PresenceChange::ThereAgain => log::warn!("the store is there again"),
        }
        self.inner.info().changes.note_tree(&Key::root());
    }

    fn gone(&self, key: &Key) -> Error {
        let why = if self.inner.info().lists {
            "the store is gone: nothing is at its URL any more"
        } else {
            "the store is gone: the server has none of the documents of its root any more"
        };
        Error::new(Kind::Gone, key, why)
    }
}

impl Layer for PresenceStore {
    fn below(&self) -> &dyn Store {
        &*self.witness.inner
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.ask(key, |store| store.get(key, limit))
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.ask(key, |store| store.get_range(key, range))
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.ask(key, |store| store.head(key))
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.ask(key, |store| store.version(key))
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let opened = self.witness.inner.open(key, known);
        if matches!(&opened, Err(error) if error.kind() == Kind::NotFound) {
            self.witness.check(key)?;
        }
        opened
    }

    /// Lists a prefix; a root without keys is a store without keys only where it may be that.
    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let asked = self.witness.now();
        match self.witness.inner.list(prefix) {
            Err(error) if error.kind() == Kind::NotFound => {
                if prefix.is_root() {
                    return self.witness.empty_root(asked);
                }
                self.witness.check(prefix)?;
                Err(error)
            }
            Ok(listing) => {
                let change = self.witness.evidence.lock().found(asked, true);
                self.witness.note_change(change);
                Ok(listing)
            }
            Err(error) => Err(error),
        }
    }

    fn list_all(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        let asked = self.witness.now();
        let Some(inner) = self.witness.inner.list_all(prefix, from)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(PresenceListing {
            inner,
            witness: self.witness.clone(),
            prefix: prefix.clone(),
            asked,
        })))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        self.ask(key, |store| store.etag(key))
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = self.change(key, |store| store.put(key, body, condition))?;
        self.witness.note_found(key, self.witness.now());
        Ok(put)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.change(key, |store| {
            self.witness.note_removed(key);
            let erased = store.erase(key, condition);
            self.witness.note_removed(key);
            self.witness.look_after_removal();
            erased
        })
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.change(prefix, |store| store.erase_folder(prefix))
    }
}

/// The pages of a flat listing, which end only where the store is there.
struct PresenceListing {
    inner: Box<dyn FlatListing>,
    witness: Arc<Witness>,
    prefix: Key,
    /// When the page was asked for that comes next, at the earliest.
    asked: Instant,
}

#[deny(clippy::missing_trait_methods)]
impl FlatListing for PresenceListing {
    fn next(&mut self) -> Result<Option<Vec<(Key, Meta)>>> {
        let asked = self.asked;
        let page = self.inner.next()?;
        self.asked = self.witness.now();
        match page.as_ref().and_then(|page| page.first()) {
            Some((key, _)) => self.witness.note_found(key, asked),
            None => self.witness.check(&self.prefix)?,
        }
        Ok(page)
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
}
