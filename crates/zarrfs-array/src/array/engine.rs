//! What all open arrays of a mount share: memory, threads, files on disk and counters.
//!
//! Everything that is held of a store's chunks counts in one budget. What is done with it is left to the arrays.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::array::chunk::{CacheKey, Cached};
use crate::array::open_chunk::OpenChunk;
use crate::array::reader_cache::{OpenQuestion, ReaderCache};
use crate::array::shard_groups;
use crate::array::shard_groups::ShardRuns;
use crate::array::spill::Spill;
use crate::array::spill_file::SpillConfig;
use crate::array::write_budget::WriteBudget;
use crate::array::writer_list::WriterList;
use zarr_format::error::Error;
use zarr_format::model::Array;
use zarrfs_store::layer::disk_cache::CacheNamespace;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::{MemoryBudget, Priority, Reservation};
use zarrfs_store::sync::cache::Cache;
use zarrfs_store::sync::descriptors;
use zarrfs_store::sync::descriptors::ClosesFiles;
use zarrfs_store::sync::pool::ThreadPool;
use zarrfs_store::sync::single_flight::SingleFlight;

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

/// The part of the memory that a chunk of elements without a fixed length may take decoded: one in so many bytes.
const VARIABLE_SHARE: u64 = 5;

impl Limits {
    /// Returns the most decoded bytes of a chunk whose elements have no fixed length, or have one.
    pub(super) fn of_chunk(&self, is_variable: bool) -> u64 {
        if is_variable {
            self.max_chunk.min(self.memory / VARIABLE_SHARE)
        } else {
            self.max_chunk
        }
    }
}

/// What an open array takes beside its metadata, which it has in several forms, in bytes.
const OVERHEAD: u64 = 2 << 10;

/// How often it has its metadata: as they are, as a grid, and as the codecs of its chunks.
const FORMS: u64 = 3;

/// Memory, threads and counters that all arrays of a mount share.
pub struct Engine {
    pub(super) cache: Arc<Cache<CacheKey, Cached>>,
    /// What open arrays count in.
    pub(super) metadata: Arc<MemoryBudget>,
    /// Where evicted chunks go that will be read again.
    pub(super) spill: Option<Arc<Spill>>,
    /// Where lengths are kept that took long to find.
    pub(super) disk: Option<CacheNamespace>,
    /// Decodes what will be read next.
    pub(super) decoders: ThreadPool,
    /// How many chunks are loaded at a time.
    pub(super) loads: u64,
    /// How many threads encode at a time.
    pub(super) encoders: usize,
    pub(super) readers: Arc<ReaderCache>,
    /// The stored chunks that are being opened.
    pub(super) opening: SingleFlight<OpenQuestion, Option<Arc<OpenChunk>>>,
    /// Inner chunks that were read together.
    pub(super) shard_runs: Arc<ShardRuns>,
    pub(super) stats: Arc<Stats>,
    pub(super) limits: Limits,
    pub(super) last_id: AtomicU64,
    /// Bytes that were written and are not stored yet.
    pub(super) write_budget: Arc<WriteBudget>,
    /// The arrays that have them.
    pub(super) writers: WriterList,
    /// The files whose lengths are being found, by array and name.
    pub(super) lengths: SingleFlight<(u64, String), u64>,
}

/// What an engine keeps on disk.
#[derive(Default)]
pub struct EngineDisk {
    /// Where lengths go that took long to find; nothing to find them again.
    pub cache: Option<CacheNamespace>,
    /// Where chunks go that are evicted before a reader in order has read them.
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
        let budget = MemoryBudget::beside_buffers(limits.memory, stats.clone());
        Engine::within(budget, limits, stats, EngineDisk::default())
    }

    /// Returns an error about a chunk that does not fit with the option that gives it more room.
    pub(super) fn with_option(&self, error: Error, is_variable: bool) -> Error {
        let limit = self.limits.of_chunk(is_variable);
        let why = if limit < self.limits.max_chunk {
            let memory = self.cache.budget().option();
            format!(
                "a chunk of elements of any length may take a fifth of --memory, which is {memory}: give more --memory"
            )
        } else {
            format!("a chunk may take {limit} bytes decoded: give more --max-chunk")
        };
        Error::too_large(error.subject(), format!("{}; {why}", error.detail()))
    }

    /// Like `new`, with memory of `budget`, and with what may be kept on disk.
    pub fn within(
        budget: Arc<MemoryBudget>,
        limits: Limits,
        stats: Arc<Stats>,
        disk: EngineDisk,
    ) -> Arc<Engine> {
        let limits = Limits {
            memory: budget.limit(),
            ..limits
        };
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
        let cache = Cache::new(budget.clone(), Priority::Used, Some(Box::new(on_evict)));
        Arc::new(Engine {
            metadata: budget.part(MAX_ARRAYS_BYTES.min(budget.limit() / ARRAYS_SHARE)),
            readers,
            opening: SingleFlight::default(),
            // After the decoded chunks, which leave first: those that a reader has consumed are among them.
            shard_runs: shard_groups::shard_runs(&budget),
            cache,
            spill,
            disk: disk.cache,
            decoders: ThreadPool::new("decode", cores.max(limits.fetches), MAX_QUEUED),
            loads: cores.max(limits.fetches) as u64 + 1,
            encoders: cores.max(limits.fetches),
            stats,
            write_budget: WriteBudget::new(limits.memory),
            writers: WriterList::default(),
            limits,
            last_id: AtomicU64::new(0),
            lengths: SingleFlight::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Takes room for an array that is going to be opened, if there is some.
    pub(super) fn room_of(&self, array: &Array) -> Option<Reservation> {
        self.metadata
            .try_reserve(OVERHEAD + FORMS * array.metadata_bytes())
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.timeout
    }
}
