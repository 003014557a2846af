//! Estimates whether only a small part of a large array is stored.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::chunk_listing::StoredChunks;
use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, QueryStamp};

/// An array is sparse if less than one in this many of its chunks is stored.
const SPARSE: u64 = 16;

/// The number of chunks of a local store that are checked, evenly spread over the grid.
const SAMPLES: u64 = 64;

pub(super) struct Sparsity {
    array: Arc<StoredArray>,
    /// Whether the array is sparse, if that is known, and when the store was asked.
    known: Mutex<Option<(bool, QueryStamp)>>,
}

impl Sparsity {
    pub(super) fn new(array: Arc<StoredArray>) -> Sparsity {
        Sparsity {
            array,
            known: Mutex::default(),
        }
    }

    /// Whether the array is large and almost no chunk of it is stored. Returns false if one or two requests cannot show
    /// that the array is sparse.
    pub(super) fn is_sparse(&self, context: &RequestContext) -> Result<bool> {
        let grid = self.array.grid()?;
        // A smaller array does not count as sparse, because it can be read whole within seconds.
        let is_large = grid.len() >= 1 << 20
            || (self.array.metadata.byte_length()).is_ok_and(|bytes| bytes >= 4 << 30);
        if !is_large || !self.array.info.lists {
            return Ok(false);
        }
        if let Some((is_sparse, stamp)) = *self.known.lock()
            && self.holds(stamp)
        {
            return Ok(is_sparse);
        }
        let look = |context: &RequestContext| match self.array.info.folder {
            Some(_) => self.samples_are_missing(context),
            None => self.few_are_listed(context),
        };
        let (is_sparse, stamp) = self.array.info.ask(context, look);
        let is_sparse = is_sparse?;
        *self.known.lock() = Some((is_sparse, stamp));
        Ok(is_sparse)
    }

    /// Whether an answer about the stored chunks is within its TTL and no chunk was changed through the store since.
    fn holds(&self, stamp: QueryStamp) -> bool {
        let is_fresh = self.array.info.is_fresh(stamp.request_time);
        is_fresh && !self.array.chunks_may_have_changed(stamp.position)
    }

    /// Whether nearly all of a sample of chunks are missing.
    fn samples_are_missing(&self, context: &RequestContext) -> Result<bool> {
        let grid = self.array.grid()?;
        let count = grid.len().min(SAMPLES);
        let mut stored = 0;
        for sample in 0..count {
            let number = if count < SAMPLES {
                sample
            } else {
                spread(sample, grid.len())
            };
            let mut keys = self
                .array
                .keys(&grid.indices(ChunkIndex(number)))?
                .into_iter();
            let is_stored = keys.try_fold(false, |is_stored, key| {
                Ok::<_, Error>(is_stored || self.array.store().version(context, &key)?.is_some())
            });
            stored += u64::from(is_stored?);
        }
        Ok(stored <= count / SPARSE)
    }

    /// Whether the listing of all keys in the array's folder has a single page with few chunks.
    fn few_are_listed(&self, context: &RequestContext) -> Result<bool> {
        let (keys, grid) = (&self.array.metadata.keys, self.array.grid()?);
        let folder = Key::new(keys.folder())?;
        let Some(mut listing) = self.array.store().list_all(context, &folder, &folder)? else {
            return self.few_are_found(context);
        };
        let page = listing.next(context)?.unwrap_or_default();
        let separators = [Some(keys.separator), keys.other_separator];
        let is_chunk = |key: &Key| {
            let mut found = separators.iter().flatten();
            found.any(|&separator| {
                let indices = keys.indices_of(key.as_bytes(), separator);
                indices.is_some_and(|indices| grid.index(&indices).is_some())
            })
        };
        let stored = page.iter().filter(|(key, _)| is_chunk(key)).count() as u64;
        Ok(stored <= grid.len() / SPARSE
            && (listing.has_ended() || listing.next(context)?.is_none()))
    }

    /// Whether a store that is listed folder by folder has few chunks of the array.
    fn few_are_found(&self, context: &RequestContext) -> Result<bool> {
        let most = (self.array.grid()?.len() / SPARSE).min(1000);
        let mut stored = StoredChunks::new(self.array.clone())?;
        for _ in 0..=most {
            if stored.next_chunk(context)?.is_none() {
                return Ok(true);
            }
            // The search is given up after 16 folders, because each folder costs a request.
            if stored.entered > 16 {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Returns number `sample` of a sequence that is evenly spread over the numbers below `count`.
fn spread(sample: u64, count: u64) -> u64 {
    // Multiples of the golden ratio, in units of 2^-64, are spread evenly over the unit interval.
    let share = u128::from(sample.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    u64::try_from((share * u128::from(count)) >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_the_whole_grid() {
        for count in [64, 1_000_000_007, u64::MAX] {
            let mut samples: Vec<u64> = (0..SAMPLES).map(|sample| spread(sample, count)).collect();
            samples.sort_unstable();
            let least = count / SAMPLES / 4;
            assert!(samples.iter().all(|&sample| sample < count));
            assert!(
                samples
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] >= least.min(1))
            );
            assert!(samples[0] < count / 16 && samples[63] > count - count / 16);
        }
    }
}
