//! Resolves a path of an uncompressed store to a node, a document or a chunk.

use std::sync::Arc;

use crate::view::ERROR_TEXT;
use crate::view::plain::chunk_file::PlainChunk;
use crate::view::plain::layout::PlainLayout;
use crate::view::plain::target::Target;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarr_format::model::Node;
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The file or folder that a path of an uncompressed store names.
pub(crate) enum PlainPlace {
    /// The folder of a group, or of an array with its chunks.
    Node(PlainNode),
    /// A metadata document of a node, and its name.
    Document(PlainNode, &'static str),
    /// The folder of the chunks that begin with the given indices.
    ChunkFolder(PlainLayout, Vec<u64>),
    /// The file of a chunk.
    Chunk(PlainChunk),
    /// The file that says why the store cannot express a node.
    ErrorText(PlainNode),
}

impl PlainPlace {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, PlainPlace::Node(_) | PlainPlace::ChunkFolder(..))
    }
}

/// A node as it is shown in an uncompressed store.
#[derive(Clone)]
pub(crate) struct PlainNode {
    pub(super) entry: Arc<NodeEntry>,
    pub(super) kind: PlainKind,
}

/// Whether a node is shown in an uncompressed store, and as what.
#[derive(Clone)]
pub(super) enum PlainKind {
    Group,
    Array(PlainLayout),
    /// The format of the store cannot express the node, for the given reason, so the node is not listed.
    LeftOut(Error),
    /// The node cannot be read now: the store refuses it or does not answer.
    Unread(Error),
}

impl Target {
    /// Returns how a node is shown in an uncompressed store of the format.
    pub(super) fn kind_of(&self, arrays: &Arrays, entry: &Arc<NodeEntry>) -> PlainKind {
        let name = entry.path.name();
        let left_out = |why: String| PlainKind::LeftOut(Error::unsupported(&entry.path, why));
        match &entry.node {
            _ if self.is_document(name) => {
                let name = String::from_utf8_lossy(name);
                left_out(format!(
                    "{} uses the name {name} for a metadata file",
                    self.name
                ))
            }
            Ok(Node::Group(_)) => PlainKind::Group,
            Ok(Node::Array(array)) if !(self.has_name)(&array.data_type) => {
                let (data_type, name) = (&array.data_type, self.name);
                left_out(format!("{name} has no data type {data_type}"))
            }
            Ok(Node::Array(array)) => {
                let layout = arrays.open(entry).and_then(|open| {
                    open.check_decodable()?;
                    PlainLayout::new(open, (self.states_fill)(array))
                });
                layout.map_or_else(PlainKind::LeftOut, PlainKind::Array)
            }
            Err(error) if matches!(error.kind(), Kind::Denied | Kind::Unavailable) => {
                PlainKind::Unread(error.clone())
            }
            Err(error) => PlainKind::LeftOut(error.clone()),
        }
    }
}

/// The nodes of a hierarchy, as they are shown in an uncompressed store.
pub(crate) struct PlainHierarchy {
    pub(super) hierarchy: Arc<Hierarchy>,
    pub(super) arrays: Arc<Arrays>,
    pub(super) target: &'static Target,
}

impl PlainHierarchy {
    pub(super) fn node(&self, entry: Arc<NodeEntry>) -> PlainNode {
        let kind = self.target.kind_of(&self.arrays, &entry);
        PlainNode { entry, kind }
    }

    /// Returns the names of a group's metadata documents. `.zmetadata`, which only has consolidated metadata, is left
    /// out if the nodes below the group cannot be listed.
    pub(super) fn group_documents(&self, group: &NodeEntry) -> &'static [&'static str] {
        let all = self.target.group_documents;
        match all {
            [others @ .., _] if !others.is_empty() && !self.knows_children(group) => others,
            all => all,
        }
    }

    fn knows_children(&self, group: &NodeEntry) -> bool {
        self.hierarchy.store().info().lists || group.is_consolidated()
    }

    /// Returns the file or folder at a path of the uncompressed store, or `None` if the path does not exist.
    pub(super) fn find(&self, context: &RequestContext, path: &Key) -> Result<Option<PlainPlace>> {
        let Some(mut entry) = self.hierarchy.root(context)? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        let mut rest = names.as_slice();
        while let Some((name, after)) = rest.split_first() {
            if entry.is_array() || self.target.is_document(name) {
                break;
            }
            match self.hierarchy.child(context, &entry, name)? {
                Some(child) => entry = child,
                None => break,
            }
            rest = after;
        }
        self.below_node(context, entry, rest)
    }

    /// Returns the file or folder at a path relative to the folder of a node.
    pub(crate) fn below_node(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        names: &[&[u8]],
    ) -> Result<Option<PlainPlace>> {
        let node = self.node(entry);
        let Some((name, after)) = names.split_first() else {
            return Ok(Some(PlainPlace::Node(node)));
        };
        let layout = match &node.kind {
            PlainKind::LeftOut(_) => {
                let is_text = after.is_empty() && *name == ERROR_TEXT.as_bytes();
                return Ok(is_text.then_some(PlainPlace::ErrorText(node)));
            }
            PlainKind::Unread(error) => return Err(error.clone()),
            PlainKind::Group => None,
            PlainKind::Array(layout) => Some(layout),
        };
        let documents = match layout {
            Some(_) => self.target.array_documents,
            None => self.group_documents(&node.entry),
        };
        let mut documents = documents.iter().copied();
        let document = documents.find(|document| document.as_bytes() == *name);
        if let Some(document) = document.filter(|_| after.is_empty()) {
            return Ok(Some(PlainPlace::Document(node, document)));
        }
        match layout {
            Some(layout) => self.in_array(context, layout, names),
            None => Ok(None),
        }
    }

    /// Returns the file or folder at a path relative to the folder of an array.
    fn in_array(
        &self,
        context: &RequestContext,
        layout: &PlainLayout,
        names: &[&[u8]],
    ) -> Result<Option<PlainPlace>> {
        let counts = layout.grid()?.counts();
        let Some(indices) = self.target.indices(names, counts.len()) else {
            return Ok(None);
        };
        if !indices
            .iter()
            .zip(counts)
            .all(|(index, count)| index < count)
        {
            return Ok(None);
        }
        if indices.len() < counts.len() {
            return Ok(Some(PlainPlace::ChunkFolder(layout.clone(), indices)));
        }
        let indices = Coordinates::from_vec(indices);
        Ok(layout.has_chunk(context, &indices)?.then(|| {
            PlainPlace::Chunk(PlainChunk {
                layout: layout.clone(),
                indices,
            })
        }))
    }
}
