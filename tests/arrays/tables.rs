//! `GROUP.csv` and `GROUP.ndjson`: the arrays of a group as columns.

use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::view::View;

use crate::common;
use crate::formats::{check, ranges_of};
use crate::stored::{default_keys, key, memory, strings, v3, view_of};
use zarrfs::request_context::UNLIMITED;

/// Returns the document of an array of one dimension.
fn column(data_type: &str, shape: &[u64]) -> String {
    let mut document: Value =
        serde_json::from_str(&v3(shape, &vec![3; shape.len()], default_keys())).unwrap();
    document["data_type"] = json!(data_type);
    document["fill_value"] = json!(0);
    document["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    document.to_string()
}

fn fixed_text(count: u64) -> String {
    json!({
        "zarr_format": 2, "shape": [count], "chunks": [count], "dtype": "<U3", "compressor": null,
        "fill_value": "", "order": "C", "filters": null,
    })
    .to_string()
}

/// Returns a group of AnnData with three rows; the index is text of any length.
fn observations() -> MemoryStore {
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {
        "_index": "cell", "column-order": ["size", "name, quoted"]}});
    let store = memory(&[
        ("obs/zarr.json", &group.to_string()),
        ("obs/cell/.zarray", &strings(3, 3)),
        ("obs/alive/zarr.json", &column("bool", &[3])),
        ("obs/name, quoted/.zarray", &fixed_text(3)),
        ("obs/size/zarr.json", &column("float32", &[3])),
        ("obs/crs/zarr.json", &column("int32", &[])),
        ("obs/kinds/zarr.json", &group.to_string()),
    ]);
    let set = |path: &str, bytes: Vec<u8>| store.set(key(path), bytes);
    set("obs/alive/c/0", vec![1, 0, 1]);
    let sizes = [1.5_f32, f32::NAN, -3e-7];
    set(
        "obs/size/c/0",
        sizes.iter().flat_map(|size| size.to_le_bytes()).collect(),
    );
    let names = ["a\"b", "", "\u{e9}\n"].map(|name| {
        let mut points: Vec<u32> = name.chars().map(u32::from).collect();
        points.resize(3, 0);
        points
            .iter()
            .flat_map(|point| point.to_le_bytes())
            .collect::<Vec<u8>>()
    });
    set("obs/name, quoted/0", names.concat());
    store
}

fn text(view: &Arc<dyn View>, name: &str) -> String {
    let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
    let whole = check(view, name, &ranges_of(size)).unwrap();
    String::from_utf8(whole).unwrap()
}

#[test]
fn arrays_of_one_length_are_the_columns_of_a_table() {
    let (view, _) = view_of(Arc::new(observations()), &[]);
    let cell = |text: &str, width: usize| " ".repeat(width - text.len()) + text;
    let row = |size, name, alive| [cell(size, 19), cell(name, 14), cell(alive, 5)].join(",") + "\n";
    let expected = [
        "size,\"name, quoted\",alive\n".to_string(),
        row("1.5", "\"a\"\"b\"", "true"),
        row("", "\"\"", "false"),
        row("-3e-7", "\"\u{e9}\n\"", "true"),
    ];
    assert_eq!(text(&view, "obs/obs.csv"), expected.concat());
    let lines = text(&view, "obs/obs.ndjson");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = json!([
        {"size": 1.5, "name, quoted": "a\"b", "alive": true},
        {"size": null, "name, quoted": "", "alive": false},
        {"size": -3e-7, "name, quoted": "\u{e9}\n", "alive": true},
    ]);
    assert_eq!(json!(rows), expected);
    let lengths = lines.lines().map(str::len).collect::<Vec<_>>();
    assert_eq!(lengths, [lengths[0]; 3]);
}

#[test]
fn a_table_without_rows_has_names() {
    let store = memory(&[
        ("a/zarr.json", &column("int8", &[0])),
        ("b/zarr.json", &column("int8", &[0])),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    assert_eq!(text(&view, "root.csv"), "a,b\n");
    assert_eq!(text(&view, "root.ndjson"), "");
}

#[test]
fn a_group_that_is_no_table_has_none() {
    let (int, wide) = (column("int8", &[4]), column("int8", &[4, 2]));
    let (longer, complex) = (
        column("int8", &[5]),
        column("complex64", &[4]).replace(":0", ":[0,0]"),
    );
    for other in [&wide, &longer, &complex] {
        let store = memory(&[("a/zarr.json", &int), ("b/zarr.json", other)]);
        let (view, _) = view_of(Arc::new(store), &[]);
        for name in ["root.csv", "root.ndjson"] {
            assert!(
                view.lookup(&UNLIMITED, &key(name)).unwrap().is_none(),
                "{name}: {other}"
            );
        }
    }
    let (view, _) = view_of(Arc::new(memory(&[("a/.zarray", &strings(4, 4))])), &[]);
    assert!(view.lookup(&UNLIMITED, &key("root.csv")).unwrap().is_none());
}

#[test]
fn a_row_costs_the_chunks_under_it() {
    let chunked = |data_type: &str| {
        let mut document: Value = serde_json::from_str(&column(data_type, &[1000])).unwrap();
        document["chunk_grid"]["configuration"]["chunk_shape"] = json!([10]);
        document.to_string()
    };
    let store = memory(&[
        ("a/zarr.json", &chunked("int8")),
        ("b/zarr.json", &chunked("uint16")),
    ]);
    for chunk in 0..100 {
        store.set(key(&format!("a/c/{chunk}")), vec![1; 10]);
        store.set(key(&format!("b/c/{chunk}")), vec![1; 20]);
    }
    let (view, stats) = view_of(Arc::new(store), &[]);
    let size = view
        .lookup(&UNLIMITED, &key("root.csv"))
        .unwrap()
        .unwrap()
        .size;
    let file = view.open(&UNLIMITED, &key("root.csv")).unwrap().file;
    assert_eq!(stats.decoded_chunks.get(), 0);
    let end = file.read_at(&UNLIMITED, size - 1, 1).unwrap();
    assert_eq!(&end[..], b"\n");
    assert!(stats.decoded_chunks.get() <= 2);
    let text = common::read(&view, "root.csv").unwrap();
    assert!(text.ends_with(b"   1,  257\n"));
}
