//! A request of the kernel, and its line in the access log.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use log::Level;

use crate::vfs::{Ino, NameIn, Vfs};

/// What a request is about; decides its thread pool and its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// Names and attributes.
    Names,
    /// Contents; a pool of their own, so that names are answered while all readers wait for the store.
    Contents,
    /// A flush of a whole file, in the pool of contents. It has no deadline: it takes as long as the file needs, and
    /// each of its requests to the store has its own time limit.
    Flush,
}

/// One request of the kernel.
#[derive(Clone, Debug)]
pub(super) struct KernelRequest<'a> {
    pub(super) class: RequestClass,
    /// The operation, such as `read`.
    pub(super) operation: &'static str,
    pub(super) ino: Ino,
    /// The name in the inode's directory, if the request has one.
    pub(super) name: Option<Cow<'a, [u8]>>,
    /// The new name of a rename or link, for the access log.
    pub(super) destination: Option<NameIn<'a>>,
    /// The range in the file, in bytes.
    pub(super) range: Option<Range<u64>>,
    /// The thread that sent the request.
    pub(super) pid: u32,
    /// The thread whose signals interrupt the request; 0 if none do.
    pub(super) caller: u32,
    /// When the request was queued for a pool; `None` in an event loop.
    pub(super) begun: Option<Instant>,
}

impl<'a> KernelRequest<'a> {
    /// Builds a request of the thread `pid`; a signal to this thread interrupts the request.
    pub(super) fn new(
        class: RequestClass,
        operation: &'static str,
        ino: Ino,
        pid: u32,
    ) -> KernelRequest<'a> {
        KernelRequest {
            class,
            operation,
            ino,
            name: None,
            destination: None,
            range: None,
            pid,
            caller: pid,
            begun: None,
        }
    }

    /// Adds a name in the inode's directory.
    pub(super) fn with_name(self, name: &'a [u8]) -> KernelRequest<'a> {
        let name = Some(Cow::Borrowed(name));
        KernelRequest { name, ..self }
    }

    /// Adds the new name of a rename or link.
    pub(super) fn with_destination(self, destination: NameIn<'a>) -> KernelRequest<'a> {
        let destination = Some(destination);
        KernelRequest {
            destination,
            ..self
        }
    }

    /// Returns the request for a pool; its time begins now.
    pub(super) fn queued(self) -> KernelRequest<'static> {
        KernelRequest {
            class: self.class,
            operation: self.operation,
            ino: self.ino,
            name: self.name.map(|name| Cow::Owned(name.into_owned())),
            destination: None,
            range: self.range,
            pid: self.pid,
            caller: self.caller,
            begun: Some(Instant::now()),
        }
    }

    /// Whether the kernel may have locked pages for it: it reads contents into pages or writes them from pages.
    pub(super) fn locks_pages(&self) -> bool {
        self.class == RequestClass::Contents
    }
}

/// The line of a pending request in the access log. The log is off by default; then a request costs the comparison of
/// two levels.
pub(super) struct AccessLine {
    started: Instant,
    text: String,
}

/// The log target. `RUST_LOG=zarrfs::access=trace` shows only these lines.
const TARGET: &str = "zarrfs::access";

impl AccessLine {
    /// Begins the line of a request; `None` if the log is off.
    pub(super) fn begin(request: &KernelRequest<'_>, vfs: &Vfs) -> Option<AccessLine> {
        if !log::log_enabled!(target: TARGET, Level::Trace) {
            return None;
        }
        let path = vfs.display_path(request.ino, request.name.as_deref());
        let mut text = format!("{} path={path:?}", request.operation);
        if let Some(NameIn { parent, name }) = request.destination {
            let to = vfs.display_path(parent, Some(name));
            text += &format!(" to={to:?}");
        }
        if let Some(Range { start, end }) = request.range {
            text += &format!(" offset={start} length={}", end - start);
        }
        text += &format!(" pid={}", request.pid);
        Some(AccessLine {
            started: Instant::now(),
            text,
        })
    }

    /// Writes the line of an answered request, with the errno if it failed.
    pub(super) fn finish(self, errno: Option<i32>) {
        let AccessLine { started, text } = self;
        let micros = started.elapsed().as_micros();
        let errno = errno.unwrap_or(0);
        log::trace!(target: TARGET, "{text} microseconds={micros} errno={errno}");
    }
}
