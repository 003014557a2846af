//! Whole objects, ranges, sizes, versions, and keys that are no objects.

use std::ops::Range;

use zarr_format::error::Kind as Fault;
use zarrfs_store::{ByteRange, EntryKind, Key, Store, Version};

use crate::conformance::fixture::{Kind, key, pattern};
use crate::conformance::listings::names;
use zarrfs_store::request_context::UNLIMITED;

/// Checks that no kind of request finds an object at a key.
fn assert_no_object(store: &dyn Store, missing: &Key) {
    let spans = [ByteRange::Span(0..1), ByteRange::Suffix(1)];
    assert!(
        store.get(&UNLIMITED, missing, 100).unwrap().is_none(),
        "{missing:?}"
    );
    for span in spans {
        assert!(
            store
                .get_range(&UNLIMITED, missing, span)
                .unwrap()
                .is_none(),
            "{missing:?}"
        );
    }
    let refused = store.open(&UNLIMITED, missing, None).err().unwrap().kind();
    assert!(
        [Fault::NotFound, Fault::IsADirectory].contains(&refused),
        "{missing:?}: {refused:?}"
    );
}

pub(crate) fn a_get_returns_all_bytes_of_an_object(kind: &Kind) {
    let (small, large) = (pattern(5), pattern(300_001));
    let objects: [(&[u8], &[u8]); 4] = [
        (b"empty", b""),
        (b"one", b"\0"),
        (b"a/b/small", &small),
        (b"a/large", &large),
    ];
    let fixture = (kind.holding)(&objects);
    for (name, bytes) in objects {
        let object = fixture
            .store
            .get(&UNLIMITED, &key(name), 1 << 20)
            .unwrap()
            .unwrap();
        assert_eq!(object.bytes, bytes);
        assert_eq!(object.size, bytes.len() as u64);
        let meta = fixture.store.head(&UNLIMITED, &key(name)).unwrap().unwrap();
        assert_eq!(
            (meta.kind, meta.size),
            (EntryKind::File, bytes.len() as u64)
        );
    }
}

pub(crate) fn objects_beyond_the_limit_are_too_large(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"a/ten", &pattern(10)), (b"empty", b"")]);
    for limit in [10, 11, u64::MAX] {
        let object = fixture
            .store
            .get(&UNLIMITED, &key("a/ten"), limit)
            .unwrap()
            .unwrap();
        assert_eq!(object.bytes, pattern(10));
    }
    for limit in [0, 9] {
        let error = fixture
            .store
            .get(&UNLIMITED, &key("a/ten"), limit)
            .unwrap_err();
        assert_eq!(error.kind(), Fault::TooLarge);
        assert!(error.to_string().contains("a/ten"), "{error}");
    }
    assert!(
        fixture
            .store
            .get(&UNLIMITED, &key("empty"), 0)
            .unwrap()
            .is_some()
    );
}

pub(crate) fn a_missing_key_has_no_object(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"abc", b"1"), (b"d/e/f", b"2")]);
    for missing in [
        "ab",
        "abcd",
        "b",
        "d/e/fg",
        "d/f",
        "d/e/f.json",
        "x/y/z",
        "c",
    ] {
        assert_no_object(&*fixture.store, &key(missing));
        assert_eq!(
            fixture.store.head(&UNLIMITED, &key(missing)).unwrap(),
            None,
            "{missing}"
        );
        let error = fixture
            .store
            .open(&UNLIMITED, &key(missing), None)
            .err()
            .unwrap();
        assert_eq!(error.kind(), Fault::NotFound);
    }
}

pub(crate) fn a_prefix_is_a_directory_without_an_object(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"a/b/c", b"1")]);
    for prefix in ["", "a", "a/b"] {
        assert_no_object(&*fixture.store, &key(prefix));
        let meta = fixture
            .store
            .head(&UNLIMITED, &key(prefix))
            .unwrap()
            .unwrap();
        assert_eq!((meta.kind, meta.size), (EntryKind::Directory, 0));
    }
}

pub(crate) fn a_key_below_an_object_is_missing(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"a", b"1"), (b"d/e", b"2")]);
    for through in ["a/b", "a/b/c", "d/e/zarr.json"] {
        assert_no_object(&*fixture.store, &key(through));
        assert_eq!(
            fixture.store.head(&UNLIMITED, &key(through)).unwrap(),
            None,
            "{through}"
        );
        if !kind.lists() {
            continue;
        }
        let error = fixture.store.list(&UNLIMITED, &key(through)).err().unwrap();
        assert!([Fault::NotFound, Fault::NotADirectory].contains(&error.kind()));
    }
}

/// Returns the bytes that a range selects by the Zarr specification.
fn slice<'a>(whole: &'a [u8], range: &ByteRange) -> &'a [u8] {
    let clip = |place: u64| whole.len().min(place.try_into().unwrap_or(usize::MAX));
    match range {
        ByteRange::Span(Range { start, end }) if start < end => &whole[clip(*start)..clip(*end)],
        ByteRange::Span(_) => &[],
        ByteRange::Suffix(length) => &whole[whole.len() - clip(*length)..],
    }
}

pub(crate) fn every_byte_range_is_that_slice_of_the_object(kind: &Kind) {
    let places = || (0..=12).chain([u64::from(u32::MAX) + 1, i64::MAX as u64, u64::MAX]);
    let spans = places().flat_map(|start| places().map(move |end| ByteRange::Span(start..end)));
    let ranges: Vec<ByteRange> = spans.chain(places().map(ByteRange::Suffix)).collect();
    for length in [0, 1, 10] {
        let whole = pattern(length);
        let fixture = (kind.holding)(&[(b"a/b", &whole)]);
        for range in &ranges {
            let part = fixture
                .store
                .get_range(&UNLIMITED, &key("a/b"), range.clone());
            let part = part.unwrap().unwrap();
            assert_eq!(part.bytes, slice(&whole, range), "{range:?} of {length}");
            assert_eq!(part.size, length as u64, "{range:?}");
        }
    }
}

/// The same key may be a directory and an object: a listing finds the keys below it, and a request finds the object.
pub(crate) fn a_key_may_be_an_object_and_a_prefix(kind: &Kind) {
    if !kind.both {
        return println!("skipped: a key of {} is one or the other", kind.name);
    }
    // The keys `a-` and `a0` sort before and after the separator `/`.
    let keys: [&[u8]; 5] = [b"a", b"a-", b"a/b", b"a/b/c", b"a0"];
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|&key| (key, key)).collect();
    let fixture = (kind.holding)(&objects);
    let store = &*fixture.store;
    for name in keys {
        let asked = key(name);
        assert_eq!(
            store.get(&UNLIMITED, &asked, 10).unwrap().unwrap().bytes,
            name
        );
        let part = store.get_range(&UNLIMITED, &asked, ByteRange::Suffix(1));
        assert_eq!(part.unwrap().unwrap().bytes, name[name.len() - 1..]);
        let reader = store.open(&UNLIMITED, &asked, None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 0, 10).unwrap(), name);
        assert_eq!(reader.meta(&UNLIMITED).unwrap().kind, EntryKind::File);
        let meta = store.head(&UNLIMITED, &asked).unwrap().unwrap();
        assert_eq!(meta.size, name.len() as u64);
        version(store, &asked);
    }
    use EntryKind::{Directory, File};
    for (prefix, expected) in [
        ("", vec![("a", Directory), ("a-", File), ("a0", File)]),
        ("a", vec![("b", Directory)]),
        ("a/b", vec![("c", File)]),
    ] {
        let listed = names(store, prefix);
        let expected = expected
            .iter()
            .map(|(name, kind)| (name.as_bytes().to_vec(), *kind));
        assert_eq!(listed, expected.collect(), "{prefix}");
        for (name, kind) in listed {
            let path = [prefix.as_bytes(), b"/", &name].concat();
            let path = path.strip_prefix(b"/").unwrap_or(&path);
            assert_eq!(
                store.head(&UNLIMITED, &key(path)).unwrap().unwrap().kind,
                kind
            );
        }
    }
}

/// Checks that two versions may be of the same content. Without ETags, each request returns a new version.
pub(crate) fn assert_same(one: Version, other: Version) {
    assert!(one.may_be(other), "{one:?} {other:?}");
}

/// Returns the version of an object, after a check that all kinds of requests agree.
fn version(store: &dyn Store, asked: &Key) -> Version {
    let version = store
        .get(&UNLIMITED, asked, 1 << 20)
        .unwrap()
        .unwrap()
        .version;
    let span = store.get_range(&UNLIMITED, asked, ByteRange::Span(1..2));
    assert_same(span.unwrap().unwrap().version, version);
    let head = store.head(&UNLIMITED, asked).unwrap().unwrap();
    assert_same(head.version, version);
    let reader = store.open(&UNLIMITED, asked, None).unwrap();
    assert_same(reader.meta(&UNLIMITED).unwrap().version, version);
    version
}

pub(crate) fn every_answer_has_the_same_version(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"a", b"one"), (b"b/c", b"two")]);
    for name in ["a", "b/c"] {
        let first = version(&*fixture.store, &key(name));
        assert_same(version(&*fixture.store, &key(name)), first);
    }
}

pub(crate) fn a_new_content_has_a_new_version(kind: &Kind) {
    let Some(fixture) = kind.changing(&[(b"a/b", b"0000")]) else {
        return;
    };
    let (store, asked) = (&*fixture.store, key("a/b"));
    let mut before = version(store, &asked);
    let written: [&[u8]; 4] = [b"1111", b"2222", b"33333", b"4"];
    for (place, bytes) in written.into_iter().enumerate() {
        if place % 2 == 0 {
            fixture.writer().replace(&asked, bytes);
        } else {
            fixture.writer().overwrite(&asked, bytes);
        }
        assert_eq!(
            store.get(&UNLIMITED, &asked, 100).unwrap().unwrap().bytes,
            bytes
        );
        let now = version(store, &asked);
        assert!(!now.may_be(before), "{bytes:?}");
        before = now;
    }
}

pub(crate) fn an_erased_object_is_missing(kind: &Kind) {
    let Some(fixture) = kind.changing(&[(b"a/b", b"1"), (b"a/c", b"2")]) else {
        return;
    };
    fixture.writer().erase(&key("a/b"));
    assert_no_object(&*fixture.store, &key("a/b"));
    assert_eq!(fixture.store.head(&UNLIMITED, &key("a/b")).unwrap(), None);
    fixture.writer().replace(&key("a/b"), b"3");
    let object = fixture
        .store
        .get(&UNLIMITED, &key("a/b"), 10)
        .unwrap()
        .unwrap();
    assert_eq!(object.bytes, b"3");
}
