//! `attributes.json` and `zarr.json` open for writing, and the files that programs rename onto them.
//!
//! What is written is collected and takes effect when the file is closed or synced: then it is parsed, and either all
//! of it is stored as the dialect spells it or nothing is. A document that has changed since the program has seen it is
//! not replaced (`Changed`).

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::dialect::{Edit, v3};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid, outside};
use crate::hierarchy::{EditedNode, NodeEntry, SeenNode};
use crate::json_text::LaidOut;
use crate::model::{Array, Node};
use crate::store::tree::{AttrChange, Stat, TreeFile};
use crate::store::{EntryKind, Key, Meta, Version};
use crate::view::files::path_target::PathTarget;
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::laid_out;
use crate::view::files::unstored::{Scratch, content_of};
use crate::view::files::written::WrittenDocument;
use crate::view::files::{FilesView, METADATA};

/// The longest document that can be written, in bytes.
const MAX_DOCUMENT: u64 = 16 << 20;

/// The most chunks that an array may lose by one change of its shape.
const MAX_LOST_CHUNKS: u64 = 1 << 20;

/// A document, or a file beside one.
pub(super) struct DocumentFile {
    files: FilesView,
    path: Key,
    bytes: Scratch,
    /// The number that tells the file from others.
    content: u64,
    /// Whether something was written that is not stored yet.
    is_dirty: Mutex<bool>,
    /// The document as it was when it was opened.
    opened: Option<SeenDocument>,
    /// What the program has seen of the document; nothing if it replaces it unseen.
    seen: Mutex<Option<SeenDocument>>,
    /// Whether it was read.
    is_read: AtomicBool,
    /// Whether it is a document, not a file beside one.
    is_document: bool,
}

impl DocumentFile {
    /// Opens a document of a node that has this text.
    pub(super) fn document(
        files: &FilesView,
        path: &Key,
        found: &NodeEntry,
        text: &LaidOut,
    ) -> Arc<DocumentFile> {
        let opened = Some(SeenDocument::shown(found, text));
        Arc::new(DocumentFile {
            files: files.clone(),
            path: path.clone(),
            bytes: Arc::new(Mutex::new(text.to_vec())),
            content: found.version,
            is_dirty: Mutex::new(false),
            seen: Mutex::new(opened.clone()),
            opened,
            is_read: AtomicBool::new(false),
            is_document: true,
        })
    }

    /// Opens a file beside a document.
    pub(super) fn scratch(files: &FilesView, path: &Key, bytes: Scratch) -> Arc<DocumentFile> {
        Arc::new(DocumentFile {
            files: files.clone(),
            path: path.clone(),
            content: content_of(&bytes),
            bytes,
            is_dirty: Mutex::new(false),
            opened: None,
            seen: Mutex::new(None),
            is_read: AtomicBool::new(false),
            is_document: false,
        })
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock()
    }

    fn dirty(&self) -> MutexGuard<'_, bool> {
        self.is_dirty.lock()
    }

    /// Makes the document longer, with zeros, or shorter.
    pub(super) fn resize(&self, length: u64) -> Result<()> {
        let length = self.checked(length)?;
        self.bytes().resize(length, 0);
        let was_dirty = std::mem::replace(&mut *self.dirty(), true);
        if length == 0 && !was_dirty && !self.is_read.load(Ordering::Acquire) {
            // What was read of it, if anything, was read before it was opened.
            *self.seen.lock() = self.files.unstored.seen(&self.path);
        }
        self.note_write();
        Ok(())
    }

    /// Notes that a program sees what was opened.
    fn note_read(&self) {
        if !self.is_read.swap(true, Ordering::AcqRel)
            && let Some(opened) = &self.opened
        {
            self.files.unstored.note_seen(&self.path, opened.clone());
        }
    }

    fn note_write(&self) {
        if !self.is_document {
            self.files.unstored.note_written(&self.path);
        }
    }

    fn checked(&self, length: u64) -> Result<usize> {
        match usize::try_from(length) {
            Ok(short) if length <= MAX_DOCUMENT => Ok(short),
            _ => {
                let why = format!("a document has at most {MAX_DOCUMENT} bytes");
                Err(Error::too_large(&self.path, why))
            }
        }
    }
}

/// Returns what `stat` shows of bytes in memory.
fn stat_of(length: usize, content: u64) -> Stat {
    let meta = Meta {
        kind: EntryKind::File,
        size: length as u64,
        stored: length as u64,
        modified: SystemTime::now(),
        version: Version(0),
    };
    Stat {
        meta,
        posix: None,
        content,
    }
}

impl TreeFile for DocumentFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.note_read();
        let bytes = self.bytes();
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let end = start.saturating_add(len).min(bytes.len());
        Ok(bytes.get(start..end).unwrap_or_default().to_vec())
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> Result<()> {
        let end = self.checked(offset.saturating_add(new.len() as u64))?;
        let mut bytes = self.bytes();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - new.len()..end].copy_from_slice(new);
        drop(bytes);
        *self.dirty() = true;
        self.note_write();
        Ok(())
    }

    fn allocate(&self, mode: i32, (offset, length): (u64, u64)) -> Result<()> {
        let end = offset.saturating_add(length);
        match mode {
            0 if end > self.bytes().len() as u64 => self.resize(end),
            0 => Ok(()),
            _ => Err(Error::unsupported(
                &self.path,
                format!("fallocate mode {mode}"),
            )),
        }
    }

    fn flush(&self) -> Result<()> {
        let mut dirty = self.dirty();
        if *dirty && self.is_document {
            let bytes = self.bytes().clone();
            let seen = self.seen.lock().clone();
            let saved = self.files.save(&self.path, &bytes, seen.as_ref())?;
            *self.seen.lock() = Some(saved);
        }
        *dirty = false;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.flush()
    }

    fn stat(&self) -> Result<Stat> {
        Ok(stat_of(self.bytes().len(), self.content))
    }

    fn change(&self, change: &AttrChange) -> Result<()> {
        match change.size {
            Some(size) => self.resize(size),
            None => Ok(()),
        }
    }
}

impl FilesView {
    /// Stores the text of a document; returns what is to be seen of it then. `Invalid` if it does not parse or asks for
    /// what cannot be changed, `Changed` if the document is not the one that was `seen`; then the old one stays.
    pub(super) fn save(
        &self,
        path: &Key,
        text: &[u8],
        seen: Option<&SeenDocument>,
    ) -> Result<SeenDocument> {
        let Some(PathTarget::Document(found, name)) = self.resolve(path)? else {
            return Err(Error::not_found(path));
        };
        let invalid = |why: &dyn std::fmt::Display| Error::invalid(path, why);
        let written = WrittenDocument::parse(text).map_err(|error| invalid(&error))?;
        self.unstored.keep(&found.path);
        let is_shown_by = |node: &Node| seen.is_none_or(|seen| seen.is(&laid_out(node, &name)));
        let seen = seen.map(|seen| SeenNode {
            is_shown_by: &is_shown_by,
            documents: seen.documents.as_deref(),
        });
        let saved = match name.as_slice() {
            METADATA => self.save_metadata(path, &found, &written, seen),
            _ => {
                let edit = Edit::of_attributes(written.whole);
                self.hierarchy.edit(&found, &edit, seen)
            }
        };
        match saved {
            Ok(edited) => {
                let text = laid_out(&edited.node, &name);
                let saved = SeenDocument::saved(edited, &text);
                self.unstored.note_saved(path, &saved);
                Ok(saved)
            }
            Err(error) => {
                if error.kind() == Kind::Changed {
                    // The next program that saves it need not have read it.
                    self.unstored.forget_seen(path);
                }
                Err(error)
            }
        }
    }

    /// Stores metadata that are spelled as final v3, in the dialect of the node.
    fn save_metadata(
        &self,
        path: &Key,
        found: &Arc<NodeEntry>,
        written: &WrittenDocument,
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        let invalid = |why: &dyn std::fmt::Display| Error::invalid(path, why);
        let new = written.node(&found.path).map_err(|error| invalid(&error))?;
        match (found.node()?, new) {
            (Node::Group(_), Node::Group(group)) => {
                let edit = Edit::of_attributes(group.attributes);
                self.hierarchy.edit(found, &edit, seen)
            }
            (Node::Array(old), Node::Array(new)) => self.save_array(path, found, (old, &new), seen),
            (Node::Group(old), Node::Array(new)) => {
                if !old.attributes.is_empty() || self.has_children(found)? {
                    return Err(invalid(
                        &"a group that holds something cannot become an array",
                    ));
                }
                self.hierarchy.make_array(found, &new, seen)
            }
            (Node::Array(_), Node::Group(_)) => {
                Err(invalid(&"an array cannot become a group: remove it first"))
            }
        }
    }

    /// Changes attributes, shape or names of dimensions of an array; nothing else may change.
    fn save_array(
        &self,
        path: &Key,
        found: &Arc<NodeEntry>,
        (old, new): (&Array, &Array),
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        if let Some(member) = changed_meaning(old, new) {
            let why =
                format!("with another {member} the chunks that are stored mean something else");
            return Err(Error::invalid(path, why));
        }
        if new.shape.len() != old.shape.len() {
            return Err(Error::invalid(
                path,
                "an array keeps its number of dimensions",
            ));
        }
        let edit = edit_between(old, new);
        if edit == Edit::default() {
            return self
                .hierarchy
                .edit(found, &Edit::of_attributes(old.attributes.clone()), seen);
        }
        let lost = self.lost_chunks(found, new)?;
        if edit.shape.is_some() {
            // Written chunks are stored while their place in the grid is known.
            self.arrays.flush_below(&found.path)?;
        }
        let array = self.arrays.open(found)?;
        let edited = self.hierarchy.edit(found, &edit, seen)?;
        // A chunk that lies outside would come back if the array grew again.
        lost.iter()
            .try_for_each(|&chunk| array.erase_chunk(chunk))?;
        Ok(edited)
    }

    /// Returns the chunks that lie outside of an array once it has its new shape.
    fn lost_chunks(&self, found: &Arc<NodeEntry>, new: &Array) -> Result<Vec<ChunkIndex>> {
        let array = self.arrays.open(found)?;
        let (Ok(old), Ok(new)) = (array.stored_grid(), Grid::of(new)) else {
            return Ok(Vec::new());
        };
        let parts = outside(old.counts(), new.counts());
        let count: u64 = parts
            .iter()
            .map(|part| part.shape.iter().product::<u64>())
            .sum();
        if count > MAX_LOST_CHUNKS {
            let why = format!("more than {MAX_LOST_CHUNKS} chunks would be lost at once");
            return Err(Error::invalid(&found.path, why));
        }
        let mut lost = Vec::new();
        for part in parts {
            let mut at = part.start.clone();
            loop {
                lost.extend(old.index(&at));
                if !part.step(&mut at) {
                    break;
                }
            }
        }
        Ok(lost)
    }

    /// Whether a group has nodes below it; `Unsupported` where that is not known.
    pub(super) fn has_children(&self, found: &Arc<NodeEntry>) -> Result<bool> {
        let has_some = match self.hierarchy.known_children(found) {
            Ok(mut children) => children.next()?.is_some(),
            Err(error) if error.kind() == Kind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !has_some && !self.hierarchy.store().tells_all_below(&found.path)? {
            let why =
                "the store does not list names, so whether there are nodes in it is not known";
            return Err(Error::unsupported(&found.path, why));
        }
        Ok(has_some)
    }
}

/// Returns the edit of what may change of an array.
fn edit_between(old: &Array, new: &Array) -> Edit {
    Edit {
        attributes: (old.attributes != new.attributes).then(|| new.attributes.clone()),
        shape: (old.shape != new.shape).then(|| new.shape.clone()),
        dimension_names: (old.dimension_names != new.dimension_names)
            .then(|| new.dimension_names.clone()),
    }
}

/// Returns the member of the metadata whose change would give stored chunks another meaning.
fn changed_meaning(old: &Array, new: &Array) -> Option<&'static str> {
    // Members that a dialect spells in another way are compared as final v3 spells them.
    let shown = |array: &Array| {
        let mut array = array.clone();
        array.shape.clear();
        v3::render(&Node::Array(Box::new(array)))
    };
    let (old, new) = (shown(old), shown(new));
    const MEMBERS: [&str; 6] = [
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "storage_transformers",
    ];
    MEMBERS
        .into_iter()
        .find(|member| old.get(member) != new.get(member))
}
