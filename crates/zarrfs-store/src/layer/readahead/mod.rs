//! Read-ahead for a store on a network whose objects are shown as files.
//!
//! Programs open one file after the other, and each open file waits for a round trip. This layer notices the order
//! (`dir_scan`) and fetches the next files while one is read, in the next directory too; a file is fetched in one request,
//! whatever parts it is read in (`reader`). A fetched block is used only for a reader of the same version, so nothing has to
//! be invalidated. Blocks count in a part of the memory budget; without room nothing is fetched ahead.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::layer::Layer;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::pool::ThreadPool;
use crate::{ByteRange, EntryKind, Key, Meta, Object, Reader, Store};
use dir_scan::{DirNames, DirScan, Sorting, Upcoming};
use reader::{MAX_WHOLE_BYTES, ReadaheadReader};
use zarr_format::error::{Error, Result};

mod dir_scan;
mod reader;

/// Directories whose reading order is remembered at a time.
const MAX_SCANS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Requests that may wait for a thread.
const MAX_QUEUED: usize = 4096;

/// Blocks take at most this part of the memory budget: one in so many.
const SHARE_OF_MEMORY: u64 = 4;

/// How much is fetched ahead.
#[derive(Clone, Debug)]
pub struct ReadaheadConfig {
    /// The budget that fetched blocks are a part of.
    pub memory: Arc<MemoryBudget>,
    /// Requests at a time.
    pub concurrency: usize,
    /// How long a reader waits for a block that is being fetched.
    pub timeout: Duration,
}

/// A store over a store that fetches what will be read next.
pub struct ReadaheadStore {
    shared: Arc<ReadaheadState>,
}

/// An object, and which block of it, or all of it.
type BlockId = (Key, Option<u64>);

/// A directory, and which of its names are gone through.
type ScanId = (Key, EntryKind);

/// How a program goes through names.
#[derive(Clone, Copy)]
struct Pace {
    /// The size of the object that was opened last, which objects are taken to have whose size no listing tells.
    size: u64,
    /// How many names are fetched ahead.
    window: usize,
}

/// Bytes of an object and the memory that they count in.
struct Block {
    object: Object,
    /// When it was asked for.
    asked: Instant,
    _room: Reservation,
}

struct ReadaheadState {
    inner: Arc<dyn Store>,
    blocks: Arc<Cache<BlockId, Arc<Block>>>,
    /// Blocks that wait for a thread to fetch them.
    queued: Mutex<HashSet<BlockId>>,
    pool: ThreadPool,
    concurrency: usize,
    timeout: Duration,
    /// Files of directories, and directories in directories, that are gone through.
    scans: Mutex<LruCache<ScanId, DirScan>>,
}

impl ReadaheadStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, config: &ReadaheadConfig) -> ReadaheadStore {
        let memory = config.memory.part(config.memory.limit() / SHARE_OF_MEMORY);
        let shared = ReadaheadState {
            inner,
            blocks: Cache::new(memory, Priority::Speculative, None),
            queued: Mutex::default(),
            pool: ThreadPool::new("ahead", config.concurrency, MAX_QUEUED),
            concurrency: config.concurrency,
            timeout: config.timeout,
            scans: Mutex::new(LruCache::new(MAX_SCANS)),
        };
        ReadaheadStore {
            shared: Arc::new(shared),
        }
    }
}

impl ReadaheadState {
    /// The longest object that is fetched in one request, in bytes.
    fn max_whole_bytes(&self) -> u64 {
        MAX_WHOLE_BYTES.min(self.blocks.budget().limit() / 4)
    }

    /// Notes that an object of `size` bytes was opened, and fetches those that come next.
    fn note_open(self: &Arc<ReadaheadState>, key: &Key, size: u64) {
        let window = self.concurrency;
        self.note_name(key, EntryKind::File, Pace { size, window });
    }

    /// Notes that a name is used, and fetches what comes next in its directory.
    fn note_name(self: &Arc<ReadaheadState>, key: &Key, kind: EntryKind, pace: Pace) {
        let Some(directory) = key.parent() else {
            return;
        };
        let scanned = (directory, kind);
        let mut scans = self.scans.lock();
        let new = || DirScan::new(key.name(), kind);
        let scan = scans.get_or_insert_mut(scanned.clone(), new);
        let upcoming = scan.note(key.name(), pace.window);
        let names = scan.names.clone();
        let must_list = scan.must_list();
        drop(scans);
        if let (Some(upcoming), Some(names)) = (upcoming, names) {
            self.fetch_upcoming(&scanned, &names, &upcoming, pace);
        } else if must_list && self.inner.info().lists {
            let shared = self.clone();
            self.pool
                .submit(move || shared.list_scanned(&scanned, pace));
        }
    }

    /// Lists a directory whose names are used one after the other. An error is left to the readers.
    fn list_scanned(self: &Arc<ReadaheadState>, scanned: &ScanId, pace: Pace) {
        let Ok(names) = DirNames::list(&UNLIMITED, &*self.inner, &scanned.0, scanned.1) else {
            return;
        };
        let names = Arc::new(names);
        let mut scans = self.scans.lock();
        let scan = scans.get_mut(scanned);
        let upcoming = scan.and_then(|scan| scan.set_names(names.clone(), pace.window));
        drop(scans);
        if let Some(upcoming) = upcoming {
            self.fetch_upcoming(scanned, &names, &upcoming, pace);
        }
    }

    /// Fetches what comes next in a directory: files, or what directories hold.
    fn fetch_upcoming(
        self: &Arc<ReadaheadState>,
        (directory, kind): &ScanId,
        names: &DirNames,
        upcoming: &Upcoming,
        pace: Pace,
    ) {
        for place in upcoming.places.clone() {
            let Some((name, known)) = names.at(upcoming.sorting, place) else {
                return;
            };
            let Ok(key) = directory.child(name) else {
                continue;
            };
            let length = known.unwrap_or(pace.size);
            if *kind == EntryKind::Directory {
                let (shared, sorting) = (self.clone(), upcoming.sorting);
                self.pool.submit(move || shared.enter(&key, sorting, pace));
            } else if length <= self.max_whole_bytes() {
                self.prefetch((key, None), 0..length);
            }
        }
        if upcoming.ends {
            // Chunks may lie in many small directories.
            let window = match kind {
                EntryKind::File => self.concurrency.div_ceil(names.len().max(1)),
                _ => pace.window.div_ceil(names.len().max(1)),
            };
            self.note_name(directory, EntryKind::Directory, Pace { window, ..pace });
        }
    }

    /// Fetches the first files of a directory that is likely to come next, or what its first directories hold. An error is
    /// left to the readers.
    fn enter(self: &Arc<ReadaheadState>, directory: &Key, sorting: Sorting, pace: Pace) {
        for (kind, window) in [
            (EntryKind::File, self.concurrency),
            (EntryKind::Directory, pace.window),
        ] {
            let Ok(names) = DirNames::list(&UNLIMITED, &*self.inner, directory, kind) else {
                return;
            };
            if names.len() == 0 {
                continue;
            }
            let names = Arc::new(names);
            let scanned = (directory.clone(), kind);
            let places = 0..names.len().min(window);
            let mut scans = self.scans.lock();
            if !scans.contains(&scanned) {
                let scan = DirScan::sequential(names.clone(), places.end);
                scans.put(scanned.clone(), scan);
                drop(scans);
                let upcoming = Upcoming {
                    sorting,
                    places,
                    ends: false,
                };
                self.fetch_upcoming(&scanned, &names, &upcoming, pace);
            }
            return;
        }
    }

    /// Has a block fetched by another thread, unless it is there or on its way.
    fn prefetch(self: &Arc<ReadaheadState>, id: BlockId, range: Range<u64>) {
        if self.blocks.has(&id) || !self.queued.lock().insert(id.clone()) {
            return;
        }
        let (shared, queued) = (self.clone(), id.clone());
        let is_submitted = self.pool.submit(move || {
            // A reader that came first has fetched the block itself.
            if shared.queued.lock().remove(&queued) {
                // What fails is asked for again by the reader, which gets the error.
                let _ = shared.load(&UNLIMITED, &queued, range);
            }
        });
        if !is_submitted {
            self.queued.lock().remove(&id);
        }
    }

    /// Returns a block of a content, fetched now if it is not there; nothing if that fails, if there is no room for it
    /// or if the object has another version or another length.
    fn block(
        &self,
        context: &RequestContext,
        id: &BlockId,
        range: Range<u64>,
        meta: &Meta,
    ) -> Option<Arc<Block>> {
        self.queued.lock().remove(id);
        // A block that was fetched ahead may be of an older version.
        for _ in 0..2 {
            let block = self.load(context, id, range.clone()).ok()?;
            let is_complete = block.object.bytes.len() as u64 == range.end - range.start;
            if self.is_of(&block, meta) && is_complete {
                return Some(block);
            }
            self.blocks.forget(id);
        }
        None
    }

    /// Whether a block is of the content that has `meta`. Where no ETag tells contents apart, it counts as long as other
    /// answers of the store.
    fn is_of(&self, block: &Block, meta: &Meta) -> bool {
        let is_exact = block.object.content() == meta.content();
        let may_be =
            || block.object.meta().may_be_of(meta) && self.inner.info().is_fresh(block.asked);
        is_exact || may_be()
    }

    fn load(
        &self,
        context: &RequestContext,
        id: &BlockId,
        range: Range<u64>,
    ) -> Result<Arc<Block>> {
        let deadline = Instant::now() + self.timeout;
        let fetch = || self.fetch(context, id, range).map(Arc::new);
        self.blocks.load(context, id, deadline, fetch)
    }

    fn fetch(
        &self,
        context: &RequestContext,
        (key, number): &BlockId,
        range: Range<u64>,
    ) -> Result<Block> {
        let reserve = |bytes| {
            let room = self.blocks.budget().try_reserve(bytes);
            room.ok_or_else(|| Error::unavailable(key, "no memory is free to read ahead"))
        };
        let length = range.end - range.start;
        let asked = self.inner.info().clock.now();
        let mut room = reserve(length)?;
        let object = match number {
            None => self
                .inner
                .get(context, key, length.max(self.max_whole_bytes()))?,
            Some(_) => self.inner.get_range(context, key, ByteRange::Span(range))?,
        };
        let object = object.ok_or_else(|| Error::not_found(key))?;
        let fetched = object.bytes.len() as u64;
        if fetched > length {
            room = reserve(fetched)?;
        }
        room.shrink(fetched);
        Ok(Block {
            object,
            asked,
            _room: room,
        })
    }
}

impl Layer for ReadaheadStore {
    fn below(&self) -> &dyn Store {
        &*self.shared.inner
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let below = self.below().open(context, key, known)?;
        let meta = match known {
            Some(meta) => *meta,
            None => below.meta(context)?,
        };
        self.shared.note_open(key, meta.size);
        let reader = ReadaheadReader::new(&self.shared, key, meta, below);
        Ok(Arc::new(reader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryStore;
    use crate::stats::Stats;

    fn ahead(names: impl IntoIterator<Item = String>) -> ReadaheadStore {
        let memory = MemoryStore::default();
        for name in names {
            memory.set(key(&name), vec![7; 10]);
        }
        let config = ReadaheadConfig {
            memory: MemoryBudget::new(4 << 20, Arc::new(Stats::default())),
            concurrency: 8,
            timeout: Duration::from_secs(5),
        };
        ReadaheadStore::new(Arc::new(memory), &config)
    }

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn read(ahead: &ReadaheadStore, name: &str) {
        let reader = Store::open(ahead, &UNLIMITED, &key(name), None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 0, 10).unwrap(), [7; 10]);
    }

    /// Whether a file is fetched within a while.
    fn comes(ahead: &ReadaheadStore, name: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        let has = || ahead.shared.blocks.get(&(key(name), None)).is_some();
        while !has() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        has()
    }

    #[test]
    fn small_directories_are_gone_through_one_after_the_other() {
        let places = (0..80).map(|place| (place / 16, place / 4 % 4, place % 4));
        let ahead = ahead(places.map(|(z, y, x)| format!("a/c/{z}/{y}/{x}")));
        for name in ["a/c/0/1/2", "a/c/0/1/3"] {
            read(&ahead, name);
        }
        for name in ["a/c/0/2/0", "a/c/0/2/3", "a/c/0/3/3"] {
            assert!(comes(&ahead, name), "{name}");
        }
        for (z, y) in [(0, 2), (0, 3)] {
            for x in 0..4 {
                read(&ahead, &format!("a/c/{z}/{y}/{x}"));
            }
        }
        // Over the end of the directory above.
        for name in ["a/c/1/0/0", "a/c/1/0/3"] {
            assert!(comes(&ahead, name), "{name}");
        }
    }
}
