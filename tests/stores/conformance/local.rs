//! Local stores: symbolic links, special files, and counters.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode};
use zarr_format::error::Kind as Fault;
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::{ByteRange, Condition, EntryKind, PutBody, Store, StoreConfig};

use crate::conformance::fixture::{MEMORY, key};
use crate::conformance::listings;
use zarrfs_store::request_context::UNLIMITED;

/// Creates a store with symbolic links inside it, out of it, broken and circular. A secret file is next to the store.
fn linked(folder: &Path) {
    let store = folder.join("store");
    fs::create_dir_all(store.join("a/b")).unwrap();
    fs::write(store.join("a/b/x"), "inside").unwrap();
    fs::create_dir(folder.join("outside")).unwrap();
    fs::write(folder.join("outside/x"), "secret").unwrap();
    let link = |target: &Path, name: &str| symlink(target, store.join(name)).unwrap();
    link(Path::new("a/b/x"), "near");
    link(Path::new("../a/b/x"), "a/up");
    link(Path::new("a/b"), "folder");
    link(&store.join("a/b/x"), "absolute");
    link(Path::new("../outside/x"), "away");
    link(&folder.join("outside"), "far");
    link(Path::new("circle"), "circle");
    link(Path::new("nowhere"), "broken");
    let pipe = CString::new(store.join("pipe").to_str().unwrap()).unwrap();
    rustix::fs::mknodat(CWD, pipe.as_c_str(), FileType::Fifo, Mode::RUSR, 0).unwrap();
}

fn open(folder: &Path, follow_symlinks: bool) -> LocalStore {
    LocalStore::open(
        &folder.join("store"),
        &StoreConfig {
            follow_symlinks,
            ..StoreConfig::default()
        },
    )
    .unwrap()
}

#[test]
fn links_inside_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    linked(folder.path());
    for follow in [false, true] {
        let store = open(folder.path(), follow);
        for inside in ["near", "a/up", "folder/x", "absolute"] {
            let object = store.get(&UNLIMITED, &key(inside), 10).unwrap().unwrap();
            assert_eq!(object.bytes, b"inside", "{inside}");
        }
        let meta = store.head(&UNLIMITED, &key("near")).unwrap().unwrap();
        assert_eq!((meta.kind, meta.size), (EntryKind::Link, 5));
        assert_eq!(store.read_link(&UNLIMITED, &key("near")).unwrap(), b"a/b/x");
        assert_eq!(listings::names(&store, "folder").len(), 1);
        let absolute = store.head(&UNLIMITED, &key("absolute")).unwrap().unwrap();
        assert_eq!(absolute.kind, EntryKind::File, "shown as what it leads to");
    }
}

#[test]
fn a_broken_link_is_an_error_and_not_a_missing_key() {
    let folder = tempfile::tempdir().unwrap();
    linked(folder.path());
    for follow in [false, true] {
        let store = open(folder.path(), follow);
        for error in [
            store.get(&UNLIMITED, &key("broken"), 10).err(),
            store
                .get_range(&UNLIMITED, &key("broken"), ByteRange::Suffix(1))
                .err(),
            store.open(&UNLIMITED, &key("broken"), None).err(),
        ] {
            let error = error.unwrap();
            assert_eq!(error.kind(), Fault::Corrupt, "{error}");
            assert!(error.detail().contains("nowhere"), "{error}");
        }
        assert_eq!(
            store.read_link(&UNLIMITED, &key("broken")).unwrap(),
            b"nowhere"
        );
        for missing in ["none", "none/x", "near/x", "broken/x"] {
            assert!(
                store.get(&UNLIMITED, &key(missing), 10).unwrap().is_none(),
                "{missing}"
            );
        }
    }
}

#[test]
fn links_out_of_the_store_need_an_option() {
    let folder = tempfile::tempdir().unwrap();
    linked(folder.path());
    let store = open(folder.path(), false);
    for away in ["away", "far/x"] {
        let faults = [
            store.get(&UNLIMITED, &key(away), 10).err(),
            store
                .get_range(&UNLIMITED, &key(away), ByteRange::Suffix(3))
                .err(),
            store.open(&UNLIMITED, &key(away), None).err(),
        ];
        for fault in faults {
            assert_eq!(fault.unwrap().kind(), Fault::Denied, "{away}");
        }
    }
    assert_eq!(
        store.list(&UNLIMITED, &key("far")).err().unwrap().kind(),
        Fault::Denied
    );
    assert_eq!(
        store
            .read_link(&UNLIMITED, &key("away"))
            .unwrap_err()
            .kind(),
        Fault::Denied
    );
    let store = open(folder.path(), true);
    for away in ["away", "far/x"] {
        let object = store.get(&UNLIMITED, &key(away), 10).unwrap().unwrap();
        assert_eq!(object.bytes, b"secret", "{away}");
    }
    let far = store.head(&UNLIMITED, &key("far")).unwrap().unwrap();
    assert_eq!(far.kind, EntryKind::Directory);
}

#[test]
fn circular_links_and_pipes_leave_other_keys_readable() {
    let folder = tempfile::tempdir().unwrap();
    linked(folder.path());
    for follow in [false, true] {
        let store = open(folder.path(), follow);
        let circle = store.get(&UNLIMITED, &key("circle"), 10).unwrap_err();
        assert_eq!(circle.kind(), Fault::Corrupt);
        assert_eq!(
            store.get(&UNLIMITED, &key("pipe"), 10).unwrap_err().kind(),
            Fault::Corrupt
        );
        assert_eq!(store.head(&UNLIMITED, &key("pipe")).unwrap(), None);
        let names = listings::names(&store, "");
        assert!(!names.contains_key(&b"pipe"[..]));
        assert!(names.contains_key(&b"circle"[..]) && names.contains_key(&b"a"[..]));
        assert_eq!(
            store
                .get(&UNLIMITED, &key("a/b/x"), 10)
                .unwrap()
                .unwrap()
                .size,
            6
        );
    }
}

#[test]
fn requests_and_bytes_are_counted() {
    let fixture = (MEMORY.holding)(&[(b"a/b", b"0123456789")]);
    let stats = Arc::new(Stats::default());
    let store = CountingStore::new(fixture.store, stats.clone());
    store.get(&UNLIMITED, &key("a/b"), 100).unwrap();
    store
        .get_range(&UNLIMITED, &key("a/b"), ByteRange::Suffix(3))
        .unwrap();
    let reader = store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    reader.read_at(&UNLIMITED, 8, 100).unwrap();
    store.get(&UNLIMITED, &key("missing"), 100).unwrap();
    store.head(&UNLIMITED, &key("a")).unwrap();
    listings::names(&store, "a");
    let counted = [
        stats.store_get_requests.get(),
        stats.store_get_bytes.get(),
        stats.store_head_requests.get(),
        stats.store_list_requests.get(),
    ];
    assert_eq!(counted, [4, 10 + 3 + 2, 1, 1]);
}

/// The holes of a sparse file are not copied, and take no space in the store either.
#[test]
fn an_object_keeps_the_holes_of_its_file() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("store")).unwrap();
    let store = open(folder.path(), false);
    let file = tempfile::tempfile().unwrap();
    let length = 1 << 40;
    file.set_len(length).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", length - 3).unwrap();
    let body = PutBody::FileAsIs(&file, length);
    store
        .put(&UNLIMITED, &key("sparse"), body, &Condition::Any)
        .unwrap();
    let object = fs::metadata(folder.path().join("store/sparse")).unwrap();
    assert_eq!(object.len(), length);
    assert!(object.blocks() < 10_000, "{} blocks", object.blocks());
    let reader = store.open(&UNLIMITED, &key("sparse"), None).unwrap();
    assert_eq!(
        reader.read_at(&UNLIMITED, length - 4, 10).unwrap(),
        b"\0end"
    );
}
