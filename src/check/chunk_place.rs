//! What a key below an array's folder is to the array: one of its chunks, one beyond its grid, or something else.

use crate::grid::{Coordinates, Grid};
use crate::model::{Array, KeyScheme, parse_index};
use crate::store::Key;

/// What a key is to an array.
pub(super) enum ChunkPlace {
    /// The key of a chunk of the grid, and whether its indices have the separator that the metadata do not state.
    Chunk(Coordinates, bool),
    /// The key of a chunk that the grid does not have.
    Outside(Coordinates),
    /// What would be the key of a chunk if the indices had this separator between them.
    OtherSeparator(char),
    /// A folder on the way to chunks.
    OnTheWay,
    /// Nothing of the array's.
    Other,
}

/// Where the chunks of an array lie, and which there are.
pub(super) struct ChunkPlaces<'a> {
    pub(super) keys: &'a KeyScheme,
    /// Nothing if the chunks cannot be numbered.
    pub(super) grid: Option<&'a Grid>,
    rank: usize,
}

impl<'a> ChunkPlaces<'a> {
    pub(super) fn new(array: &'a Array, grid: Option<&'a Grid>) -> ChunkPlaces<'a> {
        ChunkPlaces {
            keys: &array.keys,
            grid,
            rank: array.shape.len(),
        }
    }

    /// Returns what a key is.
    pub(super) fn of(&self, key: &Key) -> ChunkPlace {
        let path = key.as_bytes();
        if self.rank == 0 {
            let is_chunk = self.keys.scalar_keys.iter().any(|scalar| scalar == path);
            return if is_chunk {
                ChunkPlace::Chunk(Coordinates::new(), false)
            } else {
                self.on_the_way(path)
            };
        }
        let other = self.keys.other_separator.filter(|_| self.rank > 1);
        let separators = [(Some(self.keys.separator), false), (other, true)];
        for (separator, is_other) in separators {
            let indices = separator.and_then(|separator| self.keys.indices_of(path, separator));
            let Some(indices) = indices else { continue };
            match indices.len() {
                length if length == self.rank => return self.judged(&indices, is_other),
                length if length < self.rank && separator == Some('/') => {
                    return ChunkPlace::OnTheWay;
                }
                _ => {}
            }
        }
        match self.other_separator_of(path) {
            Some(separator) => ChunkPlace::OtherSeparator(separator),
            None => self.on_the_way(path),
        }
    }

    /// Returns the separator of a key that has not the one of the metadata, and is that of a chunk otherwise.
    fn other_separator_of(&self, path: &[u8]) -> Option<char> {
        let stated = self.keys.separator;
        let other = if stated == '/' { '.' } else { '/' };
        // In the default encoding of v3 the separator stands before the first index, too.
        let swapped = self.keys.prefix.strip_suffix(stated.to_string().as_bytes());
        let swapped = swapped.map(|start| [start, other.to_string().as_bytes()].concat());
        let prefixes = [Some(self.keys.prefix.clone()), swapped];
        let mut indices = prefixes
            .iter()
            .flatten()
            .filter_map(|prefix| str::from_utf8(path.strip_prefix(prefix.as_slice())?).ok());
        let is_chunk = indices.any(|indices| {
            let numbers = indices.split(other).map(parse_index);
            numbers
                .collect::<Option<Vec<u64>>>()
                .is_some_and(|numbers| numbers.len() == self.rank)
        });
        is_chunk.then_some(other)
    }

    fn judged(&self, indices: &[u64], is_other: bool) -> ChunkPlace {
        match self.grid {
            Some(grid) if grid.index(indices).is_none() => ChunkPlace::Outside(indices.into()),
            _ => ChunkPlace::Chunk(indices.into(), is_other),
        }
    }

    /// Whether a folder leads to the folder of the chunks.
    fn on_the_way(&self, path: &[u8]) -> ChunkPlace {
        let scalars = self.keys.scalar_keys.iter().map(Vec::as_slice);
        let leads = |to: &[u8]| {
            to == path
                || to
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let mut ways = scalars
            .filter(|_| self.rank == 0)
            .chain([self.keys.folder()]);
        if ways.any(leads) {
            ChunkPlace::OnTheWay
        } else {
            ChunkPlace::Other
        }
    }
}
