//! Classifies keys below an array: chunks, chunks outside the grid, other keys.

use std::fmt;

use zarr_format::grid::{Coordinates, Grid};
use zarr_format::model::{Array, KeyScheme, parse_index};
use zarrfs_store::Key;

/// The encoding of chunk keys, with the names of Zarr v3: `default` has `c` before the indices, `v2` has no prefix.
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

/// The relation of a key to an array.
pub(super) enum ChunkPlace {
    /// A chunk of the grid, and whether its key has a separator that the metadata do not state.
    Chunk(Coordinates, bool),
    /// A chunk outside the grid.
    Outside(Coordinates),
    /// A key that would be a chunk key in this encoding.
    Misnamed(KeyForm),
    /// A folder above the chunks.
    OnTheWay,
    /// A key that does not belong to the array.
    Other,
}

/// The key scheme and the grid of an array.
pub(super) struct ChunkPlaces<'a> {
    pub(super) keys: &'a KeyScheme,
    /// `None` if the chunks cannot be numbered.
    pub(super) grid: Option<&'a Grid>,
    /// The encoding of keys that the metadata state.
    pub(super) form: KeyForm,
    /// The common prefix of keys in both encodings of Zarr v3; `None` in other dialects.
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

    /// Classifies a key.
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

    /// Classifies a key that does not match the stated encoding.
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

    /// Returns the other encoding of Zarr v3 if the key is a chunk key in it.
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

    /// Whether a text is chunk indices with this separator, inside or outside the grid.
    fn are_indices(&self, text: &str, separator: char) -> bool {
        let numbers: Option<Vec<u64>> = text.split(separator).map(parse_index).collect();
        numbers.is_some_and(|numbers| numbers.len() == self.rank)
    }

    /// Returns the other separator if the key is a chunk key with it.
    fn other_separator_of(&self, path: &[u8]) -> Option<char> {
        let stated = self.keys.separator;
        let other = if stated == '/' { '.' } else { '/' };
        // In the default encoding of v3 the separator also stands before the first index.
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

    /// Returns `OnTheWay` for the folder of the chunks and the folders above it, else `Other`.
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
