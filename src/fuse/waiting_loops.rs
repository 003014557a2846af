//! Event loops that wait: where answers are near, the loop that has read a request answers it itself, which saves the
//! hand-over to another thread.
//!
//! Only some loops do so at a time, and a mount has more of them than that: the others go on reading requests, so that
//! one that takes long holds up no other.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many loops may wait at a time.
pub(super) const MAX_WAITING_LOOPS: usize = 2;

/// The loops of one mount that may wait.
pub(super) struct WaitingLoops {
    free: AtomicUsize,
}

/// A loop that waits; another one may when this is dropped.
pub(super) struct WaitingLoop<'a>(&'a WaitingLoops);

impl WaitingLoops {
    /// At most `most` loops wait; with 0, none does.
    pub(super) fn new(most: usize) -> WaitingLoops {
        WaitingLoops {
            free: AtomicUsize::new(most),
        }
    }

    /// Begins to wait, if there are loops left that do not.
    pub(super) fn begin(&self) -> Option<WaitingLoop<'_>> {
        let taken = |free: usize| free.checked_sub(1);
        let found = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        found.is_ok().then(|| WaitingLoop(self))
    }
}

impl Drop for WaitingLoop<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_wait_than_may() {
        let loops = WaitingLoops::new(2);
        let (first, second) = (loops.begin(), loops.begin());
        assert!(first.is_some() && second.is_some());
        for _ in 0..3 {
            assert!(loops.begin().is_none());
        }
        drop(first);
        assert!(loops.begin().is_some());
        assert!(WaitingLoops::new(0).begin().is_none());
    }
}
