//! A prefix whose keys another program removes: the layer above reports it as gone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::faulty_server::{Fault, FaultyObjects, FaultyServer, open};
use crate::backend::bucket::address::CloudKind;
use crate::layer::liveness::LivenessStore;
use crate::request_context::UNLIMITED;
use crate::sync::clock::Clock;
use crate::{Condition, Key, Store};
use zarr_format::error::{Kind, Result};

/// A bucket of the keys `zarr.json` and `b`, the layer over it, and its clock.
struct Bucket {
    server: FaultyServer,
    store: Arc<dyn Store>,
    clock: Clock,
}

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

impl Bucket {
    fn new() -> Bucket {
        let server = FaultyServer {
            state: Arc::new(Mutex::new(FaultyObjects::default())),
            plan: Arc::new(|_, _| Fault::None),
            asked: Arc::default(),
        };
        let (mut store, _) = open(CloudKind::S3, &server, Duration::from_secs(20));
        let clock = Clock::stopped();
        store.info.clock = clock.clone();
        let bucket = Bucket {
            server,
            store: Arc::new(LivenessStore::new(Arc::new(store))),
            clock,
        };
        bucket.fill();
        bucket
    }

    fn fill(&self) {
        let mut state = self.server.state.lock();
        state.keep("zarr.json", b"{}".to_vec());
        state.keep("b", b"more".to_vec());
    }

    /// Removes all keys, as another program would, one second after the last requests.
    fn clear(&self) {
        self.clock.advance(Duration::from_secs(1));
        self.server.state.lock().objects.clear();
    }

    /// Returns the names at the root.
    fn names(&self) -> Result<Vec<Vec<u8>>> {
        let mut listing = self.store.list(&UNLIMITED, &Key::root())?;
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED)? {
            names.push(name.name);
        }
        Ok(names)
    }

    fn erase(&self, path: &str) {
        self.store
            .erase(&UNLIMITED, &key(path), &Condition::Any)
            .unwrap();
    }
}

#[test]
fn a_prefix_that_is_gone_is_an_error_and_never_empty() {
    let bucket = Bucket::new();
    assert_eq!(bucket.names().unwrap(), [&b"b"[..], b"zarr.json"]);
    bucket.clear();
    let error = bucket.names().unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    let error = bucket.store.get(&UNLIMITED, &key("b"), 9).unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    bucket.fill();
    assert_eq!(bucket.names().unwrap().len(), 2);
    assert!(
        bucket
            .store
            .get(&UNLIMITED, &key("d"), 9)
            .unwrap()
            .is_none()
    );
}

#[test]
fn what_this_mount_removes_leaves_an_empty_store() {
    let bucket = Bucket::new();
    assert_eq!(bucket.names().unwrap().len(), 2);
    bucket.erase("zarr.json");
    bucket.erase("b");
    bucket.clear();
    assert!(bucket.names().unwrap().is_empty());
    assert!(
        bucket
            .store
            .get(&UNLIMITED, &key("b"), 9)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_removal_by_this_mount_does_not_hide_those_of_others() {
    let bucket = Bucket::new();
    assert_eq!(bucket.names().unwrap().len(), 2);
    bucket.erase("b");
    bucket.clear();
    let error = bucket.names().unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
}
