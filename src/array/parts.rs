//! Which pieces lie under a range of a flat file, and what of each is wanted.
//!
//! A read that finds a piece missing in memory is answered later by another thread. It keeps the parts that it has
//! computed for that thread, so that they are computed once.

use parking_lot::Mutex;
use std::ops::Range;

use crate::array::decoder::Decoder;
use crate::grid::{ChunkIndex, Coordinates, Region, boxes, permuted};

/// The most bytes that the parts of a read take at a time.
const MAX_PARTS_BYTES: u64 = 3 << 20;

/// What a part takes in memory, and what it takes more for each dimension beyond those that coordinates have room for.
const PART_BYTES: u64 = 192;
const DIMENSION_BYTES: u64 = 3 * 8;
const DIMENSIONS: u64 = 6;

/// A piece under a read and what of it is wanted.
pub(super) struct Part {
    pub(super) piece: ChunkIndex,
    /// The piece's first element.
    pub(super) start: Coordinates,
    /// The elements that are wanted.
    pub(super) region: Region,
}

impl Part {
    pub(super) fn new(piece: ChunkIndex, start: &[u64], region: &Region) -> Part {
        Part {
            piece,
            start: Coordinates::from_slice(start),
            region: region.clone(),
        }
    }

    /// Whether another part is of the same piece.
    pub(super) fn is_of_same_piece(&self, other: &Part) -> bool {
        self.piece == other.piece
    }
}

/// Returns the elements of `size` bytes that hold a range of bytes.
pub(super) fn elements(size: usize, range: &Range<u64>) -> Range<u64> {
    let size = size as u64;
    range.start / size..range.end.div_ceil(size)
}

/// Returns the most bytes of elements of `size` bytes that are read at a time, so that the parts of the pieces
/// under them take about `MAX_PARTS_BYTES`.
pub(super) fn max_read(decoder: &Decoder, size: usize) -> u64 {
    let row = if decoder.pieces.is_regular() {
        decoder.pieces.chunk_shape().last().copied().unwrap_or(1)
    } else {
        1
    };
    let more = (decoder.pieces.chunk_shape().len() as u64).saturating_sub(DIMENSIONS);
    let parts = MAX_PARTS_BYTES / (PART_BYTES + more * DIMENSION_BYTES);
    (parts * size.max(1) as u64).saturating_mul(row)
}

/// Calls `visit` with each piece under some elements of a box, with the piece's first element and the elements that are
/// wanted of it. Elements are counted in C order, or in that of the dimensions in `order`. The pieces of each box that
/// the elements are cut into come in C order.
pub(super) fn visit_pieces(
    decoder: &Decoder,
    (region, order): (&Region, Option<&[usize]>),
    elements: Range<u64>,
    mut visit: impl FnMut(ChunkIndex, &[u64], &Region),
) {
    let shape = order.map_or(region.shape.clone(), |order| permuted(&region.shape, order));
    for mut part in boxes(&shape, elements) {
        if let Some(order) = order {
            part = restored(&part, order);
        }
        for (start, &offset) in part.start.iter_mut().zip(&region.start) {
            *start += offset;
        }
        decoder.pieces.visit(&part, |piece, start, shared| {
            visit(piece, start, shared);
            true
        });
    }
}

/// Returns a box of permuted dimensions as one of the array.
fn restored(part: &Region, order: &[usize]) -> Region {
    let mut found = part.clone();
    for (place, &axis) in order.iter().enumerate() {
        found.start[axis] = part.start[place];
        found.shape[axis] = part.shape[place];
    }
    found
}

/// The parts of the range that a flat file was asked for last and could not answer from memory.
#[derive(Default)]
pub(super) struct MissedParts(Mutex<Option<(Range<u64>, Vec<Part>)>>);

impl MissedParts {
    /// Keeps the parts of a range for the thread that will read it.
    pub(super) fn keep(&self, range: Range<u64>, parts: Vec<Part>) {
        *self.0.lock() = Some((range, parts));
    }

    /// Takes the parts of a range, if they were kept and not taken yet.
    pub(super) fn take(&self, range: &Range<u64>) -> Option<Vec<Part>> {
        let mut kept = self.0.lock();
        let (_, parts) = kept.take_if(|(kept, _)| kept == range)?;
        Some(parts)
    }
}
