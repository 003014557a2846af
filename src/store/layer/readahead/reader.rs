//! An object of the network read as a file: in one request if it is short, in blocks ahead of the reader if it is
//! long and read in order.

use parking_lot::Mutex;
use std::sync::Arc;

use super::ReadaheadState;
use super::buffer::BufferedBytes;
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Meta, Reader};

/// Objects up to this length are fetched whole by whoever reads their beginning, in bytes.
pub(super) const WHOLE: u64 = 16 << 20;

/// What a longer one is fetched in, and how many of them ahead of the reader.
const BLOCK: u64 = 4 << 20;
const BLOCKS_AHEAD: u64 = 4;

/// An object that was opened.
pub(super) struct ReadaheadReader {
    pub(super) shared: Arc<ReadaheadState>,
    pub(super) key: Key,
    pub(super) meta: Meta,
    pub(super) below: Arc<dyn Reader>,
    /// All of it, once somebody has fetched it.
    pub(super) whole: Mutex<Option<Arc<BufferedBytes>>>,
    /// Where a reader in order goes on.
    pub(super) next: Mutex<u64>,
}

impl ReadaheadReader {
    fn changed(&self) -> Error {
        Error::new(Kind::Changed, &self.key, "was changed while it was open")
    }

    /// Returns a part of bytes that begin at `first`; `Changed` if they are of another content.
    fn part(&self, held: &BufferedBytes, first: u64, offset: u64, len: usize) -> Result<Vec<u8>> {
        if held.object.version != self.meta.version {
            return Err(self.changed());
        }
        let bytes = &held.object.bytes;
        let start = (offset.saturating_sub(first) as usize).min(bytes.len());
        let end = start.saturating_add(len).min(bytes.len());
        Ok(bytes[start..end].to_vec())
    }

    fn whole(&self) -> Option<Arc<BufferedBytes>> {
        self.whole.lock().clone()
    }

    /// Fetches the whole object, or waits for who does; nothing if there is no room for it.
    fn fetch_whole(&self) -> Result<Option<Arc<BufferedBytes>>> {
        let piece = (self.key.clone(), None);
        let Some(held) = self
            .shared
            .piece(&piece, 0..self.meta.size, self.meta.version)?
        else {
            return Ok(None);
        };
        *self.whole.lock() = Some(held.clone());
        Ok(Some(held))
    }

    /// Whether a read goes on where the last one ended; the kernel's requests come a little out of order.
    fn is_in_order(&self, offset: u64, len: usize) -> bool {
        let mut next = self.next.lock();
        let near = offset.abs_diff(*next) <= BLOCK;
        let end = offset.saturating_add(len as u64);
        *next = if near { (*next).max(end) } else { end };
        near
    }

    fn block(&self, number: u64) -> std::ops::Range<u64> {
        let start = number.saturating_mul(BLOCK);
        start.min(self.meta.size)..start.saturating_add(BLOCK).min(self.meta.size)
    }

    /// Reads out of blocks, and has the next ones fetched; nothing if there is no room for them.
    fn read_blocks(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        let (first, last) = (offset / BLOCK, end.saturating_sub(1) / BLOCK);
        for number in first..=last.saturating_add(BLOCKS_AHEAD) {
            let range = self.block(number);
            if !range.is_empty() {
                self.shared.fetch((self.key.clone(), Some(number)), range);
            }
        }
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for number in first..=last {
            let range = self.block(number);
            let piece = (self.key.clone(), Some(number));
            let Some(held) = self
                .shared
                .piece(&piece, range.clone(), self.meta.version)?
            else {
                return Ok(None);
            };
            let start = offset.max(range.start);
            let part = end.min(range.end).saturating_sub(start);
            out.extend(self.part(&held, range.start, start, part as usize)?);
            if number < first.max(end / BLOCK) {
                self.shared.stock.take(&piece);
            }
        }
        Ok(Some(out))
    }
}

impl Reader for ReadaheadReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        if offset >= self.meta.size || len == 0 {
            return Ok(Vec::new());
        }
        if let Some(held) = self.whole() {
            return self.part(&held, 0, offset, len);
        }
        let in_order = self.is_in_order(offset, len);
        let is_short = self.meta.size <= WHOLE.min(self.shared.stock.limit() / 4);
        if is_short && (offset == 0 || in_order) {
            if let Some(held) = self.fetch_whole()? {
                return self.part(&held, 0, offset, len);
            }
        } else if in_order && let Some(bytes) = self.read_blocks(offset, len)? {
            return Ok(bytes);
        }
        self.below.read_at(offset, len)
    }

    fn meta(&self) -> Result<Meta> {
        Ok(self.meta)
    }
}
