//! Numbers the names of a listing; the numbers are the kernel's cursors.
//!
//! A file system's own cursors have up to 63 bits, but 32-bit C libraries fail with EOVERFLOW for a cursor above 31
//! bits. So names are numbered in the order of the listing. To go back to a name, the listing seeks to its own cursor
//! of the name, or of a name shortly before it.

use std::collections::VecDeque;

/// Number of the most recent names whose cursors in the listing are all in memory: 8 MiB for an open directory. A
/// program that goes back further may miss names if earlier names were removed in between.
const RECENT: usize = 1 << 20;

/// Of all earlier names, the cursor of each `STEP`th is in memory: 1 MB for a directory of a hundred million names.
const STEP: u64 = 1 << 10;

/// The listing's own cursors of names, by the number of the name; numbers begin with 1.
#[derive(Default)]
pub(super) struct Cursors {
    /// The cursor of each `STEP`th name.
    steps: Vec<u64>,
    /// The cursors of the most recent names, from number `before_recent` + 1.
    recent: VecDeque<u64>,
    before_recent: u64,
}

impl Cursors {
    /// Returns the number of the last name that was read.
    fn last(&self) -> u64 {
        self.before_recent + self.recent.len() as u64
    }

    /// Returns the listing's own cursor of a name, or `None` if the name is not one of the most recent.
    pub(super) fn recent(&self, number: u64) -> Option<u64> {
        let place = number.checked_sub(self.before_recent + 1)?;
        self.recent.get(usize::try_from(place).ok()?).copied()
    }

    /// Returns the greatest number up to `number` for which the listing's own cursor is known, and that cursor. (0, 0)
    /// is the beginning of the listing.
    pub(super) fn nearest(&self, number: u64) -> (u64, u64) {
        let wanted = number.min(self.last());
        if let Some(cursor) = self.recent(wanted) {
            return (wanted, cursor);
        }
        let step = wanted / STEP;
        let place = step
            .checked_sub(1)
            .and_then(|place| usize::try_from(place).ok());
        let cursor = place.and_then(|place| self.steps.get(place));
        cursor.map_or((0, 0), |cursor| (step * STEP, *cursor))
    }

    /// Records that the listing returned a name with this cursor after the name number `before`; returns the name's
    /// number. A name that has a number keeps it, even if names before it were removed. A new name makes the numbers
    /// after it invalid.
    pub(super) fn record(&mut self, before: u64, cursor: u64) -> u64 {
        if let Some(number) = self.number_after(before, cursor) {
            return number;
        }
        self.forget_after(before);
        if (before + 1).is_multiple_of(STEP) {
            self.steps.push(cursor);
        }
        self.recent.push_back(cursor);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
            self.before_recent += 1;
        }
        before + 1
    }

    /// Returns the number of the name with this cursor if it is a recent name after name number `before`, otherwise
    /// `None`.
    fn number_after(&self, before: u64, cursor: u64) -> Option<u64> {
        let passed = before.checked_sub(self.before_recent)?;
        let mut later = self.recent.iter().skip(usize::try_from(passed).ok()?);
        let between = later.position(|&known| known == cursor)?;
        Some(before + 1 + between as u64)
    }

    fn forget_after(&mut self, number: u64) {
        let steps = usize::try_from(number / STEP).unwrap_or(usize::MAX);
        self.steps.truncate(steps);
        match number.checked_sub(self.before_recent) {
            Some(count) => self
                .recent
                .truncate(usize::try_from(count).unwrap_or(usize::MAX)),
            None => {
                self.recent.clear();
                self.before_recent = number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cursors of a simulated listing, which are odd numbers of more than 32 bits.
    fn cursors(names: u64) -> Cursors {
        let mut cursors = Cursors::default();
        for before in 0..names {
            cursors.record(before, cursor(before + 1));
        }
        cursors
    }

    fn cursor(number: u64) -> u64 {
        (number << 33) + 1
    }

    #[test]
    fn recent_cursors_are_exact_and_older_ones_approximate() {
        let names = 2 * RECENT as u64;
        let cursors = cursors(names);
        for number in [names, names - 1, names - RECENT as u64 + 1] {
            assert_eq!(cursors.nearest(number), (number, cursor(number)));
        }
        for number in [STEP, STEP + 1, 2 * STEP - 1, 3 * STEP + 7] {
            let known = number / STEP * STEP;
            assert_eq!(cursors.nearest(number), (known, cursor(known)));
        }
        assert_eq!(cursors.nearest(u64::MAX), (names, cursor(names)));
        assert_eq!(cursors.nearest(STEP - 1), (0, 0));
        assert_eq!(cursors.nearest(0), (0, 0));
        assert_eq!(Cursors::default().nearest(7), (0, 0));
        assert!(cursors.recent.capacity() <= 2 * RECENT);
    }

    #[test]
    fn rereading_a_listing_keeps_its_cursors() {
        let names = 3 * STEP;
        let mut cursors = cursors(names);
        for before in 5..20 {
            cursors.record(before, cursor(before + 1));
        }
        assert_eq!(cursors.nearest(names), (names, cursor(names)));
        // Names 22 to 29 were removed, so name 30 follows name 21.
        assert_eq!(cursors.record(21, cursor(30)), 30);
        assert_eq!(cursors.nearest(names), (names, cursor(names)));
        // A new name, whose cursor is 7, appears after name 20.
        assert_eq!(cursors.record(20, 7), 21);
        assert_eq!(cursors.nearest(names), (21, 7));
    }

    #[test]
    fn a_listing_continues_from_any_known_cursor() {
        let names = RECENT as u64 + 3 * STEP;
        for start in [0, STEP, names - RECENT as u64] {
            let mut cursors = cursors(names);
            let (known, _) = cursors.nearest(start);
            for before in known..names + 2 * STEP {
                cursors.record(before, cursor(before + 1));
            }
            let last = names + 2 * STEP;
            assert_eq!(cursors.nearest(last), (last, cursor(last)));
            assert_eq!(cursors.nearest(STEP + 3), (STEP, cursor(STEP)));
            assert_eq!(cursors.steps.len() as u64, last / STEP);
        }
    }
}
