//! Requests that may not wait: answered from memory or refused, without a store call.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use zarr_format::error::Result;
use zarrfs::vfs::{Caller, Ino, NameIn, OpenOptions, Vfs, VfsConfig};
use zarrfs::view::store::StoreView;
use zarrfs::view::store_without_listing::StoreWithoutListing;
use zarrfs::view::{ChildName, View};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::counting::CountingStore;
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};
use zarrfs_store::stats::Stats;
use zarrfs_store::tree::RenameMode;
use zarrfs_store::{Key, Store};

use crate::common::views_of;
use crate::operations::faulty::{Before, Faulty};

const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;
const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8", "fill_value": 7,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]}"#;

/// A hook that fails the test if the store is called while it is stuck.
#[derive(Default)]
struct Stuck(AtomicBool);

impl Before for Stuck {
    fn call(&self, key: &Key) -> Result<()> {
        assert!(!self.0.load(SeqCst), "the store is asked about {key:?}");
        Ok(())
    }
}

type NamedViews = Vec<(&'static str, Arc<dyn View>)>;

/// Returns each view of a store, and a switch after which calls of the store fail the test. One view has an overlay in
/// `folder`.
fn views(folder: &Path) -> (NamedViews, Arc<Stuck>) {
    let memory = MemoryStore::default();
    for (key, text) in [
        ("zarr.json", GROUP),
        ("a/zarr.json", ARRAY),
        ("a/c/0", "ab"),
        ("b/zarr.json", ARRAY),
    ] {
        memory.set(Key::new(key).unwrap(), text.into());
    }
    let stuck = Arc::<Stuck>::default();
    let hour = Duration::from_secs(3600);
    let remote = Faulty::new(Arc::new(memory), stuck.clone(), hour);
    let store: Arc<dyn Store> = Arc::new(CountingStore::new(Arc::new(remote), Arc::default()));
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let upper = folder.join("upper");
    let overlay = Arc::new(Overlay::open(&upper, store.clone(), "/store", config).unwrap());
    let both = views_of(store.clone(), hour);
    let changed = StoreView::new(overlay.clone()).with_tree(Some(overlay));
    let hierarchy = Arc::new(Hierarchy::new(store.clone()));
    let views: NamedViews = vec![
        ("store", both.stored),
        ("files", both.files),
        ("changed", Arc::new(changed)),
        (
            "without listing",
            Arc::new(StoreWithoutListing::new(store, None, hierarchy)),
        ),
    ];
    (views, stuck)
}

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

#[test]
fn a_view_request_that_may_not_wait_makes_no_store_call() {
    let folder = tempfile::tempdir().unwrap();
    let (views, stuck) = views(folder.path());
    stuck.0.store(true, SeqCst);
    let context = &WITHOUT_WAITING;
    for (name, view) in &views {
        for path in ["a", "a/zarr.json", "a/a.npy", "a/c/0", "none/at/all"] {
            let place = key(path);
            assert!(!is_answer(&view.lookup(context, &place)), "{name}: {path}");
            assert!(!is_answer(&view.measure(context, &place)), "{name}: {path}");
            assert!(!is_answer(&view.list(context, &place)), "{name}: {path}");
            assert!(!is_answer(&view.open(context, &place)), "{name}: {path}");
            let child = view.dir(context, &place).and_then(|dir| {
                let child = ChildName::from(&b"c"[..]);
                view.child(context, &dir, &child)
            });
            assert!(!is_answer(&child), "{name}: {path}");
            // Some of these requests may fail, but none may call the store.
            let _ = view.attribute(context, &place, b"user.zarrfs.files");
            let _ = view.attribute(context, &place, b"user.zarrfs.shape");
            let _ = view.read_link(context, &place);
            let _ = view.tree(context, &place);
        }
    }
}

#[test]
fn an_operation_that_may_not_wait_makes_no_store_call() {
    let folder = tempfile::tempdir().unwrap();
    let (views, stuck) = views(folder.path());
    let (context, caller) = (&WITHOUT_WAITING, Caller(1));
    for (name, view) in views {
        let stats = Arc::new(Stats::default());
        let config = VfsConfig {
            uid: 0,
            gid: 0,
            umask: 0,
            writable: name == "changed",
        };
        let vfs = Vfs::new(view, config, stats.clone());
        stuck.0.store(false, SeqCst);
        let find = |parent, name: &[u8]| vfs.lookup(&UNLIMITED, parent, name, caller);
        let array = find(Ino::ROOT, b"a").unwrap().expect(name).ino;
        let document = match name {
            "files" => find(array, b"metadata.json"),
            _ => find(array, b"zarr.json"),
        };
        let document = document.unwrap().expect(name).ino;
        // Write to the elements of the decoded file, behind its header, and not to the header.
        let (chunk, start) = if name == "files" {
            (find(array, b"a.npy").unwrap().unwrap().ino, 128)
        } else {
            let dir = find(array, b"c").unwrap().unwrap().ino;
            (find(dir, b"0").unwrap().unwrap().ino, 0)
        };
        let opened = vfs.open(&UNLIMITED, chunk, caller).unwrap();
        let dir = vfs.opendir(&UNLIMITED, array, caller).unwrap();
        stuck.0.store(true, SeqCst);

        let counted = stats.lookup_requests.get();
        assert!(!is_answer(&vfs.lookup(context, Ino::ROOT, b"b", caller)));
        assert_eq!(stats.lookup_requests.get(), counted, "{name}");
        let again = vfs.lookup(context, Ino::ROOT, b"a", caller);
        assert_eq!(
            is_answer(&again),
            matches!(name, "files" | "without listing")
        );
        for ino in [Ino::ROOT, array, document, chunk] {
            let _ = vfs.getattr(context, ino, caller);
            let _ = vfs.attribute(context, ino, b"user.x");
            let _ = vfs.view_attribute(context, ino, b"user.zarrfs.files");
            let _ = vfs.attributes(context, ino);
            let _ = vfs.read_link(context, ino);
            let _ = vfs.open(context, ino, caller);
            let _ = vfs.opendir(context, ino, caller);
        }
        let _ = vfs.readdir(context, dir, 0, &mut |_| true);
        let _ = vfs.free_space(context);
        if name == "changed" {
            let mode = OpenOptions {
                writes: true,
                truncates: true,
                ..OpenOptions::default()
            };
            assert!(!is_answer(
                &vfs.open_for_writing(context, document, mode, caller)
            ));
            assert!(!is_answer(&vfs.unlink(context, array, b"zarr.json")));
            let (from, to) = (NameIn::new(array, b"c"), NameIn::new(array, b"d"));
            assert!(!is_answer(&vfs.rename(
                context,
                from,
                to,
                RenameMode::Replace
            )));
        }
        assert!(
            !is_answer(&vfs.read(context, opened.fh, start, 2)),
            "{name}"
        );
        stuck.0.store(false, SeqCst);
        assert_eq!(
            vfs.read(&UNLIMITED, opened.fh, start, 2).unwrap()[..],
            *b"ab"
        );
        vfs.release(&UNLIMITED, opened.fh);
    }
}
