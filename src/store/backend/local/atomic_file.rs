//! A file on its way into a folder: written and synced where no key names it, then given its name in one step.
//!
//! It has no name at all until then, where the file system can do that. To replace a file it needs one for a moment
//! (`name`), which no listing shows and which one writer at a time holds by a lock: so of several zarrfs that change
//! one key each sees what the one before it has left. A lock ends with its process; the next writer of the key, or
//! whoever removes the folder, removes what it left behind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RawDir, RenameFlags, Stat};
use rustix::io::Errno;

use crate::store::Version;

/// What the names of files on their way begin with; 16 hexadecimal digits follow.
const PREFIX: &str = ".zarrfs-arriving-";

const DIGITS: usize = 16;

/// How long others may take with the same key, and how often they are looked at.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

/// What anybody may do with a new file, less the umask.
const EVERYBODY: Mode = Mode::from_raw_mode(0o666);

const FILE: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

/// Returns the name that a file has on its way to `name`.
fn name_for(name: &[u8]) -> String {
    format!("{PREFIX}{:016x}", Version::of(name).0)
}

/// Whether a name is that of a file on its way.
pub(super) fn is_name(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX.as_bytes())
        .is_some_and(|rest| rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit))
}

/// A file on its way to `name` in `folder`.
pub(super) struct AtomicFile<'a> {
    folder: &'a OwnedFd,
    name: &'a [u8],
    file: OwnedFd,
    /// The name that it has now, if it has one; the lock on it is ours.
    held: Option<String>,
}

impl<'a> AtomicFile<'a> {
    /// Makes an empty file, without a name if that can be.
    pub(super) fn new(folder: &'a OwnedFd, name: &'a [u8]) -> rustix::io::Result<AtomicFile<'a>> {
        match nameless(folder)? {
            Some(file) => Ok(AtomicFile {
                folder,
                name,
                file,
                held: None,
            }),
            None => AtomicFile::named(folder, name),
        }
    }

    /// Makes an empty file that has its passing name from the beginning.
    fn named(folder: &'a OwnedFd, name: &'a [u8]) -> rustix::io::Result<AtomicFile<'a>> {
        let passing = name_for(name);
        let flags = FILE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = in_turn(folder, &passing, || {
            let file = rustix::fs::openat(folder, passing.as_str(), flags, EVERYBODY)?;
            // Between these two steps another one may have taken it for left behind.
            let is_ours = lock(&file)? && is_there(folder, &passing, &file)?;
            is_ours.then_some(file).ok_or(Errno::EXIST)
        })?;
        Ok(AtomicFile {
            folder,
            name,
            file,
            held: Some(passing),
        })
    }

    /// Returns the file, to be written.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Waits until nobody else changes the key through this program.
    pub(super) fn take_turn(&mut self) -> rustix::io::Result<()> {
        if self.held.is_some() {
            return Ok(());
        }
        let passing = name_for(self.name);
        if !lock(&self.file)? {
            return Err(Errno::AGAIN);
        }
        in_turn(self.folder, &passing, || {
            link(&self.file, self.folder, passing.as_bytes())
        })?;
        self.held = Some(passing);
        Ok(())
    }

    /// Gives the file its name if nothing has it; `EXIST` if something has.
    pub(super) fn land_beside(&mut self) -> rustix::io::Result<()> {
        let Some(passing) = &self.held else {
            return link(&self.file, self.folder, self.name);
        };
        let flags = RenameFlags::NOREPLACE;
        let (from, to) = (passing.as_str(), self.name);
        match rustix::fs::renameat_with(self.folder, from, self.folder, to, flags) {
            Ok(()) => {
                self.held = None;
                return Ok(());
            }
            // Not every file system can do that.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        let none = AtFlags::empty();
        match rustix::fs::linkat(self.folder, from, self.folder, to, none) {
            Ok(()) => self.leave(),
            // Nor this: then others are only looked for just before.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                match stat(self.folder, self.name)? {
                    Some(_) => Err(Errno::EXIST),
                    None => self.land(),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the file its name, in the place of what has it. Only in turn.
    pub(super) fn land(&mut self) -> rustix::io::Result<()> {
        let passing = self.held.as_deref().ok_or(Errno::NOENT)?;
        rustix::fs::renameat(self.folder, passing, self.folder, self.name)?;
        self.held = None;
        Ok(())
    }

    /// Lets the next one have its turn.
    pub(super) fn leave(&mut self) -> rustix::io::Result<()> {
        match self.held.take() {
            Some(passing) => unlink(self.folder, &passing),
            None => Ok(()),
        }
    }
}

impl Drop for AtomicFile<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = self.leave();
    }
}

/// Makes a file without a name; nothing if it could not get one later.
fn nameless(folder: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let file = match rustix::fs::openat(folder, c".", FILE | OFlags::TMPFILE, EVERYBODY) {
        Ok(file) => file,
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_seen = rustix::fs::stat(by_number(&file)).is_ok();
    Ok(is_seen.then_some(file))
}

/// Returns the path by which the kernel knows a file that has no name.
fn by_number(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn link(file: &OwnedFd, folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, by_number(file), folder, name, flags)
}

fn unlink(folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns what has a name; links are not followed.
pub(super) fn stat(folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks a file; false if somebody else has.
fn lock(file: impl AsFd) -> rustix::io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a name is still that of an open file.
fn is_there(folder: &OwnedFd, name: &str, file: &OwnedFd) -> rustix::io::Result<bool> {
    let ours = rustix::fs::fstat(file)?;
    let there = stat(folder, name.as_bytes())?;
    Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)))
}

/// Tries to take a name until nobody has it; what a process that is gone has left is removed.
fn in_turn<T>(
    folder: &OwnedFd,
    passing: &str,
    mut take: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match take() {
            Err(Errno::EXIST) if Instant::now() > end => return Err(Errno::BUSY),
            Err(Errno::EXIST) => {}
            answer => return answer,
        }
        if !clear(folder, passing)? {
            thread::sleep(PAUSE);
        }
    }
}

/// Removes a passing name that nobody holds; false if somebody does.
fn clear(folder: &OwnedFd, passing: &str) -> rustix::io::Result<bool> {
    let open = |flags: OFlags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        rustix::fs::openat(folder, passing, flags, Mode::empty())
    };
    let opened = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => open(OFlags::RDONLY),
        opened => opened,
    };
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(true),
        // Another user's: only he can tell.
        Err(Errno::ACCESS) => return Ok(false),
        Err(error) => return Err(error),
    };
    if !lock(&file)? {
        return Ok(false);
    }
    if is_there(folder, passing, &file)? {
        unlink(folder, passing)?;
    }
    Ok(true)
}

/// Removes what processes that are gone have left in a folder.
pub(super) fn sweep(folder: &OwnedFd) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if is_name(&name)
            && let Ok(name) = str::from_utf8(&name)
        {
            clear(folder, name)?;
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

    #[test]
    fn nothing_stays_of_a_file_that_did_not_arrive() {
        let (there, fd) = folder();
        for make in [AtomicFile::new, AtomicFile::named] {
            let mut arrival = make(&fd, b"a").unwrap();
            arrival.take_turn().unwrap();
            assert!(is_name(names(&there)[0].as_bytes()));
            drop(arrival);
            assert!(names(&there).is_empty());
        }
    }

    #[test]
    fn named_or_not_a_file_arrives_once() {
        let (there, fd) = folder();
        for make in [AtomicFile::new, AtomicFile::named] {
            let mut arrival = make(&fd, b"a").unwrap();
            arrival.land_beside().unwrap();
            drop(arrival);
            assert_eq!(names(&there), ["a"]);
            let mut other = make(&fd, b"a").unwrap();
            assert_eq!(other.land_beside(), Err(Errno::EXIST));
            other.take_turn().unwrap();
            other.land().unwrap();
            drop(other);
            assert_eq!(names(&there), ["a"]);
            fs::remove_file(there.path().join("a")).unwrap();
        }
    }

    #[test]
    fn what_a_dead_process_left_is_removed() {
        let (there, fd) = folder();
        let left = there.path().join(name_for(b"a"));
        for read_only in [false, true] {
            fs::write(&left, "left").unwrap();
            let mut rights = fs::metadata(&left).unwrap().permissions();
            rights.set_readonly(read_only);
            fs::set_permissions(&left, rights).unwrap();
            let mut arrival = AtomicFile::new(&fd, b"a").unwrap();
            arrival.take_turn().unwrap();
            arrival.land().unwrap();
        }
        assert_eq!(names(&there), ["a"]);
        fs::write(&left, "left").unwrap();
        sweep(&fd).unwrap();
        assert_eq!(names(&there), ["a"]);
    }

    #[test]
    fn one_writer_waits_for_the_other() {
        let (there, fd) = folder();
        let mut first = AtomicFile::new(&fd, b"a").unwrap();
        first.take_turn().unwrap();
        sweep(&fd).unwrap();
        assert_eq!(names(&there).len(), 1, "a turn that is taken is kept");
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = AtomicFile::named(&fd, b"a").unwrap();
                let seen = stat(&fd, b"a").unwrap().is_some();
                second.land().unwrap();
                seen
            });
            thread::sleep(Duration::from_millis(20));
            first.land().unwrap();
            drop(first);
            assert!(second.join().unwrap(), "came in before its turn");
        });
        assert_eq!(names(&there), ["a"]);
    }
}
