//! Bytes that a reference file contains itself.

use bytes::Bytes;

use super::pages::Place;

/// Bytes in blocks; they are shared with their readers.
#[derive(Default)]
pub(super) struct Values {
    blocks: Vec<Bytes>,
    length: u64,
    /// The last block, which still grows.
    last: Vec<u8>,
}

impl Values {
    /// Adds a value, to a block of 1 MiB if it fits in; `None` if there are too many.
    pub(super) fn add(&mut self, value: &[u8]) -> Option<Place> {
        if !self.last.is_empty() && self.last.len().saturating_add(value.len()) > 1 << 20 {
            self.close();
        }
        let place = Place::Inline {
            block: u32::try_from(self.blocks.len()).ok()?,
            start: u32::try_from(self.last.len()).ok()?,
            length: u32::try_from(value.len()).ok()?,
        };
        self.last.extend_from_slice(value);
        Some(place)
    }

    /// Closes the last block.
    pub(super) fn close(&mut self) {
        let block = std::mem::take(&mut self.last).into_boxed_slice();
        self.length += block.len() as u64 + 64;
        self.blocks.push(Bytes::from(block));
    }

    /// Returns the bytes of memory in use.
    pub(super) fn held(&self) -> u64 {
        self.length + self.last.capacity() as u64
    }

    /// Returns a value of a closed block.
    pub(super) fn get(&self, block: u32, start: u32, length: u32) -> Option<Bytes> {
        let block = self.blocks.get(usize::try_from(block).ok()?)?;
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= block.len()).then(|| block.slice(start..end))
    }
}
