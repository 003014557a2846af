//! The mount: kernel requests in, answers of the vfs out.
//!
//! An event loop answers at once what is in memory and never waits; every other request takes its reply to
//! a bounded pool, one for names and one for contents, and is refused with EIO when its time is up. One
//! function, `FuseAdapter::op`, catches panics, maps errors to errno, counts and logs them. fuser's types stay in
//! this folder; mounting and unmounting are our own (`mount`), fuser's lose unmounts.

mod adapter;
mod changes;
mod convert;
mod deadline;
pub mod mount;
mod request;
pub mod serve;
pub mod session;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fuser::ReplyWrite;

use deadline::{Deadlines, ReplyError};
use request::{Request, RequestPool};

use crate::error::{Error, Kind, Result};
use crate::stats::Stats;
use crate::sync::pool::Pool;
use crate::vfs::{Fh, Ino, Vfs};

/// Threads that wait for names and attributes, and for contents.
const NAME_THREADS: usize = 16;
const READ_THREADS: usize = 64;

/// Requests that may wait for a thread; the kernel itself sends at most 128 readahead requests, and one
/// per waiting thread of a program.
const MOST_WAITING: usize = 16 << 10;

/// Where the kernel's requests are handed in.
pub(crate) struct FuseAdapter {
    office: Arc<RequestContext>,
    names: Pool,
    reads: Pool,
    deadlines: Deadlines,
}

/// What a job needs after the event loop has let go of it.
struct RequestContext {
    vfs: Arc<Vfs>,
    stats: Arc<Stats>,
}

impl FuseAdapter {
    /// Builds the desk of one mount; a request that waits longer than `timeout` is refused with EIO.
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        timeout: Duration,
    ) -> io::Result<FuseAdapter> {
        Ok(FuseAdapter {
            deadlines: Deadlines::new(timeout, stats.clone())?,
            office: Arc::new(RequestContext { vfs, stats }),
            names: Pool::new("zarrfs-names", NAME_THREADS, MOST_WAITING),
            reads: Pool::new("zarrfs-reads", READ_THREADS, MOST_WAITING),
        })
    }

    /// Answers a request: at once if the answer is in memory, else from a pool.
    fn op<R: Request>(&self, request: R, reply: R::Reply) {
        match guard(|| request.now(&self.office.vfs).transpose()).transpose() {
            Some(result) => self.office.conclude(request, result, reply),
            None => self.postpone(request, reply),
        }
    }

    /// Whether files can be changed.
    fn is_writable(&self) -> bool {
        self.office.vfs.config().writable
    }

    /// Writes bytes: at once if nothing has to be waited for, else from a pool, with a copy of them.
    fn write_at(&self, ino: Ino, fh: Fh, offset: u64, bytes: &[u8], reply: ReplyWrite) {
        let request = |bytes| changes::Write {
            ino,
            fh,
            offset,
            bytes,
        };
        let vfs = &self.office.vfs;
        match guard(|| vfs.write_now(fh, offset, bytes).transpose()).transpose() {
            // A request has at most a megabyte.
            Some(Ok(())) => reply.written(bytes.len() as u32),
            Some(result) => self.office.conclude(request(Vec::new()), result, reply),
            None => self.postpone(request(bytes.to_vec()), reply),
        }
    }

    /// Tells the vfs of something that is over; it has no answer to wait for.
    fn put_back(&self, name: &str, work: impl FnOnce(&Vfs)) {
        let done = guard(|| {
            work(&self.office.vfs);
            Ok(())
        });
        if let Err(error) = done {
            log::error!("{name}: {error}");
        }
    }

    fn postpone<R: Request>(&self, request: R, reply: R::Reply) {
        let (name, queue) = (request.name(), request.queue());
        let ticket = match request.is_limited() {
            true => self.deadlines.begin(name, request.inode(), reply),
            false => self.deadlines.begin_unlimited(name, request.inode(), reply),
        };
        let office = self.office.clone();
        let job = move || {
            let result = guard(|| request.later(&office.vfs));
            match (ticket.take(), result) {
                (Some(reply), result) => office.conclude(request, result, reply),
                (None, Ok(found)) => request.discard(found, &office.vfs),
                (None, Err(error)) => log::warn!("{name} came too late: {error}"),
            }
        };
        let queue = match queue {
            RequestPool::Names => &self.names,
            RequestPool::Reads => &self.reads,
        };
        if !queue.submit(job) {
            log::error!("{name}: more than {MOST_WAITING} requests wait for the store; refused");
        }
    }
}

impl RequestContext {
    fn conclude<R: Request>(&self, request: R, result: Result<R::Found>, reply: R::Reply) {
        let name = request.name();
        match result {
            Ok(found) => {
                let sent = guard(|| {
                    request.answer(found, reply, &self.vfs);
                    Ok(())
                });
                if let Err(error) = sent {
                    log::error!("answer to {name}: {error}");
                }
            }
            Err(error) => {
                self.report(name, request.inode(), &error);
                reply.refuse(error.errno());
            }
        }
    }

    /// Counts and logs an error: the only place that does.
    fn report(&self, name: &str, inode: u64, error: &Error) {
        if matches!(error.kind(), Kind::NotFound | Kind::NoAttribute) {
            log::trace!("{name} of inode {inode}: {error}");
            return;
        }
        self.stats.error_requests.add(1);
        log::warn!("{name} of inode {inode}: {error}");
    }
}

/// Runs `work`; a panic in it becomes an error, and the mount lives on.
fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => Err(Error::new(
            Kind::Unavailable,
            "",
            "a fault in zarrfs itself: the request panicked",
        )),
    }
}
