//! Converts between zarrfs's types and the kernel's: attributes, times, flags, file types.
//!
//! Attributes consist of the view's attributes and the mount's owner and umask. A file that is not empty never has zero
//! blocks, since tar and cp would take it for one large hole. Directories have one link, since find would otherwise
//! skip subdirectories.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, FopenFlags, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};

use crate::vfs::{Ino, OpenOptions, OpenReply, Vfs, VfsConfig};
use crate::view::Attr;
use zarrfs_store::EntryKind;
use zarrfs_store::tree::{FreeSpace, Time};

/// Size of the largest request in bytes. It is also the block size of large files: cp and dd use the block size as
/// their buffer, but Python reads a whole block for a single byte.
pub(super) const LARGEST_REQUEST: u32 = 1 << 20;

/// Size of a page in bytes, which is also the smallest block size of a file.
const PAGE: u32 = 4096;

/// Returns the free space that `df` shows for a read-only mount: a petabyte, of which nothing is used, so that the
/// mount does not look full, and nothing is available.
pub(super) fn read_only_space() -> FreeSpace {
    FreeSpace {
        block: PAGE,
        blocks: 1 << 38,
        free: 1 << 38,
        available: 0,
        files: 1 << 32,
        free_files: 1 << 32,
    }
}

/// Converts a time in a setattr request.
pub(super) fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => Time::At(kernel_time(time)),
        TimeOrNow::Now => Time::Now,
    }
}

/// Corrects a time before 1970 in a setattr request: the kernel sends negative whole seconds plus nanoseconds, but
/// fuser subtracts the nanoseconds.
fn kernel_time(time: SystemTime) -> SystemTime {
    match UNIX_EPOCH.duration_since(time) {
        Ok(before) => time + 2 * Duration::from_nanos(u64::from(before.subsec_nanos())),
        Err(_) => time,
    }
}

/// Returns the attributes of an inode in the form of the kernel.
pub(super) fn file_attr(ino: Ino, attr: &Attr, vfs: &Vfs) -> FileAttr {
    let config = vfs.config();
    let posix = attr.posix;
    let modified = modified(attr, vfs.mounted());
    let mode = posix.and_then(|posix| u16::try_from(posix.mode & 0o1777).ok());
    FileAttr {
        ino: INodeNo(ino.0),
        size: attr.size,
        blocks: blocks(attr),
        atime: posix.map_or(modified, |posix| posix.accessed),
        mtime: modified,
        ctime: posix.map_or(modified, |posix| posix.changed),
        crtime: modified,
        kind: file_type(attr.kind),
        perm: mode.unwrap_or_else(|| permissions(attr, config)),
        nlink: posix.map_or(1, |posix| posix.links),
        uid: posix.map_or(config.uid, |posix| posix.uid),
        gid: posix.map_or(config.gid, |posix| posix.gid),
        rdev: 0,
        blksize: block_size(attr),
        flags: 0,
    }
}

/// Returns the modification time of a file or directory. Directories in buckets and on web servers have no time: they
/// get the time of the mount, since cleanup programs remove very old directories. A time that a program has set stays.
fn modified(attr: &Attr, mounted: SystemTime) -> SystemTime {
    let is_unknown = attr.modified == UNIX_EPOCH && attr.posix.is_none();
    if is_unknown && attr.kind == EntryKind::Directory {
        return mounted;
    }
    attr.modified
}

/// Converts the flags of open(2).
pub(super) fn open_mode(flags: OpenFlags) -> OpenOptions {
    let has = |flag| flags.0 & flag != 0;
    OpenOptions {
        writes: has(libc::O_TRUNC) || flags.acc_mode() != OpenAccMode::O_RDONLY,
        appends: has(libc::O_APPEND),
        truncates: has(libc::O_TRUNC),
        is_new: has(libc::O_EXCL),
    }
}

/// Returns the FOPEN flags of the reply to an open.
pub(super) fn open_flags(opened: &OpenReply) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    // FOPEN_NOFLUSH: the kernel sends no FLUSH request for a file that is not open for writing.
    flags.set(FopenFlags::FOPEN_NOFLUSH, !opened.writes);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags
}

/// Converts the kind of an entry to the file type in READDIR and GETATTR replies.
pub(super) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
    }
}

/// Returns the block size of a file in bytes. Programs read at least one block at a time, so a block covers at most
/// 1024 chunks, but at least one page.
fn block_size(attr: &Attr) -> u32 {
    if attr.size < u64::from(LARGEST_REQUEST) {
        return PAGE;
    }
    let most = match attr.chunk_bytes {
        0 => LARGEST_REQUEST,
        chunk => u32::try_from(chunk.saturating_mul(1024)).unwrap_or(LARGEST_REQUEST),
    };
    most.clamp(PAGE, LARGEST_REQUEST).next_multiple_of(PAGE)
}

fn blocks(attr: &Attr) -> u64 {
    let least = u64::from(attr.size > 0);
    attr.stored.div_ceil(512).max(least)
}

fn permissions(attr: &Attr, config: &VfsConfig) -> u16 {
    let is_writable = config.writable && !attr.is_read_only;
    let writes: u32 = if is_writable { 0o200 } else { 0 };
    let all: u32 = match attr.kind {
        EntryKind::File => 0o444 | writes,
        EntryKind::Directory => 0o555 | writes,
        // A symbolic link has all permissions, since the kernel ignores its mode.
        EntryKind::Link => return 0o777,
    };
    u16::try_from(all & !config.umask).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fractions() {
        let exact = UNIX_EPOCH - Duration::new(6, 500_000_000);
        let sent = UNIX_EPOCH - Duration::new(7, 500_000_000);
        for (sent, exact) in [
            (sent, exact),
            (
                UNIX_EPOCH + Duration::new(6, 5),
                UNIX_EPOCH + Duration::new(6, 5),
            ),
        ] {
            assert_eq!(kernel_time(sent), exact);
        }
    }

    fn attr(size: u64, stored: u64) -> Attr {
        Attr {
            stored,
            ..Attr::of_file(size, UNIX_EPOCH, Duration::ZERO)
        }
    }

    #[test]
    fn files_with_content_have_blocks() {
        assert_eq!(blocks(&attr(5, 0)), 1);
        assert_eq!(blocks(&attr(0, 0)), 0);
        assert_eq!(blocks(&attr(1 << 40, 1025)), 3);
    }

    #[test]
    fn the_block_size_follows_the_chunk_size() {
        let block = |size, chunk_bytes| {
            block_size(&Attr {
                chunk_bytes,
                ..attr(size, 0)
            })
        };
        let long = u64::from(LARGEST_REQUEST);
        assert_eq!(block(long - 1, 0), PAGE);
        assert_eq!((block(long, 0), block(long, 1 << 40)), (1 << 20, 1 << 20));
        assert_eq!((block(long, 8), block(long, 1)), (8192, PAGE));
        assert_eq!(block(long, 100), 25 * PAGE);
    }

    #[test]
    fn the_umask_clears_permission_bits() {
        let config = |umask, writable| VfsConfig {
            uid: 0,
            gid: 0,
            umask,
            writable,
        };
        let of = |kind, is_read_only| Attr {
            kind,
            is_read_only,
            ..attr(0, 0)
        };
        let mode_of =
            |kind, umask, writable| permissions(&of(kind, false), &config(umask, writable));
        assert_eq!(mode_of(EntryKind::File, 0o027, false), 0o440);
        assert_eq!(mode_of(EntryKind::Directory, 0o077, false), 0o500);
        assert_eq!(mode_of(EntryKind::File, 0, true), 0o644);
        let read_only = of(EntryKind::File, true);
        assert_eq!(permissions(&read_only, &config(0, true)), 0o444);
    }
}
