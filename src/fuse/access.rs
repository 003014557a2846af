//! Logs a line for each request of a program, under the target `zarrfs::access`.
//!
//! Off, as it is unless asked for, a request costs the comparison of two levels.

use std::time::Instant;

use log::Level;

/// The target of the lines. `RUST_LOG=zarrfs::access=trace` shows them alone.
const TARGET: &str = "zarrfs::access";

/// The line of a request that is not answered yet.
pub(super) struct AccessLine {
    started: Instant,
    text: String,
}

impl AccessLine {
    /// Begins a line with the text of `describe`; `None` if such lines are off.
    pub(super) fn begin(describe: impl FnOnce() -> String) -> Option<AccessLine> {
        log::log_enabled!(target: TARGET, Level::Trace).then(|| AccessLine {
            started: Instant::now(),
            text: describe(),
        })
    }

    /// Writes the line of a request that was answered, with the errno if it failed.
    pub(super) fn answered(self, errno: Option<i32>) {
        let AccessLine { started, text } = self;
        let micros = started.elapsed().as_micros();
        let errno = errno.unwrap_or(0);
        log::trace!(target: TARGET, "{text} microseconds={micros} errno={errno}");
    }
}
