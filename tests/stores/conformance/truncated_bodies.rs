//! A proxy that truncates bodies, with a matching length and the original ETag.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zarr_format::error::{Kind, Result};
use zarr_format::grid::Region;
use zarrfs::view::View;
use zarrfs::view::store::StoreView;
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::{Arrays, Engine, Limits, OpenArray};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{ByteRange, Key, RemoteConfig, StoreConfig};

use crate::common::scripted::{Scripted, answer as plain_answer, answer_of};
use crate::common::zip_writer::{Archive as ZipArchive, Entry};

const LENGTH: usize = 1000;

/// Answers the requests of one connection. A HEAD returns the object's length; a GET returns only half of the object,
/// as a range if `has_ranges`.
fn answer(mut stream: TcpStream, has_ranges: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut request = String::new();
        reader
            .read_line(&mut request)
            .ok()
            .filter(|&length| length > 0)?;
        let (mut line, mut range, mut body) = (String::new(), None, 0);
        while reader.read_line(&mut line).ok()? > 2 {
            let header = line.to_lowercase();
            range = range_of(&header).or(range);
            let length = header.strip_prefix("content-length:");
            body = length.map_or(body, |length| length.trim().parse().unwrap());
            line.clear();
        }
        reader.read_exact(&mut vec![0; body]).ok()?;
        let half = LENGTH / 2;
        let part = range
            .filter(|_| has_ranges)
            .map(|(start, end)| (start, end.min(half)));
        let is_there = request.contains("/a/0 ");
        let (status, length, body) = match &request[..request.find(' ')?] {
            "HEAD" if is_there => ("200 OK", LENGTH, 0),
            "GET" if is_there && part.is_some() => {
                let length = part.map_or(0, |(start, end)| end - start);
                ("206 Partial Content", length, length)
            }
            "GET" if is_there => ("200 OK", half, half),
            "GET" if request.contains("/store/zarr.json ") => ("200 OK", 3, 3),
            "HEAD" if request.contains("/store/zarr.json ") => ("200 OK", 3, 0),
            _ => ("404 Not Found", 0, 0),
        };
        let part = part.filter(|_| status.starts_with("206"));
        let part =
            part.map(|(start, end)| format!("Content-Range: bytes {start}-{}/{half}\r\n", end - 1));
        let part = part.unwrap_or_default();
        let head =
            format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\n{part}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&vec![7; body]).ok()?;
    }
}

fn range_of(header: &str) -> Option<(usize, usize)> {
    let (start, last) = header
        .strip_prefix("range: bytes=")?
        .trim()
        .split_once('-')?;
    Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
}

/// Starts the proxy, which runs until the process ends; returns its URL.
fn serve(has_ranges: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, has_ranges));
        }
    });
    format!("http://{address}/store")
}

/// Invariant of `a_body_shorter_than_the_listed_length_is_an_error`.
#[test]
fn a_truncated_object_is_an_error() {
    for has_ranges in [false, true] {
        let (config, stats) = (StoreConfig::default(), Arc::new(Stats::default()));
        let store = zarrfs_store::open(&UNLIMITED, &serve(has_ranges), &config, &stats).unwrap();
        let key = Key::new("a/0").unwrap();
        assert_eq!(
            store.head(&UNLIMITED, &key).unwrap().unwrap().size,
            LENGTH as u64
        );
        let view = StoreView::new(store.clone());
        let file = view.open(&UNLIMITED, &key).unwrap().file;
        let errors = [
            file.read_at(&UNLIMITED, 0, LENGTH).err(),
            file.read_at(&UNLIMITED, 0, 100).err(),
            store.get(&UNLIMITED, &key, 1 << 20).err(),
            store
                .get_range(&UNLIMITED, &key, ByteRange::Span(0..100))
                .err(),
        ];
        for (place, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{place}, ranges: {has_ranges}"));
            assert_eq!(error.kind(), Kind::Unavailable, "{place}: {error}");
        }
    }
}

/// Returns the metadata of an array of 64 bytes, and its chunk or shard.
fn array(is_sharded: bool) -> (Vec<u8>, Vec<u8>) {
    let data: Vec<u8> = (1..65).collect();
    let bytes = serde_json::json!({"name": "bytes"});
    let (codec, stored) = if is_sharded {
        let index = (0..4u64).flat_map(|inner| [inner * 16, 16].map(u64::to_le_bytes));
        let sharding = serde_json::json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": [16], "codecs": [bytes], "index_codecs": [{"name": "bytes",
            "configuration": {"endian": "little"}}]}});
        (sharding, [data, index.flatten().collect()].concat())
    } else {
        (bytes, data)
    };
    let document = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [64], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [codec]
    });
    (document.to_string().into_bytes(), stored)
}

/// Starts a server behind a proxy that truncates bodies. The next GET of the path `cut` returns half of the object,
/// with that half's length and the original ETag.
fn cutting(objects: Vec<(&'static str, Vec<u8>)>, cut: Arc<Mutex<&'static str>>) -> Scripted {
    Scripted::start(move |_, request| {
        let tag = || vec![("etag", "\"x\"".to_string())];
        let found = objects.iter().find(|(path, _)| *path == request.target);
        let Some((path, bytes)) = found else {
            return plain_answer(404, b"");
        };
        let mut cut = cut.lock().unwrap();
        if request.method == "GET" && *cut == *path {
            *cut = "";
            return answer_of(request, &bytes[..bytes.len() / 2], tag());
        }
        answer_of(request, bytes, tag())
    })
}

fn kept_in(folder: &Path) -> RemoteConfig {
    RemoteConfig {
        cache_dir: Some(folder.to_path_buf()),
        cache_size: 64 << 20,
        ..RemoteConfig::default()
    }
}

/// The result of opening an array, which is an error if its metadata cannot be read.
type FoundArray = Result<Arc<OpenArray>>;

/// Opens the store at a URL as a mount does; returns a function that opens the store's array.
fn opened(url: &str, remote: RemoteConfig) -> impl Fn() -> FoundArray {
    let stats = Arc::new(Stats::default());
    let config = StoreConfig {
        disk_cache: super::fixture::cache_of(url, &remote, &stats).unwrap(),
        remote,
        ..StoreConfig::default()
    };
    let store = zarrfs_store::open(&UNLIMITED, url, &config, &stats).unwrap();
    let hierarchy = Arc::new(Hierarchy::new(store));
    let limits = Limits {
        memory: 1 << 20,
        max_chunk: 1 << 20,
        timeout: Duration::from_secs(20),
        fetches: 8,
        lossy: false,
    };
    let arrays = Arrays::new(hierarchy.clone(), Engine::new(limits, Arc::default()));
    move || arrays.open(&hierarchy.root(&UNLIMITED)?.unwrap())
}

/// Reads the whole array `turns` times through one open file. Reads that fail return `None`.
fn reads(url: &str, remote: RemoteConfig, turns: usize) -> Vec<Option<Vec<u8>>> {
    let open = opened(url, remote);
    let file = |array| FlatFile::new(array, Region::whole(&[64]));
    let mut kept = None;
    let read = |_| {
        if kept.is_none() {
            kept = open().and_then(file).ok();
        }
        let bytes = kept.as_ref()?.read(&UNLIMITED, 0..64).ok()?;
        Some(bytes[..].to_vec())
    };
    (0..turns).map(read).collect()
}

#[test]
fn a_truncated_chunk_or_shard_is_an_error_once() {
    for is_sharded in [false, true] {
        let (document, stored) = array(is_sharded);
        let objects = vec![("/zarr.json", document), ("/c/0", stored.clone())];
        let server = cutting(objects, Arc::new(Mutex::new("/c/0")));
        let expected = [None, Some(stored[..64].to_vec())];
        assert_eq!(reads(&server.url(""), RemoteConfig::default(), 2), expected);
    }
}

/// A truncated object must not be cached: the next read must be complete, on this mount or the next one.
#[test]
fn no_cache_dir_keeps_a_truncated_object() {
    let places = [(false, "/c/0"), (true, "/c/0"), (false, "/zarr.json")];
    for (is_sharded, path) in places {
        for remounts in [false, true] {
            // Skip this case: without a remount, metadata is read again only after the TTL.
            if path == "/zarr.json" && !remounts {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let (document, stored) = array(is_sharded);
            let objects = vec![("/zarr.json", document), ("/c/0", stored.clone())];
            let cut = Arc::new(Mutex::new(path));
            let server = cutting(objects, cut.clone());
            let read = |turns| reads(&server.url(""), kept_in(folder.path()), turns);
            let found = if remounts {
                [read(1), read(1), read(1)].concat()
            } else {
                read(3)
            };
            assert_eq!(*cut.lock().unwrap(), "", "nothing was cut");
            let whole = Some(stored[..64].to_vec());
            assert_eq!(
                found[1..],
                [whole.clone(), whole],
                "{path} {is_sharded} {remounts}"
            );
        }
    }
}

/// The index and the entries of an archive are read with known lengths, so a truncated answer must be noticed.
#[test]
fn no_cache_dir_keeps_a_truncated_archive() {
    for remounts in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (document, stored) = array(false);
        let entries = [
            Entry::new("zarr.json", &document),
            Entry::new("c/0", &stored),
        ];
        let cut = Arc::new(Mutex::new(""));
        let objects = vec![("/a.zip", ZipArchive::of(entries).bytes())];
        let server = cutting(objects, cut.clone());
        let url = server.url("a.zip");
        let stats = Arc::new(Stats::default());
        let remote = kept_in(folder.path());
        let open = || {
            let config = StoreConfig {
                disk_cache: super::fixture::cache_of(&url, &remote, &stats).unwrap(),
                remote: remote.clone(),
                ..StoreConfig::default()
            };
            zarrfs_store::open(&UNLIMITED, &url, &config, &stats).unwrap()
        };
        let chunk = Key::new("c/0").unwrap();
        let store = open();
        *cut.lock().unwrap() = "/a.zip";
        match store.get(&UNLIMITED, &chunk, 100) {
            Ok(found) => assert_eq!(found.unwrap().bytes, stored),
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
        assert_eq!(*cut.lock().unwrap(), "", "nothing was cut");
        let store = if remounts { open() } else { store };
        let found = store.get(&UNLIMITED, &chunk, 100).unwrap().unwrap();
        assert_eq!(found.bytes, stored);
    }
}

/// Starts a server that sends no ETags, so slowly that an answer's version expires while the array is read.
fn without_etags() -> (Scripted, Vec<u8>) {
    let (document, stored) = array(true);
    let whole = stored[..64].to_vec();
    let server = Scripted::start(move |_, request| {
        let time = "Wed, 01 Jan 2020 00:00:00 GMT".to_string();
        let headers = vec![("last-modified", time)];
        match request.target.as_str() {
            "/zarr.json" => answer_of(request, &document, headers),
            "/c/0" => {
                // Sleep for most of the 100 ms for which a version without an ETag may be used.
                thread::sleep(Duration::from_millis(60));
                answer_of(request, &stored, headers)
            }
            _ => plain_answer(404, b""),
        }
    });
    (server, whole)
}

/// With a TTL of zero, each inner chunk of the shard needs a request of its own.
#[test]
fn a_shard_without_etag_is_read_with_a_ttl_of_zero() {
    let (server, whole) = without_etags();
    let remote = RemoteConfig {
        metadata_ttl: Duration::ZERO,
        ..RemoteConfig::default()
    };
    let found = reads(&server.url(""), remote, 3);
    assert_eq!(
        found,
        [Some(whole.clone()), Some(whole.clone()), Some(whole)]
    );
}

#[test]
fn a_shard_without_etag_stays_open_beyond_the_ttl() {
    let (server, whole) = without_etags();
    let ttl = Duration::from_millis(150);
    let remote = RemoteConfig {
        metadata_ttl: ttl,
        ..RemoteConfig::default()
    };
    let array = opened(&server.url(""), remote)().unwrap();
    let shard = array.shard_file(&UNLIMITED, &[0]).unwrap().unwrap();
    for _ in 0..3 {
        thread::sleep(ttl * 2);
        assert_eq!(shard.read(&UNLIMITED, 0..64).unwrap(), whole);
    }
}
