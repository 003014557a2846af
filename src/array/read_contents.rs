//! Which content of its stored chunk each piece of a read was of.
//!
//! Pieces come out of memory, from disk and from the store one after another, and another program may replace their shard
//! in between. A read whose pieces are of several contents of one stored chunk is made again, then it is `Changed`.

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::Piece;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::request_context::RequestContext;
use crate::store::Version;

/// How often a read is made whose pieces were of several contents.
const MAX_READS: usize = 8;

/// The pieces that a read has taken, but for those that were of the same content as the one before.
#[derive(Default)]
pub(super) struct ReadContents(Vec<(ChunkIndex, PieceContent)>);

/// Which content of the stored chunk a piece was of.
#[derive(Clone, Copy)]
pub(super) enum PieceContent {
    /// What was written here and is not stored yet: it belongs to any content.
    Written,
    /// The one of this version.
    Stored(Version),
    /// One that does not have the piece.
    Lacking,
}

impl PieceContent {
    /// Returns the content that a piece is of.
    pub(super) fn of(piece: &Piece) -> PieceContent {
        match piece {
            Piece::Data(decoded) if decoded.is_written() => PieceContent::Written,
            Piece::Data(decoded) => PieceContent::Stored(decoded.version),
            Piece::Fill => PieceContent::Lacking,
        }
    }
}

impl ReadContents {
    /// Notes a piece that was taken.
    pub(super) fn note(&mut self, decoder: &Decoder, piece: ChunkIndex, content: PieceContent) {
        // Shards have thousands of pieces that follow each other.
        if let PieceContent::Stored(version) = content
            && let Some(&(last, PieceContent::Stored(known))) = self.0.last()
            && version == known
            && decoder.stored_number(piece) == decoder.stored_number(last)
        {
            return;
        }
        self.0.push((piece, content));
    }
}

/// The pieces that a read has taken of one stored chunk.
#[derive(Default)]
struct ChunkContents {
    version: Option<Version>,
    is_mixed: bool,
    lacking: Vec<ChunkIndex>,
}

impl ChunkContents {
    fn of(pieces: &[(ChunkIndex, PieceContent)]) -> ChunkContents {
        let mut chunk = ChunkContents::default();
        for &(piece, content) in pieces {
            match content {
                PieceContent::Written => {}
                PieceContent::Stored(version) => {
                    let first = *chunk.version.get_or_insert(version);
                    chunk.is_mixed |= !first.may_be(version);
                }
                PieceContent::Lacking => chunk.lacking.push(piece),
            }
        }
        chunk
    }
}

impl OpenArray {
    /// Makes a read that notes its pieces; again if these were of several contents of one stored chunk, and fails with
    /// `Changed` if they are each time.
    pub(super) fn read_one_content<T>(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        mut read: impl FnMut(&mut ReadContents) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..MAX_READS {
            let mut contents = ReadContents::default();
            let found = read(&mut contents)?;
            if self.are_of_one(context, decoder, contents)? {
                return Ok(found);
            }
        }
        let why = "a chunk is replaced each time it is read";
        Err(Error::new(Kind::Changed, &self.path, why))
    }

    /// Whether the pieces of each stored chunk were of one content.
    fn are_of_one(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        ReadContents(mut pieces): ReadContents,
    ) -> Result<bool> {
        if pieces.len() < 2 {
            return Ok(true);
        }
        let number = |&(piece, _): &(ChunkIndex, PieceContent)| decoder.stored_number(piece);
        pieces.sort_by_key(number);
        for pieces in pieces.chunk_by(|one, other| number(one) == number(other)) {
            let [first, _, ..] = pieces else { continue };
            let chunk = ChunkContents::of(pieces);
            let kinds = chunk.lacking.len() + usize::from(chunk.version.is_some());
            let may_differ = kinds > 1 && !chunk.lacking.is_empty();
            let found = (chunk.version, chunk.lacking.as_slice());
            let differ = may_differ && !self.lacks(context, decoder, number(first), found)?;
            if chunk.is_mixed || differ {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
