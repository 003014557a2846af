//! Writing a box of an array as a flat file: a range of bytes goes to the pieces under it.
//!
//! A piece that is written in part is read first, and one that is written whole is not. Pieces stay in memory,
//! where every reader of the array sees them, until `flush` has them encoded; when all arrays together hold more
//! than their share of the memory, what nobody has written for the longest time is stored at once.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::chunk::{Decoded, Piece, PieceLocation};
use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, Part};
use crate::array::{Engine, OpenArray};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates, Layout, Runs};
use crate::sync::budget::Reservation;

/// What part of the memory pieces that are not stored yet may hold: one in so many.
const SHARE: u64 = 4;

/// How many times the length of a piece the memory must hold for it to be written: as it was and as it is, and
/// encoded.
const COPIES: u64 = 3;

/// Bytes that a piece takes beside its own.
const OVERHEAD: u64 = 256;

impl FlatFile {
    /// Writes bytes at an offset. `TooLarge` beyond the end, which no write moves; what the array cannot take
    /// is said as `OpenArray::check_writable` does. What was written before an error stays.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.array.check_writable()?;
        let decoder = self.array.decoder()?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.length) else {
            let length = self.length;
            let found = format!("the file has {length} bytes, as many as its array");
            return Err(Error::too_large(&self.array.found.path, found));
        };
        self.array.check_metadata()?;
        let span = self.span(decoder);
        for start in (offset..end).step_by(usize::try_from(span).unwrap_or(usize::MAX)) {
            let range = start..end.min(start.saturating_add(span));
            let given = (range.start - offset) as usize..(range.end - offset) as usize;
            let given = bytes.get(given).unwrap_or_default();
            for part in self.parts(decoder, &range) {
                self.write_part(decoder, &range, &part, given)?;
            }
        }
        Ok(())
    }

    /// Writes what a range of bytes has of one piece.
    fn write_part(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        part: &Part,
        bytes: &[u8],
    ) -> Result<()> {
        let elements = self.elements(range);
        let size = self.array.element as u64;
        let from = Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: elements.start,
        };
        let to = Layout {
            start: &part.start,
            shape: &decoder.pieces.shape_of(part.piece),
            skipped: 0,
        };
        let runs = Runs::new(&part.part, from, to, self.array.element);
        let is_whole_elements = range.start.is_multiple_of(size) && range.end.is_multiple_of(size);
        let indices = decoder.pieces.indices(part.piece);
        let is_whole = is_whole_elements && part.part == decoder.pieces.region(&indices);
        let skipped = (range.start - elements.start * size) as usize;
        self.array.change(
            decoder,
            part.piece,
            is_whole,
            &|piece| match is_whole_elements {
                true => runs.copy(bytes, piece),
                false => runs.copy_part(bytes, skipped, piece),
            },
        )
    }
}

impl OpenArray {
    /// Says why nothing can be written to the array, if that is so: `ReadOnly` where encoding would lose
    /// something and nobody has allowed it, or elements have no fixed length; `TooLarge` if chunks are too
    /// large for the memory; and what stops them from being decoded.
    pub fn check_writable(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::new(Kind::ReadOnly, &self.found.path, why));
        if self.array.data_type.is_variable() {
            return refuse("elements without a fixed length are not written");
        }
        let decoder = self.decoder()?;
        let limits = &self.engine.limits;
        if decoder.pipeline.is_lossy() && !limits.lossy {
            return refuse(
                "its codecs lose something each time that a chunk is encoded; --lossy allows it",
            );
        }
        let length = decoder.pipeline.chunk_bytes() as u64;
        if length.saturating_mul(COPIES) > limits.memory {
            let found = format!(
                "a chunk of {length} bytes is too large to be written in a memory of {}",
                limits.memory
            );
            return Err(Error::too_large(&self.found.path, found));
        }
        Ok(())
    }

    /// Changes a piece, which is read first unless all of it that lies in the array `is_whole`.
    fn change(
        self: &Arc<Self>,
        decoder: &Decoder,
        piece: ChunkIndex,
        is_whole: bool,
        edit: &dyn Fn(&mut [u8]),
    ) -> Result<()> {
        let place = self.place(decoder, piece);
        self.engine.make_room(self, &place.indices)?;
        let turn = self.pending.turn(&place.indices);
        let is_edited = self.pending.edit(&place.indices, &place.inner, edit);
        let fresh = match is_edited {
            true => None,
            false => Some(self.editable(decoder, piece, &place, is_whole)?),
        };
        let PieceLocation { indices, inner, .. } = place;
        if let Some(mut fresh) = fresh {
            edit(fresh.bytes_mut());
            self.engine.note_writer(self);
            self.pending.put(&indices, inner, Arc::new(fresh));
        }
        drop(turn);
        Ok(())
    }

    /// Returns a piece that nobody else reads, with its current content.
    fn editable(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        place: &PieceLocation,
        is_whole: bool,
    ) -> Result<Decoded> {
        let pending = self.pending.find(&place.indices, &place.inner);
        let current = match pending {
            Some(pending) => Piece::Data(pending),
            None if is_whole => Piece::Fill,
            None => self.piece(decoder, piece)?,
        };
        let pipeline = decoder.pipeline_of(ChunkIndex(place.stored))?;
        let length = pipeline.chunk_bytes();
        match current {
            Piece::Data(current) => {
                self.forget(piece);
                match Arc::try_unwrap(current) {
                    Ok(piece) => Ok(piece.into_pending()),
                    Err(shared) => Ok(Decoded::pending(
                        shared.bytes().to_vec(),
                        self.room_for(length)?,
                    )),
                }
            }
            Piece::Fill => {
                let room = self.room_for(length)?;
                let fill = &self.array.fill_value.bytes;
                let bytes = match fill.iter().all(|&byte| byte == 0) {
                    true => vec![0; length],
                    false => fill.repeat(length / fill.len().max(1)),
                };
                Ok(Decoded::pending(bytes, room))
            }
        }
    }

    fn room_for(&self, length: usize) -> Result<Reservation> {
        let room = length as u64 + OVERHEAD;
        let room = self.engine.cache.reserve(room, self.engine.deadline());
        room.map_err(|error| error.about(&self.found.path))
    }
}

impl Engine {
    /// Remembers that an array has something pending.
    pub(super) fn note_writer(&self, array: &Arc<OpenArray>) {
        let mut writers = self.writers();
        let is_known = |known: &Weak<OpenArray>| known.as_ptr() == Arc::as_ptr(array);
        if array.pending.is_empty() || !writers.iter().any(is_known) {
            writers.retain(|writer| {
                let writer = writer.upgrade();
                writer.is_some_and(|writer| !writer.pending.is_empty() && writer.id != array.id)
            });
            writers.push(Arc::downgrade(array));
        }
    }

    /// Stores what was written longest ago until pieces hold no more than their share of the memory. What cannot
    /// be stored stays, and `OpenArray::flush` says why; once pieces hold twice their share, it is said here.
    /// The chunk that is to be written now is kept, since its writer will go on.
    fn make_room(&self, writer: &OpenArray, kept: &Coordinates) -> Result<()> {
        let share = self.limits.memory / SHARE;
        while self.backlog.bytes() > share {
            let Some((array, chunk)) = self.oldest(writer, kept, false) else {
                break;
            };
            // The chunk remembers that it failed.
            let _ = array.flush_alone(&chunk);
        }
        while self.backlog.bytes() > share.saturating_mul(2) {
            match self.oldest(writer, kept, true) {
                Some((array, chunk)) => array.flush_alone(&chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the chunk of any array that nobody has written for the longest time; those that could not be
    /// stored only where they are asked for.
    fn oldest(
        &self,
        writer: &OpenArray,
        kept: &Coordinates,
        with_failed: bool,
    ) -> Option<(Arc<OpenArray>, Coordinates)> {
        let writers: Vec<Arc<OpenArray>> =
            self.writers().iter().filter_map(Weak::upgrade).collect();
        let oldest = writers.into_iter().filter_map(|array| {
            let kept = (array.id == writer.id).then_some(kept);
            let (touched, chunk) = array.pending.oldest(kept, with_failed)?;
            Some((touched, array, chunk))
        });
        let (_, array, chunk) = oldest.min_by_key(|(touched, ..)| *touched)?;
        Some((array, chunk))
    }
}
