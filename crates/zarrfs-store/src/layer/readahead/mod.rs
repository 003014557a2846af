//! Prefetches files and blocks of a store on the network.
//!
//! Programs open one file after the other, and each open costs a round trip. This layer detects the order (`dir_scan`)
//! and prefetches the next files, including those of the next directory. A short file is fetched in one request,
//! however a program reads it, a longer one in blocks. All bytes of a reader belong to the version that it was opened
//! with: a prefetched block is only used if it has that version, so no invalidation is needed. If a block is not
//! available, the wrapped store answers. Blocks are charged to a part of the memory budget, and nothing is prefetched
//! if the budget is used up.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::layer::Layer;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::pool::ThreadPool;
use crate::sync::read_bytes::part;
use crate::{ByteRange, Key, Meta, Object, Reader, Store};
use dir_scan::DirScans;
use zarr_format::error::{Error, Result};

mod dir_scan;

/// Configuration of the prefetching of files and blocks.
#[derive(Clone, Debug)]
pub struct ReadaheadConfig {
    /// The budget to which the memory of prefetched blocks is charged.
    pub memory: Arc<MemoryBudget>,
    /// Maximum number of concurrent requests that prefetch.
    pub concurrency: usize,
    /// How long a reader waits for a block that is being fetched.
    pub timeout: Duration,
}

/// A store that prefetches the objects that a program will probably read next.
pub struct ReadaheadStore {
    inner: Arc<dyn Store>,
    blocks: Arc<BlockCache>,
    scans: Arc<DirScans>,
}

impl ReadaheadStore {
    /// Wraps a store, and prefetches its objects as `config` says.
    pub fn new(inner: Arc<dyn Store>, config: &ReadaheadConfig) -> ReadaheadStore {
        let blocks = Arc::new(BlockCache::new(inner.clone(), config));
        let scans = DirScans::new(blocks.clone(), config.concurrency);
        ReadaheadStore {
            inner,
            blocks,
            scans: Arc::new(scans),
        }
    }
}

impl Layer for ReadaheadStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let below = self.inner.open(context, key, known)?;
        let meta = match known {
            Some(meta) => *meta,
            None => below.meta(context)?,
        };
        self.scans.record_open(key, meta.size);
        let reader = ReadaheadReader::new(&self.blocks, key, meta, below);
        Ok(Arc::new(reader))
    }
}

/// Length of the blocks in which an object is fetched that is too long for one request, in bytes.
const BLOCK: u64 = 4 << 20;

/// Identifies a whole object, or a block of a longer object.
#[derive(Clone, PartialEq, Eq, Hash)]
struct BlockId {
    key: Key,
    /// Number of the block, or `None` for the whole object.
    number: Option<u64>,
}

struct Block {
    object: Object,
    request_time: Instant,
    _reservation: Reservation,
}

/// The blocks in memory, and the threads that prefetch blocks.
struct BlockCache {
    inner: Arc<dyn Store>,
    cache: Arc<Cache<BlockId, Arc<Block>>>,
    /// Blocks whose prefetch waits for a thread.
    queued: Mutex<HashSet<BlockId>>,
    pool: ThreadPool,
    timeout: Duration,
}

impl BlockCache {
    /// Builds an empty cache, which takes at most a quarter of the memory budget.
    fn new(inner: Arc<dyn Store>, config: &ReadaheadConfig) -> BlockCache {
        let memory = config.memory.part(config.memory.limit() / 4);
        BlockCache {
            inner,
            cache: Cache::new(memory, Priority::Speculative, None),
            queued: Mutex::default(),
            pool: ThreadPool::new("ahead", config.concurrency, 4096),
            timeout: config.timeout,
        }
    }

    /// Returns the maximum size of an object that is fetched in one request, in bytes.
    fn max_whole_bytes(&self) -> u64 {
        (self.cache.budget().limit() / 4).min(16 << 20)
    }

    #[cfg(test)]
    fn has_whole(&self, key: Key) -> bool {
        self.cache.get(&BlockId { key, number: None }).is_some()
    }

    /// Queues a block to be prefetched, unless it is in memory or already queued.
    fn prefetch(self: &Arc<BlockCache>, id: BlockId, range: Range<u64>) {
        if self.cache.has(&id) || !self.queued.lock().insert(id.clone()) {
            return;
        }
        let (blocks, queued) = (self.clone(), id.clone());
        let is_submitted = self.pool.submit(move || {
            // A reader that needs the block first takes it out of the queue and fetches it itself.
            if blocks.queued.lock().remove(&queued) {
                // An error is ignored: a reader repeats the request and gets the error itself.
                let _ = blocks.load(&UNLIMITED, &queued, range);
            }
        });
        if !is_submitted {
            self.queued.lock().remove(&id);
        }
    }

    /// Returns a block of an object with the metadata `meta`, and fetches the block if necessary. Returns `None` if the
    /// fetch fails, the memory budget is used up, or the block has another version or length.
    fn block(
        &self,
        context: &RequestContext,
        id: &BlockId,
        range: Range<u64>,
        meta: &Meta,
    ) -> Option<Arc<Block>> {
        self.queued.lock().remove(id);
        // A prefetched block may have an older version: it is then fetched once more.
        for _ in 0..2 {
            let block = self.load(context, id, range.clone()).ok()?;
            let is_complete = block.object.bytes.len() as u64 == range.end - range.start;
            if self.is_of(&block, meta) && is_complete {
                return Some(block);
            }
            self.cache.forget(id);
        }
        None
    }

    /// Whether a block has the version of the metadata `meta`. If only one of the two answers had an ETag, the same
    /// size and time suffice within the store's TTL.
    fn is_of(&self, block: &Block, meta: &Meta) -> bool {
        let is_exact = block.object.content() == meta.content();
        let may_be = || {
            block.object.meta().may_be_of(meta) && self.inner.info().is_fresh(block.request_time)
        };
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
        self.cache.load(context, id, deadline, fetch)
    }

    fn fetch(&self, context: &RequestContext, id: &BlockId, range: Range<u64>) -> Result<Block> {
        let key = &id.key;
        let reserve = |bytes| {
            let reservation = self.cache.budget().try_reserve(bytes);
            reservation
                .ok_or_else(|| Error::unavailable(key, "not enough free memory to read ahead"))
        };
        let length = range.end - range.start;
        let request_time = self.inner.info().clock.now();
        let mut reservation = reserve(length)?;
        let object = match id.number {
            None => self
                .inner
                .get(context, key, length.max(self.max_whole_bytes()))?,
            Some(_) => self.inner.get_range(context, key, ByteRange::Span(range))?,
        };
        let object = object.ok_or_else(|| Error::not_found(key))?;
        let fetched = object.bytes.len() as u64;
        if fetched > length {
            reservation = reserve(fetched)?;
        }
        reservation.shrink(fetched);
        Ok(Block {
            object,
            request_time,
            _reservation: reservation,
        })
    }
}

/// An open object, read from prefetched blocks.
struct ReadaheadReader {
    blocks: Arc<BlockCache>,
    key: Key,
    meta: Meta,
    below: Arc<dyn Reader>,
    /// The offset at which the next sequential read is expected.
    next: Mutex<u64>,
}

impl ReadaheadReader {
    /// Opens an object with the metadata `meta`. Reads without a prefetched block go to `below`.
    fn new(
        blocks: &Arc<BlockCache>,
        key: &Key,
        meta: Meta,
        below: Arc<dyn Reader>,
    ) -> ReadaheadReader {
        ReadaheadReader {
            blocks: blocks.clone(),
            key: key.clone(),
            meta,
            below,
            next: Mutex::default(),
        }
    }

    fn id(&self, number: Option<u64>) -> BlockId {
        let key = self.key.clone();
        BlockId { key, number }
    }

    /// Returns the block with the whole object if it was prefetched and has the reader's version.
    fn fetched(&self) -> Option<Arc<Block>> {
        let block = self.blocks.cache.get(&self.id(None))?;
        let is_whole = block.object.bytes.len() as u64 == self.meta.size;
        (is_whole && self.blocks.is_of(&block, &self.meta)).then_some(block)
    }

    /// Whether a read begins near the end of the last one: the kernel's requests may overtake each other.
    fn is_sequential(&self, offset: u64, end: u64) -> bool {
        let mut next = self.next.lock();
        let is_near = offset.abs_diff(*next) <= BLOCK;
        *next = if is_near { end.max(*next) } else { end };
        is_near
    }

    fn block_range(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(BLOCK);
        start.min(self.meta.size)..start.saturating_add(BLOCK).min(self.meta.size)
    }

    /// Reads a range of the object from blocks, and prefetches the next four blocks. Returns `None` if a block is not
    /// available.
    fn read_blocks(&self, context: &RequestContext, range: Range<u64>) -> Option<Vec<u8>> {
        let (first, last) = (range.start / BLOCK, range.end.saturating_sub(1) / BLOCK);
        for number in first.saturating_add(1)..=last.saturating_add(4) {
            let block = self.block_range(number);
            if !block.is_empty() {
                self.blocks.prefetch(self.id(Some(number)), block);
            }
        }
        let length = usize::try_from(range.end - range.start).unwrap_or_default();
        let mut out = Vec::with_capacity(length);
        for number in first..=last {
            let span = self.block_range(number);
            let id = self.id(Some(number));
            let block = self.blocks.block(context, &id, span.clone(), &self.meta)?;
            let (start, end) = (range.start.max(span.start), range.end.min(span.end));
            out.extend_from_slice(part(
                &block.object.bytes,
                start - span.start..end - span.start,
            ));
        }
        // The block two before the first one is dropped from memory. The one after it stays, since requests may
        // overtake each other.
        if let Some(passed) = first.checked_sub(2) {
            self.blocks.cache.forget(&self.id(Some(passed)));
        }
        Some(out)
    }
}

impl Reader for ReadaheadReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if let Some(block) = self.fetched() {
            return Ok(part(&block.object.bytes, offset..end).to_vec());
        }
        let is_sequential = self.is_sequential(offset, end);
        let is_short = self.meta.size <= self.blocks.max_whole_bytes();
        if is_short && (offset == 0 || is_sequential) {
            let whole = 0..self.meta.size;
            let block = self
                .blocks
                .block(context, &self.id(None), whole, &self.meta);
            if let Some(block) = block {
                return Ok(part(&block.object.bytes, offset..end).to_vec());
            }
        } else if is_sequential && let Some(bytes) = self.read_blocks(context, offset..end) {
            return Ok(bytes);
        }
        self.below.read_at(context, offset, len)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
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

    fn is_fetched(ahead: &ReadaheadStore, name: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        let has = || ahead.blocks.has_whole(key(name));
        while !has() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        has()
    }

    #[test]
    fn readahead_continues_into_the_next_directories() {
        let places = (0..80).map(|place| (place / 16, place / 4 % 4, place % 4));
        let ahead = ahead(places.map(|(z, y, x)| format!("a/c/{z}/{y}/{x}")));
        for name in ["a/c/0/1/2", "a/c/0/1/3"] {
            read(&ahead, name);
        }
        for name in ["a/c/0/2/0", "a/c/0/2/3", "a/c/0/3/3"] {
            assert!(is_fetched(&ahead, name), "{name}");
        }
        for (z, y) in [(0, 2), (0, 3)] {
            for x in 0..4 {
                read(&ahead, &format!("a/c/{z}/{y}/{x}"));
            }
        }
        // The program is at the end of `a/c/0`, so the first files of `a/c/1` are prefetched.
        for name in ["a/c/1/0/0", "a/c/1/0/3"] {
            assert!(is_fetched(&ahead, name), "{name}");
        }
    }
}
