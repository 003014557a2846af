//! One directory that is remembered: its names as they become known, read once for all readers.
//!
//! Names stand in the order of the store's listing, each with its cursor there. A complete directory also tells what is
//! not in it. How many directories are remembered is decided in `dirs`.

use parking_lot::{Mutex, RwLock};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use indexmap::IndexMap;

use super::listing_prefetch::PassedDir;
use crate::known::Known;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, LeftOut, Listing, Meta, Name};
use zarr_format::error::{Error, Kind, Result};

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirEntry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// What `head` answers.
    pub(super) meta: Option<Meta>,
}

impl DirEntry {
    /// Whether it is a file whose size the listing does not have.
    pub(super) fn is_without_size(&self) -> bool {
        self.kind == EntryKind::File && self.meta.is_none()
    }
}

/// Names in the order of the listing.
pub(super) type NameMap = IndexMap<Box<[u8]>, DirEntry>;

/// How far a directory is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Evicted,
}

/// A directory's names.
pub(super) struct CachedDir {
    pub(super) prefix: Key,
    /// When the store was asked for the first of the names.
    pub(super) asked: Instant,
    /// The flat listing that found the names, and how far it was then.
    pub(super) passed: Option<PassedDir>,
    /// The names of which it does not tell whether they exist.
    pub(super) left_out: LeftOut,
    known: RwLock<(NameMap, Extent)>,
    source: Mutex<NameSource>,
    /// Requests to the source: a reader that waited for another's request knows by it whose error it sees.
    requests: AtomicU64,
    /// Names held by all directories.
    total: Arc<AtomicUsize>,
}

/// Where further names come from.
#[derive(Default)]
struct NameSource {
    listing: Option<Box<dyn Listing>>,
    failed: Option<Error>,
}

/// What stands at a place of a directory.
pub(super) enum Slot {
    Entry(Name),
    End,
    /// The names were evicted; the reader goes on with a listing of its own.
    Evicted,
}

impl CachedDir {
    /// Builds a directory whose names come from a listing that has just begun.
    pub(super) fn growing(
        prefix: Key,
        asked: Instant,
        listing: Box<dyn Listing>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        CachedDir {
            prefix,
            asked,
            passed: None,
            left_out: listing.left_out(),
            known: RwLock::new((NameMap::new(), Extent::Growing)),
            source: Mutex::new(NameSource {
                listing: Some(listing),
                failed: None,
            }),
            requests: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    /// Builds a directory of which all names are known.
    pub(super) fn complete(
        prefix: Key,
        asked: Instant,
        names: NameMap,
        passed: Option<PassedDir>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        total.fetch_add(names.len(), Ordering::Relaxed);
        CachedDir {
            prefix,
            asked,
            passed,
            left_out: LeftOut::Nothing,
            known: RwLock::new((names, Extent::Complete)),
            source: Mutex::default(),
            requests: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    /// Returns how many names are held.
    pub(super) fn len(&self) -> usize {
        self.known.read().0.len()
    }

    /// Returns what is known of a name; `Unknown` if it may come yet.
    pub(super) fn look(&self, name: &[u8]) -> Known<DirEntry> {
        let known = self.known.read();
        match (known.0.get(name), known.1) {
            (Some(entry), _) => Known::Is(*entry),
            (None, Extent::Complete) if !self.left_out.may_have(name) => Known::Missing,
            (None, _) => Known::Unknown,
        }
    }

    /// Whether the listing is complete and does not show a name, which may be one that it leaves out.
    pub(super) fn lacks(&self, name: &[u8]) -> bool {
        let known = self.known.read();
        known.1 == Extent::Complete && !known.0.contains_key(name)
    }

    /// Returns where a name stands whose entry is wanted.
    pub(super) fn place_of(
        &self,
        name: &[u8],
        is_wanted: impl Fn(&DirEntry) -> bool,
    ) -> Option<usize> {
        let known = self.known.read();
        let (place, _, entry) = known.0.get_full(name)?;
        is_wanted(entry).then_some(place)
    }

    /// Returns where the name with a cursor stands.
    pub(super) fn place_of_cursor(&self, cursor: u64) -> Option<usize> {
        let known = self.known.read();
        let is_it = |place: &usize| {
            let found = known.0.get_index(*place);
            found.is_some_and(|(_, entry)| entry.cursor == cursor)
        };
        let guess = usize::try_from(cursor).ok()?.checked_sub(1)?;
        let guess = Some(guess).filter(is_it);
        guess.or_else(|| (0..known.0.len()).find(is_it))
    }

    /// Returns the place of the first name whose entry is wanted.
    pub(super) fn first_place(&self, is_wanted: impl Fn(&DirEntry) -> bool) -> Option<usize> {
        self.known.read().0.values().position(is_wanted)
    }

    /// Returns the names at places whose entries are wanted, as far as they are known.
    pub(super) fn names_at(
        &self,
        places: Range<usize>,
        is_wanted: impl Fn(&DirEntry) -> bool,
    ) -> Vec<Vec<u8>> {
        let known = self.known.read();
        let names = places.map_while(|place| known.0.get_index(place));
        let wanted = names.filter(|(_, entry)| is_wanted(entry));
        wanted.map(|(name, _)| name.to_vec()).collect()
    }

    /// Returns all names; nothing if some may come yet.
    pub(super) fn all_names(&self) -> Option<Vec<(Box<[u8]>, DirEntry)>> {
        let known = self.known.read();
        let names = known.0.iter().map(|(name, entry)| (name.clone(), *entry));
        (known.1 == Extent::Complete).then(|| names.collect())
    }

    /// Returns what stands at a place; asks the source for names that were not read yet.
    pub(super) fn at(&self, context: &RequestContext, place: usize) -> Result<Slot> {
        loop {
            let requests = self.requests.load(Ordering::Acquire);
            if let Some(slot) = self.known_at(place) {
                return Ok(slot);
            }
            let mut source = self.source.lock();
            if self.requests.load(Ordering::Acquire) != requests {
                match &source.failed {
                    // The request of another reader, which does not wait any more, is none of this one.
                    Some(error) if error.kind() != Kind::Interrupted => return Err(error.clone()),
                    Some(_) | None => continue,
                }
            }
            if let Err(error) = self.read_name(context, &mut source) {
                source.failed = Some(error.clone());
                return Err(error);
            }
        }
    }

    fn known_at(&self, place: usize) -> Option<Slot> {
        let known = self.known.read();
        match (known.0.get_index(place), known.1) {
            (Some((name, entry)), _) => Some(Slot::Entry(Name {
                name: name.to_vec(),
                kind: entry.kind,
                cursor: entry.cursor,
                meta: entry.meta,
            })),
            (None, Extent::Complete) => Some(Slot::End),
            (None, Extent::Evicted) => Some(Slot::Evicted),
            (None, Extent::Growing) => None,
        }
    }

    /// Reads one more name.
    fn read_name(&self, context: &RequestContext, source: &mut NameSource) -> Result<()> {
        source.failed = None;
        let next = match &mut source.listing {
            Some(listing) => listing.next(context),
            None => Ok(None),
        };
        self.requests.fetch_add(1, Ordering::Release);
        let next = next?;
        let mut known = self.known.write();
        match next {
            _ if known.1 == Extent::Evicted => {}
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

    /// Drops the names of a directory that is not complete.
    pub(super) fn evict(&self) {
        let mut known = self.known.write();
        if known.1 == Extent::Growing {
            self.total.fetch_sub(known.0.len(), Ordering::Relaxed);
            *known = (NameMap::new(), Extent::Evicted);
        }
    }

    /// Takes the listing of a directory that was evicted; its first reader goes on with it.
    pub(super) fn take_listing(&self) -> Option<Box<dyn Listing>> {
        self.source.lock().listing.take()
    }
}

impl Drop for CachedDir {
    fn drop(&mut self) {
        let held = self.known.read().0.len();
        self.total.fetch_sub(held, Ordering::Relaxed);
    }
}
