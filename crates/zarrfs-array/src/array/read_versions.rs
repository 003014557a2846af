//! Records which version of its stored chunk each chunk of a read came from.
//!
//! Chunks come from memory, from disk and from the store one after another, and another program may replace their shard
//! in between. If chunks of a read came from different versions of one stored chunk, the read is retried, and fails
//! with `Changed` after several attempts.

use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Version;

/// The chunks of a read with their versions. Of consecutive chunks in the same version of one stored chunk only the
/// first is recorded.
#[derive(Default)]
pub(super) struct ReadVersions(Vec<ReadChunk>);

#[derive(Clone, Copy)]
pub(super) struct ReadChunk {
    pub(super) chunk: ChunkIndex,
    content: ChunkContent,
}

/// Which content of its stored chunk a chunk came from.
#[derive(Clone, Copy)]
pub(super) enum ChunkContent {
    /// The chunk is dirty, so it may be read together with any version of its stored chunk.
    Dirty,
    /// The chunk was read from this version of its stored chunk.
    Stored(Version),
    /// The chunk is missing: its stored chunk is missing, or is a shard without the chunk.
    Missing,
}

impl ChunkContent {
    /// Returns which content of its stored chunk a chunk came from.
    pub(super) fn of(chunk: &Chunk) -> ChunkContent {
        match chunk {
            Chunk::Data(decoded) if decoded.is_written() => ChunkContent::Dirty,
            Chunk::Data(decoded) => ChunkContent::Stored(decoded.version),
            Chunk::Fill => ChunkContent::Missing,
        }
    }
}

impl ReadVersions {
    pub(super) fn into_chunks(self) -> Vec<ReadChunk> {
        self.0
    }

    pub(super) fn record(&mut self, decoder: &Decoder, chunk: ChunkIndex, content: ChunkContent) {
        // A read may take thousands of consecutive chunks from one shard, so only the first of them is recorded.
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
