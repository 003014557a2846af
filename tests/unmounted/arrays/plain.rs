//! Tests uncompressed views: documents, chunks, listings, and nodes that a format cannot express.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use zarr_format::error::{Error, Kind, Result};
use zarrfs::view::View;
use zarrfs::view::plain::{PlainView, TARGETS};
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::{EntryKind, Key, Listing, Meta, Object, Reader, Store, StoreInfo};

use crate::arrays::stored::{default_keys, key, memory, names, set, strings, v2, v3};
use crate::common;

/// Returns the uncompressed views of a store: Zarr v3, then v2.
fn plain_of(store: Arc<dyn Store>) -> [Arc<dyn View>; 2] {
    let limits = Limits {
        memory: 64 << 20,
        max_chunk: 16 << 20,
        timeout: std::time::Duration::from_secs(20),
        fetches: 0,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(store));
    let engine = Engine::new(limits, Arc::default());
    let arrays = Arc::new(Arrays::new(hierarchy.clone(), engine));
    TARGETS.map(|target| -> Arc<dyn View> {
        Arc::new(PlainView::new(hierarchy.clone(), arrays.clone(), target))
    })
}

fn read(view: &Arc<dyn View>, path: &str) -> Vec<u8> {
    let bytes = common::read(view, path).unwrap();
    let attr = view.measure(&UNLIMITED, &key(path)).unwrap().unwrap();
    assert_eq!(bytes.len() as u64, attr.size, "{path}");
    assert!(attr.is_read_only);
    bytes
}

fn document(view: &Arc<dyn View>, path: &str) -> Value {
    serde_json::from_slice(&read(view, path)).unwrap()
}

fn files(view: &Arc<dyn View>, path: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut listing = view.list(&UNLIMITED, &key(path)).unwrap();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        let name_text = String::from_utf8(name.name).unwrap();
        let path = format!("{path}/{name_text}");
        let path = path.trim_start_matches('/');
        match name.kind {
            EntryKind::Directory => found.extend(files(view, path)),
            _ => {
                found.insert(path.to_string(), read(view, path));
            }
        }
    }
    found
}

fn put(store: &MemoryStore, path: &str, bytes: &[u8]) {
    store.set(key(path), bytes.to_vec());
}

fn exists(view: &Arc<dyn View>, path: &str) -> bool {
    view.lookup(&UNLIMITED, &key(path)).unwrap().is_some()
}

/// Returns a shard of 2 x 2 inner chunks of 1 x 2 bytes, of which only the last inner chunk is stored.
fn shard() -> Vec<u8> {
    let mut bytes = vec![21, 22];
    for number in 0..4 {
        let (offset, length): (u64, u64) = if number == 3 {
            (0, 2)
        } else {
            (u64::MAX, u64::MAX)
        };
        bytes.extend(offset.to_le_bytes());
        bytes.extend(length.to_le_bytes());
    }
    bytes
}

fn sharded() -> String {
    let mut document: Value = serde_json::from_str(&v3(&[3, 5], &[2, 4], default_keys())).unwrap();
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    document["codecs"] = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 2], "codecs": [{"name": "bytes"}], "index_codecs": [little],
    }}]);
    document.to_string()
}

/// Invariant (plain): A chunk has the bytes that its document promises, the fill value beyond the edge of the array; a
/// missing chunk has no file.
#[test]
fn arrays_of_every_dialect_are_in_the_plain_views() {
    let store = memory(&[
        ("g/.zgroup", r#"{"zarr_format": 2}"#),
        ("g/old/.zarray", &v2(&[3, 5], &[2, 4], Some("/"))),
        ("new/zarr.json", &v3(&[3], &[2], default_keys())),
        ("shards/zarr.json", &sharded()),
        ("scalar/zarr.json", &v3(&[], &[], default_keys())),
        ("empty/zarr.json", &v3(&[0, 2], &[1, 1], default_keys())),
    ]);
    put(&store, "g/old/1/0", &[1, 2, 3, 4, 5, 6, 7, 8]);
    put(&store, "g/old/1/1", &[11, 12, 13, 14, 15, 16, 17, 18]);
    put(&store, "new/c/1", &[9, 10]);
    put(&store, "shards/c/1/0", &shard());
    put(&store, "scalar/c", &[3]);
    let [in_v3, in_v2] = plain_of(Arc::new(store));

    let chunks = |view: &Arc<dyn View>| -> BTreeMap<String, Vec<u8>> {
        let is_document = |path: &str| path.rsplit('/').next().unwrap().contains('z');
        let mut files = files(view, "");
        files.retain(|path, _| !is_document(path));
        files
    };
    let expected = [
        // The chunk ends beyond the edge of the array, where it has the fill value.
        ("g/old/c/1/0", "g/old/1.0", vec![1, 2, 3, 4, 7, 7, 7, 7]),
        ("g/old/c/1/1", "g/old/1.1", vec![11, 7, 7, 7, 7, 7, 7, 7]),
        ("new/c/1", "new/1", vec![9, 7]),
        ("scalar/c", "scalar/0", vec![3]),
    ];
    for (view, place) in [(&in_v3, 0), (&in_v2, 1)] {
        let expected = expected.iter().map(|(v3, v2, bytes)| {
            let path = [v3, v2][place];
            (path.to_string(), bytes.clone())
        });
        // The only stored inner chunk of the shard is outside the array.
        assert_eq!(chunks(view), expected.collect());
    }
    for missing in [
        "g/old/c/0/0",
        "new/c/0",
        "new/c/2",
        "shards/c/2/0",
        "shards/c/3/1",
        "empty/c/0/0",
    ] {
        assert!(!exists(&in_v3, missing), "{missing}");
        let dotted = missing.replace("/c/", "/");
        let (array, chunk) = dotted.split_at(dotted.find(|c: char| c.is_ascii_digit()).unwrap());
        assert!(
            !exists(&in_v2, &format!("{array}{}", chunk.replace('/', "."))),
            "{missing}"
        );
    }
    assert_eq!(
        document(&in_v3, "shards/zarr.json")["chunk_grid"]["configuration"]["chunk_shape"],
        json!([1, 2])
    );
    assert_eq!(document(&in_v2, "shards/.zarray")["chunks"], json!([1, 2]));
    let copies = document(&in_v3, "zarr.json");
    let copies = &copies["consolidated_metadata"]["metadata"];
    assert_eq!(copies["g/old"], document(&in_v3, "g/old/zarr.json"));
    assert_eq!(copies.as_object().unwrap().len(), 6);
    let copies = document(&in_v2, "g/.zmetadata");
    assert_eq!(
        copies["metadata"]["old/.zarray"],
        document(&in_v2, "g/old/.zarray")
    );
}

#[test]
fn stored_inner_chunks_are_chunks_of_the_plain_views() {
    let mut whole: Value = serde_json::from_str(&sharded()).unwrap();
    whole["shape"] = json!([4, 8]);
    let store = memory(&[("a/zarr.json", &whole.to_string())]);
    put(&store, "a/c/1/0", &shard());
    let [in_v3, in_v2] = plain_of(Arc::new(store.clone()));
    assert_eq!(read(&in_v3, "a/c/3/1"), [21, 22]);
    assert_eq!(names(&in_v3, "a/c/3"), set(&["1"]));
    assert_eq!(names(&in_v2, "a"), set(&["3.1", ".zarray", ".zattrs"]));
    assert!(!exists(&in_v3, "a/c/2/1") && !exists(&in_v2, "a/2.1"));
    // If the index of a shard cannot be read, all inner chunks have files, and reading them fails.
    put(&store, "a/c/0/0", &[1, 2, 3]);
    let [in_v3, in_v2] = plain_of(Arc::new(store));
    assert_eq!(names(&in_v3, "a/c"), set(&["0", "1", "2", "3"]));
    assert_eq!(names(&in_v3, "a/c/0"), set(&["0", "1"]));
    assert_eq!(names(&in_v2, "a").len(), 7);
    let error = common::read(&in_v3, "a/c/0/1").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn irregular_grids_are_divided_into_regular_ones() {
    let grid = |chunks: Value| {
        let mut document: Value = serde_json::from_str(&v3(&[7], &[1], default_keys())).unwrap();
        document["chunk_grid"] = json!({"name": "rectilinear", "configuration": {
            "kind": "inline", "chunk_shapes": [chunks]}});
        document
    };
    let mut long = grid(json!([1, 3_000_000, 2_000_001]));
    long["shape"] = json!([5_000_002]);
    let store = memory(&[
        ("a/zarr.json", &grid(json!([2, 4, 3])).to_string()),
        ("long/zarr.json", &long.to_string()),
    ]);
    put(&store, "a/c/1", &[1, 2, 3, 4]);
    put(&store, "a/c/2", &[5, 6, 7]);
    let [in_v3, in_v2] = plain_of(Arc::new(store));
    assert_eq!(document(&in_v2, "a/.zarray")["chunks"], json!([2]));
    assert_eq!(names(&in_v3, "a/c"), set(&["1", "2", "3"]));
    let chunks = ["a/1", "a/2", "a/3"].map(|path| read(&in_v2, path));
    assert_eq!(chunks, [[1, 2], [3, 4], [5, 7]]);
    assert_eq!(names(&in_v3, ""), set(&["a", "zarr.json"]));
    let why = String::from_utf8(read(&in_v3, "long/ERROR.txt")).unwrap();
    assert!(
        why.contains("5000002 chunks of [1] would be too many"),
        "{why}"
    );
}

#[test]
fn elements_of_variable_length_are_encoded() {
    let store = memory(&[("a/.zarray", &strings(3, 2))]);
    let encoded = |elements: &[&str]| {
        let mut bytes = (elements.len() as u32).to_le_bytes().to_vec();
        for element in elements {
            bytes.extend((element.len() as u32).to_le_bytes());
            bytes.extend(element.as_bytes());
        }
        bytes
    };
    put(&store, "a/0", &encoded(&["one", "two"]));
    put(&store, "a/1", &encoded(&["three", "beyond"]));
    let [in_v3, in_v2] = plain_of(Arc::new(store));
    assert_eq!(read(&in_v3, "a/c/0"), encoded(&["one", "two"]));
    assert_eq!(read(&in_v2, "a/1"), encoded(&["three", ""]));
    assert_eq!(
        document(&in_v3, "a/zarr.json")["codecs"],
        json!([{"name": "vlen-utf8"}])
    );
}

/// Invariant (plain): A node that the format cannot hold is not listed, and its directory says why.
#[test]
fn a_node_that_the_format_cannot_hold_has_an_error_file() {
    let typed = |name: &str| {
        let mut document: Value = serde_json::from_str(&v3(&[2], &[2], default_keys())).unwrap();
        document["data_type"] = name.into();
        document.to_string()
    };
    let mut unknown: Value = serde_json::from_str(&typed("uint8")).unwrap();
    unknown["codecs"] = json!([{"name": "secret"}]);
    let store = memory(&[
        ("brain/zarr.json", &typed("bfloat16")),
        ("codec/zarr.json", &unknown.to_string()),
        ("broken/zarr.json", "{"),
        (".zattrs/zarr.json", &typed("uint8")),
        ("good/zarr.json", &typed("uint8")),
    ]);
    let [in_v3, in_v2] = plain_of(Arc::new(store));
    assert_eq!(
        names(&in_v3, ""),
        set(&[".zattrs", "brain", "good", "zarr.json"])
    );
    assert_eq!(
        names(&in_v2, ""),
        set(&["good", ".zgroup", ".zattrs", ".zmetadata"])
    );
    let copies = document(&in_v2, ".zmetadata");
    assert_eq!(copies["metadata"].as_object().unwrap().len(), 4);
    for (view, node, reason) in [
        (&in_v2, "brain", "bfloat16"),
        (&in_v3, "codec", "secret"),
        (&in_v2, "broken", "zarr.json"),
    ] {
        assert_eq!(names(view, node), set(&["ERROR.txt"]));
        let why = String::from_utf8(read(view, &format!("{node}/ERROR.txt"))).unwrap();
        assert!(why.contains(reason), "{why}");
    }
}

/// Invariant (plain): A listing of a plain store continues after any of its names, and has each name once.
#[test]
fn a_listing_resumes_after_each_name() {
    let store = memory(&[
        ("a/zarr.json", &v3(&[4, 6], &[2, 4], default_keys())),
        ("b/zarr.json", &sharded()),
    ]);
    for chunk in ["a/c/0/1", "a/c/1/0", "a/c/1/1"] {
        put(&store, chunk, &[0; 8]);
    }
    put(&store, "b/c/0/0", &shard());
    let [in_v3, in_v2] = plain_of(Arc::new(store));
    for (view, paths) in [
        (in_v3, ["", "a", "a/c", "a/c/1", "b/c/1"]),
        (in_v2, ["", "a", "b", "", ""]),
    ] {
        for path in paths {
            let mut listing = view.list(&UNLIMITED, &key(path)).unwrap();
            let mut all = Vec::new();
            while let Some(name) = listing.next(&UNLIMITED).unwrap() {
                all.push(name);
            }
            assert!(!all.is_empty(), "{path}");
            for (place, name) in all.iter().enumerate() {
                listing.seek(&UNLIMITED, name.cursor).unwrap();
                let next = listing.next(&UNLIMITED).unwrap();
                assert_eq!(next.as_ref(), all.get(place + 1), "{path} after {name:?}");
            }
            listing.seek(&UNLIMITED, 0).unwrap();
            assert_eq!(listing.next(&UNLIMITED).unwrap().as_ref(), all.first());
        }
    }
}

struct Unlisted(MemoryStore, StoreInfo);

impl Layer for Unlisted {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

#[test]
fn all_chunks_have_files_if_the_store_does_not_list() {
    let store = memory(&[("zarr.json", &v3(&[3, 2], &[2, 1], default_keys()))]);
    put(&store, "c/1/0", &[1, 2]);
    let unlisted = |store: MemoryStore| {
        let info = StoreInfo {
            lists: false,
            ..store.info().clone()
        };
        plain_of(Arc::new(Unlisted(store, info)))
    };
    let [in_v3, in_v2] = unlisted(store);
    assert_eq!(names(&in_v3, "c/1"), set(&["0", "1"]));
    assert_eq!(
        names(&in_v2, ""),
        set(&["0.0", "0.1", "1.0", "1.1", ".zarray", ".zattrs"])
    );
    assert_eq!(read(&in_v3, "c/1/0"), [1, 7]);
    assert_eq!(read(&in_v2, "0.1"), [7, 7]);
    let store = memory(&[("zarr.json", &v3(&[1_000_001], &[1], default_keys()))]);
    put(&store, "c/5", &[5]);
    let [in_v3, in_v2] = unlisted(store);
    for (view, folder) in [(&in_v3, "c"), (&in_v2, "")] {
        let error = view.list(&UNLIMITED, &key(folder)).err().unwrap();
        assert_eq!(error.kind(), Kind::Unsupported);
    }
    assert_eq!(read(&in_v2, "5"), [5]);
    assert!(!exists(&in_v3, "c/6"));
}

/// Invariant (plain): xarray and netCDF take the same elements for missing as in the original.
#[test]
fn the_value_of_missing_elements_is_kept() {
    let named = |fill: Value, attributes: Value| {
        let mut document: Value = serde_json::from_str(&v3(&[4], &[2], default_keys())).unwrap();
        document["data_type"] = "float32".into();
        document["dimension_names"] = json!(["x"]);
        document["fill_value"] = fill;
        document["attributes"] = attributes;
        document
    };
    // The value 1e20 of a float32, as xarray writes it.
    let base64 = "AAAAgB2vFUQ=";
    for (fill, attributes, in_v2, has_files) in [
        (json!(0.0), json!({}), Value::Null, true),
        (
            json!(0.0),
            json!({"_FillValue": "AAAAAAAA+H8="}),
            json!("NaN"),
            true,
        ),
        (
            json!("NaN"),
            json!({"_FillValue": "AAAAAAAA+H8="}),
            json!("NaN"),
            false,
        ),
        (
            json!(1e20),
            json!({"_FillValue": base64}),
            json!(1e20),
            false,
        ),
    ] {
        let document_text = named(fill, attributes).to_string();
        let [v3_view, v2_view] = plain_of(Arc::new(memory(&[("a/zarr.json", &document_text)])));
        assert_eq!(document(&v2_view, "a/.zarray")["fill_value"], in_v2);
        assert_eq!(document(&v2_view, "a/.zattrs")["_FillValue"], Value::Null);
        assert_eq!(exists(&v2_view, "a/1"), has_files);
        assert!(!exists(&v3_view, "a/c/1"));
        let stated = serde_json::from_str::<Value>(&document_text).unwrap();
        assert_eq!(
            document(&v3_view, "a/zarr.json")["attributes"],
            stated["attributes"]
        );
    }
    let of_v2 = r#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f4", "compressor": null,
        "fill_value": 1e20, "order": "C", "filters": null}"#;
    let names = r#"{"_ARRAY_DIMENSIONS": ["x"]}"#;
    let store = memory(&[("a/.zarray", of_v2), ("a/.zattrs", names)]);
    let [v3_view, v2_view] = plain_of(Arc::new(store));
    let attributes = document(&v3_view, "a/zarr.json")["attributes"].clone();
    assert_eq!(attributes["_FillValue"], base64);
    assert_eq!(document(&v2_view, "a/.zarray")["fill_value"], json!(1e20));
    assert!(!exists(&v2_view, "a/0"));
}

#[test]
fn attributes_of_ome_zarr_fit_the_format_of_the_view() {
    let ome =
        json!({"version": "0.5", "multiscales": [{"name": "image"}], "omero": {"channels": []}});
    let group =
        json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome, "mine": 1}});
    let [in_v3, in_v2] = plain_of(Arc::new(memory(&[("image/zarr.json", &group.to_string())])));
    let expected = json!({
        "mine": 1,
        "multiscales": [{"name": "image", "version": "0.4"}],
        "omero": {"channels": [], "version": "0.4"},
    });
    assert_eq!(document(&in_v2, "image/.zattrs"), expected);
    assert_eq!(
        document(&in_v3, "image/zarr.json")["attributes"]["ome"],
        ome
    );
}

/// A store in which one call fails: `left` counts down to it, and 0 means that no call fails.
#[derive(Clone)]
struct FailsOnce {
    store: MemoryStore,
    left: Arc<AtomicU64>,
}

impl FailsOnce {
    fn count(&self) -> Result<()> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            1 => Err(Error::unavailable("store", "the call that fails")),
            _ => Ok(()),
        }
    }
}

impl Layer for FailsOnce {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.count()?;
        self.store.get(context, key, limit)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        self.count()?;
        self.store.head(context, key)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.count()?;
        self.store.list(context, prefix)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.count()?;
        self.store.open(context, key, known)
    }
}

/// Invariant (plain): If a call of the store fails, a read is right or an error, and right again after it.
#[test]
fn a_failed_call_is_an_error_once() {
    let store = memory(&[
        ("g/old/.zarray", &v2(&[3, 5], &[2, 4], Some("/"))),
        ("shards/zarr.json", &sharded()),
    ]);
    put(&store, "g/old/1/0", &[1, 2, 3, 4, 5, 6, 7, 8]);
    put(&store, "shards/c/0/0", &shard());
    let right = plain_of(Arc::new(store.clone())).map(|view| files(&view, ""));
    for (number, right) in right.iter().enumerate() {
        let mut fails = 1;
        loop {
            let failing = FailsOnce {
                store: store.clone(),
                left: Arc::new(AtomicU64::new(fails)),
            };
            let [in_v3, in_v2] = plain_of(Arc::new(failing.clone()));
            let view = [in_v3, in_v2][number].clone();
            for (path, bytes) in right {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let shown = view.list(&UNLIMITED, &key(folder));
                let first = shown.and_then(|mut listing| listing.next(&UNLIMITED));
                assert!(
                    first.is_err() || first.unwrap().is_some(),
                    "{folder}: {fails}"
                );
                match common::read(&view, path) {
                    Ok(read) => assert_eq!(&read, bytes, "{path}: call {fails}"),
                    Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{path}: {error}"),
                }
            }
            let has_failed = failing.left.load(Ordering::Relaxed) == 0;
            failing.left.store(0, Ordering::Relaxed);
            assert_eq!(&files(&view, ""), right, "after call {fails}");
            if !has_failed {
                assert!(fails > 10, "{fails}");
                break;
            }
            fails += 1;
        }
    }
}
