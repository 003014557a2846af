//! Read-only requests about names and directories.
//!
//! The event loop answers from memory; other requests run in the pool of names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs};

use super::convert;
use super::directory::DirBuffer;
use super::kernel_call::KernelCall;
use super::reply::{InodeAttr, LinkTarget, OpenedDir};
use super::request::RequestInfo;
use crate::vfs::{Caller, Fh, Ino};

/// Looks up a name in a directory.
pub(super) fn look_up(
    call: KernelCall<'_>,
    parent: Ino,
    name: &OsStr,
    caller: Caller,
    reply: ReplyEntry,
) {
    let request = RequestInfo::names("lookup", parent);
    let (call, name) = (call.about(name), name.as_bytes().to_vec());
    call.answer(request, reply, move |vfs, context| {
        vfs.lookup(context, parent, &name, caller)
    });
}

/// Returns the attributes of an inode.
pub(super) fn attributes(call: KernelCall<'_>, ino: Ino, caller: Caller, reply: ReplyAttr) {
    let request = RequestInfo::names("getattr", ino);
    call.answer(request, reply, move |vfs, context| {
        let attr = vfs.getattr(context, ino, caller)?;
        Ok(InodeAttr(ino, attr))
    });
}

/// Returns the target of a link.
pub(super) fn read_link(call: KernelCall<'_>, ino: Ino, reply: ReplyData) {
    let request = RequestInfo::names("readlink", ino);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.read_link(context, ino).map(LinkTarget)
    });
}

/// Opens a directory.
pub(super) fn open_directory(call: KernelCall<'_>, ino: Ino, caller: Caller, reply: ReplyOpen) {
    let request = RequestInfo::names("opendir", ino);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.opendir(context, ino, caller).map(OpenedDir)
    });
}

/// Reads the names of an open directory after a cursor.
pub(super) fn read_directory(
    call: KernelCall<'_>,
    ino: Ino,
    fh: Fh,
    cursor: u64,
    reply: ReplyDirectory,
) {
    let request = RequestInfo::names("readdir", ino);
    call.answer(request, reply, move |vfs, context| {
        DirBuffer::read(vfs, context, ino, fh, cursor)
    });
}

/// Closes an open directory.
pub(super) fn release_directory(call: KernelCall<'_>, ino: Ino, fh: Fh, reply: ReplyEmpty) {
    let request = RequestInfo::names("releasedir", ino);
    call.run_unreplied(request, |vfs| vfs.releasedir(fh));
    reply.ok();
}

/// Returns the free space.
pub(super) fn room(call: KernelCall<'_>, reply: ReplyStatfs) {
    let request = RequestInfo::names("statfs", Ino::ROOT);
    call.enqueue(request, reply, |vfs, context| {
        Ok(vfs.room(context)?.unwrap_or(convert::READ_ONLY_SPACE))
    });
}
