//! Requests about extended attributes.
//!
//! Only writable mounts keep any; on read-only mounts listxattr is answered with ENOSYS, after which the kernel never
//! sends it again. Each mount has the attributes that the view synthesizes, which listxattr omits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, ReplyEmpty, ReplyXattr};

use super::kernel_call::KernelCall;
use super::reply::Output;
use super::request::RequestInfo;
use crate::vfs::{Ino, Vfs};
use crate::view::FACTS;
use zarrfs_store::tree::Setting;

/// The attribute of a file's capabilities, which the kernel reads before the first write to a file, older kernels
/// before each write. A mount is `nosuid`, so there are none.
const CAPABILITY: &str = "security.capability";

/// Whether the view synthesizes an extended attribute.
fn is_made(name: &OsStr) -> bool {
    name.as_bytes().starts_with(FACTS)
}

/// Whether an extended attribute is kept. Access control lists are not, since they would not be enforced.
fn is_kept(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"system.") && !is_made(name)
}

/// The value of an attribute, or the list of names, for a caller's buffer of `room` bytes; 0 requests only the length.
struct XattrValue {
    value: Vec<u8>,
    room: u32,
}

impl XattrValue {
    /// Returns its length in bytes; no value is longer than 64 KiB.
    fn length(&self) -> u32 {
        u32::try_from(self.value.len()).unwrap_or(u32::MAX)
    }
}

impl Output for XattrValue {
    type Reply = ReplyXattr;

    fn send(self, reply: ReplyXattr, _vfs: &Vfs) {
        match self.length() {
            length if self.room == 0 => reply.size(length),
            length if length > self.room => reply.error(Errno::ERANGE),
            _ => reply.data(&self.value),
        }
    }

    fn errno(&self) -> Option<i32> {
        let is_too_long = self.room > 0 && self.length() > self.room;
        is_too_long.then_some(libc::ERANGE)
    }
}

/// Replies with the value of an attribute.
pub(super) fn get(call: KernelCall<'_>, ino: Ino, name: &OsStr, room: u32, reply: ReplyXattr) {
    if is_made(name) {
        return get_made(call, ino, name, room, reply);
    }
    let request = RequestInfo::names("getxattr", ino);
    if !call.is_writable() {
        return call.refuse(request, reply, libc::EOPNOTSUPP);
    }
    if name == CAPABILITY {
        return call.refuse(request, reply, libc::ENODATA);
    }
    if !is_kept(name) {
        return call.refuse(request, reply, libc::EOPNOTSUPP);
    }
    let name = name.as_bytes().to_vec();
    call.enqueue(request, reply, move |vfs, context| {
        let value = vfs.attribute(context, ino, &name)?;
        Ok(XattrValue { value, room })
    });
}

fn get_made(call: KernelCall<'_>, ino: Ino, name: &OsStr, room: u32, reply: ReplyXattr) {
    let name = name.as_bytes().to_vec();
    let request = RequestInfo::names("getxattr", ino);
    call.enqueue(request, reply, move |vfs, context| {
        let value = vfs.view_attribute(context, ino, &name)?;
        Ok(XattrValue { value, room })
    });
}

/// Replies with the names of all attributes, each with a terminating zero byte.
pub(super) fn list(call: KernelCall<'_>, ino: Ino, room: u32, reply: ReplyXattr) {
    let request = RequestInfo::names("listxattr", ino);
    if !call.is_writable() {
        return call.refuse(request, reply, libc::ENOSYS);
    }
    call.enqueue(request, reply, move |vfs, context| {
        let names = vfs.attributes(context, ino)?;
        let kept = names.iter().filter(|name| is_kept(OsStr::from_bytes(name)));
        let value = kept.flat_map(|name| [name.as_slice(), b"\0"].concat());
        Ok(XattrValue {
            value: value.collect(),
            room,
        })
    });
}

/// Sets an attribute; `flags` as in setxattr(2).
pub(super) fn set(
    call: KernelCall<'_>,
    ino: Ino,
    name: &OsStr,
    value: &[u8],
    flags: i32,
    reply: ReplyEmpty,
) {
    let setting = match flags {
        libc::XATTR_CREATE => Setting::Create,
        libc::XATTR_REPLACE => Setting::Replace,
        _ => Setting::Any,
    };
    let request = RequestInfo::names("setxattr", ino);
    change(call, request, name, Some(value), setting, reply);
}

/// Removes an attribute.
pub(super) fn remove(call: KernelCall<'_>, ino: Ino, name: &OsStr, reply: ReplyEmpty) {
    let request = RequestInfo::names("removexattr", ino);
    change(call, request, name, None, Setting::Any, reply);
}

fn change(
    call: KernelCall<'_>,
    request: RequestInfo,
    name: &OsStr,
    value: Option<&[u8]>,
    setting: Setting,
    reply: ReplyEmpty,
) {
    // On a read-only mount the vfs refuses, with EROFS.
    if call.is_writable() && (name == CAPABILITY || !is_kept(name)) {
        return call.refuse(request, reply, libc::EOPNOTSUPP);
    }
    let (ino, name) = (request.ino, name.as_bytes().to_vec());
    let value = value.map(<[u8]>::to_vec);
    call.enqueue(request, reply, move |vfs, context| {
        vfs.set_attribute(context, ino, &name, value.as_deref(), setting)
    });
}
