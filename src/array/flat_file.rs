//! A box of an array as one flat file: C order, or that of other dimensions, little-endian, no header.
//!
//! A range of bytes is cut into boxes, these into the pieces under them (`parts`), and each piece's runs of bytes are
//! copied into the answer (`gather`). Pieces are taken one after another, so a read never holds more than one that it has
//! to load; the other missing ones are meanwhile decoded by the engine's threads (`prefetch`).

use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::chunk_rows::ChunkRows;
use crate::array::decoder::Decoder;
use crate::array::parts;
use crate::array::parts::{MissedParts, Part};
use crate::array::piece::{Cached, Piece};
use crate::array::read_contents::ReadContents;
use crate::array::read_tracker::{ReadTracker, Window};
use crate::array::version_table::VersionState;
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Region};
use crate::known::Known;
use crate::model::bytes_of;
use crate::request_context::RequestContext;
use crate::store::Version;
use crate::sync::read_bytes::ReadBytes;

/// What a piece of a read is now.
enum CurrentPiece {
    /// Written and not stored yet, or not stored at all.
    Known(Piece),
    /// The one that was decoded of this version of its stored chunk.
    Decoded(ChunkIndex, Version),
}

/// A box of an array as a flat file.
pub struct FlatFile {
    pub(super) array: Arc<OpenArray>,
    pub(super) region: Region,
    pub(super) length: u64,
    pub(super) tracker: Arc<ReadTracker>,
    pub(super) rows: ChunkRows,
    /// Whether reads go to the stored chunks themselves, which are not encoded.
    pub(super) direct: bool,
    missed: MissedParts,
    /// The dimension of the array that each dimension of the file is, outermost first; nothing for their own order.
    pub(super) order: Option<Box<[usize]>>,
    /// Called by each read that has begun to copy.
    #[cfg(test)]
    pub(super) while_copying: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The longest file, in bytes, that its first reader is taken to read whole.
const MAX_READ_WHOLE: u64 = 16 << 30;

impl Drop for FlatFile {
    fn drop(&mut self) {
        let trackers = self.array.trackers.as_ref();
        if trackers.is_some_and(|trackers| trackers.remove(&self.tracker)) {
            self.array
                .reader
                .iter()
                .for_each(|it| it.groups.forget_runs());
        }
        self.array.reader.iter().for_each(|it| it.give_up_spilled());
    }
}

/// The shortest runs, in bytes, that are read directly: each takes a buffer of a system call.
const MIN_DIRECT_RUN: u64 = 256;

/// Returns a length or an offset inside the buffer of one read.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is at most the length of the buffer, which is a usize"
)]
pub(super) fn in_buffer(bytes: u64) -> usize {
    bytes as usize
}

impl FlatFile {
    /// Builds the flat file of a box; `Unsupported` or `TooLarge` if it has no length.
    pub fn new(array: Arc<OpenArray>, region: Region) -> Result<FlatFile> {
        FlatFile::build(array, region, None)
    }

    fn build(
        array: Arc<OpenArray>,
        region: Region,
        order: Option<Box<[usize]>>,
    ) -> Result<FlatFile> {
        let element = array.metadata.element_size()?;
        let length = bytes_of(&region.shape, element)?;
        let direct = order.is_none() && array.reads_direct(MIN_DIRECT_RUN);
        let axis = order
            .as_deref()
            .and_then(<[usize]>::first)
            .map_or(0, |&axis| axis);
        let (mut rows, mut window) = (ChunkRows::default(), Window::default());
        if let Ok(decoder) = array.decoder() {
            rows = ChunkRows::new(&decoder.pieces, &region, axis, length);
            if !direct {
                window = array.window(decoder, rows);
            }
        }
        let tracker = ReadTracker::new(region.clone(), order.clone(), element, window);
        let tracker = Arc::new(tracker);
        if let Some(trackers) = &array.trackers {
            trackers.add(&tracker);
        }
        Ok(FlatFile {
            direct,
            array,
            region,
            length,
            tracker,
            rows,
            missed: MissedParts::default(),
            order,
            #[cfg(test)]
            while_copying: None,
        })
    }

    /// Builds the flat file of a box whose dimensions come in another order: that of the array which each dimension of the
    /// file is, outermost first, each once. Fails as `new`. The file cannot be written.
    pub fn permuted(array: Arc<OpenArray>, region: Region, order: &[usize]) -> Result<FlatFile> {
        let rank = region.shape.len();
        if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
            let found = format!("{order:?} is no order of {rank} dimensions");
            return Err(Error::invalid(&array.path, found));
        }
        let is_own = order.iter().enumerate().all(|(place, &axis)| place == axis);
        FlatFile::build(array, region, (!is_own).then(|| order.into()))
    }

    /// Whether the elements are in the order of the array's dimensions.
    pub fn has_own_order(&self) -> bool {
        self.order.is_none()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether a reader that opens the file now is expected to be sequential: if the last one was or, if there was none, if
    /// the file is not too long for that.
    pub fn is_read_on(&self) -> bool {
        let trackers = self.array.trackers.as_ref();
        let last = trackers.and_then(|trackers| trackers.was_sequential());
        last.unwrap_or(self.length <= MAX_READ_WHOLE)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the bytes of a range if all pieces under it are in memory and current; if not, `read` will find its parts
    /// computed. The range must lie in the file.
    pub fn read_now(&self, context: &RequestContext, range: Range<u64>) -> Option<ReadBytes> {
        let decoder = self.array.decoder().ok()?;
        let is_long = range.end - range.start > self.max_read(decoder);
        if self.direct || is_long || !self.array.metadata_hold(context) {
            return None;
        }
        let parts = self.parts(decoder, &range);
        let Some(pieces) = self.pieces_now(decoder, &parts) else {
            self.missed.keep(range, parts);
            return None;
        };
        let stats = &self.array.engine.stats;
        stats.cache_hit_chunks.add(pieces.len() as u64);
        let bytes = self
            .gather_pieces(context, decoder, &range, &parts, pieces)
            .ok()?;
        let (ahead, consumed) = self.tracker.note(&range);
        self.retire_consumed(decoder, &parts, consumed);
        self.prefetch(decoder, &ahead);
        Some(bytes).filter(|_| self.array.store_holds())
    }

    /// Returns the pieces of some parts, each once, if all are in memory and current. They are looked up together: a read of
    /// small inner chunks meets a thousand of them.
    fn pieces_now(&self, decoder: &Decoder, parts: &[Part]) -> Option<Vec<Piece>> {
        let current = self.current(decoder, parts)?;
        let keys = current.iter().filter_map(|current| match current {
            CurrentPiece::Known(_) => None,
            CurrentPiece::Decoded(piece, _) => Some((self.array.id, 0, piece.0)),
        });
        let mut cached = self.array.engine.cache.get_all(keys)?.into_iter();
        let piece = |current| match current {
            CurrentPiece::Known(piece) => Some(piece),
            CurrentPiece::Decoded(_, version) => match cached.next()? {
                Cached::Chunk(decoded) if decoded.version == version => Some(Piece::Data(decoded)),
                _ => None,
            },
        };
        current.into_iter().map(piece).collect()
    }

    /// Returns the current content of the pieces of some parts, each once; `None` if one of them is unknown without asking
    /// the store or waiting for a write.
    fn current(&self, decoder: &Decoder, parts: &[Part]) -> Option<Vec<CurrentPiece>> {
        let versions = self.array.versions.lock();
        let mut last = None;
        let mut state = |stored| match last {
            Some((number, state)) if number == stored => state,
            _ => {
                let state = versions.of(stored);
                last = Some((stored, state));
                state
            }
        };
        let current = |group: &[Part]| {
            let first = group.first()?;
            let piece = first.piece;
            match self.array.reader().ok()?.written_now(piece) {
                Known::Is(written) => return Some(CurrentPiece::Known(Piece::Data(written))),
                Known::Missing => {}
                Known::Unknown => return None,
            }
            match state(decoder.stored_number_at(piece, &first.start)) {
                VersionState::Known(None) => Some(CurrentPiece::Known(Piece::Fill)),
                VersionState::Known(Some(version)) => Some(CurrentPiece::Decoded(piece, version)),
                VersionState::Unknown | VersionState::Stale => None,
            }
        };
        parts
            .chunk_by(Part::is_of_same_piece)
            .map(current)
            .collect()
    }

    /// Returns the bytes of a range; fetches and decodes what is missing. The range must lie in the file.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        let decoder = self.array.decoder()?;
        self.array.check_metadata(context)?;
        let read = |contents: &mut ReadContents| {
            self.read_parts(context, decoder, range.clone(), contents)
        };
        let bytes = self.array.reader()?.read_one_content(context, read)?;
        self.array.check_store()?;
        Ok(bytes)
    }

    /// Returns the bytes of a range of any length.
    fn read_parts(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: Range<u64>,
        contents: &mut ReadContents,
    ) -> Result<ReadBytes> {
        let most = self.max_read(decoder);
        if range.end - range.start <= most {
            return self.read_part(context, decoder, range, contents);
        }
        let mut out = Vec::with_capacity(in_buffer(range.end - range.start));
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(most));
            out.extend_from_slice(&self.read_part(context, decoder, start..end, contents)?);
            start = end;
        }
        Ok(out.into())
    }

    /// Returns the bytes of a range that is no longer than `max_read`.
    fn read_part(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        range: Range<u64>,
        contents: &mut ReadContents,
    ) -> Result<ReadBytes> {
        let parts = self.missed.take(&range);
        let parts = parts.unwrap_or_else(|| self.parts(decoder, &range));
        if self.direct {
            // The kernel reads the stored files ahead.
            self.tracker.note(&range);
            return self.gather_stored(context, decoder, &range, (&parts, contents));
        }
        // Before anything is decoded, so that evicted pieces which the reader needs are spilled.
        let ahead = self.tracker.begin(&range);
        let bytes = self.gather_loading(context, decoder, &range, (&parts, contents), &ahead);
        let consumed = self.tracker.finish(&range);
        self.retire_consumed(decoder, &parts, consumed);
        bytes
    }

    /// Returns the elements that hold a range of bytes.
    pub(super) fn elements(&self, range: &Range<u64>) -> Range<u64> {
        parts::elements(self.array.element, range)
    }

    /// Returns the most bytes that are read at a time.
    pub(super) fn max_read(&self, decoder: &Decoder) -> u64 {
        parts::max_read(decoder, self.array.element)
    }

    /// Calls `visit` with each piece under a range, its first element and the elements that are wanted of it.
    pub(super) fn visit_pieces(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        visit: impl FnMut(ChunkIndex, &[u64], &Region),
    ) {
        let order = self.order.as_deref();
        parts::visit_pieces(decoder, (&self.region, order), self.elements(range), visit);
    }

    /// Returns the parts of pieces under a range; those of one piece come one after another.
    pub(super) fn parts(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        self.visit_pieces(decoder, range, |piece, start, shared| {
            parts.push(Part::new(piece, start, shared));
        });
        parts.sort_by_key(|part| part.piece);
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::array::WriteSource;
    use crate::array::sample_array::{SampleArray, read, values};
    use crate::error::Kind;
    use crate::request_context::UNLIMITED;

    #[test]
    fn a_miss_computes_its_parts_once() {
        let array = SampleArray::new(&[8], &[2]).open(1 << 20);
        let file = FlatFile::new(array, Region::whole(&[8])).unwrap();
        let expected = values(0..8, 0);
        assert!(file.read_now(&UNLIMITED, 1..5).is_none());
        let mut parts = file.missed.take(&(1..5)).unwrap();
        let pieces: Vec<u64> = parts.iter().map(|part| part.piece.0).collect();
        assert_eq!(pieces, [0, 1, 2]);
        assert!(file.missed.take(&(1..5)).is_none());
        // A read goes by the parts that were kept for it.
        parts.truncate(2);
        file.missed.keep(1..5, parts);
        assert_eq!(
            file.read(&UNLIMITED, 0..4).unwrap()[..],
            expected[..4],
            "another range"
        );
        let cut = file.read(&UNLIMITED, 1..5).unwrap().to_vec();
        assert!(expected[4] != 0 && cut[3] == 0 && cut[..3] == expected[1..4]);
        assert_eq!(file.read(&UNLIMITED, 1..5).unwrap()[..], expected[1..5]);
        assert_eq!(file.read_now(&UNLIMITED, 1..5).unwrap()[..], expected[1..5]);
        assert!(file.missed.take(&(1..5)).is_none());
    }
    /// A copy that another thread is in the middle of: it goes on when it is dropped.
    struct HeldCopy {
        begun: mpsc::Receiver<()>,
        end: Option<mpsc::Sender<()>>,
    }

    impl HeldCopy {
        /// Returns the copy, and what the thread calls in the middle of it: the first call holds it.
        fn new() -> (HeldCopy, impl Fn() + Send + Sync) {
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let (ended, is_first) = (Mutex::new(ended), AtomicBool::new(true));
            let hold = move || {
                if is_first.swap(false, Ordering::SeqCst) {
                    begin.send(()).unwrap();
                    // Disconnected when the copy may go on; a failure of the test ends it, too.
                    let _ = ended.lock().recv_timeout(Duration::from_secs(60));
                }
            };
            let end = Some(end);
            (HeldCopy { begun, end }, hold)
        }

        /// Fails if `read` does not return while the copy is held.
        fn assert_answers<T: Send>(mut self, read: impl FnOnce() -> T + Send) -> T {
            let (sender, answer) = mpsc::channel();
            self.begun.recv_timeout(Duration::from_secs(60)).unwrap();
            thread::scope(|scope| {
                scope.spawn(move || sender.send(read()));
                let answer = answer.recv_timeout(Duration::from_secs(10));
                drop(self.end.take());
                answer.expect("a read waits for the copy of another one")
            })
        }
    }

    #[test]
    fn a_read_that_copies_keeps_no_other_one_waiting() {
        let shape = [8, 256, 256];
        let array = SampleArray::new(&shape, &[8, 16, 16]).open(64 << 20);
        let mut file = FlatFile::new(array, Region::whole(&shape)).unwrap();
        let plane = 256 * 256;
        for place in 0..6 {
            read(&file, place * plane..(place + 1) * plane);
        }
        let (copy, hold) = HeldCopy::new();
        file.while_copying = Some(Box::new(hold));
        thread::scope(|scope| {
            let long = scope.spawn(|| {
                file.read_now(&UNLIMITED, plane..3 * plane)
                    .unwrap()
                    .to_vec()
            });
            let short = copy.assert_answers(|| file.read_now(&UNLIMITED, 0..100).unwrap().to_vec());
            assert_eq!(short, values(0..100, 0));
            assert!(long.join().unwrap() == values(plane..3 * plane, 0));
        });
    }

    #[test]
    fn a_write_that_copies_keeps_no_read_waiting() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        read(&file, 0..8);
        file.write(&UNLIMITED, 1, &[1], WriteSource::Program)
            .unwrap();
        let (copy, hold) = HeldCopy::new();
        thread::scope(|scope| {
            let edit = |piece: &mut [u8]| {
                hold();
                piece[0] = 2;
            };
            let chunk = [0].as_slice().into();
            let buffer = &array.buffer;
            let write = scope.spawn(move || buffer.edit(&chunk, &[], false, &edit));
            copy.assert_answers(|| file.read_now(&UNLIMITED, 0..8).is_some());
            assert!(write.join().unwrap().unwrap());
        });
        assert_eq!(file.read_now(&UNLIMITED, 0..2).unwrap()[..], [2, 1]);
    }

    #[test]
    fn writes_that_come_too_late_are_refused_and_those_before_are_stored() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        file.write(&UNLIMITED, 1, &[9], WriteSource::Program)
            .unwrap();
        array.engine.write_budget.close();
        for (place, written) in [(1, 1), (1, 2), (5, 1)] {
            let refused = file.write(&UNLIMITED, place, &vec![7; written], WriteSource::Program);
            assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable, "{place}");
        }
        array.flush(&UNLIMITED).unwrap();
        assert!(array.buffer.is_empty());
        let mut expected = values(0..8, 0);
        expected[1] = 9;
        assert_eq!(read(&file, 0..8), expected);
    }

    /// Another array that begins to be written drops from the list what has nothing to store.
    #[test]
    fn an_array_is_listed_as_written_once_it_has_something_to_store() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        let list = array.engine.write_budget.writers();
        thread::scope(|scope| {
            let write = scope.spawn(|| file.write(&UNLIMITED, 1, &[9], WriteSource::Program));
            let is_written = || !array.buffer.is_empty();
            for _ in 0..500 {
                if is_written() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let is_first = is_written();
            drop(list);
            write.join().unwrap().unwrap();
            assert!(is_first, "it was about to be listed");
        });
        assert_eq!(array.engine.write_budget.writers().len(), 1);
    }
}
