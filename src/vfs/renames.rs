//! Renames under way: the view has the new name already, and the kernel and the table of inodes still have the old one.
//!
//! Until a rename has its answer, the kernel reaches what lies in a folder by the folder's old name. So what the view
//! does not find under the old path is looked for under the new one, so that it is never missing. A rename may also
//! begin and end while the view is asked: the last ones are remembered, so that a request that found nothing asks anew.

use std::collections::VecDeque;

use parking_lot::Mutex;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// How many renames that have ended are remembered.
const MAX_ENDED: usize = 64;

/// The old and new paths of renames under way, and of those that ended last.
#[derive(Default)]
pub(super) struct RenamesUnderWay(Mutex<RenameTable>);

#[derive(Default)]
struct RenameTable {
    under_way: Vec<Rename>,
    ended: VecDeque<Rename>,
    /// How many have ended.
    count: u64,
}

#[derive(Clone, PartialEq)]
struct Rename {
    from: Key,
    to: Key,
}

impl Rename {
    /// Whether it brings something to or from `path`, or to or from a folder above it.
    fn touches(&self, path: &Key) -> bool {
        path.below(&self.from).is_some() || path.below(&self.to).is_some()
    }

    /// Returns where something is after it that was at `path` before.
    fn moved(&self, path: &Key) -> Option<Key> {
        let rest = path.below(&self.from)?;
        rest.names()
            .try_fold(self.to.clone(), |key, name| key.child(name).ok())
    }
}

/// A rename under way; ends when it is dropped.
pub(super) struct RenameUnderWay<'a> {
    all: &'a RenamesUnderWay,
    rename: Rename,
    has_failed: bool,
}

impl RenameUnderWay<'_> {
    /// Ends a rename that has moved nothing.
    pub(super) fn fail(mut self) {
        self.has_failed = true;
    }
}

impl RenameTable {
    /// Whether one of those that are meant has ended since `count` had, as far as they are remembered.
    fn have_ended(&self, count: u64, is_meant: impl Fn(&Rename) -> bool) -> bool {
        let since = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        since > self.ended.len() || self.ended.iter().rev().take(since).any(is_meant)
    }
}

impl RenamesUnderWay {
    /// Notes that a rename begins.
    pub(super) fn begin(&self, from: &Key, to: &Key) -> RenameUnderWay<'_> {
        let rename = Rename {
            from: from.clone(),
            to: to.clone(),
        };
        self.0.lock().under_way.push(rename.clone());
        RenameUnderWay {
            all: self,
            rename,
            has_failed: false,
        }
    }

    /// Whether no rename is under way, and none has ended since `count` of them had.
    pub(super) fn are_none_since(&self, count: u64) -> bool {
        let all = self.0.lock();
        all.under_way.is_empty() && all.count == count
    }

    /// Returns how many renames have ended.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Whether a rename has ended that brought something to or from `path`, or to or from a folder above it, since
    /// `count` of them had.
    pub(super) fn have_moved(&self, path: &Key, count: u64) -> bool {
        self.0
            .lock()
            .have_ended(count, |rename| rename.touches(path))
    }

    /// Returns where something may be by now that was at `path` before a rename under way.
    pub(super) fn moved(&self, path: &Key) -> Option<Key> {
        let all = self.0.lock();
        all.under_way.iter().find_map(|rename| rename.moved(path))
    }

    /// Asks for the inode at a path; where a rename has taken it away, by its new path.
    pub(super) fn ask<T>(&self, path: &Key, ask: impl Fn(&Key) -> Result<T>) -> Result<T> {
        let answer = ask(path);
        let is_missing = |error: &Error| error.kind() == Kind::NotFound;
        match answer.as_ref().err().filter(|error| is_missing(error)) {
            Some(_) => self.moved(path).map_or(answer, |moved| ask(&moved)),
            None => answer,
        }
    }

    /// The same for a question whose answer may be that there is nothing.
    pub(super) fn find<T>(
        &self,
        path: &Key,
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match find(path)? {
            None => self.moved(path).map_or(Ok(None), |moved| find(&moved)),
            found => Ok(found),
        }
    }

    /// The same for a name in the folder at `parent`, which may itself be what is renamed: that has no old name any more.
    pub(super) fn find_in<T>(
        &self,
        parent: &Key,
        name: &[u8],
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let found = find(&parent.child(name)?)?;
        match self.moved(parent).filter(|_| found.is_none()) {
            // A rename that fails moves nothing.
            Some(moved) if find(parent)?.is_none() => find(&moved.child(name)?),
            _ => Ok(found),
        }
    }
}

impl Drop for RenameUnderWay<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let place = all
            .under_way
            .iter()
            .position(|rename| *rename == self.rename);
        let Some(place) = place else {
            return;
        };
        let ended = all.under_way.swap_remove(place);
        if self.has_failed {
            return;
        }
        if all.ended.len() >= MAX_ENDED {
            all.ended.pop_front();
        }
        all.ended.push_back(ended);
        all.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_folder_is_found_by_either_name_until_the_rename_ends() {
        let key = |path: &str| Key::new(path).unwrap();
        let renames = RenamesUnderWay::default();
        let in_view = |path: &Key| Ok((*path == key("new/a")).then_some(1));
        let opened = |path: &Key| in_view(path)?.ok_or_else(|| Error::not_found(path));
        let under_way = renames.begin(&key("old"), &key("new"));
        assert_eq!(renames.find(&key("old/a"), in_view).unwrap(), Some(1));
        assert_eq!(
            renames.find_in(&key("old"), b"a", in_view).unwrap(),
            Some(1)
        );
        assert_eq!(renames.ask(&key("old/a"), opened).unwrap(), 1);
        assert_eq!(renames.find(&key("old/b"), in_view).unwrap(), None);
        let root = |path: &Key| Ok((*path == key("new")).then_some(1));
        let found = renames.find_in(&Key::root(), b"old", root);
        assert_eq!(found.unwrap(), None, "the old name itself is gone");
        assert!(!renames.are_none_since(0));
        drop(under_way);
        assert!(renames.are_none_since(1) && !renames.are_none_since(0));
        assert_eq!(renames.find(&key("old/a"), in_view).unwrap(), None);
        assert_eq!(
            renames.ask(&key("old/a"), opened).unwrap_err().kind(),
            Kind::NotFound
        );
    }

    #[test]
    fn who_found_nothing_knows_of_renames_that_have_ended_meanwhile() {
        let key = |path: &str| Key::new(path).unwrap();
        let renames = RenamesUnderWay::default();
        renames.begin(&key("old"), &key("new")).fail();
        assert_eq!(renames.count(), 0, "nothing was moved");
        drop(renames.begin(&key("old"), &key("new")));
        for path in ["old", "old/a", "new/a/b"] {
            assert!(renames.have_moved(&key(path), 0), "{path}");
            assert!(!renames.have_moved(&key(path), 1), "{path}");
        }
        assert!(!renames.have_moved(&key("other"), 0));
        for _ in 0..MAX_ENDED {
            drop(renames.begin(&key("one"), &key("two")));
        }
        assert!(renames.have_moved(&key("other"), 0), "not all are known");
        assert!(!renames.have_moved(&key("other"), 1));
    }
}
