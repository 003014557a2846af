//! Has the kernel drop the pages of inodes whose bytes have changed.
//!
//! The kernel waits for a page that a request has locked before it drops it, and a process that is killed while one of
//! its threads waits so keeps its connection, and with it the mount and the programs on it, until that is aborted. So
//! the pages of an inode are dropped only once every request is answered that was under way when the change was seen.
//! Pages are dropped from a thread of their own, since a request handler would wait for its own request; only before the
//! answer to an open, which locks none, they are dropped by its handler. The attributes, which no request locks, are
//! dropped at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::vfs::{Ino, Invalidation, OPEN_WAIT, Vfs};

/// The inodes whose pages are to be dropped, and the requests that may have locked pages.
#[derive(Default)]
pub(super) struct PageInvalidations {
    state: Mutex<InvalidationQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct InvalidationQueue {
    /// How many threads wait until requests are answered.
    waiters: usize,
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
    /// Whether they are dropped also while the inode is open for writing.
    is_lost: bool,
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
    pub(super) fn start(self: &Arc<Self>, vfs: Arc<Vfs>, notifier: Notifier) -> io::Result<()> {
        let (queue, immediate) = (self.clone(), notifier.clone());
        vfs.set_invalidator(Box::new(move |ino, what| match what {
            Invalidation::Length => drop_attributes(&immediate, ino),
            Invalidation::Settled => queue.wait_for_requests(ino, OPEN_WAIT),
            Invalidation::ContentNow => drop_pages(&immediate, ino),
            Invalidation::Content => queue.push(ino, false),
            Invalidation::LostContent => queue.push(ino, true),
        }));
        let queue = self.clone();
        let drop_all = move || {
            while let Some(next) = queue.next() {
                let drop_pages = || _ = drop_pages(&notifier, next.ino);
                if next.is_lost {
                    drop_pages();
                    vfs.note_pages_dropped(next.ino);
                } else {
                    vfs.drop_unwritten(next.ino, drop_pages);
                }
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

    /// Has the pages of an inode dropped soon; they are not dropped yet.
    fn push(&self, ino: Ino, is_lost: bool) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        // What waits for this inode already drops too early for a request that began since.
        let earlier = state.take(ino);
        let waiting = PendingInvalidation {
            ino,
            after: state.begun,
            is_lost: is_lost || earlier.is_some_and(|earlier| earlier.is_lost),
        };
        state.waiting.push_back(waiting);
        self.changed.notify_all();
        false
    }

    /// Waits until all requests of an inode that have begun are answered, for `limit` at most; returns whether they are.
    fn wait_for_requests(&self, ino: Ino, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.state.lock();
        let after = state.begun;
        state.waiters += 1;
        while !state.are_answered(ino, after) {
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.waiters -= 1;
        state.are_answered(ino, after)
    }

    /// Waits for an inode whose pages can be dropped; nothing once this is closed.
    fn next(&self) -> Option<PendingInvalidation> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(ready) = state.take_ready() {
                return Some(ready);
            }
            self.changed.wait(&mut state);
        }
    }
}

impl InvalidationQueue {
    /// Whether the requests of an inode are answered that were among the first `after`.
    fn are_answered(&self, ino: Ino, after: u64) -> bool {
        let first = self.requests.get(&ino).and_then(BTreeSet::first);
        first.is_none_or(|&first| first >= after)
    }

    fn take_ready(&mut self) -> Option<PendingInvalidation> {
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|waiting| self.are_answered(waiting.ino, waiting.after))?;
        self.waiting.remove(at)
    }

    /// Takes back what was to be dropped of an inode.
    fn take(&mut self, ino: Ino) -> Option<PendingInvalidation> {
        let at = self.waiting.iter().position(|waiting| waiting.ino == ino)?;
        self.waiting.remove(at)
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
        if !state.waiting.is_empty() || state.waiters > 0 {
            self.invalidations.changed.notify_all();
        }
    }
}

/// Has the kernel ask for the attributes again. That waits for no page, so a request handler may do it.
fn drop_attributes(notifier: &Notifier, ino: Ino) -> bool {
    let done = notifier.inval_inode(INodeNo(ino.0), -1, 0);
    if let Err(error) = &done {
        log::debug!("the kernel keeps the length of inode {}: {error}", ino.0);
    }
    done.is_ok()
}

/// Has the kernel drop all pages of an inode; returns whether it has none of the old ones now.
fn drop_pages(notifier: &Notifier, ino: Ino) -> bool {
    let done = notifier.inval_inode(INodeNo(ino.0), 0, 0);
    if let Err(error) = &done {
        let number = ino.0;
        log::debug!("the kernel was not told that inode {number} changed: {error}");
    }
    // It has no pages of an inode that it does not know.
    done.map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ino = Ino(2);
    const B: Ino = Ino(3);

    impl PageInvalidations {
        fn ready(&self) -> Option<Ino> {
            self.state.lock().take_ready().map(|ready| ready.ino)
        }
    }

    #[test]
    fn pages_are_dropped_once_the_requests_before_are_answered() {
        let pages = Arc::new(PageInvalidations::default());
        let (first, second) = (pages.begin(A), pages.begin(A));
        pages.push(A, false);
        pages.push(B, false);
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
        pages.push(A, false);
        let second = pages.begin(A);
        pages.push(A, false);
        drop(first);
        assert_eq!(pages.ready(), None);
        drop(second);
        assert_eq!((pages.ready(), pages.ready()), (Some(A), None));
    }

    #[test]
    fn the_thread_ends_when_all_is_closed() {
        let pages = Arc::new(PageInvalidations::default());
        let _request = pages.begin(A);
        pages.push(A, false);
        let waiting = thread::spawn({
            let pages = pages.clone();
            move || pages.next().map(|next| next.ino)
        });
        pages.close();
        assert_eq!(waiting.join().unwrap(), None);
        pages.push(A, false);
        assert!(pages.state.lock().waiting.is_empty());
    }
}
