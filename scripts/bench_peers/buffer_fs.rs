//! A fuser file system that serves reads from memory: the benchmark's upper bound.
//!
//!     buffer_fs DIR BYTES
//!
//! Mounts a folder at DIR with one file, `data`, of BYTES bytes, and answers every read in the event loop from one
//! buffer. Runs until it is unmounted. It uses the same settings as zarrfs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]

use std::error::Error;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request,
};

const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);
const MIB: u32 = 1 << 20;

struct BufferFs(Vec<u8>);

impl BufferFs {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let file = ino == FILE;
        let size = if file { self.0.len() as u64 } else { 0 };
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::now(),
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if file { 0o444 } else { 0o555 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: MIB,
        }
    }
}

impl Filesystem for BufferFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_DIO;
        // The kernel may lack a capability; the benchmark then runs without it.
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(MIB);
        let _ = config.set_max_background(128);
        let _ = config.set_congestion_threshold(96);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some("data") => reply.entry(&TTL, &self.attributes(FILE), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.0.len());
        let end = start.saturating_add(size as usize).min(self.0.len());
        reply.data(&self.0[start..end]);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, bytes] = &arguments[..] else {
        return Err("usage: buffer_fs DIR BYTES".into());
    };
    let content = (0..bytes.parse::<usize>()?)
        .map(|place| (place / 7) as u8)
        .collect();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("buffer_fs".into())];
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(BufferFs(content), directory, &config)?;
    Ok(())
}
