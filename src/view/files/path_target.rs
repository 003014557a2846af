//! The targets of paths in the files view: directories, documents and decoded files.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::view::files::ATTRIBUTES;
use crate::view::files::scratch_files::ScratchFile;
use crate::view::plain::PlainPlace;
use crate::view::{Attr, File, OpenedFile};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{Coordinates, Selection};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::{BrokenDocument, NodeEntry};
use zarrfs_export::formats::group::{GroupFile, GroupMember, MemberSource};
use zarrfs_export::formats::{Export, FileParts, Format, Subject};
use zarrfs_export::formats::{cf, npy, plain};
use zarrfs_export::inspect::group_file::PlannedFile;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::request_context::RequestContext;

/// The target of a path.
pub(super) enum PathTarget {
    /// A node's directory.
    Node(Arc<NodeEntry>),
    /// A document generated from a node's metadata.
    Document(Arc<NodeEntry>, Vec<u8>),
    /// A document of a broken node, as stored.
    RawDocument(Arc<NodeEntry>, BrokenDocument),
    /// The error of a broken node.
    ErrorText(Arc<NodeEntry>),
    /// The directory of an array's chunks.
    Chunks(Arc<NodeEntry>),
    /// A decoded file.
    Decoded(Box<DecodedTarget>),
    /// A file of several arrays.
    GroupFile(Box<GroupTarget>),
    /// A document, chunk or folder of chunks of a node in the plain v3 store.
    Plain(Arc<NodeEntry>, Box<PlainPlace>),
}

impl PathTarget {
    /// Whether the target is a directory.
    pub(super) fn is_directory(&self) -> bool {
        match self {
            PathTarget::Plain(_, place) => place.is_directory(),
            place => matches!(place, PathTarget::Node(_) | PathTarget::Chunks(_)),
        }
    }

    /// Whether the target is `attributes.json` of a node that has a stored document.
    pub(super) fn is_editable(&self) -> bool {
        match self {
            PathTarget::Document(entry, name) => name == ATTRIBUTES && entry.is_described(),
            _ => false,
        }
    }

    /// Whether the target is read-only even if the mount is writable.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            PathTarget::Node(_) => false,
            PathTarget::Decoded(target) => !target.is_writable(),
            target => !target.is_editable(),
        }
    }

    /// Returns the node to which the target belongs.
    pub(super) fn node(&self) -> &Arc<NodeEntry> {
        match self {
            PathTarget::Decoded(target) => &target.entry,
            PathTarget::GroupFile(target) => &target.entry,
            PathTarget::Node(entry)
            | PathTarget::Chunks(entry)
            | PathTarget::Document(entry, _)
            | PathTarget::RawDocument(entry, _)
            | PathTarget::Plain(entry, _)
            | PathTarget::ErrorText(entry) => entry,
        }
    }
}

/// The entry of a path: its target, or a file in memory.
pub(super) enum PathEntry {
    /// A directory or file generated from the store.
    Target(PathTarget),
    /// A scratch file, or a new file in place of a document.
    Scratch(Arc<ScratchFile>),
}

impl PathEntry {
    /// Whether the entry is a directory.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, PathEntry::Target(target) if target.is_directory())
    }
}

/// A decoded file: the whole array, one chunk or a selection, in a format.
pub(super) struct DecodedTarget {
    /// The array.
    pub(super) entry: Arc<NodeEntry>,
    pub(super) array: Arc<OpenArray>,
    pub(super) format: &'static Format,
    pub(super) part: ArrayPart,
    /// The elements that the file contains.
    pub(super) selection: Selection,
    /// Whether the file has CF-decoded values (scale, offset, missing values).
    pub(super) is_cf_decoded: bool,
    /// The parts of the file, if they can be known without reading elements.
    pub(super) parts: Result<FileParts>,
}

/// The part of an array that a file contains.
pub(super) enum ArrayPart {
    /// All elements of the array.
    Whole,
    /// The chunk with these indices, which is in the grid.
    Chunk(Coordinates),
    /// A selection.
    Selected(Selection),
}

/// The array of a file name, and the nodes that the file is made from.
pub(super) struct ArrayPlace {
    /// The array.
    pub(super) entry: Arc<NodeEntry>,
    /// The parent and other nodes from which the file takes metadata.
    pub(super) around: SurroundingNodes,
}

impl ArrayPlace {
    /// Returns the array as formats see it: a box of this shape, in files with the base name `name`.
    pub(super) fn subject<'a>(&'a self, name: &'a [u8], shape: &'a [u64]) -> Option<Subject<'a>> {
        Some(Subject {
            array: self.entry.array()?,
            shape,
            name,
            chosen: "",
            around: self.around.attributes(),
            taken: None,
        })
    }
}

impl DecodedTarget {
    /// Whether the file is writable: it is `NAME.npy` or `NAME.raw`.
    pub(super) fn is_writable(&self) -> bool {
        let is_whole = matches!(self.part, ArrayPart::Whole) && !self.is_cf_decoded;
        let formats = [&npy::FORMAT, &plain::RAW];
        is_whole && !self.is_generated() && formats.iter().any(|format| self.format.is(format))
    }

    /// Whether the file is generated when it is opened, so that its length needs all of its elements.
    pub(super) fn is_generated(&self) -> bool {
        self.format.is_made(self.array.array())
    }

    /// Returns the array as an input of a generated file; `name` is the base name of the array's files.
    fn member(&self, name: &[u8]) -> GroupMember {
        let described = self.entry.array().unwrap_or(self.array.array());
        let decoded = self.is_cf_decoded.then(|| cf::decoded(described));
        // Nothing to report here: if the attributes cannot be applied, the file does not exist, so nothing opens it.
        let decoded = decoded.and_then(std::result::Result::ok);
        let conversion = decoded
            .as_ref()
            .and_then(|decoded| decoded.conversion.clone());
        GroupMember {
            path: String::from_utf8_lossy(name).into_owned(),
            array: Arc::new(decoded.map_or_else(|| described.clone(), |decoded| decoded.array)),
            source: Some(MemberSource {
                array: self.array.clone(),
                selection: self.selection.clone(),
                conversion,
            }),
        }
    }

    /// Returns the parts of the file; fails as `Format::parts_of`.
    pub(super) fn parts(&self) -> Result<&FileParts> {
        self.parts.as_ref().map_err(Error::clone)
    }

    /// Returns the number that identifies the content.
    pub(super) fn content(&self) -> u64 {
        match &self.parts {
            // The values depend on attributes, even in formats whose headers do not.
            Ok(parts) if self.is_cf_decoded => parts.content(self.array.id()),
            Ok(parts) => self.format.content(&self.array, parts),
            Err(_) => self.array.id(),
        }
    }

    /// Returns a name for the cache of generated files. A content that differs because of other attributes or names has
    /// another cache name.
    fn cache_name(&self) -> String {
        let mut extension = self.format.extension.to_string();
        if let Ok(parts) = &self.parts {
            let _ = write!(extension, " {:x}", parts.content(0));
        }
        match &self.part {
            ArrayPart::Whole => extension,
            ArrayPart::Chunk(indices) => format!("{indices:?}.{extension}"),
            ArrayPart::Selected(selection) => format!("{:?}.{extension}", selection.axes),
        }
    }

    /// Opens the file; `name` is the base name of the array's files.
    pub(super) fn export(&self, context: &RequestContext, name: &[u8]) -> Result<Export> {
        let array = &self.array;
        if !self.is_generated() {
            let parts = self.parts()?.clone();
            return Export::of_selection(array, parts, &self.selection, self.content());
        }
        array.check_decodable()?;
        let region = self.selection.bounds();
        let version_of = |context: &RequestContext| array.region_version(context, &region);
        let version = version_of(context)?;
        let export = Export::open_made(context, self.format, &self.member(name))?;
        let length = export.len();
        array.record_length(context, &self.cache_name(), &version_of, version, length)?;
        Ok(export)
    }

    /// Returns the exact length of the file. A file whose length needs its elements is read once for each content,
    /// since programs copy as many bytes as `stat` shows.
    pub(super) fn exact_length(&self, context: &RequestContext, name: &[u8]) -> Result<u64> {
        if !self.is_generated() {
            let size = self.array.array().element_size();
            return self.parts()?.len(&self.selection.shape(), size?);
        }
        let (array, region) = (&self.array, self.selection.bounds());
        let measure = |context: &RequestContext| {
            Ok(Export::open_made(context, self.format, &self.member(name))?.len())
        };
        let version_of = |context: &RequestContext| array.region_version(context, &region);
        array.length_of(context, &self.cache_name(), &version_of, measure)
    }
}

/// A file of a group, or of an array with its coordinates.
pub(super) struct GroupTarget {
    /// The group or the array.
    pub(super) entry: Arc<NodeEntry>,
    pub(super) file: Box<PlannedFile>,
}

impl GroupTarget {
    /// Opens the file.
    pub(super) fn open(&self, context: &RequestContext) -> Result<OpenedFile> {
        // The version is read before the elements: if they change during the read, the version is already stale.
        let mut version = Some(0);
        for array in self.file.arrays() {
            let content = array.content(context)?;
            version = version.zip(content).map(|(all, one)| joined(all, one));
        }
        let file = self.file.open(context)?;
        Ok(OpenedFile {
            file: Arc::new(file),
            content: Some(self.file.content()),
            version,
            direct: false,
            tree_file: None,
        })
    }
}

/// Combines the version `all` of several arrays with the version of one more.
fn joined(all: u64, one: u64) -> u64 {
    all.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ one
}

impl File for Export {
    fn version(&self) -> Option<u64> {
        Some(self.array().page_version())
    }

    fn may_have_changed(&self) -> bool {
        Export::may_have_changed(self)
    }

    fn is_snapshot(&self) -> bool {
        self.is_made()
    }

    fn expects_sequential(&self) -> bool {
        Export::expects_sequential(self)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let modified = self.array().modified();
        Some(Attr::of_file(self.len(), modified, Duration::ZERO))
    }
}

impl File for GroupFile {
    fn version(&self) -> Option<u64> {
        let contents = self.arrays().map(|array| array.page_version());
        Some(contents.fold(0, joined))
    }

    fn may_have_changed(&self) -> bool {
        GroupFile::may_have_changed(self)
    }

    fn is_snapshot(&self) -> bool {
        self.is_made()
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let newest = self.arrays().map(|array| array.modified()).max()?;
        Some(Attr::of_file(self.len(), newest, Duration::ZERO))
    }
}
