//! Assembles a byte range of a decoded file from the chunks that it covers.
//!
//! Runs of bytes are copied from each chunk into the answer: from memory, or directly from an uncompressed stored chunk
//! or the spill file. If the whole range is inside one chunk in memory, the answer shares the chunk's memory.

use std::ops::Range;

use crate::array::chunk::{Chunk, Source};
use crate::array::chunk_reader::ChunkReader;
use crate::array::file_layout::{ChunkSlice, FileLayout, in_buffer};
use crate::array::open_chunk::OpenChunk;
use crate::array::read_versions::{ChunkContent, ReadVersions};
use zarr_format::error::Result;
use zarr_format::grid::{ChunkIndex, Runs};
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// A callback that tests run while bytes of a chunk are being copied.
#[cfg(test)]
pub(super) type WhileCopying = Option<Box<dyn Fn() + Send + Sync>>;

pub(super) struct Assembler<'a> {
    pub(super) reader: &'a ChunkReader,
    pub(super) layout: &'a FileLayout,
    pub(super) context: &'a RequestContext,
    #[cfg(test)]
    pub(super) while_copying: &'a WhileCopying,
}

impl Assembler<'_> {
    /// Assembles the bytes of a range from the parts of its chunks; a range inside one chunk in memory is shared, not
    /// copied.
    pub(super) fn assemble(
        &self,
        range: &Range<u64>,
        slices: &[ChunkSlice],
        mut contents: Option<&mut ReadVersions>,
        mut source: impl FnMut(ChunkIndex) -> Result<Source>,
    ) -> Result<ReadBytes> {
        let size = self.layout.element as u64;
        let elements = self.layout.elements(range);
        let first = elements.start * size;
        let wanted = in_buffer(range.start - first)..in_buffer(range.end - first);
        let mut out = None;
        for group in slices.chunk_by(ChunkSlice::is_of_same_chunk) {
            let Some(chunk) = group.first().map(|slice| slice.chunk) else {
                continue;
            };
            let source = source(chunk)?;
            for slice in group {
                let runs = self
                    .layout
                    .runs(&self.reader.decoder.grid, &elements, slice);
                if let (Source::Chunk(Chunk::Data(decoded)), [_], Some(run)) =
                    (&source, slices, runs.single())
                {
                    let range = run.start + wanted.start..run.start + wanted.end;
                    if let Some(contents) = contents {
                        let content = ChunkContent::of(&Chunk::Data(decoded.clone()));
                        contents.record(&self.reader.decoder, chunk, content);
                    }
                    return Ok(ReadBytes::Shared(decoded.clone(), range));
                }
                let length = in_buffer(elements.end * size - first);
                let out = out.get_or_insert_with(|| self.reader.decoder.answer_buffer(length));
                #[cfg(test)]
                self.while_copying.iter().for_each(|called| called());
                let content = self.copy(&source, chunk, &runs, out)?;
                if let Some(contents) = contents.as_deref_mut() {
                    contents.record(&self.reader.decoder, chunk, content);
                }
            }
        }
        let mut out = out.unwrap_or_default();
        self.reader
            .array
            .engine
            .stats
            .copied_bytes
            .add(out.len() as u64);
        out.cut(wanted);
        Ok(ReadBytes::Own(out))
    }

    /// Copies byte runs of a chunk into the answer; returns which content of the stored chunk they came from.
    fn copy(
        &self,
        source: &Source,
        chunk: ChunkIndex,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<ChunkContent> {
        match source {
            Source::Chunk(found) => {
                match found {
                    Chunk::Data(decoded) => runs.copy(decoded.bytes(), out),
                    Chunk::Fill => runs.fill(&self.reader.array.metadata.fill_value.bytes, out),
                }
                Ok(ChunkContent::of(found))
            }
            Source::Stored => self.copy_stored(chunk, runs, out),
            Source::Spilled(version) => self.copy_spilled(chunk, *version, runs, out),
        }
    }

    /// Copies byte runs from the file of an uncompressed stored chunk, without caching them: the kernel's page cache
    /// has the file.
    fn copy_stored(&self, chunk: ChunkIndex, runs: &Runs, out: &mut [u8]) -> Result<ChunkContent> {
        let length = self.reader.decoder.pipeline_of(chunk)?.chunk_bytes();
        let read = |stored: &OpenChunk| {
            let version = stored.meta.version;
            stored
                .scatter(self.context, runs, length, out)
                .map(|()| version)
        };
        match self.reader.open.read(self.context, chunk.0, read)? {
            Some(version) => Ok(ChunkContent::Stored(version)),
            None => {
                runs.fill(&self.reader.array.metadata.fill_value.bytes, out);
                Ok(ChunkContent::Missing)
            }
        }
    }

    /// Copies byte runs of a chunk from the spill file, without loading the chunk into memory.
    fn copy_spilled(
        &self,
        chunk: ChunkIndex,
        version: Version,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<ChunkContent> {
        let decoder = &self.reader.decoder;
        let pipeline = decoder.pipeline_of(ChunkIndex(decoder.stored_number(chunk)))?;
        let length = pipeline.chunk_bytes();
        // If less than 1/8 of the bytes from the first run to the last are wanted, reading all of these bytes costs
        // more than loading the whole chunk.
        let is_dense = runs.span().len() <= 8 * runs.bytes();
        let spill = self.reader.array.engine.spill.as_ref().filter(|_| is_dense);
        let key = self.reader.array.chunk_key(chunk);
        if spill.is_some_and(|spill| spill.read_runs(&key, version, length, runs, out)) {
            return Ok(ChunkContent::Stored(version));
        }
        let loaded = Source::Chunk(self.reader.get(self.context, chunk)?);
        self.copy(&loaded, chunk, runs, out)
    }
}
