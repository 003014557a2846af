//! Decoded files open for writing: writes go to the chunks of the array.
//!
//! The array determines the length of its decoded file, so the file cannot be truncated or extended. Owner, mode and
//! times come from the mount; setting them has no effect. If a modified chunk cannot be stored because another program
//! has changed its key, the chunk is dropped. Each writer of the chunk gets the error once, at its next close or sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::Export;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadAt;
use zarrfs_store::tree::{AttrChange, Stat, TreeFile};
use zarrfs_store::{EntryKind, Key, Meta, Store, Version};

pub(super) struct DecodedWriter {
    pub(super) path: Key,
    pub(super) entry: Arc<NodeEntry>,
    pub(super) export: Export,
    store: Arc<dyn Store>,
    /// Whether the handle has written since the last flush.
    has_written: AtomicBool,
    /// The number of mmap page writes to the array that had been received at the last flush.
    page_writes: AtomicU64,
    /// The number of the array's modified chunks that had been dropped when the handle last checked for losses.
    lost_chunks: AtomicU64,
}

impl DecodedWriter {
    /// Opens a decoded file for writing. `mount_dir` is the path of the view's directory in the mount. Fails with
    /// `Busy` if another decoded file of the same array is open for writing.
    pub(super) fn new(
        mount_dir: &str,
        path: &Key,
        entry: Arc<NodeEntry>,
        export: Export,
        store: Arc<dyn Store>,
    ) -> Result<DecodedWriter> {
        export
            .array()
            .begin_writing(&format!("{mount_dir}{path}"))?;
        let page_writes = AtomicU64::new(export.array().page_writes());
        Ok(DecodedWriter {
            path: path.clone(),
            lost_chunks: AtomicU64::new(export.array().lost().0),
            entry,
            export,
            store,
            has_written: AtomicBool::new(false),
            page_writes,
        })
    }

    /// Whether this handle may have written since the last call. A write of mmap pages counts for every handle of the
    /// file, since the kernel sends it through any of them.
    fn take_written(&self) -> bool {
        let page_writes = self.export.array().page_writes();
        let has_pages = self.page_writes.swap(page_writes, Ordering::AcqRel) != page_writes;
        self.has_written.swap(false, Ordering::AcqRel) || has_pages
    }

    /// Fails if modified chunks that this handle may have written were dropped since its last check, by the flush of
    /// any handle.
    fn check_lost(&self, has_written: bool) -> Result<()> {
        let (count, error) = self.export.array().lost();
        let before = self.lost_chunks.swap(count, Ordering::AcqRel);
        match error.filter(|_| has_written && count > before) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Fails if `wanted` differs from the length of a decoded file, which the array determines.
pub(super) fn check_length(path: &Key, length: u64, wanted: u64) -> Result<()> {
    if length == wanted {
        return Ok(());
    }
    let why = format!(
        "cannot change the length from {length} to {wanted} bytes; write in place (dd conv=notrunc, mode r+), or \
         change the shape in the store view"
    );
    Err(Error::invalid(path, why))
}

impl Drop for DecodedWriter {
    fn drop(&mut self) {
        self.export.array().end_writing();
    }
}

impl TreeFile for DecodedWriter {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        Ok(self.export.read_at(context, offset, len)?.to_vec())
    }

    fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        context.check_may_wait()?;
        self.has_written.store(true, Ordering::Release);
        let written = self.export.write_at(context, offset, bytes);
        written.map_err(|error| error.about(&self.path))
    }

    fn write_pages(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        context.check_may_wait()?;
        self.export.array().record_page_write();
        let written = self.export.write_pages(context, offset, bytes);
        written.map_err(|error| error.about(&self.path))
    }

    /// Does nothing within the file's length, since a decoded file always has its full length.
    fn allocate(
        &self,
        _context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let end = offset.saturating_add(length);
        if mode & !FallocateFlags::KEEP_SIZE.bits().cast_signed() != 0 {
            return Err(Error::unsupported(
                &self.path,
                format!("unsupported fallocate mode {mode}"),
            ));
        }
        match mode {
            0 if end > self.export.len() => {
                let why = format!("the file cannot grow beyond {} bytes", self.export.len());
                Err(Error::too_large(&self.path, why))
            }
            _ => Ok(()),
        }
    }

    fn flush(&self, context: &RequestContext) -> Result<()> {
        let has_written = self.take_written();
        let flushed = self.export.array().flush(context);
        let lost = self.check_lost(has_written);
        if flushed.is_err() && has_written {
            // Chunks that could not be stored stay modified and may be dropped later, so the next flush must check for
            // losses.
            self.has_written.store(true, Ordering::Release);
        }
        flushed.and(lost).map_err(|error| error.about(&self.path))
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.flush(context)?;
        self.store.sync(context)
    }

    fn mark_pages_dropped(&self) {
        self.export.array().mark_pages_dropped();
    }

    fn stat(&self, _context: &RequestContext) -> Result<Stat> {
        let (array, size) = (self.export.array(), self.export.len());
        let meta = Meta {
            kind: EntryKind::File,
            size,
            stored: size,
            modified: self.entry.modified,
            version: Version::numbered(array.page_version()),
        };
        Ok(Stat {
            meta,
            posix: None,
            content: self.export.content(),
        })
    }

    fn change(&self, _context: &RequestContext, change: &AttrChange) -> Result<()> {
        match change.size {
            Some(size) => check_length(&self.path, self.export.len(), size),
            None => Ok(()),
        }
    }
}
