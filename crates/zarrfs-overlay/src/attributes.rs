//! Gets and sets attributes of the upper folder's files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use zarrfs_store::tree::{AttrChange, Posix, Time};
use zarrfs_store::{EntryKind, Meta, Version};

/// The bits of a mode that a file in the overlay can have: permissions and the sticky bit.
pub(crate) const PERMISSIONS: u32 = 0o1777;

pub(crate) fn kind_of(stat: &Stat) -> EntryKind {
    kind_of_type(FileType::from_raw_mode(stat.st_mode))
}

pub(crate) fn kind_of_type(found: FileType) -> EntryKind {
    match found {
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::File,
    }
}

/// Converts `stat` to kind, size, time and version. `generation` is part of the version, because two contents may have
/// the same inode, size and time.
pub(crate) fn meta_of(stat: &Stat, generation: u64) -> Meta {
    let kind = kind_of(stat);
    let size = match kind {
        EntryKind::Directory => 0,
        _ => u64::try_from(stat.st_size).unwrap_or(0),
    };
    Meta {
        kind,
        size,
        stored: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        modified: time_of(stat.st_mtime, stat.st_mtime_nsec),
        version: version_of(stat, generation),
    }
}

fn version_of(stat: &Stat, generation: u64) -> Version {
    let words = [
        stat.st_ino,
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec,
        generation,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Version::of_upper(&bytes)
}

pub(crate) fn posix_of(stat: &Stat) -> Posix {
    Posix {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: match kind_of(stat) {
            EntryKind::Directory => u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            _ => u32::from(stat.st_nlink > 0),
        },
        accessed: time_of(stat.st_atime, stat.st_atime_nsec),
        changed: time_of(stat.st_ctime, stat.st_ctime_nsec),
        identity: stat.st_ino,
    }
}

/// Returns the request that sets owner, group and mode to those in `posix`.
pub(crate) fn owner_and_mode(posix: &Posix) -> AttrChange {
    change_of(posix.mode, posix.uid, posix.gid)
}

/// Returns the request that sets a file's mode. It also sets owner and group if the process is root.
pub(crate) fn change_of(mode: u32, uid: u32, gid: u32) -> AttrChange {
    let is_root = rustix::process::geteuid().is_root();
    AttrChange {
        mode: Some(mode),
        uid: is_root.then_some(uid),
        gid: is_root.then_some(gid),
        ..AttrChange::default()
    }
}

pub(crate) fn time_of(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    time.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds)))
        .unwrap_or(UNIX_EPOCH)
}

/// Sets owner, mode and times of an open file.
pub(crate) fn set_open(file: impl AsFd, change: &AttrChange) -> rustix::io::Result<()> {
    let (uid, gid) = owner_of(change);
    if uid.is_some() || gid.is_some() {
        rustix::fs::fchown(&file, uid, gid)?;
    }
    if let Some(mode) = change.mode {
        rustix::fs::fchmod(&file, Mode::from_bits_truncate(mode & PERMISSIONS))?;
    }
    if let Some(times) = times_of(change) {
        rustix::fs::futimens(&file, &times)?;
    }
    Ok(())
}

/// Sets owner, mode and times of the file with this name in a folder, without following symbolic links.
pub(crate) fn set_named(
    folder: impl AsFd,
    name: &OsStr,
    change: &AttrChange,
) -> rustix::io::Result<()> {
    let (uid, gid) = owner_of(change);
    if uid.is_some() || gid.is_some() {
        rustix::fs::chownat(&folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if let Some(mode) = change.mode {
        let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        // Linux cannot change the mode of a symbolic link.
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            let mode = Mode::from_bits_truncate(mode & PERMISSIONS);
            rustix::fs::chmodat(&folder, name, mode, AtFlags::empty())?;
        }
    }
    if let Some(times) = times_of(change) {
        rustix::fs::utimensat(&folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn owner_of(change: &AttrChange) -> (Option<Uid>, Option<Gid>) {
    (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw))
}

fn times_of(change: &AttrChange) -> Option<Timestamps> {
    (change.accessed.is_some() || change.modified.is_some()).then(|| Timestamps {
        last_access: timespec(change.accessed),
        last_modification: timespec(change.modified),
    })
}

fn timespec(time: Option<Time>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(Time::Now) => (0, UTIME_NOW),
        Some(Time::At(time)) => return spec_of(time),
    };
    Timespec { tv_sec, tv_nsec }
}

/// Returns a time as seconds since 1970, rounded down, and the nanoseconds after them.
pub(crate) fn spec_of(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            let part = i64::from(before.subsec_nanos());
            Timespec {
                tv_sec: -seconds - i64::from(part > 0),
                tv_nsec: (1_000_000_000 - part) % 1_000_000_000,
            }
        }
    }
}

/// Returns the value of an extended attribute of a file, or `None` if it is not set.
pub(crate) fn xattr(file: impl AsFd, name: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; MAX_XATTR_BYTES];
    match rustix::fs::fgetxattr(file, name, value.as_mut_slice()) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn xattrs(file: impl AsFd) -> rustix::io::Result<Xattrs> {
    let mut found = Xattrs::new();
    for name in xattr_names(&file)? {
        let value = xattr(&file, &name)?;
        found.insert(name, value.unwrap_or_default());
    }
    Ok(found)
}

/// Replaces the `user.` extended attributes of an open file by `xattrs`, then sets its owner and mode.
pub(crate) fn set_all(
    file: &File,
    xattrs: &Xattrs,
    owner_and_mode: &AttrChange,
) -> rustix::io::Result<()> {
    let names = xattr_names(file)?;
    let removed = |name: &&Vec<u8>| name.starts_with(b"user.") && !xattrs.contains_key(*name);
    let removed: Vec<&Vec<u8>> = names.iter().filter(removed).collect();
    if !removed.is_empty() || !xattrs.is_empty() {
        // Make the file writable first: without write permission only root can set its extended attributes.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode) | Mode::WUSR;
        rustix::fs::fchmod(file, mode & Mode::from_bits_truncate(PERMISSIONS))?;
    }
    for name in removed {
        rustix::fs::fremovexattr(file, name.as_slice())?;
    }
    for (name, value) in xattrs {
        rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?;
    }
    set_open(file, owner_and_mode)
}

/// Extended attributes: values by names.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn xattr_names(file: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    xattr_names_by(|names| rustix::fs::flistxattr(&file, names))
}

/// Whether a file in a folder has extended attributes other than `security.` and `system.`; `false` if they cannot be
/// read.
pub(crate) fn has_own_xattrs(folder: impl AsFd, name: &OsStr) -> bool {
    let number = folder.as_fd().as_raw_fd().to_string();
    let path = Path::new("/proc/self/fd").join(number).join(name);
    let list = |names: &mut [u8]| rustix::fs::llistxattr(&path, names);
    // Query only the length first: almost no file has extended attributes.
    if !rustix::fs::llistxattr_query(&path).is_ok_and(|length| length > 0) {
        return false;
    }
    let is_own = |name: &Vec<u8>| !name.starts_with(b"security.") && !name.starts_with(b"system.");
    xattr_names_by(list).is_ok_and(|names| names.iter().any(is_own))
}

/// Returns the names of extended attributes. `list` writes the names to a buffer and returns their length in bytes.
fn xattr_names_by(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = vec![0; MAX_XATTR_BYTES];
    let length = match list(names.as_mut_slice()) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    names.truncate(length);
    let names = names.split(|&byte| byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// Maximum size in bytes of one extended attribute, and of all names of a file's attributes (`xattr(7)`).
const MAX_XATTR_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_converted_exactly() {
        for (seconds, nanoseconds) in [(-1, 0), (-2, 999_999_999), (0, 1), (5, 0)] {
            let spec = spec_of(time_of(seconds, nanoseconds as u64));
            assert_eq!((spec.tv_sec, spec.tv_nsec), (seconds, nanoseconds));
        }
    }
}
