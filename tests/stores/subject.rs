//! Stores under test: how each kind is made to hold given objects, and what it can do.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use zarrfs::stats::Stats;
use zarrfs::store::Key;
use zarrfs::store::Store;
use zarrfs::store::StoreConfig;
use zarrfs::store::counting::Counting;
use zarrfs::store::local::Local;
use zarrfs::store::memory::Memory;

use crate::writer::Entry;
use crate::zipped;

/// Keys and what they hold.
pub(crate) type Objects<'a> = &'a [(&'a [u8], &'a [u8])];

/// A kind of store.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Objects can change while the store is open.
    pub(crate) changes: bool,
    /// Which names it shows; others it leaves out.
    pub(crate) shows: fn(&[u8]) -> bool,
    /// A key may be an object and a prefix of others.
    pub(crate) both: bool,
    /// Makes a store that holds these objects and nothing else.
    pub(crate) holding: fn(Objects) -> Subject,
}

/// A store under test.
pub(crate) struct Subject {
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
    shows: |_| true,
    both: false,
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
    shows: |_| true,
    both: true,
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

pub(crate) const ZIP: Kind = Kind {
    name: "zip",
    changes: true,
    // On another system it would be a separator.
    shows: |name| !name.contains(&b'\\'),
    both: false,
    holding: |objects| zipped::holding(objects, |name, bytes| Entry::new(name, bytes), ""),
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

pub(crate) fn key(bytes: impl AsRef<[u8]>) -> Key {
    Key::new(bytes.as_ref()).unwrap()
}

/// Returns `length` bytes that differ from place to place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 % 251) as u8).collect()
}

impl Kind {
    /// Returns a store that can be changed from outside, or nothing, after saying so, where there is none.
    pub(crate) fn changing(&self, objects: Objects) -> Option<Subject> {
        if !self.changes {
            println!("skipped: objects of {} do not change", self.name);
            return None;
        }
        Some((self.holding)(objects))
    }
}

impl Subject {
    pub(crate) fn new(store: Arc<dyn Store>, writer: Box<dyn Writer>) -> Subject {
        Subject {
            store,
            writer: Some(writer),
        }
    }

    /// Returns the way in; only kinds that change have one.
    pub(crate) fn writer(&self) -> &dyn Writer {
        self.writer.as_deref().unwrap()
    }
}

fn counted(subject: Subject) -> Subject {
    let store = Arc::new(Counting::new(subject.store, Arc::new(Stats::default())));
    Subject { store, ..subject }
}

fn memory(objects: Objects) -> Subject {
    let memory = Memory::default();
    for (name, bytes) in objects {
        memory.set(key(name), bytes.to_vec());
    }
    Subject::new(Arc::new(memory.clone()), Box::new(memory))
}

impl Writer for Memory {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        self.set(key.clone(), bytes.to_vec());
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        self.set(key.clone(), bytes.to_vec());
    }

    fn erase(&self, key: &Key) {
        Memory::erase(self, key);
    }
}

fn local(objects: Objects, follow_symlinks: bool) -> Subject {
    let folder = Folder(tempfile::tempdir().unwrap());
    fs::create_dir(folder.store()).unwrap();
    for (name, bytes) in objects {
        let path = folder.path(&key(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let config = StoreConfig { follow_symlinks };
    let store = Local::open(&folder.store(), &config).unwrap();
    Subject::new(Arc::new(store), Box::new(folder))
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

/// Waits until a file written in a folder now has another time than one written before.
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
