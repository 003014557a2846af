//! The upper folder on disk: an ordinary directory with readable names.
//!
//! `keys/` has the written files under their keys; `frozen/` the changes of a commit that has begun; `pending/` the
//! files that are being written, and replaced files that are kept until their replacements are synced; `rescued/` the
//! files that were incomplete after a crash. The folder belongs to one store and is open in one process at a time.
//! `next/` and `committed-N/` are needed for a freeze and for the end of a commit. Both are sequences of renames: after
//! a crash, the names that exist show how many of the renames were done. The folders and the journal of the next layer
//! are made in advance, because the disk may be full when a commit begins.

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

/// An upper folder, open and locked.
pub(crate) struct Upper {
    path: PathBuf,
    pub(crate) pending: PendingFolder,
    _lock: File,
}

/// The paths of a layer in the upper folder.
pub(crate) struct LayerPaths {
    /// The folder of files under their keys.
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

/// The layout version that is written and read. In the layout of zarrfs 0.1, files can have several names, and there
/// can be pipes and sockets.
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
    /// Opens the upper folder at `path` for the store at `store`, a path or URL without secrets, and creates it if it
    /// is missing or empty. Without `store`, the folder must exist, and may belong to any store.
    ///
    /// Errors: `Exists` if another process has it open, `Invalid` if it belongs to a store in another place, `NotEmpty`
    /// if it contains other files.
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

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the folder for files that were incomplete when the program ended.
    pub(crate) fn rescued(&self) -> PathBuf {
        self.path.join("rescued")
    }

    /// Makes the folder belong to the store at `store` from now on.
    pub(crate) fn rebind(&self, store: &str) -> Result<()> {
        let written =
            write_identity(&self.path, store).and_then(|()| File::open(&self.path)?.sync_all());
        written.map_err(|error| Error::os(self.path.display(), error))
    }

    /// Returns the paths of the layer that programs change.
    pub(crate) fn top(&self) -> LayerPaths {
        LayerPaths::in_folder(&self.path)
    }

    /// Returns the paths of the frozen layer, or `None` if there is none.
    pub(crate) fn frozen(&self) -> Option<LayerPaths> {
        let frozen = LayerPaths::in_folder(&self.frozen_folder());
        frozen.journal.exists().then_some(frozen)
    }

    /// Returns the paths of the prepared layer.
    pub(crate) fn next(&self) -> LayerPaths {
        LayerPaths::in_folder(&self.next_folder())
    }

    fn frozen_folder(&self) -> PathBuf {
        self.path.join("frozen")
    }

    /// Returns the folder of the next layer, which is made in advance.
    fn next_folder(&self) -> PathBuf {
        self.path.join("next")
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

    /// Syncs the whole file system of the folder.
    pub(crate) fn sync_disk(&self) -> Result<()> {
        let synced = self.pending.sync_disk();
        synced.map_err(|error| Error::os(self.path.display(), error))
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
                log::warn!("kept an incomplete file as {}", to.display());
                return fs::rename(from, &to).map_err(failed);
            }
        }
        Ok(())
    }

    /// Moves the pending files to `rescued/`: they were being written when the program ended. Spare files are removed.
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

    /// Makes the next layer in advance, so that a commit can begin even if the disk is full. Does nothing while there
    /// is a frozen layer. If this fails, the commit makes the layer itself.
    pub(crate) fn make_next_ahead(&self) {
        // If both `frozen/` and `next/` existed, `finish_freezing` would take them for a freeze that has begun.
        if self.frozen_folder().exists() {
            return;
        }
        if let Err(error) = self.make_next() {
            log::debug!("cannot prepare a commit: {error}");
        }
    }

    /// Creates the missing parts of the next layer: an empty folder of keys, an empty folder for the layer that is
    /// frozen, and a journal with reserved space. Returns the journal.
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
        let _ = fs::remove_dir_all(self.next_folder());
        // `remove_dir` removes only an empty folder: it fails, as it should, if the folder holds a frozen layer.
        let _ = fs::remove_dir(self.frozen_folder());
    }

    /// Replaces the current layer by the prepared one; the current layer becomes the frozen layer. After a crash in
    /// between, `finish_freezing` finds out from the existing names which of the renames were done, and does the
    /// others.
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

    /// Undoes a failed `swap_in_next` as far as possible.
    pub(crate) fn undo_swap(&self) {
        let (frozen, keys) = (self.frozen_folder(), self.top().keys);
        if frozen.join("keys").exists() {
            // This removes only the empty folder of the prepared layer.
            let _ = fs::remove_dir(&keys);
            let _ = fs::rename(frozen.join("keys"), &keys);
        }
        if frozen.join("journal").exists() {
            let _ = fs::rename(frozen.join("journal"), self.top().journal);
        }
        self.drop_next();
    }

    /// After a crash, completes a `swap_in_next` that had begun, or drops a layer that was only prepared. Removes the
    /// rest of committed layers.
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

    /// Renames the committed frozen layer away; returns the path of its files.
    pub(crate) fn retire_frozen(&self) -> Result<PathBuf> {
        let frozen = self.frozen_folder();
        let failed = |error| Error::os(frozen.display(), error);
        loop {
            let number = self.pending.next_number();
            let committed = self.path.join(format!("committed-{number}"));
            if !committed.exists() {
                fs::rename(&frozen, &committed).map_err(failed)?;
                // The journal of the committed layer is no longer needed. Its space is enough for the next layer, which
                // is made at once, before other programs use the space.
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
                    // Another thread of this process has removed the folder.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

/// Fails with `NotEmpty` if a folder has contents and is not an upper folder.
fn check_empty(path: &Path) -> Result<()> {
    let mut names = match fs::read_dir(path) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::os(path.display(), error)),
    };
    // An upper folder whose creation was interrupted has no names but these.
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

/// Locks an upper folder. Fails with `Exists` if another process keeps the lock for 5 s: a daemon whose mount was just
/// unmounted holds the lock until all changes are synced.
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

/// Creates the parts of an upper folder. The file that identifies it as an upper folder comes last.
fn initialize(path: &Path, store: &str) -> std::io::Result<()> {
    for name in ["keys", "pending"] {
        fs::create_dir_all(path.join(name))?;
    }
    fs::write(path.join("README"), README)?;
    write_identity(path, store)
}

/// Writes the place of the store that an upper folder belongs to.
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

    /// After an unmount, the daemon may still be shutting down.
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

    /// The disk was full when the last file was written.
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
        // The renames of `swap_in_next`, in order.
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
            // While there is a frozen layer, the next layer is not made.
            upper.make_next_ahead();
            assert_eq!(path.join("next").exists(), !is_frozen, "cut at {cut}");
            upper.finish_freezing().unwrap();
            assert_eq!(upper.frozen().is_some(), is_frozen, "cut at {cut}");
        }
    }
}
