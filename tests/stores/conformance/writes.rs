//! Writes: an object is complete and visible at once; a failed condition changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use zarr_format::error::Kind as Fault;
use zarrfs_store::{ByteRange, Condition, ETag, EntryKind, Key, PutBody, Store};

use crate::conformance::fixture::{Fixture, Kind, Writes, key, pattern};
use crate::conformance::listings::names;
use crate::conformance::objects::assert_same;
use zarrfs_store::request_context::UNLIMITED;

/// Returns a store for a test of writes. If the kind is read-only, checks that it refuses writes and returns `None`.
fn writable(kind: &Kind, objects: &[(&[u8], &[u8])]) -> Option<Fixture> {
    if kind.writes == Writes::Elsewhere {
        println!(
            "skipped: {} takes nothing that object_store puts",
            kind.name
        );
        return None;
    }
    let fixture = (kind.holding)(objects);
    if kind.writes != Writes::No {
        return Some(fixture);
    }
    let refused = [Fault::ReadOnly, Fault::Denied];
    let body = PutBody::Bytes(b"new");
    let error = fixture
        .store
        .put(&UNLIMITED, &key("refused"), body, &Condition::Any)
        .unwrap_err();
    assert!(refused.contains(&error.kind()), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    for (name, bytes) in objects {
        let asked = key(name);
        let error = fixture
            .store
            .erase(&UNLIMITED, &asked, &Condition::Any)
            .unwrap_err();
        assert!(refused.contains(&error.kind()), "{error}");
        let there = fixture
            .store
            .get(&UNLIMITED, &asked, u64::MAX)
            .unwrap()
            .unwrap();
        assert_eq!(there.bytes, *bytes);
        // A read-only store must return ETags too.
        assert_stamp(&*fixture.store, &asked);
    }
    None
}

fn put(store: &dyn Store, name: impl AsRef<[u8]>, bytes: &[u8]) -> ETag {
    let name = key(name);
    store
        .put(&UNLIMITED, &name, PutBody::Bytes(bytes), &Condition::Any)
        .unwrap()
}

/// Checks that the version of a key's ETag agrees with that of every other answer.
fn assert_stamp(store: &dyn Store, asked: &Key) -> ETag {
    let stamp = store.etag(&UNLIMITED, asked).unwrap().unwrap();
    let version = stamp.version;
    let again = store.etag(&UNLIMITED, asked).unwrap().unwrap();
    assert_eq!(again.text, stamp.text);
    assert_same(again.version, version);
    assert_same(
        store.head(&UNLIMITED, asked).unwrap().unwrap().version,
        version,
    );
    let object = store.get(&UNLIMITED, asked, u64::MAX).unwrap().unwrap();
    assert_same(object.version, version);
    let reader = store.open(&UNLIMITED, asked, None).unwrap();
    assert_same(reader.meta(&UNLIMITED).unwrap().version, version);
    stamp
}

/// Checks that each kind of request returns these bytes for a key.
fn assert_holds(store: &dyn Store, asked: &Key, bytes: &[u8]) {
    let size = bytes.len() as u64;
    let object = store.get(&UNLIMITED, asked, u64::MAX).unwrap().unwrap();
    assert!(object.bytes == bytes, "{asked}");
    assert_eq!(object.size, size);
    let meta = store.head(&UNLIMITED, asked).unwrap().unwrap();
    assert_eq!((meta.kind, meta.size), (EntryKind::File, size));
    let part = store
        .get_range(&UNLIMITED, asked, ByteRange::Suffix(3))
        .unwrap();
    assert_eq!(part.unwrap().bytes, bytes[bytes.len().saturating_sub(3)..]);
    let reader = store.open(&UNLIMITED, asked, None).unwrap();
    assert!(reader.read_at(&UNLIMITED, 0, bytes.len() + 1).unwrap() == bytes);
    let parent = String::from_utf8(asked.parent().unwrap().as_bytes().to_vec()).unwrap();
    let listed = names(store, &parent);
    assert_eq!(listed.get(asked.name()), Some(&EntryKind::File), "{asked}");
}

fn assert_missing(store: &dyn Store, asked: &Key) {
    assert!(store.get(&UNLIMITED, asked, 100).unwrap().is_none());
    let part = store.get_range(&UNLIMITED, asked, ByteRange::Span(0..1));
    assert!(part.unwrap().is_none());
    assert_eq!(store.head(&UNLIMITED, asked).unwrap(), None);
    assert_eq!(store.etag(&UNLIMITED, asked).unwrap(), None);
    assert_eq!(
        store.open(&UNLIMITED, asked, None).err().unwrap().kind(),
        Fault::NotFound
    );
}

pub(crate) fn an_object_that_is_put_is_read_and_listed(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/old", b"old")]) else {
        return;
    };
    let store = &*fixture.store;
    let large = pattern(300_001);
    let objects: [(&str, &[u8]); 6] = [
        ("top", b"1"),
        ("a/new", b"22"),
        ("a/old", b"replaced"),
        ("made/on/the/way", &large),
        ("a/empty", b""),
        ("made/on/this", b"333"),
    ];
    for (name, bytes) in objects {
        // Ask before the put, so that the store may have cached the key's absence or old content.
        let asked = key(name);
        let before = store.get(&UNLIMITED, &asked, 100).unwrap();
        assert_eq!(before.is_some(), name == "a/old");
        assert_eq!(
            store.head(&UNLIMITED, &asked).unwrap().is_some(),
            name == "a/old"
        );
        let _ = asked.parent().map(|parent| store.list(&UNLIMITED, &parent));
        let stamp = put(store, name, bytes);
        assert_holds(store, &asked, bytes);
        assert_eq!(assert_stamp(store, &asked), stamp);
    }
    for (name, bytes) in objects {
        assert_holds(store, &key(name), bytes);
    }
    let listed: Vec<Vec<u8>> = names(store, "").into_keys().collect();
    assert_eq!(listed, [b"a".to_vec(), b"made".to_vec(), b"top".to_vec()]);
    assert_eq!(names(store, "made/on").len(), 2);
    assert_eq!(names(store, "a").len(), 3);
}

/// A file that is longer than promised is put only up to the promised length.
pub(crate) fn a_file_is_put_like_bytes(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a", b"1")]) else {
        return;
    };
    let bytes = pattern(2_500_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let store = &*fixture.store;
    for length in [bytes.len(), 70_000, 1, 0] {
        let body = PutBody::File(&file, length as u64);
        store
            .put(&UNLIMITED, &key("b/c"), body, &Condition::Any)
            .unwrap();
        assert_holds(store, &key("b/c"), &bytes[..length]);
    }
    let body = PutBody::File(&file, bytes.len() as u64 + 1);
    assert!(
        store
            .put(&UNLIMITED, &key("b/c"), body, &Condition::Any)
            .is_err()
    );
    assert_holds(store, &key("b/c"), b"");
    // Put a sparse file, whose holes must be read as zeros.
    let length = 600_000;
    file.set_len(0).unwrap();
    file.write_all_at(b"data", 300_000).unwrap();
    file.set_len(length).unwrap();
    let mut bytes = vec![0; length as usize];
    bytes[300_000..300_004].copy_from_slice(b"data");
    let body = PutBody::File(&file, length);
    store
        .put(&UNLIMITED, &key("b/c"), body, &Condition::Any)
        .unwrap();
    assert_holds(store, &key("b/c"), &bytes);
}

pub(crate) fn a_put_on_condition_of_absence_replaces_no_object(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"old")]) else {
        return;
    };
    let store = &*fixture.store;
    let before = assert_stamp(store, &key("a/b"));
    let body = PutBody::Bytes(b"new");
    let refused = store.put(&UNLIMITED, &key("a/b"), body, &Condition::Absent);
    assert_eq!(refused.unwrap_err().kind(), Fault::Changed);
    let refused = store.erase(&UNLIMITED, &key("a/b"), &Condition::Absent);
    assert_eq!(refused.unwrap_err().kind(), Fault::Changed);
    assert_holds(store, &key("a/b"), b"old");
    assert_eq!(assert_stamp(store, &key("a/b")), before);
    let stamp = store
        .put(&UNLIMITED, &key("a/c"), body, &Condition::Absent)
        .unwrap();
    assert_holds(store, &key("a/c"), b"new");
    assert_eq!(assert_stamp(store, &key("a/c")), stamp);
    let refused = store.put(&UNLIMITED, &key("a/c"), body, &Condition::Absent);
    assert_eq!(refused.unwrap_err().kind(), Fault::Changed);
}

pub(crate) fn a_conditional_put_replaces_only_the_matching_version(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"old"), (b"a/c", b"other")]) else {
        return;
    };
    let (store, asked) = (&*fixture.store, key("a/b"));
    let held = assert_stamp(store, &asked);
    let body = PutBody::Bytes(b"newer");
    for wrong in [
        assert_stamp(store, &key("a/c")).text,
        "\"0\"".to_string(),
        String::new(),
    ] {
        let refused = store.put(&UNLIMITED, &asked, body, &Condition::Match(wrong));
        assert_eq!(refused.unwrap_err().kind(), Fault::Changed);
        assert_holds(store, &asked, b"old");
    }
    let missing = store.put(
        &UNLIMITED,
        &key("a/d"),
        body,
        &Condition::Match(held.text.clone()),
    );
    assert_eq!(missing.unwrap_err().kind(), Fault::Changed);
    assert_missing(store, &key("a/d"));
    let now = store
        .put(
            &UNLIMITED,
            &asked,
            body,
            &Condition::Match(held.text.clone()),
        )
        .unwrap();
    assert_ne!(now.text, held.text);
    assert_holds(store, &asked, b"newer");
    assert_eq!(assert_stamp(store, &asked), now);
    let late = store.put(
        &UNLIMITED,
        &asked,
        PutBody::Bytes(b"late"),
        &Condition::Match(held.text),
    );
    assert_eq!(late.unwrap_err().kind(), Fault::Changed);
    assert_holds(store, &asked, b"newer");
    // The condition of a put may also be the version of an earlier read.
    let read = Condition::Version(now.version);
    let newest = PutBody::Bytes(b"newest");
    store.put(&UNLIMITED, &asked, newest, &read).unwrap();
    let late = store.put(&UNLIMITED, &asked, PutBody::Bytes(b"late"), &read);
    assert_eq!(late.unwrap_err().kind(), Fault::Changed);
    assert_holds(store, &asked, b"newest");
}

pub(crate) fn an_erased_key_is_missing_and_unlisted(kind: &Kind) {
    let objects: [(&[u8], &[u8]); 3] = [(b"a/b", b"1"), (b"a/c", b"2"), (b"d/e/f", b"3")];
    let Some(fixture) = writable(kind, &objects) else {
        return;
    };
    let store = &*fixture.store;
    let (one, other) = (assert_stamp(store, &key("a/b")), key("a/c"));
    assert_eq!(names(store, "a").len(), 2);
    let refused = store.erase(&UNLIMITED, &other, &Condition::Match(one.text.clone()));
    assert_eq!(refused.unwrap_err().kind(), Fault::Changed);
    assert_holds(store, &other, b"2");
    store
        .erase(&UNLIMITED, &key("a/b"), &Condition::Match(one.text.clone()))
        .unwrap();
    assert_missing(store, &key("a/b"));
    assert_eq!(names(store, "a").len(), 1);
    store.erase(&UNLIMITED, &other, &Condition::Any).unwrap();
    assert_missing(store, &other);
    // Removing a key that does not exist succeeds.
    for condition in [Condition::Any, Condition::Absent] {
        store.erase(&UNLIMITED, &other, &condition).unwrap();
        store
            .erase(&UNLIMITED, &key("never/was"), &condition)
            .unwrap();
    }
    let stamp = put(store, &b"a/b"[..], b"again");
    assert_holds(store, &key("a/b"), b"again");
    assert_eq!(assert_stamp(store, &key("a/b")), stamp);
}

pub(crate) fn a_conditional_erase_removes_only_the_matching_version(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"old"), (b"a/c", b"other")]) else {
        return;
    };
    let (store, asked) = (&*fixture.store, key("a/b"));
    let outdated = assert_stamp(store, &asked);
    let current = put(store, "a/b", b"newer");
    for wrong in [&outdated.text, "\"0\"", ""] {
        let refused = store.erase(&UNLIMITED, &asked, &Condition::Match(wrong.to_string()));
        assert_eq!(refused.unwrap_err().kind(), Fault::Changed, "{wrong}");
        assert_holds(store, &asked, b"newer");
    }
    let held = Condition::Match(current.text);
    store.erase(&UNLIMITED, &asked, &held).unwrap();
    assert_missing(store, &asked);
    for missing in ["a/b", "a/d", "never/was"] {
        let refused = store.erase(&UNLIMITED, &key(missing), &held);
        assert_eq!(refused.unwrap_err().kind(), Fault::Changed, "{missing}");
    }
    assert_holds(store, &key("a/c"), b"other");
    assert_eq!(names(store, "").len(), 1, "the trial has left something");
}

pub(crate) fn only_empty_folders_are_erased(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b/c", b"1"), (b"d", b"2")]) else {
        return;
    };
    let store = &*fixture.store;
    for folder in ["a/b", "a", "", "never/was", "d"] {
        store.erase_folder(&UNLIMITED, &key(folder)).unwrap();
    }
    assert_holds(store, &key("a/b/c"), b"1");
    assert_holds(store, &key("d"), b"2");
    store
        .erase(&UNLIMITED, &key("a/b/c"), &Condition::Any)
        .unwrap();
    for folder in ["a/b", "a"] {
        store.erase_folder(&UNLIMITED, &key(folder)).unwrap();
        let head = store.head(&UNLIMITED, &key(folder)).unwrap();
        assert!(head.is_none() || kind.keeps_folders(), "{folder}");
    }
    let left = if kind.keeps_folders() { 2 } else { 1 };
    assert!(names(store, "").len() <= left);
    put(store, "a/b/c", b"again");
    assert_holds(store, &key("a/b/c"), b"again");
}

pub(crate) fn odd_names_can_be_put(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"stand/in", b"1")]) else {
        return;
    };
    let (store, mut held) = (&*fixture.store, kind.names());
    if kind.variable.is_some() {
        // Each name takes ten requests, so for a server use only one in eight of the names that differ in one byte.
        let mut place = 0;
        held.retain(|name| {
            place += 1;
            name.len() != 3 || name[0] != name[2] || place % 8 == 0
        });
    }
    let mut expected = BTreeMap::new();
    for name in held {
        let asked = [b"d/", name.as_slice()].concat();
        put(store, &asked, &name);
        expected.insert(name, EntryKind::File);
    }
    assert_eq!(names(store, "d"), expected);
    for name in expected.into_keys() {
        let asked = key([b"d/", name.as_slice()].concat());
        let object = store.get(&UNLIMITED, &asked, 1000).unwrap().unwrap();
        assert_eq!(object.bytes, name);
        store.erase(&UNLIMITED, &asked, &Condition::Any).unwrap();
        assert_missing(store, &asked);
    }
}

/// A put fails if its key is a folder or is below an object, and nothing is put under another key.
pub(crate) fn a_folder_is_not_replaced(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"1")]) else {
        return;
    };
    let store = &*fixture.store;
    assert!(
        store
            .put(
                &UNLIMITED,
                &Key::root(),
                PutBody::Bytes(b"x"),
                &Condition::Any
            )
            .is_err()
    );
    // SeaweedFS is skipped, because it accepts such keys and does not list them.
    if !kind.both && !kind.keeps_folders() {
        for name in ["a", "a/b/c", "a/b/c/d"] {
            let refused = store.put(
                &UNLIMITED,
                &key(name),
                PutBody::Bytes(b"x"),
                &Condition::Any,
            );
            assert!(refused.is_err(), "{name}");
        }
    }
    assert_holds(store, &key("a/b"), b"1");
    assert_eq!(names(store, "").len(), 1);
}

pub(crate) fn an_open_listing_outlasts_puts(kind: &Kind) {
    let held: Vec<String> = (0..40).map(|number| format!("d/{number:02}")).collect();
    let objects: Vec<(&[u8], &[u8])> = held
        .iter()
        .map(|name| (name.as_bytes(), &b"1"[..]))
        .collect();
    let Some(fixture) = writable(kind, &objects) else {
        return;
    };
    let store = &*fixture.store;
    let mut listing = store.list(&UNLIMITED, &key("d")).unwrap();
    let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut count = 0;
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        *seen.entry(name.name).or_default() += 1;
        if count < 10 {
            put(store, format!("d/{}", 50 + count), b"2");
            put(store, format!("d/{:02}", 3 * count), b"3");
        }
        count += 1;
    }
    for name in held {
        let name = name.strip_prefix("d/").unwrap().as_bytes();
        assert_eq!(seen.get(name), Some(&1), "{name:?}");
    }
    assert_eq!(names(store, "d").len(), 50);
}

/// A reader that was opened before a put returns the old content or an error, and never a mixture.
pub(crate) fn an_open_object_is_not_mixed_with_a_put(kind: &Kind) {
    let old = pattern(50_000);
    let Some(fixture) = writable(kind, &[(b"a/b", &old)]) else {
        return;
    };
    let store = &*fixture.store;
    let reader = store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    assert_eq!(reader.read_at(&UNLIMITED, 0, 10).unwrap(), old[..10]);
    put(store, "a/b", &vec![0xee; 50_000]);
    match reader.read_at(&UNLIMITED, 20_000, 1000) {
        Ok(bytes) => assert_eq!(bytes, old[20_000..21_000]),
        Err(error) => assert_eq!(error.kind(), Fault::Changed),
    }
    assert_holds(store, &key("a/b"), &[0xee; 50_000]);
}

pub(crate) fn the_probe_of_conditional_puts_leaves_no_object(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a", b"1")]) else {
        return;
    };
    let store = &*fixture.store;
    let body = PutBody::Bytes(b"2");
    let held = store
        .put(&UNLIMITED, &key("b"), body, &Condition::Absent)
        .unwrap();
    let condition = Condition::Match(held.text);
    store.put(&UNLIMITED, &key("b"), body, &condition).unwrap();
    assert_eq!(names(store, "").len(), 2, "the trial has left something");
}

pub(crate) fn changes_are_noted_by_key(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"1")]) else {
        return;
    };
    let store = &*fixture.store;
    let changes = &store.info().changes;
    let start = changes.position();
    put(store, "a/c", b"2");
    assert!(changes.changed_since(start, &key("a/c")));
    assert!(!changes.changed_since(start, &key("a/b")));
    let put = changes.position();
    store
        .erase(&UNLIMITED, &key("a/b"), &Condition::Any)
        .unwrap();
    assert!(changes.changed_since(put, &key("a/b")));
    assert!(changes.below_changed_since(put, &key("a")));
    assert!(!changes.changed_since(put, &key("a/c")));
}

const THREADS: usize = 8;

pub(crate) fn one_of_many_puts_on_condition_of_absence_wins(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/b", b"1")]) else {
        return;
    };
    if [Writes::Looking, Writes::Racing].contains(&kind.writes) {
        return println!("skipped: {} looks just before", kind.name);
    }
    let store = &*fixture.store;
    for round in 0..kind.fewer(400).clamp(3, 100) {
        let asked = key(format!("new/{round}"));
        let tries = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let asked = &asked;
                    scope.spawn(move || {
                        let body = [thread as u8; 1000];
                        let done =
                            store.put(&UNLIMITED, asked, PutBody::Bytes(&body), &Condition::Absent);
                        done.map(|_| body)
                    })
                })
                .collect();
            let tries = tries.into_iter().map(|thread| thread.join().unwrap());
            tries.collect::<Vec<_>>()
        });
        let (won, lost): (Vec<_>, Vec<_>) = tries.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "{asked}");
        assert_holds(store, &asked, won[0].as_ref().unwrap());
        for error in lost {
            assert_eq!(error.unwrap_err().kind(), Fault::Changed);
        }
    }
}

/// Several threads increment a counter with conditional puts. No increment may be lost.
pub(crate) fn no_conditional_put_is_lost(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/count", b"0 nobody")]) else {
        return;
    };
    if [Writes::Looking, Writes::Racing].contains(&kind.writes) {
        return println!("skipped: {} looks just before", kind.name);
    }
    let (store, asked) = (&*fixture.store, key("a/count"));
    let steps = kind.fewer(400).clamp(3, 20);
    let count = || -> u64 {
        let bytes = store.get(&UNLIMITED, &asked, 100).unwrap().unwrap().bytes;
        let text = String::from_utf8(bytes).unwrap();
        text.split_once(' ').unwrap().0.parse().unwrap()
    };
    let step = |thread: usize| {
        loop {
            let held = store.etag(&UNLIMITED, &asked).unwrap().unwrap();
            let next = format!("{} {thread}", count() + 1);
            match store.put(
                &UNLIMITED,
                &asked,
                PutBody::Bytes(next.as_bytes()),
                &Condition::Match(held.text),
            ) {
                Ok(_) => return,
                Err(error) => assert_eq!(error.kind(), Fault::Changed, "{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let step = &step;
            scope.spawn(move || (0..steps).for_each(|_| step(thread)));
        }
    });
    assert_eq!(count(), 4 * steps as u64);
}

/// A put and a removal have the previous content as their condition, so only one may succeed.
pub(crate) fn one_of_a_conditional_put_and_erase_wins(kind: &Kind) {
    let Some(fixture) = writable(kind, &[(b"a/other", b"1")]) else {
        return;
    };
    if [Writes::Looking, Writes::Racing].contains(&kind.writes) {
        return println!("skipped: {} looks just before", kind.name);
    }
    let (store, asked) = (&*fixture.store, key("a/b"));
    for round in 0..kind.fewer(800).clamp(3, 100) {
        let held = Condition::Match(put(store, "a/b", &pattern(round + 1)).text);
        let (put, erased) = std::thread::scope(|scope| {
            let put = scope.spawn(|| store.put(&UNLIMITED, &asked, PutBody::Bytes(b"new"), &held));
            let erased = store.erase(&UNLIMITED, &asked, &held);
            (put.join().unwrap(), erased)
        });
        match (put, erased) {
            (Ok(_), Err(error)) => {
                assert_eq!(error.kind(), Fault::Changed);
                assert_holds(store, &asked, b"new");
            }
            (Err(error), Ok(())) => {
                assert_eq!(error.kind(), Fault::Changed);
                assert_missing(store, &asked);
            }
            both => panic!("{both:?}"),
        }
    }
}

/// The object is one byte longer than a single request may be, so that its last byte needs another request.
pub(crate) fn all_bytes_of_a_big_object_are_put(kind: &Kind) {
    if !kind.takes_big {
        return println!("skipped: another kind of {} does it", kind.name);
    }
    let Some(fixture) = writable(kind, &[(b"a", b"1")]) else {
        return;
    };
    let store = &*fixture.store;
    let bytes = pattern((40 << 20) + 1);
    let mut file: File = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let body = PutBody::File(&file, bytes.len() as u64);
    let first = store
        .put(&UNLIMITED, &key("b/big"), body, &Condition::Absent)
        .unwrap();
    assert_holds(store, &key("b/big"), &bytes);
    assert_eq!(assert_stamp(store, &key("b/big")), first);
    let again = store.put(&UNLIMITED, &key("b/big"), body, &Condition::Absent);
    assert_eq!(again.unwrap_err().kind(), Fault::Changed);
    let wrong = Condition::Match("\"0\"".to_string());
    let refused = store
        .put(&UNLIMITED, &key("b/big"), body, &wrong)
        .unwrap_err();
    assert_eq!(refused.kind(), Fault::Changed);
    let half = &bytes[..30 << 20];
    let held = Condition::Match(first.text);
    store
        .put(&UNLIMITED, &key("b/big"), PutBody::Bytes(half), &held)
        .unwrap();
    assert_holds(store, &key("b/big"), half);
}
