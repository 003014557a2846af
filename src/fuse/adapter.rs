//! fuser's trait over the desk: which request each call of the kernel is.
//!
//! Nothing here waits. What is missing (locks, lseek, copying ranges) is answered ENOSYS by fuser, and the kernel
//! never asks again, but does it itself.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};

use super::changes::{CAPABILITY, is_kept};
use super::convert::LARGEST_REQUEST;
use super::{FuseAdapter, changes, request};
use crate::error::Kind;
use crate::store::tree::{AttrChange, Credentials, RenameMode, Setting, Time};
use crate::vfs::{Fh, Ino, NewNode, Vfs};

/// Readahead requests in flight, and from how many on the kernel holds back.
const MAX_BACKGROUND: u16 = 128;
const CONGESTION: u16 = 96;

fn read_only() -> Errno {
    Errno::from_i32(Kind::ReadOnly.errno())
}

fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

fn fh(fh: FileHandle) -> Fh {
    Fh(fh.0)
}

impl Filesystem for FuseAdapter {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
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

    fn lookup(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.op(
            request::Lookup {
                parent: ino(parent),
                name: name.to_os_string(),
            },
            reply,
        );
    }

    fn forget(&self, _req: &fuser::Request, inode: INodeNo, nlookup: u64) {
        self.put_back("forget", |vfs| vfs.forget(ino(inode), nlookup));
    }

    fn getattr(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.op(request::GetAttr { ino: ino(inode) }, reply);
    }

    fn readlink(&self, _req: &fuser::Request, inode: INodeNo, reply: ReplyData) {
        self.op(request::ReadLink { ino: ino(inode) }, reply);
    }

    fn open(&self, _req: &fuser::Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        let truncates = flags.0 & libc::O_TRUNC != 0;
        if (writes || truncates) && !self.is_writable() {
            return reply.error(read_only());
        }
        let request = request::OpenRequest {
            ino: ino(inode),
            writes: (writes || truncates).then_some(truncates),
        };
        self.op(request, reply);
    }

    fn read(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = size as usize;
        self.op(
            request::Read {
                ino: ino(inode),
                fh: fh(handle),
                offset,
                len,
            },
            reply,
        );
    }

    fn release(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match self.is_writable() {
            // What was written may have to be kept first.
            true => self.keep("release", ino(inode), reply, move |vfs| {
                vfs.release(fh(handle));
                Ok(())
            }),
            false => {
                self.put_back("release", |vfs| vfs.release(fh(handle)));
                reply.ok();
            }
        }
    }

    fn opendir(&self, _req: &fuser::Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.op(request::OpenDir { ino: ino(inode) }, reply);
    }

    fn readdir(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.op(
            request::ReadDir {
                ino: ino(inode),
                fh: fh(handle),
                cursor: offset,
            },
            reply,
        );
    }

    fn releasedir(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.put_back("releasedir", |vfs| vfs.releasedir(fh(handle)));
        reply.ok();
    }

    fn statfs(&self, _req: &fuser::Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.op(changes::StatFs, reply);
    }

    fn setattr(
        &self,
        _req: &fuser::Request,
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
            accessed: atime.map(time),
            modified: mtime.map(time),
        };
        let request = changes::SetAttr {
            ino: ino(inode),
            fh: handle.map(fh),
            change,
        };
        self.op(request, reply);
    }

    fn mknod(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        self.make(
            "mknod",
            ino(parent),
            name,
            NewNode::Special,
            maker(req, mode),
            reply,
        );
    }

    fn mkdir(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(
            "mkdir",
            ino(parent),
            name,
            NewNode::Folder,
            maker(req, mode),
            reply,
        );
    }

    fn symlink(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = NewNode::Link(target.as_os_str().as_bytes().to_vec());
        self.make(
            "symlink",
            ino(parent),
            link_name,
            node,
            maker(req, 0o777),
            reply,
        );
    }

    fn unlink(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let parent = ino(parent);
        self.change("unlink", parent, reply, move |vfs| {
            vfs.unlink(parent, &name)
        });
    }

    fn rmdir(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let parent = ino(parent);
        self.change("rmdir", parent, reply, move |vfs| {
            vfs.remove_folder(parent, &name)
        });
    }

    fn rename(
        &self,
        _req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let onto = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::Nothing,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = (ino(parent), ino(newparent));
        let (old, new) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        self.change("rename", from, reply, move |vfs| {
            vfs.rename((from, &old), (to, &new), onto)
        });
    }

    fn link(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (file, parent) = (ino(inode), ino(newparent));
        let name = newname.as_bytes().to_vec();
        let request = changes::EntryRequest {
            name: "link",
            parent,
            work: move |vfs: &Vfs| vfs.link(file, parent, &name),
        };
        self.op(request, reply);
    }

    fn create(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let request = changes::Create {
            parent: ino(parent),
            name: name.as_bytes().to_vec(),
            maker: maker(req, mode),
        };
        self.op(request, reply);
    }

    fn write(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.write_at(ino(inode), fh(handle), offset, data, reply);
    }

    fn flush(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.keep("flush", ino(inode), reply, move |vfs| vfs.flush(fh(handle)));
    }

    fn fsync(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.keep("fsync", ino(inode), reply, move |vfs| vfs.sync(fh(handle)));
    }

    fn fsyncdir(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.keep("fsyncdir", ino(inode), reply, move |vfs| {
            vfs.sync_folder(ino(inode))
        });
    }

    fn fallocate(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.keep("fallocate", ino(inode), reply, move |vfs| {
            vfs.allocate(fh(handle), mode, (offset, length))
        });
    }

    fn getxattr(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        match is_kept(name) {
            // The kernel does not ask again.
            _ if !self.is_writable() => return reply.error(Errno::ENOSYS),
            // It asks this before each write.
            _ if name == CAPABILITY => return reply.error(Errno::ENODATA),
            false => return reply.error(Errno::EOPNOTSUPP),
            true => {}
        }
        let (file, name) = (ino(inode), name.as_bytes().to_vec());
        let work = move |vfs: &Vfs| vfs.attribute(file, &name);
        let ino = file;
        self.op(changes::XattrRequest { ino, size, work }, reply);
    }

    fn listxattr(&self, _req: &fuser::Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.is_writable() {
            return reply.error(Errno::ENOSYS);
        }
        let ino = ino(inode);
        let work = move |vfs: &Vfs| {
            let names = vfs.attributes(ino)?;
            let kept = names.iter().filter(|name| is_kept(OsStr::from_bytes(name)));
            Ok(kept
                .flat_map(|name| [name.as_slice(), b"\0"].concat())
                .collect())
        };
        self.op(changes::XattrRequest { ino, size, work }, reply);
    }

    fn setxattr(
        &self,
        _req: &fuser::Request,
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
        self.set_attribute(ino(inode), name, Some(value.to_vec()), setting, reply);
    }

    fn removexattr(&self, _req: &fuser::Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.set_attribute(ino(inode), name, None, Setting::Any, reply);
    }
}

fn maker(req: &fuser::Request, mode: u32) -> Credentials {
    Credentials {
        uid: req.uid(),
        gid: req.gid(),
        mode,
    }
}

fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => Time::At(time),
        TimeOrNow::Now => Time::Now,
    }
}
