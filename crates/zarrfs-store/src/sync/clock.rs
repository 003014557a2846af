//! The time by which answers grow old: that of the machine, or one that stands still until it is set forward.
//!
//! What counts for a while takes the time from such a clock, so that a test can set how much time has passed. Waiting,
//! and the limits of waiting, go by the machine's own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Tells the time; clones tell the same time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The time of the machine.
    #[default]
    Machine,
    /// A time that only `advance` changes.
    Stopped(Arc<StoppedTime>),
}

/// When a clock was stopped, and how far it was set forward since.
#[derive(Debug)]
pub struct StoppedTime {
    instant: Instant,
    date: SystemTime,
    /// In nanoseconds.
    passed: AtomicU64,
}

impl Clock {
    /// Returns a clock that stands still at the present time.
    pub fn stopped() -> Clock {
        Clock::Stopped(Arc::new(StoppedTime {
            instant: Instant::now(),
            date: SystemTime::now(),
            passed: AtomicU64::new(0),
        }))
    }

    /// Sets a clock forward that stands still; that of the machine goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Clock::Stopped(time) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            time.passed.fetch_add(by, Ordering::SeqCst);
        }
    }

    /// Returns the time now.
    pub fn now(&self) -> Instant {
        match self {
            Clock::Machine => Instant::now(),
            Clock::Stopped(time) => time.instant + time.passed(),
        }
    }

    /// Returns date and time now.
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
