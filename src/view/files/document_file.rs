//! `attributes.json` open for writing, and scratch files that programs rename onto it.
//!
//! Writes are buffered and take effect at close or sync: the text is parsed and stored in the dialect of the node, or
//! the close fails and nothing is stored. A document that has changed since the program read it is not replaced
//! (`Changed`).
//!
//! To change a document, programs read it, and then open it again for writing, or rename another file onto it. So the
//! document is truncated or replaced only if it still has the version that a program read last. A document that no
//! program has read is saved unconditionally. Two versions of `attributes.json` are the same if their attributes are.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::view::files::ATTRIBUTES;
use crate::view::files::node_documents::{DocumentVersion, document};
use crate::view::files::path_target::PathTarget;
use crate::view::files::resolver::PathResolver;
use crate::view::files::scratch_files::ScratchFile;
use zarr_format::dialect::text_of;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_array::hierarchy::{ExpectedNode, NodeEntry};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Stat, Time, TreeFile};
use zarrfs_store::{EntryKind, Key, Meta, Version};

/// Maximum length in bytes of an `attributes.json` that a program writes.
const MAX_DOCUMENT: u64 = 16 << 20;

/// What happens to the bytes of a file when it is closed or synced.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The bytes are stored as the attributes of the node.
    Document,
    /// The bytes of a file that was created after `attributes.json` was unlinked. They are stored as the attributes if
    /// the file still has that name.
    NewDocument,
    /// The bytes stay in memory, because the file is a scratch file.
    Scratch,
}

/// An open `attributes.json` of a node, or an open scratch file in the same directory.
pub(super) struct DocumentFile {
    resolver: Arc<PathResolver>,
    path: Key,
    role: Role,
    bytes: Arc<ScratchFile>,
    /// The number by which the inode table recognizes the file.
    content: u64,
    is_dirty: Mutex<bool>,
    /// The version that `attributes.json` had when it was opened.
    opened: Option<DocumentVersion>,
    /// The version that the program has read, which `attributes.json` must still have when it is saved. `None` if the
    /// document is saved unconditionally.
    read_version: Mutex<Option<DocumentVersion>>,
    /// Whether the program has read from the handle.
    is_read: AtomicBool,
}

impl DocumentFile {
    /// Opens the `attributes.json` of a node, whose text is `text`.
    pub(super) fn document(
        resolver: &Arc<PathResolver>,
        path: &Key,
        entry: &NodeEntry,
        text: &[u8],
    ) -> Arc<DocumentFile> {
        let opened = Some(DocumentVersion::of_node(entry, text));
        Arc::new(DocumentFile {
            resolver: resolver.clone(),
            path: path.clone(),
            role: Role::Document,
            bytes: ScratchFile::of_document(text, entry.modified),
            content: entry.version,
            is_dirty: Mutex::new(false),
            read_version: Mutex::new(opened.clone()),
            opened,
            is_read: AtomicBool::new(false),
        })
    }

    /// Opens an `attributes.json` that was created after an unlink. If this open has created the file (`is_created`),
    /// closing it empty fails, since an empty text is no valid document.
    pub(super) fn new_document(
        resolver: &Arc<PathResolver>,
        path: &Key,
        bytes: Arc<ScratchFile>,
        is_created: bool,
    ) -> Arc<DocumentFile> {
        Arc::new(DocumentFile {
            role: Role::NewDocument,
            is_dirty: Mutex::new(is_created),
            read_version: Mutex::new(resolver.scratch_files.last_read(path)),
            ..DocumentFile::in_memory(resolver, path, bytes)
        })
    }

    pub(super) fn scratch(
        resolver: &Arc<PathResolver>,
        path: &Key,
        bytes: Arc<ScratchFile>,
    ) -> Arc<DocumentFile> {
        Arc::new(DocumentFile::in_memory(resolver, path, bytes))
    }

    fn in_memory(
        resolver: &Arc<PathResolver>,
        path: &Key,
        bytes: Arc<ScratchFile>,
    ) -> DocumentFile {
        DocumentFile {
            resolver: resolver.clone(),
            path: path.clone(),
            role: Role::Scratch,
            content: bytes.id(),
            bytes,
            is_dirty: Mutex::new(false),
            opened: None,
            read_version: Mutex::new(None),
            is_read: AtomicBool::new(false),
        }
    }

    /// Truncates the buffered bytes to `length`, or extends them with zeros.
    pub(super) fn resize(&self, length: u64) -> Result<()> {
        let length = self.checked_length(length)?;
        let resized = self.bytes.resize(length);
        resized.map_err(|error| error.about(&self.path))?;
        let was_dirty = std::mem::replace(&mut *self.is_dirty.lock(), true);
        if length == 0 && !was_dirty && !self.is_read.load(Ordering::Acquire) {
            // Nothing was read through this handle, so the version that counts is the one that the program read before,
            // if any.
            *self.read_version.lock() = self.resolver.scratch_files.last_read(&self.path);
        }
        self.record_write();
        Ok(())
    }

    /// Records at the first read that a program has read the version of `attributes.json` that was opened.
    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::AcqRel)
            && let Some(opened) = &self.opened
        {
            self.resolver
                .scratch_files
                .record_read(&self.path, opened.clone());
        }
    }

    fn record_write(&self) {
        if self.role == Role::Scratch {
            self.resolver.scratch_files.record_write(&self.path);
        }
    }

    fn checked_length(&self, length: u64) -> Result<usize> {
        match usize::try_from(length) {
            Ok(short) if length <= MAX_DOCUMENT => Ok(short),
            _ => {
                let why = format!("a metadata file can have at most {MAX_DOCUMENT} bytes");
                Err(Error::too_large(&self.path, why))
            }
        }
    }

    /// Whether the bytes of the file are stored as attributes. They are not if the file has lost the name
    /// `attributes.json`, as the bytes of any unlinked file are dropped.
    fn is_to_be_stored(&self) -> bool {
        match self.role {
            Role::Document => true,
            Role::NewDocument => {
                let is_in_place = || {
                    self.resolver
                        .scratch_files
                        .is_in_place(&self.path, &self.bytes)
                };
                self.bytes.is_stored() || is_in_place()
            }
            Role::Scratch => false,
        }
    }

    /// Stores the bytes of the file as the attributes of the node.
    fn store(&self, context: &RequestContext) -> Result<()> {
        let read = self.read_version.lock().clone();
        let text = self.bytes.bytes();
        let saved = save(&self.resolver, context, &self.path, &text, read.as_ref())?;
        *self.read_version.lock() = Some(saved);
        if self.role == Role::NewDocument && !self.bytes.is_stored() {
            self.bytes.mark_stored();
            self.resolver.scratch_files.show_document(&self.path);
        }
        Ok(())
    }
}

impl TreeFile for DocumentFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.record_read();
        Ok(self.bytes.read_at(offset, len))
    }

    fn write_at(&self, context: &RequestContext, offset: u64, new: &[u8]) -> Result<()> {
        context.check_may_wait()?;
        let end = self.checked_length(offset.saturating_add(new.len() as u64))?;
        let written = self.bytes.write(end, new);
        written.map_err(|error| error.about(&self.path))?;
        *self.is_dirty.lock() = true;
        self.record_write();
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
        let mut dirty = self.is_dirty.lock();
        if *dirty && self.is_to_be_stored() {
            self.store(context)?;
        }
        *dirty = false;
        Ok(())
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.flush(context)?;
        self.resolver.hierarchy.store().sync(context)
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

    /// Owner and mode come from the mount, so a change of them succeeds without effect.
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

/// Stores the text of a node's `attributes.json` and returns the new version. Fails with `Invalid` if the text cannot
/// be parsed or the dialect cannot express it, and with `Changed` if the document no longer has the version `read`.
/// After an error, the old document remains.
pub(super) fn save(
    resolver: &PathResolver,
    context: &RequestContext,
    path: &Key,
    text: &[u8],
    read: Option<&DocumentVersion>,
) -> Result<DocumentVersion> {
    let entry = match resolver.resolve(context, path)? {
        Some(PathTarget::Document(entry, name)) if name == ATTRIBUTES => entry,
        _ => return Err(Error::not_found(path)),
    };
    let attributes = parsed(text)
        .map_err(|error| Error::invalid(path, format!("{error}; the attributes are unchanged")))?;
    let text_of_node = |node: &Node| document(node, ATTRIBUTES);
    let matches = |node: &Node| read.is_none_or(|read| read.matches(&text_of_node(node)));
    let read = read.map(|read| ExpectedNode {
        matches: &matches,
        documents: read.documents.as_deref(),
    });
    match resolver.hierarchy.edit(context, &entry, &attributes, read) {
        Ok(edited) => {
            let text = text_of_node(&edited.node);
            let saved = DocumentVersion::of_edit(edited, &text);
            resolver.scratch_files.record_saved(path, &saved);
            Ok(saved)
        }
        Err(error) => {
            if error.kind() == Kind::Changed {
                // After a refused save, the next save is unconditional unless the program reads the document again.
                resolver.scratch_files.forget_read(path);
            }
            Err(error)
        }
    }
}

/// Parses the attributes that a program has written. Fails with `Corrupt` if they are not a JSON object, and with
/// `Invalid` if a name occurs twice in an object.
fn parsed(bytes: &[u8]) -> Result<Attributes> {
    let attributes = Attributes::parse(text_of(bytes)?)?;
    attributes.check_unique()?;
    Ok(attributes)
}
