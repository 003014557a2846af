//! A cache over a store in memory, and what it takes on the disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zarrfs::view::View;
use zarrfs::view::files::FilesView;
use zarrfs_array::array::{Arrays, Engine, EngineDisk, Limits, SpillConfig};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::layer::disk_cache::{CacheDir, CacheNamespace, DiskCache};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Key, Store, StoreInfo};

use crate::common;
use zarrfs_store::request_context::UNLIMITED;

pub(crate) fn key(name: impl AsRef<str>) -> Key {
    Key::new(name.as_ref()).unwrap()
}

/// The most bytes of decoded chunks in a folder.
const SPILL_LIMIT: u64 = 64 << 20;

/// Returns bytes that follow from a number.
pub(crate) fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(length).collect()
}

/// A store whose answers are true for a time.
struct Lasting(MemoryStore, StoreInfo);

impl Layer for Lasting {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

/// A mount's way to a store: counted, and kept in a folder.
pub(crate) struct Mounted {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stats: Arc<Stats>,
}

/// Opens a store as a mount does that answers for `freshness`.
pub(crate) fn mounted(
    memory: &MemoryStore,
    folder: &Path,
    size: u64,
    freshness: Duration,
) -> Mounted {
    let stats = Arc::new(Stats::default());
    let cache_dir = CacheDir::open(folder, size, &stats).unwrap();
    let info = StoreInfo {
        freshness,
        ..memory.info().clone()
    };
    let lasting = Arc::new(Lasting(memory.clone(), info));
    let counted = Arc::new(CountingStore::new(lasting, stats.clone()));
    let store = DiskCache::new(counted, CacheNamespace::open(&cache_dir, "memory:"));
    Mounted {
        store: Arc::new(store),
        stats,
    }
}

impl Mounted {
    /// Returns how often the store below was asked for bytes, and for a version.
    pub(crate) fn asked(&self) -> (u64, u64) {
        let stats = &self.stats;
        (
            stats.store_get_requests.get(),
            stats.store_head_requests.get(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        self.store
            .get(&UNLIMITED, &key(name), 1 << 30)
            .unwrap()
            .unwrap()
            .bytes
    }
}

/// Returns the bytes that a folder takes, as `du` counts.
pub(crate) fn du(folder: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return 0;
    };
    let own = meta.blocks() * 512;
    let names = fs::read_dir(folder).ok().filter(|_| meta.is_dir());
    let within = names.into_iter().flatten().flatten();
    own + within.map(|entry| du(&entry.path())).sum::<u64>()
}

/// Returns how many files are on their way in.
pub(crate) fn arriving(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("arriving")).count()
}

/// Returns the files of all stores of a cache.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for store in fs::read_dir(folder).unwrap().flatten() {
        if store.file_name().to_string_lossy().starts_with("store-") {
            found.extend(
                fs::read_dir(store.path())
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    found
}

/// Returns the files view of a store and its counts; decoded contents are kept in `folder`, if there is one. `memory` and
/// the largest chunk are in bytes.
pub(crate) fn files_view(
    store: &MemoryStore,
    folder: Option<&Path>,
    (memory, max_chunk): (u64, u64),
) -> (Arc<dyn View>, Arc<Stats>) {
    let stats = Arc::new(Stats::default());
    let namespace = folder.map(|folder| {
        let cache_dir = CacheDir::open(folder, 64 << 20, &stats).unwrap();
        CacheNamespace::open(&cache_dir, "decoded")
    });
    let limits = Limits {
        memory,
        max_chunk,
        timeout: Duration::from_secs(60),
        fetches: 0,
        lossy: false,
    };
    let store: Arc<dyn Store> = Arc::new(store.clone());
    let hierarchy = Arc::new(Hierarchy::new(store));
    let budget = MemoryBudget::new(memory, stats.clone());
    let disk = EngineDisk {
        cache: namespace,
        spill: SpillConfig {
            folders: folder.map(Path::to_path_buf).into_iter().collect(),
            limit: SPILL_LIMIT,
        },
    };
    let engine = Engine::within(budget, limits, stats.clone(), disk);
    let arrays = Arrays::new(hierarchy.clone(), engine);
    let files = FilesView::new(hierarchy, arrays, "root", &common::every_form());
    (Arc::new(files), stats)
}
