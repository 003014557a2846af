//! Reads zip archives of several writers as stores.

mod changing;
mod fixture;
mod hostile;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use zarr_format::error::Kind;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::{ByteRange, EntryKind, HiddenReason, Key, Store, StoreConfig};

use crate::common::zip_writer::{Archive, Entry};
use fixture::{LIMIT, content, get, key, names, open, open_inside, zip};
use zarrfs_store::request_context::UNLIMITED;

#[test]
fn stored_and_deflated_entries_are_read() {
    let long = content(3 << 20);
    let zip = zip([
        Entry::new("stored", b"one"),
        Entry::deflated("deflated", b"two"),
        Entry::new("empty", b""),
        Entry::deflated("long", &long),
        Entry::new("a/streamed", &long).streamed(),
        Entry::deflated("a/b/streamed", &long).streamed(),
    ]);
    for (path, expected) in [
        ("stored", &b"one"[..]),
        ("deflated", b"two"),
        ("empty", b""),
        ("long", &long),
        ("a/streamed", &long),
        ("a/b/streamed", &long),
    ] {
        assert!(get(&zip, path).unwrap().unwrap() == expected, "{path}");
        let meta = zip.head(&UNLIMITED, &key(path)).unwrap().unwrap();
        assert_eq!(
            (meta.kind, meta.size),
            (EntryKind::File, expected.len() as u64)
        );
        let opened = zip.open(&UNLIMITED, &key(path), None).unwrap();
        assert_eq!(opened.meta(&UNLIMITED).unwrap(), meta);
        assert!(
            opened.read_at(&UNLIMITED, 0, usize::MAX).unwrap() == expected,
            "{path}"
        );
        assert_eq!(
            zip.get(&UNLIMITED, &key(path), LIMIT)
                .unwrap()
                .unwrap()
                .version,
            meta.version
        );
    }
    for missing in ["none", "a", "a/b", "stored/x", "a/none"] {
        assert_eq!(get(&zip, missing).unwrap(), None, "{missing}");
    }
    assert_eq!(
        names(&zip, ""),
        ["a/", "deflated", "empty", "long", "stored"]
    );
    assert_eq!(names(&zip, "a"), ["b/", "streamed"]);
    assert_eq!(
        zip.open(&UNLIMITED, &key("a"), None).err().unwrap().kind(),
        Kind::IsADirectory
    );
    assert_eq!(
        zip.open(&UNLIMITED, &key("none"), None)
            .err()
            .unwrap()
            .kind(),
        Kind::NotFound
    );
    assert_eq!(
        zip.list(&UNLIMITED, &key("none")).err().unwrap().kind(),
        Kind::NotFound
    );
    assert_eq!(
        zip.list(&UNLIMITED, &key("long")).err().unwrap().kind(),
        Kind::NotADirectory
    );
}

#[test]
fn any_range_is_the_slice_of_the_whole() {
    let long = content(12 << 20);
    let zip = zip([
        Entry::new("stored", &long),
        Entry::deflated("deflated", &long),
    ]);
    let size = long.len();
    for path in ["stored", "deflated"] {
        let opened = zip.open(&UNLIMITED, &key(path), None).unwrap();
        // Read forward, backward within the decoded window and beyond it, to the end and past it.
        for (offset, length) in [
            (0, 10),
            (100_000, 300_000),
            (90_000, 20),
            (size - 5, 10),
            (size - 2_000_000, 1_000_000),
            (5, 5),
            (0, size),
            (size, 1),
            (size + 1, 1),
            (usize::MAX, usize::MAX),
        ] {
            let expected = &long[offset.min(size)..offset.saturating_add(length).min(size)];
            let found = opened.read_at(&UNLIMITED, offset as u64, length).unwrap();
            assert!(found == expected, "{path} {offset} {length}");
            let span = ByteRange::Span(offset as u64..offset.saturating_add(length) as u64);
            let object = zip
                .get_range(&UNLIMITED, &key(path), span)
                .unwrap()
                .unwrap();
            assert!(object.bytes == expected, "{path} {offset} {length}");
            assert_eq!(object.size, size as u64);
        }
        let object = zip
            .get_range(&UNLIMITED, &key(path), ByteRange::Suffix(7))
            .unwrap();
        assert_eq!(object.unwrap().bytes, long[size - 7..]);
        let part = zip
            .get(&UNLIMITED, &key(path), size as u64 - 1)
            .unwrap_err();
        assert_eq!(part.kind(), Kind::TooLarge);
        assert!(
            zip.get(&UNLIMITED, &key(path), size as u64)
                .unwrap()
                .is_some()
        );
    }
}

#[test]
fn concurrent_readers_of_a_deflated_entry_get_its_bytes() {
    let long = content(2 << 20);
    let zip = zip([Entry::deflated("deflated", &long)]);
    let opened = zip.open(&UNLIMITED, &key("deflated"), None).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (opened, long) = (&opened, &long);
            scope.spawn(move || {
                for turn in 0..16 {
                    let at = (turn * 4 + (thread * 7 + turn) % 4) << 15;
                    let found = opened.read_at(&UNLIMITED, at as u64, 1 << 15).unwrap();
                    assert!(found == long[at..at + (1 << 15)]);
                }
            });
        }
    });
}

#[test]
fn the_last_entry_of_a_name_is_read_and_files_may_be_folders() {
    let zip = zip([
        Entry::new("a/0", b"first"),
        Entry::new("both", b"file"),
        Entry::new("a/0", b"second, longer"),
        Entry::new("both/x", b"x"),
        Entry::new("folder/", b""),
        Entry::deflated("a/0", b"third"),
    ]);
    assert_eq!(get(&zip, "a/0").unwrap().unwrap(), b"third");
    assert_eq!(names(&zip, ""), ["a/", "both/", "folder/"]);
    assert_eq!(names(&zip, "a"), ["0"]);
    assert_eq!(names(&zip, "folder"), [""; 0]);
    assert_eq!(get(&zip, "both").unwrap().unwrap(), b"file");
    assert_eq!(get(&zip, "both/x").unwrap().unwrap(), b"x");
    let meta = zip.head(&UNLIMITED, &key("both")).unwrap().unwrap();
    assert_eq!((meta.kind, meta.size), (EntryKind::Directory, 4));
    let opened = zip.open(&UNLIMITED, &key("both"), None).unwrap();
    assert_eq!(opened.read_at(&UNLIMITED, 0, 9).unwrap(), b"file");
}

/// Opens an archive with an entry that does not match its CRC-32.
fn with_wrong_sum(bytes: &[u8]) -> ZipStore {
    let mut wrong = Entry::new("a", bytes);
    wrong.packed[bytes.len() / 2] ^= 1;
    zip([wrong, Entry::new("b", b"right")])
}

#[test]
fn a_wrong_checksum_fails_every_complete_read() {
    let bytes = content(10_000);
    let zip = with_wrong_sum(&bytes);
    let opened = zip.open(&UNLIMITED, &key("a"), None).unwrap();
    // Read parts of the entry out of order, with overlaps.
    for (offset, length) in [(3000, 3000), (0, 3000), (5000, 2000)] {
        let read = opened.read_at(&UNLIMITED, offset, length).unwrap();
        assert_eq!(read.len(), length);
    }
    // Another reader reads the rest of the entry, so that its CRC-32 can be computed.
    let other = zip.open(&UNLIMITED, &key("a"), None).unwrap();
    let error = other.read_at(&UNLIMITED, 7000, 3000).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().starts_with("a: the CRC-32 is"), "{error}");
    // All later reads of the entry fail, because the kernel may have cached other parts of it.
    for failed in [
        opened.read_at(&UNLIMITED, 0, 1).err(),
        zip.open(&UNLIMITED, &key("a"), None).err(),
        zip.get_range(&UNLIMITED, &key("a"), ByteRange::Suffix(3))
            .err(),
        zip.get(&UNLIMITED, &key("a"), LIMIT).err(),
    ] {
        assert_eq!(failed.unwrap().kind(), Kind::Corrupt);
    }
    let right = zip.open(&UNLIMITED, &key("b"), None).unwrap();
    assert_eq!(right.read_at(&UNLIMITED, 0, 9).unwrap(), b"right");
}

#[test]
fn ranges_of_the_whole_entry_are_verified() {
    let zip = with_wrong_sum(&content(100));
    let range = |start, end| ByteRange::Span(start..end);
    assert!(zip.get_range(&UNLIMITED, &key("a"), range(60, 100)).is_ok());
    let error = zip
        .get_range(&UNLIMITED, &key("a"), range(0, 60))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn unusual_names_of_other_writers_become_keys() {
    let zip = zip([
        Entry::new("./", b""),
        Entry::new("./zarr.json", b"root"),
        Entry::new("/a/zarr.json", b"slash"),
        Entry::new("b\\c\\zarr.json", b"backslash"),
        Entry::deflated(".//././d/0", b"both"),
    ]);
    assert_eq!(names(&zip, ""), ["a/", "b/", "d/", "zarr.json"]);
    for (name, bytes) in [
        ("zarr.json", &b"root"[..]),
        ("a/zarr.json", b"slash"),
        ("b/c/zarr.json", b"backslash"),
        ("d/0", b"both"),
    ] {
        assert_eq!(get(&zip, name).unwrap().unwrap(), bytes, "{name}");
        let opened = zip.open(&UNLIMITED, &key(name), None).unwrap();
        assert_eq!(opened.read_at(&UNLIMITED, 0, 99).unwrap(), bytes, "{name}");
    }
    assert_eq!(
        zip.info().hidden_entries.all().len(),
        1,
        "the first one is told"
    );
}

#[test]
fn folders_that_end_with_a_backslash_are_folders() {
    let zip = zip([
        Entry::new(".\\", b""),
        Entry::new("a\\", b""),
        Entry::new("a\\b\\", b""),
        Entry::new(".\\c\\zarr.json", b"below"),
    ]);
    assert_eq!(names(&zip, ""), ["a/", "c/"]);
    assert_eq!(names(&zip, "a"), ["b/"]);
    assert_eq!(get(&zip, "c/zarr.json").unwrap().unwrap(), b"below");
    let listed = zip.info().hidden_entries.all();
    let facts: Vec<_> = listed.iter().map(|one| (&one.name[..], one.why)).collect();
    assert_eq!(facts, [(&b"a\\"[..], HiddenReason::Respelled)]);
}

#[test]
fn a_folder_of_an_archive_is_a_store() {
    let bytes = Archive::of([
        Entry::new("in/ner/zarr.json", b"{}"),
        Entry::new("in/ner/a/c/0", b"0"),
        Entry::new("in/nerd", b"x"),
        Entry::new("in/ner-x", b"x"),
    ])
    .bytes();
    let zip = open_inside(bytes.clone(), "in/ner").unwrap();
    assert_eq!(names(&zip, ""), ["a/", "zarr.json"]);
    assert_eq!(names(&zip, "a/c"), ["0"]);
    assert_eq!(get(&zip, "a/c/0").unwrap().unwrap(), b"0");
    assert!(zip.head(&UNLIMITED, &Key::root()).unwrap().is_some());
    assert_eq!(get(&zip, "in/nerd").unwrap(), None);
    let kind = |inner| open_inside(bytes.clone(), inner).err().unwrap();
    assert_eq!(kind("in/nerd").kind(), Kind::Invalid);
    assert_eq!(kind("in/ne").kind(), Kind::NotFound);
    assert!(
        kind("in/ne")
            .to_string()
            .starts_with("mem/a.zip: no directory in/ne")
    );
}

#[test]
fn bytes_around_an_archive_and_comments_are_ignored() {
    let entries = || [Entry::new("a/0", b"zero"), Entry::deflated("b", b"one")];
    let plain = Archive::of(entries()).bytes();
    let mut junk_after = plain.clone();
    junk_after.extend([b'j'; 1000]);
    let imitation = {
        // The archive's comment contains the signature of an end record and impossible numbers after it.
        let mut comment = b"says PK\x05\x06".to_vec();
        comment.extend([0xff; 40]);
        comment
    };
    let commented = |comment: Vec<u8>| {
        Archive {
            comment,
            ..Archive::of(entries())
        }
        .bytes()
    };
    let zip64 = Archive {
        zip64: true,
        comment: b"c".to_vec(),
        entries: entries()
            .map(|entry| Entry {
                zip64: true,
                ..entry
            })
            .into(),
        ..Archive::default()
    };
    for (what, bytes) in [
        ("plain", plain.clone()),
        ("before", [&[b'j'; 100_000][..], &plain].concat()),
        ("after", junk_after),
        ("comment", commented(vec![b'c'; 65_535])),
        ("imitation", commented(imitation)),
        ("imitations", commented(b"PK\x05\x06".repeat(999))),
        ("zip64", zip64.bytes()),
    ] {
        let zip = open(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(get(&zip, "a/0").unwrap().unwrap(), b"zero", "{what}");
        assert_eq!(get(&zip, "b").unwrap().unwrap(), b"one", "{what}");
        assert_eq!(names(&zip, ""), ["a/", "b"], "{what}");
    }
    let empty = open(Archive::default().bytes()).unwrap();
    assert_eq!(names(&empty, ""), [""; 0]);
}

#[test]
fn listings_resume_after_each_cursor() {
    let all = (0..300).flat_map(|n| {
        [
            Entry::new(format!("a/f{n}"), b""),
            Entry::new(format!("a/d{n}/x"), b""),
        ]
    });
    let zip = zip(all.chain([Entry::new("a", b"hidden"), Entry::new("b", b"")]));
    let mut listing = zip.list(&UNLIMITED, &key("a")).unwrap();
    let mut all = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        all.push(name);
    }
    assert_eq!(all.len(), 600);
    let mut other = zip.list(&UNLIMITED, &key("a")).unwrap();
    for (place, name) in all.iter().enumerate() {
        other.seek(&UNLIMITED, name.cursor).unwrap();
        assert_eq!(other.next(&UNLIMITED).unwrap().as_ref(), all.get(place + 1));
    }
    for (cursor, expected) in [(0, all.first()), (u64::MAX, None)] {
        other.seek(&UNLIMITED, cursor).unwrap();
        assert_eq!(other.next(&UNLIMITED).unwrap().as_ref(), expected);
    }
}

#[test]
fn times_are_those_of_the_entries() {
    let dos = Entry::new("dos", b"");
    let mut extended = Entry::new("extended", b"");
    extended.extra = [&[0x55, 0x54, 5, 0, 1][..], &1_700_000_001u32.to_le_bytes()].concat();
    let mut none = Entry::new("none", b"");
    none.date = 0;
    let zip = zip([dos, extended, none]);
    let seconds = |path: &str| {
        let modified = zip.head(&UNLIMITED, &key(path)).unwrap().unwrap().modified;
        modified.duration_since(UNIX_EPOCH).unwrap().as_secs()
    };
    // The DOS time of this entry is 2020-02-03.
    assert_eq!(seconds("dos"), 1_580_688_000);
    assert_eq!(seconds("extended"), 1_700_000_001);
    // Month and day zero are not valid, so the entry gets the first day of DOS time.
    assert_eq!(seconds("none"), 315_532_800);
}

#[test]
fn long_extra_fields_of_local_headers_are_skipped() {
    let mut entry = Entry::new("a", b"bytes");
    entry.local_extra = vec![0xee; 3000];
    let mut deflated = Entry::deflated("b", b"more bytes");
    deflated.local_extra = vec![0xee; 60];
    let zip = zip([entry, deflated]);
    assert_eq!(get(&zip, "a").unwrap().unwrap(), b"bytes");
    assert_eq!(get(&zip, "b").unwrap().unwrap(), b"more bytes");
}

#[test]
fn locations_open_archives_and_folders_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let bytes = Archive::of([Entry::new("in/a", b"bytes")]).bytes();
    for name in ["a.zarr.ZIP", "unnamed"] {
        std::fs::write(root.join(name), &bytes).unwrap();
    }
    std::fs::create_dir(root.join("folder.zip")).unwrap();
    std::fs::write(root.join("folder.zip/b"), "local").unwrap();
    std::fs::write(root.join("text"), "text").unwrap();
    std::fs::write(root.join("cut.zip"), &bytes[..bytes.len() - 10]).unwrap();
    let stats = Arc::new(Stats::default());
    let open = |path: &str| {
        let location = root.join(path).to_string_lossy().into_owned();
        zarrfs_store::open(&UNLIMITED, &location, &StoreConfig::default(), &stats)
    };
    for (path, name) in [
        ("a.zarr.ZIP", "in/a"),
        ("a.zarr.ZIP/", "in/a"),
        ("a.zarr.ZIP/in", "a"),
        ("a.zarr.ZIP/in/", "a"),
        ("unnamed/in", "a"),
        ("folder.zip", "b"),
    ] {
        let store = open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(get(&*store, name).unwrap().is_some(), "{path}");
    }
    assert!(stats.store_get_bytes.get() > 0);
    for (path, kind) in [
        ("text", Kind::NotADirectory),
        ("text/a", Kind::NotADirectory),
        ("cut.zip", Kind::Corrupt),
        ("none.zip", Kind::NotFound),
        ("a.zarr.ZIP/none", Kind::NotFound),
        ("a.zarr.ZIP/in/a", Kind::Invalid),
        ("a.zarr.ZIP/in/../in", Kind::Invalid),
    ] {
        let error = open(path).err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.to_string().contains(path.split('/').next().unwrap()),
            "{error}"
        );
    }
    let url = format!("file://{}/a.zarr.ZIP/in", root.display());
    let store = zarrfs_store::open(&UNLIMITED, &url, &StoreConfig::default(), &stats).unwrap();
    assert_eq!(get(&*store, "a").unwrap().unwrap(), b"bytes");
    let found = zarrfs_store::local_path(&url).unwrap();
    assert_eq!(found, root.canonicalize().unwrap().join("a.zarr.ZIP"));
}
