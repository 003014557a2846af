//! The files view: each group and each array a directory, the decoded arrays files in it.
//!
//! In every node's directory `zarr.json` (its metadata as final v3) and `attributes.json`; in an array's the
//! whole array in each format, `NAME.npy`, and `chunks/` with every chunk, `chunks/0.3.1.npy`. A child of a
//! group wins over a file of the group's own. Sizes are known without decoding.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::array::Arrays;
use crate::dialect::{json, v3};
use crate::error::{Error, Kind, Result};
use crate::export::{Export, Format};
use crate::grid::{ChunkIndex, Region};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::Node;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, Tree};
use crate::sync::buffer::Buffer;
use crate::view::files::editing::Editing;
use crate::view::files::listings::{ChunkListing, GroupListing};
use crate::view::files::path_target::PathTarget;
use crate::view::files::unstored::UnstoredState;
use crate::view::{Attr, File, OpenedFile, ReadBytes, View};

mod documents;
mod editing;
mod listings;
mod nodes;
mod path_target;
mod unstored;
mod writing;

/// A hierarchy as directories and decoded files; clones are the same view.
#[derive(Clone)]
pub struct FilesView {
    hierarchy: Arc<Hierarchy>,
    arrays: Arc<Arrays>,
    /// The name of the root's own files.
    root_name: Arc<[u8]>,
    /// The formats that are listed; every other one resolves by name.
    listed: Arc<[&'static Format]>,
    session: Arc<UnstoredState>,
}

const METADATA: &[u8] = b"zarr.json";
const ATTRIBUTES: &[u8] = b"attributes.json";
const CHUNKS: &[u8] = b"chunks";

impl FilesView {
    /// Builds the view; `root_name` names the root's own files.
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
            session: Arc::default(),
        }
    }

    fn export(
        &self,
        found: &Arc<NodeEntry>,
        format: &'static Format,
        chunk: Option<ChunkIndex>,
    ) -> Result<Export> {
        let array = self.arrays.open(found)?;
        let region = match chunk {
            None => Region::whole(&array.array().shape),
            Some(chunk) => {
                let grid = array.stored_grid()?;
                grid.region(&grid.indices(chunk))
            }
        };
        let export = Export::open(&array, format, region)?;
        if array.array().data_type.is_variable() {
            array.remember_length(file_of(format, chunk), export.len());
        }
        Ok(export)
    }

    /// Returns the length of a file that has to be read whole to know it: the one it had when it was opened.
    /// A small one is read for that, so that programs that copy by `stat` miss nothing.
    fn ragged_length(
        &self,
        found: &Arc<NodeEntry>,
        format: &'static Format,
        chunk: Option<ChunkIndex>,
    ) -> Result<u64> {
        let array = self.arrays.open(found)?;
        if let Some(length) = array.remembered_length(&file_of(format, chunk)) {
            return Ok(length);
        }
        let elements: u64 = array
            .array()
            .shape
            .iter()
            .try_fold(1, |all: u64, &n| all.checked_mul(n))
            .unwrap_or(u64::MAX);
        if elements > READ_FOR_STAT {
            return Ok(0);
        }
        Ok(self.export(found, format, chunk)?.len())
    }

    /// Returns what `stat` shows.
    fn attr(&self, place: &PathTarget) -> Result<Attr> {
        let mut fresh = self.hierarchy.store().info().freshness;
        let (found, size) = match place {
            PathTarget::Node(found) | PathTarget::Chunks(found) => {
                return Ok(directory_attr(found.modified, fresh));
            }
            PathTarget::Document(found, name) => (found, document(found, name)?.len() as u64),
            PathTarget::Decoded(found, format, chunk) if is_ragged(found) => {
                let size = self.ragged_length(found, format, *chunk);
                // The next reader may find another length.
                fresh = Duration::ZERO;
                (found, size.or_else(unmeasured)?)
            }
            PathTarget::Decoded(found, format, chunk) => {
                let size = self
                    .export(found, format, *chunk)
                    .map(|export| export.len());
                (found, size.or_else(unreadable)?)
            }
        };
        let kind = EntryKind::File;
        Ok(Attr {
            kind,
            size,
            stored: size,
            modified: found.modified,
            fresh,
            posix: None,
        })
    }

    /// Tells this view from others.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.session).addr()
    }

    /// Returns what `stat` shows of a file that only this session has.
    fn scratch_attr(&self, path: &Key) -> Option<Attr> {
        let bytes = self.session.scratch(path)?;
        let size = bytes.lock().len() as u64;
        Some(Attr {
            kind: EntryKind::File,
            size,
            stored: size,
            modified: SystemTime::now(),
            fresh: Duration::ZERO,
            posix: None,
        })
    }

    fn open_scratch(&self, path: &Key) -> Result<OpenedFile> {
        let bytes = self.session.scratch(path);
        let bytes = bytes.ok_or_else(|| Error::not_found(path))?;
        let bytes = bytes.lock().clone();
        Ok(OpenedFile {
            file: Arc::new(TextFile { bytes, version: 0 }),
            version: None,
            direct: true,
        })
    }

    fn list_node(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        match found.node()? {
            Node::Group(_) => Ok(Box::new(GroupListing::new(&self.hierarchy, found)?)),
            Node::Array(array) => {
                let listed = self.listed.iter().filter(|format| format.is_listed(array));
                let decoded = listed.map(|format| {
                    let name = [self.name_of(found), b".", format.extension.as_bytes()].concat();
                    (name, EntryKind::File)
                });
                // No file has a name that is too long to be looked up.
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

/// The most elements without a fixed length that are read because somebody asks for a file's length.
const READ_FOR_STAT: u64 = 1 << 16;

/// Names a file within an array.
fn file_of(format: &Format, chunk: Option<ChunkIndex>) -> String {
    match chunk {
        None => format.extension.to_string(),
        Some(chunk) => format!("{}.{}", chunk.0, format.extension),
    }
}

/// Whether files of the node have to be read whole to know their lengths.
fn is_ragged(found: &NodeEntry) -> bool {
    found
        .array()
        .is_some_and(|array| array.data_type.is_variable())
}

/// Takes 0 for the length of a file that has to be decoded to know it; opening it says what is wrong.
fn unmeasured(error: Error) -> Result<u64> {
    match error.kind() {
        Kind::Corrupt => Ok(0),
        _ => unreadable(error),
    }
}

/// A file that cannot be read, or that no file system could hold, is there: opening it says why.
fn unreadable(error: Error) -> Result<u64> {
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => Ok(0),
        _ => Err(error),
    }
}

fn document(found: &NodeEntry, name: &[u8]) -> Result<Vec<u8>> {
    let node = found.node()?;
    let value = match (name, node) {
        (METADATA, node) => v3::render(node),
        (_, Node::Group(group)) => Value::Object(group.attributes.clone()),
        (_, Node::Array(array)) => Value::Object(array.attributes.clone()),
    };
    Ok(json::render(&value))
}

impl View for FilesView {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        match self.resolve(path)? {
            Some(place) => self.attr(&place).map(Some),
            None => Ok(self.scratch_attr(path)),
        }
    }

    fn lookup_now(&self, path: &Key) -> Option<Option<Attr>> {
        let place = self.resolve_now(path).ok()?;
        if place.is_none() {
            return Some(self.scratch_attr(path));
        }
        if matches!(&place, Some(PathTarget::Decoded(found, ..)) if is_ragged(found)) {
            return None;
        }
        place.map(|place| self.attr(&place)).transpose().ok()
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        match self.resolve(path)? {
            None => Err(Error::not_found(path)),
            Some(PathTarget::Node(found)) => self.list_node(&found),
            Some(PathTarget::Chunks(found)) => self.list_chunks(&found),
            Some(PathTarget::Document(..) | PathTarget::Decoded(..)) => {
                Err(Error::new(Kind::NotADirectory, path, "is not a directory"))
            }
        }
    }

    fn open(&self, path: &Key) -> Result<OpenedFile> {
        match self.resolve(path)? {
            None => self.open_scratch(path),
            Some(PathTarget::Node(_) | PathTarget::Chunks(_)) => {
                Err(Error::new(Kind::IsADirectory, path, "is a directory"))
            }
            Some(PathTarget::Document(found, name)) => Ok(OpenedFile {
                file: Arc::new(TextFile {
                    bytes: document(&found, &name)?,
                    version: found.version,
                }),
                version: Some(found.version),
                direct: false,
            }),
            Some(PathTarget::Decoded(found, format, chunk)) => {
                let export = self.export(&found, format, chunk)?;
                // An array that does not decode says so when it is opened, not byte by byte.
                export.array().check_decodable()?;
                let version = export.array().content()?;
                Ok(OpenedFile {
                    file: Arc::new(DecodedFile { export }),
                    version,
                    direct: false,
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

/// Returns what `stat` shows of a directory that no store has.
pub(crate) fn directory_attr(modified: SystemTime, fresh: Duration) -> Attr {
    Attr {
        kind: EntryKind::Directory,
        size: 0,
        stored: 0,
        modified,
        fresh,
        posix: None,
    }
}

/// A decoded file.
struct DecodedFile {
    export: Export,
}

impl File for DecodedFile {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        self.export.read_now(offset, len)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        self.export.read_at(offset, len)
    }

    fn version(&self) -> Option<u64> {
        Some(self.export.array().content_now())
    }
}

/// A file whose bytes are known when it is opened.
pub(crate) struct TextFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) version: u64,
}

impl File for TextFile {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let end = start.saturating_add(len).min(self.bytes.len());
        let part = self.bytes.get(start..end).unwrap_or_default();
        Some(ReadBytes::Own(part.to_vec().into()))
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        Ok(self
            .read_now(offset, len)
            .unwrap_or(ReadBytes::Own(Buffer::default())))
    }

    fn version(&self) -> Option<u64> {
        Some(self.version)
    }
}
