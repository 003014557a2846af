//! A web server behind a proxy that keeps half of each body and says that this is all, under the same ETag.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use zarrfs::array::flat_file::FlatFile;
use zarrfs::array::{Arrays, Engine, Limits};
use zarrfs::error::Kind;
use zarrfs::grid::Region;
use zarrfs::hierarchy::Hierarchy;
use zarrfs::request_context::UNLIMITED;
use zarrfs::stats::Stats;
use zarrfs::store::{ByteRange, Key, StoreConfig};
use zarrfs::view::View;
use zarrfs::view::store::StoreView;

use crate::scripted::{Answer, Request, Scripted, answer as plain_answer};

const LENGTH: usize = 1000;

/// Answers requests of one connection: a HEAD with the length of the object, a GET with half of it, as a part where a
/// part is asked for and `has_ranges`.
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

/// Returns begin and end of the range that a header names.
fn range_of(header: &str) -> Option<(usize, usize)> {
    let (start, last) = header
        .strip_prefix("range: bytes=")?
        .trim()
        .split_once('-')?;
    Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
}

/// Serves until the test ends; returns the URL.
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

#[test]
fn c05_half_an_object_is_an_error_and_never_the_file() {
    for has_ranges in [false, true] {
        let (config, stats) = (StoreConfig::default(), Arc::new(Stats::default()));
        let store = zarrfs::store::open(&UNLIMITED, &serve(has_ranges), &config, &stats).unwrap();
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

/// Answers a request for `bytes`, or for a part of them.
fn answer_of(request: &Request, bytes: &[u8]) -> Answer {
    // By which it is known that a part comes alone, so that a shard is opened by its index.
    let parts = ("accept-ranges", "bytes".to_string());
    let tag = ("etag", "\"x\"".to_string());
    let Some(range) = request.header("range").strip_prefix("bytes=") else {
        let headers = vec![tag, parts];
        return Answer {
            headers,
            ..plain_answer(200, bytes)
        };
    };
    let (start, last) = range.split_once('-').unwrap();
    let number = |text: &str| text.parse::<usize>().unwrap();
    let part = match start {
        "" => bytes.len().saturating_sub(number(last))..bytes.len(),
        start => number(start)..bytes.len().min(number(last) + 1),
    };
    let range = format!("bytes {}-{}/{}", part.start, part.end - 1, bytes.len());
    Answer {
        headers: vec![tag, parts, ("content-range", range)],
        ..plain_answer(206, &bytes[part])
    }
}

#[test]
fn half_a_chunk_or_shard_is_an_error_once() {
    let data: Vec<u8> = (1..65).collect();
    let index = (0..4u64).flat_map(|inner| [inner * 16, 16].map(u64::to_le_bytes));
    let shard = [data.clone(), index.flatten().collect()].concat();
    let bytes = serde_json::json!({"name": "bytes"});
    let sharding = serde_json::json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [16], "codecs": [bytes], "index_codecs": [{"name": "bytes",
        "configuration": {"endian": "little"}}]}});
    for (codec, stored) in [(bytes, data.clone()), (sharding, shard)] {
        let document = serde_json::json!({
            "zarr_format": 3, "node_type": "array", "shape": [64], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [codec]
        });
        let document = document.to_string().into_bytes();
        let is_cut = AtomicBool::new(true);
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/zarr.json" => answer_of(request, &document),
            "/c/0" if request.method == "GET" && is_cut.swap(false, Ordering::SeqCst) => {
                answer_of(request, &stored[..stored.len() / 2])
            }
            "/c/0" => answer_of(request, &stored),
            _ => plain_answer(404, b""),
        });
        let stats = Arc::new(Stats::default());
        let store =
            zarrfs::store::open(&UNLIMITED, &server.url(""), &StoreConfig::default(), &stats)
                .unwrap();
        let hierarchy = Arc::new(Hierarchy::new(store));
        let root = hierarchy.root(&UNLIMITED).unwrap().unwrap();
        let limits = Limits {
            memory: 1 << 20,
            max_chunk: 1 << 20,
            timeout: Duration::from_secs(20),
            fetches: 8,
            lossy: false,
        };
        let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
        let file = FlatFile::new(arrays.open(&root).unwrap(), Region::whole(&[64])).unwrap();
        let error = file.read(&UNLIMITED, 0..64).err().unwrap();
        assert!(
            matches!(error.kind(), Kind::Corrupt | Kind::Unavailable),
            "{error}"
        );
        assert_eq!(file.read(&UNLIMITED, 0..64).unwrap()[..], data[..]);
    }
}
