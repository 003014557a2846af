//! Stores under test: how each kind is made to hold given objects, and what it can do.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::layer::disk_cache::{CacheDir, CacheNamespace, DiskCache};
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Condition, Key, PutBody, Store, StoreConfig};

use crate::needs;
use crate::zip::writer::Entry;
use crate::zipped;
use zarrfs_store::request_context::UNLIMITED;

/// Keys and what they hold.
pub(crate) type Objects<'a> = &'a [(&'a [u8], &'a [u8])];

/// A kind of store.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Objects can change while the store is open.
    pub(crate) changes: bool,
    /// Names may have any bytes.
    pub(crate) any_bytes: bool,
    /// Bytes that no name has, though it is UTF-8.
    pub(crate) no_bytes: &'static [u8],
    /// A key may be an object and a prefix of others.
    pub(crate) both: bool,
    /// Which names a listing has.
    pub(crate) listed: Listed,
    /// How many names a long listing has.
    pub(crate) many: usize,
    /// How it is changed.
    pub(crate) writes: Writes,
    /// Whether objects of many megabytes are put there.
    pub(crate) takes_big: bool,
    /// The variable that says where its server is, if it has one.
    pub(crate) variable: Option<&'static str>,
    /// Makes a store that holds these objects and nothing else.
    pub(crate) holding: fn(Objects) -> Fixture,
}

/// How a store is changed through itself.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Writes {
    /// Not at all, and it says so.
    No,
    /// Its server cannot do it, though others of the kind can.
    Elsewhere,
    /// What a condition asks for is looked at just before.
    Looking,
    /// The same, but alone among all zarrfs.
    Alone,
    /// The server looks, and somebody may come between that and the change.
    Racing,
    /// In one step with what a condition asks for.
    Conditionally,
}

/// Which names a listing has.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Listed {
    All,
    /// All but those that begin with a dot and are not a document's.
    Visible,
    /// There are no listings.
    None,
}

/// A store under test.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    writer: Option<Box<dyn Writer>>,
}

/// A way into a store that does not lead through the store.
pub(crate) trait Writer: Send + Sync {
    /// Puts another object in the place of what is there.
    fn replace(&self, key: &Key, bytes: &[u8]);
    /// Writes into the object that is there, as a program does that keeps it open.
    fn overwrite(&self, key: &Key, bytes: &[u8]);
    /// Removes an object.
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

/// Fetching ahead of a store in memory.
pub(crate) const AHEAD: Kind = Kind {
    name: "memory, fetched ahead",
    holding: |objects| ahead((MEMORY.holding)(objects)),
    ..MEMORY
};

/// Nothing is remembered, so that changes show at once.
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
    // On another system it would be a separator.
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

/// A store with an upper folder that holds every object.
pub(crate) const OVERLAY_UPPER: Kind = Kind {
    name: "overlay, all in its upper folder",
    changes: false,
    both: false,
    writes: Writes::Alone,
    holding: |objects| overlaid(objects, |_| true, memory(&[])),
    ..MEMORY
};

/// One whose upper folder holds nothing.
pub(crate) const OVERLAY_LOWER: Kind = Kind {
    name: "overlay, all in the store",
    holding: |objects| overlaid(objects, |_| false, memory(objects)),
    ..OVERLAY_UPPER
};

/// One over a folder, which has every other object.
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

/// Returns `length` bytes that differ from place to place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 % 251) as u8).collect()
}

impl Kind {
    /// Whether its server is here, if it has one.
    pub(crate) fn is_here(&self) -> bool {
        self.variable.is_none_or(needs::server)
    }

    /// Returns how often to do what costs a request to a server.
    pub(crate) fn fewer(&self, times: usize) -> usize {
        match self.variable {
            Some(_) => times / 40,
            None => times,
        }
    }

    /// Returns names that somebody has to get wrong, as far as the kind has such.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        let mut names = crate::names::odd_names();
        if !self.any_bytes {
            println!("only names in UTF-8: {}", self.name);
            names.retain(|name| std::str::from_utf8(name).is_ok());
        }
        names.retain(|name| !name.iter().any(|byte| self.no_bytes.contains(byte)));
        names
    }

    /// Whether its server has folders of its own below the keys, which stay for a while when they are empty.
    pub(crate) fn keeps_folders(&self) -> bool {
        self.variable == Some("ZARRFS_TEST_S3")
    }

    /// Whether it has listings; says so if not.
    pub(crate) fn lists(&self) -> bool {
        let lists = self.listed != Listed::None;
        if !lists {
            println!("skipped: {} does not list", self.name);
        }
        lists
    }

    /// Whether a listing has a name.
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        match self.listed {
            Listed::All => true,
            Listed::Visible => !name.starts_with(b"."),
            Listed::None => false,
        }
    }

    /// Returns a store that can be changed from outside, or nothing, after saying so, where there is none.
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

    /// Returns the way in; only kinds that change have one.
    pub(crate) fn writer(&self) -> &dyn Writer {
        self.writer.as_deref().unwrap()
    }
}

/// Puts an upper folder over a store, and those objects in it whose place is named.
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

/// Puts a cache on disk over a store.
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

/// A way into a store, and the folder that lives as long.
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

/// A folder whose `store` is the store; beside it lie files on their way in.
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

/// Waits until a file written now has another time than one written before.
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
