//! What a sequential reader of a file needs of a row of pieces: memory, and whole shards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::decoder::Decoder;
use crate::array::flat_file::FlatFile;
use crate::array::shard_groups::OrderedSpan;
use crate::sync::buffer;

/// How much a reader in order has read, in bytes, before it is taken to read on: more than a program that looks at a header
/// asks for, and the kernel reads ahead of it.
const GONE_ON: u64 = 4 << 20;

impl FlatFile {
    /// Whether memory has no room for a row of pieces.
    pub(super) fn is_row_too_long(&self, decoder: &Decoder) -> bool {
        self.rows.bytes > decoder.room_for_row()
    }

    /// Logs once for an array what to do where a row of pieces has room neither in memory nor on disk.
    pub(super) fn warn_of_row(&self, decoder: &Decoder) {
        let (array, row) = (&*self.array, self.rows.bytes);
        let spill = array.engine.spill.as_ref();
        if self.spills_row(decoder) || array.has_warned.swap(true, Ordering::Relaxed) {
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

    /// Returns what the reader of the file is going to read of shards on a network, if it goes on from one plane of them
    /// to the next.
    pub(super) fn ordered_span(&self, decoder: &Decoder) -> Option<Arc<OrderedSpan>> {
        if self.array.engine.limits.fetches == 0 || !decoder.reads_groups() {
            return None;
        }
        let (shard, shape) = (decoder.stored.chunk_shape(), &self.region.shape);
        let own: Vec<usize> = (0..shape.len()).collect();
        let order = self.order.as_deref().unwrap_or(&own);
        // A shard that has one index along a dimension is read whole at each of them.
        let is_deep = |&axis: &usize| shape[axis].min(shard[axis]) > 1;
        let place = order.iter().position(is_deep)?;
        let inner = order.get(place + 1..)?;
        let lengths = inner.iter().map(|&axis| shape[axis]);
        let plane = lengths.fold(self.array.element as u64, u64::saturating_mul);
        let two_planes = plane.saturating_mul(2);
        let has_gone_on = self.tracker.has_read(two_planes);
        let is_likely_to = self.tracker.begins_with_long_reads() && self.is_read_on();
        if !(has_gone_on || is_likely_to) || self.reloads_row(decoder) {
            return None;
        }
        let shards = inner.iter().map(|&axis| {
            let start = self.region.start[axis];
            let last = start + shape[axis].saturating_sub(1);
            decoder.stored.chunk_at(axis, last) - decoder.stored.chunk_at(axis, start) + 1
        });
        let (axis, mut region) = (order[place], self.region.clone());
        if place == 0 {
            // Planes before those that the reader began with are not wanted.
            let planes = self.tracker.first_byte() / plane.max(1);
            let planes = planes.min(region.shape[axis].saturating_sub(1));
            region.start[axis] += planes;
            region.shape[axis] -= planes;
        }
        Some(Arc::new(OrderedSpan {
            region,
            axis,
            begins_here: place == 0,
            shards: shards.fold(1, u64::saturating_mul),
            has_gone_on: self.tracker.has_read(two_planes.max(GONE_ON)),
        }))
    }

    /// Whether the pieces of a row are loaded again for each plane: memory has no room for them, and the disk none either.
    fn reloads_row(&self, decoder: &Decoder) -> bool {
        self.is_row_too_long(decoder) && !self.spills_row(decoder)
    }

    /// Whether the pieces of a row go to disk where memory has no room for them.
    fn spills_row(&self, decoder: &Decoder) -> bool {
        let spill = self.array.engine.spill.as_ref();
        decoder.is_encoded() && spill.is_some_and(|spill| spill.has_room_for(self.rows.bytes))
    }
}
