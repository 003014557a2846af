//! Prefetches chunks for a `VlenReader`.
//!
//! The engine's threads decode the chunks of the next slabs, as many as fit in a part of the memory. A chunk that they
//! could not decode, or that was evicted again, is loaded by the reader, in the version that it has then.

use std::collections::VecDeque;
use std::slice::Iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::prefetcher::{Prefetcher, Taken};
use zarr_format::grid::{ChunkIndex, Region};

/// Prefetched chunks may use 1/N of the memory.
const SHARE_OF_MEMORY: u64 = 4;

/// The maximum number of prefetched chunks.
const MAX_CHUNKS: u64 = 512;

/// The chunks of some slabs, in the order in which they are consumed.
pub(super) struct VlenAhead<'a> {
    prefetcher: &'a Arc<Prefetcher>,
    /// The slabs whose chunks are not queued yet.
    slabs: Iter<'a, Region>,
    /// Chunks that were not submitted to the threads yet.
    waiting: VecDeque<ChunkIndex>,
    /// The number of chunks that were submitted or consumed.
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

    /// Records that the next chunk is consumed, and prefetches the ones after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if self.passed < taken {
            self.wait_for(1);
            self.waiting.pop_front();
            self.passed = taken;
        }
        let (most, ahead) = (self.most(), self.passed - taken);
        // Many at a time, so that the chunks of a shard are fetched together.
        if ahead <= most / 2 {
            self.submit(most - ahead);
        }
    }

    /// Returns the maximum number of prefetched chunks; 0 until the first one was decoded and its length is known.
    fn most(&self) -> usize {
        let decoder = &self.prefetcher.reader.decoder;
        let Some(guessed) = decoder.estimated_sizes() else {
            return 0;
        };
        let memory = self.prefetcher.reader.array.engine.limits.memory / SHARE_OF_MEMORY;
        let chunks = memory / guessed.while_decoded(&decoder.pipeline).max(1);
        usize::try_from(chunks.min(MAX_CHUNKS)).unwrap_or(0)
    }

    /// Queues at least `count` chunks if there are as many.
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
