//! What becomes of a piece once a reader in order was given a part of it.
//!
//! A piece that was given out whole is the first to leave the cache. So is one that was loaded although memory has no
//! room for the row of pieces that the reader passes over again and again (`piece_use`).

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::flat_file::FlatFile;
use crate::array::parts::Part;
use crate::array::piece::Decoded;
use crate::sync::buffer;

/// A reader in order.
pub(super) struct OrderedReader {
    /// Whether memory has no room for a row of pieces.
    is_row_too_long: bool,
}

impl FlatFile {
    /// Returns the reader of the file, if it reads in order and pieces are kept for it.
    pub(super) fn ordered_reader(&self, decoder: &Decoder) -> Option<OrderedReader> {
        self.pattern.unread().filter(|_| !self.direct)?;
        let is_row_too_long = self.is_row_too_long(decoder);
        if is_row_too_long {
            self.warn_of_row(self.row_bytes(decoder));
        }
        Some(OrderedReader { is_row_too_long })
    }

    /// Says once what memory a row of pieces needs where no disk helps.
    fn warn_of_row(&self, row: u64) {
        let array = &*self.array;
        let unread = array.unread.as_ref().filter(|_| !array.spills(row));
        let Some(unread) = unread else { return };
        if unread.warns() {
            let needed = buffer::memory_for(row + row / 8) >> 20;
            let memory = buffer::memory_for(array.engine.limits.memory) >> 20;
            let or = match &array.engine.spill {
                _ if !unread.spills() => "",
                Some(_) => " or more room for --spill",
                None => " or --spill DIR",
            };
            log::warn!(
                "{}: a row of chunks takes {} MiB, --memory allows {memory} MiB: each is loaded again for each plane; \
                 --memory {needed}M{or} would avoid it",
                array.path,
                row >> 20,
            );
        }
    }
}

impl OpenArray {
    /// Whether pieces of so many bytes together go to disk where memory has no room for them.
    pub(super) fn spills(&self, bytes: u64) -> bool {
        let spills = self.unread.as_ref().is_some_and(|unread| unread.spills());
        let spill = self.engine.spill.as_ref().filter(|_| spills);
        spill.is_some_and(|spill| spill.has_room_for(bytes))
    }
}

impl OrderedReader {
    /// Notes that the reader is given some parts of one piece.
    pub(super) fn note_given(&self, array: &OpenArray, parts: &[Part], decoded: &Decoded) {
        let (Some(usage), Some(part)) = (&decoded.usage, parts.first()) else {
            return;
        };
        let lengths = parts
            .iter()
            .map(|part| part.region.shape.iter().product::<u64>());
        let elements: u64 = lengths.sum();
        let is_spent = usage.note_given(elements.saturating_mul(array.element as u64));
        if is_spent || self.is_row_too_long && usage.is_extra() {
            usage.retire();
            array.engine.cache.retire(&(array.id, 0, part.piece.0));
        }
    }
}
