//! Zip archives in a folder as stores under test; each change rewrites the archive.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Key, Store, StoreConfig, StoreInfo};

use crate::common::zip_writer::{Archive, Entry};
use crate::conformance::fixture::{Fixture, Objects, Writer, key, tick};
use zarrfs_store::request_context::UNLIMITED;

/// Makes an archive entry from a name and its bytes.
type Pack = fn(&[u8], &[u8]) -> Entry;

/// Creates an archive with objects in its folder `inner` and another entry outside, and opens that folder as a store.
pub(crate) fn holding(objects: Objects, pack: Pack, inner: &str) -> Fixture {
    let zipped = Zipped {
        folder: tempfile::tempdir().unwrap(),
        entries: Mutex::default(),
        pack,
        inner: inner.to_string(),
    };
    for (name, bytes) in objects {
        zipped.put(&key(name), bytes);
    }
    fs::write(zipped.folder.path().join(NAME), zipped.bytes()).unwrap();
    let base = LocalStore::open(zipped.folder.path(), &StoreConfig::default()).unwrap();
    let zip = ZipStore::open(
        &UNLIMITED,
        Arc::new(Watched::new(base)),
        &key(NAME),
        &key(inner),
        NAME,
    )
    .unwrap();
    Fixture::new(Arc::new(zip), Box::new(zipped))
}

const NAME: &str = "store.zip";

/// An archive in a local store, with its entries.
struct Zipped {
    folder: TempDir,
    entries: Mutex<BTreeMap<Vec<u8>, Entry>>,
    pack: Pack,
    inner: String,
}

impl Zipped {
    fn name(&self, key: &Key) -> Vec<u8> {
        if self.inner.is_empty() {
            key.as_bytes().to_vec()
        } else {
            [self.inner.as_bytes(), b"/", key.as_bytes()].concat()
        }
    }

    fn put(&self, key: &Key, bytes: &[u8]) {
        let name = self.name(key);
        let entry = (self.pack)(&name, bytes);
        self.entries.lock().unwrap().insert(name, entry);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut entries: Vec<Entry> = self.entries.lock().unwrap().values().cloned().collect();
        if !self.inner.is_empty() {
            entries.push(Entry::new("zarr.json", b"that of the archive"));
            entries.push(Entry {
                mode: 0o40_755,
                ..Entry::new(format!("{}/", self.inner), b"")
            });
        }
        Archive::of(entries).bytes()
    }

    fn rename(&self) {
        let arriving = self.folder.path().join("arriving");
        fs::write(&arriving, self.bytes()).unwrap();
        fs::rename(arriving, self.folder.path().join(NAME)).unwrap();
    }
}

impl Writer for Zipped {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        self.put(key, bytes);
        self.rename();
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        self.put(key, bytes);
        tick(self.folder.path());
        fs::write(self.folder.path().join(NAME), self.bytes()).unwrap();
    }

    fn erase(&self, key: &Key) {
        self.entries.lock().unwrap().remove(&self.name(key));
        self.rename();
    }
}

/// A local store with a TTL of zero, so that changes of the archive are detected at every request.
struct Watched(LocalStore, StoreInfo);

impl Watched {
    fn new(local: LocalStore) -> Watched {
        let info = StoreInfo {
            freshness: Duration::ZERO,
            ..local.info().clone()
        };
        Watched(local, info)
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}
