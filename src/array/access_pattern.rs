//! How a flat file is being read, and which ranges its reader will want next.
//!
//! Reads in order and reads in equal steps are recognized; any other seek ends the prediction. Only offsets of the
//! flat file are known here: which chunks lie under them is left to `prefetch`.

use parking_lot::Mutex;
use std::ops::Range;

use crate::array::read_order::ReadOrder;

/// How far from its expected offset a read may begin and still count as in order, in bytes: the kernel sends
/// requests of its own readahead side by side.
const REORDER_TOLERANCE: u64 = 4 << 20;

/// Bytes that must have been read in order before anything is read ahead.
const MIN_SEQUENTIAL: u64 = 256 << 10;

/// The most answered ranges that are kept behind one that is not answered yet.
const MAX_ANSWERED_RANGES: usize = 64;

/// The most steps that a prediction goes ahead.
const MAX_STEPS: u32 = 4096;

/// Number of equal steps in a row that make a pattern.
const MIN_EQUAL_STEPS: u32 = 3;

/// How far apart reads in order may come in, in bytes, before the gaps count that they leave.
const GAP_TOLERANCE: u64 = 1 << 20;

/// How one open file is being read.
#[derive(Default)]
pub struct AccessPattern {
    history: Mutex<ReadHistory>,
}

#[derive(Default)]
struct ReadHistory {
    /// Where the reading in order began.
    start: u64,
    /// Where the last read in order ended.
    end: u64,
    /// Bytes read in order so far.
    sequential: u64,
    /// The most bytes that were read in order, and how often a read began elsewhere.
    longest: u64,
    jumps: u32,
    /// Length of the last read.
    length: u64,
    /// Up to where reading ahead was asked for.
    requested: u64,
    /// Where the last read began, its distance from the one before, and how often in a row that was the same.
    offset: u64,
    step: i128,
    steps: u32,
    /// Up to where every read was answered.
    answered: u64,
    /// Ranges after `answered` that were answered as well.
    answered_beyond: Vec<Range<u64>>,
}

/// The reads that come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// The range that follows; it may be empty.
    Range(Range<u64>),
    /// Reads of `len` bytes, each `step` bytes after the one before.
    Steps {
        /// Where the first begins.
        first: u64,
        /// Distance from one to the next, in bytes.
        step: i128,
        /// Length of each, in bytes.
        len: u64,
    },
}

impl Prediction {
    /// Nothing comes next.
    pub const NOTHING: Prediction = Prediction::Range(0..0);

    /// Returns the reads that come next, in order, inside a file of `length` bytes.
    pub fn ranges(&self, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (range, first, step, len) = match self.clone() {
            Prediction::Range(range) => (Some(range), 0, 0, 0),
            Prediction::Steps { first, step, len } => (None, i128::from(first), step, len),
        };
        let offset = move |number: i128| u64::try_from(first + number * step).ok();
        let steps = (0..i128::from(MAX_STEPS)).map_while(move |number| {
            let start = offset(number).filter(|start| step != 0 && *start < length)?;
            Some(start..start.saturating_add(len))
        });
        let cut = move |range: Range<u64>| range.start.min(length)..range.end.min(length);
        let ranges = range.into_iter().chain(steps);
        ranges.map(cut).filter(|range| !range.is_empty())
    }
}

/// How far to read ahead of a reader in order, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// As soon as reading in order is recognized.
    pub least: u64,
    /// Once much has been read; never more, whatever `least` says.
    pub most: u64,
}

impl Window {
    /// Nothing is read ahead.
    pub const NONE: Window = Window { least: 0, most: 0 };
}

impl AccessPattern {
    /// Notes a read and returns what to read ahead now.
    pub fn note_read(&self, offset: u64, len: u64, window: Window) -> Prediction {
        self.history.lock().note_read(offset, len, window)
    }

    /// Notes that a read was answered; returns what `unread` does after that.
    pub fn note_answer(&self, range: Range<u64>) -> Option<u64> {
        let mut history = self.history.lock();
        history.note_answer(range);
        history.unread()
    }

    /// Whether so many bytes were read in order, and enough for the reader to be taken to go on.
    pub fn has_read(&self, bytes: u64) -> bool {
        self.history.lock().sequential >= bytes.max(MIN_SEQUENTIAL)
    }

    /// Returns how the file was read so far; nothing if that is too little to tell.
    pub fn order(&self) -> Option<ReadOrder> {
        let history = self.history.lock();
        ReadOrder::of(history.longest, history.jumps)
    }

    /// Returns where the bytes begin that a reader in order has still to read; nothing if the file is not read in
    /// order.
    pub fn unread(&self) -> Option<u64> {
        self.history.lock().unread()
    }
}

impl ReadHistory {
    fn note_read(&mut self, offset: u64, len: u64, window: Window) -> Prediction {
        let end = offset.saturating_add(len);
        self.note_step(offset);
        if !self.is_in_order(offset, len) {
            self.jumps = self.jumps.saturating_add(1);
            (self.end, self.sequential, self.requested) = (end, len, end);
            (self.start, self.length, self.answered) = (offset, len, offset);
            self.answered_beyond.clear();
            return self.steps_ahead(len);
        }
        match self.range_ahead(end, len, window) {
            range if range.is_empty() => Prediction::NOTHING,
            range => Prediction::Range(range),
        }
    }

    /// Whether a read goes on with those before it: it is near their end, and they have left few gaps. Rows of a window
    /// may be near each other as well, but what lies between them is not read.
    fn is_in_order(&self, offset: u64, len: u64) -> bool {
        let earliest = self.end.saturating_sub(REORDER_TOLERANCE);
        let latest = self.end.saturating_add(REORDER_TOLERANCE);
        let end = self.end.max(offset.saturating_add(len));
        let read = self.sequential.saturating_add(len);
        let span = end.saturating_sub(self.start.min(offset));
        (earliest..=latest).contains(&offset)
            && span <= read.saturating_mul(2).saturating_add(GAP_TOLERANCE)
    }

    fn note_step(&mut self, offset: u64) {
        let step = i128::from(offset) - i128::from(self.offset);
        self.steps = if step == self.step {
            self.steps.saturating_add(1)
        } else {
            1
        };
        (self.offset, self.step) = (offset, step);
    }

    fn steps_ahead(&self, len: u64) -> Prediction {
        let first = u64::try_from(i128::from(self.offset) + self.step);
        match first {
            Ok(first) if self.steps >= MIN_EQUAL_STEPS => Prediction::Steps {
                first,
                step: self.step,
                len,
            },
            _ => Prediction::NOTHING,
        }
    }

    fn range_ahead(&mut self, end: u64, len: u64, window: Window) -> Range<u64> {
        self.sequential = self.sequential.saturating_add(len);
        self.longest = self.longest.max(self.sequential);
        self.end = self.end.max(end);
        self.length = len;
        if self.sequential < MIN_SEQUENTIAL {
            return end..end;
        }
        let wanted = self.sequential.saturating_mul(4).max(window.least);
        let far = self.end.saturating_add(window.most.min(wanted));
        let near = self.requested.max(self.end);
        // Small batches cost more than they bring: wait until a quarter of the window is free.
        if far.saturating_sub(near) * 4 < window.most.min(far - self.end) {
            return end..end;
        }
        self.requested = far;
        near..far
    }

    fn note_answer(&mut self, range: Range<u64>) {
        self.answered_beyond.push(range);
        self.answered_beyond
            .sort_unstable_by_key(|range| range.start);
        let mut answered = self.answered;
        self.answered_beyond.retain(|range| {
            let joins = range.start <= answered;
            if joins {
                answered = answered.max(range.end);
            }
            !joins
        });
        self.answered = answered;
        self.answered_beyond.truncate(MAX_ANSWERED_RANGES);
    }

    fn unread(&self) -> Option<u64> {
        let is_first = self.start == 0 && self.sequential > 0;
        // The kernel never asks for pages that it has already, so answers may be missing for good.
        let tolerance = REORDER_TOLERANCE.max(self.length.saturating_mul(2));
        let unread = self.answered.max(self.end.saturating_sub(tolerance));
        (is_first || self.sequential >= MIN_SEQUENTIAL).then_some(unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Up to so many MiB.
    fn up_to(most: u64) -> Window {
        let most = most * MIB;
        Window { least: 0, most }
    }

    #[test]
    fn the_least_window_is_read_ahead_once_reading_in_order_is_proved() {
        let pattern = AccessPattern::default();
        let window = |most| Window {
            least: 32 * MIB,
            most,
        };
        let first = pattern.note_read(0, MIN_SEQUENTIAL - 1, window(64 * MIB));
        assert_eq!(first, Prediction::NOTHING);
        let next = pattern.note_read(MIN_SEQUENTIAL - 1, 1, window(64 * MIB));
        assert_eq!(
            next,
            Prediction::Range(MIN_SEQUENTIAL..MIN_SEQUENTIAL + 32 * MIB)
        );
        let pattern = AccessPattern::default();
        let bounded = pattern.note_read(0, MIN_SEQUENTIAL, window(4 * MIB));
        assert_eq!(
            bounded,
            Prediction::Range(MIN_SEQUENTIAL..MIN_SEQUENTIAL + 4 * MIB)
        );
    }

    #[test]
    fn reading_in_order_runs_ahead_and_never_asks_twice() {
        let pattern = AccessPattern::default();
        let mut asked = 0;
        for step in 0..64 {
            let range = pattern.note_read(step * MIB, MIB, up_to(16));
            if let Prediction::Range(range) = range
                && !range.is_empty()
            {
                assert!(range.start >= asked);
                asked = range.end;
            }
            assert!(asked <= (step + 1) * MIB + 16 * MIB);
        }
        assert!(asked >= 64 * MIB);
    }

    #[test]
    fn requests_of_the_kernel_out_of_order_are_in_order() {
        let pattern = AccessPattern::default();
        for step in [0, 2, 1, 3, 5, 4] {
            pattern.note_read(step * MIB, MIB, up_to(64));
        }
        assert_ne!(
            pattern.note_read(6 * MIB, MIB, up_to(64)),
            Prediction::NOTHING
        );
    }

    #[test]
    fn a_reader_in_order_has_the_bytes_after_its_answers_to_read() {
        let pattern = AccessPattern::default();
        assert_eq!(pattern.unread(), None);
        pattern.note_read(0, 4096, up_to(0));
        assert_eq!(pattern.unread(), Some(0));
        for step in 0..16 {
            pattern.note_read(step * MIB, MIB, up_to(0));
        }
        assert_eq!(
            pattern.unread(),
            Some(16 * MIB - REORDER_TOLERANCE),
            "none was answered"
        );
        for step in [13, 15] {
            pattern.note_answer(step * MIB..(step + 1) * MIB);
        }
        assert_eq!(pattern.unread(), Some(12 * MIB));
        pattern.note_answer(0..13 * MIB);
        assert_eq!(pattern.unread(), Some(14 * MIB));
        pattern.note_answer(14 * MIB..15 * MIB);
        assert_eq!(pattern.unread(), Some(16 * MIB));
        pattern.note_read(900 * MIB, 4096, up_to(0));
        assert_eq!(pattern.unread(), None);
    }

    #[test]
    fn b11_rows_of_a_window_are_not_read_in_order() {
        let pattern = AccessPattern::default();
        let row = 4_000_000;
        for step in 0..200 {
            let ahead = pattern.note_read(900 * MIB + step * row, 8192, up_to(64));
            let goes_on = matches!(&ahead, Prediction::Range(range) if !range.is_empty());
            assert!(!goes_on, "{step}: {ahead:?}");
        }
        assert_eq!(pattern.order(), Some(ReadOrder::Windows));
        for step in 0..9 {
            pattern.note_read(step * MIB, MIB, up_to(64));
        }
        assert_eq!(pattern.order(), Some(ReadOrder::InOrder));
    }

    #[test]
    fn b11_little_tells_no_order() {
        let pattern = AccessPattern::default();
        for offset in [0, 900 * MIB, 0] {
            pattern.note_read(offset, 1 << 16, up_to(16));
        }
        assert_eq!(pattern.order(), None);
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let pattern = AccessPattern::default();
        for step in [90, 10, 70, 30, 50] {
            let ahead = pattern.note_read(step * step * 100 * MIB, 4096, up_to(16));
            assert_eq!(ahead, Prediction::NOTHING);
        }
    }

    #[test]
    fn equal_steps_go_on_to_either_end() {
        let pattern = AccessPattern::default();
        let mut ahead = Prediction::NOTHING;
        for step in 1..=4 {
            ahead = pattern.note_read(step * 100 * MIB, 4096, up_to(16));
        }
        let next: Vec<_> = ahead.ranges(700 * MIB + 5).collect();
        let read = |start: u64| start..(start + 4096).min(700 * MIB + 5);
        assert_eq!(next, [500, 600, 700].map(|place| read(place * MIB)));
        for step in [30, 20, 10] {
            ahead = pattern.note_read(step * 10 * MIB, 4096, up_to(16));
        }
        assert_eq!(ahead.ranges(u64::MAX).collect::<Vec<_>>(), [read(0)]);
    }
}
