//! What the paths of the files view stand for.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::export::{FORMATS, FileParts, Format, Subject};
use crate::grid::{ChunkIndex, Coordinates, NumberedName, Region};
use crate::hierarchy::{BrokenDocument, NodeEntry};
use crate::known::Known;
use crate::model::Node;
use crate::store::Key;
use crate::view::files::broken::{ERROR_TEXT, not_readable};
use crate::view::files::group_files::GroupTarget;
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
    /// A file of all arrays of a group.
    GroupFile(GroupTarget),
}

/// A decoded file: the whole array or one chunk of it in a format.
pub(super) struct DecodedTarget {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    pub(super) array: Arc<OpenArray>,
    pub(super) format: &'static Format,
    /// The indices of the chunk, which is in the grid; nothing for the whole array.
    pub(super) chunk: Option<Coordinates>,
    /// What the file consists of, if that is known without the elements.
    parts: Result<FileParts>,
}

/// Where a name was found: the nodes that a file of an array is made of.
pub(super) struct ArrayPlace {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    /// The group that it is in.
    pub(super) group: Option<Arc<NodeEntry>>,
}

impl ArrayPlace {
    /// Returns the array as formats see it: a box of this shape, in files that are named after `name`.
    pub(super) fn subject<'a>(&'a self, name: &'a [u8], shape: &'a [u64]) -> Option<Subject<'a>> {
        let group = self
            .group
            .as_ref()
            .and_then(|group| group.node.as_ref().ok());
        Some(Subject {
            array: self.found.array()?,
            shape,
            name,
            group: group.map(Node::attributes),
            taken: None,
        })
    }
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

    /// Returns what the file consists of; fails as `Format::parts_of`.
    pub(super) fn parts(&self) -> Result<&FileParts> {
        self.parts.as_ref().map_err(Error::clone)
    }

    /// Returns the exact length in bytes, if that does not depend on the elements. Fails as opening the file does, but for
    /// an array that does not decode.
    pub(super) fn length(&self) -> Result<u64> {
        let size = self.array.array().element_size();
        self.parts()?.len(&self.region()?.shape, size?)
    }

    /// Returns the number of the content.
    pub(super) fn content(&self) -> u64 {
        match &self.parts {
            Ok(parts) => self.format.content(&self.array, parts),
            Err(_) => self.array.id(),
        }
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
        self.resolve_below((root, None), &names, true, |parent, name| {
            self.hierarchy.child(parent, name)
        })
    }

    /// Like `resolve`, by nodes that are known without waiting; fails if one is not.
    pub(super) fn resolve_now(&self, path: &Key) -> Result<Option<PathTarget>> {
        let Some(root) = self.node_now(&Key::root())? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        self.resolve_below((root, None), &names, false, |parent, name| {
            self.child_node(parent, name)
        })
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
                Some(node) => {
                    let group = match path.parent() {
                        Some(parent) if node.is_array() => self.node_now(&parent)?,
                        _ => None,
                    };
                    self.resolve_below((node, group), &[name.bytes], false, |parent, name| {
                        self.child_node(parent, name)
                    })
                }
                None => Ok(None),
            },
            ViewDir::Chunks(path) => match (self.node_now(path)?, &name.numbered) {
                (Some(found), Some(numbered)) if found.array().is_some() => {
                    let group = None;
                    self.chunk_file(ArrayPlace { found, group }, numbered)
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

    /// Finds what names stand for below a node in a group; `child_of` finds the children of nodes. What
    /// depends on all of these is `Unavailable` unless it may be waited for.
    fn resolve_below(
        &self,
        (mut node, mut group): (Arc<NodeEntry>, Option<Arc<NodeEntry>>),
        names: &[&[u8]],
        may_wait: bool,
        child_of: impl Fn(&NodeEntry, &[u8]) -> Result<Option<Arc<NodeEntry>>>,
    ) -> Result<Option<PathTarget>> {
        let mut rest = names;
        while let Some((name, after)) = rest.split_first() {
            if node.array().is_some() {
                return self.within_array(ArrayPlace { found: node, group }, rest);
            }
            let child = if node.is_array() {
                None
            } else {
                child_of(&node, name)?
            };
            match child {
                Some(child) => group = Some(std::mem::replace(&mut node, child)),
                None if node.broken.is_some() => return self.within_broken(node, rest),
                None => return self.group_file(node, rest, may_wait),
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
    fn within_array(&self, place: ArrayPlace, rest: &[&[u8]]) -> Result<Option<PathTarget>> {
        let found = &place.found;
        Ok(match *rest {
            [name @ (METADATA | ATTRIBUTES)] => {
                Some(PathTarget::Document(found.clone(), name.to_vec()))
            }
            [CHUNKS] => Some(PathTarget::Chunks(found.clone())),
            [name] => match name.strip_prefix(self.name_of(found)).and_then(format_of) {
                Some(format) => self.decoded(place, format, None)?,
                None => None,
            },
            [CHUNKS, name] => match NumberedName::parse(name) {
                Some(name) => self.chunk_file(place, &name)?,
                None => None,
            },
            _ => None,
        })
    }

    /// Finds `0.3.1.npy`: the indices of a chunk that is in the grid, and a format that chunks have. The chunk of a
    /// 0-dimensional array is `0`.
    fn chunk_file(&self, place: ArrayPlace, name: &NumberedName<'_>) -> Result<Option<PathTarget>> {
        let indices = match &name.indices[..] {
            [0] if place
                .found
                .array()
                .is_some_and(|array| array.shape.is_empty()) =>
            {
                &[]
            }
            indices => indices,
        };
        match format_of(name.suffix.as_bytes()) {
            Some(format) if name.prefix.is_empty() && format.is_basic => {
                self.decoded(place, format, Some(indices.into()))
            }
            _ => Ok(None),
        }
    }

    /// Returns the file of an array, or of one chunk of it, if there is one in this format.
    fn decoded(
        &self,
        place: ArrayPlace,
        format: &'static Format,
        chunk: Option<Coordinates>,
    ) -> Result<Option<PathTarget>> {
        let array = self.arrays.open(&place.found)?;
        let region = match &chunk {
            None => Region::whole(&array.array().shape),
            Some(indices) => match array.stored_grid() {
                Ok(grid) if grid.index(indices).is_some() => grid.region(indices),
                _ => return Ok(None),
            },
        };
        let name = self.name_of(&place.found);
        let Some(subject) = place.subject(name, &region.shape) else {
            return Ok(None);
        };
        // Made once: for a format that is not basic they tell whether there is such a file.
        let parts = format.parts_of(&array, &subject);
        if (parts.is_err() || !format.is_basic) && !format.fits(&subject) {
            return Ok(None);
        }
        Ok(Some(PathTarget::Decoded(DecodedTarget {
            found: place.found,
            array,
            format,
            chunk,
            parts,
        })))
    }

    /// Finds a file of a group's own; fails with `Unavailable` for one that may not be waited for.
    fn group_file(
        &self,
        found: Arc<NodeEntry>,
        rest: &[&[u8]],
        may_wait: bool,
    ) -> Result<Option<PathTarget>> {
        let [name] = *rest else {
            return Ok(None);
        };
        if [METADATA, ATTRIBUTES].contains(&name) {
            return Ok(Some(PathTarget::Document(found, name.to_vec())));
        }
        let target = match self.group_format(&found, name) {
            None => None,
            Some(_) if !may_wait => {
                let why = "is not known yet";
                return Err(Error::new(Kind::Unavailable, &found.path, why));
            }
            Some(format) => self.group_target(found, format)?,
        };
        Ok(target.map(PathTarget::GroupFile))
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

/// Returns the format that `.npy` names.
fn format_of(extension: &[u8]) -> Option<&'static Format> {
    let extension = std::str::from_utf8(extension.strip_prefix(b".")?).ok()?;
    let mut formats = FORMATS.iter();
    formats
        .find(|format| format.extension == extension)
        .copied()
}
