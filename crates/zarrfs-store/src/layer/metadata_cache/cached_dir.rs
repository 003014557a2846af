//! A cached directory that grows as its readers read the listing.
//!
//! Names keep the order of the store's listing, each with its cursor. A complete directory also answers for missing
//! names. A reader continues with its own listing if the names were evicted or do not include the reader's cursor.
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

/// The cached state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirEntry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// The answer to `head`, if the listing has it.
    pub(super) meta: Option<Meta>,
}

impl DirEntry {
    /// Whether it is a file without a size in the listing.
    pub(super) fn is_without_size(&self) -> bool {
        self.kind == EntryKind::File && self.meta.is_none()
    }
}

/// Names in listing order.
pub(super) type NameMap = IndexMap<Box<[u8]>, DirEntry>;

/// The completeness of a cached directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Evicted,
}

/// The cached names of a directory.
pub(super) struct CachedDir {
    pub(super) prefix: Key,
    /// Time of the request for the first name.
    pub(super) request_time: Instant,
    /// The recursive listing that found the names, and its progress at that time.
    pub(super) passed: Option<PassedDir>,
    /// The names that the listing omits.
    pub(super) left_out: LeftOut,
    known: RwLock<KnownNames>,
    source: Mutex<NameSource>,
    /// Number of requests to the source. A reader that waited for another reader's request compares it, to see whether
    /// an error is new.
    requests: AtomicU64,
    /// Number of names in all directories.
    total: Arc<AtomicUsize>,
}

/// The names that were read so far.
struct KnownNames {
    map: NameMap,
    extent: Extent,
}

/// The source of further names.
#[derive(Default)]
struct NameSource {
    listing: Option<Box<dyn Listing>>,
    failed: Option<Error>,
}

/// The entry at an index of the directory; or the end of the directory, or that the entry is not in memory any more.
pub(super) enum Slot {
    Entry(Name),
    End,
    /// The names were evicted; the reader continues with its own listing.
    Evicted,
}

impl CachedDir {
    /// Builds a directory from a listing that has just begun: its names are added when they are read.
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

    /// Builds a directory with all its names.
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

    /// Returns the number of cached names.
    pub(super) fn len(&self) -> usize {
        self.known.read().map.len()
    }

    /// Returns the state of a name; `Unknown` if the listing may still return it or omits such names.
    pub(super) fn entry(&self, name: &[u8]) -> Presence<DirEntry> {
        let known = self.known.read();
        match (known.map.get(name), known.extent) {
            (Some(entry), _) => Presence::Is(*entry),
            (None, Extent::Complete) if !self.left_out.may_have(name) => Presence::Missing,
            (None, _) => Presence::Unknown,
        }
    }

    /// Whether the listing is complete and lacks the name. The name may be one that the listing omits.
    pub(super) fn is_unlisted(&self, name: &[u8]) -> bool {
        let known = self.known.read();
        known.extent == Extent::Complete && !known.map.contains_key(name)
    }

    /// Returns the index of a name if its entry is wanted.
    pub(super) fn index_of(
        &self,
        name: &[u8],
        is_wanted: impl Fn(&DirEntry) -> bool,
    ) -> Option<usize> {
        let known = self.known.read();
        let (index, _, entry) = known.map.get_full(name)?;
        is_wanted(entry).then_some(index)
    }

    /// Returns the index of the name with a cursor.
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

    /// Returns the index of the first wanted name.
    pub(super) fn first_index(&self, is_wanted: impl Fn(&DirEntry) -> bool) -> Option<usize> {
        self.known.read().map.values().position(is_wanted)
    }

    /// Returns the known and wanted names in a range of indices.
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

    /// Returns all names, or `None` if the directory is incomplete.
    pub(super) fn all_names(&self) -> Option<Vec<(Box<[u8]>, DirEntry)>> {
        let known = self.known.read();
        let names = known.map.iter().map(|(name, entry)| (name.clone(), *entry));
        (known.extent == Extent::Complete).then(|| names.collect())
    }

    /// Returns the entry at an index; reads further names from the source if necessary.
    pub(super) fn slot_at(&self, context: &RequestContext, index: usize) -> Result<Slot> {
        loop {
            let requests = self.requests.load(Ordering::Acquire);
            if let Some(slot) = self.known_at(index) {
                return Ok(slot);
            }
            let mut source = self.source.lock();
            if self.requests.load(Ordering::Acquire) != requests {
                match &source.failed {
                    // An abandoned request of another reader is not an answer for this one, which makes its own.
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

    /// Reads one more name from the source.
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

    /// Drops the names of an incomplete directory.
    pub(super) fn evict(&self) {
        let mut known = self.known.write();
        if known.extent == Extent::Growing {
            self.total.fetch_sub(known.map.len(), Ordering::Relaxed);
            known.map = NameMap::new();
            known.extent = Extent::Evicted;
        }
    }

    /// Takes the listing of an evicted directory; its first reader continues with it.
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

/// One reader of a cached directory.
pub(super) struct CachedListing {
    lister: Arc<DirLister>,
    dir: Arc<CachedDir>,
    /// Index of the next name.
    index: usize,
    /// Cursor of the previous name.
    cursor: u64,
    own: Option<Box<dyn Listing>>,
}

impl CachedListing {
    /// Starts to read a directory.
    pub(super) fn new(lister: &Arc<DirLister>, dir: Arc<CachedDir>) -> CachedListing {
        CachedListing {
            lister: lister.clone(),
            dir,
            index: 0,
            cursor: 0,
            own: None,
        }
    }

    /// Continues after `cursor` with a listing of this reader alone.
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
            // A reader that starts again after the TTL gets the present names.
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
