//! The bytes of a read: a buffer or a range of shared bytes.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::request_context::RequestContext;
use zarr_format::buffer::Buffer;
use zarr_format::error::Result;

/// The bytes that one read returns.
pub enum ReadBytes {
    /// A range of bytes that other reads share, such as a decoded chunk; nothing is copied.
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
    /// Bytes that were assembled for this read alone.
    Own(Buffer),
}

impl Default for ReadBytes {
    fn default() -> ReadBytes {
        ReadBytes::Own(Buffer::default())
    }
}

impl From<Vec<u8>> for ReadBytes {
    fn from(bytes: Vec<u8>) -> ReadBytes {
        ReadBytes::Own(bytes.into())
    }
}

impl From<&[u8]> for ReadBytes {
    fn from(bytes: &[u8]) -> ReadBytes {
        bytes.to_vec().into()
    }
}

/// Content, such as a file, that can be read at any offset.
pub trait ReadAt: Send + Sync {
    /// Returns the bytes at `offset`; fewer than `len` only at the end of the content. If the context may not wait, the
    /// error is `WouldWait` unless the bytes are in memory, and nothing is decoded.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes>;
}

/// Returns those bytes of a range that `bytes` contains, which may be fewer.
pub fn part(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let offset = |offset| usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
    let part = bytes.get(offset(range.start)..offset(range.end));
    part.unwrap_or_default()
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReadBytes::Shared(bytes, range) => {
                (**bytes).as_ref().get(range.clone()).unwrap_or_default()
            }
            ReadBytes::Own(bytes) => bytes,
        }
    }
}
