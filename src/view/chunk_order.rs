//! The chunk files of a hierarchy, one after the other as listings have them: those of an array by their indices, then
//! those of the array after it.
//!
//! Which array that is consolidated metadata tell; where there are none, an array is the end. Nothing is requested of the
//! store.

use std::sync::Arc;

use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Array;
use crate::store::Key;

/// How many nodes are looked at for the next array.
const MAX_NODES: usize = 1000;

/// How many arrays without a chunk are passed over.
const MAX_EMPTY: usize = 16;

/// A chunk file.
pub(super) struct ChunkFile {
    pub(super) path: Key,
    pub(super) place: FilePlace,
}

/// Where a chunk file is, counted from where the order began.
#[derive(Clone, Copy, Default)]
pub(super) struct FilePlace {
    /// The number of its folder.
    pub(super) folder: usize,
    /// The number of its array.
    pub(super) array: usize,
}

/// Where in the order a reader is.
pub(super) struct ChunkOrder {
    hierarchy: Arc<Hierarchy>,
    /// Whether it goes on behind the array.
    goes_on: bool,
    node: Arc<NodeEntry>,
    grid: Grid,
    /// Which of the keys that a chunk may have.
    spelling: usize,
    /// Number of the chunk that comes next.
    next: u64,
    /// The folder of the chunk before it, and where that is.
    folder: Option<Key>,
    place: FilePlace,
}

impl ChunkOrder {
    /// Begins behind the chunk file at a path; nothing if that is none of a known array. Ends with the array unless it
    /// `goes_on`.
    pub(super) fn behind(
        hierarchy: &Arc<Hierarchy>,
        path: &Key,
        goes_on: bool,
    ) -> Option<ChunkOrder> {
        let node = array_above(hierarchy, path)?;
        let array = node.array()?;
        let grid = Grid::of(array).ok()?;
        let (spelling, chunk) = place_of(array, &grid, path)?;
        Some(ChunkOrder {
            hierarchy: hierarchy.clone(),
            goes_on,
            node,
            grid,
            spelling,
            next: chunk.0 + 1,
            folder: path.parent(),
            place: FilePlace::default(),
        })
    }

    /// Returns the next file; nothing at the end.
    pub(super) fn next(&mut self) -> Option<ChunkFile> {
        let mut passed = 0;
        while self.next >= self.grid.len() {
            if !self.goes_on || passed == MAX_EMPTY {
                return None;
            }
            passed += 1;
            self.node = self.next_array()?;
            self.grid = Grid::of(self.node.array()?).ok()?;
            (self.spelling, self.next) = (0, 0);
            self.place.array += 1;
        }
        let indices = self.grid.indices(ChunkIndex(self.next));
        self.next += 1;
        let keys = self.node.array()?.keys.candidates(&indices);
        let path = Key::new(keys.into_iter().nth(self.spelling)?).ok()?;
        let folder = path.parent();
        if folder != self.folder {
            self.folder = folder;
            self.place.folder += 1;
        }
        let place = self.place;
        Some(ChunkFile { path, place })
    }

    /// Finds the array that comes after this one, depth first.
    fn next_array(&self) -> Option<Arc<NodeEntry>> {
        let at = |path: &Key| self.hierarchy.node_now(path).found();
        let mut group = at(&self.node.path.parent()?)?;
        let mut last = Some(self.node.path.name().to_vec());
        for _ in 0..MAX_NODES {
            let Some(name) = group.copied_child_after(last.as_deref()) else {
                last = Some(group.path.name().to_vec());
                group = at(&group.path.parent()?)?;
                continue;
            };
            let child = self.hierarchy.child(&group, &name).ok()??;
            if child.array().is_some() {
                return Some(child);
            }
            if child.is_array() {
                last = Some(name);
            } else {
                (group, last) = (child, None);
            }
        }
        None
    }
}

/// Returns the array that a path lies in, if it is known.
fn array_above(hierarchy: &Hierarchy, path: &Key) -> Option<Arc<NodeEntry>> {
    let mut above = path.parent();
    while let Some(path) = above {
        if let Known::Is(node) = hierarchy.node_now(&path) {
            return Some(node);
        }
        above = path.parent();
    }
    None
}

/// Returns which chunk a path is, and which of its keys.
fn place_of(array: &Array, grid: &Grid, path: &Key) -> Option<(usize, ChunkIndex)> {
    let keys = &array.keys;
    if array.shape.is_empty() {
        let spelling = keys
            .scalar_keys
            .iter()
            .position(|key| key == path.as_bytes());
        return spelling.map(|spelling| (spelling, ChunkIndex(0)));
    }
    let separators = [Some(keys.separator), keys.other_separator];
    let mut separators = separators.into_iter().flatten().enumerate();
    separators.find_map(|(spelling, separator)| {
        let indices = keys.indices_of(path.as_bytes(), separator)?;
        Some((spelling, grid.index(&indices)?))
    })
}
