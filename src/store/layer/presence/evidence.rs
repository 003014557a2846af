//! What is known of whether a store is there, by the times at which it was asked.
//!
//! A later question overrules an earlier one, in whatever order their answers come. A store that was never seen to have
//! anything, or whose keys this mount has removed since, may be empty: only others make it go.

use std::time::{Duration, Instant};

/// What the answers of a store tell.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The latest question whose answer tells whether the store is there, and that answer.
    last: Option<(Instant, bool)>,
    /// The latest question that found what cannot be missing from a store that is there.
    seen: Option<Instant>,
    /// When this mount last removed such a thing.
    removed: Option<Instant>,
}

/// What an answer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresenceChange {
    Nothing,
    Gone,
    ThereAgain,
}

impl Evidence {
    /// Notes that a key was found; `is_witness` if it is one of those that cannot all be missing.
    pub(super) fn found(&mut self, asked: Instant, is_witness: bool) -> PresenceChange {
        if is_witness {
            self.seen = self.seen.max(Some(asked));
        }
        self.answered(asked, true)
    }

    /// Notes that nothing is left of the store.
    pub(super) fn absent(&mut self, asked: Instant) -> PresenceChange {
        let is_there = self.may_be_empty();
        self.answered(asked, is_there)
    }

    /// Notes that this mount has removed one of the keys that cannot all be missing.
    pub(super) fn removed(&mut self, at: Instant) {
        self.removed = self.removed.max(Some(at));
    }

    /// Whether a store without keys is one that is there.
    pub(super) fn may_be_empty(&self) -> bool {
        self.seen
            .is_none_or(|seen| self.removed.is_some_and(|at| at >= seen))
    }

    /// Whether the store was there at a moment: that it was there counts for a while, that it was gone does not.
    pub(super) fn is_there(&self, at: Instant, counts: Duration) -> Option<bool> {
        let (last, is_there) = self.last?;
        let is_near = is_there && at.saturating_duration_since(last) < counts;
        (last >= at || is_near).then_some(is_there)
    }

    fn answered(&mut self, asked: Instant, is_there: bool) -> PresenceChange {
        let before = self.last;
        if before.is_some_and(|(last, _)| last > asked) {
            return PresenceChange::Nothing;
        }
        self.last = Some((asked, is_there));
        match (before.is_none_or(|(_, was_there)| was_there), is_there) {
            (true, false) => PresenceChange::Gone,
            (false, true) => PresenceChange::ThereAgain,
            _ => PresenceChange::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Duration = Duration::from_secs(1);

    fn times() -> [Instant; 6] {
        let start = Instant::now();
        std::array::from_fn(|second| start + COUNTS * u32::try_from(second).unwrap())
    }

    #[test]
    fn an_answer_counts_for_a_while() {
        let [_, first, second, ..] = times();
        let mut evidence = Evidence::default();
        assert_eq!(evidence.is_there(first, COUNTS), None);
        evidence.found(first, true);
        assert_eq!(evidence.is_there(first, Duration::ZERO), Some(true));
        assert_eq!(evidence.is_there(second - COUNTS / 2, COUNTS), Some(true));
        assert_eq!(evidence.is_there(second, COUNTS), None);
        evidence.absent(second);
        assert_eq!(evidence.is_there(second, COUNTS), Some(false));
        assert_eq!(evidence.is_there(second + COUNTS / 2, COUNTS), None);
    }

    #[test]
    fn what_was_asked_later_overrules_what_comes_late() {
        let [first, second, third, ..] = times();
        let mut evidence = Evidence::default();
        assert_eq!(evidence.found(first, true), PresenceChange::Nothing);
        assert_eq!(evidence.absent(third), PresenceChange::Gone);
        assert_eq!(evidence.found(second, true), PresenceChange::Nothing);
        assert_eq!(evidence.is_there(third, COUNTS), Some(false));
        assert_eq!(evidence.found(third, true), PresenceChange::ThereAgain);
    }

    #[test]
    fn what_this_mount_removes_leaves_an_empty_store_until_more_is_seen() {
        let [first, second, third, fourth, ..] = times();
        let mut evidence = Evidence::default();
        evidence.found(first, true);
        evidence.removed(second);
        assert_eq!(evidence.absent(third), PresenceChange::Nothing);
        evidence.found(fourth, false);
        assert!(evidence.may_be_empty(), "any other key may be there");
        evidence.found(fourth, true);
        assert!(!evidence.may_be_empty());
        assert_eq!(evidence.absent(fourth), PresenceChange::Gone);
    }
}
