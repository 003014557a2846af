//! Tests that any range of a file of texts equals the file's slice.

use std::sync::Arc;

use serde_json::json;
use zarrfs_store::backend::memory::MemoryStore;

use crate::arrays::formats::{check, ranges_of};
use crate::arrays::stored::{key, memory, view_of};
use crate::common;
use zarrfs_store::request_context::UNLIMITED;

const TEXTS: [&str; 6] = [
    "plain",
    "a \"b\"",
    "",
    "\u{e9}\u{4e2d}",
    "\u{1f600}",
    "x\ny",
];

pub(crate) fn encoded(texts: &[&str]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let mut chunk = length(texts.len()).to_vec();
    for text in texts {
        chunk.extend(length(text.len()));
        chunk.extend(text.as_bytes());
    }
    chunk
}

/// Returns a chunk of texts with a fixed length of `points` code points each.
fn fixed(texts: &[&str], points: usize) -> Vec<u8> {
    let element = |text: &&str| {
        let mut points = text
            .chars()
            .map(u32::from)
            .chain(std::iter::repeat_n(0, points))
            .take(points)
            .collect::<Vec<_>>();
        points
            .iter_mut()
            .flat_map(|point| point.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    texts.iter().flat_map(element).collect()
}

/// Returns a store with two arrays of the same texts, as variable-length and as fixed-length strings.
fn texts() -> MemoryStore {
    let document = |dtype: &str, filters| {
        json!({"zarr_format": 2, "shape": [2, 3], "chunks": [2, 2], "dtype": dtype, "compressor": null,
            "fill_value": "", "order": "C", "filters": filters})
        .to_string()
    };
    let any = document("|O", json!([{"id": "vlen-utf8"}]));
    let store = memory(&[
        ("any/.zarray", &any),
        ("fixed/.zarray", &document("<U5", json!(null))),
    ]);
    let [a, b, c, d, e, f] = TEXTS;
    for (name, texts) in [("0.0", [a, b, d, e]), ("0.1", [c, "", f, ""])] {
        store.set(key(&format!("any/{name}")), encoded(&texts));
        store.set(key(&format!("fixed/{name}")), fixed(&texts, 5));
    }
    store
}

/// Invariant of `any_range_of_any_format_is_the_slice_of_the_whole`.
#[test]
fn any_range_of_texts_in_any_format_is_the_slice_of_the_whole() {
    let (view, _) = view_of(Arc::new(texts()), &[]);
    let of_any = ["npy", "raw", "txt", "csv", "ndjson", "nc", "nc4"];
    let of_fixed = ["npy", "raw", "f.npy", "csv", "ndjson", "h5", "nc4", "nc"];
    for (name, formats) in [("any", &of_any[..]), ("fixed", &of_fixed)] {
        for format in formats {
            let file = format!("{name}/{name}.{format}");
            let size = view.lookup(&UNLIMITED, &key(&file)).unwrap().unwrap().size;
            check(&view, &file, &ranges_of(size)).unwrap();
        }
    }
}

#[test]
fn steps_select_elements_of_variable_length() {
    let (view, _) = view_of(Arc::new(texts()), &[]);
    let line = |number: usize| json!(TEXTS[number]).to_string();
    for (selection, numbers) in [
        ("::-1,0", &[3, 0][..]),
        ("1,::2", &[3, 5]),
        ("::-1,::-2", &[5, 3, 2, 0]),
        ("0,2:0:-1", &[2, 1]),
        ("0,2:2:-1", &[]),
    ] {
        let name = format!("any/any@{selection}.txt");
        let size = view.lookup(&UNLIMITED, &key(&name)).unwrap().unwrap().size;
        let whole = check(&view, &name, &ranges_of(size)).unwrap();
        let expected: String = numbers.iter().map(|&number| line(number) + "\n").collect();
        assert_eq!(String::from_utf8(whole).unwrap(), expected, "{selection}");
    }
}

#[test]
fn texts_of_three_dimensions_have_no_table() {
    let document = |shape: &[u64]| {
        json!({"zarr_format": 2, "shape": shape, "chunks": vec![2; shape.len()], "dtype": "|O", "compressor": null,
            "fill_value": "", "order": "C", "filters": [{"id": "vlen-utf8"}]})
        .to_string()
    };
    let (cube, plane) = (document(&[2, 2, 2]), document(&[2, 2]));
    let (view, _) = view_of(
        Arc::new(memory(&[("a/.zarray", &cube), ("b/.zarray", &plane)])),
        &[],
    );
    for (name, is_there) in [
        ("a/a.csv", false),
        ("a/a.ndjson", false),
        ("a/a@0,0,0.csv", false),
        ("a/a@0.csv", true),
        ("a/a.txt", true),
        ("b/b.csv", true),
    ] {
        assert_eq!(common::is_missing(&view, name), !is_there, "{name}");
    }
}
