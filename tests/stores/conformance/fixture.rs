//! Kinds of stores under test: how to fill each one, and its capabilities.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use zarr_format::error::Result;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::layer::disk_cache::{CacheDir, CacheNamespace, DiskCache};
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Condition, Key, PutBody, RemoteConfig, Store, StoreConfig};

use crate::common::needs;
use crate::common::zip_writer::Entry;
use crate::conformance::zipped;
use zarrfs_store::request_context::UNLIMITED;

/// The objects of a store: keys and bytes.
pub(crate) type Objects<'a> = &'a [(&'a [u8], &'a [u8])];

/// A kind of store under test, with its capabilities.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Whether other programs can change objects while the store is open.
    pub(crate) changes: bool,
    /// Whether keys may have bytes that are not UTF-8.
    pub(crate) any_bytes: bool,
    /// Bytes that keys of this kind of store may not have, besides those that are not UTF-8.
    pub(crate) no_bytes: &'static [u8],
    /// Whether the same key may be an object and a prefix.
    pub(crate) both: bool,
    /// Which names a listing contains.
    pub(crate) listed: Listed,
    /// Number of names in the test of a long listing.
    pub(crate) many: usize,
    /// How conditional writes work.
    pub(crate) writes: Writes,
    /// Whether tests put objects of many megabytes.
    pub(crate) takes_big: bool,
    /// The environment variable with the server's address; `None` if no server is needed.
    pub(crate) variable: Option<&'static str>,
    /// Creates a store with exactly the given objects.
    pub(crate) holding: fn(Objects) -> Fixture,
}

/// How a kind of store checks the condition of a write.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Writes {
    /// The store is read-only, and says so.
    No,
    /// Writes are not tested with this server.
    Elsewhere,
    /// The client looks at the object just before the write.
    Looking,
    /// The client looks at the object just before the write, under a lock that excludes other zarrfs processes.
    Alone,
    /// The server checks the condition, but another write may come before its change.
    Racing,
    /// The server checks the condition and makes the change in one atomic step.
    Conditionally,
}

/// Which names a listing of a store contains.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Listed {
    All,
    /// All names except those that begin with a dot, unless they are metadata documents.
    Visible,
    /// No names, because the store cannot list.
    None,
}

pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    writer: Option<Box<dyn Writer>>,
}

/// Changes the objects of a store as another program does.
pub(crate) trait Writer: Send + Sync {
    /// Replaces an object by a new one.
    fn replace(&self, key: &Key, bytes: &[u8]);
    /// Overwrites an object in place, as a program that has the file open.
    fn overwrite(&self, key: &Key, bytes: &[u8]);
    fn erase(&self, key: &Key);
}

pub(crate) const LOCAL: Kind = Kind {
    name: "local",
    changes: true,
    any_bytes: true,
    no_bytes: &[],
    both: false,
    listed: Listed::All,
    many: 1200,
    writes: Writes::Alone,
    takes_big: true,
    variable: None,
    holding: |objects| local(objects, false),
};

pub(crate) const LOCAL_FOLLOWING: Kind = Kind {
    name: "local, all links followed",
    holding: |objects| local(objects, true),
    ..LOCAL
};

pub(crate) const MEMORY: Kind = Kind {
    name: "memory",
    changes: true,
    any_bytes: true,
    no_bytes: &[],
    both: true,
    listed: Listed::All,
    many: 1200,
    writes: Writes::Conditionally,
    takes_big: true,
    variable: None,
    holding: memory,
};

pub(crate) const COUNTED_LOCAL: Kind = Kind {
    name: "local, counted",
    holding: |objects| counted((LOCAL.holding)(objects)),
    ..LOCAL
};

pub(crate) const COUNTED_MEMORY: Kind = Kind {
    name: "memory, counted",
    holding: |objects| counted((MEMORY.holding)(objects)),
    ..MEMORY
};

/// A store in memory with prefetching.
pub(crate) const AHEAD: Kind = Kind {
    name: "memory, fetched ahead",
    holding: |objects| ahead((MEMORY.holding)(objects)),
    ..MEMORY
};

/// A store in memory with a metadata cache whose TTL is zero, so that changes are visible at once.
pub(crate) const MEMO_OF_NOTHING: Kind = Kind {
    name: "memory, remembered for no time",
    holding: |objects| remembered((MEMORY.holding)(objects), Duration::ZERO),
    ..MEMORY
};

pub(crate) const MEMO: Kind = Kind {
    name: "memory, remembered",
    changes: false,
    holding: |objects| remembered((MEMORY.holding)(objects), Duration::from_secs(1000)),
    ..MEMORY
};

pub(crate) const KEPT_MEMORY: Kind = Kind {
    name: "memory, kept on disk",
    holding: |objects| kept((MEMORY.holding)(objects)),
    ..MEMORY
};

pub(crate) const ZIP: Kind = Kind {
    name: "zip",
    // Names in an archive cannot contain a backslash, which is a separator on other systems.
    no_bytes: b"\\",
    both: false,
    writes: Writes::No,
    holding: |objects| zipped::holding(objects, |name, bytes| Entry::new(name, bytes), ""),
    ..MEMORY
};

pub(crate) const ZIP_DEFLATED: Kind = Kind {
    name: "zip, deflated",
    holding: |objects| zipped::holding(objects, |name, bytes| Entry::deflated(name, bytes), ""),
    ..ZIP
};

pub(crate) const ZIP_FOLDER: Kind = Kind {
    name: "zip, a folder in it",
    holding: |objects| {
        zipped::holding(
            objects,
            |name, bytes| Entry::deflated(name, bytes),
            "in/side",
        )
    },
    ..ZIP
};

/// An overlay whose upper folder has every object.
pub(crate) const OVERLAY_UPPER: Kind = Kind {
    name: "overlay, all in its upper folder",
    changes: false,
    both: false,
    writes: Writes::Alone,
    holding: |objects| overlaid(objects, |_| true, memory(&[])),
    ..MEMORY
};

/// An overlay whose store has every object.
pub(crate) const OVERLAY_LOWER: Kind = Kind {
    name: "overlay, all in the store",
    holding: |objects| overlaid(objects, |_| false, memory(objects)),
    ..OVERLAY_UPPER
};

/// An overlay whose upper folder and store (a local folder) each have every other object.
pub(crate) const OVERLAY_HALF: Kind = Kind {
    name: "overlay, half in a folder",
    holding: |objects| {
        let stored: Vec<_> = objects.iter().step_by(2).copied().collect();
        overlaid(objects, |place| place % 2 == 1, local(&stored, false))
    },
    ..OVERLAY_UPPER
};

pub(crate) fn key(bytes: impl AsRef<[u8]>) -> Key {
    Key::new(bytes.as_ref()).unwrap()
}

/// Returns `length` bytes that differ by position.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    const PERIOD: usize = 251;
    let period: Vec<u8> = (0..PERIOD)
        .map(|place| (place * 31 % PERIOD) as u8)
        .collect();
    let mut bytes = period.repeat(length.div_ceil(PERIOD));
    bytes.truncate(length);
    bytes
}

impl Kind {
    /// Whether tests of this kind can run, because its server is available or it needs none.
    pub(crate) fn is_here(&self) -> bool {
        self.variable.is_none_or(needs::server)
    }

    /// Reduces a number of requests to a fortieth if this kind of store needs a server.
    pub(crate) fn fewer(&self, times: usize) -> usize {
        match self.variable {
            Some(_) => times / 40,
            None => times,
        }
    }

    /// Returns the odd names that this kind of store can have as keys.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        let mut names = crate::conformance::names::odd_names();
        if !self.any_bytes {
            println!("only names in UTF-8: {}", self.name);
            names.retain(|name| std::str::from_utf8(name).is_ok());
        }
        names.retain(|name| !name.iter().any(|byte| self.no_bytes.contains(byte)));
        names
    }

    /// Whether the server has real folders, which remain for a while when they are empty.
    pub(crate) fn keeps_folders(&self) -> bool {
        self.variable == Some("ZARRFS_TEST_S3")
    }

    /// Whether this kind of store can list; prints a line if not.
    pub(crate) fn lists(&self) -> bool {
        let lists = self.listed != Listed::None;
        if !lists {
            println!("skipped: {} does not list", self.name);
        }
        lists
    }

    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        match self.listed {
            Listed::All => true,
            Listed::Visible => !name.starts_with(b"."),
            Listed::None => false,
        }
    }

    /// Returns a store whose objects can be changed from outside. Prints a line and returns `None` if this kind has
    /// none.
    pub(crate) fn changing(&self, objects: Objects) -> Option<Fixture> {
        if !self.changes {
            println!("skipped: objects of {} do not change", self.name);
            return None;
        }
        Some((self.holding)(objects))
    }
}

impl Fixture {
    pub(crate) fn new(store: Arc<dyn Store>, writer: Box<dyn Writer>) -> Fixture {
        let writer = Some(writer);
        Fixture { store, writer }
    }

    /// Returns the writer that changes objects from outside. Only kinds of stores with `changes` have one.
    pub(crate) fn writer(&self) -> &dyn Writer {
        self.writer.as_deref().unwrap()
    }
}

/// Opens an overlay over a store. Objects whose index satisfies `is_upper` are put into the upper folder.
fn overlaid(objects: Objects, is_upper: fn(usize) -> bool, lower: Fixture) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let overlay = Overlay::open(&folder.path().join("upper"), lower.store, "x", config).unwrap();
    for (place, (name, bytes)) in objects.iter().enumerate() {
        if is_upper(place) {
            let body = PutBody::Bytes(bytes);
            overlay
                .put(&UNLIMITED, &key(name), body, &Condition::Any)
                .unwrap();
        }
    }
    let store = Arc::new(overlay);
    let below = lower.writer.unwrap();
    Fixture::new(store, Box::new(Beside(below, folder)))
}

fn counted(fixture: Fixture) -> Fixture {
    let store = Arc::new(CountingStore::new(
        fixture.store,
        Arc::new(Stats::default()),
    ));
    Fixture { store, ..fixture }
}

fn ahead(fixture: Fixture) -> Fixture {
    let config = ReadaheadConfig {
        memory: MemoryBudget::new(4 << 20, Arc::new(Stats::default())),
        concurrency: 4,
        timeout: Duration::from_secs(20),
    };
    let store = Arc::new(ReadaheadStore::new(fixture.store, &config));
    Fixture { store, ..fixture }
}

fn remembered(fixture: Fixture, ttl: Duration) -> Fixture {
    let config = MetadataCacheConfig {
        ttl,
        ..MetadataCacheConfig::default()
    };
    let store = Arc::new(MetadataCache::new(fixture.store, &config));
    Fixture { store, ..fixture }
}

/// Opens a store with a disk cache.
fn kept(fixture: Fixture) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let cache_dir = CacheDir::open(folder.path(), 64 << 20, &Arc::new(Stats::default())).unwrap();
    let store = Arc::new(DiskCache::new(
        fixture.store,
        CacheNamespace::open(&cache_dir, "test"),
    ));
    let writer: Option<Box<dyn Writer>> = match fixture.writer {
        Some(writer) => Some(Box::new(Beside(writer, folder))),
        None => None,
    };
    Fixture { store, writer }
}

/// A writer with a folder that is removed when the writer is dropped.
struct Beside(
    Box<dyn Writer>,
    #[expect(dead_code, reason = "removed when it is dropped")] TempDir,
);

impl Writer for Beside {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        self.0.replace(key, bytes);
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        self.0.overwrite(key, bytes);
    }

    fn erase(&self, key: &Key) {
        self.0.erase(key);
    }
}

fn memory(objects: Objects) -> Fixture {
    let memory = MemoryStore::default();
    for (name, bytes) in objects {
        memory.set(key(name), bytes.to_vec());
    }
    Fixture {
        store: Arc::new(memory.clone()),
        writer: Some(Box::new(memory)),
    }
}

impl Writer for MemoryStore {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        self.set(key.clone(), bytes.to_vec());
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        self.set(key.clone(), bytes.to_vec());
    }

    fn erase(&self, key: &Key) {
        MemoryStore::erase(self, key);
    }
}

fn local(objects: Objects, follow_symlinks: bool) -> Fixture {
    let folder = Folder(tempfile::tempdir().unwrap());
    fs::create_dir(folder.store()).unwrap();
    for (name, bytes) in objects {
        let path = folder.path(&key(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let config = StoreConfig {
        follow_symlinks,
        ..StoreConfig::default()
    };
    Fixture {
        store: Arc::new(LocalStore::open(&folder.store(), &config).unwrap()),
        writer: Some(Box::new(folder)),
    }
}

/// A folder with a store in its subfolder `store`, and with temporary files.
struct Folder(TempDir);

impl Folder {
    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.store()
            .join(std::ffi::OsStr::from_bytes(key.as_bytes()))
    }
}

/// Waits until a new write gets another time than the writes before.
pub(crate) fn tick(folder: &Path) {
    let changed = |path: &Path| {
        fs::write(path, "").unwrap();
        let meta = fs::metadata(path).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    let clock = folder.join("clock");
    let before = changed(&clock);
    while changed(&clock) == before {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Writer for Folder {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        let arriving = self.0.path().join("arriving");
        fs::write(&arriving, bytes).unwrap();
        fs::create_dir_all(self.path(key).parent().unwrap()).unwrap();
        fs::rename(arriving, self.path(key)).unwrap();
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        tick(self.0.path());
        fs::write(self.path(key), bytes).unwrap();
    }

    fn erase(&self, key: &Key) {
        fs::remove_file(self.path(key)).unwrap();
    }
}

/// Opens the disk cache that the store's options name.
pub fn cache_of(
    url: &str,
    remote: &RemoteConfig,
    stats: &Arc<Stats>,
) -> Result<Option<Arc<CacheDir>>> {
    let config = StoreConfig {
        remote: remote.clone(),
        ..StoreConfig::default()
    };
    zarrfs_store::open_cache_dir(url, &config, stats)
}
