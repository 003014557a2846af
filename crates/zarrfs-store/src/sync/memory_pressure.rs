//! Detects memory pressure on the machine or in the container.
//!
//! The kernel reports pressure stall information (`psi.rst` of its documentation) for the machine and for the cgroup,
//! which has pressure near `memory.high` or `memory.max`. Tasks of other cgroups near their limits add to the pressure
//! of the machine, so that it counts only if little memory is free. If the kernel offers no PSI, the free memory is
//! checked whenever a wait ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Some task stalled on memory for 10% of a window of two seconds, as in systemd. Unprivileged users may only use
/// windows that are multiples of two seconds.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// Pressure of the whole machine.
const OF_MACHINE: &str = "/proc/pressure/memory";

/// Memory is short if less than 1/N of it is free.
const FREE_SHARE: u64 = 10;

/// The poll events of a file that can report nothing any more.
const FAILS: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// Waits for memory pressure.
pub struct PressureWatch {
    /// PSI files that become ready under pressure.
    triggers: Vec<Trigger>,
    /// Whether little memory of the machine is free.
    is_short: fn() -> bool,
}

struct Trigger {
    file: File,
    is_of_machine: bool,
}

impl PressureWatch {
    /// Opens the PSI triggers.
    pub fn begin() -> PressureWatch {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // The root cgroup has no limit, and its pressure is the machine's.
        let cgroup = of_cgroup(&own).filter(|path| path.with_file_name("memory.max").exists());
        let cgroup = cgroup.and_then(|path| Trigger::open(&path, false));
        let machine = Trigger::open(Path::new(OF_MACHINE), true);
        PressureWatch {
            triggers: machine.into_iter().chain(cgroup).collect(),
            is_short: || fs::read_to_string("/proc/meminfo").is_ok_and(|text| has_little(&text)),
        }
    }

    /// Waits for memory pressure, at most for the given time; returns whether there is pressure.
    pub fn wait(&mut self, at_most: Duration) -> bool {
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
            let found: Vec<PollFlags> = ready.iter().map(PollFd::revents).collect();
            // The file of a removed cgroup fails on each poll.
            let mut fails = found.iter().map(|flags| flags.intersects(FAILS));
            let mut told = found.iter().map(|flags| flags.contains(PollFlags::PRI));
            let mut is_told = false;
            self.triggers.retain(|trigger| {
                let (fails, told) = (fails.next() == Some(true), told.next() == Some(true));
                is_told |= told && !fails && (!trigger.is_of_machine || (self.is_short)());
                !fails
            });
            if is_told {
                return true;
            }
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
        (self.is_short)()
    }
}

impl Trigger {
    /// Opens a PSI file and sets its trigger. Returns `None` if that fails.
    fn open(path: &Path, is_of_machine: bool) -> Option<Trigger> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let asked = opened.and_then(|mut file| {
            file.write_all(TRIGGER)?;
            Ok(Trigger {
                file,
                is_of_machine,
            })
        });
        asked
            .inspect_err(|error| log::debug!("{}: {error}", path.display()))
            .ok()
    }
}

/// Returns the PSI file of the process's cgroup, from the text of /proc/self/cgroup; `None` with cgroups of version 1.
fn of_cgroup(own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(path);
    Some(folder.join("memory.pressure"))
}

/// Whether little memory is free, from the text of /proc/meminfo.
fn has_little(text: &str) -> bool {
    let bytes = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (all, free) = (bytes("MemTotal:"), bytes("MemAvailable:"));
    all.zip(free)
        .is_some_and(|(all, free)| free < all / FREE_SHARE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_machine_with_little_free_memory_is_short_of_it() {
        let text = |free| format!("MemTotal: 1600 kB\nMemFree: 1 kB\nMemAvailable: {free} kB\n");
        assert!(has_little(&text(159)) && !has_little(&text(160)));
        assert!(!has_little("") && !has_little("MemTotal: 7"));
    }

    #[test]
    fn the_file_of_the_cgroup_is_found() {
        let found = of_cgroup("9:memory:/x\n0::/system.slice/zarrfs.service\n");
        let expected = "/sys/fs/cgroup/system.slice/zarrfs.service/memory.pressure";
        assert_eq!(found, Some(PathBuf::from(expected)));
        let of_container = of_cgroup("0::/\n");
        assert_eq!(
            of_container,
            Some(PathBuf::from("/sys/fs/cgroup/memory.pressure"))
        );
        assert_eq!(of_cgroup("9:memory:/x\n"), None);
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
        // A file that fails is removed, and the wait falls back to the free memory.
        drop(writer);
        assert!(watch.wait(wait) && start.elapsed() >= 2 * wait);
        assert!(watch.triggers.is_empty());
        watch.is_short = || false;
        assert!(!watch.wait(Duration::ZERO));
    }
}
