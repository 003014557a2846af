//! Which content of its stored chunk each piece of a read was of.
//!
//! Pieces come out of memory, from disk and from the store one after another, and another program may replace their shard
//! in between. A read whose pieces are of several contents of one stored chunk is made again, then it is `Changed`.

use crate::array::decoder::Decoder;
use crate::array::piece::Piece;
use crate::grid::ChunkIndex;
use crate::store::Version;

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
    /// Returns the pieces that were taken.
    pub(super) fn into_pieces(self) -> Vec<(ChunkIndex, PieceContent)> {
        self.0
    }

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
pub(super) struct ChunkContents {
    pub(super) version: Option<Version>,
    pub(super) is_mixed: bool,
    pub(super) lacking: Vec<ChunkIndex>,
}

impl ChunkContents {
    pub(super) fn of(pieces: &[(ChunkIndex, PieceContent)]) -> ChunkContents {
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
