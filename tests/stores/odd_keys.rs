//! Keys of buckets that are no paths: a slash after a slash, dots between slashes, control characters.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use zarrfs::error::Kind as Fault;
use zarrfs::store::{Condition, EntryKind, Key, PutBody, Store};

use super::buckets;
use super::buckets::{AZURITE, BUCKET, FAKE_GCS, MOTO, SEAWEEDFS};
use super::fixture::{Kind, key};
use super::listings::names;
use super::scripted::{Answer, Scripted, answer};

/// The name between two slashes, one dot, and two.
const EMPTY: &str = "\u{ff0f}";
const DOT: &str = "\u{ff0e}";
const DOTS: &str = "\u{ff0e}\u{ff0e}";

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    let put = store.put(&key(name), PutBody::Bytes(bytes), &Condition::Any);
    put.unwrap();
}

fn listed(store: &dyn Store, name: &str) -> Vec<(String, EntryKind)> {
    let found = names(store, name).into_iter();
    found
        .map(|(name, kind)| (String::from_utf8(name).unwrap(), kind))
        .collect()
}

/// Checks what a store says of an object at `a//b`, whose bytes are `odd`.
fn check(kind: &Kind, store: &dyn Store) {
    let name = format!("a/{EMPTY}/b");
    let object = store.get(&key(&name), 10).unwrap().unwrap();
    assert_eq!(object.bytes, b"odd", "{}", kind.name);
    let file = EntryKind::File;
    assert_eq!(listed(store, &format!("a/{EMPTY}")), [("b".into(), file)]);
    let above = listed(store, "a");
    assert!(
        above.contains(&(EMPTY.into(), EntryKind::Directory)),
        "{above:?}"
    );
    assert!(above.contains(&("plain".into(), file)), "{above:?}");
    assert_eq!(store.head(&key(&name)).unwrap().unwrap().size, 3);
    let reader = store.open(&key(&name), None).unwrap();
    assert_eq!(reader.read_at(1, 2).unwrap(), b"dd");
    let mut flat = store.list_all(&Key::root(), &Key::root()).unwrap().unwrap();
    let all = std::iter::from_fn(|| flat.next().unwrap()).flatten();
    assert!(all.map(|(key, _)| key).any(|found| found == key(&name)));
    assert!(store.get(&key("a/b"), 10).unwrap().is_none());
}

#[test]
fn a_slash_after_a_slash_is_a_name() {
    for kind in [MOTO, AZURITE] {
        let fixture = (kind.holding)(&[(b"a/plain", b"plain")]);
        put(&*fixture.store, &format!("a/{EMPTY}/b"), b"odd");
        check(&kind, &*fixture.store);
        let erased = fixture
            .store
            .erase(&key(format!("a/{EMPTY}/b")), &Condition::Any);
        erased.unwrap();
        assert_eq!(
            listed(&*fixture.store, "a"),
            [("plain".into(), EntryKind::File)]
        );
    }
}

#[test]
fn servers_take_the_signatures_of_such_requests() {
    for kind in [SEAWEEDFS, MOTO, AZURITE, FAKE_GCS] {
        let fixture = (kind.holding)(&[(b"a/plain", b"plain")]);
        let missing = fixture.store.get(&key(format!("b/{EMPTY}/c\u{240a}")), 10);
        assert!(missing.unwrap().is_none(), "{}", kind.name);
    }
}

#[test]
fn names_that_are_no_paths_are_listed_and_open() {
    let (host, prefix) = (buckets::server("ZARRFS_TEST_MOTO"), "odd-keys");
    put_raw(&host, prefix, "a/plain");
    for path in ["a//b", "a/./c", "a/../d", "a/%E2%80%9B", "a/%E2%90%8A"] {
        put_raw(&host, prefix, path);
    }
    let store = &*buckets::open_moto(prefix);
    let (file, folder) = (EntryKind::File, EntryKind::Directory);
    let mut expected = vec![
        (DOT.to_string(), folder),
        (DOTS.to_string(), folder),
        (EMPTY.to_string(), folder),
        ("plain".to_string(), file),
        ("\u{201b}\u{201b}".to_string(), file),
        ("\u{201b}\u{240a}".to_string(), file),
    ];
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    let mut found = listed(store, "a");
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
    check(&MOTO, store);
    for name in ["a/\u{201b}\u{201b}", "a/\u{201b}\u{240a}"] {
        assert_eq!(
            store.get(&key(name), 10).unwrap().unwrap().bytes,
            b"odd",
            "{name}"
        );
    }
    for (folder, name) in [(DOT, "c"), (DOTS, "d")] {
        assert_eq!(listed(store, &format!("a/{folder}")), [(name.into(), file)]);
        let name = &format!("a/{folder}/{name}");
        let object = store.get(&key(name), 10).unwrap().unwrap();
        assert_eq!(object.bytes, b"odd", "{name}");
        assert_eq!(store.head(&key(name)).unwrap().unwrap().size, 3);
        let reader = store.open(&key(name), None).unwrap();
        assert_eq!(reader.read_at(1, 2).unwrap(), b"dd");
    }
    let name = &format!("a/{DOTS}/{DOT}/new");
    put(store, name, b"new");
    let listed_there = listed(store, &format!("a/{DOTS}/{DOT}"));
    assert_eq!(listed_there, [("new".into(), file)]);
    assert_eq!(store.get(&key(name), 10).unwrap().unwrap().bytes, b"new");
    store.erase(&key(name), &Condition::Any).unwrap();
    assert!(store.get(&key(name), 10).unwrap().is_none());
    assert!(store.get(&key("new"), 10).unwrap().is_none());
}

#[test]
fn names_of_dots_are_missing_or_refused_elsewhere() {
    for kind in [AZURITE, FAKE_GCS] {
        let fixture = (kind.holding)(&[(b"a/plain", b"plain")]);
        refused(&*fixture.store, &format!("a/{DOT}/plain"));
    }
    // The slash before it is not one of the key.
    refused(&*buckets::open_moto(""), DOTS);
}

fn refused(store: &dyn Store, name: &str) {
    let refused = store.get(&key(name), 10).unwrap_err();
    assert_eq!(refused.kind(), Fault::Unsupported);
    assert!(
        refused.to_string().contains("no part of a URL"),
        "{refused}"
    );
}

/// Servers get the path of the key, signed as the key or as it is sent; what they refuse is said.
#[test]
fn a_name_of_dots_is_asked_for_by_its_path() {
    for (signs, allowed, requests) in [(false, 1, 1), (true, 1, 1), (true, 2, 2), (true, 3, 2)] {
        let asked = AtomicUsize::new(0);
        let server = Scripted::start(move |_, request| match request.target.as_str() {
            "/test/a/..%2Fb" if asked.fetch_add(1, Ordering::SeqCst) + 1 < allowed => {
                answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            }
            "/test/a/..%2Fb" => dated(answer(200, b"odd")),
            _ => answer(200, PAGE.as_bytes()),
        });
        let store = buckets::open_s3(format!("http://{}", server.address), signs);
        let found = store.get(&key(format!("a/{DOTS}/b")), 10);
        let seen = server.requests.lock().unwrap();
        let seen = seen
            .iter()
            .filter(|request| request.target.ends_with("..%2Fb"));
        let signatures: Vec<_> = seen
            .map(|request| request.header("authorization").to_string())
            .collect();
        assert_eq!(signatures.len(), requests);
        assert_eq!(
            signatures.iter().all(|signature| !signature.is_empty()),
            signs
        );
        assert!(requests == 1 || signatures[0] != signatures[1]);
        if allowed == 3 {
            assert_eq!(found.unwrap_err().kind(), Fault::Denied);
        } else {
            assert_eq!(found.unwrap().unwrap().bytes, b"odd");
        }
    }
}

/// A listing in which something is, so that the store is one.
const PAGE: &str = "<ListBucketResult><Name>test</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>\
    <Contents><Key>a</Key><LastModified>2026-01-01T00:00:00Z</LastModified><Size>3</Size><ETag>\"1\"</ETag></Contents>\
    </ListBucketResult>";

fn dated(mut answer: Answer) -> Answer {
    answer.headers = vec![
        ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
        ("etag", "\"1\"".to_string()),
    ];
    answer
}

/// The empty name right below the root of a store is not the root.
#[test]
fn a_key_that_begins_with_a_slash_is_below_a_name() {
    let (host, prefix) = (buckets::server("ZARRFS_TEST_MOTO"), "odd-root");
    for path in [
        "odd-root/plain",
        "odd-root//b",
        "odd-root///c/d",
        "/odd-root-top",
    ] {
        put_raw_at(&host, path);
    }
    let store = &*buckets::open_moto(prefix);
    let (file, folder) = (EntryKind::File, EntryKind::Directory);
    let sorted = |name: &str| {
        let mut found = listed(store, name);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    };
    assert_eq!(sorted(""), [("plain".into(), file), (EMPTY.into(), folder)]);
    assert_eq!(sorted(EMPTY), [("b".into(), file), (EMPTY.into(), folder)]);
    let twice = format!("{EMPTY}/{EMPTY}");
    assert_eq!(sorted(&twice), [("c".into(), folder)]);
    for name in [format!("{EMPTY}/b"), format!("{twice}/c/d")] {
        assert_eq!(store.get(&key(name), 10).unwrap().unwrap().bytes, b"odd");
    }
    let kind = |name: &str| store.head(&key(name)).unwrap().map(|meta| meta.kind);
    assert_eq!(kind(EMPTY), Some(folder));
    assert_eq!(kind(&twice), Some(folder));
    assert_eq!(kind(&format!("{EMPTY}/plain")), None);
    assert!(store.get(&key(EMPTY), 10).unwrap().is_none());
    let bucket = &*buckets::open_moto("");
    let below = listed(bucket, EMPTY);
    assert!(below.contains(&("odd-root-top".into(), file)), "{below:?}");
    assert!(!below.contains(&("odd-root".into(), folder)), "{below:?}");
    assert!(bucket.get(&key(EMPTY), 10).unwrap().is_none());
    let top = bucket.get(&key(format!("{EMPTY}/odd-root-top")), 10);
    assert_eq!(top.unwrap().unwrap().bytes, b"odd");
}

/// Puts `odd` under a path of a bucket's server, which is taken as it is; the server checks no signature.
fn put_raw(url: &str, prefix: &str, path: &str) {
    put_raw_at(url, &format!("{prefix}/{path}"));
}

fn put_raw_at(url: &str, path: &str) {
    let host = url.strip_prefix("http://").unwrap();
    let mut server = TcpStream::connect(host).unwrap();
    let request = format!(
        "PUT /{BUCKET}/{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nodd"
    );
    server.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
}
