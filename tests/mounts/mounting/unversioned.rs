//! Tests a web server without ETag and Last-Modified: cached data expires after one TTL.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::scripted::{Request, Scripted, answer};
use crate::mounting::fixture::{Fixture, soon};

const TTL: Duration = Duration::from_secs(1);

#[test]
fn content_without_a_version_is_stale_after_one_ttl() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let documents =
        ["zarr.json", "a/zarr.json"].map(|name| fs::read(fixture.store.join(name)).unwrap());
    let letter = Arc::new(AtomicU8::new(b'a'));
    let now = letter.clone();
    let server = Scripted::start(move |_, request: &Request| match request.target.as_str() {
        "/zarr.json" => answer(200, &documents[0]),
        "/a/zarr.json" => answer(200, &documents[1]),
        "/a/c/0" => answer(200, &[now.load(Ordering::SeqCst); 16]),
        _ => answer(404, b""),
    });
    fixture.store = server.url("").into();
    fixture.mount(&["--metadata-ttl", "1s"]);
    let files = [
        "a/c/0",
        ".zarrfs/files/a/a.raw",
        ".zarrfs/files/a/chunks/0.raw",
    ];
    let shows = |letter: u8| {
        let shown = |name: &&str| fs::read(fixture.dir.join(name)).unwrap() == [letter; 16];
        files.iter().all(shown)
    };
    assert!(shows(b'a'));
    for letter_now in b'b'..b'e' {
        letter.store(letter_now, Ordering::SeqCst);
        let changed = Instant::now();
        assert!(soon(|| shows(letter_now)));
        assert!(changed.elapsed() < 10 * TTL, "{:?}", changed.elapsed());
        // Data that was read stays cached for a TTL, and all files show the same content.
        thread::sleep(TTL / 10);
        assert!(shows(letter_now));
    }
}
