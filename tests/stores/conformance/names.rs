//! Names with any bytes, and keys that name no object.

use std::collections::BTreeSet;

use zarr_format::error::Kind as Fault;
use zarrfs_store::{EntryKind, Key};

use crate::conformance::fixture::{Kind, key};
use crate::conformance::listings;
use zarrfs_store::request_context::UNLIMITED;

/// Returns names that are easy to get wrong: with each possible byte, and with special meanings elsewhere.
pub(crate) fn odd_names() -> Vec<Vec<u8>> {
    let bytes = (1..=255u8).filter(|byte| *byte != b'/');
    let mut names: Vec<Vec<u8>> = bytes.map(|byte| vec![byte, b'x', byte]).collect();
    let telling: [&[u8]; 14] = [
        b" ",
        b" a ",
        b"a\nb",
        b"\x1b[2J",
        b"...",
        b"..a",
        b"a..",
        b"\\..\\a",
        b"%2e%2e%2f",
        b"a?b#c",
        b"\xff\xfe\xfd",
        b"\xc3\x28",
        b"caf\xc3\xa9",
        b"-rf",
    ];
    names.extend(telling.map(<[u8]>::to_vec));
    names.push(vec![b'n'; 255]);
    names.push(vec![0xff; 255]);
    names
}

pub(crate) fn names_of_any_bytes_are_listed_and_read(kind: &Kind) {
    let names = kind.names();
    let keys: Vec<Vec<u8>> = names
        .iter()
        .map(|name| [b"d/", name.as_slice()].concat())
        .collect();
    // Each object contains its own name, so that a confusion of two objects is noticed.
    let objects: Vec<(&[u8], &[u8])> = keys
        .iter()
        .zip(&names)
        .map(|(key, name)| (key.as_slice(), name.as_slice()))
        .collect();
    let fixture = (kind.holding)(&objects);
    if kind.lists() {
        let listed = listings::names(&*fixture.store, "d");
        assert!(listed.values().all(|kind| *kind == EntryKind::File));
        let shown = names.iter().filter(|name| kind.shows(name));
        let expected: BTreeSet<Vec<u8>> = shown.cloned().collect();
        assert_eq!(listed.into_keys().collect::<BTreeSet<_>>(), expected);
    }
    for (asked, name) in objects {
        let object = fixture
            .store
            .get(&UNLIMITED, &key(asked), 1000)
            .unwrap()
            .unwrap();
        assert_eq!(object.bytes, name);
        let reader = fixture.store.open(&UNLIMITED, &key(asked), None).unwrap();
        assert_eq!(reader.read_at(&UNLIMITED, 0, 300).unwrap(), name);
    }
}

pub(crate) fn differently_spelled_names_are_different_keys(kind: &Kind) {
    // Names that differ in case, composed or decomposed accents, percent escapes or a trailing space.
    let names = [
        "Name", "name", "\u{e9}", "e\u{301}", "a b", "a%20b", "a", "a ",
    ];
    let objects: Vec<(&[u8], &[u8])> = names
        .iter()
        .map(|name| (name.as_bytes(), name.as_bytes()))
        .collect();
    let fixture = (kind.holding)(&objects);
    for name in names {
        let object = fixture
            .store
            .get(&UNLIMITED, &key(name), 100)
            .unwrap()
            .unwrap();
        assert_eq!(object.bytes, name.as_bytes());
    }
    for other in ["NAME", "a%20", "a+b", "A", "E\u{301}"] {
        assert!(
            fixture
                .store
                .get(&UNLIMITED, &key(other), 100)
                .unwrap()
                .is_none(),
            "{other}"
        );
    }
    if kind.lists() {
        assert_eq!(listings::names(&*fixture.store, "").len(), names.len());
    }
}

pub(crate) fn long_names_and_deep_keys_are_read(kind: &Kind) {
    let long = ["n".repeat(255), "m".repeat(255)].join("/");
    let deep = vec!["d"; 200].join("/");
    let fixture = (kind.holding)(&[(long.as_bytes(), b"1"), (deep.as_bytes(), b"2")]);
    for (name, bytes) in [(&long, b"1"), (&deep, b"2")] {
        let object = fixture
            .store
            .get(&UNLIMITED, &key(name), 10)
            .unwrap()
            .unwrap();
        assert_eq!(object.bytes, bytes);
    }
    let shorter = key("n".repeat(254));
    assert_eq!(fixture.store.head(&UNLIMITED, &shorter).unwrap(), None);
    // This key is longer than any path may be, so it can have no object.
    let endless = key(vec!["d"; 3000].join("/"));
    match fixture.store.head(&UNLIMITED, &endless) {
        Ok(found) => assert_eq!(found, None),
        Err(error) => assert_eq!(error.kind(), Fault::NameTooLong, "{error}"),
    }
}

pub(crate) fn keys_that_could_leave_the_store_are_refused(kind: &Kind) {
    let fixture = (kind.holding)(&[(b"d/x", b"1")]);
    for outward in [
        &b".."[..],
        b"../x",
        b"d/../../x",
        b"d/..",
        b"/etc/passwd",
        b"d//x",
        b"d/./x",
        b"d/",
        b"d/x\0",
    ] {
        let refused = Key::new(outward).map(|key| fixture.store.get(&UNLIMITED, &key, 10));
        assert_eq!(refused.err().unwrap().kind(), Fault::Invalid);
    }
    let folder = key("d");
    for name in [&b".."[..], b".", b"", b"../x", b"a/b", b"a\0b"] {
        assert_eq!(folder.child(name).unwrap_err().kind(), Fault::Invalid);
    }
    let long = folder.child(&[b'n'; 256]).unwrap_err();
    assert_eq!(long.kind(), Fault::NameTooLong);
}
