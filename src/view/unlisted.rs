//! The store view of a store that cannot list its keys: names come from the metadata.
//!
//! The store is asked for the key that a path spells. A path that it does not have is a directory if it is a node or
//! leads to chunks of an array. A listing has the documents that are there, the nodes that are known, and every chunk
//! of the grid, since whether one is stored is known only when it is read.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Array;
use crate::model::document::{IN_NODE_FOLDER, is_in_node_folder};
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, Name, Store, Tree};
use crate::view::store::StoreView;
use crate::view::text_file::directory_attr;
use crate::view::{Attr, OpenedFile, View};

/// A store without listings as a tree of files.
pub struct UnlistedView {
    stored: StoreView,
    store: Arc<dyn Store>,
    hierarchy: Arc<Hierarchy>,
}

/// A directory that follows from the metadata.
enum KnownDir {
    Node(Arc<NodeEntry>),
    /// On the way to chunks of an array.
    Chunks(Level),
}

/// The names of one directory on the way to chunks.
enum Level {
    /// The next component of the prefix of all chunk keys.
    Stem(Vec<u8>),
    /// A prefix of the name, the count of indices that may follow it, and whether they end the key.
    Numbers(Vec<u8>, u64, EntryKind),
    /// A prefix of the name; all indices of a chunk follow it, joined by a character.
    Chunks(Vec<u8>, Grid, char),
    /// Whole names.
    Scalars(Vec<Vec<u8>>),
}

impl UnlistedView {
    /// Builds the view of a store, which may be a tree of files that can be changed, and whose nodes are those of
    /// `hierarchy`.
    pub fn new(
        store: Arc<dyn Store>,
        tree: Option<Arc<dyn Tree>>,
        hierarchy: Arc<Hierarchy>,
    ) -> UnlistedView {
        UnlistedView {
            stored: StoreView::new(store.clone()).with_tree(tree),
            store,
            hierarchy,
        }
    }

    /// Finds the directory at a path that follows from the metadata.
    fn folder(&self, path: &Key) -> Result<Option<KnownDir>> {
        let Some(mut node) = self.hierarchy.root()? else {
            return Ok(None);
        };
        for name in path.names() {
            if let Some(array) = node.array() {
                return Ok(level(array, path)?.map(KnownDir::Chunks));
            }
            if is_in_node_folder(name) {
                return Ok(None);
            }
            match self.hierarchy.child(&node, name)? {
                Some(child) => node = child,
                None => return Ok(None),
            }
        }
        Ok(Some(KnownDir::Node(node)))
    }

    /// Returns the names in a node's directory before those of its chunks or children.
    fn documents(&self, path: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let mut names = Vec::new();
        for name in IN_NODE_FOLDER {
            let meta = self.store.head(&path.child(name.as_bytes())?)?;
            if meta.is_some_and(|meta| meta.kind == EntryKind::File) {
                names.push((name.as_bytes().to_vec(), EntryKind::File));
            }
        }
        Ok(names)
    }

    fn list_node(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let documents = self.documents(&found.path)?;
        let rest: Box<dyn Listing> = match found.array() {
            Some(array) => match level(array, &found.path)? {
                Some(level) => level.listing(),
                None => Box::new(NameList::new([])),
            },
            // A node whose metadata cannot be read has its documents all the same.
            None if found.node.is_err() => Box::new(NameList::new([])),
            None => self.hierarchy.known_children(found)?,
        };
        Ok(Box::new(DocumentsFirst {
            documents,
            rest,
            place: 0,
        }))
    }
}

impl View for UnlistedView {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        if let Some(attr) = self.stored.lookup(path)? {
            return Ok(Some(attr));
        }
        let info = self.store.info();
        let (folder, stamp) = info.ask(|| self.folder(path));
        let fresh = info.time_left(stamp.asked);
        Ok(match folder? {
            Some(KnownDir::Node(found)) => Some(directory_attr(found.modified, fresh)),
            Some(KnownDir::Chunks(_)) => Some(directory_attr(SystemTime::UNIX_EPOCH, fresh)),
            None => None,
        })
    }

    fn lookup_now(&self, _path: &Key) -> Known<Attr> {
        Known::Unknown
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        match self.folder(path)? {
            Some(KnownDir::Node(found)) => self.list_node(&found),
            Some(KnownDir::Chunks(level)) => Ok(level.listing()),
            None => match self.store.head(path)? {
                Some(meta) if meta.kind == EntryKind::Directory => {
                    let why =
                        "the server does not list this directory, and no metadata describe it";
                    Err(Error::unsupported(path, why))
                }
                Some(_) => Err(Error::new(
                    Kind::NotADirectory,
                    path,
                    "is an object, not a directory",
                )),
                None => Err(Error::not_found(path)),
            },
        }
    }

    fn open(&self, path: &Key) -> Result<OpenedFile> {
        self.stored.open(path)
    }

    fn read_link(&self, path: &Key) -> Result<Vec<u8>> {
        self.stored.read_link(path)
    }

    fn tree(&self, path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        self.stored.tree(path)
    }
}

/// Returns the names under a path in an array or below it; nothing if there can be none.
fn level(array: &Array, path: &Key) -> Result<Option<Level>> {
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
    let fits = |(name, count): (&&[u8], &u64)| {
        let number = str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse::<u64>().ok());
        number.is_some_and(|number| number < *count && number.to_string().as_bytes() == *name)
    };
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

/// Returns the bytes before the first slash.
fn first(key: &[u8]) -> Vec<u8> {
    key.split(|&byte| byte == b'/')
        .next()
        .unwrap_or_default()
        .to_vec()
}

impl Level {
    fn listing(self) -> Box<dyn Listing> {
        match self {
            Level::Stem(name) => Box::new(NameList::new([(name, EntryKind::Directory)])),
            Level::Scalars(names) => {
                let files = names.into_iter().map(|name| (name, EntryKind::File));
                Box::new(NameList::new(files))
            }
            level => Box::new(IndexListing { level, place: 0 }),
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

/// The documents of a node, then a listing whose cursors are moved behind theirs.
struct DocumentsFirst {
    documents: Vec<(Vec<u8>, EntryKind)>,
    rest: Box<dyn Listing>,
    place: usize,
}

/// By how much cursors are moved; a node has fewer documents.
const CURSOR_OFFSET: u64 = 16;

impl Listing for DocumentsFirst {
    fn next(&mut self) -> Result<Option<Name>> {
        if let Some((name, kind)) = self.documents.get(self.place).cloned() {
            self.place += 1;
            let cursor = self.place as u64;
            return Ok(Some(Name {
                name,
                kind,
                cursor,
                meta: None,
            }));
        }
        let next = self.rest.next()?;
        Ok(next.map(|name| Name {
            cursor: name.cursor.saturating_add(CURSOR_OFFSET),
            ..name
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.place = usize::try_from(cursor)
            .unwrap_or(usize::MAX)
            .min(self.documents.len());
        self.rest.seek(cursor.saturating_sub(CURSOR_OFFSET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let slashes = v2("/");
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

    #[test]
    fn a_listing_goes_on_behind_the_documents() {
        let level = level(&v2("."), &Key::new("a").unwrap()).unwrap().unwrap();
        let mut listing = DocumentsFirst {
            documents: vec![(b".zarray".to_vec(), EntryKind::File)],
            rest: level.listing(),
            place: 0,
        };
        let mut all = Vec::new();
        while let Some(name) = listing.next().unwrap() {
            all.push(name);
        }
        assert_eq!(all.len(), 5);
        for (place, name) in all.iter().enumerate() {
            listing.seek(name.cursor).unwrap();
            assert_eq!(listing.next().unwrap().as_ref(), all.get(place + 1));
        }
        listing.seek(0).unwrap();
        assert_eq!(listing.next().unwrap().as_ref(), all.first());
    }
}
