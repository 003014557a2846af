//! The bytes of a read: an own buffer or a range of shared bytes.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::request_context::RequestContext;
use zarr_format::buffer::Buffer;
use zarr_format::error::Result;

/// The bytes that one read returns.
pub enum ReadBytes {
    /// A range of shared bytes, without a copy.
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
    /// Bytes assembled for this read.
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

/// Content that can be read by offset.
pub trait ReadAt: Send + Sync {
    /// Returns the bytes at `offset`, fewer than `len` only at the end. If the context may not wait, returns
    /// `WouldWait` unless the bytes are in memory: nothing is decoded then.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes>;
}

/// Returns a range of `bytes`, clamped to its end.
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
