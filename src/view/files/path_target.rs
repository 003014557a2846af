//! Defines what a path of the files view can name: directories, documents and decoded files.

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

/// The file or directory that a path of the files view names.
pub(super) enum PathTarget {
    /// The directory of a group or an array.
    Node(Arc<NodeEntry>),
    /// A document that is generated from a node's metadata, and its name.
    Document(Arc<NodeEntry>, Vec<u8>),
    /// A stored metadata document of a node that cannot be read.
    RawDocument(Arc<NodeEntry>, BrokenDocument),
    /// The file that says why a node cannot be read.
    ErrorText(Arc<NodeEntry>),
    Chunks(Arc<NodeEntry>),
    /// A decoded file of an array, a chunk or a selection.
    Decoded(Box<DecodedTarget>),
    /// A file of a whole group, or of an array with its coordinates.
    GroupFile(Box<GroupTarget>),
    /// A document, chunk or folder of chunks of a node, shown as in an uncompressed Zarr v3 store.
    Plain(Arc<NodeEntry>, Box<PlainPlace>),
}

impl PathTarget {
    /// Whether the path names a directory.
    pub(super) fn is_directory(&self) -> bool {
        match self {
            PathTarget::Plain(_, place) => place.is_directory(),
            place => matches!(place, PathTarget::Node(_) | PathTarget::Chunks(_)),
        }
    }

    /// Whether the path names the `attributes.json` of a node that has a stored document.
    pub(super) fn is_editable(&self) -> bool {
        match self {
            PathTarget::Document(entry, name) => name == ATTRIBUTES && entry.is_described(),
            _ => false,
        }
    }

    /// Whether the file or directory is read-only even if the mount is writable.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            PathTarget::Node(_) => false,
            PathTarget::Decoded(target) => !target.is_writable(),
            target => !target.is_editable(),
        }
    }

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

/// What a path of the files view names: a file or directory from the store, or a file in memory.
pub(super) enum PathEntry {
    /// A file or directory that is generated from the store.
    Target(PathTarget),
    /// A scratch file, or an `attributes.json` that was created after an unlink.
    Scratch(Arc<ScratchFile>),
}

impl PathEntry {
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, PathEntry::Target(target) if target.is_directory())
    }
}

/// A decoded file in some format: the whole array, one chunk or a selection.
pub(super) struct DecodedTarget {
    pub(super) entry: Arc<NodeEntry>,
    pub(super) array: Arc<OpenArray>,
    pub(super) format: &'static Format,
    pub(super) part: ArrayPart,
    /// The elements of the array that the file contains.
    pub(super) selection: Selection,
    /// Whether the values are CF-decoded (scale, offset, missing values).
    pub(super) is_cf_decoded: bool,
    /// The sequence of headers and elements that makes up the file, or the error that prevents reading it.
    pub(super) parts: Result<FileParts>,
}

/// The elements of an array that a file contains.
pub(super) enum ArrayPart {
    Whole,
    /// The elements of the chunk with the given indices, which is in the grid.
    Chunk(Coordinates),
    /// The elements of a selection in the file's name.
    Selected(Selection),
}

/// The array to which a file name refers, and the nodes from which its file takes metadata.
pub(super) struct ArrayPlace {
    /// The array to which the name refers.
    pub(super) entry: Arc<NodeEntry>,
    /// The parent and other nodes from which the file takes metadata, such as dimension scales.
    pub(super) around: SurroundingNodes,
}

impl ArrayPlace {
    /// Returns the description of the array that a file format needs. `shape` is the shape of the elements, `name` the
    /// base name of the file.
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
    /// Whether the file can be written, because it is `NAME.npy` or `NAME.raw`.
    pub(super) fn is_writable(&self) -> bool {
        let is_whole = matches!(self.part, ArrayPart::Whole) && !self.is_cf_decoded;
        let formats = [&npy::FORMAT, &plain::RAW];
        is_whole && !self.is_generated() && formats.iter().any(|format| self.format.is(format))
    }

    /// Whether all of the file is generated when it is opened, because its length depends on the values of the
    /// elements.
    pub(super) fn is_generated(&self) -> bool {
        self.format.is_made(self.array.array())
    }

    /// Returns the array as an input from which a file is generated. `name` is the base name of the array's files.
    fn member(&self, name: &[u8]) -> GroupMember {
        let described = self.entry.array().unwrap_or(self.array.array());
        let decoded = self.is_cf_decoded.then(|| cf::decoded(described));
        // The error is not reported here: if the CF attributes cannot be applied, the file does not exist, so it is
        // never opened.
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

    /// Returns the headers and elements that make up the file, or the error that prevents reading it.
    pub(super) fn parts(&self) -> Result<&FileParts> {
        self.parts.as_ref().map_err(Error::clone)
    }

    /// Returns a number that identifies the file: another array or header gives another number.
    pub(super) fn content(&self) -> u64 {
        match &self.parts {
            // CF-decoded values depend on attributes, even in formats whose headers do not.
            Ok(parts) if self.is_cf_decoded => parts.content(self.array.id()),
            Ok(parts) => self.format.content(&self.array, parts),
            Err(_) => self.array.id(),
        }
    }

    /// Returns a name under which the generated file is cached. Files of the array that differ because of attributes or
    /// names have different cache names.
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

    /// Returns the exact length of the file in bytes, since programs copy as many bytes as `stat` shows. If it depends
    /// on the values of the elements, reads them, once for each version of the array.
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

/// A file of all arrays of a group, or of an array with its coordinates.
pub(super) struct GroupTarget {
    pub(super) entry: Arc<NodeEntry>,
    pub(super) file: Box<PlannedFile>,
}

impl GroupTarget {
    pub(super) fn open(&self, context: &RequestContext) -> Result<OpenedFile> {
        // The version is read before the elements. If they change during the read, the version is already stale.
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

/// Combines the version `all` of several arrays with the version of one more array.
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
