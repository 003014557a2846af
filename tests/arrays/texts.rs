//! Files of texts: any range is the slice of the whole, and the cells of `.mat` are the texts.

use std::sync::Arc;

use serde_json::json;
use zarrfs::store::backend::memory::MemoryStore;

use crate::formats::{check, ranges_of};
use crate::stored::{key, memory, view_of};

const TEXTS: [&str; 6] = [
    "plain",
    "a \"b\"",
    "",
    "\u{e9}\u{4e2d}",
    "\u{1f600}",
    "x\ny",
];

/// Returns a chunk of texts as the filter vlen-utf8 has it.
pub(crate) fn encoded(texts: &[&str]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let mut chunk = length(texts.len()).to_vec();
    for text in texts {
        chunk.extend(length(text.len()));
        chunk.extend(text.as_bytes());
    }
    chunk
}

/// Returns the elements of a type of fixed length.
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

/// Returns a store of the texts in two dimensions, of any length and of a fixed one.
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

/// Takes an element of MATLAB's file: the number of its type and its bytes.
fn element<'a>(bytes: &mut &'a [u8]) -> (u32, &'a [u8]) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (kind, length) = (word(0), word(4) as usize);
    let found = &bytes[8..8 + length];
    *bytes = &bytes[8 + length.next_multiple_of(8)..];
    (kind, found)
}

/// Returns the lengths, the name and the texts of a file of a cell array.
fn cells(file: &[u8]) -> (Vec<i32>, String, Vec<String>) {
    let mut rest = &file[128..];
    let (kind, mut matrix) = element(&mut rest);
    assert!(kind == 14 && rest.is_empty());
    let head = |bytes: &mut &[u8], class: u8| {
        assert_eq!(element(bytes).1[0], class);
        let (_, lengths) = element(bytes);
        let lengths = lengths.as_chunks::<4>().0.iter();
        let lengths: Vec<i32> = lengths.map(|length| i32::from_le_bytes(*length)).collect();
        (
            lengths,
            String::from_utf8(element(bytes).1.to_vec()).unwrap(),
        )
    };
    let (lengths, name) = head(&mut matrix, 1);
    let mut texts = Vec::new();
    while !matrix.is_empty() {
        let (_, mut cell) = element(&mut matrix);
        let (lengths, _) = head(&mut cell, 4);
        let (kind, units) = element(&mut cell);
        assert!(kind == 17 && cell.is_empty());
        let units = units.as_chunks::<2>().0.iter();
        let units: Vec<u16> = units.map(|unit| u16::from_le_bytes(*unit)).collect();
        assert_eq!(lengths[1] as usize, units.len());
        texts.push(String::from_utf16(&units).unwrap());
    }
    (lengths, name, texts)
}

#[test]
fn any_range_of_texts_in_any_format_is_the_slice_of_the_whole() {
    let (view, _) = view_of(Arc::new(texts()), &[]);
    let of_any = ["npy", "raw", "txt", "csv", "ndjson", "mat"];
    let of_fixed = ["npy", "raw", "f.npy", "f.raw", "csv", "ndjson", "mat", "h5"];
    for (name, formats) in [("any", &of_any[..]), ("fixed", &of_fixed)] {
        for format in formats {
            let file = format!("{name}/{name}.{format}");
            let size = view.lookup(&key(&file)).unwrap().unwrap().size;
            check(&view, &file, &ranges_of(size)).unwrap();
        }
    }
}

#[test]
fn texts_are_cells_in_the_order_of_matlab() {
    let (view, _) = view_of(Arc::new(texts()), &[]);
    let [a, b, c, d, e, f] = TEXTS;
    for name in ["any", "fixed"] {
        for (chosen, lengths, expected) in [
            ("", [2, 3], vec![a, d, b, e, c, f]),
            ("@1", [3, 1], vec![d, e, f]),
            ("@:,1:", [2, 2], vec![b, e, c, f]),
        ] {
            let file = format!("{name}/{name}{chosen}.mat");
            let whole = check(&view, &file, &[]).unwrap();
            let (found, variable, texts) = cells(&whole);
            assert_eq!(
                (&found[..], variable.as_str()),
                (&lengths[..], name),
                "{file}"
            );
            // Texts of a fixed length have zeros at their end.
            let texts: Vec<&str> = texts
                .iter()
                .map(|text| text.trim_end_matches('\0'))
                .collect();
            assert_eq!(texts, expected, "{file}");
        }
    }
}

#[test]
fn texts_of_three_dimensions_are_no_rows() {
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
        ("a/a.mat", true),
        ("a/a.txt", true),
        ("b/b.csv", true),
    ] {
        assert_eq!(
            view.lookup(&key(name)).unwrap().is_some(),
            is_there,
            "{name}"
        );
    }
}
