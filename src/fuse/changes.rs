//! Requests that change names and attributes.
//!
//! Each runs in the pool of names. On a read-only mount the vfs refuses them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{
    INodeNo, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, Request,
};

use super::convert;
use super::kernel_call::KernelCall;
use super::reply::InodeAttr;
use super::request::RequestInfo;
use crate::vfs::{Caller, Fh, Ino, NewNode};
use zarr_format::error::Kind;
use zarrfs_store::tree::{AttrChange, Credentials, RenameMode};

/// A name in a directory.
pub(super) struct ChildOf<'a> {
    pub(super) parent: Ino,
    pub(super) name: &'a OsStr,
}

/// Returns a name in a directory.
pub(super) fn child(parent: INodeNo, name: &OsStr) -> ChildOf<'_> {
    ChildOf {
        parent: convert::ino(parent),
        name,
    }
}

/// Returns the owner and the mode of a new node.
pub(super) fn credentials(req: &Request, mode: u32) -> Credentials {
    Credentials {
        uid: req.uid(),
        gid: req.gid(),
        mode,
    }
}

/// Creates a node.
pub(super) fn make(
    call: KernelCall<'_>,
    node: NewNode,
    ChildOf { parent, name }: ChildOf<'_>,
    credentials: Credentials,
    reply: ReplyEntry,
) {
    let operation = match node {
        NewNode::File => "mknod",
        NewNode::Folder => "mkdir",
        NewNode::Link(_) => "symlink",
    };
    let name = name.as_bytes().to_vec();
    let request = RequestInfo::names(operation, parent);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.make(context, parent, &name, &node, &credentials)
    });
}

/// Creates a file and opens it.
pub(super) fn create(
    call: KernelCall<'_>,
    ChildOf { parent, name }: ChildOf<'_>,
    credentials: Credentials,
    flags: i32,
    caller: Caller,
    reply: ReplyCreate,
) {
    let name = name.as_bytes().to_vec();
    let mode = convert::open_mode(OpenFlags(flags));
    let request = RequestInfo::names("create", parent);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.create(context, parent, &name, &credentials, mode, caller)
    });
}

/// Creates a second file with the bytes of a file.
pub(super) fn link(
    call: KernelCall<'_>,
    file: Ino,
    ChildOf { parent, name }: ChildOf<'_>,
    reply: ReplyEntry,
) {
    let name = name.as_bytes().to_vec();
    let request = RequestInfo::names("link", parent);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.link(context, file, parent, &name)
    });
}

/// Removes the name of a file.
pub(super) fn unlink(call: KernelCall<'_>, parent: Ino, name: &OsStr, reply: ReplyEmpty) {
    let name = name.as_bytes().to_vec();
    let request = RequestInfo::names("unlink", parent);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.unlink(context, parent, &name)
    });
}

/// Removes an empty directory.
pub(super) fn remove_folder(call: KernelCall<'_>, parent: Ino, name: &OsStr, reply: ReplyEmpty) {
    let name = name.as_bytes().to_vec();
    let request = RequestInfo::names("rmdir", parent);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.remove_folder(context, parent, &name)
    });
}

/// Renames a node. Unsupported flags, such as RENAME_EXCHANGE, are EINVAL (rename(2)).
pub(super) fn rename(
    call: KernelCall<'_>,
    from: ChildOf<'_>,
    to: ChildOf<'_>,
    flags: RenameFlags,
    reply: ReplyEmpty,
) {
    let request = RequestInfo::names("rename", from.parent);
    let mode = match flags {
        flags if flags.is_empty() => RenameMode::Replace,
        RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
        _ => return call.refuse(request, reply, Kind::Invalid.errno()),
    };
    let (from, old) = (from.parent, from.name.as_bytes().to_vec());
    let (to, new) = (to.parent, to.name.as_bytes().to_vec());
    call.enqueue(request, reply, move |vfs, context| {
        vfs.rename(context, (from, &old), (to, &new), mode)
    });
}

/// Changes attributes of an inode, or of its open file.
pub(super) fn set_attributes(
    call: KernelCall<'_>,
    ino: Ino,
    fh: Option<Fh>,
    change: AttrChange,
    caller: Caller,
    reply: ReplyAttr,
) {
    let request = RequestInfo::names("setattr", ino);
    call.enqueue(request, reply, move |vfs, context| {
        let attr = vfs.set_attributes(context, ino, fh, &change, caller)?;
        Ok(InodeAttr(ino, attr))
    });
}
