//! Servers that omit headers, or answer in unusual ways.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zarr_format::error::{Kind, Result};
use zarrfs_store::stats::Stats;
use zarrfs_store::{
    ByteRange, Condition, EntryKind, Key, PutBody, RemoteConfig, Store, StoreConfig,
};

use crate::common::scripted::{Answer, Request, Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

const TTL: Duration = Duration::from_secs(1);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Opens the store at a URL; `ttl` is the TTL of its metadata.
pub(crate) fn open(url: &str, ttl: Duration, remote: RemoteConfig) -> Result<Arc<dyn Store>> {
    let stats = Arc::new(Stats::default());
    let remote = RemoteConfig {
        metadata_ttl: ttl,
        ..remote
    };
    let config = StoreConfig {
        disk_cache: super::fixture::cache_of(url, &remote, &stats)?,
        remote,
        ..StoreConfig::default()
    };
    zarrfs_store::open(&UNLIMITED, url, &config, &stats)
}

/// Starts a server without ETag and Last-Modified. It has `zarr.json`, and `c` with the same letter four times.
fn without_validators(letter: Arc<AtomicU8>) -> Scripted {
    Scripted::start(move |_, request| match request.target.as_str() {
        "/zarr.json" => answer(200, b"{}"),
        "/c" => answer(200, &[letter.load(Ordering::SeqCst); 4]),
        _ => answer(404, b""),
    })
}

fn read(store: &Arc<dyn Store>) -> Vec<u8> {
    store
        .get(&UNLIMITED, &key("c"), 100)
        .unwrap()
        .unwrap()
        .bytes
}

fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(bytes_below(&entry.path()))
        } else {
            found.extend(std::fs::read(entry.path()).unwrap())
        }
    }
    found
}

/// Invariant of `without_root_metadata_a_missing_key_is_an_error`.
#[test]
fn a_deleted_web_folder_is_an_error_and_not_empty() {
    let is_there = Arc::new(AtomicBool::new(true));
    let there = is_there.clone();
    let page =
        b"<html><title>Index of /</title><body><a href=\"zarr.json\">zarr.json</a></body></html>";
    let server = Scripted::start(move |_, request| match request.target.as_str() {
        _ if !there.load(Ordering::SeqCst) => answer(404, b""),
        "/" if request.method != "PROPFIND" => Answer {
            headers: vec![("Content-Type", "text/html".to_string())],
            ..answer(200, page)
        },
        "/zarr.json" => answer(200, b"{}"),
        _ => answer(404, b""),
    });
    let ttl = Duration::from_millis(50);
    let store = open(&server.url(""), ttl, RemoteConfig::default()).unwrap();
    let names = || {
        store
            .list(&UNLIMITED, &Key::root())
            .and_then(|mut names| names.next(&UNLIMITED))
    };
    assert_eq!(names().unwrap().unwrap().name, b"zarr.json");
    is_there.store(false, Ordering::SeqCst);
    thread::sleep(ttl * 4);
    let error = names().unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    is_there.store(true, Ordering::SeqCst);
    thread::sleep(ttl * 4);
    assert_eq!(names().unwrap().unwrap().name, b"zarr.json");
}

#[test]
fn a_change_of_the_same_size_is_seen_without_validators() {
    let (letter, folder) = (Arc::new(AtomicU8::new(b'a')), tempfile::tempdir().unwrap());
    let server = without_validators(letter.clone());
    let url = server.url("");
    let remote = RemoteConfig {
        cache_dir: Some(folder.path().to_path_buf()),
        cache_size: 64 << 20,
        ..RemoteConfig::default()
    };
    let store = open(&url, TTL, remote.clone()).unwrap();
    assert_eq!(read(&store), b"aaaa");
    let version = store.version(&UNLIMITED, &key("c")).unwrap().unwrap();
    assert_eq!(store.version(&UNLIMITED, &key("c")).unwrap(), Some(version));
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    letter.store(b'b', Ordering::SeqCst);
    thread::sleep(TTL + Duration::from_millis(200));
    assert_ne!(store.version(&UNLIMITED, &key("c")).unwrap(), Some(version));
    assert_eq!(read(&store), b"bbbb");
    assert_eq!(
        reader.read_at(&UNLIMITED, 0, 4).unwrap(),
        b"bbbb",
        "still readable"
    );
    assert!(
        !bytes_below(folder.path())
            .windows(4)
            .any(|part| part == b"bbbb")
    );
    letter.store(b'c', Ordering::SeqCst);
    let for_ever = Duration::from_secs(1 << 40);
    assert_eq!(read(&open(&url, for_ever, remote).unwrap()), b"cccc");
    let requests = server.requests.lock().unwrap();
    let fetched = requests
        .iter()
        .filter(|request| request.target == "/c" && request.method == "GET");
    assert!(fetched.count() >= 4, "each read is a request");
}

/// The server sends an empty ETag, and the object is replaced by one with the same length and Last-Modified.
#[test]
fn an_object_with_an_empty_etag_is_stale_after_the_ttl() {
    for tag in ["", "\"\"", "W/\"\"", "\" \""] {
        let (letter, folder) = (Arc::new(AtomicU8::new(b'a')), tempfile::tempdir().unwrap());
        let now = letter.clone();
        let server = Scripted::start(move |_, request| {
            let time = "Wed, 01 Jan 2020 00:00:00 GMT".to_string();
            let headers = vec![("etag", tag.to_string()), ("last-modified", time)];
            match request.target.as_str() {
                "/zarr.json" => answer(200, b"{}"),
                "/c" => Answer {
                    headers,
                    ..answer(200, &[now.load(Ordering::SeqCst); 4])
                },
                _ => answer(404, b""),
            }
        });
        let url = server.url("");
        let remote = RemoteConfig {
            cache_dir: Some(folder.path().to_path_buf()),
            cache_size: 64 << 20,
            ..RemoteConfig::default()
        };
        let store = open(&url, TTL, remote.clone()).unwrap();
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        assert_eq!(read(&store), b"aaaa", "{tag}");
        assert_eq!(reader.read_at(&UNLIMITED, 0, 4).unwrap(), b"aaaa", "{tag}");
        let etag = store.etag(&UNLIMITED, &key("c")).unwrap().unwrap();
        assert!(etag.text.starts_with("modified "), "{}", etag.text);
        letter.store(b'b', Ordering::SeqCst);
        thread::sleep(TTL + Duration::from_millis(200));
        assert_eq!(read(&store), b"bbbb", "{tag}");
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 0, 4).unwrap(), b"bbbb", "{tag}");
        letter.store(b'c', Ordering::SeqCst);
        let remounted = open(&url, Duration::from_secs(1 << 40), remote).unwrap();
        assert_eq!(read(&remounted), b"cccc", "{tag}");
    }
}

#[test]
fn a_body_with_a_content_encoding_is_an_error() {
    let server = Scripted::start(|_, request| match request.target.as_str() {
        "/zarr.json" => answer(200, b"{}"),
        "/c" => Answer {
            headers: vec![("content-encoding", "gzip".to_string())],
            ..answer(200, b"packed")
        },
        _ => answer(404, b""),
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    let error = store.get(&UNLIMITED, &key("c"), 100).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.detail().contains("Content-Encoding: gzip"), "{error}");
}

#[test]
fn answers_without_a_length_are_read() {
    let server = Scripted::start(|_, request| {
        let found = match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            "/c" => answer(200, b"chunk"),
            _ => answer(404, b""),
        };
        Answer {
            hides_length: true,
            ..found
        }
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    assert_eq!(read(&store), b"chunk");
    assert_eq!(store.head(&UNLIMITED, &key("c")).unwrap().unwrap().size, 5);
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 1, 10).unwrap(), b"hunk");
    assert_eq!(store.head(&UNLIMITED, &key("d")).unwrap(), None);
}

#[test]
fn a_no_content_status_is_an_error_and_not_an_empty_object() {
    for status in [204, 205] {
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            "/c" => answer(status, b""),
            _ => answer(404, b""),
        });
        let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
        for error in [
            store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err(),
            store.head(&UNLIMITED, &key("c")).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        }
    }
}

/// If 416 were taken as a missing key, the chunk would be read as the fill value.
#[test]
fn a_416_to_a_request_without_a_range_is_an_error() {
    let server = Scripted::start(|_, request| match request.target.as_str() {
        "/zarr.json" => answer(200, b"{}"),
        "/c" => answer(416, b""),
        _ => answer(404, b""),
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    for error in [
        store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err(),
        store.head(&UNLIMITED, &key("c")).map(drop).unwrap_err(),
        store
            .open(&UNLIMITED, &key("c"), None)
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
}

#[test]
fn a_mount_retries_a_busy_server() {
    let start = Instant::now();
    let ready = move |_, request: &Request| match (
        start.elapsed() < Duration::from_secs(2),
        &*request.target,
    ) {
        (true, _) => answer(503, b""),
        (false, "/zarr.json") => answer(200, b"{}"),
        (false, _) => answer(404, b""),
    };
    open(
        &Scripted::start(ready).url(""),
        TTL,
        RemoteConfig::default(),
    )
    .unwrap();
    let start = Instant::now();
    let remote = RemoteConfig {
        timeout: Duration::from_secs(1),
        ..RemoteConfig::default()
    };
    let error = open(
        &Scripted::start(|_, _| answer(503, b"")).url(""),
        TTL,
        remote,
    )
    .err()
    .unwrap();
    assert!(error.detail().contains("503"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Starts a server with a bucket `b` that has only a folder marker, `a/`.
fn with_marker() -> Scripted {
    Scripted::start(|_, request| {
        let marker = "<Contents><Key>a/</Key><Size>0</Size><ETag>\"1\"</ETag>\
            <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>";
        let below = "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>";
        let lists = request.target.contains("list-type=2");
        if !lists {
            return answer(404, b"");
        }
        let names = match request.target.split_once("prefix=") {
            Some((_, prefix)) if prefix.starts_with("a%2F") || prefix.starts_with("a/") => marker,
            Some(_) => "",
            None => below,
        };
        let xml =
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{names}</ListBucketResult>");
        answer(200, xml.as_bytes())
    })
}

#[test]
fn a_folder_with_only_its_marker_object_is_empty() {
    let server = with_marker();
    let remote = RemoteConfig {
        anonymous: true,
        endpoint: Some(format!("http://{}", server.address)),
        ..RemoteConfig::default()
    };
    let store = open("s3://b", TTL, remote).unwrap();
    let first = store
        .list(&UNLIMITED, &Key::root())
        .unwrap()
        .next(&UNLIMITED)
        .unwrap()
        .unwrap();
    assert_eq!(
        (&first.name[..], first.kind),
        (&b"a"[..], EntryKind::Directory)
    );
    let meta = store.head(&UNLIMITED, &key("a")).unwrap().unwrap();
    assert_eq!(meta.kind, EntryKind::Directory);
    assert_eq!(
        store
            .list(&UNLIMITED, &key("a"))
            .unwrap()
            .next(&UNLIMITED)
            .unwrap(),
        None
    );
    let error = store.list(&UNLIMITED, &key("c")).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
}

/// Invariant of `errors_of_undecodable_chunks_name_the_key`.
#[test]
fn a_lost_object_is_an_error_and_not_a_missing_chunk() {
    let elsewhere = Scripted::start(|_, _| answer(404, b""));
    let (moved, lost) = (elsewhere.url("other/a/moved"), elsewhere.url("blobs/5fe1"));
    let server = Scripted::start(move |_, request| {
        let sent_to = |place: &str| Answer {
            headers: vec![("location", place.to_string())],
            ..answer(302, b"")
        };
        match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            "/a/gone" => answer(410, b""),
            "/a/moved" => sent_to(&moved),
            "/a/lost" => sent_to(&lost),
            "/a/page" => sent_to("/404.html"),
            _ => answer(404, b""),
        }
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    for missing in ["a/none", "a/moved", "a/page"] {
        assert!(
            store.get(&UNLIMITED, &key(missing), 100).unwrap().is_none(),
            "{missing}"
        );
        assert!(
            store.version(&UNLIMITED, &key(missing)).unwrap().is_none(),
            "{missing}"
        );
    }
    for (name, why) in [
        ("a/gone", "was deleted from the server (410)"),
        (
            "a/lost",
            "to another server, which does not have the object (404)",
        ),
    ] {
        let read = store.get(&UNLIMITED, &key(name), 100).map(drop);
        let part = store
            .get_range(&UNLIMITED, &key(name), ByteRange::Suffix(1))
            .map(drop);
        for asked in [read, part, store.version(&UNLIMITED, &key(name)).map(drop)] {
            let error = asked.unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

/// If HTTP errors other than 404 were taken as a missing key, the chunk would be read as the fill value.
#[test]
fn other_refusals_than_404_are_errors() {
    for status in [400, 402, 405, 409, 410, 418, 451] {
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/zarr.json" => answer(200, b"{}"),
            "/c" => answer(status, b""),
            _ => answer(404, b""),
        });
        let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
        for error in [
            store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err(),
            store.head(&UNLIMITED, &key("c")).map(drop).unwrap_err(),
            store
                .open(&UNLIMITED, &key("c"), None)
                .map(drop)
                .unwrap_err(),
        ] {
            assert!(error.detail().contains(&status.to_string()), "{error}");
        }
        assert!(store.get(&UNLIMITED, &key("d"), 100).unwrap().is_none());
    }
}

#[test]
fn a_folder_whose_index_is_refused_is_not_missing() {
    let page = b"<html><title>Index of /</title><a href=\"zarr.json\">zarr.json</a></html>";
    let refusal = Arc::new(AtomicU16::new(404));
    let status = refusal.clone();
    let server = Scripted::start(move |_, request| match request.target.as_str() {
        "/" if request.method != "PROPFIND" => Answer {
            headers: vec![("Content-Type", "text/html".to_string())],
            ..answer(200, page)
        },
        "/a/" => answer(status.load(Ordering::SeqCst), b""),
        _ => answer(404, b""),
    });
    let store = open(&server.url(""), Duration::ZERO, RemoteConfig::default()).unwrap();
    assert_eq!(store.head(&UNLIMITED, &key("b")).unwrap(), None);
    refusal.store(405, Ordering::SeqCst);
    assert!(store.head(&UNLIMITED, &key("a")).is_err());
}

#[test]
fn an_object_for_which_head_says_404_is_read() {
    let server =
        Scripted::start(
            |_, request| match (request.method.as_str(), request.target.as_str()) {
                ("GET", "/zarr.json") => answer(200, b"{}"),
                ("GET", "/c") => answer(200, b"chunk"),
                _ => answer(404, b""),
            },
        );
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    assert_eq!(store.head(&UNLIMITED, &key("d")).unwrap(), None);
    assert_eq!(store.head(&UNLIMITED, &key("c")).unwrap().unwrap().size, 5);
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 0, 5).unwrap(), b"chunk");
}

/// Starts a server with a bucket that cannot be listed and whose objects can be read, like most public data. When
/// `closed`, it refuses all reads.
fn unlisted(closed: Arc<AtomicBool>) -> Scripted {
    Scripted::start(move |_, request| {
        let path = request.target.split('?').next().unwrap_or_default();
        match path {
            "/b/.zgroup" | "/b/a/0" if !closed.load(Ordering::SeqCst) => Answer {
                headers: vec![
                    ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
                    ("etag", "\"1\"".to_string()),
                ],
                ..answer(200, b"{}")
            },
            _ => answer(403, b"<Error><Code>AccessDenied</Code></Error>"),
        }
    })
}

#[test]
fn a_403_of_a_bucket_that_does_not_list_is_a_missing_key() {
    let closed = Arc::new(AtomicBool::new(false));
    let server = unlisted(closed.clone());
    let remote = || RemoteConfig {
        anonymous: true,
        endpoint: Some(format!("http://{}", server.address)),
        ..RemoteConfig::default()
    };
    let store = open("s3://b", Duration::ZERO, remote()).unwrap();
    assert!(!store.info().lists);
    assert!(store.get(&UNLIMITED, &key("a/0"), 100).unwrap().is_some());
    for missing in ["zarr.json", "a/1"] {
        assert!(store.get(&UNLIMITED, &key(missing), 100).unwrap().is_none());
        let part = store.get_range(&UNLIMITED, &key(missing), ByteRange::Span(0..1));
        assert!(part.unwrap().is_none());
        assert!(store.head(&UNLIMITED, &key(missing)).unwrap().is_none());
        assert!(store.version(&UNLIMITED, &key(missing)).unwrap().is_none());
    }
    let reader = store.open(&UNLIMITED, &key("a/0"), None).unwrap();
    closed.store(true, Ordering::SeqCst);
    for refused in ["a/0", "a/1"] {
        let error = store
            .get(&UNLIMITED, &key(refused), 100)
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{refused}: {error}");
    }
    let error = reader.read_at(&UNLIMITED, 0, 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    let error = open("s3://b", TTL, remote()).err().unwrap();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
}

/// Starts a server that answers requests for missing keys with 403. It has a bucket and a web folder with `a` and
/// `.zgroup`; `is_removed` removes `a`.
fn refusing(is_removed: Arc<AtomicBool>) -> Scripted {
    Scripted::start(move |_, request| {
        let path = request.target.split('?').next().unwrap_or_default();
        match path.trim_start_matches("/b") {
            "/a" if is_removed.load(Ordering::SeqCst) => answer(403, b""),
            "/.zgroup" | "/a" => Answer {
                headers: vec![
                    ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
                    ("etag", "\"1\"".to_string()),
                ],
                ..answer(200, b"{}")
            },
            _ => answer(403, b""),
        }
    })
}

/// Returns the URLs of a server's bucket and of its web folder, with the options to open them.
fn as_bucket_and_folder(server: &Scripted) -> [(String, RemoteConfig); 2] {
    let bucket = RemoteConfig {
        anonymous: true,
        endpoint: Some(format!("http://{}", server.address)),
        ..RemoteConfig::default()
    };
    let folder = (server.url(""), RemoteConfig::default());
    [("s3://b".to_string(), bucket), folder]
}

#[test]
fn a_removed_open_object_has_changed_if_missing_keys_are_403() {
    let is_removed = Arc::new(AtomicBool::new(false));
    let server = refusing(is_removed.clone());
    for (url, remote) in as_bucket_and_folder(&server) {
        is_removed.store(false, Ordering::SeqCst);
        let store = open(&url, Duration::ZERO, remote).unwrap();
        let reader = store.open(&UNLIMITED, &key("a"), None).unwrap();
        is_removed.store(true, Ordering::SeqCst);
        let error = reader.read_at(&UNLIMITED, 0, 1).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{url}: {error}");
    }
}

#[test]
fn a_status_given_by_missing_is_takes_one_request_per_key() {
    let server = refusing(Arc::default());
    for (url, remote) in as_bucket_and_folder(&server) {
        for missing_is in [None, Some(403)] {
            let remote = RemoteConfig {
                missing_is,
                ..remote.clone()
            };
            let ttl = Duration::from_secs(60);
            let store = open(&url, ttl, remote).unwrap();
            let asked = || server.requests.lock().unwrap().len();
            let before = asked();
            for number in 0..5 {
                let missing = store.get(&UNLIMITED, &key(&format!("c/{number}")), 100);
                assert!(missing.unwrap().is_none(), "{url}");
            }
            let made = asked() - before;
            assert_eq!(made == 5, missing_is.is_some(), "{url}: {made} requests");
        }
    }
}

/// If the server refuses the root's metadata document as well, 403 does not mean that a key is missing.
#[test]
fn a_store_that_refuses_its_root_too_has_no_missing_keys() {
    let closed = Arc::new(AtomicBool::new(false));
    let server = unlisted(closed.clone());
    let remote = RemoteConfig {
        anonymous: true,
        endpoint: Some(format!("http://{}", server.address)),
        missing_is: Some(403),
        ..RemoteConfig::default()
    };
    let store = open("s3://b", Duration::from_millis(100), remote).unwrap();
    assert!(
        store
            .get(&UNLIMITED, &key(".zgroup"), 100)
            .unwrap()
            .is_some()
    );
    assert!(store.get(&UNLIMITED, &key("a/1"), 100).unwrap().is_none());
    closed.store(true, Ordering::SeqCst);
    thread::sleep(Duration::from_millis(1200));
    let error = store.get(&UNLIMITED, &key("a/0"), 100).map(drop);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
}

/// If no metadata document is found, nothing shows that 403 may mean a missing key.
#[test]
fn a_403_that_may_mean_missing_names_the_option_missing_is() {
    let server = Scripted::start(|_, request| match request.target.as_str() {
        "/s/" => answer(403, b""),
        "/s" => Answer {
            headers: vec![("location", "/s/".to_string())],
            ..answer(301, b"")
        },
        "/s/c" => answer(403, b""),
        _ => answer(404, b""),
    });
    let url = server.url("s/");
    let Ok(store) = open(&url, TTL, RemoteConfig::default()) else {
        panic!("is not opened")
    };
    let error = store.get(&UNLIMITED, &key("c"), 100).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.detail().contains("--missing-is 403"), "{error}");
    let known = RemoteConfig {
        missing_is: Some(403),
        ..RemoteConfig::default()
    };
    let store = open(&url, TTL, known).unwrap();
    assert!(store.get(&UNLIMITED, &key("c"), 100).unwrap().is_none());
}

/// The server does not support conditional requests, so the client looks for the key before the put.
#[test]
fn a_missing_key_that_a_bucket_answers_with_403_can_be_put() {
    let stored = Arc::new(AtomicBool::new(false));
    let has_chunk = stored.clone();
    let server = Scripted::start(move |_, request| {
        let has_condition = ["if-match", "if-none-match"]
            .iter()
            .any(|name| !request.header(name).is_empty());
        let path = request.target.split('?').next().unwrap_or_default();
        let object = || Answer {
            headers: vec![
                ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
                ("etag", "\"1\"".to_string()),
            ],
            ..answer(200, b"{}")
        };
        match (request.method.as_str(), path) {
            ("PUT", _) if has_condition => answer(501, b""),
            ("PUT", "/b/c") => {
                stored.store(true, Ordering::SeqCst);
                object()
            }
            ("DELETE", _) => answer(204, b""),
            ("GET" | "HEAD", "/b/.zgroup") => object(),
            ("GET" | "HEAD", "/b/c") if stored.load(Ordering::SeqCst) => object(),
            _ => answer(403, b""),
        }
    });
    let [(url, remote), _] = as_bucket_and_folder(&server);
    let store = open(&url, Duration::ZERO, remote).unwrap();
    let put = || {
        let body = PutBody::Bytes(b"{}");
        let put = store.put(&UNLIMITED, &key("c"), body, &Condition::Absent);
        put.map(drop)
    };
    put().unwrap();
    assert!(has_chunk.load(Ordering::SeqCst));
    let error = put().unwrap_err();
    assert!(
        matches!(error.kind(), Kind::Changed | Kind::Exists),
        "{error}"
    );
}
