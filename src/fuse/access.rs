//! Logs a line for each request, under the target `zarrfs::access`.
//!
//! It is off by default; then a request costs the comparison of two levels.

use std::time::Instant;

use log::Level;

/// The log target. `RUST_LOG=zarrfs::access=trace` shows only these lines.
const TARGET: &str = "zarrfs::access";

/// The log line of a pending request.
pub(super) struct AccessLine {
    started: Instant,
    text: String,
}

impl AccessLine {
    /// Begins a line with the text of `describe`; `None` if the target is off.
    pub(super) fn begin(describe: impl FnOnce() -> String) -> Option<AccessLine> {
        log::log_enabled!(target: TARGET, Level::Trace).then(|| AccessLine {
            started: Instant::now(),
            text: describe(),
        })
    }

    /// Writes the line of an answered request, with the errno if it failed.
    pub(super) fn answered(self, errno: Option<i32>) {
        let AccessLine { started, text } = self;
        let micros = started.elapsed().as_micros();
        let errno = errno.unwrap_or(0);
        log::trace!(target: TARGET, "{text} microseconds={micros} errno={errno}");
    }
}
