//! The bytes of a range put together out of the pieces under it.
//!
//! Runs of bytes are copied from each piece into the answer: out of memory, or straight from an uncompressed stored chunk
//! or a piece on disk. A range inside one piece in memory is not copied at all.

use std::ops::Range;

use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::open_chunk::StoredChunk;
use crate::array::parts::Part;
use crate::array::piece::{CacheKey, Piece};
use crate::array::prefetch::PiecesBeside;
use crate::array::read_contents::{PieceContent, ReadContents};
use crate::array::read_tracker::Prediction;
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Layout, Runs, permuted};
use crate::request_context::RequestContext;
use crate::store::Version;
use crate::sync::read_bytes::ReadBytes;

/// How many times what is wanted of a piece on disk is read of it at most; else it is taken into memory.
const MAX_SPREAD: usize = 8;

/// The parts of a read, and which contents their pieces are found to be of.
pub(super) type TakenParts<'a> = (&'a [Part], &'a mut ReadContents);

/// Where the bytes of a part come from.
enum Source {
    /// A piece in memory.
    Piece(Piece),
    /// The stored chunk itself.
    Stored,
    /// A piece of this version on disk.
    Spilled(Version),
}

impl FlatFile {
    /// Returns the bytes of a range out of pieces in memory, one for the parts of each piece.
    pub(super) fn gather_pieces(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
        pieces: Vec<Piece>,
    ) -> Result<ReadBytes> {
        let mut pieces = pieces.into_iter();
        let source = |_| {
            let piece = pieces.next().ok_or_else(|| Error::invalid("", "no piece"));
            piece.map(Source::Piece)
        };
        // They were looked up together, under one version of each stored chunk.
        let mut contents = ReadContents::default();
        self.gather(context, decoder, range, (parts, &mut contents), source)
    }

    /// Returns the bytes of a range out of the stored chunks themselves and what was written to them.
    pub(super) fn gather_stored(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: TakenParts<'_>,
    ) -> Result<ReadBytes> {
        self.gather(context, decoder, range, parts, |piece| {
            let written = self.array.reader()?.written(piece);
            Ok(written.map_or(Source::Stored, |piece| Source::Piece(Piece::Data(piece))))
        })
    }

    /// Returns the bytes of a range, and has those decoded that come next.
    pub(super) fn gather_loading(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: TakenParts<'_>,
        ahead: &Prediction,
    ) -> Result<ReadBytes> {
        let mut beside = PiecesBeside::new(self, decoder, parts.0);
        beside.begin();
        self.prefetch(decoder, ahead);
        self.gather(context, decoder, range, parts, |piece| {
            beside.take();
            self.source(context, piece)
        })
    }

    /// Puts the bytes of a range together out of its parts; a range inside one piece stays where it is.
    fn gather(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: &Range<u64>,
        (parts, contents): TakenParts<'_>,
        mut source: impl FnMut(ChunkIndex) -> Result<Source>,
    ) -> Result<ReadBytes> {
        let size = self.array.element as u64;
        let elements = self.elements(range);
        let first = elements.start * size;
        let wanted = in_buffer(range.start - first)..in_buffer(range.end - first);
        let mut out = None;
        for group in parts.chunk_by(Part::is_of_same_piece) {
            let Some(piece) = group.first().map(|part| part.piece) else {
                continue;
            };
            let source = source(piece)?;
            for part in group {
                let runs = self.runs(decoder, &elements, part);
                if let (Source::Piece(Piece::Data(decoded)), [_], Some(run)) =
                    (&source, parts, runs.single())
                {
                    let range = run.start + wanted.start..run.start + wanted.end;
                    let content = PieceContent::of(&Piece::Data(decoded.clone()));
                    contents.note(decoder, piece, content);
                    return Ok(ReadBytes::Shared(decoded.clone(), range));
                }
                let length = in_buffer(elements.end * size - first);
                let out = out.get_or_insert_with(|| decoder.answer_buffer(length));
                #[cfg(test)]
                self.while_copying.iter().for_each(|called| called());
                let content = self.copy(context, decoder, (&source, piece), &runs, out)?;
                contents.note(decoder, piece, content);
            }
        }
        let mut out = out.unwrap_or_default();
        self.array.engine.stats.copied_bytes.add(out.len() as u64);
        out.cut(wanted);
        Ok(ReadBytes::Own(out))
    }

    /// Has those pieces of a read that was answered evicted first which a sequential reader has consumed. Their memory is
    /// used again.
    pub(super) fn retire_consumed(&self, decoder: &Decoder, parts: &[Part], consumed: Option<u64>) {
        let Some(consumed) = consumed else { return };
        let groups = parts.chunk_by(Part::is_of_same_piece);
        let is_consumed = |part: &&Part| {
            let shape = decoder.pieces.shape_of(part.piece);
            self.tracker.ends_before(part, &shape, consumed)
        };
        let pieces = groups.filter_map(<[Part]>::first).filter(is_consumed);
        let keys: Vec<CacheKey> = pieces
            .map(|part| (self.array.id, 0, part.piece.0))
            .collect();
        self.array.engine.cache.retire(&keys);
    }

    /// Copies runs out of a piece; returns which content it is of.
    fn copy(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        (source, piece): (&Source, ChunkIndex),
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<PieceContent> {
        match source {
            Source::Piece(found) => {
                match found {
                    Piece::Data(decoded) => runs.copy(decoded.bytes(), out),
                    Piece::Fill => runs.fill(&self.array.metadata.fill_value.bytes, out),
                }
                Ok(PieceContent::of(found))
            }
            Source::Stored => self.copy_stored(context, decoder, piece, runs, out),
            Source::Spilled(version) => {
                self.copy_spilled(context, decoder, (piece, *version), runs, out)
            }
        }
    }

    /// Copies runs out of an uncompressed chunk without keeping it: the kernel caches the file that it is.
    fn copy_stored(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<PieceContent> {
        let length = decoder.pipeline_of(piece)?.chunk_bytes();
        let read = |stored: &StoredChunk| {
            let version = stored.meta.version;
            stored.scatter(context, runs, length, out).map(|()| version)
        };
        match self.array.reader()?.open.read(context, piece.0, read)? {
            Some(version) => Ok(PieceContent::Stored(version)),
            None => {
                runs.fill(&self.array.metadata.fill_value.bytes, out);
                Ok(PieceContent::Lacking)
            }
        }
    }

    /// Copies runs out of a piece on disk without having it in memory.
    fn copy_spilled(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        (piece, version): (ChunkIndex, Version),
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<PieceContent> {
        let length = decoder.pipeline_of(ChunkIndex(decoder.stored_number(piece)))?;
        let content = (version, length.chunk_bytes());
        let is_dense = runs.span().len() <= MAX_SPREAD * runs.bytes();
        let spill = self.array.engine.spill.as_ref().filter(|_| is_dense);
        let key = (self.array.id, piece.0);
        if spill.is_some_and(|spill| spill.find_runs(&key, content, runs, out)) {
            return Ok(PieceContent::Stored(version));
        }
        let loaded = Source::Piece(self.array.reader()?.piece(context, piece)?);
        self.copy(context, decoder, (&loaded, piece), runs, out)
    }

    /// Returns where a piece is read: on disk if it is there and not in memory.
    fn source(&self, context: &RequestContext, piece: ChunkIndex) -> Result<Source> {
        match self.array.reader()?.spilled(piece) {
            Some(version) => Ok(Source::Spilled(version)),
            None => self
                .array
                .reader()?
                .piece(context, piece)
                .map(Source::Piece),
        }
    }

    /// Returns where a part lies in its piece, and in a buffer of these elements.
    fn runs(&self, decoder: &Decoder, elements: &Range<u64>, part: &Part) -> Runs {
        let from = Layout {
            start: &part.start,
            shape: &decoder.pieces.shape_of(part.piece),
            skipped: 0,
        };
        let to = |start, shape| Layout {
            start,
            shape,
            skipped: elements.start,
        };
        let (region, size) = (&self.region, self.array.element);
        let Some(order) = &self.order else {
            return Runs::new(&part.region, from, to(&region.start, &region.shape), size);
        };
        let start = permuted(&region.start, order);
        let shape = permuted(&region.shape, order);
        Runs::permuted(&part.region, from, to(&start, &shape), order, size)
    }
}
