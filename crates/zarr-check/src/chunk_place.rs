//! What a key below an array's folder is to the array: one of its chunks, one beyond its grid, or something else.

use std::fmt;

use zarr_format::grid::{Coordinates, Grid};
use zarr_format::model::{Array, KeyScheme, parse_index};
use zarrfs_store::Key;

/// How the keys of chunks are made, as final v3 names it: `default` has `c` before the indices, `v2` has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyForm {
    pub(super) has_c: bool,
    pub(super) separator: char,
}

impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.has_c { "default" } else { "v2" };
        write!(f, "the encoding {name} with \"{}\"", self.separator)
    }
}

/// What a key is to an array.
pub(super) enum ChunkPlace {
    /// The key of a chunk of the grid, and whether its indices have the separator that the metadata do not state.
    Chunk(Coordinates, bool),
    /// The key of a chunk that the grid does not have.
    Outside(Coordinates),
    /// What would be the key of a chunk if keys were made in this way.
    Misnamed(KeyForm),
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
    /// How the metadata say that keys are made.
    pub(super) form: KeyForm,
    /// What keys of both encodings of final v3 begin with, if the dialect has these.
    base: Option<Vec<u8>>,
    rank: usize,
}

impl<'a> ChunkPlaces<'a> {
    pub(super) fn new(array: &'a Array, grid: Option<&'a Grid>) -> ChunkPlaces<'a> {
        let keys = &array.keys;
        let form = KeyForm {
            has_c: keys.v3.get("name").is_some_and(|name| name == "default"),
            separator: keys.separator,
        };
        let within_base = if form.has_c { 2 } else { 0 };
        let base = keys.prefix.len().checked_sub(within_base);
        let base = base.and_then(|length| keys.prefix.get(..length));
        ChunkPlaces {
            keys,
            grid,
            form,
            base: base
                .filter(|_| ["v2", "v3"].contains(&array.dialect))
                .map(<[u8]>::to_vec),
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
                self.misnamed_or_other(path)
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
        self.misnamed_or_other(path)
    }

    /// Returns what a key is that is not made as the metadata say.
    fn misnamed_or_other(&self, path: &[u8]) -> ChunkPlace {
        let with_separator = |separator| KeyForm {
            separator,
            ..self.form
        };
        let other = self.other_separator_of(path).map(with_separator);
        match other.or_else(|| self.other_encoding_of(path)) {
            Some(form) => ChunkPlace::Misnamed(form),
            None => self.on_the_way(path),
        }
    }

    /// Returns how a key is made that would be that of a chunk in the other encoding of final v3.
    fn other_encoding_of(&self, path: &[u8]) -> Option<KeyForm> {
        let has_c = !self.form.has_c;
        let within = str::from_utf8(path.strip_prefix(self.base.as_ref()?.as_slice())?).ok()?;
        if self.rank == 0 {
            let separator = self.form.separator;
            let scalar = if has_c { "c" } else { "0" };
            return (within == scalar).then_some(KeyForm { has_c, separator });
        }
        let form = |separator: char| {
            let indices = if has_c {
                within.strip_prefix('c')?.strip_prefix(separator)?
            } else {
                within
            };
            self.are_indices(indices, separator)
                .then_some(KeyForm { has_c, separator })
        };
        ['/', '.'].into_iter().find_map(form)
    }

    /// Whether a text is the indices of a chunk with a separator between them, whether the grid has it or not.
    fn are_indices(&self, text: &str, separator: char) -> bool {
        let numbers: Option<Vec<u64>> = text.split(separator).map(parse_index).collect();
        numbers.is_some_and(|numbers| numbers.len() == self.rank)
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
        let is_chunk = indices.any(|indices| self.are_indices(indices, other));
        (is_chunk && self.rank > 0).then_some(other)
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
