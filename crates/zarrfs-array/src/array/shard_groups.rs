//! Fetches neighbouring inner chunks of a shard in one request.
//!
//! Reading each inner chunk alone costs a round trip, or system calls that take longer than decoding. So neighbouring
//! inner chunks are planned as a run: the first load of one of them reads the whole run, and the other loads take their
//! bytes from it. A layer is the inner chunks of a shard at one index along the slowest dimension of the file: a
//! sequential reader reads from each shard once per layer. Over a network, two layers of a shard are fetched at once as
//! long as the reader may only look at a header. Once the reader has read on, more layers are fetched at once: as many
//! as fit in memory for all shards that the reader crosses before it comes back to the same shard. The bytes of a run
//! are used only for the version of the shard that they were read from. An inner chunk without neighbours is read
//! alone.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::array::decoder::{Decoder, Load};
use crate::array::open_chunk::OpenChunk;
use crate::array::shard::{Shard, ShardIndexes};
use crate::array::stored_array::StoredArray;
use zarr_format::codec::ShardLevel;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Region};
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::{MemoryBudget, Priority, Reservation};
use zarrfs_store::sync::cache::Cache;
use zarrfs_store::sync::pool::parallel_map;

/// The limits of unwanted bytes in a request for several inner chunks: reading a short gap between two inner chunks
/// costs less than another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gaps {
    /// The maximum number of bytes between two neighbouring inner chunks.
    most: u64,
    /// The maximum number of unwanted bytes in a request, in eighths of the wanted bytes.
    eighths: u64,
    /// Whether a sequential reader is going to read all inner chunks in the run, also those of later layers.
    is_ordered: bool,
}

impl Gaps {
    /// The limits for local stores; those for stores on a network are `REMOTE`.
    const LOCAL: Gaps = Gaps {
        most: 16 << 10,
        eighths: 8,
        is_ordered: false,
    };
    const REMOTE: Gaps = Gaps {
        most: 256 << 10,
        ..Gaps::LOCAL
    };
    /// The limits for a sequential reader. If inner chunks are stored in Morton order, those at one index along the
    /// slowest dimension are many byte ranges, with gaps that are nearly as long.
    const ORDERED: Gaps = Gaps {
        eighths: 16,
        is_ordered: true,
        ..Gaps::REMOTE
    };
    /// The limits for a sequential reader if memory has no room for the gaps between its inner chunks. The gaps stay
    /// small, because their bytes would be fetched again later.
    const EXACT: Gaps = Gaps {
        eighths: 1,
        ..Gaps::ORDERED
    };

    /// Returns the maximum length in bytes of a run of inner chunks, of which `wanted` bytes are wanted.
    fn most_around(self, wanted: u64) -> u64 {
        let more = wanted.saturating_mul(self.eighths) / 8;
        wanted.saturating_add(more)
    }
}

/// The maximum length in bytes of a run of inner chunks, so that several runs are read concurrently. With 4 MiB, 32
/// shards of 5 MiB from a server at 20 and 50 ms took 100 requests instead of 68, and 2 to 6 % more time.
const MAX_RUN: u64 = 8 << 20;

/// The elements that a sequential reader over a network is going to read.
pub(super) struct OrderedSpan {
    pub(super) region: Region,
    /// The dimension along which the reader reads each shard, index by index.
    pub(super) axis: usize,
    /// Whether the start of the box is where the reader began to read.
    pub(super) begins_here: bool,
    /// The number of shards that the reader crosses before it comes back to the same shard.
    pub(super) shards: u64,
    /// Whether the reader has read so much that it is expected to read on.
    pub(super) has_gone_on: bool,
}

/// The number of layers (inner chunks of a shard at one index along the slowest dimension) that are fetched at once for
/// a reader that may not read on: the wanted layer and the next.
const FIRST_LAYERS: u64 = 2;

impl OrderedSpan {
    /// Returns which layers of a shard (inner chunks at one index along the slowest dimension) to fetch together with
    /// `layer`; more layers if the reader has read on. `begun` is the layer that the reader began with, if it began in
    /// this shard.
    fn together(&self, layer: u64, begun: Option<u64>, end: u64) -> Range<u64> {
        let later = begun.map_or(0, |first| first + FIRST_LAYERS);
        if self.has_gone_on && layer >= later {
            return later..end;
        }
        let first = begun.filter(|&first| first <= layer).unwrap_or(0);
        let start = layer - (layer - first) % FIRST_LAYERS;
        start..end.min(start + FIRST_LAYERS)
    }
}

/// The encoded bytes of neighbouring inner chunks that were read together; each inner chunk is removed when a load
/// takes it.
pub(super) struct ShardRun {
    version: Version,
    /// The bytes of the inner chunks, by offset in the shard.
    parts: Mutex<HashMap<u64, Bytes>>,
    _room: Reservation,
}

/// Identifies a run: inner chunks of a shard that are fetched in one request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct RunKey {
    array: u64,
    shard: u64,
    start: u64,
    end: u64,
    /// Whether the inner chunks were grouped for a sequential reader, whose loads all share the group.
    is_ordered: bool,
}

/// The cache of runs (neighbouring inner chunks that were read together) that still have untaken inner chunks.
pub(super) type ShardRuns = Cache<RunKey, Arc<ShardRun>>;

/// Creates the cache of a mount for inner chunks that were read together. It may use 1/4 of the memory budget, as much
/// as prefetched chunks.
pub(super) fn shard_runs(budget: &Arc<MemoryBudget>) -> Arc<ShardRuns> {
    let part = budget.part(budget.limit() / 4);
    Cache::new(part, Priority::Used, None)
}

/// The groups of inner chunks of an array that are being loaded, by the number of each chunk.
pub(super) struct ShardGroups {
    array: Arc<StoredArray>,
    decoder: Arc<Decoder>,
    indexes: Arc<ShardIndexes>,
    loading: Mutex<HashMap<u64, Arc<ShardGroup>>>,
}

/// Inner chunks of one shard that are loaded together; for a sequential reader, they have the same index along its
/// slowest dimension.
pub(super) struct ShardGroup {
    chunks: Vec<ChunkIndex>,
    /// The elements that the sequential reader of the group is going to read.
    span: Option<Arc<OrderedSpan>>,
    /// The plans of requests for inner chunks: `ordered` has all that the sequential reader will read from a part of
    /// the shard, `alone` only those of this group.
    ordered: OnceLock<ShardPlan>,
    alone: OnceLock<ShardPlan>,
    is_done: AtomicBool,
}

/// The requests that fetch inner chunks from one version of a shard.
struct ShardPlan {
    version: Version,
    runs: Vec<PlannedRun>,
}

struct PlannedRun {
    key: RunKey,
    ranges: Vec<Range<u64>>,
}

/// Keeps a group of inner chunks registered while they are being loaded.
pub(super) struct LoadedGroup {
    groups: Arc<ShardGroups>,
    group: Arc<ShardGroup>,
}

impl Drop for LoadedGroup {
    fn drop(&mut self) {
        let mut groups = self.groups.loading.lock();
        for chunk in &self.group.chunks {
            if groups
                .get(&chunk.0)
                .is_some_and(|group| Arc::ptr_eq(group, &self.group))
            {
                groups.remove(&chunk.0);
            }
        }
        drop(groups);
        self.group.is_done.store(true, Ordering::SeqCst);
        for run in self.group.alone.get().iter().flat_map(|plan| &plan.runs) {
            self.groups.array.engine.shard_runs.forget(&run.key);
        }
    }
}

impl ShardGroups {
    pub(super) fn new(
        array: Arc<StoredArray>,
        decoder: Arc<Decoder>,
        indexes: Arc<ShardIndexes>,
    ) -> Arc<ShardGroups> {
        Arc::new(ShardGroups {
            array,
            decoder,
            indexes,
            loading: Mutex::default(),
        })
    }

    /// Whether a chunk is in a registered group of inner chunks, which will be read and decoded.
    pub(super) fn contains(&self, chunk: ChunkIndex) -> bool {
        self.loading.lock().contains_key(&chunk.0)
    }

    /// Registers inner chunks of one shard, to be read together until the returned value is dropped; `span` is what a
    /// sequential reader is going to read. Returns `None` if there is nothing to read together.
    pub(super) fn begin(
        self: &Arc<ShardGroups>,
        chunks: Vec<ChunkIndex>,
        span: Option<Arc<OrderedSpan>>,
    ) -> Option<LoadedGroup> {
        if chunks.len() < 2 && span.is_none() {
            return None;
        }
        let group = Arc::new(ShardGroup {
            chunks,
            span,
            ordered: OnceLock::new(),
            alone: OnceLock::new(),
            is_done: AtomicBool::new(false),
        });
        let mut groups = self.loading.lock();
        for chunk in &group.chunks {
            groups.insert(chunk.0, group.clone());
        }
        drop(groups);
        let groups = self.clone();
        Some(LoadedGroup { groups, group })
    }

    /// Drops inner chunks of this array that were fetched but not used.
    pub(super) fn forget_runs(&self) {
        self.array
            .engine
            .shard_runs
            .forget_all(|key| key.array == self.array.id);
    }

    /// Returns the encoded bytes of the inner chunk at byte range `range` of its shard, or `None` if the inner chunk
    /// has no neighbours to be read with.
    ///
    /// Fails with `Changed` if the shard may have changed, and as the store does.
    pub(super) fn bytes_of(
        &self,
        context: &RequestContext,
        load: &Load,
        stored: &OpenChunk,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let group = self.loading.lock().get(&load.chunk.0).cloned();
        let Some(group) = group else { return Ok(None) };
        if let Some(span) = &group.span {
            let plan = || {
                let plan = self.ordered_plan(context, span, load, stored);
                self.read_together(context, &plan, load, stored);
                plan
            };
            let plan = group.ordered.get_or_init(plan);
            let bytes = self.take(context, plan, load, stored, range)?;
            if bytes.is_some() {
                return Ok(bytes);
            }
        }
        let gaps = match self.array.engine.limits.fetches {
            0 => Gaps::LOCAL,
            _ => Gaps::REMOTE,
        };
        let plan = || {
            let plan = self.plan(context, group.chunks.iter().copied(), gaps, load, stored);
            if gaps == Gaps::REMOTE {
                self.read_together(context, &plan, load, stored);
            }
            plan
        };
        let plan = group.alone.get_or_init(plan);
        let bytes = self.take(context, plan, load, stored, range);
        if group.is_done.load(Ordering::SeqCst) {
            for run in &plan.runs {
                self.array.engine.shard_runs.forget(&run.key);
            }
        }
        bytes
    }

    /// Plans the requests for a sequential reader: for several layers of a shard (inner chunks at one index along the
    /// slowest dimension), including the layer of this chunk. All chunks of these layers get the same plan. The plan is
    /// empty if memory has no room for a single layer.
    fn ordered_plan(
        &self,
        context: &RequestContext,
        span: &OrderedSpan,
        load: &Load,
        stored: &OpenChunk,
    ) -> ShardPlan {
        let axis = span.axis;
        let shard = self.decoder.stored.region(&load.location.indices);
        let length = self.decoder.grid.chunk_shape().get(axis).copied();
        let (length, start) = (length.unwrap_or(1).max(1), shard.start[axis]);
        let chunk = self.decoder.grid.indices(load.chunk)[axis] * length;
        let layer = chunk.saturating_sub(start) / length;
        let room = self.array.engine.shard_runs.budget().limit() / 2 / span.shards.max(1);
        let all = shard.shape[axis].div_ceil(length);
        let mut layers = if stored.meta.size.saturating_mul(span.shards) <= MAX_RUN {
            0..all
        } else {
            let begun = span.region.start[axis].checked_sub(start);
            let begun = begun.map(|planes| planes / length);
            let begun = begun.filter(|&layer| span.begins_here && layer < all);
            span.together(layer, begun, all)
        };
        let mut gaps = Gaps::ORDERED;
        loop {
            let mut wanted = shard.clone();
            let skipped = layers.start * length;
            let end = layers.end.saturating_mul(length).min(shard.shape[axis]);
            (wanted.start[axis], wanted.shape[axis]) = (start + skipped, end - skipped);
            let wanted = wanted.overlap(&span.region);
            let inner = wanted.shape.iter().zip(self.decoder.grid.chunk_shape());
            let count = inner.fold(1, |all: u64, (&length, &of_chunk)| {
                all.saturating_mul(length.div_ceil(of_chunk.max(1)))
            });
            // A plan has at most 16,384 chunks, because the memory of plans is charged to no budget.
            if count <= 1 << 14 {
                let mut chunks = Vec::new();
                self.decoder.grid.visit(&wanted, |chunk, _, _| {
                    chunks.push(chunk);
                    true
                });
                let plan = self.plan(context, chunks.into_iter(), gaps, load, stored);
                // The length of a request includes the gaps between its inner chunks.
                let lengths = plan.runs.iter().map(|run| run.key.end - run.key.start);
                if lengths.sum::<u64>() <= room {
                    return plan;
                }
            }
            if gaps != Gaps::EXACT {
                gaps = Gaps::EXACT;
                continue;
            }
            // Halving the range of indexes gives the same range for each chunk in it, so that all these chunks get the
            // same plan.
            let middle = layers.start + (layers.end - layers.start).div_ceil(2);
            if middle >= layers.end {
                return ShardPlan::empty(stored);
            }
            layers = if layer < middle {
                layers.start..middle
            } else {
                middle..layers.end
            };
        }
    }

    /// Sends the requests of a plan concurrently, because a single thread takes the inner chunks in order and would
    /// wait for each request. If memory is short, each request is sent only when it is needed, since its bytes could be
    /// evicted before they are taken. Errors are dropped: the later read returns them.
    fn read_together(
        &self,
        context: &RequestContext,
        plan: &ShardPlan,
        load: &Load,
        stored: &OpenChunk,
    ) {
        let lengths = plan.runs.iter().map(|run| run.key.end - run.key.start);
        let has_room = lengths.sum::<u64>() <= self.array.engine.shard_runs.budget().limit() / 8;
        if plan.runs.len() < 2 || !has_room || plan.version != stored.meta.version {
            return;
        }
        let read = |run: &PlannedRun| {
            let read = || self.read_run(context, stored, run).map(Arc::new);
            let loaded = self
                .array
                .engine
                .shard_runs
                .load(context, &run.key, load.deadline, read);
            loaded.map(drop).unwrap_or_default();
        };
        parallel_map(
            // In Morton order, the inner chunks at two indexes along the slowest dimension take four requests.
            plan.runs.len().min(4),
            plan.runs.iter().collect(),
            &read,
        );
    }

    /// Takes an inner chunk out of the bytes that were fetched together, and fetches these bytes first if necessary.
    fn take(
        &self,
        context: &RequestContext,
        plan: &ShardPlan,
        load: &Load,
        stored: &OpenChunk,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let has_it = |run: &&PlannedRun| {
            let found = run
                .ranges
                .binary_search_by_key(&range.start, |range| range.start);
            found.is_ok_and(|place| run.ranges.get(place) == Some(range))
        };
        let run = plan.runs.iter().find(has_it);
        let Some(planned) = run.filter(|_| plan.version == stored.meta.version) else {
            return Ok(None);
        };
        let (runs, key) = (&self.array.engine.shard_runs, &planned.key);
        let read = || self.read_run(context, stored, planned).map(Arc::new);
        match runs.load(context, key, load.deadline, read) {
            Ok(run) => {
                let mut parts = run.parts.lock();
                let bytes = parts.remove(&range.start);
                if parts.is_empty() || run.version != stored.meta.version {
                    drop(parts);
                    runs.forget(key);
                }
                Ok(bytes.filter(|_| run.version == stored.meta.version))
            }
            // Memory has no room for all inner chunks of the request, or the shard is shorter than its index says. The
            // inner chunk is then read alone: its own bytes may still be there.
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Plans the requests for inner chunks of one version of a shard; the plan is empty if the shard's index cannot be
    /// read.
    fn plan(
        &self,
        context: &RequestContext,
        chunks: impl Iterator<Item = ChunkIndex>,
        gaps: Gaps,
        load: &Load,
        stored: &OpenChunk,
    ) -> ShardPlan {
        let (shard, number) = (Shard::whole(stored), load.location.stored);
        let index = |level: &ShardLevel| {
            self.indexes
                .get(context, level, 1, number, &shard, load.deadline)
        };
        let Some(Ok(index)) = load.pipeline.shards().first().map(index) else {
            return ShardPlan::empty(stored);
        };
        let range = |chunk| {
            let inner = *self.decoder.locate(chunk).inner.first()?;
            index.entries.range(inner).ok().flatten()
        };
        let most = MAX_RUN.min(self.array.engine.shard_runs.budget().limit() / 4);
        let runs = neighbours(chunks.filter_map(range).collect(), gaps, most).into_iter();
        let keyed = runs.filter_map(|ranges: Vec<Range<u64>>| {
            let key = RunKey {
                array: self.array.id,
                shard: number,
                start: ranges.first()?.start,
                end: ranges.last()?.end,
                is_ordered: gaps.is_ordered,
            };
            Some(PlannedRun { key, ranges })
        });
        ShardPlan {
            version: stored.meta.version,
            runs: keyed.collect(),
        }
    }

    /// Reads a run of inner chunks with one request; `TooLarge` if memory has no room for it.
    fn read_run(
        &self,
        context: &RequestContext,
        stored: &OpenChunk,
        run: &PlannedRun,
    ) -> Result<ShardRun> {
        // The bytes of the gaps stay in memory with the inner chunks, and each inner chunk has a table entry of 96
        // bytes.
        let length = run.key.end.saturating_sub(run.key.start);
        let length = length.saturating_add(96 * run.ranges.len() as u64);
        let room = self.array.engine.shard_runs.budget().try_reserve(length);
        let room = room.ok_or_else(|| {
            Error::too_large(&stored.key, "not enough memory: give more --memory")
        })?;
        let parts = stored.reader.read_ranges(context, &run.ranges)?;
        stored.check_unchanged(context)?;
        let placed = run.ranges.iter().zip(parts);
        let whole = placed.filter(|(range, part)| part.len() as u64 == range.end - range.start);
        Ok(ShardRun {
            version: stored.meta.version,
            parts: Mutex::new(whole.map(|(range, part)| (range.start, part)).collect()),
            _room: room,
        })
    }
}

impl ShardPlan {
    fn empty(stored: &OpenChunk) -> ShardPlan {
        ShardPlan {
            version: stored.meta.version,
            runs: Vec::new(),
        }
    }
}

/// Groups byte ranges into runs of at least two ranges, with gaps within the limits of `gaps` and a length of at most
/// `most` bytes. Each range is in at most one run; overlapping ranges are never in the same run.
fn neighbours(mut ranges: Vec<Range<u64>>, gaps: Gaps, most: u64) -> Vec<Vec<Range<u64>>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut runs: Vec<Vec<Range<u64>>> = Vec::new();
    let mut wanted = 0;
    for range in ranges {
        let length = range.end - range.start;
        if let Some(run) = runs.last_mut()
            && let (Some(first), Some(last)) = (run.first(), run.last())
            && let Some(between) = range.start.checked_sub(last.end)
            && between <= gaps.most
            && range.end - first.start <= most.min(gaps.most_around(wanted + length))
        {
            wanted += length;
            run.push(range);
        } else {
            wanted = length;
            runs.push(vec![range]);
        }
    }
    runs.retain(|run| run.len() > 1);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(ranges: Vec<Range<u64>>, gap: u64, most: u64) -> Vec<Vec<Range<u64>>> {
        let gaps = Gaps {
            most: gap,
            ..Gaps::REMOTE
        };
        neighbours(ranges, gaps, most)
    }

    #[test]
    fn nearby_ranges_form_one_run() {
        let found = runs(vec![30..40, 0..10, 10..20, 90..95, 99..100], 10, 100);
        assert_eq!(found, [vec![0..10, 10..20, 30..40], vec![90..95, 99..100]]);
        assert!(runs(vec![0..10, 21..30], 10, 100).is_empty(), "too far");
        assert!(runs(vec![0..10, 10..30], 10, 25).is_empty(), "too long");
        assert!(
            runs(vec![0..1, 9..10], 10, 100).is_empty(),
            "more is not wanted"
        );
    }

    #[test]
    fn overlapping_ranges_do_not_form_a_run() {
        let found = runs(vec![0..10, 5..15, 15..20, 15..20, 7..7], 10, 100);
        assert_eq!(found, [vec![5..15, 15..20]]);
        let huge = runs(vec![0..u64::MAX, u64::MAX - 1..u64::MAX], 10, 100);
        assert!(huge.is_empty());
    }
}
