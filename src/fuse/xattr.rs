//! Answers requests about extended attributes.
//!
//! Only writable mounts store extended attributes. On read-only mounts listxattr is answered with ENOSYS, after which
//! the kernel never sends it again. All mounts also have attributes with facts, which listxattr omits.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, ReplyEmpty, ReplyXattr};

use super::dispatch::Dispatcher;
use super::reply::Output;
use super::request::KernelRequest;
use crate::vfs::Vfs;
use crate::view::FACT_PREFIX;
use zarrfs_store::tree::Setting;

/// The attribute with a file's capabilities, which the kernel reads before writes to the file. Mounts are `nosuid`, so
/// no file has capabilities.
const CAPABILITY: &str = "security.capability";

/// Whether zarrfs generates an extended attribute.
fn is_synthetic(name: &OsStr) -> bool {
    name.as_bytes().starts_with(FACT_PREFIX)
}

/// Whether an extended attribute can be stored. Access control lists are not, since they would not be enforced.
fn is_stored(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"system.") && !is_synthetic(name)
}

/// The value of an extended attribute, or the list of all names, for a program that has a buffer of `buffer` bytes; for
/// 0 bytes only the length is sent.
struct XattrValue {
    value: Vec<u8>,
    buffer: u32,
}

impl XattrValue {
    /// Returns the length of the value in bytes, which is at most 64 KiB.
    fn length(&self) -> u32 {
        u32::try_from(self.value.len()).unwrap_or(u32::MAX)
    }
}

impl Output for XattrValue {
    type Reply = ReplyXattr;

    fn send(self, reply: ReplyXattr, _vfs: &Vfs) {
        match self.length() {
            length if self.buffer == 0 => reply.size(length),
            length if length > self.buffer => reply.error(Errno::ERANGE),
            _ => reply.data(&self.value),
        }
    }

    fn errno(&self) -> Option<i32> {
        let is_too_long = self.buffer > 0 && self.length() > self.buffer;
        is_too_long.then_some(libc::ERANGE)
    }
}

/// A request about the extended attributes of an inode.
pub(super) struct XattrRequest<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) request: KernelRequest<'a>,
}

impl XattrRequest<'_> {
    /// Replies with the value of an attribute, for a program that has a buffer of `buffer` bytes.
    pub(super) fn get(self, name: &OsStr, buffer: u32, reply: ReplyXattr) {
        let errno = match name {
            _ if is_synthetic(name) => None,
            _ if !self.dispatcher.is_writable() => Some(libc::EOPNOTSUPP),
            _ if name == CAPABILITY => Some(libc::ENODATA),
            _ if !is_stored(name) => Some(libc::EOPNOTSUPP),
            _ => None,
        };
        if let Some(errno) = errno {
            return self.dispatcher.refuse(&self.request, reply, errno);
        }
        let (ino, is_synthetic) = (self.request.ino, is_synthetic(name));
        let name = name.as_bytes().to_vec();
        self.dispatcher
            .enqueue(self.request, reply, move |vfs, context| {
                let value = if is_synthetic {
                    vfs.view_attribute(context, ino, &name)?
                } else {
                    vfs.attribute(context, ino, &name)?
                };
                Ok(XattrValue { value, buffer })
            });
    }

    /// Replies with the names of all stored attributes, each with a zero byte at the end.
    pub(super) fn list(self, buffer: u32, reply: ReplyXattr) {
        if !self.dispatcher.is_writable() {
            return self.dispatcher.refuse(&self.request, reply, libc::ENOSYS);
        }
        let ino = self.request.ino;
        self.dispatcher
            .enqueue(self.request, reply, move |vfs, context| {
                let names = vfs.attributes(context, ino)?.into_iter();
                let stored = names.filter(|name| is_stored(OsStr::from_bytes(name)));
                let value = stored.flat_map(|name| [name.as_slice(), b"\0"].concat());
                Ok(XattrValue {
                    value: value.collect(),
                    buffer,
                })
            });
    }

    /// Sets an attribute, or removes it if `value` is `None`.
    pub(super) fn change(
        self,
        name: &OsStr,
        value: Option<Vec<u8>>,
        setting: Setting,
        reply: ReplyEmpty,
    ) {
        // On a read-only mount the vfs fails with EROFS.
        if self.dispatcher.is_writable() && (name == CAPABILITY || !is_stored(name)) {
            return self
                .dispatcher
                .refuse(&self.request, reply, libc::EOPNOTSUPP);
        }
        let (ino, name) = (self.request.ino, name.as_bytes().to_vec());
        self.dispatcher
            .enqueue(self.request, reply, move |vfs, context| {
                vfs.set_attribute(context, ino, &name, value.as_deref(), setting)
            });
    }
}
