//! Locks paths, so that changes of overlapping paths run one at a time.
//!
//! Paths overlap if they are equal or one contains the other; other changes run concurrently, even while a store is
//! slow. Waiters are served in order, so that none starves. But if a waiter waits for a path that is locked for long,
//! it does not block later waiters: a folder rename may wait for the upload of a large file, and other changes in the
//! folder go on.

use std::time::{Duration, Instant};

use crate::Key;
use crate::sync::locks::{Condvar, Mutex};

/// The locked paths of a file tree, and the threads that wait for paths.
#[derive(Default)]
pub struct PathLocks {
    table: Mutex<PathTable>,
    released: Condvar,
}

#[derive(Default)]
struct PathTable {
    last_number: u64,
    /// The threads that have locked paths or wait for them, in order of arrival.
    tickets: Vec<PathTicket>,
}

struct PathTicket {
    number: u64,
    paths: Vec<Key>,
    /// Whether the lock also covers everything below its paths.
    with_below: bool,
    /// When the paths were locked, or `None` while a thread waits for them.
    held_since: Option<Instant>,
}

impl PathTicket {
    fn overlaps(&self, other: &PathTicket) -> bool {
        let is_covered = |own: &Key, path: &Key| {
            own == path
                || self.with_below && path.below(own).is_some()
                || other.with_below && own.below(path).is_some()
        };
        let mut own = self.paths.iter();
        own.any(|own| other.paths.iter().any(|path| is_covered(own, path)))
    }

    /// Whether the paths have been locked for more than a second, so that threads that wait for them no longer block
    /// threads behind them.
    fn is_held_for_long(&self) -> bool {
        self.held_since
            .is_some_and(|since| since.elapsed() > Duration::from_secs(1))
    }
}

impl PathTable {
    /// Whether a thread must wait for its paths: another thread has locked an overlapping path, or waits for an
    /// overlapping path that is not locked for long.
    fn is_blocked(&self, ticket: &PathTicket) -> bool {
        let others = self
            .tickets
            .iter()
            .filter(|other| other.number != ticket.number);
        others.filter(|other| other.overlaps(ticket)).any(|other| {
            other.held_since.is_some()
                || other.number < ticket.number && !self.waits_for_long(other)
        })
    }

    fn waits_for_long(&self, ticket: &PathTicket) -> bool {
        let mut others = self.tickets.iter();
        others.any(|other| other.is_held_for_long() && other.overlaps(ticket))
    }

    /// Locks the paths of a waiting thread unless it must wait longer. Returns whether they are locked.
    fn try_take(&mut self, number: u64) -> bool {
        let place = self
            .tickets
            .iter()
            .position(|ticket| ticket.number == number);
        let is_free = |place: &usize| {
            self.tickets
                .get(*place)
                .is_some_and(|ticket| !self.is_blocked(ticket))
        };
        let place = place.filter(is_free);
        let ticket = place.and_then(|place| self.tickets.get_mut(place));
        ticket
            .map(|ticket| ticket.held_since = Some(Instant::now()))
            .is_some()
    }
}

/// A lock on some paths, which ends when this struct is dropped.
pub struct PathGuard<'a> {
    locks: &'a PathLocks,
    number: u64,
}

impl PathLocks {
    /// Locks paths and everything below them. Waits until no other thread has locked one of the paths, a path above or
    /// a path below.
    pub fn lock(&self, paths: &[Key]) -> PathGuard<'_> {
        self.take(paths.to_vec(), true)
    }

    /// Locks paths, but not what is below them. Waits for other threads that have locked one of the paths, or a path
    /// above with everything below it.
    pub fn lock_own(&self, paths: &[Key]) -> PathGuard<'_> {
        self.take(paths.to_vec(), false)
    }

    fn take(&self, paths: Vec<Key>, with_below: bool) -> PathGuard<'_> {
        let mut table = self.table.lock();
        table.last_number += 1;
        let number = table.last_number;
        table.tickets.push(PathTicket {
            number,
            paths,
            with_below,
            held_since: None,
        });
        while !table.try_take(number) {
            // Wakes every 200 ms, since a path that has been locked for long no longer blocks other threads.
            let interval = Duration::from_millis(200);
            self.released.wait_for(&mut table, interval);
        }
        PathGuard {
            locks: self,
            number,
        }
    }
}

impl Drop for PathGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.table.lock();
        table.tickets.retain(|ticket| ticket.number != self.number);
        self.locks.released.notify_all();
    }
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
    fn unrelated_paths_do_not_wait() {
        let locks = PathLocks::default();
        let _one = locks.lock(&[key("a/b")]);
        let _other = locks.lock(&[key("a/c"), key("d")]);
    }

    #[test]
    fn a_path_waits_for_paths_above_and_below_it() {
        for (first, second) in [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("", "a/b/c")] {
            let locks = Arc::new(PathLocks::default());
            let guard = locks.lock(&[key(first)]);
            let (sender, receiver) = mpsc::channel();
            let waiting = locks.clone();
            let thread = thread::spawn(move || {
                let _guard = waiting.lock(&[key(second)]);
                sender.send(()).unwrap();
            });
            // Wait until the second thread has begun to wait for its lock.
            while locks.table.lock().tickets.len() < 2 {
                thread::yield_now();
            }
            assert!(receiver.try_recv().is_err(), "{first} and {second}");
            drop(guard);
            receiver.recv().unwrap();
            thread.join().unwrap();
        }
    }

    #[test]
    fn only_one_thread_holds_a_path() {
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

    #[test]
    fn lock_own_does_not_wait_for_paths_below() {
        let locks = PathLocks::default();
        let _below = locks.lock(&[key("a/b")]);
        let _own = locks.lock_own(&[key("a")]);
        let _root = locks.lock_own(&[Key::root()]);
        let table = locks.table.lock();
        let ticket = |path: &str, with_below| PathTicket {
            number: u64::MAX,
            paths: vec![key(path)],
            with_below,
            held_since: None,
        };
        for (path, with_below) in [("a", true), ("a", false), ("a/b/c", false), ("a/b", false)] {
            assert!(table.is_blocked(&ticket(path, with_below)), "{path}");
        }
        assert!(!table.is_blocked(&ticket("a/c", false)), "beside");
    }

    /// A folder rename waits for the upload of a file in it; other names in the folder can change in the meantime.
    #[test]
    fn a_lock_that_waits_does_not_block_others() {
        let locks = PathLocks::default();
        let upload = locks.lock(&[key("a/large")]);
        thread::scope(|scope| {
            let rename = scope.spawn(|| drop(locks.lock(&[key("a"), key("b")])));
            while locks.table.lock().tickets.len() < 2 {
                thread::yield_now();
            }
            drop(locks.lock(&[key("a/small")]));
            assert!(!rename.is_finished());
            drop(upload);
            rename.join().unwrap();
        });
    }
}
