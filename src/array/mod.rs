//! An array opened: its metadata, how its chunks decode, and what of them is in memory.
//!
//! `decoder` knows how, `chunk` and `shard` load and decode one piece, `flat` puts chunks together into
//! ranges of a flat file, `generation` knows which content of a stored key is the current one. `write` puts
//! ranges of a flat file into pieces, `pending` holds those until `flush` has encoded them. An array that
//! cannot be decoded is opened all the same; its reads say why.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::array::chunk::{CacheKey, Cached};
use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::{DirtyBytes, DirtyChunks};
use crate::array::readers::ReaderCache;
use crate::array::spill::{Spill, SpillKey};
use crate::array::versions::{ChunkVersions, Generation};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Array;
use crate::stats::Stats;
use crate::store::Key;
use crate::store::layer::disk_cache::CacheNamespace;
use crate::sync::budget::{MemoryBudget, Priority};
use crate::sync::cache::Cache;
use crate::sync::pool::Pool;

pub mod access_pattern;
pub mod chunk;
mod decoder;
mod dirty_chunks;
pub mod flat_file;
mod flush;
mod prefetch;
pub mod ragged;
mod readers;
mod shard;
mod spill;
pub mod versions;
mod write;

/// Limits of decoding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that decoded chunks and chunks in flight may hold together.
    pub memory: u64,
    /// Decoded bytes of one chunk.
    pub max_chunk: u64,
    /// How long a read may take.
    pub timeout: Duration,
    /// How many chunks may be fetched at a time; 0 for a store on this machine, which the cores alone limit.
    pub fetches: usize,
    /// Whether chunks are written although their codecs lose something each time that they encode.
    pub lossy: bool,
}

/// What all arrays of a mount share: memory, threads, counters.
pub struct Engine {
    cache: Arc<Cache<CacheKey, Cached>>,
    /// Where decoded pieces go that memory has no room for.
    spill: Option<Arc<Spill>>,
    /// Decodes what will be read next on the other cores.
    decoders: Pool,
    /// How many threads encode at a time.
    encoders: usize,
    stats: Arc<Stats>,
    limits: Limits,
    last_id: AtomicU64,
    /// What was written and is not stored yet, and the arrays that have it.
    backlog: Arc<DirtyBytes>,
    writers: Mutex<Vec<Weak<OpenArray>>>,
}

/// Chunks waiting to be decoded ahead; more are not asked for.
const MOST_AHEAD: usize = 1024;

impl Engine {
    /// Builds an engine with as many decoding threads as there are cores, or as chunks may be fetched at a time:
    /// a thread that waits for the network needs no core.
    pub fn new(limits: Limits, stats: Arc<Stats>) -> Arc<Engine> {
        let budget = MemoryBudget::new(limits.memory, stats.clone());
        Engine::within(budget, limits, stats, None)
    }

    /// Like `new`, with memory of `budget`; decoded pieces that it has no room for while they are read go to
    /// `drawer`.
    pub fn within(
        budget: Arc<MemoryBudget>,
        limits: Limits,
        stats: Arc<Stats>,
        drawer: Option<CacheNamespace>,
    ) -> Arc<Engine> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let spill = drawer.map(|drawer| Arc::new(Spill(drawer)));
        let (kept, counters) = (spill.clone(), stats.clone());
        let on_evict = move |key: &CacheKey, value: &Cached| {
            counters.cache_evicted_chunks.add(1);
            if let Some(spill) = &kept {
                spill.keep(key.2, value);
            }
        };
        Arc::new(Engine {
            cache: Cache::new(budget, Priority::Used, Some(Box::new(on_evict))),
            spill,
            decoders: Pool::new("decode", cores.max(limits.fetches), MOST_AHEAD),
            encoders: cores.max(limits.fetches),
            stats,
            limits,
            last_id: AtomicU64::new(0),
            backlog: Arc::default(),
            writers: Mutex::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Weak<OpenArray>>> {
        self.writers.lock()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.timeout
    }
}

/// The arrays of a hierarchy that are open.
pub struct Arrays {
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
    open: Mutex<LruCache<Key, Arc<OpenArray>>>,
    /// What was written to arrays and is not stored yet; stays where it is while an array's metadata change.
    pending: Mutex<HashMap<Key, Arc<DirtyChunks>>>,
}

/// How many arrays stay open though nobody reads them.
const STAY_OPEN: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

impl Arrays {
    /// Builds the set of arrays of a hierarchy; none is open yet.
    pub fn new(hierarchy: Arc<Hierarchy>, engine: Arc<Engine>) -> Arrays {
        Arrays {
            hierarchy,
            engine,
            open: Mutex::new(LruCache::new(STAY_OPEN)),
            pending: Mutex::default(),
        }
    }

    /// Returns what is pending of an array, whoever wrote it.
    fn pending(&self, found: &NodeEntry) -> Result<Arc<DirtyChunks>> {
        let array = array_of(found)?;
        let mut all = self.pending.lock();
        if let Some(pending) = all.get(&found.path)
            && pending.fits(array)
        {
            return Ok(pending.clone());
        }
        if all.len() >= 2 * STAY_OPEN.get() {
            all.retain(|_, pending| Arc::strong_count(pending) > 1 || !pending.is_empty());
        }
        let pending = Arc::new(DirtyChunks::new(array, self.engine.backlog.clone()));
        all.insert(found.path.clone(), pending.clone());
        Ok(pending)
    }

    /// Stores all that was written to the arrays at a path and below it.
    pub fn flush_below(&self, path: &Key) -> Result<()> {
        let mut outcome = Ok(());
        for array in self.written_below(path) {
            outcome = outcome.and(array.flush());
        }
        outcome
    }

    /// Drops all that was written to the arrays at a path and below it, and is not stored.
    pub fn discard_below(&self, path: &Key) {
        for array in self.written_below(path) {
            array.discard();
        }
    }

    /// Whether something may have been written that is not stored.
    pub fn are_written(&self) -> bool {
        !self.written_below(&Key::root()).is_empty()
    }

    fn written_below(&self, path: &Key) -> Vec<Arc<OpenArray>> {
        let writers = self.engine.writers();
        let writers = writers.iter().filter_map(Weak::upgrade);
        writers
            .filter(|array| array.found.path.below(path).is_some())
            .collect()
    }

    /// Opens an array that was found. As long as its metadata do not change it is the same one each time.
    pub fn open(&self, found: &Arc<NodeEntry>) -> Result<Arc<OpenArray>> {
        let mut open = self.open.lock();
        if let Some(array) = open.get(&found.path)
            && array.found.version == found.version
        {
            return Ok(array.clone());
        }
        let array = Arc::new(OpenArray::new(
            found.clone(),
            self.pending(found)?,
            self.hierarchy.clone(),
            self.engine.clone(),
        )?);
        if !array.pending.is_empty() {
            self.engine.note_writer(&array);
        }
        open.put(found.path.clone(), array.clone());
        Ok(array)
    }
}

fn array_of(found: &NodeEntry) -> Result<&Array> {
    let array = found.array();
    array.ok_or_else(|| Error::invalid(&found.path, "is not an array"))
}

/// An array, ready to be read.
pub struct OpenArray {
    id: u64,
    found: Arc<NodeEntry>,
    array: Array,
    /// Bytes of an element; 0 if that is not known.
    element: usize,
    stored: Result<Grid>,
    decoder: Result<Decoder>,
    /// Of what the pieces are that may go to disk; nothing if none do.
    origin: Option<Arc<SpillKey>>,
    generations: ChunkVersions,
    opened: ReaderCache,
    /// What was written and is not stored yet.
    pending: Arc<DirtyChunks>,
    /// Lengths of files that are known only once they were read, and of which content.
    lengths: Mutex<HashMap<String, (u64, u64)>>,
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
}

impl OpenArray {
    fn new(
        found: Arc<NodeEntry>,
        pending: Arc<DirtyChunks>,
        hierarchy: Arc<Hierarchy>,
        engine: Arc<Engine>,
    ) -> Result<OpenArray> {
        let array = array_of(&found)?.clone();
        let stored = Grid::of(&array).map_err(|error| error.about(&found.path));
        let decoder = stored.as_ref().map_err(Error::clone).and_then(|stored| {
            let decoder = Decoder::new(&array, stored, &engine.limits);
            decoder.map_err(|error| error.about(&found.path))
        });
        let origin = engine.spill.as_ref().and_then(|_| {
            let decoder = decoder.as_ref().ok()?;
            let element = array.element_size().ok()?;
            let (path, metadata) = (found.path.clone(), found.version);
            // The bytes of an uncompressed chunk are on disk as they were stored.
            let is_same = decoder.pipeline.is_identity() && decoder.pipeline.shards().is_empty();
            (!is_same).then(|| SpillKey::new(path, metadata, element, decoder.pieces.clone()))
        });
        Ok(OpenArray {
            origin,
            id: engine.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            element: array.element_size().unwrap_or(0),
            stored,
            decoder,
            opened: ReaderCache::default(),
            pending,
            lengths: Mutex::default(),
            generations: ChunkVersions::new(hierarchy.store().info()),
            found,
            array,
            hierarchy,
            engine,
        })
    }

    /// Returns the metadata.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns where and when the array was found.
    pub fn found(&self) -> &Arc<NodeEntry> {
        &self.found
    }

    /// Returns the grid of chunks as stored; it exists whether or not they decode.
    pub fn stored_grid(&self) -> Result<&Grid> {
        self.stored.as_ref().map_err(Error::clone)
    }

    /// Says why the array cannot be decoded, if that is so.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Whether stored chunks are their own decoded form, on this machine, in rows of at least `run` bytes:
    /// then the kernel's cache of the files is all the cache they need.
    fn reads_direct(&self, run: u64) -> bool {
        let Ok(decoder) = self.decoder() else {
            return false;
        };
        let row = decoder.stored.chunk_shape().last().copied().unwrap_or(1);
        decoder.pipeline.is_identity()
            && decoder.pipeline.shards().is_empty()
            && self.hierarchy.store().info().folder.is_some()
            && row.saturating_mul(self.element as u64) >= run
    }

    /// Returns what is known of a stored chunk.
    fn generation(&self, decoder: &Decoder, stored: u64, now: Instant) -> Generation {
        let keys = || self.keys(&decoder.stored.indices(ChunkIndex(stored)));
        self.generations.of(stored, now, keys)
    }

    fn lengths(&self) -> MutexGuard<'_, HashMap<String, (u64, u64)>> {
        self.lengths.lock()
    }

    fn decoder(&self) -> Result<&Decoder> {
        self.decoder.as_ref().map_err(Error::clone)
    }

    /// Tells one content of the array from another: changes when a stored key that was read is seen to have
    /// changed. Asks the store about everything that was read, so it may wait; nothing if that is too much.
    pub fn content(&self) -> Result<Option<u64>> {
        let Ok(decoder) = self.decoder() else {
            return Ok(None);
        };
        let keys = |stored| self.keys(&decoder.stored.indices(ChunkIndex(stored)));
        let Some(stale) = self.generations.stale(keys) else {
            return Ok(None);
        };
        for number in stale {
            self.ask_generation(decoder, number)?;
        }
        Ok(Some(self.content_now()))
    }

    /// Like `content`, by what is known already.
    pub fn content_now(&self) -> u64 {
        let changes = self.generations.changes();
        let written = self.pending.changes();
        self.found
            .version
            .wrapping_add(changes)
            .wrapping_add(written)
    }

    /// Whether a node is this array as far as its files are concerned: attributes may have changed.
    fn is_same(&self, found: &NodeEntry) -> bool {
        let is_like =
            |array: &Array| array.shape == self.array.shape && array.is_stored_like(&self.array);
        found.version == self.found.version || found.array().is_some_and(is_like)
    }

    /// Says `Changed` if the metadata are no longer those that the array was opened with.
    fn check_metadata(&self) -> Result<()> {
        match self.hierarchy.node(&self.found.path)? {
            Some(found) if self.is_same(&found) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    /// Says `Changed` if stored chunks mean something else by now; the shape may be another.
    fn check_chunks_hold(&self) -> Result<()> {
        let found = self.hierarchy.node(&self.found.path)?;
        let array = found.as_deref().and_then(NodeEntry::array);
        match array {
            Some(array) if array.is_stored_like(&self.array) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    fn changed(&self) -> Error {
        let why = "the metadata changed while a file was open";
        Error::new(Kind::Changed, &self.found.path, why)
    }

    /// Whether the metadata are known to be those that the array was opened with, without asking.
    fn metadata_hold(&self) -> bool {
        let known = self.hierarchy.node_now(&self.found.path);
        matches!(known, Known::Is(found) if self.is_same(&found))
    }
}
