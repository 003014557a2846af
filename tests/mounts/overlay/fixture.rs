//! An overlay that performs the steps of the tests on a store, without a mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{AttrChange, Credentials, OpenMode, RenameMode, Tree as _, TreeFile};
use zarrfs_store::{Condition, EntryKind, Key, PutBody, Store, StoreConfig};

use crate::overlay::reference::{Shown, Tree};
use crate::overlay::steps::{SLOTS, Step};
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};

pub(crate) const NAME: &str = "/the/store";

pub(crate) const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

/// Returns a new folder, in memory if possible, because syncs on a disk are slow.
pub(crate) fn folder() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Opens an overlay. It retries if the lock of a closed overlay is still held by a process that another test has
/// started.
pub(crate) fn opened(upper: &Path, lower: &Arc<dyn Store>, name: &str) -> Result<Overlay> {
    opened_with(upper, lower, name, false)
}

/// Opens an overlay with or without write-through. It retries if the folder's lock is still held.
pub(crate) fn opened_with(
    upper: &Path,
    lower: &Arc<dyn Store>,
    name: &str,
    write_through: bool,
) -> Result<Overlay> {
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through,
    };
    for _ in 0..500 {
        match Overlay::open(upper, lower.clone(), name, config.clone()) {
            Err(error) if error.kind() == Kind::Exists => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    Overlay::open(upper, lower.clone(), name, config)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lower {
    Memory,
    Local,
}

/// An overlay with its store, its upper folder, and the files that a test has open.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) lower: Arc<dyn Store>,
    overlay: Option<Overlay>,
    /// Folders of other fixtures, which must exist as long as this fixture.
    kept: Vec<TempDir>,
    pub(crate) open: [Option<Arc<dyn TreeFile>>; SLOTS],
}

impl Fixture {
    pub(crate) fn new(lower: Lower, objects: &[(&str, &[u8])]) -> Fixture {
        let folder = folder();
        let lower: Arc<dyn Store> = match lower {
            Lower::Memory => Arc::new(MemoryStore::default()),
            Lower::Local => {
                let path = folder.path().join("store");
                std::fs::create_dir(&path).unwrap();
                Arc::new(LocalStore::open(&path, &StoreConfig::default()).unwrap())
            }
        };
        for (name, bytes) in objects {
            lower
                .put(
                    &UNLIMITED,
                    &key(name),
                    PutBody::Bytes(bytes),
                    &Condition::Any,
                )
                .unwrap();
        }
        Fixture::over(folder, lower)
    }

    pub(crate) fn over(folder: TempDir, lower: Arc<dyn Store>) -> Fixture {
        let mut fixture = Fixture {
            folder,
            lower,
            overlay: None,
            kept: Vec::new(),
            open: Default::default(),
        };
        fixture.remount();
        fixture
    }

    /// Lets the folder of another fixture exist as long as this fixture.
    pub(crate) fn keep(&mut self, other: Fixture) {
        self.kept.push(other.folder);
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.path().join("upper")
    }

    pub(crate) fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().unwrap()
    }

    pub(crate) fn close(&mut self) {
        self.open = Default::default();
        self.overlay = None;
    }

    pub(crate) fn remount(&mut self) {
        self.close();
        let overlay = opened(&self.upper(), &self.lower, NAME);
        self.overlay = Some(overlay.unwrap());
    }

    /// Writes a whole file and flushes it, as programs do.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let (overlay, path) = (self.overlay(), key(path));
        let file = match overlay.stat(&UNLIMITED, &path).unwrap() {
            Some(_) => {
                zarrfs_store::Tree::open(overlay, &UNLIMITED, &path, OpenMode::Truncate).unwrap()
            }
            None => overlay.create(&UNLIMITED, &path, &MAKER).unwrap(),
        };
        file.write_at(&UNLIMITED, 0, bytes).unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    fn slot(&self, slot: usize) -> Result<&Arc<dyn TreeFile>> {
        let file = self.open[slot].as_ref();
        file.ok_or_else(|| Error::not_found("no file is open"))
    }

    pub(crate) fn flush_all(&self) {
        for open in self.open.iter().flatten() {
            open.flush(&UNLIMITED).unwrap();
        }
    }

    /// Flushes and closes all open files, as a program's close(2) does.
    pub(crate) fn close_files(&mut self) {
        (0..SLOTS).for_each(|slot| self.put_open(slot, None));
    }

    /// Makes one operation of a random test on the overlay.
    pub(crate) fn take(&mut self, step: &Step) -> Result<()> {
        let resized = |size| AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        match step {
            Step::Create(path, slot) => {
                let file = self.overlay().create(&UNLIMITED, &key(path), &MAKER)?;
                self.put_open(*slot, Some(file));
            }
            Step::Open(path, slot, empty) => {
                let mode = if *empty {
                    OpenMode::Truncate
                } else {
                    OpenMode::Write
                };
                let file = zarrfs_store::Tree::open(self.overlay(), &UNLIMITED, &key(path), mode)?;
                self.put_open(*slot, Some(file));
            }
            Step::Write(slot, at, length, byte) => {
                let (file, bytes) = (self.slot(*slot)?, vec![*byte; *length]);
                let in_memory = file.write_at(&WITHOUT_WAITING, *at, &bytes);
                if is_answer(&in_memory) {
                    in_memory?;
                } else {
                    file.write_at(&UNLIMITED, *at, &bytes)?;
                }
            }
            Step::Append(slot, length, byte) => {
                let file = self.slot(*slot)?;
                file.write_at(
                    &UNLIMITED,
                    file.stat(&UNLIMITED)?.meta.size,
                    &vec![*byte; *length],
                )?;
            }
            Step::Resize(slot, size) => self.slot(*slot)?.change(&UNLIMITED, &resized(*size))?,
            Step::ResizePath(path, size) => {
                if self.kind(path)? != EntryKind::File {
                    return Err(Error::invalid(path, "is no file"));
                }
                self.overlay()
                    .change(&UNLIMITED, &key(path), &resized(*size))?;
            }
            Step::Flush(slot) | Step::Close(slot) if self.open[*slot].is_none() => {}
            Step::Flush(slot) => self.slot(*slot)?.flush(&UNLIMITED)?,
            Step::Sync(slot) => self.slot(*slot)?.sync(&UNLIMITED)?,
            Step::Close(slot) => self.put_open(*slot, None),
            _ => self.take_names(step)?,
        }
        Ok(())
    }

    /// Sets the open file number `slot`. The file that had this number is flushed and closed.
    pub(crate) fn put_open(&mut self, slot: usize, file: Option<Arc<dyn TreeFile>>) {
        if let Some(old) = std::mem::replace(&mut self.open[slot], file) {
            old.flush(&UNLIMITED).unwrap();
        }
    }

    fn kind(&self, path: &str) -> Result<EntryKind> {
        let stat = zarrfs_store::Tree::stat(self.overlay(), &UNLIMITED, &key(path))?;
        let stat = stat.ok_or_else(|| Error::not_found(path))?;
        Ok(stat.meta.kind)
    }

    fn take_names(&mut self, step: &Step) -> Result<()> {
        let overlay = self.overlay();
        match step {
            Step::Unlink(path) => overlay.unlink(&UNLIMITED, &key(path)),
            Step::MakeFolder(path) => overlay.make_folder(
                &UNLIMITED,
                &key(path),
                &Credentials {
                    mode: 0o755,
                    ..MAKER
                },
            ),
            Step::RemoveFolder(path) => overlay.remove_folder(&UNLIMITED, &key(path)),
            Step::Rename(from, to) => {
                overlay.rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace)
            }
            Step::RenameNew(from, to) => {
                overlay.rename(&UNLIMITED, &key(from), &key(to), RenameMode::NoReplace)
            }
            Step::Link(from, to) => overlay.link(&UNLIMITED, &key(from), &key(to)),
            Step::Symlink(at, to) => overlay.make_link(&UNLIMITED, &key(at), to.as_bytes(), &MAKER),
            Step::Chmod(path, mode) => {
                if self.kind(path)? == EntryKind::Link {
                    return Ok(());
                }
                let change = AttrChange {
                    mode: Some(*mode),
                    ..AttrChange::default()
                };
                overlay.change(&UNLIMITED, &key(path), &change)?;
                let posix = zarrfs_store::Tree::stat(overlay, &UNLIMITED, &key(path))?
                    .unwrap()
                    .posix;
                assert_eq!(posix.unwrap().mode & 0o7777, *mode, "mode of {path}");
                Ok(())
            }
            Step::Put(path, length, byte) => {
                let bytes = vec![*byte; *length];
                let body = PutBody::Bytes(&bytes);
                overlay
                    .put(&UNLIMITED, &key(path), body, &Condition::Any)
                    .map(|_| ())
            }
            Step::Erase(path) => match self.kind(path) {
                Ok(EntryKind::Directory) => Err(Error::invalid(path, "is a folder")),
                _ => overlay.erase(&UNLIMITED, &key(path), &Condition::Any),
            },
            _ => Ok(()),
        }
    }

    /// Returns the whole tree of the overlay, after a check that listings, lookups and reads agree.
    pub(crate) fn shown(&self) -> Tree {
        shown(self.overlay(), true)
    }

    pub(crate) fn held_open(&self) -> Vec<Option<Vec<u8>>> {
        let read = |file: &Arc<dyn TreeFile>| {
            let size = file.stat(&UNLIMITED).unwrap().meta.size as usize;
            let bytes = file.read_at(&UNLIMITED, 0, size + 10).unwrap();
            assert_eq!(bytes.len(), size, "an open file's length");
            bytes
        };
        self.open
            .iter()
            .map(|open| open.as_ref().map(read))
            .collect()
    }
}

/// Returns the whole tree of a store. If `closely`, checks that listings, lookups and reads agree.
pub(crate) fn shown(store: &dyn Store, closely: bool) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![Key::root()];
    while let Some(folder) = folders.pop() {
        let mut listing = store.list(&UNLIMITED, &folder).unwrap();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            let key = folder.child(&name.name).unwrap();
            let shown = match name.kind {
                EntryKind::Directory => {
                    folders.push(key.clone());
                    Shown::Folder
                }
                EntryKind::Link => Shown::Link(store.read_link(&UNLIMITED, &key).unwrap()),
                _ => Shown::File(content(store, &key)),
            };
            if closely {
                let head = store.head(&UNLIMITED, &key).unwrap();
                assert_eq!(head.map(|meta| meta.kind), Some(name.kind), "{key}");
            }
            let path = String::from_utf8(key.as_bytes().to_vec()).unwrap();
            assert!(tree.insert(path, shown).is_none(), "{key} is listed twice");
        }
    }
    tree
}

fn content(store: &dyn Store, key: &Key) -> Vec<u8> {
    let object = store.get(&UNLIMITED, key, 1 << 20).unwrap();
    let object = object.unwrap_or_else(|| panic!("{key} is listed and cannot be got"));
    let reader = store.open(&UNLIMITED, key, None).unwrap();
    let meta = reader.meta(&UNLIMITED).unwrap();
    let bytes = reader
        .read_at(&UNLIMITED, 0, meta.size as usize + 10)
        .unwrap();
    assert_eq!(bytes.len() as u64, meta.size, "{key} opened");
    let as_shown = Shown::File;
    assert_eq!(
        as_shown(object.bytes),
        as_shown(bytes.clone()),
        "{key} got and opened"
    );
    let head = store.head(&UNLIMITED, key).unwrap().unwrap();
    assert_eq!(
        (head.size, head.version),
        (object.size, object.version),
        "{key} asked for and got"
    );
    bytes
}
