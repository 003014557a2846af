//! Implements fuser's trait: maps kernel requests to operations of the vfs.
//!
//! No call here blocks. fuser answers the requests that are not implemented (locks, lseek, copy_file_range) with
//! ENOSYS; then the kernel never sends them again and does the work itself.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::convert;
use super::directory::DirBuffer;
use super::dispatch::Dispatcher;
use super::kernel_readahead::KernelReadahead;
use super::passthrough::{BackingFiles, FileOpening};
use super::reply::{InodeAttr, LinkTarget, OpenedDir, Written};
use super::request::KernelRequest;
use super::request::RequestClass::{Contents, Flush, Names};
use super::xattr::XattrRequest;
use crate::vfs::{Caller, Fh, Ino, NameIn, NewNode};
use zarr_format::error::Kind;
use zarrfs_store::tree::{AttrChange, Credentials, RenameMode, Setting};

pub(super) struct FuseAdapter {
    dispatcher: Dispatcher,
    readahead: Arc<KernelReadahead>,
    backing: Arc<BackingFiles>,
}

impl FuseAdapter {
    pub(super) fn new(
        dispatcher: Dispatcher,
        readahead: Arc<KernelReadahead>,
        backing: BackingFiles,
    ) -> FuseAdapter {
        FuseAdapter {
            dispatcher,
            readahead,
            backing: Arc::new(backing),
        }
    }

    fn make(
        &self,
        request: KernelRequest<'_>,
        maker: Credentials,
        node: NewNode,
        reply: ReplyEntry,
    ) {
        let parent = request.ino;
        let name = request.name.as_deref().unwrap_or_default().to_vec();
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.make(context, parent, &name, &node, &maker)
            });
    }

    fn xattr<'a>(
        &'a self,
        operation: &'static str,
        inode: INodeNo,
        req: &Request,
    ) -> XattrRequest<'a> {
        XattrRequest {
            dispatcher: &self.dispatcher,
            request: KernelRequest::new(Names, operation, Ino(inode.0), req.pid()),
        }
    }
}

/// Returns the owner and the mode that a request gives to a new file or directory.
fn credentials(req: &Request, mode: u32) -> Credentials {
    Credentials {
        uid: req.uid(),
        gid: req.gid(),
        mode,
    }
}

impl Filesystem for FuseAdapter {
    /// Requests capabilities and limits from the kernel; a mount also works without them.
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // FUSE_AUTO_INVAL_DATA is left out, because it drops pages of files that are open for writing (vfs/pages.rs).
        for flag in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            // FUSE_HANDLE_KILLPRIV_V2: the kernel need not check set-ID bits and capabilities before each write, as no
            // file has any.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            if config.add_capabilities(flag).is_err() {
                log::debug!("the kernel has no {flag:?}");
            }
        }
        let limits = [
            config.set_max_write(convert::LARGEST_REQUEST).is_err(),
            // Maximum number of read-ahead requests that the kernel sends at a time, and the number from which it
            // throttles them.
            config.set_max_background(128).is_err(),
            config.set_congestion_threshold(96).is_err(),
        ];
        if limits.contains(&true) {
            log::warn!("the kernel rejects the limits of zarrfs; reads will be slower");
        }
        self.backing.negotiate(config);
        Ok(())
    }

    /// If the result is in memory, the event loop replies, otherwise a thread of a pool.
    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, caller) = (Ino(parent.0), Caller(req.pid()));
        let name = name.as_bytes();
        let request = KernelRequest::new(Names, "lookup", parent, req.pid()).with_name(name);
        self.dispatcher
            .answer(request, reply, name, move |vfs, context, name| {
                vfs.lookup(context, parent, name, caller)
            });
    }

    fn forget(&self, _req: &Request, inode: INodeNo, nlookup: u64) {
        self.dispatcher.forget(Ino(inode.0), nlookup);
    }

    fn getattr(&self, req: &Request, inode: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let (ino, caller) = (Ino(inode.0), Caller(req.pid()));
        let request = KernelRequest::new(Names, "getattr", ino, req.pid());
        self.dispatcher
            .answer(request, reply, &(), move |vfs, context, ()| {
                let attr = vfs.getattr(context, ino, caller)?;
                Ok(InodeAttr(ino, attr))
            });
    }

    fn readlink(&self, req: &Request, inode: INodeNo, reply: ReplyData) {
        let ino = Ino(inode.0);
        let request = KernelRequest::new(Names, "readlink", ino, req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.read_link(context, ino).map(LinkTarget)
            });
    }

    /// Opens a file and, before the reply, sets the kernel's read-ahead for it. On a read-only mount an open for
    /// writing fails at once.
    fn open(&self, req: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (ino, caller) = (Ino(inode.0), Caller(req.pid()));
        let mode = convert::open_mode(flags);
        let request = KernelRequest::new(Names, "open", ino, req.pid());
        if mode.writes && !self.dispatcher.is_writable() {
            let errno = Kind::ReadOnly.errno();
            return self.dispatcher.refuse(&request, reply, errno);
        }
        let (readahead, backing) = (self.readahead.clone(), self.backing.clone());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                let opened = if mode.writes {
                    vfs.open_for_writing(context, ino, mode, caller)?
                } else {
                    vfs.open(context, ino, caller)?
                };
                readahead.set(opened.expects_sequential);
                Ok(FileOpening {
                    ino,
                    opened,
                    backing,
                })
            });
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
        let fh = Fh(handle.0);
        let request = KernelRequest {
            range: Some(offset..offset.saturating_add(u64::from(size))),
            ..KernelRequest::new(Contents, "read", Ino(inode.0), req.pid())
        };
        self.dispatcher
            .answer(request, reply, &(), move |vfs, context, ()| {
                vfs.read(context, fh, offset, size as usize)
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
        let (ino, fh) = (Ino(inode.0), Fh(handle.0));
        self.backing.release(ino);
        if self.dispatcher.is_writable() {
            // A release may have to flush dirty data, so it runs in a pool.
            let request = KernelRequest::new(Flush, "release", ino, req.pid());
            return self
                .dispatcher
                .enqueue(request, reply, move |vfs, context| {
                    vfs.release(context, fh);
                    Ok(())
                });
        }
        let request = KernelRequest::new(Contents, "release", ino, req.pid());
        self.dispatcher
            .answer(request, reply, &(), move |vfs, context, ()| {
                vfs.release(context, fh);
                Ok(())
            });
    }

    fn opendir(&self, req: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (ino, caller) = (Ino(inode.0), Caller(req.pid()));
        let request = KernelRequest::new(Names, "opendir", ino, req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.opendir(context, ino, caller).map(OpenedDir)
            });
    }

    fn readdir(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (ino, fh) = (Ino(inode.0), Fh(handle.0));
        let request = KernelRequest::new(Names, "readdir", ino, req.pid());
        self.dispatcher
            .answer(request, reply, &(), move |vfs, context, ()| {
                DirBuffer::read(vfs, context, ino, fh, offset)
            });
    }

    fn releasedir(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(handle.0);
        let request = KernelRequest::new(Names, "releasedir", Ino(inode.0), req.pid());
        self.dispatcher
            .answer(request, reply, &(), move |vfs, _, ()| {
                vfs.releasedir(fh);
                Ok(())
            });
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let request = KernelRequest::new(Names, "statfs", Ino::ROOT, req.pid());
        self.dispatcher.enqueue(request, reply, |vfs, context| {
            let space = vfs.free_space(context)?;
            Ok(space.unwrap_or_else(convert::read_only_space))
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
        let (ino, caller) = (Ino(inode.0), Caller(req.pid()));
        let fh = handle.map(|handle| Fh(handle.0));
        let request = KernelRequest::new(Names, "setattr", ino, req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                let attr = vfs.set_attributes(context, ino, fh, &change, caller)?;
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
        let request =
            KernelRequest::new(Names, "mknod", Ino(parent.0), req.pid()).with_name(name.as_bytes());
        if mode & libc::S_IFMT != libc::S_IFREG && self.dispatcher.is_writable() {
            // mknod(2): EPERM means that the file system does not support this type of node.
            return self.dispatcher.refuse(&request, reply, libc::EPERM);
        }
        self.make(request, credentials(req, mode), NewNode::File, reply);
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
        let request =
            KernelRequest::new(Names, "mkdir", Ino(parent.0), req.pid()).with_name(name.as_bytes());
        self.make(request, credentials(req, mode), NewNode::Folder, reply);
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
        let request = KernelRequest::new(Names, "symlink", Ino(parent.0), req.pid())
            .with_name(link_name.as_bytes());
        self.make(request, credentials(req, 0o777), node, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent.0), name.as_bytes());
        let request = KernelRequest::new(Names, "unlink", parent, req.pid()).with_name(name);
        let name = name.to_vec();
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.unlink(context, parent, &name)
            });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent.0), name.as_bytes());
        let request = KernelRequest::new(Names, "rmdir", parent, req.pid()).with_name(name);
        let name = name.to_vec();
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.remove_folder(context, parent, &name)
            });
    }

    /// Renames a name. Flags that are not supported, such as RENAME_EXCHANGE, fail with EINVAL (rename(2)).
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
        let (from, to) = (Ino(parent.0), Ino(newparent.0));
        let (old, new) = (name.as_bytes(), newname.as_bytes());
        let request = KernelRequest::new(Names, "rename", from, req.pid())
            .with_name(old)
            .with_destination(NameIn::new(to, new));
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            _ => {
                let errno = Kind::Invalid.errno();
                return self.dispatcher.refuse(&request, reply, errno);
            }
        };
        let (old, new) = (old.to_vec(), new.to_vec());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                let (from, to) = (NameIn::new(from, &old), NameIn::new(to, &new));
                vfs.rename(context, from, to, mode)
            });
    }

    /// Creates a copy of a file, since a store has no hard links.
    fn link(
        &self,
        req: &Request,
        inode: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (file, parent, name) = (Ino(inode.0), Ino(newparent.0), newname.as_bytes());
        let request = KernelRequest::new(Names, "link", parent, req.pid())
            .with_destination(NameIn::new(parent, name));
        let name = name.to_vec();
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.link(context, file, parent, &name)
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
        let (parent, name, caller) = (Ino(parent.0), name.as_bytes(), Caller(req.pid()));
        let maker = credentials(req, mode);
        let mode = convert::open_mode(OpenFlags(flags));
        let request = KernelRequest::new(Names, "create", parent, req.pid()).with_name(name);
        let name = name.to_vec();
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.create(context, parent, &name, &maker, mode, caller)
            });
    }

    /// If the write need not wait, the event loop executes it, otherwise a thread of a pool.
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
        let fh = Fh(handle.0);
        // The kernel writes dirty mmap pages back later, in any process: the signals of that process must not interrupt
        // the write.
        let are_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let request = KernelRequest {
            range: Some(offset..offset.saturating_add(data.len() as u64)),
            caller: if are_pages { 0 } else { req.pid() },
            ..KernelRequest::new(Contents, "write", Ino(inode.0), req.pid())
        };
        self.dispatcher
            .answer(request, reply, data, move |vfs, context, data| {
                if are_pages {
                    vfs.write_pages(context, fh, offset, data)?;
                } else {
                    vfs.write(context, fh, offset, data)?;
                }
                // A write request has at most 1 MiB, so the conversion cannot fail.
                Ok(Written(u32::try_from(data.len()).unwrap_or(u32::MAX)))
            });
    }

    fn flush(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(handle.0);
        let request = KernelRequest::new(Flush, "flush", Ino(inode.0), req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| vfs.flush(context, fh));
    }

    fn fsync(
        &self,
        req: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(handle.0);
        let request = KernelRequest::new(Flush, "fsync", Ino(inode.0), req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| vfs.sync(context, fh));
    }

    fn fsyncdir(
        &self,
        req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let ino = Ino(inode.0);
        let request = KernelRequest::new(Flush, "fsyncdir", ino, req.pid());
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.sync_folder(context, ino)
            });
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
        let fh = Fh(handle.0);
        let request = KernelRequest {
            range: Some(offset..offset.saturating_add(length)),
            ..KernelRequest::new(Flush, "fallocate", Ino(inode.0), req.pid())
        };
        self.dispatcher
            .enqueue(request, reply, move |vfs, context| {
                vfs.allocate(context, fh, mode, offset, length)
            });
    }

    fn getxattr(&self, req: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.xattr("getxattr", inode, req).get(name, size, reply);
    }

    fn listxattr(&self, req: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.xattr("listxattr", inode, req).list(size, reply);
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
        let setting = match flags {
            libc::XATTR_CREATE => Setting::Create,
            libc::XATTR_REPLACE => Setting::Replace,
            _ => Setting::Any,
        };
        let value = Some(value.to_vec());
        self.xattr("setxattr", inode, req)
            .change(name, value, setting, reply);
    }

    fn removexattr(&self, req: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.xattr("removexattr", inode, req)
            .change(name, None, Setting::Any, reply);
    }
}
