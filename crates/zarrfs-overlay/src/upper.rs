//! The upper folder on disk: an ordinary directory with readable names.
//!
//! `keys/` has the written files under their keys, and `frozen/` the changes of a commit that has begun. `pending/` has
//! files that are being written, and replaced files until the files that replaced them are synced. `rescued/` has files
//! that were incomplete after a crash. The folder belongs to one store and is open in one process at a time. `next/`
//! and `committed-N/` exist during a freeze and at the end of a commit. Both are sequences of renames: after a crash,
//! the names that exist show which renames were done. The next layer's folders and journal are made in advance, because
//! the disk may be full when a commit begins.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::journal::{Journal, open_or_read_only};
use crate::journal_record::JournalRecord;
use crate::pending_folder::{PendingFolder, name_part};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// An upper folder that this process has open and locked.
pub(crate) struct Upper {
    path: PathBuf,
    pub(crate) pending: PendingFolder,
    _lock: File,
}

pub(crate) struct LayerPaths {
    pub(crate) keys: PathBuf,
    pub(crate) journal: PathBuf,
}

impl LayerPaths {
    fn in_folder(folder: &Path) -> LayerPaths {
        LayerPaths {
            keys: folder.join("keys"),
            journal: folder.join("journal"),
        }
    }
}

const IDENTITY: &str = "zarrfs.json";

/// The version of the folder's layout. In version 1, of zarrfs 0.1, files can have several names, and there can be
/// pipes and sockets.
const FORMAT_VERSION: u64 = 2;

const README: &str = "\
This directory has uncommitted changes of a Zarr store.
`zarrfs mount STORE DIR --cow THIS-DIRECTORY` shows the store with the changes.

    zarrfs.json   the store that the changes belong to
    keys/         each key that was written, as a file with the name of the key
    journal       deletions, renames, versions of changed keys in the store, and
                  attributes of files with unchanged content
    pending/      files that are being written, and replaced files that are
                  needed until the new files are on the disk
    frozen/       keys and journal of a commit that has begun
    next/         space for the next commit, reserved in case the disk is full
    rescued/      files that were incomplete when zarrfs ended

Use `zarrfs status`, `diff`, `commit` and `discard` with this directory. You can
read all files, but change them only with these commands or through the mount.
";

impl Upper {
    /// Opens the upper folder at `path` for a store, and creates it if it is missing or empty. `store` is the store's
    /// path or URL without secrets. If it is `None`, the folder must exist, and may belong to any store.
    ///
    /// Errors: `Exists` if another process has the folder open, `Invalid` if it belongs to a store in another place,
    /// `NotEmpty` if it contains other files.
    pub(crate) fn open(path: &Path, store: Option<&str>) -> Result<Upper> {
        let failed = |error: std::io::Error| Error::os(path.display(), error);
        let is_new = !path.join(IDENTITY).exists();
        if is_new && store.is_none() {
            let why = "not a zarrfs changes directory: no zarrfs.json found";
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
                "has changes of {found}, not of {store}; if the store was moved, use --rebind"
            );
            return Err(Error::invalid(path.display(), why));
        }
        Ok(Upper {
            pending: PendingFolder::open(path.join("pending"))?,
            _lock: lock,
            path,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `rescued/`, which gets the files that were incomplete when the process ended.
    pub(crate) fn rescued(&self) -> PathBuf {
        self.path.join("rescued")
    }

    /// Makes the folder belong to `store`, a path or URL, instead of the store that it belonged to.
    pub(crate) fn rebind(&self, store: &str) -> Result<()> {
        let written =
            write_identity(&self.path, store).and_then(|()| File::open(&self.path)?.sync_all());
        written.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Returns the paths of the top layer, which programs change.
    pub(crate) fn top(&self) -> LayerPaths {
        LayerPaths::in_folder(&self.path)
    }

    /// Returns the paths of the frozen layer, which a commit writes to the store, or `None` if there is none.
    pub(crate) fn frozen(&self) -> Option<LayerPaths> {
        let frozen = LayerPaths::in_folder(&self.frozen_folder());
        frozen.journal.exists().then_some(frozen)
    }

    /// Returns the paths of the layer that the next commit will make the top layer.
    pub(crate) fn next(&self) -> LayerPaths {
        LayerPaths::in_folder(&self.next_folder())
    }

    fn frozen_folder(&self) -> PathBuf {
        self.path.join("frozen")
    }

    /// Returns the folder of the layer that the next commit will make the top layer.
    fn next_folder(&self) -> PathBuf {
        self.path.join("next")
    }

    /// Replaces the error of a full disk by one that tells how much space is needed. Returns other errors unchanged.
    pub(crate) fn without_room(&self, error: Error, needs: &str) -> Error {
        match error.kind() {
            Kind::NoSpace => {
                let why = format!("the disk is full: {needs}");
                Error::new(Kind::NoSpace, self.path.display(), why)
            }
            _ => error,
        }
    }

    /// Syncs the upper folder itself, so that the names in it survive a power loss.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Syncs the whole file system that has the upper folder.
    pub(crate) fn sync_disk(&self) -> Result<()> {
        let synced = self.pending.sync_disk();
        synced.map_err(|error| Error::os(self.path.display(), error))
    }

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

    /// Moves the incomplete file of a key to `rescued/`. `keys` is the layer's folder of files.
    pub(crate) fn rescue_key(&self, keys: &Path, key: &Key) -> Result<()> {
        let path = keys.join(OsStr::from_bytes(key.as_bytes()));
        self.rescue(&path, OsStr::new(&name_part(key)))
    }

    /// Moves a file to `rescued/` under an unused name. An empty file is removed instead.
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
                log::warn!("kept an incomplete file as {}", to.display());
                return fs::rename(from, &to).map_err(failed);
            }
        }
        Ok(())
    }

    /// Moves the files in `pending/` to `rescued/`, because they were incomplete when the process ended. Spare files
    /// are removed.
    pub(crate) fn rescue_pending(&self) -> Result<()> {
        let folder = self.path.join("pending");
        let failed = |error| Error::os(folder.display(), error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_bytes().starts_with(b"spare-") {
                fs::remove_file(entry.path()).map_err(failed)?;
            } else {
                self.rescue(&entry.path(), &entry.file_name())?;
            }
        }
        Ok(())
    }

    /// Prepares the layer that the next commit will make the top layer, because the disk may be full by then. Nothing
    /// is done during a commit. An error is not reported, because the commit tries again.
    pub(crate) fn make_next_ahead(&self) {
        // Do not prepare a layer now: `frozen/` and `next/` together would look to `finish_freezing` like an
        // interrupted freeze.
        if self.frozen_folder().exists() {
            return;
        }
        if let Err(error) = self.make_next() {
            log::debug!("cannot prepare a commit: {error}");
        }
    }

    /// Creates what is missing of the next layer: a folder for its files, an empty folder that the frozen layer will
    /// use, and a journal with reserved disk space. Returns the journal.
    fn make_next(&self) -> Result<Journal> {
        let next = self.next_folder();
        let failed = |error| Error::os(next.display(), error);
        for folder in ["keys", "frozen"] {
            fs::create_dir_all(next.join(folder)).map_err(failed)?;
        }
        let journal = self.next().journal;
        if journal.metadata().is_ok_and(|found| found.len() > 0) {
            fs::remove_file(&journal).map_err(failed)?;
        }
        let mut journal = Journal::open(&journal, &mut |_| {})?;
        journal.reserve(0);
        Ok(journal)
    }

    /// Prepares the next layer, and writes the given records to its journal.
    pub(crate) fn prepare_next(&self, records: &[JournalRecord]) -> Result<()> {
        let prepared = self.make_next().and_then(|mut journal| {
            let mut records = records.chunks(1);
            records.try_for_each(|record| journal.append(record))?;
            journal.end().sync()
        });
        prepared.inspect_err(|_| self.drop_next())
    }

    /// Removes the prepared next layer.
    pub(crate) fn drop_next(&self) {
        let _ = fs::remove_dir_all(self.next_folder());
        // `remove_dir` fails if the folder has a frozen layer, which must stay.
        let _ = fs::remove_dir(self.frozen_folder());
    }

    /// Makes the top layer the frozen layer, and the prepared layer the top layer, by several renames. After a crash,
    /// `finish_freezing` sees from the names which renames are missing.
    pub(crate) fn swap_in_next(&self) -> Result<()> {
        let (next, frozen) = (self.next_folder(), self.frozen_folder());
        let rename = |from: PathBuf, to: PathBuf| {
            fs::rename(&from, to).map_err(|error| Error::os(from.display(), error))
        };
        if !frozen.exists() {
            rename(next.join("frozen"), frozen.clone())?;
        }
        if next.join("keys").exists() {
            if !frozen.join("keys").exists() {
                rename(self.top().keys, frozen.join("keys"))?;
            }
            rename(next.join("keys"), self.top().keys)?;
        }
        if self.top().journal.exists() {
            rename(self.top().journal, frozen.join("journal"))?;
        }
        rename(next.join("journal"), self.top().journal)?;
        fs::remove_dir_all(&next).map_err(|error| Error::os(next.display(), error))
    }

    /// Undoes the renames of a `swap_in_next` that has failed, as far as possible.
    pub(crate) fn undo_swap(&self) {
        let (frozen, keys) = (self.frozen_folder(), self.top().keys);
        if frozen.join("keys").exists() {
            // Remove the prepared layer's folder. The call fails if it is another folder, which is not empty.
            let _ = fs::remove_dir(&keys);
            let _ = fs::rename(frozen.join("keys"), &keys);
        }
        if frozen.join("journal").exists() {
            let _ = fs::rename(frozen.join("journal"), self.top().journal);
        }
        self.drop_next();
    }

    /// Cleans up after a crash: completes a freeze that had begun, or drops a layer that was only prepared. Removes the
    /// remains of committed layers.
    pub(crate) fn finish_freezing(&self) -> Result<()> {
        self.remove_committed()?;
        let next = self.next_folder();
        if !next.exists() {
            return Ok(());
        }
        let has_begun = self.frozen_folder().join("keys").exists();
        if has_begun && next.join("journal").exists() {
            return self.swap_in_next();
        }
        self.drop_next();
        Ok(())
    }

    /// Renames the folder of the frozen layer, which is committed, to a name for removal; returns that path.
    pub(crate) fn retire_frozen(&self) -> Result<PathBuf> {
        let frozen = self.frozen_folder();
        let failed = |error| Error::os(frozen.display(), error);
        loop {
            let number = self.pending.next_number();
            let committed = self.path.join(format!("committed-{number}"));
            if !committed.exists() {
                fs::rename(&frozen, &committed).map_err(failed)?;
                // Truncate the committed journal and prepare the next layer at once, because its freed space is enough
                // for that and other programs could use it.
                let journal = File::options().write(true).open(committed.join("journal"));
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
            if entry.file_name().as_bytes().starts_with(b"committed-") {
                match fs::remove_dir_all(entry.path()) {
                    // A thread of this process has removed the folder at the same time.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

/// Fails with `NotEmpty` if the folder is neither empty nor an upper folder.
fn check_empty(path: &Path) -> Result<()> {
    let mut names = match fs::read_dir(path) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::os(path.display(), error)),
    };
    // The names of an upper folder whose creation was interrupted, which is completed instead of refused.
    let begun = [
        "README",
        "lock",
        "keys",
        "pending",
        "journal",
        "zarrfs.json.new",
    ];
    let has_others = names.any(|entry| {
        entry.is_ok_and(|entry| !begun.iter().any(|name| entry.file_name() == **name))
    });
    if has_others {
        let why = "not a zarrfs changes directory and not empty; choose a new or empty directory";
        return Err(Error::new(Kind::NotEmpty, path.display(), why));
    }
    Ok(())
}

/// Locks an upper folder for this process. Fails with `Exists` if it is still locked after 5 s: after an unmount, a
/// daemon holds the lock until all changes are synced.
fn lock(path: &Path) -> Result<File> {
    let name = path.join("lock");
    let file = open_or_read_only(&name).map_err(|error| Error::os(name.display(), error))?;
    for _ in 0..250 {
        match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(Error::os(name.display(), error)),
        }
    }
    let why = "the changes directory is in use by another mount or command";
    Err(Error::new(Kind::Exists, path.display(), why))
}

/// Creates the contents of an upper folder. The file that makes it an upper folder, `zarrfs.json`, comes last.
fn initialize(path: &Path, store: &str) -> std::io::Result<()> {
    for name in ["keys", "pending"] {
        fs::create_dir_all(path.join(name))?;
    }
    fs::write(path.join("README"), README)?;
    write_identity(path, store)
}

/// Writes `zarrfs.json`, which names the store that an upper folder belongs to.
fn write_identity(path: &Path, store: &str) -> std::io::Result<()> {
    let identity =
        json!({ "zarrfs": FORMAT_VERSION, "store": zarrfs_store::canonical_location(store) });
    let replacement = path.join("zarrfs.json.new");
    fs::write(&replacement, format!("{identity:#}\n"))?;
    File::open(&replacement)?.sync_all()?;
    fs::rename(replacement, path.join(IDENTITY))?;
    File::open(path)?.sync_all()?;
    path.parent()
        .map_or(Ok(()), |above| File::open(above)?.sync_all())
}

/// Whether two paths or URLs name the same store. One may be spelled as the user typed it, from `zarrfs.json`.
pub(crate) fn is_same_place(one: &str, other: &str) -> bool {
    one == other || zarrfs_store::canonical_location(one) == zarrfs_store::canonical_location(other)
}

/// Returns the path or URL of the store that an upper folder belongs to. Fails with `Corrupt` or `Unsupported` if
/// `zarrfs.json` cannot be read.
pub fn belongs_to(path: &Path) -> Result<String> {
    let name = path.join(IDENTITY);
    let text = fs::read_to_string(&name).map_err(|error| Error::os(name.display(), error))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| Error::corrupt(name.display(), error))?;
    let why = match value.get("zarrfs").and_then(Value::as_u64) {
        Some(FORMAT_VERSION) => None,
        Some(1) => Some(
            "the changes were written by zarrfs 0.1: commit or discard with that version"
                .to_string(),
        ),
        _ => Some(format!(
            "unsupported version of a changes directory, expected version {FORMAT_VERSION}"
        )),
    };
    if let Some(why) = why {
        return Err(Error::unsupported(path.display(), why));
    }
    match value.get("store").and_then(Value::as_str) {
        Some(store) => Ok(store.to_string()),
        None => Err(Error::corrupt(
            name.display(),
            "the path or URL of the store is missing",
        )),
    }
}

/// Creates an unnamed temporary file, which is deleted when it is closed.
pub(crate) fn unnamed_file() -> std::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::open(std::env::temp_dir(), flags, mode)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::Key;

    /// Invariant (overlay): An upper folder belongs to one store, recognized by its location and content, and to one
    /// process.
    #[test]
    fn an_upper_folder_belongs_to_one_store_and_one_process() {
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

    /// After an unmount, a daemon may keep the folder locked for a moment while it syncs.
    #[test]
    fn opening_waits_for_a_folder_that_is_being_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        let open = Upper::open(&path, Some("s3://a/b")).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(open);
        });
        Upper::open(&path, Some("s3://a/b")).unwrap();
        ending.join().unwrap();
    }

    /// Invariant of `an_upper_folder_belongs_to_one_store_and_one_process`.
    #[test]
    fn a_folder_recognizes_its_store_by_the_resolved_path() {
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
        // Earlier versions wrote the path of the store to `zarrfs.json` as the user typed it.
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

    /// The creation of the folder was interrupted, because the disk was full when its last file was written.
    #[test]
    fn an_incompletely_created_folder_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        drop(Upper::open(&path, Some("/x")).unwrap());
        fs::remove_file(path.join(IDENTITY)).unwrap();
        for name in ["README", "zarrfs.json.new"] {
            fs::write(path.join(name), "{\"zarr").unwrap();
        }
        drop(Upper::open(&path, Some("/x")).unwrap());
        assert_eq!(belongs_to(&path).unwrap(), "/x");
        assert_eq!(fs::read_to_string(path.join("README")).unwrap(), README);
    }

    #[test]
    fn a_folder_with_files_of_other_programs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "").unwrap();
        let error = Upper::open(folder.path(), Some("x")).err().unwrap();
        assert_eq!(error.kind(), Kind::NotEmpty);
        let error = Upper::open(&folder.path().join("none"), None).err();
        assert!(error.is_some());
    }

    #[test]
    fn an_interrupted_freeze_is_finished_or_undone() {
        // The renames that a freeze makes, in order.
        let renames = [
            ("next/frozen", "frozen"),
            ("keys", "frozen/keys"),
            ("next/keys", "keys"),
            ("journal", "frozen/journal"),
            ("next/journal", "journal"),
        ];
        for cut in 0..=renames.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("upper");
            let upper = Upper::open(&path, Some("x")).unwrap();
            fs::write(path.join("keys/a"), "old").unwrap();
            let record = |key: &str| JournalRecord::Created(Key::new(key).unwrap());
            let mut journal = Journal::open(&upper.top().journal, &mut |_| {}).unwrap();
            journal.append(&[record("old")]).unwrap();
            upper.prepare_next(&[record("new")]).unwrap();
            for (from, to) in &renames[..cut] {
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
            assert_eq!(upper.frozen().is_some(), is_frozen);
            assert!(!path.join("next").exists() && path.join("keys").exists());
            if is_frozen {
                assert_eq!(first("journal"), [record("new")], "cut at {cut}");
            }
            // During a commit, no next layer is prepared.
            upper.make_next_ahead();
            assert_eq!(path.join("next").exists(), !is_frozen, "cut at {cut}");
            upper.finish_freezing().unwrap();
            assert_eq!(upper.frozen().is_some(), is_frozen, "cut at {cut}");
        }
    }
}
