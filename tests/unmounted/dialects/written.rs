//! Writes the same array at `a/b` in every dialect.
#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use zarrfs_store::backend::memory::MemoryStore;

use crate::dialects::hierarchies::{CORE_2019, CORE_2020, CORE_2022, documents, key};

/// Shape, chunk shape and missing chunk of the array, which is big-endian, in F order and compressed with gzip.
pub const SHAPE: [usize; 2] = [3, 5];
pub const CHUNK: [usize; 2] = [2, 2];
const MISSING: [usize; 2] = [0, 1];
pub const FILL: i16 = -300;

pub fn value(row: usize, column: usize) -> i16 {
    if [row / CHUNK[0], column / CHUNK[1]] == MISSING {
        FILL
    } else {
        (row * 1000 + column) as i16 - 7
    }
}

pub fn whole() -> Vec<u8> {
    let places = (0..SHAPE[0]).flat_map(|row| (0..SHAPE[1]).map(move |column| (row, column)));
    places
        .flat_map(|(row, column)| value(row, column).to_le_bytes())
        .collect()
}

fn chunks() -> Vec<[usize; 2]> {
    let all = (0..2).flat_map(|row| (0..3).map(move |column| [row, column]));
    all.filter(|chunk| *chunk != MISSING).collect()
}

/// Returns the first `shape` elements of a chunk as big-endian bytes in F order.
fn plain(chunk: [usize; 2], shape: [usize; 2]) -> Vec<u8> {
    let places = (0..shape[1]).flat_map(|column| (0..shape[0]).map(move |row| (row, column)));
    let value = |(row, column)| value(chunk[0] * CHUNK[0] + row, chunk[1] * CHUNK[1] + column);
    places
        .flat_map(|place| value(place).to_be_bytes())
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes the chunks of the array, each under the key that `name` returns.
fn write(store: &MemoryStore, name: impl Fn([usize; 2]) -> String) {
    for chunk in chunks() {
        store.set(key(&name(chunk)), gzip(&plain(chunk, CHUNK)));
    }
}

fn attributes() -> Value {
    json!({"foo": 42, "bar": ["apples"]})
}

pub fn v2() -> MemoryStore {
    let store = documents(&[
        ("a/b/.zattrs", attributes()),
        (
            "a/b/.zarray",
            json!({
                "zarr_format": 2, "shape": SHAPE, "chunks": CHUNK, "dtype": ">i2", "order": "F",
                "compressor": {"id": "gzip", "level": 1}, "fill_value": FILL, "filters": null,
            }),
        ),
    ]);
    write(&store, |[row, column]| format!("a/b/{row}.{column}"));
    store
}

pub fn v3() -> MemoryStore {
    let store = documents(&[(
        "a/b/zarr.json",
        json!({
            "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNK}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": FILL, "attributes": attributes(),
            "codecs": [
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
                {"name": "gzip", "configuration": {"level": 1}},
            ],
        }),
    )]);
    write(&store, |[row, column]| format!("a/b/c/{row}/{column}"));
    store
}

pub fn draft2019() -> MemoryStore {
    let store = documents(&[(
        "meta/a/b.array.json",
        json!({
            "zarr_format": CORE_2019, "shape": SHAPE, "data_type": ">i2",
            "chunk_grid": {"type": "regular", "chunk_shape": CHUNK}, "chunk_memory_layout": "F",
            "chunk_codecs": [{"codec": "http://purl.org/zarr/spec/codec/gzip", "level": 1}],
            "fill_value": FILL, "extensions": [], "attributes": attributes(),
        }),
    )]);
    write(&store, |[row, column]| format!("data/a/b/{row}.{column}"));
    store
}

/// Returns the metadata of an array in the Zarr v3 draft of 2020, with the chunk grid `grid` and the members `others`.
fn array2020(grid: Value, others: &[(&str, Value)]) -> Value {
    let mut members = json!({
        "shape": SHAPE, "data_type": ">i2", "chunk_grid": grid, "chunk_memory_layout": "F",
        "compressor": {
            "codec": "https://purl.org/zarr/spec/codec/gzip/1.0", "configuration": {"level": 1},
        },
        "fill_value": FILL, "extensions": [], "attributes": attributes(),
    });
    for (name, value) in others {
        members[name] = value.clone();
    }
    members
}

fn regular() -> Value {
    json!({"type": "regular", "chunk_shape": CHUNK})
}

fn slashed() -> Value {
    json!({"type": "regular", "chunk_shape": CHUNK, "separator": "/"})
}

pub fn october2020() -> MemoryStore {
    let entry = json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020, "metadata_key_suffix": ".json"});
    let store = documents(&[
        ("zarr.json", entry),
        ("meta/root/a/b.array.json", array2020(slashed(), &[])),
    ]);
    write(&store, |[row, column]| {
        format!("data/root/a/b/c{row}/{column}")
    });
    store
}

pub fn july2020() -> MemoryStore {
    let entry = json!({"zarr_format": CORE_2020, "metadata_encoding": "application/json"});
    let store = documents(&[
        ("zarr.json", entry),
        ("meta/root/a/b.array", array2020(regular(), &[])),
    ]);
    write(&store, |[row, column]| format!("data/a/b/{row}.{column}"));
    store
}

pub fn september2020() -> MemoryStore {
    let entry = json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020});
    let store = documents(&[
        ("zarr.json", entry),
        ("meta/root/a/b.array", array2020(slashed(), &[])),
    ]);
    write(&store, |[row, column]| {
        format!("data/root/a/b/c{row}/{column}")
    });
    store
}

pub fn hybrid2020() -> MemoryStore {
    let entry = json!({"zarr_format": CORE_2022, "metadata_encoding": CORE_2022, "metadata_key_suffix": ".data"});
    let dotted = json!({"type": "regular", "chunk_shape": CHUNK, "separator": "."});
    let store = documents(&[
        ("zarr.json", entry),
        ("meta/root/a/b.array.data", array2020(dotted, &[])),
    ]);
    write(&store, |[row, column]| {
        format!("data/root/a/b/c{row}.{column}")
    });
    store
}

pub fn draft2022() -> MemoryStore {
    let entry = json!({
        "zarr_format": CORE_2022, "extensions": [],
        "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"},
    });
    let codec = |name: &str, configuration: Value| {
        let uri = format!("https://purl.org/zarr/spec/codecs/{name}/1.0");
        json!({"type": uri, "configuration": configuration})
    };
    let store = documents(&[
        ("zarr.json", entry),
        (
            "meta/a/b.array.json",
            json!({
                "shape": SHAPE, "data_type": "int16", "chunk_grid": slashed(), "chunk_memory_layout": "F",
                "codecs": [codec("endian", json!({"endian": "big"})), codec("gzip", json!({"level": 1}))],
                "fill_value": FILL, "extensions": [], "attributes": attributes(),
            }),
        ),
    ]);
    write(&store, |[row, column]| format!("data/a/b/c{row}/{column}"));
    store
}

/// Returns a store of the draft of 2020 with all chunks in one shard, with its index at the end and no checksum
/// (zarr-python 2.14, acquire-zarr).
pub fn sharded2020() -> MemoryStore {
    let store = october2020();
    let transformer = json!([{
        "extension": "https://purl.org/zarr/spec/storage_transformers/sharding/1.0", "type": "indexed",
        "configuration": {"chunks_per_shard": [2, 3]},
    }]);
    let members = array2020(slashed(), &[("storage_transformers", transformer)]);
    store.set(
        key("meta/root/a/b.array.json"),
        members.to_string().into_bytes(),
    );
    let (mut shard, mut index) = (Vec::new(), Vec::new());
    for chunk in (0..2).flat_map(|row| (0..3).map(move |column| [row, column])) {
        let bytes = if chunk == MISSING {
            Vec::new()
        } else {
            gzip(&plain(chunk, CHUNK))
        };
        let place = match bytes.len() {
            0 => [u64::MAX, u64::MAX],
            length => [shard.len() as u64, length as u64],
        };
        index.extend(place.iter().flat_map(|number| number.to_le_bytes()));
        shard.extend(bytes);
    }
    for chunk in chunks() {
        store.erase(&key(&format!("data/root/a/b/c{}/{}", chunk[0], chunk[1])));
    }
    shard.extend(index);
    store.set(key("data/root/a/b/c0/0"), shard);
    store
}

/// Returns the array in N5, which truncates blocks at the edge of the array and reads missing blocks as zeros.
pub fn n5() -> MemoryStore {
    let store = documents(&[
        ("attributes.json", json!({"n5": "2.5.1"})),
        (
            "a/b/attributes.json",
            json!({
                "dimensions": SHAPE, "blockSize": CHUNK, "dataType": "int16", "foo": 42, "bar": ["apples"],
                "compression": {"type": "gzip", "level": 1},
            }),
        ),
    ]);
    for [row, column] in chunks() {
        let shape = [(SHAPE[0] - row * 2).min(2), (SHAPE[1] - column * 2).min(2)];
        let mut block = [0u16, 2].map(u16::to_be_bytes).concat();
        block.extend(shape.map(|length| (length as u32).to_be_bytes()).concat());
        block.extend(gzip(&plain([row, column], shape)));
        store.set(key(&format!("a/b/{row}/{column}")), block);
    }
    store
}

/// The dialect of a store, the name of the variant, and the function that writes the store.
pub type Written = (&'static str, &'static str, fn() -> MemoryStore);

pub const STORES: [Written; 8] = [
    ("v3", "", v3),
    ("v2", "", v2),
    ("draft2019", "", draft2019),
    ("draft2020", "july", july2020),
    ("draft2020", "september", september2020),
    ("draft2020", "october", october2020),
    ("draft2020", "hybrid", hybrid2020),
    ("draft2022", "", draft2022),
];
