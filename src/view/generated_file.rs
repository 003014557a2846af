//! Files and directories that are generated, not stored.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::part;

/// The longest text in bytes that is generated in a call that must not wait.
pub(crate) const MAX_IMMEDIATE_TEXT: usize = 256 << 10;

/// A file whose bytes are generated when it is opened.
pub(crate) struct GeneratedFile {
    pub(crate) bytes: Bytes,
    pub(crate) version: u64,
    pub(crate) modified: SystemTime,
}

impl GeneratedFile {
    /// Opens a file with these bytes; `version` identifies them.
    pub(crate) fn open(bytes: Bytes, version: u64, modified: SystemTime) -> OpenedFile {
        OpenedFile {
            file: Arc::new(GeneratedFile {
                bytes,
                version,
                modified,
            }),
            content: Some(version),
            version: Some(version),
            direct: false,
            tree_file: None,
        }
    }
}

impl ReadAt for GeneratedFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64);
        Ok(part(&self.bytes, offset..end).into())
    }
}

impl File for GeneratedFile {
    fn version(&self) -> Option<u64> {
        Some(self.version)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let size = self.bytes.len() as u64;
        Some(Attr::of_file(size, self.modified, Duration::ZERO))
    }
}
