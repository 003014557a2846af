//! The limits of the process on open files and on file sizes.
//!
//! Each file that stays open, for a program or in a cache, needs a permit. Some descriptors are reserved for files that
//! requests open briefly, so that a mount with the maximum number of open files still serves other programs. Caches
//! close files when the permits run out.
//!
//! A write beyond the limit of sizes (`ulimit -f`, LimitFSIZE of systemd, batch systems) fails with EFBIG. The kernel
//! also sends SIGXFSZ, which kills a process without a handler.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

use zarr_format::error::{Error, Kind, Result};

/// A cache of open files, which closes some of them if the process runs out of file descriptors.
pub trait ClosesFiles: Send + Sync {
    /// Closes the least recently used files of the cache, at least half of all.
    fn close_some(&self);
}

/// Number of permits to keep a file open that are in use.
static IN_USE: AtomicU64 = AtomicU64::new(0);

/// The caches that close files when the permits run out.
static CACHES: Mutex<Vec<Weak<dyn ClosesFiles>>> = Mutex::new(Vec::new());

/// Raises the soft limit of descriptors to the hard limit.
pub fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("cannot raise the limit of open files: {error}");
    }
}

/// Returns the number of files that may be kept open. It follows the process's limit, which may change at any time.
fn permits() -> u64 {
    permits_of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Returns how many files may be kept open with a limit of `limit` descriptors: at least half of them.
fn permits_of(limit: u64) -> u64 {
    let reserve = (limit / 4).clamp(64, 1024);
    limit - reserve.min(limit / 2)
}

/// Registers a cache that closes files when the permits run out.
pub fn add_cache(cache: Weak<dyn ClosesFiles>) {
    let mut caches = CACHES.lock();
    caches.retain(|known| known.strong_count() > 0);
    caches.push(cache);
}

/// Makes all registered caches close some of their files.
pub fn close_some() {
    let caches: Vec<Arc<dyn ClosesFiles>> =
        CACHES.lock().iter().filter_map(Weak::upgrade).collect();
    caches.iter().for_each(|cache| cache.close_some());
}

/// The permit to keep one file open, which is returned when it is dropped.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    /// Takes a permit to keep a file open. The error is `TooManyFiles` if none is left even after all caches closed
    /// files.
    pub fn take() -> Result<Permit> {
        if let Some(permit) = Permit::take_one() {
            return Ok(permit);
        }
        close_some();
        Permit::take_one().ok_or_else(|| {
            let count = IN_USE.load(Ordering::Relaxed);
            let why = format!("too many open files ({count}): raise the limit with 'ulimit -n'");
            Error::new(Kind::TooManyFiles, "", why)
        })
    }

    fn take_one() -> Option<Permit> {
        if IN_USE.fetch_add(1, Ordering::Relaxed) < permits() {
            return Some(Permit(()));
        }
        IN_USE.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Handles SIGXFSZ, so that a write beyond the file size limit fails with EFBIG instead of killing the process. A
/// program that serves others with this library should call it.
pub fn survive_size_limit() {
    // Child processes would inherit SIG_IGN, but not a handler.
    if let Err(error) = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        log::debug!("cannot ignore SIGXFSZ: {error}");
    }
}

/// Returns the process's limit of file sizes in bytes, or `None` if there is no limit.
pub fn size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_at_least_half_of_the_file_limit() {
        let permits = [0, 1, 64, 128, 256, 1024, 1 << 20].map(permits_of);
        assert_eq!(permits, [0, 1, 32, 64, 192, 768, (1 << 20) - 1024]);
    }
}
