//! Inner chunks of a shard that are wanted together, read together where they lie near each other.
//!
//! A read of each inner chunk alone costs a round trip, or system calls that take longer than its decoding. So the load
//! of the first of a run of neighbours reads all of it, and the others take their bytes out of it. A reader in order
//! will come back for the rest of a shard: over a network all of it is read at once where memory has room for all the
//! shards that the reader passes over before. Bytes count only for the content of the shard that they were read of.
//! What cannot be read together is read alone.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::Load;
use crate::array::readers::StoredChunk;
use crate::array::shard::Shard;
use crate::codec::ShardLevel;
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
const MAX_RUN: u64 = 4 << 20;

/// The most inner chunks of a run: where they lie counts in no budget.
const MAX_NEIGHBOURS: usize = 256;

/// The most inner chunks of a shard whose runs are found together; where they lie counts in no budget.
const MAX_PLANNED: usize = 1 << 14;

/// The bytes of a run of inner chunks as they are stored, each until it is taken.
pub(super) struct ShardRun {
    version: Version,
    /// By their places in the shard.
    parts: Mutex<HashMap<u64, Bytes>>,
    _room: Reservation,
}

/// The numbers of an array and of a shard in its grid, where the run begins there, and whether it is one of the whole
/// shard's.
type RunKey = (u64, u64, u64, bool);

/// Runs that were read and not taken out whole.
pub(super) type ShardRuns = Cache<RunKey, Arc<ShardRun>>;

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
    /// How many shards a reader passes over before it comes back to this one, if it will want all of this one.
    shards: Option<u64>,
    /// The runs of all inner chunks of the shard, and those of the group alone.
    whole: OnceLock<ShardPlan>,
    alone: OnceLock<ShardPlan>,
    is_done: AtomicBool,
}

/// Where the runs lie in one content of a shard.
struct ShardPlan {
    version: Version,
    /// Each with the ranges of its inner chunks, ascending.
    runs: Vec<(RunKey, Vec<Range<u64>>)>,
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
        for (key, _) in self.group.alone.get().iter().flat_map(|plan| &plan.runs) {
            self.array.engine.shard_runs.forget(key);
        }
    }
}

impl OpenArray {
    /// Whether inner chunks are read in groups.
    pub(super) fn reads_groups(&self, decoder: &Decoder) -> bool {
        // The indexes of shards in shards would have to be read before it is known what lies where.
        decoder.pipeline.shards().len() == 1
    }

    /// Whether a piece will be read with others, and decoded.
    pub(super) fn is_grouped(&self, piece: ChunkIndex) -> bool {
        self.groups.0.lock().contains_key(&piece.0)
    }

    /// Has pieces of one shard read together, until the answer is dropped; nothing if there is only one. `shards` is how
    /// many a reader in order passes over before it comes back to one of them.
    pub(super) fn begin_group(
        self: &Arc<OpenArray>,
        decoder: &Decoder,
        pieces: impl Iterator<Item = ChunkIndex>,
        shards: Option<u64>,
    ) -> Option<LoadedGroup> {
        let inner = |piece| Some((piece, *decoder.locate(piece).inner.first()?));
        let pieces: Vec<_> = pieces.filter_map(inner).collect();
        if pieces.len() < 2 {
            return None;
        }
        let group = Arc::new(ShardGroup {
            pieces,
            shards,
            whole: OnceLock::new(),
            alone: OnceLock::new(),
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

    /// Drops what was read of shards and has not been wanted.
    pub(super) fn forget_runs(&self) {
        self.engine.shard_runs.forget_all(|key| key.0 == self.id);
    }

    /// Returns the stored bytes of an inner chunk that lies at `range` of its shard, if it is one of a run that is read.
    ///
    /// Fails with `Changed` if the shard may be another one by now, and as the store does.
    pub(super) fn grouped(
        &self,
        load: &Load,
        stored: &StoredChunk,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let group = self.groups.0.lock().get(&load.piece.0).cloned();
        let Some(group) = group else { return Ok(None) };
        let has_room = |shards| self.has_room_for(shards, load, stored);
        if group.shards.is_some_and(has_room) {
            let plan = group.whole.get_or_init(|| self.plan(None, load, stored));
            let bytes = self.take(plan, load, stored, range)?;
            if bytes.is_some() {
                return Ok(bytes);
            }
        }
        let plan = group
            .alone
            .get_or_init(|| self.plan(Some(&group.pieces), load, stored));
        let bytes = self.take(plan, load, stored, range);
        if group.is_done.load(Ordering::SeqCst) {
            plan.runs
                .iter()
                .for_each(|(key, _)| self.engine.shard_runs.forget(key));
        }
        bytes
    }

    /// Whether memory has room for so many shards like this one as they are stored. Only then is all of one read at once:
    /// what is wanted of it later would have to be read again.
    fn has_room_for(&self, shards: u64, load: &Load, stored: &StoredChunk) -> bool {
        let runs = self.engine.shard_runs.budget();
        let count = load.pipeline.shards().first().map_or(0, inner_chunks);
        count <= MAX_PLANNED && shards.saturating_mul(stored.meta.size) <= runs.limit() / 2
    }

    /// Takes an inner chunk out of a run, which is read if it is not there.
    fn take(
        &self,
        plan: &ShardPlan,
        load: &Load,
        stored: &StoredChunk,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let has_it = |(_, ranges): &&(RunKey, Vec<Range<u64>>)| {
            let found = ranges.binary_search_by_key(&range.start, |range| range.start);
            found.is_ok_and(|place| ranges.get(place) == Some(range))
        };
        let run = plan.runs.iter().find(has_it);
        let Some((key, ranges)) = run.filter(|_| plan.version == stored.meta.version) else {
            return Ok(None);
        };
        let runs = &self.engine.shard_runs;
        let read = || self.read_run(stored, ranges).map(Arc::new);
        match runs.load(key, load.deadline, read) {
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

    /// Finds the runs of some pieces in one content of their shard, or of all; none if its index does not read.
    fn plan(
        &self,
        pieces: Option<&[(ChunkIndex, usize)]>,
        load: &Load,
        stored: &StoredChunk,
    ) -> ShardPlan {
        let (shard, number) = (Shard::whole(stored), load.location.stored);
        let level = load.pipeline.shards().first();
        let index =
            level.map(|level| (level, self.index(level, (1, number), &shard, load.deadline)));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        if let Some((level, Ok(index))) = index {
            let range = |inner| index.entries.range(inner).ok().flatten();
            match pieces {
                Some(pieces) => ranges.extend(pieces.iter().filter_map(|&(_, inner)| range(inner))),
                None => ranges.extend((0..inner_chunks(level)).filter_map(range)),
            }
        }
        let most = MAX_RUN.min(self.engine.shard_runs.budget().limit() / 4);
        let gap = match self.engine.limits.fetches {
            0 => MAX_GAP,
            _ => MAX_GAP_REMOTE,
        };
        let key = |start| (self.id, number, start, pieces.is_none());
        let runs = neighbours(ranges, gap, most).into_iter();
        let keyed = runs.filter_map(|run| Some((key(run.first()?.start), run)));
        ShardPlan {
            version: stored.meta.version,
            runs: keyed.collect(),
        }
    }

    /// Reads a run of inner chunks; `TooLarge` if there is no room for it beside those that are there.
    fn read_run(&self, stored: &StoredChunk, ranges: &[Range<u64>]) -> Result<ShardRun> {
        // What lies between them stays in memory with them.
        let (first, last) = (ranges.first(), ranges.last());
        let length = first.zip(last).map_or(0, |(a, b)| b.end - a.start);
        let budget = self.engine.shard_runs.budget();
        let is_free = budget.held().saturating_add(length) <= budget.limit();
        let room = is_free.then(|| budget.try_reserve(length)).flatten();
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

/// Returns how many inner chunks a shard has.
fn inner_chunks(level: &ShardLevel) -> usize {
    let count: u64 = level.chunks_per_shard().iter().product();
    usize::try_from(count).unwrap_or(0)
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
