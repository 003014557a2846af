//! Lists directories, and prefetches them by recursive ("flat") listings.
//!
//! A client that lists a second directory next to the first will probably list the rest too. A thread then reads all
//! keys from there on in one flat listing, ahead of the client: those below the parent, or below the directory where
//! the client's descent began. Each page contains the token of the next one, so that pages come sequentially. If the
//! first page shows how many directories a page has, and the names of further ones are known, more flat listings start
//! there concurrently (`listing_parts`).

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use super::assembler::{AssembledDir, DirAssembler, Unsorted};
use super::cached_dir::CachedDir;
use super::changes::ChangeTracker;
use super::dated::Dated;
use super::dirs::DirCache;
use super::join_deadline;
use super::keys::KeyTable;
use super::listing_prefetch::{ListHistory, ListingPrefetch, PassedDir};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::clock::Clock;
use crate::sync::single_flight::SingleFlight;
use crate::{FlatListing, Key, LogPosition, Meta, QueryStamp, Store};
use zarr_format::error::{Kind, Result};

/// Maximum number of clients with flat listings.
const MAX_FLAT_LISTINGS: usize = 4;

/// Lists directories of a store and caches them.
pub(super) struct DirLister {
    pub(super) inner: Arc<dyn Store>,
    pub(super) dirs: Arc<DirCache>,
    keys: Arc<KeyTable>,
    pub(super) changes: Arc<ChangeTracker>,
    listings: SingleFlight<(Key, LogPosition), Arc<CachedDir>>,
    pub(super) prefetches: Mutex<Vec<Arc<ListingPrefetch>>>,
    history: Mutex<ListHistory>,
}

impl DirLister {
    /// Caches directories in `dirs`.
    pub(super) fn new(
        inner: Arc<dyn Store>,
        dirs: Arc<DirCache>,
        keys: Arc<KeyTable>,
        changes: Arc<ChangeTracker>,
    ) -> DirLister {
        DirLister {
            inner,
            dirs,
            keys,
            changes,
            listings: SingleFlight::default(),
            prefetches: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// Returns a directory, cached or just begun.
    pub(super) fn list(
        self: &Arc<Self>,
        context: &RequestContext,
        prefix: &Key,
    ) -> Result<Arc<CachedDir>> {
        if let Some(dir) = self.known(prefix) {
            return Ok(dir);
        }
        let top = self.history.lock().note(prefix);
        let mut prefetch = self.prefetch_to(prefix);
        prefetch = prefetch.or_else(|| self.start(context, top?, prefix));
        while let Some(ahead) = prefetch {
            let has_passed = ahead.wait_for(prefix);
            if !has_passed && !ahead.is_deep_in(prefix) {
                // With such large directories a flat listing is no faster than separate listings.
                self.back_off(&ahead);
            }
            if let Some(dir) = self.known(prefix) {
                return Ok(dir);
            }
            // Another flat listing may continue from before this directory.
            prefetch = has_passed.then(|| self.prefetch_to(prefix)).flatten();
        }
        let question = self.changes.question_below(prefix);
        let counts = self.counts(|dir: &Arc<CachedDir>| dir.asked);
        let work = || match self.known(prefix) {
            Some(dir) => Ok(dir),
            None => self.begin(context, prefix),
        };
        let flight = &self.listings;
        flight.run_counting(context, &question, join_deadline(), counts, work)
    }

    /// Returns the test for a joined answer: it is within its TTL, or was requested after now, since a request may take
    /// longer than the TTL.
    pub(super) fn counts<T>(&self, asked: impl Fn(&T) -> Instant) -> impl Fn(&T) -> bool {
        let begun = self.inner.info().clock.now();
        move |answer| {
            let asked = asked(answer);
            asked >= begun || self.dirs.lifetime().is_fresh(asked)
        }
    }

    /// Returns a cached directory, and records a reader of the flat listing that found it.
    fn known(&self, prefix: &Key) -> Option<Arc<CachedDir>> {
        let dir = self.dirs.get(prefix)?;
        if let Some(passed) = &dir.passed {
            passed.prefetch.note_reader(passed.keys);
        }
        Some(dir)
    }

    /// Starts to list a directory.
    fn begin(&self, context: &RequestContext, prefix: &Key) -> Result<Arc<CachedDir>> {
        let (listing, stamp) = self
            .inner
            .info()
            .ask(context, |context| self.inner.list(context, prefix));
        let listing = match listing {
            Err(error) if error.kind() == Kind::NotFound => {
                self.note_missing(prefix, stamp);
                return Err(error);
            }
            listing => listing?,
        };
        let dir = self.dirs.growing(prefix, stamp.asked, listing);
        self.changes
            .store_if_unchanged_below(stamp, prefix, || self.dirs.put(&dir));
        Ok(dir)
    }

    fn note_missing(&self, prefix: &Key, stamp: QueryStamp) {
        let missing = Dated {
            value: None,
            asked: stamp.asked,
        };
        self.changes
            .store_if_unchanged_below(stamp, prefix, || self.keys.put_head(prefix, missing));
    }

    fn prefetch_to(&self, prefix: &Key) -> Option<Arc<ListingPrefetch>> {
        let prefetches = self.prefetches.lock();
        let mut prefetches = prefetches.iter();
        prefetches
            .find(|prefetch| prefetch.leads_to(prefix))
            .cloned()
    }

    /// Starts a flat listing below `top`, from a directory on.
    fn start(
        self: &Arc<Self>,
        context: &RequestContext,
        top: Key,
        dir: &Key,
    ) -> Option<Arc<ListingPrefetch>> {
        let mut prefetches = self.prefetches.lock();
        // Bounded ones belong to a client that is counted already.
        let clients = prefetches.iter().filter(|other| !other.is_bounded());
        if clients.count() >= MAX_FLAT_LISTINGS {
            return None;
        }
        let prefetch = Arc::new(ListingPrefetch::new(top, dir.clone()));
        prefetches.push(prefetch.clone());
        drop(prefetches);
        self.spawn(context, prefetch)
    }

    /// Starts the thread of a flat listing, which is in `prefetches`.
    pub(super) fn spawn(
        self: &Arc<Self>,
        context: &RequestContext,
        prefetch: Arc<ListingPrefetch>,
    ) -> Option<Arc<ListingPrefetch>> {
        let listing = self
            .inner
            .list_all(context, &prefetch.prefix, &prefetch.from);
        let listing = listing.ok().flatten();
        let is_started = listing.is_some_and(|listing| {
            let (lister, on) = (Arc::downgrade(self), prefetch.clone());
            let clock = self.inner.info().clock.clone();
            let thread = thread::Builder::new().name("zarrfs-walk".to_string());
            let run = move || run(&lister, &on, listing, clock);
            thread.spawn(run).is_ok()
        });
        if !is_started {
            self.end(&prefetch);
            return None;
        }
        Some(prefetch)
    }

    /// Ends a flat listing.
    pub(super) fn end(&self, prefetch: &Arc<ListingPrefetch>) {
        prefetch.end();
        let mut prefetches = self.prefetches.lock();
        prefetches.retain(|other| !Arc::ptr_eq(other, prefetch));
    }

    /// Ends a flat listing, and prevents others below the same directory for a while.
    fn back_off(&self, prefetch: &Arc<ListingPrefetch>) {
        self.history.lock().back_off(&prefetch.prefix);
        self.end(prefetch);
    }

    /// Whether the keys of the store are unsorted.
    pub(super) fn is_unsorted(&self) -> bool {
        self.history.lock().is_unsorted()
    }

    /// Prevents all further flat listings: the keys are unsorted.
    pub(super) fn give_up(&self) {
        self.history.lock().give_up();
    }

    /// Ends the flat listings that may reach a changed key: their next pages may be from before the change, and further
    /// changes would end them as well.
    pub(super) fn end_over(&self, key: &Key) {
        let prefetches = self.prefetches.lock().clone();
        let is_over = |prefetch: &&Arc<ListingPrefetch>| key.below(&prefetch.prefix).is_some();
        for prefetch in prefetches.iter().filter(is_over) {
            self.back_off(prefetch);
        }
    }

    /// Caches a directory from a flat listing.
    fn store(&self, found: AssembledDir, passed: PassedDir) {
        let prefetch = passed.prefetch.clone();
        let dir = self
            .dirs
            .complete(found.prefix, found.asked, found.names, Some(passed));
        self.changes.store(|| {
            // A change below the directory ends the flat listing, whose answer may be stale then.
            if !prefetch.has_ended() {
                self.dirs.put(&dir);
            }
        });
    }
}

/// Reads a flat listing until its end or until it has no readers; readers that wait then list directly.
fn run(
    lister: &Weak<DirLister>,
    prefetch: &Arc<ListingPrefetch>,
    listing: Box<dyn FlatListing>,
    clock: Clock,
) {
    let ended = EndGuard { lister, prefetch };
    let mut reading = FlatRead {
        lister,
        prefetch,
        clock,
        assembler: DirAssembler::new(prefetch.prefix.clone()),
        keys: prefetch.keys(),
        pages: 0,
        published: Vec::new(),
    };
    if let Err(Unsorted) = reading.read(&UNLIMITED, listing) {
        log::debug!(
            "{}: keys come in no order; folders are listed",
            prefetch.prefix
        );
        reading.retract();
    }
    drop(ended);
}

/// Ends a flat listing, even if its thread panics.
struct EndGuard<'a> {
    lister: &'a Weak<DirLister>,
    prefetch: &'a Arc<ListingPrefetch>,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.prefetch.end();
        if let Some(lister) = self.lister.upgrade() {
            lister.end(self.prefetch);
        }
    }
}

/// A flat listing while its thread reads it.
struct FlatRead<'a> {
    lister: &'a Weak<DirLister>,
    prefetch: &'a Arc<ListingPrefetch>,
    clock: Clock,
    assembler: DirAssembler,
    keys: u64,
    pages: u64,
    /// The directories cached so far.
    published: Vec<Key>,
}

type Ordered<T> = std::result::Result<T, Unsorted>;

impl FlatRead<'_> {
    fn read(&mut self, context: &RequestContext, mut listing: Box<dyn FlatListing>) -> Ordered<()> {
        while !listing.has_ended() {
            if !self.prefetch.may_go_on() {
                return Ok(());
            }
            let asked = self.clock.now();
            match listing.next(context) {
                Ok(page) => {
                    if self.take(context, page.unwrap_or_default(), asked)? {
                        return Ok(());
                    }
                }
                Err(error) => {
                    log::debug!("{}: a walk ended: {error}", self.prefetch.prefix);
                    // The server's pages lead nowhere, so that another flat listing would fail too.
                    if error.kind() == Kind::Corrupt
                        && let Some(lister) = self.lister.upgrade()
                    {
                        lister.back_off(self.prefetch);
                    }
                    return Ok(());
                }
            }
        }
        let empty = DirAssembler::new(Key::root());
        let assembler = std::mem::replace(&mut self.assembler, empty);
        self.publish(assembler.end());
        Ok(())
    }

    /// Adds a page; caches nothing of it unless the whole page is sorted. Returns whether another flat listing takes
    /// over.
    fn take(
        &mut self,
        context: &RequestContext,
        page: Vec<(Key, Meta)>,
        asked: Instant,
    ) -> Ordered<bool> {
        let (first, length) = (self.pages == 0, page.len() as u64);
        self.pages += 1;
        let mut complete = Vec::new();
        let mut last = None;
        let mut is_at_end = false;
        for (key, meta) in page {
            self.keys += 1;
            // The first key of the next part completes the directories before it.
            is_at_end = self.prefetch.is_at_end(&key);
            complete.extend(self.assembler.take(key.clone(), meta, asked)?);
            last = Some(key);
            if is_at_end {
                break;
            }
        }
        self.publish(complete);
        if let Some(last) = last {
            let by_names = self.assembler.is_by_names();
            self.prefetch.note_page(self.keys, last.clone(), by_names);
            if first
                && !is_at_end
                && let Some(lister) = self.lister.upgrade()
            {
                lister.read_beside(context, self.prefetch, &last, length);
            }
        }
        Ok(is_at_end)
    }

    fn publish(&mut self, dirs: Vec<AssembledDir>) {
        let Some(lister) = self.lister.upgrade() else {
            return self.prefetch.end();
        };
        for dir in dirs {
            if !self.prefetch.is_whole(&dir.prefix) {
                continue;
            }
            self.published.push(dir.prefix.clone());
            let prefetch = self.prefetch.clone();
            let keys = self.keys;
            lister.store(dir, PassedDir { prefetch, keys });
        }
    }

    /// Invalidates the directories cached while the keys seemed sorted, and prevents further flat listings.
    fn retract(&self) {
        let Some(lister) = self.lister.upgrade() else {
            return;
        };
        lister.give_up();
        for dir in &self.published {
            lister.dirs.forget(dir);
        }
    }
}
