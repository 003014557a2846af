//! Maps the bytes of a flat file to the chunks of its array.
//!
//! A plane is all elements at one index along the slowest dimension of the file; a chunk row is all chunks at one chunk
//! index along that dimension. Each plane crosses all chunks of its chunk row. So a sequential reader reads every chunk
//! of a chunk row once per plane, and needs one chunk row in memory at a time.

use std::ops::Range;

use parking_lot::Mutex;

use zarr_format::error::Result;
use zarr_format::grid::{ChunkIndex, Coordinates, Grid, Layout, Region, Runs, boxes, permuted};
use zarr_format::model::bytes_of;

/// The order in which a flat file shows the elements of a box of the array.
pub(super) struct FileLayout {
    pub(super) region: Region,
    /// The array's dimension for each dimension of the file, outermost first; `None` if the order is the array's.
    pub(super) order: Option<Box<[usize]>>,
    pub(super) element: usize,
    pub(super) length: u64,
}

/// A byte range of a file whose bytes are contiguous in one chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkRun {
    pub(super) chunk: ChunkIndex,
    pub(super) start: Coordinates,
    pub(super) bytes: Range<usize>,
}

/// Converts a length or an offset within the buffer of one read to `usize`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is at most the length of the buffer, which is a usize"
)]
pub(super) fn in_buffer(bytes: u64) -> usize {
    bytes as usize
}

/// Returns the range of elements of `size` bytes that contain a range of bytes.
pub(super) fn elements(size: usize, range: &Range<u64>) -> Range<u64> {
    let size = size as u64;
    range.start / size..range.end.div_ceil(size)
}

/// Converts a box whose dimensions are in the order of the file to the order of the array.
fn restored(part: &Region, order: &[usize]) -> Region {
    let mut found = part.clone();
    for (place, &axis) in order.iter().enumerate() {
        found.start[axis] = part.start[place];
        found.shape[axis] = part.shape[place];
    }
    found
}

impl FileLayout {
    /// Lays out the elements of a box, of `element` bytes each, in a file; `TooLarge` if the file would be too long.
    pub(super) fn new(
        region: Region,
        order: Option<Box<[usize]>>,
        element: usize,
    ) -> Result<FileLayout> {
        Ok(FileLayout {
            length: bytes_of(&region.shape, element)?,
            region,
            order,
            element,
        })
    }

    /// Returns the array's dimension that varies slowest in the file.
    pub(super) fn slowest_axis(&self) -> usize {
        let order = self.order.as_deref().and_then(<[usize]>::first);
        order.map_or(0, |&axis| axis)
    }

    pub(super) fn elements(&self, range: &Range<u64>) -> Range<u64> {
        let size = self.element as u64;
        range.start / size..range.end.div_ceil(size)
    }

    /// Returns the maximum number of bytes that are read at a time; it limits the memory for the list of chunks to
    /// about 3 MiB.
    pub(super) fn max_read(&self, grid: &Grid) -> u64 {
        let row = if grid.is_regular() {
            grid.chunk_shape().last().copied().unwrap_or(1)
        } else {
            1
        };
        // A `ChunkSlice` has 192 bytes, plus three numbers for each dimension after the sixth, which coordinates store
        // inline.
        let more = (grid.chunk_shape().len() as u64).saturating_sub(6);
        let slices = (3 << 20) / (192 + more * 3 * 8);
        (slices * self.element.max(1) as u64).saturating_mul(row)
    }

    /// Calls `visit` with each chunk that a byte range covers, the chunk's first element, and the box of elements in
    /// the range. The range is cut into boxes; the chunks of each box come in C order.
    pub(super) fn visit(
        &self,
        grid: &Grid,
        range: &Range<u64>,
        mut visit: impl FnMut(ChunkIndex, &[u64], &Region),
    ) {
        let (region, order) = (&self.region, self.order.as_deref());
        let shape = order.map_or(region.shape.clone(), |order| permuted(&region.shape, order));
        for mut part in boxes(&shape, self.elements(range)) {
            if let Some(order) = order {
                part = restored(&part, order);
            }
            for (start, &offset) in part.start.iter_mut().zip(&region.start) {
                *start += offset;
            }
            grid.visit(&part, |chunk, start, shared| {
                visit(chunk, start, shared);
                true
            });
        }
    }

    /// Returns the location of a byte range that is contiguous in one chunk of a regular grid, or `None`.
    pub(super) fn run_in_chunk(&self, grid: &Grid, range: &Range<u64>) -> Option<ChunkRun> {
        if self.order.is_some() || !grid.is_regular() || range.is_empty() {
            return None;
        }
        let (chunk_shape, counts) = (grid.chunk_shape(), grid.counts());
        let elements = self.elements(range);
        let (mut first, mut last) = (elements.start, elements.end - 1);
        let rank = self.region.shape.len();
        let mut start = Coordinates::from_elem(0, rank);
        let (mut number, mut offset) = (0, 0);
        let (mut chunks, mut length) = (1, 1);
        let mut is_one_run = true;
        for axis in (0..rank).rev() {
            let (file_start, file_length) = (self.region.start[axis], self.region.shape[axis]);
            let at = file_start + first % file_length;
            let end = file_start + last % file_length;
            (first, last) = (first / file_length, last / file_length);
            let chunk_length = chunk_shape[axis];
            let index = at / chunk_length;
            let chunk_start = index * chunk_length;
            if end < chunk_start || end - chunk_start >= chunk_length {
                return None;
            }
            // The range covers several rows of the file along this dimension. The rows are contiguous in the chunk only
            // if each row of the chunk is exactly a row of the file.
            if first != last {
                is_one_run &= chunk_start == file_start && chunk_length == file_length;
            }
            start[axis] = chunk_start;
            (number, chunks) = (number + index * chunks, chunks * counts[axis]);
            offset += (at - chunk_start) * length;
            length *= chunk_length;
        }
        let skipped = range.start - elements.start * self.element as u64;
        let offset = in_buffer(offset * self.element as u64 + skipped);
        is_one_run.then(|| ChunkRun {
            chunk: ChunkIndex(number),
            start,
            bytes: offset..offset + in_buffer(range.end - range.start),
        })
    }

    /// Returns which box of which chunk a byte range covers; boxes of the same chunk are adjacent.
    pub(super) fn slices(&self, grid: &Grid, range: &Range<u64>) -> Vec<ChunkSlice> {
        let mut slices = Vec::new();
        self.visit(grid, range, |chunk, start, shared| {
            slices.push(ChunkSlice::new(chunk, start, shared));
        });
        slices.sort_by_key(|slice| slice.chunk);
        slices
    }

    /// Returns the chunks that a byte range of the file covers, perhaps more than once.
    pub(super) fn chunks(&self, grid: &Grid, range: &Range<u64>) -> Vec<ChunkIndex> {
        let mut chunks = Vec::new();
        self.visit(grid, range, |chunk, _, _| chunks.push(chunk));
        chunks
    }

    /// Returns the byte runs to copy from a chunk into a buffer that holds the elements of a read.
    pub(super) fn runs(&self, grid: &Grid, elements: &Range<u64>, slice: &ChunkSlice) -> Runs {
        let from = Layout {
            start: &slice.start,
            shape: &grid.shape_of(slice.chunk),
            skipped: 0,
        };
        let to = |start, shape| Layout {
            start,
            shape,
            skipped: elements.start,
        };
        let (region, size) = (&self.region, self.element);
        let Some(order) = &self.order else {
            return Runs::new(&slice.region, from, to(&region.start, &region.shape), size);
        };
        let start = permuted(&region.start, order);
        let shape = permuted(&region.shape, order);
        Runs::permuted(&slice.region, from, to(&start, &shape), order, size)
    }

    /// Returns the byte runs to copy into a chunk from a buffer that holds the elements of a write.
    pub(super) fn runs_into(&self, grid: &Grid, elements: &Range<u64>, slice: &ChunkSlice) -> Runs {
        let from = Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: elements.start,
        };
        let to = Layout {
            start: &slice.start,
            shape: &grid.shape_of(slice.chunk),
            skipped: 0,
        };
        Runs::new(&slice.region, from, to, self.element)
    }
}

/// The division of a file into chunk rows: all chunks at one index along the slowest dimension.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkRows {
    /// Bytes of a plane, which is all elements at one index along the slowest dimension.
    pub(super) plane: u64,
    /// The number of planes (indexes along the slowest dimension) in a chunk row, and how many planes of the first
    /// chunk row are before the start of the file.
    planes: u64,
    skipped: u64,
    pub(super) bytes: u64,
}

impl ChunkRows {
    /// Divides a file of `length` bytes that shows `region` into chunk rows; `axis` is the dimension that varies
    /// slowest in the file. In a rectilinear grid chunk rows differ in length, so each plane counts as a chunk row.
    pub(super) fn new(chunks: &Grid, region: &Region, axis: usize, length: u64) -> ChunkRows {
        let of_chunk = chunks.chunk_shape().get(axis).copied().unwrap_or(1).max(1);
        let of_file = region.shape.get(axis).copied().unwrap_or(1).max(1);
        let plane = length / of_file;
        let planes = if chunks.is_regular() { of_chunk } else { 1 };
        ChunkRows {
            plane,
            planes,
            skipped: region.start.get(axis).copied().unwrap_or(0) % planes,
            bytes: plane * of_chunk.min(of_file),
        }
    }

    /// Returns the byte range of the chunk row that contains byte `byte` of the file.
    pub(super) fn range_at(&self, byte: u64) -> Range<u64> {
        let row = (byte / self.plane.max(1) + self.skipped) / self.planes.max(1);
        let start = |row: u64| {
            let planes = row.saturating_mul(self.planes).saturating_sub(self.skipped);
            planes.saturating_mul(self.plane)
        };
        start(row)..start(row + 1)
    }
}

/// A chunk that a read or write covers, and the box of its elements that is wanted.
pub(super) struct ChunkSlice {
    pub(super) chunk: ChunkIndex,
    pub(super) start: Coordinates,
    pub(super) region: Region,
}

impl ChunkSlice {
    pub(super) fn new(chunk: ChunkIndex, start: &[u64], region: &Region) -> ChunkSlice {
        ChunkSlice {
            chunk,
            start: Coordinates::from_slice(start),
            region: region.clone(),
        }
    }

    pub(super) fn is_of_same_chunk(&self, other: &ChunkSlice) -> bool {
        self.chunk == other.chunk
    }
}

/// The chunks that the last read of a flat file needs, if it could not be answered from memory.
#[derive(Default)]
pub(super) struct PendingSlices(Mutex<Option<(Range<u64>, Vec<ChunkSlice>)>>);

impl PendingSlices {
    /// Remembers which chunks a range needs, for the thread that will read the range from the store.
    pub(super) fn keep(&self, range: Range<u64>, slices: Vec<ChunkSlice>) {
        *self.0.lock() = Some((range, slices));
    }

    /// Takes out the list of chunks that a range needs, if the list was remembered.
    pub(super) fn take(&self, range: &Range<u64>) -> Option<Vec<ChunkSlice>> {
        let pending = self.0.lock().take_if(|pending| pending.0 == *range)?;
        Some(pending.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_a_chunk_is_a_contiguous_range_of_that_chunk() {
        let grid = Grid::new(&[4, 6], &[2, 3]).unwrap();
        let (mut runs, mut all) = (0, 0);
        for (start, shape) in [([0, 0], [4, 6]), ([1, 0], [3, 3]), ([0, 4], [4, 2])] {
            let region = Region {
                start: start.as_slice().into(),
                shape: shape.as_slice().into(),
            };
            let layout = FileLayout::new(region, None, 2).unwrap();
            for first in 0..layout.length {
                for end in first + 1..=layout.length {
                    let elements = layout.elements(&(first..end));
                    let places: Vec<(ChunkIndex, usize)> = elements
                        .map(|element| {
                            let at = [start[0] + element / shape[1], start[1] + element % shape[1]];
                            grid.locate(&at)
                        })
                        .collect();
                    let (chunk, place) = places[0];
                    let mut expected = (place..).map(|place| (chunk, place));
                    let is_run = places.iter().all(|found| expected.next() == Some(*found));
                    let run = layout.run_in_chunk(&grid, &(first..end));
                    assert_eq!(run.is_some(), is_run, "{start:?} {first}..{end}");
                    if let Some(run) = run {
                        let byte = place * 2 + in_buffer(first % 2);
                        assert_eq!(run.bytes, byte..byte + in_buffer(end - first));
                        assert_eq!(run.chunk, chunk);
                        assert_eq!(run.start, grid.region(&grid.indices(chunk)).start);
                        runs += 1;
                    }
                    all += 1;
                }
            }
        }
        assert!(runs > 100 && all > 2 * runs);
    }

    #[test]
    fn chunk_rows_are_aligned_to_chunks_and_not_to_the_file() {
        let chunks = Grid::new(&[20, 10], &[4, 10]).unwrap();
        let region = Region {
            start: [5, 0].as_slice().into(),
            shape: [12, 10].as_slice().into(),
        };
        let rows = ChunkRows::new(&chunks, &region, 0, 12 * 10);
        assert_eq!((rows.plane, rows.bytes), (10, 40));
        assert_eq!(rows.range_at(0), 0..30);
        assert_eq!(rows.range_at(29), 0..30);
        assert_eq!(rows.range_at(30), 30..70);
        let columns = ChunkRows::new(&chunks, &region, 1, 12 * 10);
        assert_eq!((columns.plane, columns.bytes), (12, 120));
        assert_eq!(columns.range_at(50), 0..120);
    }
}
