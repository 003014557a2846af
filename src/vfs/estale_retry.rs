//! Remembers the callers for which the kernel walks a path again.
//!
//! An inode without a name is answered with `Changed` (ESTALE), on which the kernel walks the path again, once; the
//! reply to the second walk is the program's result. So in the second walk an inode without a name is not answered with
//! `Changed` again, but with the entry that now has its path, or with the error of that path.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::vfs::{Caller, Ino, is_gone, replaced};
use zarr_format::error::Error;

/// Callers that were answered `Changed`: the kernel walks a path again for them.
#[derive(Default)]
pub(super) struct EstaleRetries(Mutex<HashSet<Caller>>);

impl EstaleRetries {
    /// Whether the kernel is walking a path again for a caller, which means that it has just looked up all names of the
    /// path.
    pub(super) fn is_retry(&self, caller: Caller) -> bool {
        self.0.lock().contains(&caller)
    }

    /// Records that a caller is answered `Changed`.
    pub(super) fn begin(&self, caller: Caller) {
        let mut callers = self.0.lock();
        // Callers that never retry would stay in the set forever.
        if callers.len() >= 4096 {
            callers.clear();
        }
        callers.insert(caller);
    }

    /// Records that a caller was answered; returns whether the kernel had walked the path again.
    pub(super) fn end(&self, caller: Caller) -> bool {
        self.0.lock().remove(&caller)
    }

    /// Returns the error that makes the kernel walk the path again.
    pub(super) fn walk_again(&self, ino: Ino, caller: Caller) -> Error {
        self.begin(caller);
        replaced(format!("inode {}", ino.0))
    }

    /// Returns the error for an inode whose path was removed or replaced: in the first walk `Changed`, so that the
    /// kernel walks the path again; in the second walk `error` itself.
    pub(super) fn error_of_path(&self, error: Error, ino: Ino, caller: Caller) -> Error {
        if !is_gone(&error) || self.end(caller) {
            return error;
        }
        self.walk_again(ino, caller)
    }
}
