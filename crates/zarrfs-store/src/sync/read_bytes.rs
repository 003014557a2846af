//! Bytes that answer a read: a buffer of their own, or a range of a value that stays where it is.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::request_context::RequestContext;
use zarr_format::buffer::Buffer;
use zarr_format::error::Result;

/// The bytes of one read.
pub enum ReadBytes {
    /// A range of bytes that others hold as well; nothing was copied.
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
    /// Bytes put together for this read.
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
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> ReadBytes {
        bytes.to_vec().into()
    }
}

/// A content that is read by offsets.
pub trait ReadAt: Send + Sync {
    /// Returns the bytes at `offset`, fewer than `len` only at the end. With a context that may not wait, `WouldWait` unless
    /// they are in memory: nothing is decoded then.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes>;
}

/// Returns the part of `bytes` in a range of offsets, as far as there are bytes.
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
