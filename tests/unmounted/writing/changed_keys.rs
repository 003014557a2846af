//! Tests that a write invalidates the cached answers for its key, and no others.
//!
//! The TTL of the store is an hour, so that no answer expires.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zarrfs::view::View;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::{Condition, Key, PutBody, Store};

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::writing::slow::Slow;
use zarrfs_store::request_context::UNLIMITED;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    store
        .put(
            &UNLIMITED,
            &key(name),
            PutBody::Bytes(bytes),
            &Condition::Any,
        )
        .unwrap();
}

fn read(view: &Arc<dyn View>, path: &str) -> Vec<u8> {
    common::read(view, path).unwrap()
}

fn files(store: Arc<dyn Store>) -> Arc<dyn View> {
    common::views_of(store, Duration::from_secs(20)).files
}

/// Invariant (writing): A change through the store view is visible in the files view at once.
#[test]
fn a_change_through_the_store_is_seen_at_once() {
    let store = Arc::new(Slow::default());
    let sample = Sample::new(&[4], &[2], Form::Plain);
    sample.put(&store.memory, "a");
    let view = files(store.clone());
    assert_eq!(read(&view, "a/a.raw"), sample.whole());

    // A change by another program is not seen before the TTL has passed.
    store.memory.set(key("a/c/0"), vec![9; 4]);
    assert_eq!(read(&view, "a/a.raw"), sample.whole());
    put(&*store, "a/c/1", &[8; 4]);
    let first = &sample.whole()[..4];
    assert_eq!(read(&view, "a/a.raw"), [first, &[8; 4]].concat());
    put(&*store, "a/c/0", &[7; 4]);
    assert_eq!(read(&view, "a/a.raw"), [7, 7, 7, 7, 8, 8, 8, 8]);

    let mut metadata = sample.metadata();
    metadata["shape"] = serde_json::json!([3]);
    put(&*store, "a/zarr.json", metadata.to_string().as_bytes());
    assert_eq!(read(&view, "a/a.raw"), [7, 7, 7, 7, 8, 8]);
    assert!(view.lookup(&UNLIMITED, &key("b")).unwrap().is_none());
    let other = Sample::new(&[1], &[1], Form::Plain);
    other.put(&store.memory, "b");
    let document = other.metadata().to_string();
    put(&*store, "b/zarr.json", document.as_bytes());
    assert!(view.lookup(&UNLIMITED, &key("b/b.npy")).unwrap().is_some());
}

#[test]
fn without_a_change_no_request_is_repeated() {
    let store = Arc::new(Slow::default());
    Sample::new(&[4], &[2], Form::Plain).put(&store.memory, "a");
    let view = files(store.clone());
    let first = read(&view, "a/a.raw");
    let asked = store.asked.load(Ordering::SeqCst);
    assert_eq!(read(&view, "a/a.raw"), first);
    assert_eq!(store.asked.load(Ordering::SeqCst), asked);
}

fn two_arrays() -> Arc<Slow> {
    let store = Arc::new(Slow::default());
    let group = br#"{"zarr_format": 3, "node_type": "group"}"#;
    for name in ["zarr.json", "g/zarr.json"] {
        store.memory.set(key(name), group.to_vec());
    }
    for name in ["g/a", "g/b"] {
        Sample::new(&[4], &[2], Form::Plain).put(&store.memory, name);
    }
    store
}

/// Checks that repeated writes to a chunk and the document of one array cause no requests for the keys of another array
/// or of the parent groups.
fn check_other_keys_stay_cached(slow: &Slow, store: Arc<dyn Store>) {
    let view = files(store.clone());
    let look = || {
        let content = read(&view, "g/b/b.raw");
        for path in ["g", "g/b", "g/b/b.npy"] {
            assert!(
                view.lookup(&UNLIMITED, &key(path)).unwrap().is_some(),
                "{path}"
            );
        }
        content
    };
    let before = look();
    read(&view, "g/a/a.raw");
    let document = store
        .get(&UNLIMITED, &key("g/a/zarr.json"), 1 << 20)
        .unwrap()
        .unwrap();
    for round in 1..4 {
        put(&*store, "g/a/c/0", &[round; 4]);
        put(&*store, "g/a/zarr.json", &document.bytes);
        let asked = slow.asked.load(Ordering::SeqCst);
        assert_eq!(look(), before);
        assert_eq!(slow.asked.load(Ordering::SeqCst), asked);
        assert_eq!(read(&view, "g/a/a.raw")[..4], [round; 4]);
    }
}

#[test]
fn a_change_of_one_key_leaves_others_cached() {
    let store = two_arrays();
    check_other_keys_stay_cached(&store, store.clone());
}

#[test]
fn a_write_to_an_upper_folder_leaves_other_keys_cached() {
    let (store, folder) = (two_arrays(), tempfile::tempdir().unwrap());
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let upper = folder.path().join("upper");
    let overlay = Overlay::open(&upper, store.clone(), "slow", config).unwrap();
    check_other_keys_stay_cached(&store, Arc::new(overlay));
}
