//! The limit of the size of files that this process inherits: `ulimit -f`, LimitFSIZE of systemd, batch systems.
//!
//! The kernel answers a change that makes a file longer than the limit by EFBIG, and sends SIGXFSZ, which ends a process
//! that has no handler for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Has the process outlive a change beyond the limit, which is an error of that change alone. A program that uses the
/// library calls it where it serves others.
pub fn outlive_limit() {
    // A handler, since programs that this one starts would inherit that a signal is ignored.
    if let Err(error) = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        log::debug!("a file beyond the limit of sizes will end the process: {error}");
    }
}

/// Returns the limit in bytes; `None` if there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}
