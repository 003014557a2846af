//! Tells when the machine, or the container that the process is in, is short of memory.
//!
//! The kernel says so by itself (pressure stall information, `psi.rst` of its documentation), of all of the machine and of
//! the cgroup, which is short when it comes near `memory.high` or `memory.max`. Tasks of other cgroups that come near theirs
//! are pressure on the machine as well, so it counts only where little memory is free. Where the kernel cannot be asked, the
//! free memory is looked at each time that a wait ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Some task has waited for memory for a tenth of two seconds, as systemd takes it. Users other than root may ask for
/// multiples of two seconds alone.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// The pressure on all of the machine.
const OF_MACHINE: &str = "/proc/pressure/memory";

/// The part of the memory that is free on a machine which is not short of it: one in so many bytes.
const FREE_SHARE: u64 = 10;

/// What a file tells that can tell nothing any more.
const FAILS: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// Waits for the machine to be short of memory.
pub struct PressureWatch {
    /// Files that are ready when it is.
    triggers: Vec<Trigger>,
    /// Whether little memory of the machine is free.
    is_short: fn() -> bool,
}

struct Trigger {
    file: File,
    is_of_machine: bool,
}

impl PressureWatch {
    /// Asks the kernel to tell of pressure.
    pub fn begin() -> PressureWatch {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // The root has no limit, and its pressure is that of the machine.
        let cgroup = of_cgroup(&own).filter(|path| path.with_file_name("memory.max").exists());
        let cgroup = cgroup.and_then(|path| Trigger::open(&path, false));
        let machine = Trigger::open(Path::new(OF_MACHINE), true);
        PressureWatch {
            triggers: machine.into_iter().chain(cgroup).collect(),
            is_short: || fs::read_to_string("/proc/meminfo").is_ok_and(|text| has_little(&text)),
        }
    }

    /// Waits until the machine is short of memory, at most for a time; returns whether it is.
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
            // A file whose cgroup is gone fails each time.
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
    /// Opens a file that is ready when memory is short.
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

/// Returns the file of the cgroup that the process is in, by the kernel's list of its cgroups; nothing with cgroups of
/// version 1.
fn of_cgroup(own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(path);
    Some(folder.join("memory.pressure"))
}

/// Whether little memory is free, by the text of /proc/meminfo.
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
        // A file that fails is left out, and the free memory is looked at then.
        drop(writer);
        assert!(watch.wait(wait) && start.elapsed() >= 2 * wait);
        assert!(watch.triggers.is_empty());
        watch.is_short = || false;
        assert!(!watch.wait(Duration::ZERO));
    }
}
