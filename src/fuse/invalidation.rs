//! Has the kernel drop the pages of inodes whose bytes have changed.
//!
//! The kernel waits for a page that a request has locked before it drops it, and a process that is killed while one of
//! its threads waits so keeps its connection, and with it the mount and the programs on it, until that is aborted. So
//! the pages of an inode are dropped only once every request is answered that was under way when the change was seen.
//! Pages are dropped from a thread of their own, since a request handler would wait for its own request. The
//! attributes, which no request locks, are dropped at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::vfs::{Ino, Invalidation, Vfs};

/// The inodes whose pages are to be dropped, and the requests that may have locked pages.
#[derive(Default)]
pub(super) struct PageInvalidations {
    state: Mutex<InvalidationQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct InvalidationQueue {
    /// The requests under way of each inode, by their numbers.
    requests: HashMap<Ino, BTreeSet<u64>>,
    /// How many requests have begun.
    begun: u64,
    /// What is to be dropped once all earlier requests of the inode are answered.
    waiting: VecDeque<PendingInvalidation>,
    is_closed: bool,
}

struct PendingInvalidation {
    ino: Ino,
    /// How many requests had begun when the change was seen.
    after: u64,
}

/// A request for a part of a content that is not answered yet.
pub(super) struct PageRequest {
    invalidations: Arc<PageInvalidations>,
    ino: Ino,
    number: u64,
}

impl PageInvalidations {
    /// Notes that a request begins that the kernel may have locked pages of `ino` for; it ends when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>, ino: Ino) -> PageRequest {
        let mut state = self.state.lock();
        let number = state.begun;
        state.begun += 1;
        state.requests.entry(ino).or_default().insert(number);
        PageRequest {
            invalidations: self.clone(),
            ino,
            number,
        }
    }

    /// Starts the thread that has the kernel drop what `vfs` reports; it ends when this is closed.
    pub(super) fn start(self: &Arc<Self>, vfs: &Vfs, notifier: Notifier) -> io::Result<()> {
        let (queue, immediate) = (self.clone(), notifier.clone());
        vfs.set_invalidator(Box::new(move |ino, what| match what {
            Invalidation::Content => queue.push(ino),
            Invalidation::Length => drop_attributes(&immediate, ino),
        }));
        let queue = self.clone();
        let drop_all = move || {
            while let Some(ino) = queue.next() {
                drop_pages(&notifier, ino);
            }
        };
        thread::Builder::new()
            .name("zarrfs-notify".to_string())
            .spawn(drop_all)?;
        Ok(())
    }

    /// Ends the thread: nothing is dropped any more. The vfs may outlive the session; what it reports then is ignored.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    fn push(&self, ino: Ino) {
        let mut state = self.state.lock();
        let after = state.begun;
        if state.is_closed {
            return;
        }
        // What waits for this inode already drops too early for a request that began since.
        state.waiting.retain(|waiting| waiting.ino != ino);
        state.waiting.push_back(PendingInvalidation { ino, after });
        self.changed.notify_all();
    }

    /// Waits for an inode whose pages can be dropped; nothing once this is closed.
    fn next(&self) -> Option<Ino> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(ino) = state.take_ready() {
                return Some(ino);
            }
            self.changed.wait(&mut state);
        }
    }
}

impl InvalidationQueue {
    fn take_ready(&mut self) -> Option<Ino> {
        let ready = |waiting: &PendingInvalidation| {
            let first = self.requests.get(&waiting.ino).and_then(BTreeSet::first);
            first.is_none_or(|&first| first >= waiting.after)
        };
        let at = self.waiting.iter().position(ready)?;
        self.waiting.remove(at).map(|waiting| waiting.ino)
    }
}

impl Drop for PageRequest {
    fn drop(&mut self) {
        let mut state = self.invalidations.state.lock();
        if let Some(requests) = state.requests.get_mut(&self.ino) {
            requests.remove(&self.number);
            if requests.is_empty() {
                state.requests.remove(&self.ino);
            }
        }
        if !state.waiting.is_empty() {
            self.invalidations.changed.notify_all();
        }
    }
}

/// Has the kernel ask for the attributes again. That waits for no page, so a request handler may do it.
fn drop_attributes(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.inval_inode(INodeNo(ino.0), -1, 0) {
        log::debug!("the kernel keeps the length of inode {}: {error}", ino.0);
    }
}

fn drop_pages(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.inval_inode(INodeNo(ino.0), 0, 0) {
        let number = ino.0;
        log::debug!("the kernel was not told that inode {number} changed: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ino = Ino(2);
    const B: Ino = Ino(3);

    impl PageInvalidations {
        fn ready(&self) -> Option<Ino> {
            self.state.lock().take_ready()
        }
    }

    #[test]
    fn pages_are_dropped_once_the_requests_before_are_answered() {
        let pages = Arc::new(PageInvalidations::default());
        let (first, second) = (pages.begin(A), pages.begin(A));
        pages.push(A);
        pages.push(B);
        assert_eq!(pages.ready(), Some(B), "another inode waits for none");
        drop(second);
        assert_eq!(pages.ready(), None, "a request is under way");
        let later = pages.begin(A);
        drop(first);
        assert_eq!(pages.ready(), Some(A), "later requests hold nothing up");
        drop(later);
        assert_eq!(pages.ready(), None);
        assert!(pages.state.lock().requests.is_empty());
    }

    #[test]
    fn a_change_seen_again_waits_for_what_began_meanwhile() {
        let pages = Arc::new(PageInvalidations::default());
        let first = pages.begin(A);
        pages.push(A);
        let second = pages.begin(A);
        pages.push(A);
        drop(first);
        assert_eq!(pages.ready(), None);
        drop(second);
        assert_eq!((pages.ready(), pages.ready()), (Some(A), None));
    }

    #[test]
    fn the_thread_ends_when_all_is_closed() {
        let pages = Arc::new(PageInvalidations::default());
        let _request = pages.begin(A);
        pages.push(A);
        let waiting = thread::spawn({
            let pages = pages.clone();
            move || pages.next()
        });
        pages.close();
        assert_eq!(waiting.join().unwrap(), None);
        pages.push(A);
        assert!(pages.state.lock().waiting.is_empty());
    }
}
