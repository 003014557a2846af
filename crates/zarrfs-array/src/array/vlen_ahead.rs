//! Decodes chunks ahead of a `VlenReader`.
//!
//! The engine's threads have those of the next slabs, as many as a part of the memory holds. What they fail at, or what
//! has left memory again, is loaded by the one that takes it, under the version that its chunk has then.

use std::collections::VecDeque;
use std::slice::Iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::prefetcher::{Prefetcher, Taken};
use zarr_format::grid::{ChunkIndex, Region};

/// The part of the memory that chunks take which were not taken yet: one in so many bytes.
const SHARE_OF_MEMORY: u64 = 4;

/// The most chunks that are decoded ahead.
const MAX_CHUNKS: u64 = 512;

/// The chunks of some slabs, in the order in which they are taken.
pub(super) struct VlenAhead<'a> {
    prefetcher: &'a Arc<Prefetcher>,
    /// The slabs whose chunks do not wait yet.
    slabs: Iter<'a, Region>,
    /// Chunks that the threads do not have.
    waiting: VecDeque<ChunkIndex>,
    /// How many chunks the threads have, or were taken.
    passed: usize,
    taken: Taken,
}

impl<'a> VlenAhead<'a> {
    /// Prepares the chunks of some slabs.
    pub(super) fn new(prefetcher: &'a Arc<Prefetcher>, slabs: &'a [Region]) -> VlenAhead<'a> {
        VlenAhead {
            prefetcher,
            slabs: slabs.iter(),
            waiting: VecDeque::new(),
            passed: 0,
            taken: Taken::default(),
        }
    }

    /// Notes that the next chunk is taken, and has those decoded that come after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if self.passed < taken {
            self.wait_for(1);
            self.waiting.pop_front();
            self.passed = taken;
        }
        let (most, ahead) = (self.most(), self.passed - taken);
        // Many at a time, so that those of a shard are together.
        if ahead <= most / 2 {
            self.submit(most - ahead);
        }
    }

    /// Returns how many chunks may be decoded or being decoded that were not taken: none before the first one has told
    /// how long they are.
    fn most(&self) -> usize {
        let decoder = &self.prefetcher.reader.decoder;
        let Some(guessed) = decoder.estimated_sizes() else {
            return 0;
        };
        let memory = self.prefetcher.reader.array.engine.limits.memory / SHARE_OF_MEMORY;
        let chunks = memory / guessed.while_decoded(&decoder.pipeline).max(1);
        usize::try_from(chunks.min(MAX_CHUNKS)).unwrap_or(0)
    }

    /// Has at least `count` chunks wait, as far as there are more.
    fn wait_for(&mut self, count: usize) {
        while self.waiting.len() < count
            && let Some(slab) = self.slabs.next()
        {
            let grid = &self.prefetcher.reader.decoder.grid;
            grid.visit(slab, |chunk, _, _| {
                self.waiting.push_back(chunk);
                true
            });
        }
    }

    fn submit(&mut self, count: usize) {
        self.wait_for(count);
        let count = count.min(self.waiting.len());
        let chunks = (self.passed..).zip(self.waiting.drain(..count));
        self.prefetcher.decode_beside(chunks, &self.taken, None);
        self.passed += count;
    }
}

impl Drop for VlenAhead<'_> {
    fn drop(&mut self) {
        self.taken.store(usize::MAX, Ordering::Relaxed);
    }
}
