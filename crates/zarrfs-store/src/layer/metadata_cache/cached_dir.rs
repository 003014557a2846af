//! A cached directory that grows as its readers read the listing.
//!
//! Names keep the order of the store's listing, each with its cursor. A complete directory also answers for missing
//! names. A reader continues with a listing of its own if the names were evicted or do not include the reader's cursor.
//! `dirs` limits the number of directories.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};

use super::assembler::AssembledDir;
use super::lister::DirLister;
use super::listing_prefetch::PassedDir;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, LeftOut, Listing, Meta, Name, Presence};
use zarr_format::error::{Error, Kind, Result};

/// What the listing of a directory says about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirEntry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// The metadata that `head` would return, if the listing has them.
    pub(super) meta: Option<Meta>,
}

impl DirEntry {
    pub(super) fn is_without_size(&self) -> bool {
        self.kind == EntryKind::File && self.meta.is_none()
    }
}

/// The names of a directory, in listing order.
pub(super) type NameMap = IndexMap<Box<[u8]>, DirEntry>;

/// How many names of a directory are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Evicted,
}

/// The cached names of a directory.
pub(super) struct CachedDir {
    pub(super) prefix: Key,
    /// Time of the request for the listing's first page.
    pub(super) request_time: Instant,
    /// If a recursive listing found the directory: that listing, and the number of keys that it had read by then.
    pub(super) passed: Option<PassedDir>,
    /// Which existing names the store's listing omits.
    pub(super) left_out: LeftOut,
    known: RwLock<KnownNames>,
    source: Mutex<NameSource>,
    /// Number of requests to the listing. A reader that waited for another reader's request compares this number, to
    /// see whether an error is new.
    requests: AtomicU64,
    /// Number of names in all cached directories.
    total: Arc<AtomicUsize>,
}

/// The names of a directory that were read so far.
struct KnownNames {
    map: NameMap,
    extent: Extent,
}

/// The listing from which further names are read, and the error of its last request.
#[derive(Default)]
struct NameSource {
    listing: Option<Box<dyn Listing>>,
    failed: Option<Error>,
}

/// What a cached directory has at an index.
pub(super) enum Slot {
    Entry(Name),
    End,
    /// The directory's names were evicted: its reader must continue with a listing of its own.
    Evicted,
}

impl CachedDir {
    /// Builds a directory from a listing that has just begun. Each name is cached when a reader first needs it.
    pub(super) fn growing(
        prefix: Key,
        request_time: Instant,
        listing: Box<dyn Listing>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        CachedDir {
            prefix,
            request_time,
            passed: None,
            left_out: listing.left_out(),
            known: RwLock::new(KnownNames {
                map: NameMap::new(),
                extent: Extent::Growing,
            }),
            source: Mutex::new(NameSource {
                listing: Some(listing),
                failed: None,
            }),
            requests: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    pub(super) fn complete(
        dir: AssembledDir,
        passed: Option<PassedDir>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        total.fetch_add(dir.names.len(), Ordering::Relaxed);
        CachedDir {
            prefix: dir.prefix,
            request_time: dir.request_time,
            passed,
            left_out: LeftOut::Nothing,
            known: RwLock::new(KnownNames {
                map: dir.names,
                extent: Extent::Complete,
            }),
            source: Mutex::default(),
            requests: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.read().map.len()
    }

    /// Returns the cached state of a name. It is `Unknown` if the listing may still return the name, or omits such
    /// names.
    pub(super) fn entry(&self, name: &[u8]) -> Presence<DirEntry> {
        let known = self.known.read();
        match (known.map.get(name), known.extent) {
            (Some(entry), _) => Presence::Is(*entry),
            (None, Extent::Complete) if !self.left_out.may_have(name) => Presence::Missing,
            (None, _) => Presence::Unknown,
        }
    }

    /// Whether the listing is complete and lacks the name. An object of this name may still exist if the store's
    /// listings omit such names.
    pub(super) fn is_unlisted(&self, name: &[u8]) -> bool {
        let known = self.known.read();
        known.extent == Extent::Complete && !known.map.contains_key(name)
    }

    /// Returns the index of a name in the directory if the name is cached and its entry is wanted.
    pub(super) fn index_of(
        &self,
        name: &[u8],
        is_wanted: impl Fn(&DirEntry) -> bool,
    ) -> Option<usize> {
        let known = self.known.read();
        let (index, _, entry) = known.map.get_full(name)?;
        is_wanted(entry).then_some(index)
    }

    /// Returns the index of the name that has the given cursor.
    pub(super) fn index_of_cursor(&self, cursor: u64) -> Option<usize> {
        let known = self.known.read();
        let is_it = |index: &usize| {
            let entry = known.map.get_index(*index);
            entry.is_some_and(|(_, entry)| entry.cursor == cursor)
        };
        let guess = usize::try_from(cursor).ok()?.checked_sub(1)?;
        let guess = Some(guess).filter(is_it);
        guess.or_else(|| (0..known.map.len()).find(is_it))
    }

    /// Returns the index of the first cached name whose entry is wanted.
    pub(super) fn first_index(&self, is_wanted: impl Fn(&DirEntry) -> bool) -> Option<usize> {
        self.known.read().map.values().position(is_wanted)
    }

    /// Returns the cached names in a range of indices whose entries are wanted.
    pub(super) fn names_at(
        &self,
        indices: Range<usize>,
        is_wanted: impl Fn(&DirEntry) -> bool,
    ) -> Vec<Vec<u8>> {
        let known = self.known.read();
        let names = indices.map_while(|index| known.map.get_index(index));
        let wanted = names.filter(|(_, entry)| is_wanted(entry));
        wanted.map(|(name, _)| name.to_vec()).collect()
    }

    /// Returns all names of the directory, or `None` if the directory is incomplete.
    pub(super) fn all_names(&self) -> Option<Vec<(Box<[u8]>, DirEntry)>> {
        let known = self.known.read();
        let names = known.map.iter().map(|(name, entry)| (name.clone(), *entry));
        (known.extent == Extent::Complete).then(|| names.collect())
    }

    /// Returns the directory's entry at an index, after reading further names from the listing if necessary.
    pub(super) fn slot_at(&self, context: &RequestContext, index: usize) -> Result<Slot> {
        loop {
            let requests = self.requests.load(Ordering::Acquire);
            if let Some(slot) = self.known_at(index) {
                return Ok(slot);
            }
            let mut source = self.source.lock();
            if self.requests.load(Ordering::Acquire) != requests {
                match &source.failed {
                    // Another reader's request was interrupted because that reader no longer waits. This reader makes
                    // its own request.
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

    fn known_at(&self, index: usize) -> Option<Slot> {
        let known = self.known.read();
        match (known.map.get_index(index), known.extent) {
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
            _ if known.extent == Extent::Evicted => {}
            None => {
                known.extent = Extent::Complete;
                known.map.shrink_to_fit();
                source.listing = None;
            }
            Some(name) => {
                let entry = DirEntry {
                    kind: name.kind,
                    cursor: name.cursor,
                    meta: name.meta,
                };
                if known.map.insert(name.name.into(), entry).is_none() {
                    self.total.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Drops the names of an incomplete directory. Its readers continue with listings of their own.
    pub(super) fn evict(&self) {
        let mut known = self.known.write();
        if known.extent == Extent::Growing {
            self.total.fetch_sub(known.map.len(), Ordering::Relaxed);
            known.map = NameMap::new();
            known.extent = Extent::Evicted;
        }
    }

    /// Takes the store's listing out of an evicted directory, so that the first reader to need it continues there.
    pub(super) fn take_listing(&self) -> Option<Box<dyn Listing>> {
        self.source.lock().listing.take()
    }
}

impl Drop for CachedDir {
    fn drop(&mut self) {
        let count = self.known.read().map.len();
        self.total.fetch_sub(count, Ordering::Relaxed);
    }
}

pub(super) struct CachedListing {
    lister: Arc<DirLister>,
    dir: Arc<CachedDir>,
    /// Index of the next name in the cached directory.
    index: usize,
    /// Cursor of the name that was returned last.
    cursor: u64,
    own: Option<Box<dyn Listing>>,
}

impl CachedListing {
    pub(super) fn new(lister: &Arc<DirLister>, dir: Arc<CachedDir>) -> CachedListing {
        CachedListing {
            lister: lister.clone(),
            dir,
            index: 0,
            cursor: 0,
            own: None,
        }
    }

    /// Continues after `cursor` with a listing that only this reader uses.
    fn list_alone(
        &mut self,
        context: &RequestContext,
        cursor: u64,
    ) -> Result<&mut Box<dyn Listing>> {
        let mut own = match self.dir.take_listing() {
            Some(listing) => listing,
            None => self.lister.inner.list(context, &self.dir.prefix)?,
        };
        own.seek(context, cursor)?;
        Ok(self.own.insert(own))
    }
}

impl Listing for CachedListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some(own) = &mut self.own {
            return own.next(context);
        }
        let known = self.dir.len();
        match self.dir.slot_at(context, self.index)? {
            Slot::Entry(name) => {
                if self.index >= known {
                    self.lister.answers.dirs.trim(&self.dir);
                }
                self.index += 1;
                self.cursor = name.cursor;
                Ok(Some(name))
            }
            Slot::End => Ok(None),
            Slot::Evicted => self.list_alone(context, self.cursor)?.next(context),
        }
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor == 0 && !self.lister.answers.dirs.is_fresh(&self.dir) {
            // A reader that starts again from the beginning after the TTL lists the directory again.
            self.dir = self.lister.list(context, &self.dir.prefix)?;
        }
        let index = match cursor {
            0 => Some(0),
            cursor => self.dir.index_of_cursor(cursor).map(|index| index + 1),
        };
        match (index, &mut self.own) {
            (_, Some(own)) => own.seek(context, cursor),
            (Some(index), None) => {
                (self.index, self.cursor) = (index, cursor);
                Ok(())
            }
            (None, None) => self.list_alone(context, cursor).map(drop),
        }
    }

    fn left_out(&self) -> LeftOut {
        self.dir.left_out
    }
}
