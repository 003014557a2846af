//! Answers repeated reads of the kernel after a slow failure.
//!
//! A program reads through the kernel's read-ahead. If that fails, the kernel reads the first page again before it
//! returns the error to the program, and the whole range if the page was dropped in between. The program would wait for
//! the store each time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::request::NamedRequest;
use crate::vfs::Ino;
use zarr_format::error::{Error, Kind};

/// Minimum duration of a failed read that is recorded. A read that fails at once may be repeated.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// How long a failure is repeated. The kernel repeats the read within milliseconds. A program that reads again within
/// this time gets the same error.
pub(super) const COUNTS: Duration = Duration::from_millis(200);

/// The recent failed reads of one mount.
#[derive(Default)]
pub(super) struct FailedReads(Mutex<VecDeque<FailedRead>>);

struct FailedRead {
    failed: Instant,
    caller: u32,
    ino: Ino,
    start: u64,
    end: u64,
    errno: i32,
}

impl FailedReads {
    /// Records the failure of a request, before it is sent to the program; only slow reads are recorded.
    pub(super) fn note(&self, request: &NamedRequest, error: &Error) {
        let failed = Instant::now();
        let is_long = request
            .begun
            .is_some_and(|begun| begun + MIN_WAIT <= failed);
        if error.kind() == Kind::Interrupted || !is_long || !is_read(request) {
            return;
        }
        let Some((start, length)) = request.range else {
            return;
        };
        let mut reads = self.0.lock();
        reads.retain(|read| failed.saturating_duration_since(read.failed) < COUNTS);
        reads.push_back(FailedRead {
            failed,
            caller: request.caller,
            ino: request.info.ino,
            start,
            end: start.saturating_add(length),
            errno: error.errno(),
        });
    }

    /// Returns the errno of a recorded failure if the request may be the kernel's repetition of it.
    pub(super) fn errno_of(&self, request: &NamedRequest) -> Option<i32> {
        let (start, length) = request.range.filter(|_| is_read(request))?;
        let end = start.saturating_add(length);
        let reads = self.0.lock();
        let repeated = reads.iter().find(|read| {
            (read.caller, read.ino) == (request.caller, request.info.ino)
                && (read.start <= start && end <= read.end)
                && read.failed.elapsed() < COUNTS
        });
        repeated.map(|read| read.errno)
    }
}

fn is_read(request: &NamedRequest) -> bool {
    request.info.name == "read" && request.caller != 0
}

#[cfg(test)]
mod tests {
    use super::super::request::RequestInfo;
    use super::*;

    /// Returns a read that has waited for `MIN_WAIT`.
    fn read(caller: u32, range: (u64, u64)) -> NamedRequest {
        let request = RequestInfo::contents("read", Ino(7)).about(None);
        NamedRequest {
            begun: Instant::now().checked_sub(MIN_WAIT),
            ..request.of_caller(caller, Some(range))
        }
    }

    #[test]
    fn the_kernel_repeats_a_part_of_a_read() {
        let reads = FailedReads::default();
        let late = Error::unavailable("", "late");
        let failed = read(5, (4096, 8192));
        let quick = NamedRequest {
            begun: Some(Instant::now()),
            ..failed.clone()
        };
        reads.note(&quick, &late);
        reads.note(&failed, &Error::new(Kind::Interrupted, "", "a signal"));
        reads.note(&read(0, (4096, 8192)), &late);
        assert_eq!(
            reads.errno_of(&failed),
            None,
            "nothing that counts has failed"
        );
        reads.note(&failed, &Error::new(Kind::Changed, "", "another content"));
        for other in [(5, (0, 4096)), (5, (8192, 8192)), (6, (4096, 4096))] {
            assert_eq!(reads.errno_of(&read(other.0, other.1)), None);
        }
        for repeated in [(4096, 8192), (8192, 4096), (4096, 8192)] {
            assert_eq!(reads.errno_of(&read(5, repeated)), Some(libc::ESTALE));
        }
        std::thread::sleep(COUNTS);
        assert_eq!(
            reads.errno_of(&failed),
            None,
            "a later read is one of its own"
        );
    }
}
