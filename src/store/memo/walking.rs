//! Listings: from memory, from a walk that comes by, or from the store.
//!
//! Who lists a second directory beside another one will list the rest too: then all that lies below their parent
//! is read as one flat listing, ahead of the reader, in a thread that ends with the walk.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::Weak;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use lru::LruCache;

use super::changes::Asked;
use super::folder::Folder;
use super::gather::Disorder;
use super::gather::Gather;
use super::gather::Gathered;
use super::lock;
use super::shared::Shared;
use super::trail::Step;
use super::trail::Trail;
use crate::error::Kind;
use crate::error::Result;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Walk;

/// How many walks are under way at a time.
const MOST_WALKS: usize = 4;

/// Within which time two directories are listed one after the other.
const TOGETHER: Duration = Duration::from_secs(30);

/// The directory that was listed last, by the one above; and where walks are not worthwhile.
pub(super) struct Listed {
    last: LruCache<Key, (Key, Instant)>,
    barred: LruCache<Key, Instant>,
    /// Whether the keys of the store come in no order.
    has_no_order: bool,
}

/// For how long no walk is tried again.
const BARRED: Duration = Duration::from_secs(300);

/// What was listed before a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Another one beside it.
    Sibling,
    /// The one above, after the one above that; and none beside it.
    Parents,
    Other,
}

impl Default for Listed {
    fn default() -> Listed {
        let most = const { NonZeroUsize::new(1 << 10).unwrap() };
        Listed {
            last: LruCache::new(most),
            barred: LruCache::new(most),
            has_no_order: false,
        }
    }
}

impl Listed {
    /// Notes a directory; returns what was listed before it, a short while ago, if a walk may help.
    fn note(&mut self, directory: &Key) -> Before {
        let Some(parent) = directory.parent() else {
            return Before::Other;
        };
        let now = Instant::now();
        let is_recent = |then: Instant| now.duration_since(then) < TOGETHER;
        let is_barred = |since: &Instant| now.duration_since(*since) < BARRED;
        let is_barred = self.barred.get(&parent).is_some_and(is_barred);
        let before = self.last.put(parent.clone(), (directory.clone(), now));
        if is_barred || self.has_no_order {
            return Before::Other;
        }
        if let Some((other, then)) = before
            && is_recent(then)
        {
            return match other == *directory {
                true => Before::Other,
                false => Before::Sibling,
            };
        }
        let above = parent.parent().and_then(|above| self.last.get(&above));
        match above {
            Some((other, then)) if *other == parent && is_recent(*then) => Before::Parents,
            _ => Before::Other,
        }
    }

    /// Notes that walks below a directory do not help.
    pub(super) fn bar(&mut self, above: &Key) {
        self.barred.put(above.clone(), Instant::now());
    }
}

impl Shared {
    /// Returns a directory, known or just begun.
    pub(super) fn folder(self: &Arc<Self>, prefix: &Key) -> Result<Arc<Folder>> {
        self.look_beside(prefix);
        if let Some(folder) = self.known(prefix) {
            return Ok(folder);
        }
        let before = lock(&self.listed).note(prefix);
        let trail = self.trail_to(prefix).or_else(|| match before {
            Before::Sibling => self.set_out(prefix),
            Before::Parents => {
                // The listing goes on beside it.
                self.look_into(prefix.clone());
                None
            }
            Before::Other => None,
        });
        if let Some(trail) = trail {
            if !trail.await_folder(prefix) && !trail.is_deep_in(prefix) {
                // Where folders are larger than that, a walk is no faster than their listings.
                lock(&self.listed).bar(&trail.prefix);
                self.end(&trail);
            }
            if let Some(folder) = self.known(prefix) {
                return Ok(folder);
            }
        }
        let asked = self.changes.asked();
        let question = (prefix.clone(), asked.changes);
        self.lists.fly(&question, || match self.known(prefix) {
            Some(folder) => Ok(folder),
            None => self.begin(prefix, asked),
        })
    }

    /// Returns a folder that is remembered; the walk that found it hears that it is followed.
    fn known(&self, prefix: &Key) -> Option<Arc<Folder>> {
        let folder = self.folders.get(prefix)?;
        if let Some(step) = &folder.step {
            step.trail.follow(step.keys);
        }
        Some(folder)
    }

    /// Begins to list a directory.
    fn begin(&self, prefix: &Key, asked: Asked) -> Result<Arc<Folder>> {
        let listing = match self.inner.list(prefix) {
            Err(error) if error.kind() == Kind::NotFound => {
                self.note_head(prefix, None, asked);
                return Err(error);
            }
            answer => answer?,
        };
        let until = self.told((), asked.at).until;
        let total = self.folders.total();
        let folder = Arc::new(Folder::growing(prefix.clone(), until, listing, total));
        self.changes
            .unless_changed(asked, || self.folders.put(folder.clone()));
        Ok(folder)
    }

    fn trail_to(&self, prefix: &Key) -> Option<Arc<Trail>> {
        let trails = lock(&self.trails);
        trails.iter().find(|trail| trail.leads_to(prefix)).cloned()
    }

    /// Begins a walk below the parent of a directory, from there on.
    fn set_out(self: &Arc<Self>, directory: &Key) -> Option<Arc<Trail>> {
        let top = directory.parent()?;
        let mut trails = lock(&self.trails);
        let walks = trails.iter().filter(|trail| !trail.is_excursion());
        if walks.count() >= MOST_WALKS {
            return None;
        }
        let trail = Arc::new(Trail::new(top.clone(), directory.clone()));
        trails.push(trail.clone());
        drop(trails);
        let walk = self.inner.walk(&top, directory).ok().flatten();
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

    pub(super) fn end(&self, trail: &Arc<Trail>) {
        trail.end();
        lock(&self.trails).retain(|other| !Arc::ptr_eq(other, trail));
    }

    /// Remembers a folder that a walk has found.
    fn remember(&self, found: Gathered, step: Step) {
        let until = self.told((), found.asked).until;
        let total = self.folders.total();
        let trail = step.trail.clone();
        let folder = Folder::complete(found.prefix, until, found.names, Some(step), total);
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
pub(super) fn run(memory: &Weak<Shared>, trail: &Arc<Trail>, walk: Option<Box<dyn Walk>>) {
    let ended = Ended { memory, trail };
    let Some(walk) = walk else { return };
    let mut steps = Steps {
        memory,
        trail,
        gather: Gather::new(trail.prefix.clone()),
        keys: 0,
        told: Vec::new(),
    };
    if let Err(Disorder) = steps.go(walk) {
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
    memory: &'a Weak<Shared>,
    trail: &'a Arc<Trail>,
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
struct Steps<'a> {
    memory: &'a Weak<Shared>,
    trail: &'a Arc<Trail>,
    gather: Gather,
    keys: u64,
    /// The folders that were told.
    told: Vec<Key>,
}

type Ordered<T> = std::result::Result<T, Disorder>;

impl Steps<'_> {
    fn go(&mut self, mut walk: Box<dyn Walk>) -> Ordered<()> {
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
        let gather = std::mem::replace(&mut self.gather, Gather::new(Key::root()));
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

    fn tell(&mut self, folders: Vec<Gathered>) {
        let Some(shared) = self.memory.upgrade() else {
            return self.trail.end();
        };
        for folder in folders {
            self.told.push(folder.prefix.clone());
            let trail = self.trail.clone();
            let keys = self.keys;
            shared.remember(folder, Step { trail, keys });
        }
    }

    /// Forgets what was told while the keys seemed to be in order; there will be no further walk.
    fn take_back(&self) {
        let Some(shared) = self.memory.upgrade() else {
            return;
        };
        lock(&shared.listed).has_no_order = true;
        for folder in &self.told {
            shared.folders.forget(folder);
        }
    }
}
