//! Sets up an overlay, without a mount, over a store whose calls can be held.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use zarr_format::error::{Kind, Result};
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{Credentials, OpenMode, RenameMode, Tree, TreeFile};
use zarrfs_store::{Condition, EntryKind, Key, PutBody, Store, StoreConfig};

use crate::concurrency::gate::{Gate, Gated, Opening};
use zarrfs_store::request_context::UNLIMITED;

const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

const LIMIT: u64 = 1 << 20;

pub(crate) type Files = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lower {
    Memory,
    Local,
}

pub(crate) const LOWERS: [Lower; 2] = [Lower::Memory, Lower::Local];

/// Returns a new temporary folder, in memory if the machine has a tmpfs.
pub(crate) fn folder() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

pub(crate) fn files(list: &[(&str, &str)]) -> Files {
    let files = list.iter();
    files
        .map(|(path, content)| (path.to_string(), content.to_string()))
        .collect()
}

/// A store, an overlay over it, and a gate between the two, which can hold store calls.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    /// The store without the gate, as other programs see it.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Gate,
    overlay: Option<Overlay>,
    lower: Arc<dyn Store>,
    write_through: bool,
}

/// A commit that runs in another thread and waits in a held store call.
pub(crate) struct HeldCommit {
    gate: Opening,
    thread: JoinHandle<Result<Outcome>>,
}

impl HeldCommit {
    /// Releases the held store call; returns the result of the commit.
    pub(crate) fn end(self) -> Result<Outcome> {
        self.gate.0.open();
        self.thread.join().unwrap()
    }
}

impl Fixture {
    pub(crate) fn new(lower: Lower, objects: &[(&str, &str)]) -> Fixture {
        Fixture::opened(folder(), lower, objects, false)
    }

    /// Returns a fixture whose overlay is in write-through mode: each change is committed at once.
    pub(crate) fn through(lower: Lower, objects: &[(&str, &str)]) -> Fixture {
        Fixture::opened(folder(), lower, objects, true)
    }

    /// Returns a fixture over a memory store; the upper folder of the overlay is in `folder`.
    pub(crate) fn in_folder(folder: TempDir, objects: &[(&str, &str)]) -> Fixture {
        Fixture::opened(folder, Lower::Memory, objects, false)
    }

    fn opened(
        folder: TempDir,
        lower: Lower,
        objects: &[(&str, &str)],
        write_through: bool,
    ) -> Fixture {
        let store: Arc<dyn Store> = match lower {
            Lower::Memory => Arc::new(MemoryStore::default()),
            Lower::Local => {
                let path = folder.path().join("store");
                std::fs::create_dir(&path).unwrap();
                Arc::new(LocalStore::open(&path, &StoreConfig::default()).unwrap())
            }
        };
        let gate = Gate::default();
        let lower: Arc<dyn Store> = Arc::new(Gated::new(store.clone(), gate.clone()));
        let mut fixture = Fixture {
            folder,
            store,
            gate,
            overlay: None,
            lower,
            write_through,
        };
        objects
            .iter()
            .for_each(|(path, content)| fixture.put_in_store(path, content));
        fixture.remount();
        fixture
    }

    pub(crate) fn close(&mut self) {
        self.overlay = None;
    }

    pub(crate) fn remount(&mut self) {
        self.close();
        let upper = self.folder.path().join("upper");
        let overlay = open_overlay(&upper, self.lower.clone(), self.write_through);
        self.overlay = Some(overlay);
    }

    pub(crate) fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().unwrap()
    }

    /// Puts an object into the store below the overlay, as another program would.
    pub(crate) fn put_in_store(&self, path: &str, content: &str) {
        let body = PutBody::Bytes(content.as_bytes());
        self.store
            .put(&UNLIMITED, &key(path), body, &Condition::Any)
            .unwrap();
    }

    pub(crate) fn create(&self, path: &str) -> Arc<dyn TreeFile> {
        self.overlay()
            .create(&UNLIMITED, &key(path), &MAKER)
            .unwrap()
    }

    pub(crate) fn open(&self, path: &str) -> Arc<dyn TreeFile> {
        open_file(self.overlay(), &key(path), false).unwrap()
    }

    /// Overwrites or creates a file in the overlay, and closes it.
    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = key(path);
        let file = match Tree::stat(self.overlay(), &UNLIMITED, &path).unwrap() {
            Some(_) => open_file(self.overlay(), &path, true),
            None => self.overlay().create(&UNLIMITED, &path, &MAKER),
        };
        fill(&*file.unwrap(), content);
    }

    pub(crate) fn replace(&self, path: &str, content: &str) {
        let temporary = format!("{path}.tmp");
        fill(&*self.create(&temporary), content);
        self.rename(&temporary, path);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let renamed = self
            .overlay()
            .rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace);
        renamed.unwrap();
    }

    pub(crate) fn unlink(&self, path: &str) {
        self.overlay().unlink(&UNLIMITED, &key(path)).unwrap();
    }

    pub(crate) fn make_folder(&self, path: &str) {
        let maker = Credentials {
            mode: 0o755,
            ..MAKER
        };
        self.overlay()
            .make_folder(&UNLIMITED, &key(path), &maker)
            .unwrap();
    }

    pub(crate) fn commit(&self) -> Outcome {
        let outcome = self.commit_with(CommitConfig::default()).unwrap();
        assert_eq!(outcome.conflicts, []);
        outcome
    }

    pub(crate) fn commit_with(&self, config: CommitConfig) -> Result<Outcome> {
        self.overlay()
            .commit(&UNLIMITED, config, &|_, _| {})
            .and_then(Outcome::or_failed)
    }

    /// Starts a commit in another thread; returns once its call `call` on the key is held.
    pub(crate) fn commit_held_at(&self, call: &'static str, key: &str) -> HeldCommit {
        let (key, overlay) = (key.to_string(), self.overlay().clone());
        self.gate
            .close(move |made, on| made == call && on == key.as_str());
        let gate = Opening(self.gate.clone());
        let thread = thread::spawn(move || {
            overlay
                .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
                .and_then(Outcome::or_failed)
        });
        self.gate.wait_for(1);
        HeldCommit { gate, thread }
    }

    pub(crate) fn shown(&self) -> Files {
        files_of(self.overlay())
    }

    pub(crate) fn stored(&self) -> Files {
        files_of(&*self.store)
    }

    /// Fails unless the overlay shows exactly these files, and the store has the same files after a commit, with
    /// nothing left to commit.
    pub(crate) fn ends_as(&mut self, expected: &[(&str, &str)]) {
        let expected = files(expected);
        assert_eq!(self.shown(), expected, "shown");
        self.commit();
        assert_eq!(self.stored(), expected, "in the store");
        assert_eq!(self.shown(), expected, "shown after the commit");
        assert_eq!(self.overlay().changes(&UNLIMITED).unwrap().keys, []);
        self.remount();
        assert_eq!(self.shown(), expected, "shown after a remount");
    }
}

pub(crate) fn open_file(overlay: &Overlay, path: &Key, empty: bool) -> Result<Arc<dyn TreeFile>> {
    let mode = if empty {
        OpenMode::Truncate
    } else {
        OpenMode::Write
    };
    Tree::open(overlay, &UNLIMITED, path, mode)
}

/// Opens an overlay; waits if the upper folder is still locked, because a process that another test has just started
/// may have inherited the lock.
pub(crate) fn open_overlay(upper: &Path, lower: Arc<dyn Store>, write_through: bool) -> Overlay {
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through,
    };
    let open = || Overlay::open(upper, lower.clone(), "/the/store", config.clone());
    let mut opened = open();
    for _ in 0..500 {
        if !matches!(&opened, Err(error) if error.kind() == Kind::Exists) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        opened = open();
    }
    opened.unwrap()
}

/// Writes the content of an empty file, and flushes the file as a close does.
pub(crate) fn fill(file: &dyn TreeFile, content: &str) {
    file.write_at(&UNLIMITED, 0, content.as_bytes()).unwrap();
    file.flush(&UNLIMITED).unwrap();
}

fn files_of(store: &dyn Store) -> Files {
    let mut found = Files::new();
    let mut folders = vec![Key::root()];
    while let Some(folder) = folders.pop() {
        let mut listing = store.list(&UNLIMITED, &folder).unwrap();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            let key = folder.child(&name.name).unwrap();
            if name.kind == EntryKind::Directory {
                folders.push(key);
                continue;
            }
            let object = store.get(&UNLIMITED, &key, LIMIT).unwrap();
            let object = object.unwrap_or_else(|| panic!("{key} is listed and not there"));
            let content = String::from_utf8_lossy(&object.bytes).into_owned();
            assert!(
                found.insert(key.to_string(), content).is_none(),
                "{key} is listed twice"
            );
        }
    }
    found
}
