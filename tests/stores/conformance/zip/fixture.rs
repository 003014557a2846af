//! Opens archives in memory as stores, and reads them.

use std::sync::Arc;

use zarr_format::error::Result;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::{EntryKind, Key, Store};

use crate::common::zip_writer::{Archive, Entry};
use zarrfs_store::request_context::UNLIMITED;

pub(crate) const LIMIT: u64 = 64 << 20;

pub(crate) fn key(path: impl AsRef<[u8]>) -> Key {
    Key::new(path.as_ref()).unwrap()
}

pub(crate) fn open(bytes: Vec<u8>) -> Result<ZipStore> {
    open_inside(bytes, "")
}

pub(crate) fn open_inside(bytes: Vec<u8>, inner: &str) -> Result<ZipStore> {
    let memory = MemoryStore::default();
    memory.set(key("a.zip"), bytes);
    ZipStore::open(
        &UNLIMITED,
        Arc::new(memory),
        &key("a.zip"),
        &key(inner),
        "mem/a.zip",
    )
}

pub(crate) fn zip(entries: impl IntoIterator<Item = Entry>) -> ZipStore {
    open(Archive::of(entries).bytes()).unwrap()
}

pub(crate) fn get(store: &dyn Store, path: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
    let object = store.get(&UNLIMITED, &key(path), LIMIT)?;
    Ok(object.map(|object| object.bytes))
}

pub(crate) fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut listing = store.list(&UNLIMITED, &key(prefix)).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        assert_ne!(name.cursor, 0);
        let end = match name.kind {
            EntryKind::Directory => "/",
            _ => "",
        };
        names.push(String::from_utf8_lossy(&name.name).into_owned() + end);
    }
    names
}

/// Returns bytes that deflate compresses moderately.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 29) as u8
    };
    (0..length).map(step).collect()
}
