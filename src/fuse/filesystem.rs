//! fuser's trait over the desk: the requests that are answered, and those that a read-only mount refuses.
//!
//! Nothing here waits. What is missing (reading attributes of the extended kind, locks, lseek, flush, fsync) is
//! answered ENOSYS by fuser, and the kernel never asks again; that answer would be wrong for changes, which
//! the kernel must hear of as EROFS.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use fuser::BsdFileFlags;
use fuser::Errno;
use fuser::FileHandle;
use fuser::Filesystem;
use fuser::INodeNo;
use fuser::InitFlags;
use fuser::KernelConfig;
use fuser::LockOwner;
use fuser::OpenAccMode;
use fuser::OpenFlags;
use fuser::RenameFlags;
use fuser::ReplyAttr;
use fuser::ReplyCreate;
use fuser::ReplyData;
use fuser::ReplyDirectory;
use fuser::ReplyEmpty;
use fuser::ReplyEntry;
use fuser::ReplyOpen;
use fuser::ReplyStatfs;
use fuser::ReplyWrite;
use fuser::TimeOrNow;
use fuser::WriteFlags;

use super::Desk;
use super::attr::LARGEST_REQUEST;
use super::request;
use crate::error::Kind;
use crate::vfs::Fh;
use crate::vfs::Ino;

/// Readahead requests in flight, and from how many on the kernel holds back.
const MAX_BACKGROUND: u16 = 128;
const CONGESTION: u16 = 96;

/// What `df` shows: a petabyte in blocks of a page, none of it free.
const SHOWN_BLOCKS: u64 = 1 << 38;
const SHOWN_FILES: u64 = 1 << 32;
const SHOWN_BLOCK_BYTES: u32 = 4096;
const LONGEST_NAME: u32 = 255;

fn read_only() -> Errno {
    Errno::from_i32(Kind::ReadOnly.errno())
}

fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

fn fh(fh: FileHandle) -> Fh {
    Fh(fh.0)
}

impl Filesystem for Desk {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
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
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(read_only());
        }
        self.op(request::Open { ino: ino(inode) }, reply);
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
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.put_back("release", |vfs| vfs.release(fh(handle)));
        reply.ok();
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
        reply.statfs(
            SHOWN_BLOCKS,
            0,
            0,
            SHOWN_FILES,
            0,
            SHOWN_BLOCK_BYTES,
            LONGEST_NAME,
            SHOWN_BLOCK_BYTES,
        );
    }

    fn setattr(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(read_only());
    }

    fn mknod(
        &self,
        _req: &fuser::Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(read_only());
    }

    fn mkdir(
        &self,
        _req: &fuser::Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(read_only());
    }

    fn unlink(&self, _req: &fuser::Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(read_only());
    }

    fn rmdir(&self, _req: &fuser::Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(read_only());
    }

    fn symlink(
        &self,
        _req: &fuser::Request,
        _parent: INodeNo,
        _link_name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(read_only());
    }

    fn rename(
        &self,
        _req: &fuser::Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(read_only());
    }

    fn link(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _newparent: INodeNo,
        _newname: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(read_only());
    }

    fn setxattr(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(read_only());
    }

    fn removexattr(&self, _req: &fuser::Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(read_only());
    }

    fn write(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(read_only());
    }

    fn create(
        &self,
        _req: &fuser::Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(read_only());
    }
}
