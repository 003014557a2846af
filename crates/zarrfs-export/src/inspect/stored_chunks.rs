//! Counts the stored chunks of an array, and maps their lengths and corruption.
//!
//! Chunks are counted by listing the store. So the time depends on the number of stored chunks, not on the size of the
//! grid.
//!
//! A map shows two dimensions, by default those with the most chunks; a cell adds up the chunks along the others. In a
//! large grid, a cell also stands for several chunks along each dimension. So memory is bounded by the number of cells,
//! and time by the number of stored chunks, whatever the size of the grid.

use std::cmp::Reverse;
use std::sync::Arc;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Grid;
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::{ListedChunk, OpenArray, ScanDetail, ShardFile};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;

/// The key and the stored length of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLength {
    /// The key of the chunk.
    pub key: Key,
    /// The length of the stored chunk in bytes.
    pub bytes: u64,
}

/// Number and size of the stored chunks of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of chunks in the chunk grid, stored or not.
    pub total: u64,
    /// Number of stored chunks in the array.
    pub present: u64,
    /// Total length of the stored chunks in bytes.
    pub bytes: u64,
    /// Number of elements in the stored chunks, without the parts of chunks that extend beyond the array. Saturates at
    /// `u128::MAX`.
    pub elements: u128,
    /// The shortest stored chunk.
    pub smallest: Option<ChunkLength>,
    /// The longest stored chunk.
    pub largest: Option<ChunkLength>,
    /// Whether all stored chunks were counted, and not only the first ones.
    pub is_whole: bool,
}

impl ChunkTotals {
    /// Counts the stored chunks of an array with `threads` parallel requests. Stops soon after `limit` chunks.
    ///
    /// Fails if the store cannot tell which chunks it has, or if the chunk grid is unknown.
    pub fn count(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        limit: u64,
        threads: usize,
    ) -> Result<ChunkTotals> {
        let grid = array.stored_grid()?;
        let mut facts = ChunkTotals {
            total: grid.len(),
            ..ChunkTotals::default()
        };
        let mut scan = array.scan_chunks(context, ScanDetail::Length, threads)?;
        while facts.present < limit {
            match scan.next_batch(context)? {
                None => {
                    facts.is_whole = true;
                    break;
                }
                Some(batch) => batch.iter().for_each(|chunk| facts.add(grid, chunk)),
            }
        }
        Ok(facts)
    }

    fn add(&mut self, grid: &Grid, chunk: &ListedChunk) {
        let bytes = chunk.size.unwrap_or_default();
        let shape = grid.region(&chunk.indices).shape;
        self.present += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let lengths = shape.iter().map(|&length| u128::from(length));
        let elements = lengths.fold(1_u128, u128::saturating_mul);
        self.elements = self.elements.saturating_add(elements);
        let found = || ChunkLength {
            key: chunk.key.clone(),
            bytes,
        };
        // Of several chunks with the same length, the one with the first key counts, so that the result does not depend
        // on the order in which the store lists keys.
        let is_before = |other: &ChunkLength| chunk.key < other.key;
        let is_smaller =
            |other: &ChunkLength| bytes < other.bytes || bytes == other.bytes && is_before(other);
        let is_larger =
            |other: &ChunkLength| bytes > other.bytes || bytes == other.bytes && is_before(other);
        if self.smallest.as_ref().is_none_or(is_smaller) {
            self.smallest = Some(found());
        }
        if self.largest.as_ref().is_none_or(is_larger) {
            self.largest = Some(found());
        }
    }
}

/// A minimum and a maximum, or `None` if there are no numbers.
pub type Ends<T> = Option<(T, T)>;

/// The chunks that a cell of a chunk map stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MapCell {
    /// Number of chunks, stored or not.
    pub chunks: u64,
    /// Number of stored chunks in the cell.
    pub present: u64,
    /// Total length of the stored chunks in bytes; 0 unless lengths were requested.
    pub bytes: u64,
    /// Minimum and maximum length of a stored chunk in bytes, if lengths were requested.
    pub lengths: Ends<u64>,
    /// Minimum and maximum compression ratio of a stored chunk. Its decoded size counts only elements inside the array.
    /// `None` if elements have variable length.
    pub ratios: Ends<f64>,
    /// Number of chunks that cannot be decoded, if decoding was requested.
    pub corrupt: u64,
}

/// Options of a chunk map.
#[derive(Clone, Copy, Debug)]
pub struct MapConfig {
    /// The dimensions of rows and columns; by default the two dimensions with the most chunks.
    pub axes: Option<(usize, usize)>,
    /// Maximum number of rows of cells.
    pub max_rows: u64,
    /// Maximum number of columns of cells.
    pub max_columns: u64,
    /// Whether the lengths of stored chunks are requested.
    pub detail: ScanDetail,
    /// Whether all stored chunks are decoded, to find corrupt ones.
    pub decode: bool,
    /// Maximum number of chunks that are decoded in parallel.
    pub threads: usize,
}

/// A chunk that cannot be decoded.
#[derive(Clone, Debug)]
pub struct CorruptChunk {
    /// The key of the chunk.
    pub key: Key,
    /// The error of decoding the chunk.
    pub error: Error,
}

/// A map of an array's chunk grid: two of its dimensions, divided into cells.
#[derive(Clone, Debug)]
pub struct ChunkMap {
    /// Number of chunks along each dimension of the array.
    pub grid: Vec<u64>,
    /// The dimensions of rows and columns; `None` if the array has too few dimensions.
    pub axes: (Option<usize>, Option<usize>),
    /// Number of rows of cells in the map.
    pub rows: u64,
    /// Number of columns of cells in the map.
    pub columns: u64,
    /// The cells of the map, row by row.
    pub cells: Vec<MapCell>,
    /// Number of chunks in the chunk grid, stored or not.
    pub total: u64,
    /// Number of stored chunks in the array.
    pub present: u64,
    /// The first 1000 chunks that cannot be decoded, with their errors.
    pub corrupt: Vec<CorruptChunk>,
}

impl ChunkMap {
    /// Makes a map of an array's chunk grid; `progress` receives the number of chunks found so far.
    ///
    /// Fails with `Invalid` if the array lacks a requested dimension, and if the store cannot tell which chunks it has.
    pub fn of(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        config: &MapConfig,
        progress: &dyn Fn(u64),
    ) -> Result<ChunkMap> {
        if config.decode {
            array.check_decodable()?;
        }
        let empty = ChunkMap::empty(array.stored_grid()?, config);
        let mut map = empty.map_err(|error| error.about(array.path()))?;
        let mut scan = array.scan_chunks(context, config.detail, config.threads)?;
        while let Some(batch) = scan.next_batch(context)? {
            map.add(context, array, batch, config)?;
            progress(map.present);
        }
        Ok(map)
    }

    /// Makes a map of the inner chunks of a shard, without decoding them.
    ///
    /// Fails with `Invalid` if the array lacks a requested dimension, and with `Corrupt` if the index of the shard is
    /// invalid.
    pub fn of_shard(shard: &ShardFile, config: &MapConfig) -> Result<ChunkMap> {
        let empty = ChunkMap::empty(shard.inner(), config);
        let mut map = empty.map_err(|error| error.about(&shard.key))?;
        for number in 0..shard.inner().len() {
            if let Some(range) = shard.range(number)? {
                let chunk = ListedChunk {
                    indices: shard.indices(number),
                    key: shard.key.clone(),
                    size: Some(range.end - range.start),
                };
                map.add_chunk(chunk, shard.inner_bytes(), Ok(()))?;
            }
        }
        Ok(map)
    }

    fn empty(chunks: &Grid, config: &MapConfig) -> Result<ChunkMap> {
        let grid = chunks.counts();
        let axes = axes_of(grid, config.axes)?;
        let count =
            |axis: Option<usize>| axis.and_then(|axis| grid.get(axis).copied()).unwrap_or(1);
        let (rows, columns) = (count(axes.0), count(axes.1));
        let others = grid.iter().enumerate();
        let others = others.filter(|(axis, _)| Some(*axis) != axes.0 && Some(*axis) != axes.1);
        let others = others.fold(1_u64, |all, (_, &count)| all.saturating_mul(count));
        let mut map = ChunkMap {
            grid: grid.to_vec(),
            axes,
            rows: rows.min(config.max_rows),
            columns: columns.min(config.max_columns),
            cells: Vec::new(),
            total: chunks.len(),
            present: 0,
            corrupt: Vec::new(),
        };
        for row in 0..map.rows {
            let high = share(row, rows, map.rows);
            for column in 0..map.columns {
                let wide = share(column, columns, map.columns);
                map.cells.push(MapCell {
                    chunks: high.saturating_mul(wide).saturating_mul(others),
                    ..MapCell::default()
                });
            }
        }
        Ok(map)
    }

    fn add(
        &mut self,
        context: &RequestContext,
        array: &Arc<OpenArray>,
        batch: Vec<ListedChunk>,
        config: &MapConfig,
    ) -> Result<()> {
        let look = |chunk: ListedChunk| {
            let outcome = if config.decode {
                decode(context, array, &chunk)
            } else {
                Ok(())
            };
            (chunk, outcome)
        };
        let element = array.array().element_size().unwrap_or(0) as u64;
        // Several threads are useful only for decoding.
        let threads = if config.decode { config.threads } else { 1 };
        for (chunk, outcome) in parallel_map(threads, batch, &look) {
            let shape = array.stored_grid()?.region(&chunk.indices).shape;
            let lengths = shape.iter().copied();
            self.add_chunk(chunk, lengths.fold(element, u64::saturating_mul), outcome)?;
        }
        Ok(())
    }

    /// Adds a stored chunk to its cell, given the size in bytes of its decoded elements and the result of decoding it.
    /// A `Corrupt` error is counted, and any other error is returned.
    fn add_chunk(&mut self, chunk: ListedChunk, decoded: u64, outcome: Result<()>) -> Result<()> {
        self.present += 1;
        let Some(cell) = self.cell(&chunk.indices) else {
            return Ok(());
        };
        cell.present += 1;
        if let Some(size) = chunk.size {
            cell.bytes = cell.bytes.saturating_add(size);
            cell.lengths = with(cell.lengths, size);
            if size > 0 && decoded > 0 {
                cell.ratios = with(cell.ratios, float(decoded) / float(size));
            }
        }
        match outcome {
            Err(error) if error.kind() == Kind::Corrupt => {
                cell.corrupt += 1;
                // The map lists only the first 1000 corrupt chunks.
                if self.corrupt.len() < 1000 {
                    let key = chunk.key;
                    self.corrupt.push(CorruptChunk { key, error });
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn cell(&mut self, indices: &[u64]) -> Option<&mut MapCell> {
        let place = |axis: Option<usize>, cells: u64| match axis {
            None => 0,
            Some(axis) => {
                let (index, count) = (indices.get(axis), self.grid.get(axis));
                let index = index.copied().unwrap_or_default();
                scaled(index, cells, count.copied().unwrap_or(1))
            }
        };
        let number =
            place(self.axes.0, self.rows) * self.columns + place(self.axes.1, self.columns);
        self.cells.get_mut(usize::try_from(number).ok()?)
    }
}

fn with<T: PartialOrd + Copy>(ends: Ends<T>, number: T) -> Ends<T> {
    Some(match ends {
        Some((least, largest)) if number < least => (number, largest),
        Some((least, largest)) if number > largest => (least, number),
        Some(ends) => ends,
        None => (number, number),
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio shows no more than the first digits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

/// Returns the dimensions of rows and columns of a chunk map.
///
/// By default, rows and columns are the two dimensions with the most chunks, in the order of the array; of dimensions
/// with equally many chunks, later ones are preferred. If only one dimension has several chunks, it becomes the
/// columns, since terminals are wider than high.
fn axes_of(grid: &[u64], axes: Option<(usize, usize)>) -> Result<(Option<usize>, Option<usize>)> {
    let rank = grid.len();
    match axes {
        None => {
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.sort_by_key(|&axis| (Reverse(grid[axis]), Reverse(axis)));
            Ok(match axes[..] {
                [first, second, ..] if grid[second] != 1 => {
                    (Some(first.min(second)), Some(first.max(second)))
                }
                _ => (None, axes.first().copied()),
            })
        }
        Some((row, column)) if row < rank && column < rank && row != column => {
            Ok((Some(row), Some(column)))
        }
        Some((row, column)) => {
            let why = format!(
                "{row} and {column} are not two different dimensions of this array, which has {rank}"
            );
            Err(Error::invalid("", why))
        }
    }
}

fn scaled(number: u64, cells: u64, count: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(cells) / u128::from(count.max(1));
    u64::try_from(scaled).unwrap_or_default()
}

/// Returns how many of the `count` chunks along a dimension belong to a cell, if the dimension is divided into `cells`
/// cells.
fn share(cell: u64, count: u64, cells: u64) -> u64 {
    let first = |cell: u64| {
        let first = (u128::from(cell) * u128::from(count)).div_ceil(u128::from(cells.max(1)));
        u64::try_from(first).unwrap_or(u64::MAX)
    };
    first(cell + 1) - first(cell)
}

/// Decodes a chunk to find out whether it is corrupt, and drops the elements.
pub(super) fn decode(
    context: &RequestContext,
    array: &Arc<OpenArray>,
    chunk: &ListedChunk,
) -> Result<()> {
    let region = array.stored_grid()?.region(&chunk.indices);
    if array.array().data_type.is_variable() {
        return array.records(context, &region).map(drop);
    }
    let flat = FlatFile::new(array.clone(), region)?;
    let mut at = 0;
    while at < flat.len() {
        // The chunk is decoded in parts of 16 MiB, to limit the memory.
        let end = flat.len().min(at + (16 << 20));
        flat.read(context, at..end)?;
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_totals_of_huge_grids_saturate() {
        let huge = vec![u64::MAX; 3];
        let grid = Grid::new(&huge, &huge).unwrap();
        let mut facts = ChunkTotals::default();
        let chunk = ListedChunk {
            indices: [0, 0, 0].as_slice().into(),
            key: Key::root(),
            size: Some(u64::MAX),
        };
        facts.add(&grid, &chunk);
        facts.add(&grid, &chunk);
        assert_eq!((facts.elements, facts.bytes), (u128::MAX, u64::MAX));
    }

    #[test]
    fn the_dimensions_with_the_most_chunks_are_shown() {
        let axes = |grid: &[u64]| axes_of(grid, None).unwrap();
        assert_eq!(axes(&[12, 4, 1]), (Some(0), Some(1)));
        assert_eq!(axes(&[2, 9, 1, 3]), (Some(1), Some(3)));
        assert_eq!(axes(&[4, 4, 4]), (Some(1), Some(2)));
        assert_eq!(axes(&[1000, 1, 1]), (None, Some(0)));
        assert_eq!(axes(&[1, 1, 1]), (None, Some(2)));
        assert_eq!(axes(&[7]), (None, Some(0)));
        assert_eq!(axes(&[]), (None, None));
        assert_eq!(axes(&[0, 3]), (Some(0), Some(1)));
        assert_eq!(axes_of(&[1, 5], Some((1, 0))).unwrap(), (Some(1), Some(0)));
        assert!(axes_of(&[1, 5], Some((1, 2))).is_err());
    }

    #[test]
    fn each_chunk_is_counted_in_one_cell() {
        for (count, cells) in [(10, 3), (7, 7), (1, 1), (1000, 64), (u64::MAX, 5)] {
            let shares = (0..cells).map(|cell| share(cell, count, cells));
            assert_eq!(shares.sum::<u64>(), count);
        }
        for count in [10, 64, 1000] {
            let cells = count.min(64);
            let mut found = vec![0; 64];
            for number in 0..count {
                found[usize::try_from(scaled(number, cells, count)).unwrap()] += 1;
            }
            for cell in 0..cells {
                let place = usize::try_from(cell).unwrap();
                assert_eq!(found[place], share(cell, count, cells), "{cell} of {count}");
            }
        }
    }
}
