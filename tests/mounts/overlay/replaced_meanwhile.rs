//! Another program replaces an array while its chunks are put.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use zarr_format::error::{Error, Kind, Result};
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::{Condition, Key, PutBody, Store};

use crate::overlay::encodings::{KINDS, commit, fixture, others, put, read, stored, write};
use crate::overlay::fixture::{Fixture, folder, key, opened_with};
use crate::overlay::hooked::{Hook, Hooked};

/// A hook that plays another program: it replaces the array immediately before a chunk is put.
struct Meddler {
    store: Arc<dyn Store>,
    is_done: Mutex<bool>,
    /// Whether the next put of the key `b` fails.
    fails: Mutex<bool>,
}

impl Hook for Meddler {
    fn before(&self, _context: &RequestContext, call: &str, at: &Key) -> Result<()> {
        let mut is_done = self.is_done.lock().unwrap();
        if !*is_done && call == "put" && *at == key("a/c/0") {
            *is_done = true;
            put(&*self.store, "a/zarr.json", others()[0].1.as_bytes());
        }
        if call == "put" && *at == key("b") && std::mem::take(&mut *self.fails.lock().unwrap()) {
            return Err(Error::unavailable(at, "on purpose"));
        }
        Ok(())
    }
}

/// A commit has put the chunks and then failed. The next commit must notice that the array was replaced during the
/// puts.
#[test]
fn an_array_replaced_during_a_failed_commit_is_a_conflict() {
    for kind in KINDS {
        let plain = fixture(kind);
        let meddler = Meddler {
            store: plain.lower.clone(),
            is_done: Mutex::new(false),
            fails: Mutex::new(true),
        };
        let hooked = Hooked::new(plain.lower.clone(), Arc::new(meddler));
        let fixture = Fixture::over(folder(), Arc::new(hooked));
        fixture.write("a/c/0", &[2; 16]);
        fixture.write("b", b"new");
        let config = CommitConfig::default();
        let outcome = fixture
            .overlay()
            .commit(&UNLIMITED, config, &|_, _| {})
            .unwrap();
        assert!(outcome.failed.is_some());
        assert_eq!(stored(&*plain.lower, "a/c/0"), [2; 16], "{kind:?}");
        for _ in 0..2 {
            let outcome = commit(&fixture, false, false);
            let [(key, why)] = &outcome.conflicts[..] else {
                panic!("{:?}", outcome.conflicts)
            };
            assert_eq!(key.to_string(), "a/zarr.json");
            assert!(why.contains("while its chunks were written"), "{why}");
        }
        assert!(commit(&fixture, false, true).conflicts.is_empty());
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn an_array_replaced_during_a_commit_is_a_conflict() {
    for kind in KINDS {
        let plain = fixture(kind);
        let meddler = Meddler {
            store: plain.lower.clone(),
            is_done: Mutex::new(false),
            fails: Mutex::new(false),
        };
        let hooked = Hooked::new(plain.lower.clone(), Arc::new(meddler));
        let fixture = Fixture::over(folder(), Arc::new(hooked));
        fixture.write("a/c/0", &[2; 16]);
        let outcome = commit(&fixture, false, false);
        let [(key, why)] = &outcome.conflicts[..] else {
            panic!("{:?}", outcome.conflicts)
        };
        assert_eq!(key.to_string(), "a/zarr.json");
        assert!(why.contains("while its chunks were written"), "{why}");
        assert_eq!(outcome.put, 1);
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
///
/// The array is replaced during the put of a chunk. The store then has the chunk, and the program gets an error.
#[test]
fn a_close_fails_if_the_array_was_replaced_during_its_put() {
    for kind in KINDS {
        for is_object in [false, true] {
            let plain = fixture(kind);
            let meddler = Meddler {
                store: plain.lower.clone(),
                is_done: Mutex::new(false),
                fails: Mutex::new(false),
            };
            let hooked = Hooked::new(plain.lower.clone(), Arc::new(meddler));
            let (upper, lower): (_, Arc<dyn Store>) = (folder(), Arc::new(hooked));
            let overlay = opened_with(&upper.path().join("upper"), &lower, "/it", true).unwrap();
            read(&overlay, "a/zarr.json");
            let error = if is_object {
                let body = PutBody::Bytes(&[2; 16]);
                let put = Store::put(&overlay, &UNLIMITED, &key("a/c/0"), body, &Condition::Any);
                put.unwrap_err()
            } else {
                write(&overlay, "a/c/0", &[2; 16]).unwrap_err()
            };
            assert_eq!(error.kind(), Kind::Changed, "{error}");
            let said = error.to_string();
            assert!(
                said.contains("its chunks were written: the new array"),
                "{said}"
            );
            assert_eq!(stored(&*plain.lower, "a/c/0"), [2; 16]);
            // The upper folder must not have anything left that hides the store's object.
            assert_eq!(overlay.changes(&UNLIMITED).unwrap().keys, []);
            put(&*plain.lower, "a/c/0", &[5; 16]);
            assert_eq!(read(&overlay, "a/c/0"), [5; 16]);
        }
    }
}

/// A hook that makes reads of the array's metadata fail after a chunk was put.
struct Unreachable {
    is_put: AtomicBool,
    is_failing: AtomicBool,
}

impl Hook for Unreachable {
    fn before(&self, _context: &RequestContext, call: &str, at: &Key) -> Result<()> {
        if call == "put" {
            self.is_put.store(true, SeqCst);
        }
        let is_look = *at == key("a/zarr.json") && self.is_put.load(SeqCst);
        if is_look && self.is_failing.load(SeqCst) {
            return Err(Error::unavailable(at, "on purpose"));
        }
        Ok(())
    }
}

/// After the put of a chunk, the array's metadata cannot be read, so the close fails. The store has the chunk, and
/// nothing hides it.
#[test]
fn a_close_fails_if_metadata_are_unreadable_after_its_put() {
    for kind in KINDS {
        let plain = fixture(kind);
        let unreachable = Arc::new(Unreachable {
            is_put: AtomicBool::new(false),
            is_failing: AtomicBool::new(true),
        });
        let hooked = Hooked::new(plain.lower.clone(), unreachable.clone());
        let (upper, lower): (_, Arc<dyn Store>) = (folder(), Arc::new(hooked));
        let path = upper.path().join("upper");
        let mut overlay = opened_with(&path, &lower, "/it", true).unwrap();
        read(&overlay, "a/zarr.json");
        let error = write(&overlay, "a/c/0", &[2; 16]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert_eq!(stored(&*plain.lower, "a/c/0"), [2; 16]);
        unreachable.is_failing.store(false, SeqCst);
        for round in 3..5 {
            assert_eq!(overlay.changes(&UNLIMITED).unwrap().keys, []);
            put(&*plain.lower, "a/c/0", &[round; 16]);
            assert_eq!(read(&overlay, "a/c/0"), [round; 16]);
            drop(overlay);
            overlay = opened_with(&path, &lower, "/it", true).unwrap();
        }
    }
}
