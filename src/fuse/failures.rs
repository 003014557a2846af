//! Counts and logs failed requests, and answers reads that the kernel repeats.
//!
//! Ordinary errors, such as a missing or existing name, are only counted. All errors of requests are logged here, with
//! paths in place of inodes.
//!
//! A program reads through the kernel's read-ahead. If that read fails, the kernel repeats the read of the first page,
//! or of the whole range if the page was dropped in between, before it returns the error to the program. To save the
//! program a second wait for the store, the repeated read gets the error of the first one at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::request::{KernelRequest, RequestClass};
use crate::vfs::{Ino, Vfs};
use zarr_format::error::{Error, Kind};
use zarrfs_store::stats::Stats;

/// Minimum duration of a failed read whose error is returned again. If a faster read is repeated, it is executed.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// How long a repeated read gets the error of the first read. The kernel repeats a read within milliseconds; a program
/// that reads again within this time gets the same error.
pub(super) const REPEATED_WITHIN: Duration = Duration::from_millis(200);

/// Failed requests of one mount.
pub(super) struct Failures {
    vfs: Arc<Vfs>,
    stats: Arc<Stats>,
    /// Recent reads that failed after at least `MIN_WAIT`.
    slow_reads: Mutex<VecDeque<FailedRead>>,
}

struct FailedRead {
    failed: Instant,
    caller: u32,
    ino: Ino,
    range: Range<u64>,
    errno: i32,
}

impl Failures {
    pub(super) fn new(vfs: Arc<Vfs>, stats: Arc<Stats>) -> Failures {
        Failures {
            vfs,
            stats,
            slow_reads: Mutex::default(),
        }
    }

    /// Counts and logs the error of a request. Must be called before the program gets the error.
    pub(super) fn report(&self, request: &KernelRequest<'_>, error: &Error) {
        self.record_slow_read(request, error);
        if !is_missing(request, error) {
            self.stats.error_requests.add(1);
        }
        let (operation, path) = (request.operation, self.path(request));
        if is_ordinary(request, error) {
            log::trace!("{operation} of {path}: {error}");
        } else {
            self.stats.failures.report(operation, &path, error);
        }
    }

    /// Logs an error of a request that was already refused because of its timeout.
    pub(super) fn report_late(&self, request: &KernelRequest<'_>, error: &Error) {
        let (operation, path) = (request.operation, self.path(request));
        log::info!("{operation} of {path} failed after the timeout: {error}");
    }

    fn path(&self, request: &KernelRequest<'_>) -> String {
        self.vfs.display_path(request.ino, request.name.as_deref())
    }

    fn record_slow_read(&self, request: &KernelRequest<'_>, error: &Error) {
        let failed = Instant::now();
        let is_slow = request
            .begun
            .is_some_and(|begun| begun + MIN_WAIT <= failed);
        let Some(range) = range_of_read(request).filter(|_| is_slow) else {
            return;
        };
        if error.kind() == Kind::Interrupted {
            return;
        }
        let mut reads = self.slow_reads.lock();
        reads.retain(|read| failed.saturating_duration_since(read.failed) < REPEATED_WITHIN);
        reads.push_back(FailedRead {
            failed,
            caller: request.caller,
            ino: request.ino,
            range: range.clone(),
            errno: error.errno(),
        });
    }

    /// Returns the error number of a recent failed read if the request may be the kernel's repetition of that read.
    pub(super) fn repeated_errno(&self, request: &KernelRequest<'_>) -> Option<i32> {
        let range = range_of_read(request)?;
        let reads = self.slow_reads.lock();
        let repeated = reads.iter().find(|read| {
            (read.caller, read.ino) == (request.caller, request.ino)
                && (read.range.start <= range.start && range.end <= read.range.end)
                && read.failed.elapsed() < REPEATED_WITHIN
        });
        repeated.map(|read| read.errno)
    }
}

/// Returns the byte range of a program's read; `None` for another request.
fn range_of_read<'a>(request: &'a KernelRequest<'_>) -> Option<&'a Range<u64>> {
    let is_read = request.operation == "read" && request.caller != 0;
    request.range.as_ref().filter(|_| is_read)
}

/// Whether an error is no failure: a name or attribute is missing, or the kernel has to walk a path again because its
/// name was replaced.
fn is_missing(request: &KernelRequest<'_>, error: &Error) -> bool {
    let is_replaced = request.class == RequestClass::Names && error.kind() == Kind::Changed;
    is_replaced || matches!(error.kind(), Kind::NotFound | Kind::NoAttribute)
}

/// Whether an error is a normal answer, which is not logged.
fn is_ordinary(request: &KernelRequest<'_>, error: &Error) -> bool {
    let is_of_attribute = request.operation.ends_with("xattr");
    // A flush that fails with `Invalid` is not logged, because the flush at the release of the file fails with the same
    // error, unless a program has written valid content before. Shells truncate a file and close one of two descriptors
    // before a program writes through the other one.
    let is_reported_later = request.operation == "flush" && error.kind() == Kind::Invalid;
    is_missing(request, error)
        || error.kind().is_ordinary()
        || is_reported_later
        || (is_of_attribute && error.kind() == Kind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::mounted;
    use zarrfs_store::backend::memory::MemoryStore;

    fn failures() -> (Failures, Arc<Stats>) {
        let vfs = Arc::new(mounted(MemoryStore::default(), true));
        let stats = Arc::<Stats>::default();
        (Failures::new(vfs, stats.clone()), stats)
    }

    #[test]
    fn ordinary_errors_are_not_recorded_as_failures() {
        let (failures, stats) = failures();
        let names = |name| KernelRequest::new(RequestClass::Names, name, Ino::ROOT, 0);
        for kind in [
            Kind::NotFound,
            Kind::Exists,
            Kind::NotEmpty,
            Kind::NameTooLong,
            Kind::NotADirectory,
            Kind::IsADirectory,
            Kind::CrossDevice,
            Kind::Changed,
        ] {
            failures.report(&names("rmdir"), &Error::new(kind, "a", "why"));
        }
        failures.report(&names("getxattr"), &Error::unsupported("a", "why"));
        assert_eq!(stats.failures.to_text(), "");
        assert_eq!(stats.error_requests.get(), 7);
    }

    #[test]
    fn an_invalid_document_is_a_failure_of_its_release_and_not_of_its_flush() {
        let (failures, stats) = failures();
        let invalid = Error::invalid("a/attributes.json", "not JSON");
        let flush = KernelRequest::new(RequestClass::Flush, "flush", Ino::ROOT, 0);
        failures.report(&flush, &invalid);
        assert_eq!(stats.failures.to_text(), "");
        let release = KernelRequest::new(RequestClass::Flush, "release", Ino::ROOT, 0);
        failures.report(&release, &invalid);
        let expected = ["release", "/", "a/attributes.json", "not JSON", "1"];
        assert_eq!(cells(&stats), [expected]);
        failures.report(&flush, &Error::unavailable("a", "no answer"));
        assert_eq!(stats.failures.count(), 2);
    }

    #[test]
    fn failures_are_recorded_with_their_path_and_count() {
        let (failures, stats) = failures();
        let request = KernelRequest::new(RequestClass::Contents, "read", Ino::ROOT, 0);
        for _ in 0..2 {
            failures.report(&request, &Error::corrupt("a/c/0", "not zstd"));
        }
        assert_eq!(cells(&stats), [["read", "/", "a/c/0", "not zstd", "2"]]);
        assert_eq!(stats.error_requests.get(), 2);
    }

    #[test]
    fn failed_lookups_are_recorded_with_their_path() {
        let (failures, stats) = failures();
        for name in ["lat", "lon"] {
            let request = KernelRequest::new(RequestClass::Names, "lookup", Ino::ROOT, 0)
                .with_name(name.as_bytes());
            failures.report(&request, &Error::unavailable("", "no response within 2 s"));
        }
        let line = |path| ["lookup", path, "", "no response within 2 s", "1"];
        assert_eq!(cells(&stats), [line("/lat"), line("/lon")]);
    }

    /// Returns the columns of each recorded failure, without the time.
    fn cells(stats: &Stats) -> Vec<Vec<String>> {
        let text = stats.failures.to_text();
        let cells = text.lines().map(|line| line.split('\t').skip(1));
        cells
            .map(|cells| cells.map(str::to_string).collect())
            .collect()
    }

    /// Returns a read request that has taken `MIN_WAIT`.
    fn read(caller: u32, range: Range<u64>) -> KernelRequest<'static> {
        KernelRequest {
            begun: Instant::now().checked_sub(MIN_WAIT),
            range: Some(range),
            ..KernelRequest::new(RequestClass::Contents, "read", Ino(7), caller)
        }
    }

    #[test]
    fn a_repeated_part_of_a_failed_read_gets_the_same_errno() {
        let (failures, _) = failures();
        let late = Error::unavailable("", "late");
        let failed = read(5, 4096..12288);
        let quick = KernelRequest {
            begun: Some(Instant::now()),
            ..failed.clone()
        };
        failures.report(&quick, &late);
        failures.report(&failed, &Error::new(Kind::Interrupted, "", "a signal"));
        failures.report(&read(0, 4096..12288), &late);
        let errno = failures.repeated_errno(&failed);
        assert_eq!(errno, None, "nothing that counts has failed");
        failures.report(&failed, &Error::new(Kind::Changed, "", "another content"));
        for other in [read(5, 0..4096), read(5, 8192..16384), read(6, 4096..8192)] {
            assert_eq!(failures.repeated_errno(&other), None);
        }
        for repeated in [4096..12288, 8192..12288, 4096..12288] {
            let errno = failures.repeated_errno(&read(5, repeated));
            assert_eq!(errno, Some(libc::ESTALE));
        }
        std::thread::sleep(REPEATED_WITHIN);
        let errno = failures.repeated_errno(&failed);
        assert_eq!(errno, None, "a later read is one of its own");
    }
}
