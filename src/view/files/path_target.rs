//! What the paths of the files view stand for.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::export::{FORMATS, Format};
use crate::grid::{ChunkIndex, Coordinates, NumberedName, Region};
use crate::hierarchy::{BrokenDocument, NodeEntry};
use crate::known::Known;
use crate::store::Key;
use crate::view::files::broken::{ERROR_TEXT, not_readable};
use crate::view::files::{ATTRIBUTES, CHUNKS, FilesView, METADATA};
use crate::view::{ChildName, ViewDir};

/// What a path stands for.
pub(super) enum PathTarget {
    /// A node's directory.
    Node(Arc<NodeEntry>),
    /// A document made from a node's metadata.
    Document(Arc<NodeEntry>, Vec<u8>),
    /// A document of a broken node, as it is stored.
    AsFound(Arc<NodeEntry>, BrokenDocument),
    /// What is wrong with a broken node.
    ErrorText(Arc<NodeEntry>),
    /// The directory of an array's chunks.
    Chunks(Arc<NodeEntry>),
    /// A decoded file.
    Decoded(DecodedTarget),
}

/// A decoded file: the whole array or one chunk of it in a format.
pub(super) struct DecodedTarget {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    pub(super) array: Arc<OpenArray>,
    pub(super) format: &'static Format,
    /// The indices of the chunk, which is in the grid; nothing for the whole array.
    pub(super) chunk: Option<Coordinates>,
}

impl DecodedTarget {
    /// Returns the elements that the file holds.
    pub(super) fn region(&self) -> Result<Region> {
        Ok(match &self.chunk {
            None => Region::whole(&self.array.array().shape),
            Some(indices) => self.array.stored_grid()?.region(indices),
        })
    }

    /// Returns the number of the chunk; nothing for the whole array.
    pub(super) fn chunk_index(&self) -> Result<Option<ChunkIndex>> {
        match &self.chunk {
            None => Ok(None),
            Some(indices) => Ok(self.array.stored_grid()?.index(indices)),
        }
    }

    /// Whether the file has to be read whole to know its length.
    pub(super) fn is_ragged(&self) -> bool {
        self.array.array().data_type.is_variable()
    }

    /// Returns a name of the file within its array.
    pub(super) fn name(&self) -> String {
        let extension = self.format.extension;
        match &self.chunk {
            None => extension.to_string(),
            Some(indices) => format!("{indices:?}.{extension}"),
        }
    }
}

impl FilesView {
    /// Finds what a path stands for, from the root down; nothing if there is no such path.
    pub(super) fn resolve(&self, path: &Key) -> Result<Option<PathTarget>> {
        let Some(root) = self.hierarchy.root()? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        self.resolve_below(root, &names, |parent, name| {
            self.hierarchy.child(parent, name)
        })
    }

    /// Like `resolve`, by nodes that are known without waiting; fails if one is not.
    pub(super) fn resolve_now(&self, path: &Key) -> Result<Option<PathTarget>> {
        let Some(root) = self.node_now(&Key::root())? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        self.resolve_below(root, &names, |parent, name| self.child_node(parent, name))
    }

    /// Like `resolve_now`, of a name in a directory.
    pub(super) fn resolve_child_now(
        &self,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<PathTarget>> {
        match dir {
            ViewDir::Path(path) => self.resolve_now(&path.child(name.bytes)?),
            ViewDir::Node(path) => match self.node_now(path)? {
                Some(node) => self.resolve_below(node, &[name.bytes], |parent, name| {
                    self.child_node(parent, name)
                }),
                None => Ok(None),
            },
            ViewDir::Chunks(path) => match (self.node_now(path)?, &name.numbered) {
                (Some(node), Some(numbered)) if node.array().is_some() => {
                    self.chunk_file(node, numbered)
                }
                _ => Ok(None),
            },
        }
    }

    fn child_node(&self, parent: &NodeEntry, name: &[u8]) -> Result<Option<Arc<NodeEntry>>> {
        self.node_now(&parent.path.child(name)?)
    }

    /// Returns the node at a path; `Unavailable` if it is not known without waiting.
    fn node_now(&self, path: &Key) -> Result<Option<Arc<NodeEntry>>> {
        match self.hierarchy.node_now(path) {
            Known::Unknown => Err(Error::new(Kind::Unavailable, path, "is not known yet")),
            known => Ok(known.found()),
        }
    }

    /// Finds what names stand for below a node, whose children `child_of` finds.
    fn resolve_below(
        &self,
        mut node: Arc<NodeEntry>,
        names: &[&[u8]],
        child_of: impl Fn(&NodeEntry, &[u8]) -> Result<Option<Arc<NodeEntry>>>,
    ) -> Result<Option<PathTarget>> {
        let mut rest = names;
        while let Some((name, after)) = rest.split_first() {
            if node.array().is_some() {
                return self.within_array(node, rest);
            }
            let child = if node.is_array() {
                None
            } else {
                child_of(&node, name)?
            };
            match child {
                Some(child) => node = child,
                None if node.broken.is_some() => return self.within_broken(node, rest),
                None => return Ok(group_file(node, rest)),
            }
            rest = after;
        }
        Ok(Some(PathTarget::Node(node)))
    }

    /// Finds what `rest` stands for in the directory of a broken node. Fails with `Unsupported` for the files that it
    /// would have if it could be read, and for whatever may lie below an entry point: nobody shall take it for missing.
    fn within_broken(&self, found: Arc<NodeEntry>, rest: &[&[u8]]) -> Result<Option<PathTarget>> {
        let [name, ref below @ ..] = *rest else {
            return Ok(None);
        };
        let mut documents = found.broken.iter().flat_map(|broken| &broken.documents);
        let document = documents
            .find(|document| document.key.name() == name)
            .cloned();
        let format = name.strip_prefix(self.name_of(&found)).and_then(format_of);
        let is_hidden = found
            .broken
            .as_ref()
            .is_some_and(|broken| broken.is_entry_point);
        let is_own = [METADATA, ATTRIBUTES, CHUNKS].contains(&name) || format.is_some();
        Ok(match document {
            Some(document) if below.is_empty() => Some(PathTarget::AsFound(found, document)),
            None if below.is_empty() && name == ERROR_TEXT => Some(PathTarget::ErrorText(found)),
            None if is_own || is_hidden => return Err(not_readable(&found)),
            _ => None,
        })
    }

    /// Finds what `rest` stands for in an array's directory.
    fn within_array(&self, found: Arc<NodeEntry>, rest: &[&[u8]]) -> Result<Option<PathTarget>> {
        Ok(match *rest {
            [name @ (METADATA | ATTRIBUTES)] => Some(PathTarget::Document(found, name.to_vec())),
            [CHUNKS] => Some(PathTarget::Chunks(found)),
            [name] => match name.strip_prefix(self.name_of(&found)).and_then(format_of) {
                Some(format) => self.decoded(found, format, None)?,
                None => None,
            },
            [CHUNKS, name] => match NumberedName::parse(name) {
                Some(name) => self.chunk_file(found, &name)?,
                None => None,
            },
            _ => None,
        })
    }

    /// Finds `0.3.1.npy`: the indices of a chunk that is in the grid, and a format. The chunk of a 0-dimensional
    /// array is `0`.
    fn chunk_file(
        &self,
        found: Arc<NodeEntry>,
        name: &NumberedName<'_>,
    ) -> Result<Option<PathTarget>> {
        match format_of(name.suffix.as_bytes()) {
            Some(format) if name.prefix.is_empty() => {
                self.decoded(found, format, Some(&name.indices))
            }
            _ => Ok(None),
        }
    }

    /// Returns the file of an array, or of one chunk of it, if there is one in this format.
    fn decoded(
        &self,
        found: Arc<NodeEntry>,
        format: &'static Format,
        chunk: Option<&[u64]>,
    ) -> Result<Option<PathTarget>> {
        let array = self.arrays.open(&found)?;
        let is_in_grid = |indices: &[u64]| {
            let grid = array.stored_grid();
            grid.is_ok_and(|grid| grid.index(indices).is_some())
        };
        let chunk = match chunk {
            Some([0]) if array.array().shape.is_empty() => Some(Coordinates::new()),
            chunk => chunk.map(Coordinates::from),
        };
        if !format.fits(array.array()) || chunk.as_deref().is_some_and(|chunk| !is_in_grid(chunk)) {
            return Ok(None);
        }
        Ok(Some(PathTarget::Decoded(DecodedTarget {
            found,
            array,
            format,
            chunk,
        })))
    }

    /// Returns the name of an array's file in a format.
    pub(super) fn file_name(&self, found: &NodeEntry, format: &Format) -> Vec<u8> {
        [self.name_of(found), b".", format.extension.as_bytes()].concat()
    }

    /// Returns the name that a node's own files are named after.
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
    let mut formats = FORMATS.iter();
    formats
        .find(|format| format.extension == extension)
        .copied()
}
