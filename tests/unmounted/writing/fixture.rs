//! Opens the arrays of a test store for writing, and injects errors.
#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Region;
use zarrfs::view::View;
use zarrfs::view::files::FilesView;
use zarrfs_array::array::{Arrays, Engine, Limits, OpenArray};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_export::formats::{Export, format};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::read_bytes::ReadAt;
use zarrfs_store::tree::Credentials;
use zarrfs_store::{Condition, ETag, Key, PutBody, Store, Tree};

pub fn limits(memory: u64) -> Limits {
    Limits {
        memory,
        max_chunk: 16 << 20,
        timeout: Duration::from_secs(20),
        fetches: 0,
        lossy: false,
    }
}

/// The arrays of a store, with the counters of their requests and chunks.
pub struct Fixture {
    pub hierarchy: Arc<Hierarchy>,
    pub arrays: Arrays,
    pub stats: Arc<Stats>,
}

impl Fixture {
    pub fn new(store: Arc<dyn Store>, limits: Limits) -> Fixture {
        let stats = Arc::new(Stats::default());
        let hierarchy = Arc::new(Hierarchy::new(store));
        let engine = Engine::new(limits, stats.clone());
        let arrays = Arrays::new(hierarchy.clone(), engine);
        Fixture {
            hierarchy,
            arrays,
            stats,
        }
    }

    pub fn of(memory: &MemoryStore) -> Fixture {
        Fixture::new(Arc::new(memory.clone()), limits(64 << 20))
    }

    pub fn array(&self, path: &str) -> Arc<OpenArray> {
        let found = self
            .hierarchy
            .node(&UNLIMITED, &Key::new(path).unwrap())
            .unwrap();
        self.arrays.open(&found.unwrap()).unwrap()
    }

    pub fn file(&self, path: &str, extension: &str) -> Export {
        let array = self.array(path);
        let region = Region::whole(&array.array().shape);
        Export::open(&UNLIMITED, &array, format(extension).unwrap(), region).unwrap()
    }

    pub fn chunk(&self, path: &str, indices: &[u64]) -> Export {
        let array = self.array(path);
        let region = array.stored_grid().unwrap().region(indices);
        Export::open(&UNLIMITED, &array, format("raw").unwrap(), region).unwrap()
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        all(&self.file(path, "raw"))
    }
}

/// Returns the files view of a store, and the tree through which it is written.
pub fn tree(store: Arc<dyn Store>) -> (Arc<dyn View>, Arc<dyn Tree>) {
    let fixture = Fixture::new(store, limits(64 << 20));
    let files = FilesView::new(
        fixture.hierarchy,
        fixture.arrays,
        "sample",
        &crate::common::every_form(),
    );
    let root = files.tree(&UNLIMITED, &Key::root()).unwrap().unwrap();
    assert!(root.at.is_root());
    (Arc::new(files), root.tree)
}

/// The owner of the files that tests create.
pub const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

pub fn all(file: &Export) -> Vec<u8> {
    file.read_at(&UNLIMITED, 0, file.len() as usize)
        .unwrap()
        .to_vec()
}

#[derive(Default)]
pub struct Full {
    pub memory: MemoryStore,
    pub is_full: AtomicBool,
}

impl Layer for Full {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if self.is_full.load(Ordering::SeqCst) {
            Err(Error::new(Kind::NoSpace, key, "no room"))
        } else {
            self.memory.put(context, key, body, condition)
        }
    }
}
