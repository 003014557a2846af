//! The asynchronous runtime of the process, and blocking waits for its tasks.
//!
//! No wait exceeds its time limit. Each result comes with the status of the last HTTP response, which object_store's
//! clients do not return. If the kernel's request was already answered and no bytes arrive, a wait ends early, so that
//! its connection and its permit become free. While bytes do arrive, the wait goes on, since other requests may have
//! joined it, and the next request for the same bytes finds them. A wait for a change goes on to the end.
//!
//! A thread that waits long is not counted in its pool (`sync/pool.rs`).

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::request_context::{RequestContext, abandoned};
use crate::sync::pool::StalledJob;
use zarr_format::error::{Error, Result};

/// How often a wait checks whether its request was already answered. If it was, and no bytes have arrived since the
/// last check, the wait ends.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// This many bytes of a body count as one arrival. If fewer bytes arrive between two checks, the body is stalled. With
/// the default `--concurrency`, that happens to all bodies on a link of less than 64 KiB per second.
const ARRIVAL_STEP: usize = 1 << 10;

/// What is known of the last HTTP response of an asynchronous task.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastResponse {
    pub(crate) status: Option<u16>,
    /// The region of the bucket, which S3 names in the response's headers.
    pub(crate) region: Option<String>,
    /// The host of the last request, if the request failed without a response.
    pub(crate) host: Option<String>,
}

tokio::task_local! {
    static LAST_RESPONSE: RefCell<LastResponse>;
    static ARRIVALS: Arc<Arrivals>;
}

/// When HTTP responses and bytes of their bodies arrived for a task that a thread waits for.
#[derive(Default)]
struct Arrivals(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    first: Option<Instant>,
    /// When a response's head, or enough bytes of a body to count as an arrival (`ARRIVAL_STEP`), last arrived.
    last: Option<Instant>,
    bytes: usize,
}

impl Arrivals {
    fn last(&self) -> Option<Instant> {
        self.0.lock().last
    }
}

pub(crate) fn record_arrival() {
    record_bytes(ARRIVAL_STEP);
}

pub(crate) fn record_bytes(bytes: usize) {
    let _ = ARRIVALS.try_with(|arrivals| {
        let mut arrived = arrivals.0.lock();
        arrived.bytes = arrived.bytes.saturating_add(bytes);
        if arrived.bytes >= ARRIVAL_STEP {
            arrived.bytes = 0;
            let now = Instant::now();
            arrived.first.get_or_insert(now);
            arrived.last = Some(now);
        }
    });
}

/// Returns when the first response arrived for the current task, or `None` before that.
pub(crate) fn first_arrival() -> Option<Instant> {
    let first = ARRIVALS.try_with(|arrivals| arrivals.0.lock().first);
    first.ok().flatten()
}

/// Returns when bytes last arrived for the current task. Returns `None` before the first arrival, and for a change,
/// which is never abandoned.
pub(crate) fn last_arrival() -> Option<Instant> {
    let last = ARRIVALS.try_with(|arrivals| arrivals.last());
    last.ok().flatten()
}

pub(crate) fn record_response(last: LastResponse) {
    // Responses to requests that no thread waits for, such as the renewal of credentials, are not recorded.
    let _ = LAST_RESPONSE.try_with(|place| place.replace(last));
}

pub(crate) fn last_status() -> Option<u16> {
    let status = LAST_RESPONSE.try_with(|place| place.borrow().status);
    status.ok().flatten()
}

/// Runs one of several concurrent futures that a thread waits for. Also returns the last HTTP response to this future's
/// own requests.
pub(crate) async fn with_last_response<T>(work: impl Future<Output = T>) -> (T, LastResponse) {
    let recorded = async {
        let done = work.await;
        (done, LAST_RESPONSE.with(RefCell::take))
    };
    LAST_RESPONSE.scope(RefCell::default(), recorded).await
}

/// Runs a future for at most `limit` and blocks until it ends. Returns its result, or `None` on a timeout, and the last
/// response. The error is `Interrupted` if the request was already answered, or `WouldWait` if it may not wait. Must
/// not be called from asynchronous code.
pub(crate) fn wait<T>(
    context: &RequestContext,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<(Option<T>, LastResponse)> {
    context.check_may_wait()?;
    let arrivals = Arc::<Arrivals>::default();
    let work = ARRIVALS.scope(arrivals.clone(), with_limit(limit, work));
    runtime()?.block_on(while_useful(context, &arrivals, work))
}

/// Runs a future that changes the store, and blocks until it ends, even if the kernel's request was already answered:
/// the outcome of a change must be known.
pub(crate) fn wait_for_change<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<(Option<T>, LastResponse)> {
    Ok(runtime()?.block_on(with_limit(limit, work)))
}

/// Runs a future with many steps on the runtime's threads and blocks until it ends, so that the calling thread is woken
/// once and not for each packet of a response.
pub(crate) fn spawn_and_wait<T: Send + 'static>(
    context: &RequestContext,
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(Option<T>, LastResponse)> {
    context.check_may_wait()?;
    let runtime = runtime()?;
    let arrivals = Arc::<Arrivals>::default();
    let work = ARRIVALS.scope(arrivals.clone(), with_limit(limit, work));
    let mut task = AbortedTask(runtime.spawn(work));
    let done = runtime.block_on(while_useful(context, &arrivals, &mut task.0))?;
    done.map_err(|error| Error::unavailable("", format!("a request failed: {error}")))
}

/// A task that is aborted when its handle is dropped.
struct AbortedTask<T>(JoinHandle<T>);

impl<T> Drop for AbortedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a future until it ends, or until the kernel's request was already answered and no bytes arrive.
async fn while_useful<T>(
    context: &RequestContext,
    arrivals: &Arrivals,
    work: impl Future<Output = T>,
) -> Result<T> {
    let mut work = pin!(work);
    let mut previous = None;
    // The thread does not count in its pool even if bytes arrive: a server that keeps closing its connections early
    // sends some bytes too.
    let mut stalled = None;
    loop {
        let last = arrivals.last();
        if !context.is_waited_for() && last == previous {
            return Err(abandoned());
        }
        previous = last;
        if let Ok(done) = tokio::time::timeout(CHECK_INTERVAL, work.as_mut()).await {
            return Ok(done);
        }
        stalled = stalled.or_else(StalledJob::begin);
    }
}

async fn with_limit<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> (Option<T>, LastResponse) {
    let timed = async {
        let done = tokio::time::timeout(limit, work).await.ok();
        (done, LAST_RESPONSE.with(RefCell::take))
    };
    LAST_RESPONSE.scope(RefCell::default(), timed).await
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("network");
        builder.enable_all().build()
    });
    runtime.as_ref().map_err(|error| {
        Error::unavailable("", format!("cannot start threads for the network: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::request_context::{RequestLimit, UNLIMITED};
    use crate::sync::pool::ThreadPool;
    use zarr_format::error::Kind;

    #[test]
    fn a_wait_ends_at_its_time_limit() {
        let (limit, pending) = (Duration::from_millis(10), std::future::pending::<()>);
        let (done, _) = wait(&UNLIMITED, limit, pending()).unwrap();
        assert!(done.is_none());
        let (done, _) = spawn_and_wait(&UNLIMITED, limit, pending()).unwrap();
        assert!(done.is_none());
    }

    /// The thread must not block its pool: a server that closes its connections early may send bytes again and again.
    #[test]
    fn a_wait_with_arriving_bytes_does_not_block_the_pool() {
        let pool = ThreadPool::new("waits", 1, 10);
        let (waiting, ended) = mpsc::channel();
        let other = waiting.clone();
        pool.submit(move || {
            let arriving = async {
                for _ in 0..24 {
                    tokio::time::sleep(CHECK_INTERVAL / 4).await;
                    record_arrival();
                }
            };
            let _ = wait(&UNLIMITED, Duration::from_secs(60), arriving);
            waiting.send("waiting").unwrap();
        });
        pool.submit(move || other.send("other").unwrap());
        assert_eq!(ended.recv(), Ok("other"));
        assert_eq!(ended.recv(), Ok("waiting"));
    }

    /// A kernel request that counts as answered once the flag is set.
    struct Answered(AtomicBool);

    impl RequestLimit for Answered {
        fn suspend(&self) -> bool {
            self.is_waited_for()
        }

        fn resume(&self) {}

        fn is_waited_for(&self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }
    }

    /// Runs `work` twice, on the waiting thread and on the runtime's threads, in requests that are answered shortly
    /// after. Returns for each run whether it went on to its end.
    fn ends_after_answer<W>(work: impl Fn() -> W) -> [bool; 2]
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let long = Duration::from_secs(3600);
        type Wait<'a> = &'a dyn Fn(&RequestContext) -> Result<(Option<()>, LastResponse)>;
        let waits: [Wait<'_>; 2] = [&|context| wait(context, long, work()), &|context| {
            spawn_and_wait(context, long, work())
        }];
        waits.map(|waiting| {
            let request = Arc::new(Answered(AtomicBool::new(false)));
            let answered = request.clone();
            thread::spawn(move || {
                thread::sleep(CHECK_INTERVAL / 5);
                answered.0.store(true, Ordering::Relaxed);
            });
            match waiting(&RequestContext::new(request)) {
                Ok((done, _)) => done.is_some(),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Interrupted);
                    false
                }
            }
        })
    }

    #[test]
    fn a_wait_ends_after_its_request_was_answered() {
        assert_eq!(ends_after_answer(std::future::pending), [false, false]);
    }

    #[test]
    fn a_wait_continues_while_enough_bytes_arrive() {
        let arriving = || async {
            for _ in 0..15 {
                tokio::time::sleep(CHECK_INTERVAL / 5).await;
                record_bytes(ARRIVAL_STEP);
            }
        };
        assert_eq!(ends_after_answer(arriving), [true, true]);
        let trickling = || async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL / 5).await;
                record_bytes(1);
            }
        };
        assert_eq!(ends_after_answer(trickling), [false, false]);
    }

    #[test]
    fn an_answered_request_starts_no_read_but_completes_changes() {
        let context = RequestContext::new(Arc::new(Answered(AtomicBool::new(true))));
        let slow = async { tokio::time::sleep(CHECK_INTERVAL * 2).await };
        let (changed, _) = wait_for_change(Duration::from_secs(60), slow).unwrap();
        assert!(changed.is_some());
        let read = wait(&context, Duration::from_secs(60), async {
            panic!("is begun")
        });
        let read: Result<(Option<()>, LastResponse)> = read;
        assert!(read.is_err_and(|error| error.kind() == Kind::Interrupted));
    }

    #[test]
    fn a_panic_of_spawned_work_is_an_error() {
        let done = spawn_and_wait(&UNLIMITED, Duration::from_secs(5), async {
            panic!("on purpose")
        });
        assert!(
            done.map(|(done, _): (Option<()>, LastResponse)| done)
                .is_err()
        );
    }

    #[test]
    fn the_last_response_is_returned() {
        let work = || async {
            record_response(LastResponse {
                status: Some(503),
                ..LastResponse::default()
            });
        };
        for (done, last) in [
            wait(&UNLIMITED, Duration::from_secs(5), work()).unwrap(),
            spawn_and_wait(&UNLIMITED, Duration::from_secs(5), work()).unwrap(),
        ] {
            assert_eq!((done, last.status), (Some(()), Some(503)));
        }
    }
}
