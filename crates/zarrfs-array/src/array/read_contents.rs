//! Notes which content of its stored chunk each chunk of a read is of.
//!
//! Chunks come out of memory, from disk and from the store one after another, and another program may replace their shard
//! in between. A read whose chunks are of several contents of one stored chunk is made again, then it is `Changed`.

use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Version;

/// The chunks that a read has taken, but for those that were of the same content as the one before.
#[derive(Default)]
pub(super) struct ReadContents(Vec<(ChunkIndex, ChunkContent)>);

/// Which content of the stored chunk a chunk was of.
#[derive(Clone, Copy)]
pub(super) enum ChunkContent {
    /// What was written here and is not stored yet: it belongs to any content.
    Written,
    /// The one of this version.
    Stored(Version),
    /// One that does not have the chunk.
    Lacking,
}

impl ChunkContent {
    /// Returns the content that a chunk is of.
    pub(super) fn of(chunk: &Chunk) -> ChunkContent {
        match chunk {
            Chunk::Data(decoded) if decoded.is_written() => ChunkContent::Written,
            Chunk::Data(decoded) => ChunkContent::Stored(decoded.version),
            Chunk::Fill => ChunkContent::Lacking,
        }
    }
}

impl ReadContents {
    /// Returns the chunks that were taken.
    pub(super) fn into_chunks(self) -> Vec<(ChunkIndex, ChunkContent)> {
        self.0
    }

    /// Notes a chunk that was taken.
    pub(super) fn note(&mut self, decoder: &Decoder, chunk: ChunkIndex, content: ChunkContent) {
        // Shards have thousands of chunks that follow each other.
        if let ChunkContent::Stored(version) = content
            && let Some(&(last, ChunkContent::Stored(known))) = self.0.last()
            && version == known
            && decoder.stored_number(chunk) == decoder.stored_number(last)
        {
            return;
        }
        self.0.push((chunk, content));
    }
}

/// The chunks that a read has taken of one stored chunk.
#[derive(Default)]
pub(super) struct TakenChunks {
    pub(super) version: Option<Version>,
    pub(super) is_mixed: bool,
    pub(super) lacking: Vec<ChunkIndex>,
}

impl TakenChunks {
    pub(super) fn of(chunks: &[(ChunkIndex, ChunkContent)]) -> TakenChunks {
        let mut taken = TakenChunks::default();
        for &(chunk, content) in chunks {
            match content {
                ChunkContent::Written => {}
                ChunkContent::Stored(version) => {
                    let first = *taken.version.get_or_insert(version);
                    taken.is_mixed |= !first.may_be(version);
                }
                ChunkContent::Lacking => taken.lacking.push(chunk),
            }
        }
        taken
    }
}
