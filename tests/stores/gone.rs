//! Files of arrays that are open while their store goes away: what the server does not have any more is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use zarrfs::error::Kind;
use zarrfs::mount::open::ViewKind;

use super::consolidated::{Objects, key, page_or_object, v2, v3, views_at};
use super::scripted::{Scripted, answer};

/// As long as metadata count on a network: longer than this test.
const TTL: Duration = Duration::from_secs(60);

/// From when an array counts no more as there that was there, and a little.
const LATER: Duration = Duration::from_millis(1200);

/// Reads an array whose first chunk alone is stored, before and after its server has lost everything.
fn read_while_it_goes(objects: Objects, consolidated: bool) {
    let is_there = Arc::new(AtomicBool::new(true));
    let there = is_there.clone();
    let server = Scripted::start(move |_, request| {
        if there.load(Ordering::SeqCst) {
            page_or_object(&objects, false, request)
        } else {
            answer(404, b"")
        }
    });
    let views = views_at(&server.url(""), TTL, consolidated);
    let view = views.view(ViewKind::Files);
    let open = view.open(&key("g0/v0/v0.raw")).unwrap();
    let length = open.file.attr().unwrap().size;
    let chunk = length / 4;
    let read = |number: u64| open.file.read_at(number * chunk, chunk as usize);
    let first = read(0).unwrap().to_vec();
    let fill = read(1).unwrap().to_vec();
    assert_ne!(first, fill, "the second chunk was never stored");
    is_there.store(false, Ordering::SeqCst);
    thread::sleep(LATER);
    let error = read(2).map(|bytes| bytes.to_vec()).unwrap_err();
    assert_eq!(error.kind(), Kind::Changed, "{error}");
    is_there.store(true, Ordering::SeqCst);
    assert_eq!(read(2).unwrap().to_vec(), fill, "it was not stored before");
}

#[test]
fn b01_a_chunk_of_an_array_that_is_gone_is_an_error_and_not_the_fill_value() {
    for objects in [v2(), v3()] {
        for consolidated in [false, true] {
            read_while_it_goes(objects.clone(), consolidated);
        }
    }
}
