//! Tests reads of a bucket over a failing network, and of a removed prefix.
//!
//! A read returns correct bytes, or an error before its time limit. A removed prefix is reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Fault, FaultyObjects, FaultyServer, open};
use crate::backend::bucket::BucketStore;
use crate::backend::bucket::address::CloudKind;
use crate::layer::liveness::LivenessStore;
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::sync::clock::Clock;
use crate::{ByteRange, Condition, Key, Store};
use zarr_format::error::{Kind, Result};

const COUNT: usize = 40;

fn content(number: usize) -> Vec<u8> {
    (0..5000 + number * 700)
        .map(|place| (place * 7 + number) as u8)
        .collect()
}

/// Opens a bucket whose requests fail as `plan` says.
fn bucket(plan: fn(usize) -> Fault, timeout: Duration) -> (BucketStore, Arc<Stats>) {
    let mut state = FaultyObjects::default();
    for number in 0..COUNT {
        state.keep(&format!("o{number:02}"), content(number));
    }
    let server = FaultyServer::new(state, move |number, _| plan(number));
    open(CloudKind::S3, &server, timeout)
}

fn key(number: usize) -> Key {
    Key::new(format!("o{number:02}")).unwrap()
}

#[test]
fn reads_are_right_if_a_third_of_the_requests_fail() {
    let plan = |number: usize| match number % 9 {
        1 => Fault::Status(503),
        4 => Fault::Refused,
        7 => Fault::Cut,
        _ => Fault::None,
    };
    let (store, stats) = bucket(plan, Duration::from_secs(60));
    for number in 0..COUNT {
        let (key, whole) = (key(number), content(number));
        let object = store.get(&UNLIMITED, &key, 1 << 20).unwrap().unwrap();
        assert!(object.bytes == whole, "{key}");
        let part = store
            .get_range(&UNLIMITED, &key, ByteRange::Span(100..900))
            .unwrap()
            .unwrap();
        assert_eq!(
            (part.bytes.as_slice(), part.size),
            (&whole[100..900], whole.len() as u64)
        );
        let reader = store.open(&UNLIMITED, &key, None).unwrap();
        assert_eq!(
            reader.read_at(&UNLIMITED, 4000, 100_000).unwrap(),
            whole[4000..]
        );
    }
    let mut listing = store.list(&UNLIMITED, &Key::root()).unwrap();
    let mut names = 0;
    while listing.next(&UNLIMITED).unwrap().is_some() {
        names += 1;
    }
    assert_eq!(names, COUNT);
    assert!(
        stats.http_requests.get() > 4 * COUNT as u64,
        "failed requests count too"
    );
}

#[test]
fn a_request_refused_with_429_is_retried() {
    let plan = |number: usize| match number {
        0..3 => Fault::Status(429),
        _ => Fault::None,
    };
    let (store, stats) = bucket(plan, Duration::from_secs(60));
    assert_eq!(
        store.head(&UNLIMITED, &key(3)).unwrap().unwrap().size,
        content(3).len() as u64
    );
    assert!(stats.http_requests.get() >= 4);
}

#[test]
fn a_body_that_ends_early_is_an_error() {
    let (store, _) = bucket(|_| Fault::Short, Duration::from_secs(2));
    let error = store.get(&UNLIMITED, &key(5), 1 << 20).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(
        store
            .open(&UNLIMITED, &key(5), None)
            .unwrap()
            .read_at(&UNLIMITED, 0, 5000)
            .is_err()
    );
}

#[test]
fn a_truncated_listing_is_an_error() {
    for fault in [|_| Fault::Cut, |_| Fault::Short] {
        let (store, _) = bucket(fault, Duration::from_secs(2));
        assert!(store.list(&UNLIMITED, &Key::root()).is_err());
    }
}

#[test]
fn a_server_that_never_answers_is_unavailable() {
    let (store, _) = bucket(|_| Fault::Silence, Duration::from_millis(300));
    let start = Instant::now();
    for error in [
        store.get(&UNLIMITED, &key(1), 1 << 20).unwrap_err(),
        store.version(&UNLIMITED, &key(1)).unwrap_err(),
        store.list(&UNLIMITED, &Key::root()).err().unwrap(),
    ] {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_request_without_a_response_is_retried() {
    let plan = |number: usize| match number % 2 {
        0 => Fault::Silence,
        _ => Fault::None,
    };
    let (store, stats) = bucket(plan, Duration::from_secs(8));
    let start = Instant::now();
    let object = store.get(&UNLIMITED, &key(1), 1 << 20).unwrap().unwrap();
    assert!(object.bytes == content(1));
    assert!(store.version(&UNLIMITED, &key(1)).unwrap().is_some());
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(stats.http_requests.get(), 4);
}

#[test]
fn status_403_is_reported_as_denied() {
    let (store, _) = bucket(|_| Fault::Status(403), Duration::from_secs(2));
    assert_eq!(
        store.get(&UNLIMITED, &key(1), 1 << 20).unwrap_err().kind(),
        Kind::Denied
    );
    assert_eq!(
        store.list(&UNLIMITED, &Key::root()).err().unwrap().kind(),
        Kind::Denied
    );
}

/// A bucket with the keys `zarr.json` and `b` under the layer that detects deleted stores, and the layer's clock.
struct LivenessFixture {
    server: FaultyServer,
    store: Arc<dyn Store>,
    clock: Clock,
}

fn named(path: &str) -> Key {
    Key::new(path).unwrap()
}

impl LivenessFixture {
    fn new() -> LivenessFixture {
        let server = FaultyServer::new(FaultyObjects::default(), |_, _| Fault::None);
        let (mut store, _) = open(CloudKind::S3, &server, Duration::from_secs(20));
        let clock = Clock::stopped();
        store.info.clock = clock.clone();
        let bucket = LivenessFixture {
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

    /// Removes all keys, as another program would, one second after the store's last requests.
    fn clear(&self) {
        self.clock.advance(Duration::from_secs(1));
        self.server.state.lock().objects.clear();
    }

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
            .erase(&UNLIMITED, &named(path), &Condition::Any)
            .unwrap();
    }
}

/// Invariant of `without_root_metadata_a_missing_key_is_an_error`.
#[test]
fn a_removed_prefix_is_an_error_not_an_empty_store() {
    let bucket = LivenessFixture::new();
    assert_eq!(bucket.names().unwrap(), [&b"b"[..], b"zarr.json"]);
    bucket.clear();
    let error = bucket.names().unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    let error = bucket.store.get(&UNLIMITED, &named("b"), 9).unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
    bucket.fill();
    assert_eq!(bucket.names().unwrap().len(), 2);
    assert!(
        bucket
            .store
            .get(&UNLIMITED, &named("d"), 9)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_store_emptied_by_this_mount_reads_as_empty() {
    let bucket = LivenessFixture::new();
    assert_eq!(bucket.names().unwrap().len(), 2);
    bucket.erase("zarr.json");
    bucket.erase("b");
    bucket.clear();
    assert!(bucket.names().unwrap().is_empty());
    assert!(
        bucket
            .store
            .get(&UNLIMITED, &named("b"), 9)
            .unwrap()
            .is_none()
    );
}

/// Invariant of `without_root_metadata_a_missing_key_is_an_error`.
#[test]
fn erasing_a_key_does_not_hide_a_removed_store() {
    let bucket = LivenessFixture::new();
    assert_eq!(bucket.names().unwrap().len(), 2);
    bucket.erase("b");
    bucket.clear();
    let error = bucket.names().unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error}");
}
