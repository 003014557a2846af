//! Open files: the table of their handles.

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

/// An open file.
pub(super) struct Handle {
    pub(super) ino: Ino,
    pub(super) path: Key,
    pub(super) file: Arc<dyn File>,
    /// The number of the content; the same for all handles of the inode.
    pub(super) content: Option<u64>,
    /// The version of the bytes at open.
    pub(super) version: Option<u64>,
    /// Whether reads must bypass the page cache.
    pub(super) direct: bool,
    /// The file for writing; `None` if the file does not belong to a `Tree`.
    pub(super) tree_file: Option<Arc<dyn TreeFile>>,
    /// Whether the handle was opened for writing.
    pub(super) writes: bool,
    /// Keeps other files of the array from being opened for writing.
    pub(super) written: Option<Arc<WrittenKey>>,
    /// Whether the open is complete: stale pages of the kernel were dropped, and a program may write to the file.
    pub(super) is_open: AtomicBool,
    /// Whether writes are appended, since the kernel does not know the end of the file.
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

    /// Builds a handle for writing, which holds `written`.
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

    /// Returns another handle of the same content, for reading.
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

    /// Returns the file for writing; `Invalid` if the handle is not open for writing.
    pub(super) fn writer(&self) -> Result<&Arc<dyn TreeFile>> {
        let writer = self.tree_file.as_ref().filter(|_| self.writes);
        writer.ok_or_else(|| Error::invalid(&self.path, "not open for writing"))
    }

    /// Removes all bytes of the file.
    pub(super) fn truncate(&self, context: &RequestContext) -> Result<()> {
        let change = AttrChange {
            size: Some(0),
            ..AttrChange::default()
        };
        self.writer()?.change(context, &change)
    }
}

/// The handles of all open files.
#[derive(Default)]
pub(super) struct HandleTable {
    files: RwLock<HashMap<Fh, Arc<Handle>>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Returns a handle number that was never used, for a file or a directory.
    pub(super) fn new_number(&self) -> Fh {
        Fh(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds or replaces the file of a handle.
    pub(super) fn insert(&self, fh: Fh, file: Handle) -> Arc<Handle> {
        let file = Arc::new(file);
        self.files.write().insert(fh, file.clone());
        file
    }

    /// Removes a handle.
    pub(super) fn remove(&self, fh: Fh) {
        self.files.write().remove(&fh);
    }

    /// Returns an open file; `Invalid` if the handle is not open.
    pub(super) fn get(&self, fh: Fh) -> Result<Arc<Handle>> {
        let file = self.files.read().get(&fh).cloned();
        file.ok_or_else(|| Error::invalid("handle", "not open"))
    }

    /// Returns the first of some handles for which `fits` is true.
    pub(super) fn find(
        &self,
        handles: &[Fh],
        fits: impl Fn(&Arc<Handle>) -> bool,
    ) -> Option<Arc<Handle>> {
        let files = self.files.read();
        let mut open = handles.iter().filter_map(|fh| files.get(fh));
        open.find(|open| fits(open)).cloned()
    }

    /// Returns the inodes of the handles for which `fits` is true.
    pub(super) fn inodes(&self, fits: impl Fn(&Handle) -> bool) -> Vec<Ino> {
        let files = self.files.read();
        let fitting = files.values().filter(|open| fits(open));
        fitting.map(|open| open.ino).collect()
    }

    /// Returns all open files.
    pub(super) fn all(&self) -> Vec<Arc<Handle>> {
        self.files.read().values().cloned().collect()
    }
}
