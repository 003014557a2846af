//! The chunk grid of an array as a table of cells: which chunks are stored, how long they are, and whether they decode.
//!
//! Two dimensions are shown and the others counted together; without a choice those with the most chunks. A large grid is shown in cells of several chunks, so that
//! the table takes the memory of its cells and the time of the chunks that are stored, whatever the grid has.

use std::cmp::Reverse;
use std::sync::Arc;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Grid;
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::{FoundChunk, OpenArray, ScanDetail, ShardFile};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;

/// The least and the largest of some numbers.
pub type Ends<T> = Option<(T, T)>;

/// Some chunks of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MapCell {
    /// How many there are.
    pub chunks: u64,
    /// How many of them are stored.
    pub present: u64,
    /// Bytes of these as they are stored, if lengths were asked for.
    pub bytes: u64,
    /// Bytes of one of them, if lengths were asked for.
    pub lengths: Ends<u64>,
    /// How many times longer one of them is decoded, as far as it lies in the array; nothing of elements without a fixed
    /// length.
    pub ratios: Ends<f64>,
    /// How many do not decode, if that was asked for.
    pub corrupt: u64,
}

/// What a map shows.
#[derive(Clone, Copy, Debug)]
pub struct MapConfig {
    /// The dimensions that are rows and columns; those with the most chunks if nothing is given.
    pub axes: Option<(usize, usize)>,
    /// The most rows.
    pub max_rows: u64,
    /// The most columns.
    pub max_columns: u64,
    /// Whether lengths are asked for.
    pub detail: ScanDetail,
    /// Whether all stored chunks are decoded.
    pub decode: bool,
    /// How many chunks are looked at at a time.
    pub threads: usize,
}

/// A chunk that does not decode.
#[derive(Clone, Debug)]
pub struct CorruptChunk {
    /// Its key.
    pub key: Key,
    /// What is wrong.
    pub error: Error,
}

/// The most chunks that do not decode whose errors are kept.
const MAX_CORRUPT: usize = 1000;

/// A map of a chunk grid.
#[derive(Clone, Debug)]
pub struct ChunkMap {
    /// Chunks along each dimension.
    pub grid: Vec<u64>,
    /// The dimension of the rows, if there is one, and of the columns.
    pub axes: (Option<usize>, Option<usize>),
    /// How many rows of cells there are.
    pub rows: u64,
    /// How many columns.
    pub columns: u64,
    /// Row after row.
    pub cells: Vec<MapCell>,
    /// Chunks that the grid has.
    pub total: u64,
    /// Chunks that are stored.
    pub present: u64,
    /// Chunks that do not decode, up to a number of them.
    pub corrupt: Vec<CorruptChunk>,
}

impl ChunkMap {
    /// Makes the map of an array; `progress` gets how many chunks were found.
    ///
    /// Fails with `Invalid` for dimensions that the array has not, and if the store does not say which chunks it has.
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

    /// Makes the map of the inner chunks of a shard, which are not decoded.
    ///
    /// Fails with `Invalid` for dimensions that the array has not, and with `Corrupt` if the index does not read.
    pub fn of_shard(shard: &ShardFile, config: &MapConfig) -> Result<ChunkMap> {
        let empty = ChunkMap::empty(shard.inner(), config);
        let mut map = empty.map_err(|error| error.about(&shard.key))?;
        for number in 0..shard.inner().len() {
            if let Some(range) = shard.range(number)? {
                let chunk = FoundChunk {
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
        batch: Vec<FoundChunk>,
        config: &MapConfig,
    ) -> Result<()> {
        let look = |chunk: FoundChunk| {
            let outcome = if config.decode {
                decode(context, array, &chunk)
            } else {
                Ok(())
            };
            (chunk, outcome)
        };
        let element = array.array().element_size().unwrap_or(0) as u64;
        for (chunk, outcome) in parallel_map(threads(config), batch, &look) {
            let shape = array.stored_grid()?.region(&chunk.indices).shape;
            let lengths = shape.iter().copied();
            self.add_chunk(chunk, lengths.fold(element, u64::saturating_mul), outcome)?;
        }
        Ok(())
    }

    /// Adds a chunk of so many bytes decoded, and whether it decodes. Fails as that did, but for a corrupt chunk.
    fn add_chunk(&mut self, chunk: FoundChunk, decoded: u64, outcome: Result<()>) -> Result<()> {
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
                if self.corrupt.len() < MAX_CORRUPT {
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

/// Without decoding there is nothing to do side by side.
fn threads(config: &MapConfig) -> usize {
    if config.decode { config.threads } else { 1 }
}

/// Takes one more number in.
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

/// Returns the dimensions of rows and columns.
///
/// Without a choice they are the two with the most chunks, in the order of the array, and of as many chunks the last ones.
/// Where one dimension alone has several chunks it is the columns, of which a terminal has more.
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
            let why = format!("has {rank} dimensions: {row} and {column} are not two of them");
            Err(Error::invalid("", why))
        }
    }
}

/// Returns `number * cells / count`, rounded down.
fn scaled(number: u64, cells: u64, count: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(cells) / u128::from(count.max(1));
    u64::try_from(scaled).unwrap_or_default()
}

/// Returns how many of `count` chunks are shown in a cell.
fn share(cell: u64, count: u64, cells: u64) -> u64 {
    let first = |cell: u64| {
        let first = (u128::from(cell) * u128::from(count)).div_ceil(u128::from(cells.max(1)));
        u64::try_from(first).unwrap_or(u64::MAX)
    };
    first(cell + 1) - first(cell)
}

/// How many bytes of a chunk are read at a time.
const READ_SIZE: u64 = 16 << 20;

/// Decodes a chunk.
pub(super) fn decode(
    context: &RequestContext,
    array: &Arc<OpenArray>,
    chunk: &FoundChunk,
) -> Result<()> {
    let region = array.stored_grid()?.region(&chunk.indices);
    if array.array().data_type.is_variable() {
        return array.records(context, &region).map(drop);
    }
    let flat = FlatFile::new(array.clone(), region)?;
    let mut at = 0;
    while at < flat.len() {
        let end = flat.len().min(at + READ_SIZE);
        flat.read(context, at..end)?;
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn each_chunk_is_in_one_cell() {
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
