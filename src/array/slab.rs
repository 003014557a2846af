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
    /// How many batches of pieces are loaded before they are taken, while another piece is given out.
    ahead: usize,
}

/// What memory there is for slabs and for the pieces that they are cut out of, in bytes.
#[derive(Clone, Copy)]
pub(super) struct SlabMemory {
    pub(super) all: u64,
    /// What a plane of all pieces takes, which a slab has of its piece.
    pub(super) plane: u64,
    /// What a piece takes, and while it is loaded.
    pub(super) piece: u64,
    pub(super) load: u64,
    /// Pieces that are loaded together by a thread.
    pub(super) batch: u64,
}

impl SlabMemory {
    /// Returns how many planes have room beside the pieces that are in memory while so many batches are loaded ahead.
    fn planes(&self, ahead: usize) -> u64 {
        let loading = match ahead as u64 {
            0 => self.load,
            ahead => {
                let loads = ahead.saturating_mul(self.batch);
                self.piece.saturating_add(self.load.saturating_mul(loads))
            }
        };
        self.all.saturating_sub(loading) / self.plane.max(1)
    }
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
    /// Divides the `planes` of a piece along a dimension as memory allows, where up to `threads` batches can be loaded ahead:
    /// many at a time leave less room for planes. Nothing if no slab would have a second plane.
    pub(super) fn new(
        (axis, planes): (usize, u64),
        memory: SlabMemory,
        threads: usize,
    ) -> Option<SlabPlanes> {
        let divided = (0..=threads).filter_map(|ahead| {
            let room = memory.planes(ahead).min(planes);
            (room >= 2).then(|| SlabPlanes {
                axis,
                planes: planes.div_ceil(planes.div_ceil(room)),
                count: planes.div_ceil(room),
                ahead,
            })
        });
        // By how many are loaded one after the other for each; where these are as many, by how many are loaded.
        divided.min_by(|one, other| {
            let at_once = |slabs: &SlabPlanes| slabs.ahead.max(1) as u64;
            (one.count * at_once(other)).cmp(&(other.count * at_once(one)))
        })
    }

    /// Returns how many batches of pieces are loaded before they are taken.
    pub(super) fn ahead(&self) -> usize {
        self.ahead
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
        let of = |planes, room| {
            let memory = SlabMemory {
                all: room,
                plane: 1,
                piece: 0,
                load: 0,
                batch: 1,
            };
            let slabs = SlabPlanes::new((0, planes), memory, 2)?;
            Some((slabs.planes, slabs.count))
        };
        assert_eq!(of(8, 3), Some((3, 3)));
        assert_eq!(of(128, 44), Some((43, 3)));
        assert_eq!(of(8, 7), Some((4, 2)));
        assert_eq!(of(8, 9), Some((8, 1)));
        assert_eq!([of(8, 1), of(8, 0), of(1, 5)], [None; 3]);
    }

    #[test]
    fn pieces_are_loaded_ahead_where_that_leaves_room() {
        let of = |piece| {
            let memory = SlabMemory {
                all: 56 << 10,
                plane: 512,
                piece,
                load: 2 * piece,
                batch: 1,
            };
            let slabs = SlabPlanes::new((0, 128), memory, 2);
            slabs.map(|slabs| (slabs.count, slabs.ahead))
        };
        assert_eq!(of(512), Some((2, 2)));
        assert_eq!(of(8 << 10), Some((2, 0)), "four slabs for two threads");
        assert_eq!(of(26 << 10), Some((16, 0)));
        assert_eq!(of(28 << 10), None);
    }

    #[test]
    fn what_a_reader_wants_next_begins_after_the_last_whole_plane() {
        let region = |start: [u64; 2], shape: [u64; 2]| Region {
            start: start.as_slice().into(),
            shape: shape.as_slice().into(),
        };
        // Of a piece of 8 planes from 8 on the file has 7, from 9 on.
        let area = region([9, 4], [7, 10]);
        let slabs = SlabPlanes {
            axis: 0,
            planes: 3,
            count: 3,
            ahead: 0,
        };
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
