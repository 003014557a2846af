//! `attributes.json` open for writing, and scratch files that programs rename onto it.
//!
//! Writes are buffered and take effect at close or sync: the text is parsed, and either all of it is stored in the
//! dialect of the node or nothing is. A document that has changed since the program read it is not replaced
//! (`Changed`).

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::view::files::path_target::PathTarget;
use crate::view::files::scratch::Scratch;
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::document;
use crate::view::files::{ATTRIBUTES, FilesView};
use zarr_format::dialect::text_of;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_array::hierarchy::{NodeEntry, SeenNode};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Stat, Time, TreeFile};
use zarrfs_store::{EntryKind, Key, Meta, Version};

/// Maximum length of a document that can be written, in bytes.
const MAX_DOCUMENT: u64 = 16 << 20;

/// The purpose of a file's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// They become the attributes of the node.
    Document,
    /// They become the attributes if the file still has the document's name; it was created after the document was
    /// unlinked.
    NewDocument,
    /// They stay in memory.
    Scratch,
}

/// `attributes.json` of a node, or a scratch file next to it.
pub(super) struct DocumentFile {
    files: FilesView,
    path: Key,
    role: Role,
    bytes: Arc<Scratch>,
    /// The number that identifies the file.
    content: u64,
    /// Whether the file has writes that are not stored yet.
    is_dirty: Mutex<bool>,
    /// The document as of the open.
    opened: Option<SeenDocument>,
    /// The version of the document that the program has read, the precondition of saving; `None` for an unconditional
    /// save.
    seen: Mutex<Option<SeenDocument>>,
    /// Whether the file was read.
    is_read: AtomicBool,
}

impl DocumentFile {
    /// Opens a node's document with this text.
    pub(super) fn document(
        files: &FilesView,
        path: &Key,
        found: &NodeEntry,
        text: &[u8],
    ) -> Arc<DocumentFile> {
        let opened = Some(SeenDocument::shown(found, text));
        Arc::new(DocumentFile {
            files: files.clone(),
            path: path.clone(),
            role: Role::Document,
            bytes: Scratch::of_document(text, found.modified),
            content: found.version,
            is_dirty: Mutex::new(false),
            seen: Mutex::new(opened.clone()),
            opened,
            is_read: AtomicBool::new(false),
        })
    }

    /// Opens a file that was created in place of a document. If it `is_made` by this open, it is dirty, so that closing
    /// it empty fails as saving an empty document does.
    pub(super) fn new_document(
        files: &FilesView,
        path: &Key,
        bytes: Arc<Scratch>,
        is_made: bool,
    ) -> Arc<DocumentFile> {
        Arc::new(DocumentFile {
            role: Role::NewDocument,
            is_dirty: Mutex::new(is_made),
            seen: Mutex::new(files.unstored.seen(path)),
            ..DocumentFile::in_memory(files, path, bytes)
        })
    }

    /// Opens a scratch file.
    pub(super) fn scratch(files: &FilesView, path: &Key, bytes: Arc<Scratch>) -> Arc<DocumentFile> {
        Arc::new(DocumentFile::in_memory(files, path, bytes))
    }

    fn in_memory(files: &FilesView, path: &Key, bytes: Arc<Scratch>) -> DocumentFile {
        DocumentFile {
            files: files.clone(),
            path: path.clone(),
            role: Role::Scratch,
            content: bytes.number(),
            bytes,
            is_dirty: Mutex::new(false),
            opened: None,
            seen: Mutex::new(None),
            is_read: AtomicBool::new(false),
        }
    }

    fn dirty(&self) -> MutexGuard<'_, bool> {
        self.is_dirty.lock()
    }

    /// Truncates the document, or extends it with zeros.
    pub(super) fn resize(&self, length: u64) -> Result<()> {
        let length = self.checked(length)?;
        let resized = self.bytes.resize(length);
        resized.map_err(|error| error.about(&self.path))?;
        let was_dirty = std::mem::replace(&mut *self.dirty(), true);
        if length == 0 && !was_dirty && !self.is_read.load(Ordering::Acquire) {
            // Any read of the document was before this open.
            *self.seen.lock() = self.files.unstored.seen(&self.path);
        }
        self.note_write();
        Ok(())
    }

    /// Records that a program has read the version that was opened.
    fn note_read(&self) {
        if !self.is_read.swap(true, Ordering::AcqRel)
            && let Some(opened) = &self.opened
        {
            self.files.unstored.note_seen(&self.path, opened.clone());
        }
    }

    fn note_write(&self) {
        if self.role == Role::Scratch {
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

    /// Whether the bytes become the attributes. A file that has lost the document's name does not, like a file that was
    /// unlinked.
    fn is_to_be_stored(&self) -> bool {
        match self.role {
            Role::Document => true,
            Role::NewDocument => {
                let is_in_place = || self.files.unstored.is_in_place(&self.path, &self.bytes);
                self.bytes.is_stored() || is_in_place()
            }
            Role::Scratch => false,
        }
    }

    /// Stores the bytes as the attributes.
    fn store(&self, context: &RequestContext) -> Result<()> {
        let seen = self.seen.lock().clone();
        let saved = self
            .files
            .save(context, &self.path, &self.bytes.bytes(), seen.as_ref())?;
        *self.seen.lock() = Some(saved);
        if self.role == Role::NewDocument && !self.bytes.is_stored() {
            self.bytes.note_stored();
            self.files.unstored.show_document(&self.path);
        }
        Ok(())
    }
}

impl TreeFile for DocumentFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.note_read();
        Ok(self.bytes.read_at(offset, len))
    }

    fn write_at(&self, context: &RequestContext, offset: u64, new: &[u8]) -> Result<()> {
        context.check_may_wait()?;
        let end = self.checked(offset.saturating_add(new.len() as u64))?;
        let written = self.bytes.write(end, new);
        written.map_err(|error| error.about(&self.path))?;
        *self.dirty() = true;
        self.note_write();
        Ok(())
    }

    fn allocate(
        &self,
        _context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let end = offset.saturating_add(length);
        match mode {
            0 if end > self.bytes.len() => self.resize(end),
            0 => Ok(()),
            _ => Err(Error::unsupported(
                &self.path,
                format!("fallocate mode {mode}"),
            )),
        }
    }

    fn flush(&self, context: &RequestContext) -> Result<()> {
        let mut dirty = self.dirty();
        if *dirty && self.is_to_be_stored() {
            self.store(context)?;
        }
        *dirty = false;
        Ok(())
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.flush(context)?;
        self.files.hierarchy.store().sync(context)
    }

    fn stat(&self, _context: &RequestContext) -> Result<Stat> {
        let length = self.bytes.len();
        let meta = Meta {
            kind: EntryKind::File,
            size: length,
            stored: length,
            modified: self.bytes.modified(),
            version: Version::NONE,
        };
        Ok(Stat {
            meta,
            posix: None,
            content: self.content,
        })
    }

    /// Owner and mode come from the mount: setting them succeeds without effect.
    fn change(&self, _context: &RequestContext, change: &AttrChange) -> Result<()> {
        if let Some(size) = change.size {
            self.resize(size)?;
        }
        match change.modified {
            Some(Time::At(time)) => self.bytes.set_modified(time),
            Some(Time::Now) => self.bytes.set_modified(SystemTime::now()),
            None => {}
        }
        Ok(())
    }
}

impl FilesView {
    /// Stores the text of a node's `attributes.json`; returns the version that it has then. `Invalid` if the text does
    /// not parse or the dialect cannot express it, `Changed` if the document is not the `seen` version; then the old
    /// document stays.
    pub(super) fn save(
        &self,
        context: &RequestContext,
        path: &Key,
        text: &[u8],
        seen: Option<&SeenDocument>,
    ) -> Result<SeenDocument> {
        let found = match self.resolve(context, path)? {
            Some(PathTarget::Document(found, name)) if name == ATTRIBUTES => found,
            _ => return Err(Error::not_found(path)),
        };
        let attributes = parsed(text)
            .map_err(|error| Error::invalid(path, format!("{error}; the old attributes stay")))?;
        let shown = |node: &Node| document(node, ATTRIBUTES);
        let is_shown_by = |node: &Node| seen.is_none_or(|seen| seen.is(&shown(node)));
        let seen = seen.map(|seen| SeenNode {
            is_shown_by: &is_shown_by,
            documents: seen.documents.as_deref(),
        });
        match self.hierarchy.edit(context, &found, &attributes, seen) {
            Ok(edited) => {
                let text = shown(&edited.node);
                let saved = SeenDocument::saved(edited, &text);
                self.unstored.note_saved(path, &saved);
                Ok(saved)
            }
            Err(error) => {
                if error.kind() == Kind::Changed {
                    // The next save has no precondition unless its program reads the document.
                    self.unstored.forget_seen(path);
                }
                Err(error)
            }
        }
    }
}

/// Parses attributes that a program has written; `Corrupt` if they are not a JSON object, `Invalid` if an object in
/// them has a duplicate name.
fn parsed(bytes: &[u8]) -> Result<Attributes> {
    let attributes = Attributes::parse(text_of(bytes)?)?;
    attributes.check_unique()?;
    Ok(attributes)
}
