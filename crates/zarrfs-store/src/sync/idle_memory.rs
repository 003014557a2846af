//! Returns idle memory to the system, and more under memory pressure.
//!
//! One thread serves all caches of a memory budget. It wakes once a minute and when the kernel reports memory pressure.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::aged_map::Minute;
use crate::sync::allocator;
use crate::sync::budget::{MemoryBudget, Priority};
use crate::sync::memory_pressure::PressureWatch;
use zarr_format::buffer;
use zarr_format::error::{Error, Result};

/// Values are evicted after this many minutes without a use.
const IDLE_MINUTES: u32 = 10;

/// The interval of the minute counter.
const MINUTE: Duration = Duration::from_secs(60);

/// Environment variable of tests: the length of a minute in milliseconds.
const TEST_MINUTE: &str = "ZARRFS_TEST_MINUTE";

/// Starts the thread for a budget; it ends with the budget. An error if the thread cannot be started.
pub fn give_back(memory: &Arc<MemoryBudget>) -> Result<()> {
    let memory = Arc::downgrade(memory);
    let given = std::env::var(TEST_MINUTE).ok();
    let given = given.and_then(|number| number.parse().ok());
    let minute = given.map_or(MINUTE, Duration::from_millis);
    let run = move || {
        let mut pressure = PressureWatch::begin();
        watch(&memory, minute, |at_most| pressure.wait(at_most));
    };
    let thread = thread::Builder::new().name("zarrfs-memory".to_string());
    let started = thread.spawn(run);
    started.map(drop).map_err(|error| Error::os("", error))
}

/// Returns memory until the budget is dropped; `wait` sleeps at most for the given time and returns whether memory is
/// short.
fn watch(memory: &Weak<MemoryBudget>, minute: Duration, mut wait: impl FnMut(Duration) -> bool) {
    let mut end = Instant::now() + minute;
    loop {
        let is_short = wait(end.saturating_duration_since(Instant::now()));
        let Some(memory) = memory.upgrade() else {
            return;
        };
        let now = if Instant::now() < end {
            Minute::now()
        } else {
            end = Instant::now() + minute;
            Minute::begin()
        };
        let has_given = if is_short {
            memory.give_back(Priority::OpenArrays, now)
        } else {
            memory.give_back(Priority::Metadata, now.before(IDLE_MINUTES))
        };
        if has_given || is_short {
            buffer::empty_pool();
            allocator::trim();
            allocator::release_program();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_context::UNLIMITED;
    use crate::stats::Stats;
    use crate::sync::aged_map::ONE_CLOCK;
    use crate::sync::budget::Reservation;
    use crate::sync::cache::Cache;

    type Held = Cache<u32, Arc<Reservation>>;

    fn cache() -> (Arc<MemoryBudget>, Arc<Held>) {
        let memory = MemoryBudget::new(100, Arc::new(Stats::default()));
        let cache: Arc<Held> = Cache::new(memory.clone(), Priority::Used, None);
        let deadline = Instant::now() + Duration::from_secs(60);
        for key in [1, 2] {
            let load = || cache.reserve(10, deadline).map(Arc::new);
            cache.load(&UNLIMITED, &key, deadline, load).unwrap();
        }
        (memory, cache)
    }

    #[test]
    fn what_nobody_used_for_ten_minutes_is_given_back() {
        let _clock = ONE_CLOCK.lock();
        let (memory, cache) = cache();
        let (weak, mut held, mut minutes) = (Arc::downgrade(&memory), Some((memory, cache)), 0);
        watch(&weak, Duration::ZERO, |_| {
            if let Some((memory, cache)) = &held {
                let both = cache.get(&1).is_some() && cache.has(&2);
                assert_eq!(both, minutes <= IDLE_MINUTES, "after {minutes} minutes");
                assert_eq!(memory.held(), if both { 20 } else { 10 });
            }
            minutes += 1;
            if minutes > IDLE_MINUTES + 2 {
                held = None;
            }
            false
        });
        assert_eq!(minutes, IDLE_MINUTES + 3);
    }

    #[test]
    fn what_was_used_in_this_minute_stays_when_memory_is_short() {
        let _clock = ONE_CLOCK.lock();
        let (memory, cache) = cache();
        let (weak, mut held, mut waits) = (Arc::downgrade(&memory), Some((memory, cache)), 0);
        watch(&weak, Duration::from_secs(3600), |_| {
            waits += 1;
            let Some((memory, cache)) = &held else {
                return false;
            };
            if waits == 2 {
                assert_eq!(memory.held(), 20, "both were used in this minute");
                Minute::begin();
                assert!(cache.get(&1).is_some());
            }
            if waits == 3 {
                assert!(cache.get(&1).is_some() && !cache.has(&2));
                assert_eq!(memory.held(), 10);
                held = None;
            }
            true
        });
        assert_eq!(waits, 3);
    }
}
