//! Concurrent requests: each answer is the same as without other threads.

use std::thread;

use zarrfs_store::{ByteRange, Store};

use crate::conformance::fixture::{Kind, key};
use crate::conformance::listings;
use zarrfs_store::request_context::UNLIMITED;

const THREADS: usize = 16;
const OBJECTS: usize = 40;
const ROUNDS: usize = 60;

/// Returns the content of an object. Two objects differ in each byte.
fn content(number: usize) -> Vec<u8> {
    (0..3000).map(|place| (place + number * 5) as u8).collect()
}

/// Reads an object with each kind of request.
fn ask(store: &dyn Store, number: usize, round: usize) {
    let (asked, whole) = (key(format!("d/{number}")), content(number));
    assert_eq!(
        store.get(&UNLIMITED, &asked, 4000).unwrap().unwrap().bytes,
        whole
    );
    let start = round * 37 % 3000;
    let range = ByteRange::Span(start as u64..start as u64 + 100);
    let part = store.get_range(&UNLIMITED, &asked, range).unwrap().unwrap();
    assert_eq!(part.bytes, whole[start..3000.min(start + 100)]);
    let reader = store.open(&UNLIMITED, &asked, None).unwrap();
    assert_eq!(
        reader.read_at(&UNLIMITED, 2990, 100).unwrap(),
        whole[2990..]
    );
    assert_eq!(store.head(&UNLIMITED, &asked).unwrap().unwrap().size, 3000);
    if store.info().lists && round.is_multiple_of(20) {
        assert_eq!(listings::names(store, "d").len(), OBJECTS);
    }
}

pub(crate) fn many_threads_read_at_once(kind: &Kind) {
    let objects: Vec<(String, Vec<u8>)> = (0..OBJECTS)
        .map(|number| (format!("d/{number}"), content(number)))
        .collect();
    let objects: Vec<(&[u8], &[u8])> = objects
        .iter()
        .map(|(key, bytes)| (key.as_bytes(), bytes.as_slice()))
        .collect();
    let fixture = (kind.holding)(&objects);
    let rounds = kind.fewer(ROUNDS).max(4);
    // All threads share this reader.
    let shared = fixture.store.open(&UNLIMITED, &key("d/7"), None).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, shared) = (&*fixture.store, &shared);
            scope.spawn(move || {
                for round in 0..rounds {
                    ask(store, (thread * 3 + round) % OBJECTS, round + thread);
                    let offset = (thread * 100 + round) as u64;
                    let read = shared.read_at(&UNLIMITED, offset, 50).unwrap();
                    assert_eq!(read, content(7)[offset as usize..offset as usize + 50]);
                }
            });
        }
    });
}
