//! How far a command is: a bar on stderr, if that is a terminal and the command takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// How long a command may take without a bar.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// What follows the bar where keys are counted, and where bytes are.
pub(super) const KEYS: &str = "{wide_bar} {pos}/{len} keys {eta}";
pub(super) const BYTES: &str = "{wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";

/// A bar that appears once the command takes long.
pub(super) struct Progress {
    started: Instant,
    template: &'static str,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    pub(super) fn new(template: &'static str) -> Progress {
        Progress {
            started: Instant::now(),
            template,
            bar: Mutex::new(None),
        }
    }

    /// Shows that `done` of `total` are done.
    pub(super) fn show(&self, done: u64, total: u64) {
        let mut bar = self.bar.lock();
        if bar.is_none() && self.started.elapsed() > SHOW_AFTER {
            *bar = Some(new_bar(total, self.template));
        }
        if let Some(bar) = &*bar {
            bar.set_position(done);
        }
    }
}

/// Makes a bar; indicatif draws none where stderr is no terminal.
fn new_bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

impl Drop for Progress {
    fn drop(&mut self) {
        let bar = self.bar.get_mut();
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
    }
}
