//! Assembles the bytes of a range out of the pieces under it.
//!
//! Runs of bytes are copied from each piece into the answer: out of memory, or straight from an uncompressed stored chunk
//! or a piece on disk. A range inside one piece in memory is not copied at all.

use std::ops::Range;

use crate::array::chunk_reader::ChunkReader;
use crate::array::chunk_slice::ChunkSlice;
use crate::array::file_layout::{FileLayout, in_buffer};
use crate::array::open_chunk::StoredChunk;
use crate::array::piece::Piece;
use crate::array::read_contents::{PieceContent, ReadContents};
use crate::error::Result;
use crate::grid::{ChunkIndex, Runs};
use crate::request_context::RequestContext;
use crate::store::Version;
use crate::sync::read_bytes::ReadBytes;

/// How many times what is wanted of a piece on disk is read of it at most; else it is taken into memory.
const MAX_SPREAD: usize = 8;

/// Where the bytes of a part come from.
pub(super) enum Source {
    /// A piece in memory.
    Piece(Piece),
    /// The stored chunk itself.
    Stored,
    /// A piece of this version on disk.
    Spilled(Version),
}

/// What is called in the middle of a copy.
#[cfg(test)]
pub(super) type WhileCopying = Option<Box<dyn Fn() + Send + Sync>>;

/// Assembles the answers of one request for bytes of a file.
pub(super) struct Assembler<'a> {
    pub(super) chunks: &'a ChunkReader,
    pub(super) layout: &'a FileLayout,
    pub(super) context: &'a RequestContext,
    #[cfg(test)]
    pub(super) while_copying: &'a WhileCopying,
}

impl Assembler<'_> {
    /// Puts the bytes of a range together out of its parts; a range inside one piece stays where it is.
    pub(super) fn assemble(
        &self,
        range: &Range<u64>,
        parts: &[ChunkSlice],
        contents: &mut ReadContents,
        mut source: impl FnMut(ChunkIndex) -> Result<Source>,
    ) -> Result<ReadBytes> {
        let size = self.layout.element as u64;
        let elements = self.layout.elements(range);
        let first = elements.start * size;
        let wanted = in_buffer(range.start - first)..in_buffer(range.end - first);
        let mut out = None;
        for group in parts.chunk_by(ChunkSlice::is_of_same_piece) {
            let Some(piece) = group.first().map(|part| part.piece) else {
                continue;
            };
            let source = source(piece)?;
            for part in group {
                let runs = self
                    .layout
                    .runs(&self.chunks.decoder.pieces, &elements, part);
                if let (Source::Piece(Piece::Data(decoded)), [_], Some(run)) =
                    (&source, parts, runs.single())
                {
                    let range = run.start + wanted.start..run.start + wanted.end;
                    let content = PieceContent::of(&Piece::Data(decoded.clone()));
                    contents.note(&self.chunks.decoder, piece, content);
                    return Ok(ReadBytes::Shared(decoded.clone(), range));
                }
                let length = in_buffer(elements.end * size - first);
                let out = out.get_or_insert_with(|| self.chunks.decoder.answer_buffer(length));
                #[cfg(test)]
                self.while_copying.iter().for_each(|called| called());
                let content = self.copy(&source, piece, &runs, out)?;
                contents.note(&self.chunks.decoder, piece, content);
            }
        }
        let mut out = out.unwrap_or_default();
        self.chunks
            .array
            .engine
            .stats
            .copied_bytes
            .add(out.len() as u64);
        out.cut(wanted);
        Ok(ReadBytes::Own(out))
    }

    /// Copies runs out of a piece; returns which content it is of.
    fn copy(
        &self,
        source: &Source,
        piece: ChunkIndex,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<PieceContent> {
        match source {
            Source::Piece(found) => {
                match found {
                    Piece::Data(decoded) => runs.copy(decoded.bytes(), out),
                    Piece::Fill => runs.fill(&self.chunks.array.metadata.fill_value.bytes, out),
                }
                Ok(PieceContent::of(found))
            }
            Source::Stored => self.copy_stored(piece, runs, out),
            Source::Spilled(version) => self.copy_spilled(piece, *version, runs, out),
        }
    }

    /// Copies runs out of an uncompressed chunk without keeping it: the kernel caches the file that it is.
    fn copy_stored(&self, piece: ChunkIndex, runs: &Runs, out: &mut [u8]) -> Result<PieceContent> {
        let length = self.chunks.decoder.pipeline_of(piece)?.chunk_bytes();
        let read = |stored: &StoredChunk| {
            let version = stored.meta.version;
            stored
                .scatter(self.context, runs, length, out)
                .map(|()| version)
        };
        match self.chunks.open.read(self.context, piece.0, read)? {
            Some(version) => Ok(PieceContent::Stored(version)),
            None => {
                runs.fill(&self.chunks.array.metadata.fill_value.bytes, out);
                Ok(PieceContent::Lacking)
            }
        }
    }

    /// Copies runs out of a piece on disk without having it in memory.
    fn copy_spilled(
        &self,
        piece: ChunkIndex,
        version: Version,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<PieceContent> {
        let length = self
            .chunks
            .decoder
            .pipeline_of(ChunkIndex(self.chunks.decoder.stored_number(piece)))?;
        let content = (version, length.chunk_bytes());
        let is_dense = runs.span().len() <= MAX_SPREAD * runs.bytes();
        let spill = self.chunks.array.engine.spill.as_ref().filter(|_| is_dense);
        let key = (self.chunks.array.id, piece.0);
        if spill.is_some_and(|spill| spill.find_runs(&key, content, runs, out)) {
            return Ok(PieceContent::Stored(version));
        }
        let loaded = Source::Piece(self.chunks.piece(self.context, piece)?);
        self.copy(&loaded, piece, runs, out)
    }
}
