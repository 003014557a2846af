//! Tests `GROUP.csv` and `GROUP.ndjson`, whose columns are the arrays of a group.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs::view::View;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::request_context::UNLIMITED;

use crate::arrays::formats::{check, ranges_of};
use crate::arrays::stored::{default_keys, key, memory, strings, v3, view_of};
use crate::common;

const LEFT_OUT: &[u8] = b"user.zarrfs.left_out";

fn column(data_type: &str, shape: &[u64]) -> String {
    described(data_type, shape, &json!({}))
}

fn described(data_type: &str, shape: &[u64], attributes: &Value) -> String {
    let mut document: Value =
        serde_json::from_str(&v3(shape, &vec![3; shape.len()], default_keys())).unwrap();
    document["data_type"] = json!(data_type);
    document["fill_value"] = json!(0);
    document["attributes"] = attributes.clone();
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

fn group(attributes: &Value) -> String {
    json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}).to_string()
}

fn texts(texts: &[&str]) -> Vec<u8> {
    let mut chunk = u32::try_from(texts.len()).unwrap().to_le_bytes().to_vec();
    for text in texts {
        chunk.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        chunk.extend(text.as_bytes());
    }
    chunk
}

fn observations() -> MemoryStore {
    let encoding =
        |kind: &str, ordered: bool| group(&json!({"encoding-type": kind, "ordered": ordered}));
    let store = memory(&[
        (
            "obs/zarr.json",
            &group(
                &json!({"_index": "cell", "column-order": ["size", "name, quoted", "kind", "gone", "id"]}),
            ),
        ),
        ("obs/cell/.zarray", &strings(3, 3)),
        ("obs/alive/zarr.json", &column("bool", &[3])),
        ("obs/name, quoted/.zarray", &fixed_text(3)),
        ("obs/size/zarr.json", &column("float32", &[3])),
        ("obs/kind/zarr.json", &encoding("categorical", true)),
        ("obs/kind/codes/zarr.json", &column("int8", &[3])),
        (
            "obs/kind/categories/zarr.json",
            &encoding("nullable-string-array", false),
        ),
        ("obs/kind/categories/values/.zarray", &strings(2, 2)),
        ("obs/kind/categories/mask/zarr.json", &column("bool", &[2])),
        ("obs/id/zarr.json", &encoding("nullable-integer", false)),
        ("obs/id/values/zarr.json", &column("uint64", &[3])),
        ("obs/id/mask/zarr.json", &column("bool", &[3])),
        (
            "obs/old/zarr.json",
            &described("int8", &[3], &json!({"categories": "__categories/old"})),
        ),
        ("obs/__categories/old/zarr.json", &column("float64", &[2])),
        // The group also has nodes that are not columns of the table.
        ("obs/crs/zarr.json", &column("int32", &[])),
        ("obs/place/zarr.json", &column("int32", &[3, 2])),
        ("obs/long/zarr.json", &column("int32", &[4])),
        (
            "obs/wave/zarr.json",
            &column("complex64", &[3]).replace(":0", ":[0,0]"),
        ),
        ("obs/below/zarr.json", &group(&json!({}))),
        (
            "obs/odd/zarr.json",
            &column("int8", &[3]).replace("\"bytes\"", "\"unknown\""),
        ),
    ]);
    let set = |path: &str, bytes: Vec<u8>| store.set(key(path), bytes);
    set("obs/cell/0", texts(&["AAA-1", "", "\u{e9}"]));
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
    set("obs/kind/codes/c/0", vec![1, 0, 0xff]);
    set("obs/kind/categories/values/0", texts(&["T, x", "B"]));
    set("obs/kind/categories/mask/c/0", vec![0, 1, 0]);
    let ids = [u64::MAX, 7, 0].iter().flat_map(|id| id.to_le_bytes());
    set("obs/id/values/c/0", ids.collect());
    set("obs/id/mask/c/0", vec![0, 1, 0]);
    set("obs/old/c/0", vec![0, 1, 0]);
    let old = [0.5_f64, 1e300, 0.0]
        .iter()
        .flat_map(|old| old.to_le_bytes());
    set("obs/__categories/old/c/0", old.collect());
    store
}

fn text(view: &Arc<dyn View>, name: &str) -> String {
    let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
    let whole = check(view, name, &ranges_of(size)).unwrap();
    String::from_utf8(whole).unwrap()
}

#[test]
fn arrays_and_encoded_groups_are_the_columns_of_a_table() {
    let (view, _) = view_of(Arc::new(observations()), &[]);
    let expected = "cell,size,\"name, quoted\",kind,id,alive,old\n\
        \"AAA-1\",1.5,\"a\"\"b\",,18446744073709551615,true,0.5\n\
        \"\",,\"\",\"T, x\",,false,1e300\n\
        \"\u{e9}\",-3e-7,\"\u{e9}\n\",,0,true,0.5\n";
    assert_eq!(text(&view, "obs/obs.csv"), expected);
    let lines = text(&view, "obs/obs.ndjson");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = json!([
        {"cell": "AAA-1", "size": 1.5, "name, quoted": "a\"b", "kind": null, "id": u64::MAX, "alive": true, "old": 0.5},
        {"cell": "", "size": null, "name, quoted": "", "kind": "T, x", "id": null, "alive": false, "old": 1e300},
        {"cell": "\u{e9}", "size": -3e-7, "name, quoted": "\u{e9}\n", "kind": null, "id": 0, "alive": true, "old": 0.5},
    ]);
    assert_eq!(json!(rows), expected);
}

#[test]
fn an_attribute_names_arrays_that_are_not_columns() {
    let (view, _) = view_of(Arc::new(observations()), &[]);
    let said = view.attribute(&UNLIMITED, &key("obs/obs.csv"), LEFT_OUT);
    let said = String::from_utf8(said.unwrap().unwrap()).unwrap();
    let mut found: Vec<&str> = said.lines().collect();
    found.sort_unstable();
    let (odd, others): (Vec<&str>, Vec<&str>) =
        found.into_iter().partition(|line| line.contains("odd"));
    assert!(odd.len() == 1 && odd[0].contains("unknown"), "{odd:?}");
    let expected = [
        "below: a group, not a column",
        "crs: a column needs one dimension, not 0",
        "gone: the group has no such column",
        "long: has 4 elements, and cell has 3",
        "place: a column needs one dimension, not 2",
        "the order of the categories of kind: a table has only values",
        "wave: complex64 cannot be written as text",
    ];
    assert_eq!(others, expected);
}

#[test]
fn a_code_without_a_category_is_an_error() {
    let store = observations();
    store.set(key("obs/kind/codes/c/0"), vec![0, 2, 0]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let error = common::read(&view, "obs/obs.csv").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(
        error
            .to_string()
            .contains("code 2 is out of range of 2 categories"),
        "{error}"
    );
}

#[test]
fn a_table_without_rows_has_a_header() {
    let store = memory(&[
        ("a/zarr.json", &column("int8", &[0])),
        ("b/zarr.json", &column("int8", &[0])),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    assert_eq!(text(&view, "root.csv"), "a,b\n");
    assert_eq!(text(&view, "root.ndjson"), "");
}

#[test]
fn a_group_with_unequal_arrays_has_no_table() {
    let named = |name: &str| {
        let mut document: Value = serde_json::from_str(&column("int8", &[4])).unwrap();
        document["dimension_names"] = json!([name]);
        document.to_string()
    };
    let (latitudes, longitudes) = (named("lat"), named("lon"));
    let longer = column("int8", &[5]);
    for (one, other) in [(&latitudes, &longer), (&latitudes, &longitudes)] {
        let store = memory(&[("a/zarr.json", one), ("b/zarr.json", other)]);
        let (view, _) = view_of(Arc::new(store), &[]);
        for name in ["root.csv", "root.ndjson"] {
            assert!(common::is_missing(&view, name), "{name}: {other}");
        }
    }
    let wide = column("int8", &[4, 2]);
    let (view, _) = view_of(Arc::new(memory(&[("a/zarr.json", &wide)])), &[]);
    assert!(common::is_missing(&view, "root.csv"));
}

#[test]
fn fields_of_a_structure_are_the_columns_of_its_own_file() {
    let document = json!({
        "zarr_format": 2, "shape": [2], "chunks": [2], "compressor": null, "fill_value": null, "order": "C",
        "filters": null, "dtype": [["id", "<i2"], ["name", "|S3"], ["at", [["x", "<f4"], ["z", "<c8"]]], ["rgb", "|u1", [2]]],
    });
    let store = memory(&[
        ("a/.zarray", &document.to_string()),
        ("b/zarr.json", &column("int8", &[2])),
    ]);
    let row = |id: i16, name: &[u8; 3], x: f32, rgb: [u8; 2]| {
        [&id.to_le_bytes()[..], name, &x.to_le_bytes(), &[0; 8], &rgb].concat()
    };
    let rows = [
        row(-1, b"ab\0", 0.1, [1, 2]),
        row(300, b"\"\0\0", f32::NAN, [3, 255]),
    ];
    store.set(key("a/0"), rows.concat());
    let (view, _) = view_of(Arc::new(store), &[]);
    assert_eq!(
        text(&view, "a/a.csv"),
        "id,name,at.x,rgb.0,rgb.1\n-1,\"ab\",0.1,1,2\n300,\"\"\"\",,3,255\n"
    );
    assert_eq!(
        text(&view, "a/a@1:.csv"),
        "id,name,at.x,rgb.0,rgb.1\n300,\"\"\"\",,3,255\n"
    );
    let line = text(&view, "a/a.ndjson")
        .lines()
        .next()
        .unwrap()
        .to_string();
    let expected = json!({"id": -1, "name": "ab", "at.x": 0.1, "rgb.0": 1, "rgb.1": 2});
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
    let said = |name: &str| {
        let said = view.attribute(&UNLIMITED, &key(name), LEFT_OUT).unwrap();
        String::from_utf8(said.unwrap()).unwrap()
    };
    assert_eq!(
        said("a/a.csv"),
        "the field at.z: complex64 cannot be written as text\n"
    );
    assert_eq!(
        said("root.csv"),
        "a: fields become columns only in the file of the array itself\n"
    );
}

#[test]
fn rows_of_an_array_are_lines_without_spaces() {
    let (line, plane) = (column("int16", &[4]), column("float32", &[2, 4]));
    let store = memory(&[("a/zarr.json", &line), ("b/zarr.json", &plane)]);
    let words = [-1_i16, 2, 300].iter().flat_map(|word| word.to_le_bytes());
    store.set(key("a/c/0"), words.collect());
    let (view, _) = view_of(Arc::new(store), &[]);
    for (name, expected) in [
        ("a/a.csv", "-1\n2\n300\n0\n"),
        ("a/a@::-2.csv", "0\n2\n"),
        (
            "a/a.ndjson",
            "{\"a\":-1}\n{\"a\":2}\n{\"a\":300}\n{\"a\":0}\n",
        ),
        ("b/b.csv", "0.0,0.0,0.0,0.0\n0.0,0.0,0.0,0.0\n"),
        (
            "b/b@0.ndjson",
            "{\"b\":0.0}\n{\"b\":0.0}\n{\"b\":0.0}\n{\"b\":0.0}\n",
        ),
        ("b/b@:,:1.ndjson", "{\"b\":[0.0]}\n{\"b\":[0.0]}\n"),
    ] {
        assert_eq!(text(&view, name), expected, "{name}");
    }
}

#[test]
fn changed_attributes_and_chunks_change_the_table() {
    let packed = |scale: f64| described("int16", &[3], &json!({"scale_factor": scale}));
    let store = Arc::new(memory(&[("a/zarr.json", &packed(0.5))]));
    store.set(key("a/c/0"), vec![1, 0, 2, 0, 3, 0]);
    let (view, _) = view_of(store.clone(), &[]);
    assert_eq!(text(&view, "a/a.cf.csv"), "0.5\n1.0\n1.5\n");
    assert_eq!(text(&view, "a/a.csv"), "1\n2\n3\n");
    store.set(key("a/zarr.json"), packed(0.25).into_bytes());
    let (view, _) = view_of(store.clone(), &[]);
    assert_eq!(text(&view, "a/a.cf.csv"), "0.25\n0.5\n0.75\n");
    store.set(key("a/c/0"), vec![1, 0, 2, 0, 200, 0]);
    let (view, _) = view_of(store, &[]);
    assert_eq!(text(&view, "root.csv"), "a\n1\n2\n200\n");
}

/// Returns a group with two variables over time, one variable over time and place, and coordinate variables.
fn weather() -> MemoryStore {
    let named = |data_type: &str, shape: &[u64], names: &[&str], attributes: &Value| {
        let mut document: Value =
            serde_json::from_str(&described(data_type, shape, attributes)).unwrap();
        document["dimension_names"] = json!(names);
        document.to_string()
    };
    let packed = json!({"scale_factor": 0.5, "_FillValue": -1});
    let days = json!({"units": "days since 2020-01-30"});
    let mut station: Value = serde_json::from_str(&strings(4, 3)).unwrap();
    station["dimension_separator"] = json!(".");
    let store = memory(&[
        (
            "t/zarr.json",
            &named("int16", &[4, 2], &["time", "x"], &packed),
        ),
        ("time/zarr.json", &named("int32", &[4], &["time"], &days)),
        ("x/zarr.json", &named("uint8", &[2], &["x"], &json!({}))),
        ("name/.zarray", &station.to_string()),
        ("name/.zattrs", r#"{"_ARRAY_DIMENSIONS": ["time"]}"#),
    ]);
    let words = |numbers: &[i16]| numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
    store.set(key("t/c/0/0"), words(&[1, 2, 0, -1, 4, 0, 5, 6, 0]));
    store.set(key("t/c/1/0"), words(&[7, 8, 0, 0, 0, 0, 0, 0, 0]));
    let days = [0_i32, 1, 2].iter().flat_map(|day| day.to_le_bytes());
    store.set(key("time/c/0"), days.collect());
    store.set(
        key("time/c/1"),
        [3_i32, 0, 0]
            .iter()
            .flat_map(|day| day.to_le_bytes())
            .collect(),
    );
    store.set(key("x/c/0"), vec![10, 20, 0]);
    store.set(key("name/0"), texts(&["a", "b", "c"]));
    store.set(key("name/1"), texts(&["d", "", ""]));
    store
}

#[test]
fn a_group_has_tables_of_selections_and_of_cf_values() {
    let (view, _) = view_of(Arc::new(weather()), &[]);
    let day = |day: &str| format!("{day}T00:00:00.000000000");
    for (name, expected) in [
        (
            "root@x=10.csv",
            "name,t,time\n\"a\",1,0\n\"b\",-1,1\n\"c\",5,2\n\"d\",7,3\n".to_string(),
        ),
        (
            "root@x=20,time=#::-2.csv",
            "name,t,time\n\"d\",8,3\n\"b\",4,1\n".to_string(),
        ),
        (
            "root@x=10,time=2020-01.cf.csv",
            format!(
                "name,t,time\n\"a\",0.5,{}\n\"b\",,{}\n",
                day("2020-01-30"),
                day("2020-01-31")
            ),
        ),
        (
            "root@time=2020-02-01,x=#0:1.cf.ndjson",
            "{\"t\":2.5,\"x\":10}\n".to_string(),
        ),
        ("root@time=#3.csv", "t,x\n7,10\n8,20\n".to_string()),
    ] {
        assert_eq!(text(&view, name), expected, "{name}");
    }
    let said = view.attribute(&UNLIMITED, &key("root@time=#3.csv"), LEFT_OUT);
    let said = String::from_utf8(said.unwrap().unwrap()).unwrap();
    assert_eq!(
        said,
        "name: a column needs one dimension, not 0\ntime: a column needs one dimension, not 0\n"
    );
    for name in [
        "root.csv",
        "root.cf.csv",
        "root@0.csv",
        "root@x=30.csv",
        "root@x=10,time=#0.csv",
        "root@x=10.ome.tif",
    ] {
        assert!(common::is_missing(&view, name), "{name}");
    }
}

#[test]
fn a_table_of_anndata_has_only_stored_values() {
    let (view, _) = view_of(Arc::new(observations()), &[]);
    assert!(!common::is_missing(&view, "obs/obs.csv"));
    for name in ["obs/obs.cf.csv", "obs/obs.cf.ndjson"] {
        assert!(common::is_missing(&view, name), "{name}");
    }
    assert!(!common::is_missing(&view, "obs/obs.cf.nc4"));
}

/// Invariant of `any_range_of_any_format_is_the_slice_of_the_whole`.
#[test]
fn a_table_is_measured_once_for_each_content() {
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
    let size = || {
        let attr = view.lookup(&UNLIMITED, &key("root.csv")).unwrap().unwrap();
        attr.size
    };
    assert_eq!(size(), 4 + 1000 * 6);
    let read = stats.decoded_chunks.get() + stats.cache_hit_chunks.get();
    assert_eq!(size(), 4 + 1000 * 6);
    assert_eq!(
        stats.decoded_chunks.get() + stats.cache_hit_chunks.get(),
        read
    );
    let text = common::read(&view, "root.csv").unwrap();
    assert!(text.starts_with(b"a,b\n1,257\n") && text.ends_with(b"\n1,257\n"));
}
