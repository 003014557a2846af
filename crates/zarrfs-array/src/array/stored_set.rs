//! Finds the next stored chunk of an array after any chunk number.
//!
//! The set of the numbers of all stored chunks is read from the store's listing once, and is used until its TTL is over
//! or a chunk is changed through the store. A shard is one stored chunk; its inner chunks are not listed. If listing a
//! local store took long, the set is used for longer than the TTL, in proportion to the time of the listing: otherwise
//! a program that lists many directories of the array would cause a new listing for each directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::chunk_listing::{ChunkScan, ScanDetail};
use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarrfs_store::QueryStamp;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;

/// The numbers of the stored chunks of an array.
pub struct StoredSet {
    numbers: Vec<u64>,
    _room: Vec<Reservation>,
}

impl StoredSet {
    /// Returns the number of the first stored chunk at or after `number`, or `None` if there is none.
    pub fn next_from(&self, number: u64) -> Option<u64> {
        let place = self.numbers.partition_point(|&stored| stored < number);
        self.numbers.get(place).copied()
    }
}

/// The number of chunk numbers for which memory is reserved at a time.
const BATCH: usize = 1 << 16;

/// The set of stored chunks of a local store is used at least for the time that listing took, times this factor.
const USES_PER_READING: u32 = 20;

struct KnownSet {
    set: Arc<StoredSet>,
    stamp: QueryStamp,
    took: Duration,
}

pub(super) struct StoredSets {
    array: Arc<StoredArray>,
    known: Mutex<Option<KnownSet>>,
}

impl StoredSets {
    pub(super) fn new(array: Arc<StoredArray>) -> StoredSets {
        StoredSets {
            array,
            known: Mutex::default(),
        }
    }

    /// Returns the set of stored chunks. Fails as `OpenArray::stored_chunks`, and with `TooLarge` if the chunk numbers
    /// need more than 1/4 of the memory.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<StoredSet>> {
        if let Some(known) = &*self.known.lock()
            && self.holds(known)
        {
            return Ok(known.set.clone());
        }
        context.check_may_wait()?;
        let begun = Instant::now();
        let read = |context: &RequestContext| self.read(context);
        let (set, stamp) = self.array.info.ask(context, read);
        let set = Arc::new(set?);
        *self.known.lock() = Some(KnownSet {
            set: set.clone(),
            stamp,
            took: begun.elapsed(),
        });
        Ok(set)
    }

    fn holds(&self, known: &KnownSet) -> bool {
        let age = self.array.info.clock.now();
        let age = age.saturating_duration_since(known.stamp.request_time);
        let info = &self.array.info;
        // For a store on a network, only the TTL (`--metadata-ttl`) limits the age of the set.
        let usable = match &info.folder {
            Some(_) => info.freshness.max(known.took * USES_PER_READING),
            None => info.freshness,
        };
        age < usable && !self.array.chunks_may_have_changed(known.stamp.position)
    }

    fn read(&self, context: &RequestContext) -> Result<StoredSet> {
        let threads = self.array.engine.limits.fetches.max(1);
        let grid = self.array.grid()?;
        let (mut numbers, mut room) = (Vec::new(), Vec::new());
        let most = self.array.engine.limits.memory / 4 / size_of::<u64>() as u64;
        let mut scan = ChunkScan::new(self.array.clone(), context, ScanDetail::Presence, threads)?;
        while let Some(batch) = scan.next_batch(context)? {
            for chunk in batch {
                if numbers.len() as u64 >= most {
                    let why = "too many stored chunks to list: give more --memory";
                    return Err(Error::too_large(&self.array.path, why));
                }
                if numbers.len() == numbers.capacity() {
                    room.push(self.array.reserve((BATCH * size_of::<u64>()) as u64)?);
                    numbers.reserve_exact(BATCH);
                }
                numbers.extend(grid.index(&chunk.indices).map(|chunk| chunk.0));
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(StoredSet {
            numbers,
            _room: room,
        })
    }
}
