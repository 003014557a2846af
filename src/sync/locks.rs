//! The locks of the overlay and of the store in memory.
//!
//! In unit tests a thread may belong to a schedule (`schedule`): each use of a lock is then a step, before which another
//! thread may come. Elsewhere these are parking_lot's locks, and a step is nothing.

#[cfg(not(test))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(test)]
pub use super::stepped_locks::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

#[cfg(not(test))]
mod outside_of_tests {
    use std::time::Duration;

    /// Marks a step that is no use of a lock.
    pub fn step() {}

    /// Waits for a while.
    pub fn pause(duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Whether the thread belongs to a schedule: those that it starts would not.
    pub fn is_scheduled() -> bool {
        false
    }
}

#[cfg(not(test))]
pub use outside_of_tests::{is_scheduled, pause, step};

#[cfg(test)]
pub use super::schedule::{is_scheduled, pause, step};
