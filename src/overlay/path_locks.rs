//! Locks of paths: changes of one path, or of one that contains the other, come one after the other; all others go
//! side by side, also while a store is slow to answer.

use crate::store::Key;
use crate::sync::locks::{Condvar, Mutex};

/// The paths that are locked.
#[derive(Default)]
pub(super) struct PathLocks {
    held: Mutex<PathTable>,
    released: Condvar,
}

#[derive(Default)]
struct PathTable {
    last_ticket: u64,
    /// Those that wait as well, so that they are served in order.
    paths: Vec<(u64, Vec<Key>)>,
}

impl PathTable {
    /// Whether an earlier ticket than `ticket` has, or waits for, one of the paths.
    fn is_blocked(&self, ticket: u64, paths: &[Key]) -> bool {
        let mut earlier = self.paths.iter().filter(|(other, _)| *other < ticket);
        earlier.any(|(_, held)| {
            held.iter()
                .any(|path| paths.iter().any(|own| meet(path, own)))
        })
    }
}

/// Paths that are locked until this is dropped.
pub(super) struct PathGuard<'a> {
    locks: &'a PathLocks,
    ticket: u64,
}

impl PathLocks {
    /// Waits until no other ticket has one of these paths, one above or one below, and takes them.
    pub(super) fn lock(&self, paths: &[Key]) -> PathGuard<'_> {
        let mut held = self.held.lock();
        held.last_ticket += 1;
        let ticket = held.last_ticket;
        held.paths.push((ticket, paths.to_vec()));
        while held.is_blocked(ticket, paths) {
            self.released.wait(&mut held);
        }
        PathGuard {
            locks: self,
            ticket,
        }
    }
}

impl Drop for PathGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        held.paths.retain(|(ticket, _)| *ticket != self.ticket);
        self.locks.released.notify_all();
    }
}

/// Whether one path is the other, or contains it.
fn meet(one: &Key, other: &Key) -> bool {
    one.below(other).is_some() || other.below(one).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn other_paths_do_not_wait() {
        let locks = PathLocks::default();
        let _one = locks.lock(&[key("a/b")]);
        let _other = locks.lock(&[key("a/c"), key("d")]);
    }

    #[test]
    fn a_path_waits_for_those_above_and_below_it() {
        for (first, second) in [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("", "a/b/c")] {
            let locks = Arc::new(PathLocks::default());
            let guard = locks.lock(&[key(first)]);
            let (sender, receiver) = mpsc::channel();
            let waiting = locks.clone();
            let thread = thread::spawn(move || {
                let _guard = waiting.lock(&[key(second)]);
                sender.send(()).unwrap();
            });
            // The second one has its ticket and waits.
            while locks.held.lock().paths.len() < 2 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err(), "{first} and {second}");
            drop(guard);
            receiver.recv().unwrap();
            thread.join().unwrap();
        }
    }

    #[test]
    fn no_two_hold_one_path() {
        let locks = PathLocks::default();
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..4 {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let path = if number % 2 == 0 { "a" } else { "a/b" };
                        let _guard = locks.lock(&[key(path)]);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
