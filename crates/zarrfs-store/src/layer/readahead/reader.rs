//! Reads a remote object as a file: whole if short, else in prefetched blocks.
//!
//! All bytes of a reader belong to the version that it was opened with. If a block is not available, the reader of the
//! store below answers.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

use super::{Block, BlockId, ReadaheadState};
use crate::request_context::RequestContext;
use crate::{Key, Meta, Reader};
use zarr_format::error::Result;

/// Objects of at most this length are fetched whole when their beginning is read, in bytes.
pub(super) const MAX_WHOLE_BYTES: u64 = 16 << 20;

/// Length of the blocks of longer objects, in bytes.
const BLOCK: u64 = 4 << 20;
/// Number of blocks to prefetch.
const BLOCKS_AHEAD: u64 = 4;

/// An open object with prefetching.
pub(super) struct ReadaheadReader {
    shared: Arc<ReadaheadState>,
    whole: BlockId,
    meta: Meta,
    below: Arc<dyn Reader>,
    /// Offset at which a sequential reader continues.
    next: Mutex<u64>,
}

impl ReadaheadReader {
    /// Opens an object with the metadata `meta`; `below` reads it without prefetching.
    pub(super) fn new(
        shared: &Arc<ReadaheadState>,
        key: &Key,
        meta: Meta,
        below: Arc<dyn Reader>,
    ) -> ReadaheadReader {
        ReadaheadReader {
            shared: shared.clone(),
            whole: (key.clone(), None),
            meta,
            below,
            next: Mutex::default(),
        }
    }

    /// Returns the whole object if it was fetched.
    fn fetched(&self) -> Option<Arc<Block>> {
        let block = self.shared.blocks.get(&self.whole)?;
        let is_whole = block.object.bytes.len() as u64 == self.meta.size;
        (is_whole && self.shared.is_of(&block, &self.meta)).then_some(block)
    }

    /// Whether a read continues near the end of the last one; the kernel's requests may overtake each other.
    fn is_in_order(&self, offset: u64, end: u64) -> bool {
        let mut next = self.next.lock();
        let is_near = offset.abs_diff(*next) <= BLOCK;
        *next = if is_near { end.max(*next) } else { end };
        is_near
    }

    fn block(
        &self,
        context: &RequestContext,
        id: &BlockId,
        range: Range<u64>,
    ) -> Option<Arc<Block>> {
        self.shared.block(context, id, range, &self.meta)
    }

    fn block_range(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(BLOCK);
        start.min(self.meta.size)..start.saturating_add(BLOCK).min(self.meta.size)
    }

    /// Reads from blocks and prefetches the next ones; returns `None` if a block is not available.
    fn read_blocks(&self, context: &RequestContext, range: Range<u64>) -> Option<Vec<u8>> {
        let id = |number| (self.whole.0.clone(), Some(number));
        let (first, last) = (range.start / BLOCK, range.end.saturating_sub(1) / BLOCK);
        for number in first.saturating_add(1)..=last.saturating_add(BLOCKS_AHEAD) {
            let block = self.block_range(number);
            if !block.is_empty() {
                self.shared.prefetch(id(number), block);
            }
        }
        let length = usize::try_from(range.end - range.start).unwrap_or_default();
        let mut out = Vec::with_capacity(length);
        for number in first..=last {
            let span = self.block_range(number);
            let block = self.block(context, &id(number), span.clone())?;
            let (start, end) = (range.start.max(span.start), range.end.min(span.end));
            out.extend_from_slice(part(&block, start - span.start..end - span.start));
        }
        // Requests may overtake each other, so the previous block may be read once more.
        if let Some(passed) = first.checked_sub(2) {
            self.shared.blocks.forget(&id(passed));
        }
        Some(out)
    }
}

/// Returns a range of a block, clamped to its end.
fn part(block: &Block, range: Range<u64>) -> &[u8] {
    let bytes = &block.object.bytes;
    let place = |offset| usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
    bytes
        .get(place(range.start)..place(range.end))
        .unwrap_or_default()
}

impl Reader for ReadaheadReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if let Some(block) = self.fetched() {
            return Ok(part(&block, offset..end).to_vec());
        }
        let is_in_order = self.is_in_order(offset, end);
        let is_short = self.meta.size <= self.shared.max_whole_bytes();
        if is_short && (offset == 0 || is_in_order) {
            if let Some(block) = self.block(context, &self.whole, 0..self.meta.size) {
                return Ok(part(&block, offset..end).to_vec());
            }
        } else if is_in_order && let Some(bytes) = self.read_blocks(context, offset..end) {
            return Ok(bytes);
        }
        self.below.read_at(context, offset, len)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
