//! Tests puts and removals over a failing network, with and without enforced conditions.
//!
//! A put that succeeds was carried out once. A put that fails may have been carried out. No object of another program
//! is overwritten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

use super::{Fault, FaultyObjects, FaultyServer, RecordedRequest, Removals, open};
use crate::backend::bucket::BucketStore;
use crate::backend::bucket::address::CloudKind;
use crate::backend::remote::probes::EnforcedConditions;
use crate::request_context::UNLIMITED;
use crate::{Condition, Key, PutBody, Store};
use zarr_format::error::Kind;

const KINDS: [CloudKind; 2] = [CloudKind::S3, CloudKind::Google];

/// A size above that of a single put, so that zarrfs uploads the object in parts.
const BIG: usize = (17 << 20) + 3;

type LossPlan = fn(usize, &str) -> Fault;

/// A bucket whose requests succeed until a fault plan is set. The plan numbers the requests from then on.
struct BucketFixture {
    store: BucketStore,
    server: FaultyServer,
    plan: Arc<Mutex<LossPlan>>,
}

fn fixture(kind: CloudKind) -> BucketFixture {
    BucketFixture::new(kind, FaultyObjects::default(), Duration::from_secs(20))
}

impl BucketFixture {
    fn new(kind: CloudKind, objects: FaultyObjects, timeout: Duration) -> BucketFixture {
        let plan: Arc<Mutex<LossPlan>> = Arc::new(Mutex::new(|_, _| Fault::None));
        let now = plan.clone();
        let server = FaultyServer::new(objects, move |number, method| now.lock()(number, method));
        let (store, _) = open(kind, &server, timeout);
        BucketFixture {
            store,
            server,
            plan,
        }
    }

    /// Makes all later requests fail as `plan` says, after zarrfs has probed which conditions the server enforces.
    fn fail(&self, plan: LossPlan) {
        let enforced = self.store.writer().unwrap().enforced_conditions(&UNLIMITED);
        let all = EnforcedConditions {
            puts: true,
            removals: true,
        };
        assert_eq!(enforced.unwrap(), all);
        *self.plan.lock() = plan;
        self.server.requests_served.store(0, Ordering::SeqCst);
    }

    fn put(&self, bytes: &[u8], condition: &Condition) -> zarr_format::error::Result<String> {
        let etag = self
            .store
            .put(&UNLIMITED, &key(), PutBody::Bytes(bytes), condition)?;
        // Whatever fault there was, the put must have returned the ETag that the server has now.
        *self.plan.lock() = |_, _| Fault::None;
        assert_eq!(self.store.etag(&UNLIMITED, &key()).unwrap().unwrap(), etag);
        Ok(etag.text)
    }

    /// Puts an object without a condition. Returns the condition that the object is unchanged since then.
    fn put_any(&self, bytes: &[u8]) -> Condition {
        Condition::Match(self.put(bytes, &Condition::Any).unwrap())
    }

    fn object(&self) -> Option<Vec<u8>> {
        let state = self.server.state.lock();
        state.objects.get("a").map(|(bytes, _)| bytes.clone())
    }

    fn puts(&self) -> u64 {
        self.server.state.lock().changes
    }

    /// Returns and clears the requests that the server has recorded.
    fn requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.server.state.lock().requests)
    }

    fn erase_fails_as_changed(&self, condition: &Condition) {
        let error = self.store.erase(&UNLIMITED, &key(), condition).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
    }
}

fn key() -> Key {
    Key::new("a").unwrap()
}

/// Returns a fault plan in which only the first put fails, by `fault`.
fn first(fault: Fault) -> impl Fn(usize, &str) -> Fault {
    move |number, method| match (number, method) {
        (0, "PUT") => fault,
        _ => Fault::None,
    }
}

/// Invariant (stores): A put that succeeds has stored the whole object, and its condition held, even if the response
/// was lost.
#[test]
fn a_put_with_a_lost_response_succeeds_once() {
    let plans: [LossPlan; 3] = [
        |number, method| first(Fault::Lost)(number, method),
        |number, method| first(Fault::Denied(500))(number, method),
        |number, method| first(Fault::Denied(503))(number, method),
    ];
    for kind in KINDS {
        for plan in plans {
            let fixture = fixture(kind);
            fixture.fail(plan);
            let before = fixture.puts();
            let etag = fixture.put(b"one", &Condition::Absent).unwrap();
            assert_eq!(fixture.object().unwrap(), b"one");
            assert_eq!(fixture.puts(), before + 1);
            fixture.fail(plan);
            fixture.put(b"two", &Condition::Match(etag)).unwrap();
            assert_eq!(fixture.object().unwrap(), b"two");
            assert_eq!(fixture.puts(), before + 2);
        }
    }
}

#[test]
fn a_failed_put_is_retried() {
    let plans: [LossPlan; 3] = [
        |number, _| [Fault::Status(503), Fault::None][number.min(1)],
        |number, _| [Fault::Refused, Fault::None][number.min(1)],
        |number, _| {
            [
                Fault::Status(500),
                Fault::None,
                Fault::Status(500),
                Fault::None,
            ][number.min(3)]
        },
    ];
    for kind in KINDS {
        for plan in plans {
            let fixture = fixture(kind);
            fixture.fail(plan);
            let etag = fixture.put(b"one", &Condition::Absent).unwrap();
            fixture.fail(plan);
            fixture.put(b"two", &Condition::Match(etag)).unwrap();
            fixture.fail(plan);
            fixture.put(b"three", &Condition::Any).unwrap();
            assert_eq!(fixture.object().unwrap(), b"three");
        }
    }
}

/// Invariant of `a_put_with_a_lost_response_succeeds_once`.
#[test]
fn an_object_of_another_program_is_never_replaced() {
    for kind in KINDS {
        for is_absent in [true, false] {
            let fixture = fixture(kind);
            let condition = if is_absent {
                Condition::Absent
            } else {
                fixture.put_any(b"zero")
            };
            fixture.fail(|number, method| first(Fault::Overtaken)(number, method));
            let error = fixture.put(b"one", &condition).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{error}");
            assert_eq!(fixture.object().unwrap(), b"somebody else's");
        }
    }
}

/// Invariant of `a_put_with_a_lost_response_succeeds_once`.
#[test]
fn a_put_that_never_succeeds_is_an_error() {
    let plans: [LossPlan; 3] = [
        |_, _| Fault::Silence,
        |_, _| Fault::Status(503),
        |_, method| match method {
            "PUT" => Fault::Refused,
            _ => Fault::None,
        },
    ];
    for plan in plans {
        for condition in [Condition::Any, Condition::Absent] {
            let fixture = BucketFixture::new(
                CloudKind::S3,
                FaultyObjects::default(),
                Duration::from_millis(700),
            );
            fixture.fail(plan);
            let error = fixture.put(b"one", &condition).unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            assert_eq!(fixture.object(), None);
        }
    }
}

#[test]
fn a_put_refused_with_403_is_not_retried() {
    let fixture = fixture(CloudKind::S3);
    fixture.fail(|_, _| Fault::Status(403));
    for condition in [Condition::Any, Condition::Absent] {
        let error = fixture.put(b"one", &condition).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{error}");
    }
    assert!(fixture.server.requests_served.load(Ordering::SeqCst) <= 2);
}

/// If the server ignores conditions, zarrfs checks the object before each attempt of a put.
#[test]
fn a_server_that_ignores_conditions_is_detected() {
    for kind in KINDS {
        let fixture = fixture(kind);
        {
            let mut state = fixture.server.state.lock();
            (state.is_careless, state.removals) = (true, Removals::Ignore);
        }
        let enforced = fixture
            .store
            .writer()
            .unwrap()
            .enforced_conditions(&UNLIMITED);
        assert_eq!(enforced.unwrap(), EnforcedConditions::default());
        assert_eq!(fixture.server.state.lock().objects, BTreeMap::new());
        let etag = fixture.put(b"one", &Condition::Absent).unwrap();
        for wrong in [Condition::Absent, Condition::Match("\"0\"".to_string())] {
            let error = fixture.put(b"two", &wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{error}");
        }
        assert_eq!(fixture.object().unwrap(), b"one");
        // The put is the second request, since a check precedes it. Another check follows.
        *fixture.plan.lock() = |number, method| match (number, method) {
            (1, "PUT") => Fault::Overtaken,
            _ => Fault::None,
        };
        fixture.server.requests_served.store(0, Ordering::SeqCst);
        let error = fixture.put(b"two", &Condition::Match(etag)).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
        assert_eq!(fixture.object().unwrap(), b"somebody else's");
    }
}

#[test]
fn a_multipart_upload_survives_lost_responses() {
    let bytes: Vec<u8> = (0..BIG).map(|place| (place % 253) as u8).collect();
    let plans: [LossPlan; 4] = [
        |_, _| Fault::None,
        // A failed upload of a part can be sent again, since no other program writes to this multipart upload.
        |number, method| match (number % 3, method) {
            (1, "PUT") => Fault::Denied(500),
            (2, "PUT") => Fault::Status(503),
            _ => Fault::None,
        },
        // The request that completes the upload is sent again too. The server has carried out the first one, so the
        // second fails: the upload no longer exists.
        |number, method| match (number > 1, method) {
            (true, "POST") => Fault::Denied(500),
            _ => Fault::None,
        },
        |number, method| match (number > 1, method) {
            (true, "POST") => Fault::Lost,
            _ => Fault::None,
        },
    ];
    for plan in plans {
        let fixture = fixture(CloudKind::S3);
        fixture.fail(plan);
        fixture.put(&bytes, &Condition::Absent).unwrap();
        assert!(fixture.object().unwrap() == bytes);
        let error = fixture.put(&bytes, &Condition::Absent).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
        assert!(fixture.server.state.lock().uploads.is_empty());
    }
}

#[test]
fn a_failed_multipart_upload_is_aborted() {
    let fixture = fixture(CloudKind::S3);
    fixture.fail(|_, method| match method {
        "PUT" => Fault::Status(403),
        _ => Fault::None,
    });
    let error = fixture.put(&vec![1; BIG], &Condition::Any).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(fixture.server.state.lock().uploads.is_empty());
    assert_eq!(fixture.object(), None);
}

#[test]
fn an_erase_is_retried_and_spares_a_new_object() {
    let lost: [LossPlan; 3] = [
        |number, method| match (number, method) {
            (0..2, "DELETE") => Fault::Lost,
            _ => Fault::None,
        },
        |number, method| match (number, method) {
            (0..2, "DELETE") => Fault::Denied(500),
            _ => Fault::None,
        },
        |number, method| match (number, method) {
            (0..2, "DELETE") => Fault::Status(503),
            _ => Fault::None,
        },
    ];
    for plan in lost {
        for is_conditional in [false, true] {
            let fixture = fixture(CloudKind::S3);
            let current = fixture.put_any(b"one");
            fixture.fail(plan);
            let condition = if is_conditional {
                current
            } else {
                Condition::Any
            };
            fixture.store.erase(&UNLIMITED, &key(), &condition).unwrap();
            assert_eq!(fixture.object(), None);
        }
    }
    let fixture = fixture(CloudKind::S3);
    let current = fixture.put_any(b"one");
    fixture.fail(|number, method| match (number, method) {
        (0, "DELETE") => Fault::Overtaken,
        _ => Fault::None,
    });
    fixture.erase_fails_as_changed(&current);
    assert_eq!(fixture.object().unwrap(), b"somebody else's");
}

/// Opens a bucket whose server handles conditional removals as `removals` says.
fn removal_fixture(kind: CloudKind, removals: Removals) -> BucketFixture {
    let objects = FaultyObjects {
        removals,
        ..FaultyObjects::default()
    };
    BucketFixture::new(kind, objects, Duration::from_secs(20))
}

/// Invariant of `a_put_with_a_lost_response_succeeds_once`.
#[test]
fn a_removal_carries_its_condition() {
    for (kind, name) in [
        (CloudKind::S3, "if-match"),
        (CloudKind::Google, "x-goog-if-generation-match"),
        (CloudKind::Azure, "if-match"),
    ] {
        let fixture = removal_fixture(kind, Removals::Enforce);
        let trial = fixture.put_any(b"the trial is left");
        fixture.store.erase(&UNLIMITED, &key(), &trial).unwrap();
        assert_eq!(
            fixture.server.state.lock().objects.len(),
            0,
            "the trial is left"
        );

        let outdated = fixture.put_any(b"one");
        let current = fixture.put_any(b"two");
        fixture.requests();
        fixture.erase_fails_as_changed(&outdated);
        assert_eq!(fixture.object().unwrap(), b"two");
        let (method, condition) = fixture.requests().remove(0);
        assert_eq!((method, condition.unwrap().0), (Method::DELETE, name));

        fixture.store.erase(&UNLIMITED, &key(), &current).unwrap();
        assert_eq!(fixture.object(), None);
        let number = fixture.puts();
        let value = match kind {
            CloudKind::Google => format!("{number}"),
            CloudKind::S3 | CloudKind::Azure => format!("\"{number}\""),
        };
        let request = (Method::DELETE, Some((name, value)));
        assert_eq!(fixture.requests(), [request]);

        fixture.erase_fails_as_changed(&current);
    }
}

/// If the server does not enforce conditional removals, zarrfs checks the object before each removal.
#[test]
fn a_server_without_conditional_removals_is_detected() {
    for kind in [CloudKind::S3, CloudKind::Google] {
        for removals in [
            Removals::Ignore,
            Removals::Refuse(501),
            Removals::Refuse(400),
        ] {
            let fixture = removal_fixture(kind, removals);
            let outdated = fixture.put_any(b"one");
            let current = fixture.put_any(b"two");
            fixture.erase_fails_as_changed(&outdated);
            assert_eq!(fixture.object().unwrap(), b"two", "{removals:?}");
            let count = fixture.server.state.lock().objects.len();
            assert_eq!(count, 1, "the trial is left");
            fixture.requests();
            fixture.store.erase(&UNLIMITED, &key(), &current).unwrap();
            assert_eq!(fixture.object(), None);
            let requests = [(Method::HEAD, None), (Method::DELETE, None)];
            assert_eq!(fixture.requests(), requests, "{removals:?}");
            fixture.erase_fails_as_changed(&current);
        }
    }
}
