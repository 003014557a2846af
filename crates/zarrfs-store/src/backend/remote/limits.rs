//! Limits the number, memory and time of the requests to one server.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::errors;
use super::runtime::{first_arrival, last_arrival};
use zarr_format::error::Error;
use zarr_format::model::document;

/// The upload speed, in bytes per second, below which a put may time out.
const MIN_SENT_PER_SECOND: u64 = 32 << 10;

/// Minimum time without bytes after which a request releases its permit, so that others can start.
const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// A new response has the weight 1/8 in the moving average of latencies.
const LATENCY_WEIGHT: u32 = 8;

/// What a request is for. Each purpose has its own permits, so that stalled data requests do not delay metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Lookups, listings and reads of Zarr metadata documents.
    Metadata,
    /// All other reads, puts and removals.
    Data,
}

impl Purpose {
    /// Returns the purpose of a read of the object with this name.
    pub(crate) fn of(name: &[u8]) -> Purpose {
        if document::is_document(name) {
            Purpose::Metadata
        } else {
            Purpose::Data
        }
    }
}

/// The limits of all requests to one store.
pub(crate) struct RequestLimits {
    /// Time limit for a response, or for the next bytes of its body.
    pub(crate) time: Duration,
    /// Memory for the bodies of puts.
    pub(crate) uploads: UploadBudget,
    metadata: Semaphore,
    data: Semaphore,
    /// The moving average of the server's time to first byte.
    usual_latency: Mutex<Duration>,
}

impl RequestLimits {
    /// Limits each response to `time`, and the concurrent requests of each purpose to `concurrency`. Stalled requests
    /// do not count.
    pub(crate) fn new(time: Duration, concurrency: usize) -> RequestLimits {
        RequestLimits {
            time,
            uploads: UploadBudget::default(),
            metadata: Semaphore::new(concurrency.max(1)),
            data: Semaphore::new(concurrency.max(1)),
            usual_latency: Mutex::default(),
        }
    }

    /// Returns how long a request may receive no bytes before it releases its permit: twice the usual latency. After a
    /// fixed time, a server that always responds slowly, as from tape, would get more and more requests at once.
    fn patience(&self) -> Duration {
        let twice = *self.usual_latency.lock() * 2;
        twice.max(MIN_PATIENCE).min(self.time)
    }

    fn record_latency(&self, took: Duration) {
        let mut usual = self.usual_latency.lock();
        *usual = (*usual * (LATENCY_WEIGHT - 1) + took) / LATENCY_WEIGHT;
    }

    /// Runs a request, with its retries and its body, once it has a permit. Returns `None` if no bytes arrive within
    /// the time limit. The permit is released if no bytes arrive for longer than usual, so that stalled requests do not
    /// delay others.
    pub(crate) async fn with_permit<T>(
        &self,
        purpose: Purpose,
        request: impl Future<Output = T>,
    ) -> Option<T> {
        let permits = match purpose {
            Purpose::Metadata => &self.metadata,
            Purpose::Data => &self.data,
        };
        let mut permit = permits.acquire().await.ok();
        let start = Instant::now();
        let mut request = pin!(request);
        loop {
            let last = last_arrival().map_or(start, |last| last.max(start));
            let patience = match permit {
                Some(_) => self.patience(),
                None => self.time,
            };
            let done = timeout_at(last + patience, request.as_mut()).await;
            if let Ok(done) = done {
                if let Some(first) = first_arrival() {
                    self.record_latency(first.saturating_duration_since(start));
                }
                return Some(done);
            }
            let has_arrived = last_arrival().is_some_and(|arrival| arrival > last);
            // The server's usual latency may have grown during the wait, so waiting longer may be normal.
            let is_usual = permit.is_some() && self.patience() > patience;
            if !has_arrived && !is_usual && permit.take().is_none() {
                return None;
            }
        }
    }

    /// Runs a put or removal once it has a permit, which is not released if the request stalls.
    pub(crate) async fn change_with_permit<T>(&self, change: impl Future<Output = T>) -> T {
        let _permit = self.data.acquire().await;
        change.await
    }

    /// Waits for the response to a put, or returns `None` on a timeout. All bodies in flight share the link, so each
    /// put may take as long as all of them take over a slow link, plus the time limit of a response.
    pub(crate) async fn within_send_time<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let mut request = pin!(request);
        let start = Instant::now();
        let mut in_flight = self.uploads.in_flight();
        loop {
            let sending = Duration::from_secs(in_flight / MIN_SENT_PER_SECOND);
            let time = (self.time + sending).min(self.body_time_limit());
            if let Ok(done) = timeout_at(start + time, request.as_mut()).await {
                return Some(done);
            }
            // Other puts may have started meanwhile, which slows this put down.
            let now = self.uploads.in_flight();
            if now <= in_flight || time == self.body_time_limit() {
                return None;
            }
            in_flight = now;
        }
    }

    /// Returns the time limit for a request with its whole body. It is long, since the wait for each piece of the body
    /// has its own limit.
    pub(crate) fn body_time_limit(&self) -> Duration {
        self.time.saturating_mul(20)
    }

    pub(crate) fn timeout_error(&self, subject: impl Display) -> Error {
        errors::timed_out(subject, self.time.as_secs_f32())
    }
}

/// Maximum total size, in bytes, of the bodies of concurrent puts. A larger body is sent alone.
const UPLOAD_BUDGET: u64 = 128 << 20;

/// The memory for the bodies of the puts of one store.
///
/// A put reserves its memory once, before its first request, so a put that has a reservation never waits for one that
/// has none. Later puts wait in order.
pub(crate) struct UploadBudget {
    left: Mutex<u64>,
    freed: Condvar,
    /// Held by the first put that waits for memory, so that small bodies cannot starve a large one.
    turn: Mutex<()>,
}

impl Default for UploadBudget {
    fn default() -> UploadBudget {
        UploadBudget {
            left: Mutex::new(UPLOAD_BUDGET),
            freed: Condvar::new(),
            turn: Mutex::new(()),
        }
    }
}

impl UploadBudget {
    /// Returns the total size of the bodies of all current puts, in bytes.
    fn in_flight(&self) -> u64 {
        UPLOAD_BUDGET - *self.left.lock()
    }

    /// Reserves memory for a put's body, and waits until it is free.
    pub(crate) fn reserve(&self, bytes: u64) -> UploadReservation<'_> {
        let bytes = bytes.min(UPLOAD_BUDGET);
        let _turn = self.turn.lock();
        let mut left = self.left.lock();
        while *left < bytes {
            self.freed.wait(&mut left);
        }
        *left -= bytes;
        UploadReservation {
            budget: self,
            bytes,
        }
    }
}

/// Memory for a put's body, released on drop.
pub(crate) struct UploadReservation<'a> {
    budget: &'a UploadBudget,
    bytes: u64,
}

impl Drop for UploadReservation<'_> {
    fn drop(&mut self) {
        *self.budget.left.lock() += self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use crate::backend::remote::runtime::{record_arrival, wait};
    use crate::request_context::UNLIMITED;

    /// Whether a put that takes this many milliseconds finishes within the time limit.
    fn is_in_time(limits: &RequestLimits, milliseconds: u64) -> bool {
        let request = async {
            let answer = tokio::time::sleep(Duration::from_millis(milliseconds));
            limits.within_send_time(answer).await
        };
        let (done, _) = wait(&UNLIMITED, Duration::from_secs(60), request).unwrap();
        done.flatten().is_some()
    }

    fn finishes(
        limits: &RequestLimits,
        purpose: Purpose,
        request: impl Future<Output = ()>,
    ) -> bool {
        let request = limits.with_permit(purpose, request);
        let (done, _) = wait(&UNLIMITED, Duration::from_secs(60), request).unwrap();
        done.flatten().is_some()
    }

    #[test]
    fn a_request_without_progress_times_out() {
        let limits = RequestLimits::new(Duration::from_millis(200), 4);
        let arriving = async {
            for _ in 0..10 {
                tokio::time::sleep(limits.time / 4).await;
                record_arrival();
            }
        };
        assert!(finishes(&limits, Purpose::Data, arriving));
        assert!(!finishes(&limits, Purpose::Data, std::future::pending()));
    }

    #[test]
    fn a_stalled_request_does_not_delay_others() {
        let limits = RequestLimits::new(MIN_PATIENCE * 4, 1);
        let (hold, held) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let stalled = scope.spawn(|| {
                finishes(&limits, Purpose::Data, async {
                    hold.send(()).unwrap();
                    std::future::pending().await
                })
            });
            held.recv().unwrap();
            let start = Instant::now();
            assert!(finishes(&limits, Purpose::Metadata, async {}));
            assert!(start.elapsed() < MIN_PATIENCE, "metadata waited for data");
            assert!(finishes(&limits, Purpose::Data, async {}));
            assert!(!stalled.is_finished(), "it has its permit to its end");
            assert!(!stalled.join().unwrap());
        });
    }

    #[test]
    fn requests_of_a_slow_server_keep_their_permits_longer() {
        let limits = RequestLimits::new(Duration::from_secs(60), 1);
        assert_eq!(limits.patience(), MIN_PATIENCE);
        let slow = MIN_PATIENCE * 3 / 2;
        for _ in 0..2 * LATENCY_WEIGHT {
            limits.record_latency(slow);
        }
        let answered = AtomicBool::new(false);
        thread::scope(|scope| {
            let (hold, held) = std::sync::mpsc::channel();
            let (answered, limits) = (&answered, &limits);
            scope.spawn(move || {
                finishes(limits, Purpose::Data, async {
                    hold.send(()).unwrap();
                    tokio::time::sleep(slow).await;
                    answered.store(true, Ordering::Relaxed);
                    record_arrival();
                })
            });
            held.recv().unwrap();
            let second = async { assert!(answered.load(Ordering::Relaxed), "two at a time") };
            assert!(finishes(limits, Purpose::Data, second));
        });
        for _ in 0..4 * LATENCY_WEIGHT {
            limits.record_latency(Duration::ZERO);
        }
        assert_eq!(limits.patience(), MIN_PATIENCE, "it is quick again");
    }

    #[test]
    fn the_purpose_of_a_request_follows_from_its_key() {
        assert_eq!(Purpose::of(b"zarr.json"), Purpose::Metadata);
        assert_eq!(Purpose::of(b".zarray"), Purpose::Metadata);
        assert_eq!(Purpose::of(b"0.1"), Purpose::Data);
    }

    #[test]
    fn uploads_in_flight_extend_the_send_time() {
        let limits = RequestLimits::new(Duration::from_millis(50), 4);
        assert!(!is_in_time(&limits, 60_000), "nothing is sent");
        let room = limits.uploads.reserve(MIN_SENT_PER_SECOND);
        assert!(is_in_time(&limits, 400));
        assert!(!is_in_time(&limits, 60_000), "the server is silent");
        drop(room);
    }

    #[test]
    fn an_upload_that_begins_later_extends_the_send_time() {
        let limits = RequestLimits::new(Duration::from_millis(300), 4);
        thread::scope(|scope| {
            let first = scope.spawn(|| is_in_time(&limits, 800));
            let _room = limits.uploads.reserve(MIN_SENT_PER_SECOND);
            assert!(first.join().unwrap());
        });
    }

    #[test]
    fn uploads_in_flight_stay_within_the_budget() {
        let (budget, in_flight, most) = (
            UploadBudget::default(),
            AtomicU64::new(0),
            AtomicU64::new(0),
        );
        let put = |bytes: u64| {
            for _ in 0..200 {
                let taken = budget.reserve(bytes);
                let now = in_flight.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes;
                most.fetch_max(now, Ordering::SeqCst);
                thread::yield_now();
                in_flight.fetch_sub(taken.bytes, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for bytes in [1, 50 << 20, 50 << 20, 60 << 20, UPLOAD_BUDGET, u64::MAX] {
                scope.spawn(move || put(bytes));
            }
        });
        assert!(most.into_inner() <= UPLOAD_BUDGET);
        assert_eq!(budget.left.into_inner(), UPLOAD_BUDGET);
    }
}
