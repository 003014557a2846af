//! Tests that listing sparse arrays costs as much as their stored chunks, not their grids.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use zarr_format::error::Result;
use zarrfs::mount::open::ViewKind;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{FlatListing, Key, Listing, Meta, Store};

use crate::arrays::stored::{
    DOCUMENTS, default_keys, key, memory, names, set, strings, v2, v3, view_of,
};
use crate::common;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// Returns the metadata of arrays with 10^9 and 10^15 chunks, with and without sharding.
fn huge() -> Vec<(&'static str, String)> {
    let codecs = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 1], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes",
        "configuration": {"endian": "little"}}],
    }}]);
    let mut sharded: Value = serde_json::from_str(&v3(
        &[1_000_000_000, 1_000_000],
        &[1000, 1000],
        default_keys(),
    ))
    .unwrap();
    sharded["codecs"] = codecs;
    vec![
        ("zarr.json", v3(&[1_000_000_000], &[1], default_keys())),
        (
            "zarr.json",
            v3(&[1_000_000_000, 1_000_000], &[1, 1], default_keys()),
        ),
        ("zarr.json", sharded.to_string()),
        (".zarray", v2(&[1_000_000_000, 1_000_000], &[1, 1], None)),
        (".zarray", strings(1_000_000_000, 1)),
    ]
}

/// Invariant (reading): Listing the files view costs as much as the stored chunks, not the grid; if the store cannot
/// list its chunks, the listing is an error.
#[test]
fn listing_a_huge_array_costs_as_much_as_its_stored_chunks() {
    let mut measured = 0;
    for (document, metadata) in huge() {
        let store = memory(&[(&format!("a/{document}"), &metadata)]);
        let (view, stats) = view_of(Arc::new(store.clone()), &[]);
        assert_eq!(
            names(&view, "a"),
            set(&[&DOCUMENTS[..], &["chunks"]].concat()),
            "{metadata}"
        );
        assert_eq!(names(&view, "a/chunks"), set(&[]));
        let asked = || stats.store_list_requests.get() + stats.store_head_requests.get();
        assert!(asked() < 20, "{} requests: {metadata}", asked());
        assert_eq!(stats.decoded_chunks.get(), 0);
        let file = view.lookup(&UNLIMITED, &key("a/a.npy")).unwrap();
        if let Some(file) = file.filter(|file| file.is_exact && !metadata.contains("|O")) {
            assert!((1..=8).contains(&file.chunk_bytes), "{metadata}");
            measured += 1;
        }
        // The directory lists each format that the user has requested, whatever the size of the file.
        let (asking, _) = view_of(Arc::new(store), &["npy"]);
        assert!(names(&asking, "a").contains("a.npy"));
    }
    assert!(measured > 0);
}

#[test]
fn a_large_array_that_is_stored_is_listed_as_a_file() {
    let metadata = v3(&[1 << 20], &[1], default_keys());
    let store = memory(&[("a/zarr.json", &metadata)]);
    let form = |store: &MemoryStore| {
        let (view, _) = view_of(Arc::new(store.clone()), &[]);
        let mut names = names(&view, "a");
        names.retain(|name| !DOCUMENTS.contains(&name.as_str()));
        names.into_iter().collect::<Vec<_>>()
    };
    for number in 0..900 {
        store.set(key(&format!("a/c/{number}")), vec![1]);
    }
    assert_eq!(form(&store), ["chunks"]);
    for number in 0..1 << 17 {
        store.set(key(&format!("a/c/{}", number * 8)), vec![1]);
    }
    assert_eq!(form(&store), ["a.npy"]);
}

/// A store that lists all keys with a prefix in pages, as S3 does.
struct Paged {
    inner: MemoryStore,
    keys: Vec<Key>,
    pages: Arc<AtomicUsize>,
}

const PAGE: usize = 1000;

/// A listing in pages, with the keys that it has not returned yet.
struct Pages {
    rest: Vec<Key>,
    pages: Arc<AtomicUsize>,
}

impl FlatListing for Pages {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.pages.fetch_add(1, Ordering::Relaxed);
        let page = self.rest.drain(..PAGE.min(self.rest.len()));
        Ok(Some(page.map(|key| (key, Meta::prefix())).collect()))
    }

    fn has_ended(&self) -> bool {
        self.rest.is_empty()
    }
}

impl Layer for Paged {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        assert!(prefix.is_root(), "{prefix} is listed");
        self.inner.list(context, prefix)
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        let rest = self.keys.iter().filter(|key| key.below(prefix).is_some());
        Ok(Some(Box::new(Pages {
            rest: rest.cloned().collect(),
            pages: self.pages.clone(),
        })))
    }
}

#[test]
fn a_listing_requests_one_page_of_keys_from_a_bucket() {
    let metadata = v2(&[1_000_000_000], &[1], Some("."));
    for (stored, form, most) in [(0, "chunks", 0), (999, "chunks", 1), (5000, "a.npy", 2)] {
        let keys = (0..stored).map(|number| key(&format!("a/{number}")));
        let paged = Paged {
            inner: memory(&[("a/.zarray", &metadata)]),
            keys: keys.collect(),
            pages: Arc::default(),
        };
        let pages = paged.pages.clone();
        let (view, _) = view_of(Arc::new(paged), &[]);
        let expected = set(&[&DOCUMENTS[..], &[form]].concat());
        assert_eq!(names(&view, "a"), expected, "{stored} chunks");
        assert!(pages.load(Ordering::Relaxed) <= most, "{stored} chunks");
    }
}

#[test]
fn an_array_with_enough_stored_chunks_is_listed_as_a_file() {
    let (length, chunk) = (8 << 30, 256 << 20);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a/c")).unwrap();
    let metadata = v3(&[length], &[chunk], default_keys());
    std::fs::write(folder.path().join("a/zarr.json"), metadata).unwrap();
    let form = || {
        let view = common::open(folder.path()).unwrap().0;
        let view = view.view(ViewKind::Files);
        names(&view, "a").contains("a.npy")
    };
    for number in 0..32 {
        // While at most 2 of 32 chunks (1/16) are stored, the directory lists the chunks instead of one file.
        assert_eq!(form(), number > 2, "{number} chunks are stored");
        std::fs::write(folder.path().join(format!("a/c/{number}")), "x").unwrap();
    }
}
