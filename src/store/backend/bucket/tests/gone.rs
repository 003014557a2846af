//! A prefix whose keys another program removes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::faulty_server::{Fault, FaultyObjects, FaultyServer, open};
use crate::error::Kind;
use crate::store::backend::bucket::address::CloudKind;
use crate::store::{Condition, Key, Store};

#[test]
fn b01_a_prefix_that_is_gone_is_an_error_and_never_empty() {
    let server = FaultyServer {
        state: Arc::new(Mutex::new(FaultyObjects::default())),
        plan: Arc::new(|_, _| Fault::None),
        asked: Arc::default(),
    };
    let keep = || server.state.lock().keep("a", b"bytes".to_vec());
    keep();
    let (store, _) = open(CloudKind::S3, &server, Duration::from_secs(20));
    let names = || store.list(&Key::root()).and_then(|mut names| names.next());
    assert_eq!(names().unwrap().unwrap().name, b"a");
    server.state.lock().objects.clear();
    let error = names().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("the store is gone"), "{error}");
    keep();
    assert_eq!(names().unwrap().unwrap().name, b"a");
    // What is removed through the store itself leaves an empty one.
    store
        .erase(&Key::new("a").unwrap(), &Condition::Any)
        .unwrap();
    assert_eq!(names().unwrap(), None);
}
