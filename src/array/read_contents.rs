//! Which content of its stored chunk each piece of a read was of.
//!
//! Pieces come out of memory, from disk and from the store one after another, and another program may replace their shard
//! in between. A read whose pieces are of several contents of one stored chunk is made again, then it is `Changed`.

use std::collections::HashMap;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::Piece;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::request_context::RequestContext;
use crate::store::Version;

/// How often a read is made whose pieces were of several contents.
const MAX_READS: usize = 8;

/// The pieces that a read has taken: a stored chunk for each run of pieces of it.
#[derive(Default)]
pub(super) struct ReadContents(Vec<(u64, ChunkContents)>);

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
        let number = decoder.stored_number(piece);
        match self.0.last_mut() {
            Some((last, chunk)) if *last == number => chunk.note(piece, content),
            _ => {
                let mut chunk = ChunkContents::default();
                chunk.note(piece, content);
                self.0.push((number, chunk));
            }
        }
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
    fn note(&mut self, piece: ChunkIndex, content: PieceContent) {
        match content {
            PieceContent::Written => {}
            PieceContent::Stored(version) => self.note_version(version),
            PieceContent::Lacking => self.lacking.push(piece),
        }
    }

    fn note_version(&mut self, version: Version) {
        let first = *self.version.get_or_insert(version);
        self.is_mixed |= !first.may_be(version);
    }

    /// Adds other pieces of the same stored chunk.
    fn add(&mut self, other: ChunkContents) {
        other
            .version
            .into_iter()
            .for_each(|version| self.note_version(version));
        self.is_mixed |= other.is_mixed;
        self.lacking.extend(other.lacking);
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
        contents: ReadContents,
    ) -> Result<bool> {
        match contents.0.as_slice() {
            [] => return Ok(true),
            [(_, only)] if !only.is_mixed && only.lacking.is_empty() => return Ok(true),
            _ => {}
        }
        let mut chunks: HashMap<u64, ChunkContents> = HashMap::new();
        for (number, chunk) in contents.0 {
            chunks.entry(number).or_default().add(chunk);
        }
        for (number, chunk) in chunks {
            let pieces = chunk.lacking.len() + usize::from(chunk.version.is_some());
            let may_differ = pieces > 1 && !chunk.lacking.is_empty();
            if chunk.is_mixed
                || may_differ
                    && !self.lacks(context, decoder, number, (chunk.version, &chunk.lacking))?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
