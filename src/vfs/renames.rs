//! Tracks renames in progress, so that renamed entries are found by either path.
//!
//! During a rename, the view already has the new name, but the kernel and the inode table still use the old one. Until
//! the rename is answered, the kernel reaches the children of a renamed folder by the folder's old name. So if the view
//! does not find a path, the path that it has after the rename is looked up, too. A rename may also begin and end
//! during a query, so a query that found nothing is repeated if a rename has finished in the meantime.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::vfs::is_gone;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// Number of finished renames that are remembered.
const MAX_ENDED: usize = 64;

/// The old and new paths of renames in progress and of the last finished renames.
#[derive(Default)]
pub(super) struct Renames(Mutex<RenameTable>);

#[derive(Default)]
struct RenameTable {
    under_way: Vec<Rename>,
    ended: VecDeque<Rename>,
    /// Number of renames that have finished since the mount.
    count: u64,
}

#[derive(Clone, PartialEq)]
struct Rename {
    from: Key,
    to: Key,
}

impl Rename {
    /// Whether `path` is the old or the new path of the rename, or below one of them.
    fn touches(&self, path: &Key) -> bool {
        path.below(&self.from).is_some() || path.below(&self.to).is_some()
    }

    /// Returns the path that the rename gives to the entry at `path`, or `None` if it does not move the entry.
    fn moved_path(&self, path: &Key) -> Option<Key> {
        let rest = path.below(&self.from)?;
        rest.names()
            .try_fold(self.to.clone(), |key, name| key.child(name).ok())
    }
}

/// A rename in progress, which ends when this guard is dropped.
pub(super) struct RenameUnderWay<'a> {
    all: &'a Renames,
    rename: Rename,
    has_failed: bool,
}

impl RenameUnderWay<'_> {
    /// Ends a rename that failed, so that it moves no path.
    pub(super) fn fail(mut self) {
        self.has_failed = true;
    }
}

impl RenameTable {
    /// Whether a rename that `matches` accepts has finished after the first `count` renames. Also true if so many have
    /// finished that some are forgotten.
    fn have_ended(&self, count: u64, matches: impl Fn(&Rename) -> bool) -> bool {
        let since = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        since > self.ended.len() || self.ended.iter().rev().take(since).any(matches)
    }
}

impl Renames {
    /// Records that a rename begins.
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

    /// Whether no rename is in progress, and none has finished after the first `count` renames.
    pub(super) fn have_none_since(&self, count: u64) -> bool {
        let all = self.0.lock();
        all.under_way.is_empty() && all.count == count
    }

    /// Returns the number of renames that have finished since the mount.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Whether a rename that affects `path` has finished after the first `count` renames.
    pub(super) fn have_moved(&self, path: &Key, count: u64) -> bool {
        self.0
            .lock()
            .have_ended(count, |rename| rename.touches(path))
    }

    /// Returns the new path of the entry at `path` if a rename in progress moves it, or else `None`.
    pub(super) fn moved_path(&self, path: &Key) -> Option<Key> {
        let all = self.0.lock();
        all.under_way
            .iter()
            .find_map(|rename| rename.moved_path(path))
    }

    /// Calls `query` with a path. If it fails with `NotFound` while a rename moves the path, calls it with the new
    /// path.
    pub(super) fn query<T>(&self, path: &Key, query: impl Fn(&Key) -> Result<T>) -> Result<T> {
        let answer = query(path);
        let is_missing = |error: &Error| error.kind() == Kind::NotFound;
        match answer.as_ref().err().filter(|error| is_missing(error)) {
            Some(_) => self.moved_path(path).map_or(answer, |moved| query(&moved)),
            None => answer,
        }
    }

    /// Calls `find` with a path. If it returns `None` while a rename moves the path, calls it with the new path.
    pub(super) fn find<T>(
        &self,
        path: &Key,
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match find(path)? {
            None => self.moved_path(path).map_or(Ok(None), |moved| find(&moved)),
            found => Ok(found),
        }
    }

    /// Calls `find` with the path of a name in the folder `parent`. If the folder is missing while a rename moves it,
    /// calls `find` with the name's path in the moved folder.
    pub(super) fn find_in<T>(
        &self,
        parent: &Key,
        name: &[u8],
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let found = find(&parent.child(name)?)?;
        match self.moved_path(parent).filter(|_| found.is_none()) {
            // The folder may still be at its old path, if the rename fails.
            Some(moved) if find(parent)?.is_none() => find(&moved.child(name)?),
            _ => Ok(found),
        }
    }

    /// Calls `query` with the path of an inode, and also returns the path. If the path is missing and a rename has
    /// finished meanwhile, repeats the call with the new path from `path_of`.
    pub(super) fn retry_query<T>(
        &self,
        path_of: impl Fn() -> Result<Key>,
        query: impl Fn(&Key) -> Result<T>,
    ) -> Result<(T, Key)> {
        loop {
            let count = self.count();
            let path = path_of()?;
            match self.query(&path, &query) {
                Ok(answer) => return Ok((answer, path)),
                Err(error) if is_gone(&error) && self.have_moved(&path, count) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Calls `find` with the path of an inode, and also returns the path. If it finds nothing and a rename has finished
    /// meanwhile, repeats the call with the new path from `path_of`.
    pub(super) fn retry_find<T>(
        &self,
        path_of: impl Fn() -> Result<Key>,
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<(Option<T>, Key)> {
        loop {
            let count = self.count();
            let path = path_of()?;
            let found = find(&path)?;
            if found.is_some() || !self.have_moved(&path, count) {
                return Ok((found, path));
            }
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
    fn children_are_found_by_either_name_during_a_rename() {
        let key = |path: &str| Key::new(path).unwrap();
        let renames = Renames::default();
        let in_view = |path: &Key| Ok((*path == key("new/a")).then_some(1));
        let opened = |path: &Key| in_view(path)?.ok_or_else(|| Error::not_found(path));
        let under_way = renames.begin(&key("old"), &key("new"));
        assert_eq!(renames.find(&key("old/a"), in_view).unwrap(), Some(1));
        assert_eq!(
            renames.find_in(&key("old"), b"a", in_view).unwrap(),
            Some(1)
        );
        assert_eq!(renames.query(&key("old/a"), opened).unwrap(), 1);
        assert_eq!(renames.find(&key("old/b"), in_view).unwrap(), None);
        let root = |path: &Key| Ok((*path == key("new")).then_some(1));
        let found = renames.find_in(&Key::root(), b"old", root);
        assert_eq!(found.unwrap(), None, "the old name itself is gone");
        assert!(!renames.have_none_since(0));
        drop(under_way);
        assert!(renames.have_none_since(1) && !renames.have_none_since(0));
        assert_eq!(renames.find(&key("old/a"), in_view).unwrap(), None);
        assert_eq!(
            renames.query(&key("old/a"), opened).unwrap_err().kind(),
            Kind::NotFound
        );
    }

    #[test]
    fn renames_that_ended_during_a_query_are_remembered() {
        let key = |path: &str| Key::new(path).unwrap();
        let renames = Renames::default();
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
