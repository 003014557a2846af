//! Tests chunk keys: each chunk key encoding of v3, and the separators of v2 writers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::{Kind, Result};
use zarrfs::view::View;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common;

/// Returns the files view of a store that has the metadata of an array and one chunk with the bytes 1 to 4.
fn store(document: &str, metadata: &Value, chunk: &str) -> Arc<dyn View> {
    let memory = MemoryStore::default();
    let set = |key: &str, bytes: Vec<u8>| memory.set(Key::new(key).unwrap(), bytes);
    set("zarr.json", common::sample::GROUP.into());
    set(document, metadata.to_string().into_bytes());
    set(chunk, vec![1, 2, 3, 4]);
    common::views_of(Arc::new(memory), Duration::from_secs(20)).files
}

/// Reads the last chunk of an array of 2 x 2 chunks, or the only chunk of a scalar.
fn last(view: &Arc<dyn View>, rank: usize) -> Result<Vec<u8>> {
    common::check_node(view, "a")?;
    let name = if rank == 0 { "0" } else { "1.1" };
    common::read(view, &format!("a/chunks/{name}.raw"))
}

fn v3(rank: usize, encoding: Value) -> Value {
    let (data_type, fill) = if rank == 0 {
        ("uint32", 7)
    } else {
        ("uint8", 7)
    };
    json!({
        "zarr_format": 3, "node_type": "array", "shape": vec![4; rank], "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": vec![2; rank]}},
        "chunk_key_encoding": encoding, "fill_value": fill,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    })
}

#[test]
fn each_encoding_finds_its_chunks() {
    let with = |name: &str, separator: &str| json!({"name": name, "configuration": {"separator": separator}});
    for (encoding, chunk, scalar) in [
        (with("default", "/"), "a/c/1/1", "a/c"),
        (with("default", "."), "a/c.1.1", "a/c"),
        (with("v2", "/"), "a/1/1", "a/0"),
        (with("v2", "."), "a/1.1", "a/0"),
        // The chunk key encoding has no configuration, or one without a separator.
        (json!({"name": "default"}), "a/c/1/1", "a/c"),
        (json!({"name": "v2"}), "a/1.1", "a/0"),
        (
            json!({"name": "default", "configuration": {}}),
            "a/c/1/1",
            "a/c",
        ),
        (json!({"name": "v2", "configuration": {}}), "a/1.1", "a/0"),
        (json!("default"), "a/c/1/1", "a/c"),
        (json!("v2"), "a/1.1", "a/0"),
    ] {
        for (rank, key) in [(2, chunk), (0, scalar)] {
            let view = store("a/zarr.json", &v3(rank, encoding.clone()), key);
            assert_eq!(last(&view, rank).unwrap(), [1, 2, 3, 4], "{encoding} {key}");
        }
        let elsewhere = store("a/zarr.json", &v3(2, encoding.clone()), "a/elsewhere");
        assert_eq!(last(&elsewhere, 2).unwrap(), [7; 4], "{encoding}");
    }
}

#[test]
fn unknown_encodings_are_refused() {
    let base = json!({"name": "default", "configuration": {"separator": "/"}});
    let suffix = json!({"name": "suffix", "configuration": {"suffix": ".shard", "separator": "~", "base_encoding": base}});
    for (encoding, named) in [(suffix, "suffix"), (json!("zigzag"), "zigzag")] {
        let view = store("a/zarr.json", &v3(2, encoding.clone()), "a/c/1/1");
        let shown: Value =
            serde_json::from_slice(&common::read(&view, "a/metadata.json").unwrap()).unwrap();
        assert_eq!(
            shown["chunk_key_encoding"], encoding,
            "the array lists all the same"
        );
        let error = last(&view, 2).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), Kind::Unsupported, "{said}");
        assert!(
            said.contains(&format!(
                "chunk_key_encoding: unsupported encoding {named} (supported: default, v2)"
            )),
            "{said}"
        );
    }
    for encoding in [
        json!({"name": "default", "configuration": {"separator": "-"}}),
        json!({}),
        json!(7),
    ] {
        let view = store("a/zarr.json", &v3(2, encoding.clone()), "a/c/1/1");
        assert_eq!(
            last(&view, 2).unwrap_err().kind(),
            Kind::Corrupt,
            "{encoding}"
        );
    }
}

#[test]
fn chunks_of_v2_are_found_in_both_forms() {
    let v2 = |rank: usize, separator: Option<&str>| {
        let mut metadata = json!({
            "zarr_format": 2, "shape": vec![4; rank], "chunks": vec![2; rank], "order": "C", "fill_value": 7,
            "dtype": if rank == 0 { "<u4" } else { "|u1" }, "compressor": null, "filters": null,
        });
        if let Some(separator) = separator {
            metadata["dimension_separator"] = json!(separator);
        }
        metadata
    };
    for (separator, chunk) in [
        (None, "a/1.1"),
        (None, "a/1/1"),
        (Some("."), "a/1.1"),
        (Some("/"), "a/1/1"),
    ] {
        let view = store("a/.zarray", &v2(2, separator), chunk);
        assert_eq!(
            last(&view, 2).unwrap(),
            [1, 2, 3, 4],
            "{separator:?} {chunk}"
        );
        let view = store("a/.zarray", &v2(0, separator), "a/0");
        assert_eq!(last(&view, 0).unwrap(), [1, 2, 3, 4], "{separator:?}");
    }
    // The separator in the metadata is used even if the stored keys have the other separator.
    for (separator, chunk) in [("/", "a/1.1"), (".", "a/1/1")] {
        let view = store("a/.zarray", &v2(2, Some(separator)), chunk);
        assert_eq!(last(&view, 2).unwrap(), [7; 4], "{separator:?} {chunk}");
    }
}
