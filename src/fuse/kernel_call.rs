//! A call of the kernel: its process, name and range, for the access log.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use super::access::AccessLine;
use super::deadline::ReplyError;
use super::dispatch::{Dispatcher, catch_panic};
use super::reply::Output;
use super::request::RequestInfo;
use crate::vfs::{Ino, Vfs};
use zarr_format::error::Result;
use zarrfs_store::request_context::{RequestContext, WITHOUT_WAITING, is_answer};

/// A call of the kernel for the dispatcher.
#[derive(Clone, Copy)]
pub(super) struct KernelCall<'a> {
    dispatch: &'a Dispatcher,
    pid: u32,
    /// Whether the kernel makes the call on its own, so that the process does not wait for it.
    is_of_kernel: bool,
    name: Option<&'a OsStr>,
    to: Option<(Ino, &'a OsStr)>,
    range: Option<(u64, u64)>,
}

impl<'a> KernelCall<'a> {
    /// Builds a call of a process.
    pub(super) fn new(dispatch: &'a Dispatcher, pid: u32) -> KernelCall<'a> {
        KernelCall {
            dispatch,
            pid,
            is_of_kernel: false,
            name: None,
            to: None,
            range: None,
        }
    }

    /// Adds a name in the inode's directory.
    pub(super) fn about(self, name: &'a OsStr) -> KernelCall<'a> {
        let name = Some(name);
        KernelCall { name, ..self }
    }

    /// Adds the new name of a rename or link.
    pub(super) fn to(self, parent: Ino, name: &'a OsStr) -> KernelCall<'a> {
        let to = Some((parent, name));
        KernelCall { to, ..self }
    }

    /// Adds the range in the file: offset and length in bytes.
    pub(super) fn of_range(self, offset: u64, length: u64) -> KernelCall<'a> {
        let range = Some((offset, length));
        KernelCall { range, ..self }
    }

    /// Marks a call that the kernel makes on its own, in whichever process is running.
    pub(super) fn of_kernel(self) -> KernelCall<'a> {
        KernelCall {
            is_of_kernel: true,
            ..self
        }
    }

    /// Whether the mount is writable.
    pub(super) fn is_writable(self) -> bool {
        self.dispatch.is_writable()
    }

    /// Replies with the result of `execute`: at once if that need not wait, otherwise from a pool.
    pub(super) fn answer<T: Output>(
        &self,
        request: RequestInfo,
        reply: T::Reply,
        execute: impl Fn(&Vfs, &RequestContext) -> Result<T> + Send + 'static,
    ) {
        let find = |vfs: &Vfs| {
            let answer = execute(vfs, &WITHOUT_WAITING);
            is_answer(&answer).then_some(answer)
        };
        if let Some(reply) = self.try_answer(request, reply, find) {
            self.enqueue(request, reply, execute);
        }
    }

    /// Replies with the result of `find`, which must not wait. Returns the reply if `find` returns `None`.
    pub(super) fn try_answer<T: Output>(
        &self,
        request: RequestInfo,
        reply: T::Reply,
        find: impl FnOnce(&Vfs) -> Option<Result<T>>,
    ) -> Option<T::Reply> {
        let access = self.access_line(request);
        let responder = self.dispatch.responder();
        match catch_panic(|| find(&responder.vfs).transpose()).transpose() {
            Some(result) => {
                // The name is only used in error messages.
                let child = self.child().filter(|_| result.is_err());
                responder.send_reply(request.about(child), access, result, reply);
                None
            }
            None => Some(reply),
        }
    }

    /// Replies from a pool, as `Dispatcher::enqueue`.
    pub(super) fn enqueue<T: Output>(
        &self,
        request: RequestInfo,
        reply: T::Reply,
        execute: impl FnOnce(&Vfs, &RequestContext) -> Result<T> + Send + 'static,
    ) {
        let access = self.access_line(request);
        let caller = if self.is_of_kernel { 0 } else { self.pid };
        let named = request.about(self.child()).of_caller(caller, self.range);
        self.dispatch.enqueue(named, access, reply, execute);
    }

    /// Refuses a request at once.
    pub(super) fn refuse(&self, request: RequestInfo, reply: impl ReplyError, errno: i32) {
        let access = self.access_line(request);
        reply.refuse(errno);
        if let Some(access) = access {
            access.answered(Some(errno));
        }
    }

    /// Runs a request that has no reply or cannot fail, as `Dispatcher::run_unreplied`.
    pub(super) fn run_unreplied(&self, request: RequestInfo, work: impl FnOnce(&Vfs)) {
        let access = self.access_line(request);
        self.dispatch.run_unreplied(request.name, work);
        if let Some(access) = access {
            access.answered(None);
        }
    }

    fn child(&self) -> Option<&'a [u8]> {
        self.name.map(OsStr::as_bytes)
    }

    /// Begins the call's line of the access log, if the log is enabled.
    fn access_line(&self, request: RequestInfo) -> Option<AccessLine> {
        AccessLine::begin(|| {
            let vfs = &self.dispatch.responder().vfs;
            let path = vfs.shown_path(request.ino, self.child());
            let mut text = format!("{} path={path:?}", request.name);
            // Writing to a string cannot fail.
            if let Some((parent, name)) = self.to {
                let to = vfs.shown_path(parent, Some(name.as_bytes()));
                let _ = write!(text, " to={to:?}");
            }
            if let Some((offset, length)) = self.range {
                let _ = write!(text, " offset={offset} length={length}");
            }
            let _ = write!(text, " pid={}", self.pid);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::dispatch::tests::{
        Event, EventOutput, EventReply, LONG, dispatcher, request,
    };
    use super::*;

    #[test]
    fn what_is_in_memory_is_sent_at_once() {
        let dispatcher = dispatcher(LONG);
        let call = KernelCall::new(&dispatcher, 0);
        let (sender, events) = mpsc::channel();
        let find = |_: &Vfs| Some(Ok(EventOutput(sender.clone())));
        let reply = call.try_answer(request(), EventReply(sender.clone()), find);
        assert!(reply.is_none());
        assert_eq!(events.try_recv(), Ok(Event::Sent));
        let unknown = |_: &Vfs| None::<Result<EventOutput>>;
        let reply = call.try_answer(request(), EventReply(sender.clone()), unknown);
        assert!(reply.is_some());
    }
}
