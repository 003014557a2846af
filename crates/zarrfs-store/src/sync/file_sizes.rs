//! The file size limit of the process: `ulimit -f`, LimitFSIZE of systemd, batch systems.
//!
//! A write beyond the limit fails with EFBIG. The kernel also sends SIGXFSZ, which kills a process without a handler.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Handles SIGXFSZ, so that a write beyond the limit fails alone instead of killing the process. A program that serves
/// others with this library should call it.
pub fn outlive_limit() {
    // A handler instead of SIG_IGN, which child processes would inherit.
    if let Err(error) = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        log::debug!("a file beyond the limit of sizes will end the process: {error}");
    }
}

/// Returns the limit in bytes, or `None` if there is no limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}
