//! Stores the handles of open files in a table.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::vfs::{Fh, Ino};
use crate::view::store::ChangingFile;
use crate::view::{File, OpenedFile};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::WrittenKey;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, TreeFile};

/// A handle: one open of a file.
pub(super) struct Handle {
    pub(super) ino: Ino,
    pub(super) path: Key,
    pub(super) file: Arc<dyn File>,
    /// The number that identifies the opened file, whatever its name; the same for all handles of an inode.
    pub(super) content: Option<u64>,
    /// The version of the bytes when the file was opened.
    pub(super) version: Option<u64>,
    /// Whether reads bypass the kernel's pages.
    pub(super) direct: bool,
    /// The file in the tree that changes are written to; `None` if the file is not in such a tree.
    pub(super) tree_file: Option<Arc<dyn TreeFile>>,
    /// Whether the handle is open for writing.
    pub(super) writes: bool,
    /// Keeps other files of the same array from being opened for writing.
    pub(super) written: Option<Arc<WrittenKey>>,
    /// Whether the open is complete: stale pages of the kernel were dropped, and the program may write.
    pub(super) is_open: AtomicBool,
    /// Whether writes are appended here, since the kernel does not know the current end of the file.
    pub(super) appends: bool,
}

impl Handle {
    /// Builds a handle for reading.
    pub(super) fn for_reading(ino: Ino, path: &Key, opened: OpenedFile) -> Handle {
        Handle {
            ino,
            path: path.clone(),
            file: opened.file,
            content: opened.content,
            version: opened.version,
            direct: opened.direct,
            tree_file: opened.tree_file,
            writes: false,
            written: None,
            is_open: AtomicBool::new(false),
            appends: false,
        }
    }

    /// Builds a handle for writing, which also has the guard `written`.
    pub(super) fn for_writing(
        context: &RequestContext,
        ino: Ino,
        path: &Key,
        file: Arc<dyn TreeFile>,
        written: Option<Arc<WrittenKey>>,
    ) -> Result<Handle> {
        let opened = OpenedFile {
            file: Arc::new(ChangingFile(file.clone())),
            content: Some(file.stat(context)?.content),
            version: None,
            direct: false,
            tree_file: Some(file),
        };
        Ok(Handle {
            writes: true,
            written,
            ..Handle::for_reading(ino, path, opened)
        })
    }

    /// Returns another handle, for reading, of the same opened file.
    pub(super) fn shared(&self) -> Handle {
        let opened = OpenedFile {
            file: self.file.clone(),
            content: self.content,
            version: self.version,
            direct: self.direct,
            tree_file: self.tree_file.clone(),
        };
        Handle::for_reading(self.ino, &self.path, opened)
    }

    /// Returns the file for writing; fails with `Invalid` if the handle is not open for writing.
    pub(super) fn writer(&self) -> Result<&Arc<dyn TreeFile>> {
        let writer = self.tree_file.as_ref().filter(|_| self.writes);
        writer.ok_or_else(|| Error::invalid(&self.path, "not open for writing"))
    }

    pub(super) fn truncate(&self, context: &RequestContext) -> Result<()> {
        let change = AttrChange {
            size: Some(0),
            ..AttrChange::default()
        };
        self.writer()?.change(context, &change)
    }
}

/// Table of the handles of all open files.
#[derive(Default)]
pub(super) struct HandleTable {
    files: RwLock<HashMap<Fh, Arc<Handle>>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Returns a new number for a handle of a file or directory; numbers are never used again.
    pub(super) fn new_number(&self) -> Fh {
        Fh(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds or replaces a handle.
    pub(super) fn insert(&self, fh: Fh, file: Handle) -> Arc<Handle> {
        let file = Arc::new(file);
        self.files.write().insert(fh, file.clone());
        file
    }

    pub(super) fn remove(&self, fh: Fh) {
        self.files.write().remove(&fh);
    }

    /// Returns the handle with this number; fails with `Invalid` if it is not open.
    pub(super) fn get(&self, fh: Fh) -> Result<Arc<Handle>> {
        let file = self.files.read().get(&fh).cloned();
        file.ok_or_else(|| Error::invalid("handle", "not open"))
    }

    /// Returns the first of the given handles for which `fits` returns true.
    pub(super) fn find(
        &self,
        handles: &[Fh],
        fits: impl Fn(&Arc<Handle>) -> bool,
    ) -> Option<Arc<Handle>> {
        let files = self.files.read();
        let mut open = handles.iter().filter_map(|fh| files.get(fh));
        open.find(|open| fits(open)).cloned()
    }

    /// Returns the inodes of all handles for which `fits` returns true.
    pub(super) fn inodes(&self, fits: impl Fn(&Handle) -> bool) -> Vec<Ino> {
        let files = self.files.read();
        let fitting = files.values().filter(|open| fits(open));
        fitting.map(|open| open.ino).collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<Handle>> {
        self.files.read().values().cloned().collect()
    }
}
