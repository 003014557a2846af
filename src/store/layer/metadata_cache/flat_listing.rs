//! Listings: from memory, from a walk that comes by, or from the store.
//!
//! Who lists a second directory beside another one will list the rest too: then all that lies below their parent
//! is read as one flat listing, ahead of the reader, in a thread that ends with the walk.

use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::assembler::{AssembledDir, DirAssembler, Unsorted};
use super::dir::CachedDir;
use super::invalidation::QueryStamp;
use super::listing_prefetch::{ListingPrefetch, PassedFolder};
use super::shared::MetadataCacheState;
use crate::error::{Kind, Result};
use crate::store::{FlatListing, Key, Meta};

/// How many walks are under way at a time.
const MOST_WALKS: usize = 4;

/// Within which time two directories are listed one after the other.
const TOGETHER: Duration = Duration::from_secs(30);

/// The directory that was listed last, by the one above; and where walks are not worthwhile.
pub(super) struct ListHistory {
    last: LruCache<Key, (Key, Instant)>,
    barred: LruCache<Key, Instant>,
    /// Whether the keys of the store come in no order.
    has_no_order: bool,
}

/// For how long no walk is tried again.
const BARRED: Duration = Duration::from_secs(300);

/// What was listed before a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListedBefore {
    /// Another one beside it.
    Sibling,
    /// The one above, after the one above that; and none beside it.
    Parents,
    Other,
}

impl Default for ListHistory {
    fn default() -> ListHistory {
        let most = const { NonZeroUsize::new(1 << 10).unwrap() };
        ListHistory {
            last: LruCache::new(most),
            barred: LruCache::new(most),
            has_no_order: false,
        }
    }
}

impl ListHistory {
    /// Notes a directory; returns what was listed before it, a short while ago, if a walk may help.
    fn note(&mut self, directory: &Key) -> ListedBefore {
        let Some(parent) = directory.parent() else {
            return ListedBefore::Other;
        };
        let now = Instant::now();
        let is_recent = |then: Instant| now.duration_since(then) < TOGETHER;
        let is_barred = |since: &Instant| now.duration_since(*since) < BARRED;
        let is_barred = self.barred.get(&parent).is_some_and(is_barred);
        let before = self.last.put(parent.clone(), (directory.clone(), now));
        if is_barred || self.has_no_order {
            return ListedBefore::Other;
        }
        if let Some((other, then)) = before
            && is_recent(then)
        {
            return match other == *directory {
                true => ListedBefore::Other,
                false => ListedBefore::Sibling,
            };
        }
        let above = parent.parent().and_then(|above| self.last.get(&above));
        match above {
            Some((other, then)) if *other == parent && is_recent(*then) => ListedBefore::Parents,
            _ => ListedBefore::Other,
        }
    }

    /// Notes that walks below a directory do not help.
    pub(super) fn bar(&mut self, above: &Key) {
        self.barred.put(above.clone(), Instant::now());
    }
}

impl MetadataCacheState {
    /// Returns a directory, known or just begun.
    pub(super) fn folder(self: &Arc<Self>, prefix: &Key) -> Result<Arc<CachedDir>> {
        self.look_beside(prefix);
        if let Some(folder) = self.known(prefix) {
            return Ok(folder);
        }
        let before = self.listed.lock().note(prefix);
        let trail = self.trail_to(prefix).or_else(|| match before {
            ListedBefore::Sibling => self.set_out(prefix),
            ListedBefore::Parents => {
                // The listing goes on beside it.
                self.look_into(prefix.clone());
                None
            }
            ListedBefore::Other => None,
        });
        if let Some(trail) = trail {
            if !trail.await_folder(prefix) && !trail.is_deep_in(prefix) {
                // Where folders are larger than that, a walk is no faster than their listings.
                self.listed.lock().bar(&trail.prefix);
                self.end(&trail);
            }
            if let Some(folder) = self.known(prefix) {
                return Ok(folder);
            }
        }
        let asked = self.changes.asked();
        let question = self.changes.question_below(prefix);
        self.lists.fly(&question, || match self.known(prefix) {
            Some(folder) => Ok(folder),
            None => self.begin(prefix, asked),
        })
    }

    /// Returns a folder that is remembered; the walk that found it hears that it is followed.
    fn known(&self, prefix: &Key) -> Option<Arc<CachedDir>> {
        let folder = self.folders.get(prefix)?;
        if let Some(step) = &folder.step {
            step.trail.follow(step.keys);
        }
        Some(folder)
    }

    /// Begins to list a directory.
    fn begin(&self, prefix: &Key, asked: QueryStamp) -> Result<Arc<CachedDir>> {
        let listing = match self.inner.list(prefix) {
            Err(error) if error.kind() == Kind::NotFound => {
                self.note_head(prefix, None, asked);
                return Err(error);
            }
            answer => answer?,
        };
        let until = self.told((), asked.at).until;
        let total = self.folders.total();
        let folder = Arc::new(CachedDir::growing(prefix.clone(), until, listing, total));
        self.changes
            .unless_changed_below(asked, prefix, || self.folders.put(folder.clone()));
        Ok(folder)
    }

    fn trail_to(&self, prefix: &Key) -> Option<Arc<ListingPrefetch>> {
        let trails = self.trails.lock();
        trails.iter().find(|trail| trail.leads_to(prefix)).cloned()
    }

    /// Begins a walk below the parent of a directory, from there on.
    fn set_out(self: &Arc<Self>, directory: &Key) -> Option<Arc<ListingPrefetch>> {
        let top = directory.parent()?;
        let mut trails = self.trails.lock();
        let walks = trails.iter().filter(|trail| !trail.is_excursion());
        if walks.count() >= MOST_WALKS {
            return None;
        }
        let trail = Arc::new(ListingPrefetch::new(top.clone(), directory.clone()));
        trails.push(trail.clone());
        drop(trails);
        let walk = self.inner.list_all(&top, directory).ok().flatten();
        let started = walk.is_some_and(|walk| {
            let (memory, trail) = (Arc::downgrade(self), trail.clone());
            let thread = thread::Builder::new().name("zarrfs-walk".to_string());
            thread
                .spawn(move || run(&memory, &trail, Some(walk)))
                .is_ok()
        });
        if !started {
            self.end(&trail);
            return None;
        }
        Some(trail)
    }

    pub(super) fn end(&self, trail: &Arc<ListingPrefetch>) {
        trail.end();
        self.trails
            .lock()
            .retain(|other| !Arc::ptr_eq(other, trail));
    }

    /// Remembers a folder that a walk has found.
    fn remember(&self, found: AssembledDir, step: PassedFolder) {
        let until = self.told((), found.asked).until;
        let total = self.folders.total();
        let trail = step.trail.clone();
        let folder = CachedDir::complete(found.prefix, until, found.names, Some(step), total);
        self.changes.between(|| {
            // A change of what lies there ends the walk.
            if !trail.has_ended() {
                self.folders.put(Arc::new(folder));
            }
        });
    }
}

/// Walks to the end, or until nobody follows; then whoever waits lists for himself. Without a walk he does so at
/// once.
pub(super) fn run(
    memory: &Weak<MetadataCacheState>,
    trail: &Arc<ListingPrefetch>,
    walk: Option<Box<dyn FlatListing>>,
) {
    let ended = Ended { memory, trail };
    let Some(walk) = walk else { return };
    let mut steps = PrefetchSteps {
        memory,
        trail,
        gather: DirAssembler::new(trail.prefix.clone()),
        keys: 0,
        told: Vec::new(),
    };
    if let Err(Unsorted) = steps.go(walk) {
        log::debug!(
            "{}: keys come in no order; folders are listed",
            trail.prefix
        );
        steps.take_back();
    }
    drop(ended);
}

/// Ends a trail, also where the walk panics.
struct Ended<'a> {
    memory: &'a Weak<MetadataCacheState>,
    trail: &'a Arc<ListingPrefetch>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.trail.end();
        if let Some(shared) = self.memory.upgrade() {
            shared.end(self.trail);
        }
    }
}

/// A walk as its thread sees it.
struct PrefetchSteps<'a> {
    memory: &'a Weak<MetadataCacheState>,
    trail: &'a Arc<ListingPrefetch>,
    gather: DirAssembler,
    keys: u64,
    /// The folders that were told.
    told: Vec<Key>,
}

type Ordered<T> = std::result::Result<T, Unsorted>;

impl PrefetchSteps<'_> {
    fn go(&mut self, mut walk: Box<dyn FlatListing>) -> Ordered<()> {
        while !walk.has_ended() {
            if !self.trail.may_go_on() {
                self.note_excursion(None);
                return Ok(());
            }
            let asked = Instant::now();
            match walk.next() {
                Ok(page) => self.take(page.unwrap_or_default(), asked)?,
                Err(error) => {
                    log::debug!("{}: a walk ended: {error}", self.trail.prefix);
                    return Ok(());
                }
            }
        }
        let gather = std::mem::replace(&mut self.gather, DirAssembler::new(Key::root()));
        self.tell(match self.trail.is_excursion() {
            true => gather.end_with_top(),
            false => gather.end(),
        });
        self.note_excursion(Some(self.keys));
        Ok(())
    }

    fn note_excursion(&self, keys: Option<u64>) {
        if self.trail.is_excursion()
            && let Some(shared) = self.memory.upgrade()
        {
            shared.note_excursion(&self.trail.prefix, keys);
        }
    }

    /// Takes a page; nothing of it is told unless all of it is in order.
    fn take(&mut self, page: Vec<(Key, Meta)>, asked: Instant) -> Ordered<()> {
        let last = page.last().map(|(key, _)| key.clone());
        let mut complete = Vec::new();
        for (key, meta) in page {
            self.keys += 1;
            complete.extend(self.gather.take(key, meta, asked)?);
        }
        self.tell(complete);
        if let Some(last) = last {
            let by_names = self.gather.is_by_names();
            self.trail.note_page(self.keys, last, by_names);
        }
        Ok(())
    }

    fn tell(&mut self, folders: Vec<AssembledDir>) {
        let Some(shared) = self.memory.upgrade() else {
            return self.trail.end();
        };
        for folder in folders {
            self.told.push(folder.prefix.clone());
            let trail = self.trail.clone();
            let keys = self.keys;
            shared.remember(folder, PassedFolder { trail, keys });
        }
    }

    /// Forgets what was told while the keys seemed to be in order; there will be no further walk.
    fn take_back(&self) {
        let Some(shared) = self.memory.upgrade() else {
            return;
        };
        shared.listed.lock().has_no_order = true;
        for folder in &self.told {
            shared.folders.forget(folder);
        }
    }
}
