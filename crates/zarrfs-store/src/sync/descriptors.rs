//! The file descriptors of this process: how many are kept open, for programs and in caches.
//!
//! Each file that is kept open has a permit. Some descriptors are never given out: with them requests open what they
//! need for a moment, so that a mount with as many open files as it may have still answers other programs. Caches give
//! theirs back when there are no permits left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use zarr_format::error::{Error, Kind, Result};

/// A cache of open files, which can close some of them.
pub trait ClosesFiles: Send + Sync {
    /// Closes those that were not used for the longest time, at least half of all.
    fn close_some(&self);
}

/// Descriptors in permits.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// The caches that can close files.
static CACHES: Mutex<Vec<Weak<dyn ClosesFiles>>> = Mutex::new(Vec::new());

/// The least number of descriptors that no permit is for; a quarter of all if that is more, up to `MAX_RESERVE`.
const MIN_RESERVE: u64 = 64;
const MAX_RESERVE: u64 = 1024;

/// Raises the soft limit of descriptors to the hard one.
pub fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("the limit of descriptors stays as it is: {error}");
    }
}

/// Returns for how many descriptors there are permits. The limit may be another one each time.
fn permits() -> u64 {
    permits_of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Returns for how many of so many descriptors there are permits: for half of them at least.
fn permits_of(limit: u64) -> u64 {
    let reserve = (limit / 4).clamp(MIN_RESERVE, MAX_RESERVE);
    limit - reserve.min(limit / 2)
}

/// Adds a cache that closes files when there are no permits left.
pub fn add_cache(cache: Weak<dyn ClosesFiles>) {
    let mut caches = CACHES.lock();
    caches.retain(|known| known.strong_count() > 0);
    caches.push(cache);
}

/// Has all caches close files.
pub fn close_some() {
    let caches: Vec<Arc<dyn ClosesFiles>> =
        CACHES.lock().iter().filter_map(Weak::upgrade).collect();
    caches.iter().for_each(|cache| cache.close_some());
}

/// The right to keep a file open, until it is dropped.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    /// Takes a permit; `TooManyFiles` if none is left though all caches have closed files.
    pub fn take() -> Result<Permit> {
        if let Some(permit) = Permit::take_one() {
            return Ok(permit);
        }
        close_some();
        Permit::take_one().ok_or_else(|| {
            let kept = KEPT.load(Ordering::Relaxed);
            let why = format!("{kept} files are open, no more can be");
            Error::new(Kind::TooManyFiles, "", why)
        })
    }

    fn take_one() -> Option<Permit> {
        if KEPT.fetch_add(1, Ordering::Relaxed) < permits() {
            return Some(Permit(()));
        }
        KEPT.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_leaves_permits() {
        let permits = [0, 1, 64, 128, 256, 1024, 1 << 20].map(permits_of);
        assert_eq!(permits, [0, 1, 32, 64, 192, 768, (1 << 20) - 1024]);
    }
}
