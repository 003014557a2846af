//! Describes a kernel request: its operation, its pool and its deadline.

use std::sync::Arc;
use std::time::Instant;

use crate::vfs::Ino;

/// The thread pool of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPool {
    /// Names and attributes.
    Names,
    /// Contents; separate, so that names are answered while all readers wait for the store.
    Contents,
}

/// A request with its child name, if any, and its caller.
#[derive(Clone, Debug)]
pub(super) struct NamedRequest {
    pub(super) info: RequestInfo,
    pub(super) child: Option<Arc<[u8]>>,
    /// The thread whose signals interrupt the request; 0 if none do.
    pub(super) caller: u32,
    /// The range in the file: offset and length in bytes.
    pub(super) range: Option<(u64, u64)>,
    /// When the request began, if it runs in a pool.
    pub(super) begun: Option<Instant>,
}

/// One request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo {
    /// The operation.
    pub(super) name: &'static str,
    /// The inode.
    pub(super) ino: Ino,
    /// Its pool.
    pub(super) pool: RequestPool,
    /// Whether it is refused when it takes too long.
    pub(super) is_limited: bool,
}

impl NamedRequest {
    /// Adds the calling thread, whose signals interrupt the request, and the range in the file; the request begins now.
    pub(super) fn of_caller(self, caller: u32, range: Option<(u64, u64)>) -> NamedRequest {
        let begun = Some(Instant::now());
        NamedRequest {
            caller,
            range,
            begun,
            ..self
        }
    }
}

impl RequestInfo {
    /// Builds a request about a name or attributes.
    pub(super) fn names(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            name,
            ino,
            pool: RequestPool::Names,
            is_limited: true,
        }
    }

    /// Adds the child name.
    pub(super) fn about(self, child: Option<&[u8]>) -> NamedRequest {
        NamedRequest {
            info: self,
            child: child.map(Arc::from),
            caller: 0,
            range: None,
            begun: None,
        }
    }

    /// Builds a request that reads or writes contents.
    pub(super) fn contents(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            pool: RequestPool::Contents,
            ..RequestInfo::names(name, ino)
        }
    }

    /// Builds a request that flushes a whole file. It has no deadline: it takes as long as the file needs, and each of
    /// its requests to the store has its own time limit.
    pub(super) fn flush(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            is_limited: false,
            ..RequestInfo::contents(name, ino)
        }
    }

    /// Whether the kernel may have locked pages for it: it reads contents into pages or writes them from pages.
    pub(super) fn locks_pages(&self) -> bool {
        self.pool == RequestPool::Contents && self.is_limited
    }
}
