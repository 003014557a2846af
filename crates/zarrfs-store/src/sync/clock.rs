//! The clock for TTLs; tests can stop and advance it.
//!
//! Code with a TTL reads such a clock, so that a test can choose how much time has passed. Waits and their timeouts use
//! the machine's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A clock for TTLs. Clones of a stopped clock show the same time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Machine,
    /// A clock that only `advance` moves, for tests.
    Stopped(Arc<StoppedTime>),
}

/// The time of a stopped clock: when it was stopped, and the time added since.
#[derive(Debug)]
pub struct StoppedTime {
    instant: Instant,
    date: SystemTime,
    /// Nanoseconds by which the clock was advanced.
    passed: AtomicU64,
}

impl Clock {
    /// Returns a clock that is stopped at the present time.
    pub fn stopped() -> Clock {
        Clock::Stopped(Arc::new(StoppedTime {
            instant: Instant::now(),
            date: SystemTime::now(),
            passed: AtomicU64::new(0),
        }))
    }

    /// Advances a stopped clock. Has no effect on the machine's clock.
    pub fn advance(&self, by: Duration) {
        if let Clock::Stopped(time) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            time.passed.fetch_add(by, Ordering::SeqCst);
        }
    }

    /// Returns the monotonic time of the clock.
    pub fn now(&self) -> Instant {
        match self {
            Clock::Machine => Instant::now(),
            Clock::Stopped(time) => time.instant + time.passed(),
        }
    }

    /// Returns the date and time of the clock.
    pub fn date(&self) -> SystemTime {
        match self {
            Clock::Machine => SystemTime::now(),
            Clock::Stopped(time) => time.date + time.passed(),
        }
    }
}

impl StoppedTime {
    fn passed(&self) -> Duration {
        Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }
}
