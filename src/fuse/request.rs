//! Describes a request of the kernel, and writes its line in the access log.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use log::Level;

use crate::vfs::{Ino, NameIn, Vfs};

/// The kind of a request, which decides in which thread pool it runs, and whether it has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// A request about names and attributes.
    Names,
    /// A request about contents. It has its own pool, so that names are answered while all readers wait for the store.
    Contents,
    /// A flush of a whole file, in the pool of contents. It has no deadline, since it takes longer for a larger file;
    /// each of its requests to the store has its own time limit.
    Flush,
}

/// A request of the kernel.
#[derive(Clone, Debug)]
pub(super) struct KernelRequest<'a> {
    pub(super) class: RequestClass,
    /// Name of the operation, such as `read`, for the logs.
    pub(super) operation: &'static str,
    pub(super) ino: Ino,
    /// The name that the request is about, in the directory `ino`.
    pub(super) name: Option<Cow<'a, [u8]>>,
    /// The new directory and name in a rename or link request, for the access log.
    pub(super) destination: Option<NameIn<'a>>,
    /// The range of bytes that the request reads or writes.
    pub(super) range: Option<Range<u64>>,
    /// The thread that sent the request.
    pub(super) pid: u32,
    /// The thread whose signals interrupt the request; 0 if no signals do.
    pub(super) caller: u32,
    /// When the request was queued for a thread pool; `None` for a request that the event loop executes.
    pub(super) begun: Option<Instant>,
}

impl<'a> KernelRequest<'a> {
    /// Builds a request that the thread `pid` has sent, and whose wait ends if that thread is interrupted.
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

    /// Adds the name that the request is about, in the directory `ino`.
    pub(super) fn with_name(self, name: &'a [u8]) -> KernelRequest<'a> {
        let name = Some(Cow::Borrowed(name));
        KernelRequest { name, ..self }
    }

    /// Adds the new directory and name of a rename or link request.
    pub(super) fn with_destination(self, destination: NameIn<'a>) -> KernelRequest<'a> {
        let destination = Some(destination);
        KernelRequest {
            destination,
            ..self
        }
    }

    /// Returns the request with a copy of its name, for a thread pool; its time begins now.
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

    /// Whether the kernel may have locked pages for this request, since it reads into pages or writes from them.
    pub(super) fn locks_pages(&self) -> bool {
        self.class == RequestClass::Contents
    }
}

/// The line of a pending request in the access log. The log is off by default, and then almost free: a request costs
/// one comparison of log levels.
pub(super) struct AccessLine {
    started: Instant,
    text: String,
}

/// Target of the access log: `RUST_LOG=zarrfs::access=trace` shows only its lines.
const TARGET: &str = "zarrfs::access";

impl AccessLine {
    /// Starts the log line of a request; returns `None` if the access log is off.
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

    /// Writes the log line of an answered request, with its error number if it failed.
    pub(super) fn finish(self, errno: Option<i32>) {
        let AccessLine { started, text } = self;
        let micros = started.elapsed().as_micros();
        let errno = errno.unwrap_or(0);
        log::trace!(target: TARGET, "{text} microseconds={micros} errno={errno}");
    }
}
