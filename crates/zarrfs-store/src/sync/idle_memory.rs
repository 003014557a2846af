//! Returns idle memory to the system, and more under memory pressure.
//!
//! One thread serves all caches of a memory budget. It wakes once a minute and when the kernel reports memory pressure:
//! pressure stall information (`psi.rst` of its documentation) of the machine and of the cgroup, which has pressure
//! near `memory.high` or `memory.max`. The pressure of the machine also includes tasks of other cgroups near their
//! limits, so it counts only if little memory is free. If the kernel offers no PSI, the free memory is checked whenever
//! a wait ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sync::aged_map::Minute;
use crate::sync::allocator;
use crate::sync::budget::{MemoryBudget, Priority};
use zarr_format::buffer;
use zarr_format::error::{Error, Result};

/// Cached values are evicted after this many minutes without a use.
const IDLE_MINUTES: u32 = 10;

/// Starts the thread that evicts the idle values of a memory budget, until the budget is dropped. Fails if the thread
/// cannot be started.
pub fn start(memory: &Arc<MemoryBudget>) -> Result<()> {
    let memory = Arc::downgrade(memory);
    // The variable gives tests a shorter minute, in milliseconds.
    let minute = std::env::var("ZARRFS_TEST_MINUTE").ok();
    let minute = minute.and_then(|number| number.parse().ok());
    let minute = Duration::from_millis(minute.unwrap_or(60_000));
    let run = move || {
        let mut pressure = PressureWatch::open();
        watch(&memory, minute, |at_most| pressure.wait(at_most));
    };
    let thread = thread::Builder::new().name("zarrfs-memory".to_string());
    let started = thread.spawn(run);
    started.map(drop).map_err(|error| Error::os("", error))
}

/// Evicts idle values of the budget, and more if memory is short, until the budget is dropped. `wait` sleeps for the
/// given time or until memory is short, and returns whether it is.
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
        let has_evicted = if is_short {
            memory.evict_unused(Priority::OpenArrays, now)
        } else {
            memory.evict_unused(Priority::Metadata, now.before(IDLE_MINUTES))
        };
        if has_evicted || is_short {
            buffer::empty_pool();
            allocator::trim();
            allocator::release_program();
        }
    }
}

/// Waits until the kernel reports memory pressure.
struct PressureWatch {
    /// Files of the kernel's pressure stall information (PSI), which `poll` reports under memory pressure.
    triggers: Vec<Trigger>,
    /// Whether little memory of the machine is free.
    is_short: fn() -> bool,
}

struct Trigger {
    file: File,
    is_of_machine: bool,
}

impl PressureWatch {
    fn open() -> PressureWatch {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // The root cgroup has no limit of its own, and its pressure is that of the machine.
        let cgroup = cgroup_file(&own).filter(|path| path.with_file_name("memory.max").exists());
        let cgroup = cgroup.and_then(|path| Trigger::open(&path, false));
        let machine = Trigger::open(Path::new("/proc/pressure/memory"), true);
        PressureWatch {
            triggers: machine.into_iter().chain(cgroup).collect(),
            is_short: || {
                fs::read_to_string("/proc/meminfo").is_ok_and(|text| is_memory_short(&text))
            },
        }
    }

    /// Waits for memory pressure, at most for the given time. Returns whether there is pressure.
    fn wait(&mut self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        while !self.triggers.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let files = self.triggers.iter();
            let mut ready: Vec<_> = files
                .map(|trigger| PollFd::new(&trigger.file, PollFlags::PRI))
                .collect();
            let timeout = Timespec::try_from(left).ok();
            if poll(&mut ready, timeout.as_ref()).is_err() {
                continue;
            }
            let events: Vec<PollFlags> = ready.iter().map(PollFd::revents).collect();
            let mut events = events.into_iter();
            // `poll` always reports an error for the PSI file of a removed cgroup, so the file is dropped.
            let failure = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
            let mut has_pressure = false;
            self.triggers.retain(|trigger| {
                let events = events.next().unwrap_or(PollFlags::empty());
                let fails = events.intersects(failure);
                has_pressure |= events.contains(PollFlags::PRI)
                    && !fails
                    && (!trigger.is_of_machine || (self.is_short)());
                !fails
            });
            if has_pressure {
                return true;
            }
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        (self.is_short)()
    }
}

impl Trigger {
    /// Opens a file of pressure stall information and sets the pressure at which `poll` reports it. Returns `None` if
    /// that fails.
    fn open(path: &Path, is_of_machine: bool) -> Option<Trigger> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let set = opened.and_then(|mut file| {
            // Pressure means that some task waited for memory for 10% of two seconds, as in systemd. Unprivileged users
            // may only set windows that are multiples of two seconds.
            file.write_all(b"some 200000 2000000\0")?;
            Ok(Trigger {
                file,
                is_of_machine,
            })
        });
        set.inspect_err(|error| log::debug!("{}: {error}", path.display()))
            .ok()
    }
}

/// Returns the PSI file of the process's cgroup, from the text of /proc/self/cgroup. Returns `None` with version 1 of
/// cgroups, which has no such file.
fn cgroup_file(own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(path);
    Some(folder.join("memory.pressure"))
}

/// Whether less than a tenth of the machine's memory is free, from the text of /proc/meminfo.
fn is_memory_short(text: &str) -> bool {
    let bytes = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (all, free) = (bytes("MemTotal:"), bytes("MemAvailable:"));
    all.zip(free).is_some_and(|(all, free)| free < all / 10)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

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

    /// Invariant (caches): Memory that was unused for ten minutes is released, and at once under memory pressure. Open
    /// arrays stay until then, since the kernel's pages depend on them.
    #[test]
    fn values_unused_for_ten_minutes_are_evicted() {
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

    /// Invariant of `values_unused_for_ten_minutes_are_evicted`.
    #[test]
    fn values_used_this_minute_stay_under_memory_pressure() {
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

    #[test]
    fn memory_is_short_below_a_tenth_of_the_total() {
        let text = |free| format!("MemTotal: 1600 kB\nMemFree: 1 kB\nMemAvailable: {free} kB\n");
        assert!(is_memory_short(&text(159)) && !is_memory_short(&text(160)));
        assert!(!is_memory_short("") && !is_memory_short("MemTotal: 7"));
    }

    #[test]
    fn the_pressure_file_of_the_cgroup_is_found() {
        let file = cgroup_file("9:memory:/x\n0::/system.slice/zarrfs.service\n");
        let expected = "/sys/fs/cgroup/system.slice/zarrfs.service/memory.pressure";
        assert_eq!(file, Some(PathBuf::from(expected)));
        let of_container = cgroup_file("0::/\n");
        assert_eq!(
            of_container,
            Some(PathBuf::from("/sys/fs/cgroup/memory.pressure"))
        );
        assert_eq!(cgroup_file("9:memory:/x\n"), None);
    }

    #[test]
    fn a_wait_without_pressure_ends_in_time() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut watch = PressureWatch {
            triggers: vec![Trigger {
                file: File::from(OwnedFd::from(reader)),
                is_of_machine: false,
            }],
            is_short: || true,
        };
        let wait = Duration::from_millis(50);
        let start = Instant::now();
        assert!(!watch.wait(wait) && start.elapsed() >= wait);
        // A PSI file that fails is no longer polled; the wait then checks the free memory instead.
        drop(writer);
        assert!(watch.wait(wait) && start.elapsed() >= 2 * wait);
        assert!(watch.triggers.is_empty());
        watch.is_short = || false;
        assert!(!watch.wait(Duration::ZERO));
    }
}
