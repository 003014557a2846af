//! A store that a mount writes through both views, and another program writes directly.

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

/// The way in which changes get into the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Cow,
    WriteThrough,
}

/// Returns each mode with each kind of store.
pub fn everywhere() -> impl Iterator<Item = (Mode, &'static str)> {
    let modes = [Mode::Cow, Mode::WriteThrough];
    let stores = ["memory", "local"];
    let of_mode = move |mode| stores.map(|store| (mode, store));
    modes.into_iter().flat_map(of_mode)
}

/// A mount without a kernel.
pub struct Shared {
    pub mode: Mode,
    /// The store below the overlay.
    pub lower: Arc<dyn Store>,
    pub overlay: Overlay,
    pub arrays: Arc<Arrays>,
    pub view: Arc<dyn View>,
    pub tree: Arc<dyn Tree>,
    folder: TempDir,
}

impl Shared {
    /// Returns the mount of a store that has the array `a`.
    pub fn of(mode: Mode, kind: &str, sample: &Sample) -> Shared {
        let memory = MemoryStore::default();
        memory.set(key("zarr.json"), GROUP.as_bytes().to_vec());
        sample.put(&memory, "a");
        Shared::over(mode, kind, &memory)
    }

    /// Returns the mount of a store of a kind with the contents of `content`.
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

    /// Returns the mount of a store with a given dialect, whatever its documents say.
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

    /// Drops the mount without a commit, as a kill would, and opens it again.
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

    /// Opens a file of the files view for writing.
    pub fn open(&self, path: &str) -> Arc<dyn TreeFile> {
        self.tree
            .open(&UNLIMITED, &key(path), OpenMode::Write)
            .unwrap()
    }

    /// Opens the array `a` without the mount, as another program.
    pub fn outside(&self) -> Fixture {
        Fixture::new(self.lower.clone(), limits(64 << 20))
    }

    /// Writes elements of the array `a` directly to the store, as another program.
    pub fn write_outside(&self, offset: u64, bytes: &[u8]) {
        let outside = self.outside();
        outside
            .file("a", "raw")
            .write_at(&UNLIMITED, offset, bytes)
            .unwrap();
        outside.array("a").flush(&UNLIMITED).unwrap();
    }

    /// Puts a key directly to the store, as another program.
    pub fn put_outside(&self, name: &str, bytes: &[u8]) {
        let body = PutBody::Bytes(bytes);
        self.lower
            .put(&UNLIMITED, &key(name), body, &Condition::Any)
            .unwrap();
    }

    /// Returns the bytes of a key in the store itself.
    pub fn stored(&self, name: &str) -> Vec<u8> {
        let object = self.lower.get(&UNLIMITED, &key(name), 1 << 20).unwrap();
        object.unwrap().bytes
    }

    /// Commits; returns the keys in conflict.
    pub fn conflicts(&self) -> Vec<String> {
        let outcome = self
            .overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        let conflicts = outcome.unwrap().conflicts;
        conflicts.iter().map(|(key, _)| key.to_string()).collect()
    }

    /// Checks that a change that the store refused leaves nothing behind.
    pub fn check_key_is_not_kept(&self, name: &str) {
        let changes = self.overlay.changes(&UNLIMITED).unwrap();
        let is_kept = changes.keys.iter().any(|change| change.key == key(name));
        assert!(!is_kept || self.mode == Mode::Cow, "{name} is kept");
    }

    /// Checks that a change of `name` is refused because another program changed it: in write-through mode by `made`,
    /// in copy-on-write mode by `made` or by the commit.
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

/// Returns a new folder, on tmpfs if possible, since every change is synced.
pub fn folder() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Checks that an error is ESTALE and names a key.
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
