//! Counts the metadata cache's requests to a remote store, and checks its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::waiting;
use proptest::prelude::*;
use rustix::process::Pid;
use rustix::thread::gettid;
use zarr_format::error::Kind;
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::{EntryKind, Hints, Key, Store};

mod fake;
mod listed_below;

use fake::{Fake, LONG, Order, key};
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};

fn names(store: &dyn Store, prefix: &Key) -> BTreeMap<Vec<u8>, EntryKind> {
    let mut listing = store.list(&UNLIMITED, prefix).unwrap();
    let mut names = BTreeMap::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        assert_eq!(names.insert(name.name, name.kind), None, "a name twice");
    }
    names
}

#[test]
fn cached_answers_cost_no_request() {
    let fake = Fake::holding(&["a/b", "a/zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    for _ in 0..3 {
        assert_eq!(
            memo.head(&UNLIMITED, &key("a")).unwrap().unwrap().kind,
            EntryKind::Directory
        );
        assert_eq!(memo.head(&UNLIMITED, &key("a/b")).unwrap().unwrap().size, 3);
        assert!(memo.version(&UNLIMITED, &key("a/b")).unwrap().is_some());
        assert_eq!(memo.head(&UNLIMITED, &key("x")).unwrap(), None);
        assert!(memo.get(&UNLIMITED, &key("x"), 9).unwrap().is_none());
        assert!(
            memo.get(&UNLIMITED, &key("a/.zarray"), 9)
                .unwrap()
                .is_none()
        );
        assert!(
            memo.get(&UNLIMITED, &key("a/zarr.json"), 99)
                .unwrap()
                .is_some()
        );
        assert_eq!(
            memo.open(&UNLIMITED, &key("x"), None).err().unwrap().kind(),
            Kind::NotFound
        );
        assert_eq!(
            memo.list(&UNLIMITED, &key("y")).err().unwrap().kind(),
            Kind::NotFound
        );
    }
    let expected = [
        "head a",
        "head a/b",
        "head x",
        "get a/.zarray",
        "get a/zarr.json",
        "list y",
    ];
    assert_eq!(fake.asked(), expected);
    assert_eq!(
        memo.head(&WITHOUT_WAITING, &key("a/b"))
            .unwrap()
            .unwrap()
            .size,
        3
    );
    assert_eq!(memo.head(&WITHOUT_WAITING, &key("x")).unwrap(), None);
    assert!(!is_answer(&memo.head(&WITHOUT_WAITING, &key("z"))));
    assert_eq!(fake.count(), 0);
}

#[test]
fn a_ttl_of_zero_caches_nothing() {
    let fake = Fake::holding(&["a/zarr.json"], Order::Bytes);
    let memo = fake.memo(Duration::ZERO);
    for _ in 0..2 {
        memo.prefetch(&[key("a/zarr.json")]);
        assert_eq!(names(&memo, &key("a")).len(), 1);
        assert!(
            memo.head(&UNLIMITED, &key("a/zarr.json"))
                .unwrap()
                .is_some()
        );
        assert!(
            memo.get(&UNLIMITED, &key("a/zarr.json"), 99)
                .unwrap()
                .is_some()
        );
        assert!(memo.head(&UNLIMITED, &key("x")).unwrap().is_none());
        assert!(!is_answer(&memo.head(&WITHOUT_WAITING, &key("x"))));
        memo.open(&UNLIMITED, &key("a/zarr.json"), None).unwrap();
        assert_eq!(fake.asked().len(), 5);
    }
}

/// Invariant (caches): Cached metadata are not requested again until they expire, and are dropped when they turn out to
/// have changed.
#[test]
fn a_listing_caches_the_metadata_of_its_entries() {
    let fake = Fake::holding(&["d/a", "d/b", "d/c/e", "d/zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    let mut listing = memo.list(&UNLIMITED, &key("d")).unwrap();
    assert_eq!(listing.next(&UNLIMITED).unwrap().unwrap().name, b"a");
    assert_eq!(memo.head(&UNLIMITED, &key("d/a")).unwrap().unwrap().size, 3);
    assert!(
        !is_answer(&memo.head(&WITHOUT_WAITING, &key("d/b"))),
        "not read yet"
    );
    while listing.next(&UNLIMITED).unwrap().is_some() {}
    for (name, kind) in [("d/b", EntryKind::File), ("d/c", EntryKind::Directory)] {
        assert_eq!(
            memo.head(&UNLIMITED, &key(name)).unwrap().unwrap().kind,
            kind
        );
    }
    memo.open(&UNLIMITED, &key("d/b"), None).unwrap();
    for missing in ["d/x", "d/x/y/z", "d/b/zarr.json"] {
        assert_eq!(memo.head(&UNLIMITED, &key(missing)).unwrap(), None);
        assert!(memo.get(&UNLIMITED, &key(missing), 9).unwrap().is_none());
        assert_eq!(memo.version(&UNLIMITED, &key(missing)).unwrap(), None);
        assert_eq!(
            memo.list(&UNLIMITED, &key(missing)).err().unwrap().kind(),
            Kind::NotFound
        );
    }
    assert_eq!(
        memo.list(&UNLIMITED, &key("d/b")).err().unwrap().kind(),
        Kind::NotADirectory
    );
    assert_eq!(names(&memo, &key("d")).len(), 4);
    assert_eq!(fake.asked(), ["list d"]);
    assert!(memo.head(&UNLIMITED, &key("d/c/e")).unwrap().is_some());
    assert!(
        memo.get(&UNLIMITED, &key("d/zarr.json"), 99)
            .unwrap()
            .is_some()
    );
    assert_eq!(fake.asked(), ["head d/c/e", "get d/zarr.json"]);
}

#[test]
fn only_small_documents_are_cached() {
    let fake = Fake::holding(&["a/0.0"], Order::None);
    fake.set("zarr.json", &[b' '; 500]);
    fake.set("a/zarr.json", &[b' '; 501]);
    let memo = fake.memo_of(MetadataCacheConfig {
        ttl: LONG,
        document: 500,
        ..MetadataCacheConfig::default()
    });
    for name in ["zarr.json", "a/zarr.json", "a/0.0"] {
        for _ in 0..2 {
            assert!(memo.get(&UNLIMITED, &key(name), 1000).unwrap().is_some());
        }
    }
    let once = "get zarr.json";
    assert_eq!(
        fake.asked(),
        [
            once,
            "get a/zarr.json",
            "get a/zarr.json",
            "get a/0.0",
            "get a/0.0"
        ]
    );
    for limit in [499, 0] {
        assert_eq!(
            memo.get(&UNLIMITED, &key("zarr.json"), limit)
                .unwrap_err()
                .kind(),
            Kind::TooLarge
        );
    }
}

/// Invariant of `a_listing_caches_the_metadata_of_its_entries`.
#[test]
fn errors_are_not_cached() {
    let fake = Fake::holding(&["a/b", "a/c"], Order::Bytes);
    let memo = fake.memo(LONG);
    fake.fails.store(true, Ordering::SeqCst);
    assert!(
        memo.head(&UNLIMITED, &key("a/b")).is_err()
            && memo.get(&UNLIMITED, &key("a/b"), 9).is_err()
    );
    assert!(
        memo.list(&UNLIMITED, &key("a")).is_err()
            && memo.open(&UNLIMITED, &key("a/b"), None).is_err()
    );
    fake.fails.store(false, Ordering::SeqCst);
    assert!(memo.head(&UNLIMITED, &key("a/b")).unwrap().is_some());
    assert!(memo.get(&UNLIMITED, &key("a/b"), 9).unwrap().is_some());
    let mut listing = memo.list(&UNLIMITED, &key("a")).unwrap();
    assert_eq!(listing.next(&UNLIMITED).unwrap().unwrap().name, b"b");
    fake.fails.store(true, Ordering::SeqCst);
    assert!(
        listing.next(&UNLIMITED).is_err(),
        "never a shorter directory"
    );
    assert!(listing.next(&UNLIMITED).is_err());
    fake.fails.store(false, Ordering::SeqCst);
    assert_eq!(listing.next(&UNLIMITED).unwrap().unwrap().name, b"c");
    assert_eq!(listing.next(&UNLIMITED).unwrap(), None);
}

/// Calls `question` in eight threads that the store does not answer until all of them wait. Returns the requests to the
/// store.
fn together(fake: &Fake, question: impl Fn() + Sync) -> Vec<String> {
    const THREADS: usize = 8;
    fake.asked();
    fake.holds.store(true, Ordering::SeqCst);
    let threads = Mutex::new(Vec::new());
    let ask = || {
        threads.lock().unwrap().push(gettid());
        question();
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(ask);
        }
        let all_wait = || {
            let threads = threads.lock().unwrap();
            threads.len() == THREADS && threads.iter().all(|&thread| sleeps(thread))
        };
        while fake.held.load(Ordering::SeqCst) == 0 || !all_wait() {
            thread::yield_now();
        }
        fake.holds.store(false, Ordering::SeqCst);
    });
    fake.asked()
}

fn sleeps(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    // The state follows the name of the thread, which is in parentheses.
    stat.is_ok_and(|stat| stat.rsplit(") ").next().unwrap_or("").starts_with('S'))
}

/// Invariant (caches): Concurrent callers with the same question make one request to a store on the network.
#[test]
fn many_readers_make_one_request() {
    let fake = Fake::holding(&["a/b", "a/c", "a/zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    let asked = together(&fake, || {
        assert!(memo.head(&UNLIMITED, &key("a/b")).unwrap().is_some())
    });
    assert_eq!(asked, ["head a/b"]);
    let get = || {
        assert_eq!(
            memo.get(&UNLIMITED, &key("a/zarr.json"), 99)
                .unwrap()
                .unwrap()
                .size,
            11
        )
    };
    assert_eq!(together(&fake, get), ["get a/zarr.json"]);
    let open = || {
        assert_eq!(
            memo.open(&UNLIMITED, &key("a/c"), None)
                .unwrap()
                .meta(&UNLIMITED)
                .unwrap()
                .size,
            3
        )
    };
    assert_eq!(together(&fake, open), ["open a/c"]);
    let list = || assert_eq!(names(&memo, &key("a")).len(), 3);
    assert_eq!(together(&fake, list), ["list a"]);
    fake.fails.store(true, Ordering::SeqCst);
    let fail = || {
        assert_eq!(
            memo.head(&UNLIMITED, &key("z")).unwrap_err().kind(),
            Kind::Unavailable
        )
    };
    // A thread that comes after the failed request makes its own request, since errors are not cached.
    assert!(together(&fake, fail).len() < 8);
}

/// A caller that waited for a request that took longer than the TTL makes a request of its own.
#[test]
fn a_shared_answer_older_than_the_ttl_is_requested_again() {
    const TTL: Duration = Duration::from_millis(1);
    let fake = Fake::holding(&["a/b", "a/zarr.json"], Order::None);
    let memo = fake.memo(TTL);
    let questions: [&(dyn Fn() + Sync); 5] = [
        &|| assert!(memo.head(&UNLIMITED, &key("a/b")).unwrap().is_some()),
        &|| assert!(memo.version(&UNLIMITED, &key("a/b")).unwrap().is_some()),
        &|| drop(memo.get(&UNLIMITED, &key("a/zarr.json"), 99).unwrap()),
        &|| drop(memo.open(&UNLIMITED, &key("a/b"), None).unwrap()),
        &|| drop(memo.list(&UNLIMITED, &key("a")).unwrap()),
    ];
    for (number, question) in questions.into_iter().enumerate() {
        fake.asked();
        thread::sleep(10 * TTL);
        fake.holds.store(true, Ordering::SeqCst);
        let joined = Mutex::new(None);
        thread::scope(|scope| {
            scope.spawn(question);
            while fake.held.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            thread::sleep(10 * TTL);
            scope.spawn(|| {
                *joined.lock().unwrap() = Some(gettid());
                question();
            });
            while !joined.lock().unwrap().is_some_and(sleeps) {
                thread::yield_now();
            }
            fake.holds.store(false, Ordering::SeqCst);
        });
        assert_eq!(fake.count(), 2, "question {number}");
    }
}

/// Invariant of `a_listing_caches_the_metadata_of_its_entries`.
#[test]
fn a_changed_object_is_dropped_from_the_cache() {
    let fake = Fake::holding(&["d/a", "d/b"], Order::None);
    let memo = fake.memo(LONG);
    names(&memo, &key("d"));
    fake.set("d/a", b"other");
    let old = memo.open(&UNLIMITED, &key("d/a"), None).unwrap();
    assert_eq!(
        old.read_at(&UNLIMITED, 0, 9).unwrap_err().kind(),
        Kind::Changed
    );
    let new = memo.open(&UNLIMITED, &key("d/a"), None).unwrap();
    assert_eq!(new.read_at(&UNLIMITED, 0, 9).unwrap(), b"other");
    assert_eq!(memo.head(&UNLIMITED, &key("d/a")).unwrap().unwrap().size, 5);
    fake.set("d/c", b"new");
    assert_eq!(
        names(&memo, &key("d")).len(),
        3,
        "the listing is forgotten too"
    );
}

#[test]
fn a_listing_replaces_an_older_cached_document() {
    let fake = Fake::holding(&["d/zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    let before = memo
        .get(&UNLIMITED, &key("d/zarr.json"), 99)
        .unwrap()
        .unwrap();
    fake.set("d/zarr.json", b"other");
    names(&memo, &key("d"));
    let after = memo
        .get(&UNLIMITED, &key("d/zarr.json"), 99)
        .unwrap()
        .unwrap();
    assert_ne!(before.version, after.version);
    assert_eq!(after.bytes, b"other");
}

#[test]
fn names_take_a_bounded_amount_of_memory() {
    let all: Vec<String> = (0..4000)
        .map(|number| format!("d{}/{number:04}", number / 3000))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let fake = Fake::holding(&all, Order::None);
    let memo = fake.memo_of(MetadataCacheConfig {
        ttl: LONG,
        names: 2000,
        ..MetadataCacheConfig::default()
    });
    let mut other = memo.list(&UNLIMITED, &key("d0")).unwrap();
    other.next(&UNLIMITED).unwrap();
    assert_eq!(names(&memo, &key("d0")).len(), 3000);
    let mut rest = 1;
    while other.next(&UNLIMITED).unwrap().is_some() {
        rest += 1;
    }
    assert_eq!(rest, 3000, "who reads it too misses nothing");
    assert_eq!(names(&memo, &key("d1")).len(), 1000);
    fake.asked();
    assert!(
        !is_answer(&memo.head(&WITHOUT_WAITING, &key("d0/0001"))),
        "too many to be remembered"
    );
    assert!(
        memo.head(&WITHOUT_WAITING, &key("d1/3001"))
            .unwrap()
            .is_some()
    );
}

/// Returns the directories of a store, each with its names, which are read depth first in the order of names.
fn tree(store: &dyn Store, top: &Key) -> BTreeMap<Key, BTreeMap<Vec<u8>, EntryKind>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        let names = names(store, &folder);
        for (name, kind) in names.iter().rev() {
            let child = folder.child(name).unwrap();
            match kind {
                EntryKind::Directory => folders.push(child),
                _ => assert_eq!(
                    store.head(&UNLIMITED, &child).unwrap().unwrap().kind,
                    EntryKind::File
                ),
            }
        }
        found.insert(folder, names);
    }
    found
}

fn grid(side: usize) -> Vec<String> {
    let places = (0..side * side * side)
        .map(|place| (place / side / side, place / side % side, place % side));
    places.map(|(z, y, x)| format!("a/c/{z}/{y}/{x}")).collect()
}

#[test]
fn a_tree_is_walked_with_few_requests() {
    let keys = grid(12);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for order in [Order::Bytes, Order::Names] {
        let fake = Fake::holding(&keys, order);
        let walked = tree(&fake.memo(LONG), &Key::root());
        assert_eq!(walked, tree(&fake.memory, &Key::root()));
        // One flat listing replaces the listings after the second directory of chunks. The store has 1,728 objects in
        // 160 directories.
        let asked = fake.asked();
        let before = ["list /", "list a", "list a/c", "list a/c/0", "list a/c/0/0"];
        assert_eq!(asked[..5], before, "{order:?}");
        assert_eq!(asked[5], "page a/c/0/1/0", "{order:?}");
        assert!(asked.len() <= 12 + 8, "{order:?}: {asked:?}");
    }
}

#[test]
fn small_folders_are_walked_with_few_requests() {
    let keys = grid(9);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fake = Fake::holding(&keys, Order::Bytes);
    let memo = fake.memo(LONG);
    let walked = tree(&memo, &Key::root());
    let asked = fake.asked();
    // A page of the flat listing has room for the 81 keys of a directory, of which there are 9.
    assert!(asked.len() <= 5 + 9, "{asked:?}");
    assert_eq!(walked, tree(&fake.memory, &Key::root()));
}

#[test]
fn pages_are_listed_in_parallel_once_their_starts_are_known() {
    let keys = grid(9);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fake = Fake::holding(&keys, Order::Bytes);
    let memo = fake.memo(LONG);
    names(&memo, &Key::root());
    for name in ["a", "a/c", "a/c/0", "a/c/0/0", "a/c/0/1"] {
        names(&memo, &key(name));
    }
    let end = Instant::now() + Duration::from_secs(10);
    while fake.count() < 5 + 9 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let asked = fake.asked();
    for number in 2..9 {
        let page = format!("page a/c/{number}/0/0");
        assert!(asked.contains(&page), "{asked:?}");
    }
    for number in 1..9 {
        let folder = key(&format!("a/c/{number}/8"));
        assert_eq!(names(&memo, &folder).len(), 9);
    }
    assert!(fake.asked().is_empty(), "all of it is known");
}

#[test]
fn a_walk_of_an_unordered_store_finds_the_whole_tree() {
    let keys = grid(12);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fake = Fake::holding(&keys, Order::Neither);
    let memo = fake.memo(LONG);
    assert_eq!(tree(&memo, &Key::root()), tree(&fake.memory, &Key::root()));
    // The first of the flat listing's 12 pages shows that the keys have no usable order, so the others are not
    // requested.
    let asked = fake.asked();
    let pages = asked.iter().filter(|request| request.starts_with("page"));
    assert_eq!(pages.count(), 1, "{asked:?}");
}

/// Returns a store with a group of 40 arrays that was listed.
fn listed_arrays() -> (Fake, MetadataCache, Vec<Key>) {
    let keys = (0..40).map(|number| format!("g/{number:02}/zarr.json"));
    let keys: Vec<String> = keys.collect();
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fake = Fake::holding(&all, Order::None);
    let memo = fake.memo(LONG);
    names(&memo, &key("g"));
    fake.asked();
    (fake, memo, all.into_iter().map(key).collect())
}

fn wait_for_requests(fake: &Fake, count: usize) {
    while fake.count() < count {
        thread::sleep(Duration::from_millis(1));
    }
}

/// How long a test waits before it assumes that no more requests to the store follow.
const SETTLED: Duration = Duration::from_millis(50);

#[test]
fn documents_of_siblings_are_prefetched() {
    // A program that reads the first document is expected to read all documents of the group, so they are prefetched.
    for first in [0, 3] {
        let (fake, memo, all) = listed_arrays();
        assert!(memo.get(&UNLIMITED, &all[first], 99).unwrap().is_some());
        if first > 0 {
            thread::sleep(SETTLED);
            assert_eq!(fake.count(), 1, "one alone says nothing of the others");
            assert!(memo.get(&UNLIMITED, &all[first + 1], 99).unwrap().is_some());
        }
        wait_for_requests(&fake, 33);
        for name in &all {
            assert!(memo.get(&UNLIMITED, name, 99).unwrap().is_some());
        }
        let asked = fake.asked();
        let once: BTreeSet<&String> = asked.iter().collect();
        assert_eq!((once.len(), asked.len()), (40, 40), "{first}");
        assert_eq!(fake.count(), 0);
    }
}

#[test]
fn lookups_of_sibling_documents_are_prefetched() {
    let (fake, memo, all) = listed_arrays();
    for document in &all[..2] {
        assert!(memo.head(&UNLIMITED, document).unwrap().is_some());
    }
    thread::sleep(SETTLED);
    assert_eq!(fake.count(), 2);
    assert!(memo.head(&UNLIMITED, &all[2]).unwrap().is_some());
    wait_for_requests(&fake, 6);
    thread::sleep(SETTLED);
    assert_eq!(
        fake.count(),
        6,
        "no more than the program itself has asked for"
    );
    for document in &all {
        let found = waiting::ask(|context| memo.head(context, document));
        assert!(found.unwrap().is_some());
    }
    assert_eq!(fake.asked().len(), 40);
}

#[test]
fn documents_are_prefetched_concurrently() {
    let fake = Fake::holding(&["zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    let wanted = ["zarr.json", ".zarray", ".zgroup", ".zattrs"].map(key);
    fake.holds.store(true, Ordering::SeqCst);
    memo.prefetch(&wanted);
    while fake.held.load(Ordering::SeqCst) < 4 {
        thread::yield_now();
    }
    fake.holds.store(false, Ordering::SeqCst);
    for name in &wanted {
        memo.get(&UNLIMITED, name, 99).unwrap();
    }
    assert_eq!(fake.asked().len(), 4);
}

#[test]
fn the_root_of_a_store_is_listed_in_advance() {
    let fake = Fake::holding(&["a/0", "b/0", "zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    memo.list_root(&UNLIMITED);
    assert_eq!(fake.asked(), ["list /"]);
    assert!(memo.get(&UNLIMITED, &key(".zarray"), 9).unwrap().is_none());
    assert_eq!(memo.head(&WITHOUT_WAITING, &key(".zarrfs")).unwrap(), None);
    assert_eq!(names(&memo, &Key::root()).len(), 3);
    assert_eq!(fake.count(), 0);
    fake.memo(Duration::ZERO).list_root(&UNLIMITED);
    assert_eq!(fake.count(), 0);
}

#[test]
fn a_single_directory_in_the_root_is_listed_in_advance() {
    let fake = Fake::holding(&["c/0/0", "c/1/0", "zarr.json"], Order::None);
    let memo = fake.memo(LONG);
    memo.list_root(&UNLIMITED);
    // The directory was listed by a background thread or by the call.
    assert_eq!(names(&memo, &key("c")).len(), 2);
    wait_for_requests(&fake, 2);
    assert_eq!(fake.asked(), ["list /", "list c"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Invariant (caches): A flat listing has the same names as the listings of its directories.
    #[test]
    fn a_walked_tree_equals_its_listings(
        keys in prop::collection::btree_set("[ab0.-]{1,2}(/[ab0-]{1,2}){0,4}", 1..300),
        order in prop::sample::select(vec![Order::Bytes, Order::Names, Order::Neither]),
    ) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|name| Key::new(*name).is_ok()).collect();
        // A key that is both an object and a prefix occurs once in a listing.
        let fake = Fake::holding(&keys, order);
        let memo = fake.memo(LONG);
        prop_assert_eq!(tree(&memo, &Key::root()), tree(&fake.memory, &Key::root()));
        prop_assert_eq!(tree(&memo, &Key::root()), tree(&fake.memory, &Key::root()));
    }
}
