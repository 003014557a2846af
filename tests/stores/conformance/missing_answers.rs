//! Web servers with unusual answers: missing keys without 404, missing headers, 503 and 429.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use zarr_format::error::{Error, Kind};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{ByteRange, Key, RemoteConfig, Store};

use super::odd_servers::open;
use crate::common::scripted::{Answer, Request, Scripted, answer};

const CHUNK: &[u8] = b"0123456789";

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn page() -> Answer {
    Answer {
        headers: vec![("content-type", "text/html; charset=utf-8".to_string())],
        ..answer(200, b"<!doctype html><title>Home</title>")
    }
}

fn opened(server: &Scripted, remote: RemoteConfig) -> Arc<dyn Store> {
    open(&server.url(""), Duration::from_millis(100), remote).unwrap()
}

fn errors(store: &dyn Store, name: &str) -> [Error; 4] {
    let key = key(name);
    let part = ByteRange::Span(0..1);
    [
        store.get(&UNLIMITED, &key, 100).map(drop).unwrap_err(),
        store.head(&UNLIMITED, &key).map(drop).unwrap_err(),
        store
            .get_range(&UNLIMITED, &key, part)
            .map(drop)
            .unwrap_err(),
        store.open(&UNLIMITED, &key, None).map(drop).unwrap_err(),
    ]
}

#[test]
fn a_page_sent_for_a_missing_key_is_an_error_with_advice() {
    let has_document = Arc::new(AtomicBool::new(true));
    let there = has_document.clone();
    let server = Scripted::start(move |_, request| match request.target.as_str() {
        "/zarr.json" if there.load(Ordering::SeqCst) => answer(200, b"{}"),
        "/c" => answer(200, CHUNK),
        _ => page(),
    });
    let store = opened(&server, RemoteConfig::default());
    let chunk = store.get(&UNLIMITED, &key("c"), 100).unwrap().unwrap();
    assert_eq!(chunk.bytes, CHUNK);
    let says_so = |error: &Error| error.detail().contains("configure the server to send 404");
    for error in errors(&*store, "d") {
        assert!(
            error.kind() == Kind::Unavailable && says_so(&error),
            "{error}"
        );
    }
    has_document.store(false, Ordering::SeqCst);
    let error = open(&server.url(""), Duration::ZERO, RemoteConfig::default());
    let error = error.err().unwrap();
    assert!(says_so(&error), "{error}");
}

/// Flask sends the content type of HTML by default, so such an answer may be an object.
#[test]
fn objects_typed_as_html_are_read_if_missing_keys_are_404() {
    let (sends_pages, is_busy) = (AtomicBool::new(false), AtomicBool::new(false));
    let switches = Arc::new([sends_pages, is_busy]);
    let state = switches.clone();
    let server = Scripted::start(move |_, request| match request.target.as_str() {
        "/zarr.json" | "/c" => Answer {
            body: CHUNK.to_vec(),
            ..page()
        },
        _ if state[0].load(Ordering::SeqCst) => page(),
        _ if state[1].load(Ordering::SeqCst) => answer(500, b""),
        _ => answer(404, b""),
    });
    let store = opened(&server, RemoteConfig::default());
    let chunk = store.get(&UNLIMITED, &key("c"), 100).unwrap().unwrap();
    assert_eq!(chunk.bytes, CHUNK);
    assert_eq!(store.head(&UNLIMITED, &key("c")).unwrap().unwrap().size, 10);
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 2, 3).unwrap(), b"234");
    assert!(store.get(&UNLIMITED, &key("d"), 100).unwrap().is_none());
    for switch in &*switches {
        switch.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        let error = store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        switch.store(false, Ordering::SeqCst);
    }
}

#[test]
fn an_odd_status_of_missing_keys_is_named_with_advice() {
    for status in [400, 410, 500] {
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            _ => answer(status, b""),
        });
        let remote = RemoteConfig {
            timeout: Duration::from_secs(2),
            ..RemoteConfig::default()
        };
        let store = opened(&server, remote.clone());
        let error = store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err();
        let text = error.detail();
        assert!(text.contains(&status.to_string()), "{error}");
        assert!(text.contains("configure the server to send 404"), "{error}");
        assert_eq!(text.contains("--missing-is"), status < 500, "{error}");
        if status < 500 {
            let known = RemoteConfig {
                missing_is: Some(status),
                ..remote
            };
            let store = opened(&server, known);
            assert!(store.get(&UNLIMITED, &key("c"), 100).unwrap().is_none());
        }
    }
}

/// Answers range requests for `c` without the object's total length in Content-Range.
fn part(request: &Request) -> Answer {
    let Some(range) = request.header("range").strip_prefix("bytes=") else {
        return answer(200, CHUNK);
    };
    let (first, last) = range.split_once('-').unwrap();
    let (first, end) = match first.parse::<usize>() {
        Ok(first) => (first, last.parse::<usize>().map_or(10, |last| last + 1)),
        Err(_) => (10 - last.parse::<usize>().unwrap(), 10),
    };
    Answer {
        headers: vec![("content-range", format!("bytes {first}-{}/*", end - 1))],
        ..answer(206, &CHUNK[first..end])
    }
}

#[test]
fn parts_of_objects_of_unknown_length_are_read() {
    for knows_heads in [true, false] {
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            "/c" if request.method == "HEAD" && !knows_heads => answer(405, b""),
            "/c" => part(request),
            _ => answer(404, b""),
        });
        let store = opened(&server, RemoteConfig::default());
        for (range, expected) in [
            (ByteRange::Span(2..5), &CHUNK[2..5]),
            (ByteRange::Suffix(3), &CHUNK[7..]),
        ] {
            let found = store.get_range(&UNLIMITED, &key("c"), range);
            let found = found.unwrap().unwrap();
            assert_eq!((found.bytes.as_slice(), found.size), (expected, 10));
        }
        assert_eq!(store.head(&UNLIMITED, &key("c")).unwrap().unwrap().size, 10);
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 4, 100).unwrap(), &CHUNK[4..]);
    }
}

/// Starts a server that is busy (`status`) at its first request for `c`. It has a web folder and a bucket.
fn busy(status: u16, pause: impl Fn() -> String + Send + Sync + 'static) -> Scripted {
    let asked = AtomicUsize::new(0);
    Scripted::start(move |_, request| {
        let object = |body: &[u8]| Answer {
            headers: vec![
                ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
                ("etag", "\"1\"".to_string()),
            ],
            ..answer(200, body)
        };
        let path = request.target.split('?').next().unwrap_or_default();
        match path.trim_start_matches("/b") {
            "/zarr.json" => object(b"{}"),
            "/c" if asked.fetch_add(1, Ordering::SeqCst) == 0 => Answer {
                headers: vec![("retry-after", pause())],
                ..answer(status, b"")
            },
            "/c" => object(CHUNK),
            "" | "/" => answer(403, b""),
            _ => answer(404, b""),
        }
    })
}

fn open_busy(server: &Scripted, is_bucket: bool) -> Arc<dyn Store> {
    let remote = RemoteConfig {
        anonymous: true,
        endpoint: is_bucket.then(|| format!("http://{}", server.address)),
        timeout: Duration::from_secs(8),
        ..RemoteConfig::default()
    };
    let url = if is_bucket {
        "s3://b".to_string()
    } else {
        server.url("")
    };
    open(&url, Duration::ZERO, remote).unwrap()
}

#[test]
fn a_retry_waits_as_long_as_retry_after_says() {
    let in_three_seconds = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3));
    for is_bucket in [false, true] {
        for server in [busy(503, || "2".to_string()), busy(429, in_three_seconds)] {
            let store = open_busy(&server, is_bucket);
            let start = Instant::now();
            let found = store.get(&UNLIMITED, &key("c"), 100).unwrap().unwrap();
            assert_eq!(found.bytes, CHUNK);
            // The wait may be almost a second shorter than asked for, because an HTTP date has no fractions of a
            // second.
            assert!(
                start.elapsed() >= Duration::from_millis(1900),
                "{is_bucket}"
            );
        }
    }
}

#[test]
fn a_retry_after_beyond_the_timeout_is_not_retried() {
    for is_bucket in [false, true] {
        let server = busy(503, || "3600".to_string());
        let store = open_busy(&server, is_bucket);
        let error = store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.detail().contains("503"), "{error}");
        let requests = server.requests.lock().unwrap();
        let asked = requests.iter().filter(|one| one.target.ends_with("/c"));
        assert_eq!(asked.count(), 1, "{is_bucket}");
    }
}
