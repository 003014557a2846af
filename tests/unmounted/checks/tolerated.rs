//! Tests that metadata which specifications forbid but Zarr libraries accept give warnings.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_check::Finding;
use zarr_check::Severity::{Error, Warning};

use crate::checks::fixture::{How, run};
use crate::dialects::hierarchies::{array, documents, hierarchy};

fn v2(changes: &Value) -> (&'static str, Value) {
    let document = json!({
        "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "compressor": null,
        "filters": null, "fill_value": 0, "order": "C",
    });
    (".zarray", changed(document, changes))
}

fn v3(changes: &Value) -> (&'static str, Value) {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int16",
        "chunk_grid": grid(json!([2])), "fill_value": 0, "codecs": [bytes("little")],
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    });
    ("zarr.json", changed(document, changes))
}

fn grid(chunk: Value) -> Value {
    json!({"name": "regular", "configuration": {"chunk_shape": chunk}})
}

fn bytes(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

fn changed(mut document: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

/// Checks a store with one array. Fails unless the array can be decoded and the only finding is a warning about
/// `member`.
fn expect_warning((name, document): (&'static str, Value), member: &str) {
    let store = documents(&[(name, document.clone())]);
    let read = array(&hierarchy(&store), "");
    assert_eq!(read.undecodable, None, "{document}");
    let (findings, _) = run(Arc::new(store), How::default());
    let lines: Vec<String> = findings.iter().map(|found| found.to_text()).collect();
    let fits = findings
        .iter()
        .all(|found| found.severity >= Warning && (found.part == member || found.part.is_empty()));
    let is_said = findings
        .iter()
        .any(|found| found.severity == Warning && found.part == member);
    assert!(fits && is_said, "{document}: {lines:#?}");
}

#[test]
fn numbers_written_as_text_have_a_warning() {
    for (dtype, data_type, text) in [
        ("<i2", "int16", "-7"),
        ("<u8", "uint64", "18446744073709551615"),
        ("<f4", "float32", "1.5"),
        ("|b1", "bool", "0"),
    ] {
        expect_warning(
            v2(&json!({"dtype": dtype, "fill_value": text})),
            "fill_value",
        );
        expect_warning(
            v3(&json!({"data_type": data_type, "fill_value": text})),
            "fill_value",
        );
    }
}

#[test]
fn truth_values_as_fill_values_of_numbers_have_a_warning() {
    for (dtype, data_type) in [("<i2", "int16"), ("|u1", "uint8"), ("<f4", "float32")] {
        let of_v2 = json!({"dtype": dtype, "fill_value": false});
        let of_v3 = json!({"data_type": data_type, "fill_value": true});
        expect_warning(v2(&of_v2), "fill_value");
        expect_warning(v3(&of_v3), "fill_value");
    }
}

#[test]
fn elements_without_a_byte_order_have_a_warning() {
    let sharded = |inner: Value, index: Value| {
        let configuration = json!({"chunk_shape": [1], "codecs": [inner], "index_codecs": [index]});
        json!([{"name": "sharding_indexed", "configuration": configuration}])
    };
    let bare = || json!({"name": "bytes"});
    for codecs in [
        json!([bare()]),
        sharded(bare(), bytes("little")),
        sharded(bytes("little"), bare()),
    ] {
        expect_warning(v3(&json!({"codecs": codecs})), "codecs");
    }
    let plain = v3(&json!({"codecs": [bare()], "data_type": "uint8"}));
    let (findings, _) = run(Arc::new(documents(&[plain])), How::default());
    assert!(findings.iter().all(|found| found.part != "codecs"));
}

#[test]
fn members_in_spellings_of_other_writers_have_a_warning() {
    for (document, member) in [
        (v2(&json!({"dtype": "int16"})), "dtype"),
        (v2(&json!({"dtype": "i2"})), "dtype"),
        (v2(&json!({"dtype": "=i2"})), "dtype"),
        (v2(&json!({"dtype": "<h"})), "dtype"),
        (v2(&json!({"shape": 4})), "shape"),
        (v2(&json!({"chunks": 2})), "chunks"),
        (v2(&json!({"shape": [0], "chunks": [0]})), "chunks"),
        (v2(&json!({"zarr_format": 2.0})), "zarr_format"),
        (v2(&json!({"fill_value": [7]})), "fill_value"),
        (v3(&json!({"shape": 4})), "shape"),
        (v3(&json!({"chunk_grid": grid(json!(2))})), "chunk_grid"),
        (
            v3(&json!({"shape": [0], "chunk_grid": grid(json!([0]))})),
            "chunk_grid",
        ),
        (v3(&json!({"extensions": []})), "extensions"),
        (
            v3(&json!({"storage_transformers": {}})),
            "storage_transformers",
        ),
        (v3(&json!({"dimension_names": "x"})), "dimension_names"),
        (v3(&json!({"zarr_format": 3.0})), "zarr_format"),
    ] {
        expect_warning(document, member);
    }
}

#[test]
fn documents_of_gdal_have_a_warning() {
    let blosc =
        |shuffle: Value| json!({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": shuffle});
    let zstd = |checksum: Value| json!({"id": "zstd", "level": 13, "checksum": checksum});
    let gzip = json!({"name": "gzip", "configuration": {"level": 6}});
    let turned = json!({"name": "transpose", "configuration": {"order": "F"}});
    for (document, member) in [
        (v2(&json!({"compressor": zstd(json!("NO"))})), "compressor"),
        (
            v2(&json!({"compressor": blosc(json!("BIT"))})),
            "compressor",
        ),
        (
            v2(&json!({"dtype": "<c8", "fill_value": 5.0})),
            "fill_value",
        ),
        (v2(&json!({"dtype": "<c4", "fill_value": null})), "dtype"),
        (v3(&json!({"codecs": [gzip]})), "codecs"),
        (v3(&json!({"codecs": [turned, gzip]})), "codecs"),
        (
            v3(&json!({"data_type": "complex32", "fill_value": [0, 0]})),
            "data_type",
        ),
        (v3(&json!({"fill_value": null})), "fill_value"),
        (
            v3(&json!({"data_type": "string", "codecs": ["vlen-utf8"], "fill_value": 0.0})),
            "fill_value",
        ),
    ] {
        expect_warning(document, member);
    }
    for plain in [
        v2(&json!({"compressor": zstd(json!(false))})),
        v2(&json!({"compressor": blosc(json!(2))})),
        v3(&json!({"data_type": "complex64", "fill_value": ["0x7fc00001", 0]})),
    ] {
        let (findings, _) = run(Arc::new(documents(&[plain])), How::default());
        let mut said = findings.iter().filter(|found| found.severity <= Warning);
        // The arrays of this test have no stored chunks, so the finding about that is ignored.
        let is_said = said.any(|found| found.code != "chunks-missing");
        assert!(!is_said, "{findings:#?}");
    }
    let wrong = v3(&json!({"codecs": [{"name": "gzip", "configuration": {"level": 10}}]}));
    let (findings, _) = run(Arc::new(documents(&[wrong])), How::default());
    let is_error = |found: &Finding| found.severity == Error && found.part == "codecs";
    assert!(findings.iter().any(is_error), "{findings:#?}");
}
