//! Inner chunks of a shard that are wanted together, read together where they lie near each other.
//!
//! A read of each inner chunk alone costs a round trip, or system calls that take longer than its decoding. So whoever
//! wants the first of a run of neighbours reads all of it, and the others take their bytes out of it. Bytes count only
//! for the content of the shard that they were read of. What cannot be read together is read alone.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::Load;
use crate::array::readers::StoredChunk;
use crate::array::shard::Shard;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::store::Version;
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;

/// Runs take at most this part of the memory budget: one in so many bytes.
const SHARE_OF_MEMORY: u64 = 8;

/// The most bytes between two neighbours of a run, on this machine and over a network: to read them costs less than one
/// more read.
const MAX_GAP: u64 = 16 << 10;
const MAX_GAP_REMOTE: u64 = 256 << 10;

/// The most bytes of a run, so that others are read at the same time.
const MAX_RUN: u64 = 8 << 20;

/// The most inner chunks of a run: one system call fills no more pieces of memory than these and what is between them.
const MAX_NEIGHBOURS: usize = 256;

/// The bytes of a run of inner chunks as they are stored, each until it is taken.
pub(super) struct ShardRun {
    version: Version,
    /// By their places in the shard.
    parts: Mutex<HashMap<u64, Vec<u8>>>,
    _room: Reservation,
}

/// Runs that were read and not taken out whole.
pub(super) type ShardRuns = Cache<u64, Arc<ShardRun>>;

/// Builds the place of the runs of a mount.
pub(super) fn shard_runs(budget: &Arc<MemoryBudget>) -> Arc<ShardRuns> {
    let part = budget.part(budget.limit() / SHARE_OF_MEMORY);
    Cache::new(part, Priority::Speculative, None)
}

/// The groups of an array that are being loaded, by their pieces.
#[derive(Default)]
pub(super) struct ShardGroups(Mutex<HashMap<u64, Arc<ShardGroup>>>);

/// Inner chunks of one shard that are wanted together.
pub(super) struct ShardGroup {
    /// Each with its number in the shard.
    pieces: Vec<(ChunkIndex, usize)>,
    plan: OnceLock<ShardPlan>,
    is_done: AtomicBool,
}

/// Where the runs of a group lie in one content of its shard.
struct ShardPlan {
    version: Version,
    /// Each with its number in the mount, and the ranges of its inner chunks, ascending.
    runs: Vec<(u64, Vec<Range<u64>>)>,
}

/// A group for as long as its pieces are being loaded.
pub(super) struct LoadedGroup {
    array: Arc<OpenArray>,
    group: Arc<ShardGroup>,
}

impl Drop for LoadedGroup {
    fn drop(&mut self) {
        let mut groups = self.array.groups.0.lock();
        for (piece, _) in &self.group.pieces {
            if groups
                .get(&piece.0)
                .is_some_and(|group| Arc::ptr_eq(group, &self.group))
            {
                groups.remove(&piece.0);
            }
        }
        drop(groups);
        self.group.is_done.store(true, Ordering::SeqCst);
        for (number, _) in self.group.plan.get().iter().flat_map(|plan| &plan.runs) {
            self.array.engine.shard_runs.forget(number);
        }
    }
}

impl OpenArray {
    /// Whether inner chunks are read in groups.
    pub(super) fn reads_groups(&self, decoder: &Decoder) -> bool {
        // The indexes of shards in shards would have to be read before it is known what lies where.
        decoder.pipeline.shards().len() == 1
    }

    /// Has pieces of one shard read together, until the answer is dropped; nothing if there is only one.
    pub(super) fn begin_group(
        self: &Arc<OpenArray>,
        decoder: &Decoder,
        pieces: impl Iterator<Item = ChunkIndex>,
    ) -> Option<LoadedGroup> {
        let inner = |piece| Some((piece, *decoder.locate(piece).inner.first()?));
        let pieces: Vec<_> = pieces.filter_map(inner).collect();
        if pieces.len() < 2 {
            return None;
        }
        let group = Arc::new(ShardGroup {
            pieces,
            plan: OnceLock::new(),
            is_done: AtomicBool::new(false),
        });
        let mut groups = self.groups.0.lock();
        for (piece, _) in &group.pieces {
            groups.insert(piece.0, group.clone());
        }
        drop(groups);
        let array = self.clone();
        Some(LoadedGroup { array, group })
    }

    /// Returns the stored bytes of an inner chunk that lies at `range` of its shard, if it is one of a run that is read.
    ///
    /// Fails with `Changed` if the shard may be another one by now, and as the store does.
    pub(super) fn grouped(
        &self,
        load: &Load,
        stored: &StoredChunk,
        range: Range<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let group = self.groups.0.lock().get(&load.piece.0).cloned();
        let Some(group) = group else { return Ok(None) };
        let plan = group.plan.get_or_init(|| self.plan(&group, load, stored));
        if plan.version != stored.meta.version {
            return Ok(None);
        }
        let has_it = |(_, ranges): &&(u64, Vec<Range<u64>>)| {
            let found = ranges.binary_search_by_key(&range.start, |range| range.start);
            found.is_ok_and(|place| ranges[place] == range)
        };
        let Some((number, ranges)) = plan.runs.iter().find(has_it) else {
            return Ok(None);
        };
        let runs = &self.engine.shard_runs;
        let read = || self.read_run(stored, ranges).map(Arc::new);
        let run = runs.load(number, load.deadline, read);
        if group.is_done.load(Ordering::SeqCst) {
            runs.forget(number);
        }
        match run {
            Ok(run) if run.version == stored.meta.version => {
                Ok(run.parts.lock().remove(&range.start))
            }
            // There is no room for it, or the shard is shorter than its index says: not all of it needs to be wrong.
            Err(error) if !matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => Err(error),
            _ => Ok(None),
        }
    }

    /// Finds the runs of a group in one content of its shard; none if its index does not read.
    fn plan(&self, group: &ShardGroup, load: &Load, stored: &StoredChunk) -> ShardPlan {
        let (shard, number) = (Shard::whole(stored), load.location.stored);
        let level = load.pipeline.shards().first();
        let index = level.map(|level| self.index(level, (1, number), &shard, load.deadline));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        if let Some(Ok(index)) = index {
            let inner = group.pieces.iter().map(|(_, number)| *number);
            ranges.extend(inner.filter_map(|inner| index.entries.range(inner).ok().flatten()));
        }
        let most = MAX_RUN.min(self.engine.shard_runs.budget().limit() / 4);
        let gap = match self.engine.limits.fetches {
            0 => MAX_GAP,
            _ => MAX_GAP_REMOTE,
        };
        let runs = neighbours(ranges, gap, most).into_iter();
        let next = || self.engine.last_run.fetch_add(1, Ordering::Relaxed);
        ShardPlan {
            version: stored.meta.version,
            runs: runs.map(|run| (next(), run)).collect(),
        }
    }

    /// Reads a run of inner chunks; `TooLarge` if there is no room for it now.
    fn read_run(&self, stored: &StoredChunk, ranges: &[Range<u64>]) -> Result<ShardRun> {
        let length = ranges.iter().map(|range| range.end - range.start).sum();
        let room = self.engine.shard_runs.budget().try_reserve(length);
        let room = room.ok_or_else(|| Error::too_large(&stored.key, "no room"))?;
        let parts = stored.reader.read_ranges(ranges)?;
        stored.check_unchanged()?;
        let placed = ranges.iter().zip(parts);
        let whole = placed.filter(|(range, part)| part.len() as u64 == range.end - range.start);
        Ok(ShardRun {
            version: stored.meta.version,
            parts: Mutex::new(whole.map(|(range, part)| (range.start, part)).collect()),
            _room: room,
        })
    }
}

/// Returns runs of at least two ranges that lie near each other, with at most `gap` bytes between two and `most` bytes in
/// all, of which more are wanted than not. Each range is in one run at most; ranges that share bytes are in none together.
fn neighbours(mut ranges: Vec<Range<u64>>, gap: u64, most: u64) -> Vec<Vec<Range<u64>>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut runs: Vec<Vec<Range<u64>>> = Vec::new();
    let mut wanted = 0;
    for range in ranges {
        let length = range.end - range.start;
        if let Some(run) = runs.last_mut()
            && let (Some(first), Some(last)) = (run.first(), run.last())
            && let Some(between) = range.start.checked_sub(last.end)
            && run.len() < MAX_NEIGHBOURS
            && between <= gap
            && range.end - first.start <= most.min((wanted + length).saturating_mul(2))
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

    #[test]
    fn neighbours_are_ranges_near_each_other() {
        let runs = neighbours(vec![30..40, 0..10, 10..20, 90..95, 99..100], 10, 100);
        assert_eq!(runs, [vec![0..10, 10..20, 30..40], vec![90..95, 99..100]]);
        assert!(
            neighbours(vec![0..10, 21..30], 10, 100).is_empty(),
            "too far"
        );
        assert!(
            neighbours(vec![0..10, 10..30], 10, 25).is_empty(),
            "too long"
        );
        assert!(
            neighbours(vec![0..1, 9..10], 10, 100).is_empty(),
            "more is not wanted"
        );
    }

    #[test]
    fn ranges_that_share_bytes_are_no_neighbours() {
        let runs = neighbours(vec![0..10, 5..15, 15..20, 15..20, 7..7], 10, 100);
        assert_eq!(runs, [vec![5..15, 15..20]]);
        let huge = neighbours(vec![0..u64::MAX, u64::MAX - 1..u64::MAX], 10, 100);
        assert!(huge.is_empty());
    }
}
