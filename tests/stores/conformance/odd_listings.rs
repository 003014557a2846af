//! S3 servers whose listings are truncated, do not end, or use protocol version 1.

use std::collections::BTreeSet;
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{EntryKind, Key, RemoteConfig, Store};

use super::odd_servers::open;
use crate::common::scripted::{Answer, Request, Scripted, answer};

/// The number of names that the servers return on one page of a listing.
const PAGE: usize = 3;

/// What a server does when it lists a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Listings {
    /// The server supports only version 1 of the listing API, whose pages end with a marker.
    Version1,
    /// The server supports only version 1 of the listing API, and sends no marker.
    Version1WithoutMarker,
    /// The server says that a page is truncated, and has no way to get the next page.
    CutOff,
    /// The server sends an empty continuation token.
    EmptyToken,
    /// The server sends the same continuation token with each page.
    SameToken,
    /// The server sends the first page each time, with a new continuation token.
    SamePage,
    /// The server sends pages without names, each with a new continuation token.
    EmptyPages,
    /// The server sends the first prefix on two pages, each with a new continuation token.
    PrefixAgain,
    /// The server supports only version 1 of the listing API, and ignores the delimiter.
    WithoutDelimiter,
    /// The server sends an HTML page, as a captive portal does.
    WebPage,
}

fn keys() -> BTreeSet<String> {
    let groups = (0..4).map(|number| format!("g{number}/zarr.json"));
    let chunks = (0..5).map(|number| format!("a/c/{number}"));
    let documents = ["a/zarr.json", "zarr.json"].map(str::to_string);
    groups.chain(chunks).chain(documents).collect()
}

fn parameter(request: &Request, name: &str) -> String {
    let (_, query) = request.target.split_once('?').unwrap_or_default();
    let mut found = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    found
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// Returns the names on a page of a version 1 listing, and the marker of the next page.
fn page(request: &Request, has_delimiter: bool) -> (String, Option<String>) {
    let (prefix, marker) = (parameter(request, "prefix"), parameter(request, "marker"));
    let mut names = BTreeSet::new();
    for key in keys().into_iter().filter(|key| key.starts_with(&prefix)) {
        let end = key[prefix.len()..]
            .find('/')
            .map(|end| prefix.len() + end + 1);
        match end.filter(|_| has_delimiter && !parameter(request, "delimiter").is_empty()) {
            Some(end) => names.insert((key[..end].to_string(), true)),
            None => names.insert((key, false)),
        };
    }
    let wanted = parameter(request, "max-keys")
        .parse()
        .unwrap_or(PAGE)
        .min(PAGE);
    let mut names = names.into_iter().filter(|(name, _)| *name > marker);
    let page: Vec<(String, bool)> = names.by_ref().take(wanted).collect();
    let next = page.last().filter(|_| names.next().is_some());
    let next = next.map(|(name, _)| name.clone());
    let entry = |(name, is_prefix): &(String, bool)| match is_prefix {
        true => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
        false => format!(
            "<Contents><Key>{name}</Key><Size>2</Size><ETag>\"1\"</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        ),
    };
    (page.iter().map(entry).collect(), next)
}

fn list(kind: Listings, number: usize, request: &Request) -> Answer {
    let (names, next) = page(request, kind != Listings::WithoutDelimiter);
    let members = match (kind, next) {
        (Listings::WebPage, _) => return answer(200, b"<html><body>Sign in</body></html>"),
        (Listings::CutOff, _) => "<IsTruncated>true</IsTruncated>".to_string(),
        (Listings::EmptyPages, _) => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>"
        ),
        (Listings::PrefixAgain, _) => return list_prefix_again(request),
        (_, None) => format!("<IsTruncated>false</IsTruncated>{names}"),
        (Listings::Version1, Some(next)) => {
            format!("<IsTruncated>true</IsTruncated><NextMarker>{next}</NextMarker>{names}")
        }
        (Listings::EmptyToken, _) => {
            format!("<IsTruncated>true</IsTruncated><NextContinuationToken/>{names}")
        }
        (Listings::SameToken, _) => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>{names}"
        ),
        (Listings::SamePage, _) => format!(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>{names}"
        ),
        (_, Some(_)) => format!("<IsTruncated>true</IsTruncated>{names}"),
    };
    answer(
        200,
        format!("<ListBucketResult>{members}</ListBucketResult>").as_bytes(),
    )
}

/// Answers a listing like a server that ends its page within a common prefix, so that the next page repeats the prefix.
fn list_prefix_again(request: &Request) -> Answer {
    let passed = parameter(request, "continuation-token")
        .parse()
        .unwrap_or(0);
    let names = match (parameter(request, "prefix").as_str(), passed) {
        ("", 0 | 1) => "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>",
        ("", _) => "<CommonPrefixes><Prefix>g0/</Prefix></CommonPrefixes>",
        _ => "",
    };
    let goes_on = !names.is_empty() && passed < 2;
    let token = format!(
        "<NextContinuationToken>{}</NextContinuationToken>",
        passed + 1
    );
    let token = if goes_on { token.as_str() } else { "" };
    let body = format!(
        "<ListBucketResult><IsTruncated>{goes_on}</IsTruncated>{token}{names}</ListBucketResult>"
    );
    answer(200, body.as_bytes())
}

fn server(kind: Listings) -> Scripted {
    Scripted::start(move |number, request| {
        let path = request.target.split('?').next().unwrap_or_default();
        match path.trim_end_matches('/') {
            "/b" => list(kind, number, request),
            path if keys().contains(path.trim_start_matches("/b/")) => Answer {
                headers: vec![
                    ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_string()),
                    ("etag", "\"1\"".to_string()),
                ],
                ..answer(200, b"{}")
            },
            _ => answer(404, b""),
        }
    })
}

fn remote(server: &Scripted, is_signed: bool) -> RemoteConfig {
    let keys = [("access_key_id", "key"), ("secret_access_key", "secret")];
    let keys = keys.map(|(name, value)| (name.to_string(), value.to_string()));
    RemoteConfig {
        anonymous: !is_signed,
        options: keys.into_iter().filter(|_| is_signed).collect(),
        endpoint: Some(format!("http://{}", server.address)),
        region: Some("eu-west-1".to_string()),
        timeout: Duration::from_secs(5),
        ..RemoteConfig::default()
    }
}

fn names(store: &dyn Store, key: &Key) -> Result<Vec<(String, EntryKind)>> {
    let (mut listing, mut names) = (store.list(&UNLIMITED, key)?, Vec::new());
    while let Some(name) = listing.next(&UNLIMITED)? {
        names.push((String::from_utf8(name.name).unwrap(), name.kind));
    }
    Ok(names)
}

#[test]
fn a_server_that_lists_by_version_1_is_listed_by_folder() {
    let folder = |name: &str| (name.to_string(), EntryKind::Directory);
    let file = |name: &str| (name.to_string(), EntryKind::File);
    for kind in [
        Listings::Version1,
        Listings::Version1WithoutMarker,
        Listings::EmptyToken,
        Listings::WithoutDelimiter,
    ] {
        for is_signed in [false, true] {
            let server = server(kind);
            let remote = remote(&server, is_signed);
            let store = open("s3://b", Duration::from_secs(60), remote).unwrap();
            let mut root: Vec<_> = ["a", "g0", "g1", "g2", "g3"].map(folder).to_vec();
            root.push(file("zarr.json"));
            assert_eq!(names(&*store, &Key::root()).unwrap(), root, "{kind:?}");
            let chunks = names(&*store, &Key::new("a/c").unwrap()).unwrap();
            assert_eq!(chunks, ["0", "1", "2", "3", "4"].map(file), "{kind:?}");
            let requests = server.requests.lock().unwrap();
            let by_marker = requests
                .iter()
                .filter(|one| !parameter(one, "marker").is_empty());
            let mut signed = by_marker.map(|one| one.header("authorization").contains("eu-west-1"));
            assert!(signed.all(|signed| signed == is_signed), "{kind:?}");
        }
    }
}

/// Opening a bucket lists its root. This listing is used for the root's first listing too, unless the TTL is zero.
#[test]
fn the_root_of_a_bucket_is_listed_once_at_its_open() {
    for (metadata_ttl, first_pages) in [(60, 1), (0, 2)] {
        let server = server(Listings::Version1);
        let ttl = Duration::from_secs(metadata_ttl);
        let store = open("s3://b", ttl, remote(&server, false)).unwrap();
        assert_eq!(names(&*store, &Key::root()).unwrap().len(), 6);
        let requests = server.requests.lock().unwrap();
        let of_root = requests.iter().filter(|one| {
            parameter(one, "prefix").is_empty()
                && !parameter(one, "list-type").is_empty()
                && parameter(one, "continuation-token").is_empty()
        });
        assert_eq!(of_root.count(), first_pages, "TTL of {metadata_ttl} s");
    }
}

#[test]
fn a_server_that_lists_by_version_1_is_listed_by_key() {
    let server = server(Listings::Version1);
    let store = open("s3://b", Duration::ZERO, remote(&server, true)).unwrap();
    let mut listing = store
        .list_all(&UNLIMITED, &Key::root(), &Key::root())
        .unwrap()
        .unwrap();
    let mut found = BTreeSet::new();
    while let Some(page) = listing.next(&UNLIMITED).unwrap() {
        found.extend(page.iter().map(|(key, _)| key.to_string()));
    }
    assert_eq!(found, keys());
}

#[test]
fn a_prefix_repeated_on_the_next_page_is_listed_once() {
    let server = server(Listings::PrefixAgain);
    let store = open("s3://b", Duration::ZERO, remote(&server, false)).unwrap();
    let folders = ["a", "g0"].map(|name| (name.to_string(), EntryKind::Directory));
    assert_eq!(names(&*store, &Key::root()).unwrap(), folders);
}

fn failed(store: &dyn Store) -> Error {
    let listed = names(store, &Key::new("a/c").unwrap());
    listed.expect_err("the listing is taken for complete")
}

#[test]
fn a_listing_that_repeats_a_page_is_an_error_at_once() {
    for (kind, why) in [
        (Listings::SameToken, "the same page"),
        (Listings::SamePage, "the same page"),
    ] {
        let server = server(kind);
        let store = open("s3://b", Duration::ZERO, remote(&server, false)).unwrap();
        let asked = || server.requests.lock().unwrap().len();
        let before = asked();
        let error = failed(&*store);
        assert_eq!(error.kind(), Kind::Corrupt, "{kind:?}: {error}");
        assert!(error.detail().contains(why), "{kind:?}: {error}");
        let requests = asked() - before;
        assert!(requests <= 3, "{kind:?}: {requests}");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(asked() - before, requests, "{kind:?}: it goes on");
        let mut all = store
            .list_all(&UNLIMITED, &Key::root(), &Key::root())
            .unwrap()
            .unwrap();
        let ended = (0..9).find_map(|_| all.next(&UNLIMITED).err());
        assert!(ended.is_some(), "{kind:?}");
        let requests = asked();
        assert!(all.next(&UNLIMITED).is_err());
        assert_eq!(
            asked(),
            requests,
            "{kind:?}: an error is followed by a request"
        );
    }
}

#[test]
fn a_bucket_with_an_unusable_listing_is_not_opened() {
    for (kind, why) in [
        (Listings::CutOff, "without a token or a name"),
        (Listings::EmptyPages, "pages have no new name"),
        (Listings::WebPage, "not a listing"),
    ] {
        let server = server(kind);
        let opened = open("s3://b", Duration::ZERO, remote(&server, false));
        let error = opened.err().expect("it is opened");
        assert!(error.detail().contains(why), "{kind:?}: {error}");
    }
}
