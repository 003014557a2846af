//! Counts the requests after a caller announced that it reads below several directories.

use zarrfs_store::{Hints, Key, Store};

use super::fake::{Fake, LONG, Order, PAGE, key};
use zarrfs_store::request_context::UNLIMITED;

/// Returns a store with `count` directories in `g`, each with a metadata document and `chunks` chunks.
fn directories(count: usize, chunks: usize, order: Order) -> (Fake, Vec<Key>) {
    let folders: Vec<String> = (0..count).map(|number| format!("g/a{number:03}")).collect();
    let names = folders.iter().flat_map(|folder| {
        let chunks = (0..chunks).map(move |chunk| format!("{folder}/c/{chunk}"));
        chunks.chain([format!("{folder}/zarr.json")])
    });
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fake = Fake::holding(&names, order);
    (fake, folders.iter().map(|folder| key(folder)).collect())
}

#[test]
fn one_listing_caches_many_small_directories() {
    for order in [Order::Bytes, Order::Names] {
        let (fake, folders) = directories(100, 2, order);
        let memo = fake.memo(LONG);
        for _ in 0..2 {
            memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
        }
        assert_eq!(fake.asked().len(), 300 / PAGE, "{order:?}");
        for folder in &folders {
            let below = memo.cached_below(&UNLIMITED, folder).unwrap();
            let names: Vec<String> = below.iter().map(|(key, _)| key.to_string()).collect();
            let expected = ["c/0", "c/1", "zarr.json"].map(|name| format!("{folder}/{name}"));
            assert_eq!(names, expected);
            for (key, meta) in below {
                assert_eq!(memo.head(&UNLIMITED, &key).unwrap(), Some(meta));
            }
            for missing in [".zarray", "c/2", "x/y"] {
                let missing = key(&format!("{folder}/{missing}"));
                assert!(memo.get(&UNLIMITED, &missing, 99).unwrap().is_none());
            }
            assert_eq!(
                memo.list(&UNLIMITED, folder)
                    .unwrap()
                    .next(&UNLIMITED)
                    .unwrap()
                    .unwrap()
                    .name,
                b"c"
            );
        }
        assert_eq!(fake.asked(), [""; 0], "{order:?}");
    }
}

#[test]
fn a_page_that_completes_too_few_directories_ends_the_listing() {
    let (fake, folders) = directories(10, PAGE - 10, Order::Bytes);
    let memo = fake.memo(LONG);
    memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
    assert_eq!(fake.asked(), ["page g/a000/c/0"]);
    let known = folders
        .iter()
        .filter(|folder| memo.cached_below(&UNLIMITED, folder).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [&folders[0]]);
}

#[test]
fn a_directory_changed_during_the_listing_is_not_cached() {
    let (fake, folders) = directories(3, 1, Order::Bytes);
    let memo = fake.memo(LONG);
    fake.change_at_page("g/a001/c/0");
    memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
    let known = folders
        .iter()
        .map(|folder| memo.cached_below(&UNLIMITED, folder).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn unordered_listings_are_not_cached() {
    let (fake, folders) = directories(20, 1, Order::Neither);
    let memo = fake.memo(LONG);
    for _ in 0..2 {
        memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
    }
    assert_eq!(fake.asked().len(), 1, "and not tried again");
    assert!(
        folders
            .iter()
            .all(|folder| memo.cached_below(&UNLIMITED, folder).is_none())
    );
}

#[test]
fn nothing_is_listed_without_a_ttl_or_without_listings() {
    for (order, ttl) in [
        (Order::Bytes, std::time::Duration::ZERO),
        (Order::None, LONG),
    ] {
        let (fake, folders) = directories(3, 1, order);
        let memo = fake.memo(ttl);
        memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
        assert_eq!(fake.asked(), [""; 0]);
        assert!(memo.cached_below(&UNLIMITED, &folders[0]).is_none());
    }
}

#[test]
fn a_directory_with_an_empty_object_is_not_cached() {
    let (fake, folders) = directories(3, 1, Order::Bytes);
    fake.set("g/a001/c/0", b"");
    let memo = fake.memo(LONG);
    memo.prefetch_below(&UNLIMITED, &key("g"), &folders);
    let known = folders
        .iter()
        .map(|folder| memo.cached_below(&UNLIMITED, folder).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [true, false, true]);
}
