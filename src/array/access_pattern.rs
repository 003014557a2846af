//! Reading ahead: notices that a file is read in order, or in equal steps, and says which parts come next.
//!
//! Only offsets of the flat file are known here; which chunks lie under them, and whether they are there
//! already, is the array's business. Another seek ends the reading ahead.

use parking_lot::Mutex;
use std::ops::Range;

/// How far a request may lie from where it was expected and still count as in order: the kernel sends
/// requests of its own read-ahead side by side.
const SLACK: u64 = 4 << 20;

/// How much must have been read in order before anything is read ahead.
const PROOF: u64 = 256 << 10;

/// How one open file is being read.
#[derive(Default)]
pub struct AccessPattern {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Where the last read in order ended.
    end: u64,
    /// Bytes read in order so far.
    streak: u64,
    /// Where the reading in order began.
    began: u64,
    /// Length of the last read.
    length: u64,
    /// Up to where reading ahead was asked for.
    asked: u64,
    /// Where the last read began, how far from the one before, and how often in a row so far.
    offset: u64,
    step: i128,
    steps: u32,
    /// Up to where every read was answered.
    done: u64,
    /// Ranges after that which were answered.
    beyond: Vec<Range<u64>>,
}

/// The most ranges that are remembered beyond one that is not answered.
const MOST_BEYOND: usize = 64;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// The range that follows; it may be empty.
    Range(Range<u64>),
    /// Reads of so many bytes, each so far from the one before; the first begins there.
    Steps {
        /// Where the first begins.
        first: u64,
        /// From one to the next, in bytes.
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
        let place = move |number: i128| u64::try_from(first + number * step).ok();
        let steps = (0..i128::from(MOST_STEPS)).map_while(move |number| {
            let start = place(number).filter(|start| step != 0 && *start < length)?;
            Some(start..start.saturating_add(len))
        });
        let cut = move |range: Range<u64>| range.start.min(length)..range.end.min(length);
        let ranges = range.into_iter().chain(steps);
        ranges.map(cut).filter(|range| !range.is_empty())
    }
}

/// The most steps that are looked at.
const MOST_STEPS: u32 = 4096;

/// How many equal steps are a pattern.
const LIKE_STEPS: u32 = 3;

/// How far to read ahead of a reader in order, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// As soon as there is reason to: what any read costs is not much more with as much again.
    pub least: u64,
    /// Once much has been read; never more, whatever `least` says.
    pub most: u64,
}

impl AccessPattern {
    /// Notes a read and returns what to read ahead now.
    pub fn note(&self, offset: u64, len: u64, reach: Window) -> Prediction {
        let mut seen = self.seen.lock();
        let end = offset.saturating_add(len);
        let expected = seen.end.saturating_sub(SLACK)..=seen.end.saturating_add(SLACK);
        seen.note_step(offset);
        if !expected.contains(&offset) {
            (seen.end, seen.streak, seen.asked) = (end, len, end);
            (seen.began, seen.length, seen.done) = (offset, len, offset);
            seen.beyond.clear();
            return seen.steps_ahead(len);
        }
        match seen.range_ahead(end, len, reach) {
            range if range.is_empty() => Prediction::NOTHING,
            range => Prediction::Range(range),
        }
    }

    /// Notes that a read was answered.
    pub fn note_answer(&self, range: Range<u64>) {
        let mut seen = self.seen.lock();
        seen.beyond.push(range);
        seen.beyond.sort_unstable_by_key(|range| range.start);
        let mut done = seen.done;
        seen.beyond.retain(|range| {
            let joins = range.start <= done;
            done = if joins { done.max(range.end) } else { done };
            !joins
        });
        seen.done = done;
        seen.beyond.truncate(MOST_BEYOND);
    }

    /// Returns where the bytes begin that a reader in order has still to get; nothing if the file is not read in
    /// order.
    pub fn rest(&self) -> Option<u64> {
        let seen = self.seen.lock();
        let in_order = seen.streak >= PROOF || (seen.began == 0 && seen.streak > 0);
        // What the kernel had already, it never asks for.
        let slack = SLACK.max(seen.length.saturating_mul(2));
        in_order.then_some(seen.done.max(seen.end.saturating_sub(slack)))
    }
}

impl Seen {
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
            Ok(first) if self.steps >= LIKE_STEPS => Prediction::Steps {
                first,
                step: self.step,
                len,
            },
            _ => Prediction::NOTHING,
        }
    }

    fn range_ahead(&mut self, end: u64, len: u64, reach: Window) -> Range<u64> {
        let (seen, most) = (self, reach.most);
        seen.streak = seen.streak.saturating_add(len);
        seen.end = seen.end.max(end);
        seen.length = len;
        if seen.streak < PROOF {
            return end..end;
        }
        let earned = seen.streak.saturating_mul(4).max(reach.least);
        let far = seen.end.saturating_add(most.min(earned));
        let near = seen.asked.max(seen.end);
        // Small steps cost more than they bring: wait until a quarter of the way is free.
        if far.saturating_sub(near) * 4 < most.min(far - seen.end) {
            return end..end;
        }
        seen.asked = far;
        near..far
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
    fn what_is_wanted_at_once_is_asked_for_after_the_proof() {
        let pattern = AccessPattern::default();
        let reach = |most| Window {
            least: 32 * MIB,
            most,
        };
        let first = pattern.note(0, PROOF - 1, reach(64 * MIB));
        assert_eq!(first, Prediction::NOTHING);
        let next = pattern.note(PROOF - 1, 1, reach(64 * MIB));
        assert_eq!(next, Prediction::Range(PROOF..PROOF + 32 * MIB));
        let pattern = AccessPattern::default();
        let bounded = pattern.note(0, PROOF, reach(4 * MIB));
        assert_eq!(bounded, Prediction::Range(PROOF..PROOF + 4 * MIB));
    }

    #[test]
    fn reading_in_order_runs_ahead_and_never_asks_twice() {
        let pattern = AccessPattern::default();
        let mut asked = 0;
        for step in 0..64 {
            let range = pattern.note(step * MIB, MIB, up_to(16));
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
            pattern.note(step * MIB, MIB, up_to(64));
        }
        assert_ne!(pattern.note(6 * MIB, MIB, up_to(64)), Prediction::NOTHING);
    }

    #[test]
    fn who_reads_in_order_has_the_rest_to_read() {
        let pattern = AccessPattern::default();
        assert_eq!(pattern.rest(), None);
        pattern.note(0, 4096, up_to(0));
        assert_eq!(pattern.rest(), Some(0));
        for step in 0..16 {
            pattern.note(step * MIB, MIB, up_to(0));
        }
        assert_eq!(pattern.rest(), Some(16 * MIB - SLACK), "none was answered");
        for step in [13, 15] {
            pattern.note_answer(step * MIB..(step + 1) * MIB);
        }
        assert_eq!(pattern.rest(), Some(12 * MIB));
        pattern.note_answer(0..13 * MIB);
        assert_eq!(pattern.rest(), Some(14 * MIB));
        pattern.note_answer(14 * MIB..15 * MIB);
        assert_eq!(pattern.rest(), Some(16 * MIB));
        pattern.note(900 * MIB, 4096, up_to(0));
        assert_eq!(pattern.rest(), None);
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let pattern = AccessPattern::default();
        for step in [90, 10, 70, 30, 50] {
            let ahead = pattern.note(step * step * 100 * MIB, 4096, up_to(16));
            assert_eq!(ahead, Prediction::NOTHING);
        }
    }

    #[test]
    fn equal_steps_go_on_to_either_end() {
        let pattern = AccessPattern::default();
        let mut ahead = Prediction::NOTHING;
        for step in 1..=4 {
            ahead = pattern.note(step * 100 * MIB, 4096, up_to(16));
        }
        let next: Vec<_> = ahead.ranges(700 * MIB + 5).collect();
        let read = |start: u64| start..(start + 4096).min(700 * MIB + 5);
        assert_eq!(next, [500, 600, 700].map(|place| read(place * MIB)));
        for step in [30, 20, 10] {
            ahead = pattern.note(step * 10 * MIB, 4096, up_to(16));
        }
        assert_eq!(ahead.ranges(u64::MAX).collect::<Vec<_>>(), [read(0)]);
    }
}
