//! A box of an array whose elements have no fixed length, read as a whole.
//!
//! Where an element lies is known only after all before it were read, so the box is put together once, when a file of
//! it is opened, in memory that is reserved first. A box that needs more than half of the budget, together with the
//! row of chunks that is being read, is refused.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::Piece;
use crate::array::ragged_ahead::RaggedAhead;
use crate::array::read_contents::{PieceContent, ReadContents};
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Region};
use crate::model::{DataType, bytes_of};
use crate::request_context::RequestContext;
use crate::sync::budget::Reservation;

/// Bytes of the length before an element.
const PREFIX: usize = 4;

/// Elements in C order, each its length in bytes (u32, little-endian) and its bytes.
pub struct RaggedElements {
    data_type: DataType,
    bytes: ReservedBytes,
    len: usize,
}

impl RaggedElements {
    /// Returns the type of the elements.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the elements with their lengths.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the elements with their lengths, without a copy.
    pub fn into_bytes(self) -> ReservedBytes {
        self.bytes
    }

    /// Returns where the element lies that begins at byte `start`, without its length; an empty range at the end.
    pub fn after(&self, start: usize) -> Range<usize> {
        let rest = self.bytes().get(start..).and_then(split);
        rest.map_or(start..start, |(element, after)| {
            let end = self.bytes().len() - after.len();
            end - element.len()..end
        })
    }

    /// Returns the elements one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (element, after) = split(rest)?;
            rest = after;
            Some(element)
        })
    }
}

/// Splits the first element off; returns it without its length, and the rest.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<PREFIX>()?;
    rest.split_at_checked(u32::from_le_bytes(*count) as usize)
}

/// A piece whose elements are taken in order.
struct Cursor {
    piece: ChunkIndex,
    chunk: Piece,
    /// Number of elements that were passed.
    passed: usize,
    /// Where the next one begins.
    offset: usize,
}

impl Cursor {
    /// Returns element number `wanted` of the piece with its length; nothing if it is the fill value. Numbers must
    /// ascend from call to call.
    fn element(&mut self, wanted: usize) -> Option<Result<&[u8]>> {
        let Piece::Data(decoded) = &self.chunk else {
            return None;
        };
        let mut rest = decoded.bytes().get(self.offset..).unwrap_or_default();
        loop {
            let Some((_, after)) = split(rest) else {
                let found = format!("expected an element {wanted}, found {}", self.passed);
                return Some(Err(Error::corrupt("", found)));
            };
            let length = rest.len() - after.len();
            (self.passed, self.offset) = (self.passed + 1, self.offset + length);
            if self.passed > wanted {
                return Some(Ok(&rest[..length]));
            }
            rest = after;
        }
    }
}

/// Bytes and the room that they take in the budget.
#[derive(Default)]
pub struct ReservedBytes {
    bytes: Vec<u8>,
    room: Vec<Reservation>,
}

impl ReservedBytes {
    /// Whether the bytes take room in the budget.
    pub fn is_counted(&self) -> bool {
        !self.room.is_empty()
    }
}

impl From<Vec<u8>> for ReservedBytes {
    /// Holds bytes that take no room in the budget.
    fn from(bytes: Vec<u8>) -> ReservedBytes {
        ReservedBytes {
            bytes,
            room: Vec::new(),
        }
    }
}

impl Deref for ReservedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes being put together; their room in the budget is taken before they are there.
pub struct Growing<'a> {
    array: &'a OpenArray,
    bytes: Vec<u8>,
    room: Vec<Reservation>,
    /// Bytes of the pieces that are held meanwhile.
    held: u64,
    limit: u64,
}

/// The least room that is taken at a time, in bytes.
const MIN_GROWTH: usize = 1 << 16;

impl Growing<'_> {
    fn too_large(&self) -> Error {
        // A file of a group has no part of this kind, and one of its arrays has.
        let name = String::from_utf8_lossy(self.array.path.name());
        let found = format!(
            "its elements need more than {} bytes, half of --memory: give more, or take a part, as {name}@0:1000 does",
            self.limit
        );
        Error::too_large(&self.array.path, found)
    }

    /// Returns the most bytes that there may be.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// `TooLarge` if so many more bytes are too many.
    pub fn check_room(&self, more: u64) -> Result<()> {
        let length = (self.bytes.len() as u64).saturating_add(more);
        if length.saturating_add(self.held) > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Counts a piece that is held.
    fn hold(&mut self, bytes: u64) -> Result<()> {
        self.held += bytes;
        if self.held + self.bytes.len() as u64 > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Appends bytes; `TooLarge` if they and the pieces that are held need more than half of the budget.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let (length, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if length as u64 + self.held > self.limit {
            return Err(self.too_large());
        }
        if length > capacity {
            let grown = length.max(capacity + (capacity / 2).max(MIN_GROWTH));
            let grown = grown.min(usize::try_from(self.limit).unwrap_or(usize::MAX));
            self.room
                .push(self.array.reserve((grown - capacity) as u64)?);
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns what was put together.
    pub fn finish(self) -> ReservedBytes {
        ReservedBytes {
            bytes: self.bytes,
            room: self.room,
        }
    }
}

impl OpenArray {
    /// Reads a box; `TooLarge` if its elements and a row of its chunks need more than half of the budget,
    /// `Corrupt` if a chunk does not have as many elements as it should.
    pub fn records(
        self: &Arc<OpenArray>,
        context: &RequestContext,
        region: &Region,
    ) -> Result<RaggedElements> {
        let decoder = self.decoder()?;
        self.check_metadata(context)?;
        let len = self.element_count(region)?;
        let slabs = slabs(region, decoder);
        let growing = self
            .reader()?
            .read_one_content(context, |contents: &mut ReadContents| {
                let mut growing = self.growing();
                let mut ahead = RaggedAhead::new(self, decoder, &slabs);
                for slab in &slabs {
                    let pieces = self.pieces_of(context, &mut ahead, slab, &mut growing)?;
                    for cursor in &pieces {
                        contents.note(decoder, cursor.piece, PieceContent::of(&cursor.chunk));
                    }
                    self.add_slab((decoder, pieces), slab, &mut growing)?;
                }
                Ok(growing)
            })?;
        self.check_store()?;
        Ok(RaggedElements {
            data_type: self.metadata.data_type.clone(),
            bytes: growing.finish(),
            len,
        })
    }

    /// Returns the number of elements of a box; `TooLarge` if even empty ones need more than half of the budget.
    pub(super) fn element_count(&self, region: &Region) -> Result<usize> {
        let growing = self.growing();
        let count = usize::try_from(bytes_of(&region.shape, 1)?).ok();
        let most = growing.limit / PREFIX as u64;
        let count = count.filter(|&count| count as u64 <= most);
        count.ok_or_else(|| growing.too_large())
    }

    /// Begins to put bytes together, of at most half of the budget.
    pub fn growing(&self) -> Growing<'_> {
        Growing {
            array: self,
            bytes: Vec::new(),
            room: Vec::new(),
            held: 0,
            limit: self.engine.limits.memory / 2,
        }
    }

    /// Appends the elements of a slab, which lies in one row of pieces along the first axis.
    fn add_slab(
        &self,
        (decoder, mut pieces): (&Decoder, Vec<Cursor>),
        slab: &Region,
        out: &mut Growing,
    ) -> Result<()> {
        let fill = &self.metadata.fill_value.bytes;
        let length =
            u32::try_from(fill.len()).map_err(|error| Error::too_large(&self.path, error))?;
        let fill = [&length.to_le_bytes(), fill.as_slice()].concat();
        let mut at = slab.start.clone();
        loop {
            let (piece, number) = decoder.pieces.locate(&at);
            let found = pieces.binary_search_by_key(&piece, |cursor| cursor.piece);
            let cursor = found.ok().and_then(|found| pieces.get_mut(found));
            let cursor = cursor.ok_or_else(|| Error::invalid(&self.path, "no such chunk"))?;
            match cursor.element(number) {
                Some(element) => out.push(element.map_err(|error| error.about(&self.path))?)?,
                None => out.push(&fill)?,
            }
            if !slab.step(&mut at) {
                out.held = 0;
                return Ok(());
            }
        }
    }

    /// Returns the pieces under a slab, by number.
    fn pieces_of(
        &self,
        context: &RequestContext,
        ahead: &mut RaggedAhead,
        slab: &Region,
        out: &mut Growing,
    ) -> Result<Vec<Cursor>> {
        let decoder = ahead.decoder;
        let mut numbers = Vec::new();
        decoder.pieces.visit(slab, |piece, _, _| {
            numbers.push(piece);
            true
        });
        let mut pieces = Vec::with_capacity(numbers.len());
        for piece in numbers {
            ahead.take();
            let chunk = self.reader()?.piece(context, piece)?;
            out.hold(self.check_count(decoder, piece, &chunk)?)?;
            pieces.push(Cursor {
                piece,
                chunk,
                passed: 0,
                offset: 0,
            });
        }
        Ok(pieces)
    }

    /// Checks that a piece has as many elements as it should; returns its length in bytes.
    fn check_count(&self, decoder: &Decoder, piece: ChunkIndex, chunk: &Piece) -> Result<u64> {
        let Piece::Data(decoded) = chunk else {
            return Ok(0);
        };
        let expected: u64 = decoder.pieces.shape_of(piece).iter().product();
        let (mut found, mut rest) = (0, decoded.bytes());
        while let Some((_, after)) = split(rest) {
            (found, rest) = (found + 1, after);
        }
        if found != expected || !rest.is_empty() {
            let found = format!("expected {expected} elements, found {found}");
            return Err(Error::corrupt(&self.path, found));
        }
        Ok(decoded.bytes().len() as u64)
    }
}

/// Cuts a box into slabs, each in one row of pieces along the first axis.
fn slabs(region: &Region, decoder: &Decoder) -> Vec<Region> {
    if region.shape.contains(&0) {
        return Vec::new();
    }
    let Some((&start, &rows)) = region.start.first().zip(region.shape.first()) else {
        return vec![region.clone()];
    };
    let mut slabs = Vec::new();
    let mut at = start;
    while at < start + rows {
        let (first, length) = decoder.pieces.span(0, decoder.pieces.chunk_at(0, at));
        let end = first.saturating_add(length).min(start + rows);
        let mut slab = region.clone();
        slab.start[0] = at;
        slab.shape[0] = end - at;
        slabs.push(slab);
        at = end;
    }
    slabs
}
