//! Tests that hostile stores give right bytes or an error that names the key.
//!
//! No store may make a reader panic, hang, or use more memory than the budget.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::{Error, Kind};
use zarrfs::mount::open::ViewKind;
use zarrfs::view::View;
use zarrfs_store::Key;

use crate::common;
use zarrfs_store::request_context::UNLIMITED;

/// Returns the metadata of a valid Zarr v3 array, which tests then damage.
fn sound() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [64, 64], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32, 32]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    })
}

fn with(changes: Value) -> Value {
    let mut metadata = sound();
    for (member, value) in changes.as_object().unwrap() {
        metadata[member] = value.clone();
    }
    metadata
}

fn compressed(name: &str, configuration: Value) -> Value {
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    with(json!({"codecs": [bytes, {"name": name, "configuration": configuration}]}))
}

fn write(folder: &Path, key: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Lists a folder and the folders in it, looks up the names, and reads the start, middle and end of each file. Returns
/// the first error.
fn explore(view: &Arc<dyn View>, folder: &Key, depth: usize) -> Option<Error> {
    let mut first = common::check_node(view, &folder.to_string()).err();
    let mut listing = match view.list(&UNLIMITED, folder) {
        Ok(listing) => listing,
        Err(error) => return Some(error),
    };
    for _ in 0..200 {
        let name = match listing.next(&UNLIMITED) {
            Ok(Some(name)) => name,
            Ok(None) => break,
            Err(error) => return Some(error),
        };
        let path = folder.child(&name.name).unwrap();
        let attr = match view.lookup(&UNLIMITED, &path) {
            Ok(Some(attr)) => attr,
            Ok(None) => continue,
            Err(error) => {
                first = first.or(Some(error));
                continue;
            }
        };
        let found = match attr.kind {
            zarrfs_store::EntryKind::Directory if depth < 6 => explore(view, &path, depth + 1),
            zarrfs_store::EntryKind::File => read_ends(view, &path, attr.size).err(),
            _ => None,
        };
        first = first.or(found);
    }
    first
}

fn read_ends(view: &Arc<dyn View>, path: &Key, size: u64) -> Result<(), Error> {
    let opened = view.open(&UNLIMITED, path)?;
    for offset in [0, size / 2, size.saturating_sub(10), size, u64::MAX] {
        opened.file.read_at(&UNLIMITED, offset, 100_000)?;
    }
    Ok(())
}

/// Maximum number of requests that a hostile store may cause, whatever number of chunks its metadata state.
const MAX_REQUESTS: u64 = 5000;

/// Lists and reads a store in the files view and the store view, with limits on requests and memory. Returns the first
/// error.
fn survive(store: &Path) -> Option<Error> {
    let (faces, stats) = match common::open_with(store, 64 << 20) {
        Ok(opened) => opened,
        Err(error) => return Some(error),
    };
    let files = explore(&faces.view(ViewKind::Files), &Key::root(), 0);
    let stored = explore(&faces.view(ViewKind::Store), &Key::root(), 0);
    let requests: u64 = stats
        .snapshot()
        .iter()
        .filter(|(name, _)| name.starts_with("store_") && name.ends_with("_requests"))
        .map(|(_, count)| count)
        .sum();
    assert!(requests <= MAX_REQUESTS, "{requests} requests");
    assert!(stats.memory_peak_bytes.get() <= 64 << 20);
    files.or(stored)
}

/// Lists and reads a store with a single array in both views. Returns the first error of the files view.
fn survive_array(metadata: impl AsRef<[u8]>, chunk: Option<&[u8]>) -> Option<Error> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a/zarr.json", metadata);
    write(
        folder.path(),
        "zarr.json",
        r#"{"zarr_format": 3, "node_type": "group"}"#,
    );
    if let Some(chunk) = chunk {
        write(folder.path(), "a/c/0/0", chunk);
    }
    survive(folder.path())
}

#[test]
fn a_valid_store_has_no_error() {
    assert!(survive_array(sound().to_string(), Some(&[7; 2048])).is_none());
    assert!(survive_array(sound().to_string(), None).is_none());
}

#[test]
fn invalid_metadata_are_errors() {
    let big = 1u64 << 62;
    let rank = vec![1; 5000];
    let cases = [
        with(json!({"shape": [big, big]})),
        with(json!({"shape": [u64::MAX, 1]})),
        with(
            json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [big, 1]}}}),
        ),
        with(
            json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [big, big]}}}),
        ),
        with(json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 1]}}})),
        with(json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}})),
        with(
            json!({"shape": rank, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": rank}}}),
        ),
        with(json!({"shape": [-1, 2]})),
        with(json!({"shape": [1.5, 2]})),
        with(json!({"shape": "many"})),
        with(json!({"data_type": "r18446744073709551608"})),
        with(json!({"data_type": "r99999999999999999999999"})),
        with(
            json!({"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, "bytes"]}),
        ),
        with(json!({"codecs": [{"name": "pickle"}]})),
        with(json!({"codecs": vec![json!("gzip"); 1000]})),
        with(json!({"fill_value": 70000})),
        with(json!({"zarr_format": 9})),
        with(json!({"node_type": ["array"]})),
    ];
    for metadata in cases {
        let shown: String = metadata.to_string().chars().take(300).collect();
        let error = survive_array(metadata.to_string(), Some(&[0; 2048])).expect(&shown);
        assert!(error.to_string().contains('a'), "{shown}: {error}");
    }
}

#[test]
fn errors_of_invalid_json_name_the_key() {
    let deep = "[".repeat(200_000);
    let long = format!("{{\"zarr_format\": \"{}\"}}", "x".repeat(1 << 20));
    for document in [
        &b"{"[..],
        b"",
        b"null",
        b"[]",
        b"\xff\xfe{}",
        b"{\"a\": \"\xff\"}",
        deep.as_bytes(),
        long.as_bytes(),
    ] {
        let error = survive_array(document, None).unwrap();
        assert!(error.to_string().contains("a/zarr.json"), "{error}");
    }
}

#[test]
fn the_last_of_two_equal_members_is_used() {
    let text = sound().to_string().replacen('{', "{\"shape\": [1],", 1);
    assert!(survive_array(text, None).is_none());
}

/// A header of a zstd frame that claims to contain 2^40 bytes.
const TERABYTE: [u8; 13] = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0];

/// Invariant (reading): A missing chunk reads as the fill value. A failed read is an error that names the key, also if
/// the server says that the chunk existed.
#[test]
fn errors_of_undecodable_chunks_name_the_key() {
    let raw = sound().to_string();
    let zstd = compressed("zstd", json!({"level": 1, "checksum": false})).to_string();
    let gzip = compressed("gzip", json!({"level": 1})).to_string();
    let crc = compressed("crc32c", json!({})).to_string();
    let blosc =
        json!({"cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0});
    let blosc = compressed("blosc", blosc).to_string();
    let huge = [
        2, 1, 0, 1, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x7f,
    ];
    let cases: [(&str, &[u8]); 16] = [
        (&raw, &[]),
        (&raw, &[0; 2047]),
        (&raw, &[0; 2049]),
        (&raw, &[0; 1 << 20]),
        (&zstd, &[]),
        (&zstd, &TERABYTE),
        (&zstd, &[0xff; 100]),
        (&gzip, &[]),
        (&gzip, &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0]),
        (&gzip, &[0x55; 3000]),
        (&crc, &[]),
        (&crc, &[1, 2, 3]),
        (&crc, &[9; 2052]),
        (&blosc, &[]),
        (&blosc, &huge),
        (&blosc, &[0; 16]),
    ];
    for (metadata, chunk) in cases {
        let error = survive_array(metadata, Some(chunk)).expect(metadata);
        assert!(error.to_string().contains("a/c/0/0"), "{error}");
    }
}

#[test]
fn bombs_stay_within_the_budget() {
    let zeros = vec![0; 64 << 20];
    let zstd = zstd::bulk::compress(&zeros, 19).unwrap();
    let metadata = compressed("zstd", json!({"level": 1, "checksum": false})).to_string();
    assert!(
        survive_array(&metadata, Some(&zstd))
            .unwrap()
            .to_string()
            .contains("a/c/0/0")
    );
    let mut gzip = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
    let mut bomb = vec![0; gzip.gzip_compress_bound(zeros.len())];
    let length = gzip.gzip_compress(&zeros, &mut bomb).unwrap();
    let metadata = compressed("gzip", json!({"level": 1})).to_string();
    assert!(
        survive_array(&metadata, Some(&bomb[..length]))
            .unwrap()
            .to_string()
            .contains("a/c/0/0")
    );
}

#[test]
fn a_fill_value_times_many_elements_is_too_large() {
    let metadata = with(json!({
        "data_type": "string", "codecs": ["vlen-utf8"], "fill_value": "x".repeat(3 << 20), "shape": [8, 8],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1]}},
    }));
    let error = survive_array(metadata.to_string(), None).unwrap();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
}

#[test]
fn shards_with_an_invalid_index_are_errors() {
    let inner = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let configuration = json!({"chunk_shape": [16, 16], "codecs": inner, "index_codecs": inner});
    let metadata =
        with(json!({"codecs": [{"name": "sharding_indexed", "configuration": configuration}]}));
    for (offset, length) in [
        (u64::MAX - 1, 512),
        (0, u64::MAX),
        (1 << 40, 512),
        (10, 512),
        (0, 4),
        (0, 4000),
        (u64::MAX, 512),
    ] {
        let mut shard = vec![1; 512];
        for _ in 0..4 {
            shard.extend_from_slice(&u64::to_le_bytes(offset));
            shard.extend_from_slice(&u64::to_le_bytes(length));
        }
        let found = survive_array(metadata.to_string(), Some(&shard));
        let fits = offset == 10;
        assert_eq!(found.is_none(), fits, "{offset} {length}: {found:?}");
    }
    for shard in [&[][..], &[0; 10], &[0; 63]] {
        assert!(survive_array(metadata.to_string(), Some(shard)).is_some());
    }
    let huge = json!({"chunk_shape": [1, 1], "codecs": inner, "index_codecs": inner});
    let huge = with(json!({
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1u64 << 31, 1u64 << 30]}},
        "codecs": [{"name": "sharding_indexed", "configuration": huge}],
    }));
    assert!(survive_array(huge.to_string(), Some(&[0; 100])).is_some());
}

/// Invariant of `errors_of_undecodable_chunks_name_the_key`.
#[test]
fn an_unfetched_git_annex_chunk_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "zarr.json", sound().to_string());
    std::fs::create_dir_all(folder.path().join("c/0")).unwrap();
    let annex = Path::new("../../annex/objects/MD5E-s9");
    std::os::unix::fs::symlink(annex, folder.path().join("c/0/0")).unwrap();
    let (faces, _) = common::open(folder.path()).unwrap();
    let mut names = faces
        .view(ViewKind::Files)
        .list(&UNLIMITED, &Key::root())
        .unwrap();
    let mut raw = None;
    while let Some(name) = names.next(&UNLIMITED).unwrap() {
        raw = raw.or(name.name.ends_with(b".raw").then_some(name.name));
    }
    let raw = String::from_utf8(raw.unwrap()).unwrap();
    let error = common::read(&faces.view(ViewKind::Files), &raw).unwrap_err();
    assert!(
        error.to_string().contains("annex/objects/MD5E-s9"),
        "{error}"
    );
    assert_eq!(error.errno(), libc::EIO);
}

/// Invariant (stores): No key or symbolic link leads out of a local store, and no name leads out of an archive.
#[test]
fn links_out_of_a_store_and_pipes_are_not_read() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "canary");
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "zarr.json",
        r#"{"zarr_format": 3, "node_type": "group"}"#,
    );
    write(folder.path(), "a/zarr.json", sound().to_string());
    std::fs::create_dir_all(folder.path().join("a/c/0")).unwrap();
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap()
    };
    link(&outside.path().join("secret"), "a/c/0/0");
    link(outside.path(), "away");
    link(Path::new("loop"), "loop");
    link(Path::new("nowhere"), "broken");
    link(Path::new("a/zarr.json"), "inside");
    let pipe = std::ffi::CString::new(folder.path().join("pipe").to_str().unwrap()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        pipe.as_c_str(),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let (faces, _) = common::open(folder.path()).unwrap();
    let (files, stored) = (faces.view(ViewKind::Files), faces.view(ViewKind::Store));
    let error = common::read(&files, "a/a.raw").unwrap_err();
    assert!(
        error.to_string().contains("leads out of the store"),
        "{error}"
    );
    for path in ["a/c/0/0", "away/secret", "away", "loop", "broken", "pipe"] {
        let key = Key::new(path).unwrap();
        assert!(stored.open(&UNLIMITED, &key).is_err(), "{path}");
        let _ = stored.lookup(&UNLIMITED, &key);
    }
    assert_eq!(
        stored
            .read_link(&UNLIMITED, &Key::new("inside").unwrap())
            .unwrap(),
        b"a/zarr.json"
    );
    assert!(
        stored
            .read_link(&UNLIMITED, &Key::new("away").unwrap())
            .is_err()
    );
    let mut names = stored.list(&UNLIMITED, &Key::root()).unwrap();
    while let Some(name) = names.next(&UNLIMITED).unwrap() {
        assert_ne!(name.name, b"pipe");
    }
    assert!(survive(folder.path()).is_some());
}

#[test]
fn names_of_any_bytes_are_listed_and_read() {
    let folder = tempfile::tempdir().unwrap();
    use std::os::unix::ffi::OsStrExt;
    let odd = [
        &b"\xff\xfe"[..],
        b"a b",
        b"new\nline",
        b"\x1b[2J",
        "\u{202e}".as_bytes(),
        b"..x",
        &[b'x'; 255],
    ];
    for name in odd {
        std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let (faces, _) = common::open(folder.path()).unwrap();
    let stored = faces.view(ViewKind::Store);
    for name in odd {
        let key = Key::new(name).unwrap();
        assert_eq!(
            &stored
                .open(&UNLIMITED, &key)
                .unwrap()
                .file
                .read_at(&UNLIMITED, 0, 1000)
                .unwrap()[..],
            name
        );
    }
}
