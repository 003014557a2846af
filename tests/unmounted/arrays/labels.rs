//! Tests that selections by coordinate labels give the same files as selections by index.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs_export::formats::FORMATS;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use crate::arrays::slices::typed;
use crate::arrays::stored::{key, memory, view_of};
use crate::common;
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};

#[test]
fn dimensions_are_selected_by_their_labels() {
    let data = typed("uint8", &[4, 3], &["time", "lat"], json!({}));
    let time = typed(
        "int16",
        &[4],
        &["time"],
        json!({"units": "days since 2020-01-30", "calendar": "standard"}),
    );
    let lat = typed("float32", &[3], &["lat"], json!({}));
    let store = memory(&[
        ("a/zarr.json", &data),
        ("time/zarr.json", &time),
        ("lat/zarr.json", &lat),
    ]);
    let set = |name: &str, bytes: Vec<u8>| store.set(Key::new(name).unwrap(), bytes);
    set("a/c/0/0", (0..12).collect());
    set("time/c/0", (0i16..4).flat_map(i16::to_le_bytes).collect());
    set(
        "lat/c/0",
        [0.3f32, 0.2, 0.1]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect(),
    );
    let (view, _) = view_of(Arc::new(store), &[]);
    let read = |text: &str| common::read(&view, &format!("a/a@{text}.raw"));
    for (text, expected) in [
        ("time=2020-01-31", &[3, 4, 5][..]),
        ("lat=0.1", &[2, 5, 8, 11]),
        ("lat=0.1,time=2020-01-30T00:00", &[2]),
        ("lat=0.1:0.2,0", &[1, 2]),
        ("lat=0.2:0.1,0", &[1, 2]),
        ("time=2020-02,lat=#0", &[6, 9][..0]),
        ("time=2020-02:,lat=#0", &[6, 9]),
        ("time=2020-01:2020-02-01:2,lat=#0", &[0, 6]),
        ("time=#-1,lat=:0.25:-1", &[11, 10]),
    ] {
        match read(text) {
            Ok(found) => assert_eq!(found, expected, "{text}"),
            Err(error) => assert!(expected.is_empty(), "{text}: {error}"),
        }
    }
    for (text, why) in [
        (
            "lat=0.15",
            "no element is labelled '0.15'; the labels are from",
        ),
        ("time=2020-02", "the label of several elements"),
        (
            "time=2019",
            "the labels are from 2020-01-30T00:00:00 to 2020-02-02T00:00:00",
        ),
        (
            "lon=3",
            "no dimension named 'lon'; the dimensions are time, lat",
        ),
        ("lat=x", "'x' is not a number"),
        ("lat=0.1,lat=0.2", "selected twice"),
    ] {
        let error = view
            .lookup(&UNLIMITED, &key(&format!("a/a@{text}.raw")))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::NoFile, "{text}");
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
    let known = view.lookup(&WITHOUT_WAITING, &key("a/a@lat=0.1.raw"));
    assert!(!is_answer(&known));
}

/// Returns a store with an array of one chunk, whose elements take `size` bytes, and with coordinate variables that
/// have the labels 0, 10, 20 and so on.
fn labelled(
    data_type: &str,
    size: u64,
    (shape, names): (&[u64], &[&str]),
    more: &Value,
) -> MemoryStore {
    let array = typed(data_type, shape, names, more.clone());
    let store = memory(&[("a/zarr.json", &array)]);
    for (name, &count) in names.iter().zip(shape) {
        let document = typed("int16", &[count], &[name], json!({}));
        store.set(key(&format!("{name}/zarr.json")), document.into_bytes());
        let labels = (0..count as i16).flat_map(|number| (10 * number).to_le_bytes());
        store.set(key(&format!("{name}/c/0")), labels.collect());
    }
    let bytes = (0..shape.iter().product::<u64>() * size).map(|number| (number % 61) as u8);
    let place = format!("a/c/{}", vec!["0"; shape.len()].join("/"));
    store.set(key(&place), bytes.collect());
    store
}

/// Invariant of `any_selection_in_any_format_is_that_of_the_whole`.
#[test]
fn labels_and_numbers_select_the_same_in_every_format() {
    let masked = json!({"sample_rate": 8000, "missing_value": 3});
    let scaled = json!({"sample_rate": 8000, "scale_factor": 0.5, "add_offset": 1});
    let mut seen = HashSet::new();
    for (data_type, size, shape, names, more) in [
        ("int16", 2, &[5, 4, 6][..], &["z", "y", "x"][..], &scaled),
        ("float32", 4, &[5, 4, 6], &["y", "band", "x"], &masked),
        ("uint8", 1, &[5, 4, 6], &["y", "x", "band"], &masked),
        ("float32", 4, &[9, 3], &["time", "x"], &masked),
    ] {
        let store = labelled(data_type, size, (shape, names), more);
        let (view, _) = view_of(Arc::new(store), &[]);
        let labels = format!("{}=10:30,{}=0:10", names[0], names[shape.len() - 1]);
        let all = vec![":"; shape.len() - 2];
        let numbers = [&["1:4"][..], &all, &["0:2"]].concat().join(",");
        let forms = FORMATS
            .iter()
            .flat_map(|format| ["", ".cf"].map(|form| (format, form)));
        for (format, form) in forms {
            let read = |text: &str| {
                let name = format!("a/a@{text}{form}.{}", format.extension);
                let is_missing = common::is_missing(&view, &name);
                (!is_missing).then(|| common::read(&view, &name).unwrap())
            };
            let found = read(&labels);
            let expected = read(&numbers).map(|bytes| {
                // A header without elements contains the name of its data file, so that name is replaced before the
                // comparison.
                let text = String::from_utf8(bytes.clone());
                text.map_or(bytes, |text| text.replace(&numbers, &labels).into_bytes())
            });
            assert!(found == expected, "{labels}{form}.{format:?}");
            found.map(|_| seen.insert((format.extension, form)));
        }
    }
    for format in FORMATS.iter().filter(|format| format.parts.is_some()) {
        for form in ["", ".cf"] {
            let is_seen = seen.contains(&(format.extension, form));
            assert!(is_seen, "{form}.{format:?}");
        }
    }
}

#[test]
fn labels_are_read_up_to_a_number_of_elements() {
    let count = (2 << 20) + 1;
    for (length, is_read) in [(count, false), (count - 1, true)] {
        let data = typed("uint8", &[length], &["x"], json!({}));
        let texts = crate::arrays::stored::strings(length, length);
        for (path, coordinate) in [("x/zarr.json", &data), ("x/.zarray", &texts)] {
            let store = memory(&[("a/zarr.json", &data), (path, coordinate)]);
            let (view, _) = view_of(Arc::new(store), &[]);
            let error = view.lookup(&UNLIMITED, &key("a/a@x=1.npy")).unwrap_err();
            let kind = if is_read {
                Kind::NoFile
            } else {
                Kind::TooLarge
            };
            assert_eq!(error.kind(), kind, "{path} of {length}: {error}");
        }
    }
}
