//! One directory's names as they become known: read once, by whoever comes first to a place, for all.
//!
//! Names stand in the order of the store's listing, each with its cursor there. A complete folder also says what
//! is not in it. One that outgrows its room is abandoned: its names go, and each reader goes on alone.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::listing_prefetch::PassedFolder;
use crate::error::{Error, Result};
use crate::store::{EntryKind, Key, Listing, Meta, Name};
use indexmap::IndexMap;

/// What is known of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirEntry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// What `head` would say.
    pub(super) meta: Option<Meta>,
}

/// Names in the order of the listing.
pub(super) type NameMap = IndexMap<Box<[u8]>, DirEntry>;

/// How far a folder is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Abandoned,
}

/// A directory's names.
pub(super) struct CachedDir {
    pub(super) prefix: Key,
    /// Until when they count.
    pub(super) until: Instant,
    /// The walk that found them, and how far it was then.
    pub(super) step: Option<PassedFolder>,
    known: RwLock<(NameMap, Extent)>,
    source: Mutex<NameSource>,
    /// How often the source was asked, so that who waited knows whose error it is.
    asked: AtomicU64,
    /// Names held by all folders.
    total: Arc<AtomicUsize>,
}

/// Where further names come from.
#[derive(Default)]
struct NameSource {
    listing: Option<Box<dyn Listing>>,
    failed: Option<Error>,
}

/// What stands at a place of a folder.
pub(super) enum Stop {
    Name(Name),
    End,
    /// The names are gone: who reads goes on alone.
    Alone,
}

/// What a folder says of a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Entry(DirEntry),
    Missing,
}

impl CachedDir {
    /// Builds a folder whose names come from a listing that has just begun.
    pub(super) fn growing(
        prefix: Key,
        until: Instant,
        listing: Box<dyn Listing>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        let source = NameSource {
            listing: Some(listing),
            failed: None,
        };
        CachedDir {
            prefix,
            until,
            step: None,
            known: RwLock::new((NameMap::new(), Extent::Growing)),
            source: Mutex::new(source),
            asked: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    /// Builds a folder of which all names are known.
    pub(super) fn complete(
        prefix: Key,
        until: Instant,
        names: NameMap,
        step: Option<PassedFolder>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        total.fetch_add(names.len(), Ordering::Relaxed);
        CachedDir {
            prefix,
            until,
            step,
            known: RwLock::new((names, Extent::Complete)),
            source: Mutex::default(),
            asked: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, (NameMap, Extent)> {
        self.known.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, (NameMap, Extent)> {
        self.known.write()
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.until > Instant::now()
    }

    /// Returns how many names are held.
    pub(super) fn len(&self) -> usize {
        self.read().0.len()
    }

    /// Returns what is known of a name; nothing if it may come yet.
    pub(super) fn look(&self, name: &[u8]) -> Option<Slot> {
        let known = self.read();
        match (known.0.get(name), known.1) {
            (Some(entry), _) => Some(Slot::Entry(*entry)),
            (None, Extent::Complete) => Some(Slot::Missing),
            (None, _) => None,
        }
    }

    /// Returns where a name stands.
    pub(super) fn place_of(&self, name: &[u8]) -> Option<usize> {
        self.read().0.get_index_of(name)
    }

    /// Returns where the name with a cursor stands.
    pub(super) fn place_of_cursor(&self, cursor: u64) -> Option<usize> {
        let known = self.read();
        let is_it = |place: &usize| {
            let found = known.0.get_index(*place);
            found.is_some_and(|(_, entry)| entry.cursor == cursor)
        };
        let guess = usize::try_from(cursor).ok()?.checked_sub(1)?;
        Some(guess)
            .filter(is_it)
            .or_else(|| (0..known.0.len()).find(is_it))
    }

    /// Returns the directories among the names from `start` to `end`.
    pub(super) fn directories(&self, start: usize, end: usize) -> Vec<Vec<u8>> {
        let known = self.read();
        let names = (start..end).map_while(|place| known.0.get_index(place));
        let directories = names.filter(|(_, entry)| entry.kind == EntryKind::Directory);
        directories.map(|(name, _)| name.to_vec()).collect()
    }

    /// Returns what stands at a place; asks the source for what nobody has read yet.
    pub(super) fn at(&self, place: usize) -> Result<Stop> {
        loop {
            let asked = self.asked.load(Ordering::Acquire);
            if let Some(stop) = self.known_at(place) {
                return Ok(stop);
            }
            let mut source = self.source.lock();
            if self.asked.load(Ordering::Acquire) != asked {
                match &source.failed {
                    Some(error) => return Err(error.clone()),
                    None => continue,
                }
            }
            if let Err(error) = self.ask(&mut source) {
                source.failed = Some(error.clone());
                return Err(error);
            }
        }
    }

    fn known_at(&self, place: usize) -> Option<Stop> {
        let known = self.read();
        match (known.0.get_index(place), known.1) {
            (Some((name, entry)), _) => Some(Stop::Name(Name {
                name: name.to_vec(),
                kind: entry.kind,
                cursor: entry.cursor,
                meta: entry.meta,
            })),
            (None, Extent::Complete) => Some(Stop::End),
            (None, Extent::Abandoned) => Some(Stop::Alone),
            (None, Extent::Growing) => None,
        }
    }

    /// Reads one more name.
    fn ask(&self, source: &mut NameSource) -> Result<()> {
        source.failed = None;
        let next = match &mut source.listing {
            Some(listing) => listing.next(),
            None => Ok(None),
        };
        self.asked.fetch_add(1, Ordering::Release);
        let next = next?;
        let mut known = self.write();
        match next {
            _ if known.1 == Extent::Abandoned => {}
            None => {
                known.1 = Extent::Complete;
                known.0.shrink_to_fit();
                source.listing = None;
            }
            Some(name) => {
                let entry = DirEntry {
                    kind: name.kind,
                    cursor: name.cursor,
                    meta: name.meta,
                };
                if known.0.insert(name.name.into(), entry).is_none() {
                    self.total.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Lets the names of a folder go that is not complete; readers go on alone.
    pub(super) fn abandon(&self) {
        let mut known = self.write();
        if known.1 == Extent::Growing {
            self.total.fetch_sub(known.0.len(), Ordering::Relaxed);
            *known = (NameMap::new(), Extent::Abandoned);
        }
    }

    /// Takes the listing that an abandoned folder has left behind.
    pub(super) fn inherit(&self) -> Option<Box<dyn Listing>> {
        self.source.lock().listing.take()
    }
}

impl Drop for CachedDir {
    fn drop(&mut self) {
        let held = self.read().0.len();
        self.total.fetch_sub(held, Ordering::Relaxed);
    }
}
