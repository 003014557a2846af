//! Runs requests in the event loop or in a pool.
//!
//! A request whose answer is in memory runs in the event loop, any other in a thread pool. An event loop never blocks,
//! except the loops that `InlineWorkers` allows to run slow requests. Names, contents and the control directory have
//! separate pools, so that reads from a slow store delay neither names nor the control directory. A panic in a request
//! becomes EIO for that request. Errors are mapped to errno here, and reported.

use std::borrow::Borrow;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::deadline::{Deadlines, ReplyError, ReplyGuard};
use super::failures::Failures;
use super::invalidation::{PageInvalidations, PageRequest};
use super::reply::Output;
use super::request::{AccessLine, KernelRequest, RequestClass};
use crate::vfs::{Ino, Vfs};
use crate::view::control;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::pool::ThreadPool;

/// Numbers of threads that wait for the store: for names and attributes, and for contents.
const NAME_THREADS: usize = 16;
const CONTENT_THREADS: usize = 64;

/// Maximum number of requests that wait for a thread. The kernel sends at most 128 read-ahead requests, and one request
/// for each waiting thread of a program.
const MAX_QUEUED: usize = 16 << 10;

/// The thread pools of one mount, and the deadlines of its requests.
pub(super) struct Dispatcher {
    responder: Arc<Responder>,
    names: ThreadPool,
    contents: ThreadPool,
    control: ThreadPool,
    inline_workers: InlineWorkers,
    deadlines: Deadlines,
    pages: Arc<PageInvalidations>,
}

/// A reply, with the values that are dropped when it is sent.
struct HeldReply<R> {
    reply: R,
    /// Registers that the kernel may have locked pages for this request, until this value is dropped.
    pages: Option<PageRequest>,
    access: Option<AccessLine>,
}

/// What threads need to send replies and report errors.
struct Responder {
    vfs: Arc<Vfs>,
    failures: Arc<Failures>,
}

/// Limits how many event loops may block at a time, by running requests to a local store themselves, which saves the
/// hand-over to another thread. A mount has more event loops, so the others keep reading requests.
struct InlineWorkers {
    free: AtomicUsize,
}

/// Permission of an event loop to block, until this value is dropped.
struct InlineWorker<'a>(&'a InlineWorkers);

impl InlineWorkers {
    /// Returns the permission to block, or `None` if the maximum is reached.
    fn begin(&self) -> Option<InlineWorker<'_>> {
        let taken = |free: usize| free.checked_sub(1);
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .ok()?;
        Some(InlineWorker(self))
    }
}

impl Drop for InlineWorker<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

impl Dispatcher {
    /// Builds the thread pools of one mount; a request that takes longer than `timeout` is refused with EIO.
    pub(super) fn new(
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        pages: Arc<PageInvalidations>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let failures = Arc::new(Failures::new(vfs.clone(), stats));
        let late = failures.clone();
        Ok(Dispatcher {
            deadlines: Deadlines::new(timeout, move |request, error| late.report(request, error))?,
            responder: Arc::new(Responder { vfs, failures }),
            names: ThreadPool::new("zarrfs-names", NAME_THREADS, MAX_QUEUED),
            contents: ThreadPool::new("zarrfs-reads", CONTENT_THREADS, MAX_QUEUED),
            // Two threads are enough, because files of the control directory never wait for a store.
            control: ThreadPool::new("zarrfs-control", 2, MAX_QUEUED),
            inline_workers: InlineWorkers {
                free: AtomicUsize::new(0),
            },
            pages,
        })
    }

    /// Allows at most `most` event loops at a time to block.
    pub(super) fn with_inline_workers(self, most: usize) -> Self {
        let free = AtomicUsize::new(most);
        Dispatcher {
            inline_workers: InlineWorkers { free },
            ..self
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.responder.vfs.config().writable
    }

    /// Replies with the result of `execute`: at once if that needs no waiting, otherwise from a pool with a copy of
    /// `input`.
    pub(super) fn answer<T: Output, I: ToOwned<Owned: Send + 'static> + ?Sized>(
        &self,
        request: KernelRequest<'_>,
        reply: T::Reply,
        input: &I,
        execute: impl Fn(&Vfs, &RequestContext, &I) -> Result<T> + Send + 'static,
    ) {
        let responder = &self.responder;
        let access = AccessLine::begin(&request, &responder.vfs);
        match catch_panic(|| execute(&responder.vfs, &WITHOUT_WAITING, input)) {
            Err(error) if error.kind() == Kind::WouldWait => {
                let input = input.to_owned();
                self.enqueue(request, reply, move |vfs, context| {
                    execute(vfs, context, input.borrow())
                });
            }
            result => responder.send_reply(&request, access, result, reply),
        }
    }

    /// Runs `execute` in a pool, or in this thread if it may block, and replies with the result. A request that has
    /// timed out before is not executed; one that times out meanwhile makes no further change, and its result is
    /// undone.
    pub(super) fn enqueue<T: Output>(
        &self,
        request: KernelRequest<'_>,
        reply: T::Reply,
        execute: impl FnOnce(&Vfs, &RequestContext) -> Result<T> + Send + 'static,
    ) {
        if let Some(errno) = self.responder.failures.repeated_errno(&request) {
            return self.refuse(&request, reply, errno);
        }
        let access = AccessLine::begin(&request, &self.responder.vfs);
        let pages = request.locks_pages().then(|| self.pages.begin(request.ino));
        let held = HeldReply {
            reply,
            pages,
            access,
        };
        let pending = self.deadlines.begin(request.queued(), held);
        if let Some(_worker) = self.inline_workers.begin() {
            return self.responder.run(&pending, execute);
        }
        let request = pending.request();
        let (operation, class) = (request.operation, request.class);
        let path = self.responder.vfs.last_path(request.ino);
        let pool = match class {
            _ if path.is_some_and(|path| control::is_own(&path, request.name.as_deref())) => {
                &self.control
            }
            RequestClass::Names => &self.names,
            RequestClass::Contents | RequestClass::Flush => &self.contents,
        };
        let responder = self.responder.clone();
        if !pool.submit(move || responder.run(&pending, execute)) {
            log::error!(
                "{operation} failed: more than {MAX_QUEUED} requests are waiting for the store"
            );
        }
    }

    /// Refuses a request with an error number, without executing it.
    pub(super) fn refuse(&self, request: &KernelRequest<'_>, reply: impl ReplyError, errno: i32) {
        let access = AccessLine::begin(request, &self.responder.vfs);
        reply.refuse(errno);
        if let Some(access) = access {
            access.finish(Some(errno));
        }
    }

    /// Subtracts `count` lookups, which the kernel has forgotten, from an inode; this request has no reply.
    pub(super) fn forget(&self, ino: Ino, count: u64) {
        let done = catch_panic(|| {
            self.responder.vfs.forget(ino, count);
            Ok(())
        });
        if let Err(error) = done {
            log::error!("forget failed: {error}");
        }
    }
}

impl Responder {
    fn run<T: Output>(
        &self,
        pending: &ReplyGuard<HeldReply<T::Reply>>,
        execute: impl FnOnce(&Vfs, &RequestContext) -> Result<T>,
    ) {
        if !pending.is_waited_for() {
            return;
        }
        let request = pending.request();
        let context = RequestContext::new(pending.limit());
        let result = catch_panic(|| execute(&self.vfs, &context));
        match (pending.take(), result) {
            (Some(held), result) => {
                self.send_reply(request, held.access, result, held.reply);
                drop(held.pages);
            }
            (None, Ok(output)) => output.undo(&UNLIMITED, &self.vfs),
            (None, Err(error)) => self.failures.report_late(request, &error),
        }
    }

    /// Sends the result or the error of a request, and logs the request.
    fn send_reply<T: Output>(
        &self,
        request: &KernelRequest<'_>,
        access: Option<AccessLine>,
        result: Result<T>,
        reply: T::Reply,
    ) {
        let errno = match result {
            Ok(output) => {
                let errno = access.as_ref().and_then(|_| output.errno());
                let sent = catch_panic(|| {
                    output.send(reply, &self.vfs);
                    Ok(())
                });
                if let Err(error) = sent {
                    log::error!("cannot answer {}: {error}", request.operation);
                }
                errno
            }
            Err(error) => {
                self.failures.report(request, &error);
                reply.refuse(error.errno());
                Some(error.errno())
            }
        };
        if let Some(access) = access {
            access.finish(errno);
        }
    }
}

impl<R: ReplyError> ReplyError for HeldReply<R> {
    fn refuse(self, errno: i32) {
        self.reply.refuse(errno);
        drop(self.pages);
        if let Some(access) = self.access {
            access.finish(Some(errno));
        }
    }
}

/// Runs `work`; a panic becomes an error, so that the mount stays alive.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let why = "a fault in zarrfs: the request panicked; please report the log";
        Err(Error::unavailable("", why))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::{Receiver, Sender};

    use super::super::failures::REPEATED_WITHIN;
    use super::*;
    use crate::vfs::mounted;
    use zarrfs_store::backend::memory::MemoryStore;

    const LONG: Duration = Duration::from_secs(3600);

    /// What happened to a request in a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Event {
        Sent,
        Refused(i32),
        Undone,
    }

    struct EventReply(Sender<Event>);

    impl ReplyError for EventReply {
        fn refuse(self, errno: i32) {
            self.0.send(Event::Refused(errno)).unwrap();
        }
    }

    struct EventOutput(Sender<Event>);

    impl Output for EventOutput {
        type Reply = EventReply;

        fn send(self, reply: EventReply, _vfs: &Vfs) {
            reply.0.send(Event::Sent).unwrap();
        }

        fn undo(self, _context: &RequestContext, _vfs: &Vfs) {
            self.0.send(Event::Undone).unwrap();
        }
    }

    fn dispatcher(timeout: Duration) -> Dispatcher {
        let vfs = Arc::new(mounted(MemoryStore::default(), false));
        Dispatcher::new(vfs, Arc::default(), Arc::default(), timeout).unwrap()
    }

    fn request() -> KernelRequest<'static> {
        KernelRequest::new(RequestClass::Names, "lookup", Ino::ROOT, 0)
    }

    fn enqueue(
        dispatcher: &Dispatcher,
        execute: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Receiver<Event> {
        let (sender, events) = mpsc::channel();
        let output = EventOutput(sender.clone());
        dispatcher.enqueue(request(), EventReply(sender), move |_, _| {
            execute().map(|()| output)
        });
        events
    }

    #[test]
    fn an_answer_from_memory_is_sent_at_once() {
        let dispatcher = dispatcher(LONG);
        let (sender, events) = mpsc::channel();
        let reply = EventReply(sender.clone());
        dispatcher.answer(request(), reply, &(), move |_, context, ()| {
            assert!(!context.may_wait(), "it is enqueued");
            Ok(EventOutput(sender.clone()))
        });
        assert_eq!(events.try_recv(), Ok(Event::Sent));
        let (sender, events) = mpsc::channel();
        let reply = EventReply(sender.clone());
        dispatcher.answer(
            request(),
            reply,
            b"ab".as_slice(),
            move |_, context, input| {
                context.check_may_wait()?;
                assert_eq!(input, b"ab");
                Ok(EventOutput(sender.clone()))
            },
        );
        assert_eq!(events.recv(), Ok(Event::Sent));
    }

    #[test]
    fn a_limited_number_of_event_loops_run_pool_work() {
        let loops = InlineWorkers {
            free: AtomicUsize::new(2),
        };
        let (first, second) = (loops.begin(), loops.begin());
        assert!(first.is_some() && second.is_some());
        assert!((0..3).all(|_| loops.begin().is_none()));
        drop(first);
        assert!(loops.begin().is_some());
    }

    #[test]
    fn results_are_sent_and_errors_become_their_errno() {
        let dispatcher = dispatcher(LONG);
        let events: Vec<_> = enqueue(&dispatcher, || Ok(())).iter().collect();
        assert_eq!(events, [Event::Sent]);
        let missing = || Err(Error::not_found("a"));
        let events: Vec<_> = enqueue(&dispatcher, missing).iter().collect();
        assert_eq!(events, [Event::Refused(libc::ENOENT)]);
    }

    #[test]
    fn a_result_after_the_deadline_is_undone() {
        let dispatcher = dispatcher(Duration::from_millis(20));
        let (release, released) = mpsc::channel::<()>();
        let events = enqueue(&dispatcher, move || {
            released.recv().unwrap();
            Ok(())
        });
        assert_eq!(events.recv(), Ok(Event::Refused(libc::EIO)));
        release.send(()).unwrap();
        assert_eq!(events.iter().collect::<Vec<_>>(), [Event::Undone]);
    }

    #[test]
    fn a_request_refused_in_the_queue_is_not_run() {
        let dispatcher = dispatcher(Duration::from_millis(20));
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(parking_lot::Mutex::new(released));
        for _ in 0..NAME_THREADS {
            let released = released.clone();
            dispatcher
                .names
                .submit(move || released.lock().recv().unwrap_or_default());
        }
        let (begun, has_begun) = mpsc::channel();
        let events = enqueue(&dispatcher, move || {
            begun.send(()).unwrap();
            Ok(())
        });
        assert_eq!(events.recv(), Ok(Event::Refused(libc::EIO)));
        drop(release);
        assert_eq!(events.iter().collect::<Vec<_>>(), []);
        assert!(has_begun.recv().is_err(), "it was begun");
    }

    #[test]
    fn the_control_directory_waits_for_no_other_request() {
        let dispatcher = dispatcher(LONG);
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(parking_lot::Mutex::new(released));
        for _ in 0..NAME_THREADS {
            let released = released.clone();
            dispatcher
                .names
                .submit(move || released.lock().recv().unwrap_or_default());
        }
        let (sender, events) = mpsc::channel();
        let output = EventOutput(sender.clone());
        let errors = request().with_name(control::CONTROL);
        dispatcher.enqueue(errors, EventReply(sender), move |_, _| Ok(output));
        let answered = events.recv_timeout(Duration::from_secs(60));
        assert_eq!(answered, Ok(Event::Sent));
        drop(release);
    }

    #[test]
    fn a_repeated_read_fails_without_waiting_again() {
        let dispatcher = dispatcher(Duration::from_millis(1200));
        let read = || {
            let pid = std::process::id();
            KernelRequest {
                range: Some(0..4096),
                ..KernelRequest::new(RequestClass::Contents, "read", Ino(7), pid)
            }
        };
        let ask = |execute: Box<dyn FnOnce() + Send>| {
            let (sender, events) = mpsc::channel();
            let output = EventOutput(sender.clone());
            dispatcher.enqueue(read(), EventReply(sender), move |_, _| {
                execute();
                Ok(output)
            });
            events
        };
        let (release, released) = mpsc::channel::<()>();
        let late = ask(Box::new(move || released.recv().unwrap_or_default()));
        assert_eq!(late.recv(), Ok(Event::Refused(libc::EIO)));
        let again = ask(Box::new(|| panic!("it is begun")));
        assert_eq!(again.recv(), Ok(Event::Refused(libc::EIO)));
        drop(release);
        std::thread::sleep(REPEATED_WITHIN);
        let later = ask(Box::new(|| ()));
        assert_eq!(later.recv(), Ok(Event::Sent));
    }

    #[test]
    fn a_panic_is_an_error_of_one_request() {
        let dispatcher = dispatcher(LONG);
        let events = enqueue(&dispatcher, || panic!("on purpose"));
        assert_eq!(events.recv(), Ok(Event::Refused(libc::EIO)));
        assert_eq!(enqueue(&dispatcher, || Ok(())).recv(), Ok(Event::Sent));
    }
}
