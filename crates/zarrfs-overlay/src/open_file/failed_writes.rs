//! Tracks ranges of a file that could not be written, as on a full disk.
//!
//! A file with such a range is not published, so no incomplete content is ever committed. The range is cleared when it
//! is written again or cut off.

use std::collections::HashMap;
use std::ops::Range;

use crate::key_ranges::joined;
use zarr_format::error::{Error, Kind};
use zarrfs_store::Key;
use zarrfs_store::sync::file_limits;

/// The range of bytes that could not be written, and the kind of error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedWrites {
    range: Range<u64>,
    kind: Kind,
}

impl FailedWrites {
    /// Adds a failed write. A write that no file could hold leaves nothing incomplete and is not added; a write beyond
    /// this process's limit of file sizes is added.
    pub(super) fn with_failure(
        failed: Option<FailedWrites>,
        range: Range<u64>,
        kind: Kind,
    ) -> Option<FailedWrites> {
        let is_limited = || file_limits::size_limit().is_some_and(|limit| range.end > limit);
        if kind == Kind::Invalid || kind == Kind::TooLarge && !is_limited() {
            return failed;
        }
        let before = failed.map_or(range.clone(), |failed| failed.range);
        let range = before.start.min(range.start)..before.end.max(range.end);
        Some(FailedWrites { range, kind })
    }

    /// Returns the missing range after a successful write, or `None` if nothing is missing.
    pub(super) fn without(self, written: Range<u64>) -> Option<FailedWrites> {
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

    /// Returns the missing range after the file was set to this length in bytes.
    pub(super) fn truncated(self, length: u64) -> Option<FailedWrites> {
        self.without(length..u64::MAX)
    }

    /// Returns the error that prevents the publication of the file.
    pub(super) fn error(&self, key: &Key) -> Error {
        let Range { start, end } = self.range;
        let why = format!("bytes {start} to {end} could not be written, so it is not whole");
        Error::new(self.kind, key, why)
    }
}

/// The failed writes of incomplete new files, by key. They outlive the open file.
#[derive(Default)]
pub(crate) struct FailedWritesTable(HashMap<Key, FailedWrites>);

impl FailedWritesTable {
    /// Returns the missing range of the file of a key, or `None` if the file is complete.
    pub(super) fn get(&self, key: &Key) -> Option<&FailedWrites> {
        self.0.get(key)
    }

    /// Sets the missing range of the file of a key, or `None` if the file is complete.
    pub(crate) fn set(&mut self, key: &Key, failed: Option<&FailedWrites>) {
        match failed {
            Some(failed) => self.0.insert(key.clone(), failed.clone()),
            None => self.0.remove(key),
        };
    }

    /// Moves the entries at and below a renamed key.
    pub(crate) fn rename(&mut self, from: &Key, to: &Key) {
        let all = self.0.drain().map(|(key, failed)| match key.below(from) {
            Some(rest) => (joined(to, &rest), failed),
            None => (key, failed),
        });
        self.0 = all.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(range: Range<u64>) -> Option<FailedWrites> {
        FailedWrites::with_failure(None, range, Kind::NoSpace)
    }

    #[test]
    fn what_failed_adds_up() {
        let both = FailedWrites::with_failure(failed(10..20), 30..40, Kind::NoSpace);
        assert_eq!(both, failed(10..40));
        let refused = FailedWrites::with_failure(None, 1..2, Kind::TooLarge);
        assert_eq!(refused, None);
    }

    #[test]
    fn what_is_written_after_all_is_missing_no_more() {
        let rest = |written| failed(10..20).and_then(|failed| failed.without(written));
        assert_eq!(rest(10..20), None);
        assert_eq!(rest(0..100), None);
        assert_eq!(rest(10..15), failed(15..20));
        assert_eq!(rest(15..20), failed(10..15));
        assert_eq!(rest(12..15), failed(10..20));
        assert_eq!(rest(20..30), failed(10..20));
        assert_eq!(rest(0..10), failed(10..20));
    }

    #[test]
    fn what_is_cut_off_is_missing_no_more() {
        let cut = |length| failed(10..20).and_then(|failed| failed.truncated(length));
        assert_eq!(cut(0), None);
        assert_eq!(cut(10), None);
        assert_eq!(cut(15), failed(10..15));
        assert_eq!(cut(20), failed(10..20));
    }
}
