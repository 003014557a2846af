//! A remote store is deleted under a mount: both views report errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use zarr_format::error::Kind;
use zarrfs::mount::open::{ViewKind, Views};
use zarrfs_store::EntryKind;

use super::consolidated::{Objects, key, page_or_object, v2, v3, views_at};
use crate::common::scripted::{Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

/// A typical TTL for remote metadata, longer than this test.
const TTL: Duration = Duration::from_secs(60);

/// A little longer than the time for which zarrfs assumes that an array it has found still exists.
const LATER: Duration = Duration::from_millis(1200);

/// Reads an array of which only the first chunk is stored, before and after all of the server's objects are gone.
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
    let open = view.open(&UNLIMITED, &key("g0/v0/v0.raw")).unwrap();
    let length = open.file.attr(&UNLIMITED).unwrap().size;
    let chunk = length / 4;
    let read = |number: u64| {
        open.file
            .read_at(&UNLIMITED, number * chunk, chunk as usize)
    };
    let first = read(0).unwrap().to_vec();
    let fill = read(1).unwrap().to_vec();
    assert_ne!(first, fill, "the second chunk was never stored");
    is_there.store(false, Ordering::SeqCst);
    thread::sleep(LATER);
    let error = read(2).map(|bytes| bytes.to_vec()).unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    is_there.store(true, Ordering::SeqCst);
    assert_eq!(read(2).unwrap().to_vec(), fill, "it was not stored before");
}

/// Invariant (reading): A missing chunk of an array that no longer exists is an error.
#[test]
fn a_chunk_of_a_deleted_array_is_an_error_and_not_the_fill_value() {
    for objects in [v2(), v3()] {
        for consolidated in [false, true] {
            read_while_it_goes(objects.clone(), consolidated);
        }
    }
}

/// A TTL so short that metadata are requested again almost at once.
const SHORT: Duration = Duration::from_millis(50);

/// Checks that lookups of everything below the root fail with `Gone`, and that the root is still a directory.
fn check_that_all_nodes_are_gone(views: &Views, when: &str) {
    for kind in [ViewKind::Store, ViewKind::Files] {
        let view = views.view(kind);
        let root = view.lookup(&UNLIMITED, &key("")).unwrap().unwrap();
        assert_eq!(root.kind, EntryKind::Directory);
        assert!(view.lookup(&UNLIMITED, &key(".zarrfs")).unwrap().is_some());
        for folder in ["", "g0", "g0/v0"] {
            let listed = view
                .list(&UNLIMITED, &key(folder))
                .and_then(|mut names| names.next(&UNLIMITED));
            let error = listed.map(|name| name.map(|name| name.name)).unwrap_err();
            assert_eq!(
                error.kind(),
                Kind::Gone,
                "{when}: {kind:?} {folder}: {error}"
            );
        }
        for path in [
            "zarr.json",
            "g0",
            "g0/v0",
            "g0/v0/zarr.json",
            "g0/v0/.zarray",
            "other",
        ] {
            let error = view.lookup(&UNLIMITED, &key(path)).unwrap_err();
            assert_eq!(error.kind(), Kind::Gone, "{when}: {kind:?} {path}: {error}");
        }
    }
}

fn root_names(views: &Views, kind: ViewKind) -> Vec<String> {
    let view = views.view(kind);
    let mut listing = view.list(&UNLIMITED, &key("")).unwrap();
    let names = std::iter::from_fn(|| listing.next(&UNLIMITED).unwrap());
    names
        .map(|name| String::from_utf8(name.name).unwrap())
        .collect()
}

/// Invariant of `without_root_metadata_a_missing_key_is_an_error`.
#[test]
fn all_nodes_of_a_store_that_its_server_lost_are_gone() {
    for (objects, lists) in [(v2(), false), (v3(), false), (v2(), true), (v3(), true)] {
        let when = format!("lists: {lists}");
        let is_there = Arc::new(AtomicBool::new(true));
        let there = is_there.clone();
        let server = Scripted::start(move |_, request| {
            if there.load(Ordering::SeqCst) {
                page_or_object(&objects, lists, request)
            } else {
                answer(404, b"")
            }
        });
        let views = views_at(&server.url(""), SHORT, false);
        let before = [ViewKind::Store, ViewKind::Files].map(|kind| root_names(&views, kind));
        assert!(
            before.iter().flatten().any(|name| name == "g0"),
            "{before:?}"
        );
        is_there.store(false, Ordering::SeqCst);
        thread::sleep(LATER);
        check_that_all_nodes_are_gone(&views, &when);
        is_there.store(true, Ordering::SeqCst);
        thread::sleep(LATER);
        let after = [ViewKind::Store, ViewKind::Files].map(|kind| root_names(&views, kind));
        assert_eq!(after, before, "{when}");
    }
}
