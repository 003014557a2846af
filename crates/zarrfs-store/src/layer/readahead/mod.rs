//! Prefetches files and blocks of a store on the network.
//!
//! Programs open one file after the other, and each open costs a round trip. This layer detects the order (`dir_scan`)
//! and prefetches the next files, including those of the next directory. A file is fetched in one request, however a
//! program reads it (`reader`). A reader uses a prefetched block only if the versions match, so that no invalidation is
//! needed. Blocks count in a part of the memory budget; without room nothing is prefetched.

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

/// Maximum number of directories whose reading order is tracked.
const MAX_SCANS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Maximum number of prefetches that wait for a thread.
const MAX_QUEUED: usize = 4096;

/// Blocks take at most 1/N of the memory budget.
const SHARE_OF_MEMORY: u64 = 4;

/// Limits of the prefetching.
#[derive(Clone, Debug)]
pub struct ReadaheadConfig {
    /// The budget for prefetched blocks.
    pub memory: Arc<MemoryBudget>,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// How long a reader waits for a block that is being fetched.
    pub timeout: Duration,
}

/// A store that prefetches objects and blocks.
pub struct ReadaheadStore {
    shared: Arc<ReadaheadState>,
}

/// The key of an object, and the number of a block or `None` for the whole object.
type BlockId = (Key, Option<u64>);

/// A directory, and the kind of names that a program goes through.
type ScanId = (Key, EntryKind);

/// The speed of a program's progress through names.
#[derive(Clone, Copy)]
struct Pace {
    /// Size of the object opened last: the estimate for objects whose size no listing reports.
    size: u64,
    /// Number of names to prefetch.
    window: usize,
}

/// Bytes of an object and their reservation.
struct Block {
    object: Object,
    /// Time of the request.
    asked: Instant,
    _room: Reservation,
}

struct ReadaheadState {
    inner: Arc<dyn Store>,
    blocks: Arc<Cache<BlockId, Arc<Block>>>,
    /// Blocks that wait for a thread.
    queued: Mutex<HashSet<BlockId>>,
    pool: ThreadPool,
    concurrency: usize,
    timeout: Duration,
    /// Directories in which a program goes through the files or the subdirectories.
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
    /// Returns the maximum size of an object that is fetched in one request, in bytes.
    fn max_whole_bytes(&self) -> u64 {
        MAX_WHOLE_BYTES.min(self.blocks.budget().limit() / 4)
    }

    /// Records that an object of `size` bytes was opened, and prefetches the next ones.
    fn note_open(self: &Arc<ReadaheadState>, key: &Key, size: u64) {
        let window = self.concurrency;
        self.note_name(key, EntryKind::File, Pace { size, window });
    }

    /// Records the use of a name, and prefetches the next ones in its directory.
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

    /// Lists a directory that is used sequentially. Readers will get the error themselves.
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

    /// Prefetches the next entries of a directory: files, or the content of subdirectories.
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
            // Chunks may be spread over many small directories.
            let window = match kind {
                EntryKind::File => self.concurrency.div_ceil(names.len().max(1)),
                _ => pace.window.div_ceil(names.len().max(1)),
            };
            self.note_name(directory, EntryKind::Directory, Pace { window, ..pace });
        }
    }

    /// Prefetches the first files of a directory that is likely to be next, or the content of its first subdirectories.
    /// Readers will get an error themselves.
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

    /// Queues the fetch of a block unless it is cached or queued.
    fn prefetch(self: &Arc<ReadaheadState>, id: BlockId, range: Range<u64>) {
        if self.blocks.has(&id) || !self.queued.lock().insert(id.clone()) {
            return;
        }
        let (shared, queued) = (self.clone(), id.clone());
        let is_submitted = self.pool.submit(move || {
            // A reader that came first has fetched the block itself.
            if shared.queued.lock().remove(&queued) {
                // A reader repeats a failed request and gets the error.
                let _ = shared.load(&UNLIMITED, &queued, range);
            }
        });
        if !is_submitted {
            self.queued.lock().remove(&id);
        }
    }

    /// Returns a block of the content `meta`, and fetches it if necessary. Returns `None` if that fails, if there is no
    /// room, or if version or length differ.
    fn block(
        &self,
        context: &RequestContext,
        id: &BlockId,
        range: Range<u64>,
        meta: &Meta,
    ) -> Option<Arc<Block>> {
        self.queued.lock().remove(id);
        // A prefetched block may have an older version; the second try fetches it again.
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

    /// Whether a block belongs to the content `meta`. Without ETags it does within the store's TTL.
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

    /// Whether a file is fetched within some time.
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
        // Across the end of the directory above.
        for name in ["a/c/1/0/0", "a/c/1/0/3"] {
            assert!(comes(&ahead, name), "{name}");
        }
    }
}
