//! What the paths of the files view mean.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::export::{FORMATS, Format};
use crate::grid::ChunkIndex;
use crate::hierarchy::NodeEntry;
use crate::known::Known;
use crate::model::Node;
use crate::store::Key;
use crate::view::files::{ATTRIBUTES, CHUNKS, FilesView, METADATA};

/// What a path means.
pub(super) enum PathTarget {
    /// A node's directory.
    Node(Arc<NodeEntry>),
    /// A document made from a node's metadata.
    Document(Arc<NodeEntry>, Vec<u8>),
    /// The directory of an array's chunks.
    Chunks(Arc<NodeEntry>),
    /// A decoded file: the whole array or one chunk of it.
    Decoded(Arc<NodeEntry>, &'static Format, Option<ChunkIndex>),
}

impl FilesView {
    /// Finds what a path means, from the root down; nothing if it means nothing.
    pub(super) fn resolve(&self, path: &Key) -> Result<Option<PathTarget>> {
        self.resolve_by(path, |parent, name| match parent {
            None => self.hierarchy.root(),
            Some(parent) => self.hierarchy.child(parent, name),
        })
    }

    /// Like `resolve`, by nodes that are known; an error if one is not.
    pub(super) fn resolve_now(&self, path: &Key) -> Result<Option<PathTarget>> {
        self.resolve_by(path, |parent, name| {
            let path = parent.map_or_else(|| Ok(Key::root()), |parent| parent.path.child(name))?;
            match self.hierarchy.node_now(&path) {
                Known::Unknown => Err(Error::new(Kind::Unavailable, path, "is not known yet")),
                known => Ok(known.found()),
            }
        })
    }

    fn resolve_by(
        &self,
        path: &Key,
        node_at: impl Fn(Option<&NodeEntry>, &[u8]) -> Result<Option<Arc<NodeEntry>>>,
    ) -> Result<Option<PathTarget>> {
        let Some(mut node) = node_at(None, b"")? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        let mut rest = names.as_slice();
        while let Some((name, after)) = rest.split_first() {
            if !matches!(node.node()?, Node::Group(_)) {
                return self.within_array(node, rest);
            }
            match node_at(Some(&node), name)? {
                Some(child) => node = child,
                None => return Ok(group_file(node, rest)),
            }
            rest = after;
        }
        Ok(Some(PathTarget::Node(node)))
    }

    /// Finds what `rest` means in an array's directory.
    fn within_array(&self, found: Arc<NodeEntry>, rest: &[&[u8]]) -> Result<Option<PathTarget>> {
        Ok(match *rest {
            [name @ (METADATA | ATTRIBUTES)] => Some(PathTarget::Document(found, name.to_vec())),
            [CHUNKS] => Some(PathTarget::Chunks(found)),
            [name] => {
                let format = name.strip_prefix(self.name_of(&found)).and_then(format_of);
                let fits = |format: &&Format| found.array().is_some_and(|array| format.fits(array));
                let format = format.filter(fits);
                format.map(|format| PathTarget::Decoded(found, format, None))
            }
            [CHUNKS, name] => self.chunk_file(found, name)?,
            _ => None,
        })
    }

    /// Finds `0.3.1.npy`: the indices of a chunk that is in the grid, and a format.
    fn chunk_file(&self, found: Arc<NodeEntry>, name: &[u8]) -> Result<Option<PathTarget>> {
        let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
            return Ok(None);
        };
        let (indices, extension) = name.split_at(dot);
        let Some(format) = format_of(extension) else {
            return Ok(None);
        };
        let array = self.arrays.open(&found)?;
        let (true, Ok(grid)) = (format.fits(array.array()), array.stored_grid()) else {
            return Ok(None);
        };
        let chunk =
            parse_indices(indices, grid.counts().len()).and_then(|indices| grid.index(&indices));
        Ok(chunk.map(|chunk| PathTarget::Decoded(found, format, Some(chunk))))
    }

    /// Returns the name that a node's own files derive from.
    pub(super) fn name_of<'a>(&'a self, found: &'a NodeEntry) -> &'a [u8] {
        if found.path.is_root() {
            &self.root_name
        } else {
            found.path.name()
        }
    }
}

/// Finds a file of a group's own.
fn group_file(found: Arc<NodeEntry>, rest: &[&[u8]]) -> Option<PathTarget> {
    match *rest {
        [name @ (METADATA | ATTRIBUTES)] => Some(PathTarget::Document(found, name.to_vec())),
        _ => None,
    }
}

/// Returns the format that `.npy` names.
fn format_of(extension: &[u8]) -> Option<&'static Format> {
    let extension = std::str::from_utf8(extension.strip_prefix(b".")?).ok()?;
    FORMATS
        .iter()
        .find(|format| format.extension == extension)
        .copied()
}

/// Reads `0.3.1`; the only spelling of an index is the shortest. A 0-dimensional array's chunk is `0`.
fn parse_indices(text: &[u8], rank: usize) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(text).ok()?;
    if rank == 0 {
        return (text == "0").then(Vec::new);
    }
    text.split('.')
        .map(|digits| {
            let number: u64 = digits.parse().ok()?;
            (number.to_string() == digits).then_some(number)
        })
        .collect()
}
