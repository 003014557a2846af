//! Writing a box of an array as a flat file: a range of bytes goes to the pieces under it.
//!
//! A piece that is written in part is read first, and one that is written whole is not; `dirty_chunk` keeps which
//! content was read. Written pieces stay in memory, where every reader of the array sees them, until `flush` has encoded
//! them. When all arrays together hold more than
//! their share of the memory, the chunks that were written longest ago are stored at once.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::dirty_chunk::{Basis, ReadDigest, WrittenPiece};
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::parts::Part;
use crate::array::piece::{Decoded, PIECE_OVERHEAD, Piece};
use crate::array::{Engine, OpenArray};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates, Layout, Runs};
use crate::model::DataType;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::pool::parallel_map;

/// Pieces that are not stored yet may hold the memory divided by this.
const DIRTY_SHARE: u64 = 4;

/// The memory must hold a piece this many times for it to be written: as it was, as it is, and encoded.
const COPIES: u64 = 3;

/// Where bytes that are written come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSource {
    /// A program has given all of them.
    Program,
    /// They are pages of the kernel, of which a program has changed some bytes by way of a map.
    Pages,
}

/// A change of the elements of a piece.
struct PieceEdit<'a> {
    /// Whether all of its elements are written.
    is_whole: bool,
    source: WriteSource,
    /// Changes the decoded piece.
    apply: &'a dyn Fn(&mut [u8]),
}

impl FlatFile {
    /// Writes bytes at an offset. Fails with `TooLarge` beyond the end, which no write moves, with `Invalid` for a value
    /// that the data type does not have, and as `OpenArray::check_writable` does. What was written before an error stays.
    pub fn write(
        &self,
        context: &RequestContext,
        offset: u64,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        self.array.check_writable()?;
        if !self.has_own_order() {
            let why = "has its dimensions in another order, and so is not written";
            return Err(Error::new(Kind::ReadOnly, &self.array.path, why));
        }
        let decoder = self.array.decoder()?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.length) else {
            let length = self.length;
            let found = format!("the file has {length} bytes, as many as its array");
            return Err(Error::too_large(&self.array.path, found));
        };
        self.array.check_values(bytes)?;
        self.array.check_metadata(context)?;
        let most = self.max_read(decoder);
        let mut start = offset;
        while start < end {
            let range = start..end.min(start.saturating_add(most));
            start = range.end;
            let given = in_buffer(range.start - offset)..in_buffer(range.end - offset);
            let given = bytes.get(given).unwrap_or_default();
            let write =
                |part: Part| self.write_part(context, (decoder, &part), &range, given, source);
            let parts = self.parts(decoder, &range).into_iter();
            let (missing, others) = parts.partition(|part| self.has_to_read(decoder, part));
            let missing: Vec<Part> = missing;
            let threads = self.array.engine.writers_at_once(decoder);
            let written = parallel_map(threads.min(missing.len()), missing, &write);
            written.into_iter().collect::<Result<()>>()?;
            let others: Vec<Part> = others;
            others.into_iter().try_for_each(write)?;
        }
        Ok(())
    }

    /// Whether a piece is written in part and its other elements have to be read, which may take long.
    fn has_to_read(&self, decoder: &Decoder, part: &Part) -> bool {
        let indices = decoder.pieces.indices(part.piece);
        part.region != decoder.pieces.region(&indices)
            && self
                .array
                .reader()
                .is_ok_and(|it| it.written(part.piece).is_none())
    }

    /// Writes what a range of bytes has of one piece.
    fn write_part(
        &self,
        context: &RequestContext,
        (decoder, part): (&Decoder, &Part),
        range: &Range<u64>,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        let elements = self.elements(range);
        let size = self.array.element as u64;
        let runs = self.runs_into(decoder, &elements, part);
        let is_whole_elements = range.start.is_multiple_of(size) && range.end.is_multiple_of(size);
        let indices = decoder.pieces.indices(part.piece);
        let is_whole = is_whole_elements && part.region == decoder.pieces.region(&indices);
        let skipped = in_buffer(range.start - elements.start * size);
        let copy = |piece: &mut [u8]| {
            if is_whole_elements {
                runs.copy(bytes, piece);
            } else {
                runs.copy_part(bytes, skipped, piece);
            }
        };
        let edit = PieceEdit {
            is_whole,
            source,
            apply: &copy,
        };
        self.array.edit_piece(context, decoder, part.piece, &edit)
    }
}

impl FlatFile {
    /// Returns where a part lies in a buffer of these elements, and in its piece.
    fn runs_into(&self, decoder: &Decoder, elements: &Range<u64>, part: &Part) -> Runs {
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
        Runs::new(&part.region, from, to, self.array.element)
    }
}

impl OpenArray {
    /// Fails if the array cannot be written: `ReadOnly` if encoding would lose something and that is not allowed, or
    /// if elements have no fixed length; `TooLarge` if chunks are too large for the memory; and with the error that
    /// stops them from being decoded.
    pub fn check_writable(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::new(Kind::ReadOnly, &self.path, why));
        if self.metadata.data_type.is_variable() {
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
                "a chunk of {length} bytes is too large to be written in {} bytes of memory",
                limits.memory
            );
            return Err(Error::too_large(&self.path, found));
        }
        Ok(())
    }

    /// `Invalid` if elements of fewer than eight bits are not all values of the data type: of those the codecs keep the
    /// lower bits only.
    fn check_values(&self, elements: &[u8]) -> Result<()> {
        let DataType::Small(number) = &self.metadata.data_type else {
            return Ok(());
        };
        match number.first_not_held(elements) {
            None => Ok(()),
            Some(code) => {
                let why = format!("the byte 0x{code:02x} is no value of {}", number.name);
                Err(Error::invalid(&self.path, why))
            }
        }
    }

    /// Changes the elements of a piece, which is read first unless all of them are written. Pages of a piece that was
    /// shown with another content are dropped.
    fn edit_piece(
        self: &Arc<Self>,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        edit: &PieceEdit,
    ) -> Result<()> {
        let location = decoder.locate(piece);
        // What is stored then is not what this request changes.
        self.engine.make_room(&UNLIMITED, self, &location.indices)?;
        let _lock = self.dirty.lock_chunk(&location.indices);
        let (chunk, place) = (&location.indices, &location.inner);
        let indices = decoder.pieces.indices(piece);
        let is_shown =
            edit.source == WriteSource::Pages && self.dirty.writers().has_shown(&indices);
        let is_whole = edit.is_whole && !is_shown;
        if is_shown
            && let Some(ReadDigest(read)) = self.dirty.rest_digest(chunk, place)
            && self.dirty.writers().has_shown_other(&indices, read)
        {
            // The pages are of before what was read to write the rest.
            return self.refuse_pages(context, decoder, piece, &location);
        }
        let permit = context.permit_change()?;
        if self.dirty.edit(chunk, place, is_whole, edit.apply)? {
            return Ok(());
        }
        permit.give_back();
        let (current, basis) = match self.dirty.find(chunk, place) {
            _ if is_whole => (Piece::Fill, Basis::Nothing),
            Some(written) => (Piece::Data(written), Basis::Written),
            None => match self.unwritten_piece(context, decoder, (piece, &location), is_shown)? {
                Some(found) => found,
                None => return self.refuse_pages(context, decoder, piece, &location),
            },
        };
        let mut fresh = self.editable(decoder, piece, &location, current)?;
        let _permit = context.permit_change()?;
        (edit.apply)(&mut fresh.bytes);
        let written = WrittenPiece {
            place: location.inner.into_vec(),
            indices,
            decoded: Arc::new(fresh),
            basis,
        };
        self.dirty.put(&location.indices, written)?;
        // Another array drops those from the list that have nothing to store.
        self.engine.note_writer(self);
        Ok(())
    }

    /// Returns a piece that is not written, and what it was read of; nothing if it was shown with another content.
    fn unwritten_piece(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        (piece, location): (ChunkIndex, &PieceLocation),
        is_shown: bool,
    ) -> Result<Option<(Piece, Basis)>> {
        let (current, version) = self.reader()?.versioned_piece(context, piece, location)?;
        let (indices, digest) = (decoder.pieces.indices(piece), current.digest());
        if is_shown && self.dirty.writers().has_shown_other(&indices, digest) {
            return Ok(None);
        }
        Ok(Some((current, Basis::Stored(version, digest))))
    }

    /// Returns a copy of a piece that no reader shares.
    fn editable(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        location: &PieceLocation,
        current: Piece,
    ) -> Result<Decoded> {
        let pipeline = decoder.pipeline_of(ChunkIndex(location.stored))?;
        let length = pipeline.chunk_bytes();
        match current {
            Piece::Data(current) => {
                self.reader()?.forget(piece);
                match Arc::try_unwrap(current) {
                    Ok(piece) => Ok(piece.into_dirty()),
                    Err(shared) => Ok(Decoded::dirty(
                        shared.bytes().to_vec(),
                        self.reserve(length as u64 + PIECE_OVERHEAD)?,
                    )),
                }
            }
            Piece::Fill => {
                let room = self.reserve(length as u64 + PIECE_OVERHEAD)?;
                let fill = &self.metadata.fill_value.bytes;
                let bytes = if fill.iter().all(|&byte| byte == 0) {
                    vec![0; length]
                } else {
                    fill.repeat(length / fill.len().max(1))
                };
                Ok(Decoded::dirty(bytes, room))
            }
        }
    }
}

impl Engine {
    /// Registers an array that has something to be stored.
    pub(super) fn note_writer(&self, array: &Arc<OpenArray>) {
        let mut writers = self.writers();
        let is_known = |known: &Weak<OpenArray>| known.as_ptr() == Arc::as_ptr(array);
        if array.dirty.is_empty() || !writers.iter().any(is_known) {
            writers.retain(|writer| {
                let writer = writer.upgrade();
                writer.is_some_and(|writer| !writer.dirty.is_empty() && writer.id != array.id)
            });
            writers.push(Arc::downgrade(array));
        }
    }

    /// Returns how many pieces are read at a time that are written in part, so that all of them are far from filling the
    /// memory.
    fn writers_at_once(&self, decoder: &Decoder) -> usize {
        let length = decoder.pipeline.chunk_bytes() as u64;
        let most = self.limits.memory / DIRTY_SHARE / length.saturating_mul(COPIES).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        most.clamp(1, self.encoders)
    }

    /// Stores the chunks that were written longest ago until written pieces hold no more than their share of the
    /// memory. A chunk that cannot be stored stays, and `OpenArray::flush` returns the error; once pieces hold twice
    /// their share, it is returned here. The chunk `kept` is left out: its writer will go on.
    fn make_room(
        &self,
        context: &RequestContext,
        writer: &OpenArray,
        kept: &Coordinates,
    ) -> Result<()> {
        let share = self.limits.memory / DIRTY_SHARE;
        while self.dirty_bytes.bytes() > share {
            let Some((array, chunk)) = self.oldest(writer, kept, false) else {
                break;
            };
            // The failure is noted with the chunk.
            let _ = array.flush_alone(context, &chunk);
        }
        while self.dirty_bytes.bytes() > share.saturating_mul(2) {
            match self.oldest(writer, kept, true) {
                Some((array, chunk)) => array.flush_alone(context, &chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the chunk of any array that was written longest ago; chunks that could not be stored only
    /// `with_failed`.
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
            let (touched, chunk) = array.dirty.oldest(kept, with_failed)?;
            Some((touched, array, chunk))
        });
        let (_, array, chunk) = oldest.min_by_key(|(touched, ..)| *touched)?;
        Some((array, chunk))
    }
}
