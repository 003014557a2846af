//! Attributes as the kernel wants them.
//!
//! Made from a view's attributes and the mount's owner and umask. A file that is not empty never has zero
//! blocks, since tar and cp take that for a file that is all hole; directories have one link, which tells
//! find that it must look at every name. Open flags and file types are here too: nothing but translation.

use fuser::FileAttr;
use fuser::FileType;
use fuser::FopenFlags;
use fuser::INodeNo;

use crate::store::EntryKind;
use crate::vfs::Ino;
use crate::vfs::Opened;
use crate::vfs::VfsConfig;
use crate::view::Attr;

/// The largest request, in bytes; what cp and dd take as their buffer for files at least this long.
pub(super) const LARGEST_REQUEST: u32 = 1 << 20;

const PAGE: u32 = 4096;
const BLOCK: u64 = 512;

/// Returns the attributes of inode `ino`.
pub(super) fn file_attr(ino: Ino, attr: &Attr, config: &VfsConfig) -> FileAttr {
    let is_large = attr.size >= u64::from(LARGEST_REQUEST);
    FileAttr {
        ino: INodeNo(ino.0),
        size: attr.size,
        blocks: blocks(attr),
        atime: attr.modified,
        mtime: attr.modified,
        ctime: attr.modified,
        crtime: attr.modified,
        kind: file_type(attr.kind),
        perm: permissions(attr.kind, config.umask),
        nlink: 1,
        uid: config.uid,
        gid: config.gid,
        rdev: 0,
        blksize: if is_large { LARGEST_REQUEST } else { PAGE },
        flags: 0,
    }
}

/// Returns the flags of an open file.
pub(super) fn open_flags(opened: &Opened) -> FopenFlags {
    // There is nothing to flush on a mount that cannot be written.
    let mut flags = FopenFlags::FOPEN_NOFLUSH;
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags
}

/// Returns the type that `readdir` and `stat` show.
pub(super) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
    }
}

fn blocks(attr: &Attr) -> u64 {
    let least = u64::from(attr.size > 0);
    attr.stored.div_ceil(BLOCK).max(least)
}

fn permissions(kind: EntryKind, umask: u32) -> u16 {
    let all: u32 = match kind {
        EntryKind::File => 0o444,
        EntryKind::Directory => 0o555,
        // Nobody looks at the mode of a link.
        EntryKind::Link => return 0o777,
    };
    u16::try_from(all & !umask).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::SystemTime;

    use super::*;

    fn attr(size: u64, stored: u64) -> Attr {
        let (kind, fresh) = (EntryKind::File, Duration::ZERO);
        Attr {
            kind,
            size,
            stored,
            modified: SystemTime::UNIX_EPOCH,
            fresh,
        }
    }

    #[test]
    fn files_with_content_have_blocks() {
        assert_eq!(blocks(&attr(5, 0)), 1);
        assert_eq!(blocks(&attr(0, 0)), 0);
        assert_eq!(blocks(&attr(1 << 40, 1025)), 3);
    }

    #[test]
    fn umask_takes_bits_away() {
        assert_eq!(permissions(EntryKind::File, 0o027), 0o440);
        assert_eq!(permissions(EntryKind::Directory, 0o077), 0o500);
    }
}
