//! Follows the reader of one open file and predicts its next reads.
//!
//! Each open file has a `ReadTracker`. The tracker is given the byte range of each read and determines
//! - whether the reader is sequential, or reads in equal steps;
//! - the range to prefetch (`Prediction`);
//! - the offset up to which a sequential reader has consumed the file: chunks that end before it are evicted first;
//! - the chunks that a sequential reader still needs: they are spilled when they are evicted.
//!
//! `ReadTrackers` has the trackers of all open files of an array. `ReadAhead` maps ranges to chunks.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::file_layout::ChunkRows;
use zarr_format::grid::{ChunkIndex, Grid, Region};

/// A read is sequential if it begins at most this many bytes from the expected offset, because the kernel sends
/// readahead requests concurrently and they arrive in any order.
const REORDER_TOLERANCE: u64 = 4 << 20;

/// A sequential reader may skip at most this many bytes, plus as many bytes as it has read.
const GAP_TOLERANCE: u64 = 1 << 20;

/// The number of bytes that must be read sequentially before anything is prefetched.
const MIN_SEQUENTIAL: u64 = 256 << 10;

/// The number of equal steps from read to read after which the next steps are prefetched.
const MIN_EQUAL_STEPS: u32 = 3;

/// The idle time after which a reader counts as not needing its unread chunks any more.
const READER_TIMEOUT: Duration = Duration::from_secs(60);

/// A reader counts as sequential after it has read this many bytes without a seek, and as random after this many seeks.
/// The next reader of the array is expected to behave like the last one.
const MIN_READ_ON: u64 = 8 << 20;
const MIN_SEEKS: u32 = 8;

/// The reads that are expected next from a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prediction {
    /// No read is predicted.
    Nothing,
    /// The reader will read this range, which follows its sequential reads so far.
    Range(Range<u64>),
    /// The reader will read `len` bytes at `first`, and then again after every `step` bytes.
    Steps { first: u64, step: i128, len: u64 },
}

/// How far ahead of a sequential reader is prefetched, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// The number of bytes to prefetch for a reader that was just found to be sequential.
    pub(super) least: u64,
    /// The upper limit of the bytes that are prefetched; if it is 0, nothing is prefetched.
    pub(super) most: u64,
    /// Bytes that must be read sequentially before anything is prefetched.
    pub(super) after: u64,
}

pub(super) struct ReadTracker {
    /// The box of the array that the file shows, and the order of the file's dimensions if it differs from the array's.
    region: Region,
    order: Option<Box<[usize]>>,
    element: u64,
    window: Window,
    history: Mutex<ReadHistory>,
}

/// What the reads of an open file so far have shown about its reader.
struct ReadHistory {
    /// The present sequence of reads without a seek: its start, its furthest end, and the bytes that it has read.
    start: u64,
    end: u64,
    sequential: u64,
    /// The end of the last range that was predicted.
    predicted: u64,
    /// The length and offset of the last read, its distance from the read before, and how many times in succession this
    /// distance was the same.
    length: u64,
    offset: u64,
    step: i128,
    steps: u32,
    /// The bytes of the longest sequence of reads without a seek, and the number of seeks.
    longest: u64,
    seeks: u32,
    /// The offsets of the reads that are not answered yet.
    in_flight: Vec<u64>,
    last_read: Instant,
}

impl Prediction {
    /// Returns the byte ranges of the predicted reads in order, inside a file of `length` bytes.
    pub(super) fn ranges(&self, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (first, step, len, count) = match self.clone() {
            Prediction::Nothing => (0, 0, 0, 0),
            Prediction::Range(range) => (range.start, 0, range.end - range.start, 1),
            Prediction::Steps { first, step, len } => (first, step, len, 4096),
        };
        let starts = (0..i128::from(count))
            .map_while(move |number| u64::try_from(i128::from(first) + number * step).ok());
        let inside = starts.take_while(move |start| *start < length);
        inside.map(move |start| start..start.saturating_add(len).min(length))
    }
}

impl ReadTracker {
    /// Creates the tracker of a file with elements of `element` bytes. `order` is the order of the file's dimensions,
    /// if it differs from the array's.
    pub(super) fn new(
        region: Region,
        order: Option<Box<[usize]>>,
        element: usize,
        window: Window,
    ) -> ReadTracker {
        ReadTracker {
            region,
            order,
            element: element as u64,
            window,
            history: Mutex::new(ReadHistory::new()),
        }
    }

    /// Records a read before it is answered; returns the ranges to prefetch. `finish` must follow once the read is
    /// answered.
    pub(super) fn begin(&self, range: &Range<u64>) -> Prediction {
        let mut history = self.history.lock();
        history.in_flight.push(range.start);
        history.record(range, self.window)
    }

    /// Records that a read was answered. Returns the offset up to which a sequential reader has consumed the file, or
    /// `None` if the reader is not known to be sequential.
    pub(super) fn finish(&self, range: &Range<u64>) -> Option<u64> {
        let mut history = self.history.lock();
        let mut in_flight = history.in_flight.iter();
        if let Some(place) = in_flight.position(|&offset| offset == range.start) {
            history.in_flight.swap_remove(place);
        }
        history.consumed()
    }

    /// Records a read that was answered from memory; returns the ranges to prefetch, and the offset up to which a
    /// sequential reader has consumed the file.
    pub(super) fn record(&self, range: &Range<u64>) -> (Prediction, Option<u64>) {
        let mut history = self.history.lock();
        (history.record(range, self.window), history.consumed())
    }

    /// Whether the reader has read at least `bytes` bytes, and at least `MIN_SEQUENTIAL`, without a seek.
    pub(super) fn has_read(&self, bytes: u64) -> bool {
        self.history.lock().sequential >= bytes.max(MIN_SEQUENTIAL)
    }

    /// Whether the reader began at the start of the file, with reads longer than those of a program that looks at a
    /// header.
    pub(super) fn begins_with_long_reads(&self) -> bool {
        let history = self.history.lock();
        history.start == 0 && history.sequential > 0 && history.length > MIN_SEQUENTIAL / 2
    }

    /// Returns the earliest offset at which the sequential reader may have begun. Its first read need not have arrived
    /// first, because the kernel sends several reads concurrently.
    pub(super) fn first_byte(&self) -> u64 {
        let start = self.history.lock().start;
        start.saturating_sub(REORDER_TOLERANCE)
    }

    /// Drops the beginning of a predicted range whose chunks the reader has already read from. Each plane of a chunk
    /// row crosses all its chunks, so after one plane the rest of the chunk row has no new chunks.
    pub(super) fn unvisited(&self, range: Range<u64>, rows: ChunkRows) -> Range<u64> {
        let row = rows.range_at(range.start);
        let first_visited = self.history.lock().start.max(row.start);
        let is_visited = range.start - first_visited.min(range.start) >= rows.plane;
        let start = if is_visited { row.end } else { range.start };
        start.min(range.end)..range.end
    }

    /// Whether the reader still needs a chunk; `None` if the reader is not known to be sequential, or if the chunk is
    /// not in the file.
    fn needs(&self, chunk: &Region) -> Option<bool> {
        let end = self.end_of(&chunk.start, &chunk.shape)?;
        let history = self.history.lock();
        let is_reading = history.last_read.elapsed() < READER_TIMEOUT;
        let consumed = history.consumed().filter(|_| is_reading)?;
        Some(end > consumed)
    }

    /// Returns the offset in the file after the last byte of a box, or `None` if the box is outside of the file.
    pub(super) fn end_of(&self, start: &[u64], shape: &[u64]) -> Option<u64> {
        let mut elements: u64 = 0;
        for place in 0..self.region.shape.len() {
            let axis = self.order.as_ref().map_or(place, |order| order[place]);
            let (first, length) = (self.region.start[axis], self.region.shape[axis]);
            let end = start[axis].saturating_add(shape[axis]);
            let last = end.min(first.saturating_add(length)).checked_sub(1)?;
            if last < first.max(start[axis]) {
                return None;
            }
            elements = elements * length + (last - first);
        }
        Some((elements + 1) * self.element)
    }
}

impl ReadHistory {
    fn new() -> ReadHistory {
        ReadHistory {
            start: 0,
            end: 0,
            sequential: 0,
            predicted: 0,
            length: 0,
            offset: 0,
            step: 0,
            steps: 0,
            longest: 0,
            seeks: 0,
            in_flight: Vec::new(),
            last_read: Instant::now(),
        }
    }

    /// Records a read; returns the prediction of the next reads, which are to be prefetched.
    fn record(&mut self, range: &Range<u64>, window: Window) -> Prediction {
        let length = range.end - range.start;
        (self.last_read, self.length) = (Instant::now(), length);
        let step = i128::from(range.start) - i128::from(self.offset);
        self.steps = if step == self.step {
            self.steps.saturating_add(1)
        } else {
            1
        };
        (self.offset, self.step) = (range.start, step);
        if !self.is_sequential(range) {
            self.seeks = self.seeks.saturating_add(1);
            (self.start, self.end, self.sequential) = (range.start, range.end, length);
            self.predicted = range.end;
            return self.next_steps(length, window);
        }
        self.sequential = self.sequential.saturating_add(length);
        self.longest = self.longest.max(self.sequential);
        self.end = self.end.max(range.end);
        self.next_range(window)
    }

    /// Whether a read continues the sequential reads before it: it begins near their end, and few bytes were skipped. A
    /// program that reads a small box of the array also reads rows that are near each other, but it skips the bytes
    /// between the rows.
    fn is_sequential(&self, range: &Range<u64>) -> bool {
        let earliest = self.end.saturating_sub(REORDER_TOLERANCE);
        let latest = self.end.saturating_add(REORDER_TOLERANCE);
        let read = self.sequential.saturating_add(range.end - range.start);
        let span = self.end.max(range.end) - self.start.min(range.start);
        (earliest..=latest).contains(&range.start)
            && span <= read.saturating_mul(2).saturating_add(GAP_TOLERANCE)
    }

    fn next_steps(&self, len: u64, window: Window) -> Prediction {
        let first = u64::try_from(i128::from(self.offset) + self.step);
        match first {
            Ok(first) if self.steps >= MIN_EQUAL_STEPS && self.step != 0 && window.most > 0 => {
                Prediction::Steps {
                    first,
                    step: self.step,
                    len,
                }
            }
            _ => Prediction::Nothing,
        }
    }

    fn next_range(&mut self, window: Window) -> Prediction {
        if self.sequential < window.after.max(MIN_SEQUENTIAL) {
            return Prediction::Nothing;
        }
        let wanted = self.sequential.saturating_mul(4).max(window.least);
        let length = window.most.min(wanted);
        let far = self.end.saturating_add(length);
        let near = self.predicted.max(self.end);
        // Prefetching in small steps costs more than it gains, so nothing is predicted until 1/4 of the prefetch window
        // is free.
        if far <= near || (far - near).saturating_mul(4) < length {
            return Prediction::Nothing;
        }
        self.predicted = far;
        Prediction::Range(near..far)
    }

    /// Returns the offset up to which a sequential reader has consumed the file, or `None` if the reader is not known
    /// to be sequential. A reader that begins at the start of the file is assumed to be sequential.
    fn consumed(&self) -> Option<u64> {
        let is_first = self.start == 0 && self.sequential > 0;
        let in_flight = self.in_flight.iter().copied().min();
        let consumed = in_flight.map_or(self.end, |first| first.min(self.end));
        (is_first || self.sequential >= MIN_SEQUENTIAL).then_some(consumed)
    }

    /// Whether the reader of the file was sequential; `None` if it has read too little to know.
    fn was_sequential(&self) -> Option<bool> {
        if self.longest >= MIN_READ_ON {
            Some(true)
        } else {
            (self.seeks >= MIN_SEEKS).then_some(false)
        }
    }
}

pub(super) struct ReadTrackers {
    chunks: Grid,
    open: Mutex<Vec<Weak<ReadTracker>>>,
    /// Whether the last reader of the array was sequential; `None` until one reader has read enough to know.
    last: Mutex<Option<bool>>,
}

impl ReadTrackers {
    pub(super) fn new(chunks: Grid) -> ReadTrackers {
        ReadTrackers {
            chunks,
            open: Mutex::default(),
            last: Mutex::default(),
        }
    }

    pub(super) fn add(&self, tracker: &Arc<ReadTracker>) {
        self.open.lock().push(Arc::downgrade(tracker));
    }

    /// Removes the tracker of a file that is closed; returns whether no open file of the array is left.
    pub(super) fn remove(&self, tracker: &Arc<ReadTracker>) -> bool {
        if let Some(was_sequential) = tracker.history.lock().was_sequential() {
            *self.last.lock() = Some(was_sequential);
        }
        let mut open = self.open.lock();
        open.retain(|other| other.as_ptr() != Arc::as_ptr(tracker));
        open.is_empty()
    }

    /// Whether the last reader of the array was sequential; `None` if no reader has read enough to know.
    pub(super) fn was_sequential(&self) -> Option<bool> {
        *self.last.lock()
    }

    /// Whether a sequential reader of an open file still needs a chunk.
    pub(super) fn is_needed(&self, chunk: ChunkIndex) -> bool {
        self.needs(chunk).any(|is_needed| is_needed)
    }

    /// Whether sequential readers have read all of a chunk and none of them needs the chunk any more.
    pub(super) fn is_passed(&self, chunk: ChunkIndex) -> bool {
        let mut needs = self.needs(chunk).peekable();
        needs.peek().is_some() && !needs.any(|is_needed| is_needed)
    }

    /// Returns for each sequential reader whose file shows this chunk whether it still needs the chunk.
    fn needs(&self, chunk: ChunkIndex) -> impl Iterator<Item = bool> {
        let region = self.chunks.region(&self.chunks.indices(chunk));
        let open = self.open.lock().clone().into_iter();
        open.filter_map(move |tracker| tracker.upgrade()?.needs(&region))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn region(start: &[u64], shape: &[u64]) -> Region {
        Region {
            start: start.into(),
            shape: shape.into(),
        }
    }

    /// Returns the tracker of a file of 1 TiB; the limits of its prefetch window are in MiB.
    fn tracker(least: u64, most: u64) -> ReadTracker {
        let window = Window {
            after: 0,
            least: least * MIB,
            most: most * MIB,
        };
        ReadTracker::new(region(&[0], &[1 << 40]), None, 1, window)
    }

    fn read(tracker: &ReadTracker, offset: u64, length: u64) -> Prediction {
        tracker.record(&(offset..offset + length)).0
    }

    #[test]
    fn the_smallest_window_is_prefetched_for_a_new_sequential_reader() {
        for (most, ahead) in [(64, 32 * MIB), (4, 4 * MIB)] {
            let tracker = tracker(32, most);
            let first = read(&tracker, 0, MIN_SEQUENTIAL - 1);
            assert_eq!(first, Prediction::Nothing);
            let next = read(&tracker, MIN_SEQUENTIAL - 1, 1);
            let range = MIN_SEQUENTIAL..MIN_SEQUENTIAL + ahead;
            assert_eq!(next, Prediction::Range(range));
        }
    }

    #[test]
    fn no_range_is_predicted_twice() {
        let tracker = tracker(0, 16);
        let mut predicted = 0;
        for step in 0..64 {
            if let Prediction::Range(range) = read(&tracker, step * MIB, MIB) {
                assert!(range.start >= predicted);
                predicted = range.end;
            }
            assert!(predicted <= (step + 1) * MIB + 16 * MIB);
        }
        assert!(predicted >= 64 * MIB);
    }

    #[test]
    fn reordered_kernel_requests_count_as_sequential() {
        let tracker = tracker(0, 64);
        for step in [0, 2, 1, 3, 5, 4] {
            read(&tracker, step * MIB, MIB);
        }
        assert_ne!(read(&tracker, 6 * MIB, MIB), Prediction::Nothing);
    }

    /// Invariant (reading): Data between the rows of a window is not prefetched.
    #[test]
    fn rows_of_a_window_are_not_sequential() {
        let row = 4_000_000;
        let tracker = Arc::new(tracker(0, 64));
        for step in 0..200 {
            let ahead = read(&tracker, 900 * MIB + step * row, 8192);
            assert!(!matches!(ahead, Prediction::Range(_)), "{step}: {ahead:?}");
        }
        let trackers = ReadTrackers::new(Grid::new(&[1], &[1]).unwrap());
        trackers.remove(&tracker);
        assert_eq!(trackers.was_sequential(), Some(false));
        for step in 0..9 {
            read(&tracker, step * MIB, MIB);
        }
        trackers.remove(&tracker);
        assert_eq!(trackers.was_sequential(), Some(true));
    }

    #[test]
    fn a_few_reads_do_not_predict_the_next_reader() {
        let tracker = Arc::new(tracker(0, 16));
        for offset in [0, 900 * MIB, 0] {
            read(&tracker, offset, 1 << 16);
        }
        let trackers = ReadTrackers::new(Grid::new(&[1], &[1]).unwrap());
        trackers.remove(&tracker);
        assert_eq!(trackers.was_sequential(), None);
    }

    #[test]
    fn random_reads_prefetch_nothing() {
        let tracker = tracker(0, 16);
        for step in [90, 10, 70, 30, 50] {
            let ahead = read(&tracker, step * step * 100 * MIB, 4096);
            assert_eq!(ahead, Prediction::Nothing);
        }
    }

    #[test]
    fn reads_in_equal_steps_are_predicted_in_both_directions() {
        let tracker = tracker(0, 16);
        let mut ahead = Prediction::Nothing;
        for step in 1..=4 {
            ahead = read(&tracker, step * 100 * MIB, 4096);
        }
        let next: Vec<_> = ahead.ranges(700 * MIB + 5).collect();
        let range = |start: u64| start..(start + 4096).min(700 * MIB + 5);
        assert_eq!(next, [500, 600, 700].map(|place| range(place * MIB)));
        for step in [30, 20, 10] {
            ahead = read(&tracker, step * 10 * MIB, 4096);
        }
        assert_eq!(ahead.ranges(u64::MAX).collect::<Vec<_>>(), [range(0)]);
    }

    #[test]
    fn bytes_after_a_pending_read_are_not_consumed() {
        let tracker = tracker(0, 0);
        assert_eq!(tracker.record(&(0..100)).1, Some(100));
        for start in [100, 200, 300] {
            tracker.begin(&(start..start + 100));
        }
        assert_eq!(tracker.finish(&(200..300)), Some(100));
        assert_eq!(tracker.record(&(400..500)).1, Some(100));
        assert_eq!(tracker.finish(&(100..200)), Some(300));
        assert_eq!(tracker.finish(&(300..400)), Some(500));
        let seek = 900 * MIB..900 * MIB + 1;
        assert_eq!(
            tracker.record(&seek).1,
            None,
            "is not known to be sequential"
        );
    }

    #[test]
    fn a_chunk_ends_in_the_file_at_its_last_element() {
        let end_of = |file: Region, order: Option<&[usize]>, chunk: Region| {
            let tracker = ReadTracker::new(file, order.map(Into::into), 2, Window::default());
            tracker.end_of(&chunk.start, &chunk.shape)
        };
        let whole = || region(&[0, 0], &[10, 20]);
        let chunk = |start| region(start, &[5, 5]);
        assert_eq!(end_of(whole(), None, chunk(&[0, 0])), Some(2 * 85));
        assert_eq!(end_of(whole(), None, chunk(&[5, 15])), Some(2 * 200));
        assert_eq!(end_of(whole(), None, chunk(&[8, 18])), Some(2 * 200), "cut");
        let columns: &[usize] = &[1, 0];
        assert_eq!(end_of(whole(), Some(columns), chunk(&[5, 0])), Some(2 * 50));
        let part = || region(&[4, 4], &[2, 2]);
        assert_eq!(end_of(part(), None, chunk(&[0, 0])), Some(2));
        assert_eq!(end_of(part(), None, chunk(&[6, 6])), None);
        assert_eq!(end_of(region(&[], &[]), None, region(&[], &[])), Some(2));
    }

    #[test]
    fn chunks_behind_a_sequential_reader_are_not_needed() {
        let trackers = ReadTrackers::new(Grid::new(&[8, 8], &[4, 4]).unwrap());
        let whole = region(&[0, 0], &[8, 8]);
        let tracker = Arc::new(ReadTracker::new(whole, None, 1, Window::default()));
        trackers.add(&tracker);
        let state = |chunk| {
            let chunk = ChunkIndex(chunk);
            (trackers.is_needed(chunk), trackers.is_passed(chunk))
        };
        assert_eq!(state(0), (false, false), "nothing was read");
        tracker.record(&(0..28));
        assert_eq!(state(0), (false, true));
        assert_eq!([1, 2, 3].map(state), [(true, false); 3]);
        assert!(trackers.remove(&tracker));
        assert_eq!([0, 3].map(state), [(false, false); 2]);
    }

    /// The file has planes of 100 bytes, with 10 bytes of each chunk. Its first chunk row has three planes, all others
    /// have four.
    #[test]
    fn prefetch_covers_each_chunk_of_a_row_in_one_plane() {
        let chunks = Grid::new(&[41, 10, 10], &[4, 1, 10]).unwrap();
        let file = region(&[1, 0, 0], &[40, 10, 10]);
        let rows = ChunkRows::new(&chunks, &file, 0, 4000);
        let chunk = |byte: u64| (rows.range_at(byte).start, byte % rows.plane / 10);
        for length in [1, 7, 30, 64, 100, 110, 333, 1000] {
            let tracker = ReadTracker::new(file.clone(), None, 1, Window::default());
            let ranges = (0..3000 / length).map(|number| number * length..(number + 1) * length);
            let unvisited: Vec<_> = ranges.map(|range| tracker.unvisited(range, rows)).collect();
            let found: HashSet<_> = unvisited.iter().cloned().flatten().map(chunk).collect();
            let all: HashSet<_> = (0..3000 / length * length).map(chunk).collect();
            assert_eq!(found, all, "{length}");
            if length <= 100 {
                let bytes: u64 = unvisited.iter().map(|range| range.end - range.start).sum();
                assert!(bytes < 3000 / 4 + 9 * 100, "{length}: {bytes}");
            }
        }
    }
}
