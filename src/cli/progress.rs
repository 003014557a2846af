//! Shows progress on stderr, if it is a terminal and the command is slow.
//!
//! A thread draws the line after one second, so that it is updated even while no work finishes. The remaining time is
//! estimated from the pace, in which recent work has more weight. indicatif's own estimate would begin when the bar
//! appears, and count all earlier work as done in that moment.

use std::io::IsTerminal;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::{Condvar, Mutex};

use crate::cli::format;

/// How long a command runs before its progress is shown.
pub(super) const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Interval between updates of the progress line.
pub(super) const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The things that progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Keys,
    Bytes,
    /// Chunks of an unknown total number.
    Chunks,
}

impl Counted {
    fn template(self) -> &'static str {
        match self {
            Counted::Keys => "{wide_bar} {pos}/{len} keys {msg}",
            Counted::Bytes => "{wide_bar} {binary_bytes}/{binary_total_bytes} {msg}",
            Counted::Chunks => "{spinner} {msg}",
        }
    }
}

/// A progress line on stderr for slow commands, removed on drop.
pub(super) struct Progress {
    shared: Arc<Shared>,
    drawing: Option<JoinHandle<()>>,
}

struct Shared {
    started: Instant,
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Default)]
struct State {
    /// What is counted, and the pace; `None` as long as nothing is counted.
    count: Option<(Counted, Pace)>,
    has_ended: bool,
}

impl Progress {
    /// Starts a progress line, which says `what` until a number is reported.
    pub(super) fn new(what: &'static str) -> Progress {
        let shared = Arc::new(Shared {
            started: Instant::now(),
            state: Mutex::default(),
            ends: Condvar::new(),
        });
        let drawn = shared.clone();
        let draw = move || drawn.draw(what);
        let name = || thread::Builder::new().name("zarrfs-progress".to_string());
        // If no thread can be started, the command runs without a progress line.
        let drawing = io::stderr().is_terminal().then(|| name().spawn(draw).ok());
        Progress {
            shared,
            drawing: drawing.flatten(),
        }
    }

    /// Reports the number of finished keys; the caller reports 0 when the work begins.
    pub(super) fn keys(&self, done: u64, total: u64) {
        self.shared.record(Counted::Keys, done, total);
    }

    /// Reports the number of finished bytes; the caller reports 0 when the work begins.
    pub(super) fn bytes(&self, done: u64, total: u64) {
        self.shared.record(Counted::Bytes, done, total);
    }

    /// Reports the number of chunks counted so far; their total number is unknown.
    pub(super) fn chunks(&self, count: u64) {
        self.shared.record(Counted::Chunks, count, 0);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state.lock().has_ended = true;
        self.shared.ends.notify_all();
        if let Some(drawing) = self.drawing.take() {
            // The result is ignored: a panic of the drawing thread must not fail the command.
            let _ = drawing.join();
        }
    }
}

impl Shared {
    fn record(&self, counted: Counted, done: u64, total: u64) {
        let now = self.started.elapsed().as_secs_f64();
        let mut state = self.state.lock();
        let (_, pace) = state.count.get_or_insert((counted, Pace::beginning(now)));
        pace.total = total;
        pace.record(done, now);
    }

    /// Draws the progress line until the work has ended, then lets indicatif remove it.
    fn draw(&self, what: &str) {
        let mut state = self.state.lock();
        self.ends.wait_for(&mut state, SHOW_AFTER);
        let bar = ProgressBar::new_spinner();
        let mut drawn = None;
        while !state.has_ended {
            let now = self.started.elapsed().as_secs_f64();
            let counted = state.count.as_ref().map(|(counted, _)| *counted);
            if drawn != Some(counted) {
                let template = counted.map_or("{spinner} {msg}", Counted::template);
                let style = ProgressStyle::with_template(template);
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                drawn = Some(counted);
            }
            match &state.count {
                None => bar.set_message(format!("{what}, {}", seconds_text(now))),
                Some((Counted::Chunks, pace)) => {
                    bar.set_message(format!("{what}, {}", format::count(pace.done, "chunk")));
                }
                Some((_, pace)) => {
                    bar.set_length(pace.total);
                    bar.set_position(pace.done);
                    let left = pace.left(now).map(seconds_text);
                    bar.set_message(left.map_or(String::new(), |left| format!("{left} left")));
                }
            }
            bar.tick();
            self.ends.wait_for(&mut state, SHOW_EVERY);
        }
        bar.finish_and_clear();
    }
}

/// The pace of the work. Times are seconds since an arbitrary moment.
#[derive(Clone, Debug)]
struct Pace {
    began: f64,
    done: u64,
    total: u64,
    /// Time of the last progress.
    last: f64,
    /// Amount of finished work (`recent_work`) and its duration (`recent_time`); older work has less weight.
    recent_work: f64,
    recent_time: f64,
    /// The longest time without progress: chunks may finish in bursts, with pauses in between.
    longest_pause: f64,
}

impl Pace {
    fn beginning(now: f64) -> Pace {
        Pace {
            began: now,
            done: 0,
            total: 0,
            last: now,
            recent_work: 0.0,
            recent_time: 0.0,
            longest_pause: 0.0,
        }
    }

    /// Records that `done` units of work are finished at time `now`.
    fn record(&mut self, done: u64, now: f64) {
        let work = done.saturating_sub(self.done);
        if work == 0 {
            return;
        }
        let pause = (now - self.last).max(0.0);
        // The weight of earlier work is halved every eight seconds.
        let weight = 0.5_f64.powf(pause / 8.0);
        self.recent_work = self.recent_work * weight + format::float(work);
        self.recent_time = self.recent_time * weight + pause;
        self.longest_pause = self.longest_pause.max(pause);
        (self.done, self.last) = (done, now);
    }

    /// Returns the estimated remaining seconds, or `None` if there is too little progress for an estimate.
    fn left(&self, now: f64) -> Option<f64> {
        // The first second of work is too short for an estimate.
        if now - self.began < 1.0 || self.recent_work == 0.0 {
            return None;
        }
        // A pause without progress lowers the estimated pace only if it is longer than all earlier pauses.
        let pause = (now - self.last).max(0.0);
        let usual = pause.min(self.longest_pause);
        let rest = format::float(self.total.saturating_sub(self.done));
        let time = rest * (self.recent_time + pause - usual) / self.recent_work;
        Some((time - usual).max(0.0))
    }
}

/// Formats seconds, rounded up, in the two largest units that fit: `12 s`, `3 min 20 s`, `2 h 5 min`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond any number of seconds becomes the largest one"
)]
fn seconds_text(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours, days) {
        (0, ..) => format!("{seconds} s"),
        (_, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (_, _, 0) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} {} h", format::count(days, "day"), hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates work whose steps take the given seconds. Returns the largest factor by which the estimated remaining
    /// time was wrong, from `judged_from` on and while at least a second is left.
    fn worst(pieces: &[f64], judged_from: f64) -> f64 {
        let end: f64 = pieces.iter().sum();
        let mut pace = Pace::beginning(0.0);
        pace.total = pieces.len() as u64;
        let (mut worst, mut done, mut next) = (1.0_f64, 0, pieces[0]);
        for tenth in 0.. {
            let now = f64::from(tenth) / 10.0;
            while next <= now && done < pieces.len() {
                done += 1;
                pace.record(done as u64, next);
                next += pieces.get(done).copied().unwrap_or(f64::INFINITY);
            }
            let left = end - now;
            if left < 1.0 {
                return worst;
            }
            if now < judged_from {
                continue;
            }
            let estimate = pace.left(now).unwrap_or(f64::INFINITY).max(0.1);
            worst = worst.max(estimate / left).max(left / estimate);
        }
        worst
    }

    #[test]
    fn the_time_left_is_accurate_from_the_first_second() {
        let even = [0.05; 260];
        assert!(worst(&even, 1.0) < 1.2, "{}", worst(&even, 1.0));
        // Bursts: one chunk arrives each second, and is then written at once in many small steps.
        let burst = [&[1.0][..], &[0.0001; 24]].concat();
        let bursts = burst.repeat(13);
        assert!(worst(&bursts, 1.1) < 1.3, "{}", worst(&bursts, 1.1));
        // Uneven work: each chunk takes from zero to half a second.
        let uneven: Vec<f64> = (0..60).map(|n| f64::from(n * 7 % 11) / 20.0).collect();
        assert!(worst(&uneven, 3.0) < 1.6, "{}", worst(&uneven, 3.0));
    }

    #[test]
    fn the_time_left_follows_a_change_of_pace() {
        // A slow start: the connection takes three seconds. Then a server that becomes four times slower.
        let slow_start = [&[3.0][..], &[0.1; 400]].concat();
        assert!(
            worst(&slow_start, 12.0) < 1.6,
            "{}",
            worst(&slow_start, 12.0)
        );
        let slower = [&[0.05; 400][..], &[0.2; 200]].concat();
        assert!(worst(&slower, 45.0) < 1.3, "{}", worst(&slower, 45.0));
    }

    #[test]
    fn a_long_pause_makes_the_time_left_longer() {
        let mut pace = Pace::beginning(0.0);
        pace.total = 20;
        assert_eq!(pace.left(5.0), None);
        (1..=10).for_each(|done| pace.record(done, done as f64));
        assert_eq!(pace.left(10.0), Some(10.0));
        assert_eq!(pace.left(10.5), Some(9.5));
        let times = [11.0, 20.0, 40.0].map(|now| pace.left(now).unwrap());
        assert!(times.is_sorted() && times[2] > 20.0, "{times:?}");
    }

    #[test]
    fn seconds_are_written_in_two_units() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (11.2, "12 s"),
            (59.5, "1 min 0 s"),
            (200.0, "3 min 20 s"),
            (7500.0, "2 h 5 min"),
            (200_000.0, "2 days 7 h"),
        ] {
            assert_eq!(seconds_text(seconds), text);
        }
        assert!(seconds_text(f64::INFINITY).contains(" days "));
    }
}
