//! `attributes.json` open for writing, and the files that programs rename onto it.
//!
//! The bytes that are written are collected and take effect when the file is closed or synced: then they are parsed, and
//! either all of it is stored as the dialect spells it or nothing is. A document that has changed since the program has
//! seen it is not replaced (`Changed`).

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::dialect::text_of;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{NodeEntry, SeenNode};
use crate::model::{Attributes, Node};
use crate::store::tree::{AttrChange, Stat, TreeFile};
use crate::store::{EntryKind, Key, Meta, Version};
use crate::view::files::path_target::PathTarget;
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::document;
use crate::view::files::unstored::{Scratch, content_of};
use crate::view::files::{ATTRIBUTES, FilesView};

/// The longest document that can be written, in bytes.
const MAX_DOCUMENT: u64 = 16 << 20;

/// `attributes.json` of a node, or a file beside it.
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
    /// The document as the program has seen it; `None` if it replaces the document unseen.
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
        text: &[u8],
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
        version: Version::NONE,
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
        self.flush()?;
        self.files.hierarchy.store().sync()
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
    /// Stores the text of a node's `attributes.json`; returns what it shows then. `Invalid` if the text does not parse or the
    /// dialect cannot express it, `Changed` if the document is not the one that was `seen`; then the old one stays.
    pub(super) fn save(
        &self,
        path: &Key,
        text: &[u8],
        seen: Option<&SeenDocument>,
    ) -> Result<SeenDocument> {
        let found = match self.resolve(path)? {
            Some(PathTarget::Document(found, name)) if name == ATTRIBUTES => found,
            _ => return Err(Error::not_found(path)),
        };
        let attributes = parsed(text).map_err(|error| Error::invalid(path, error))?;
        let shown = |node: &Node| document(node, ATTRIBUTES);
        let is_shown_by = |node: &Node| seen.is_none_or(|seen| seen.is(&shown(node)));
        let seen = seen.map(|seen| SeenNode {
            is_shown_by: &is_shown_by,
            documents: seen.documents.as_deref(),
        });
        match self.hierarchy.edit(&found, &attributes, seen) {
            Ok(edited) => {
                let text = shown(&edited.node);
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
}

/// Reads attributes that a program has written; `Corrupt` if they are no JSON object, `Invalid` if an object in them has a
/// name twice.
fn parsed(bytes: &[u8]) -> Result<Attributes> {
    let attributes = Attributes::parse(text_of(bytes)?)?;
    attributes.check_unique()?;
    Ok(attributes)
}
