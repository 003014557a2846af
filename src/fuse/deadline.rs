//! Enforces request deadlines: result, EIO, or EINTR if the caller was interrupted.
//!
//! The reply of a pending request is in a slot from which it is taken once: by the job with the result, or by the
//! watcher thread at the deadline or when the caller has a pending signal (`caller`). The watcher checks for signals
//! while any request is older than half a second. A request costs a lock and an entry in an ordered map; the watcher
//! sleeps until the oldest request is half a second old, and without a limit if there are none. A late job ends where
//! it waits for a remote store, unless bytes keep arriving (`store/backend/remote/runtime.rs`), and it is fenced: it
//! makes no further changes (`crates/zarrfs-store/src/request_context.rs`). A request that has begun a change is not
//! refused, and a refused request makes no change.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::caller;
use super::request::{KernelRequest, RequestClass};
use zarr_format::error::{Error, Kind};
use zarrfs_store::request_context::RequestLimit;

/// The age of a request at which its caller's signals are checked first, and the interval of the checks. A caller may
/// wait for two requests in a row, a read-ahead and a read, and should end within two seconds.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A reply that can return an error.
pub(super) trait ReplyError: Send + 'static {
    /// Answers with an errno.
    fn refuse(self, errno: i32);
}

/// The pending replies of one mount.
pub(super) struct Deadlines {
    pending: Arc<PendingReplies>,
}

struct PendingReplies {
    queue: Mutex<DeadlineQueue>,
    wake: Condvar,
}

#[derive(Default)]
struct DeadlineQueue {
    /// The pending replies by number. All have the same time limit, so the reply with the lowest number is due first.
    waiting: BTreeMap<u64, WaitingReply>,
    next: u64,
    /// Whether the watcher sleeps without a limit and must be woken.
    asleep: bool,
    closed: bool,
}

struct WaitingReply {
    since: Instant,
    reply: Arc<dyn Expire>,
}

/// The watcher's next task.
enum Duty {
    /// A reply is overdue.
    Expire(Arc<dyn Expire>),
    /// The callers of these old replies are to be checked.
    CheckCallers(Vec<(u64, Arc<dyn Expire>)>),
}

trait Expire: Send + Sync {
    /// Refuses the reply with an error, after calling `on_refusal`, unless it was taken or the request has begun a
    /// change.
    fn expire(&self, error: &Error, on_refusal: &dyn Fn(&KernelRequest<'static>, &Error))
    -> Expiry;
    fn request(&self) -> &KernelRequest<'static>;
}

/// The result of refusing a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Refused,
    WasTaken,
    /// The request has begun a change.
    Changes,
}

struct PendingReply<R> {
    request: KernelRequest<'static>,
    state: Mutex<ReplyState<R>>,
}

struct ReplyState<R> {
    reply: Option<R>,
    /// Number of changes for which the request got a permit, without the permits that it gave back.
    changes: usize,
}

/// The right to answer a request before its deadline. Dropped unused, it refuses the request with EIO.
pub(super) struct ReplyGuard<R: ReplyError> {
    slot: Arc<PendingReply<R>>,
    number: u64,
    pending: Arc<PendingReplies>,
}

impl Deadlines {
    /// Starts the watcher; the deadline of a reply is `limit` after `begin`. `on_refusal` is called with each request
    /// that the watcher refuses, and the error, just before the refusal.
    pub(super) fn new(
        limit: Duration,
        on_refusal: impl Fn(&KernelRequest<'static>, &Error) + Send + 'static,
    ) -> io::Result<Deadlines> {
        let pending = Arc::new(PendingReplies {
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let watched = pending.clone();
        thread::Builder::new()
            .name("zarrfs-deadline".to_string())
            .spawn(move || watched.watch(limit, &on_refusal))?;
        Ok(Deadlines { pending })
    }

    /// Adds a pending reply; that of a flush has no deadline.
    pub(super) fn begin<R: ReplyError>(
        &self,
        request: KernelRequest<'static>,
        reply: R,
    ) -> ReplyGuard<R> {
        let is_limited = request.class != RequestClass::Flush;
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
            let reply = slot.clone();
            queue.add(number, reply);
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
    /// Returns the start time of the first reply, or `None` if none is pending.
    fn first(&self) -> Option<Instant> {
        let (_, first) = self.waiting.first_key_value()?;
        Some(first.since)
    }

    fn add(&mut self, number: u64, reply: Arc<dyn Expire>) {
        let since = Instant::now();
        self.waiting.insert(number, WaitingReply { since, reply });
    }

    fn pop(&mut self) -> Option<Arc<dyn Expire>> {
        let (_, late) = self.waiting.pop_first()?;
        Some(late.reply)
    }

    /// Returns the replies that started at `time` or earlier.
    fn since(&self, time: Instant) -> Vec<(u64, Arc<dyn Expire>)> {
        let old = self.waiting.iter();
        let old = old.take_while(|(_, waiting)| waiting.since <= time);
        old.map(|(number, waiting)| (*number, waiting.reply.clone()))
            .collect()
    }

    /// Postpones a reply by another time limit. The reply gets a new number, since it is now the last one that is due.
    fn postpone(&mut self, late: Arc<dyn Expire>) {
        self.add(self.next, late);
        self.next += 1;
    }
}

impl PendingReplies {
    fn watch(&self, limit: Duration, on_refusal: &dyn Fn(&KernelRequest<'static>, &Error)) {
        let why = format!(
            "no response within {} s (see --timeout)",
            limit.as_secs_f64()
        );
        let error = Error::unavailable("", why);
        let mut next_check = Instant::now();
        while let Some(duty) = self.next_duty(limit, next_check) {
            match duty {
                Duty::Expire(late) => match late.expire(&error, on_refusal) {
                    Expiry::Refused | Expiry::WasTaken => {}
                    Expiry::Changes => self.queue.lock().postpone(late),
                },
                Duty::CheckCallers(replies) => {
                    self.refuse_interrupted(replies, on_refusal);
                    next_check = Instant::now() + CALLER_CHECK_INTERVAL;
                }
            }
        }
    }

    /// Refuses the replies whose callers were interrupted.
    fn refuse_interrupted(
        &self,
        replies: Vec<(u64, Arc<dyn Expire>)>,
        on_refusal: &dyn Fn(&KernelRequest<'static>, &Error),
    ) {
        if !caller::can_be_looked_up() {
            return;
        }
        let error = Error::new(Kind::Interrupted, "", "the program was interrupted");
        // A read-ahead consists of many requests of one caller, so each caller is looked up once.
        let mut callers = HashMap::new();
        for (number, reply) in replies {
            let tid = reply.request().caller;
            let is_interrupted = callers.entry(tid);
            if !*is_interrupted.or_insert_with(|| caller::is_interrupted(tid)) {
                continue;
            }
            if reply.expire(&error, on_refusal) == Expiry::Refused {
                self.queue.lock().waiting.remove(&number);
            }
        }
    }

    /// Waits for the next task, and checks callers from `next_check` on; `None` when the session is over.
    fn next_duty(&self, limit: Duration, next_check: Instant) -> Option<Duty> {
        let mut is_quiet = false;
        let mut queue = self.queue.lock();
        while !queue.closed {
            let now = Instant::now();
            match queue.first() {
                Some(since) if since + limit <= now => return queue.pop().map(Duty::Expire),
                Some(since) => {
                    let check = next_check.max(since + CALLER_CHECK_INTERVAL);
                    if check <= now {
                        let old = now.checked_sub(CALLER_CHECK_INTERVAL).unwrap_or(since);
                        return Some(Duty::CheckCallers(queue.since(old)));
                    }
                    is_quiet = false;
                    let next = check.min(since + limit);
                    self.wake.wait_until(&mut queue, next);
                }
                // No reply is pending: sleeps once more with a limit before it sleeps without one, so that under load
                // no request has to wake it.
                None if !is_quiet => {
                    is_quiet = true;
                    self.wake
                        .wait_for(&mut queue, limit.min(CALLER_CHECK_INTERVAL));
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
    fn expire(
        &self,
        error: &Error,
        on_refusal: &dyn Fn(&KernelRequest<'static>, &Error),
    ) -> Expiry {
        let mut state = self.state.lock();
        if state.reply.is_some() && state.changes > 0 {
            return Expiry::Changes;
        }
        let reply = state.reply.take();
        drop(state);
        match reply {
            Some(reply) => {
                on_refusal(&self.request, error);
                reply.refuse(error.errno());
                Expiry::Refused
            }
            None => Expiry::WasTaken,
        }
    }

    fn request(&self) -> &KernelRequest<'static> {
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

    fn is_waited_for(&self) -> bool {
        self.state.lock().reply.is_some()
    }
}

impl<R> PendingReply<R> {
    fn take(&self) -> Option<R> {
        self.state.lock().reply.take()
    }
}

impl<R: ReplyError> ReplyGuard<R> {
    /// Returns the reply, or `None` if it was refused.
    pub(super) fn take(&self) -> Option<R> {
        self.slot.take()
    }

    /// Returns the request.
    pub(super) fn request(&self) -> &KernelRequest<'static> {
        &self.slot.request
    }

    /// Whether the reply is still pending.
    pub(super) fn is_waited_for(&self) -> bool {
        RequestLimit::is_waited_for(&*self.slot)
    }

    /// Returns the time limit of the request, after which it may make no changes.
    pub(super) fn limit(&self) -> Arc<dyn RequestLimit> {
        self.slot.clone()
    }
}

impl<R: ReplyError> Drop for ReplyGuard<R> {
    fn drop(&mut self) {
        self.pending.queue.lock().waiting.remove(&self.number);
        if let Some(reply) = self.slot.take() {
            reply.refuse(Kind::Unavailable.errno());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Receiver;

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
        (deadlines.begin(read(0), ErrnoSender(sender)), errnos)
    }

    fn read(caller: u32) -> KernelRequest<'static> {
        KernelRequest::new(RequestClass::Contents, "read", Ino(7), caller)
    }

    /// Invariant (mount): Every request gets exactly one reply, in time.
    #[test]
    fn a_request_past_its_deadline_is_refused_once() {
        let deadlines = deadlines(Duration::from_millis(30));
        let (guard, errnos) = begin(&deadlines);
        assert_eq!(
            errnos.recv_timeout(Duration::from_secs(60)),
            Ok(Kind::Unavailable.errno())
        );
        assert!(guard.take().is_none());
        drop(guard);
        assert!(errnos.recv().is_err());
        assert!(deadlines.pending.queue.lock().waiting.is_empty());
    }

    #[test]
    fn a_reply_before_the_deadline_is_not_refused() {
        let deadlines = deadlines(LONG);
        let (guard, errnos) = begin(&deadlines);
        let reply = guard.take().unwrap();
        let mut queue = deadlines.pending.queue.lock();
        let since = queue.first().unwrap();
        assert!(since <= Instant::now());
        assert!(queue.since(since - Duration::from_nanos(1)).is_empty());
        assert_eq!(queue.since(since).len(), 1);
        let late = queue.pop().unwrap();
        drop(queue);
        let error = Error::unavailable("", "late");
        assert_eq!(late.expire(&error, &|_, _| ()), Expiry::WasTaken);
        drop((guard, reply));
        assert!(errnos.recv().is_err());
    }

    /// Invariant of `a_refused_change_is_not_made_later`.
    #[test]
    fn a_request_is_not_refused_while_it_makes_a_change() {
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
    fn a_request_whose_caller_has_ended_is_interrupted() {
        let deadlines = deadlines(LONG);
        let begin = |caller| {
            let (sender, errnos) = mpsc::channel();
            (deadlines.begin(read(caller), ErrnoSender(sender)), errnos)
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (own, unknown) = (begin(std::process::id()), begin(0));
        let changes = begin(child.id());
        assert!(changes.0.limit().suspend());
        let (gone, errnos) = begin(child.id());
        assert_eq!(
            errnos.recv_timeout(Duration::from_secs(60)),
            Ok(libc::EINTR)
        );
        for (_, errnos) in [&own, &unknown, &changes] {
            assert!(errnos.try_recv().is_err());
        }
        drop((own.0, unknown.0, changes.0, gone));
    }

    #[test]
    fn a_dropped_reply_is_refused() {
        let (guard, errnos) = begin(&deadlines(LONG));
        drop(guard);
        assert_eq!(errnos.recv(), Ok(Kind::Unavailable.errno()));
    }

    #[test]
    fn a_request_without_a_deadline_never_expires() {
        let deadlines = deadlines(LONG);
        let (sender, errnos) = mpsc::channel();
        let request = KernelRequest::new(RequestClass::Flush, "flush", Ino(7), 0);
        let guard = deadlines.begin(request, ErrnoSender(sender));
        assert_eq!(deadlines.pending.queue.lock().first(), None);
        drop(guard.take());
        assert!(errnos.recv().is_err());
    }

    #[test]
    fn the_watcher_wakes_for_the_first_request_after_idle_time() {
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
