//! The progress of a commit: a bar on stderr, if that is a terminal and the commit takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// How long a commit may take without a bar.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// A bar that appears once the commit takes long.
pub(super) struct CommitProgress {
    started: Instant,
    bar: Mutex<Option<ProgressBar>>,
}

impl CommitProgress {
    pub(super) fn new() -> CommitProgress {
        CommitProgress {
            started: Instant::now(),
            bar: Mutex::new(None),
        }
    }

    /// Shows that `done` of `total` keys are done.
    pub(super) fn show(&self, done: usize, total: usize) {
        let mut bar = self.bar.lock();
        if bar.is_none() && self.started.elapsed() > SHOW_AFTER {
            *bar = Some(new_bar(total));
        }
        if let Some(bar) = &*bar {
            bar.set_position(done as u64);
        }
    }
}

/// Makes a bar; indicatif draws none where stderr is no terminal.
fn new_bar(total: usize) -> ProgressBar {
    let bar = ProgressBar::new(total as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} keys {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

impl Drop for CommitProgress {
    fn drop(&mut self) {
        let bar = self.bar.get_mut();
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
    }
}
