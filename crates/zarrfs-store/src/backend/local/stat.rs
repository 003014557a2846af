//! Converts the kernel's file status to metadata, versions and ETags.
//!
//! The version is made of inode, size, mtime and ctime. It changes with every write that the file system's clock can
//! distinguish from the one before. The text of the ETag leaves out ctime, which a change of mode alters. If the
//! version differs from the recorded one, the overlay compares length and digest.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use crate::{ETag, EntryKind, Meta, Version};

pub(super) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn version_of(stat: &Stat) -> Version {
    let words = [
        stat.st_ino.to_le_bytes(),
        stat.st_size.to_le_bytes(),
        stat.st_mtime.to_le_bytes(),
        stat.st_mtime_nsec.to_le_bytes(),
        stat.st_ctime.to_le_bytes(),
        stat.st_ctime_nsec.to_le_bytes(),
    ];
    Version::of(&words.concat())
}

/// Returns the ETag of a file: its size, mtime and inode.
pub(super) fn etag_of(stat: &Stat) -> ETag {
    let (size, inode) = (size_of(stat), stat.st_ino);
    let (seconds, nanoseconds) = (stat.st_mtime, stat.st_mtime_nsec);
    ETag {
        text: format!("size {size}, mtime {seconds}.{nanoseconds:09}, inode {inode}"),
        version: version_of(stat),
    }
}

/// Returns the metadata of a file or directory, or `None` for pipes, sockets and devices.
pub(super) fn meta_of(stat: &Stat) -> Option<Meta> {
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (EntryKind::File, size_of(stat)),
        FileType::Directory => (EntryKind::Directory, 0),
        _ => return None,
    };
    Some(describe(stat, kind, size))
}

pub(super) fn link_meta(stat: &Stat) -> Meta {
    describe(stat, EntryKind::Link, size_of(stat))
}

fn describe(stat: &Stat, kind: EntryKind, size: u64) -> Meta {
    let stored = u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    Meta {
        kind,
        size,
        stored,
        modified: modified(stat),
        version: version_of(stat),
    }
}

/// Returns the mtime of a file.
pub(super) fn modified(stat: &Stat) -> SystemTime {
    let nanoseconds = Duration::from_nanos(stat.st_mtime_nsec);
    let seconds = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let whole = if stat.st_mtime < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|time| time.checked_add(nanoseconds))
        .unwrap_or(UNIX_EPOCH)
}
