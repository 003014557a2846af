//! One handle of an open file. Handles for writing are counted: a commit leaves out what a program is still writing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::OpenFile;
use crate::error::Result;
use crate::store::Reader;
use crate::store::tree::{AttrChange, Stat, TreeFile};

/// A handle of an open file.
pub(in crate::overlay) struct OpenFileHandle {
    file: Arc<OpenFile>,
    is_writer: bool,
}

impl OpenFileHandle {
    pub(super) fn new(file: Arc<OpenFile>, is_writer: bool) -> OpenFileHandle {
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
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = Reader::read_at(&*self.file, offset, len)?;
        if offset == 0
            && let Some(key) = self.file.key()
        {
            let is_whole = bytes.len() < len;
            self.file.core.note_document_read(&key, &bytes, is_whole);
        }
        Ok(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        self.file.write_now(offset, bytes)
    }

    fn allocate(&self, mode: i32, range: (u64, u64)) -> Result<()> {
        self.file.allocate(mode, range)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// Does nothing: what is not whole does not get its key, and is found in the upper folder.
    fn end(&self) -> Result<()> {
        self.file.check_published()
    }

    fn stat(&self) -> Result<Stat> {
        self.file.stat()
    }

    fn change(&self, change: &AttrChange) -> Result<()> {
        self.file.change(change)
    }
}
