//! Zip archives as stores: what writers write, and what nobody should.

#[path = "zip/writer.rs"]
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::UNIX_EPOCH;

use zarrfs::error::Error;
use zarrfs::error::Kind;
use zarrfs::error::Result;
use zarrfs::stats::Stats;
use zarrfs::store;
use zarrfs::store::ByteRange;
use zarrfs::store::EntryKind;
use zarrfs::store::Key;
use zarrfs::store::Listing;
use zarrfs::store::Meta;
use zarrfs::store::Object;
use zarrfs::store::Reader;
use zarrfs::store::Store;
use zarrfs::store::StoreConfig;
use zarrfs::store::memory::Memory;
use zarrfs::store::zip::Zip;

use writer::Archive;
use writer::Entry;

const LIMIT: u64 = 64 << 20;

fn key(path: impl AsRef<[u8]>) -> Key {
    Key::new(path.as_ref()).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Zip> {
    open_inside(bytes, "")
}

fn open_inside(bytes: Vec<u8>, inner: &str) -> Result<Zip> {
    let memory = Memory::default();
    memory.set(key("a.zip"), bytes);
    Zip::open(Arc::new(memory), &key("a.zip"), &key(inner), "mem/a.zip")
}

fn zip(entries: impl IntoIterator<Item = Entry>) -> Zip {
    open(Archive::of(entries).bytes()).unwrap()
}

fn get(store: &dyn Store, path: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
    let object = store.get(&key(path), LIMIT)?;
    Ok(object.map(|object| object.bytes))
}

fn fault(store: &dyn Store, path: &str) -> Kind {
    let error = store.get(&key(path), LIMIT).unwrap_err();
    assert!(error.to_string().starts_with(path), "{error}");
    error.kind()
}

/// Returns the names under a prefix, folders with a slash.
fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut listing = store.list(&key(prefix)).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next().unwrap() {
        assert_ne!(name.cursor, 0);
        let end = match name.kind {
            EntryKind::Directory => "/",
            _ => "",
        };
        names.push(String::from_utf8_lossy(&name.name).into_owned() + end);
    }
    names
}

/// Bytes that deflate, but not to nothing.
fn content(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 29) as u8
    };
    (0..length).map(step).collect()
}

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
        let meta = zip.head(&key(path)).unwrap().unwrap();
        assert_eq!(
            (meta.kind, meta.size),
            (EntryKind::File, expected.len() as u64)
        );
        let opened = zip.open(&key(path)).unwrap();
        assert_eq!(opened.meta().unwrap(), meta);
        assert!(opened.read_at(0, usize::MAX).unwrap() == expected, "{path}");
        assert_eq!(
            zip.get(&key(path), LIMIT).unwrap().unwrap().version,
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
        zip.open(&key("a")).err().unwrap().kind(),
        Kind::IsADirectory
    );
    assert_eq!(zip.open(&key("none")).err().unwrap().kind(), Kind::NotFound);
    assert_eq!(zip.list(&key("none")).err().unwrap().kind(), Kind::NotFound);
    assert_eq!(
        zip.list(&key("long")).err().unwrap().kind(),
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
        let opened = zip.open(&key(path)).unwrap();
        // Forward, backward by little and by more than is kept, to the end and beyond.
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
            let found = opened.read_at(offset as u64, length).unwrap();
            assert!(found == expected, "{path} {offset} {length}");
            let span = ByteRange::Span(offset as u64..offset.saturating_add(length) as u64);
            let object = zip.get_range(&key(path), span).unwrap().unwrap();
            assert!(object.bytes == expected, "{path} {offset} {length}");
            assert_eq!(object.size, size as u64);
        }
        let object = zip.get_range(&key(path), ByteRange::Suffix(7)).unwrap();
        assert_eq!(object.unwrap().bytes, long[size - 7..]);
        let part = zip.get(&key(path), size as u64 - 1).unwrap_err();
        assert_eq!(part.kind(), Kind::TooLarge);
        assert!(zip.get(&key(path), size as u64).unwrap().is_some());
    }
}

#[test]
fn readers_out_of_step_get_the_same_bytes() {
    let long = content(2 << 20);
    let zip = zip([Entry::deflated("deflated", &long)]);
    let opened = zip.open(&key("deflated")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (opened, long) = (&opened, &long);
            scope.spawn(move || {
                for turn in 0..16 {
                    let at = (turn * 4 + (thread * 7 + turn) % 4) << 15;
                    let found = opened.read_at(at as u64, 1 << 15).unwrap();
                    assert!(found == long[at..at + (1 << 15)]);
                }
            });
        }
    });
}

#[test]
fn the_last_entry_of_a_name_counts_and_folders_hide_files() {
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
    assert_eq!(get(&zip, "both").unwrap(), None);
    assert_eq!(get(&zip, "both/x").unwrap().unwrap(), b"x");
    let meta = zip.head(&key("both")).unwrap().unwrap();
    assert_eq!(meta.kind, EntryKind::Directory);
}

#[test]
fn no_name_leads_out_of_the_archive() {
    let long = "x".repeat(256);
    let bad = [
        "../up",
        "a/../../up",
        "/absolute",
        "./here",
        "a/./b",
        "a//b",
        "..",
        ".",
        "/",
        "",
        "a\\b",
        "..\\up",
        "C:\\up",
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
    let mut listing = zip.list(&Key::root()).unwrap();
    let mut found = Vec::new();
    while let Some(name) = listing.next().unwrap() {
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
    assert!(zip.head(&key("link")).unwrap().is_none());
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
    assert!(zip.head(&Key::root()).unwrap().is_some());
    assert_eq!(get(&zip, "in/nerd").unwrap(), None);
    let kind = |inner| open_inside(bytes.clone(), inner).err().unwrap();
    assert_eq!(kind("in/nerd").kind(), Kind::Invalid);
    assert_eq!(kind("in/ne").kind(), Kind::NotFound);
    assert!(
        kind("in/ne")
            .to_string()
            .starts_with("mem/a.zip: no folder in/ne")
    );
}

#[test]
fn what_stands_around_an_archive_does_no_harm() {
    let entries = || [Entry::new("a/0", b"zero"), Entry::deflated("b", b"one")];
    let plain = Archive::of(entries()).bytes();
    let mut junk_after = plain.clone();
    junk_after.extend([b'j'; 1000]);
    let imitation = {
        // The signature of the end in the comment, with numbers that cannot be.
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
fn entries_that_cannot_be_read_are_there_all_the_same() {
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
            zip.open(&key(name)).err().unwrap().kind(),
            Kind::Unsupported
        );
        assert_eq!(zip.head(&key(name)).unwrap().unwrap().size, 5);
    }
    let said = zip.get(&key("zstd"), LIMIT).unwrap_err().to_string();
    assert!(said.contains("method 93"), "{said}");
    assert_eq!(get(&zip, "fine").unwrap().unwrap(), b"fine");
}

#[test]
fn damaged_entries_are_corrupt_and_the_others_are_not() {
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
        deflated("cut", |e| e.packed_size -= 10),
        Entry::deflated("fine", &long),
    ]);
    let mut listing = zip.list(&Key::root()).unwrap();
    let mut damaged = 0;
    while let Some(name) = listing.next().unwrap() {
        let path = String::from_utf8(name.name).unwrap();
        if path == "fine" {
            continue;
        }
        let error = zip.get(&key(&path), u64::MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{path}: {error}");
        assert!(error.to_string().starts_with(&path), "{error}");
        damaged += 1;
        // Piece by piece a deflated entry is checked at its end, a stored one in its headers alone.
        let opened = zip.open(&key(&path));
        let read = opened.and_then(|opened| opened.read_at(0, 1 << 22));
        assert!(path == "crc" || path == "byte" || read.is_err(), "{path}");
    }
    assert_eq!(damaged, 15);
    assert_eq!(get(&zip, "fine").unwrap().unwrap(), long);
}

#[test]
fn archives_that_are_none_say_so() {
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
fn a_directory_that_claims_too_much_is_refused() {
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
    // 65538 entries and no zip64: writers count on from 0.
    assert!(open(archive(2 + (1 << 16), true).bytes()).is_ok());
}

/// Changes every byte of an archive: what is still read is what was written.
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
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[place] ^= flip;
                let Ok(zip) = open(bytes) else {
                    refused += 1;
                    continue;
                };
                for (path, expected) in &expected {
                    match get(&zip, path) {
                        Ok(Some(found)) => assert_eq!(&found, expected, "{place} {flip}"),
                        Ok(None) => {}
                        Err(_) => refused += 1,
                    }
                    if let Ok(opened) = zip.open(&key(path)) {
                        let _ = opened.read_at(17, 1000);
                    }
                }
                walk(&zip, "");
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

fn walk(zip: &Zip, prefix: &str) {
    for name in names(zip, prefix) {
        if let Some(folder) = name.strip_suffix('/')
            && let Ok(below) = Key::new(format!("{prefix}/{folder}").trim_start_matches('/'))
            && zip.head(&below).unwrap().is_some()
        {
            walk(zip, &String::from_utf8_lossy(below.as_bytes()));
        }
    }
}

#[test]
fn listings_go_on_where_they_stopped() {
    let all = (0..300).flat_map(|n| {
        [
            Entry::new(format!("a/f{n}"), b""),
            Entry::new(format!("a/d{n}/x"), b""),
        ]
    });
    let zip = zip(all.chain([Entry::new("a", b"hidden"), Entry::new("b", b"")]));
    let mut listing = zip.list(&key("a")).unwrap();
    let mut all = Vec::new();
    while let Some(name) = listing.next().unwrap() {
        all.push(name);
    }
    assert_eq!(all.len(), 600);
    let mut other = zip.list(&key("a")).unwrap();
    for (place, name) in all.iter().enumerate() {
        other.seek(name.cursor).unwrap();
        assert_eq!(other.next().unwrap().as_ref(), all.get(place + 1));
    }
    for (cursor, expected) in [(0, all.first()), (u64::MAX, None)] {
        other.seek(cursor).unwrap();
        assert_eq!(other.next().unwrap().as_ref(), expected);
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
        let modified = zip.head(&key(path)).unwrap().unwrap().modified;
        modified.duration_since(UNIX_EPOCH).unwrap().as_secs()
    };
    // 2020-02-03.
    assert_eq!(seconds("dos"), 1_580_688_000);
    assert_eq!(seconds("extended"), 1_700_000_001);
    // No month and no day: the beginning of DOS time.
    assert_eq!(seconds("none"), 315_532_800);
}

#[test]
fn long_extra_fields_of_local_headers_are_passed_over() {
    let mut entry = Entry::new("a", b"bytes");
    entry.local_extra = vec![0xee; 3000];
    let mut deflated = Entry::deflated("b", b"more bytes");
    deflated.local_extra = vec![0xee; 60];
    let zip = zip([entry, deflated]);
    assert_eq!(get(&zip, "a").unwrap().unwrap(), b"bytes");
    assert_eq!(get(&zip, "b").unwrap().unwrap(), b"more bytes");
}

/// A store that says of itself what a test wants.
#[derive(Clone)]
struct Told {
    memory: Memory,
    fresh: Duration,
    log: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn new(fresh: Duration, bytes: Vec<u8>) -> Told {
        let memory = Memory::default();
        memory.set(key("a.zip"), bytes);
        Told {
            memory,
            fresh,
            log: Arc::default(),
        }
    }

    fn zip(&self) -> Zip {
        Zip::open(Arc::new(self.clone()), &key("a.zip"), &Key::root(), "told").unwrap()
    }

    fn note(&self, text: String) {
        self.log.lock().unwrap().push(text);
    }

    /// Returns what was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Store for Told {
    fn get(&self, key: &Key, _: u64) -> Result<Option<Object>> {
        Err(Error::invalid(key, "an archive is never read as a whole"))
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.memory.get_range(key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.note("head".to_string());
        self.memory.head(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        self.note("open".to_string());
        Ok(Arc::new(ToldReader {
            reader: self.memory.open(key)?,
            key: key.clone(),
            told: self.clone(),
        }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.memory.list(prefix)
    }

    fn freshness(&self) -> Duration {
        self.fresh
    }
}

/// Reads what was there when it was opened; says so when that is no more the case.
struct ToldReader {
    reader: Arc<dyn Reader>,
    key: Key,
    told: Told,
}

impl Reader for ToldReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.reader.read_at(offset, len)?;
        self.told.note(format!("{} bytes", bytes.len()));
        match self.told.memory.head(&self.key)? {
            None => Err(Error::not_found(&self.key)),
            Some(meta) if meta.version != self.reader.meta()?.version => {
                Err(Error::new(Kind::Changed, &self.key, "other"))
            }
            Some(_) => Ok(bytes),
        }
    }

    fn meta(&self) -> Result<Meta> {
        self.reader.meta()
    }
}

#[test]
fn an_entry_costs_one_request_and_only_its_bytes() {
    let long = content(600_000);
    let entries = (0..20).map(|n| Entry::new(format!("a/{n}"), &long));
    let told = Told::new(Duration::from_secs(3600), Archive::of(entries).bytes());
    let zip = told.zip();
    assert_eq!(told.asked(), ["open", "65557 bytes"]);
    assert_eq!(names(&zip, "a").len(), 20);
    assert!(zip.head(&key("a/7")).unwrap().is_some());
    assert_eq!(told.asked(), [""; 0]);
    assert_eq!(get(&zip, "a/7").unwrap().unwrap(), long);
    assert_eq!(told.asked(), ["600097 bytes"]);
    let opened = zip.open(&key("a/8")).unwrap();
    assert_eq!(opened.read_at(1000, 10).unwrap(), long[1000..1010]);
    assert_eq!(told.asked(), ["33 bytes", "10 bytes"]);
}

#[test]
fn a_changed_archive_is_changed_for_who_has_it_open_and_new_for_others() {
    let archive = |text: &[u8]| Archive::of([Entry::new("a", text), Entry::deflated("b", text)]);
    for fresh in [Duration::ZERO, Duration::from_secs(3600)] {
        let told = Told::new(fresh, archive(b"old").bytes());
        let zip = told.zip();
        let before = zip.head(&key("a")).unwrap().unwrap();
        let opened = ["a", "b"].map(|path| zip.open(&key(path)).unwrap());
        told.memory.set(key("a.zip"), archive(b"newer").bytes());
        for reader in &opened {
            assert_eq!(reader.read_at(0, 3).unwrap_err().kind(), Kind::Changed);
        }
        // Reading finds out even while the directory is taken for fresh.
        assert_eq!(get(&zip, "a").unwrap().unwrap(), b"newer");
        let after = zip.head(&key("a")).unwrap().unwrap();
        assert_eq!((before.size, after.size), (3, 5));
        assert_ne!(before.version, after.version);
        let opened = zip.open(&key("b")).unwrap();
        assert_eq!(opened.read_at(0, 9).unwrap(), b"newer");
    }
}

#[test]
fn an_archive_that_is_gone_is_no_missing_entry() {
    let bytes = Archive::of([Entry::new("a", b"bytes")]).bytes();
    for fresh in [Duration::ZERO, Duration::from_secs(3600)] {
        let told = Told::new(fresh, bytes.clone());
        let zip = told.zip();
        let opened = zip.open(&key("a")).unwrap();
        told.memory.erase(&key("a.zip"));
        assert_eq!(fault_of(get(&zip, "a")), Kind::Unavailable);
        assert_eq!(fault_of(opened.read_at(0, 1)), Kind::Unavailable);
        assert_eq!(fault_of(zip.open(&key("a"))), Kind::Unavailable);
        told.memory.set(key("a.zip"), bytes.clone());
        assert_eq!(get(&zip, "a").unwrap().unwrap(), b"bytes");
        told.memory.set(key("a.zip"), bytes[..40].to_vec());
        assert!(matches!(fault_of(get(&zip, "a")), Kind::Corrupt));
    }
}

fn fault_of<T>(answer: Result<T>) -> Kind {
    answer.err().unwrap().kind()
}

#[test]
fn locations_choose_archives() {
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
        store::open(&location, &StoreConfig::default(), &stats)
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
    let store = store::open(&url, &StoreConfig::default(), &stats).unwrap();
    assert_eq!(get(&*store, "a").unwrap().unwrap(), b"bytes");
    let found = store::local_place(&url).unwrap();
    assert_eq!(found, root.canonicalize().unwrap().join("a.zarr.ZIP"));
}

#[test]
fn a_file_that_is_overwritten_in_place_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let archive = |text: &[u8]| Archive::of([Entry::new("a", text)]).bytes();
    std::fs::write(&path, archive(b"old text")).unwrap();
    let stats = Arc::new(Stats::default());
    let location = path.to_string_lossy().into_owned();
    let zip = store::open(&location, &StoreConfig::default(), &stats).unwrap();
    let opened = zip.open(&key("a")).unwrap();
    assert_eq!(opened.read_at(0, 100).unwrap(), b"old text");
    // Longer, so that it differs even where the clock of the file system is coarse.
    std::fs::write(&path, archive(b"new and longer text")).unwrap();
    assert_eq!(opened.read_at(0, 100).unwrap_err().kind(), Kind::Changed);
    assert_eq!(get(&*zip, "a").unwrap().unwrap(), b"new and longer text");
}
