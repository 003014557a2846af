//! The files view: groups and arrays as directories that contain decoded files.
//!
//! Every node's directory has `metadata.json` (its metadata as Zarr v3) and `attributes.json`. An array's directory
//! also has the whole array in each format, such as `NAME.npy`, and `chunks/` with every chunk, such as
//! `chunks/0.3.1.npy`. All of these files open by name; `listed_formats` selects the files that are listed, and
//! `chunks/` lists only stored chunks. A child of a group takes precedence over a generated file of the same name.
//! Sizes are known without decoding, except for tables, elements without a fixed length, and maps, which need their
//! coordinate variables. The directory of a node that cannot be read has the node's metadata documents as they are
//! stored.
//!
//! The directory of an array lists the elements once, so that a recursive program reads each element once: as one file,
//! or as the stored chunks of a large array that is nearly empty. Files that are not listed can be opened as well.
//!
//! The directory of a node is also that of a node in an uncompressed Zarr v3 store (`plain`): `zarr.json` and `c/` open
//! by name, but are not listed. So a Zarr library that opens the view reads the right values.

use std::sync::Arc;
use std::time::Duration;

use crate::view::files::editable_tree::EditableTree;
use crate::view::files::listed_formats::{HeaderDataPairs, ListedFormats};
use crate::view::files::listings::{ChunkListing, GroupListing};
use crate::view::files::node_documents::{DocumentVersion, document, unreadable_names};
use crate::view::files::path_target::{ArrayPart, DecodedTarget, PathEntry, PathTarget};
use crate::view::files::resolver::PathResolver;
use crate::view::files::scratch_files::{ScratchFile, ScratchFiles};
use crate::view::plain::{PlainView, v3};
use crate::view::{
    Attr, ChildName, FILES_ATTRIBUTE, GeneratedFile, OpenedFile, PathInTree, View, ViewDir, fact_of,
};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarr_format::model::document::METADATA_JSON;
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::formats::{Export, FORMATS, GROUP_FORMATS, Subject, VARIABLE_FORMATS};
use zarrfs_export::inspect::coordinates::CoordinateLines;
use zarrfs_export::inspect::entry_facts;
use zarrfs_export::inspect::file_ending::FileEnding;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, Listing};

mod decoded_writer;
mod document_file;
mod editable_tree;
mod listed_formats;
mod listings;
mod node_documents;
mod path_target;
mod resolver;
mod scratch_files;

pub use crate::view::files::listed_formats::ListedFormat;

/// A view of a hierarchy as directories and decoded files. Clones share everything except `mount_dir`.
#[derive(Clone)]
pub struct FilesView {
    resolver: Arc<PathResolver>,
    /// The formats in which arrays are listed in addition to the default format.
    formats: Arc<ListedFormats>,
    /// The path in the mount at which the view is shown, with a slash at its end. The same file at two paths has two
    /// inodes.
    mount_dir: &'static str,
}

const METADATA: &[u8] = METADATA_JSON.as_bytes();
const ATTRIBUTES: &[u8] = b"attributes.json";
const CHUNKS: &[u8] = b"chunks";

impl FilesView {
    /// Creates the view. `root_name` is the base name of the files of the root node, and `listed` are formats that are
    /// listed in addition to the default format.
    pub fn new(
        hierarchy: Arc<Hierarchy>,
        arrays: impl Into<Arc<Arrays>>,
        root_name: &str,
        listed: &[ListedFormat],
    ) -> FilesView {
        let arrays = arrays.into();
        FilesView {
            resolver: Arc::new(PathResolver {
                plain: PlainView::new(hierarchy.clone(), arrays.clone(), &v3::TARGET),
                hierarchy,
                arrays,
                root_name: root_name.as_bytes().into(),
                lines: CoordinateLines::default(),
                scratch_files: ScratchFiles::default(),
                pairs: HeaderDataPairs::default(),
            }),
            formats: Arc::new(ListedFormats::new(listed)),
            mount_dir: "",
        }
    }

    /// Returns the view for the directory `dir` of the mount, a path with a slash at its end.
    pub fn for_mount_dir(&self, dir: &'static str) -> FilesView {
        FilesView {
            mount_dir: dir,
            ..self.clone()
        }
    }

    fn export(&self, context: &RequestContext, target: &DecodedTarget) -> Result<Export> {
        target.export(context, self.resolver.name_of(&target.entry))
    }

    /// Calls `resolve`, and returns its result with the time for which the kernel may cache it.
    fn resolved<T>(
        &self,
        context: &RequestContext,
        resolve: impl FnOnce(&RequestContext) -> T,
    ) -> (T, Duration) {
        let info = self.resolver.hierarchy.store().info();
        let (target, stamp) = info.ask(context, resolve);
        (target, info.time_left(stamp.request_time))
    }

    /// Returns the attributes of a file or directory. If the length of a file cannot be computed, the length is marked
    /// as not exact.
    fn attr(&self, context: &RequestContext, target: &PathTarget, ttl: Duration) -> Result<Attr> {
        match self.exact_attr(context, target, ttl) {
            Err(error)
                if is_unmeasurable(error.kind())
                    || matches!(target, PathTarget::RawDocument(..))
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

    /// Returns the attributes of a file or directory, or fails if the length of a file cannot be computed.
    fn exact_attr(
        &self,
        context: &RequestContext,
        place: &PathTarget,
        mut ttl: Duration,
    ) -> Result<Attr> {
        let size = match place {
            PathTarget::Node(entry) | PathTarget::Chunks(entry) => {
                let attr = Attr::of_directory(entry.modified, ttl);
                return Ok(Attr {
                    is_read_only: place.is_read_only(),
                    ..attr
                });
            }
            PathTarget::Document(entry, name) => node_documents::length_of(context, entry, name)?,
            PathTarget::RawDocument(entry, document) => match document.stored {
                Some((length, _)) => length,
                None => {
                    self.resolver
                        .hierarchy
                        .broken_document(context, entry, document)?
                        .size
                }
            },
            PathTarget::ErrorText(entry) => node_documents::error_text(entry).len() as u64,
            PathTarget::Plain(_, place) => return self.resolver.plain.attr(context, place, ttl),
            PathTarget::Decoded(target) => {
                if target.is_generated() {
                    // The attributes must not be cached, because the file may be generated again with another length.
                    ttl = Duration::ZERO;
                }
                let attr = attr_of_file(
                    place,
                    target.exact_length(context, self.resolver.name_of(&target.entry))?,
                    ttl,
                );
                let chunk_bytes = target.array.chunk_bytes();
                return Ok(Attr {
                    chunk_bytes,
                    ..attr
                });
            }
            PathTarget::GroupFile(target) => {
                if target.file.is_made() {
                    // The attributes must not be cached, because the file may be generated again with another length.
                    ttl = Duration::ZERO;
                }
                target.file.length(context)?
            }
        };
        Ok(attr_of_file(place, size, ttl))
    }

    /// Returns a number that identifies the view and is the same for its clones.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.resolver).addr()
    }

    /// Returns the attributes of the file or directory that `find` returns.
    fn entry_attr(
        &self,
        context: &RequestContext,
        find: impl FnOnce(&RequestContext) -> Result<Option<PathEntry>>,
    ) -> Result<Option<Attr>> {
        let (entry, ttl) = self.resolved(context, find);
        match entry? {
            Some(PathEntry::Target(target)) => self.attr(context, &target, ttl).map(Some),
            Some(PathEntry::Scratch(scratch)) => Ok(Some(scratch_attr(&scratch))),
            None => Ok(None),
        }
    }

    fn list_node(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        match &entry.node {
            Ok(Node::Group(_)) | Err(_) => {
                let mut files = match &entry.node {
                    Ok(_) => self.resolver.document_names(&entry.path),
                    Err(_) => unreadable_names(entry),
                };
                files.extend(self.resolver.group_file_names(
                    context,
                    entry,
                    &self.formats.group_formats,
                ));
                files.extend(self.resolver.scratch_files.names_in(&entry.path));
                let listing = GroupListing::new(context, &self.resolver.hierarchy, entry, files)?;
                Ok(Box::new(listing))
            }
            Ok(Node::Array(_)) => self.list_array(context, entry),
        }
    }

    /// Opens the listing of an array's directory.
    fn list_array(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        let is_sparse = self.is_sparse(context, entry);
        let place = self.resolver.place_of(context, entry)?;
        let subject = self.resolver.whole_of(&place);
        let formats = match &subject {
            None => Vec::new(),
            Some(subject) if is_sparse => self.formats.requested(subject),
            Some(subject) => self.formats.listed(subject),
        };
        let file = |name| (name, EntryKind::File);
        let documents = self
            .resolver
            .document_names(&entry.path)
            .into_iter()
            .map(file);
        let scratch = self
            .resolver
            .scratch_files
            .names_in(&entry.path)
            .into_iter()
            .map(file);
        let files = formats
            .into_iter()
            .map(|format| (self.resolver.file_name(entry, format), EntryKind::File));
        // A name that is too long for a key cannot be looked up.
        let files = files.filter(|(name, _)| entry.path.child(name).is_ok());
        let with_coordinates =
            self.resolver
                .group_file_names(context, entry, &self.formats.group_formats);
        let files = files.chain(with_coordinates.into_iter().map(file));
        let chunks = (CHUNKS.to_vec(), EntryKind::Directory);
        let chunks = (is_sparse || self.formats.chunks).then_some(chunks);
        let names = documents.chain(files).chain(chunks).chain(scratch);
        let mut names: Vec<_> = names.collect();
        for pair in self.pairs_of(context, entry)?.into_iter().map(file) {
            if !names.contains(&pair) {
                names.push(pair);
            }
        }
        Ok(Box::new(NameList::new(names)))
    }

    /// Returns the names of an array's header and data files that were looked up, and of the files that belong to them.
    fn pairs_of(&self, context: &RequestContext, entry: &Arc<NodeEntry>) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for ending in self.resolver.pairs.endings(&entry.path) {
            let Some(parsed) = FileEnding::parse(ending.as_bytes()) else {
                continue;
            };
            let place = self.resolver.place_of(context, entry)?;
            match self.resolver.named_file(context, place, parsed) {
                Ok(Some(_)) => {
                    names.push([self.resolver.name_of(entry), ending.as_bytes()].concat())
                }
                // A call that may wait lists the directory again.
                Err(error) if error.kind() == Kind::WouldWait => return Err(error),
                // The array was replaced by one that does not have the file.
                Ok(None) | Err(_) => {}
            }
        }
        Ok(names)
    }

    /// Returns the names that can be opened in a node's directory, one a line: the files of a whole group, or the files
    /// of an array and its directory of chunks.
    fn names_that_open(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
    ) -> Result<Option<Vec<u8>>> {
        let place = self.resolver.place_of(context, entry)?;
        let Some(subject) = self.resolver.whole_of(&place) else {
            let names = self
                .resolver
                .group_file_names(context, entry, GROUP_FORMATS);
            return Ok(Some(name_lines(names)));
        };
        let decodes = self.resolver.arrays.open(entry)?.check_decodable().is_ok();
        let with_coordinates = self
            .resolver
            .group_file_names(context, entry, VARIABLE_FORMATS);
        let formats = FORMATS
            .iter()
            .filter(|format| decodes && format.fits(&subject));
        let files = formats.map(|format| self.resolver.file_name(entry, format));
        let files = files.filter(|name| entry.path.child(name).is_ok());
        let names = files.chain(with_coordinates);
        let names = names.chain([[CHUNKS, b"/"].concat()]);
        Ok(Some(name_lines(names)))
    }

    /// Whether an array's directory lists the stored chunks instead of one file, because most of the array is not
    /// stored. False if that is unknown.
    fn is_sparse(&self, context: &RequestContext, entry: &Arc<NodeEntry>) -> bool {
        let array = self.resolver.arrays.open(entry);
        array.is_ok_and(|array| array.is_sparse(context).unwrap_or(false))
    }

    /// Opens the listing of an array's stored chunks.
    fn list_chunks(&self, entry: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let array = self.resolver.arrays.open(entry)?;
        let alone = Subject::alone(array.array(), &array.array().shape);
        let mut formats = self.formats.listed(&alone);
        formats.retain(|format| format.is_basic);
        Ok(Box::new(ChunkListing::new(array, formats)?))
    }

    /// Returns the value of an extended attribute of a file or directory, or `None` if it has no attribute of the name.
    fn fact(
        &self,
        context: &RequestContext,
        target: &PathTarget,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(name) = fact_of(name) else {
            return Ok(None);
        };
        let fact = match target {
            PathTarget::Node(entry) | PathTarget::Chunks(entry) => {
                entry_facts::of_node(entry, name)
            }
            PathTarget::Document(..) | PathTarget::RawDocument(..) | PathTarget::ErrorText(_) => {
                (name == "kind").then(|| "document".to_string())
            }
            PathTarget::Decoded(target) => match &target.part {
                ArrayPart::Chunk(indices) => {
                    let store = &**self.resolver.hierarchy.store();
                    entry_facts::of_chunk(context, &target.array, store, indices, name)?
                }
                _ if name == "left_out" => {
                    let parts = target.parts().ok();
                    parts.and_then(|parts| sentence_lines(&parts.left_out))
                }
                _ => entry_facts::of_node(&target.entry, name),
            },
            PathTarget::Plain(..) => None,
            PathTarget::GroupFile(target) if name == "left_out" => {
                let sentences: Vec<_> = target.file.left_out().collect();
                sentence_lines(&sentences)
            }
            PathTarget::GroupFile(target) => entry_facts::of_node(&target.entry, name),
        };
        Ok(fact.map(String::into_bytes))
    }
}

/// Joins names into a text with one name a line.
fn name_lines(names: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let lines = names.into_iter().map(|name| [&name[..], b"\n"].concat());
    lines.flatten().collect()
}

/// Joins sentences, one a line. Returns `None` if there are none.
fn sentence_lines(sentences: &[impl AsRef<str>]) -> Option<String> {
    let lines = sentences
        .iter()
        .map(|sentence| format!("{}\n", sentence.as_ref()));
    (!sentences.is_empty()).then(|| lines.collect())
}

fn attr_of_file(target: &PathTarget, size: u64, ttl: Duration) -> Attr {
    let entry = target.node();
    let content = match target {
        PathTarget::Decoded(target) => target.content(),
        PathTarget::GroupFile(target) => target.file.content(),
        _ => entry.version,
    };
    Attr {
        content: Some(content),
        is_read_only: target.is_read_only(),
        ..Attr::of_file(size, entry.modified, ttl)
    }
}

fn scratch_attr(scratch: &Arc<ScratchFile>) -> Attr {
    Attr {
        content: Some(scratch.id()),
        ..Attr::of_file(scratch.len(), scratch.modified(), Duration::ZERO)
    }
}

/// Opens a scratch file for reading. The handle reads the bytes of the time of the open.
fn open_scratch(scratch: &Arc<ScratchFile>) -> OpenedFile {
    OpenedFile {
        file: Arc::new(GeneratedFile {
            bytes: scratch.bytes().into(),
            version: 0,
            modified: scratch.modified(),
        }),
        content: Some(scratch.id()),
        version: None,
        direct: true,
        tree_file: None,
    }
}

/// Whether an error means that the length of a file cannot be computed, because the array does not decode or the file
/// is too large.
fn is_unmeasurable(kind: Kind) -> bool {
    matches!(kind, Kind::Corrupt | Kind::Unsupported | Kind::TooLarge)
}

impl View for FilesView {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.entry_attr(context, |context| {
            self.resolver.lookup_or_reason(context, path)
        })
    }

    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let (entry, ttl) = self.resolved(context, |context| {
            self.resolver.lookup_or_reason(context, path)
        });
        match entry? {
            Some(PathEntry::Target(target)) => self.exact_attr(context, &target, ttl).map(Some),
            Some(PathEntry::Scratch(scratch)) => Ok(Some(scratch_attr(&scratch))),
            None => Ok(None),
        }
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let target = match self.resolver.lookup_or_reason(context, path)? {
            Some(PathEntry::Target(target)) => Some(target),
            Some(PathEntry::Scratch(_)) | None => None,
        };
        match target {
            Some(PathTarget::Node(entry)) if name == FILES_ATTRIBUTE => {
                self.names_that_open(context, &entry)
            }
            Some(target) => self.fact(context, &target, name),
            None => Ok(None),
        }
    }

    fn dir(&self, context: &RequestContext, path: &Key) -> Result<ViewDir> {
        Ok(match self.resolver.resolve(context, path)? {
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
        self.entry_attr(context, |context| {
            let find = || self.resolver.resolve_child(context, dir, name);
            match dir {
                // A directory of chunks has no scratch files.
                ViewDir::Chunks(_) => Ok(find()?.map(PathEntry::Target)),
                ViewDir::Path(path) | ViewDir::Node(path) => {
                    self.resolver.lookup_with(&path.child(name.bytes)?, find)
                }
            }
        })
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        match self.resolver.lookup_or_reason(context, path)? {
            None => Err(Error::not_found(path)),
            Some(PathEntry::Target(PathTarget::Node(entry))) => self.list_node(context, &entry),
            Some(PathEntry::Target(PathTarget::Chunks(entry))) => self.list_chunks(&entry),
            Some(PathEntry::Target(PathTarget::Plain(_, place))) => {
                self.resolver.plain.list_place(context, *place, path)
            }
            Some(_) => Err(Error::new(Kind::NotADirectory, path, "is not a directory")),
        }
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        let target = match self.resolver.lookup_or_reason(context, path)? {
            None => return Err(Error::not_found(path)),
            Some(PathEntry::Scratch(scratch)) => return Ok(open_scratch(&scratch)),
            Some(PathEntry::Target(target)) => target,
        };
        match target {
            PathTarget::Node(_) | PathTarget::Chunks(_) => {
                Err(Error::new(Kind::IsADirectory, path, "is a directory"))
            }
            PathTarget::Document(entry, name) => {
                let text = document(entry.node()?, &name);
                self.resolver
                    .scratch_files
                    .record_read(path, DocumentVersion::of_node(&entry, &text));
                Ok(node_documents::open(&entry, text))
            }
            PathTarget::RawDocument(entry, document) => {
                let hierarchy = &self.resolver.hierarchy;
                let object = hierarchy.broken_document(context, &entry, &document)?;
                Ok(node_documents::open(&entry, object.bytes))
            }
            PathTarget::ErrorText(entry) => Ok(node_documents::open(
                &entry,
                node_documents::error_text(&entry),
            )),
            PathTarget::GroupFile(target) => target.open(context),
            PathTarget::Plain(_, place) => self.resolver.plain.open_place(context, &place, path),
            PathTarget::Decoded(target) => {
                // An array that cannot be decoded is reported by the open, not by each read.
                target.array.check_decodable()?;
                // The version is read before the elements. If they change during the read, the version is already
                // stale.
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

    fn tree(&self, _context: &RequestContext, path: &Key) -> Result<Option<PathInTree>> {
        Ok(Some(PathInTree {
            tree: Arc::new(EditableTree::new(self.clone())),
            at: path.clone(),
        }))
    }
}
