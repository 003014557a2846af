//! Answers path walks that the kernel repeats.
//!
//! An inode without a name is answered with `Changed` (ESTALE), on which the kernel walks the path again, once; the
//! reply to the second walk is the program's result. So the second reply is never `Changed` because of a missing name,
//! but the current entry of the path. If a rename takes a path away between its lookup and its use, the query is
//! repeated with the inode's new path.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::vfs::{Caller, Ino, Vfs, is_gone, replaced};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// Maximum number of callers that are remembered.
const MAX_WALKING: usize = 1 << 12;

/// Callers that were answered `Changed`: the kernel walks a path again for them.
#[derive(Default)]
pub(super) struct Walks(Mutex<HashSet<Caller>>);

impl Walks {
    fn begin(&self, caller: Caller) {
        let mut walking = self.0.lock();
        if walking.len() >= MAX_WALKING {
            walking.clear();
        }
        walking.insert(caller);
    }
}

impl Vfs {
    /// Whether the kernel is walking a path again for a caller, so that it has just looked up all names.
    pub(super) fn walks_again(&self, caller: Caller) -> bool {
        self.walks.0.lock().contains(&caller)
    }

    /// Records that a caller was answered; returns whether the kernel had walked the path again.
    pub(super) fn end_walk(&self, caller: Caller) -> bool {
        self.walks.0.lock().remove(&caller)
    }

    /// Returns the error that makes the kernel walk the path again.
    pub(super) fn walk_again(&self, ino: Ino, caller: Caller) -> Error {
        self.walks.begin(caller);
        replaced(format!("inode {}", ino.0))
    }

    /// Returns the error for an inode whose path was removed or replaced: `Changed`, so that the kernel walks the path
    /// again; in the second walk the error itself.
    pub(super) fn gone(&self, error: Error, ino: Ino, caller: Caller) -> Error {
        if !is_gone(&error) || self.end_walk(caller) {
            return error;
        }
        self.walk_again(ino, caller)
    }

    /// Returns the path for a query about an inode, from `own`. If `own` fails in both walks because a directory has
    /// lost its name, returns the path that the kernel has walked.
    pub(super) fn path_for(
        &self,
        ino: Ino,
        caller: Caller,
        own: impl Fn() -> Result<Key>,
    ) -> Result<Key> {
        match own() {
            Err(error) if error.kind() == Kind::Changed => {
                let walked = self.inodes.walked_path(ino);
                if let (true, Ok(walked)) = (self.walks_again(caller), walked) {
                    return Ok(walked);
                }
                self.walks.begin(caller);
                Err(error)
            }
            path => path,
        }
    }

    /// Calls `ask` with the path of an inode; also returns the path. If the path is missing and a rename has finished
    /// in between, retries with a new path from `path_of`.
    pub(super) fn ask<T>(
        &self,
        path_of: impl Fn() -> Result<Key>,
        ask: impl Fn(&Key) -> Result<T>,
    ) -> Result<(T, Key)> {
        loop {
            let count = self.renames.count();
            let path = path_of()?;
            match self.renames.ask(&path, &ask) {
                Ok(answer) => return Ok((answer, path)),
                Err(error) if is_gone(&error) && self.renames.have_moved(&path, count) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Like `ask`, for a query that returns `None` if the path does not exist.
    pub(super) fn find_path<T>(
        &self,
        path_of: impl Fn() -> Result<Key>,
        find: impl Fn(&Key) -> Result<Option<T>>,
    ) -> Result<(Option<T>, Key)> {
        loop {
            let count = self.renames.count();
            let path = path_of()?;
            let found = find(&path)?;
            if found.is_some() || !self.renames.have_moved(&path, count) {
                return Ok((found, path));
            }
        }
    }

    /// Changes a name in a directory.
    pub(super) fn change_in<T>(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        change: impl Fn(&Key) -> Result<T>,
    ) -> Result<T> {
        self.change_names(
            context,
            || Ok([self.child(parent, name)?]),
            |[path]| change(path),
        )
    }

    /// Changes the names that `paths_of` returns; retries if a folder was renamed before its name was found: `change`
    /// must have done nothing if it returns `NotFound`.
    ///
    /// A change never affects the same name in another folder: a renamed folder gets its new name only after the old
    /// one is gone.
    pub(super) fn change_names<T, const N: usize>(
        &self,
        context: &RequestContext,
        paths_of: impl Fn() -> Result<[Key; N]>,
        change: impl Fn(&[Key; N]) -> Result<T>,
    ) -> Result<T> {
        context.check_may_wait()?;
        loop {
            let count = self.renames.count();
            let paths = paths_of()?;
            let _locked = self.path_locks.lock_own(&paths);
            if paths_of()? != paths {
                continue;
            }
            let done = change(&paths);
            if !is_missing(&done) {
                return done;
            }
            let moved = self.moved_names(context, &paths)?;
            let done = moved.map_or(done, |moved| change(&moved));
            let have_moved = |path| self.renames.have_moved(path, count);
            if !is_missing(&done) || !paths.iter().any(have_moved) {
                return done;
            }
        }
    }

    /// Returns the new paths of names in folders that a rename in progress has moved, or `None` if it has moved none of
    /// them.
    fn moved_names<const N: usize>(
        &self,
        context: &RequestContext,
        paths: &[Key; N],
    ) -> Result<Option<[Key; N]>> {
        let mut moved = paths.clone();
        for path in &mut moved {
            let folder = path.parent().unwrap_or_default();
            if let Some(new) = self.renames.moved(&folder)
                && self.view.lookup(context, &folder)?.is_none()
            {
                *path = new.child(path.name())?;
            }
        }
        Ok(Some(moved).filter(|moved| moved != paths))
    }
}

/// Whether a change failed with `NotFound`, for example because an ancestor was renamed.
fn is_missing<T>(done: &Result<T>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::NotFound)
}
