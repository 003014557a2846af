//! The plain views: any hierarchy as a store of v2 or v3 with uncompressed chunks.
//!
//! Each node has the metadata documents of Zarr v2 or v3, with little-endian elements, default chunk keys, and a
//! regular grid whose chunks are the smallest that can be decoded separately. A chunk is a file of its decoded
//! elements, padded to a whole chunk with the fill value. Its size is known from the metadata, except for elements of
//! variable length, which are encoded when the file is opened. A missing chunk has no file, and readers use the fill
//! value in its place. A chunk that cannot be decoded has a file whose reads fail. Listings contain all keys of the
//! store, so a recursive copy is a conversion.
//!
//! An array or group that v2 or v3 cannot express is not listed. Its folder opens by name and has `ERROR.txt` with the
//! reason. The views are read-only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use twox_hash::XxHash64;

use crate::view::plain::consolidated::ConsolidatedTexts;
use crate::view::plain::layout::PlainLayout;
use crate::view::plain::listing::{ArrayListing, Documents, FolderListing, GroupListing};
use crate::view::plain::place::{PlainHierarchy, PlainKind, PlainNode};
use crate::view::{Attr, ERROR_TEXT, GeneratedFile, MAX_IMMEDIATE_TEXT, OpenedFile, View, fact_of};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::inspect::entry_facts;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, Listing};

mod chunk_file;
mod consolidated;
mod layout;
mod listing;
mod mask;
mod place;
pub mod target;
pub mod v2;
pub mod v3;

pub(crate) use crate::view::plain::place::PlainPlace;
pub use crate::view::plain::target::Target;

/// The store formats of the uncompressed views, each of which is the name of a view.
pub const TARGETS: [&Target; 2] = [&v3::TARGET, &v2::TARGET];

/// Why an uncompressed store in some format lacks a node or changes its elements.
pub struct PlainLimit {
    /// The format of the store that has the limit.
    pub target: &'static Target,
    /// Why the format cannot express the node, or how its elements are changed.
    pub reason: String,
    /// Whether the store lacks the node.
    pub is_left_out: bool,
}

/// Returns, for each format of uncompressed stores, why it lacks a node or changes its elements. Empty if the node
/// cannot be read or decoded at all.
pub fn limits_of(arrays: &Arrays, entry: &Arc<NodeEntry>) -> Vec<PlainLimit> {
    let is_sound = match &entry.node {
        Ok(Node::Group(_)) => true,
        Ok(Node::Array(_)) => {
            let array = arrays.open(entry);
            array.is_ok_and(|array| array.check_decodable().is_ok())
        }
        Err(_) => false,
    };
    let limit = |target: &'static Target| {
        let (reason, is_left_out) = match target.kind_of(arrays, entry) {
            PlainKind::LeftOut(error) => (error.detail().to_string(), true),
            PlainKind::Group | PlainKind::Unread(_) => return None,
            PlainKind::Array(layout) => {
                let data_type = &layout.array.array().data_type;
                ((target.change)(data_type)?.to_string(), false)
            }
        };
        Some(PlainLimit {
            target,
            reason,
            is_left_out,
        })
    };
    let targets = TARGETS.into_iter().filter(|_| is_sound);
    targets.filter_map(limit).collect()
}

/// A view of a hierarchy as an uncompressed store in the format of Zarr v2 or v3.
pub struct PlainView {
    plain: Arc<PlainHierarchy>,
    consolidated: ConsolidatedTexts,
}

impl PlainHierarchy {
    /// Returns the names of a node's metadata documents that consolidated metadata include.
    fn documents_in_copies(&self, node: &PlainNode) -> &'static [&'static str] {
        match (&node.kind, self.target.group_documents) {
            (PlainKind::Array(_), _) => self.target.array_documents,
            (PlainKind::LeftOut(_) | PlainKind::Unread(_), _) => &[],
            (PlainKind::Group, [others @ .., _]) if !others.is_empty() => others,
            (PlainKind::Group, all) => all,
        }
    }

    /// Returns the text of a node's metadata document, without consolidated metadata.
    fn document(&self, node: &PlainNode, name: &str) -> Result<String> {
        match (&node.kind, node.entry.node()?) {
            (PlainKind::Array(layout), Node::Array(array)) => Ok((self.target.array_document)(
                &layout.described(array)?,
                name,
            )),
            (_, found) => Ok((self.target.group_document)(found.attributes(), name, None)),
        }
    }
}

impl PlainView {
    /// Creates the view of a hierarchy in the store format `target`.
    pub fn new(
        hierarchy: Arc<Hierarchy>,
        arrays: Arc<Arrays>,
        target: &'static Target,
    ) -> PlainView {
        PlainView {
            consolidated: ConsolidatedTexts::new(arrays.memory().clone()),
            plain: Arc::new(PlainHierarchy {
                hierarchy,
                arrays,
                target,
            }),
        }
    }

    /// Returns the reason why the view does not show a node, or `None` if it does.
    pub fn why_left_out(&self, entry: Arc<NodeEntry>) -> Option<Error> {
        match self.plain.node(entry).kind {
            PlainKind::LeftOut(error) | PlainKind::Unread(error) => Some(error),
            PlainKind::Group | PlainKind::Array(_) => None,
        }
    }

    /// Calls `found` with a sentence about each node at or below `entry` that the view does not show or whose elements
    /// it changes.
    pub fn visit_limits(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
        mut found: impl FnMut(String),
    ) -> Result<()> {
        let mut nodes = vec![entry.clone()];
        while let Some(entry) = nodes.pop() {
            match self.plain.node(entry.clone()).kind {
                PlainKind::LeftOut(error) => {
                    found(format!("leaves out {error}"));
                    continue;
                }
                PlainKind::Array(layout) => {
                    if let Some(change) =
                        (self.plain.target.change)(&layout.array.array().data_type)
                    {
                        found(format!("{}: {change}", entry.path));
                    }
                    continue;
                }
                PlainKind::Unread(error) => return Err(error),
                PlainKind::Group => {}
            }
            let mut children = self.plain.hierarchy.known_children(context, &entry)?;
            while let Some(name) = children.next(context)? {
                let child = self.plain.hierarchy.child(context, &entry, &name.name)?;
                nodes.extend(child);
            }
        }
        Ok(())
    }

    /// Returns the file or folder at a path that is relative to the folder of a node, or `None` if the path does not
    /// exist.
    pub(crate) fn below_node(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        names: &[&[u8]],
    ) -> Result<Option<PlainPlace>> {
        self.plain.below_node(context, entry, names)
    }

    /// Returns the text of a node's metadata document, and its modification time.
    fn text(
        &self,
        context: &RequestContext,
        node: &PlainNode,
        name: &'static str,
    ) -> Result<(Bytes, SystemTime)> {
        let entry = &node.entry;
        if matches!(node.kind, PlainKind::Group) && name == self.plain.target.consolidated {
            let text = self.consolidated.get(context, &self.plain, node)?;
            return Ok((text.bytes, text.modified));
        }
        if entry.node()?.attributes().shared_text().len() > MAX_IMMEDIATE_TEXT {
            context.check_may_wait()?;
        }
        Ok((self.plain.document(node, name)?.into(), entry.modified))
    }

    /// Returns the attributes of a file or folder of the view.
    pub(crate) fn attr(
        &self,
        context: &RequestContext,
        place: &PlainPlace,
        ttl: Duration,
    ) -> Result<Attr> {
        let attr = match place {
            PlainPlace::Node(node) => Attr::of_directory(node.entry.modified, ttl),
            PlainPlace::ChunkFolder(layout, _) => Attr::of_directory(layout.array.modified(), ttl),
            PlainPlace::Document(node, name) => {
                let (text, modified) = self.text(context, node, name)?;
                attr_of_text(&text, modified, ttl)
            }
            PlainPlace::ErrorText(node) => {
                attr_of_text(error_text(node).as_bytes(), node.entry.modified, ttl)
            }
            PlainPlace::Chunk(chunk) => {
                let length = chunk.length(context, self.plain.target)?;
                let array = &chunk.layout.array;
                Attr {
                    content: Some(chunk.content(self.plain.target)),
                    chunk_bytes: length,
                    ..Attr::of_file(length, array.modified(), ttl)
                }
            }
        };
        Ok(Attr {
            is_read_only: true,
            ..attr
        })
    }

    pub(crate) fn open_place(
        &self,
        context: &RequestContext,
        place: &PlainPlace,
        path: &Key,
    ) -> Result<OpenedFile> {
        match place {
            PlainPlace::Node(_) | PlainPlace::ChunkFolder(..) => {
                Err(Error::new(Kind::IsADirectory, path, "is a directory"))
            }
            PlainPlace::Document(node, name) => {
                let (text, modified) = self.text(context, node, name)?;
                Ok(open_text(text, modified))
            }
            PlainPlace::ErrorText(node) => {
                Ok(open_text(error_text(node).into(), node.entry.modified))
            }
            PlainPlace::Chunk(chunk) => chunk.open(context, self.plain.target),
        }
    }

    pub(crate) fn list_place(
        &self,
        context: &RequestContext,
        place: PlainPlace,
        path: &Key,
    ) -> Result<Box<dyn Listing>> {
        match place {
            PlainPlace::Node(node) => self.list_node(context, node),
            PlainPlace::ChunkFolder(layout, prefix) => Ok(Box::new(FolderListing {
                stored: layout.stored(context)?,
                layout,
                prefix,
                index: 0,
            })),
            PlainPlace::Document(..) | PlainPlace::Chunk(_) | PlainPlace::ErrorText(_) => {
                Err(Error::new(Kind::NotADirectory, path, "is not a directory"))
            }
        }
    }

    fn list_node(&self, context: &RequestContext, node: PlainNode) -> Result<Box<dyn Listing>> {
        let PlainNode { entry, kind } = node;
        Ok(match kind {
            PlainKind::Group => Box::new(GroupListing {
                children: self.plain.hierarchy.known_children(context, &entry)?,
                plain: self.plain.clone(),
                documents: Documents::new(self.plain.group_documents(&entry).to_vec()),
                group: entry,
                has_children: true,
            }),
            PlainKind::Array(layout) => self.list_array(context, layout)?,
            PlainKind::LeftOut(_) => {
                let text = (ERROR_TEXT.as_bytes().to_vec(), EntryKind::File);
                Box::new(NameList::new([text]))
            }
            PlainKind::Unread(error) => return Err(error),
        })
    }

    fn list_array(
        &self,
        context: &RequestContext,
        layout: PlainLayout,
    ) -> Result<Box<dyn Listing>> {
        let target = self.plain.target;
        let grid = layout.grid()?;
        match target.chunk_folder {
            Some(folder) if !grid.counts().is_empty() => {
                let folder = (folder.as_bytes().to_vec(), EntryKind::Directory);
                let documents = target.array_documents.iter();
                let documents = documents.map(|name| (name.as_bytes().to_vec(), EntryKind::File));
                Ok(Box::new(NameList::new(
                    (!grid.is_empty())
                        .then_some(folder)
                        .into_iter()
                        .chain(documents),
                )))
            }
            _ => Ok(Box::new(ArrayListing::new(context, layout, target)?)),
        }
    }

    fn find(&self, context: &RequestContext, path: &Key) -> Result<Option<PlainPlace>> {
        self.plain.find(context, path)
    }
}

/// Returns the text of `ERROR.txt`, which says why the view does not show a node.
fn error_text(node: &PlainNode) -> String {
    match &node.kind {
        PlainKind::LeftOut(error) => format!("{error}\n"),
        PlainKind::Group | PlainKind::Array(_) | PlainKind::Unread(_) => String::new(),
    }
}

fn version_of(text: &[u8]) -> u64 {
    XxHash64::oneshot(0, text)
}

fn attr_of_text(text: &[u8], modified: SystemTime, ttl: Duration) -> Attr {
    Attr {
        content: Some(version_of(text)),
        ..Attr::of_file(text.len() as u64, modified, ttl)
    }
}

fn open_text(text: Bytes, modified: SystemTime) -> OpenedFile {
    let version = version_of(&text);
    GeneratedFile::open(text, version, modified)
}

impl View for PlainView {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let info = self.plain.hierarchy.store().info();
        let (place, stamp) = info.ask(context, |context| self.find(context, path));
        let ttl = info.time_left(stamp.request_time);
        let Some(place) = place? else {
            return Ok(None);
        };
        match self.attr(context, &place, ttl) {
            // A chunk of unknown length still has a file, and the open returns the error.
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Corrupt | Kind::Unsupported | Kind::TooLarge
                ) =>
            {
                Ok(Some(Attr {
                    is_exact: false,
                    is_read_only: true,
                    ..Attr::of_file(0, SystemTime::UNIX_EPOCH, Duration::ZERO)
                }))
            }
            attr => attr.map(Some),
        }
    }

    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let place = self.find(context, path)?;
        place
            .map(|place| self.attr(context, &place, Duration::ZERO))
            .transpose()
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(name) = fact_of(name) else {
            return Ok(None);
        };
        Ok(match self.find(context, path)? {
            Some(PlainPlace::Node(node)) => match node.kind {
                PlainKind::LeftOut(error) if name == "left_out" => {
                    Some(error.to_string().into_bytes())
                }
                _ => entry_facts::of_node(&node.entry, name).map(String::into_bytes),
            },
            _ => None,
        })
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        let place = self.find(context, path)?;
        let place = place.ok_or_else(|| Error::not_found(path))?;
        self.list_place(context, place, path)
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        let place = self.find(context, path)?;
        let place = place.ok_or_else(|| Error::not_found(path))?;
        self.open_place(context, &place, path)
    }

    fn read_link(&self, _context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(path, "not a symbolic link"))
    }
}
