//! The numbers of the names in a listing, which the kernel has as their cursors.
//!
//! The C library of a program of 32 bits gives it no name whose cursor has more than 31 bits: EOVERFLOW. Cursors of file
//! systems have up to 63, so names are numbered in the order in which a listing gives them. Where a program goes back, the
//! listing is asked for what follows its own cursor of that name, or of one shortly before it.

use std::collections::VecDeque;

/// Of how many names the cursors of the listing are kept one by one: those that were given last. A program that goes back
/// further may miss names, if others before them were removed meanwhile. They take 8 MiB while the directory is open.
const RECENT: usize = 1 << 20;

/// One cursor in so many is kept of all names: a megabyte of those of a directory of a hundred million.
const STEP: u64 = 1 << 10;

/// The cursors of a listing by the numbers of its names, counted from 1.
#[derive(Default)]
pub(super) struct Positions {
    /// Those of each `STEP`th name.
    steps: Vec<u64>,
    /// Those of the names after number `before_recent`.
    recent: VecDeque<u64>,
    before_recent: u64,
}

impl Positions {
    /// Returns the number of the last name that is known.
    fn last(&self) -> u64 {
        self.before_recent + self.recent.len() as u64
    }

    /// Returns the listing's cursor of a name, if it is among those that were given last.
    pub(super) fn recent(&self, number: u64) -> Option<u64> {
        let place = number.checked_sub(self.before_recent + 1)?;
        self.recent.get(usize::try_from(place).ok()?).copied()
    }

    /// Returns the greatest number up to `number` of which the listing's cursor is known, and that cursor; 0 and 0 are the
    /// beginning.
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

    /// Returns the number of the name that the listing gives after number `before`, which is known. A name that it has
    /// given before keeps its number, also if those between are gone. If it is a new one, those behind it are forgotten.
    pub(super) fn note(&mut self, before: u64, cursor: u64) -> u64 {
        if let Some(given) = self.given_after(before, cursor) {
            return given;
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

    /// Returns the number after `before` of a name that was given, if it is among those that were given last.
    fn given_after(&self, before: u64, cursor: u64) -> Option<u64> {
        let passed = before.checked_sub(self.before_recent)?;
        let mut later = self.recent.iter().skip(usize::try_from(passed).ok()?);
        let between = later.position(|&given| given == cursor)?;
        Some(before + 1 + between as u64)
    }

    fn forget_after(&mut self, number: u64) {
        let steps = usize::try_from(number / STEP).unwrap_or(usize::MAX);
        self.steps.truncate(steps);
        match number.checked_sub(self.before_recent) {
            Some(kept) => self
                .recent
                .truncate(usize::try_from(kept).unwrap_or(usize::MAX)),
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

    /// Returns the positions of a listing of so many names, whose cursors are odd numbers beyond 32 bits.
    fn positions(names: u64) -> Positions {
        let mut positions = Positions::default();
        for before in 0..names {
            positions.note(before, cursor(before + 1));
        }
        positions
    }

    fn cursor(number: u64) -> u64 {
        (number << 33) + 1
    }

    #[test]
    fn the_last_names_are_found_and_of_others_one_shortly_before() {
        let names = 2 * RECENT as u64;
        let positions = positions(names);
        for number in [names, names - 1, names - RECENT as u64 + 1] {
            assert_eq!(positions.nearest(number), (number, cursor(number)));
        }
        for number in [STEP, STEP + 1, 2 * STEP - 1, 3 * STEP + 7] {
            let known = number / STEP * STEP;
            assert_eq!(positions.nearest(number), (known, cursor(known)));
        }
        assert_eq!(positions.nearest(u64::MAX), (names, cursor(names)));
        assert_eq!(positions.nearest(STEP - 1), (0, 0));
        assert_eq!(positions.nearest(0), (0, 0));
        assert_eq!(Positions::default().nearest(7), (0, 0));
        assert!(positions.recent.capacity() <= 2 * RECENT);
    }

    #[test]
    fn a_listing_that_is_read_again_keeps_them() {
        let names = 3 * STEP;
        let mut positions = positions(names);
        for before in 5..20 {
            positions.note(before, cursor(before + 1));
        }
        assert_eq!(positions.nearest(names), (names, cursor(names)));
        // Names 22 to 29 were removed.
        assert_eq!(positions.note(21, cursor(30)), 30);
        assert_eq!(positions.nearest(names), (names, cursor(names)));
        // A name has come in between.
        assert_eq!(positions.note(20, 7), 21);
        assert_eq!(positions.nearest(names), (21, 7));
    }

    #[test]
    fn a_listing_can_be_read_on_from_each_name_that_is_found() {
        let names = RECENT as u64 + 3 * STEP;
        for start in [0, STEP, names - RECENT as u64] {
            let mut positions = positions(names);
            let (known, _) = positions.nearest(start);
            for before in known..names + 2 * STEP {
                positions.note(before, cursor(before + 1));
            }
            let last = names + 2 * STEP;
            assert_eq!(positions.nearest(last), (last, cursor(last)));
            assert_eq!(positions.nearest(STEP + 3), (STEP, cursor(STEP)));
            assert_eq!(positions.steps.len() as u64, last / STEP);
        }
    }
}
