//! Implements fuser's trait: maps kernel requests to operations of the vfs.
//!
//! Requests about names are in `names`, changes of names in `changes`, and requests about open files, except reads, in
//! `open_files`. No call here blocks. fuser answers the missing calls (locks, lseek, copy_file_range) with ENOSYS; then
//! the kernel never sends them again and does the work itself.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, FileHandle, Filesystem, INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::changes;
use super::changes::{child, credentials};
use super::convert;
use super::convert::{fh, ino};
use super::dispatch::Dispatcher;
use super::kernel_call::KernelCall;
use super::kernel_readahead::KernelReadahead;
use super::names;
use super::negotiation;
use super::open_files;
use super::passthrough::BackingFiles;
use super::request::RequestInfo;
use super::xattr;
use crate::vfs::{Caller, NewNode};
use zarrfs_store::tree::AttrChange;

/// The adapter of one mount.
pub(super) struct FuseAdapter {
    dispatch: Dispatcher,
    readahead: Arc<KernelReadahead>,
    backing: Arc<BackingFiles>,
}

impl FuseAdapter {
    /// Builds the adapter; each opened file is passed to `readahead` and `backing`.
    pub(super) fn new(
        dispatch: Dispatcher,
        readahead: Arc<KernelReadahead>,
        backing: BackingFiles,
    ) -> FuseAdapter {
        FuseAdapter {
            dispatch,
            readahead,
            backing: Arc::new(backing),
        }
    }

    /// Returns a call of the process that sent a request.
    fn call(&self, req: &Request) -> KernelCall<'_> {
        KernelCall::new(&self.dispatch, req.pid())
    }
}

impl Filesystem for FuseAdapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiation::ask_for(config);
        self.backing.ask_for(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        names::look_up(self.call(req), ino(parent), name, Caller(req.pid()), reply);
    }

    fn forget(&self, _req: &Request, inode: INodeNo, nlookup: u64) {
        self.dispatch
            .run_unreplied("forget", |vfs| vfs.forget(ino(inode), nlookup));
    }

    fn getattr(&self, req: &Request, inode: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        names::attributes(self.call(req), ino(inode), Caller(req.pid()), reply);
    }

    fn readlink(&self, req: &Request, inode: INodeNo, reply: ReplyData) {
        names::read_link(self.call(req), ino(inode), reply);
    }

    fn open(&self, req: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        open_files::open(
            self.call(req),
            self.readahead.clone(),
            self.backing.clone(),
            ino(inode),
            convert::open_mode(flags),
            Caller(req.pid()),
            reply,
        );
    }

    fn read(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let call = self.call(req).of_range(offset, u64::from(size));
        let request = RequestInfo::contents("read", ino(inode));
        let (fh, size) = (fh(handle), size as usize);
        call.answer(request, reply, move |vfs, context| {
            vfs.read(context, fh, offset, size)
        });
    }

    fn release(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.backing.release(ino(inode));
        open_files::release(self.call(req), ino(inode), fh(handle), reply);
    }

    fn opendir(&self, req: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        names::open_directory(self.call(req), ino(inode), Caller(req.pid()), reply);
    }

    fn readdir(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        names::read_directory(self.call(req), ino(inode), fh(handle), offset, reply);
    }

    fn releasedir(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        names::release_directory(self.call(req), ino(inode), fh(handle), reply);
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        names::room(self.call(req), reply);
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
        let (call, caller) = (self.call(req), Caller(req.pid()));
        changes::set_attributes(call, ino(inode), handle.map(fh), change, caller, reply);
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
        let call = self.call(req).about(name);
        if mode & libc::S_IFMT != libc::S_IFREG && call.is_writable() {
            // EPERM: the file system does not support the type of node, mknod(2).
            return call.refuse(RequestInfo::names("mknod", ino(parent)), reply, libc::EPERM);
        }
        let maker = credentials(req, mode);
        changes::make(call, NewNode::File, child(parent, name), maker, reply);
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
        let (call, maker) = (self.call(req).about(name), credentials(req, mode));
        changes::make(call, NewNode::Folder, child(parent, name), maker, reply);
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
        let (call, maker) = (self.call(req).about(link_name), credentials(req, 0o777));
        changes::make(call, node, child(parent, link_name), maker, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        changes::unlink(self.call(req).about(name), ino(parent), name, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        changes::remove_folder(self.call(req).about(name), ino(parent), name, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (child(parent, name), child(newparent, newname));
        let call = self.call(req).about(name).to(to.parent, newname);
        changes::rename(call, from, to, flags, reply);
    }

    fn link(
        &self,
        req: &Request,
        inode: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = child(newparent, newname);
        let call = self.call(req).to(name.parent, newname);
        changes::link(call, ino(inode), name, reply);
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
        let (call, maker) = (self.call(req).about(name), credentials(req, mode));
        changes::create(
            call,
            child(parent, name),
            maker,
            flags,
            Caller(req.pid()),
            reply,
        );
    }

    fn write(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let call = self.call(req).of_range(offset, data.len() as u64);
        open_files::write(
            call,
            ino(inode),
            fh(handle),
            offset,
            data,
            write_flags,
            reply,
        );
    }

    fn flush(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        open_files::keep(
            self.call(req),
            "flush",
            ino(inode),
            reply,
            move |vfs, context| vfs.flush(context, fh),
        );
    }

    fn fsync(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fh = fh(handle);
        open_files::keep(
            self.call(req),
            "fsync",
            ino(inode),
            reply,
            move |vfs, context| vfs.sync(context, fh),
        );
    }

    fn fsyncdir(
        &self,
        req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let ino = ino(inode);
        open_files::keep(
            self.call(req),
            "fsyncdir",
            ino,
            reply,
            move |vfs, context| vfs.sync_folder(context, ino),
        );
    }

    fn fallocate(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let call = self.call(req).of_range(offset, length);
        let fh = fh(handle);
        open_files::keep(call, "fallocate", ino(inode), reply, move |vfs, context| {
            vfs.allocate(context, fh, mode, offset, length)
        });
    }

    fn getxattr(&self, req: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        xattr::get(self.call(req), ino(inode), name, size, reply);
    }

    fn listxattr(&self, req: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        xattr::list(self.call(req), ino(inode), size, reply);
    }

    fn setxattr(
        &self,
        req: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        xattr::set(self.call(req), ino(inode), name, value, flags, reply);
    }

    fn removexattr(&self, req: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        xattr::remove(self.call(req), ino(inode), name, reply);
    }
}
