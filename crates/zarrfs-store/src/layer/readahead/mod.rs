//! Prefetches files and blocks of a store on the network.
//!
//! Programs open one file after the other, and each open costs a round trip. This layer detects the order (`dir_scan`)
//! and prefetches the next files, including those of the next directory. A file is fetched in one request, however a
//! program reads it (`blocks`). A reader uses a prefetched block only if the versions match, so that no invalidation is
//! needed. Blocks count in a part of the memory budget; without room nothing is prefetched.

use std::sync::Arc;
use std::time::Duration;

use crate::layer::Layer;
use crate::request_context::RequestContext;
use crate::sync::budget::MemoryBudget;
use crate::{Key, Meta, Reader, Store};
use blocks::{BlockCache, ReadaheadReader};
use dir_scan::DirScans;
use zarr_format::error::Result;

mod blocks;
mod dir_scan;

/// Limits of the prefetching.
#[derive(Clone, Debug)]
pub struct ReadaheadConfig {
    /// The budget for prefetched blocks.
    pub memory: Arc<MemoryBudget>,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// How long a reader waits for a block that is being fetched.
    pub timeout: Duration,
}

/// A store that prefetches objects and blocks.
pub struct ReadaheadStore {
    inner: Arc<dyn Store>,
    blocks: Arc<BlockCache>,
    scans: Arc<DirScans>,
}

impl ReadaheadStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, config: &ReadaheadConfig) -> ReadaheadStore {
        let blocks = Arc::new(BlockCache::new(inner.clone(), config));
        let scans = DirScans::new(blocks.clone(), config.concurrency);
        ReadaheadStore {
            inner,
            blocks,
            scans: Arc::new(scans),
        }
    }
}

impl Layer for ReadaheadStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let below = self.inner.open(context, key, known)?;
        let meta = match known {
            Some(meta) => *meta,
            None => below.meta(context)?,
        };
        self.scans.record_open(key, meta.size);
        let reader = ReadaheadReader::new(&self.blocks, key, meta, below);
        Ok(Arc::new(reader))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::backend::memory::MemoryStore;
    use crate::request_context::UNLIMITED;
    use crate::stats::Stats;

    fn ahead(names: impl IntoIterator<Item = String>) -> ReadaheadStore {
        let memory = MemoryStore::default();
        for name in names {
            memory.set(key(&name), vec![7; 10]);
        }
        let config = ReadaheadConfig {
            memory: MemoryBudget::new(4 << 20, Arc::new(Stats::default())),
            concurrency: 8,
            timeout: Duration::from_secs(5),
        };
        ReadaheadStore::new(Arc::new(memory), &config)
    }

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn read(ahead: &ReadaheadStore, name: &str) {
        let reader = Store::open(ahead, &UNLIMITED, &key(name), None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 0, 10).unwrap(), [7; 10]);
    }

    /// Whether a file is fetched within some time.
    fn comes(ahead: &ReadaheadStore, name: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        let has = || ahead.blocks.has_whole(key(name));
        while !has() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        has()
    }

    #[test]
    fn small_directories_are_gone_through_one_after_the_other() {
        let places = (0..80).map(|place| (place / 16, place / 4 % 4, place % 4));
        let ahead = ahead(places.map(|(z, y, x)| format!("a/c/{z}/{y}/{x}")));
        for name in ["a/c/0/1/2", "a/c/0/1/3"] {
            read(&ahead, name);
        }
        for name in ["a/c/0/2/0", "a/c/0/2/3", "a/c/0/3/3"] {
            assert!(comes(&ahead, name), "{name}");
        }
        for (z, y) in [(0, 2), (0, 3)] {
            for x in 0..4 {
                read(&ahead, &format!("a/c/{z}/{y}/{x}"));
            }
        }
        // Across the end of the directory above.
        for name in ["a/c/1/0/0", "a/c/1/0/3"] {
            assert!(comes(&ahead, name), "{name}");
        }
    }
}
