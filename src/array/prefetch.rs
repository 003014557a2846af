//! Decoding ahead of readers: the other pieces of a read, and the pieces that a reader will want next.
//!
//! Pieces go to the engine's threads in batches that are worth a hand-over. Nothing waits for a batch; an error in it
//! is found again, and returned, by the read that wants the piece.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::array::OpenArray;
use crate::array::chunk_rows::ChunkRows;
use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::parts::Part;
use crate::array::piece::PIECE_OVERHEAD;
use crate::array::read_tracker::{Prediction, Window};
use crate::array::shard_groups::{LoadedGroup, OrderedSpan};
use crate::grid::ChunkIndex;
use crate::request_context::{RequestContext, RequestLimit};

/// Decoded bytes of a batch, so that it is worth the hand-over to another thread.
const BATCH_BYTES: usize = 256 << 10;

/// Decoded bytes of inner chunks that one request over a network is for, at least and at most.
const MIN_GROUP_BYTES: usize = 1 << 20;
const MAX_GROUP_BYTES: usize = 4 << 20;

/// How many bytes of inner chunks over a network are read before more are fetched ahead: a program that looks at the header
/// has at most as many read by the kernel, and each plane may have parts of many shards.
const AFTER_HEADER: u64 = 2 << 20;

/// The least distance to read ahead, in bytes.
const MIN_WINDOW: u64 = 16 << 20;

/// Number of chunks that are decoded ahead of a reader in equal steps when nothing comes over a network.
const MIN_STEPPED_CHUNKS: usize = 4;

/// How many of its pieces a read has taken; all once it was answered.
pub(super) type Taken = Arc<AtomicUsize>;

/// A piece, and how many pieces its reader takes before it.
pub(super) type PlacedPiece = (usize, ChunkIndex);

/// The pieces of a read beside the one that it takes itself, which are decoded by the engine's threads.
pub(super) struct PiecesBeside<'a> {
    file: &'a FlatFile,
    decoder: &'a Decoder,
    /// Each once, in the order in which they are taken.
    pieces: Vec<ChunkIndex>,
    /// How many the threads have.
    submitted: usize,
    /// How many pieces are decoded before they are taken.
    ahead: usize,
    taken: Taken,
}

impl<'a> PiecesBeside<'a> {
    /// Prepares a read of some parts. Where memory has no room for a row of pieces, only a few are decoded at a time:
    /// more would evict what is kept of the row.
    pub(super) fn new(
        file: &'a FlatFile,
        decoder: &'a Decoder,
        parts: &[Part],
    ) -> PiecesBeside<'a> {
        let groups = parts.chunk_by(Part::is_of_same_piece);
        let piece = |group: &[Part]| Some(group.first()?.piece);
        let is_row_too_long = file.is_row_too_long(decoder);
        if is_row_too_long && file.tracker.has_read(0) {
            file.warn_of_row(decoder);
        }
        PiecesBeside {
            file,
            decoder,
            pieces: groups.filter_map(piece).collect(),
            // Inner chunks are read together with the first one.
            submitted: usize::from(!decoder.reads_groups()),
            ahead: if is_row_too_long {
                file.array.engine.encoders
            } else {
                usize::MAX
            },
            taken: Taken::default(),
        }
    }

    /// Has the first pieces decoded that come after the one that is taken first.
    pub(super) fn begin(&mut self) {
        self.submit(1);
    }

    /// Notes that the next piece is taken, and has those decoded that come after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.submit(taken);
    }

    fn submit(&mut self, taken: usize) {
        let end = taken.saturating_add(self.ahead).min(self.pieces.len());
        if let Some(next) = self.pieces.get(self.submitted..end)
            && !next.is_empty()
        {
            let pieces = (self.submitted..).zip(next.iter().copied());
            let order = (&self.taken, self.file.ordered_span(self.decoder));
            self.file.array.decode_beside(self.decoder, pieces, order);
            self.submitted = end.max(self.submitted);
        }
    }
}

impl Drop for PiecesBeside<'_> {
    fn drop(&mut self) {
        self.taken.store(usize::MAX, Ordering::Relaxed);
    }
}

impl OpenArray {
    /// Has pieces decoded by the engine's threads, as far as these have room for more work, unless their reader has taken
    /// them before.
    pub(super) fn decode_beside(
        self: &Arc<OpenArray>,
        decoder: &Decoder,
        pieces: impl Iterator<Item = PlacedPiece>,
        (taken, span): (&Taken, Option<Arc<OrderedSpan>>),
    ) {
        let Ok(reader) = self.reader() else { return };
        let is_there = |piece| reader.has_piece(piece) || reader.is_spilled(piece);
        let mut missing = pieces.filter(|&(_, piece)| !is_there(piece));
        if decoder.reads_groups() {
            return self.decode_groups(decoder, missing.collect(), (taken, span));
        }
        // Over a network each chunk is fetched by a thread of its own.
        let size = match self.engine.limits.fetches {
            0 => self.count_of(decoder, BATCH_BYTES),
            _ => 1,
        };
        loop {
            let mut batch: Vec<PlacedPiece> = missing.by_ref().take(size).collect();
            batch.dedup();
            if batch.is_empty() || !self.submit((batch, Vec::new()), taken.clone()) {
                return;
            }
        }
    }

    /// Has inner chunks decoded by the engine's threads, those of a shard together.
    fn decode_groups(
        self: &Arc<OpenArray>,
        decoder: &Decoder,
        mut missing: Vec<PlacedPiece>,
        (taken, span): (&Taken, Option<Arc<OrderedSpan>>),
    ) {
        // A range that begins and ends within rows of pieces meets many of them more than once.
        let Ok(reader) = self.reader() else { return };
        let mut met = HashSet::new();
        missing.retain(|(_, piece)| met.insert(piece.0) && !reader.groups.contains(*piece));
        let size = self.group_size(decoder, missing.len());
        // A thread that waits for the network does nothing else.
        let least = if self.engine.limits.fetches == 0 {
            size
        } else {
            1
        };
        let shards = by_shard(decoder, missing, span.as_deref());
        let groups = shards.iter().flat_map(|shard| shard.chunks(size));
        let (mut batch, mut begun) = (Vec::new(), Vec::new());
        for group in groups {
            let pieces = group.iter().map(|&(_, piece)| piece).collect();
            begun.extend(reader.groups.begin(pieces, span.clone()));
            batch.extend_from_slice(group);
            if batch.len() >= least {
                let full = (std::mem::take(&mut batch), std::mem::take(&mut begun));
                if !self.submit(full, taken.clone()) {
                    return;
                }
            }
        }
        if !batch.is_empty() {
            self.submit((batch, begun), taken.clone());
        }
    }

    /// Returns how many of `count` inner chunks are decoded together. Over a network there are enough groups for all
    /// requests that may be under way, unless these would be short.
    fn group_size(&self, decoder: &Decoder, count: usize) -> usize {
        let bytes = match self.engine.limits.fetches {
            0 => BATCH_BYTES,
            fetches => {
                let chunk = decoder.usual_bytes();
                let each = chunk.saturating_mul(count) / fetches;
                each.clamp(MIN_GROUP_BYTES, MAX_GROUP_BYTES)
            }
        };
        self.count_of(decoder, bytes)
    }

    /// Returns how many pieces have `bytes` decoded bytes; at least one. On this machine those beside their elements count,
    /// since lists of the pieces of a batch are held; over a network a request is for elements.
    fn count_of(&self, decoder: &Decoder, bytes: usize) -> usize {
        let beside = match self.engine.limits.fetches {
            0 => in_buffer(PIECE_OVERHEAD),
            _ => 0,
        };
        (bytes / (decoder.usual_bytes() + beside).max(1)).max(1)
    }

    /// Has pieces decoded that no read wants yet; `span` as in `ShardGroups::begin`.
    pub(super) fn decode_ahead(
        self: &Arc<OpenArray>,
        decoder: &Decoder,
        pieces: impl Iterator<Item = ChunkIndex>,
        span: Option<Arc<OrderedSpan>>,
    ) {
        let pieces = pieces.map(|piece| (0, piece));
        self.decode_beside(decoder, pieces, (&Taken::default(), span));
    }

    /// Hands a batch to the engine's threads; false if these have no room for more work.
    fn submit(
        self: &Arc<OpenArray>,
        (batch, groups): (Vec<PlacedPiece>, Vec<LoadedGroup>),
        taken: Taken,
    ) -> bool {
        let array = self.clone();
        let context = RequestContext::new(Arc::new(ReadBeside(taken.clone())));
        self.engine.decoders.submit(move || {
            let _groups = groups;
            let Ok(reader) = array.reader() else { return };
            for (place, piece) in batch {
                // A reader may have loaded it or passed it meanwhile.
                let trackers = array.trackers.as_ref();
                let is_passed = || trackers.is_some_and(|trackers| trackers.is_passed(piece));
                let is_taken = place < taken.load(Ordering::Relaxed);
                if !is_taken && !reader.has_piece(piece) && !is_passed() {
                    array.engine.stats.prefetched_chunks.add(1);
                    let _ = reader.piece(&context, piece);
                }
            }
        })
    }
}

/// The read that pieces are decoded beside, until it has ended: by an error, or because its program waits no more. What is
/// decoded ahead belongs to none, and is always waited for.
struct ReadBeside(Taken);

impl RequestLimit for ReadBeside {
    fn suspend(&self) -> bool {
        true
    }

    fn resume(&self) {}

    fn is_waited_for(&self) -> bool {
        self.0.load(Ordering::Relaxed) != usize::MAX
    }
}

/// Returns inner chunks by their shards, which come in the order of their first ones; those that a reader in order wants by
/// the layers of these as well.
fn by_shard(
    decoder: &Decoder,
    pieces: Vec<PlacedPiece>,
    span: Option<&OrderedSpan>,
) -> Vec<Vec<PlacedPiece>> {
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    let mut shards: Vec<Vec<PlacedPiece>> = Vec::new();
    for piece in pieces {
        let layer = span.map_or(0, |span| decoder.pieces.indices(piece.1)[span.axis]);
        let place = *places
            .entry((decoder.stored_number(piece.1), layer))
            .or_insert(shards.len());
        match shards.get_mut(place) {
            Some(shard) => shard.push(piece),
            None => shards.push(vec![piece]),
        }
    }
    shards
}

impl FlatFile {
    /// Has the pieces decoded that the reader is expected to read next.
    pub(super) fn prefetch(&self, decoder: &Decoder, ahead: &Prediction) {
        match ahead {
            Prediction::Nothing => {}
            Prediction::Range(range) => self.prefetch_range(decoder, range.clone()),
            Prediction::Steps { .. } => self.prefetch_steps(decoder, ahead),
        }
    }

    fn prefetch_range(&self, decoder: &Decoder, range: Range<u64>) {
        let range = self.tracker.unmet(range, self.rows);
        let range = range.start..range.end.min(self.length);
        if !range.is_empty() {
            let pieces = self.pieces(decoder, &range).into_iter();
            let span = self.ordered_span(decoder);
            self.array.decode_ahead(decoder, pieces, span);
        }
    }

    /// Has as many pieces decoded of the next steps as can be fetched at a time.
    fn prefetch_steps(&self, decoder: &Decoder, ahead: &Prediction) {
        let limits = &self.array.engine.limits;
        let size = decoder.pipeline.chunk_bytes() as u64 + PIECE_OVERHEAD;
        let room = usize::try_from(limits.memory / 4 / size).unwrap_or(usize::MAX);
        let wanted = limits.fetches.max(MIN_STEPPED_CHUNKS).min(room);
        let mut pieces: Vec<ChunkIndex> = Vec::new();
        for range in ahead.ranges(self.length) {
            for piece in self.pieces(decoder, &range) {
                if !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
            if pieces.len() >= wanted {
                break;
            }
        }
        pieces.truncate(wanted);
        self.array.decode_ahead(decoder, pieces.into_iter(), None);
    }

    /// Returns the pieces under a range.
    fn pieces(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<ChunkIndex> {
        let mut pieces = Vec::new();
        self.visit_pieces(decoder, range, |piece, _, _| pieces.push(piece));
        pieces
    }
}

impl OpenArray {
    /// Returns how far to prefetch for a sequential reader of a file: one row of chunks, so that the next row decodes while
    /// this one is read. Over a network as much again, since requests for the row after that must be under way when this
    /// row's last chunk is waited for. Nothing if a row does not fit a quarter of the memory.
    pub(super) fn window(&self, decoder: &Decoder, rows: ChunkRows) -> Window {
        let limits = &self.engine.limits;
        // Of short pieces a byte of the file takes several of the memory.
        let piece = decoder.pipeline.chunk_bytes().max(1) as u64;
        let times = 1 + PIECE_OVERHEAD / piece;
        let (row, quarter) = (rows.bytes, limits.memory / 4 / times);
        if row > quarter {
            return Window::default();
        }
        let (least, most, after) = match limits.fetches as u64 {
            0 => (0, row, 0),
            fetches => {
                let at_once = fetches.saturating_mul(decoder.pipeline.chunk_bytes() as u64);
                let most = row.saturating_add(row.max(at_once));
                if decoder.reads_groups() {
                    (0, most, AFTER_HEADER)
                } else {
                    (row, most, 0)
                }
            }
        };
        let most = most.max(MIN_WINDOW / times).min(quarter);
        Window { least, most, after }
    }
}
