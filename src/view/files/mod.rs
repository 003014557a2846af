//! The files view: groups and arrays as directories that contain decoded files.
//!
//! Every node's directory has `metadata.json` (its metadata as final v3) and `attributes.json`. An array's directory
//! also has the whole array in each format, `NAME.npy`, and `chunks/` with every chunk, `chunks/0.3.1.npy`. All of
//! these open by name; `forms` and `pairs` select the ones that are listed, and `chunks/` lists only stored chunks. A
//! child of a group takes precedence over a file of the group. Sizes are known without decoding, except for tables,
//! elements without a fixed length, and maps, which need their coordinate variables. A node that cannot be read is a
//! directory of its documents as stored.
//!
//! No file has a name by which a Zarr library finds a node: the library would find no chunks below, and read fill
//! values.

use std::sync::Arc;
use std::time::Duration;

use crate::view::files::array_files::DecodedTarget;
use crate::view::files::broken::names_of;
use crate::view::files::editing::Editing;
use crate::view::files::forms::ListedForms;
use crate::view::files::listings::GroupListing;
use crate::view::files::pairs::LookedUpPairs;
use crate::view::files::path_target::{PathTarget, ShownFile};
use crate::view::files::scratch::Scratch;
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::document;
use crate::view::files::unstored::UnstoredState;
use crate::view::text_file::{TextFile, directory_attr, file_attr};
use crate::view::{Attr, ChildName, FILES_ATTRIBUTE, OpenedFile, View, ViewDir};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarr_format::model::document::METADATA_JSON;
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::formats::Export;
use zarrfs_export::formats::group::GroupMember;
use zarrfs_export::inspect::coordinate_lines::CoordinateLines;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Listing, Tree};

mod array_dir;
mod array_files;
mod broken;
mod decoded;
mod documents;
mod editing;
mod facts;
mod forms;
mod group_files;
mod listings;
mod pairs;
mod path_target;
mod scratch;
mod seen;
mod shown_document;
mod unstored;
mod writing;

pub use crate::view::files::forms::ListedForm;

/// A hierarchy as directories and decoded files; clones share the unstored state.
#[derive(Clone)]
pub struct FilesView {
    hierarchy: Arc<Hierarchy>,
    arrays: Arc<Arrays>,
    /// The base name of the root's own files.
    root_name: Arc<[u8]>,
    /// The forms of arrays that are listed in addition to the default one.
    forms: Arc<ListedForms>,
    lines: Arc<CoordinateLines>,
    unstored: Arc<UnstoredState>,
    pairs: Arc<LookedUpPairs>,
    /// The directory of the mount that shows the view, with its slash: its files have their own inodes.
    shown_in: &'static str,
}

const METADATA: &[u8] = METADATA_JSON.as_bytes();
const ATTRIBUTES: &[u8] = b"attributes.json";
const CHUNKS: &[u8] = b"chunks";

impl FilesView {
    /// Builds the view. `root_name` is the base name of the root's own files; arrays are also listed in the forms
    /// `asked`.
    pub fn new(
        hierarchy: Arc<Hierarchy>,
        arrays: impl Into<Arc<Arrays>>,
        root_name: &str,
        asked: &[ListedForm],
    ) -> FilesView {
        FilesView {
            hierarchy,
            arrays: arrays.into(),
            root_name: root_name.as_bytes().into(),
            forms: Arc::new(ListedForms::new(asked)),
            lines: Arc::default(),
            unstored: Arc::default(),
            pairs: Arc::default(),
            shown_in: "",
        }
    }

    /// Returns the view for a directory of the mount, whose path ends with a slash.
    pub fn shown_in(&self, dir: &'static str) -> FilesView {
        FilesView {
            shown_in: dir,
            ..self.clone()
        }
    }

    /// Opens a decoded file.
    fn export(&self, context: &RequestContext, target: &DecodedTarget) -> Result<Export> {
        let array = &target.array;
        if !target.is_made() {
            let (parts, selection) = (target.parts()?.clone(), target.selection()?);
            return Export::of_selection(array, parts, &selection, target.content());
        }
        array.check_decodable()?;
        let region = target.bounds()?;
        let version_of = |context: &RequestContext| array.region_version(context, &region);
        let version = version_of(context)?;
        let export = Export::open_made(context, target.format, &self.member(target)?)?;
        let length = export.len();
        array.note_length(context, &target.name(), &version_of, version, length)?;
        Ok(export)
    }

    /// Returns the array of a decoded file as the source of a generated file.
    fn member(&self, target: &DecodedTarget) -> Result<GroupMember> {
        target.member(self.name_of(&target.found))
    }

    /// Returns the exact length of a decoded file. A file whose length needs its elements is read once for each
    /// content, since programs copy as many bytes as `stat` shows.
    fn decoded_length(&self, context: &RequestContext, target: &DecodedTarget) -> Result<u64> {
        if !target.is_made() {
            return target.length();
        }
        let (array, region) = (&target.array, target.bounds()?);
        let measure = |context: &RequestContext| {
            Ok(Export::open_made(context, target.format, &self.member(target)?)?.len())
        };
        let version_of = |context: &RequestContext| array.region_version(context, &region);
        array.length_of(context, &target.name(), &version_of, measure)
    }

    /// Resolves a name; also returns the TTL of the answer.
    fn resolved<T>(
        &self,
        context: &RequestContext,
        resolve: impl FnOnce(&RequestContext) -> T,
    ) -> (T, Duration) {
        let info = self.hierarchy.store().info();
        let (target, stamp) = info.ask(context, resolve);
        (target, info.time_left(stamp.request_time))
    }

    /// Returns the attributes with the TTL `fresh`. A file whose length cannot be found still exists.
    fn attr(&self, context: &RequestContext, target: &PathTarget, fresh: Duration) -> Result<Attr> {
        match self.exact_attr(context, target, fresh) {
            Err(error)
                if is_untold(error.kind())
                    || matches!(target, PathTarget::AsFound(..))
                        && error.kind() != Kind::WouldWait =>
            {
                let attr = attr_of_file(target, 0, Duration::ZERO);
                Ok(Attr {
                    is_exact: false,
                    ..attr
                })
            }
            attr => attr,
        }
    }

    /// Like `attr`; fails if the length cannot be found.
    fn exact_attr(
        &self,
        context: &RequestContext,
        place: &PathTarget,
        mut fresh: Duration,
    ) -> Result<Attr> {
        let size = match place {
            PathTarget::Node(found) | PathTarget::Chunks(found) => {
                let attr = directory_attr(found.modified, fresh);
                return Ok(Attr {
                    is_read_only: place.is_read_only(),
                    ..attr
                });
            }
            PathTarget::Document(found, name) => shown_document::length_of(context, found, name)?,
            PathTarget::AsFound(found, document) => match document.stored {
                Some((length, _)) => length,
                None => {
                    self.hierarchy
                        .document_as_found(context, found, document)?
                        .size
                }
            },
            PathTarget::ErrorText(found) => broken::error_text(found).len() as u64,
            PathTarget::Decoded(target) => {
                if target.is_made() {
                    // The next reader may find another length.
                    fresh = Duration::ZERO;
                }
                let attr = attr_of_file(place, self.decoded_length(context, target)?, fresh);
                let chunk_bytes = target.array.chunk_bytes();
                return Ok(Attr {
                    chunk_bytes,
                    ..attr
                });
            }
            PathTarget::GroupFile(target) => {
                if target.file.is_made() {
                    // The next reader may find another length.
                    fresh = Duration::ZERO;
                }
                target.file.length(context)?
            }
        };
        Ok(attr_of_file(place, size, fresh))
    }

    /// Returns a number that identifies the view; clones share it.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.unstored).addr()
    }

    /// Returns the attributes of the file that `find` returns.
    fn found_attr(
        &self,
        context: &RequestContext,
        find: impl FnOnce(&RequestContext) -> Result<Option<ShownFile>>,
    ) -> Result<Option<Attr>> {
        let (shown, fresh) = self.resolved(context, find);
        match shown? {
            Some(ShownFile::Target(target)) => self.attr(context, &target, fresh).map(Some),
            Some(ShownFile::Scratch(scratch)) => Ok(Some(scratch_attr(&scratch))),
            None => Ok(None),
        }
    }

    fn list_node(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        match &found.node {
            Ok(Node::Group(_)) | Err(_) => {
                let mut files = match &found.node {
                    Ok(_) => self.documents_shown(&found.path),
                    Err(_) => names_of(found),
                };
                files.extend(self.group_file_names(context, found, &self.forms.of_groups));
                files.extend(self.unstored.names_in(&found.path));
                let listing = GroupListing::new(context, &self.hierarchy, found, files)?;
                Ok(Box::new(listing))
            }
            Ok(Node::Array(_)) => self.list_array(context, found),
        }
    }
}

/// Returns the attributes of a file.
fn attr_of_file(target: &PathTarget, size: u64, fresh: Duration) -> Attr {
    let found = target.node();
    let content = match target {
        PathTarget::Decoded(target) => target.content(),
        PathTarget::GroupFile(target) => target.file.content(),
        _ => found.version,
    };
    Attr {
        content: Some(content),
        is_read_only: target.is_read_only(),
        ..file_attr(size, found.modified, fresh)
    }
}

/// Returns the attributes of a file in memory.
fn scratch_attr(scratch: &Arc<Scratch>) -> Attr {
    Attr {
        content: Some(scratch.number()),
        ..file_attr(scratch.len(), scratch.modified(), Duration::ZERO)
    }
}

/// Opens the current content of a file in memory for reading.
fn open_scratch(scratch: &Arc<Scratch>) -> OpenedFile {
    OpenedFile {
        file: Arc::new(TextFile {
            bytes: scratch.bytes().into(),
            version: 0,
            modified: scratch.modified(),
        }),
        content: Some(scratch.number()),
        version: None,
        direct: true,
        tree_file: None,
    }
}

/// Whether an error means that the length of a file cannot be found: the file does not decode, or would be too large.
fn is_untold(kind: Kind) -> bool {
    matches!(kind, Kind::Corrupt | Kind::Unsupported | Kind::TooLarge)
}

impl View for FilesView {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.found_attr(context, |context| self.shown_or_why(context, path))
    }

    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let (shown, fresh) = self.resolved(context, |context| self.shown_or_why(context, path));
        match shown? {
            Some(ShownFile::Target(target)) => self.exact_attr(context, &target, fresh).map(Some),
            Some(ShownFile::Scratch(scratch)) => Ok(Some(scratch_attr(&scratch))),
            None => Ok(None),
        }
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let target = match self.shown_or_why(context, path)? {
            Some(ShownFile::Target(target)) => Some(target),
            Some(ShownFile::Scratch(_)) | None => None,
        };
        match target {
            Some(PathTarget::Node(found)) if name == FILES_ATTRIBUTE => {
                self.names_that_open(context, &found)
            }
            Some(target) => self.fact(context, &target, name),
            None => Ok(None),
        }
    }

    fn dir(&self, context: &RequestContext, path: &Key) -> Result<ViewDir> {
        Ok(match self.resolve(context, path)? {
            Some(PathTarget::Node(_)) => ViewDir::Node(path.clone()),
            Some(PathTarget::Chunks(_)) => ViewDir::Chunks(path.clone()),
            _ => ViewDir::Path(path.clone()),
        })
    }

    fn child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        self.found_attr(context, |context| {
            let find = || self.resolve_child(context, dir, name);
            match dir {
                // No scratch files are in the chunk directory.
                ViewDir::Chunks(_) => Ok(find()?.map(ShownFile::Target)),
                ViewDir::Path(path) | ViewDir::Node(path) => {
                    self.shown_instead(&path.child(name.bytes)?, find)
                }
            }
        })
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        match self.shown_or_why(context, path)? {
            None => Err(Error::not_found(path)),
            Some(ShownFile::Target(PathTarget::Node(found))) => self.list_node(context, &found),
            Some(ShownFile::Target(PathTarget::Chunks(found))) => self.list_chunks(&found),
            Some(_) => Err(Error::new(Kind::NotADirectory, path, "is not a directory")),
        }
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        let target = match self.shown_or_why(context, path)? {
            None => return Err(Error::not_found(path)),
            Some(ShownFile::Scratch(scratch)) => return Ok(open_scratch(&scratch)),
            Some(ShownFile::Target(target)) => target,
        };
        match target {
            PathTarget::Node(_) | PathTarget::Chunks(_) => {
                Err(Error::new(Kind::IsADirectory, path, "is a directory"))
            }
            PathTarget::Document(found, name) => {
                let text = document(found.node()?, &name);
                self.unstored
                    .note_seen(path, SeenDocument::shown(&found, &text));
                Ok(shown_document::open(&found, text))
            }
            PathTarget::AsFound(found, document) => self.open_as_found(context, &found, &document),
            PathTarget::ErrorText(found) => {
                Ok(broken::text_file(&found, broken::error_text(&found)))
            }
            PathTarget::GroupFile(target) => target.open(context),
            PathTarget::Decoded(target) => {
                // Report an array that does not decode at open, not at each read.
                target.array.check_decodable()?;
                // Taken before elements are read: if they change during the read, the version is already stale.
                let version = target.array.content(context)?;
                let export = self.export(context, &target)?;
                Ok(OpenedFile {
                    file: Arc::new(export),
                    content: Some(target.content()),
                    version,
                    direct: false,
                    tree_file: None,
                })
            }
        }
    }

    fn read_link(&self, _context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(path, "not a symbolic link"))
    }

    fn tree(&self, _context: &RequestContext, path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        Ok(Some((Arc::new(Editing::new(self.clone())), path.clone())))
    }
}
