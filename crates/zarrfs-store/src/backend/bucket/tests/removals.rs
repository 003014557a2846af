//! Conditions of removals in the requests that the server receives.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

use super::faulty_server::{Fault, FaultyObjects, FaultyServer, RecordedRequest, Removals, open};
use crate::backend::bucket::BucketStore;
use crate::backend::bucket::address::CloudKind;
use crate::request_context::UNLIMITED;
use crate::{Condition, Key, PutBody, Store};
use zarr_format::error::Kind;

/// A bucket, and its server.
struct RemovalFixture {
    store: BucketStore,
    server: FaultyServer,
}

impl RemovalFixture {
    fn new(kind: CloudKind, removals: Removals) -> RemovalFixture {
        let state = FaultyObjects {
            removals,
            ..FaultyObjects::default()
        };
        let server = FaultyServer {
            state: Arc::new(Mutex::new(state)),
            plan: Arc::new(|_, _| Fault::None),
            asked: Arc::default(),
        };
        let (store, _) = open(kind, &server, Duration::from_secs(20));
        RemovalFixture { store, server }
    }

    /// Puts an object. Returns the condition that it is unchanged.
    fn put(&self, bytes: &[u8]) -> Condition {
        let put = self
            .store
            .put(&UNLIMITED, &key(), PutBody::Bytes(bytes), &Condition::Any);
        Condition::Match(put.unwrap().text)
    }

    /// Returns the requests since the last call.
    fn requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.server.state.lock().requests)
    }

    /// Returns the object on the server, and the number of objects.
    fn held(&self) -> (Option<Vec<u8>>, usize) {
        let state = self.server.state.lock();
        let object = state.objects.get("a").map(|(bytes, _)| bytes.clone());
        (object, state.objects.len())
    }

    fn fails_as_changed(&self, condition: &Condition) {
        let error = self.store.erase(&UNLIMITED, &key(), condition).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
    }
}

fn key() -> Key {
    Key::new("a").unwrap()
}

#[test]
fn a_removal_carries_its_condition() {
    for (kind, name) in [
        (CloudKind::S3, "if-match"),
        (CloudKind::Google, "x-goog-if-generation-match"),
        (CloudKind::Azure, "if-match"),
    ] {
        let fixture = RemovalFixture::new(kind, Removals::Enforce);
        let trial = fixture.put(b"trial");
        fixture.store.erase(&UNLIMITED, &key(), &trial).unwrap();
        assert_eq!(fixture.held(), (None, 0), "the trial is left");

        let outdated = fixture.put(b"one");
        let current = fixture.put(b"two");
        fixture.requests();
        fixture.fails_as_changed(&outdated);
        assert_eq!(fixture.held().0.unwrap(), b"two");
        let (method, condition) = fixture.requests().remove(0);
        assert_eq!((method, condition.unwrap().0), (Method::DELETE, name));

        fixture.store.erase(&UNLIMITED, &key(), &current).unwrap();
        assert_eq!(fixture.held(), (None, 0));
        let number = fixture.server.state.lock().changes;
        let value = match kind {
            CloudKind::Google => format!("{number}"),
            CloudKind::S3 | CloudKind::Azure => format!("\"{number}\""),
        };
        let request = (Method::DELETE, Some((name, value)));
        assert_eq!(fixture.requests(), [request]);

        fixture.fails_as_changed(&current);
    }
}

/// The key is checked just before if the server does not enforce conditions of removals.
#[test]
fn a_server_without_conditions_of_removals_is_found_out() {
    for kind in [CloudKind::S3, CloudKind::Google] {
        for removals in [
            Removals::Ignore,
            Removals::Refuse(501),
            Removals::Refuse(400),
        ] {
            let fixture = RemovalFixture::new(kind, removals);
            let outdated = fixture.put(b"one");
            let current = fixture.put(b"two");
            fixture.fails_as_changed(&outdated);
            assert_eq!(fixture.held(), (Some(b"two".to_vec()), 1), "{removals:?}");
            fixture.requests();
            fixture.store.erase(&UNLIMITED, &key(), &current).unwrap();
            assert_eq!(fixture.held(), (None, 0));
            let requests = [(Method::HEAD, None), (Method::DELETE, None)];
            assert_eq!(fixture.requests(), requests, "{removals:?}");
            fixture.fails_as_changed(&current);
        }
    }
}
