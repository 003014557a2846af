//! Keys of buckets that are no paths: double slashes, dots between slashes, control characters.

use std::io::{Read, Write};
use std::net::TcpStream;

use zarrfs_store::{Condition, EntryKind, HiddenReason, Key, PutBody, Store};

use super::buckets;
use super::buckets::BUCKET;
use super::fixture::key;
use super::listings::names;
use crate::common::scripted::{Answer, Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

fn listed(store: &dyn Store, name: &str) -> Vec<(String, EntryKind)> {
    let found = names(store, name).into_iter();
    found
        .map(|(name, kind)| (String::from_utf8(name).unwrap(), kind))
        .collect()
}

fn not_shown(store: &dyn Store) -> Vec<String> {
    let entries = store.info().hidden_entries.all();
    let mut names: Vec<_> = entries
        .iter()
        .inspect(|entry| assert_eq!(entry.why, HiddenReason::NoPath))
        .map(|entry| String::from_utf8(entry.name.clone()).unwrap())
        .collect();
    names.sort();
    names
}

/// Invariant of `invalid_names_are_removed_from_a_page`.
///
/// The other keys of the same folders are found in both kinds of listings, and can be read.
#[test]
fn keys_that_are_not_valid_paths_are_hidden() {
    let (host, prefix) = (buckets::server("ZARRFS_TEST_MOTO"), "odd-keys");
    for path in ["plain", "/b", "//c", "./d", "../e", "a/f", "a//g", "z"] {
        put_raw(&host, &format!("{prefix}/{path}"));
    }
    let store = &*buckets::open_moto(prefix);
    let (file, folder) = (EntryKind::File, EntryKind::Directory);
    assert_eq!(
        listed(store, ""),
        [
            ("a".into(), folder),
            ("plain".into(), file),
            ("z".into(), file)
        ]
    );
    assert_eq!(listed(store, "a"), [("f".into(), file)]);
    let odd = ["odd-keys/../", "odd-keys/./", "odd-keys//", "odd-keys/a//"];
    assert_eq!(not_shown(store), odd);
    let mut flat = store
        .list_all(&UNLIMITED, &Key::root(), &Key::root())
        .unwrap()
        .unwrap();
    let all = std::iter::from_fn(|| flat.next(&UNLIMITED).unwrap()).flatten();
    let all: Vec<Key> = all.map(|(key, _)| key).collect();
    assert_eq!(all, [key("a/f"), key("plain"), key("z")]);
    assert_eq!(
        store
            .get(&UNLIMITED, &key("a/f"), 10)
            .unwrap()
            .unwrap()
            .bytes,
        b"odd"
    );
    assert!(store.get(&UNLIMITED, &key("a/g"), 10).unwrap().is_none());
    assert!(store.get(&UNLIMITED, &key("b"), 10).unwrap().is_none());
}

/// zarrfs 0.1 showed empty names and dots in keys as fullwidth characters, which are now ordinary letters.
#[test]
fn fullwidth_characters_in_keys_are_ordinary_letters() {
    let fixture = (buckets::MOTO.holding)(&[(b"plain", b"plain")]);
    let name = key("a/\u{ff0f}/\u{ff0e}\u{ff0e}/\u{201b}\u{240a}");
    let put = fixture
        .store
        .put(&UNLIMITED, &name, PutBody::Bytes(b"own"), &Condition::Any);
    put.unwrap();
    assert_eq!(
        fixture
            .store
            .get(&UNLIMITED, &name, 10)
            .unwrap()
            .unwrap()
            .bytes,
        b"own"
    );
    assert_eq!(
        listed(&*fixture.store, "a"),
        [("\u{ff0f}".into(), EntryKind::Directory)]
    );
}

/// Invariant of `invalid_names_are_removed_from_a_page`.
///
/// If all keys of a page are invalid, the listing continues with the next page.
#[test]
fn a_listing_continues_after_a_page_of_hidden_keys() {
    let server = Scripted::start(move |_, request| {
        let entry = |name: &str| {
            format!(
                "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><Size>3</Size>\
                 <ETag>\"1\"</ETag></Contents>"
            )
        };
        if request.target.contains("continuation-token=next") {
            page(&entry("z"), "<IsTruncated>false</IsTruncated>")
        } else {
            let next = "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>";
            page(&(entry("a//b") + &entry("c&#10;d")), next)
        }
    });
    let store = buckets::open_s3(format!("http://{}", server.address), false);
    assert_eq!(listed(&*store, ""), [("z".into(), EntryKind::File)]);
    assert_eq!(not_shown(&*store), ["a//b", "c\nd"]);
}

fn page(entries: &str, end: &str) -> Answer {
    let page = format!("<ListBucketResult><Name>test</Name>{end}{entries}</ListBucketResult>");
    answer(200, page.as_bytes())
}

/// Puts an object with the content `odd` at a raw path of the bucket, on a server that checks no signature.
fn put_raw(url: &str, path: &str) {
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
