//! Remembers the programs for which the kernel walks a path again after ESTALE.
//!
//! A request for an inode that has lost its name is answered with `Changed` (ESTALE). Then the kernel walks the path
//! again, but only once: the program gets the result of the second walk, even ESTALE. So in the second walk such a
//! request is answered with the entry that now has the path, or with the error of the path.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::vfs::{Caller, Ino, is_gone, replaced};
use zarr_format::error::Error;

/// The threads of programs whose last request was answered with `Changed`, so that the kernel walks the path again.
#[derive(Default)]
pub(super) struct EstaleRetries(Mutex<HashSet<Caller>>);

impl EstaleRetries {
    /// Whether the kernel is walking a path again for a program, and so has just looked up all names of the path.
    pub(super) fn is_retry(&self, caller: Caller) -> bool {
        self.0.lock().contains(&caller)
    }

    /// Records that a program's request is answered with `Changed` (ESTALE).
    pub(super) fn begin(&self, caller: Caller) {
        let mut callers = self.0.lock();
        // Emptied at times, since programs that never retry would stay in the set forever.
        if callers.len() >= 4096 {
            callers.clear();
        }
        callers.insert(caller);
    }

    /// Removes the record that the kernel repeats a path walk of a program after ESTALE; returns whether it existed.
    pub(super) fn end(&self, caller: Caller) -> bool {
        self.0.lock().remove(&caller)
    }

    /// Records and returns the error `Changed` (ESTALE), on which the kernel walks the path again.
    pub(super) fn walk_again(&self, ino: Ino, caller: Caller) -> Error {
        self.begin(caller);
        replaced(format!("inode {}", ino.0))
    }

    /// Returns the error for an inode whose path was removed or replaced. In the first walk of the kernel that is
    /// `Changed`, so that the kernel walks the path again, in the second walk `error`.
    pub(super) fn error_of_path(&self, error: Error, ino: Ino, caller: Caller) -> Error {
        if !is_gone(&error) || self.end(caller) {
            return error;
        }
        self.walk_again(ino, caller)
    }
}
