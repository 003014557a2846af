//! A handle of an open file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::open_file::OpenFile;
use zarr_format::error::Result;
use zarrfs_store::Reader;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Stat, TreeFile};

/// One handle of a program. Handles for writing are counted: a commit leaves out files that are open for writing.
pub(crate) struct OpenFileHandle {
    file: Arc<OpenFile>,
    is_writer: bool,
}

impl OpenFileHandle {
    pub(crate) fn new(file: Arc<OpenFile>, is_writer: bool) -> OpenFileHandle {
        if is_writer {
            file.writers.fetch_add(1, Ordering::SeqCst);
        }
        OpenFileHandle { file, is_writer }
    }
}

impl Drop for OpenFileHandle {
    fn drop(&mut self) {
        if self.is_writer {
            self.file.writers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl TreeFile for OpenFileHandle {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = Reader::read_at(&*self.file, context, offset, len)?;
        if offset == 0
            && let Some(key) = self.file.key()
        {
            let is_complete = bytes.len() < len;
            self.file
                .core
                .encodings(context)
                .record_read(&key, &bytes, is_complete);
        }
        Ok(bytes)
    }

    fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(context, offset, bytes)
    }

    fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        self.file.append(context, bytes)
    }

    fn allocate(
        &self,
        context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.file.allocate(context, mode, offset, length)
    }

    fn flush(&self, context: &RequestContext) -> Result<()> {
        self.file.flush(context)
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.file.sync(context)
    }

    /// Fails if there are unpublished writes: an incomplete file is not published, and stays in the upper folder.
    fn end(&self, _context: &RequestContext) -> Result<()> {
        self.file.check_published()
    }

    fn stat(&self, context: &RequestContext) -> Result<Stat> {
        self.file.stat(context)
    }

    fn change(&self, context: &RequestContext, change: &AttrChange) -> Result<()> {
        self.file.change(context, change)
    }
}
