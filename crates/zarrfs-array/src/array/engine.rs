//! Owns the resources that all open arrays of a mount share.
//!
//! These resources are memory, threads, files on disk and counters. The memory of all chunks is charged to one budget.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::array::chunk::{CacheKey, Cached};
use crate::array::open_chunk::{OpenChunk, OpenChunkCache, OpenRequest};
use crate::array::shard_groups;
use crate::array::shard_groups::ShardRuns;
use crate::array::spill::{Spill, SpillConfig};
use crate::array::write_budget::WriteBudget;
use zarr_format::error::Error;
use zarr_format::model::Array;
use zarrfs_store::layer::disk_cache::CacheNamespace;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::{MemoryBudget, Priority, Reservation};
use zarrfs_store::sync::cache::Cache;
use zarrfs_store::sync::file_limits;
use zarrfs_store::sync::file_limits::ClosesFiles;
use zarrfs_store::sync::pool::ThreadPool;
use zarrfs_store::sync::single_flight::SingleFlight;

/// Limits of decoding and writing, from the options of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum memory in bytes for decoded chunks and for chunks that are being loaded, together.
    pub memory: u64,
    /// The maximum decoded bytes of one chunk.
    pub max_chunk: u64,
    /// The timeout of a read.
    pub timeout: Duration,
    /// The maximum number of concurrent fetches; 0 for a local store, where the number of cores is the limit.
    pub fetches: usize,
    /// Whether chunks may be written although their codecs are lossy.
    pub lossy: bool,
}

impl Limits {
    /// Returns the maximum decoded bytes of a chunk; a chunk of variable-length elements may take 1/5 of the memory.
    pub(super) fn of_chunk(&self, is_variable: bool) -> u64 {
        if is_variable {
            self.max_chunk.min(self.memory / 5)
        } else {
            self.max_chunk
        }
    }
}

/// Memory, threads and counters that all arrays of a mount share.
pub struct Engine {
    pub(super) cache: Arc<Cache<CacheKey, Cached>>,
    /// The memory budget of the open arrays and their metadata.
    pub(super) metadata: Arc<MemoryBudget>,
    /// The spill file, for chunks that were evicted although a reader still needs them.
    pub(super) spill: Option<Arc<Spill>>,
    /// The disk cache for the lengths of files whose length takes long to compute.
    pub(super) disk: Option<CacheNamespace>,
    /// The threads that decode chunks before a reader needs them.
    pub(super) decoders: ThreadPool,
    /// The maximum number of chunks that are loaded concurrently.
    pub(super) loads: u64,
    /// The maximum number of chunks that are encoded concurrently.
    pub(super) encoders: usize,
    pub(super) open_chunks: Arc<OpenChunkCache>,
    /// The stored chunks that are being opened; concurrent readers share one request.
    pub(super) opening: SingleFlight<OpenRequest, Option<Arc<OpenChunk>>>,
    /// The cache of byte ranges of shards that were fetched with one request for several inner chunks.
    pub(super) shard_runs: Arc<ShardRuns>,
    pub(super) stats: Arc<Stats>,
    pub(super) limits: Limits,
    pub(super) last_id: AtomicU64,
    /// The limit for dirty bytes of all arrays, and the list of the arrays that have dirty chunks.
    pub(super) write_budget: WriteBudget,
    /// The files whose lengths are being computed, by array number and file name; concurrent callers share the result.
    pub(super) lengths: SingleFlight<(u64, String), u64>,
}

/// The files on disk that an engine uses.
#[derive(Default)]
pub struct EngineDisk {
    /// The disk cache for file lengths that depend on all chunks; with `None` the lengths are cached only in memory.
    pub cache: Option<CacheNamespace>,
    /// The file for chunks that are evicted before a sequential reader has consumed them.
    pub spill: SpillConfig,
}

impl Engine {
    /// Creates an engine with one decoding thread per core, or per concurrent fetch if there are more fetches, because
    /// a thread that waits for the network needs no core.
    pub fn new(limits: Limits, stats: Arc<Stats>) -> Arc<Engine> {
        let budget = MemoryBudget::beside_buffers(limits.memory, stats.clone());
        Engine::within(budget, limits, stats, EngineDisk::default())
    }

    /// Adds a hint to the error that a chunk is too large: the command-line option that raises the limit.
    pub(super) fn with_option(&self, error: Error, is_variable: bool) -> Error {
        let limit = self.limits.of_chunk(is_variable);
        let why = if limit < self.limits.max_chunk {
            let memory = self.cache.budget().option();
            format!(
                "a chunk of variable-length elements may take a fifth of --memory {memory}: give more --memory"
            )
        } else {
            format!("a decoded chunk may have {limit} bytes: give more --max-chunk")
        };
        Error::too_large(error.subject(), format!("{}; {why}", error.detail()))
    }

    /// Creates an engine like `new`, but with an existing memory budget and with files on disk.
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
                file.write_evicted(*key, value);
            }
        };
        let open_chunks: Arc<OpenChunkCache> = Arc::default();
        let closing: Weak<dyn ClosesFiles> = Arc::downgrade(&open_chunks) as _;
        file_limits::add_cache(closing);
        let cache = Cache::new(budget.clone(), Priority::Used, Some(Box::new(on_evict)));
        Arc::new(Engine {
            // The budget of open arrays is small, because opening an array again costs little.
            metadata: budget.part((32 << 20).min(budget.limit() / 4)),
            open_chunks,
            opening: SingleFlight::default(),
            // The cache of shard runs registers with the budget after the cache of decoded chunks, so that decoded
            // chunks are evicted first: readers have consumed some of these chunks, while shard runs are still wanted.
            shard_runs: shard_groups::shard_runs(&budget),
            cache,
            spill,
            disk: disk.cache,
            decoders: ThreadPool::new("decode", cores.max(limits.fetches), 1024),
            loads: cores.max(limits.fetches) as u64 + 1,
            encoders: cores.max(limits.fetches),
            stats,
            write_budget: WriteBudget::new(limits.memory),
            limits,
            last_id: AtomicU64::new(0),
            lengths: SingleFlight::default(),
        })
    }

    /// Returns the counters of this engine, such as cache hits.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Reserves memory for an array that is going to be opened; returns `None` if the budget has no room.
    pub(super) fn room_of(&self, array: &Array) -> Option<Reservation> {
        // An open array has its metadata in memory three times: as parsed, as a grid, and as codecs.
        self.metadata
            .try_reserve((2 << 10) + 3 * array.metadata_bytes())
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.timeout
    }
}
