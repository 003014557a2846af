//! The files view: each group and each array a directory, the decoded arrays files in it.
//!
//! Every node's directory has `zarr.json` (its metadata as final v3) and `attributes.json`; that of an array has the
//! whole array in each format, `NAME.npy`, and `chunks/` with every chunk, `chunks/0.3.1.npy`. A child of a group takes
//! precedence over a file of the group's own. Sizes are known without decoding. A node that does not read is a
//! directory of its documents as they are stored.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::array::Arrays;
use crate::error::{Error, Kind, Result};
use crate::export::{Export, Format};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::Node;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, Tree};
use crate::view::files::editing::Editing;
use crate::view::files::listings::{ChunkListing, GroupListing};
use crate::view::files::path_target::{DecodedTarget, PathTarget};
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::laid_out;
use crate::view::files::unstored::{UnstoredState, content_of};
use crate::view::text_file::{TextFile, directory_attr, file_attr};
use crate::view::{Attr, ChildName, OpenedFile, View, ViewDir};

mod broken;
mod decoded;
mod documents;
mod editing;
mod listings;
mod nodes;
mod path_target;
mod seen;
mod shown_document;
mod unstored;
mod writing;
mod written;

/// A hierarchy as directories and decoded files; clones are the same view.
#[derive(Clone)]
pub struct FilesView {
    hierarchy: Arc<Hierarchy>,
    arrays: Arc<Arrays>,
    /// The name of the root's own files.
    root_name: Arc<[u8]>,
    /// The formats that are listed; files of others are found by name.
    listed: Arc<[&'static Format]>,
    unstored: Arc<UnstoredState>,
}

const METADATA: &[u8] = b"zarr.json";
const ATTRIBUTES: &[u8] = b"attributes.json";
const CHUNKS: &[u8] = b"chunks";

impl FilesView {
    /// Builds the view; the root's own files are named after `root_name`.
    pub fn new(
        hierarchy: Arc<Hierarchy>,
        arrays: impl Into<Arc<Arrays>>,
        root_name: &str,
        listed: Vec<&'static Format>,
    ) -> FilesView {
        FilesView {
            hierarchy,
            arrays: arrays.into(),
            root_name: root_name.as_bytes().into(),
            listed: listed.into(),
            unstored: Arc::default(),
        }
    }

    /// Opens a decoded file.
    fn export(&self, target: &DecodedTarget) -> Result<Export> {
        let export = Export::open(&target.array, target.format, target.region()?)?;
        if target.is_ragged() {
            target.array.note_length(target.name(), export.len());
        }
        Ok(export)
    }

    /// Returns the length of a file that has to be read whole to know it. It is read for that once for each content, since
    /// programs copy as much as `stat` shows: no length but the right one will do.
    fn ragged_length(&self, target: &DecodedTarget) -> Result<u64> {
        if let Some(length) = target.array.known_length(&target.name()) {
            return Ok(length);
        }
        Ok(self.export(target)?.len())
    }

    /// Returns the length of a decoded file.
    fn decoded_length(&self, target: &DecodedTarget) -> Result<u64> {
        if target.is_ragged() {
            return self.ragged_length(target).or_else(unmeasured);
        }
        let region = target.region();
        let length = region.and_then(|region| target.format.file_len(&target.array, &region.shape));
        length.or_else(unreadable)
    }

    /// Resolves a name; returns as well how long the answer counts.
    fn resolved<T>(&self, resolve: impl FnOnce() -> T) -> (T, Duration) {
        let info = self.hierarchy.store().info();
        let (target, stamp) = info.ask(resolve);
        (target, info.time_left(stamp.asked))
    }

    /// Returns what `stat` shows, for as long as `fresh`.
    fn attr(&self, target: &PathTarget, mut fresh: Duration) -> Result<Attr> {
        let (found, size, content) = match target {
            PathTarget::Node(found) | PathTarget::Chunks(found) => {
                return Ok(directory_attr(found.modified, fresh));
            }
            PathTarget::Document(found, name) => {
                let size = shown_document::length_of(found, name)?;
                (found, size, found.version)
            }
            PathTarget::AsFound(found, document) => {
                (found, broken::length_of(document), found.version)
            }
            PathTarget::ErrorText(found) => {
                let size = broken::error_text(found).len() as u64;
                (found, size, found.version)
            }
            PathTarget::Decoded(target) => {
                if target.is_ragged() {
                    // The next reader may find another length.
                    fresh = Duration::ZERO;
                }
                (
                    &target.found,
                    self.decoded_length(target)?,
                    target.array.id(),
                )
            }
        };
        Ok(Attr {
            content: Some(content),
            ..file_attr(size, found.modified, fresh)
        })
    }

    /// Returns a number that all clones of this view have and no other view.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.unstored).addr()
    }

    /// Returns what `stat` shows of a file that is not stored.
    fn scratch_attr(&self, path: &Key) -> Option<Attr> {
        let bytes = self.unstored.scratch(path)?;
        let size = bytes.lock().len() as u64;
        Some(Attr {
            content: Some(content_of(&bytes)),
            ..file_attr(size, SystemTime::now(), Duration::ZERO)
        })
    }

    /// Returns what `stat` shows of what a path was found to stand for, if it is known without waiting.
    fn attr_now(&self, target: &PathTarget, fresh: Duration) -> Known<Attr> {
        match target {
            // The length may have to be read.
            PathTarget::Decoded(target) if target.is_ragged() => Known::Unknown,
            PathTarget::Document(found, name)
                if shown_document::length_now(found, name) == Known::Unknown =>
            {
                Known::Unknown
            }
            target => self.attr(target, fresh).map_or(Known::Unknown, Known::Is),
        }
    }

    fn open_scratch(&self, path: &Key) -> Result<OpenedFile> {
        let bytes = self.unstored.scratch(path);
        let scratch = bytes.ok_or_else(|| Error::not_found(path))?;
        let bytes = scratch.lock().clone();
        Ok(OpenedFile {
            file: Arc::new(TextFile {
                bytes,
                version: 0,
                modified: SystemTime::now(),
            }),
            content: Some(content_of(&scratch)),
            version: None,
            direct: true,
            tree_file: None,
        })
    }

    fn list_node(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        match &found.node {
            Ok(Node::Group(_)) | Err(_) => Ok(Box::new(GroupListing::new(&self.hierarchy, found)?)),
            Ok(Node::Array(array)) => {
                let listed = self.listed.iter().filter(|format| format.is_listed(array));
                let decoded = listed.map(|format| {
                    let name = [self.name_of(found), b".", format.extension.as_bytes()].concat();
                    (name, EntryKind::File)
                });
                // A name that is too long could not be looked up.
                let decoded = decoded.filter(|(name, _)| found.path.child(name).is_ok());
                let documents = [METADATA, ATTRIBUTES].map(|name| (name.to_vec(), EntryKind::File));
                let chunks = [(CHUNKS.to_vec(), EntryKind::Directory)];
                Ok(Box::new(NameList::new(
                    documents.into_iter().chain(decoded).chain(chunks),
                )))
            }
        }
    }

    fn list_chunks(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let array = self.arrays.open(found)?;
        let grid = array.stored_grid()?.clone();
        let mut formats = self.listed.to_vec();
        formats.retain(|format| format.is_listed(array.array()));
        Ok(Box::new(ChunkListing::new(grid, formats)))
    }
}

/// Takes 0 for the length of a file that cannot be decoded; opening it returns the error.
fn unmeasured(error: Error) -> Result<u64> {
    match error.kind() {
        Kind::Corrupt => Ok(0),
        _ => unreadable(error),
    }
}

/// Takes 0 for the length of a file that cannot be read, or that no file system could hold; opening it returns the
/// error.
fn unreadable(error: Error) -> Result<u64> {
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => Ok(0),
        _ => Err(error),
    }
}

impl View for FilesView {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        let (target, fresh) = self.resolved(|| self.resolve(path));
        match target? {
            Some(target) => self.attr(&target, fresh).map(Some),
            None => Ok(self.scratch_attr(path)),
        }
    }

    fn lookup_now(&self, path: &Key) -> Known<Attr> {
        let (target, fresh) = self.resolved(|| self.resolve_now(path));
        match target {
            Ok(Some(target)) => self.attr_now(&target, fresh),
            Ok(None) => self.scratch_attr(path).into(),
            Err(_) => Known::Unknown,
        }
    }

    fn dir_now(&self, path: &Key) -> Option<ViewDir> {
        match self.resolve_now(path).ok()?? {
            PathTarget::Node(found) => Some(ViewDir::Node(found.path.clone())),
            PathTarget::Chunks(found) => Some(ViewDir::Chunks(found.path.clone())),
            PathTarget::Document(..)
            | PathTarget::AsFound(..)
            | PathTarget::ErrorText(_)
            | PathTarget::Decoded(_) => None,
        }
    }

    fn child_now(&self, dir: &ViewDir, name: &ChildName<'_>) -> Known<Attr> {
        let (target, fresh) = self.resolved(|| self.resolve_child_now(dir, name));
        match (target, dir) {
            (Ok(Some(target)), _) => self.attr_now(&target, fresh),
            (Ok(None), ViewDir::Path(path) | ViewDir::Node(path)) => {
                let path = path.child(name.bytes);
                path.map_or(Known::Unknown, |path| self.scratch_attr(&path).into())
            }
            (Ok(None), ViewDir::Chunks(_)) => Known::Missing,
            (Err(_), _) => Known::Unknown,
        }
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        match self.resolve(path)? {
            None => Err(Error::not_found(path)),
            Some(PathTarget::Node(found)) => self.list_node(&found),
            Some(PathTarget::Chunks(found)) => self.list_chunks(&found),
            Some(_) => Err(Error::new(Kind::NotADirectory, path, "is not a directory")),
        }
    }

    fn open(&self, path: &Key) -> Result<OpenedFile> {
        match self.resolve(path)? {
            None => self.open_scratch(path),
            Some(PathTarget::Node(_) | PathTarget::Chunks(_)) => {
                Err(Error::new(Kind::IsADirectory, path, "is a directory"))
            }
            Some(PathTarget::Document(found, name)) => {
                let text = laid_out(found.node()?, &name);
                self.unstored
                    .note_seen(path, SeenDocument::shown(&found, &text));
                Ok(shown_document::open(found, text))
            }
            Some(PathTarget::AsFound(found, document)) => self.open_as_found(&found, &document),
            Some(PathTarget::ErrorText(found)) => {
                Ok(broken::text_file(&found, broken::error_text(&found)))
            }
            Some(PathTarget::Decoded(target)) => {
                let export = self.export(&target)?;
                // An array that does not decode fails when it is opened, not with each read.
                target.array.check_decodable()?;
                let version = target.array.content()?;
                Ok(OpenedFile {
                    file: Arc::new(export),
                    content: Some(target.array.id()),
                    version,
                    direct: false,
                    tree_file: None,
                })
            }
        }
    }

    fn read_link(&self, path: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(path, "not a symbolic link"))
    }

    fn tree(&self, path: &Key) -> Result<Option<(Arc<dyn Tree>, Key)>> {
        Ok(Some((Arc::new(Editing::new(self.clone())), path.clone())))
    }
}
