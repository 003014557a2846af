//! Records the version of the stored chunk of each chunk in a read.
//!
//! Chunks come from memory, from disk and from the store one after another, and another program may replace their shard
//! in between. A read whose chunks are of several versions of one stored chunk is retried, and then fails with
//! `Changed`.

use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Version;

/// The chunks of a read, without those of the same version as the one before.
#[derive(Default)]
pub(super) struct ReadContents(Vec<(ChunkIndex, ChunkContent)>);

/// The content of the stored chunk that a chunk belongs to.
#[derive(Clone, Copy)]
pub(super) enum ChunkContent {
    /// A dirty chunk, which belongs to any content.
    Written,
    /// The content of this version.
    Stored(Version),
    /// A content that lacks the chunk.
    Lacking,
}

impl ChunkContent {
    /// Returns the content that a chunk belongs to.
    pub(super) fn of(chunk: &Chunk) -> ChunkContent {
        match chunk {
            Chunk::Data(decoded) if decoded.is_written() => ChunkContent::Written,
            Chunk::Data(decoded) => ChunkContent::Stored(decoded.version),
            Chunk::Fill => ChunkContent::Lacking,
        }
    }
}

impl ReadContents {
    /// Returns the recorded chunks.
    pub(super) fn into_chunks(self) -> Vec<(ChunkIndex, ChunkContent)> {
        self.0
    }

    /// Records a chunk.
    pub(super) fn note(&mut self, decoder: &Decoder, chunk: ChunkIndex, content: ChunkContent) {
        // Shards have thousands of chunks in a row.
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

/// The chunks of a read that are in one stored chunk.
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
