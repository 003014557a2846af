//! Malformed archives: refused, or read where they are sound.

use std::collections::BTreeMap;
use std::sync::Arc;

use zarr_format::error::Kind;
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::{Key, Store};

use super::fixture::{LIMIT, content, get, key, names, open, zip};
use crate::common::zip_writer::{Archive, Entry};
use zarrfs_store::request_context::UNLIMITED;

fn fault(store: &dyn Store, path: &str) -> Kind {
    let error = store.get(&UNLIMITED, &key(path), LIMIT).unwrap_err();
    assert!(error.to_string().starts_with(path), "{error}");
    error.kind()
}

/// Invariant of `links_out_of_a_store_and_pipes_are_not_read`.
#[test]
fn no_name_leads_out_of_the_archive() {
    let long = "x".repeat(256);
    let bad = [
        "../up",
        "a/../../up",
        "a/./b",
        "a//b",
        "..",
        ".",
        "/",
        "",
        "/../up",
        "./../up",
        "..\\up",
        "a\\..\\..\\up",
        "\\..\\up",
        "nul\0",
        &long,
    ];
    let odd = [
        &b"\xff\xfe"[..],
        b"new\nline",
        b"...",
        b" ",
        b"c:x",
        "\u{e4}".as_bytes(),
    ];
    let all = bad.iter().map(|name| name.as_bytes()).chain(odd);
    let zip = zip(all.map(|name| Entry::new(name, name)));
    let mut listing = zip.list(&UNLIMITED, &Key::root()).unwrap();
    let mut found = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        found.push(name.name);
    }
    let mut expected = odd.map(<[u8]>::to_vec);
    expected.sort();
    assert_eq!(found, expected);
    for name in odd {
        assert_eq!(get(&zip, name).unwrap().unwrap(), name);
    }
}

#[test]
fn links_and_special_files_are_absent() {
    let mut link = Entry::new("link", b"../../etc/passwd");
    link.mode = 0o120_777;
    let mut pipe = Entry::new("pipe", b"");
    pipe.mode = 0o010_644;
    let mut bare = Entry::new("bare", b"x");
    bare.mode = 0;
    let zip = zip([link, pipe, bare]);
    assert_eq!(names(&zip, ""), ["bare"]);
    assert!(zip.head(&UNLIMITED, &key("link")).unwrap().is_none());
}

#[test]
fn unsupported_entries_exist_and_fail_to_read() {
    let with = |name: &str, method, flags| Entry {
        method,
        flags,
        ..Entry::new(name, b"bytes")
    };
    let zip = zip([
        with("encrypted", 0, 1),
        with("strongly", 8, 0x41),
        with("masked", 8, 0x2000),
        with("deflate64", 9, 0),
        with("zstd", 93, 0),
        Entry::new("fine", b"fine"),
    ]);
    for name in ["encrypted", "strongly", "masked", "deflate64", "zstd"] {
        assert_eq!(fault(&zip, name), Kind::Unsupported, "{name}");
        assert_eq!(
            zip.open(&UNLIMITED, &key(name), None).err().unwrap().kind(),
            Kind::Unsupported
        );
        assert_eq!(zip.head(&UNLIMITED, &key(name)).unwrap().unwrap().size, 5);
    }
    let said = zip
        .get(&UNLIMITED, &key("zstd"), LIMIT)
        .unwrap_err()
        .to_string();
    assert!(said.contains("method 93"), "{said}");
    assert_eq!(get(&zip, "fine").unwrap().unwrap(), b"fine");
}

#[test]
fn damaged_entries_are_corrupt_and_others_are_readable() {
    let long = content(200_000);
    let entry = |name: &str, change: fn(&mut Entry)| {
        let mut entry = Entry::new(name, b"some bytes");
        change(&mut entry);
        entry
    };
    let deflated = |name: &str, change: fn(&mut Entry)| {
        let mut entry = Entry::deflated(name, &content(200_000));
        change(&mut entry);
        entry
    };
    let zip = zip([
        entry("crc", |e| e.crc ^= 1),
        entry("byte", |e| e.packed[3] ^= 1),
        entry("header outside", |e| e.header = Some(1 << 31)),
        entry("header elsewhere", |e| e.header = Some(3)),
        entry("data outside", |e| {
            (e.packed_size, e.size) = (1 << 30, 1 << 30)
        }),
        entry("data far outside", |e| {
            (e.zip64, e.packed_size, e.size) = (true, u64::MAX, u64::MAX)
        }),
        entry("header far outside", |e| {
            (e.zip64, e.header) = (true, Some(u64::MAX))
        }),
        entry("two sizes", |e| e.size += 1),
        entry("other name", |e| e.local_name = b"another".to_vec()),
        deflated("deflated crc", |e| e.crc ^= 1),
        deflated("deflated byte", |e| e.packed[100] ^= 0x55),
        deflated("bomb", |e| e.size += 1 << 20),
        deflated("claims", |e| (e.zip64, e.size) = (true, 1 << 40)),
        deflated("short", |e| e.size -= 1),
        deflated("longer", |e| {
            (e.size, e.crc) = (199_999, Entry::new("", &content(199_999)).crc)
        }),
        deflated("cut", |e| e.packed_size -= 10),
        Entry::deflated("fine", &long),
    ]);
    let mut listing = zip.list(&UNLIMITED, &Key::root()).unwrap();
    let mut damaged = 0;
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        let path = String::from_utf8(name.name).unwrap();
        if path == "fine" {
            continue;
        }
        let error = zip.get(&UNLIMITED, &key(&path), u64::MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{path}: {error}");
        assert!(error.to_string().starts_with(&path), "{error}");
        damaged += 1;
        let opened = zip.open(&UNLIMITED, &key(&path), None);
        let read = opened.and_then(|opened| opened.read_at(&UNLIMITED, 0, 1 << 22));
        assert!(read.is_err(), "{path}");
    }
    assert_eq!(damaged, 16);
    assert_eq!(get(&zip, "fine").unwrap().unwrap(), long);
}

#[test]
fn truncated_archives_and_other_files_are_refused() {
    let whole = Archive::of([Entry::new("a/0", b"zero"), Entry::new("b", &content(500))]).bytes();
    let cuts = (0..whole.len()).map(|length| whole[..length].to_vec());
    let text = vec![b't'; 200_000];
    for bytes in cuts.chain([text]) {
        let error = open(bytes).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(
            error
                .to_string()
                .starts_with("mem/a.zip: not a zip archive"),
            "{error}"
        );
    }
}

#[test]
fn an_archive_that_claims_a_wrong_number_of_entries_is_refused() {
    let archive = |claimed, zip64| Archive {
        claimed: Some(claimed),
        zip64,
        ..Archive::of([Entry::new("a", b"1"), Entry::new("b", b"2")])
    };
    for (claimed, zip64) in [
        (1, false),
        (3, false),
        (u64::from(u32::MAX), true),
        (u64::MAX, true),
    ] {
        let error = open(archive(claimed, zip64).bytes()).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt, "{claimed}");
        assert!(error.to_string().contains("has 2 entries"), "{error}");
    }
    // Without zip64, writers count entries modulo 65536, so an archive with 65538 entries must be accepted.
    assert!(open(archive(2 + (1 << 16), true).bytes()).is_ok());
}

/// The ways to change an archive's bytes at some offset.
const CHANGES: [fn(&mut [u8]); 7] = [
    |bytes| bytes[0] ^= 0x01,
    |bytes| bytes[0] ^= 0x80,
    |bytes| bytes[0] ^= 0xff,
    |bytes| fill(bytes, 2, 0xff),
    |bytes| fill(bytes, 4, 0xff),
    |bytes| fill(bytes, 8, 0xff),
    |bytes| fill(bytes, 8, 0),
];

fn fill(bytes: &mut [u8], count: usize, value: u8) {
    let count = count.min(bytes.len());
    bytes[..count].fill(value);
}

/// Changes an archive at each offset. An entry that can still be read must have its original content.
#[test]
fn mutated_archives_are_read_or_refused() {
    let first = content(300);
    let entries = || {
        [
            Entry::new("a/0", &first),
            Entry::deflated("a/1", &first[100..]).streamed(),
            Entry::deflated("b", b"x"),
            Entry::new("folder/", b""),
        ]
    };
    let expected: BTreeMap<&[u8], &[u8]> = [
        (&b"a/0"[..], &first[..]),
        (b"a/1", &first[100..]),
        (b"b", b"x"),
    ]
    .into();
    let classic = Archive::of(entries()).bytes();
    let zip64 = Archive {
        zip64: true,
        entries: entries()
            .map(|entry| Entry {
                zip64: true,
                ..entry
            })
            .into(),
        ..Archive::default()
    };
    let mut refused = 0;
    for bytes in [classic, zip64.bytes()] {
        for place in 0..bytes.len() {
            for change in CHANGES {
                let mut bytes = bytes.clone();
                change(bytes.split_at_mut(place).1);
                let Ok(zip) = open(bytes) else {
                    refused += 1;
                    continue;
                };
                for (path, expected) in &expected {
                    match get(&zip, path) {
                        Ok(Some(found)) => assert_eq!(&found, expected, "{place}"),
                        Ok(None) => {}
                        Err(_) => refused += 1,
                    }
                    if let Ok(opened) = zip.open(&UNLIMITED, &key(path), None) {
                        let _ = opened.read_at(&UNLIMITED, 17, 1000);
                    }
                }
                walk(&zip, "");
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

fn walk(zip: &ZipStore, prefix: &str) {
    for name in names(zip, prefix) {
        if let Some(folder) = name.strip_suffix('/')
            && let Ok(below) = Key::new(format!("{prefix}/{folder}").trim_start_matches('/'))
            && zip.head(&UNLIMITED, &below).unwrap().is_some()
        {
            walk(zip, &String::from_utf8_lossy(below.as_bytes()));
        }
    }
}

#[test]
fn an_unreadable_document_breaks_only_its_node() {
    let group = br#"{"zarr_format": 3, "node_type": "group"}"#;
    let encrypted = Entry {
        flags: 1,
        ..Entry::new("secret/zarr.json", group)
    };
    let mut damaged = Entry::new("damaged/zarr.json", group);
    damaged.crc ^= 1;
    let entries = [encrypted, damaged, Entry::new("zarr.json", group)];
    let hierarchy = Hierarchy::new(Arc::new(zip(entries)));
    for (path, kind) in [("secret", Kind::Unsupported), ("damaged", Kind::Corrupt)] {
        let found = hierarchy.node(&UNLIMITED, &key(path)).unwrap().unwrap();
        assert_eq!(found.node().unwrap_err().kind(), kind, "{path}");
    }
    assert!(
        hierarchy
            .node(&UNLIMITED, &Key::root())
            .unwrap()
            .unwrap()
            .node
            .is_ok()
    );
}
