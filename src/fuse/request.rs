//! What the log calls a request of the kernel, in which pool it waits, and whether it has a deadline.

use std::sync::Arc;
use std::time::Instant;

use crate::vfs::Ino;

/// The pool of threads that a request waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPool {
    /// Names and attributes.
    Names,
    /// Contents, so that names are answered while all readers wait for the store.
    Contents,
}

/// A request, the name in its directory that it is about, if it is about one, and who waits for it.
#[derive(Clone, Debug)]
pub(super) struct NamedRequest {
    pub(super) info: RequestInfo,
    pub(super) child: Option<Arc<[u8]>>,
    /// The thread whose signals end the request; 0 if they do not.
    pub(super) caller: u32,
    /// The part of a content that it is about: offset and length in bytes.
    pub(super) range: Option<(u64, u64)>,
    /// When the kernel has asked for it, if it waits for a thread.
    pub(super) begun: Option<Instant>,
}

/// One request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo {
    /// The operation.
    pub(super) name: &'static str,
    /// The inode that it is about.
    pub(super) ino: Ino,
    /// Where it waits.
    pub(super) pool: RequestPool,
    /// Whether it is refused when it takes too long.
    pub(super) is_limited: bool,
}

impl NamedRequest {
    /// The request of a thread, which a signal to that thread ends, about a part of a content; it begins now.
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
    /// A request about a name or attributes.
    pub(super) fn names(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            name,
            ino,
            pool: RequestPool::Names,
            is_limited: true,
        }
    }

    /// The request with the name that it is about.
    pub(super) fn about(self, child: Option<&[u8]>) -> NamedRequest {
        NamedRequest {
            info: self,
            child: child.map(Arc::from),
            caller: 0,
            range: None,
            begun: None,
        }
    }

    /// A request about a part of a content.
    pub(super) fn contents(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            pool: RequestPool::Contents,
            ..RequestInfo::names(name, ino)
        }
    }

    /// A request that keeps a whole file. It has no deadline: it takes as long as the file is, and each of its requests
    /// to the store has a time limit of its own.
    pub(super) fn flush(name: &'static str, ino: Ino) -> RequestInfo {
        RequestInfo {
            is_limited: false,
            ..RequestInfo::contents(name, ino)
        }
    }

    /// Whether the kernel may have locked pages for it: a part of a content is read into pages or written from them.
    pub(super) fn locks_pages(&self) -> bool {
        self.pool == RequestPool::Contents && self.is_limited
    }
}
