//! Replicated servers with different ETags for one content, and servers that replace an object.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zarr_format::error::Kind;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, RemoteConfig, Store, StoreConfig};

use super::odd_servers::open;
use crate::common::scripted::{Scripted, answer, answer_of};
use crate::common::zip_writer::{Archive, Entry};

const TTL: Duration = Duration::from_millis(300);

const LENGTH: usize = 300_000;

/// What the object `c` contains: the same letter throughout.
#[derive(Clone, Copy)]
struct Content {
    letter: u8,
    /// The second in the object's Last-Modified header.
    second: u32,
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Starts a server with an object. `state` returns the object's content and ETag for the answer with a given number.
fn server(state: impl Fn(usize) -> (Content, String) + Send + Sync + 'static) -> Scripted {
    let answers = AtomicUsize::new(0);
    Scripted::start(move |_, request| match request.target.as_str() {
        "/zarr.json" => answer(200, b"{}"),
        "/c" => {
            let (content, tag) = state(answers.fetch_add(1, Ordering::SeqCst));
            let time = format!("Wed, 01 Jan 2020 00:00:{:02} GMT", content.second);
            let headers = vec![("etag", tag), ("last-modified", time)];
            answer_of(request, &[content.letter; LENGTH], headers)
        }
        _ => answer(404, b""),
    })
}

/// Starts a server with `count` replicas, which answer in turn and have their own ETags.
fn replicas(count: usize, now: Arc<Mutex<Content>>) -> Scripted {
    server(move |number| {
        let content = *now.lock().unwrap();
        let tag = format!("\"{}-{}\"", number % count, content.second);
        (content, tag)
    })
}

/// Reads the whole object `c` in several requests through one reader.
fn read_all(store: &Arc<dyn Store>) -> Vec<u8> {
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    let parts = (0..LENGTH).step_by(10_000);
    let parts = parts.map(|at| reader.read_at(&UNLIMITED, at as u64, 10_000).unwrap());
    parts.collect::<Vec<_>>().concat()
}

fn opened(url: &str, cache: &Path) -> (Arc<dyn Store>, Arc<Stats>) {
    let stats = Arc::new(Stats::default());
    let remote = RemoteConfig {
        metadata_ttl: TTL,
        cache_dir: Some(cache.to_path_buf()),
        cache_size: 64 << 20,
        ..RemoteConfig::default()
    };
    let config = StoreConfig {
        disk_cache: super::fixture::cache_of(url, &remote, &stats).unwrap(),
        remote,
        ..StoreConfig::default()
    };
    let store = zarrfs_store::open(&UNLIMITED, url, &config, &stats).unwrap();
    (store, stats)
}

#[test]
fn etags_that_differ_by_replica_are_reported_once_and_ignored() {
    for count in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(Mutex::new(Content {
            letter: b'a',
            second: 1,
        }));
        let server = replicas(count, now.clone());
        let (store, stats) = opened(&server.url(""), folder.path());
        assert!(read_all(&store) == [b'a'; LENGTH], "{count} servers");
        assert!(read_all(&store) == [b'a'; LENGTH], "{count} servers");
        let failures = stats.failures.to_text();
        assert_eq!(failures.lines().count(), 1, "{failures}");
        assert!(failures.contains("sends different ETags for the same content"));
        let etag = store.etag(&UNLIMITED, &key("c")).unwrap().unwrap();
        assert!(etag.text.starts_with("modified "), "{}", etag.text);
        // An object with another Last-Modified is another content, for an open reader and for a read after the TTL.
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        *now.lock().unwrap() = Content {
            letter: b'b',
            second: 2,
        };
        let error = reader.read_at(&UNLIMITED, 0, 10).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
        thread::sleep(TTL * 2);
        assert!(read_all(&store) == [b'b'; LENGTH], "{count} servers");
        let (store, _) = opened(&server.url(""), folder.path());
        assert!(read_all(&store) == [b'b'; LENGTH], "{count} servers");
    }
}

/// If an object is replaced within a second by one of the same length, only its ETag changes.
#[test]
fn an_object_replaced_within_a_second_is_changed_by_its_etag() {
    let now = Arc::new(Mutex::new(b'a'));
    let letter = now.clone();
    let server = server(move |_| {
        let letter = *letter.lock().unwrap();
        (Content { letter, second: 1 }, format!("\"{letter}\""))
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 0, 4).unwrap(), b"aaaa");
    *now.lock().unwrap() = b'b';
    for _ in 0..3 {
        let error = reader.read_at(&UNLIMITED, 4, 4).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
    }
    let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 0, 4).unwrap(), b"bbbb");
    let version = store.version(&UNLIMITED, &key("c")).unwrap().unwrap();
    assert!(version.is_lasting());
}

/// Each request finds the other one of two contents, and both have the same length and Last-Modified.
#[test]
fn alternating_contents_are_never_mixed_in_an_open_object() {
    let server = server(|number| {
        let letter = [b'a', b'b'][number % 2];
        (Content { letter, second: 1 }, format!("\"{letter}\""))
    });
    let store = open(&server.url(""), TTL, RemoteConfig::default()).unwrap();
    for _ in 0..10 {
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        let parts = [0, 4, 8].map(|at| reader.read_at(&UNLIMITED, at, 4));
        let parts: Vec<_> = parts.into_iter().filter_map(Result::ok).collect();
        assert!(parts.windows(2).all(|pair| pair[0] == pair[1]), "{parts:?}");
    }
    let version = store.version(&UNLIMITED, &key("c")).unwrap().unwrap();
    assert!(version.is_lasting());
}

/// An archive without an ETag counts as unchanged if its length, its time and its index are the same.
#[test]
fn an_archive_without_etag_changes_with_its_directory() {
    let archive = |letter: u8| {
        let entries = [
            Entry::new("zarr.json", b"{}"),
            Entry::new("c", &[letter; 4]),
        ];
        Archive::of(entries).bytes()
    };
    for time in ["Wed, 01 Jan 2020 00:00:00 GMT", ""] {
        let now = Arc::new(Mutex::new(archive(b'a')));
        let bytes = now.clone();
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/a.zip" if time.is_empty() => {
                answer_of(request, &bytes.lock().unwrap().clone(), Vec::new())
            }
            "/a.zip" => {
                let headers = vec![("last-modified", time.to_string())];
                answer_of(request, &bytes.lock().unwrap().clone(), headers)
            }
            _ => answer(404, b""),
        });
        let store = open(&server.url("a.zip"), TTL, RemoteConfig::default()).unwrap();
        let reader = store.open(&UNLIMITED, &key("c"), None).unwrap();
        let version = store.version(&UNLIMITED, &key("c")).unwrap();
        for _ in 0..2 {
            thread::sleep(TTL + Duration::from_millis(50));
            assert_eq!(store.version(&UNLIMITED, &key("c")).unwrap(), version);
            assert_eq!(store.info().archive_generation.number(), 0);
            assert_eq!(reader.read_at(&UNLIMITED, 0, 4).unwrap(), b"aaaa");
        }
        *now.lock().unwrap() = archive(b'b');
        thread::sleep(TTL + Duration::from_millis(50));
        assert_ne!(store.version(&UNLIMITED, &key("c")).unwrap(), version);
        assert_eq!(store.info().archive_generation.number(), 1);
        let found = store.get(&UNLIMITED, &key("c"), 10).unwrap().unwrap();
        assert_eq!(found.bytes, b"bbbb");
    }
}
