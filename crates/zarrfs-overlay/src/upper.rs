//! The upper folder on disk: an ordinary directory with readable names.
//!
//! `keys/` has the written files under their keys; `frozen/` the changes of a commit that has begun; `pending/` the
//! files that are being written, and replaced files that are kept until their replacements are synced; `rescued/` the
//! files that were incomplete after a crash. The folder belongs to one store and is open in one process at a time.
//! `exchange` freezes a layer and drops it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::journal::{Journal, open_or_look};
use crate::journal_record::JournalRecord;
use crate::layer_dir::KeysDir;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// An upper folder, open and locked.
pub(crate) struct Upper {
    path: PathBuf,
    pending: OwnedFd,
    last_number: AtomicU64,
    _lock: File,
}

/// A file in `pending/`.
pub(crate) struct PendingFile {
    pub(crate) name: String,
    pub(crate) inode: u64,
    /// Length in bytes.
    pub(crate) length: u64,
}

const KEYS: &str = "keys";
const FROZEN: &str = "frozen";
const PENDING: &str = "pending";
const RESCUED: &str = "rescued";
/// Prefix of the names of spare files in `pending/`. All other names there begin with a number.
const SPARE: &str = "spare-";
const JOURNAL: &str = "journal";
const IDENTITY: &str = "zarrfs.json";
/// The temporary name of `zarrfs.json` while it is written.
const NEW_IDENTITY: &str = "zarrfs.json.new";
const LOCK: &str = "lock";

/// The layout version that is written and read. In the layout of zarrfs 0.1, files can have several names, and there
/// can be pipes and sockets.
const FORMAT_VERSION: u64 = 2;
/// The layout version of zarrfs 0.1.
const FORMAT_OF_0_1: u64 = 1;

const README: &str = "\
This folder holds changes of a Zarr store that are not in the store yet.
`zarrfs mount STORE DIR --cow THIS-FOLDER` shows the store with them.

    zarrfs.json   which store they belong to
    keys/         every key that was written, as a file under its name
    journal       what was deleted or renamed, what the store held before, and
                  attributes of files whose content was not changed
    pending/      files that are being written at this moment, and replaced ones
                  that are needed until the disk has the new ones
    frozen/       keys and journal of changes that a commit has begun with
    next/         what the next commit needs, made ahead for a disk that is full
    rescued/      files that were not whole when zarrfs ended

`zarrfs status`, `diff`, `commit` and `discard` work on this folder. Look at
everything; change it by them, or through the mount.
";

impl Upper {
    /// Opens the upper folder at `path` for the store at `store`, a path or URL without secrets, and creates it if it
    /// is missing or empty. Without `store`, the folder must exist, and may belong to any store.
    ///
    /// Errors: `Exists` if another process has it open, `Invalid` if it belongs to a store in another place, `NotEmpty`
    /// if it contains other files.
    pub(crate) fn open(path: &Path, store: Option<&str>) -> Result<Upper> {
        let failed = |error: std::io::Error| Error::os(path.display(), error);
        let is_new = !path.join(IDENTITY).exists();
        if is_new && store.is_none() {
            let why = "is no folder of changes: it has no zarrfs.json";
            return Err(Error::new(Kind::NotFound, path.display(), why));
        }
        if is_new {
            check_empty(path)?;
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(failed)?;
        }
        let path = path.canonicalize().map_err(failed)?;
        let lock = lock(&path)?;
        match store {
            Some(store) if is_new => initialize(&path, store).map_err(failed)?,
            _ => {}
        }
        let found = belongs_to(&path)?;
        if let Some(store) = store.filter(|store| !is_same_place(store, &found)) {
            let why = format!(
                "holds changes of {found}, not of {store}; if the store was moved there, `zarrfs mount --rebind` takes it"
            );
            return Err(Error::invalid(path.display(), why));
        }
        Ok(Upper {
            pending: folder(&path.join(PENDING))?,
            last_number: AtomicU64::new(0),
            _lock: lock,
            path,
        })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the folder for files that were incomplete when the program ended.
    pub(crate) fn rescued(&self) -> PathBuf {
        self.path.join(RESCUED)
    }

    /// Makes the folder belong to the store at `store` from now on.
    pub(crate) fn rebind(&self, store: &str) -> Result<()> {
        let written =
            write_identity(&self.path, store).and_then(|()| File::open(&self.path)?.sync_all());
        written.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Returns the path of the journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Returns the path of the folder of keys.
    pub(crate) fn keys(&self) -> PathBuf {
        self.path.join(KEYS)
    }

    /// Replaces a `NoSpace` error with one that says how much space is needed; returns any other error unchanged.
    pub(crate) fn without_room(&self, error: Error, needs: &str) -> Error {
        match error.kind() {
            Kind::NoSpace => {
                let why = format!("the disk is full: {needs}");
                Error::new(Kind::NoSpace, self.path.display(), why)
            }
            _ => error,
        }
    }

    /// Syncs the names in the folder itself, so that they survive a power loss.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Creates a file that has no key yet; returns its name in `pending/`.
    pub(crate) fn create_pending(&self, key: &Key) -> rustix::io::Result<(String, File)> {
        let name = self.unused_name(key);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&self.pending, &name, flags, mode)?;
        Ok((name, File::from(fd)))
    }

    /// Moves a pending file to its key, atomically.
    pub(crate) fn publish(
        &self,
        pending: &str,
        keys: &KeysDir,
        key: &Key,
    ) -> rustix::io::Result<()> {
        let (folder, name) = keys.parent(key)?;
        rustix::fs::renameat(&self.pending, pending, folder, name)
    }

    /// Moves a pending file to its key, atomically, and the file that had the key to `pending/`; returns its name
    /// there.
    pub(crate) fn exchange(
        &self,
        pending: &str,
        keys: &KeysDir,
        key: &Key,
    ) -> rustix::io::Result<String> {
        let (folder, name) = keys.parent(key)?;
        rustix::fs::renameat_with(&self.pending, pending, folder, name, RenameFlags::EXCHANGE)?;
        let retained = self.unused_name(key);
        match rustix::fs::renameat(&self.pending, pending, &self.pending, &retained) {
            Ok(()) => Ok(retained),
            // The exchange has already happened: the old file keeps the new file's name.
            Err(_) => Ok(pending.to_string()),
        }
    }

    /// Renames a file in `pending/` so that a crash drops it instead of rescuing it; returns the new name.
    pub(crate) fn set_spare(&self, pending: &str) -> rustix::io::Result<String> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let spare = format!("{SPARE}{number}");
        rustix::fs::renameat(&self.pending, pending, &self.pending, &spare)?;
        Ok(spare)
    }

    /// Gives a file in `pending/` the name of a pending file of a key; returns the new name.
    pub(crate) fn rename_pending(&self, name: &str, key: &Key) -> rustix::io::Result<String> {
        let pending = self.unused_name(key);
        rustix::fs::renameat(&self.pending, name, &self.pending, &pending)?;
        Ok(pending)
    }

    /// Moves the file of a key to `pending/`; returns its name there.
    pub(crate) fn retain(&self, keys: &KeysDir, key: &Key) -> rustix::io::Result<String> {
        let retained = self.unused_name(key);
        let (folder, name) = keys.parent(key)?;
        rustix::fs::renameat(folder, name, &self.pending, &retained)?;
        Ok(retained)
    }

    /// Returns an unused name in `pending/` for a file of a key.
    fn unused_name(&self, key: &Key) -> String {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{number}-{}", name_part(key))
    }

    /// Syncs the whole file system of the folder.
    pub(crate) fn sync_disk(&self) -> Result<()> {
        let synced = rustix::fs::syncfs(&self.pending);
        synced.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Removes a pending file.
    pub(crate) fn discard_pending(&self, pending: &str) {
        let gone = rustix::fs::unlinkat(&self.pending, pending, AtFlags::empty());
        if let Err(error) = gone {
            log::debug!("pending/{pending}: {error}");
        }
    }

    /// Returns the pending files.
    pub(crate) fn pending_files(&self) -> Result<Vec<PendingFile>> {
        let folder = self.path.join(PENDING);
        let failed = |error| Error::os(folder.display(), error);
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let found = entry.metadata().map_err(failed)?;
            // These names are made here and are always UTF-8.
            if let Ok(name) = entry.file_name().into_string() {
                files.push(PendingFile {
                    name,
                    inode: found.ino(),
                    length: found.len(),
                });
            }
        }
        Ok(files)
    }

    /// Returns the paths of the files in `rescued/`.
    pub(crate) fn rescued_files(&self) -> Result<Vec<String>> {
        let folder = self.rescued();
        let failed = |error| Error::os(folder.display(), error);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let path = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.map_err(failed)?.path();
            Ok(path.display().to_string())
        };
        let mut paths: Vec<String> = entries.map(path).collect::<Result<_>>()?;
        paths.sort();
        Ok(paths)
    }

    /// Moves the pending files to `rescued/`: they were being written when the program ended. Spare files are removed.
    pub(crate) fn rescue_pending(&self) -> Result<()> {
        let folder = self.path.join(PENDING);
        let failed = |error| Error::os(folder.display(), error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_bytes().starts_with(SPARE.as_bytes()) {
                fs::remove_file(entry.path()).map_err(failed)?;
            } else {
                self.rescue(&entry.path(), &entry.file_name())?;
            }
        }
        Ok(())
    }

    /// Moves an incomplete file from its key in a layer's folder of keys to `rescued/`.
    pub(crate) fn rescue_key(&self, keys: &Path, key: &Key) -> Result<()> {
        let path = keys.join(OsStr::from_bytes(key.as_bytes()));
        self.rescue(&path, OsStr::new(&name_part(key)))
    }

    /// Moves a file to `rescued/` under an unused name, or removes it if it is empty.
    fn rescue(&self, from: &Path, name: &OsStr) -> Result<()> {
        let failed = |error| Error::os(from.display(), error);
        let empty = match fs::symlink_metadata(from) {
            Ok(found) => found.len() == 0,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        if empty {
            return fs::remove_file(from).map_err(failed);
        }
        let rescued = self.rescued();
        fs::create_dir_all(&rescued).map_err(failed)?;
        let free = (0..).map(|number| {
            let mut name = name.to_os_string();
            name.push(format!("~{number}"));
            rescued.join(name)
        });
        for to in free {
            if to.symlink_metadata().is_err() {
                log::warn!("what was being written is kept as {}", to.display());
                return fs::rename(from, &to).map_err(failed);
            }
        }
        Ok(())
    }
}

/// The maximum number of characters of a key in the name of a file in `pending/` or `rescued/`.
const MAX_NAME_CHARS: usize = 60;

/// Returns the end of a key in a form that is valid in a file name.
fn name_part(key: &Key) -> String {
    let text = String::from_utf8_lossy(key.as_bytes()).replace('/', "+");
    let skipped = text.chars().count().saturating_sub(MAX_NAME_CHARS);
    text.chars().skip(skipped).collect()
}

fn folder(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::os(path.display(), error))
}

/// Fails with `NotEmpty` if a folder has contents and is not an upper folder.
fn check_empty(path: &Path) -> Result<()> {
    let mut names = match fs::read_dir(path) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::os(path.display(), error)),
    };
    // An upper folder whose creation was interrupted has at most these.
    let begun = [README_NAME, LOCK, KEYS, PENDING, JOURNAL, NEW_IDENTITY];
    let has_others = names.any(|entry| {
        entry.is_ok_and(|entry| !begun.iter().any(|name| entry.file_name() == **name))
    });
    if has_others {
        let why = "holds something, and is no folder of changes: expected an empty one";
        return Err(Error::new(Kind::NotEmpty, path.display(), why));
    }
    Ok(())
}

const README_NAME: &str = "README";

/// The number of attempts to lock an upper folder, and the pause between them. A daemon whose mount was just unmounted
/// holds the lock until all changes are synced.
const LOCK_ATTEMPTS: usize = 250;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks an upper folder. Fails with `Exists` if another process keeps the lock.
fn lock(path: &Path) -> Result<File> {
    let name = path.join(LOCK);
    let file = open_or_look(&name).map_err(|error| Error::os(name.display(), error))?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(Error::os(name.display(), error)),
        }
    }
    let why = "is in use by another mount or command";
    Err(Error::new(Kind::Exists, path.display(), why))
}

/// Creates the parts of an upper folder. The file that identifies it as an upper folder comes last.
fn initialize(path: &Path, store: &str) -> std::io::Result<()> {
    for name in [KEYS, PENDING] {
        fs::create_dir_all(path.join(name))?;
    }
    fs::write(path.join(README_NAME), README)?;
    write_identity(path, store)
}

/// Writes the place of the store that an upper folder belongs to.
fn write_identity(path: &Path, store: &str) -> std::io::Result<()> {
    let identity =
        json!({ "zarrfs": FORMAT_VERSION, "store": zarrfs_store::canonical_location(store) });
    let replacement = path.join(NEW_IDENTITY);
    fs::write(&replacement, format!("{identity:#}\n"))?;
    File::open(&replacement)?.sync_all()?;
    fs::rename(replacement, path.join(IDENTITY))?;
    File::open(path)?.sync_all()?;
    path.parent()
        .map_or(Ok(()), |above| File::open(above)?.sync_all())
}

/// Whether two paths or URLs name the same store. `zarrfs.json` may have a place as the user typed it.
pub(crate) fn is_same_place(one: &str, other: &str) -> bool {
    one == other || zarrfs_store::canonical_location(one) == zarrfs_store::canonical_location(other)
}

/// Returns the place of the store that an upper folder belongs to. Fails with `Corrupt` or `Unsupported` if
/// `zarrfs.json` cannot be read.
pub fn belongs_to(path: &Path) -> Result<String> {
    let name = path.join(IDENTITY);
    let text = fs::read_to_string(&name).map_err(|error| Error::os(name.display(), error))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| Error::corrupt(name.display(), error))?;
    let why = match value.get("zarrfs").and_then(Value::as_u64) {
        Some(FORMAT_VERSION) => None,
        Some(FORMAT_OF_0_1) => {
            Some("written by zarrfs 0.1: commit or discard it with that version".to_string())
        }
        _ => Some(format!(
            "expected a folder of changes of form {FORMAT_VERSION}"
        )),
    };
    if let Some(why) = why {
        return Err(Error::unsupported(path.display(), why));
    }
    match value.get("store").and_then(Value::as_str) {
        Some(store) => Ok(store.to_string()),
        None => Err(Error::corrupt(
            name.display(),
            "expected the name of a store",
        )),
    }
}

/// Creates an unnamed temporary file, which is deleted when it is closed.
pub(crate) fn unnamed_file() -> std::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::open(std::env::temp_dir(), flags, mode)?.into())
}

/// The folder of the next layer, made ahead.
const NEXT: &str = "next";
/// Prefix of frozen layers that were committed and still have readers; a number follows.
const COMMITTED: &str = "committed-";

impl Upper {
    /// Returns the path of the frozen layer's journal, or `None` if there is no frozen layer.
    pub(crate) fn frozen_journal(&self) -> Option<PathBuf> {
        let journal = self.path.join(FROZEN).join(JOURNAL);
        journal.exists().then_some(journal)
    }

    /// Returns the path of the frozen layer's folder of keys.
    pub(crate) fn frozen_keys(&self) -> PathBuf {
        self.path.join(FROZEN).join(KEYS)
    }

    /// Makes the next layer ahead, unless there is a frozen layer: then a commit can begin even if the disk is full. If
    /// this fails, the commit makes the layer itself.
    pub(crate) fn make_next_ahead(&self) {
        // With both folders, `finish_freezing` would take this for a freeze that has begun.
        if self.path.join(FROZEN).exists() {
            return;
        }
        if let Err(error) = self.make_next() {
            log::debug!("nothing is made ahead for a commit: {error}");
        }
    }

    /// Creates the missing parts of the next layer: an empty folder of keys, an empty folder for the layer that is
    /// frozen, and a journal with reserved space. Returns the journal.
    fn make_next(&self) -> Result<Journal> {
        let next = self.path.join(NEXT);
        let failed = |error| Error::os(next.display(), error);
        for folder in [KEYS, FROZEN] {
            fs::create_dir_all(next.join(folder)).map_err(failed)?;
        }
        let journal = next.join(JOURNAL);
        if journal.metadata().is_ok_and(|found| found.len() > 0) {
            fs::remove_file(&journal).map_err(failed)?;
        }
        let mut journal = Journal::open(&journal, &mut |_| {})?;
        journal.reserve(0);
        Ok(journal)
    }

    /// Prepares the next layer for the exchange, with these records in its journal.
    pub(crate) fn prepare_next(&self, records: &[JournalRecord]) -> Result<()> {
        let prepared = self.make_next().and_then(|mut journal| {
            let mut records = records.chunks(1);
            records.try_for_each(|record| journal.append(record))?;
            journal.end().sync()
        });
        prepared.inspect_err(|_| self.drop_next())
    }

    /// Drops the prepared layer.
    pub(crate) fn drop_next(&self) {
        let _ = fs::remove_dir_all(self.path.join(NEXT));
        // This fails if it holds a frozen layer, which is right.
        let _ = fs::remove_dir(self.path.join(FROZEN));
    }

    /// Opens the folder of keys of the prepared layer; also returns the path of its journal.
    pub(crate) fn open_next(&self) -> Result<(KeysDir, PathBuf)> {
        let next = self.path.join(NEXT);
        Ok((KeysDir::open(&next.join(KEYS))?, next.join(JOURNAL)))
    }

    /// Replaces the current layer by the prepared one; the current layer becomes the frozen layer. After a crash in
    /// between, `finish_freezing` finds out from the existing names how far it came, and completes it.
    pub(crate) fn swap_in_next(&self) -> Result<()> {
        let (next, frozen) = (self.path.join(NEXT), self.path.join(FROZEN));
        let rename = |from: PathBuf, to: PathBuf| {
            fs::rename(&from, to).map_err(|error| Error::os(from.display(), error))
        };
        if !frozen.exists() {
            rename(next.join(FROZEN), frozen.clone())?;
        }
        if next.join(KEYS).exists() {
            if !frozen.join(KEYS).exists() {
                rename(self.path.join(KEYS), frozen.join(KEYS))?;
            }
            rename(next.join(KEYS), self.path.join(KEYS))?;
        }
        if self.journal().exists() {
            rename(self.journal(), frozen.join(JOURNAL))?;
        }
        rename(next.join(JOURNAL), self.journal())?;
        fs::remove_dir_all(&next).map_err(|error| Error::os(next.display(), error))
    }

    /// Undoes a failed `swap_in_next` as far as possible.
    pub(crate) fn undo_swap(&self) {
        let (frozen, keys) = (self.path.join(FROZEN), self.path.join(KEYS));
        if frozen.join(KEYS).exists() {
            // This removes only the empty folder of the prepared layer.
            let _ = fs::remove_dir(&keys);
            let _ = fs::rename(frozen.join(KEYS), &keys);
        }
        if frozen.join(JOURNAL).exists() {
            let _ = fs::rename(frozen.join(JOURNAL), self.journal());
        }
        self.drop_next();
    }

    /// After a crash, completes a `swap_in_next` that had begun, or drops a layer that was only prepared. Removes the
    /// rest of committed layers.
    pub(crate) fn finish_freezing(&self) -> Result<()> {
        self.remove_committed()?;
        let next = self.path.join(NEXT);
        if !next.exists() {
            return Ok(());
        }
        let has_begun = self.path.join(FROZEN).join(KEYS).exists();
        if has_begun && next.join(JOURNAL).exists() {
            return self.swap_in_next();
        }
        self.drop_next();
        Ok(())
    }

    /// Renames the committed frozen layer away; returns the path of its files.
    pub(crate) fn retire_frozen(&self) -> Result<PathBuf> {
        let frozen = self.path.join(FROZEN);
        let failed = |error| Error::os(frozen.display(), error);
        loop {
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let committed = self.path.join(format!("{COMMITTED}{number}"));
            if !committed.exists() {
                fs::rename(&frozen, &committed).map_err(failed)?;
                // Free the space of its journal, which is enough for the next layer, and use it before other programs
                // do.
                let journal = File::options().write(true).open(committed.join(JOURNAL));
                let _ = journal.and_then(|journal| journal.set_len(0));
                self.make_next_ahead();
                return Ok(committed);
            }
        }
    }

    fn remove_committed(&self) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry
                .file_name()
                .as_bytes()
                .starts_with(COMMITTED.as_bytes())
            {
                match fs::remove_dir_all(entry.path()) {
                    // A thread of this process has removed it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::Key;

    #[test]
    fn a_folder_belongs_to_one_store_and_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        let open = Upper::open(&path, Some("s3://a/b")).unwrap();
        let second = Upper::open(&path, Some("s3://a/b")).err().unwrap();
        assert_eq!(second.kind(), Kind::Exists);
        drop(open);
        let other = Upper::open(&path, Some("s3://a/c")).err().unwrap();
        assert_eq!(other.kind(), Kind::Invalid);
        assert!(other.to_string().contains("s3://a/b"), "{other}");
        Upper::open(&path, None).unwrap();
        assert!(path.join("README").exists());
    }

    /// After the first rename the new file has the key: the failure is not an error, and the old file is kept.
    #[test]
    fn an_exchange_whose_second_rename_fails_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        let upper = Upper::open(&path, Some("x")).unwrap();
        let keys = KeysDir::open(&path.join(KEYS)).unwrap();
        let key = Key::new("a").unwrap();
        fs::write(path.join(KEYS).join("a"), "old").unwrap();
        let (name, _) = upper.create_pending(&key).unwrap();
        let pending = path.join(PENDING);
        fs::write(pending.join(&name), "new").unwrap();
        let number = upper.last_number.load(Ordering::Relaxed) + 1;
        let in_the_way = format!("{number}-{}", name_part(&key));
        fs::create_dir(pending.join(in_the_way)).unwrap();
        let retained = upper.exchange(&name, &keys, &key).unwrap();
        assert_eq!(fs::read(path.join(KEYS).join("a")).unwrap(), b"new");
        assert_eq!(fs::read(pending.join(retained)).unwrap(), b"old");
    }

    /// As after an unmount, while the daemon is still shutting down.
    #[test]
    fn a_folder_is_waited_for_that_is_about_to_be_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        let open = Upper::open(&path, Some("s3://a/b")).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(5 * LOCK_PAUSE);
            drop(open);
        });
        Upper::open(&path, Some("s3://a/b")).unwrap();
        ending.join().unwrap();
    }

    #[test]
    fn a_folder_knows_its_store_by_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (store, path) = (root.join("data.zarr"), root.join("upper"));
        fs::create_dir(&store).unwrap();
        std::os::unix::fs::symlink("data.zarr", root.join("link")).unwrap();
        let name = |spelled: &str| root.join(spelled).to_str().unwrap().to_string();
        Upper::open(&path, Some(&name("link/"))).unwrap();
        assert_eq!(belongs_to(&path).unwrap(), name("data.zarr"));
        for spelled in ["data.zarr", "data.zarr/", "link"] {
            Upper::open(&path, Some(&name(spelled))).unwrap();
        }
        // Earlier versions wrote the place as it was typed.
        let identity = json!({"zarrfs": 2, "store": name("link/")});
        fs::write(path.join(IDENTITY), identity.to_string()).unwrap();
        Upper::open(&path, Some(&name("data.zarr"))).unwrap();
        let other = Upper::open(&path, Some(&name("other"))).err().unwrap();
        assert!(other.to_string().contains("--rebind"), "{other}");
        let upper = Upper::open(&path, None).unwrap();
        upper.rebind(&name("other/")).unwrap();
        drop(upper);
        assert_eq!(belongs_to(&path).unwrap(), name("other"));
    }

    /// As if the disk was full when the last file was written.
    #[test]
    fn a_folder_whose_making_was_cut_off_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        drop(Upper::open(&path, Some("/x")).unwrap());
        fs::remove_file(path.join(IDENTITY)).unwrap();
        for name in [README_NAME, NEW_IDENTITY] {
            fs::write(path.join(name), "{\"zarr").unwrap();
        }
        drop(Upper::open(&path, Some("/x")).unwrap());
        assert_eq!(belongs_to(&path).unwrap(), "/x");
        assert_eq!(fs::read_to_string(path.join(README_NAME)).unwrap(), README);
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "").unwrap();
        let error = Upper::open(folder.path(), Some("x")).err().unwrap();
        assert_eq!(error.kind(), Kind::NotEmpty);
        let error = Upper::open(&folder.path().join("none"), None).err();
        assert!(error.is_some());
    }

    /// The renames of `swap_in_next`, in order.
    const RENAMES: [(&str, &str); 5] = [
        ("next/frozen", "frozen"),
        ("keys", "frozen/keys"),
        ("next/keys", "keys"),
        ("journal", "frozen/journal"),
        ("next/journal", "journal"),
    ];

    #[test]
    fn a_freeze_that_was_cut_anywhere_is_finished_or_never_was() {
        for cut in 0..=RENAMES.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("upper");
            let upper = Upper::open(&path, Some("x")).unwrap();
            fs::write(path.join("keys/a"), "old").unwrap();
            let record = |key: &str| JournalRecord::Created(Key::new(key).unwrap());
            let mut journal = Journal::open(&upper.journal(), &mut |_| {}).unwrap();
            journal.append(&[record("old")]).unwrap();
            upper.prepare_next(&[record("new")]).unwrap();
            for (from, to) in &RENAMES[..cut] {
                fs::rename(path.join(from), path.join(to)).unwrap();
            }
            upper.finish_freezing().unwrap();
            let first = |journal: &str| {
                let mut records = Vec::new();
                Journal::open(&path.join(journal), &mut |record| records.push(record)).unwrap();
                records
            };
            let is_frozen = cut > 1;
            let (old, journal) = if is_frozen {
                ("frozen/keys/a", "frozen/journal")
            } else {
                ("keys/a", "journal")
            };
            assert_eq!(fs::read(path.join(old)).unwrap(), b"old", "cut at {cut}");
            assert_eq!(first(journal), [record("old")], "cut at {cut}");
            assert_eq!(upper.frozen_journal().is_some(), is_frozen);
            assert!(!path.join("next").exists() && path.join("keys").exists());
            if is_frozen {
                assert_eq!(first("journal"), [record("new")], "cut at {cut}");
            }
            // With a frozen layer, the next layer is not made ahead.
            upper.make_next_ahead();
            assert_eq!(path.join("next").exists(), !is_frozen, "cut at {cut}");
            upper.finish_freezing().unwrap();
            assert_eq!(upper.frozen_journal().is_some(), is_frozen, "cut at {cut}");
        }
    }
}
