//! Valid stores of every dialect, and functions that damage them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::{Key, Store};

use crate::dialects::hierarchies::{documents, key};
use crate::dialects::written;
use zarrfs_store::request_context::UNLIMITED;

pub(crate) fn put(store: &MemoryStore, path: &str, document: Value) {
    store.set(key(path), document.to_string().into_bytes());
}

pub(crate) fn bytes(store: &MemoryStore, path: &str) -> Vec<u8> {
    store
        .get(&UNLIMITED, &key(path), u64::MAX)
        .unwrap()
        .unwrap()
        .bytes
}

fn document(store: &MemoryStore, path: &str) -> Value {
    serde_json::from_slice(&bytes(store, path)).unwrap()
}

/// A function that damages a valid store.
pub(crate) type Damage = Box<dyn Fn(&MemoryStore)>;

/// Returns a function that sets a member of a JSON document. `pointer` is the path of the member, with the names
/// separated by `/`.
pub(crate) fn set(path: &'static str, pointer: &'static str, value: Value) -> Damage {
    Box::new(move |store| {
        let mut changed = document(store, path);
        let (above, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let above = if above.is_empty() {
            String::new()
        } else {
            format!("/{above}")
        };
        match changed.pointer_mut(&above).unwrap() {
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
            members => members[name] = value.clone(),
        }
        put(store, path, changed);
    })
}

pub(crate) fn without(path: &'static str, name: &'static str) -> Damage {
    Box::new(move |store| {
        let mut changed = document(store, path);
        changed.as_object_mut().unwrap().remove(name).unwrap();
        put(store, path, changed);
    })
}

/// Returns a function that sets the bytes of a key.
pub(crate) fn holds(path: &'static str, bytes: &'static [u8]) -> Damage {
    Box::new(move |store| store.set(key(path), bytes.to_vec()))
}

/// Returns a function that writes a new JSON document.
pub(crate) fn adds(path: &'static str, document: Value) -> Damage {
    Box::new(move |store| put(store, path, document.clone()))
}

pub(crate) fn copies(from: &'static str, to: &'static str) -> Damage {
    Box::new(move |store| store.set(key(to), bytes(store, from)))
}

pub(crate) fn moves(from: &'static str, to: &'static str) -> Damage {
    Box::new(move |store| {
        store.set(key(to), bytes(store, from));
        store.erase(&key(from));
    })
}

pub(crate) fn erases(path: &'static str) -> Damage {
    Box::new(move |store| store.erase(&key(path)))
}

/// Returns a function that changes the bytes of a key by `change`.
pub(crate) fn changes(path: &'static str, change: fn(&mut Vec<u8>)) -> Damage {
    Box::new(move |store| {
        let mut changed = bytes(store, path);
        change(&mut changed);
        store.set(key(path), changed);
    })
}

/// Returns a function that applies two kinds of damage.
pub(crate) fn both(first: Damage, second: Damage) -> Damage {
    Box::new(move |store| {
        first(store);
        second(store);
    })
}

/// Returns a valid v3 store with the array `a/b`, its parent group and the root group.
pub(crate) fn v3() -> MemoryStore {
    let store = written::v3();
    for path in ["zarr.json", "a/zarr.json"] {
        put(
            &store,
            path,
            json!({"zarr_format": 3, "node_type": "group", "attributes": {}}),
        );
    }
    store
}

pub(crate) fn v3_consolidated() -> MemoryStore {
    let store = v3();
    let copies =
        json!({"a": document(&store, "a/zarr.json"), "a/b": document(&store, "a/b/zarr.json")});
    let member = json!({"kind": "inline", "must_understand": false, "metadata": copies});
    set("zarr.json", "consolidated_metadata", member)(&store);
    store
}

/// Returns a valid v2 store with the array `a/b`, its parent group and the root group.
pub(crate) fn v2() -> MemoryStore {
    let store = written::v2();
    for path in [".zgroup", "a/.zgroup"] {
        put(&store, path, json!({"zarr_format": 2}));
    }
    store
}

pub(crate) fn v2_consolidated() -> MemoryStore {
    let store = v2();
    let keys = [".zgroup", "a/.zgroup", "a/b/.zarray", "a/b/.zattrs"];
    let copies = keys.map(|path| (path.to_string(), document(&store, path)));
    let copies: serde_json::Map<String, Value> = copies.into_iter().collect();
    put(
        &store,
        ".zmetadata",
        json!({"zarr_consolidated_format": 1, "metadata": copies}),
    );
    store
}

/// Returns a store with a v3 array at the root, which has the given codecs and chunks of four bytes.
pub(crate) fn plain(codecs: Value, chunks: &[&[u8]]) -> MemoryStore {
    let store = documents(&[(
        "zarr.json",
        plain_array(json!([4 * chunks.len()]), json!([4]), codecs),
    )]);
    for (number, chunk) in chunks.iter().enumerate() {
        store.set(key(&format!("c/{number}")), chunk.to_vec());
    }
    store
}

pub(crate) fn plain_array(shape: Value, chunk: Value, codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs, "attributes": {},
    })
}

pub(crate) fn raw() -> MemoryStore {
    plain(json!([{"name": "bytes"}]), &[b"abcd", b"efgh"])
}

pub(crate) fn checksummed() -> MemoryStore {
    let chunk = |text: &[u8]| [text, &crc32c::crc32c(text).to_le_bytes()].concat();
    plain(
        json!([{"name": "bytes"}, {"name": "crc32c"}]),
        &[&chunk(b"abcd"), &chunk(b"efgh")],
    )
}

pub(crate) fn zstd() -> MemoryStore {
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}});
    let codecs = json!([{"name": "bytes"}, zstd]);
    let chunk = |text: &[u8]| ::zstd::bulk::compress(text, 1).unwrap();
    plain(codecs, &[&chunk(b"abcd"), &chunk(b"efgh")])
}

/// Returns a codec chain that makes shards with inner chunks of two bytes.
pub(crate) fn sharding(inner: usize) -> Value {
    json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [inner], "codecs": [{"name": "bytes"}, {"name": "crc32c"}], "index_location": "end",
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    }}])
}

/// Returns a shard of two inner chunks whose index has the entries `places`. `spare` unused bytes follow the inner
/// chunks.
pub(crate) fn shard(places: [[u64; 2]; 2], spare: usize) -> Vec<u8> {
    let inner = |text: &[u8]| [text, &crc32c::crc32c(text).to_le_bytes()].concat();
    let mut shard = [inner(b"ab"), inner(b"cd"), vec![0; spare]].concat();
    let index: Vec<u8> = places
        .iter()
        .flatten()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    shard.extend_from_slice(&index);
    shard.extend_from_slice(&crc32c::crc32c(&index).to_le_bytes());
    shard
}

pub(crate) fn sharded() -> MemoryStore {
    plain(sharding(2), &[&shard([[0, 6], [6, 6]], 0)])
}

/// Returns a function that replaces a shard by one whose index has the entries `places`.
pub(crate) fn indexed(places: [[u64; 2]; 2], spare: usize) -> Damage {
    Box::new(move |store| store.set(key("c/0"), shard(places, spare)))
}

pub(crate) fn draft2019() -> MemoryStore {
    written::draft2019()
}

pub(crate) fn draft2020() -> MemoryStore {
    let store = written::october2020();
    set("zarr.json", "extensions", json!([]))(&store);
    store
}

pub(crate) fn sharded2020() -> MemoryStore {
    let store = written::sharded2020();
    set("zarr.json", "extensions", json!([]))(&store);
    store
}

pub(crate) fn draft2022() -> MemoryStore {
    written::draft2022()
}

pub(crate) fn n5() -> MemoryStore {
    written::n5()
}

pub(crate) fn write_to(store: &MemoryStore, folder: &Path) {
    write_below(store, &Key::root(), folder);
}

fn write_below(store: &MemoryStore, prefix: &Key, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut listing = store.list(&UNLIMITED, prefix).unwrap();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        let below = prefix.child(&name.name).unwrap();
        let path = folder.join(std::ffi::OsStr::from_bytes(&name.name));
        match store.get(&UNLIMITED, &below, u64::MAX).unwrap() {
            Some(object) => fs::write(path, object.bytes).unwrap(),
            None => write_below(store, &below, &path),
        }
    }
}
