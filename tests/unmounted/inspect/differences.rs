//! Tests `zarrfs diff A B` on stores of different dialects and chunk shapes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::inspect::program::{GROUP, command, failed, run, sample, store};

/// Returns the metadata of an uncompressed v3 array of bytes, with the additional members `more`.
fn v3(shape: u64, chunk: u64, more: &Value) -> Vec<u8> {
    let mut members = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [shape],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
    });
    for (name, value) in more.as_object().unwrap() {
        members[name] = value.clone();
    }
    members.to_string().into_bytes()
}

/// Returns the metadata of an uncompressed v2 array of bytes.
fn v2(shape: u64, chunk: u64) -> Vec<u8> {
    let members = json!({
        "zarr_format": 2,
        "shape": [shape],
        "chunks": [chunk],
        "dtype": "|u1",
        "compressor": null,
        "filters": null,
        "fill_value": 7,
        "order": "C",
    });
    members.to_string().into_bytes()
}

/// Runs `zarrfs diff` on two stores. Returns its exit status and its JSON output.
fn diff(one: &Path, other: &Path, options: &[&str]) -> (i32, Value) {
    let mut args = vec![
        "diff",
        one.to_str().unwrap(),
        other.to_str().unwrap(),
        "--json",
    ];
    args.extend(options);
    let output = command(&args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = serde_json::from_slice(&output.stdout).unwrap_or(json!({"stderr": said}));
    (output.status.code().unwrap(), printed)
}

#[test]
fn a_store_does_not_differ_from_itself() {
    for name in ["climate.zarr", "relief.zarr"] {
        let (status, found) = diff(&sample(name), &sample(name), &[]);
        assert_eq!((status, found), (0, json!({"nodes": []})));
    }
}

#[test]
fn values_of_two_dialects_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    // Both arrays contain 0 to 4, five fill values of 7, and 10 to 14. The chunks of the first have five elements,
    // those of the second four.
    store(
        &one,
        &[
            (".zarray", &v2(15, 5)),
            ("0", &[0, 1, 2, 3, 4]),
            ("2", &[10, 11, 12, 13, 14]),
        ],
    );
    let chunks: [(&str, &[u8]); 5] = [
        ("zarr.json", &v3(15, 4, &json!({}))),
        ("c/0", &[0, 1, 2, 3]),
        ("c/1", &[4, 7, 7, 7]),
        ("c/2", &[7, 7, 10, 11]),
        ("c/3", &[12, 13, 14, 0]),
    ];
    store(&other, &chunks);
    assert_eq!(diff(&one, &other, &["--values"]), (0, json!({"nodes": []})));
    let (status, found) = diff(&one, &other, &[]);
    let names: Vec<_> = found["nodes"][0]["metadata"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    let names: Vec<_> = names
        .iter()
        .map(|member| member["name"].as_str().unwrap())
        .collect();
    assert_eq!(status, 1);
    assert!(names.contains(&"chunk_grid"), "{found}");
    assert_eq!(found["nodes"][0]["regions"], Value::Null);
    // One element differs in a chunk that only the first array stores, and two elements differ in one chunk of the
    // second.
    fs::write(one.join("1"), [7, 7, 8, 7, 7]).unwrap();
    fs::write(other.join("c/3"), [12, 99, 98, 0]).unwrap();
    let regions = json!([
        {"start": [7], "stop": [8], "count": 1},
        {"start": [13], "stop": [15], "count": 2},
    ]);
    let nodes = json!([{"path": "", "change": "changed", "kind": "array", "regions": regions}]);
    assert_eq!(
        diff(&one, &other, &["--values"]),
        (1, json!({"nodes": nodes}))
    );
}

#[test]
fn fill_values_and_attributes_are_compared_by_meaning() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let floats = |fill: &str, attributes: &str| {
        let metadata = v3(
            2,
            2,
            &json!({"data_type": "float32", "fill_value": 123, "attributes": 456}),
        );
        let text = String::from_utf8(metadata).unwrap();
        let text = text.replace("123", fill).replace("456", attributes);
        let bytes = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;
        text.replace(r#"{"name":"bytes"}"#, bytes).into_bytes()
    };
    let attributes = r#"{"a": 1.0, "b": {"x": 1, "y": "\u00e9"}}"#;
    store(&one, &[("zarr.json", &floats("7", attributes))]);
    let attributes = "{\"b\": {\"y\": \"\u{e9}\", \"x\": 1}, \"a\": 1e0}";
    store(&other, &[("zarr.json", &floats("7e0", attributes))]);
    assert_eq!(diff(&one, &other, &[]), (0, json!({"nodes": []})));
    store(
        &other,
        &[("zarr.json", &floats("\"0x40e00000\"", "{\"a\": 1}"))],
    );
    let (status, found) = diff(&one, &other, &[]);
    let node = &found["nodes"][0];
    assert_eq!((status, &node["metadata"]), (1, &Value::Null), "{found}");
    assert_eq!(node["attributes"][0]["name"], "a", "{found}");
}

#[test]
fn types_of_tensorstore_in_v2_are_those_of_v3() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for (name, fill, chunk) in [
        ("int4", json!(-2), [0, 1, 0xe, 3]),
        ("float8_e4m3fn", json!("NaN"), [0, 0x38, 0xc0, 0x44]),
    ] {
        let mut document: Value = serde_json::from_slice(&v2(8, 4)).unwrap();
        document["dtype"] = json!(name);
        document["fill_value"] = fill.clone();
        let document = document.to_string().into_bytes();
        store(&one, &[(".zarray", &document), ("0", &chunk)]);
        let metadata = v3(8, 4, &json!({"data_type": name, "fill_value": fill}));
        store(&other, &[("zarr.json", &metadata), ("c/0", &chunk)]);
        assert_eq!(diff(&one, &other, &["--values"]), (0, json!({"nodes": []})));
        fs::write(other.join("c/0"), [0, 1, 2, 3]).unwrap();
        let (status, found) = diff(&one, &other, &["--values"]);
        assert_eq!(status, 1, "{found}");
        assert!(found["nodes"][0]["regions"].is_array(), "{found}");
    }
}

#[test]
fn the_option_values_compares_only_values() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let of_v2 = |dtype: &str, fill: Value| {
        let mut document: Value = serde_json::from_slice(&v2(2, 2)).unwrap();
        (document["dtype"], document["fill_value"]) = (json!(dtype), fill);
        document.to_string().into_bytes()
    };
    let of_v3 = |data_type: Value| {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let more = json!({
            "data_type": data_type, "fill_value": 0, "codecs": [bytes], "attributes": {"units": "K"},
            "dimension_names": ["x"],
        });
        v3(2, 2, &more)
    };
    let attributes = br#"{"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 9}"#;
    let doubles = |numbers: [f64; 2]| numbers.map(f64::to_le_bytes).concat();
    for (dtype, fill, chunk, data_type, values, expected) in [
        (
            ">i2",
            json!(9),
            vec![0xff, 0xfe, 0, 5],
            "int64",
            [(-2_i64).to_le_bytes(), 5_i64.to_le_bytes()].concat(),
            0,
        ),
        (
            "|u1",
            json!(null),
            vec![254, 5],
            "int64",
            [254_i64.to_le_bytes(), 6_i64.to_le_bytes()].concat(),
            1,
        ),
        (
            "<f4",
            json!("NaN"),
            [1.5_f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat(),
            "float64",
            doubles([1.5, -f64::NAN]),
            0,
        ),
        (
            "<f8",
            json!(0),
            doubles([-0.0, 2.0]),
            "float64",
            doubles([0.0, 2.0]),
            0,
        ),
        (
            "<f8",
            json!(0),
            doubles([1.0, 2.0]),
            "float64",
            doubles([1.0, 2.5]),
            1,
        ),
        (
            "|u1",
            json!(0),
            vec![1, 2],
            "float64",
            doubles([1.0, 2.0]),
            1,
        ),
        ("|b1", json!(false), vec![1, 0], "uint8", vec![1, 0], 1),
    ] {
        store(
            &one,
            &[
                (".zarray", &of_v2(dtype, fill)),
                (".zattrs", attributes),
                ("0", &chunk),
            ],
        );
        store(
            &other,
            &[("zarr.json", &of_v3(json!(data_type))), ("c/0", &values)],
        );
        let (status, found) = diff(&one, &other, &["--values"]);
        assert_eq!(status, expected, "{dtype} {data_type}: {found}");
        let node = &found["nodes"][0];
        assert_eq!(node["attributes"], Value::Null, "{found}");
        // For data types of different kinds, the types are reported, and the elements are not compared.
        let is_kind = node["metadata"][0]["name"] == "data_type";
        let has_regions = node["regions"].is_array();
        assert!(expected == 0 || is_kind != has_regions, "{found}");
    }
    // The stores differ in the shape of an array, and one has a group where the other one has an array.
    let (one, other) = (folder.path().join("groups"), folder.path().join("others"));
    store(
        &one,
        &[
            ("zarr.json", GROUP),
            ("a/zarr.json", &v3(3, 3, &json!({}))),
            ("b/zarr.json", GROUP),
        ],
    );
    store(
        &other,
        &[
            ("zarr.json", GROUP),
            ("a/zarr.json", &v3(4, 3, &json!({}))),
            ("b/zarr.json", &v3(4, 3, &json!({}))),
        ],
    );
    let (status, found) = diff(&one, &other, &["--values"]);
    assert_eq!(status, 1);
    let names: Vec<_> = (0..2)
        .map(|node| found["nodes"][node]["metadata"][0]["name"].clone())
        .collect();
    assert_eq!(names[0], "shape", "{found}");
    assert!(
        found["nodes"][1]["metadata"]
            .as_array()
            .unwrap()
            .iter()
            .any(|fact| fact["name"] == "node_type"),
        "{found}"
    );
}

#[test]
fn an_array_that_cannot_be_compared_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let unknown = v3(
        4,
        4,
        &json!({"codecs": [{"name": "bytes"}, {"name": "lzw"}]}),
    );
    let files: [(&str, &[u8]); 4] = [
        ("zarr.json", GROUP),
        ("a/zarr.json", &unknown),
        ("a/c/0", b"abcd"),
        ("b/zarr.json", &v3(4, 4, &json!({}))),
    ];
    store(&one, &files);
    store(&other, &files);
    let words = [
        "diff",
        one.to_str().unwrap(),
        other.to_str().unwrap(),
        "--values",
    ];
    let output = command(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/a: cannot be compared") && said.contains("lzw"),
        "{said}"
    );
    store(&other, &[("b/c/0", b"abcd")]);
    assert_eq!(command(&words).output().unwrap().status.code(), Some(1));
}

#[test]
fn a_missing_chunk_is_compared_as_the_fill_value() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    store(&one, &[("zarr.json", &v3(8, 4, &json!({})))]);
    store(
        &other,
        &[
            ("zarr.json", &v3(8, 4, &json!({"fill_value": 9}))),
            ("c/1", &[7, 7, 7, 7]),
        ],
    );
    let (status, found) = diff(&one, &other, &[]);
    assert_eq!(status, 1);
    let regions = json!([{"start": [0], "stop": [4], "count": 4}]);
    assert_eq!(found["nodes"][0]["regions"], regions, "{found}");
}

#[test]
fn nodes_and_attributes_of_groups_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let group = |attributes: Value| {
        json!({"zarr_format": 3, "node_type": "group", "attributes": attributes})
            .to_string()
            .into_bytes()
    };
    store(
        &one,
        &[
            ("zarr.json", &group(json!({"a": 1}))),
            ("gone/zarr.json", &group(json!({}))),
        ],
    );
    store(
        &other,
        &[
            ("zarr.json", &group(json!({"a": 2}))),
            ("made/zarr.json", &v3(1, 1, &json!({}))),
        ],
    );
    let nodes = json!([
        {"path": "", "change": "changed", "kind": "group",
            "attributes": [{"name": "a", "before": 1, "after": 2}]},
        {"path": "gone", "change": "deleted", "kind": "group"},
        {"path": "made", "change": "created", "kind": "array"},
    ]);
    assert_eq!(diff(&one, &other, &[]), (1, json!({"nodes": nodes})));
}

#[test]
fn comparing_a_huge_grid_costs_as_much_as_its_stored_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let metadata = v3(1 << 50, 2, &json!({}));
    store(&one, &[("zarr.json", &metadata), ("c/5", &[1, 2])]);
    store(
        &other,
        &[
            ("zarr.json", &metadata),
            ("c/5", &[1, 3]),
            ("c/1125899906", &[7, 7]),
        ],
    );
    let (status, found) = diff(&one, &other, &[]);
    let regions = json!([{"start": [11], "stop": [12], "count": 1}]);
    assert_eq!(
        (status, &found["nodes"][0]["regions"]),
        (1, &regions),
        "{found}"
    );
    // If the fill values differ, every chunk differs, so the differing chunks are not counted.
    store(
        &other,
        &[("zarr.json", &v3(1 << 50, 2, &json!({"fill_value": 0})))],
    );
    let (status, found) = diff(&one, &other, &[]);
    assert_eq!(status, 1);
    let error = found["nodes"][0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("chunks are too many to compare"), "{found}");
}

#[test]
fn a_missing_store_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let (status, said) = diff(&sample("climate.zarr"), &missing, &[]);
    assert_eq!(status, 2, "{said}");
    assert!(
        said["stderr"].as_str().unwrap().contains("missing"),
        "{said}"
    );
}

#[test]
fn a_folder_without_documents_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (zarr, other) = (folder.path().join("a.zarr"), folder.path().join("other"));
    store(&zarr, &[("g/zarr.json", GROUP)]);
    store(&other, &[("x/y/notes", b"text")]);
    let (zarr, other) = (zarr.to_str().unwrap(), other.to_str().unwrap());
    for words in [["diff", zarr, other], ["diff", other, zarr]] {
        let why = failed(&words);
        assert!(why.starts_with(other), "{why}");
        assert!(
            why.contains("no metadata files of Zarr or N5 found"),
            "{why}"
        );
    }
    // The roots of the stores have no metadata document.
    assert_eq!(run(&["diff", zarr, zarr]).status.code(), Some(0));
}
