//! Requests about open files, from open to release, except reads (`adapter`).
//!
//! Writes are answered in the event loop if they do not have to wait. A request that stores a whole file has no
//! deadline.

use std::sync::Arc;

use fuser::{ReplyEmpty, ReplyOpen, ReplyWrite, WriteFlags};

use super::kernel_call::KernelCall;
use super::kernel_readahead::KernelReadahead;
use super::passthrough::{BackingFiles, FileOpening};
use super::reply::Written;
use super::request::RequestInfo;
use crate::vfs::{Caller, Fh, Ino, OpenOptions, Vfs};
use zarr_format::error::{Kind, Result};
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING, is_answer};

/// Opens a file, and sets its read-ahead before the reply; an open for writing on a read-only mount is refused at once.
pub(super) fn open(
    call: KernelCall<'_>,
    readahead: Arc<KernelReadahead>,
    backing: Arc<BackingFiles>,
    ino: Ino,
    mode: OpenOptions,
    caller: Caller,
    reply: ReplyOpen,
) {
    let request = RequestInfo::names("open", ino);
    if mode.writes && !call.is_writable() {
        return call.refuse(request, reply, Kind::ReadOnly.errno());
    }
    call.enqueue(request, reply, move |vfs, context| {
        let opened = if mode.writes {
            vfs.open_for_writing(context, ino, mode, caller)?
        } else {
            vfs.open(context, ino, caller)?
        };
        readahead.set(opened.reads_on);
        Ok(FileOpening {
            ino,
            opened,
            backing,
        })
    });
}

/// Writes bytes at an offset. They are whole pages if the kernel writes an mmap back.
pub(super) fn write(
    call: KernelCall<'_>,
    ino: Ino,
    fh: Fh,
    offset: u64,
    bytes: &[u8],
    flags: WriteFlags,
    reply: ReplyWrite,
) {
    let request = RequestInfo::contents("write", ino);
    // A request has at most 1 MiB.
    let written = Written(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let are_pages = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
    let call = if are_pages { call.of_kernel() } else { call };
    let write = move |vfs: &Vfs, context: &RequestContext, bytes: &[u8]| {
        let done = if are_pages {
            vfs.write_pages(context, fh, offset, bytes)
        } else {
            vfs.write(context, fh, offset, bytes)
        };
        done.map(|()| written)
    };
    let in_memory = |vfs: &Vfs| {
        let done = write(vfs, &WITHOUT_WAITING, bytes);
        is_answer(&done).then_some(done)
    };
    if let Some(reply) = call.try_answer(request, reply, in_memory) {
        let bytes = bytes.to_vec();
        call.enqueue(request, reply, move |vfs, context| {
            write(vfs, context, &bytes)
        });
    }
}

/// Runs `execute`, which flushes or syncs writes; the log calls it `operation`.
pub(super) fn keep(
    call: KernelCall<'_>,
    operation: &'static str,
    ino: Ino,
    reply: ReplyEmpty,
    execute: impl FnOnce(&Vfs, &RequestContext) -> Result<()> + Send + 'static,
) {
    call.enqueue(RequestInfo::flush(operation, ino), reply, execute);
}

/// Releases a handle.
pub(super) fn release(call: KernelCall<'_>, ino: Ino, fh: Fh, reply: ReplyEmpty) {
    if !call.is_writable() {
        let request = RequestInfo::contents("release", ino);
        call.run_unreplied(request, |vfs| vfs.release(&UNLIMITED, fh));
        return reply.ok();
    }
    // Dirty data may have to be flushed first.
    keep(call, "release", ino, reply, move |vfs, context| {
        vfs.release(context, fh);
        Ok(())
    });
}
