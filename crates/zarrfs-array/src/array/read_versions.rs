//! Records the version of the stored chunk of each chunk in a read.
//!
//! Chunks come from memory, from disk and from the store one after another, and another program may replace their shard
//! in between. If chunks of a read came from different versions of one stored chunk, the read is retried, and in the
//! end fails with `Changed`.

use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Version;

/// The chunks of a read. Of consecutive chunks in the same version of one stored chunk only the first is recorded.
#[derive(Default)]
pub(super) struct ReadVersions(Vec<ReadChunk>);

/// A chunk of a read.
#[derive(Clone, Copy)]
pub(super) struct ReadChunk {
    pub(super) chunk: ChunkIndex,
    content: ChunkContent,
}

/// The content of the stored chunk that a chunk belongs to.
#[derive(Clone, Copy)]
pub(super) enum ChunkContent {
    /// A dirty chunk, which belongs to any content.
    Dirty,
    /// The content of this version.
    Stored(Version),
    /// A content that lacks the chunk.
    Missing,
}

impl ChunkContent {
    /// Returns the content that a chunk belongs to.
    pub(super) fn of(chunk: &Chunk) -> ChunkContent {
        match chunk {
            Chunk::Data(decoded) if decoded.is_written() => ChunkContent::Dirty,
            Chunk::Data(decoded) => ChunkContent::Stored(decoded.version),
            Chunk::Fill => ChunkContent::Missing,
        }
    }
}

impl ReadVersions {
    /// Returns the recorded chunks.
    pub(super) fn into_chunks(self) -> Vec<ReadChunk> {
        self.0
    }

    /// Records a chunk.
    pub(super) fn record(&mut self, decoder: &Decoder, chunk: ChunkIndex, content: ChunkContent) {
        // A read may take thousands of consecutive chunks from one shard: record only the first one.
        if let ChunkContent::Stored(version) = content
            && let Some(last) = self.0.last()
            && let ChunkContent::Stored(known) = last.content
            && version == known
            && decoder.stored_number(chunk) == decoder.stored_number(last.chunk)
        {
            return;
        }
        self.0.push(ReadChunk { chunk, content });
    }
}

/// The chunks of a read that are in one stored chunk.
#[derive(Default)]
pub(super) struct StoredChunkRead {
    pub(super) version: Option<Version>,
    pub(super) is_mixed: bool,
    pub(super) missing: Vec<ChunkIndex>,
}

impl StoredChunkRead {
    pub(super) fn of(chunks: &[ReadChunk]) -> StoredChunkRead {
        let mut taken = StoredChunkRead::default();
        for &ReadChunk { chunk, content } in chunks {
            match content {
                ChunkContent::Dirty => {}
                ChunkContent::Stored(version) => {
                    let first = *taken.version.get_or_insert(version);
                    taken.is_mixed |= !first.may_be(version);
                }
                ChunkContent::Missing => taken.missing.push(chunk),
            }
        }
        taken
    }
}
