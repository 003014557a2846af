//! Some planes of a piece: how pieces are divided into slabs, and which slab has what a reader in order wants.
//!
//! Planes are counted along the dimension that changes slowest in the file. Slabs of a piece cover all that the file has of
//! it, none twice. Which of them are kept is left to `kept_slabs`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::array::parts::Part;
use crate::grid::{ChunkIndex, Layout, Region};
use crate::store::Version;
use crate::sync::budget::Reservation;
use crate::sync::buffer::Buffer;

/// How the pieces of a file are divided into slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlabPlanes {
    /// The dimension of the array that a plane has one index of.
    axis: usize,
    /// Planes of a slab, counted from the first one that the file has of the piece; the last slab may have fewer.
    planes: u64,
    /// Slabs of a piece.
    count: u64,
}

/// Some planes of a piece.
pub(super) struct Slab {
    /// The elements, in C order.
    region: Region,
    bytes: Buffer,
    /// The version of the stored chunk.
    version: Version,
    /// Whether a reader in order was given the last plane.
    is_passed: AtomicBool,
    _room: Reservation,
}

impl Slab {
    /// Builds a slab with the elements `bytes` of a box, of one version of the stored chunk.
    pub(super) fn new(region: Region, bytes: Buffer, version: Version, room: Reservation) -> Slab {
        Slab {
            region,
            bytes,
            version,
            is_passed: AtomicBool::new(false),
            _room: room,
        }
    }

    /// Whether it has the elements of this box, of this version of the stored chunk.
    pub(super) fn is_of(&self, region: &Region, version: Version) -> bool {
        self.version == version && self.region.overlap(region) == *region
    }

    /// Notes that a reader in order will want plane `next`; returns whether it, or another one, was given the last plane.
    pub(super) fn note_next(&self, slabs: SlabPlanes, next: u64) -> bool {
        if !slabs.ends_after(&self.region, next) {
            self.is_passed.store(true, Ordering::Relaxed);
        }
        self.is_passed.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn layout(&self) -> Layout<'_> {
        Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: 0,
        }
    }
}

impl SlabPlanes {
    /// Divides `all` planes so that slabs have at most `room` of them, and as few as that takes; nothing if no slab would
    /// have a second plane.
    pub(super) fn new(axis: usize, all: u64, room: u64) -> Option<SlabPlanes> {
        if room < 2 || all < 2 {
            return None;
        }
        let count = all.div_ceil(room);
        let planes = all.div_ceil(count);
        Some(SlabPlanes {
            axis,
            planes,
            count,
        })
    }

    /// Returns the last plane of some parts of a piece.
    pub(super) fn last(&self, parts: &[Part]) -> Option<u64> {
        let end = |part: &Part| part.region.start[self.axis] + part.region.shape[self.axis];
        parts.iter().map(end).max()?.checked_sub(1)
    }

    /// Returns a number of the slab that has plane `at` of the box `area`, unlike those of other slabs of other pieces, as
    /// long as the number of the piece is not near its limit.
    pub(super) fn number(&self, piece: ChunkIndex, area: &Region, at: u64) -> u64 {
        let first = piece.0.wrapping_mul(self.count);
        first.wrapping_add((at - area.start[self.axis]) / self.planes)
    }

    /// Whether a box ends after plane `at`.
    pub(super) fn ends_after(&self, region: &Region, at: u64) -> bool {
        at < region.start[self.axis] + region.shape[self.axis]
    }

    /// Returns how many times a piece is loaded while its planes are read in order.
    pub(super) fn loads(&self) -> u64 {
        self.count
    }

    /// Returns the slab that has plane `at` of the box `area`, which is what the file has of the piece.
    pub(super) fn region(&self, mut area: Region, at: u64) -> Region {
        let first = area.start[self.axis];
        let end = first + area.shape[self.axis];
        let start = first + (at - first) / self.planes * self.planes;
        area.start[self.axis] = start;
        area.shape[self.axis] = self.planes.min(end - start);
        area
    }

    /// Returns the first plane of the box `area` that a reader in order has not had whole after these parts.
    pub(super) fn next(&self, area: &Region, parts: &[Part]) -> u64 {
        let end = |part: &Part, axis: usize| part.region.start[axis] + part.region.shape[axis];
        let has_end = |part: &Part, axis: usize| {
            axis == self.axis || end(part, axis) == area.start[axis] + area.shape[axis]
        };
        let axes = 0..area.shape.len();
        let after = |part: &Part| {
            let is_whole = axes.clone().all(|axis| has_end(part, axis));
            end(part, self.axis) - u64::from(!is_whole)
        };
        parts.iter().map(after).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_as_few_and_as_even_as_memory_allows() {
        let of = |all, room| SlabPlanes::new(0, all, room).map(|slabs| (slabs.planes, slabs.count));
        assert_eq!(of(8, 3), Some((3, 3)));
        assert_eq!(of(128, 44), Some((43, 3)));
        assert_eq!(of(8, 7), Some((4, 2)));
        assert_eq!([of(8, 1), of(8, 0), of(1, 5)], [None; 3]);
    }

    #[test]
    fn what_a_reader_wants_next_begins_after_the_last_whole_plane() {
        let region = |start: [u64; 2], shape: [u64; 2]| Region {
            start: start.as_slice().into(),
            shape: shape.as_slice().into(),
        };
        // Of a piece of 8 planes from 8 on the file has 7, from 9 on.
        let area = region([9, 4], [7, 10]);
        let slabs = SlabPlanes::new(0, 8, 3).unwrap();
        for (start, shape, next, slab) in [
            ([9, 4], [1, 10], 10, [9, 3]),
            ([9, 4], [3, 10], 12, [12, 3]),
            ([11, 4], [1, 9], 11, [9, 3]),
            ([14, 12], [1, 2], 15, [15, 1]),
        ] {
            let part = Part::new(ChunkIndex(1), &[8, 0], &region(start, shape));
            assert_eq!(slabs.next(&area, &[part]), next);
            let found = slabs.region(area.clone(), next);
            assert_eq!(found, region([slab[0], 4], [slab[1], 10]));
        }
    }
}
