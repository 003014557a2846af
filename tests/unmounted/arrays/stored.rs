//! Tests the listings of arrays: files in the listed formats, and stored chunks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs::view::files::FilesView;
use zarrfs::view::{FILES_ATTRIBUTE, View};
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Store, StoreInfo};

use crate::common;
use zarrfs_store::request_context::UNLIMITED;

pub(crate) fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

/// Returns the files view of a store, with the values `words` of `--list`, and the counters of requests.
pub(crate) fn view_of(store: Arc<dyn Store>, words: &[&str]) -> (Arc<dyn View>, Arc<Stats>) {
    let stats = Arc::new(Stats::default());
    let store: Arc<dyn Store> = Arc::new(CountingStore::new(store, stats.clone()));
    let limits = Limits {
        memory: 64 << 20,
        max_chunk: 16 << 20,
        timeout: Duration::from_secs(20),
        fetches: 0,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(store));
    let arrays = Arrays::new(hierarchy.clone(), Engine::new(limits, stats.clone()));
    let asked: Vec<_> = words.iter().map(|word| word.parse().unwrap()).collect();
    (
        Arc::new(FilesView::new(hierarchy, arrays, "root", &asked)),
        stats,
    )
}

pub(crate) fn memory(objects: &[(&str, &str)]) -> MemoryStore {
    let memory = MemoryStore::default();
    memory.set(key("zarr.json"), common::sample::GROUP.into());
    for (path, text) in objects {
        memory.set(key(path), text.as_bytes().to_vec());
    }
    memory
}

pub(crate) fn names(view: &Arc<dyn View>, path: &str) -> BTreeSet<String> {
    let mut listing = view.list(&UNLIMITED, &key(path)).unwrap();
    let mut names = BTreeSet::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        assert!(names.insert(String::from_utf8(name.name).unwrap()), "twice");
    }
    names
}

pub(crate) fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(crate) fn v3(shape: &[u64], chunk: &[u64], encoding: Value) -> String {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": encoding, "fill_value": 7,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    })
    .to_string()
}

pub(crate) fn v2(shape: &[u64], chunk: &[u64], separator: Option<&str>) -> String {
    let mut members = json!({
        "zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": "|u1", "compressor": null,
        "fill_value": 7, "order": "C", "filters": null,
    });
    if let Some(separator) = separator {
        members["dimension_separator"] = separator.into();
    }
    members.to_string()
}

pub(crate) fn strings(shape: u64, chunk: u64) -> String {
    json!({
        "zarr_format": 2, "shape": [shape], "chunks": [chunk], "dtype": "|O", "compressor": null,
        "fill_value": "", "order": "C", "filters": [{"id": "vlen-utf8"}],
    })
    .to_string()
}

pub(crate) fn default_keys() -> Value {
    json!({"name": "default"})
}

pub(crate) const DOCUMENTS: [&str; 2] = ["attributes.json", "metadata.json"];

/// The names of all files that a one-dimensional array of bytes has.
const OF_NUMBERS: &[&str] = &[
    "a.npy", "a.raw", "a.f.npy", "a.nrrd", "a.nhdr", "a.mha", "a.mhd", "a.nii", "a.fits", "a.vti",
    "a.csv", "a.ndjson", "a.nc", "a.h5", "a.nc4",
];

#[test]
fn an_array_is_listed_in_its_default_and_the_chosen_forms() {
    let plain = v3(&[4], &[2], default_keys());
    let store = memory(&[("a/zarr.json", &plain), ("s/.zarray", &strings(4, 2))]);
    for (words, of_numbers, of_strings) in [
        (&[][..], &["a.npy"][..], &["s.txt"][..]),
        (&["npy"], &["a.npy"], &["s.txt", "s.npy"]),
        (&["raw"], &["a.npy", "a.raw"], &["s.txt", "s.raw"]),
        (
            &["txt", "chunks"],
            &["a.npy", "chunks"],
            &["s.txt", "chunks"],
        ),
        (
            &["all"],
            &[OF_NUMBERS, &["chunks"]].concat(),
            &[
                "s.txt", "s.npy", "s.raw", "s.csv", "s.ndjson", "s.nc", "s.h5", "s.nc4", "chunks",
            ],
        ),
    ] {
        let (view, _) = view_of(Arc::new(store.clone()), words);
        for (path, forms) in [("a", of_numbers), ("s", of_strings)] {
            let expected = set(&[&DOCUMENTS[..], forms].concat());
            assert_eq!(names(&view, path), expected, "{words:?}");
        }
        for unlisted in [
            "a/a.raw",
            "a/chunks",
            "a/chunks/1.raw",
            "s/s.npy",
            "s/s.raw",
        ] {
            assert!(
                view.lookup(&UNLIMITED, &key(unlisted)).unwrap().is_some(),
                "{unlisted}"
            );
        }
        assert_eq!(common::read(&view, "a/chunks/1.raw").unwrap(), [7, 7]);
    }
}

#[test]
fn an_attribute_says_which_names_open() {
    let strange = v3(&[4], &[2], default_keys()).replace("\"bytes\"", "\"nobody-knows\"");
    let store = memory(&[
        ("a/zarr.json", &v3(&[4], &[2], default_keys())),
        ("s/.zarray", &strings(4, 2)),
        ("x/zarr.json", &strange),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let of_numbers = format!("{}\nchunks/\n", OF_NUMBERS.join("\n"));
    for (path, expected) in [
        ("a", Some(of_numbers.as_str())),
        (
            "s",
            Some("s.npy\ns.raw\ns.txt\ns.csv\ns.ndjson\ns.nc\ns.h5\ns.nc4\nchunks/\n"),
        ),
        ("x", Some("chunks/\n")),
        ("", Some("root.h5\nroot.nc4\nroot.csv\nroot.ndjson\n")),
        ("a/a.npy", None),
    ] {
        let value = view
            .attribute(&UNLIMITED, &key(path), FILES_ATTRIBUTE)
            .unwrap();
        let value = value.map(|value| String::from_utf8(value).unwrap());
        assert_eq!(value.as_deref(), expected, "{path}");
        for name in value.iter().flat_map(|value| value.lines()) {
            let file = format!("{path}/{}", name.trim_end_matches('/'));
            let file = file.trim_start_matches('/');
            assert!(
                view.lookup(&UNLIMITED, &key(file)).unwrap().is_some(),
                "{file}"
            );
        }
    }
}

#[test]
fn a_group_lists_its_files_in_the_chosen_forms() {
    let plain = v3(&[4], &[2], default_keys()).replace("uint8", "int8");
    let broken = plain.replace("\"shape\":[4]", "\"shape\":null");
    let store = memory(&[
        ("a/zarr.json", &plain),
        ("b/zarr.json", &plain),
        ("below/c/zarr.json", &plain),
        ("below/below.h5/zarr.json", &plain),
        ("broken/zarr.json", &broken),
    ]);
    let all = ["below.csv", "below.ndjson", "below.nc", "below.nc4"];
    for (words, of_root, of_below) in [
        (&[][..], &[][..], &[][..]),
        (&["raw", "chunks"], &[], &[]),
        // A child with broken metadata prevents the netCDF file of all arrays of the root.
        (&["csv", "nc"], &["root.csv"], &["below.csv", "below.nc"]),
        (&["h5", "nc4"], &["root.h5", "root.nc4"], &["below.nc4"]),
        (
            &["all"],
            &["root.csv", "root.ndjson", "root.h5", "root.nc4"],
            &all,
        ),
    ] {
        let (view, _) = view_of(Arc::new(store.clone()), words);
        let children = [&DOCUMENTS[..], &["a", "b", "below", "broken"], of_root].concat();
        assert_eq!(names(&view, ""), set(&children), "{words:?}");
        // A child of a group hides the generated file of the same name.
        let children = [&DOCUMENTS[..], &["c", "below.h5"], of_below].concat();
        assert_eq!(names(&view, "below"), set(&children), "{words:?}");
        let is_group_file = |name: &String| name.starts_with("broken.");
        assert!(!names(&view, "broken").iter().any(is_group_file));
        for name in of_root {
            assert!(
                view.lookup(&UNLIMITED, &key(name)).unwrap().is_some(),
                "{name}"
            );
        }
    }
}

/// Keys that do not name a chunk of an array of 4 x 4 elements in chunks of 2 x 2.
const BESIDE: [&str; 8] = [
    "9.9", "01.0", "0.0.0", "0.0.bak", "x", "2/0", "0/2", "0/0/0",
];

#[test]
fn the_stored_chunks_are_listed_under_every_encoding_of_keys() {
    let with = |name: &str, separator: &str| json!({"name": name, "configuration": {"separator": separator}});
    let of_v3 = |encoding| ("zarr.json", v3(&[4, 4], &[2, 2], encoding));
    let of_v2 = |separator| (".zarray", v2(&[4, 4], &[2, 2], separator));
    for ((document, metadata), first, last) in [
        (of_v3(with("default", "/")), "c/0/1", "c/1/1"),
        (of_v3(with("default", ".")), "c.0.1", "c.1.1"),
        (of_v3(with("v2", "/")), "0/1", "1/1"),
        (of_v3(with("v2", ".")), "0.1", "1.1"),
        (of_v2(Some("/")), "0/1", "1/1"),
        (of_v2(Some(".")), "0.1", "1.1"),
        // The metadata have no separator, as some writers leave it out.
        (of_v2(None), "0.1", "1.1"),
        (of_v2(None), "0/1", "1/1"),
        (of_v2(None), "0/1", "1.1"),
    ] {
        let store = memory(&[(&format!("a/{document}"), &metadata)]);
        for name in [first, last] {
            store.set(key(&format!("a/{name}")), vec![1, 2, 3, 4]);
        }
        for name in BESIDE {
            store.set(key(&format!("a/{name}")), vec![0]);
        }
        let (view, _) = view_of(Arc::new(store), &["chunks"]);
        assert_eq!(
            names(&view, "a/chunks"),
            set(&["0.1.npy", "1.1.npy"]),
            "{first} {last}"
        );
        assert_eq!(common::read(&view, "a/chunks/0.0.raw").unwrap(), [7; 4]);
        assert_eq!(
            common::read(&view, "a/chunks/1.1.raw").unwrap(),
            [1, 2, 3, 4]
        );
    }
}

#[test]
fn a_chunk_with_two_keys_is_listed_once() {
    let store = memory(&[("a/.zarray", &v2(&[4, 4], &[2, 2], None))]);
    for name in ["0.1", "0/1", "1/0"] {
        store.set(key(&format!("a/{name}")), vec![1, 2, 3, 4]);
    }
    let (view, _) = view_of(Arc::new(store), &[]);
    assert_eq!(names(&view, "a/chunks"), set(&["0.1.npy", "1.0.npy"]));
}

#[test]
fn the_chunk_of_an_array_without_dimensions_is_listed_when_it_is_stored() {
    let store = memory(&[("a/zarr.json", &v3(&[], &[], default_keys()))]);
    let (view, _) = view_of(Arc::new(store.clone()), &[]);
    assert_eq!(names(&view, "a/chunks"), set(&[]));
    store.set(key("a/c"), vec![1]);
    let (view, _) = view_of(Arc::new(store), &[]);
    assert_eq!(names(&view, "a/chunks"), set(&["0.npy"]));
}

#[test]
fn a_listing_resumes_although_chunks_are_removed() {
    let store = memory(&[("a/zarr.json", &v3(&[5000], &[1], default_keys()))]);
    for number in 0..5000 {
        store.set(key(&format!("a/c/{number}")), vec![1]);
    }
    let (view, _) = view_of(Arc::new(store.clone()), &["raw"]);
    let mut listing = view.list(&UNLIMITED, &key("a/chunks")).unwrap();
    let mut read = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        if read.len() == 3000 {
            // A program deletes the names that it has received. Then the kernel continues the listing before the names
            // that did not fit its reply.
            for gone in read
                .iter()
                .take(2900)
                .map(|name: &zarrfs_store::Name| &name.name)
            {
                let number = String::from_utf8_lossy(gone)
                    .split('.')
                    .next()
                    .unwrap()
                    .to_string();
                store.erase(&key(&format!("a/c/{number}")));
            }
            let kept = &read[2000];
            listing.seek(&UNLIMITED, kept.cursor).unwrap();
            assert_eq!(
                listing.next(&UNLIMITED).unwrap().as_ref(),
                Some(&read[2001])
            );
            listing.seek(&UNLIMITED, read[2999].cursor).unwrap();
            assert_eq!(listing.next(&UNLIMITED).unwrap().as_ref(), Some(&name));
        }
        read.push(name);
    }
    assert_eq!(read.len(), 10_000);
    listing.seek(&UNLIMITED, 0).unwrap();
    assert!(listing.next(&UNLIMITED).unwrap().is_some());
}

struct Unlisted {
    inner: MemoryStore,
    info: StoreInfo,
}

impl Layer for Unlisted {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Invariant of `listing_a_huge_array_costs_as_much_as_its_stored_chunks`.
#[test]
fn listing_chunks_of_a_store_that_cannot_list_is_an_error() {
    let metadata = v3(&[1_000_000_000], &[1], default_keys());
    let inner = memory(&[("a/zarr.json", &metadata), ("a/c/5", "x")]);
    let info = StoreInfo {
        lists: false,
        ..Store::info(&inner).clone()
    };
    let (view, _) = view_of(Arc::new(Unlisted { inner, info }), &["chunks"]);
    assert!(names(&view, "a").contains("a.npy"));
    let error = view.list(&UNLIMITED, &key("a/chunks")).err().unwrap();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("opens by name"), "{error}");
    assert_eq!(common::read(&view, "a/chunks/5.raw").unwrap(), b"x");
    assert_eq!(common::read(&view, "a/chunks/6.raw").unwrap(), [7]);
}

#[test]
fn a_name_of_a_removed_format_says_what_replaces_it() {
    let plain = v3(&[4], &[2], default_keys());
    let store = memory(&[("a/zarr.json", &plain)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    for (name, instead) in [
        ("a/a.wav", "use .raw"),
        ("a/a@1:.cf.f.raw", "use .f.npy"),
        ("a/a.png", "zarrfs preview -o"),
        ("root.cdf5.nc", "use .nc4"),
    ] {
        let error = view.lookup(&UNLIMITED, &key(name)).unwrap_err();
        assert_eq!(error.kind(), Kind::Removed, "{name}: {error}");
        assert_eq!(error.errno(), libc::ENOENT);
        assert!(error.to_string().contains(instead), "{name}: {error}");
    }
    for name in ["a/b.wav", "a/wav", "wav", "b.cdf5.nc"] {
        assert!(common::is_missing(&view, name), "{name}");
    }
}
