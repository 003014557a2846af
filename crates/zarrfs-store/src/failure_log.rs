//! The failure log of a mount: recent failures, each logged once an hour.
//!
//! Failures with the same operation, path, key and cause are one entry. A repetition increments the entry's count and
//! makes the entry the newest. The entry is logged again only after an hour, with the count. The table has at most
//! `MAX_FAILURES` entries with texts of at most `MAX_TEXT` characters. The caller decides which errors are failures.

use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use parking_lot::Mutex;

use zarr_format::error::{Error, Kind, printable};

const MAX_FAILURES: usize = 1000;

const MAX_TEXT: usize = 400;

/// The recent failures of a mount.
#[derive(Debug)]
pub struct FailureLog {
    failures: Mutex<LruCache<Failure, Occurrences>>,
}

/// A failure. Failures of the same operation, path, key and cause are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Failure {
    operation: &'static str,
    path: String,
    key: String,
    cause: String,
}

#[derive(Debug)]
struct Occurrences {
    count: u64,
    last: SystemTime,
    logged: Instant,
    logged_count: u64,
}

impl Default for FailureLog {
    fn default() -> FailureLog {
        FailureLog {
            failures: Mutex::new(LruCache::unbounded()),
        }
    }
}

impl FailureLog {
    /// Records a failure of an operation on `path`, and logs it unless the same failure was logged within the last
    /// hour.
    pub fn report(&self, operation: &'static str, path: &str, error: &Error) {
        let failure = Failure::new(operation, path, error);
        match self.count_occurrence(&failure, SystemTime::now(), Instant::now()) {
            // If the store was deleted, every request fails. The deletion itself has already been logged once.
            _ if error.kind() == Kind::Gone => {}
            None => {}
            Some(1) => log::warn!("{}", failure.sentence()),
            Some(count) => log::warn!("{} ({count} times)", failure.sentence()),
        }
    }

    /// Counts a failure. Returns its number of occurrences since it was last logged, or `None` if it is not to be
    /// logged now.
    fn count_occurrence(&self, failure: &Failure, time: SystemTime, now: Instant) -> Option<u64> {
        let mut failures = self.failures.lock();
        let Some(known) = failures.get_mut(failure) else {
            let first = Occurrences {
                count: 1,
                last: time,
                logged: now,
                logged_count: 1,
            };
            failures.put(failure.clone(), first);
            if failures.len() > MAX_FAILURES {
                failures.pop_lru();
            }
            return Some(1);
        };
        known.count += 1;
        known.last = time;
        if now.saturating_duration_since(known.logged) < Duration::from_secs(3600) {
            return None;
        }
        let since = known.count - known.logged_count;
        known.logged = now;
        known.logged_count = known.count;
        Some(since)
    }

    /// Returns the number of different failures in the log.
    pub fn count(&self) -> usize {
        self.failures.lock().len()
    }

    /// Returns one line per failure, the newest last: time, operation, path, key, cause and count, separated by tabs.
    pub fn to_text(&self) -> String {
        let failures = self.failures.lock();
        let mut text = String::new();
        for (failure, known) in failures.iter().rev() {
            let Failure {
                operation,
                path,
                key,
                cause,
            } = failure;
            let (time, count) = (utc(known.last), known.count);
            // `write!` to a `String` cannot fail.
            let _ = writeln!(text, "{time}\t{operation}\t{path}\t{key}\t{cause}\t{count}");
        }
        text
    }
}

impl Failure {
    fn new(operation: &'static str, path: &str, error: &Error) -> Failure {
        let error = error.within(path.trim_start_matches('/'));
        Failure {
            operation,
            path: cut(path),
            key: cut(error.subject()),
            cause: cut(error.detail()),
        }
    }

    /// Returns the failure as a sentence for the log. A key that equals the path is omitted.
    fn sentence(&self) -> String {
        let Failure {
            operation,
            path,
            key,
            cause,
        } = self;
        if key.is_empty() || key.trim_start_matches('/') == path.trim_start_matches('/') {
            return format!("{operation} of {path}: {cause}");
        }
        format!("{operation} of {path}: {key}: {cause}")
    }
}

/// Escapes control characters, so that a terminal does not interpret them, and cuts the text to `MAX_TEXT` characters.
fn cut(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Returns a time as `2026-11-22T13:28:40Z`.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096;
    let year = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + is_next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cause: &str) -> Failure {
        Failure::new("read", "/a/a.npy", &Error::corrupt("a/c/0", cause))
    }

    #[test]
    fn a_repeated_failure_is_counted_in_one_line() {
        let failures = FailureLog::default();
        let (time, now) = (
            UNIX_EPOCH + Duration::from_secs(951_782_400),
            Instant::now(),
        );
        assert_eq!(
            failures.count_occurrence(&failure("not zstd"), time, now),
            Some(1)
        );
        assert_eq!(
            failures.count_occurrence(&failure("other"), time, now),
            Some(1)
        );
        for _ in 0..3 {
            assert_eq!(
                failures.count_occurrence(&failure("not zstd"), time, now),
                None
            );
        }
        let text = "2000-02-29T00:00:00Z\tread\t/a/a.npy\ta/c/0\tother\t1\n\
                    2000-02-29T00:00:00Z\tread\t/a/a.npy\ta/c/0\tnot zstd\t4\n";
        assert_eq!(failures.to_text(), text);
        let later = now + Duration::from_secs(3600);
        assert_eq!(
            failures.count_occurrence(&failure("not zstd"), time, later),
            Some(4)
        );
        assert_eq!(
            failures.count_occurrence(&failure("not zstd"), time, later),
            None
        );
    }

    /// Invariant (mount): A failure is recorded with its path and key in bounded memory, and logged once; ordinary
    /// answers such as ENOENT are not.
    #[test]
    fn failures_take_bounded_memory() {
        let failures = FailureLog::default();
        let long = "\u{e4}".repeat(2_000);
        for number in 0..MAX_FAILURES + 7 {
            let error = Error::corrupt(&long, format!("{number} {long}"));
            failures.report("read", &long, &error);
        }
        let text = failures.to_text();
        assert_eq!(text.lines().count(), MAX_FAILURES);
        assert!(
            text.lines().next().unwrap().contains("\t7 "),
            "the oldest are gone"
        );
        let most = 2 * 3 * (MAX_TEXT + 3) + 64;
        assert!(text.lines().all(|line| line.len() <= most));
    }

    #[test]
    fn a_line_cannot_be_forged_by_a_name() {
        let failures = FailureLog::default();
        let error = Error::corrupt("a\tb\nc", "\u{1b}[2J");
        failures.report("read", "/x\n2026", &error);
        let text = failures.to_text();
        let cells: Vec<&str> = text.trim_end().split('\t').skip(1).collect();
        assert_eq!(cells, ["read", "/x\\n2026", "a\\tb\\nc", "\\u{1b}[2J", "1"]);
    }

    #[test]
    fn a_key_is_logged_only_if_it_differs_from_the_path() {
        assert_eq!(failure("why").sentence(), "read of /a/a.npy: a/c/0: why");
        let wrapped = Error::corrupt("a/c/0", "why").about("a/a.npy");
        assert_eq!(Failure::new("read", "/a/a.npy", &wrapped), failure("why"));
        let own = Failure::new("read", "/a/c/0", &Error::corrupt("a/c/0", "why"));
        assert_eq!(own.sentence(), "read of /a/c/0: why");
    }

    #[test]
    fn days_are_converted_to_calendar_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_779, (2026, 11, 22)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
