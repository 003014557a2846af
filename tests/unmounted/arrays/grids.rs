//! Tests rectilinear chunk grids: written by zarrs, listed in the files view, and hostile.
//!
//! `flat.rs` checks that any range of an array with any grid is read correctly.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs::mount::open::ViewKind;
use zarrfs::view::View;
use zarrfs_store::Key;
use zarrs::array::{Array, ArraySubset};
use zarrs::filesystem::FilesystemStore;

use crate::common;
use zarrfs_store::request_context::UNLIMITED;

fn metadata(shape: &[u64], chunk_shapes: Value, codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int32",
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": chunk_shapes}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": -1, "codecs": codecs, "attributes": {},
    })
}

fn bytes() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn sharded(inner: &[u64]) -> Value {
    json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": [bytes(), {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
        "index_codecs": [bytes(), {"name": "crc32c"}],
    }}])
}

/// Writes the metadata of an array to `store/a`, and those of its parent group.
fn put(store: &Path, metadata: &Value) {
    std::fs::create_dir_all(store.join("a")).unwrap();
    std::fs::write(store.join("zarr.json"), common::sample::GROUP).unwrap();
    std::fs::write(store.join("a/zarr.json"), metadata.to_string()).unwrap();
}

/// Writes the numbers from 0 to all elements of an array with the zarrs crate. Returns the elements as bytes.
fn write_by_zarrs(store: &Path) -> Vec<u8> {
    let array = Array::open(Arc::new(FilesystemStore::new(store).unwrap()), "/a").unwrap();
    let count: u64 = array.shape().iter().product();
    let elements: Vec<i32> = (0..count as i32).collect();
    let whole = ArraySubset::new_with_shape(array.shape().to_vec());
    array.store_array_subset(&whole, elements.clone()).unwrap();
    elements
        .iter()
        .flat_map(|element| element.to_le_bytes())
        .collect()
}

#[test]
fn arrays_that_zarrs_writes_are_read() {
    let shapes = json!([[[1, 3], 3], [4, 4, 4], 2]);
    let shards = json!([[2, [4, 1]], [[4, 2], 8], 6]);
    let mut nested = sharded(&[4]);
    nested[0]["configuration"]["codecs"] = sharded(&[2]);
    for metadata in [
        metadata(&[6, 6, 5], shapes.clone(), json!([bytes()])),
        metadata(
            &[6, 6, 5],
            shapes.clone(),
            json!([bytes(), {"name": "gzip", "configuration": {"level": 1}}]),
        ),
        metadata(
            &[6, 6, 5],
            shapes,
            json!([{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, bytes()]),
        ),
        metadata(&[6, 15, 12], shards, sharded(&[2, 4, 3])),
        metadata(&[20], json!([[8, 4, 8]]), nested),
    ] {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &metadata);
        let whole = write_by_zarrs(folder.path());
        let view = common::files(folder.path());
        assert_eq!(common::read(&view, "a/a.raw").unwrap(), whole, "{metadata}");
        let shown: Value =
            serde_json::from_slice(&common::read(&view, "a/metadata.json").unwrap()).unwrap();
        assert_eq!(shown["chunk_grid"]["name"], "rectilinear");
        // The metadata in the view describe the same array, so they can replace the original metadata.
        put(folder.path(), &shown);
        let again = common::files(folder.path());
        assert_eq!(common::read(&again, "a/a.raw").unwrap(), whole, "{shown}");
    }
}

/// Tests rows that are so long that zarrfs copies them directly from the stored chunks.
#[test]
fn uncompressed_chunks_of_many_lengths_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = json!([[1, [2, 2]], [700, [64, 2], 172]]);
    put(
        folder.path(),
        &metadata(&[5, 1000], shapes, json!([bytes()])),
    );
    let whole = write_by_zarrs(folder.path());
    let view = common::files(folder.path());
    assert_eq!(common::read(&view, "a/a.raw").unwrap(), whole);
    std::fs::write(folder.path().join("a/c/1/1"), [0; 700]).unwrap();
    let view = common::files(folder.path());
    let error = common::read(&view, "a/a.raw").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("expected 512 bytes"), "{error}");
}

fn names(view: &Arc<dyn View>, path: &str) -> Vec<String> {
    let mut listing = view.list(&UNLIMITED, &Key::new(path).unwrap()).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        names.push(String::from_utf8(name.name).unwrap());
    }
    names
}

#[test]
fn each_chunk_that_begins_in_the_array_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = json!([[1, 2, 3, [9, 9]], [4, 4, 4]]);
    put(folder.path(), &metadata(&[5, 7], shapes, json!([bytes()])));
    let whole = write_by_zarrs(folder.path());
    let view = common::files(folder.path());
    let mut listed = names(&view, "a/chunks");
    listed.retain(|name| name.ends_with(".raw"));
    listed.sort();
    assert_eq!(
        listed,
        [
            "0.0.raw", "0.1.raw", "1.0.raw", "1.1.raw", "2.0.raw", "2.1.raw"
        ]
    );
    // Rows 3 and 4, columns 4 to 6: parts of several chunks along both dimensions.
    let corner: Vec<u8> = [25, 32]
        .iter()
        .flat_map(|&first| whole[first * 4..(first + 3) * 4].to_vec())
        .collect();
    assert_eq!(common::read(&view, "a/chunks/2.1.raw").unwrap(), corner);
    assert!(
        view.lookup(&UNLIMITED, &Key::new("a/chunks/3.0.raw").unwrap())
            .unwrap()
            .is_none()
    );
    assert!(
        view.lookup(&UNLIMITED, &Key::new("a/chunks/0.2.raw").unwrap())
            .unwrap()
            .is_none()
    );
}

#[test]
fn shards_that_inner_chunks_do_not_divide_are_unsupported() {
    let transpose = json!({"name": "transpose", "configuration": {"order": [0]}});
    let mut behind = sharded(&[2]);
    behind.as_array_mut().unwrap().insert(0, transpose);
    for (shapes, codecs) in [
        (json!([[4, 3]]), sharded(&[2])),
        (json!([[3, 4]]), sharded(&[2])),
        (json!([[4, 3]]), behind),
    ] {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &metadata(&[7], shapes.clone(), codecs));
        let view = common::files(folder.path());
        assert!(
            view.lookup(&UNLIMITED, &Key::new("a/a.raw").unwrap())
                .unwrap()
                .is_some()
        );
        assert_eq!(names(&view, "a/chunks").len(), 0);
        let key = "a/c/1";
        std::fs::create_dir_all(folder.path().join("a/c")).unwrap();
        std::fs::write(folder.path().join(key), [0; 64]).unwrap();
        let mut listed = names(&common::files(folder.path()), "a/chunks");
        listed.sort();
        assert_eq!(listed, ["1.npy", "1.raw"]);
        let error = common::read(&view, "a/a.raw").unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{shapes}: {error}");
    }
}

/// Reads the first and the last bytes of an array without stored chunks. Returns the first error.
fn explore(metadata: &Value) -> Result<(), zarr_format::error::Error> {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), metadata);
    let (faces, stats) = common::open_with(folder.path(), 64 << 20)?;
    let view = faces.view(ViewKind::Files);
    common::check_node(&view, "a")?;
    let mut chunks = view.list(&UNLIMITED, &Key::new("a/chunks")?)?;
    chunks.next(&UNLIMITED)?;
    let size = view
        .lookup(&UNLIMITED, &Key::new("a/a.raw")?)?
        .unwrap()
        .size;
    let file = view.open(&UNLIMITED, &Key::new("a/a.raw")?)?.file;
    for offset in [0, size / 2, size.saturating_sub(100)] {
        assert!(
            file.read_at(&UNLIMITED, offset, 100)?
                .iter()
                .all(|&byte| byte == 0xff)
        );
    }
    assert!(stats.memory_peak_bytes.get() <= 64 << 20);
    Ok(())
}

#[test]
fn huge_grids_with_short_documents_cost_little() {
    let huge = 1u64 << 40;
    for (shape, shapes) in [
        // The grid has more chunks than fit in memory.
        (vec![huge * 3], json!([[[2, huge], [1, huge]]])),
        (
            vec![huge + 1, 1 << 18],
            json!([[1, [1, huge]], [5, [7, huge], [7, huge]]]),
        ),
        // The sums of the chunk lengths overflow 64 bits.
        (vec![10], json!([[3, [4, u64::MAX], [5, u64::MAX]]])),
        (
            vec![10, 10],
            json!([[1, [9, 1], [u64::MAX, u64::MAX]], [[2, u64::MAX]]]),
        ),
    ] {
        explore(&metadata(&shape, shapes.clone(), json!([bytes()])))
            .unwrap_or_else(|error| panic!("{shapes}: {error}"));
    }
}

#[test]
fn invalid_grids_are_errors() {
    let huge = 1u64 << 62;
    for (shape, shapes, kind) in [
        (vec![10], json!([[4, 5]]), Kind::Corrupt),
        (vec![10], json!([[4, 0, 6]]), Kind::Corrupt),
        (vec![10], json!([[[4, 0], 10]]), Kind::Corrupt),
        (vec![10], json!([0]), Kind::Corrupt),
        (vec![10], json!([[5, 5], [5, 5]]), Kind::Corrupt),
        (vec![10], json!([[[5, 5, 5]]]), Kind::Corrupt),
        // The largest chunk exceeds the maximum chunk size in bytes.
        (vec![huge], json!([[1, huge]]), Kind::TooLarge),
        // The number of chunks overflows 64 bits.
        (
            vec![huge, huge],
            json!([[1, [2, huge]], [1, [2, huge]]]),
            Kind::TooLarge,
        ),
    ] {
        let error = explore(&metadata(&shape, shapes.clone(), json!([bytes()]))).unwrap_err();
        assert_eq!(error.kind(), kind, "{shapes}: {error}");
    }
}
