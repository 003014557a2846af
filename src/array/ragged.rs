//! A box of an array whose elements have no fixed length, read as a whole.
//!
//! Where an element lies is known only after all before it were read, so the box is put together once, when
//! a file of it is opened, and held in memory that counts against the budget. A box that needs more than
//! half of the budget is refused.

use std::ops::Range;

use crate::array::OpenArray;
use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use crate::cache::Permit;
use crate::error::Error;
use crate::error::Result;
use crate::grid::ChunkIndex;
use crate::grid::Region;
use crate::model::DataType;
use crate::model::bytes_of;

/// Bytes of the count before an element.
const COUNT: usize = 4;

/// Elements in C order, each a count (u32, little-endian) and its bytes.
pub struct Records {
    data_type: DataType,
    bytes: Vec<u8>,
    len: usize,
    limit: u64,
    _room: Permit,
}

impl Records {
    /// Returns the type of the elements.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the elements with their counts.
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

    /// Returns the most bytes that a file made of these may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the elements one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (element, after) = split(rest)?;
            rest = after;
            Some(element)
        })
    }
}

/// Splits the first element off.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<COUNT>()?;
    rest.split_at_checked(u32::from_le_bytes(*count) as usize)
}

/// A piece and where its elements lie in it.
struct Indexed {
    piece: ChunkIndex,
    chunk: Chunk,
    places: Vec<Range<usize>>,
}

impl OpenArray {
    /// Reads a box; `TooLarge` if its elements need more than half of the budget, `Corrupt` if a chunk does
    /// not have as many elements as it should.
    pub fn records(&self, region: &Region) -> Result<Records> {
        let decoder = self.decoder()?;
        self.check_metadata()?;
        let limit = self.engine.limits.memory / 2;
        let too_large = || {
            let found = format!("its elements need more than {limit} bytes, half of --memory");
            Error::too_large(&self.found.path, found)
        };
        let len = usize::try_from(bytes_of(&region.shape, 1)?).map_err(|_| too_large())?;
        if len as u64 > limit / COUNT as u64 {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        for slab in slabs(region, decoder) {
            self.add_slab(decoder, &slab, &mut bytes)?;
            if bytes.len() as u64 > limit {
                return Err(too_large());
            }
        }
        Ok(Records {
            data_type: self.array.data_type.clone(),
            _room: self.room(bytes.len() as u64)?,
            bytes,
            len,
            limit,
        })
    }

    /// Takes room in the budget for what is held of this array.
    pub fn room(&self, bytes: u64) -> Result<Permit> {
        let room = self.engine.cache.reserve(bytes, self.engine.deadline());
        room.map_err(|error| error.about(&self.found.path))
    }

    /// Appends the elements of a slab, which lies in one row of pieces along the first axis.
    fn add_slab(&self, decoder: &Decoder, slab: &Region, out: &mut Vec<u8>) -> Result<()> {
        let mut pieces = Vec::new();
        let mut numbers = Vec::new();
        decoder.pieces.visit(slab, |piece, _, _| {
            numbers.push(piece);
            true
        });
        for piece in numbers {
            pieces.push(self.indexed(decoder, piece)?);
        }
        let fill = &self.array.fill_value.bytes;
        let mut at = slab.start.clone();
        loop {
            let (piece, place) = decoder.pieces.locate(&at);
            let found = pieces.binary_search_by_key(&piece, |indexed| indexed.piece);
            let indexed = found.ok().and_then(|found| pieces.get(found));
            match indexed.map(|indexed| (&indexed.chunk, indexed.places.get(place))) {
                Some((Chunk::Data(decoded), Some(range))) => {
                    out.extend_from_slice(decoded.bytes().get(range.clone()).unwrap_or_default());
                }
                _ => {
                    out.extend((fill.len() as u32).to_le_bytes());
                    out.extend_from_slice(fill);
                }
            }
            if !slab.step(&mut at) {
                return Ok(());
            }
        }
    }

    fn indexed(&self, decoder: &Decoder, piece: ChunkIndex) -> Result<Indexed> {
        let chunk = self.piece(decoder, piece)?;
        let mut places = Vec::new();
        if let Chunk::Data(decoded) = &chunk {
            let count: u64 = decoder.pieces.shape_of(piece).iter().product();
            let mut rest = decoded.bytes();
            let whole = rest.len();
            while let Some((_, after)) = split(rest) {
                places.push(whole - rest.len()..whole - after.len());
                rest = after;
            }
            if places.len() as u64 != count || !rest.is_empty() {
                let found = format!("expected {count} elements, found {}", places.len());
                return Err(Error::corrupt(&self.found.path, found));
            }
        }
        Ok(Indexed {
            piece,
            chunk,
            places,
        })
    }

    /// Returns the length of a file of this content that was opened before.
    pub fn remembered_length(&self, file: &str) -> Option<u64> {
        let lengths = self.lengths();
        let (content, length) = lengths.get(file)?;
        (*content == self.content_now()).then_some(*length)
    }

    /// Remembers the length of a file that was put together.
    pub fn remember_length(&self, file: String, length: u64) {
        let mut lengths = self.lengths();
        if lengths.len() >= MOST_LENGTHS {
            lengths.clear();
        }
        lengths.insert(file, (self.content_now(), length));
    }
}

/// The most files of an array whose lengths are remembered.
const MOST_LENGTHS: usize = 1 << 12;

/// Cuts a box where rows of pieces along the first axis meet.
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
