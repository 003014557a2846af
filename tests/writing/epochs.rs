//! What is taken for true for an hour is asked for again once something was changed through the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zarrfs::store::{Condition, Key, PutBody, Store};
use zarrfs::view::View;

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::slow::Slow;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    store
        .put(&key(name), PutBody::Bytes(bytes), &Condition::Any)
        .unwrap();
}

fn read(view: &Arc<dyn View>, path: &str) -> Vec<u8> {
    common::read(view, path).unwrap()
}

#[test]
fn a_change_through_the_store_is_seen_at_once() {
    let store = Arc::new(Slow::default());
    let sample = Sample::new(&[4], &[2], Form::Plain);
    sample.put(&store.memory, "a");
    let view = common::views_of(store.clone(), Duration::from_secs(20)).files;
    assert_eq!(read(&view, "a/a.raw"), sample.whole());

    // What nobody tells of stays unseen.
    store.memory.set(key("a/c/0"), vec![9; 4]);
    assert_eq!(read(&view, "a/a.raw"), sample.whole());
    put(&*store, "a/c/1", &[8; 4]);
    assert_eq!(read(&view, "a/a.raw"), [9, 9, 9, 9, 8, 8, 8, 8]);

    let mut metadata = sample.metadata();
    metadata["shape"] = serde_json::json!([3]);
    put(&*store, "a/zarr.json", metadata.to_string().as_bytes());
    assert_eq!(read(&view, "a/a.raw"), [9, 9, 9, 9, 8, 8]);
    assert!(view.lookup(&key("b")).unwrap().is_none());
    Sample::new(&[1], &[1], Form::Plain).put(&store.memory, "b");
    put(&*store, "other", b"");
    assert!(view.lookup(&key("b/b.npy")).unwrap().is_some());
}

#[test]
fn without_a_change_nothing_is_asked_again() {
    let store = Arc::new(Slow::default());
    Sample::new(&[4], &[2], Form::Plain).put(&store.memory, "a");
    let view = common::views_of(store.clone(), Duration::from_secs(20)).files;
    let first = read(&view, "a/a.raw");
    let asked = store.asked.load(Ordering::SeqCst);
    assert_eq!(read(&view, "a/a.raw"), first);
    assert_eq!(store.asked.load(Ordering::SeqCst), asked);
}
