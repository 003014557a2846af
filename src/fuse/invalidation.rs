//! Invalidates the kernel's pages of inodes whose bytes have changed.
//!
//! Before the kernel drops a page, it waits for the request that has locked it. If the daemon is killed while one of
//! its threads waits for such a page, the daemon cannot end, and the mount hangs until its connection is aborted. So
//! the pages of an inode are dropped only after all requests are answered that were pending when the change was seen. A
//! separate thread drops pages, since the handler of a request would wait for its own request. Only the handler of an
//! open drops pages itself, before its reply, since an open locks no pages. Attributes are dropped at once, since no
//! request locks them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::vfs::{Ino, Invalidation, KernelCache, OPEN_WAIT, Vfs};

/// Inodes whose pages are to be dropped, and the requests for which the kernel may have locked pages.
#[derive(Default)]
pub(super) struct PageInvalidations {
    state: Mutex<InvalidationQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct InvalidationQueue {
    /// Number of threads that wait until requests are answered.
    waiters: usize,
    /// Numbers of the pending requests for each inode.
    requests: HashMap<Ino, BTreeSet<u64>>,
    /// Number of all requests so far.
    begun: u64,
    /// Inodes whose pages are dropped as soon as their earlier requests are answered.
    waiting: VecDeque<PendingInvalidation>,
    is_closed: bool,
}

struct PendingInvalidation {
    ino: Ino,
    /// Number of requests when the change was seen: later requests are not waited for.
    after: u64,
    /// Whether the pages are dropped even if the inode is open for writing.
    is_lost: bool,
}

/// Registration of a pending request that reads or writes the contents of an inode.
pub(super) struct PageRequest {
    invalidations: Arc<PageInvalidations>,
    ino: Ino,
    number: u64,
}

impl PageInvalidations {
    /// Registers a request for which the kernel may have locked pages of `ino`, until the returned value is dropped.
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

    /// Starts the thread that drops the pages of inodes that `vfs` invalidates, until `close`.
    pub(super) fn start(self: &Arc<Self>, vfs: Arc<Vfs>, notifier: Notifier) -> io::Result<()> {
        vfs.set_kernel_cache(NotifiedCache {
            queue: self.clone(),
            notifier: notifier.clone(),
        });
        let queue = self.clone();
        let drop_all = move || {
            while let Some(next) = queue.next() {
                let drop_pages = || _ = drop_pages(&notifier, next.ino);
                if next.is_lost {
                    drop_pages();
                    vfs.record_lost_pages(next.ino);
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

    /// Ends the thread that drops pages. The vfs may outlive the session; its later invalidations are ignored.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Queues the pages of an inode to be dropped; returns false, since the pages are still there.
    fn push(&self, ino: Ino, is_lost: bool) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        // A queued entry of the inode is replaced: it does not wait for requests that began after it, so its pages
        // would be dropped too early.
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

    /// Waits until all pending requests of an inode are answered, for at most `limit`; returns whether they are.
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

    /// Waits for an inode whose pages can be dropped; returns `None` after `close`.
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

/// The kernel's cache of the mount, which the daemon changes by notifications.
struct NotifiedCache {
    queue: Arc<PageInvalidations>,
    notifier: Notifier,
}

impl KernelCache for NotifiedCache {
    fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        match what {
            Invalidation::Length => drop_attributes(&self.notifier, ino),
            Invalidation::Settled => self.queue.wait_for_requests(ino, OPEN_WAIT),
            Invalidation::ContentNow => drop_pages(&self.notifier, ino),
            Invalidation::Content => self.queue.push(ino, false),
            Invalidation::LostContent => self.queue.push(ino, true),
        }
    }

    fn add_pages(&self, ino: Ino, content: &[u8]) {
        if let Err(error) = self.notifier.store(INodeNo(ino.0), 0, content) {
            log::debug!("cannot add the pages of inode {}: {error}", ino.0);
        }
    }
}

impl InvalidationQueue {
    /// Whether no request with a number below `after` is pending for an inode.
    fn are_answered(&self, ino: Ino, after: u64) -> bool {
        let first = self.requests.get(&ino).and_then(BTreeSet::first);
        first.is_none_or(|&first| first >= after)
    }

    fn take_ready(&mut self) -> Option<PendingInvalidation> {
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|waiting| self.are_answered(waiting.ino, waiting.after))?;
        self.waiting.remove(at)
    }

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

/// Invalidates the kernel's attributes of an inode. The kernel waits for no page, so a request handler may call this.
fn drop_attributes(notifier: &Notifier, ino: Ino) -> bool {
    let done = notifier.inval_inode(INodeNo(ino.0), -1, 0);
    if let Err(error) = &done {
        log::debug!("cannot invalidate the length of inode {}: {error}", ino.0);
    }
    done.is_ok()
}

/// Drops the kernel's pages of an inode; returns whether the kernel has no stale page of it any more.
fn drop_pages(notifier: &Notifier, ino: Ino) -> bool {
    let done = notifier.inval_inode(INodeNo(ino.0), 0, 0);
    if let Err(error) = &done {
        let number = ino.0;
        log::debug!("cannot invalidate the pages of inode {number}: {error}");
    }
    // ENOENT: an inode unknown to the kernel has no pages.
    done.map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PageInvalidations {
        fn ready(&self) -> Option<Ino> {
            self.state.lock().take_ready().map(|ready| ready.ino)
        }
    }

    #[test]
    fn pages_are_dropped_after_the_earlier_requests_are_answered() {
        let pages = Arc::new(PageInvalidations::default());
        let (first, second) = (pages.begin(Ino(2)), pages.begin(Ino(2)));
        pages.push(Ino(2), false);
        pages.push(Ino(3), false);
        assert_eq!(pages.ready(), Some(Ino(3)), "another inode waits for none");
        drop(second);
        assert_eq!(pages.ready(), None, "a request is under way");
        let later = pages.begin(Ino(2));
        drop(first);
        assert_eq!(
            pages.ready(),
            Some(Ino(2)),
            "later requests hold nothing up"
        );
        drop(later);
        assert_eq!(pages.ready(), None);
        assert!(pages.state.lock().requests.is_empty());
    }

    #[test]
    fn a_repeated_change_waits_for_requests_begun_since() {
        let pages = Arc::new(PageInvalidations::default());
        let first = pages.begin(Ino(2));
        pages.push(Ino(2), false);
        let second = pages.begin(Ino(2));
        pages.push(Ino(2), false);
        drop(first);
        assert_eq!(pages.ready(), None);
        drop(second);
        assert_eq!((pages.ready(), pages.ready()), (Some(Ino(2)), None));
    }

    #[test]
    fn the_thread_ends_when_the_invalidations_are_closed() {
        let pages = Arc::new(PageInvalidations::default());
        let _request = pages.begin(Ino(2));
        pages.push(Ino(2), false);
        let waiting = thread::spawn({
            let pages = pages.clone();
            move || pages.next().map(|next| next.ino)
        });
        pages.close();
        assert_eq!(waiting.join().unwrap(), None);
        pages.push(Ino(2), false);
        assert!(pages.state.lock().waiting.is_empty());
    }
}
