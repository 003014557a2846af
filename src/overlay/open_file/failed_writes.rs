//! What of a file's content could not be written, such as for want of room.
//!
//! As long as something is missing the file does not get its key, so that no part of a content is ever committed;
//! what is written there after all, or cut off, is missing no more.

use std::ops::Range;

use crate::error::{Error, Kind};
use crate::store::Key;

/// A stretch of a file that is not as its writer meant it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedWrites {
    range: Range<u64>,
    kind: Kind,
}

impl FailedWrites {
    /// Adds a write that failed. One that no file could take has left nothing behind, and is not missing.
    pub(super) fn failed(
        torn: Option<FailedWrites>,
        range: Range<u64>,
        kind: Kind,
    ) -> Option<FailedWrites> {
        if matches!(kind, Kind::Invalid | Kind::TooLarge) {
            return torn;
        }
        let before = torn.map_or(range.clone(), |torn| torn.range);
        let range = before.start.min(range.start)..before.end.max(range.end);
        Some(FailedWrites { range, kind })
    }

    /// Returns what is missing still after a write.
    pub(super) fn written(self, written: Range<u64>) -> Option<FailedWrites> {
        let Range { mut start, mut end } = self.range;
        if written.start <= start {
            start = start.max(written.end);
        }
        if written.end >= end {
            end = end.min(written.start);
        }
        let kind = self.kind;
        (start < end).then_some(FailedWrites {
            range: start..end,
            kind,
        })
    }

    /// Returns what is missing still of a file that has this length now, in bytes.
    pub(super) fn cut(self, length: u64) -> Option<FailedWrites> {
        self.written(length..u64::MAX)
    }

    /// Says that the file is not whole.
    pub(crate) fn error(&self, key: &Key) -> Error {
        let Range { start, end } = self.range;
        let why = format!("bytes {start} to {end} could not be written, so it is not whole");
        Error::new(self.kind, key, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn(range: Range<u64>) -> Option<FailedWrites> {
        FailedWrites::failed(None, range, Kind::NoSpace)
    }

    #[test]
    fn what_failed_adds_up() {
        let both = FailedWrites::failed(torn(10..20), 30..40, Kind::NoSpace);
        assert_eq!(both, torn(10..40));
        assert_eq!(FailedWrites::failed(None, 1..2, Kind::TooLarge), None);
    }

    #[test]
    fn what_is_written_after_all_is_missing_no_more() {
        let rest = |written| torn(10..20).and_then(|torn| torn.written(written));
        assert_eq!(rest(10..20), None);
        assert_eq!(rest(0..100), None);
        assert_eq!(rest(10..15), torn(15..20));
        assert_eq!(rest(15..20), torn(10..15));
        assert_eq!(rest(12..15), torn(10..20));
        assert_eq!(rest(20..30), torn(10..20));
        assert_eq!(rest(0..10), torn(10..20));
    }

    #[test]
    fn what_is_cut_off_is_missing_no_more() {
        let cut = |length| torn(10..20).and_then(|torn| torn.cut(length));
        assert_eq!(cut(0), None);
        assert_eq!(cut(10), None);
        assert_eq!(cut(15), torn(10..15));
        assert_eq!(cut(20), torn(10..20));
    }
}
