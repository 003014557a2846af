//! Tests that a check reports entries of an archive that the store hides.

use std::sync::Arc;

use zarr_check::Severity::{Error, Warning};
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::backend::zip::ZipStore;

use crate::checks::fixture::{How, run};
use crate::common::zip_writer::{Archive, Entry};
use zarrfs_store::request_context::UNLIMITED;

const GROUP: &[u8] = br#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;

/// Checks a folder in an archive. Returns the severity, the code, and the key or part of each finding.
fn found(entries: Vec<Entry>, inner: &str) -> Vec<(zarr_check::Severity, &'static str, String)> {
    let memory = MemoryStore::default();
    let key = Key::new("a.zip").unwrap();
    memory.set(key.clone(), Archive::of(entries).bytes());
    let inner = Key::new(inner).unwrap();
    let zip = ZipStore::open(&UNLIMITED, Arc::new(memory), &key, &inner, "a.zip").unwrap();
    let (found, _) = run(Arc::new(zip), How::default());
    let facts = found.into_iter().map(|finding| {
        let key = finding.key.to_string();
        let name = if finding.part.is_empty() {
            key
        } else {
            finding.part
        };
        (finding.severity, finding.code, name)
    });
    facts.collect()
}

#[test]
fn hidden_entries_are_findings() {
    let mut link = Entry::new("g/link", b"zarr.json");
    link.mode = 0o120_777;
    let entries = vec![
        Entry::new("zarr.json", GROUP),
        Entry::new("g/zarr.json", GROUP),
        Entry::new("g/zarr.json", GROUP),
        Entry::new("../evil", b"x"),
        link,
    ];
    let expected = [
        (Error, "entry-not-shown", "../evil"),
        (Warning, "entry-twice", "g/zarr.json"),
        (Warning, "special-file", "g/link"),
    ]
    .map(|(severity, code, name)| (severity, code, name.to_string()));
    let mut all = found(entries.clone(), "");
    all.sort_by(|one, other| (one.1, &one.2).cmp(&(other.1, &other.2)));
    assert_eq!(all, expected);
    let codes: Vec<_> = found(entries, "g").iter().map(|found| found.1).collect();
    assert_eq!(codes.len(), 2, "{codes:?}");
}

/// Tests the entry names that `bsdtar -a -cf a.zip .` of bsdtar 3.6.2 writes. They were compared with whole archives of
/// bsdtar, packed and streamed, and with archives of a folder `./store`, whose store is `a.zip/store`.
#[test]
fn names_as_bsdtar_writes_them_are_shown() {
    let entries = vec![
        Entry::new("./", b""),
        Entry::new("./zarr.json", GROUP),
        Entry::new("./g/", b""),
        Entry::new("./g/zarr.json", GROUP),
    ];
    let expected = (Warning, "entry-respelled", "./zarr.json".to_string());
    assert_eq!(found(entries, ""), [expected]);
}

#[test]
fn respelled_names_are_found_in_a_folder_too() {
    for (outside, name) in [
        ("./zarr.json", "./s/zarr.json"),
        ("o\\zarr.json", "s\\zarr.json"),
        ("/zarr.json", "/s/zarr.json"),
    ] {
        let entries = vec![Entry::new(outside, GROUP), Entry::new(name, GROUP)];
        let expected = (Warning, "entry-respelled", name.to_string());
        assert_eq!(found(entries, "s"), [expected]);
    }
}

#[test]
fn findings_outside_a_folder_do_not_use_up_its_limit() {
    let link = |name: String| {
        let mut link = Entry::new(name, b"zarr.json");
        link.mode = 0o120_777;
        link
    };
    let outside = (0..200).map(|number| link(format!("o/{number}")));
    let bad = (0..200).map(|number| Entry::new(format!("o//{number}"), b""));
    let inside = [
        link("./s/link".to_string()),
        Entry::new("./s//bad", b""),
        Entry::new("s/zarr.json", GROUP),
    ];
    let expected = [
        (Error, "entry-not-shown", "./s//bad"),
        (Warning, "entry-respelled", "./s/link"),
        (Warning, "special-file", "link"),
    ]
    .map(|(severity, code, name)| (severity, code, name.to_string()));
    let mut all = found(outside.chain(bad).chain(inside).collect(), "s");
    all.sort_by(|one, other| one.1.cmp(other.1));
    assert_eq!(all, expected);
}

#[test]
fn hidden_entries_are_findings_below_an_upper_folder_too() {
    let memory = MemoryStore::default();
    let key = Key::new("a.zip").unwrap();
    let twice = [
        Entry::new("zarr.json", GROUP),
        Entry::new("zarr.json", GROUP),
    ];
    memory.set(key.clone(), Archive::of(twice.to_vec()).bytes());
    let zip = ZipStore::open(&UNLIMITED, Arc::new(memory), &key, &Key::root(), "a.zip").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let overlay = Overlay::open(&folder.path().join("upper"), Arc::new(zip), "a.zip", config);
    let (found, _) = run(Arc::new(overlay.unwrap()), How::default());
    let codes: Vec<_> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["entry-twice"]);
}

#[test]
fn an_archive_without_hidden_entries_has_no_findings() {
    let entries = vec![
        Entry::new("zarr.json", GROUP),
        Entry::new("g/zarr.json", GROUP),
    ];
    assert!(found(entries, "").is_empty());
}

/// Writes an archive with Python's order of entries, and returns the findings of a check that are advice.
fn advice(entries: Vec<Entry>, name: &str) -> Vec<String> {
    let memory = MemoryStore::default();
    let key = Key::new(name).unwrap();
    memory.set(key.clone(), Archive::of(entries).bytes());
    let root = Key::root();
    let zip = ZipStore::open(&UNLIMITED, Arc::new(memory), &key, &root, name).unwrap();
    let (found, _) = run(Arc::new(zip), How::default());
    let advice = found
        .into_iter()
        .filter(|finding| finding.code == "ozx-layout");
    advice.map(|finding| finding.message).collect()
}

#[test]
fn an_ozx_archive_is_compared_with_the_recommended_layout() {
    let entries = |names: &[&str]| {
        let entries = names.iter().map(|name| Entry::new(name, GROUP));
        entries.collect::<Vec<_>>()
    };
    let ordered = ["zarr.json", "a/zarr.json", "b/zarr.json", "a/c/zarr.json"];
    let [found] = &advice(entries(&ordered), "a.ozx")[..] else {
        panic!("no advice");
    };
    assert!(
        found.contains("no ZIP64 archive") && found.contains("comment"),
        "{found}"
    );
    assert!(
        !found.contains("compressed") && !found.contains("first entries"),
        "{found}"
    );
    for misplaced in [
        &["a/zarr.json", "zarr.json"][..],
        &["zarr.json", "a/c/zarr.json", "a/zarr.json"],
        &["zarr.json", "stray", "a/zarr.json"],
    ] {
        let found = advice(entries(misplaced), "a.OZX").join("");
        assert!(
            found.contains("breadth-first order"),
            "{misplaced:?}: {found}"
        );
    }
    assert!(advice(entries(&ordered), "a.zip").is_empty());
}
