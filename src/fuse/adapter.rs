//! fuser's trait over the dispatcher: what each call of the kernel asks of the vfs.
//!
//! Nothing here waits. Calls that are missing (locks, lseek, copying ranges) are answered ENOSYS by fuser; the kernel
//! then never sends them again and does the work itself.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::convert;
use super::convert::{LARGEST_REQUEST, fh, ino};
use super::directory::DirBuffer;
use super::dispatch::Dispatcher;
use super::reply::{InodeAttr, LinkTarget, OpenedDir, Output, Written};
use super::request::RequestInfo;
use super::xattr;
use crate::error::{Kind, Result};
use crate::store::tree::{AttrChange, Credentials, RenameMode};
use crate::vfs::{Caller, Ino, NewNode, Vfs};

/// Readahead requests in flight, and from how many on the kernel holds back.
const MAX_BACKGROUND: u16 = 128;
const CONGESTION: u16 = 96;

/// The kernel's requests of one mount.
pub(super) struct FuseAdapter {
    dispatch: Dispatcher,
}

impl FuseAdapter {
    /// Builds the adapter of one mount.
    pub(super) fn new(dispatch: Dispatcher) -> FuseAdapter {
        FuseAdapter { dispatch }
    }

    /// Queues a request about a name or attributes.
    fn enqueue_names<T: Output>(
        &self,
        name: &'static str,
        ino: Ino,
        reply: T::Reply,
        execute: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
    ) {
        self.dispatch
            .enqueue(RequestInfo::names(name, ino), reply, execute);
    }

    /// Queues a request that keeps what was written.
    fn enqueue_flush(
        &self,
        name: &'static str,
        ino: Ino,
        reply: ReplyEmpty,
        execute: impl FnOnce(&Vfs) -> Result<()> + Send + 'static,
    ) {
        self.dispatch
            .enqueue(RequestInfo::flush(name, ino), reply, execute);
    }

    /// Queues the making of a node under a name; `operation` is what the log calls it.
    fn enqueue_make(
        &self,
        (operation, node): (&'static str, NewNode),
        (parent, name): (INodeNo, &OsStr),
        credentials: Credentials,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        self.enqueue_names(operation, parent, reply, move |vfs| {
            vfs.make(parent, &name, &node, &credentials)
        });
    }
}

fn credentials(req: &Request, mode: u32) -> Credentials {
    Credentials {
        uid: req.uid(),
        gid: req.gid(),
        mode,
    }
}

impl Filesystem for FuseAdapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
        ];
        for flag in wanted {
            if config.add_capabilities(flag).is_err() {
                log::debug!("the kernel has no {flag:?}");
            }
        }
        let limits = [
            config.set_max_write(LARGEST_REQUEST).is_err(),
            config.set_max_background(MAX_BACKGROUND).is_err(),
            config.set_congestion_threshold(CONGESTION).is_err(),
        ];
        if limits.contains(&true) {
            log::warn!("the kernel refuses our limits; reads will be slower");
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name) = (ino(parent), name.as_bytes());
        let request = RequestInfo::names("lookup", parent);
        let find = |vfs: &Vfs| vfs.lookup_now(parent, name);
        if let Some(reply) = self.dispatch.try_now(request, reply, find) {
            let name = name.to_vec();
            self.dispatch
                .enqueue(request, reply, move |vfs| vfs.lookup(parent, &name));
        }
    }

    fn forget(&self, _req: &Request, inode: INodeNo, nlookup: u64) {
        self.dispatch
            .run_unreplied("forget", |vfs| vfs.forget(ino(inode), nlookup));
    }

    fn getattr(&self, req: &Request, inode: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let (ino, caller) = (ino(inode), Caller(req.pid()));
        let request = RequestInfo::names("getattr", ino);
        let shown = move |attr| InodeAttr(ino, attr);
        let find = |vfs: &Vfs| vfs.getattr_now(ino).map(|attr| attr.map(shown));
        if let Some(reply) = self.dispatch.try_now(request, reply, find) {
            self.dispatch.enqueue(request, reply, move |vfs| {
                vfs.getattr(ino, caller).map(shown)
            });
        }
    }

    fn readlink(&self, _req: &Request, inode: INodeNo, reply: ReplyData) {
        let ino = ino(inode);
        self.enqueue_names("readlink", ino, reply, move |vfs| {
            vfs.read_link(ino).map(LinkTarget)
        });
    }

    fn open(&self, req: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (ino, caller) = (ino(inode), Caller(req.pid()));
        let mode = convert::open_mode(flags);
        if mode.writes && !self.dispatch.is_writable() {
            return reply.error(Errno::from_i32(Kind::ReadOnly.errno()));
        }
        self.enqueue_names("open", ino, reply, move |vfs| {
            if mode.writes {
                vfs.open_for_writing(ino, mode, caller)
            } else {
                vfs.open(ino, caller)
            }
        });
    }

    fn read(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (fh, len) = (fh(handle), size as usize);
        let request = RequestInfo::contents("read", ino(inode));
        let find = |vfs: &Vfs| vfs.read_now(fh, offset, len);
        if let Some(reply) = self.dispatch.try_now(request, reply, find) {
            self.dispatch
                .enqueue(request, reply, move |vfs| vfs.read(fh, offset, len));
        }
    }

    fn release(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        if !self.dispatch.is_writable() {
            self.dispatch
                .run_unreplied("release", |vfs| vfs.release(fh));
            return reply.ok();
        }
        // What was written may have to be kept first.
        self.enqueue_flush("release", ino(inode), reply, move |vfs| {
            vfs.release(fh);
            Ok(())
        });
    }

    fn opendir(&self, req: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (ino, caller) = (ino(inode), Caller(req.pid()));
        self.enqueue_names("opendir", ino, reply, move |vfs| {
            vfs.opendir(ino, caller).map(OpenedDir)
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (ino, fh) = (ino(inode), fh(handle));
        self.enqueue_names("readdir", ino, reply, move |vfs| {
            DirBuffer::read(vfs, ino, fh, offset)
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.dispatch
            .run_unreplied("releasedir", |vfs| vfs.releasedir(fh(handle)));
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.enqueue_names("statfs", Ino::ROOT, reply, |vfs| {
            Ok(vfs.room()?.unwrap_or(convert::READ_ONLY_SPACE))
        });
    }

    fn setattr(
        &self,
        req: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = AttrChange {
            mode,
            uid,
            gid,
            size,
            accessed: atime.map(convert::time),
            modified: mtime.map(convert::time),
        };
        let (ino, fh, caller) = (ino(inode), handle.map(fh), Caller(req.pid()));
        self.enqueue_names("setattr", ino, reply, move |vfs| {
            let attr = vfs.set_attributes(ino, fh, &change, caller)?;
            Ok(InodeAttr(ino, attr))
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let operation = ("mknod", NewNode::Special);
        self.enqueue_make(operation, (parent, name), credentials(req, mode), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let operation = ("mkdir", NewNode::Folder);
        self.enqueue_make(operation, (parent, name), credentials(req, mode), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = NewNode::Link(target.as_os_str().as_bytes().to_vec());
        let (operation, name) = (("symlink", node), (parent, link_name));
        self.enqueue_make(operation, name, credentials(req, 0o777), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        self.enqueue_names("unlink", parent, reply, move |vfs| {
            vfs.unlink(parent, &name)
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        self.enqueue_names("rmdir", parent, reply, move |vfs| {
            vfs.remove_folder(parent, &name)
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = (ino(parent), ino(newparent));
        let (old, new) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        self.enqueue_names("rename", from, reply, move |vfs| {
            vfs.rename((from, &old), (to, &new), mode)
        });
    }

    fn link(
        &self,
        _req: &Request,
        inode: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (file, parent) = (ino(inode), ino(newparent));
        let name = newname.as_bytes().to_vec();
        self.enqueue_names("link", parent, reply, move |vfs| {
            vfs.link(file, parent, &name)
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        let credentials = credentials(req, mode);
        let (mode, caller) = (convert::open_mode(OpenFlags(flags)), Caller(req.pid()));
        self.enqueue_names("create", parent, reply, move |vfs| {
            vfs.create(parent, &name, &credentials, mode, caller)
        });
    }

    fn write(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let fh = fh(handle);
        let request = RequestInfo::contents("write", ino(inode));
        // A request has at most a megabyte.
        let written = Written(u32::try_from(data.len()).unwrap_or(u32::MAX));
        let write = |vfs: &Vfs| Some(vfs.write_now(fh, offset, data)?.map(|()| written));
        if let Some(reply) = self.dispatch.try_now(request, reply, write) {
            let data = data.to_vec();
            let are_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
            self.dispatch.enqueue(request, reply, move |vfs| {
                let done = if are_pages {
                    vfs.write_pages(fh, offset, &data)
                } else {
                    vfs.write(fh, offset, &data)
                };
                done.map(|()| written)
            });
        }
    }

    fn flush(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        self.enqueue_flush("flush", ino(inode), reply, move |vfs| vfs.flush(fh));
    }

    fn fsync(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        self.enqueue_flush("fsync", ino(inode), reply, move |vfs| vfs.sync(fh));
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let ino = ino(inode);
        self.enqueue_flush("fsyncdir", ino, reply, move |vfs| vfs.sync_folder(ino));
    }

    fn fallocate(
        &self,
        _req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        self.enqueue_flush("fallocate", ino(inode), reply, move |vfs| {
            vfs.allocate(fh, mode, (offset, length))
        });
    }

    fn getxattr(&self, _req: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        xattr::get(&self.dispatch, ino(inode), name, size, reply);
    }

    fn listxattr(&self, _req: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        xattr::list(&self.dispatch, ino(inode), size, reply);
    }

    fn setxattr(
        &self,
        _req: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        xattr::set(&self.dispatch, ino(inode), (name, value), flags, reply);
    }

    fn removexattr(&self, _req: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        xattr::remove(&self.dispatch, ino(inode), name, reply);
    }
}
