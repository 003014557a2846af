//! One directory's names as they become known: read once, by whoever comes first to a place, for all.
//!
//! Names stand in the order of the store's listing, each with its cursor there. A complete folder also says what
//! is not in it. One that outgrows its room is abandoned: its names go, and each reader goes on alone.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Instant;

use indexmap::IndexMap;

use super::lock;
use super::trail::Step;
use crate::error::Error;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Listing;
use crate::store::Meta;
use crate::store::Name;

/// What is known of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// What `head` would say.
    pub(super) meta: Option<Meta>,
}

/// Names in the order of the listing.
pub(super) type Names = IndexMap<Box<[u8]>, Entry>;

/// How far a folder is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Abandoned,
}

/// A directory's names.
pub(super) struct Folder {
    pub(super) prefix: Key,
    /// Until when they count.
    pub(super) until: Instant,
    /// The walk that found them, and how far it was then.
    pub(super) step: Option<Step>,
    known: RwLock<(Names, Extent)>,
    source: Mutex<Source>,
    /// How often the source was asked, so that who waited knows whose error it is.
    asked: AtomicU64,
    /// Names held by all folders.
    total: Arc<AtomicUsize>,
}

/// Where further names come from.
#[derive(Default)]
struct Source {
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
pub(super) enum Place {
    Entry(Entry),
    Missing,
}

impl Folder {
    /// Builds a folder whose names come from a listing that has just begun.
    pub(super) fn growing(
        prefix: Key,
        until: Instant,
        listing: Box<dyn Listing>,
        total: &Arc<AtomicUsize>,
    ) -> Folder {
        let source = Source {
            listing: Some(listing),
            failed: None,
        };
        Folder {
            prefix,
            until,
            step: None,
            known: RwLock::new((Names::new(), Extent::Growing)),
            source: Mutex::new(source),
            asked: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    /// Builds a folder of which all names are known.
    pub(super) fn complete(
        prefix: Key,
        until: Instant,
        names: Names,
        step: Option<Step>,
        total: &Arc<AtomicUsize>,
    ) -> Folder {
        total.fetch_add(names.len(), Ordering::Relaxed);
        Folder {
            prefix,
            until,
            step,
            known: RwLock::new((names, Extent::Complete)),
            source: Mutex::default(),
            asked: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, (Names, Extent)> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, (Names, Extent)> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.until > Instant::now()
    }

    /// Returns how many names are held.
    pub(super) fn len(&self) -> usize {
        self.read().0.len()
    }

    /// Returns what is known of a name; nothing if it may come yet.
    pub(super) fn look(&self, name: &[u8]) -> Option<Place> {
        let known = self.read();
        match (known.0.get(name), known.1) {
            (Some(entry), _) => Some(Place::Entry(*entry)),
            (None, Extent::Complete) => Some(Place::Missing),
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
            let mut source = lock(&self.source);
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
    fn ask(&self, source: &mut Source) -> Result<()> {
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
                let entry = Entry {
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
            *known = (Names::new(), Extent::Abandoned);
        }
    }

    /// Takes the listing that an abandoned folder has left behind.
    pub(super) fn inherit(&self) -> Option<Box<dyn Listing>> {
        lock(&self.source).listing.take()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let held = self.read().0.len();
        self.total.fetch_sub(held, Ordering::Relaxed);
    }
}
