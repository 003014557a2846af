//! Limits for requests to one server: concurrency, memory, time and retries.

use std::fmt::Display;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::body_room::BodyRoom;
use super::fault;
use super::runtime::{first_arrival, last_arrival};
use zarr_format::error::{Error, Result};
use zarr_format::model::document;

/// Time limit for a whole body, as a multiple of the time limit for a response.
const BODY_TIME_FACTOR: u32 = 20;

/// Minimum speed of the link over which bodies are sent, in bytes per second.
const MIN_SENT_PER_SECOND: u64 = 32 << 10;

/// The first and the longest pause before a retry.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Minimum time for which a stalled request keeps its permit.
const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// The time for which it keeps the permit, as a multiple of the server's usual time to first byte.
const PATIENCE_FACTOR: u32 = 2;

/// One response counts 1/N of the moving average.
const WEIGHT: u32 = 8;

/// The purpose of a request. Each has its own permits, so that stalled data requests do not delay metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Lookups, listings and metadata documents.
    Metadata,
    /// All other reads, and changes.
    Data,
}

impl Purpose {
    /// Returns the purpose of reading an object with this name.
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
    /// Time limit for a response, or for a piece of its body.
    pub(crate) time: Duration,
    /// Memory for the bodies that are sent.
    pub(crate) bodies: BodyRoom,
    metadata: Semaphore,
    data: Semaphore,
    /// The moving average of the server's time to first byte.
    usual: Mutex<Duration>,
}

impl RequestLimits {
    /// Limits each response to `time`, and the concurrent requests for each purpose to `concurrency`, not counting
    /// stalled ones.
    pub(crate) fn new(time: Duration, concurrency: usize) -> RequestLimits {
        RequestLimits {
            time,
            bodies: BodyRoom::default(),
            metadata: Semaphore::new(concurrency.max(1)),
            data: Semaphore::new(concurrency.max(1)),
            usual: Mutex::default(),
        }
    }

    /// Returns the time for which a stalled request keeps its permit. It grows with the usual latency; if all responses
    /// take long, as from tape, there would otherwise be ever more requests.
    fn patience(&self) -> Duration {
        let usual = *self.usual.lock() * PATIENCE_FACTOR;
        usual.max(MIN_PATIENCE).min(self.time)
    }

    fn note_answer(&self, took: Duration) {
        let mut usual = self.usual.lock();
        *usual = (*usual * (WEIGHT - 1) + took) / WEIGHT;
    }

    /// Runs a request with its retries and its body once it has a permit. Returns `None` if no bytes arrive within the
    /// time limit of a response. The permit is released once no bytes have arrived for longer than usual, so that
    /// stalled requests do not hold up others.
    pub(crate) async fn permitted<T>(
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
                    self.note_answer(first.saturating_duration_since(start));
                }
                return Some(done);
            }
            let has_arrived = last_arrival().is_some_and(|arrival| arrival > last);
            // The usual latency may have grown since then.
            let is_usual = permit.is_some() && self.patience() > patience;
            if !has_arrived && !is_usual && permit.take().is_none() {
                return None;
            }
        }
    }

    /// Runs a change once it has a permit, which it keeps to the end.
    pub(crate) async fn permitted_change<T>(&self, change: impl Future<Output = T>) -> T {
        let _permit = self.data.acquire().await;
        change.await
    }

    /// Waits for the response to a request that sends a body, or returns `None` on a timeout. All bodies in flight
    /// share the link. Each request may therefore take the time for all of them over a slow link, plus the time limit
    /// of a response.
    pub(crate) async fn in_time_to_send<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let mut request = pin!(request);
        let start = Instant::now();
        let mut held = self.bodies.held();
        loop {
            let sending = Duration::from_secs(held / MIN_SENT_PER_SECOND);
            let time = (self.time + sending).min(self.time_of_body());
            if let Ok(done) = timeout_at(start + time, request.as_mut()).await {
                return Some(done);
            }
            // More bodies may be in flight by now.
            let now = self.bodies.held();
            if now <= held || time == self.time_of_body() {
                return None;
            }
            held = now;
        }
    }

    /// Returns the time limit for a request with its whole body. It is generous, since each piece has its own limit.
    pub(crate) fn time_of_body(&self) -> Duration {
        self.time.saturating_mul(BODY_TIME_FACTOR)
    }

    /// Returns the error for a request that timed out.
    pub(crate) fn late(&self, subject: impl Display) -> Error {
        fault::late(subject, self.time.as_secs_f32())
    }
}

/// Counts the attempts of one request.
pub(crate) struct Attempts {
    end: Instant,
    made: usize,
    repeats: usize,
}

impl Attempts {
    /// Allows the first attempt and `repeats` retries, within `time`.
    pub(crate) fn new(time: Duration, repeats: usize) -> Attempts {
        let now = Instant::now();
        Attempts {
            end: now.checked_add(time).unwrap_or(now),
            made: 0,
            repeats,
        }
    }

    /// Sets the end of the attempts to `time` from now.
    pub(crate) fn extend(&mut self, time: Duration) {
        let now = Instant::now();
        self.end = now.checked_add(time).unwrap_or(now);
    }

    /// Returns the time that is left.
    pub(crate) fn time_left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Counts a failed attempt. Returns the pause before the next one, or `None` if there may be none.
    pub(crate) fn next_pause(&mut self) -> Option<Duration> {
        self.next_pause_of(Duration::ZERO)
    }

    /// Like `next_pause`, with a pause of at least `least`.
    pub(crate) fn next_pause_of(&mut self, least: Duration) -> Option<Duration> {
        let pause = pause(self.made).max(least);
        if self.made >= self.repeats || pause >= self.time_left() {
            return None;
        }
        self.made += 1;
        Some(pause)
    }
}

/// Whether a response with this status is retried. 501 (not implemented) is permanent.
pub(crate) fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Opens a store, with retries for at most `time` while the server says that it is busy.
pub(crate) fn once_ready<T>(time: Duration, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = Attempts::new(time, usize::MAX);
    loop {
        match open() {
            Err(error) if fault::is_busy(error.detail()) => match attempts.next_pause() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            },
            opened => return opened,
        }
    }
}

/// Returns the pause after `made` retries: doubled each time, with up to 50 % of jitter so that many clients do not
/// retry at the same moment.
fn pause(made: usize) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << made.min(10));
    let chance = RandomState::new().hash_one(made) % 1000;
    doubled.min(MAX_PAUSE).mul_f64(0.5 + chance as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::backend::remote::runtime::{note_answer, wait};
    use crate::request_context::UNLIMITED;

    #[test]
    fn attempts_end_with_their_number_or_their_time() {
        let mut attempts = Attempts::new(Duration::from_secs(3600), 2);
        assert!(attempts.next_pause().is_some() && attempts.next_pause().is_some());
        assert_eq!(attempts.next_pause(), None);
        assert_eq!(Attempts::new(Duration::ZERO, 2).next_pause(), None);
        let (long, short) = (Duration::from_secs(7), Duration::from_secs(5));
        assert_eq!(Attempts::new(long, 2).next_pause_of(short), Some(short));
        assert_eq!(Attempts::new(short, 2).next_pause_of(long), None);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert!(pause(0) <= FIRST_PAUSE * 2 && pause(3) > FIRST_PAUSE * 3);
        assert!(pause(1000) <= MAX_PAUSE * 2);
    }

    /// Whether a request that takes this many milliseconds is answered in time.
    fn is_in_time(limits: &RequestLimits, milliseconds: u64) -> bool {
        let request = async {
            let answer = tokio::time::sleep(Duration::from_millis(milliseconds));
            limits.in_time_to_send(answer).await
        };
        let (done, _) = wait(&UNLIMITED, Duration::from_secs(60), request).unwrap();
        done.flatten().is_some()
    }

    /// Runs a request for a purpose. Returns whether it finished.
    fn ends(limits: &RequestLimits, purpose: Purpose, request: impl Future<Output = ()>) -> bool {
        let request = limits.permitted(purpose, request);
        let (done, _) = wait(&UNLIMITED, Duration::from_secs(60), request).unwrap();
        done.flatten().is_some()
    }

    #[test]
    fn a_request_ends_for_which_nothing_arrives() {
        let limits = RequestLimits::new(Duration::from_millis(200), 4);
        let arriving = async {
            for _ in 0..10 {
                tokio::time::sleep(limits.time / 4).await;
                note_answer();
            }
        };
        assert!(ends(&limits, Purpose::Data, arriving));
        assert!(!ends(&limits, Purpose::Data, std::future::pending()));
    }

    #[test]
    fn stalled_requests_hold_up_no_others() {
        let limits = RequestLimits::new(MIN_PATIENCE * 4, 1);
        let (hold, held) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let stalled = scope.spawn(|| {
                ends(&limits, Purpose::Data, async {
                    hold.send(()).unwrap();
                    std::future::pending().await
                })
            });
            held.recv().unwrap();
            let start = Instant::now();
            assert!(ends(&limits, Purpose::Metadata, async {}));
            assert!(start.elapsed() < MIN_PATIENCE, "metadata waited for data");
            assert!(ends(&limits, Purpose::Data, async {}));
            assert!(!stalled.is_finished(), "it has its permit to its end");
            assert!(!stalled.join().unwrap());
        });
    }

    #[test]
    fn requests_of_a_slow_server_count_for_longer() {
        let limits = RequestLimits::new(Duration::from_secs(60), 1);
        assert_eq!(limits.patience(), MIN_PATIENCE);
        let slow = MIN_PATIENCE * 3 / 2;
        for _ in 0..2 * WEIGHT {
            limits.note_answer(slow);
        }
        let answered = AtomicBool::new(false);
        thread::scope(|scope| {
            let (hold, held) = std::sync::mpsc::channel();
            let (answered, limits) = (&answered, &limits);
            scope.spawn(move || {
                ends(limits, Purpose::Data, async {
                    hold.send(()).unwrap();
                    tokio::time::sleep(slow).await;
                    answered.store(true, Ordering::Relaxed);
                    note_answer();
                })
            });
            held.recv().unwrap();
            let second = async { assert!(answered.load(Ordering::Relaxed), "two at a time") };
            assert!(ends(limits, Purpose::Data, second));
        });
        for _ in 0..4 * WEIGHT {
            limits.note_answer(Duration::ZERO);
        }
        assert_eq!(limits.patience(), MIN_PATIENCE, "it is quick again");
    }

    #[test]
    fn documents_are_metadata() {
        assert_eq!(Purpose::of(b"zarr.json"), Purpose::Metadata);
        assert_eq!(Purpose::of(b".zarray"), Purpose::Metadata);
        assert_eq!(Purpose::of(b"0.1"), Purpose::Data);
    }

    #[test]
    fn a_body_has_the_time_that_all_bodies_under_way_take() {
        let limits = RequestLimits::new(Duration::from_millis(50), 4);
        assert!(!is_in_time(&limits, 60_000), "nothing is sent");
        let room = limits.bodies.take(MIN_SENT_PER_SECOND);
        assert!(is_in_time(&limits, 400));
        assert!(!is_in_time(&limits, 60_000), "the server is silent");
        drop(room);
    }

    #[test]
    fn bodies_that_begin_later_take_their_time_too() {
        let limits = RequestLimits::new(Duration::from_millis(300), 4);
        thread::scope(|scope| {
            let first = scope.spawn(|| is_in_time(&limits, 800));
            let _room = limits.bodies.take(MIN_SENT_PER_SECOND);
            assert!(first.join().unwrap());
        });
    }
}
