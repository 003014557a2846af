//! Listings of directories: every name once, with its kind, and from any cursor.

use std::collections::{BTreeMap, HashSet};

use zarr_format::error::Kind as Fault;
use zarrfs_store::{EntryKind, Listing, Name, Store};

use crate::conformance::fixture::{Kind, key};
use zarrfs_store::request_context::UNLIMITED;

/// Reads the rest of a listing.
fn rest(listing: &mut dyn Listing) -> Vec<Name> {
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        names.push(name);
    }
    assert_eq!(
        listing.next(&UNLIMITED).unwrap(),
        None,
        "the end stays the end"
    );
    names
}

/// Returns the names and kinds below a prefix, after a check that no name is listed twice.
pub(crate) fn names(store: &dyn Store, prefix: &str) -> BTreeMap<Vec<u8>, EntryKind> {
    let listed = rest(&mut *store.list(&UNLIMITED, &key(prefix)).unwrap());
    let count = listed.len();
    let names: BTreeMap<_, _> = listed
        .into_iter()
        .map(|name| (name.name, name.kind))
        .collect();
    assert_eq!(names.len(), count, "a name twice under {prefix:?}");
    names
}

fn expected(names: &[(&str, EntryKind)]) -> BTreeMap<Vec<u8>, EntryKind> {
    let names = names.iter();
    names
        .map(|(name, kind)| (name.as_bytes().to_vec(), *kind))
        .collect()
}

pub(crate) fn a_listing_has_each_name_once(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    use EntryKind::{Directory, File};
    let fixture = (kind.holding)(&[
        (b"zarr.json", b"1"),
        (b"b/.zattrs", b"2"),
        (b"a/zarr.json", b"3"),
        (b"a/c/0/0", b"4"),
        (b"a/c/0/1", b"5"),
        (b"a/c/1/0", b"6"),
    ]);
    let root = expected(&[("zarr.json", File), ("a", Directory), ("b", Directory)]);
    assert_eq!(names(&*fixture.store, ""), root);
    assert_eq!(names(&*fixture.store, "b"), expected(&[(".zattrs", File)]));
    let array = expected(&[("zarr.json", File), ("c", Directory)]);
    assert_eq!(names(&*fixture.store, "a"), array);
    let rows = expected(&[("0", Directory), ("1", Directory)]);
    assert_eq!(names(&*fixture.store, "a/c"), rows);
    let chunks = expected(&[("0", File), ("1", File)]);
    assert_eq!(names(&*fixture.store, "a/c/0"), chunks);
    for (name, kind) in root {
        assert_eq!(
            fixture
                .store
                .head(&UNLIMITED, &key(name))
                .unwrap()
                .unwrap()
                .kind,
            kind
        );
    }
}

pub(crate) fn names_with_a_common_start_are_listed_separately(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    use EntryKind::{Directory, File};
    let fixture = (kind.holding)(&[
        (b"a/x", b""),
        (b"a.b/y", b""),
        (b"ab/z", b""),
        (b"a-", b""),
        (b"a0/1/2", b""),
    ]);
    assert_eq!(names(&*fixture.store, "a"), expected(&[("x", File)]));
    assert_eq!(names(&*fixture.store, "a0"), expected(&[("1", Directory)]));
    let root = [
        ("a", Directory),
        ("a.b", Directory),
        ("ab", Directory),
        ("a-", File),
        ("a0", Directory),
    ];
    assert_eq!(names(&*fixture.store, ""), expected(&root));
}

pub(crate) fn a_listing_resumes_after_any_cursor(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    let keys: Vec<String> = (0..kind.many)
        .map(|number| match number % 5 {
            0 => format!("d/folder{number}/x"),
            _ => format!("d/{number}{}", "n".repeat(number % 90)),
        })
        .collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &b"1"[..])).collect();
    let fixture = (kind.holding)(&objects);
    let mut listing = fixture.store.list(&UNLIMITED, &key("d")).unwrap();
    let all = rest(&mut *listing);
    assert_eq!(all.len(), keys.len());
    let cursors: HashSet<u64> = all.iter().map(|name| name.cursor).collect();
    assert_eq!(cursors.len(), all.len(), "cursors are distinct");
    assert!(!cursors.contains(&0), "0 is the beginning");
    // Jump back and forth, so that no cursor is at the listing's current position by chance.
    for step in 0..kind.fewer(all.len()) {
        let place = step * 997 % all.len();
        listing.seek(&UNLIMITED, all[place].cursor).unwrap();
        assert_eq!(
            listing.next(&UNLIMITED).unwrap().as_ref(),
            all.get(place + 1)
        );
    }
    for place in [0, kind.many / 2, kind.many - 2, kind.many - 1] {
        let mut other = fixture.store.list(&UNLIMITED, &key("d")).unwrap();
        other.seek(&UNLIMITED, all[place].cursor).unwrap();
        assert_eq!(rest(&mut *other), all[place + 1..], "another listing");
    }
    listing.seek(&UNLIMITED, 0).unwrap();
    assert_eq!(rest(&mut *listing), all);
}

/// A store without keys lists nothing and has no documents. If its root prefix does not exist without keys, it fails
/// with `Gone`.
pub(crate) fn an_empty_store_lists_nothing(kind: &Kind) {
    let fixture = (kind.holding)(&[]);
    let root = fixture.store.head(&UNLIMITED, &key("")).unwrap().unwrap();
    assert_eq!(root.kind, EntryKind::Directory);
    let document = fixture.store.get(&UNLIMITED, &key("zarr.json"), 10);
    let is_gone = match document {
        Ok(document) => {
            assert!(document.is_none());
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), Fault::Gone, "{error}");
            true
        }
    };
    if kind.lists() {
        match fixture.store.list(&UNLIMITED, &key("")) {
            Ok(mut listing) => assert_eq!(rest(&mut *listing), []),
            Err(error) => assert!(is_gone && error.kind() == Fault::Gone, "{error}"),
        }
    }
}

pub(crate) fn listing_a_missing_key_fails(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    let fixture = (kind.holding)(&[(b"ab/c", b"1"), (b"file", b"2")]);
    for missing in ["a", "abc", "ab/d", "x/y"] {
        let error = fixture.store.list(&UNLIMITED, &key(missing)).err().unwrap();
        assert_eq!(error.kind(), Fault::NotFound, "{missing}");
        assert!(error.to_string().contains(missing), "{error}");
    }
}

pub(crate) fn listing_an_object_fails(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    let fixture = (kind.holding)(&[(b"ab/c", b"1"), (b"file", b"2")]);
    for (path, fault) in [
        ("file", Fault::NotADirectory),
        ("ab/c", Fault::NotADirectory),
        ("file/x", Fault::NotFound),
        ("ab/c/d/e", Fault::NotFound),
    ] {
        let error = fixture.store.list(&UNLIMITED, &key(path)).err().unwrap();
        assert_eq!(error.kind(), fault, "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

pub(crate) fn a_listing_ends_though_the_directory_changes(kind: &Kind) {
    if !kind.lists() {
        return;
    }
    let count = kind.fewer(3000).max(kind.many.min(1100));
    let keys: Vec<String> = (0..count).map(|number| format!("d/{number:030}")).collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &b"1"[..])).collect();
    let Some(fixture) = kind.changing(&objects) else {
        return;
    };
    let mut listing = fixture.store.list(&UNLIMITED, &key("d")).unwrap();
    let first = listing.next(&UNLIMITED).unwrap().unwrap();
    for number in 0..count / 10 {
        fixture.writer().erase(&key(&keys[number * 10]));
        fixture
            .writer()
            .replace(&key(format!("d/new{number}")), b"2");
    }
    let mut seen: Vec<Vec<u8>> = vec![first.name];
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        seen.push(name.name);
        assert!(seen.len() <= count * 2, "the listing does not end");
    }
    let distinct: HashSet<&[u8]> = seen.iter().map(Vec::as_slice).collect();
    assert_eq!(distinct.len(), seen.len(), "a name twice");
    for (number, name) in keys.iter().enumerate() {
        let stayed = number % 10 != 0;
        assert!(
            !stayed || distinct.contains(&name.as_bytes()[2..]),
            "{name} is lost"
        );
    }
}
