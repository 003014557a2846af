//! Counts, records and logs the errors of requests, with paths instead of inodes.
//!
//! Ordinary errors, such as a missing or existing name, are only counted. This is the only place that logs errors of
//! requests.

use std::sync::Arc;

use super::request::{NamedRequest, RequestInfo, RequestPool};
use crate::vfs::Vfs;
use zarr_format::error::{Error, Kind};
use zarrfs_store::stats::Stats;

/// Reports the failures of one mount.
#[derive(Clone)]
pub(super) struct FailureReporter {
    vfs: Arc<Vfs>,
    stats: Arc<Stats>,
}

impl FailureReporter {
    /// Builds the reporter of a mount.
    pub(super) fn new(vfs: Arc<Vfs>, stats: Arc<Stats>) -> FailureReporter {
        FailureReporter { vfs, stats }
    }

    /// Reports the error of a request.
    pub(super) fn report(&self, request: &NamedRequest, error: &Error) {
        if !is_missing(request.info, error) {
            self.stats.error_requests.add(1);
        }
        let (operation, path) = (request.info.name, self.path(request));
        if is_ordinary(request.info, error) {
            log::trace!("{operation} of {path}: {error}");
        } else {
            self.stats.failures.report(operation, &path, error);
        }
    }

    /// Logs an error that occurred after its request was refused.
    pub(super) fn report_late(&self, request: &NamedRequest, error: &Error) {
        let (operation, path) = (request.info.name, self.path(request));
        log::info!("{operation} of {path} came too late: {error}");
    }

    fn path(&self, request: &NamedRequest) -> String {
        self.vfs
            .shown_path(request.info.ino, request.child.as_deref())
    }
}

/// Whether an error only means that a name or attribute is missing, or makes the kernel walk the path of a replaced
/// name again.
fn is_missing(request: RequestInfo, error: &Error) -> bool {
    let is_replaced = request.pool == RequestPool::Names && error.kind() == Kind::Changed;
    is_replaced || matches!(error.kind(), Kind::NotFound | Kind::NoAttribute)
}

/// Whether an error is a normal answer to a request about names or attributes.
fn is_ordinary(request: RequestInfo, error: &Error) -> bool {
    let is_of_attribute = request.name.ends_with("xattr");
    is_missing(request, error)
        || error.kind().is_ordinary()
        || is_reported_later(request, error)
        || (is_of_attribute && error.kind() == Kind::Unsupported)
}

/// Whether the error occurs again at the release of the file, unless it is written correctly before. Shells truncate a
/// file and close one of its two descriptors before a program writes through the other one.
fn is_reported_later(request: RequestInfo, error: &Error) -> bool {
    request.name == "flush" && error.kind() == Kind::Invalid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Ino, VfsConfig};
    use crate::view::store::StoreView;
    use zarrfs_store::backend::memory::MemoryStore;

    fn reporter() -> (FailureReporter, Arc<Stats>) {
        let view = Arc::new(StoreView::new(Arc::new(MemoryStore::default())));
        let config = VfsConfig {
            uid: 0,
            gid: 0,
            umask: 0,
            writable: true,
        };
        let stats = Arc::new(Stats::default());
        let vfs = Arc::new(Vfs::new(view, config, stats.clone()));
        (FailureReporter::new(vfs, stats.clone()), stats)
    }

    #[test]
    fn ordinary_answers_are_no_failures() {
        let (reporter, stats) = reporter();
        let names = |name| RequestInfo::names(name, Ino::ROOT);
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
            reporter.report(&names("rmdir").about(None), &Error::new(kind, "a", "why"));
        }
        reporter.report(
            &names("getxattr").about(None),
            &Error::unsupported("a", "why"),
        );
        assert_eq!(stats.failures.to_text(), "");
        assert_eq!(stats.error_requests.get(), 7);
    }

    #[test]
    fn what_does_not_parse_is_reported_when_the_file_is_released() {
        let (reporter, stats) = reporter();
        let invalid = Error::invalid("a/attributes.json", "not JSON");
        let flush = RequestInfo::flush("flush", Ino::ROOT).about(None);
        reporter.report(&flush, &invalid);
        assert_eq!(stats.failures.to_text(), "");
        reporter.report(&flush, &Error::unavailable("a", "no answer"));
        assert_eq!(stats.failures.count(), 1);
    }

    #[test]
    fn failures_have_their_path() {
        let (reporter, stats) = reporter();
        let request = RequestInfo::contents("read", Ino::ROOT).about(None);
        for _ in 0..2 {
            reporter.report(&request, &Error::corrupt("a/c/0", "not zstd"));
        }
        assert_eq!(cells(&stats), [["read", "/", "a/c/0", "not zstd", "2"]]);
        assert_eq!(stats.error_requests.get(), 2);
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_is_named() {
        let (reporter, stats) = reporter();
        for name in ["lat", "lon"] {
            let request = RequestInfo::names("lookup", Ino::ROOT).about(Some(name.as_bytes()));
            reporter.report(&request, &Error::unavailable("", "no answer within 2 s"));
        }
        let line = |path| ["lookup", path, "", "no answer within 2 s", "1"];
        assert_eq!(cells(&stats), [line("/lat"), line("/lon")]);
    }

    /// Returns the cells of each failure line, without the time.
    fn cells(stats: &Stats) -> Vec<Vec<String>> {
        let text = stats.failures.to_text();
        let cells = text.lines().map(|line| line.split('\t').skip(1));
        cells
            .map(|cells| cells.map(str::to_string).collect())
            .collect()
    }
}
