//! Creates, replaces and removes objects of a local directory atomically.
//!
//! A change is on the disk, file and directory, when the function returns. Nothing is written through a symbolic link
//! that leaves the store, with or without `--follow-symlinks`. A link that has the key's name is replaced, not
//! followed. The kernel enforces the condition `Absent`; `Match` is checked just before the change, under a lock of the
//! key.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::backend::is_a_directory;
use crate::backend::local::atomic_file;
use crate::backend::local::atomic_file::AtomicFile;
use crate::backend::local::directory::etag_of;
use crate::backend::local::directory::{StoreDirectory, failed};
use crate::sparse::next_data;
use crate::{Condition, ETag, Key, PutBody};
use zarr_format::error::{Error, Kind, Result};

/// How often a put creates the key's directory again if other processes keep removing it.
const MAX_ATTEMPTS: usize = 16;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Returns the ETag of a key's file, or `None` if the key has no file.
pub(super) fn etag(directory: &StoreDirectory, key: &Key) -> Result<Option<ETag>> {
    Ok(directory.content(key)?.as_ref().map(etag_of))
}

/// Puts an object if the condition on the old object holds. Creates the directories above it.
pub(super) fn put(
    directory: &StoreDirectory,
    key: &Key,
    body: PutBody<'_>,
    condition: &Condition,
) -> Result<ETag> {
    check_name(key)?;
    condition.check(key, etag(directory, key)?.as_ref())?;
    for _ in 0..MAX_ATTEMPTS {
        let folder = make_folder(directory, &parent(key))?;
        let target = WriteTarget {
            directory,
            key,
            folder: &folder,
        };
        match target.put(body, condition) {
            // Another process has removed the directory while it was empty, before the file got its name: the put is
            // tried again.
            Err(error) if error.kind() == Kind::NotFound => {}
            done => return done,
        }
    }
    Err(Error::unavailable(
        key,
        "another program keeps removing the directory",
    ))
}

/// Removes an object if the condition on it holds.
pub(super) fn erase(directory: &StoreDirectory, key: &Key, condition: &Condition) -> Result<()> {
    check_name(key)?;
    let current = etag(directory, key)?;
    condition.check(key, current.as_ref())?;
    if current.is_none() {
        return Ok(());
    }
    let folder = directory
        .open_inside(&parent(key), FOLDER)
        .map_err(|error| refused(key, error))?;
    let mut lock = AtomicFile::new(&folder, key.name()).map_err(|error| refused(key, error))?;
    lock.lock_key().map_err(|error| refused(key, error))?;
    condition.check(key, etag(directory, key)?.as_ref())?;
    match rustix::fs::unlinkat(&folder, key.name(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(refused(key, error)),
    }
    lock.unlock_key().map_err(|error| refused(key, error))?;
    rustix::fs::fsync(&folder).map_err(|error| refused(key, error))
}

/// Removes a directory that is empty or has only stale temporary files.
pub(super) fn erase_folder(directory: &StoreDirectory, prefix: &Key) -> Result<()> {
    let Some(parent) = prefix.parent() else {
        return Ok(());
    };
    let folder = match directory.open_inside(&parent, FOLDER) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        folder => folder.map_err(|error| refused(prefix, error))?,
    };
    let remove = || rustix::fs::unlinkat(&folder, prefix.name(), AtFlags::REMOVEDIR);
    let removed = match remove() {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let inside = directory.open_inside(prefix, FOLDER);
            let inside = inside.map_err(|error| refused(prefix, error))?;
            atomic_file::remove_stale(&inside).map_err(|error| Error::os(prefix, error))?;
            remove()
        }
        removed => removed,
    };
    match removed {
        Ok(()) => rustix::fs::fsync(&folder).map_err(|error| refused(prefix, error)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(refused(prefix, error)),
    }
}

/// Refuses keys that no object can have: the root, and names of temporary files.
fn check_name(key: &Key) -> Result<()> {
    if key.is_root() {
        return Err(is_a_directory(key));
    }
    if key.names().any(atomic_file::is_temp_name) {
        let why = "zarrfs reserves names of this form for temporary files";
        return Err(Error::invalid(key, why));
    }
    Ok(())
}

fn parent(key: &Key) -> Key {
    key.parent().unwrap_or_default()
}

/// Opens a directory. Missing directories on the path are created and synced.
fn make_folder(directory: &StoreDirectory, key: &Key) -> Result<OwnedFd> {
    for _ in 0..MAX_ATTEMPTS {
        match directory.open_inside(key, FOLDER) {
            Err(Errno::NOENT) if !key.is_root() => {}
            opened => return opened.map_err(|error| refused(key, error)),
        }
        let above = make_folder(directory, &parent(key))?;
        match rustix::fs::mkdirat(&above, key.name(), Mode::from_raw_mode(0o777)) {
            Ok(()) => rustix::fs::fsync(&above).map_err(|error| refused(key, error))?,
            Err(Errno::EXIST | Errno::NOENT) => {}
            Err(error) => return Err(refused(key, error)),
        }
    }
    Err(Error::unavailable(
        key,
        "another program keeps removing the directory",
    ))
}

struct WriteTarget<'a> {
    directory: &'a StoreDirectory,
    key: &'a Key,
    folder: &'a OwnedFd,
}

impl WriteTarget<'_> {
    fn put(&self, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let failed = |error| refused(self.key, error);
        let replaced = atomic_file::stat(self.folder, self.key.name()).map_err(failed)?;
        self.check_kind(replaced.as_ref())?;
        let mut file = AtomicFile::new(self.folder, self.key.name()).map_err(failed)?;
        let like = match body {
            PutBody::FileAsIs(from, _) => Some(rustix::fs::fstat(from).map_err(failed)?),
            _ => replaced.filter(is_file),
        };
        if let Some(like) = like {
            copy_owner_and_mode(file.file(), &like).map_err(failed)?;
        }
        write(file.file(), body).map_err(|error| error.about(self.key))?;
        rustix::fs::fsync(file.file()).map_err(failed)?;
        let may_be_new = match condition {
            Condition::Any => replaced.is_none(),
            Condition::Absent => true,
            Condition::Match(_) | Condition::Version(_) => false,
        };
        self.replace(&mut file, condition, may_be_new)?;
        let stat = rustix::fs::fstat(file.file()).map_err(failed)?;
        rustix::fs::fsync(self.folder).map_err(failed)?;
        Ok(etag_of(&stat))
    }

    fn check_kind(&self, current: Option<&Stat>) -> Result<()> {
        let kind = current.map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Some(FileType::Directory) => Err(is_a_directory(self.key)),
            _ => Ok(()),
        }
    }

    /// Gives a written file its final name if the condition on the old file holds. With `may_be_new`, first tries to
    /// name it without replacing a file.
    fn replace(
        &self,
        file: &mut AtomicFile<'_>,
        condition: &Condition,
        may_be_new: bool,
    ) -> Result<()> {
        let failed = |error| refused(self.key, error);
        if may_be_new {
            match file.link_noreplace() {
                Err(Errno::EXIST) => {
                    let current =
                        atomic_file::stat(self.folder, self.key.name()).map_err(failed)?;
                    self.check_kind(current.as_ref())?;
                    condition.check(self.key, current.as_ref().map(etag_of).as_ref())?;
                }
                landed => return landed.map_err(failed),
            }
        }
        file.lock_key().map_err(failed)?;
        condition.check(self.key, etag(self.directory, self.key)?.as_ref())?;
        file.replace().map_err(failed)
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Gives a file the mode of the file that it replaces, and the owner too if the kernel permits that.
fn copy_owner_and_mode(file: &OwnedFd, like: &Stat) -> rustix::io::Result<()> {
    let ours = rustix::fs::fstat(file)?;
    if (ours.st_uid, ours.st_gid) != (like.st_uid, like.st_gid) {
        let (uid, gid) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
        match rustix::fs::fchown(file, Some(uid), Some(gid)) {
            // An error is ignored, since only privileged users may change the owner, and not on every file system.
            Ok(()) | Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(like.st_mode & 0o777))
}

fn write(to: &OwnedFd, body: PutBody<'_>) -> Result<()> {
    match body {
        PutBody::Bytes(bytes) => write_at(to, bytes, 0).map_err(|error| Error::os("", error)),
        PutBody::File(from, length) | PutBody::FileAsIs(from, length) => copy(to, from, length),
    }
}

fn write_at(to: &OwnedFd, bytes: &[u8], offset: u64) -> rustix::io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::pwrite(to, &bytes[written..], offset + written as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies the first `length` bytes of a file. Holes of a sparse file stay holes.
fn copy(to: &OwnedFd, from: &File, length: u64) -> Result<()> {
    let failed = |error| Error::os("", error);
    let there = rustix::fs::fstat(from).map_err(failed)?.st_size;
    if u64::try_from(there).is_ok_and(|there| there < length) {
        let why = format!("the file has only {there} of {length} bytes");
        return Err(Error::invalid("", why));
    }
    rustix::fs::ftruncate(to, length).map_err(failed)?;
    let mut at = 0;
    while let Some(data) = next_data(from, at, length).map_err(failed)? {
        at = data.end;
        copy_range(to, from, data)?;
    }
    Ok(())
}

/// Copies a range of a file, inside the kernel if possible.
fn copy_range(to: &OwnedFd, from: &File, range: std::ops::Range<u64>) -> Result<()> {
    let (mut read, mut written) = (range.start, range.start);
    while written < range.end {
        let most = usize::try_from(range.end - written).unwrap_or(usize::MAX);
        let most = most.min(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), most) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel cannot copy between these two files, so the rest is read and written here.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(Error::os("", error)),
        }
    }
    copy_pieces(to, from, written..range.end)
}

fn copy_pieces(to: &OwnedFd, from: &File, rest: std::ops::Range<u64>) -> Result<()> {
    let mut place = rest.start;
    let mut piece = Vec::new();
    while place < rest.end {
        let left = usize::try_from(rest.end - place).unwrap_or(usize::MAX);
        piece.resize(left.min(1 << 20), 0);
        match rustix::io::pread(from, &mut piece[..], place) {
            Ok(0) => {
                let why = format!("the file has only {place} of {} bytes", rest.end);
                return Err(Error::invalid("", why));
            }
            Ok(read) => {
                write_at(to, &piece[..read], place).map_err(|error| Error::os("", error))?;
                place += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::os("", error)),
        }
    }
    Ok(())
}

/// Converts an errno of a put or removal into the store's error about a key.
fn refused(key: &Key, error: Errno) -> Error {
    match error {
        Errno::XDEV => {
            let why =
                "a symbolic link leads out of the store: zarrfs does not write through the link";
            Error::new(Kind::Denied, key, why)
        }
        Errno::BUSY => {
            Error::unavailable(key, "another program holds a lock for too long: try again")
        }
        error => failed(key, error),
    }
}
