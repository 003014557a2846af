//! Runs requests in the event loop or in a pool.
//!
//! A request whose answer is in memory runs in the event loop, any other in a pool. An event loop never blocks, except
//! the loops that `waiting_loops` allows to run a pool's work. Names, contents and the control directory have separate
//! pools, so that readers of a slow store do not delay names, and neither delays the control directory. A panic in a
//! request becomes EIO for that request. Errors are mapped to errno here and reported.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::access::AccessLine;
use super::deadline::{Deadlines, ReplyError, ReplyGuard};
use super::failed_reads::FailedReads;
use super::failure_reporter::FailureReporter;
use super::invalidation::{PageInvalidations, PageRequest};
use super::reply::Output;
use super::request::{NamedRequest, RequestPool};
use super::waiting_loops::WaitingLoops;
use crate::vfs::Vfs;
use crate::view::control;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::pool::ThreadPool;

/// Threads that wait for names and attributes, and threads that wait for contents.
const NAME_THREADS: usize = 16;
const CONTENT_THREADS: usize = 64;

/// Threads for the control directory, whose files never wait for a store.
const CONTROL_THREADS: usize = 2;

/// Maximum number of requests queued for a thread; the kernel sends at most 128 read-ahead requests, and one request
/// for each waiting thread of a program.
const MAX_WAITING: usize = 16 << 10;

/// The pools of one mount, and the deadlines of the requests in them.
pub(super) struct Dispatcher {
    responder: Arc<Responder>,
    names: ThreadPool,
    contents: ThreadPool,
    control: ThreadPool,
    waiting: WaitingLoops,
    deadlines: Deadlines,
    pages: Arc<PageInvalidations>,
}

/// A reply, and the resources held until it is sent.
struct HeldReply<R> {
    reply: R,
    /// The request's pages that the kernel may have locked, if it reads or writes contents.
    pages: Option<PageRequest>,
    access: Option<AccessLine>,
}

/// State shared with pool threads.
pub(super) struct Responder {
    pub(super) vfs: Arc<Vfs>,
    reporter: FailureReporter,
    failed_reads: Arc<FailedReads>,
}

impl Dispatcher {
    /// Builds the pools of one mount; a request that takes longer than `timeout` is refused with EIO.
    pub(super) fn new(
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        pages: Arc<PageInvalidations>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let reporter = FailureReporter::new(vfs.clone(), stats);
        let late = reporter.clone();
        let failed_reads = Arc::<FailedReads>::default();
        let failed = failed_reads.clone();
        let is_refused = move |request: &NamedRequest, error: &Error| {
            failed.note(request, error);
            late.report(request, error);
        };
        Ok(Dispatcher {
            deadlines: Deadlines::new(timeout, is_refused)?,
            responder: Arc::new(Responder {
                vfs,
                reporter,
                failed_reads,
            }),
            names: ThreadPool::new("zarrfs-names", NAME_THREADS, MAX_WAITING),
            contents: ThreadPool::new("zarrfs-reads", CONTENT_THREADS, MAX_WAITING),
            control: ThreadPool::new("zarrfs-control", CONTROL_THREADS, MAX_WAITING),
            waiting: WaitingLoops::new(0),
            pages,
        })
    }

    /// Allows at most `most` event loops at a time to run a pool's work.
    pub(super) fn with_waiting_loops(self, most: usize) -> Self {
        let waiting = WaitingLoops::new(most);
        Dispatcher { waiting, ..self }
    }

    /// Whether the mount is writable.
    pub(super) fn is_writable(&self) -> bool {
        self.responder.vfs.config().writable
    }

    /// Returns the state for sending replies.
    pub(super) fn responder(&self) -> &Responder {
        &self.responder
    }

    /// Runs `execute` in the request's pool, or in this thread if it may block, and replies with the result. If the
    /// request timed out before, `execute` does not run; if it times out during `execute`, it makes no change, and the
    /// result is undone.
    pub(super) fn enqueue<T: Output>(
        &self,
        request: NamedRequest,
        access: Option<AccessLine>,
        reply: T::Reply,
        execute: impl FnOnce(&Vfs, &RequestContext) -> Result<T> + Send + 'static,
    ) {
        let info = request.info;
        if let Some(errno) = self.responder.failed_reads.errno_of(&request) {
            return refuse_again(errno, access, reply);
        }
        let pages = info.locks_pages().then(|| self.pages.begin(info.ino));
        let pending = self.deadlines.begin(
            request.clone(),
            HeldReply {
                reply,
                pages,
                access,
            },
        );
        if let Some(_waiting) = self.waiting.begin() {
            return self.responder.run(request, &pending, execute);
        }
        let is_of_control = self.is_of_control(&request);
        let responder = self.responder.clone();
        let job = move || responder.run(request, &pending, execute);
        let pool = match info.pool {
            _ if is_of_control => &self.control,
            RequestPool::Names => &self.names,
            RequestPool::Contents => &self.contents,
        };
        if !pool.submit(job) {
            let name = info.name;
            log::error!("{name}: more than {MAX_WAITING} requests wait for the store; refused");
        }
    }

    fn is_of_control(&self, request: &NamedRequest) -> bool {
        let path = self.responder.vfs.last_path(request.info.ino);
        path.is_some_and(|path| control::is_own(&path, request.child.as_deref()))
    }

    /// Runs a request that has no reply or cannot fail.
    pub(super) fn run_unreplied(&self, name: &str, work: impl FnOnce(&Vfs)) {
        let done = catch_panic(|| {
            work(&self.responder.vfs);
            Ok(())
        });
        if let Err(error) = done {
            log::error!("{name}: {error}");
        }
    }
}

impl Responder {
    fn run<T: Output>(
        &self,
        request: NamedRequest,
        pending: &ReplyGuard<HeldReply<T::Reply>>,
        execute: impl FnOnce(&Vfs, &RequestContext) -> Result<T>,
    ) {
        if !pending.is_waited_for() {
            return;
        }
        let context = RequestContext::new(pending.limit());
        let result = catch_panic(|| execute(&self.vfs, &context));
        match (pending.take(), result) {
            (Some(held), result) => {
                self.send_reply(request, held.access, result, held.reply);
                drop(held.pages);
            }
            (None, Ok(output)) => output.undo(&UNLIMITED, &self.vfs),
            (None, Err(error)) => self.reporter.report_late(&request, &error),
        }
    }

    /// Sends a result or an error, and logs it.
    pub(super) fn send_reply<T: Output>(
        &self,
        request: NamedRequest,
        access: Option<AccessLine>,
        result: Result<T>,
        reply: T::Reply,
    ) {
        let errno = match &result {
            Ok(output) => output.errno(),
            Err(error) => Some(error.errno()),
        };
        match result {
            Ok(output) => {
                let sent = catch_panic(|| {
                    output.send(reply, &self.vfs);
                    Ok(())
                });
                if let Err(error) = sent {
                    log::error!("answer to {}: {error}", request.info.name);
                }
            }
            Err(error) => {
                self.failed_reads.note(&request, &error);
                self.reporter.report(&request, &error);
                reply.refuse(error.errno());
            }
        }
        if let Some(access) = access {
            access.answered(errno);
        }
    }
}

impl<R: ReplyError> ReplyError for HeldReply<R> {
    fn refuse(self, errno: i32) {
        self.reply.refuse(errno);
        drop(self.pages);
        if let Some(access) = self.access {
            access.answered(Some(errno));
        }
    }
}

/// Refuses a request that the kernel repeats after a failure.
fn refuse_again(errno: i32, access: Option<AccessLine>, reply: impl ReplyError) {
    reply.refuse(errno);
    if let Some(access) = access {
        access.answered(Some(errno));
    }
}

/// Runs `work`; a panic becomes an error, and the mount stays alive.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let why = "a fault in zarrfs itself: the request panicked";
        Err(Error::unavailable("", why))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::{Receiver, Sender};

    use super::super::failed_reads;
    use super::super::request::RequestInfo;
    use super::*;
    use crate::vfs::{Ino, VfsConfig};
    use crate::view::store::StoreView;
    use zarrfs_store::backend::memory::MemoryStore;

    const SHORT: Duration = Duration::from_millis(20);
    pub(in crate::fuse) const LONG: Duration = Duration::from_secs(3600);

    /// The result of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::fuse) enum Event {
        Sent,
        Refused(i32),
        Undone,
    }

    pub(in crate::fuse) struct EventReply(pub(in crate::fuse) Sender<Event>);

    impl ReplyError for EventReply {
        fn refuse(self, errno: i32) {
            self.0.send(Event::Refused(errno)).unwrap();
        }
    }

    pub(in crate::fuse) struct EventOutput(pub(in crate::fuse) Sender<Event>);

    impl Output for EventOutput {
        type Reply = EventReply;

        fn send(self, reply: EventReply, _vfs: &Vfs) {
            reply.0.send(Event::Sent).unwrap();
        }

        fn undo(self, _context: &RequestContext, _vfs: &Vfs) {
            self.0.send(Event::Undone).unwrap();
        }
    }

    pub(in crate::fuse) fn dispatcher(timeout: Duration) -> Dispatcher {
        let view = Arc::new(StoreView::new(Arc::new(MemoryStore::default())));
        let config = VfsConfig {
            uid: 0,
            gid: 0,
            umask: 0,
            writable: false,
        };
        let stats = Arc::new(Stats::default());
        let vfs = Arc::new(Vfs::new(view, config, stats.clone()));
        Dispatcher::new(vfs, stats, Arc::default(), timeout).unwrap()
    }

    pub(in crate::fuse) fn request() -> RequestInfo {
        RequestInfo::names("lookup", Ino::ROOT)
    }

    fn enqueue(
        dispatcher: &Dispatcher,
        execute: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Receiver<Event> {
        let (sender, events) = mpsc::channel();
        let output = EventOutput(sender.clone());
        dispatcher.enqueue(
            request().about(None),
            None,
            EventReply(sender),
            move |_, _| execute().map(|()| output),
        );
        events
    }

    #[test]
    fn a_result_is_sent_and_an_error_is_its_errno() {
        let dispatcher = dispatcher(LONG);
        let events: Vec<_> = enqueue(&dispatcher, || Ok(())).iter().collect();
        assert_eq!(events, [Event::Sent]);
        let missing = || Err(Error::not_found("a"));
        let events: Vec<_> = enqueue(&dispatcher, missing).iter().collect();
        assert_eq!(events, [Event::Refused(libc::ENOENT)]);
    }

    #[test]
    fn a_result_that_comes_too_late_is_undone() {
        let dispatcher = dispatcher(SHORT);
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
    fn what_was_refused_before_it_began_is_not_begun() {
        let dispatcher = dispatcher(SHORT);
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
        let errors = request().about(Some(control::CONTROL));
        dispatcher.enqueue(errors, None, EventReply(sender), move |_, _| Ok(output));
        let answered = events.recv_timeout(Duration::from_secs(60));
        assert_eq!(answered, Ok(Event::Sent));
        drop(release);
    }

    #[test]
    fn a_read_that_the_kernel_repeats_does_not_wait_again() {
        let dispatcher = dispatcher(Duration::from_millis(1200));
        let read = || {
            let request = RequestInfo::contents("read", Ino(7)).about(None);
            request.of_caller(std::process::id(), Some((0, 4096)))
        };
        let ask = |execute: Box<dyn FnOnce() + Send>| {
            let (sender, events) = mpsc::channel();
            let output = EventOutput(sender.clone());
            dispatcher.enqueue(read(), None, EventReply(sender), move |_, _| {
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
        std::thread::sleep(failed_reads::COUNTS);
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
