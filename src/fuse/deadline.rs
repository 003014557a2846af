//! Every request in a pool is answered in time: by its result, or with EIO.
//!
//! The reply of a pending request lies in a slot from which it is taken once: by the job that has the result, or by the
//! watcher thread when the time is up. The cost is a lock and an entry in an ordered map per request; the watcher sleeps
//! until the oldest request is due, and without limit when there is none. A late job is not stopped: the store has time
//! limits of its own. But it changes nothing any more (`src/request_context.rs`): a request that changes something is not
//! refused then, and a refused one makes no change.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::request::NamedRequest;
use crate::error::{Error, Kind};
use crate::request_context::RequestLimit;

/// A reply that can carry an error.
pub(super) trait ReplyError: Send + 'static {
    /// Answers with an errno.
    fn refuse(self, errno: i32);
}

/// The pending replies of one mount.
pub(super) struct Deadlines {
    limit: Duration,
    pending: Arc<PendingReplies>,
}

struct PendingReplies {
    queue: Mutex<DeadlineQueue>,
    wake: Condvar,
}

#[derive(Default)]
struct DeadlineQueue {
    /// By number; the limit is the same for all, so the first is due first.
    due: BTreeMap<u64, (Instant, Arc<dyn Expire>)>,
    next: u64,
    /// The watcher sleeps without a limit and must be woken.
    asleep: bool,
    closed: bool,
}

trait Expire: Send + Sync {
    /// Refuses the reply, unless it was taken or the request is changing something.
    fn expire(&self) -> Expiry;
    fn request(&self) -> &NamedRequest;
}

/// What becomes of a reply that is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Refused,
    WasTaken,
    /// The request is changing something, or has.
    Changes,
}

struct PendingReply<R> {
    request: NamedRequest,
    state: Mutex<ReplyState<R>>,
}

struct ReplyState<R> {
    reply: Option<R>,
    /// Changes that are being made, and have been.
    changes: usize,
}

/// The right to answer one request before its time is up. Dropped unused, it refuses with EIO.
pub(super) struct ReplyGuard<R: ReplyError> {
    slot: Arc<PendingReply<R>>,
    number: u64,
    pending: Arc<PendingReplies>,
}

impl Deadlines {
    /// Starts the watcher; a reply is due `limit` after `begin`, and then `is_late` is called with its request.
    pub(super) fn new(
        limit: Duration,
        is_late: impl Fn(&NamedRequest, &Error) + Send + 'static,
    ) -> io::Result<Deadlines> {
        let pending = Arc::new(PendingReplies {
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let watched = pending.clone();
        thread::Builder::new()
            .name("zarrfs-deadline".to_string())
            .spawn(move || watched.watch(limit, &is_late))?;
        Ok(Deadlines { limit, pending })
    }

    /// Puts a reply into a slot; it is never due if the request has no limit.
    pub(super) fn begin<R: ReplyError>(&self, request: NamedRequest, reply: R) -> ReplyGuard<R> {
        let is_limited = request.info.is_limited;
        let slot = Arc::new(PendingReply {
            request,
            state: Mutex::new(ReplyState {
                reply: Some(reply),
                changes: 0,
            }),
        });
        let mut queue = self.pending.queue.lock();
        let number = queue.next;
        queue.next += 1;
        if is_limited {
            let due = Instant::now() + self.limit;
            queue.due.insert(number, (due, slot.clone()));
            if queue.asleep {
                queue.asleep = false;
                self.pending.wake.notify_one();
            }
        }
        drop(queue);
        ReplyGuard {
            slot,
            number,
            pending: self.pending.clone(),
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.pending.queue.lock().closed = true;
        self.pending.wake.notify_one();
    }
}

impl DeadlineQueue {
    /// Returns how long the first reply has until it is due; nothing if none is pending.
    fn time_left(&self, now: Instant) -> Option<Duration> {
        let (_, (due, _)) = self.due.first_key_value()?;
        Some(due.saturating_duration_since(now))
    }

    fn pop(&mut self) -> Option<Arc<dyn Expire>> {
        self.due.pop_first().map(|(_, (_, late))| late)
    }

    /// Looks at a reply again after another limit. It gets a number of its own, as the last that is due.
    fn put_off(&mut self, late: Arc<dyn Expire>, limit: Duration) {
        self.due.insert(self.next, (Instant::now() + limit, late));
        self.next += 1;
    }
}

impl PendingReplies {
    fn watch(&self, limit: Duration, is_late: &dyn Fn(&NamedRequest, &Error)) {
        let why = format!("no answer within {} s (--timeout)", limit.as_secs_f64());
        let error = Error::unavailable("", why);
        while let Some(late) = self.next_late(limit) {
            match late.expire() {
                Expiry::Refused => is_late(late.request(), &error),
                Expiry::WasTaken => {}
                Expiry::Changes => self.queue.lock().put_off(late, limit),
            }
        }
    }

    /// Waits for the next reply that is overdue; nothing when the session is over.
    fn next_late(&self, limit: Duration) -> Option<Arc<dyn Expire>> {
        let mut is_quiet = false;
        let mut queue = self.queue.lock();
        while !queue.closed {
            match queue.time_left(Instant::now()) {
                Some(Duration::ZERO) => return queue.pop(),
                Some(left) => {
                    is_quiet = false;
                    self.wake.wait_for(&mut queue, left);
                }
                // Sleeps one more limit before it sleeps for good, so that under load no request has to wake it.
                None if !is_quiet => {
                    is_quiet = true;
                    self.wake.wait_for(&mut queue, limit);
                }
                None => {
                    is_quiet = false;
                    queue.asleep = true;
                    self.wake.wait(&mut queue);
                    queue.asleep = false;
                }
            }
        }
        None
    }
}

impl<R: ReplyError> Expire for PendingReply<R> {
    fn expire(&self) -> Expiry {
        let mut state = self.state.lock();
        if state.reply.is_some() && state.changes > 0 {
            return Expiry::Changes;
        }
        let reply = state.reply.take();
        drop(state);
        match reply {
            Some(reply) => {
                reply.refuse(Kind::Unavailable.errno());
                Expiry::Refused
            }
            None => Expiry::WasTaken,
        }
    }

    fn request(&self) -> &NamedRequest {
        &self.request
    }
}

impl<R: ReplyError> RequestLimit for PendingReply<R> {
    fn suspend(&self) -> bool {
        let mut state = self.state.lock();
        if state.reply.is_some() {
            state.changes += 1;
        }
        state.reply.is_some()
    }

    fn resume(&self) {
        let mut state = self.state.lock();
        state.changes = state.changes.saturating_sub(1);
    }
}

impl<R> PendingReply<R> {
    fn take(&self) -> Option<R> {
        self.state.lock().reply.take()
    }
}

impl<R: ReplyError> ReplyGuard<R> {
    /// Returns the reply, or nothing if its time was up.
    pub(super) fn take(&self) -> Option<R> {
        self.slot.take()
    }

    /// Whether the reply was not given yet.
    pub(super) fn is_waited_for(&self) -> bool {
        self.slot.state.lock().reply.is_some()
    }

    /// Returns the time limit, for what the request changes.
    pub(super) fn limit(&self) -> Arc<dyn RequestLimit> {
        self.slot.clone()
    }
}

impl<R: ReplyError> Drop for ReplyGuard<R> {
    fn drop(&mut self) {
        self.pending.queue.lock().due.remove(&self.number);
        if let Some(reply) = self.slot.take() {
            reply.refuse(Kind::Unavailable.errno());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Receiver;

    use super::super::request::RequestInfo;
    use super::*;
    use crate::vfs::Ino;

    const LONG: Duration = Duration::from_secs(3600);

    struct ErrnoSender(mpsc::Sender<i32>);

    impl ReplyError for ErrnoSender {
        fn refuse(self, errno: i32) {
            self.0.send(errno).unwrap();
        }
    }

    fn deadlines(limit: Duration) -> Deadlines {
        Deadlines::new(limit, |_, _| ()).unwrap()
    }

    fn begin(deadlines: &Deadlines) -> (ReplyGuard<ErrnoSender>, Receiver<i32>) {
        let (sender, errnos) = mpsc::channel();
        let request = RequestInfo::contents("read", Ino(7)).about(None);
        (deadlines.begin(request, ErrnoSender(sender)), errnos)
    }

    #[test]
    fn a_late_reply_is_refused_once() {
        let deadlines = deadlines(Duration::from_millis(30));
        let (guard, errnos) = begin(&deadlines);
        assert_eq!(
            errnos.recv_timeout(Duration::from_secs(60)),
            Ok(Kind::Unavailable.errno())
        );
        assert!(guard.take().is_none());
        drop(guard);
        assert!(errnos.recv().is_err());
        assert!(deadlines.pending.queue.lock().due.is_empty());
    }

    #[test]
    fn a_reply_in_time_is_left_alone() {
        let deadlines = deadlines(LONG);
        let (guard, errnos) = begin(&deadlines);
        let reply = guard.take().unwrap();
        let mut queue = deadlines.pending.queue.lock();
        let now = Instant::now();
        assert!(queue.time_left(now).unwrap() > LONG / 2);
        assert_eq!(queue.time_left(now + LONG), Some(Duration::ZERO));
        let late = queue.pop().unwrap();
        drop(queue);
        assert_eq!(late.expire(), Expiry::WasTaken);
        drop((guard, reply));
        assert!(errnos.recv().is_err());
    }

    #[test]
    fn a_request_that_changes_something_is_not_refused_meanwhile() {
        let limit = Duration::from_millis(20);
        let deadlines = deadlines(limit);
        let (changes, errnos) = begin(&deadlines);
        assert!(changes.limit().suspend());
        thread::sleep(limit * 4);
        assert!(errnos.try_recv().is_err(), "its answer is awaited");
        changes.limit().resume();
        assert_eq!(errnos.recv(), Ok(Kind::Unavailable.errno()));
        assert!(!changes.limit().suspend(), "it changes nothing any more");
        let (changed, errnos) = begin(&deadlines);
        assert!(changed.limit().suspend());
        thread::sleep(limit * 4);
        drop(changed.take());
        assert!(errnos.recv().is_err(), "answered and not refused");
    }

    #[test]
    fn a_reply_forgotten_is_refused() {
        let (guard, errnos) = begin(&deadlines(LONG));
        drop(guard);
        assert_eq!(errnos.recv(), Ok(Kind::Unavailable.errno()));
    }

    #[test]
    fn a_request_without_limit_is_never_due() {
        let deadlines = deadlines(LONG);
        let (sender, errnos) = mpsc::channel();
        let request = RequestInfo::flush("flush", Ino(7)).about(None);
        let guard = deadlines.begin(request, ErrnoSender(sender));
        assert_eq!(
            deadlines.pending.queue.lock().time_left(Instant::now()),
            None
        );
        drop(guard.take());
        assert!(errnos.recv().is_err());
    }

    #[test]
    fn the_watcher_wakes_for_the_first_after_a_long_quiet() {
        let deadlines = deadlines(Duration::from_millis(20));
        let end = Instant::now() + Duration::from_secs(60);
        while !deadlines.pending.queue.lock().asleep {
            assert!(Instant::now() < end, "the watcher does not sleep");
            thread::yield_now();
        }
        let (_guard, errnos) = begin(&deadlines);
        assert!(errnos.recv_timeout(Duration::from_secs(60)).is_ok());
    }
}
