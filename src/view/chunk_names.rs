//! The names of the directories on the way to the chunks of an array, as the array's metadata give them, whether a chunk
//! is stored or not.

use crate::error::Result;
use crate::grid::{ChunkIndex, Grid};
use crate::model::Array;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, Name};

/// The names of one directory on the way to chunks.
pub(super) enum Level {
    /// The next component of the prefix of all chunk keys.
    Stem(Vec<u8>),
    /// A prefix of the name, the count of indices that may follow it, and whether they end the key.
    Numbers(Vec<u8>, u64, EntryKind),
    /// A prefix of the name; all indices of a chunk follow it, joined by a character.
    Chunks(Vec<u8>, Grid, char),
    /// Whole names.
    Scalars(Vec<Vec<u8>>),
}

/// Returns the names under a path in an array or below it; nothing if there can be none.
pub(super) fn level(array: &Array, path: &Key) -> Result<Option<Level>> {
    let keys = &array.keys;
    let inside = if path.is_root() {
        Vec::new()
    } else {
        [path.as_bytes(), b"/"].concat()
    };
    if array.shape.is_empty() {
        let below = keys.scalar_keys.iter();
        let below: Vec<_> = below
            .filter_map(|key| key.strip_prefix(inside.as_slice()))
            .collect();
        if let Some(folder) = below.iter().find(|key| key.contains(&b'/')) {
            return Ok(Some(Level::Stem(first(folder))));
        }
        let names: Vec<_> = below.into_iter().map(<[u8]>::to_vec).collect();
        return Ok((!names.is_empty()).then_some(Level::Scalars(names)));
    }
    if let Some(rest) = keys.prefix.strip_prefix(inside.as_slice()) {
        if rest.contains(&b'/') {
            return Ok(Some(Level::Stem(first(rest))));
        }
        let grid = Grid::of(array)?;
        return Ok(Some(match (keys.separator, grid.counts()) {
            ('/', [count, _, ..]) => Level::Numbers(rest.to_vec(), *count, EntryKind::Directory),
            (separator, _) => Level::Chunks(rest.to_vec(), grid, separator),
        }));
    }
    let separators = [Some(keys.separator), keys.other_separator];
    match inside.strip_prefix(keys.prefix.as_slice()) {
        Some(indices) if separators.contains(&Some('/')) => numbers(&Grid::of(array)?, indices),
        _ => Ok(None),
    }
}

/// Returns the indices that may follow the first ones, each of which has a slash after it.
fn numbers(grid: &Grid, indices: &[u8]) -> Result<Option<Level>> {
    let given: Vec<&[u8]> = indices.split(|&byte| byte == b'/').collect();
    let Some((_, given)) = given.split_last() else {
        return Ok(None);
    };
    let fits = |(name, count): (&&[u8], &u64)| is_below(name, *count);
    if given.len() >= grid.counts().len() || !given.iter().zip(grid.counts()).all(fits) {
        return Ok(None);
    }
    let kind = if given.len() + 1 == grid.counts().len() {
        EntryKind::File
    } else {
        EntryKind::Directory
    };
    let count = grid.counts().get(given.len()).copied().unwrap_or_default();
    Ok(Some(Level::Numbers(Vec::new(), count, kind)))
}

/// Whether a name is that of a number below `count`.
fn is_below(name: &[u8], count: u64) -> bool {
    let number = str::from_utf8(name).ok();
    let number = number.and_then(|name| name.parse::<u64>().ok());
    number.is_some_and(|number| number < count && number.to_string().as_bytes() == name)
}

/// Returns the bytes before the first slash.
fn first(key: &[u8]) -> Vec<u8> {
    key.split(|&byte| byte == b'/')
        .next()
        .unwrap_or_default()
        .to_vec()
}

impl Level {
    /// Returns the names as a listing.
    pub(super) fn listing(self) -> Box<dyn Listing> {
        match self {
            Level::Stem(name) => Box::new(NameList::new([(name, EntryKind::Directory)])),
            Level::Scalars(names) => {
                let files = names.into_iter().map(|name| (name, EntryKind::File));
                Box::new(NameList::new(files))
            }
            level => Box::new(IndexListing { level, place: 0 }),
        }
    }

    /// Whether a name is one of these.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        match self {
            Level::Stem(stem) => stem == name,
            Level::Scalars(names) => names.iter().any(|known| known == name),
            Level::Numbers(stem, count, _) => name
                .strip_prefix(stem.as_slice())
                .is_some_and(|number| is_below(number, *count)),
            Level::Chunks(stem, grid, separator) => {
                let rest = name.strip_prefix(stem.as_slice());
                let rest = rest.and_then(|rest| str::from_utf8(rest).ok());
                rest.is_some_and(|rest| {
                    let indices: Vec<&str> = rest.split(*separator).collect();
                    let mut pairs = indices.iter().zip(grid.counts());
                    indices.len() == grid.counts().len()
                        && pairs.all(|(index, count)| is_below(index.as_bytes(), *count))
                })
            }
        }
    }

    fn len(&self) -> u64 {
        match self {
            Level::Numbers(_, count, _) => *count,
            Level::Chunks(_, grid, _) => grid.len(),
            Level::Stem(_) | Level::Scalars(_) => 0,
        }
    }

    fn name(&self, number: u64) -> (Vec<u8>, EntryKind) {
        match self {
            Level::Chunks(stem, grid, separator) => {
                let indices = grid.indices(ChunkIndex(number));
                let indices: Vec<_> = indices.iter().map(u64::to_string).collect();
                let name = [
                    stem.as_slice(),
                    indices.join(&separator.to_string()).as_bytes(),
                ]
                .concat();
                (name, EntryKind::File)
            }
            Level::Numbers(stem, _, kind) => (
                [stem.as_slice(), number.to_string().as_bytes()].concat(),
                *kind,
            ),
            Level::Stem(_) | Level::Scalars(_) => (Vec::new(), EntryKind::File),
        }
    }
}

/// Names that are made from numbers.
struct IndexListing {
    level: Level,
    place: u64,
}

impl Listing for IndexListing {
    fn next(&mut self) -> Result<Option<Name>> {
        if self.place >= self.level.len() {
            return Ok(None);
        }
        let (name, kind) = self.level.name(self.place);
        self.place += 1;
        Ok(Some(Name {
            name,
            kind,
            cursor: self.place,
            meta: None,
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.place = cursor;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hierarchy::Hierarchy;
    use crate::store::backend::memory::MemoryStore;

    fn names(level: Level) -> Vec<String> {
        let mut listing = level.listing();
        let mut names = Vec::new();
        while let Some(name) = listing.next().unwrap() {
            let slash = if name.kind == EntryKind::Directory {
                "/"
            } else {
                ""
            };
            names.push(String::from_utf8(name.name).unwrap() + slash);
        }
        names
    }

    /// Returns an array at `a` by the members of its document that differ.
    fn array(document: &str, text: &str) -> Array {
        let memory = MemoryStore::default();
        memory.set(Key::new(format!("a/{document}")).unwrap(), text.into());
        let hierarchy = Hierarchy::new(Arc::new(memory));
        let found = hierarchy.node(&Key::new("a").unwrap()).unwrap().unwrap();
        found.node().unwrap();
        found.array().unwrap().clone()
    }

    fn v2(separator: &str) -> Array {
        let text = format!(
            r#"{{"zarr_format": 2, "shape": [4, 3], "chunks": [2, 2], "dtype": "<i4", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null, "dimension_separator": "{separator}"}}"#
        );
        array(".zarray", &text)
    }

    fn v3(shape: &str) -> Array {
        let text = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": {shape}, "data_type": "int32",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": {shape}}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0,
            "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}"#
        );
        array("zarr.json", &text)
    }

    fn listed(array: &Array, path: &str) -> Option<Vec<String>> {
        level(array, &Key::new(path).unwrap()).unwrap().map(names)
    }

    #[test]
    fn chunks_are_named_by_the_grid() {
        let dots = v2(".");
        assert_eq!(listed(&dots, "a").unwrap(), ["0.0", "0.1", "1.0", "1.1"]);
        let has = |array: &Array, path: &str, name: &str| {
            let level = level(array, &Key::new(path).unwrap()).unwrap();
            level.unwrap().has(name.as_bytes())
        };
        assert!(has(&dots, "a", "1.0") && !has(&dots, "a", "2.0") && !has(&dots, "a", "1"));
        let slashes = v2("/");
        assert!(has(&slashes, "a", "1") && !has(&slashes, "a/1", "01"));
        assert_eq!(listed(&slashes, "a").unwrap(), ["0/", "1/"]);
        assert_eq!(listed(&slashes, "a/1").unwrap(), ["0", "1"]);
        for none in ["a/2", "a/x", "a/01", "a/0/0", "a/0/0/0"] {
            assert_eq!(listed(&slashes, none), None, "{none}");
        }
    }

    #[test]
    fn what_stands_before_the_indices_is_a_directory() {
        let array = v3("[4, 3]");
        assert_eq!(listed(&array, "a").unwrap(), ["c/"]);
        assert_eq!(listed(&array, "a/c").unwrap(), ["0/"]);
        assert_eq!(listed(&array, "a/c/0").unwrap(), ["0"]);
        assert_eq!(listed(&array, "a/d"), None);
        assert_eq!(listed(&v3("[]"), "a").unwrap(), ["c"]);
    }
}
