//! A prefix whose keys another program removes: the bucket has no key then, and the layer over it says that it is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::faulty_server::{Fault, FaultyObjects, FaultyServer, open};
use crate::error::{Kind, Result};
use crate::store::backend::bucket::address::CloudKind;
use crate::store::layer::presence::PresenceStore;
use crate::store::{Condition, Key, PutBody, Store};

/// A bucket of the keys `a` and `b`, the layer over it, and how long its answers count.
struct Bucket {
    server: FaultyServer,
    store: PresenceStore,
}

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

impl Bucket {
    fn new(counts: Duration) -> Bucket {
        let server = FaultyServer {
            state: Arc::new(Mutex::new(FaultyObjects::default())),
            plan: Arc::new(|_, _| Fault::None),
            asked: Arc::default(),
        };
        let (mut store, _) = open(CloudKind::S3, &server, Duration::from_secs(20));
        store.info.freshness = counts;
        let bucket = Bucket {
            server,
            store: PresenceStore::new(Arc::new(store), false),
        };
        bucket.fill();
        bucket
    }

    fn fill(&self) {
        let mut state = self.server.state.lock();
        state.keep("a", b"bytes".to_vec());
        state.keep("b", b"more".to_vec());
    }

    fn clear(&self) {
        self.server.state.lock().objects.clear();
    }

    /// Returns the first name of a folder.
    fn first(&self, folder: &str) -> Result<Option<Vec<u8>>> {
        let name = self.store.list(&key(folder))?.next()?;
        Ok(name.map(|name| name.name))
    }

    /// Asks everything of a key that is not there, and returns what that is answered with.
    fn answers(&self, path: &str) -> Vec<(&'static str, Option<Kind>)> {
        let (store, key) = (&self.store, key(path));
        let body = || PutBody::Bytes(b"new");
        let found = [
            ("get", store.get(&key, 100).err()),
            ("head", store.head(&key).err()),
            ("version", store.version(&key).err()),
            ("etag", store.etag(&key).err()),
            ("list", store.list(&key).err()),
            ("open", store.open(&key, None).err()),
            ("put", store.put(&key, body(), &Condition::Any).err()),
            ("erase", store.erase(&key, &Condition::Any).err()),
        ];
        let kinds = found.into_iter();
        kinds
            .map(|(what, error)| (what, error.map(|error| error.kind())))
            .collect()
    }
}

#[test]
fn b01_a_prefix_that_is_gone_is_an_error_and_never_empty() {
    let bucket = Bucket::new(Duration::ZERO);
    assert_eq!(bucket.first("").unwrap().unwrap(), b"a");
    bucket.clear();
    let error = bucket.first("").unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    for (what, kind) in bucket.answers("d") {
        assert_eq!(kind, Some(Kind::Gone), "{what}");
    }
    assert!(
        bucket.server.state.lock().objects.is_empty(),
        "nothing was put"
    );
    bucket.fill();
    assert_eq!(bucket.first("").unwrap().unwrap(), b"a");
    assert!(bucket.store.get(&key("d"), 9).unwrap().is_none());
}

#[test]
fn b01_what_this_mount_removes_leaves_an_empty_store() {
    let bucket = Bucket::new(Duration::ZERO);
    let erase = |path: &str| bucket.store.erase(&key(path), &Condition::Any).unwrap();
    erase("a");
    erase("b");
    assert_eq!(bucket.first("").unwrap(), None);
    assert!(bucket.store.get(&key("a"), 9).unwrap().is_none());
}

#[test]
fn b01_a_removal_by_this_mount_does_not_hide_those_of_others() {
    let bucket = Bucket::new(Duration::ZERO);
    bucket.store.erase(&key("a"), &Condition::Any).unwrap();
    bucket.clear();
    let error = bucket.first("").unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
}

#[test]
fn b01_no_key_is_missing_while_its_store_goes() {
    for _ in 0..20 {
        let bucket = Bucket::new(Duration::ZERO);
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| read_until_gone(&bucket, &is_gone)))
                .collect();
            thread::sleep(Duration::from_millis(5));
            bucket.clear();
            is_gone.store(true, Ordering::SeqCst);
            readers.into_iter().for_each(|one| one.join().unwrap());
        });
    }
}

/// Reads a key over and over: it has its bytes, or its store is gone.
fn read_until_gone(bucket: &Bucket, is_gone: &AtomicBool) {
    loop {
        let is_last = is_gone.load(Ordering::SeqCst);
        match bucket.store.get(&key("b"), 9) {
            Ok(Some(object)) => assert_eq!(object.bytes, b"more"),
            Ok(None) => panic!("a key of a store that is gone is missing"),
            Err(error) => assert_eq!(error.kind(), Kind::Gone, "{error}"),
        }
        if is_last {
            return;
        }
    }
}
