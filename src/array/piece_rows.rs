//! What a sequential reader of a file needs of a row of pieces: memory, and whole shards.

use std::sync::atomic::Ordering;

use crate::array::decoder::Decoder;
use crate::array::flat_file::FlatFile;
use crate::sync::buffer;

impl FlatFile {
    /// Whether memory has no room for a row of pieces.
    pub(super) fn is_row_too_long(&self, decoder: &Decoder) -> bool {
        self.rows.bytes > self.array.room_for_row(decoder)
    }

    /// Logs once for an array what to do where a row of pieces has room neither in memory nor on disk.
    pub(super) fn warn_of_row(&self, decoder: &Decoder) {
        let (array, row) = (&*self.array, self.rows.bytes);
        let spill = array.engine.spill.as_ref();
        let is_spilled = decoder.is_encoded() && spill.is_some_and(|spill| spill.has_room_for(row));
        if is_spilled || array.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let needed = buffer::memory_for(row + row / 8) >> 20;
        let memory = buffer::memory_for(array.engine.limits.memory) >> 20;
        let or = match spill {
            _ if !decoder.is_encoded() => "",
            Some(_) => ", or more room for --spill",
            None => ", or --spill DIR",
        };
        log::warn!(
            "{}: a row of chunks takes {} MiB, and --memory allows {memory} MiB, so each chunk is decoded again for each \
             plane of the row; give --memory {needed}M{or}",
            array.path,
            row >> 20,
        );
    }

    /// Returns how many shards a reader in order over a network passes over before it comes back to one; nothing unless it
    /// will want all of each: the file has whole shards, and the reader went on from one plane to the next.
    pub(super) fn shards_of_row(&self, decoder: &Decoder) -> Option<u64> {
        let first = self.first_axis();
        let two_planes = self.rows.plane.saturating_mul(2);
        if self.array.engine.limits.fetches == 0 || !self.tracker.has_read(two_planes) {
            return None;
        }
        let (shard, array) = (decoder.stored.chunk_shape(), &self.array.array.shape);
        let mut shards: u64 = 1;
        for (axis, &length) in self.region.shape.iter().enumerate() {
            let of_shard = shard.get(axis).copied().unwrap_or(1).max(1);
            if length < of_shard.min(array.get(axis).copied().unwrap_or(0)) {
                return None;
            }
            if axis != first {
                shards = shards.saturating_mul(length.div_ceil(of_shard));
            }
        }
        Some(shards)
    }
}
