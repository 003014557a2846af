//! Objects of the network fetched before they are asked for: a wrapper for who shows them as files.
//!
//! Programs open one file after the other, and each waits for a round trip. Here the order is noticed (`trail`)
//! and the next files are on their way while one is read; a file is fetched in one request, whatever parts it is
//! read in. What is fetched has the version that the reader was told, or is not used. Nothing is fetched ahead
//! where memory for it is out.

use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;

use crate::error::{Error, Result};
use crate::store::layer::Layer;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, Key, Meta, Object, PutBody, Reader, Store, Version,
};
use crate::sync::pool::Pool;
use buffer::{BlockFetch, BlockId, BufferReservation, BufferedBytes, PrefetchBuffer};
use dir_scan::{DirNames, DirScan, Next};
use reader::{ReadaheadReader, WHOLE};

mod buffer;
mod dir_scan;
mod next_dir;
mod reader;

/// Directories that are followed at a time.
const TRAILS: usize = 64;

/// The most names of a directory that are followed.
const MOST_NAMES: usize = 100_000;

/// Requests that wait for a thread.
const MOST_WAITING: usize = 4096;

/// How much is fetched ahead.
#[derive(Clone, Copy, Debug)]
pub struct ReadaheadConfig {
    /// Bytes that may be held, what is on its way included.
    pub memory: u64,
    /// Requests at a time.
    pub concurrency: usize,
    /// How long a request may take.
    pub timeout: Duration,
}

/// A store over a store that fetches what comes next.
pub struct ReadaheadStore {
    shared: Arc<ReadaheadState>,
}

struct ReadaheadState {
    inner: Arc<dyn Store>,
    stock: Arc<PrefetchBuffer>,
    pool: Pool,
    config: ReadaheadConfig,
    trails: Mutex<LruCache<Key, DirScan>>,
}

impl ReadaheadStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, config: ReadaheadConfig) -> ReadaheadStore {
        let trails =
            std::num::NonZeroUsize::new(TRAILS).map_or_else(LruCache::unbounded, LruCache::new);
        let shared = ReadaheadState {
            inner,
            stock: PrefetchBuffer::new(config.memory),
            pool: Pool::new("ahead", config.concurrency, MOST_WAITING),
            config,
            trails: Mutex::new(trails),
        };
        ReadaheadStore {
            shared: Arc::new(shared),
        }
    }

    fn opened(&self, key: &Key, meta: Meta, below: Arc<dyn Reader>) -> Arc<dyn Reader> {
        self.shared.follow(key, Some(meta.size));
        Arc::new(ReadaheadReader {
            shared: self.shared.clone(),
            key: key.clone(),
            meta,
            below,
            whole: Mutex::default(),
            next: Mutex::default(),
        })
    }
}

impl ReadaheadState {
    /// Makes a change, and drops what was fetched of the key and what is known of its directory.
    fn change<T>(&self, key: &Key, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = change();
        self.stock.forget(key);
        if let Some(directory) = key.parent() {
            self.trails().pop(&directory);
        }
        done
    }

    fn trails(&self) -> MutexGuard<'_, LruCache<Key, DirScan>> {
        self.trails.lock()
    }

    /// Notes that somebody opened an object, and has fetched what comes next.
    fn follow(self: &Arc<ReadaheadState>, key: &Key, size: Option<u64>) {
        let Some(directory) = key.parent() else {
            return;
        };
        let mut trails = self.trails();
        let trail = trails.get_or_insert_mut(directory.clone(), DirScan::default);
        let next = trail.note(key.name(), self.config.concurrency);
        let names = trail.names.clone();
        let must_list = names.is_none() && trail.waiting() == 2;
        drop(trails);
        if let (Some(next), Some(names)) = (next, names) {
            self.fetch_next(&directory, &names, &next, size);
        } else if must_list && self.inner.info().lists {
            let shared = self.clone();
            self.pool.submit(move || shared.learn(&directory, size));
        }
    }

    /// Lists a directory that somebody goes through; what fails is said to who reads.
    fn learn(self: &Arc<ReadaheadState>, directory: &Key, size: Option<u64>) {
        let Ok(names) = self.names(directory) else {
            return;
        };
        let next = {
            let mut trails = self.trails();
            let Some(trail) = trails.get_mut(directory) else {
                return;
            };
            trail.learn(names.clone(), self.config.concurrency)
        };
        if let Some(next) = next {
            self.fetch_next(directory, &names, &next, size);
        }
    }

    fn names(&self, directory: &Key) -> Result<Arc<DirNames>> {
        let mut listing = self.inner.list(directory)?;
        let mut names = Vec::new();
        while let Some(name) = listing.next()?
            && names.len() < MOST_NAMES
        {
            if name.kind == EntryKind::File {
                names.push((name.name, name.meta.map(|meta| meta.size)));
            }
        }
        Ok(Arc::new(DirNames::new(names)))
    }

    /// Has fetched what comes next: names of this directory, then of the one after it.
    fn fetch_next(
        self: &Arc<ReadaheadState>,
        directory: &Key,
        names: &DirNames,
        next: &Next,
        size: Option<u64>,
    ) {
        for place in next.places.clone() {
            let Some((name, known)) = names.at(next.order, place) else {
                return;
            };
            let length = known.or(size).unwrap_or(WHOLE);
            if let Ok(key) = directory.child(name)
                && length <= WHOLE.min(self.stock.limit() / 4)
            {
                self.fetch((key, None), 0..length);
            }
        }
        if next.beyond > 0 {
            let (shared, directory) = (self.clone(), directory.clone());
            let (order, beyond) = (next.order, next.beyond);
            self.pool
                .submit(move || shared.go_on(&directory, order, beyond, size));
        }
    }

    /// Has a piece of an object fetched, unless it is there or there is no room for it.
    fn fetch(self: &Arc<ReadaheadState>, piece: BlockId, range: Range<u64>) {
        let Some((flight, room)) = self.stock.begin(&piece, range.end - range.start) else {
            return;
        };
        let shared = self.clone();
        let refused = flight.clone();
        // A pool that is full, or a job that ends early, must not leave anybody waiting.
        let landing = FetchGuard(Some((flight, room)));
        let asked = piece.clone();
        if !self
            .pool
            .submit(move || shared.load(&asked, range, landing))
        {
            self.stock.take(&piece);
            drop(refused);
        }
    }

    fn load(&self, (key, block): &BlockId, range: Range<u64>, mut landing: FetchGuard) {
        let fetched = match block {
            None => self.inner.get(key, range.end.max(WHOLE)),
            Some(_) => self.inner.get_range(key, ByteRange::Span(range)),
        };
        landing.land(fetched);
    }

    /// Returns a piece of a version, fetched now if it is not there; nothing if there is no room for it. What came
    /// ahead is fetched again if it is of another version, or failed.
    fn piece(
        self: &Arc<ReadaheadState>,
        piece: &BlockId,
        range: Range<u64>,
        version: Version,
    ) -> Result<Option<Arc<BufferedBytes>>> {
        if let Some(flight) = self.stock.get(piece)
            && let Ok(Some(held)) = flight.wait(self.config.timeout)
            && held.object.version == version
        {
            return Ok(Some(held));
        }
        self.stock.take(piece);
        let Some((flight, room)) = self.stock.begin(piece, range.end - range.start) else {
            return Ok(None);
        };
        self.load(piece, range, FetchGuard(Some((flight.clone(), room))));
        let held = flight.wait(self.config.timeout);
        match &held {
            Ok(Some(_)) => {}
            _ => drop(self.stock.take(piece)),
        }
        held.map_err(|error| error.about(&piece.0))
    }
}

/// Lands a flight whatever becomes of who fetches.
struct FetchGuard(Option<(Arc<BlockFetch>, BufferReservation)>);

impl FetchGuard {
    fn land(&mut self, fetched: Result<Option<Object>>) {
        if let Some((flight, room)) = self.0.take() {
            flight.land(fetched, room);
        }
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.land(Err(Error::unavailable("", "was not fetched")));
    }
}

impl Layer for ReadaheadStore {
    fn below(&self) -> &dyn Store {
        &*self.shared.inner
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let below = self.shared.inner.open(key, known)?;
        let meta = match known {
            Some(meta) => *meta,
            None => below.meta()?,
        };
        Ok(self.opened(key, meta, below))
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = || self.shared.inner.put(key, body, condition);
        self.shared.change(key, put)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.shared.inner.erase(key, condition);
        self.shared.change(key, erase)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        let erase = || self.shared.inner.erase_folder(prefix);
        self.shared.change(prefix, erase)
    }
}
