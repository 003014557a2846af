//! Lets a few event loops run local requests inline.
//!
//! That saves the hand-over to another thread. Only `MAX_WAITING_LOOPS` loops do so at a time, and a mount has more
//! loops: the others keep reading requests, so that a slow request delays no other.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of loops that block at a time.
pub(super) const MAX_WAITING_LOOPS: usize = 2;

/// The loops of one mount that may block.
pub(super) struct WaitingLoops {
    free: AtomicUsize,
}

/// A blocking loop; another one may block after this is dropped.
pub(super) struct WaitingLoop<'a>(&'a WaitingLoops);

impl WaitingLoops {
    /// Allows at most `most` loops to block.
    pub(super) fn new(most: usize) -> WaitingLoops {
        WaitingLoops {
            free: AtomicUsize::new(most),
        }
    }

    /// Begins to block; `None` if the maximum is reached.
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
