//! Files and directories that are generated, not stored.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::view::{Attr, File, ReadAt, ReadBytes};
use zarr_format::error::Result;
use zarrfs_store::EntryKind;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::part;

/// Returns the attributes of a generated file.
pub(crate) fn file_attr(size: u64, modified: SystemTime, fresh: Duration) -> Attr {
    Attr {
        kind: EntryKind::File,
        size,
        is_exact: true,
        chunk_bytes: 0,
        stored: size,
        modified,
        fresh,
        is_read_only: false,
        posix: None,
        content: None,
    }
}

/// Returns the attributes of a generated directory.
pub(crate) fn directory_attr(modified: SystemTime, fresh: Duration) -> Attr {
    Attr {
        kind: EntryKind::Directory,
        size: 0,
        is_exact: true,
        chunk_bytes: 0,
        stored: 0,
        modified,
        fresh,
        is_read_only: false,
        posix: None,
        content: None,
    }
}

/// A file whose bytes are generated when it is opened.
pub(crate) struct TextFile {
    pub(crate) bytes: Bytes,
    pub(crate) version: u64,
    pub(crate) modified: SystemTime,
}

impl ReadAt for TextFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64);
        Ok(part(&self.bytes, offset..end).into())
    }
}

impl File for TextFile {
    fn version(&self) -> Option<u64> {
        Some(self.version)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let size = self.bytes.len() as u64;
        Some(file_attr(size, self.modified, Duration::ZERO))
    }
}
