//! Mounts a store that another program writes directly, and writes it through both views.

use std::sync::Arc;

use tempfile::TempDir;
use zarr_format::dialect::Choice;
use zarr_format::error::{Error, Kind, Result};
use zarrfs::view::View;
use zarrfs::view::files::FilesView;
use zarrfs_array::array::{Arrays, Engine};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig};
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::tree::{OpenMode, TreeFile};
use zarrfs_store::{Condition, Key, PutBody, Store, StoreConfig, Tree};

use crate::common::sample::{GROUP, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::fixture::{Fixture, limits};
use zarrfs_store::request_context::UNLIMITED;

/// How changes get into the store: by a commit of the copy-on-write layer, or at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Cow,
    WriteThrough,
}

/// Returns each mode of writing with each kind of store.
pub fn everywhere() -> impl Iterator<Item = (Mode, &'static str)> {
    let modes = [Mode::Cow, Mode::WriteThrough];
    let stores = ["memory", "local"];
    let of_mode = move |mode| stores.map(|store| (mode, store));
    modes.into_iter().flat_map(of_mode)
}

/// A mount of a store without a kernel.
pub struct Shared {
    pub mode: Mode,
    /// The store below the copy-on-write layer.
    pub lower: Arc<dyn Store>,
    pub overlay: Overlay,
    pub arrays: Arc<Arrays>,
    pub view: Arc<dyn View>,
    pub tree: Arc<dyn Tree>,
    folder: TempDir,
}

impl Shared {
    /// Returns a mount of a new store of the given kind, which has the array `a`.
    pub fn of(mode: Mode, kind: &str, sample: &Sample) -> Shared {
        let memory = MemoryStore::default();
        memory.set(key("zarr.json"), GROUP.as_bytes().to_vec());
        sample.put(&memory, "a");
        Shared::over(mode, kind, &memory)
    }

    /// Returns a mount of a new store of the given kind, with the contents of `content`.
    pub fn over(mode: Mode, kind: &str, content: &MemoryStore) -> Shared {
        let folder = folder();
        let lower: Arc<dyn Store> = match kind {
            "memory" => Arc::new(content.clone()),
            _ => {
                let path = folder.path().join("store");
                std::fs::create_dir(&path).unwrap();
                let local = LocalStore::open(&path, &StoreConfig::default()).unwrap();
                copy(content, &Key::root(), &local);
                Arc::new(local)
            }
        };
        Shared::new(mode, lower, folder)
    }

    pub fn new(mode: Mode, lower: Arc<dyn Store>, folder: TempDir) -> Shared {
        Shared::with_dialect(mode, lower, folder, None)
    }

    /// Returns a mount of a store that is read in the given dialect, whatever dialect its documents have.
    pub fn with_dialect(
        mode: Mode,
        lower: Arc<dyn Store>,
        folder: TempDir,
        dialect: Option<Choice>,
    ) -> Shared {
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: mode == Mode::WriteThrough,
        };
        let upper = folder.path().join("upper");
        let overlay = Overlay::open(&upper, lower.clone(), "the store", config).unwrap();
        let config = HierarchyConfig {
            dialect,
            ..HierarchyConfig::default()
        };
        let hierarchy = Hierarchy::configured(Arc::new(overlay.clone()), config);
        let hierarchy = Arc::new(hierarchy.of_tree());
        let engine = Engine::new(limits(64 << 20), Arc::new(Stats::default()));
        let arrays = Arc::new(Arrays::new(hierarchy.clone(), engine));
        let view = FilesView::new(
            hierarchy,
            arrays.clone(),
            "sample",
            &crate::common::every_form(),
        );
        let tree = view.tree(&UNLIMITED, &Key::root()).unwrap().unwrap().tree;
        Shared {
            mode,
            lower,
            overlay,
            arrays,
            view: Arc::new(view),
            tree,
            folder,
        }
    }

    /// Ends the mount without a commit, as a kill does, and mounts the store again.
    pub fn again(self, lower: Arc<dyn Store>) -> Shared {
        let Shared {
            mode,
            overlay,
            arrays,
            view,
            tree,
            folder,
            ..
        } = self;
        drop((tree, view, arrays, overlay));
        Shared::new(mode, lower, folder)
    }

    pub fn open(&self, path: &str) -> Arc<dyn TreeFile> {
        self.tree
            .open(&UNLIMITED, &key(path), OpenMode::Write)
            .unwrap()
    }

    /// Opens the arrays of the store without the mount, as another program.
    pub fn outside(&self) -> Fixture {
        Fixture::new(self.lower.clone(), limits(64 << 20))
    }

    /// Writes elements of the array `a` directly into the store, as another program.
    pub fn write_outside(&self, offset: u64, bytes: &[u8]) {
        let outside = self.outside();
        outside
            .file("a", "raw")
            .write_at(&UNLIMITED, offset, bytes)
            .unwrap();
        outside.array("a").flush(&UNLIMITED).unwrap();
    }

    pub fn put_outside(&self, name: &str, bytes: &[u8]) {
        let body = PutBody::Bytes(bytes);
        self.lower
            .put(&UNLIMITED, &key(name), body, &Condition::Any)
            .unwrap();
    }

    pub fn stored(&self, name: &str) -> Vec<u8> {
        let object = self.lower.get(&UNLIMITED, &key(name), 1 << 20).unwrap();
        object.unwrap().bytes
    }

    pub fn conflicts(&self) -> Vec<String> {
        let outcome = self
            .overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        let conflicts = outcome.unwrap().conflicts;
        conflicts.iter().map(|(key, _)| key.to_string()).collect()
    }

    /// Checks that the copy-on-write layer has no change of a key, after the store has refused it.
    pub fn check_key_is_not_kept(&self, name: &str) {
        let changes = self.overlay.changes(&UNLIMITED).unwrap();
        let is_kept = changes.keys.iter().any(|change| change.key == key(name));
        assert!(!is_kept || self.mode == Mode::Cow, "{name} is kept");
    }

    /// Checks that a change of the key `name` is refused because another program changed it. `made` is the result of
    /// the change; in copy-on-write mode, the commit may report the conflict instead.
    pub fn is_conflict(&self, made: Result<()>, name: &str) {
        match made {
            Ok(()) => {
                assert_eq!(self.mode, Mode::Cow, "the change of {name} is lost");
                assert_eq!(self.conflicts(), [name]);
            }
            Err(error) => is_changed(&error, name),
        }
    }
}

/// Returns a new temporary folder, on tmpfs if possible, because every change is synced to disk.
pub fn folder() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Checks that an error means ESTALE and names the given key.
pub fn is_changed(error: &Error, name: &str) {
    assert_eq!(error.kind(), Kind::Changed, "{error}");
    assert_eq!(error.errno(), libc::ESTALE);
    assert!(error.to_string().contains(name), "{error} names {name}");
}

fn copy(from: &MemoryStore, prefix: &Key, to: &LocalStore) {
    let mut listing = from.list(&UNLIMITED, prefix).unwrap();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        let key = prefix.child(&name.name).unwrap();
        match from.get(&UNLIMITED, &key, 1 << 30).unwrap() {
            None => copy(from, &key, to),
            Some(object) => {
                let body = PutBody::Bytes(&object.bytes);
                to.put(&UNLIMITED, &key, body, &Condition::Any).unwrap();
            }
        }
    }
}
