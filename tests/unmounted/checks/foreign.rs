//! Tests that a check recognizes other formats in place of a chunk, shard or document.

use std::sync::Arc;

use serde_json::json;
use zarr_check::Severity::Error;
use zarr_format::codec::Pipeline;
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{holds, plain, sharded, v2, v3};
use crate::dialects::hierarchies;

const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
const PAGE: &[u8] = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n";
const DENIED: &[u8] =
    b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code></Error>";

/// Checks a store. Returns the code, the key, and the message with the remedy of each error.
fn errors(store: MemoryStore, data: bool) -> Vec<(&'static str, String, String)> {
    let how = How {
        data,
        is_remote: false,
    };
    let (found, _) = run(Arc::new(store), how);
    let errors = found.iter().filter(|finding| finding.severity == Error);
    let told = |finding: &zarr_check::Finding| {
        let text = format!("{}; {}", finding.message, finding.remedy);
        (finding.code, finding.key.to_string(), text)
    };
    errors.map(told).collect()
}

#[test]
fn foreign_content_in_place_of_a_chunk_is_named_with_a_remedy() {
    let zstd = json!([{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}]);
    let raw = json!([{"name": "bytes"}]);
    for (bytes, what, remedy) in [
        (LFS, "a git-lfs pointer, not data", "run 'git lfs pull'"),
        (
            b"/annex/objects/SHA256E-s9--4d7a\n",
            "a git-annex pointer, not data",
            "run 'git annex get'",
        ),
        (PAGE, "an HTML page, not data", "download the store again"),
        (
            DENIED,
            "an XML error message of a server, not data",
            "download the store again",
        ),
        (
            b"{\"message\": \"Forbidden\"}",
            "a JSON error message of a server, not data",
            "download the store again",
        ),
        (
            b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0",
            "an HDF5 file, not data",
            "copy it from another copy",
        ),
        (
            b"CDF\x01\0\0\0\0\0\0\0\x0a",
            "a netCDF file, not data",
            "copy it from another copy",
        ),
        (
            b"PK\x03\x04\x14\0\0\0\x08\0",
            "a zip archive, not data",
            "copy it from another copy",
        ),
        (
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
            "a gzip stream, but the metadata name the codec",
            "correct the codec",
        ),
        (
            b"Service Unavailable\n",
            "text that begins with \"Service Unavailable\\n\", not data",
            "copy it from another copy",
        ),
    ] {
        for codecs in [&zstd, &raw] {
            // The second chunk is valid, and the first is reported both with and without `--data`.
            let writer =
                hierarchies::array(&hierarchies::hierarchy(&plain(codecs.clone(), &[])), "");
            let sound = Pipeline::new(&writer, 1 << 20)
                .unwrap()
                .encode(b"abcd")
                .unwrap();
            for data in [true, false] {
                let found = errors(plain(codecs.clone(), &[bytes, &sound]), data);
                let [(code, key, text)] = found.as_slice() else {
                    panic!("{what} {codecs} {data}: {found:#?}")
                };
                assert!(["chunk-corrupt", "chunk-length"].contains(code), "{code}");
                assert_eq!(key, "c/0");
                assert!(text.starts_with(&format!("the chunk is {what}")), "{text}");
                assert!(text.contains(remedy), "{text}");
            }
        }
    }
}

#[test]
fn valid_chunks_that_resemble_html_or_bzip2_are_not_findings() {
    // The array is not compressed, so chunks that begin like HTML or bzip2 are valid.
    let store = plain(json!([{"name": "bytes"}]), &[b"<htm", b"BZh9"]);
    assert_eq!(errors(store, true), []);
}

#[test]
fn foreign_content_in_place_of_a_shard_or_document_is_named() {
    for data in [true, false] {
        let store = sharded();
        holds("c/0", PAGE)(&store);
        let found = errors(store, data);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].0, "shard-index");
        assert!(
            found[0]
                .2
                .starts_with("the shard is an HTML page, not data"),
            "{found:#?}"
        );
    }
    for (store, key) in [
        (v3 as fn() -> MemoryStore, "a/b/zarr.json"),
        (v3, "zarr.json"),
        (v2, "a/b/.zarray"),
        (v2, "a/b/.zattrs"),
    ] {
        let store = store();
        store.set(hierarchies::key(key), LFS.to_vec());
        let found = errors(store, false);
        let told = found
            .iter()
            .find(|(code, at, _)| *code == "not-json" && at == key);
        let text = &told.unwrap_or_else(|| panic!("{key}: {found:#?}")).2;
        assert_eq!(
            text,
            "the file is a git-lfs pointer, not JSON; run 'git lfs pull'"
        );
    }
}

#[test]
fn a_fault_of_every_chunk_is_reported_once() {
    let gzip = json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
    let zstd: &[u8] = b"\x28\xb5\x2f\xfd\x20\x04\x21\x00\x00abcd";
    for data in [false, true] {
        let store = plain(gzip.clone(), &[zstd; 5]);
        let (found, summary) = run(
            Arc::new(store),
            How {
                data,
                is_remote: false,
            },
        );
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (summary.count(Error), found[0].key.to_string().as_str()),
            (1, "/")
        );
        let message = &found[0].message;
        assert!(message.starts_with("all 5 chunks, such as c/0: the chunk is a zstd"));
        // In an array of many chunks, only the first ones are inspected.
        let store = plain(gzip.clone(), &[zstd; 20]);
        let (found, _) = run(
            Arc::new(store),
            How {
                data,
                is_remote: false,
            },
        );
        let which = if data {
            "all 20 chunks, such"
        } else {
            "all 8 chunks that were read, of 20"
        };
        assert!(
            found.len() == 1 && found[0].message.starts_with(which),
            "{found:#?}"
        );
        // If the chunks do not all have the same fault, each chunk is reported separately.
        let store = plain(gzip.clone(), &[zstd, zstd, zstd, LFS]);
        assert_eq!(errors(store, data).len(), 4);
    }
}
