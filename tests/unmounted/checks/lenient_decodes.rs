//! Tests the reports of chunks that zarrfs decodes but other readers may reject.

use std::sync::Arc;

use serde_json::json;
use zarr_check::Finding;
use zarr_check::Severity::Advice;
use zarr_format::codec::Pipeline;
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{plain, plain_array, put};
use crate::dialects::hierarchies;

const DATA: How = How {
    data: true,
    is_remote: false,
};

/// Checks a chunk that is encoded with `codec` and followed by the bytes `more`, while the metadata state the codec
/// `stated`. Returns the findings without advice.
fn decoded_by_another(stated: &str, codec: &str, more: &[u8]) -> Vec<String> {
    let codecs = |name| json!([{"name": "bytes"}, {"name": name, "configuration": {"level": 1}}]);
    let array = |store: &MemoryStore| hierarchies::array(&hierarchies::hierarchy(store), "");
    let writer = array(&plain(codecs(codec), &[]));
    let pipeline = Pipeline::new(&writer, 1 << 20).unwrap();
    let chunk = [pipeline.encode(b"abcd").unwrap(), more.to_vec()].concat();
    let store = plain(codecs(stated), &[&chunk]);
    let (findings, _) = run(Arc::new(store), DATA);
    let found = findings.iter().filter(|finding| finding.severity != Advice);
    found.map(Finding::to_text).collect()
}

#[test]
fn a_stream_of_another_codec_or_with_padding_is_found() {
    let lines = decoded_by_another("gzip", "numcodecs.zlib", b"");
    let [line] = lines.as_slice() else {
        panic!("{lines:#?}")
    };
    assert!(
        line.starts_with("warning: c/0: the chunk is a zlib stream, but the metadata name gzip"),
        "{line}"
    );
    assert!(line.contains("z5py of 2020"), "{line}");
    let lines = decoded_by_another("numcodecs.zlib", "gzip", b"");
    let swapped = lines
        .iter()
        .filter(|line| line.contains("is a gzip stream"));
    assert_eq!(swapped.count(), 1, "{lines:#?}");
    let lines = decoded_by_another("gzip", "gzip", &[0; 3]);
    let padded = lines
        .iter()
        .filter(|line| line.contains("3 zeros follow the encoded chunk"));
    assert_eq!((lines.len(), padded.count()), (1, 1), "{lines:#?}");
    assert!(decoded_by_another("gzip", "gzip", b"").is_empty());
}

/// Checks an N5 dataset of 3 x 4 bytes in blocks of 2 x 3, of which one block of the given shape is stored. Returns the
/// findings.
fn dataset_with_block(key: &str, shape: [u8; 2]) -> Vec<(&'static str, String)> {
    let store = MemoryStore::default();
    let put = |key: &str, bytes: Vec<u8>| store.set(hierarchies::key(key), bytes);
    put("attributes.json", br#"{"n5": "2.0.0"}"#.to_vec());
    put(
        "a/attributes.json",
        br#"{"dimensions": [3, 4], "blockSize": [2, 3], "dataType": "uint8", "compression": {"type": "raw"}}"#.to_vec(),
    );
    let header = [0, 0, 0, 2, 0, 0, 0, shape[0], 0, 0, 0, shape[1]];
    let elements = vec![7; usize::from(shape[0]) * usize::from(shape[1])];
    put(&format!("a/{key}"), [header.to_vec(), elements].concat());
    let (findings, _) = run(Arc::new(store), DATA);
    let found = findings.iter().filter(|finding| finding.severity != Advice);
    found
        .map(|finding| (finding.code, finding.to_text()))
        .collect()
}

#[test]
fn blocks_of_n5_of_the_wrong_size_are_found() {
    for (key, shape) in [
        ("0/0", [2, 3]),
        ("1/1", [1, 1]),
        ("1/1", [2, 3]),
        ("1/0", [1, 3]),
    ] {
        assert_eq!(dataset_with_block(key, shape), [], "{key} {shape:?}");
    }
    let found = dataset_with_block("0/0", [2, 2]);
    assert_eq!(found[0].0, "block-too-small");
    assert!(
        found[0]
            .1
            .contains("the block has [2, 2] of [2, 3] elements"),
        "{found:?}"
    );
    for shape in [[4, 3], [2, 4]] {
        let found = dataset_with_block("0/0", shape);
        assert_eq!((found.len(), found[0].0), (1, "chunk-corrupt"), "{found:?}");
        assert!(
            found[0].1.contains("larger than the block size [2, 3]"),
            "{found:?}"
        );
    }
}

#[test]
fn invalid_code_points_of_fixed_length_text_are_found() {
    let mut array = plain_array(json!([1]), json!([1]), json!(["bytes"]));
    array["data_type"] =
        json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 4}});
    array["fill_value"] = json!("");
    array["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let store = MemoryStore::default();
    put(&store, "zarr.json", array);
    store.set(hierarchies::key("c/0"), vec![0xff; 4]);
    let (findings, _) = run(Arc::new(store), DATA);
    let line = findings
        .iter()
        .find(|finding| finding.code == "chunk-corrupt");
    let line = line.unwrap().to_text();
    assert!(
        line.contains("an element has 0xffffffff, which is not a Unicode code point"),
        "{line}"
    );
}
