//! Lists directories, and prefetches them by recursive ("flat") listings.
//!
//! A client that lists a second directory next to the first will probably list the other siblings too. From there on, a
//! thread reads all keys in one flat listing, ahead of the client: all keys below the parent, or below the directory
//! where the client began to descend. The pages of one listing come one after the other, since each page contains the
//! token of the next one. If the first page shows how many directories a page covers, and the names of further
//! directories are known, more flat listings start at some of those directories, concurrently.

use std::iter;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;

use super::assembler::{AssembledDir, DirAssembler, Unsorted};
use super::cached_answers::{CachedAnswers, QueryId};
use super::cached_dir::CachedDir;
use super::listing_prefetch::{ListingPrefetch, PassedDir};
use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{EntryKind, Key, QueryStamp, Store};
use zarr_format::error::{Kind, Result};

/// A client that lists two sibling directories within this time is expected to list their other siblings too.
const SEQUENCE_WINDOW: Duration = Duration::from_secs(30);

/// Lists directories of a store, caches them, and prefetches others by recursive listings.
pub(super) struct DirLister {
    pub(super) inner: Arc<dyn Store>,
    pub(super) answers: Arc<CachedAnswers>,
    listings: SingleFlight<QueryId, Arc<CachedDir>>,
    prefetches: Mutex<Vec<Arc<ListingPrefetch>>>,
    history: Mutex<ListHistory>,
}

impl DirLister {
    pub(super) fn new(inner: Arc<dyn Store>, answers: Arc<CachedAnswers>) -> DirLister {
        DirLister {
            inner,
            answers,
            listings: SingleFlight::default(),
            prefetches: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// Returns a cached directory, or begins to list it.
    pub(super) fn list(
        self: &Arc<Self>,
        context: &RequestContext,
        prefix: &Key,
    ) -> Result<Arc<CachedDir>> {
        if let Some(dir) = self.cached(prefix) {
            return Ok(dir);
        }
        let top = self.history.lock().record(prefix);
        let mut prefetch = self.prefetch_to(prefix);
        prefetch = prefetch.or_else(|| self.start_prefetch(context, top?, prefix));
        while let Some(ahead) = prefetch {
            let has_passed = ahead.wait_for(prefix);
            if !has_passed && !ahead.is_deep_in(prefix) {
                // If a directory has several pages, a recursive listing is no faster than a listing of each directory.
                self.back_off(&ahead);
            }
            if let Some(dir) = self.cached(prefix) {
                return Ok(dir);
            }
            // The recursive listing is past the directory and has not found it. Another one that began earlier in the
            // order may still find it.
            prefetch = has_passed.then(|| self.prefetch_to(prefix)).flatten();
        }
        let query = self.answers.query_below(prefix);
        let lifetime = self.answers.dirs.lifetime();
        let accepts = lifetime.accepts(|dir: &Arc<CachedDir>| dir.request_time);
        let work = || match self.cached(prefix) {
            Some(dir) => Ok(dir),
            None => self.start_listing(context, prefix),
        };
        let deadline = Instant::now() + JOIN_TIMEOUT;
        self.listings
            .run_accepting(context, &query, deadline, accepts, work)
    }

    /// Returns a cached directory. If a recursive listing found it, tells the listing that its directories are used.
    fn cached(&self, prefix: &Key) -> Option<Arc<CachedDir>> {
        let dir = self.answers.dirs.get(prefix)?;
        if let Some(passed) = &dir.passed {
            passed.prefetch.record_reader(passed.keys);
        }
        Some(dir)
    }

    /// Begins to list a single directory.
    fn start_listing(&self, context: &RequestContext, prefix: &Key) -> Result<Arc<CachedDir>> {
        let (listing, stamp) = self
            .inner
            .info()
            .ask(context, |context| self.inner.list(context, prefix));
        let listing = match listing {
            Err(error) if error.kind() == Kind::NotFound => {
                self.answers.put_head(prefix, None, stamp);
                return Err(error);
            }
            listing => listing?,
        };
        let dir = self
            .answers
            .dirs
            .growing(prefix, stamp.request_time, listing);
        self.answers.put_dir(&dir, stamp);
        Ok(dir)
    }

    /// Returns a recursive listing under way that may still find a directory.
    fn prefetch_to(&self, prefix: &Key) -> Option<Arc<ListingPrefetch>> {
        let prefetches = self.prefetches.lock();
        let mut prefetches = prefetches.iter();
        prefetches
            .find(|prefetch| prefetch.may_reach(prefix))
            .cloned()
    }

    /// Starts a recursive listing below `top`, in the order of keys from a directory on.
    fn start_prefetch(
        self: &Arc<Self>,
        context: &RequestContext,
        top: Key,
        dir: &Key,
    ) -> Option<Arc<ListingPrefetch>> {
        let mut prefetches = self.prefetches.lock();
        // At most four clients are served by recursive listings. A listing that ends where another begins does not
        // count: both are parts of one client's listing.
        let clients = prefetches.iter().filter(|other| !other.is_bounded());
        if clients.count() >= 4 {
            return None;
        }
        let prefetch = Arc::new(ListingPrefetch::new(top, dir.clone()));
        prefetches.push(prefetch.clone());
        drop(prefetches);
        self.spawn(context, prefetch)
    }

    /// Starts the thread of a recursive listing that is already in `prefetches`.
    fn spawn(
        self: &Arc<Self>,
        context: &RequestContext,
        prefetch: Arc<ListingPrefetch>,
    ) -> Option<Arc<ListingPrefetch>> {
        let listing = self
            .inner
            .list_all(context, &prefetch.prefix, &prefetch.from);
        let listing = listing.ok().flatten();
        let is_started = listing.is_some_and(|listing| {
            let clock = self.inner.info().clock.clone();
            prefetch.spawn(Arc::downgrade(self), listing, clock).is_ok()
        });
        if !is_started {
            self.end(&prefetch);
            return None;
        }
        Some(prefetch)
    }

    pub(super) fn end(&self, prefetch: &Arc<ListingPrefetch>) {
        prefetch.end();
        let mut prefetches = self.prefetches.lock();
        prefetches.retain(|other| !Arc::ptr_eq(other, prefetch));
    }

    /// Ends a recursive listing, and prevents others below the same directory for five minutes.
    pub(super) fn back_off(&self, prefetch: &Arc<ListingPrefetch>) {
        let mut history = self.history.lock();
        history
            .backed_off
            .put(prefetch.prefix.clone(), Instant::now());
        drop(history);
        self.end(prefetch);
    }

    /// Prevents all further recursive listings, since the store lists its keys unsorted. Drops the directories in
    /// `cached`, which a recursive listing has found and which may be incomplete.
    pub(super) fn mark_unsorted(&self, cached: &[Key]) {
        self.history.lock().is_unsorted = true;
        for dir in cached {
            self.answers.dirs.forget(dir);
        }
    }

    /// Ends the recursive listings that may reach a changed key, since their next pages may be from before the change.
    /// No others begin there for five minutes, since further changes would end them as well.
    pub(super) fn end_prefetches_over(&self, key: &Key) {
        let prefetches = self.prefetches.lock().clone();
        let is_over = |prefetch: &&Arc<ListingPrefetch>| key.below(&prefetch.prefix).is_some();
        for prefetch in prefetches.iter().filter(is_over) {
            self.back_off(prefetch);
        }
    }

    /// Caches a directory from a recursive listing, unless a change below the directory has ended the listing.
    pub(super) fn put_flat(&self, dir: AssembledDir, passed: PassedDir) {
        let prefetch = passed.prefetch.clone();
        let dir = self.answers.dirs.complete(dir, Some(passed));
        self.answers.put_dir_unless(&dir, || prefetch.has_ended());
    }

    /// Lists those directories of `folders` that are not cached, and everything below them, by recursive listings where
    /// these save requests. Errors are ignored, since later queries will report them.
    pub(super) fn list_below(&self, context: &RequestContext, top: &Key, folders: &[Key]) {
        if self.history.lock().is_unsorted {
            return;
        }
        let is_unknown = |folder: &&Key| self.answers.dirs.get(folder).is_none();
        let mut wanted: Vec<&Key> = folders.iter().filter(is_unknown).collect();
        wanted.sort_by_cached_key(|folder| [folder.as_bytes(), b"/"].concat());
        let Some(first) = wanted.first() else { return };
        if let Err(Unsorted) = self.read_below(context, top, first, &wanted) {
            self.mark_unsorted(&[]);
        }
    }

    /// Reads pages from the directory `from` on until all wanted directories are cached. Stops if a page completes
    /// fewer than two wanted directories on average: a listing of each directory would then need no more requests.
    fn read_below(
        &self,
        context: &RequestContext,
        top: &Key,
        from: &Key,
        wanted: &[&Key],
    ) -> std::result::Result<(), Unsorted> {
        let (listing, stamp) = self
            .inner
            .info()
            .ask(context, |context| self.inner.list_all(context, top, from));
        let Ok(Some(mut listing)) = listing else {
            return Ok(());
        };
        let mut assembler = DirAssembler::new(top.clone());
        let mut wanted = wanted.iter().peekable();
        let (mut pages, mut known) = (0, 0);
        while wanted.peek().is_some() && known >= pages * 2 && !listing.has_ended() {
            let request_time = self.inner.info().clock.now();
            let Ok(page) = listing.next(context) else {
                return Ok(());
            };
            let page = page.unwrap_or_default().into_iter();
            let complete = page.map(|(key, meta)| assembler.take(key, meta, request_time));
            // No directory of a page is cached unless all keys of the page are sorted.
            let complete: std::result::Result<Vec<_>, Unsorted> = complete.collect();
            self.put_dirs(stamp, complete?.into_iter().flatten());
            pages += 1;
            while wanted
                .next_if(|folder| self.answers.dirs.get(folder).is_some())
                .is_some()
            {
                known += 1;
            }
        }
        if listing.has_ended() {
            self.put_dirs(stamp, assembler.end().into_iter());
        }
        Ok(())
    }

    /// Caches complete directories from a recursive listing that began at `stamp`.
    fn put_dirs(&self, stamp: QueryStamp, dirs: impl Iterator<Item = AssembledDir>) {
        for dir in dirs {
            let dir = self.answers.dirs.complete(dir, None);
            self.answers.put_dir(&dir, stamp);
        }
    }

    /// Splits a recursive listing into concurrent ones after its first page, whose last key was `last`. The pages of
    /// one listing come one after the other, a round trip each. But a listing can begin at any directory, and the names
    /// of later directories are known, since the client has listed the directories above. So more listings begin at
    /// later directories, each of about one page. The last listing has no end, and is split again after its first page.
    pub(super) fn split(
        self: &Arc<Self>,
        context: &RequestContext,
        prefetch: &Arc<ListingPrefetch>,
        last: &Key,
        page: u64,
    ) {
        if prefetch.is_bounded() {
            return;
        }
        let starts = self.part_starts(prefetch, last, page).unwrap_or_default();
        if starts.len() < 2 {
            return;
        }
        let begun = prefetch.keys();
        // With eight concurrent listings, `find` over 8,192 keys with a latency of 50 ms took 0.7 of the time of one
        // listing; other numbers were not measured.
        let starts = starts.into_iter().take(8).zip(1..);
        let parts = starts.map(|(start, number)| prefetch.part_from(start, begun + number * page));
        let parts: Vec<Arc<ListingPrefetch>> = parts.map(Arc::new).collect();
        // All concurrent listings are added under one lock, so that a client always finds the one that will reach its
        // directory.
        let mut prefetches = self.prefetches.lock();
        for (part, next) in iter::once(prefetch).chain(&parts).zip(&parts) {
            part.set_end(next.from.clone());
        }
        prefetches.extend(parts.iter().cloned());
        drop(prefetches);
        for part in parts {
            self.spawn(context, part);
        }
    }

    /// Returns the directories at which further recursive listings of about one page each can begin. They are at the
    /// deepest level at which the first page has several directories.
    fn part_starts(&self, prefetch: &ListingPrefetch, last: &Key, page: u64) -> Option<Vec<Key>> {
        let mut above = last.parent()?;
        loop {
            let starts = self.part_starts_in(&above, prefetch, last, page);
            if starts.is_some() || above == prefetch.prefix {
                return starts;
            }
            above = above.parent()?;
        }
    }

    /// Returns the directories in `above` after `last` at which further recursive listings can begin. Returns `None` if
    /// the first page does not show how many directories fit on a page.
    fn part_starts_in(
        &self,
        above: &Key,
        prefetch: &ListingPrefetch,
        last: &Key,
        page: u64,
    ) -> Option<Vec<Key>> {
        let name_in = |key: &Key| Some(key.below(above)?.names().next()?.to_vec());
        let (first, reached) = (name_in(&prefetch.from)?, name_in(last)?);
        let names = self.answers.dirs.get(above)?.all_names()?.into_iter();
        let directories = names.filter(|(_, entry)| entry.kind == EntryKind::Directory);
        let mut names: Vec<Box<[u8]>> = directories.map(|(name, _)| name).collect();
        names.sort();
        // If a name has a byte up to `/`, the order of the directories may differ from that of the keys below them, in
        // which a slash follows the name.
        if names.iter().flatten().any(|&byte| byte <= b'/') {
            return None;
        }
        let index_of = |name: &[u8]| names.binary_search_by(|other| (**other).cmp(name)).ok();
        let (first, reached) = (index_of(&first)?, index_of(&reached)?);
        let passed = reached.checked_sub(first).filter(|&passed| passed > 0)?;
        let keys_per_dir = page.div_ceil(passed as u64).max(1);
        let dirs_per_page = usize::try_from(page / keys_per_dir).ok()?.max(1);
        let later = names.get(reached + 1..)?.iter();
        let later = later.map_while(|name| above.child(name).ok());
        Some(later.step_by(dirs_per_page).collect())
    }
}

/// The directories that clients listed last, by parent, and the directories where recursive listings are useless.
struct ListHistory {
    last: LruCache<Key, ListedDir>,
    /// Directories below which a recursive listing was useless, with the time when that was found.
    backed_off: LruCache<Key, Instant>,
    is_unsorted: bool,
}

/// The directory below a parent that was listed last, and when.
struct ListedDir {
    dir: Key,
    time: Instant,
}

impl Default for ListHistory {
    fn default() -> ListHistory {
        let most = const { NonZeroUsize::new(1 << 10).unwrap() };
        ListHistory {
            last: LruCache::new(most),
            backed_off: LruCache::new(most),
            is_unsorted: false,
        }
    }
}

impl ListHistory {
    /// Records the listing of a directory. If a sibling was listed shortly before, returns the directory to list
    /// recursively: the parent, or an ancestor from which the client has descended listing by listing.
    fn record(&mut self, dir: &Key) -> Option<Key> {
        let mut top = dir.parent()?;
        let listed = ListedDir {
            dir: dir.clone(),
            time: Instant::now(),
        };
        let before = self.last.put(top.clone(), listed)?;
        let is_second = before.dir != *dir && before.time.elapsed() < SEQUENCE_WINDOW;
        if !is_second || self.is_unsorted || self.is_backed_off(&top) {
            return None;
        }
        while let Some(above) = top.parent()
            && self.was_listed(&above)
            && self.was_listed(&top)
            && !self.is_backed_off(&above)
        {
            top = above;
        }
        Some(top)
    }

    /// Whether the directory was listed within `SEQUENCE_WINDOW`, and none of its siblings after it.
    fn was_listed(&mut self, dir: &Key) -> bool {
        let last = dir.parent().and_then(|above| self.last.get(&above));
        last.is_some_and(|last| last.dir == *dir && last.time.elapsed() < SEQUENCE_WINDOW)
    }

    /// Whether a recursive listing below the directory was useless less than 5 minutes ago.
    fn is_backed_off(&mut self, dir: &Key) -> bool {
        let since = self.backed_off.get(dir);
        since.is_some_and(|since| since.elapsed() < Duration::from_secs(300))
    }
}
