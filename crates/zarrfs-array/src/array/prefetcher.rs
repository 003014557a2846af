//! Decodes chunks on the engine's threads before a reader takes them.
//!
//! Chunks are submitted in batches that are long enough to be worth handing over to another thread. No reader waits for
//! a batch. Errors in a batch are dropped: the read that needs the chunk loads it again and returns the error.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::array::chunk::CHUNK_OVERHEAD;
use crate::array::chunk_reader::ChunkReader;
use crate::array::decoder::Decoder;
use crate::array::file_layout::{ChunkRows, in_buffer};
use crate::array::read_tracker::{ReadTrackers, Window};
use crate::array::shard_groups::{LoadedGroup, OrderedSpan};
use parking_lot::Mutex;
use zarr_format::grid::ChunkIndex;
use zarrfs_store::layer::name_sequence::NameSequence;
use zarrfs_store::request_context::{RequestContext, RequestLimit};

/// The number of decoded bytes in a batch that make it worth handing the batch over to another thread.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes that must be read before inner chunks are prefetched over a network: the kernel's readahead reads up to this
/// much for a program that only looks at a header, and each plane of the file may cross many shards.
const AFTER_HEADER: u64 = 2 << 20;

/// The number of bytes that are prefetched ahead of a reader even if a chunk row is shorter.
const MIN_WINDOW: u64 = 16 << 20;

/// How many chunks of a read were taken so far; `usize::MAX` once the read was answered.
pub(super) type Taken = Arc<AtomicUsize>;

/// A chunk to decode, and how many chunks its reader takes before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedChunk {
    pub(super) place: usize,
    pub(super) chunk: ChunkIndex,
}

pub(super) struct Prefetcher {
    pub(super) reader: Arc<ChunkReader>,
    pub(super) trackers: Arc<ReadTrackers>,
    /// Whether the warning was logged that memory has no room for a chunk row.
    pub(super) has_warned: AtomicBool,
    /// The sequence of chunks that programs read as files of their own.
    read_alone: Mutex<NameSequence>,
}

impl Prefetcher {
    pub(super) fn new(reader: Arc<ChunkReader>) -> Arc<Prefetcher> {
        let trackers = Arc::new(ReadTrackers::new(reader.decoder.grid.clone()));
        if let Some(spill) = &reader.array.engine.spill
            && reader.decoder.is_encoded()
        {
            spill.add(reader.array.id, &trackers);
        }
        Arc::new(Prefetcher {
            reader,
            trackers,
            has_warned: AtomicBool::new(false),
            read_alone: Mutex::default(),
        })
    }

    /// Returns the prefetch window for a sequential reader of a file: one chunk row, so that the next chunk row is
    /// decoded while the present one is read. Over a network the window is at least two chunk rows, because chunks of
    /// the second must be requested before the reader has finished the first. The window is empty if a chunk row needs
    /// more than 1/4 of the memory.
    pub(super) fn window(&self, rows: ChunkRows) -> Window {
        let limits = &self.reader.array.engine.limits;
        // Each chunk has a fixed overhead, so a short chunk takes several times its bytes in memory.
        let chunk = self.reader.decoder.pipeline.chunk_bytes().max(1) as u64;
        let times = 1 + CHUNK_OVERHEAD / chunk;
        let (row, quarter) = (rows.bytes, limits.memory / 4 / times);
        if row > quarter {
            return Window::default();
        }
        let (least, most, after) = match limits.fetches as u64 {
            0 => (0, row, 0),
            fetches => {
                let at_once =
                    fetches.saturating_mul(self.reader.decoder.pipeline.chunk_bytes() as u64);
                let most = row.saturating_add(row.max(at_once));
                if self.reader.decoder.reads_groups() {
                    (0, most, AFTER_HEADER)
                } else {
                    (row, most, 0)
                }
            }
        };
        let most = most.max(MIN_WINDOW / times).min(quarter);
        Window { least, most, after }
    }

    /// Records that a program reads a chunk as a file. If the program reads consecutive chunks, prefetches the next
    /// chunks: at least as many as can be fetched concurrently, if they fit in 1/4 of the memory.
    pub(super) fn record_chunk_read(self: &Arc<Prefetcher>, chunk: ChunkIndex) {
        let reader = &self.reader;
        let limits = &reader.array.engine.limits;
        let bytes = reader.decoder.usual_bytes() as u64 + CHUNK_OVERHEAD;
        let wanted = (MIN_WINDOW / bytes).max(limits.fetches as u64);
        let window = in_buffer(wanted.min(limits.memory / 4 / bytes));
        let ahead = {
            let mut sequence = self.read_alone.lock();
            sequence.record(in_buffer(chunk.0));
            let is_sequential = sequence.count() > 2;
            sequence.take_window(if is_sequential { window } else { 0 })
        };
        let count = in_buffer(reader.decoder.grid.len());
        let ahead = ahead.start..ahead.end.min(count);
        if !ahead.is_empty() {
            self.decode_ahead(ahead.map(|number| ChunkIndex(number as u64)), None);
        }
    }

    /// Submits the chunks that are not in memory to the engine's threads until their queue is full. A thread skips a
    /// chunk that its reader has taken meanwhile.
    pub(super) fn decode_beside(
        self: &Arc<Prefetcher>,
        chunks: impl Iterator<Item = PlacedChunk>,
        taken: &Taken,
        span: Option<Arc<OrderedSpan>>,
    ) {
        let is_there = |chunk| self.reader.has(chunk) || self.reader.is_spilled(chunk);
        let mut missing = chunks.filter(|placed| !is_there(placed.chunk));
        if self.reader.decoder.reads_groups() {
            return self.decode_groups(missing.collect(), taken, span);
        }
        // Over a network each batch is one chunk, because a thread has to wait for each request.
        let size = match self.reader.array.engine.limits.fetches {
            0 => self.count_of(BATCH_BYTES),
            _ => 1,
        };
        loop {
            let mut batch: Vec<PlacedChunk> = missing.by_ref().take(size).collect();
            batch.dedup();
            if batch.is_empty() || !self.submit(batch, Vec::new(), taken.clone()) {
                return;
            }
        }
    }

    /// Submits inner chunks to the engine's threads, grouped by shard.
    fn decode_groups(
        self: &Arc<Prefetcher>,
        mut missing: Vec<PlacedChunk>,
        taken: &Taken,
        span: Option<Arc<OrderedSpan>>,
    ) {
        // A range that begins and ends inside a chunk row visits many chunks more than once.
        let mut visited = HashSet::new();
        missing.retain(|placed| {
            visited.insert(placed.chunk.0) && !self.reader.groups.contains(placed.chunk)
        });
        let size = self.group_size(missing.len());
        // Over a network every group of inner chunks gets its own thread, because the thread only waits for the
        // request.
        let least = if self.reader.array.engine.limits.fetches == 0 {
            size
        } else {
            1
        };
        let shards = by_shard(&self.reader.decoder, missing, span.as_deref());
        let groups = shards.iter().flat_map(|shard| shard.chunks(size));
        let (mut batch, mut begun) = (Vec::new(), Vec::new());
        for group in groups {
            let chunks = group.iter().map(|placed| placed.chunk).collect();
            begun.extend(self.reader.groups.begin(chunks, span.clone()));
            batch.extend_from_slice(group);
            if batch.len() >= least {
                let (batch, begun) = (std::mem::take(&mut batch), std::mem::take(&mut begun));
                if !self.submit(batch, begun, taken.clone()) {
                    return;
                }
            }
        }
        if !batch.is_empty() {
            self.submit(batch, begun, taken.clone());
        }
    }

    /// Returns how many of `count` inner chunks are fetched and decoded together. Over a network there are enough
    /// groups for all concurrent requests, unless the groups would be too short.
    fn group_size(&self, count: usize) -> usize {
        let bytes = match self.reader.array.engine.limits.fetches {
            0 => BATCH_BYTES,
            fetches => {
                let chunk = self.reader.decoder.usual_bytes();
                let each = chunk.saturating_mul(count) / fetches;
                each.clamp(1 << 20, 4 << 20)
            }
        };
        self.count_of(bytes)
    }

    /// Returns the number of chunks in `bytes` decoded bytes, at least one. For a local store the overhead of a chunk
    /// in memory is added to its length, so that a batch of tiny chunks does not take too much memory. Over a network
    /// only the length of the elements is used, since `bytes` is the length of a request.
    fn count_of(&self, bytes: usize) -> usize {
        let beside = match self.reader.array.engine.limits.fetches {
            0 => in_buffer(CHUNK_OVERHEAD),
            _ => 0,
        };
        (bytes / (self.reader.decoder.usual_bytes() + beside).max(1)).max(1)
    }

    /// Prefetches chunks that no read needs yet; `span` is the range of shards that a sequential reader is going to
    /// read.
    pub(super) fn decode_ahead(
        self: &Arc<Prefetcher>,
        chunks: impl Iterator<Item = ChunkIndex>,
        span: Option<Arc<OrderedSpan>>,
    ) {
        let chunks = chunks.map(|chunk| PlacedChunk { place: 0, chunk });
        self.decode_beside(chunks, &Taken::default(), span);
    }

    /// Submits a batch of chunks to the engine's threads, to be decoded; returns false if their queue is full.
    fn submit(
        self: &Arc<Prefetcher>,
        batch: Vec<PlacedChunk>,
        groups: Vec<LoadedGroup>,
        taken: Taken,
    ) -> bool {
        let prefetcher = self.clone();
        let context = RequestContext::new(Arc::new(ReadBeside(taken.clone())));
        self.reader.array.engine.decoders.submit(move || {
            let _groups = groups;
            let reader = &prefetcher.reader;
            for PlacedChunk { place, chunk } in batch {
                // A reader may have loaded or passed the chunk since it was submitted.
                let is_passed = || prefetcher.trackers.is_passed(chunk);
                let is_taken = place < taken.load(Ordering::Relaxed);
                if !is_taken && !reader.has(chunk) && !is_passed() {
                    reader.array.engine.stats.prefetched_chunks.add(1);
                    let _ = reader.get(&context, chunk);
                }
            }
        })
    }
}

/// Ends the decoding for a read once the read has ended: no more chunks of its batch are loaded. Chunks that are
/// prefetched for later reads belong to no read and are always loaded.
struct ReadBeside(Taken);

impl RequestLimit for ReadBeside {
    fn suspend(&self) -> bool {
        true
    }

    fn resume(&self) {}

    fn is_waited_for(&self) -> bool {
        self.0.load(Ordering::Relaxed) != usize::MAX
    }
}

/// Groups inner chunks by shard, in the order of each shard's first chunk. For a sequential reader, inner chunks at
/// different indexes along its slowest dimension are in different groups.
fn by_shard(
    decoder: &Decoder,
    chunks: Vec<PlacedChunk>,
    span: Option<&OrderedSpan>,
) -> Vec<Vec<PlacedChunk>> {
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    let mut shards: Vec<Vec<PlacedChunk>> = Vec::new();
    for placed in chunks {
        let layer = span.map_or(0, |span| decoder.grid.indices(placed.chunk)[span.axis]);
        let place = *places
            .entry((decoder.stored_number(placed.chunk), layer))
            .or_insert(shards.len());
        match shards.get_mut(place) {
            Some(shard) => shard.push(placed),
            None => shards.push(vec![placed]),
        }
    }
    shards
}
