//! Writes and syncs a file without its final name, then names it atomically.
//!
//! Where the file system supports it (O_TMPFILE), the file has no name at all while it is written. To replace an
//! existing file, it needs a temporary name, which is made from the final name and left out of listings. The writer
//! locks the temporary file, so that several zarrfs processes change a key one after the other. The kernel releases the
//! lock when the process ends. If a process dies, the next writer of the key removes its temporary file, or the file is
//! removed with the directory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RawDir, RenameFlags, Stat};
use rustix::io::Errno;

use crate::Version;

/// Prefix of the names of temporary files. 16 hexadecimal digits follow.
const TEMP_PREFIX: &str = ".zarrfs-arriving-";

fn temp_name_of(name: &[u8]) -> String {
    format!("{TEMP_PREFIX}{:016x}", Version::of(name).number())
}

pub(super) fn is_temp_name(name: &[u8]) -> bool {
    name.strip_prefix(TEMP_PREFIX.as_bytes())
        .is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}

/// A file that is written without its final name, which is `name` in the directory `folder`.
pub(super) struct AtomicFile<'a> {
    folder: &'a OwnedFd,
    name: &'a [u8],
    file: OwnedFd,
    /// The file's temporary name, if it has one. While it has one, this process locks the file.
    temp_name: Option<String>,
}

impl<'a> AtomicFile<'a> {
    /// Creates an empty file, without any name if the file system supports that.
    pub(super) fn new(folder: &'a OwnedFd, name: &'a [u8]) -> rustix::io::Result<AtomicFile<'a>> {
        match unnamed_file(folder)? {
            Some(file) => Ok(AtomicFile {
                folder,
                name,
                file,
                temp_name: None,
            }),
            None => AtomicFile::named(folder, name),
        }
    }

    /// Creates an empty file under its temporary name.
    fn named(folder: &'a OwnedFd, name: &'a [u8]) -> rustix::io::Result<AtomicFile<'a>> {
        let temp_name = temp_name_of(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = wait_for_name(folder, &temp_name, || {
            let file = create(folder, temp_name.as_str(), flags)?;
            // Another writer may have removed the new file as stale before it was locked here; then a new one is
            // created.
            let is_ours = lock(&file)? && is_name_of(folder, &temp_name, &file)?;
            is_ours.then_some(file).ok_or(Errno::EXIST)
        })?;
        Ok(AtomicFile {
            folder,
            name,
            file,
            temp_name: Some(temp_name),
        })
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Locks the key against other zarrfs processes. Fails with `BUSY` if another process holds the lock for a minute.
    pub(super) fn lock_key(&mut self) -> rustix::io::Result<()> {
        if self.temp_name.is_some() {
            return Ok(());
        }
        let temp_name = temp_name_of(self.name);
        if !lock(&self.file)? {
            return Err(Errno::AGAIN);
        }
        wait_for_name(self.folder, &temp_name, || {
            link(&self.file, self.folder, temp_name.as_bytes())
        })?;
        self.temp_name = Some(temp_name);
        Ok(())
    }

    /// Gives the written file its final name. Fails with `EXIST` if another file has that name.
    pub(super) fn link_noreplace(&mut self) -> rustix::io::Result<()> {
        let Some(temp_name) = &self.temp_name else {
            return link(&self.file, self.folder, self.name);
        };
        let flags = RenameFlags::NOREPLACE;
        let (from, to) = (temp_name.as_str(), self.name);
        match rustix::fs::renameat_with(self.folder, from, self.folder, to, flags) {
            Ok(()) => {
                self.temp_name = None;
                return Ok(());
            }
            // Some file systems do not support RENAME_NOREPLACE, so a hard link is tried next.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        let none = AtFlags::empty();
        match rustix::fs::linkat(self.folder, from, self.folder, to, none) {
            Ok(()) => self.unlock_key(),
            // Without hard links, nothing is atomic: the final name can only be checked before the rename.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                match stat(self.folder, self.name)? {
                    Some(_) => Err(Errno::EXIST),
                    None => self.replace(),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Renames the written file to its final name, replacing the file that has that name. The key must be locked.
    pub(super) fn replace(&mut self) -> rustix::io::Result<()> {
        let temp_name = self.temp_name.as_deref().ok_or(Errno::NOENT)?;
        rustix::fs::renameat(self.folder, temp_name, self.folder, self.name)?;
        self.temp_name = None;
        Ok(())
    }

    /// Removes the temporary name, which unlocks the key for other zarrfs processes.
    pub(super) fn unlock_key(&mut self) -> rustix::io::Result<()> {
        match self.temp_name.take() {
            Some(temp_name) => unlink(self.folder, &temp_name),
            None => Ok(()),
        }
    }
}

impl Drop for AtomicFile<'_> {
    fn drop(&mut self) {
        // An error is ignored, since the next writer of the key removes the temporary name too.
        let _ = self.unlock_key();
    }
}

/// Creates a file that is open for writing. The umask applies to its mode.
fn create(folder: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666))
}

/// Creates a file without a name (O_TMPFILE). Returns `None` if the file could not be given a name later.
fn unnamed_file(folder: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let file = match create(folder, ".", OFlags::TMPFILE) {
        Ok(file) => file,
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error),
    };
    let can_be_linked = rustix::fs::stat(fd_path(&file)).is_ok();
    Ok(can_be_linked.then_some(file))
}

/// Returns the path in `/proc` by which linkat(2) gives a name to an open file that has none.
fn fd_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn link(file: &OwnedFd, folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, fd_path(file), folder, name, flags)
}

fn unlink(folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the file status of a name in a directory, or `None` if the name is missing. Symbolic links are not followed.
pub(super) fn stat(folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks a file (flock(2)). Returns false if it is locked already.
fn lock(file: impl AsFd) -> rustix::io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a name in a directory still belongs to an open file.
fn is_name_of(folder: &OwnedFd, name: &str, file: &OwnedFd) -> rustix::io::Result<bool> {
    let ours = rustix::fs::fstat(file)?;
    let there = stat(folder, name.as_bytes())?;
    Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)))
}

/// Repeats `take` while it fails because the temporary name exists. Removes the name if its file is stale. Fails with
/// `BUSY` after a minute.
fn wait_for_name<T>(
    folder: &OwnedFd,
    temp_name: &str,
    mut take: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match take() {
            Err(Errno::EXIST) if Instant::now() > end => return Err(Errno::BUSY),
            Err(Errno::EXIST) => {}
            result => return result,
        }
        if !remove_if_stale(folder, temp_name)? {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Removes a temporary file that no process has locked. Returns false if the file is or may be locked.
fn remove_if_stale(folder: &OwnedFd, temp_name: &str) -> rustix::io::Result<bool> {
    let open = |flags: OFlags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        rustix::fs::openat(folder, temp_name, flags, Mode::empty())
    };
    let opened = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => open(OFlags::RDONLY),
        opened => opened,
    };
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(true),
        // Only the owner of the temporary file can open it to test the lock.
        Err(Errno::ACCESS) => return Ok(false),
        Err(error) => return Err(error),
    };
    if !lock(&file)? {
        return Ok(false);
    }
    if is_name_of(folder, temp_name, &file)? {
        unlink(folder, temp_name)?;
    }
    Ok(true)
}

/// Removes the temporary files in a directory that no process has locked.
pub(super) fn remove_stale(folder: &OwnedFd) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if is_temp_name(&name)
            && let Ok(name) = str::from_utf8(&name)
        {
            remove_if_stale(folder, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap();
        (folder, fd)
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let names = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Invariant (stores): A file of a local store is always the old one or the new one; temporary files are hidden.
    #[test]
    fn a_dropped_atomic_file_leaves_no_temporary_file() {
        let (there, fd) = folder();
        for make in [AtomicFile::new, AtomicFile::named] {
            let mut file = make(&fd, b"a").unwrap();
            file.lock_key().unwrap();
            assert!(is_temp_name(names(&there)[0].as_bytes()));
            drop(file);
            assert!(names(&there).is_empty());
        }
    }

    #[test]
    fn link_fails_for_an_existing_file_and_replace_succeeds() {
        let (there, fd) = folder();
        for make in [AtomicFile::new, AtomicFile::named] {
            let content = || fs::read(there.path().join("a")).unwrap();
            let mut file = make(&fd, b"a").unwrap();
            rustix::io::write(file.file(), b"old").unwrap();
            file.link_noreplace().unwrap();
            drop(file);
            assert_eq!(
                (names(&there), content()),
                (vec!["a".into()], b"old".into())
            );
            let mut other = make(&fd, b"a").unwrap();
            rustix::io::write(other.file(), b"newer").unwrap();
            assert_eq!(other.link_noreplace(), Err(Errno::EXIST));
            assert_eq!(content(), b"old");
            other.lock_key().unwrap();
            assert_eq!(content(), b"old");
            other.replace().unwrap();
            drop(other);
            assert_eq!(
                (names(&there), content()),
                (vec!["a".into()], b"newer".into())
            );
            fs::remove_file(there.path().join("a")).unwrap();
        }
    }

    #[test]
    fn temporary_files_of_a_dead_process_are_removed() {
        let (there, fd) = folder();
        let left = there.path().join(temp_name_of(b"a"));
        for read_only in [false, true] {
            fs::write(&left, "left").unwrap();
            let mut rights = fs::metadata(&left).unwrap().permissions();
            rights.set_readonly(read_only);
            fs::set_permissions(&left, rights).unwrap();
            let mut file = AtomicFile::new(&fd, b"a").unwrap();
            file.lock_key().unwrap();
            file.replace().unwrap();
        }
        assert_eq!(names(&there), ["a"]);
        fs::write(&left, "left").unwrap();
        remove_stale(&fd).unwrap();
        assert_eq!(names(&there), ["a"]);
    }

    #[test]
    fn a_second_writer_of_a_key_waits_for_the_first() {
        let (there, fd) = folder();
        let mut first = AtomicFile::new(&fd, b"a").unwrap();
        first.lock_key().unwrap();
        remove_stale(&fd).unwrap();
        assert_eq!(names(&there).len(), 1, "a turn that is taken is kept");
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = AtomicFile::named(&fd, b"a").unwrap();
                let seen = stat(&fd, b"a").unwrap().is_some();
                second.replace().unwrap();
                seen
            });
            thread::sleep(Duration::from_millis(20));
            first.replace().unwrap();
            drop(first);
            assert!(second.join().unwrap(), "came in before its turn");
        });
        assert_eq!(names(&there), ["a"]);
    }
}
