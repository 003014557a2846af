//! Decides which requests are retried, how often, and after which pause.

use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::errors;
use zarr_format::error::Result;

/// The first and the longest pause before a retry.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Counts the attempts of one request.
pub(crate) struct Attempts {
    end: Instant,
    retries: usize,
    max_retries: usize,
}

impl Attempts {
    /// Allows the first attempt and `max_retries` retries, within `time`.
    pub(crate) fn new(time: Duration, max_retries: usize) -> Attempts {
        let now = Instant::now();
        Attempts {
            end: now.checked_add(time).unwrap_or(now),
            retries: 0,
            max_retries,
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
        self.next_pause_at_least(Duration::ZERO)
    }

    /// Like `next_pause`, with a pause of at least `least`.
    pub(crate) fn next_pause_at_least(&mut self, least: Duration) -> Option<Duration> {
        let pause = pause(self.retries).max(least);
        if self.retries >= self.max_retries || pause >= self.time_left() {
            return None;
        }
        self.retries += 1;
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
            Err(error) if errors::is_busy(error.detail()) => match attempts.next_pause() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            },
            opened => return opened,
        }
    }
}

/// Returns the pause before another retry: doubled each time, with up to 50 % of jitter so that many clients do not
/// retry at the same moment.
fn pause(retries: usize) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << retries.min(10));
    let chance = RandomState::new().hash_one(retries) % 1000;
    doubled.min(MAX_PAUSE).mul_f64(0.5 + chance as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_with_their_number_or_their_time() {
        let mut attempts = Attempts::new(Duration::from_secs(3600), 2);
        assert!(attempts.next_pause().is_some() && attempts.next_pause().is_some());
        assert_eq!(attempts.next_pause(), None);
        assert_eq!(Attempts::new(Duration::ZERO, 2).next_pause(), None);
        let (long, short) = (Duration::from_secs(7), Duration::from_secs(5));
        assert_eq!(
            Attempts::new(long, 2).next_pause_at_least(short),
            Some(short)
        );
        assert_eq!(Attempts::new(short, 2).next_pause_at_least(long), None);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert!(pause(0) <= FIRST_PAUSE * 2 && pause(3) > FIRST_PAUSE * 3);
        assert!(pause(1000) <= MAX_PAUSE * 2);
    }
}
