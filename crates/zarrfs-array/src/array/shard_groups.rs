//! Fetches inner chunks of a shard together that are wanted together.
//!
//! A read of each inner chunk alone costs a round trip, or system calls that take longer than its decoding. So the load
//! of the first of a run of neighbours reads all of the run, and the others take their bytes out of it. A reader in
//! order over a network passes over each shard once for each layer of its inner chunks. Two layers are fetched at once
//! for one that may only look at a header; for one that has read on, as many as memory has room for in all the shards
//! that it passes over before it comes back. Bytes count only for the content of the shard that they were read of. An
//! inner chunk that has no neighbours is read alone.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::array::chunk::Load;
use crate::array::decoder::Decoder;
use crate::array::open_chunk::OpenChunk;
use crate::array::shard::Shard;
use crate::array::shard_indexes::ShardIndexes;
use crate::array::stored_array::StoredArray;
use zarr_format::codec::ShardLevel;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Region};
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::{MemoryBudget, Priority, Reservation};
use zarrfs_store::sync::cache::Cache;
use zarrfs_store::sync::pool::parallel_map;

/// Runs take at most 1/4 of the memory budget: as much as is decoded ahead of a reader.
const SHARE_OF_MEMORY: u64 = 4;

/// What a run may have beside what is wanted: to read it costs less than one more read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gaps {
    /// The most bytes between two neighbours.
    most: u64,
    /// How many eighths of what is wanted may be read in vain.
    eighths: u64,
    /// Whether a reader in order will want what the run has of other layers.
    is_ordered: bool,
}

impl Gaps {
    /// On this machine, and over a network.
    const LOCAL: Gaps = Gaps {
        most: 16 << 10,
        eighths: 8,
        is_ordered: false,
    };
    const REMOTE: Gaps = Gaps {
        most: 256 << 10,
        ..Gaps::LOCAL
    };
    /// Of a reader in order: layers of inner chunks in Morton order lie in chunks with nearly as much between them.
    const ORDERED: Gaps = Gaps {
        eighths: 16,
        is_ordered: true,
        ..Gaps::REMOTE
    };
    /// Of one for whose layers memory has no room with what lies between them: that would be fetched again.
    const EXACT: Gaps = Gaps {
        eighths: 1,
        ..Gaps::ORDERED
    };

    /// Returns the most bytes of a run of which so many are wanted.
    fn most_around(self, wanted: u64) -> u64 {
        let more = wanted.saturating_mul(self.eighths) / 8;
        wanted.saturating_add(more)
    }
}

/// The most bytes of a run, so that others are read at the same time. Runs of 4 MiB took 100 requests in place of 68 for 32
/// shards of 5 MiB, 20 and 50 ms away, and 1.02 to 1.06 of the time.
const MAX_RUN: u64 = 8 << 20;

/// What an inner chunk of a run takes beside its bytes.
const PART_BYTES: u64 = 96;

/// The most runs of a shard that are read at the same time: two layers in Morton order are four.
const MAX_TOGETHER: usize = 4;

/// The most inner chunks of a shard whose runs are found together; where they lie counts in no budget.
const MAX_PLANNED: u64 = 1 << 14;

/// What a reader in order over a network is going to read.
pub(super) struct OrderedSpan {
    /// The box of the array that its file is.
    pub(super) region: Region,
    /// The dimension along which it passes over each shard layer by layer.
    pub(super) axis: usize,
    /// Whether the box begins where the reader did.
    pub(super) begins_here: bool,
    /// How many shards it passes over before it comes back to one.
    pub(super) shards: u64,
    /// Whether it has read so much that it is taken to read on.
    pub(super) has_gone_on: bool,
}

/// How many layers are fetched at once for a reader that may not go on, and of the shard that a reader begins with: the one
/// that it wants, and as much again.
const FIRST_LAYERS: u64 = 2;

impl OrderedSpan {
    /// Returns which of the layers of a shard are fetched with one of them if there is room: more, the more was read.
    /// `begun` is the one that the reader began with, if that is in this shard.
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

/// The bytes of a run of inner chunks as they are stored, each until it is taken.
pub(super) struct ShardRun {
    version: Version,
    /// By their places in the shard.
    parts: Mutex<HashMap<u64, Bytes>>,
    _room: Reservation,
}

/// Which run of inner chunks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct RunKey {
    /// The number of the array.
    array: u64,
    /// The number of the shard in the grid of stored chunks.
    shard: u64,
    /// Where the run begins and ends in the shard.
    start: u64,
    end: u64,
    /// Whether it is one of a reader in order, which others of the same reader take inner chunks out of.
    is_ordered: bool,
}

/// Runs that were read and not taken out whole.
pub(super) type ShardRuns = Cache<RunKey, Arc<ShardRun>>;

/// Builds the place of the runs of a mount.
pub(super) fn shard_runs(budget: &Arc<MemoryBudget>) -> Arc<ShardRuns> {
    let part = budget.part(budget.limit() / SHARE_OF_MEMORY);
    Cache::new(part, Priority::Used, None)
}

/// The groups of an array that are being loaded, by their chunks.
pub(super) struct ShardGroups {
    array: Arc<StoredArray>,
    decoder: Arc<Decoder>,
    indexes: Arc<ShardIndexes>,
    loading: Mutex<HashMap<u64, Arc<ShardGroup>>>,
}

/// Inner chunks of one shard that are wanted together, and of one of its layers if a reader in order wants them.
pub(super) struct ShardGroup {
    chunks: Vec<ChunkIndex>,
    /// The reader in order that wants them.
    span: Option<Arc<OrderedSpan>>,
    /// The runs of all that the reader will want of some layers of the shard, and those of the group alone.
    ordered: OnceLock<ShardPlan>,
    alone: OnceLock<ShardPlan>,
    is_done: AtomicBool,
}

/// Where the runs lie in one content of a shard.
struct ShardPlan {
    version: Version,
    runs: Vec<PlannedRun>,
}

struct PlannedRun {
    key: RunKey,
    /// Those of its inner chunks, ascending.
    ranges: Vec<Range<u64>>,
}

/// A group for as long as its chunks are being loaded.
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
    /// Begins without groups.
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

    /// Whether a chunk will be read with others, and decoded.
    pub(super) fn contains(&self, chunk: ChunkIndex) -> bool {
        self.loading.lock().contains_key(&chunk.0)
    }

    /// Has chunks of one shard read together until the answer is dropped, and with them what the reader in order of
    /// `span` will want of the shard. Returns `None` if there is nothing to read together.
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

    /// Drops what was read of shards and has not been wanted.
    pub(super) fn forget_runs(&self) {
        self.array
            .engine
            .shard_runs
            .forget_all(|key| key.array == self.array.id);
    }

    /// Returns the stored bytes of an inner chunk that lies at `range` of its shard, if it is one of a run that is read.
    ///
    /// Fails with `Changed` if the shard may be another one by now, and as the store does.
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

    /// Finds the runs of what a reader in order will want of some layers of a shard, the one of the chunk among them. All
    /// chunks of these layers have the same runs. There are none if memory has no room for a single layer.
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
            if count <= MAX_PLANNED {
                let mut chunks = Vec::new();
                self.decoder.grid.visit(&wanted, |chunk, _, _| {
                    chunks.push(chunk);
                    true
                });
                let plan = self.plan(context, chunks.into_iter(), gaps, load, stored);
                // With what lies between those that are wanted.
                let lengths = plan.runs.iter().map(|run| run.key.end - run.key.start);
                if lengths.sum::<u64>() <= room {
                    return plan;
                }
            }
            if gaps != Gaps::EXACT {
                gaps = Gaps::EXACT;
                continue;
            }
            // Halves of halves: all chunks of the layers that are fetched come to the same ones.
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

    /// Reads the runs of a plan at the same time, where there are several: one thread takes their inner chunks in
    /// order, and would wait for each run. With little memory one would be evicted before its inner chunks are taken:
    /// then each is read where it is wanted, as is one that cannot be read here.
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
            plan.runs.len().min(MAX_TOGETHER),
            plan.runs.iter().collect(),
            &read,
        );
    }

    /// Takes an inner chunk out of a run, which is read if it is not there.
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
            // There is no room for it, or the shard is shorter than its index says: not all of it needs to be wrong.
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the runs of some chunks in one content of their shard; none if its index does not read.
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

    /// Reads a run of inner chunks; `TooLarge` if there is no room for it.
    fn read_run(
        &self,
        context: &RequestContext,
        stored: &OpenChunk,
        run: &PlannedRun,
    ) -> Result<ShardRun> {
        // What lies between them stays in memory with them.
        let length = run.key.end.saturating_sub(run.key.start);
        let length = length.saturating_add(PART_BYTES * run.ranges.len() as u64);
        let room = self.array.engine.shard_runs.budget().try_reserve(length);
        let room = room.ok_or_else(|| Error::too_large(&stored.key, "no room"))?;
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

/// Returns runs of at least two ranges that lie near each other, with no more between them than `gaps` allow and `most`
/// bytes in all. Each range is in one run at most; ranges that share bytes are in none together.
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
    fn neighbours_are_ranges_near_each_other() {
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
    fn ranges_that_share_bytes_are_no_neighbours() {
        let found = runs(vec![0..10, 5..15, 15..20, 15..20, 7..7], 10, 100);
        assert_eq!(found, [vec![5..15, 15..20]]);
        let huge = runs(vec![0..u64::MAX, u64::MAX - 1..u64::MAX], 10, 100);
        assert!(huge.is_empty());
    }
}
