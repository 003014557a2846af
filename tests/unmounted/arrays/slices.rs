//! Tests selections in file names, such as `a@0,:,::2.npy`, also of CF-decoded values and of shards.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarr_format::grid::Selection;
use zarrfs::mount::open::ViewKind;
use zarrfs_export::formats::FORMATS;
use zarrfs_export::inspect::selection;
use zarrfs_store::Key;

use crate::arrays::flat::{Case, cases, write};
use crate::arrays::formats::{check, name_dimensions};
use crate::arrays::headers::write_rows;
use crate::arrays::stored::{default_keys, key, memory, v3, view_of};
use crate::common;
use zarrfs_store::request_context::UNLIMITED;

fn picked(case: &Case, selection: &Selection, whole: &[u8]) -> Vec<u8> {
    let count: u64 = case.shape.iter().product();
    let size = whole.len().checked_div(count as usize).unwrap_or(0);
    let mut places = vec![0];
    for (axis, &length) in selection.axes.iter().zip(&case.shape) {
        let numbers = (0..axis.count).map(|number| axis.at(number));
        let numbers: Vec<u64> = numbers.collect();
        places = places
            .iter()
            .flat_map(|place| numbers.iter().map(move |number| place * length + number))
            .collect();
    }
    let element = |place: u64| &whole[place as usize * size..][..size];
    places.into_iter().flat_map(element).copied().collect()
}

fn parts() -> impl Strategy<Value = String> {
    let bound = || {
        prop_oneof![
            Just(String::new()),
            (-9i64..9).prop_map(|at| at.to_string())
        ]
    };
    let step = prop_oneof![Just(-3i64), Just(-1), Just(1), Just(2), Just(5)];
    prop_oneof![
        Just(":".to_string()),
        Just("0".to_string()),
        Just("-1".to_string()),
        (bound(), bound(), step).prop_map(|(from, to, step)| format!("{from}:{to}:{step}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// Invariant (formats): A selection in a file name gives, in every format, the same elements as that slice of the
    /// whole array. It reads only the chunks under it, and its name is not stored.
    #[test]
    fn any_selection_in_any_format_is_that_of_the_whole(
        case in cases(),
        parts in prop::collection::vec(parts(), 6),
        ranges in prop::collection::vec((any::<u64>(), any::<u64>()), 4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.zarr");
        std::fs::create_dir(&store).unwrap();
        let elements = write(&case, &store);
        name_dimensions(&store, &["x", "y", "z", "time", "band", "other"]);
        let view = common::files(&store);
        let text = parts[..case.shape.len().min(parts.len())].join(",");
        let Ok(selection) = selection::parse(&text, &case.shape) else {
            let found = view.lookup(&UNLIMITED, &key(&format!("a@{text}.raw")));
            prop_assert_eq!(found.unwrap_err().kind(), Kind::NoFile);
            return Ok(());
        };
        let expected = picked(&case, &selection, &elements);
        // CF-decoded files of scaled integers are longer, because their elements are wider. Arrays of raw bits have no
        // such file.
        let meant = common::read(&view, &format!("a@{text}.cf.raw")).unwrap_or_default();
        let is_scaled = ["uint8", "int16", "float32"].contains(&case.data_type);
        prop_assert!(!is_scaled || expected.is_empty() || meant.len() > expected.len());
        for format in FORMATS {
            for (chosen, elements) in [(text.clone(), &expected), (format!("{text}.cf"), &meant)] {
                let name = format!("a@{chosen}.{}", format.extension);
                if common::is_missing(&view, &name) {
                    continue;
                }
                let whole = check(&view, &name, &ranges)?;
                if ["npy", "raw", "nrrd", "mha", "img"].contains(&format.extension) {
                    prop_assert!(whole.ends_with(elements), "{}", name);
                }
            }
        }
    }
}

/// Invariant of `any_selection_in_any_format_is_that_of_the_whole`.
#[test]
fn a_selection_costs_the_chunks_under_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a.zarr");
    write_rows(&store, "int16", 2);
    for (name, size, chunks) in [
        ("a@0,0,0.raw", 2, 1),
        ("a@::32,::16,5.raw", 2 * 4 * 2, 8),
        ("a@5.npy", 64 * 64 * 2 + 128, 8),
        ("a@::-1,3,3.cf.npy", 64 * 2 + 128, 8),
        ("a@x=7,z=#1.raw", 64 * 2, 8),
    ] {
        let (views, stats) = common::open(&store).unwrap();
        let view = views.view(ViewKind::Files);
        let size_now = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
        assert_eq!(size_now, size, "{name}");
        assert_eq!(stats.decoded_chunks.get(), 0, "{name}");
        assert_eq!(common::read(&view, name).unwrap().len() as u64, size);
        assert_eq!(stats.decoded_chunks.get(), chunks, "{name}");
    }
}

#[test]
fn an_invalid_selection_has_no_file_and_a_reason() {
    let store = memory(&[("a/zarr.json", &v3(&[4, 6], &[2, 3], default_keys()))]);
    let (view, _) = view_of(Arc::new(store), &[]);
    for (name, why) in [
        ("a/a@4.npy", "4 is out of bounds"),
        ("a/a@x.npy", "neither a number nor a slice"),
        ("a/a@0,0,0.npy", "3 dimensions"),
        ("a/a@x=3.npy", "the dimensions have no names"),
        ("a/a@::0.npy", "the step must not be 0"),
    ] {
        let error = view.lookup(&UNLIMITED, &key(name)).unwrap_err();
        assert_eq!(error.kind(), Kind::NoFile, "{name}");
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
    for name in ["a/a@0.none", "a/b@0.npy", "a/@0.npy", "a/a.cf", "a/a@0"] {
        assert!(common::is_missing(&view, name), "{name}");
    }
    assert!(view.lookup(&UNLIMITED, &key("a/a@.npy")).unwrap().is_some());
}

pub fn typed(data_type: &str, shape: &[u64], names: &[&str], attributes: Value) -> String {
    let document = v3(shape, shape, default_keys());
    let mut document: Value = serde_json::from_str(&document).unwrap();
    document["data_type"] = json!(data_type);
    document["fill_value"] = json!(0);
    document["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    document["dimension_names"] = json!(names);
    document["attributes"] = attributes;
    document.to_string()
}

#[test]
fn a_selection_of_a_map_has_the_position_of_its_pixels() {
    let place = json!({"GeoTransform": "10 0.5 0 50 0 -0.5"});
    let map = typed("int16", &[3, 8, 6], &["band", "y", "x"], place);
    let (view, _) = view_of(Arc::new(memory(&[("a/zarr.json", &map)])), &[]);
    for (chosen, expected) in [
        ("", Some("10, 0.5, 0, 50, 0, -0.5")),
        ("@1,2:,3:", Some("11.5, 0.5, 0, 49, 0, -0.5")),
        ("@:,::2,::3", Some("9.5, 1.5, 0, 50.25, 0, -1")),
        ("@:,::-1", Some("10, 0.5, 0, 46, 0, 0.5")),
        ("@:,3", None),
        ("@...,2", None),
    ] {
        let text = common::read(&view, &format!("a/a{chosen}.vrt")).unwrap();
        let text = String::from_utf8(text).unwrap();
        let place = text.split_once("<GeoTransform>");
        let place = place.and_then(|(_, rest)| Some(rest.split_once('<')?.0));
        assert_eq!(place, expected, "{chosen}: {text}");
    }
}

#[test]
fn a_header_names_the_file_of_the_elements_that_it_describes() {
    let packed = typed("int16", &[4, 3], &["y", "x"], json!({"scale_factor": 0.5}));
    let store = memory(&[("a/zarr.json", &packed)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    for chosen in ["", ".cf", "@1:3", "@1:3.cf", "@y=1:3", "@::2,:.cf"] {
        let data = format!("a/a{chosen}.raw");
        let size = view.lookup(&UNLIMITED, &key(&data)).unwrap().unwrap().size;
        for header in ["nhdr", "mhd", "vrt"] {
            let text = common::read(&view, &format!("a/a{chosen}.{header}")).unwrap();
            let text = String::from_utf8(text).unwrap();
            let named = text.contains(&data[2..]);
            assert!(named, "{chosen}.{header}: {text}");
            let doubles = ["type: double", "MET_DOUBLE", "Float64"];
            let is_double = doubles.iter().any(|name| text.contains(name));
            let rows = if chosen.starts_with('@') { 2 } else { 4 };
            let width = if is_double { 8 } else { 2 };
            assert_eq!(is_double, chosen.ends_with(".cf"), "{chosen}.{header}");
            assert_eq!(size, rows * 3 * width, "{chosen}.{header}");
        }
    }
    // The files of a root array are named after the store.
    let store = memory(&[("zarr.json", &packed)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let text = common::read(&view, "root@0:2.nhdr").unwrap();
    assert!(text.ends_with(b"data file: root@0:2.raw\n"));
}

#[test]
fn inner_chunks_of_shards_open_by_name() {
    let inner = json!([{"name": "bytes"}]);
    let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let sharding = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2, 3], "codecs": inner, "index_codecs": index, "index_location": "start"}});
    let mut document: Value = serde_json::from_str(&v3(&[5, 9], &[4, 6], default_keys())).unwrap();
    document["codecs"] = json!([sharding]);
    let mut shard = Vec::new();
    for number in 0..4u64 {
        shard.extend((64 + number * 6).to_le_bytes());
        shard.extend(6u64.to_le_bytes());
    }
    shard.extend(0..24u8);
    let store = memory(&[("a/zarr.json", &document.to_string())]);
    store.set(Key::new("a/c/0/0").unwrap(), shard.clone());
    store.set(Key::new("a/c/1/1").unwrap(), shard);
    let (view, _) = view_of(Arc::new(store), &[]);
    let read = |name: &str| common::read(&view, name).unwrap();
    assert_eq!(read("a/chunks/0.0@1.1.raw"), [18, 19, 20, 21, 22, 23]);
    assert_eq!(read("a/chunks/1.1@0.0.raw"), [0, 1, 2]);
    assert_eq!(read("a/chunks/0.0@0.1.npy").len(), 128 + 6);
    for name in [
        "0.0@2.0.npy",
        "0.0@0.npy",
        "2.0@0.0.npy",
        "1.1@1.0.npy",
        "0.0@0.0.nrrd",
        "0.0@.npy",
        "0.0@x0.0.npy",
    ] {
        let name = format!("a/chunks/{name}");
        assert!(common::is_missing(&view, &name), "{name}");
    }
}
