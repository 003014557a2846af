//! Puts a disk cache over a store in memory, and measures its disk usage.

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

/// Maximum size in bytes of the decoded chunks in a folder.
const SPILL_LIMIT: u64 = 64 << 20;

pub(crate) fn bytes_of(number: u64, length: usize) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    // Repeat one word, because a loop over all bytes is slow in tests, which are not optimized.
    let mut bytes = word.repeat(length.div_ceil(word.len()));
    bytes.truncate(length);
    bytes
}

/// A store in memory whose answers have a TTL.
struct Lasting(MemoryStore, StoreInfo);

impl Layer for Lasting {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

/// A store with a disk cache as a mount has it, and the counters of requests.
pub(crate) struct Mounted {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stats: Arc<Stats>,
}

/// Opens a store with a disk cache as a mount does. `freshness` is the TTL of its answers.
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
    /// Returns the numbers of requests for bytes and for versions that the store below has got.
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

pub(crate) fn du(folder: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return 0;
    };
    let own = meta.blocks() * 512;
    let names = fs::read_dir(folder).ok().filter(|_| meta.is_dir());
    let within = names.into_iter().flatten().flatten();
    own + within.map(|entry| du(&entry.path())).sum::<u64>()
}

/// Counts the files in a cache folder that are still being written.
pub(crate) fn arriving(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("arriving")).count()
}

/// Returns the paths of all cache entries in a folder, for all stores.
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

/// Returns the files view of a store, and its counters. Decoded chunks are cached in `folder` if it is given. `memory`
/// and the largest chunk are in bytes.
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
