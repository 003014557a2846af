//! Detects a deleted store on the network, so that missing keys become errors.
//!
//! If others delete a store, its server answers that each key is missing, as if it had never existed: a chunk would
//! read as the fill value, in the store view too. So a missing key is reported only while a metadata document of the
//! root exists. The check is a request for that document. It is made only after a key was found missing, and at most
//! once a second, but at once if a listing of the root has no names. Only a document that this mount has found is
//! checked: there is no check before the mount has found one, nor after it has erased the document itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::layer::Layer;
use crate::listing::NameList;
use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, LeftOut, Listing, Meta, Name, Object,
    PutBody, Reader, Store, Version,
};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

const GONE: &str = "the store is gone: the metadata of the root no longer exist";

/// A store that returns an error, not "missing", for every key if the whole store was deleted.
pub(crate) struct LivenessStore {
    root: Arc<RootWatch>,
}

impl LivenessStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> LivenessStore {
        LivenessStore {
            root: Arc::new(RootWatch {
                inner,
                state: Mutex::default(),
                checks: SingleFlight::default(),
            }),
        }
    }

    /// Runs a query about a key. If the key is missing, checks that the store was not deleted.
    fn ask<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        ask: impl FnOnce(&RequestContext, &dyn Store) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (answer, stamp) = self
            .root
            .inner
            .info()
            .ask(context, |context| ask(context, &*self.root.inner));
        let answer = answer?;
        match &answer {
            Some(_) => self.root.record_document(key, stamp.request_time),
            None => self.root.check(context, key)?,
        }
        Ok(answer)
    }
}

/// Tracks whether the metadata document at the root of a store still exists.
struct RootWatch {
    inner: Arc<dyn Store>,
    state: Mutex<RootState>,
    checks: SingleFlight<(), bool>,
}

#[derive(Default)]
struct RootState {
    /// The root document that was found last, or `None` if this mount has found none or has erased it.
    document: Option<Key>,
    /// Time of the last request that found the root document.
    found_at: Option<Instant>,
    /// Whether the deletion of the store has already been logged.
    is_gone: bool,
}

impl RootWatch {
    fn now(&self) -> Instant {
        self.inner.info().clock.now()
    }

    /// Records that a request at `request_time` found the key, if it is a root document.
    fn record_document(&self, key: &Key, request_time: Instant) {
        if !is_root_document(key) {
            return;
        }
        let mut state = self.state.lock();
        state.document = Some(key.clone());
        state.found_at = state.found_at.max(Some(request_time));
        if std::mem::take(&mut state.is_gone) {
            log::warn!("the store exists again");
        }
    }

    /// Records that this mount erases the key. If the key is the root document, its absence no longer means that the
    /// store was deleted.
    fn record_removal(&self, key: &Key) {
        let mut state = self.state.lock();
        if state.document.as_ref() == Some(key) {
            state.document = None;
        }
    }

    /// Returns `Gone` if the store was deleted. Called when `key` was found missing.
    fn check(&self, context: &RequestContext, key: &Key) -> Result<()> {
        if self.inner.info().never_changes() || !self.needs_request(self.now()) {
            return Ok(());
        }
        self.check_by_request(context, key)
    }

    /// Returns `Gone` if the store was deleted. Requests the root document even if it was found within the last second.
    fn check_by_request(&self, context: &RequestContext, key: &Key) -> Result<()> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let is_there = self
            .checks
            .run(context, &(), deadline, || self.has_document(context));
        if is_there.map_err(|error| error.about(key))? {
            return Ok(());
        }
        Err(Error::new(Kind::Gone, key, GONE))
    }

    fn needs_request(&self, now: Instant) -> bool {
        let state = self.state.lock();
        // For one second after a request found the root document, the store counts as existing.
        let is_recent =
            |found_at: Instant| now.saturating_duration_since(found_at) < Duration::from_secs(1);
        state.document.is_some() && !state.found_at.is_some_and(is_recent)
    }

    /// Whether the store has a root document: the one that was found last, or another one, since the store may have
    /// been rewritten in another Zarr format.
    fn has_document(&self, context: &RequestContext) -> Result<bool> {
        let Some(known) = self.state.lock().document.clone() else {
            return Ok(true);
        };
        let others = document::at_root().filter_map(|name| Key::new(name).ok());
        let others = others.filter(|other| *other != known);
        for document in std::iter::once(known.clone()).chain(others) {
            let request_time = self.now();
            if self.inner.etag(context, &document)?.is_some() {
                self.record_document(&document, request_time);
                return Ok(true);
            }
        }
        let mut state = self.state.lock();
        let is_removed_here = state.document.is_none();
        if !is_removed_here && !std::mem::replace(&mut state.is_gone, true) {
            log::error!("{GONE}");
            // Keys that were reported missing within the last second may have been deleted with the store, so all
            // cached answers are invalidated.
            self.inner.info().changes.record_tree(&Key::root());
        }
        Ok(is_removed_here)
    }
}

fn is_root_document(key: &Key) -> bool {
    document::at_root().any(|name| name.as_bytes() == key.as_bytes())
}

impl Layer for LivenessStore {
    fn below(&self) -> &dyn Store {
        &*self.root.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.ask(context, key, |context, store| {
            store.get(context, key, limit)
        })
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.ask(context, key, |context, store| {
            store.get_range(context, key, range)
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        self.ask(context, key, |context, store| store.head(context, key))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.ask(context, key, |context, store| store.version(context, key))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let opened = self.root.inner.open(context, key, known);
        if matches!(&opened, Err(error) if error.kind() == Kind::NotFound) {
            self.root.check(context, key)?;
        }
        opened
    }

    /// Lists a prefix. A root without keys is an empty listing, not `NotFound`, unless the store was deleted.
    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let request_time = self.root.now();
        match self.root.inner.list(context, prefix) {
            Err(error) if error.kind() == Kind::NotFound && prefix.is_root() => {
                self.root.check_by_request(context, prefix)?;
                Ok(Box::new(NameList::new([])))
            }
            Err(error) if error.kind() == Kind::NotFound => {
                self.root.check(context, prefix)?;
                Err(error)
            }
            Ok(inner) if prefix.is_root() => Ok(Box::new(RootListing {
                inner,
                root: self.root.clone(),
                request_time,
            })),
            listing => listing,
        }
    }

    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        let Some(inner) = self.root.inner.list_all(context, prefix, from)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(LivenessListing {
            inner,
            root: self.root.clone(),
            prefix: prefix.clone(),
        })))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.ask(context, key, |context, store| store.etag(context, key))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let put = self.root.inner.put(context, key, body, condition)?;
        self.root.record_document(key, self.root.now());
        Ok(put)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        // The removal of the root document is recorded again after the erasure, since another thread may have found the
        // document in between.
        self.root.record_removal(key);
        let erased = self.root.inner.erase(context, key, condition);
        self.root.record_removal(key);
        erased
    }
}

/// A listing of the root that records the root document if it is among the names.
struct RootListing {
    inner: Box<dyn Listing>,
    root: Arc<RootWatch>,
    request_time: Instant,
}

#[deny(clippy::missing_trait_methods)]
impl Listing for RootListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        let name = self.inner.next(context)?;
        if let Some(name) = &name
            && name.kind == EntryKind::File
            && let Ok(key) = Key::new(name.name.as_slice())
        {
            self.root.record_document(&key, self.request_time);
        }
        Ok(name)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.inner.seek(context, cursor)
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    fn left_out(&self) -> LeftOut {
        self.inner.left_out()
    }
}

/// A recursive listing that checks at its end that the store was not deleted while it was listed.
struct LivenessListing {
    inner: Box<dyn FlatListing>,
    root: Arc<RootWatch>,
    prefix: Key,
}

#[deny(clippy::missing_trait_methods)]
impl FlatListing for LivenessListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
        let request_time = self.root.now();
        let page = self.inner.next(context)?;
        for (key, _) in page.iter().flatten() {
            self.root.record_document(key, request_time);
        }
        if page.as_ref().is_none_or(Vec::is_empty) || self.inner.has_ended() {
            self.root.check(context, &self.prefix)?;
        }
        Ok(page)
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::StoreInfo;
    use crate::backend::memory::MemoryStore;
    use crate::request_context::UNLIMITED;
    use crate::sync::clock::Clock;

    /// A test store with a stopped clock, from which other clients erase keys. It counts the requests for `zarr.json`.
    #[derive(Clone)]
    struct Below {
        memory: MemoryStore,
        info: StoreInfo,
        requests: Arc<AtomicUsize>,
    }

    impl Layer for Below {
        fn below(&self) -> &dyn Store {
            &self.memory
        }

        fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
            if key.as_bytes() == document::ZARR_JSON.as_bytes() {
                self.requests.fetch_add(1, Ordering::SeqCst);
            }
            self.memory.etag(context, key)
        }

        fn info(&self) -> &StoreInfo {
            &self.info
        }
    }

    /// A test store, wrapped in the layer that detects its deletion.
    struct Watched {
        below: Below,
        store: Arc<dyn Store>,
    }

    fn key(path: &str) -> Key {
        Key::new(path).unwrap()
    }

    fn watched(keys: &[&str]) -> Watched {
        let memory = MemoryStore::default();
        for name in keys {
            memory.set(key(name), b"bytes".to_vec());
        }
        let below = Below {
            memory,
            info: StoreInfo {
                clock: Clock::stopped(),
                ..StoreInfo::new(Duration::from_secs(60))
            },
            requests: Arc::default(),
        };
        Watched {
            store: Arc::new(LivenessStore::new(Arc::new(below.clone()))),
            below,
        }
    }

    impl Watched {
        fn wait_a_second(&self) {
            self.below.info.clock.advance(Duration::from_secs(1));
        }

        fn answers(&self) -> [Option<Kind>; 7] {
            let (store, missing) = (&self.store, &key("a/0"));
            let range = ByteRange::Suffix(2);
            let errors = [
                store.get(&UNLIMITED, missing, 9).err(),
                store.get_range(&UNLIMITED, missing, range).err(),
                store.head(&UNLIMITED, missing).err(),
                store.version(&UNLIMITED, missing).err(),
                store.etag(&UNLIMITED, missing).err(),
                store.list(&UNLIMITED, missing).err(),
                store.open(&UNLIMITED, missing, None).err(),
            ];
            errors.map(|error| error.map(|error| error.kind()))
        }
    }

    const MISSING: [Option<Kind>; 7] = [
        None,
        None,
        None,
        None,
        None,
        Some(Kind::NotFound),
        Some(Kind::NotFound),
    ];

    /// Invariant (stores): Once a mount has found root metadata of a store on the network, a missing key is an error
    /// unless root metadata were found within the last second, or this mount erased them.
    #[test]
    fn without_root_metadata_a_missing_key_is_an_error() {
        let watched = watched(&["zarr.json", "a/1"]);
        assert_eq!(watched.answers(), MISSING, "nothing is known of the root");
        assert!(
            watched
                .store
                .get(&UNLIMITED, &key("zarr.json"), 9)
                .unwrap()
                .is_some()
        );
        watched.below.memory.erase(&key("zarr.json"));
        assert_eq!(watched.answers(), MISSING, "it was there just now");
        watched.wait_a_second();
        assert_eq!(watched.answers(), [Some(Kind::Gone); 7]);
        assert!(
            watched
                .store
                .get(&UNLIMITED, &key("a/1"), 9)
                .unwrap()
                .is_some()
        );
        watched
            .below
            .memory
            .set(key("zarr.json"), b"bytes".to_vec());
        assert_eq!(watched.answers(), MISSING, "it is there again");
    }

    #[test]
    fn the_root_is_checked_at_most_once_a_second() {
        let watched = watched(&["zarr.json"]);
        assert!(
            watched
                .store
                .head(&UNLIMITED, &key("zarr.json"))
                .unwrap()
                .is_some()
        );
        for requests in 0..3 {
            for _ in 0..3 {
                assert_eq!(watched.answers(), MISSING);
                assert_eq!(watched.below.requests.load(Ordering::SeqCst), requests);
            }
            watched.wait_a_second();
        }
    }

    #[test]
    fn root_metadata_are_noticed_in_listings_and_puts() {
        let watched = watched(&[".zgroup"]);
        let mut listing = watched.store.list(&UNLIMITED, &Key::root()).unwrap();
        while listing.next(&UNLIMITED).unwrap().is_some() {}
        watched.below.memory.erase(&key(".zgroup"));
        watched.wait_a_second();
        assert_eq!(watched.answers(), [Some(Kind::Gone); 7]);
        let (name, body) = (key("zarr.json"), PutBody::Bytes(b"{}"));
        watched
            .store
            .put(&UNLIMITED, &name, body, &Condition::Any)
            .unwrap();
        watched.wait_a_second();
        assert_eq!(
            watched.answers(),
            MISSING,
            "written anew, in another format"
        );
        watched.below.memory.erase(&name);
        watched.wait_a_second();
        assert_eq!(watched.answers(), [Some(Kind::Gone); 7]);
    }

    #[test]
    fn erasing_the_root_metadata_keeps_the_store_usable() {
        let watched = watched(&["zarr.json", "a/1"]);
        let (store, name) = (&watched.store, key("zarr.json"));
        assert!(store.get(&UNLIMITED, &name, 9).unwrap().is_some());
        store.erase(&UNLIMITED, &name, &Condition::Any).unwrap();
        watched.wait_a_second();
        assert_eq!(watched.answers(), MISSING);
        store
            .erase(&UNLIMITED, &key("a/1"), &Condition::Any)
            .unwrap();
        assert!(
            store
                .list(&UNLIMITED, &Key::root())
                .unwrap()
                .next(&UNLIMITED)
                .unwrap()
                .is_none()
        );
    }
}
