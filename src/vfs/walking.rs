//! Walks of the kernel: an inode that has lost its name is answered by `Changed`, on which the kernel walks the path
//! again, once. What it is answered the second time is what the program gets.
//!
//! So the second answer is never `Changed` for want of a name: it is what the path has at that moment. And a path that
//! a rename takes away between being reported and being asked for is asked for anew, as the inode's path is then.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::vfs::{Caller, Ino, Vfs, is_gone, replaced};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The most callers that are remembered.
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
    /// Whether the kernel walks a path again for a caller, so that it has looked all names up just now.
    pub(super) fn walks_again(&self, caller: Caller) -> bool {
        self.walks.0.lock().contains(&caller)
    }

    /// Notes that a caller was answered; returns whether the kernel walked the path again.
    pub(super) fn end_walk(&self, caller: Caller) -> bool {
        self.walks.0.lock().remove(&caller)
    }

    /// Returns the error on which the kernel walks the path again.
    pub(super) fn walk_again(&self, ino: Ino, caller: Caller) -> Error {
        self.walks.begin(caller);
        replaced(format!("inode {}", ino.0))
    }

    /// Returns the error of an inode whose path has something else by now, or nothing: the kernel walks the path again,
    /// and finds out itself. Where that was so a second time, it is what the path has.
    pub(super) fn gone(&self, error: Error, ino: Ino, caller: Caller) -> Error {
        if !is_gone(&error) || self.end_walk(caller) {
            return error;
        }
        self.walk_again(ino, caller)
    }

    /// Returns the path by which an inode is asked for, or a name in it: `own` tells it. Where that fails because a
    /// directory has lost its name, and did so in both walks, it is the path that the kernel has walked.
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

    /// Asks for an inode by its path, which is returned as well. What is not there because a rename has ended meanwhile
    /// is asked for by the path that `path_of` tells then.
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

    /// The same for a question whose answer may be that there is nothing.
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

    /// Makes a change of a name in a directory.
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

    /// Makes a change of names that `paths_of` tells, again where a folder has another path by the time that its name is
    /// looked for: `change` has done nothing if it returns `NotFound`.
    ///
    /// What is done to a name is never done to that of another folder: a folder that is renamed has its new name only
    /// when its old one is gone.
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

    /// Returns names of which some are in folders that a rename under way has taken away.
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

/// Whether something was not found, as where others move a folder above it.
fn is_missing<T>(done: &Result<T>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::NotFound)
}
