//! An array opened: its metadata, how its chunks decode, and what of them is in memory.
//!
//! To read, `flat_file` puts pieces together into ranges of bytes, `chunk` and `shard` load one piece, `decoder` says
//! where it is stored and how it decodes, and `versions` which content of a stored chunk is the current one. To write,
//! `write` puts ranges of bytes into pieces, and `dirty_chunks` holds these until `flush` has stored them. `content`
//! tells one content of an array from another. An array that cannot be decoded is opened all the same; its reads return
//! the error.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::{DirtyBytes, DirtyChunks};
use crate::array::piece::{CacheKey, Cached};
use crate::array::presence::LastSeen;
use crate::array::read_order::LastOrder;
use crate::array::readers::ReaderCache;
use crate::array::spill::Spill;
use crate::array::unread::UnreadPieces;
use crate::array::versions::{ChunkVersions, LockedVersions, VersionState};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Array;
use crate::stats::Stats;
use crate::store::layer::disk_cache::CacheNamespace;
use crate::store::{Key, QueryStamp, Store, Version};
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::descriptors;
use crate::sync::descriptors::ClosesFiles;
use crate::sync::pool::ThreadPool;
use crate::sync::single_flight::SingleFlight;

pub mod access_pattern;
mod arrays;
mod chunk;
mod chunk_scan;
mod conditions;
mod content;
mod content_number;
mod decoder;
mod dirty_chunk;
mod dirty_chunks;
pub mod flat_file;
mod flush;
mod gather;
mod given;
mod lengths;
mod open_arrays;
mod pages;
mod parts;
mod piece;
mod piece_use;
mod prefetch;
mod presence;
pub mod ragged;
mod read_order;
mod readers;
mod shard;
mod shard_file;
mod shown_pieces;
mod spill;
mod spill_file;
mod stored_chunks;
pub mod strided_file;
mod touched;
mod unread;
mod versions;
mod write;

pub use crate::array::arrays::Arrays;
pub use crate::array::chunk_scan::{ChunkScan, ScanDetail};
pub use crate::array::content::ArrayState;
pub use crate::array::lengths::RegionVersion;
pub use crate::array::shard_file::ShardFile;
pub use crate::array::spill_file::SpillConfig;
pub use crate::array::stored_chunks::{FoundChunk, StoredChunks};
pub use crate::array::touched::{TouchedChunks, take_touched};
pub use crate::array::write::WriteSource;

/// Limits of decoding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that decoded chunks and chunks in flight may hold together.
    pub memory: u64,
    /// The most decoded bytes of one chunk.
    pub max_chunk: u64,
    /// How long a read may wait.
    pub timeout: Duration,
    /// How many chunks may be fetched at a time; 0 for a store on this machine, where the number of cores limits.
    pub fetches: usize,
    /// Whether chunks may be written although their codecs lose something each time that they encode.
    pub lossy: bool,
}

/// Memory, threads and counters that all arrays of a mount share.
pub struct Engine {
    cache: Arc<Cache<CacheKey, Cached>>,
    /// What open arrays count in.
    metadata: Arc<MemoryBudget>,
    /// Where evicted pieces go that will be read again.
    spill: Option<Arc<Spill>>,
    /// Where lengths are kept that took long to find.
    disk: Option<CacheNamespace>,
    /// Decodes what will be read next.
    decoders: ThreadPool,
    /// How many pieces are loaded at a time.
    loads: u64,
    /// How many threads encode at a time.
    encoders: usize,
    readers: Arc<ReaderCache>,
    stats: Arc<Stats>,
    limits: Limits,
    last_id: AtomicU64,
    /// Bytes that were written and are not stored yet.
    dirty_bytes: Arc<DirtyBytes>,
    /// The arrays that have them.
    writers: Mutex<Vec<Weak<OpenArray>>>,
    /// The files whose lengths are being found, by array and name.
    lengths: SingleFlight<(u64, String), u64>,
}

/// What an engine keeps on disk.
#[derive(Default)]
pub struct EngineDisk {
    /// Where lengths go that took long to find; nothing to find them again.
    pub cache: Option<CacheNamespace>,
    /// Where pieces go that are evicted before a reader in order has read them.
    pub spill: SpillConfig,
}

/// The part of the memory that open arrays may take beside their chunks: one in so many bytes.
const ARRAYS_SHARE: u64 = 4;

/// The most bytes that open arrays may take: to open one again costs little.
const MAX_ARRAYS_BYTES: u64 = 32 << 20;

/// The most batches of chunks that wait to be decoded ahead.
const MAX_QUEUED: usize = 1024;

impl Engine {
    /// Builds an engine with as many decoding threads as there are cores, or as chunks may be fetched at a time if
    /// those are more: a thread that waits for the network needs no core.
    pub fn new(limits: Limits, stats: Arc<Stats>) -> Arc<Engine> {
        let budget = MemoryBudget::new(limits.memory, stats.clone());
        Engine::within(budget, limits, stats, EngineDisk::default())
    }

    /// Like `new`, with memory of `budget`, and with what may be kept on disk.
    pub fn within(
        budget: Arc<MemoryBudget>,
        limits: Limits,
        stats: Arc<Stats>,
        disk: EngineDisk,
    ) -> Arc<Engine> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let spill = Spill::open(&disk.spill, limits.memory, stats.clone()).map(Arc::new);
        let (file, counters) = (spill.clone(), stats.clone());
        let on_evict = move |key: &CacheKey, value: &Cached| {
            counters.cache_evicted_chunks.add(1);
            if let Some(file) = &file {
                file.write_evicted((key.0, key.2), value);
            }
        };
        let readers: Arc<ReaderCache> = Arc::default();
        let closing: Weak<dyn ClosesFiles> = Arc::downgrade(&readers) as _;
        descriptors::add_cache(closing);
        Arc::new(Engine {
            metadata: budget.part(MAX_ARRAYS_BYTES.min(budget.limit() / ARRAYS_SHARE)),
            readers,
            cache: Cache::new(budget, Priority::Used, Some(Box::new(on_evict))),
            spill,
            disk: disk.cache,
            decoders: ThreadPool::new("decode", cores.max(limits.fetches), MAX_QUEUED),
            loads: cores.max(limits.fetches) as u64 + 1,
            encoders: cores.max(limits.fetches),
            stats,
            limits,
            last_id: AtomicU64::new(0),
            dirty_bytes: Arc::default(),
            writers: Mutex::default(),
            lengths: SingleFlight::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Weak<OpenArray>>> {
        self.writers.lock()
    }

    /// Takes room for an array that is going to be opened, if there is some.
    fn room_of(&self, array: &Array) -> Option<Reservation> {
        self.metadata
            .try_reserve(OVERHEAD + FORMS * array.metadata_bytes())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.timeout
    }
}

fn array_of(entry: &NodeEntry) -> Result<&Array> {
    let array = entry.array();
    array.ok_or_else(|| Error::invalid(&entry.path, "is not an array"))
}

/// The length of a file that had to be read to know it, in bytes, or that it is too large to be read; and the version of
/// the chunks that it was made of.
#[derive(Clone)]
struct VersionedLength {
    version: Version,
    length: Result<u64>,
}

/// An array, ready to be read.
pub struct OpenArray {
    id: u64,
    path: Key,
    /// When its documents had last been changed when it was opened.
    modified: SystemTime,
    /// The version of the node's documents that were last found to describe this array.
    same_version: AtomicU64,
    /// The metadata, without attributes: nobody needs these to read data, and others may hold them.
    array: Arc<Array>,
    /// Bytes of an element; 0 if that is unknown.
    element: usize,
    stored: Result<Grid>,
    decoder: Result<Decoder>,
    /// What readers in order have still to read; nothing of an array that cannot be decoded.
    unread: Option<Arc<UnreadPieces>>,
    versions: ChunkVersions,
    /// What was written and is not stored yet.
    dirty: Arc<DirtyChunks>,
    /// Lengths of files that had to be read to know them.
    lengths: Mutex<HashMap<String, VersionedLength>>,
    /// Whether next to nothing of it was stored, and how old the answer is.
    sparse: Mutex<Option<(bool, QueryStamp)>>,
    /// When its document was last found in the store because a chunk was not.
    seen: LastSeen,
    /// How its files were read last.
    order: LastOrder,
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
    /// The memory that it counts in for as long as anybody holds it; nothing if there was none left.
    room: Option<Reservation>,
}

/// What an open array takes beside its metadata, which it has in several forms, in bytes.
const OVERHEAD: u64 = 2 << 10;

/// How often it has its metadata: as they are, as a grid, and as the codecs of its chunks.
const FORMS: u64 = 3;

impl OpenArray {
    /// Returns a number that no other open array has: the same as long as the metadata mean the same files.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn new(
        entry: &NodeEntry,
        (array, dirty): (Arc<Array>, Arc<DirtyChunks>),
        hierarchy: Arc<Hierarchy>,
        (engine, room): (Arc<Engine>, Option<Reservation>),
    ) -> Result<OpenArray> {
        let stored = Grid::of(&array).map_err(|error| error.about(&entry.path));
        let decoder = stored.as_ref().map_err(Error::clone).and_then(|stored| {
            let decoder = Decoder::new(&array, stored, &engine.limits);
            decoder.map_err(|error| error.about(&entry.path))
        });
        let id = engine.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let unread = decoder.as_ref().ok().and_then(|decoder| {
            let element = array.element_size().ok()?;
            // An uncompressed chunk is read again as it is stored.
            let is_plain = decoder.pipeline.is_identity() && decoder.pipeline.shards().is_empty();
            let unread = UnreadPieces::new(element, decoder.pieces.clone(), !is_plain);
            if let Some(spill) = engine.spill.as_ref().filter(|_| unread.spills()) {
                spill.add(id, &unread);
            }
            Some(unread)
        });
        Ok(OpenArray {
            unread,
            id,
            element: array.element_size().unwrap_or(0),
            stored,
            decoder,
            dirty,
            lengths: Mutex::default(),
            sparse: Mutex::default(),
            order: LastOrder::default(),
            seen: LastSeen::default(),
            versions: ChunkVersions::new(hierarchy.store().info()),
            same_version: AtomicU64::new(entry.version),
            path: entry.path.clone(),
            modified: entry.modified,
            room,
            array,
            hierarchy,
            engine,
        })
    }

    /// Returns the metadata, without attributes.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &Key {
        &self.path
    }

    /// Returns when the documents of the array had last been changed when it was opened.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Returns the grid of chunks as stored; it exists whether or not they decode.
    pub fn stored_grid(&self) -> Result<&Grid> {
        self.stored.as_ref().map_err(Error::clone)
    }

    /// Fails if the array cannot be decoded.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Whether stored chunks are their own decoded form, in files of this machine, in rows of at least `run` bytes:
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

    /// Returns the keys that a chunk may be stored under.
    fn keys(&self, indices: &[u64]) -> Result<Vec<Key>> {
        self.array
            .keys
            .candidates(indices)
            .into_iter()
            .map(Key::new)
            .collect()
    }

    /// Asks the store; returns its answer and how old that is.
    fn ask<T>(&self, question: impl FnOnce(&dyn Store) -> T) -> (T, QueryStamp) {
        let store = &**self.hierarchy.store();
        store.info().ask(|| question(store))
    }

    /// Returns what is known of the version of a stored chunk.
    fn version_state(&self, decoder: &Decoder, stored: u64) -> VersionState {
        self.version_in(&self.versions.lock(), decoder, stored, self.versions.now())
    }

    /// Like `version_state`, in the locked table.
    fn version_in(
        &self,
        versions: &LockedVersions<'_>,
        decoder: &Decoder,
        stored: u64,
        now: Instant,
    ) -> VersionState {
        versions.of(stored, now, || self.stored_keys(decoder, stored))
    }

    /// Returns the keys that a stored chunk may have.
    fn stored_keys(&self, decoder: &Decoder, stored: u64) -> Result<Vec<Key>> {
        self.keys(&decoder.stored.indices(ChunkIndex(stored)))
    }

    fn decoder(&self) -> Result<&Decoder> {
        self.decoder.as_ref().map_err(Error::clone)
    }

    /// Whether a node is this array with the same files: only attributes may have changed.
    fn is_same(&self, found: &NodeEntry) -> bool {
        if found.version == self.same_version.load(Ordering::Relaxed) {
            return true;
        }
        let is_like =
            |array: &Array| array.shape == self.array.shape && array.is_stored_like(&self.array);
        let is_same = found.array().is_some_and(is_like);
        if is_same {
            self.same_version.store(found.version, Ordering::Relaxed);
        }
        is_same
    }

    /// Fails with `Changed` if the metadata are no longer those that the array was opened with.
    fn check_metadata(&self) -> Result<()> {
        match self.hierarchy.node(&self.path)? {
            Some(found) if self.is_same(&found) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    /// Fails with `Changed` if the metadata give stored chunks another meaning by now; the shape may be another.
    fn check_chunks_hold(&self) -> Result<()> {
        let found = self.hierarchy.node(&self.path)?;
        let array = found.as_deref().and_then(NodeEntry::array);
        match array {
            Some(array) if array.is_stored_like(&self.array) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    fn changed(&self) -> Error {
        let why = "the metadata changed while a file was open";
        Error::new(Kind::Changed, &self.path, why)
    }

    /// Whether the metadata are known to be those that the array was opened with, without asking.
    fn metadata_hold(&self) -> bool {
        let known = self.hierarchy.node_now(&self.path);
        matches!(known, Known::Is(found) if self.is_same(&found))
    }
}
