//! Answers overdue requests with EIO, and requests of interrupted programs with EINTR.
//!
//! The reply of a pending request is taken once: by the thread that has the result, or by the watcher thread, at the
//! deadline or when the program has a pending signal (`caller`). The watcher checks for signals while any request is
//! older than half a second; it sleeps until the oldest request has that age, or until a request wakes it. A request
//! costs a lock and an entry in an ordered map. The thread of a refused request ends where it waits for a remote store,
//! unless bytes keep arriving (`store/backend/remote/runtime.rs`), and it is fenced: it makes no further changes
//! (`crates/zarrfs-store/src/request_context.rs`). A request that has begun a change is not refused, and a refused
//! request makes no change.

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

/// Age at which a request is first checked for signals of its program, and interval of the checks. Half a second, since
/// a program may wait for two requests in a row, a read-ahead and a read, and should end within two seconds.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A reply of fuser that can return an error.
pub(super) trait ReplyError: Send + 'static {
    /// Replies with an error number.
    fn refuse(self, errno: i32);
}

/// The pending requests of one mount, with their deadlines.
pub(super) struct Deadlines {
    pending: Arc<PendingReplies>,
}

struct PendingReplies {
    queue: Mutex<DeadlineQueue>,
    wake: Condvar,
}

#[derive(Default)]
struct DeadlineQueue {
    /// Pending requests by number. All have the same time limit, so the lowest number has the first deadline.
    waiting: BTreeMap<u64, WaitingReply>,
    next: u64,
    /// Whether the watcher thread sleeps without a time limit, so that a new request must wake it.
    asleep: bool,
    closed: bool,
}

struct WaitingReply {
    since: Instant,
    reply: Arc<dyn Expire>,
}

/// What the watcher thread has to do next.
enum Duty {
    /// A request is overdue and must be refused.
    Expire(Arc<dyn Expire>),
    /// Requests are old enough to check whether the programs that wait for them were interrupted.
    CheckCallers(Vec<(u64, Arc<dyn Expire>)>),
}

trait Expire: Send + Sync {
    /// Refuses a request with an error, after calling `on_refusal`, unless the request was answered or has begun a
    /// change.
    fn expire(&self, error: &Error, on_refusal: &dyn Fn(&KernelRequest<'static>, &Error))
    -> Expiry;
    fn request(&self) -> &KernelRequest<'static>;
}

/// What came of the attempt to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Refused,
    WasTaken,
    /// The request was not refused, because it has begun a change.
    Changes,
}

struct PendingReply<R> {
    request: KernelRequest<'static>,
    state: Mutex<ReplyState<R>>,
}

struct ReplyState<R> {
    reply: Option<R>,
    /// Number of changes that the request has begun and not given up.
    changes: usize,
}

/// The right to reply to a request before its deadline. If it is dropped unused, the request is refused with EIO.
pub(super) struct ReplyGuard<R: ReplyError> {
    slot: Arc<PendingReply<R>>,
    number: u64,
    pending: Arc<PendingReplies>,
}

impl Deadlines {
    /// Starts the watcher thread. A request has its deadline `limit` after `begin`; just before the watcher refuses a
    /// request, it calls `on_refusal` with the request and the error.
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

    /// Adds a pending request. A flush has no deadline.
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
    /// Returns when the oldest pending request began, or `None` if no request is pending.
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

    /// Returns the pending requests that began at `time` or earlier.
    fn since(&self, time: Instant) -> Vec<(u64, Arc<dyn Expire>)> {
        let old = self.waiting.iter();
        let old = old.take_while(|(_, waiting)| waiting.since <= time);
        old.map(|(number, waiting)| (*number, waiting.reply.clone()))
            .collect()
    }

    /// Gives a request that must not be refused another time limit, and a new number, since its deadline is now the
    /// last.
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

    /// Refuses the requests whose programs were interrupted.
    fn refuse_interrupted(
        &self,
        replies: Vec<(u64, Arc<dyn Expire>)>,
        on_refusal: &dyn Fn(&KernelRequest<'static>, &Error),
    ) {
        if !caller::can_be_looked_up() {
            return;
        }
        let error = Error::new(Kind::Interrupted, "", "the program was interrupted");
        // Each program is checked only once, since its read-ahead may consist of many requests.
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

    /// Waits for the next task of the watcher thread; programs are checked from `next_check` on. Returns `None` at the
    /// end of the session.
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
                // Without pending requests the watcher sleeps first with, and then without a time limit: under load new
                // requests arrive in the first sleep, and need not wake it.
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
    /// Takes the right to reply; returns `None` if the watcher has refused the request.
    pub(super) fn take(&self) -> Option<R> {
        self.slot.take()
    }

    pub(super) fn request(&self) -> &KernelRequest<'static> {
        &self.slot.request
    }

    /// Whether the request is neither answered nor refused yet.
    pub(super) fn is_waited_for(&self) -> bool {
        RequestLimit::is_waited_for(&*self.slot)
    }

    /// Returns the limit that stops the request from making changes once it is refused.
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
